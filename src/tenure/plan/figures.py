"""The whole plan: requests, money, failover, and what each setting would change about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import msgspec

from tenure.coordinator.config import CoordinatorConfig
from tenure.errors import ConfigError
from tenure.plan.cost import LEASE_BYTES, PROVIDERS, WORKER_BYTES, Charges, Circumstances, charges, requests_per_hour
from tenure.plan.failover import Failover, failover, graceful_failover

_WORTH_TELLING = 0.005
"""A change of less than this share is none."""
_SHOWN = 6  # decimals
_TIMINGS = (
    "heartbeat_interval",
    "heartbeat_jitter",
    "lease_timeout",
    "drift",
    "takeover_margin",
    "takeover_delay",
    "standby_watch_interval",
    "worker_timeout",
    "startup_jitter_min",
    "startup_jitter_max",
    "max_epoch_duration",
    "membership",
)
_LEASES = (1.0, 600.0)
"""What the command takes for --lease."""
_KEPT_BY_LEASE = ("membership", "drift", "takeover_margin", "mandate_end")


class Effect(msgspec.Struct, frozen=True):
    """By how much figures of the plan change; negative: they fall."""

    usd_per_month: dict[str, float]
    requests_per_hour: float
    failover_expected_seconds: float
    failover_worst_seconds: float
    outage_borne_seconds: float


class Knob(msgspec.Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """One setting, another value for it, and what that does."""

    setting: str
    option: str
    """How to ask for it on the command line."""
    before: float | bool
    after: float | bool
    not_for: tuple[str, ...]
    """Providers that cannot keep up with it."""
    effect: Effect


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a config costs a fleet of this size, and what it gives."""

    workers: int
    namespaces: int
    latency_seconds: float
    config: dict[str, float | bool]
    requests_per_hour: float
    """Of the provider that takes the most requests: their listings differ in size."""
    requests_per_hour_by_verb: dict[str, float]
    usd_per_month: dict[str, float]
    charges: dict[str, Charges]
    failover_seconds: Failover
    graceful_failover_seconds: float
    outage_borne_seconds: float
    """How long the store may fail, from the moment at which a renewal was due, before a leader gives up."""
    record_bytes: dict[str, int]
    knobs: tuple[Knob, ...]
    advice: str
    notes: tuple[str, ...]


class _Figures(msgspec.Struct, frozen=True):
    verbs: dict[str, float]
    charges: dict[str, Charges]
    failover: Failover
    graceful: float
    lease: float
    borne: float

    @property
    def requests(self) -> float:
        return sum(self.verbs.values())

    def usd(self) -> dict[str, float]:
        return {provider: found.total for provider, found in self.charges.items()}

    def cost(self, providers: Sequence[str]) -> float:
        """To compare by: money, at the dearest of `providers`, or requests where they cost none."""
        return max(self.charges[provider].total for provider in providers) or self.requests


def make_plan(config: CoordinatorConfig, around: Circumstances, providers: Sequence[str] = PROVIDERS) -> Plan:
    """For each of `providers`. One that cannot keep up with the config is left out, and refused if it is the only one.

    Raises `ConfigError`.
    """
    notes: list[str] = []
    able: list[str] = []
    for provider in providers:
        try:
            config.check_provider(provider)
        except ConfigError as refused:
            if len(providers) == 1:
                raise
            notes.append(f"{provider} is left out: {refused}")
        else:
            able.append(provider)
    now = _figures(config, around, able)
    knobs = _knobs(config, around, able, now)
    return Plan(
        workers=around.workers,
        namespaces=around.namespaces,
        latency_seconds=around.latency,
        config=_timings(config),
        requests_per_hour=_round(now.requests),
        requests_per_hour_by_verb={verb: _round(count) for verb, count in now.verbs.items()},
        usd_per_month={provider: _round(usd) for provider, usd in now.usd().items()},
        charges={
            provider: Charges(_round(found.requests), _round(found.kms), _round(found.versions))
            for provider, found in now.charges.items()
        },
        failover_seconds=Failover(
            *(_round(getattr(now.failover, name)) for name in Failover.__struct_fields__),
        ),
        graceful_failover_seconds=_round(now.graceful),
        outage_borne_seconds=_round(now.borne),
        record_bytes={"lease": LEASE_BYTES, "worker": WORKER_BYTES},
        knobs=tuple(knobs),
        advice=_advice(now, knobs),
        notes=(*notes, *_notes(around, able)),
    )


def _figures(config: CoordinatorConfig, around: Circumstances, providers: Sequence[str]) -> _Figures:
    by_provider = {provider: requests_per_hour(config, around, provider) for provider in providers}
    most = max(by_provider, key=lambda provider: sum(by_provider[provider].values()))
    return _Figures(
        verbs=by_provider[most],
        charges={provider: charges(config, around, provider) for provider in providers},
        failover=failover(config, around, most),
        graceful=graceful_failover(config, around, most),
        lease=config.lease_timeout,
        borne=config.renew_deadline_seconds - config.heartbeat_interval - config.heartbeat_jitter,
    )


# What could be changed


def _knobs(config: CoordinatorConfig, around: Circumstances, providers: Sequence[str], now: _Figures) -> list[Knob]:
    found: list[tuple[float, Knob]] = []
    for setting, option, before, after, change in _changes(config):
        try:
            changed = change()
        except ConfigError:
            continue  # a combination that cannot work is no advice
        able = tuple(provider for provider in providers if _is_able(changed, provider))
        if not able:
            continue
        then = _figures(changed, around, able)
        weight = max(
            _share(now.cost(able), then.cost(able)),
            _share(now.failover.expected, then.failover.expected),
            _share(now.failover.worst, then.failover.worst),
        )
        if weight >= _WORTH_TELLING:
            unable = tuple(provider for provider in providers if provider not in able)
            found.append((weight, Knob(setting, option, before, after, unable, _effect(now, then))))
    return [knob for _, knob in sorted(found, key=lambda pair: -pair[0])]


def _is_able(config: CoordinatorConfig, provider: str) -> bool:
    try:
        config.check_provider(provider)
    except ConfigError:
        return False
    return True


_Change = tuple[str, str, float | bool, float | bool, Callable[[], CoordinatorConfig]]


def _changes(config: CoordinatorConfig) -> Iterator[_Change]:
    kept = {name: getattr(config, name) for name in _KEPT_BY_LEASE}
    for factor in (0.5, 2.0):
        lease = config.lease_timeout * factor
        if not _LEASES[0] <= lease <= _LEASES[1]:
            continue
        yield (
            "lease",
            f"--lease {_duration(lease)}",
            config.lease_timeout,
            lease,
            lambda lease=lease: CoordinatorConfig.for_lease(lease, **kept),  # type: ignore[misc]
        )
    for name in ("heartbeat_interval", "standby_watch_interval", "takeover_delay", "heartbeat_jitter"):
        before: float = getattr(config, name)
        for factor in (0.5, 2.0):
            after = before * factor
            yield (
                name,
                f"--set {name}={_duration(after)}",
                before,
                after,
                lambda name=name, after=after: config.replace(**{name: after}),  # type: ignore[misc]
            )
    timeout = config.request_timeout_seconds
    yield (
        "request_timeout",
        f"--set request_timeout={_duration(timeout / 2)}",
        timeout,
        timeout / 2,
        lambda: config.replace(request_timeout=timeout / 2),
    )
    breaker = config.circuit_breaker
    reset = breaker.reset_timeout
    yield (
        "circuit_breaker.reset_timeout",
        f"--set circuit_breaker.reset_timeout={_duration(reset / 2)}",
        reset,
        reset / 2,
        lambda: config.replace(circuit_breaker=msgspec.structs.replace(breaker, reset_timeout=reset / 2)),
    )
    yield (
        "membership",
        "--no-membership" if config.membership else "--membership",
        config.membership,
        not config.membership,
        lambda: config.replace(membership=not config.membership),
    )


def _effect(now: _Figures, then: _Figures) -> Effect:
    before, after = now.usd(), then.usd()
    return Effect(
        usd_per_month={provider: _round(after[provider] - before[provider]) for provider in after},
        requests_per_hour=_round(then.requests - now.requests),
        failover_expected_seconds=_round(then.failover.expected - now.failover.expected),
        failover_worst_seconds=_round(then.failover.worst - now.failover.worst),
        outage_borne_seconds=_round(then.borne - now.borne),
    )


def _share(before: float, after: float) -> float:
    return abs(after - before) / before if before else 0.0


# What to make of it


def _advice(now: _Figures, knobs: Sequence[Knob]) -> str:
    """One sentence: the best way to pay less, and the best way to a quicker failover."""
    sound = [knob for knob in knobs if _is_sound(now, knob)]
    cheaper = max((knob for knob in sound if _ratios(now, knob)[0] < 0.9), key=lambda k: _merit(now, k), default=None)
    quicker = max((knob for knob in sound if _ratios(now, knob)[1] < 0.9), key=lambda k: _merit(now, k), default=None)
    parts = []
    if cheaper is not None:
        price, time = _words(now, cheaper)
        condition = ", if you need no list of workers," if cheaper.setting == "membership" else ""
        parts.append(f"to pay less, {cheaper.option}{condition} changes the cost by {price} and the failover by {time}")
    if quicker is not None:
        price, time = _words(now, quicker)
        unless = f" (not on {' and '.join(quicker.not_for)})" if quicker.not_for else ""
        parts.append(
            f"to fail over sooner, {quicker.option}{unless} changes the failover by {time} and the cost by {price}"
        )
    if not parts:
        return "No single setting changes much: keep this config."
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _is_sound(now: _Figures, knob: Knob) -> bool:
    """Less room for failed renewals makes failover sooner as well as cheaper, and is no bargain."""
    lease = float(knob.after) if knob.setting == "lease" else now.lease
    return (now.borne + knob.effect.outage_borne_seconds) / lease >= 0.9 * now.borne / now.lease


def _ratios(now: _Figures, knob: Knob) -> tuple[float, float]:
    """(cost, expected failover) afterwards, as shares of what they are."""
    changes = knob.effect.usd_per_month
    dearest = max(changes, key=lambda provider: now.charges[provider].total)
    usd = now.charges[dearest].total
    cost = 1 + (changes[dearest] / usd if usd else knob.effect.requests_per_hour / now.requests)
    return cost, 1 + knob.effect.failover_expected_seconds / now.failover.expected


def _merit(now: _Figures, knob: Knob) -> float:
    """What is gained on the one side, less what is lost on the other."""
    return -sum(math.log(max(ratio, 1e-6)) for ratio in _ratios(now, knob))


def _words(now: _Figures, knob: Knob) -> tuple[str, str]:
    cost, _ = _ratios(now, knob)
    return f"{(cost - 1) * 100:+.0f} %", f"{knob.effect.failover_expected_seconds:+.1f} s"


def _notes(around: Circumstances, providers: Sequence[str]) -> Iterator[str]:
    if around.workers == 1:
        yield (
            "With one worker nobody takes over: failover counts from its restart, and a second worker makes it shorter."
        )
    if around.kms and "s3" in providers:
        yield (
            "Each read and write of an encrypted object counts as one KMS request (a read that finds nothing new may "
            "cost none): S3 bucket keys nearly remove them, and SSE-S3 does."
        )
    if around.kms and any(provider in ("gs", "az") for provider in providers):
        yield "What keys of your own cost on gs and az is not counted."
    if around.versioned_days is not None:
        yield (
            f"Old versions: a lifecycle rule on tenure's prefix (NoncurrentVersionExpiration, NoncurrentDays: 1) "
            f"removes what was overwritten; this plan keeps it for {around.versioned_days:g} days. Without a rule it "
            "grows for ever. Never let a rule expire current objects there."
        )
    elif "gs" in providers:
        yield (
            "Google's buckets keep what was overwritten for 7 days unless soft delete is off: --versioned 7 shows "
            "what that costs."
        )
    yield (
        "List prices of the first US region, standard class, months of 730 hours; coordination alone, while nothing "
        "happens. Traffic between regions, and what your own work reads and writes, come on top."
    )


def _timings(config: CoordinatorConfig) -> dict[str, float | bool]:
    timings: dict[str, float | bool] = {name: getattr(config, name) for name in _TIMINGS}
    return timings | {
        "renew_deadline": config.renew_deadline_seconds,
        "request_timeout": config.request_timeout_seconds,
        "circuit_breaker.reset_timeout": config.circuit_breaker.reset_timeout,
    }


def _duration(seconds: float) -> str:
    return f"{seconds:g}s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:g}ms"


def _round(number: float) -> float:
    return round(number, _SHOWN)
