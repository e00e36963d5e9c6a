"""Every setting of a coordinator: what it means, what follows from it, and which combinations cannot work.

Guarantee: a config that exists is one that can work. Settings that contradict each other are refused when it is built,
with the rule that they break, and a config never changes afterwards.

Durations are seconds, as a number or as a `datetime.timedelta`. A number that is plainly a count of milliseconds is
refused. Two workers of one namespace may differ in what concerns themselves (`worker_id`, `priority`, `health_check`);
those that differ in timing are reported.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Self, TypeAlias, TypeVar

import msgspec

from tenure.coordinator.given import check_instance, check_number, shown
from tenure.election.decide import MandateEnd
from tenure.errors import ConfigError, InvalidKey
from tenure.store.keys import MAX_SEGMENT_BYTES, encode_name
from tenure.store.providers import KEYS_PER_LISTING

__all__ = ["CircuitBreakerConfig", "ContentionConfig", "CoordinatorConfig", "HealthCheck", "Hosting", "MandateEnd"]

HealthCheck: TypeAlias = Callable[[], bool | Awaitable[bool]]
"""Is this worker fit to lead? Plain or async; an exception counts as no."""

_HOUR = 3600.0
DAY = 24 * _HOUR
_SHORTEST_INTERVAL = 0.01  # a loop that turns faster than this is a mistake, and an expensive one
_MAX_WORKER_ID = 128
_MAX_ENCODED_WORKER_ID = MAX_SEGMENT_BYTES - len("worker=.json")
MAX_PRIORITY = 1_000_000
_MAX_COUNT = 1_000_000
_MAX_DRIFT = 0.1
_RANKED_STEPS = 5  # the k-th candidate waits min(k, 5) x takeover_delay
_GCS_SHORTEST_RENEWAL = 2.0
_USUAL_LATENCY = 0.05
_REST_SLACK = 0.001  # the engine rests so much longer than it means to, rather than a hair too short


class Hosting(enum.Enum):
    """Where the coordinator runs."""

    THREAD = "thread"
    """On a thread with an event loop of its own: code that blocks yours does not cost the lease."""
    LOOP = "loop"
    """On the event loop that starts it: nothing is scheduled elsewhere, and a blocked loop misses renewals."""


class ContentionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """When a slow heartbeat is worth an event."""

    enabled: bool = True
    """Look for slow heartbeats at all. False: none is reported or counted. Default: True."""
    threshold: float = 2.0
    """A heartbeat that takes over this many heartbeat intervals is contention. Lower: earlier alarms. Default: 2."""
    rate_limit: float = 30.0
    """At most one event in this many seconds; every one is counted all the same. Default: 30."""

    def __post_init__(self) -> None:
        _check_type("contention.enabled", self.enabled, bool)
        _set(self, "threshold", _number("contention.threshold", self.threshold))
        if not 0 < self.threshold <= 1000:
            raise ConfigError(
                f"contention.threshold is {self.threshold:g}: it is a multiple of heartbeat_interval, over 0 and at "
                "most 1000; 2 reports heartbeats that take twice as long as the interval"
            )
        _set(self, "rate_limit", seconds("contention.rate_limit", self.rate_limit, zero=True))


class CircuitBreakerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """When to leave a failing store alone, and for how long."""

    failure_threshold: int = 5
    """Failed heartbeats in a row that open it. Lower: less load on a failing store, more idle time. Default: 5."""
    reset_timeout: float = 30.0
    """Seconds without heartbeats before one is tried again; a part of the worst failover time. Default: 30."""
    half_open_max_attempts: int = 1
    """How many heartbeats may try while it is half-open. Default: 1."""

    def __post_init__(self) -> None:
        _check_count("circuit_breaker.failure_threshold", self.failure_threshold)
        _check_count("circuit_breaker.half_open_max_attempts", self.half_open_max_attempts)
        _set(self, "reset_timeout", seconds("circuit_breaker.reset_timeout", self.reset_timeout))


class CoordinatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one coordinator.

    CoordinatorConfig(lease_timeout=30, heartbeat_interval=10)
    CoordinatorConfig.fast(worker_id="pod-7")
    """

    heartbeat_interval: float = 5.0
    """Seconds from one heartbeat to the next. Shorter: quicker failover, more requests. Default: 5."""
    heartbeat_jitter: float = 1.0
    """Up to this many seconds, drawn each time, are added to the interval so that workers spread out. Default: 1."""
    lease_timeout: float = 15.0
    """Seconds that a renewal keeps the leader in office. Longer: bears longer outages, slower failover. Default: 15."""
    worker_timeout: float = 20.0
    """A worker whose last heartbeat is older than this many seconds is not active. Default: 20."""
    startup_jitter_min: float = 0.0
    """The first heartbeat waits at least this many seconds. Default: 0."""
    startup_jitter_max: float = 5.0
    """It waits at most this many seconds; spreads workers that start together. Default: 5."""

    renew_deadline: float | None = None
    """Seconds after its last renewal at which a leader gives up for good and winds up its work before the lease runs
    out. Later: bears longer outages, leaves less time to wind up. Default: two thirds of the lease."""
    drift: float = 0.01
    """How far the rate of any host's clock may be from true, as a fraction. Must be the same everywhere: leaders count
    their lease shorter by it, followers longer. Default: 0.01."""
    takeover_margin: float = 0.1
    """Seconds that a follower waits on top of a lapsed lease. A part of every failover. Default: 0.1."""
    takeover_delay: float = 1.0
    """Seconds by which the second-ranked candidate waits for the first, the third for the second, and so on. 0: all
    race, and any may win. Default: 1."""
    standby_watch_interval: float = 1.0
    """Seconds between looks of the next in rank at the lease. Shorter: quicker failover, more reads. Default: 1."""
    request_timeout: float | None = None
    """Seconds after which a request counts as lost. Default: a quarter of the lease, at most 5."""

    min_epoch_duration: float = 60.0
    """Seconds from its election in which a living leader may not be overthrown. Default: 60."""
    max_epoch_duration: float = 300.0
    """Seconds after which its mandate ends: see `mandate_end`. Default: 300."""
    mandate_end: MandateEnd = MandateEnd.RENEW
    """Whether it then stays, or makes way for a better-ranked worker. Default: it stays."""
    drain_timeout: float = 10.0
    """Seconds that leader-only work gets to finish when leadership ends by choice; the lease is renewed meanwhile.
    Work that takes longer delays the successor until the lease runs out. Default: 10."""
    longest_lease: float | None = None
    """The longest lease that anybody in this namespace may ever use, in seconds. A damaged lease record is rebuilt only
    after this long. Default: four leases."""
    trim_delay: float | None = None
    """Seconds for which what a snapshot has replaced is kept for those who read slowly. Default: two longest leases."""

    membership: bool = True
    """Keep a record of every worker. False: election only, without worker records and listings; workers rank by
    chance. Default: True."""
    worker_id: str | None = None
    """The name of this worker; the first in alphabetical order leads among equals. Two live processes with one name:
    the older one is replaced. Default: one made up at each start."""
    priority: int = 0
    """Higher ranks first. Default: 0."""
    eligible: bool = True
    """Stand for election. False: a member of the fleet that never leads. Default: True."""
    health_check: HealthCheck | None = None
    """An unhealthy worker neither stands nor stays. If nobody is healthy, nobody leads. Default: always healthy."""
    health_check_interval: float = 5.0
    """Seconds between checks. Default: 5."""
    unhealthy_after: int = 3
    """Failed checks in a row that make a worker unhealthy. 1: a single hiccup costs the leadership. Default: 3."""
    healthy_after: int = 2
    """Passed checks in a row that make it healthy again. Default: 2."""

    contention: ContentionConfig = msgspec.field(default_factory=ContentionConfig)
    """When a slow heartbeat is worth an event."""
    circuit_breaker: CircuitBreakerConfig = msgspec.field(default_factory=CircuitBreakerConfig)
    """When to leave a failing store alone."""
    metrics_buffer_size: int = 100
    """Percentiles are taken over this many heartbeats, at least 10. Default: 100."""
    event_buffer_size: int = 256
    """Events that a slow handler may be behind before it loses the oldest. Default: 256."""

    epoch_fencing_enabled: bool = True
    """For plugins: refuse tasks of former leaders. False: every task is accepted. Default: True."""
    epoch_grace_period: float = 5.0
    """For plugins: seconds after a change of leader in which tasks of the one before are accepted. Default: 5."""
    max_clock_skew: float = 60.0
    """For plugins, whose time is the store's: seconds by which this host may differ before it is told. Default: 60."""
    max_loop_stall: float | None = None
    """Seconds for which your event loop may stand still before this worker stops leading: a leader whose loop is stuck
    does none of its work. Default: a stall is reported, and costs nothing."""
    hosting: Hosting = Hosting.THREAD
    """Where the coordinator runs. Default: on a thread of its own."""

    def __post_init__(self) -> None:
        for name, limits in _DURATIONS.items():
            value = getattr(self, name)
            if value is None and limits.optional:
                continue
            _set(self, name, seconds(name, value, shortest=limits.shortest, zero=limits.zero, longest=limits.longest))
        _set(self, "drift", _number("drift", self.drift))
        for name, kind in _TYPES.items():
            _check_type(name, getattr(self, name), kind)
        _check_count("unhealthy_after", self.unhealthy_after)
        _check_count("healthy_after", self.healthy_after)
        _check_count("metrics_buffer_size", self.metrics_buffer_size, least=10)
        _check_count("event_buffer_size", self.event_buffer_size)
        _check_count("priority", self.priority, least=-MAX_PRIORITY, most=MAX_PRIORITY)
        if self.worker_id is not None:
            _check_worker_id(self.worker_id)
        if self.health_check is not None and not callable(self.health_check):
            raise ConfigError(f"health_check is {self.health_check!r}: it must be a function that returns a bool")
        for check in (_check_lease, _check_intervals, _check_mandate):
            check(self)

    @property
    def renew_deadline_seconds(self) -> float:
        """Seconds after the sending of its last confirmed renewal at which a leader's term ends for good."""
        return self.lease_timeout * 2 / 3 if self.renew_deadline is None else self.renew_deadline

    @property
    def request_timeout_seconds(self) -> float:
        """Seconds after which a request counts as lost."""
        return min(5.0, self.lease_timeout / 4) if self.request_timeout is None else self.request_timeout

    @property
    def longest_lease_seconds(self) -> float:
        """The longest lease that anybody in this namespace may use."""
        return 4 * self.lease_timeout if self.longest_lease is None else self.longest_lease

    @property
    def trim_delay_seconds(self) -> float:
        """How long what a snapshot has replaced is kept."""
        return 2 * self.longest_lease_seconds if self.trim_delay is None else self.trim_delay

    @classmethod
    def standard(cls, **changes: Any) -> Self:
        """The defaults: a crashed leader is usually replaced within half a minute."""
        return cls._from({}, changes)

    @classmethod
    def fast(cls, **changes: Any) -> Self:
        """A lease of 3 s: usually replaced within 5 s, for up to seven times the requests. Not for `gs://`."""
        return cls._from(_FAST, changes)

    @classmethod
    def economical(cls, **changes: Any) -> Self:
        """A heartbeat every half minute: about a sixth of the requests, and usually replaced within two minutes."""
        return cls._from(_ECONOMICAL, changes)

    @classmethod
    def for_lease(cls, lease_timeout: float | timedelta, **changes: Any) -> Self:
        """Every interval in proportion to the lease: `for_lease(3)` is `fast()`, and a lease of 30 s costs a tenth."""
        lease = seconds("lease_timeout", lease_timeout)
        return cls._from(_in_proportion(lease), changes)

    def replace(self, **changes: Any) -> Self:
        """This config with some settings changed, checked again."""
        _check_names(type(self), changes)
        return msgspec.structs.replace(self, **changes)

    def check_provider(self, provider: str) -> None:
        """Refuse timing that the store's provider (`StoreInfo.provider`) cannot keep up with."""
        # Jitter only lengthens: a beat comes after heartbeat_interval + U(0, heartbeat_jitter).
        if provider == "gs" and self.heartbeat_interval < _GCS_SHORTEST_RENEWAL:
            raise ConfigError(
                f"heartbeat_interval is {self.heartbeat_interval:g} s, and Google Cloud Storage takes about one write "
                f"a second for one object, retries included: make it at least {_GCS_SHORTEST_RENEWAL:g} s on gs://"
            )

    def differences(self, other: CoordinatorConfig) -> list[tuple[str, Any, Any]]:
        """Every setting in which the two differ, as (name, mine, theirs); nested ones as `contention.threshold`."""
        return _differences("", self, other)

    def usual_failover(self) -> float:
        """Seconds within which a leader that crashed is replaced, if the store answers as usual and the next in rank
        lives. `tenure plan` gives the mean and the worst case of a fleet."""
        seen = self.heartbeat_interval + self.heartbeat_jitter  # until the last renewal is seen for the first time
        return seen + self.lease_timeout * (1 + self.drift) + self.takeover_margin + self.takeover_delay

    def worst_case_failover(self) -> float:
        """Seconds from the crash of the leader to its successor, if one eligible worker lives and the store answers.

        It allows for a breaker of that worker that opened just before, and is a bound, not an expectation.
        """
        return (
            self.circuit_breaker.reset_timeout  # heartbeats are skipped until it is half-open
            + self.heartbeat_interval  # until the survivor next looks, and sees the last renewal for the first time
            + self.heartbeat_jitter
            + self.lease_timeout * (1 + self.drift)  # it watches the same renewal for a whole lease of a slow clock
            + self.takeover_margin
            + _RANKED_STEPS * self.takeover_delay  # it may rank behind workers that died as well
            + self.takeover_delay  # jitter on top of its rank
            # look, list, take the lease, read back what became of that, record the term, read that back
            + 6 * self.request_timeout_seconds
        )

    def requests_per_hour(
        self, workers: int, *, latency: float = _USUAL_LATENCY, provider: str = "s3"
    ) -> dict[str, float]:
        """Requests of all `workers` together while nothing happens, by verb: get, put (all writes) and list.

        `latency`, the seconds that a request takes, and `provider`, whose listings have pages of their own size, matter
        a little. It is what is really sent, within some percent.
        """
        _check_count("workers", workers, least=0)
        check_number("latency", latency, least=0.0, most=_HOUR)
        if not isinstance(provider, str):
            raise ConfigError(f"provider is {shown(provider)}: give s3, gs or az")
        if workers == 0:
            return {"get": 0.0, "put": 0.0, "list": 0.0}
        beats = _HOUR / (self.heartbeat_interval + self.heartbeat_jitter / 2)
        followers = workers - 1
        # A mandate that begins anew is a renewal between two heartbeats.
        mandates = _HOUR / self.max_epoch_duration
        if not self.membership:
            return {"get": followers * beats, "put": beats + mandates, "list": 0.0}
        looks = beats * self.standby_looks_per_heartbeat(latency)
        pages = math.ceil(workers / KEYS_PER_LISTING.get(provider, KEYS_PER_LISTING["s3"]))
        return {
            "get": max(0, followers - 1) * beats + (looks if followers else 0.0),
            "put": (workers + 1) * beats + mandates,  # each worker's own record, and the lease
            "list": pages * beats,
        }

    def standby_looks_per_heartbeat(self, latency: float) -> float:
        """How often, on average, the next in rank looks at the lease from one of its heartbeats to the next.

        Each heartbeat looks, and the watch goes on from that answer: it is cut short by the heartbeat, not divided
        evenly. A heartbeat that finds a look under way waits for that one.
        """
        every = self.standby_look_every(latency)
        first, last = (self.heartbeat_interval + extra - latency for extra in (0.0, self.heartbeat_jitter))
        if last - first < 1e-9:
            return max(1.0, math.ceil(first / every))
        return (_rounded_up(last, every) - _rounded_up(first, every)) / (last - first)

    def standby_look_every(self, latency: float) -> float:
        """Seconds from one look of the next in rank to another, if no heartbeat comes between."""
        return self.standby_watch_interval + latency + _REST_SLACK

    @classmethod
    def _from(cls, preset: dict[str, Any], changes: dict[str, Any]) -> Self:
        _check_names(cls, changes)
        return cls(**(preset | changes))


class _Limits(msgspec.Struct, frozen=True, kw_only=True):
    shortest: float = 0.0
    zero: bool = False
    longest: float = _HOUR
    optional: bool = False


_DURATIONS = {
    "heartbeat_interval": _Limits(shortest=_SHORTEST_INTERVAL),
    "heartbeat_jitter": _Limits(zero=True),
    "lease_timeout": _Limits(),
    "worker_timeout": _Limits(),
    "startup_jitter_min": _Limits(zero=True),
    "startup_jitter_max": _Limits(zero=True),
    "renew_deadline": _Limits(optional=True),
    "takeover_margin": _Limits(zero=True),
    "takeover_delay": _Limits(zero=True),
    "standby_watch_interval": _Limits(shortest=_SHORTEST_INTERVAL),
    "request_timeout": _Limits(optional=True),
    "min_epoch_duration": _Limits(zero=True),
    "max_epoch_duration": _Limits(longest=DAY),  # a day's mandate makes sense; 300,000 s is 300 s in milliseconds
    "drain_timeout": _Limits(),
    "longest_lease": _Limits(longest=DAY, optional=True),
    "trim_delay": _Limits(longest=7 * DAY, optional=True),
    "health_check_interval": _Limits(shortest=_SHORTEST_INTERVAL),
    "epoch_grace_period": _Limits(zero=True),
    "max_clock_skew": _Limits(),
    "max_loop_stall": _Limits(optional=True),
}
_TYPES: dict[str, type] = {
    "membership": bool,
    "eligible": bool,
    "epoch_fencing_enabled": bool,
    "mandate_end": MandateEnd,
    "hosting": Hosting,
    "contention": ContentionConfig,
    "circuit_breaker": CircuitBreakerConfig,
}


def _check_lease(config: CoordinatorConfig) -> None:
    """The order in which things must happen while a leader cannot reach the store."""
    if not 0 <= config.drift <= _MAX_DRIFT:
        raise ConfigError(
            f"drift is {config.drift:g}: it is a fraction from 0 to {_MAX_DRIFT:g}; 0.01 allows for clocks that are "
            "off by one percent"
        )
    beat = config.heartbeat_interval + config.heartbeat_jitter
    deadline = config.renew_deadline_seconds
    if beat >= deadline:
        longer = (
            f"lease_timeout over {beat * 1.5:g}" if config.renew_deadline is None else f"renew_deadline over {beat:g}"
        )
        raise ConfigError(
            f"heartbeat_interval {config.heartbeat_interval:g} + heartbeat_jitter {config.heartbeat_jitter:g} is "
            f"{beat:g} s, and renew_deadline is {deadline:g} s: the sum must be less, or a leader gives up before its "
            f"next renewal; use shorter heartbeats, or a {longer}"
        )
    valid = config.lease_timeout * (1 - config.drift)
    if deadline >= valid:
        raise ConfigError(
            f"renew_deadline is {deadline:g} s: it must be under lease_timeout x (1 - drift), here {valid:g} s, so "
            f"that a leader has ended before its lease may pass on; {config.lease_timeout * 2 / 3:g} is the default"
        )
    if config.request_timeout_seconds >= deadline:
        raise ConfigError(
            f"request_timeout is {config.request_timeout_seconds:g} s: it must be under renew_deadline, here "
            f"{deadline:g} s, or one lost request costs the leadership; {config.lease_timeout / 4:g} leaves room for "
            "another try"
        )
    if config.max_loop_stall is not None and config.max_loop_stall >= deadline:
        raise ConfigError(
            f"max_loop_stall is {config.max_loop_stall:g} s: it must be under renew_deadline, here {deadline:g} s, or "
            "it never takes effect"
        )
    if config.takeover_margin >= config.lease_timeout:
        raise ConfigError(
            f"takeover_margin is {config.takeover_margin:g} s: it must be under lease_timeout, here "
            f"{config.lease_timeout:g} s; 0.1 is enough"
        )
    if config.longest_lease_seconds < config.lease_timeout:
        raise ConfigError(
            f"longest_lease is {config.longest_lease_seconds:g} s: it must not be under lease_timeout, here "
            f"{config.lease_timeout:g} s, or a damaged lease would be rebuilt while its holder still leads"
        )
    if config.trim_delay_seconds < 2 * config.lease_timeout:
        raise ConfigError(
            f"trim_delay is {config.trim_delay_seconds:g} s: it must be at least two leases, here "
            f"{2 * config.lease_timeout:g} s, or a slow reader may miss what was trimmed"
        )


def _check_intervals(config: CoordinatorConfig) -> None:
    beat = config.heartbeat_interval + config.heartbeat_jitter
    if config.membership and config.worker_timeout <= beat:
        raise ConfigError(
            f"worker_timeout is {config.worker_timeout:g} s: it must be over heartbeat_interval + heartbeat_jitter, "
            f"here {beat:g} s, or living workers count as dead; {4 * beat:g} bears three missed heartbeats"
        )
    if config.standby_watch_interval > config.heartbeat_interval:
        raise ConfigError(
            f"standby_watch_interval is {config.standby_watch_interval:g} s: it must not be over heartbeat_interval, "
            f"here {config.heartbeat_interval:g} s, since the next in rank is to look more often than the others"
        )
    if config.startup_jitter_min > config.startup_jitter_max:
        raise ConfigError(
            f"startup_jitter_min is {config.startup_jitter_min:g} s: it must not be over startup_jitter_max, here "
            f"{config.startup_jitter_max:g} s"
        )


def _check_mandate(config: CoordinatorConfig) -> None:
    if config.min_epoch_duration > config.max_epoch_duration:
        raise ConfigError(
            f"min_epoch_duration is {config.min_epoch_duration:g} s: it must not be over max_epoch_duration, here "
            f"{config.max_epoch_duration:g} s: a mandate cannot end before it may be challenged"
        )


def _check_worker_id(worker_id: Any) -> None:
    rule = f"it must be 1 to {_MAX_WORKER_ID} printable characters, such as a host or pod name"
    if not isinstance(worker_id, str):
        raise ConfigError(f"worker_id is {worker_id!r}: {rule}")
    shown = worker_id if len(worker_id) <= 40 else worker_id[:40] + "…"
    if not worker_id.strip():
        raise ConfigError(f"worker_id is {shown!r}, which is empty or blank: {rule}, or None for one made up")
    if len(worker_id) > _MAX_WORKER_ID:
        raise ConfigError(f"worker_id {shown!r} is {len(worker_id)} characters long: {rule}")
    if not worker_id.isprintable():
        raise ConfigError(f"worker_id {shown!r} holds a control character or a line break: {rule}")
    try:
        encoded = encode_name(worker_id)
    except InvalidKey as problem:
        raise ConfigError(f"worker_id {shown!r} cannot be a part of a key: {problem}") from None
    if len(encoded) > _MAX_ENCODED_WORKER_ID:
        raise ConfigError(
            f"worker_id {shown!r} takes {len(encoded)} bytes when encoded, and the limit is {_MAX_ENCODED_WORKER_ID}: "
            "shorten it (a character outside A-Z a-z 0-9 - _ . takes 3 bytes or more)"
        )


def _rounded_up(end: float, step: float) -> float:
    """The integral from 0 to `end` of the number of looks, `ceil(x / step)` and at least one, in an interval of x."""
    if end <= 0:
        return end
    whole = math.floor(end / step)
    return step * whole * (whole + 1) / 2 + (whole + 1) * (end - whole * step)


def check_config(config: CoordinatorConfig | None) -> None:
    """A config that a user may give. Raises `ConfigError` for anything else."""
    if config is not None:
        check_instance("config", config, CoordinatorConfig)


def seconds(name: str, value: Any, *, shortest: float = 0.0, zero: bool = False, longest: float = _HOUR) -> float:
    """A duration that a user gave, as a number of seconds; refused with a reason that names it."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    given = _number(name, value, "a number of seconds or a timedelta")
    if given < 0 or (given == 0 and not zero):
        raise ConfigError(f"{name} is {given:g} s: it must be {'zero or more' if zero else 'over zero'}")
    if given < shortest:
        raise ConfigError(f"{name} is {given:g} s: it must be at least {shortest:g} s")
    if given > longest:
        allowed = "one hour" if longest == _HOUR else f"{longest / DAY:g} day{'s' if longest > DAY else ''}"
        raise ConfigError(
            f"{name} is {given:g} s, which looks like milliseconds: durations are in seconds, and this one is at "
            f"most {allowed}; {given:g} ms is {given / 1000:g}"
        )
    return given


def _number(name: str, value: Any, wanted: str = "a number") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} is {value!r}: it must be {wanted}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ConfigError(f"{name} is {number}: it must be {wanted}, and finite")
    return number


def _check_count(name: str, value: Any, *, least: int = 1, most: int = _MAX_COUNT) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{name} is {value!r}: it must be a whole number from {least} to {most}")


def _check_type(name: str, value: Any, kind: type) -> None:
    if isinstance(value, kind):
        return
    choices = (
        "True or False"
        if kind is bool
        else " or ".join(map(str, kind))
        if issubclass(kind, enum.Enum)
        else f"a {kind.__name__}"
    )
    raise ConfigError(f"{name} is {value!r}: it must be {choices}")


def _check_names(config: type[msgspec.Struct], changes: dict[str, Any]) -> None:
    for name in changes:
        if name not in config.__struct_fields__:
            close = get_close_matches(name, config.__struct_fields__, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(config.__struct_fields__)}"
            raise ConfigError(f"there is no setting {name!r}: {hint}")


_AnyStruct = TypeVar("_AnyStruct", bound=msgspec.Struct)


def _differences(prefix: str, mine: _AnyStruct, theirs: _AnyStruct) -> list[tuple[str, Any, Any]]:
    found: list[tuple[str, Any, Any]] = []
    for name in mine.__struct_fields__:
        ours, other = getattr(mine, name), getattr(theirs, name)
        if isinstance(ours, msgspec.Struct):
            found += _differences(f"{prefix}{name}.", ours, other)
        elif ours != other:
            found.append((prefix + name, ours, other))
    return found


def _set(config: msgspec.Struct, name: str, value: float) -> None:
    """Put the plain number of seconds in the place of what was given, while the config is being built."""
    msgspec.structs.force_setattr(config, name, value)


_FAST: dict[str, Any] = {
    "heartbeat_interval": 0.75,
    "heartbeat_jitter": 0.15,
    "lease_timeout": 3.0,
    "worker_timeout": 4.0,
    "startup_jitter_max": 0.5,
    "takeover_delay": 0.5,
    "standby_watch_interval": 0.25,
    "min_epoch_duration": 10.0,
    "max_epoch_duration": 60.0,
    "drain_timeout": 3.0,
    "health_check_interval": 1.0,
    "epoch_grace_period": 2.0,
    "circuit_breaker": CircuitBreakerConfig(reset_timeout=5.0),
}


def _in_proportion(lease: float) -> dict[str, Any]:
    return {
        "lease_timeout": lease,
        "heartbeat_interval": lease / 4,
        "heartbeat_jitter": lease / 20,
        "worker_timeout": lease * 4 / 3,
        "standby_watch_interval": max(_SHORTEST_INTERVAL, lease / 12),
        "startup_jitter_max": min(5.0, lease / 6),
        "takeover_delay": min(2.0, lease / 6),
        "min_epoch_duration": min(300.0, lease * 10 / 3),
        "max_epoch_duration": min(1800.0, lease * 20),
        "drain_timeout": min(10.0, max(3.0, lease)),
        "health_check_interval": min(15.0, max(0.2, lease / 3)),
        "epoch_grace_period": min(5.0, lease * 2 / 3),
        "circuit_breaker": CircuitBreakerConfig(reset_timeout=min(60.0, lease * 5 / 3)),
    }


_ECONOMICAL: dict[str, Any] = {
    "heartbeat_interval": 30.0,
    "heartbeat_jitter": 3.0,
    "lease_timeout": 90.0,
    "worker_timeout": 120.0,
    "startup_jitter_max": 30.0,
    "takeover_delay": 2.0,
    "standby_watch_interval": 10.0,
    "min_epoch_duration": 300.0,
    "max_epoch_duration": 1800.0,
    "health_check_interval": 15.0,
    "circuit_breaker": CircuitBreakerConfig(reset_timeout=60.0),
}
