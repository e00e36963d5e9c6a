"""How the records of a resource expire. Every setting has a bound, and every error says what would be right."""

from __future__ import annotations

import enum
from datetime import timedelta
from typing import Any

import msgspec

from tenure.coordinator.given import shown
from tenure.errors import ConfigError

_DAY = 86_400.0
MAX_TTL = 100 * 366 * _DAY
MAX_FIELD_CHARACTERS = 128


class OnExpire(enum.Enum):
    """What becomes of a record when its time has come."""

    HARD_DELETE = "hard-delete"
    SOFT_DELETE = "soft-delete"
    """It stays, and `soft_field` says when it expired."""
    ARCHIVE = "archive"
    """It is deleted, and its data are in the resource `archive`, once."""
    CALLBACK = "callback"
    """It is deleted, and a function is called with what it was, at least once."""


class TTLSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, unless said otherwise. Who writes a record decides when it expires; the leader, what happens then."""

    ttl: float | None = None
    """From creation, or from the time in `field`."""
    field: str | None = None
    """The field that holds the time at which a record expires, or, with `ttl`, from which that is counted."""
    on_expire: OnExpire = OnExpire.HARD_DELETE
    soft_field: str = "deleted_at"
    archive: str | None = None
    tick: float = 10.0
    """Records are gone within this time after they expired ..."""
    rate_limit: float = 0.0
    """... unless more than so many per second do; 0: no limit."""
    at_once: int = 32
    """Records that the leader works on at a time."""
    quarantine: float = 3600.0
    """An index entry whose record is not there is kept for so long. Give the same in every process: a record is sent
    within a quarter of it after its entry was, and no write may be under way for the rest."""
    max_attempts: int = 10
    """After so many calls that failed, a callback is given up."""
    backoff: float = 5.0
    """Before the second call; doubled for each further one ..."""
    max_backoff: float = 600.0
    """... up to this."""
    callback_timeout: float = 60.0
    """A call that takes longer has failed."""


def settings_from(options: dict[str, Any]) -> TTLSettings:
    """Settings as a user gives them: enums by their words, durations as seconds or `timedelta`."""
    known = set(TTLSettings.__struct_fields__)
    for name in options:
        if name not in known:
            raise ConfigError(f"there is no setting {name!r} of a TTL: there are {', '.join(sorted(known))}")
    chosen: dict[str, Any] = {
        name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in options.items()
    }
    if "on_expire" in chosen:
        try:
            chosen["on_expire"] = OnExpire(chosen["on_expire"])
        except ValueError:
            choices = ", ".join(repr(each.value) for each in OnExpire)
            raise ConfigError(f"on_expire is {chosen['on_expire']!r}: give one of {choices}") from None
    return checked(TTLSettings(**chosen))


def checked(settings: TTLSettings) -> TTLSettings:
    """Give back settings that can work; otherwise say which cannot, and what would be right."""
    if settings.ttl is None and settings.field is None:
        raise ConfigError(
            "neither ttl nor field is given: give ttl=1800 (seconds from creation), field='expires_at' (a field that "
            "holds the time), or both (seconds from the time in the field)"
        )
    if settings.ttl is not None:
        _number("ttl", settings.ttl, 0.001, MAX_TTL)
    for name in ("field", "soft_field"):
        value = getattr(settings, name)
        if value is None and name == "field":
            continue
        if not isinstance(value, str) or not 1 <= len(value) <= MAX_FIELD_CHARACTERS or not value.isprintable():
            raise ConfigError(f"{name} is {shown(value)}: give the name of a field of the records")
    if settings.on_expire is OnExpire.SOFT_DELETE and settings.field == settings.soft_field:
        raise ConfigError(f"field and soft_field are both {settings.field!r}: a record needs one of each")
    if (settings.on_expire is OnExpire.ARCHIVE) != (settings.archive is not None):
        raise ConfigError(
            f"on_expire is {settings.on_expire.value!r} and archive is {shown(settings.archive)}: give "
            "archive='name of a resource' together with on_expire='archive', and not otherwise"
        )
    for name, (least, most) in {
        "tick": (0.1, 3600.0),
        "rate_limit": (0.0, 1e6),
        "quarantine": (10.0, 30 * _DAY),
        "backoff": (0.01, _DAY),
        "max_backoff": (0.01, _DAY),
        "callback_timeout": (0.01, 3600.0),
    }.items():
        _number(name, getattr(settings, name), least, most)
    for name, low, high in (("at_once", 1, 1000), ("max_attempts", 1, 1000)):
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ConfigError(f"{name} is {shown(value)}: give a whole number from {low:,} to {high:,}")
    return settings


def seconds_given(name: str, value: Any) -> float:
    """A ttl that a call was given."""
    given = value.total_seconds() if isinstance(value, timedelta) else value
    _number(name, given, 0.001, MAX_TTL)
    return float(given)


def _number(name: str, value: Any, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} is {shown(value)}: give a number of seconds, or a timedelta")
    if not least <= value <= most:
        raise ConfigError(f"{name} is {shown(value)}: give from {least:g} to {most:g}")
