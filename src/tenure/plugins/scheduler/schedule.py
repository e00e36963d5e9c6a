"""When a job is meant to fire: `cron(...)`, `every(...)` or `at(...)`, checked at the door.

    cron("0 3 * * *", timezone="Europe/Berlin")
    every(60)
    at(datetime(2030, 1, 1, tzinfo=UTC))

What is stored is the text of a cron expression and the name of a time zone, not what they mean: the rules of a zone
change, and are those of the machine that leads (its own, or those of the package `tzdata`).

Cron expressions are read as cronsim and Debian's cron read them: minute, hour, day of month, month, day of week. If
neither day field begins with `*`, a day matches that matches one of them, otherwise one that matches both.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from cronsim import CronSim, CronSimError

from tenure.errors import ConfigError

SHORTEST_PERIOD_MS = 1000
LONGEST_PERIOD_MS = 3660 * 86_400_000
MAX_MS = 221_845_392_000_000
"""The year 9000: no instant is later. What would be is `never`."""
MAX_CRON_CHARACTERS = 1000
MAX_ZONE_CHARACTERS = 64
CACHED_EXPRESSIONS = 2048
"""A parsed expression takes up to 10 KB."""
CACHED_ZONES = 1024

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

Instant = Annotated[int, msgspec.Meta(ge=0, le=MAX_MS)]
"""Milliseconds since 1970, UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
_NO_ZONES = ("localtime", "posixrules", "Factory")
"""Files beside the zones that are none, or another one on each machine."""
_NO_ZONE_FOLDERS = ("posix/", "right/")
"""`right/` counts leap seconds."""
_PROBE = datetime(2000, 1, 1)
"""What matches no local time in the 50 years from here matches none."""


class Dst(enum.Enum):
    """What a job at fixed times does when clocks are changed.

    A job whose minute or hour begins with `*` follows real time, whatever is chosen: in the hour that comes twice it
    fires twice as often, and in one that does not exist it does not fire.
    """

    SKIP = "skip"
    """A time that does not exist does not fire; of a time that comes twice, the first does."""
    ONCE = "once"
    """A time that does not exist fires right after the gap; of a time that comes twice, the first fires."""
    BOTH = "both"
    """A time that does not exist fires right after the gap; a time that comes twice fires twice."""


class Cron(msgspec.Struct, frozen=True, gc=False, tag="cron", tag_field="kind", omit_defaults=True):
    """Made by `cron(...)`."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CRON_CHARACTERS)]
    timezone: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ZONE_CHARACTERS)] = "UTC"
    dst: Dst = Dst.ONCE


class Every(msgspec.Struct, frozen=True, gc=False, tag="every", tag_field="kind", rename="camel"):
    """Made by `every(...)`."""

    period_ms: Annotated[int, msgspec.Meta(ge=SHORTEST_PERIOD_MS, le=LONGEST_PERIOD_MS)]


class At(msgspec.Struct, frozen=True, gc=False, tag="at", tag_field="kind", rename="camel"):
    """Made by `at(...)`."""

    at_ms: Instant


Schedule: TypeAlias = Cron | Every | At


def cron(text: str, timezone: str = "UTC", dst: Dst | str = Dst.ONCE) -> Cron:
    """Five fields, or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`; in local time of `timezone`."""
    try:
        policy = Dst(dst)
    except ValueError:
        choices = ", ".join(repr(each.value) for each in Dst)
        raise ConfigError(f"dst is {dst!r:.80}: give one of {choices}") from None
    schedule = Cron(" ".join(text.split()) if isinstance(text, str) else text, timezone, policy)
    check_schedule(schedule)
    return schedule


def every(period: float | timedelta) -> Every:
    """Every so many seconds, counted from the job's `start`, or else from when it was added."""
    number = period.total_seconds() if isinstance(period, timedelta) else period
    least, most = SHORTEST_PERIOD_MS / 1000, LONGEST_PERIOD_MS / 1000
    if isinstance(number, bool) or not isinstance(number, int | float) or not least <= number <= most:
        raise ConfigError(
            f"every is {period!r:.80}: give seconds from {least:g} to {most:,.0f} (ten years), or a timedelta"
        )
    return Every(round(number * 1000))


def at(when: datetime) -> At:
    """Once, at an instant: a `datetime` that has a time zone."""
    return At(instant_of("at", when))


def instant_of(field: str, when: Any) -> int:
    """Milliseconds since 1970, rounded up: nothing may happen early."""
    if not isinstance(when, datetime):
        raise ConfigError(f"{field} is {when!r:.80}: give a datetime with a time zone")
    if when.utcoffset() is None:
        raise ConfigError(
            f"{field} is {when.isoformat()}, which has no time zone and so is another instant in each: give it one, "
            'as in datetime(..., tzinfo=UTC) or datetime(..., tzinfo=ZoneInfo("Europe/Berlin"))'
        )
    ms = -(-((when - _EPOCH) // _MICROSECOND) // 1000)
    if not 0 <= ms <= MAX_MS:
        raise ConfigError(f"{field} is {when.isoformat()}: give a time from 1970 to the year 9000")
    return ms


def check_schedule(schedule: object) -> None:
    """Refuse what cannot be followed, and say what is wrong with it."""
    match schedule:
        case Cron():
            zone_of(schedule.timezone)
            if not isinstance(schedule.dst, Dst):
                raise ConfigError(f"dst is {schedule.dst!r:.80}: give one of Dst.SKIP, Dst.ONCE, Dst.BOTH")
            if not isinstance(schedule.text, str):
                raise ConfigError(f"cron is {schedule.text!r:.80}: give five fields as text, such as '0 3 * * *'")
            parsed(schedule.text)
        case Every():
            if not SHORTEST_PERIOD_MS <= schedule.period_ms <= LONGEST_PERIOD_MS:
                raise ConfigError(f"every is {schedule.period_ms / 1000:g} s: give one second to ten years")
        case At():
            if not 0 <= schedule.at_ms <= MAX_MS:
                raise ConfigError(f"at is {schedule.at_ms / 1000:g} s after 1970: give a time up to the year 9000")
        case _:
            raise ConfigError(
                f"schedule is {schedule!r:.80}: give cron('0 3 * * *', timezone='Europe/Berlin'), every(60) or at(...)"
            )


def expand(text: str) -> str:
    """The five fields that an alias stands for."""
    return ALIASES.get(text.lower(), text) if text.startswith("@") else text


class Expression(msgspec.Struct, frozen=True):
    """A cron expression that was read."""

    fields: CronSim
    is_fixed: bool
    """Fires at fixed times of day: neither the minute nor the hour begins with `*`."""
    last_minute: int
    """Of a day, in which it can match."""

    def after(self, local: datetime) -> Iterator[datetime]:
        """The local times that match, after this one; it ends where none does within 50 years."""
        search = CronSim.__new__(CronSim)  # a copy, at a tenth of the cost of reading the expression again
        search.__dict__.update(self.fields.__dict__)
        found: datetime | None = local
        while found is not None:
            # It goes on by one second, and then hour by hour: what is left of a minute, or a day, need not be walked.
            if found.hour * 60 + found.minute >= self.last_minute:
                search.dt = found.replace(hour=23, minute=59, second=59)
            else:
                search.dt = found.replace(second=59)
            found = next(search, None)
            if found is not None:
                yield found


@lru_cache(maxsize=CACHED_EXPRESSIONS)
def parsed(text: str) -> Expression:
    """Raises `ConfigError` for what is no expression of five fields, or never matches."""
    if len(text) > MAX_CRON_CHARACTERS:
        raise ConfigError(f"cron is {text!r:.80}…, of {len(text):,} characters: give at most {MAX_CRON_CHARACTERS:,}")
    five = expand(text)
    if five.startswith("@"):
        reason = " (there is no boot of a fleet)" if five.lower() == "@reboot" else ""
        raise ConfigError(f"cron is {text!r}: there is {', '.join(ALIASES)}, and no other word with an @{reason}")
    count = len(five.split())
    if count != 5:
        hint = "; seconds and years are not among them" if count in (6, 7) else ""
        raise ConfigError(
            f"cron is {text!r:.80}, which has {count} fields: give five, minute, hour, day of month, month and day of "
            f"week, such as '0 3 * * *'{hint}"
        )
    try:
        fields = CronSim(five, _PROBE)
        last = max(fields.hours) * 60 + max(fields.minutes)
        expression = Expression(fields, not any(part.startswith("*") for part in five.split()[:2]), last)
        found = next(expression.after(_PROBE), None)
    except (CronSimError, ValueError, AssertionError) as error:  # whatever a text from the bucket provokes
        what = f"{str(error)[:1].lower()}{str(error)[1:80]}" if isinstance(error, CronSimError) else "cannot be read"
        raise ConfigError(f"cron is {text!r:.80}: {what}{_advice(what)}") from None
    if found is None:
        raise ConfigError(f"cron is {text!r:.80}, which never happens: no day in 50 years matches")
    return expression


def _advice(what: str) -> str:
    fields = {
        "bad minute": "0 to 59",
        "bad hour": "0 to 23",
        "bad day-of-month": "1 to 31 (and one that the month has), or L for the last day",
        "bad month": "1 to 12, or JAN to DEC",
        "bad day-of-week": "0 to 7 (both are Sunday), or SUN to SAT; MON#1 is the first Monday, 5L the last Friday",
    }
    known = fields.get(what)
    return f": give {known}; also *, lists (1,2), ranges (1-5) and steps (*/15)" if known else ""


def zone_of(name: str) -> ZoneInfo:
    """The zone of an IANA name; raises `ConfigError` with what may have been meant."""
    if not isinstance(name, str) or len(name) > MAX_ZONE_CHARACTERS or not _ZONE.fullmatch(name):
        raise ConfigError(f"timezone is {name!r:.80}: give the name of a zone, such as 'Europe/Berlin' or 'UTC'")
    return _zone(name)


@lru_cache(maxsize=CACHED_ZONES)
def _zone(name: str) -> ZoneInfo:
    if name not in _NO_ZONES and not name.startswith(_NO_ZONE_FOLDERS):
        try:
            return ZoneInfo(name)
        except (LookupError, ValueError, OSError):
            pass
    raise ConfigError(f"timezone is {name!r}, which is not known here: {_meant(name)}")


def _meant(name: str) -> str:
    wanted = name.lower()
    names = {zone.lower(): zone for zone in sorted(available_timezones())}
    cities = {lowered.rpartition("/")[2]: zone for lowered, zone in names.items()}
    likely = [found] if (found := names.get(wanted) or cities.get(wanted)) else []
    likely = likely or [names[each] for each in difflib.get_close_matches(wanted, names, n=3, cutoff=0.7)]
    if likely:
        return f"did you mean {' or '.join(map(repr, likely))}?"
    return "give an IANA name, such as 'Europe/Berlin' (the package `tzdata` has them all)"
