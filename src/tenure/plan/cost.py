"""Requests of a fleet by verb, and what a provider charges for them in a month."""

from __future__ import annotations

import msgspec

from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.metrics import Latencies
from tenure.coordinator.pulse import write_pulse
from tenure.election.records import State, Worker, encode
from tenure.errors import ConfigError
from tenure.store.providers import BYTES_PER_GB, FREE, PRICES, USD_PER_GB_MONTH, USD_PER_KMS_REQUEST

PROVIDERS = ("s3", "gs", "az", "file")
HOURS_PER_MONTH = 730
MAX_WORKERS = 100_000
MAX_NAMESPACES = 100_000
MAX_VERSION_DAYS = 3650

_NAME = "worker-1700000000000-0a1b2c3d"  # as a worker without a name is called
_ID = "0" * 32
_TIME = "2026-01-01T00:00:00.000+00:00"
LEASE_BYTES = len(
    encode(
        State(
            write_id=_ID,
            leader_id=_NAME,
            uid=_ID,
            epoch=10,
            grant_id=_ID,
            leader_write_id=_ID,
            lease_duration_ms=15_000,
            renewals=100_000,
            lease_expires_at=_TIME,
            elected_at=_TIME,
            mandate_ends_at=_TIME,
            previous_leader=_NAME,
            members_version=10,
        )
    )
)
"""Bytes of a lease as it is written at each renewal."""
WORKER_BYTES = len(
    encode(
        Worker(
            write_id=_ID,
            worker_id=_NAME,
            uid=_ID,
            ordinal=1,
            registered_at=_TIME,
            last_heartbeat=_TIME,
            epoch=10,
            pulse=write_pulse(Latencies(), 0, 0.0, 0.0, 0, "closed"),  # of one length, whatever it says
            pad="." * 16,
        )
    )
)
"""Bytes of a worker's record."""


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan is made for, besides the config."""

    workers: int = 3
    namespaces: int = 1
    """Elections on that store, each with all the workers."""
    latency: float = 0.05
    """Seconds that a request usually takes."""
    kms: bool = False
    """Objects are encrypted with a key of a key service, which S3 without bucket keys asks at each request."""
    versioned_days: float | None = None
    """The bucket keeps what was overwritten, for so many days."""

    def __post_init__(self) -> None:
        for name, most in (("workers", MAX_WORKERS), ("namespaces", MAX_NAMESPACES)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise ConfigError(f"{name} is {value!r}: it must be a whole number from 1 to {most}")
        if not 0 <= self.latency <= 60:
            raise ConfigError(f"latency is {self.latency:g} s: it must be from 0 to 60 s; 0.05 is usual for a cloud")
        if self.versioned_days is not None and not 0 < self.versioned_days <= MAX_VERSION_DAYS:
            raise ConfigError(
                f"versioned days is {self.versioned_days:g}: it must be over 0 and at most {MAX_VERSION_DAYS}"
            )


class Charges(msgspec.Struct, frozen=True):
    """USD of one provider in a month of 730 hours."""

    requests: float
    kms: float
    versions: float

    @property
    def total(self) -> float:
        return self.requests + self.kms + self.versions


def requests_per_hour(config: CoordinatorConfig, around: Circumstances, provider: str) -> dict[str, float]:
    one = config.requests_per_hour(around.workers, latency=around.latency, provider=provider)
    return {verb: count * around.namespaces for verb, count in one.items()}


def charges(config: CoordinatorConfig, around: Circumstances, provider: str) -> Charges:
    sent = requests_per_hour(config, around, provider)
    prices = PRICES.get(provider, FREE)
    kms = (sent["get"] + sent["put"]) * USD_PER_KMS_REQUEST.get(provider, 0.0) if around.kms else 0.0
    return Charges(
        requests=HOURS_PER_MONTH * sum(prices.of(verb) * count for verb, count in sent.items()),
        kms=HOURS_PER_MONTH * kms,
        versions=version_bytes(config, around) / BYTES_PER_GB * USD_PER_GB_MONTH.get(provider, 0.0),
    )


def version_bytes(config: CoordinatorConfig, around: Circumstances) -> float:
    """Bytes of overwritten records that lie in a bucket with versions, once it has kept them for as long as it does."""
    if around.versioned_days is None:
        return 0.0
    writes = config.requests_per_hour(around.workers, latency=around.latency)["put"]
    records = around.workers * beats_per_hour(config) if config.membership else 0.0
    per_hour = records * WORKER_BYTES + (writes - records) * LEASE_BYTES
    return per_hour * 24 * around.versioned_days * around.namespaces


def beats_per_hour(config: CoordinatorConfig) -> float:
    return 3600 / (config.heartbeat_interval + config.heartbeat_jitter / 2)
