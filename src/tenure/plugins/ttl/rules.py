"""When a record expires, as a function of its data, of what is kept with it, and of the store's time.

Times in a field are ISO 8601 with an offset (`2026-03-01T12:00:00+00:00`, or with `Z`), or numbers since 1970:
milliseconds from 100,000,000,000 on, seconds below that. A field that is absent or null: the record does not expire.
"""

from __future__ import annotations

import enum
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tenure.database.expiry import Expiry
from tenure.plugins.ttl.settings import OnExpire, TTLSettings

MILLISECONDS_FROM = 100_000_000_000
"""As seconds this would be the year 5138, as milliseconds it is 1973."""
LATEST_MS = 253_402_300_799_000
"""The end of the year 9999: no calendar goes further."""
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BadTime(ValueError):
    """What is in the field is no time; the text says what would be one."""


class Now(msgspec.Struct, frozen=True):
    """The store's clock, as one process knows it."""

    ms: int
    doubt_ms: int

    @property
    def earliest_ms(self) -> int:
        """It is at least as late as this."""
        return self.ms - self.doubt_ms

    @property
    def latest_ms(self) -> int:
        return self.ms + self.doubt_ms


class Wish(enum.Enum):
    """What a call wants beside what it writes."""

    NOTHING = "nothing"
    TOUCH = "touch"
    PERSIST = "persist"


class Rules:
    """The settings of one resource, as rules."""

    def __init__(self, settings: TTLSettings) -> None:
        self.settings = settings
        self.ttl_ms = None if settings.ttl is None else math.ceil(settings.ttl * 1000)

    @property
    def by_field(self) -> bool:
        """Do the data alone say when a record expires?"""
        return self.settings.field is not None

    def is_soft_deleted(self, data: dict[str, Any]) -> bool:
        settings = self.settings
        return settings.on_expire is OnExpire.SOFT_DELETE and data.get(settings.soft_field) is not None

    def at_by_field(self, data: dict[str, Any]) -> int | None:
        """When a record with these data expires. Raises `BadTime`."""
        assert self.settings.field is not None
        if self.is_soft_deleted(data):
            return None
        value = data.get(self.settings.field)
        if value is None:
            return None
        return min(LATEST_MS, milliseconds(self.settings.field, value) + (self.ttl_ms or 0))

    def at_of(self, data: dict[str, Any], expiry: Expiry) -> int | None:
        """When a record that is stored expires: as its data say, or as is kept with it. Raises `BadTime`."""
        if self.by_field:
            return self.at_by_field(data)
        return None if self.is_soft_deleted(data) else expiry.at

    def from_now(self, now: Now, ttl_ms: int | None = None) -> int:
        """So long from now, and not a moment earlier whatever the doubt."""
        chosen = ttl_ms if ttl_ms is not None else self.ttl_ms
        assert chosen is not None
        return min(LATEST_MS, now.latest_ms + chosen)

    def field_for(self, at_ms: int, former: Any) -> Any:
        """What the field must hold for a record to expire then, in the form that it has had."""
        time_ms = at_ms - (self.ttl_ms or 0)
        if isinstance(former, bool) or not isinstance(former, int | float):
            return iso(time_ms)
        if former >= MILLISECONDS_FROM:
            return time_ms
        return math.ceil(time_ms / 1000) if isinstance(former, int) else time_ms / 1000


def milliseconds(field: str, value: Any) -> int:
    """A time in a record's field, rounded up to a millisecond. Raises `BadTime`."""
    right = "give ISO 8601 with an offset, such as '2026-03-01T12:00:00+00:00', or seconds or milliseconds since 1970"
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise BadTime(f"{field} is {value!r:.80}, which is no time: {right}") from None
        if moment.tzinfo is None:
            raise BadTime(f"{field} is {value!r:.80}, a time without an offset from UTC: {right}")
        try:
            return -((_UNIX_EPOCH - moment) // timedelta(milliseconds=1))
        except OverflowError:
            raise BadTime(f"{field} is {value!r:.80}, which no calendar holds in UTC: {right}") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadTime(f"{field} is {value!r:.80}, which is no time: {right}")
    if value < 0 or value > LATEST_MS:
        raise BadTime(f"{field} is {value!r:.80}, a time before 1970 or after 9999: {right}")
    return math.ceil(value if value >= MILLISECONDS_FROM else value * 1000)


def iso(time_ms: int) -> str:
    return moment_of(time_ms).isoformat(timespec="milliseconds")


def moment_of(time_ms: int) -> datetime:
    return _UNIX_EPOCH + timedelta(milliseconds=max(-62_000_000_000_000, min(time_ms, LATEST_MS)))
