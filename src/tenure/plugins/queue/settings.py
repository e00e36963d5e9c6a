"""How a queue behaves. Every setting has a bound, and every error says what would be right."""

from __future__ import annotations

import enum
from datetime import timedelta

import msgspec

from tenure.coordinator.config import seconds
from tenure.errors import ConfigError
from tenure.plugins.queue.wire import MAX_ATTEMPTS

MAX_MESSAGE_BYTES = 256 * 1024
"""The default limit of one message; `max_message_bytes` may be up to `LARGEST_MESSAGE_BYTES`."""
LARGEST_MESSAGE_BYTES = 2 * 1024 * 1024
MAX_CONCURRENCY = 10_000
IDLE_PRESENCE = 4
"""A worker that holds nothing says so many times less often that it is there ..."""
IDLE_PRESENCE_KNOWN = 20
"""... and where membership knows of it anyway, so many times."""
_DAY = 86_400.0


class Delivery(enum.Enum):
    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"
    """A message is settled before its handler is called: what a crash interrupts is not handled again."""


class Ordering(enum.Enum):
    """What happens to the messages behind one of the same ordering key that failed."""

    WAIT = "wait"
    """They wait until it has succeeded or is dead."""
    PASS = "pass"  # noqa: S105
    """They go on, and it is tried again after them."""


class Blocking(enum.Enum):
    """Where a handler that is a plain function runs."""

    THREAD = "thread"
    PROCESS = "process"
    INLINE = "inline"
    """On the event loop itself: only for what never waits."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, unless said otherwise. The leader's settings decide; workers' settings concern their own handlers."""

    visibility_timeout: float = 30.0
    max_attempts: int = 5
    backoff: float = 1.0
    """Before the second attempt; doubled for each further one ..."""
    max_backoff: float = 300.0
    """... up to this, and drawn from the upper half of it at random."""
    dedup_window: float = 300.0
    priority_step: float = 60.0
    """A message is given before one that is this much older and one priority lower: so nothing waits for ever."""
    ordering: Ordering = Ordering.WAIT
    key_concurrency: int = 1
    """Messages of one ordering key that may be handled at once; above 1 they are begun, not finished, in order."""
    max_in_flight: int = 0
    """Messages that all workers may hold together; 0: as many as they can."""
    rate_limit: float = 0.0
    """Messages given out per second; 0: no limit."""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    result_retention: float = 0.0
    """What handlers return is kept for so long; 0: not at all."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    idle_budget: float = 3600.0
    """Requests per hour that a process may spend on looking while nothing happens: half of it as leader, for what is
    new in the inbox, half as worker, for tickets. Less is cheaper; the first message after a silence waits longer."""
    tick_interval: float = 0.02
    """The leader's shortest pause between two entries ..."""
    load_interval: float = 0.1
    """... and under load: so that each holds many messages, and costs few requests for each."""
    poll_interval: float = 0.05
    """How often a worker looks for tickets while there is work."""
    margin: float = 3.0
    """Between a worker's deadline and the leader's: clocks of the store as two processes see them, and slow writes."""
    presence: float = 15.0
    """A worker that holds messages and has nothing to report says that it is there, at least so often."""


def checked(settings: QueueSettings) -> QueueSettings:
    """Give back settings that can work; otherwise say which cannot, and what would be right."""
    durations = {
        "visibility_timeout": (0.5, 7 * _DAY),
        "backoff": (0.0, _DAY),
        "max_backoff": (0.0, 30 * _DAY),
        "dedup_window": (0.0, 7 * _DAY),
        "priority_step": (0.001, 365 * _DAY),
        "rate_limit": (0.0, 1e9),
        "result_retention": (0.0, 365 * _DAY),
        "idle_budget": (12.0, 1e7),
        "tick_interval": (0.001, 60.0),
        "load_interval": (0.001, 60.0),
        "poll_interval": (0.001, 60.0),
        "margin": (0.0, 3600.0),
        "presence": (1.0, 3600.0),
    }
    for name, (least, most) in durations.items():
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            what = "a number" if name in ("rate_limit", "idle_budget") else "seconds (a number, or a timedelta)"
            raise ConfigError(f"{name} is {value!r}: give {what} from {least:g} to {most:g}")
    counts = {
        "max_attempts": (1, MAX_ATTEMPTS),
        "key_concurrency": (1, 10_000),
        "max_in_flight": (0, 10_000_000),
        "max_message_bytes": (1, LARGEST_MESSAGE_BYTES),
    }
    for name, (low, high) in counts.items():
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ConfigError(f"{name} is {value!r}: give a whole number from {low:,} to {high:,}")
    for name, kind in (("ordering", Ordering), ("delivery", Delivery)):
        if not isinstance(getattr(settings, name), kind):
            choices = ", ".join(repr(each.value) for each in kind)
            raise ConfigError(f"{name} is {getattr(settings, name)!r}: give one of {choices}")
    return settings


def settings_from(options: dict[str, object]) -> QueueSettings:
    """Settings as a user gives them: enums by their words, durations as seconds or `timedelta`."""
    known = set(QueueSettings.__struct_fields__)
    for name in options:
        if name not in known:
            raise ConfigError(f"there is no setting {name!r} of a queue: there are {', '.join(sorted(known))}")
    chosen: dict[str, object] = {}
    for name, value in options.items():
        if name in ("ordering", "delivery"):
            kind: type[enum.Enum] = Ordering if name == "ordering" else Delivery
            try:
                chosen[name] = kind(value)
            except ValueError:
                choices = ", ".join(repr(each.value) for each in kind)
                raise ConfigError(f"{name} is {value!r}: give one of {choices}") from None
        elif isinstance(value, timedelta):
            chosen[name] = seconds(name, value, zero=True)
        else:
            chosen[name] = value
    return checked(QueueSettings(**chosen))  # type: ignore[arg-type]
