"""How counters behave. Every setting has a bound, and every error says what would be right."""

from __future__ import annotations

import enum
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from tenure.errors import ConfigError
from tenure.plugins.counters.records import Level

_DAY = 86_400.0


class Mode(enum.Enum):
    """When a call returns."""

    ASYNC = "async"
    """When what it gave is durable: it will be counted, once."""
    SYNC = "sync"
    """When it is in the record."""


class OnDirectWrite(enum.Enum):
    """What becomes of a write to the resource that gives a counted field another value than its total."""

    REFUSE = "refuse"
    """`InvalidRecord`, and nothing is written."""
    KEEP = "keep"
    """The rest is written, and the total stays as it is."""


class Retention(msgspec.Struct, frozen=True):
    """How much history is kept apart: so many hours, then days, then months. What is older is kept as one sum."""

    hours: int = 48
    days: int = 62
    months: int = 24

    def __post_init__(self) -> None:
        for name, most in (("hours", 24 * 62), ("days", 3660), ("months", 1200)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise ConfigError(f"retention.{name} is {value!r}: give a whole number from 1 to {most:,}")

    def of(self, level: Level) -> int:
        return {Level.HOUR: self.hours, Level.DAY: self.days, Level.MONTH: self.months, Level.ALL: 1}[level]


class CounterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, unless said otherwise. The leader's decide, but for `mode` and `on_direct_write`."""

    mode: Mode = Mode.ASYNC
    interval: float = 5.0
    """What was folded is written to its records so often: more often is fresher, and costs more."""
    at_once: int = 32
    """Records that the leader works on at a time."""
    dedup_window: float = 3600.0
    """For how long an `op_id` is remembered."""
    timezone: str = "UTC"
    """Where hours, days and months begin: an IANA name, the same in all processes."""
    retention: Retention = Retention()
    on_direct_write: OnDirectWrite = OnDirectWrite.REFUSE
    idle_budget: float = 720.0
    """Requests an hour that a leader may spend on looking while nothing happens. Less is cheaper; what other processes
    add after a silence is folded later, by default within five seconds."""
    fold_interval: float = 0.1
    """The leader's shortest pause between two looks into the inbox."""

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)


def settings_from(options: dict[str, Any]) -> CounterSettings:
    """Settings as a user gives them: enums by their words, durations as seconds or `timedelta`."""
    known = set(CounterSettings.__struct_fields__)
    for name in options:
        if name not in known:
            raise ConfigError(f"there is no setting {name!r} of counters: there are {', '.join(sorted(known))}")
    chosen: dict[str, Any] = {
        name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in options.items()
    }
    kinds: tuple[tuple[str, type[enum.Enum]], ...] = (("mode", Mode), ("on_direct_write", OnDirectWrite))
    for name, kind in kinds:
        if name in chosen:
            chosen[name] = word_of(name, chosen[name], kind)
    return checked(CounterSettings(**chosen))


def word_of(name: str, value: object, kind: type[enum.Enum]) -> Any:
    """A policy, given as it is or by its word."""
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(repr(each.value) for each in kind)
        raise ConfigError(f"{name} is {value!r:.80}: give one of {choices}") from None


def checked(settings: CounterSettings) -> CounterSettings:
    """Give back settings that can work; otherwise say which cannot, and what would be right."""
    for name, (least, most) in {
        "interval": (0.05, _DAY),
        "dedup_window": (0.0, 7 * _DAY),
        "idle_budget": (12.0, 1e7),
        "fold_interval": (0.001, 60.0),
    }.items():
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{name} is {value!r:.80}: give a number, or a timedelta")
        if not least <= value <= most:
            raise ConfigError(f"{name} is {value!r:.80}: give from {least:g} to {most:g}")
    if isinstance(settings.at_once, bool) or not isinstance(settings.at_once, int) or not 1 <= settings.at_once <= 1000:
        raise ConfigError(f"at_once is {settings.at_once!r:.80}: give a whole number from 1 to 1,000")
    if not isinstance(settings.retention, Retention):
        raise ConfigError(f"retention is {settings.retention!r:.80}: give a Retention(hours=48, days=62, months=24)")
    check_zone(settings.timezone)
    return settings


def check_zone(name: object) -> ZoneInfo:
    try:
        if isinstance(name, str) and name:
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise ConfigError(f"timezone is {name!r:.80}: give the IANA name of a zone, such as 'Europe/Berlin' or 'UTC'")
