"""What `tenure doctor` found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from tenure.store.outcome import NeverABool
from tenure.store.races import RaceReport


class Check(msgspec.Struct, NeverABool, frozen=True):
    """One question to the store. `ok` is None where it could not be told."""

    instead: ClassVar[str] = "not true or false: its `ok` is True, False, or None where it could not be told"

    name: str
    ok: bool | None
    detail: str = ""


class Latency(msgspec.Struct, frozen=True):
    p50: float
    p99: float
    samples: int


class ClockOffset(msgspec.Struct, frozen=True):
    """Store time minus this host's time. Nothing in tenure relies on it; plugins use it for dates."""

    seconds: float
    uncertainty_seconds: float


class Timings(msgspec.Struct, frozen=True):
    request_timeout_seconds: float
    heartbeat_interval_seconds: float
    lease_timeout_seconds: float
    why: str


class Report(msgspec.Struct, NeverABool, frozen=True):
    """Whether tenure may run on a store."""

    instead: ClassVar[str] = "not true or false: its `fit` is True, False, or None where it could not be told"

    url: str
    provider: str
    fit: bool | None
    """None: it could not be told."""
    reasons: Sequence[str]
    """Why it is unfit, or why it could not be told."""
    dialect: Mapping[str, str] = {}
    checks: Sequence[Check] = ()
    races: Mapping[str, RaceReport] = {}
    latency_ms: Mapping[str, Latency] = {}
    clock_offset: ClockOffset | None = None
    bucket: Mapping[str, str] = {}
    """Versioning, Object Lock, encryption and replication: on, off, or unknown."""
    recommended: Timings | None = None
    notes: Sequence[str] = ()
    credentials: str = ""
    elapsed_seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """0 fit, 1 unfit, 2 could not tell."""
        return {True: 0, False: 1, None: 2}[self.fit]
