"""How a worker is, in one line of its record: what its heartbeats took, and what it has asked of the store.

It rides along with each heartbeat and costs no request. For people and dashboards; nothing is ever decided by it. The
line has the same length whatever it says: the leader tells a process that was started anew by the size of its record,
and must not take other numbers for another process (see `Worker.pad`).
"""

from __future__ import annotations

import re

import msgspec

from tenure.coordinator.breaker import BreakerState
from tenure.coordinator.metrics import Latencies

_FORM = "1"
_UNKNOWN = "-" * 9
_BREAKERS: dict[BreakerState, str] = {"closed": "c", "half-open": "h", "open": "o"}
_STATES: dict[str, BreakerState] = {letter: state for state, letter in _BREAKERS.items()}
_MICRO = 1_000_000
_NANO = 1_000_000_000
_LINE = re.compile(_FORM + 4 * r" ([0-9]{9}|-{9})" + r" ([0-9]{12}) ([0-9]{15}) ([0-9]{9}) ([0-9]{9}) ([cho])")


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """Durations are seconds. Latencies are of the heartbeats that came before the one that carries this."""

    latency_last: float | None = None
    latency_p50: float | None = None
    """Percentiles are `None` while there were too few heartbeats to tell."""
    latency_p95: float | None = None
    latency_p99: float | None = None
    requests: int = 0
    """That this process's database sent, for whatever purpose, ..."""
    usd: float = 0.0
    """... what they cost at public prices, ..."""
    seconds: float = 0.0
    """... and over how long."""
    store_errors: int = 0
    breaker: BreakerState = "closed"


def write_pulse(
    latencies: Latencies, requests: int, usd: float, seconds: float, errors: int, breaker: BreakerState
) -> str:
    return " ".join(
        (
            _FORM,
            _latency(latencies.last),
            _latency(latencies.p50),
            _latency(latencies.p95),
            _latency(latencies.p99),
            _digits(requests, 12),
            _digits(usd * _NANO, 15),
            _digits(seconds, 9),
            _digits(errors, 9),
            _BREAKERS[breaker],
        )
    )


def read_pulse(line: str) -> Pulse | None:
    """`None`: there is none, or another tenure's, or nothing of the kind."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    last, p50, p95, p99, requests, usd, seconds, errors, breaker = found.groups()
    return Pulse(
        latency_last=_seconds(last),
        latency_p50=_seconds(p50),
        latency_p95=_seconds(p95),
        latency_p99=_seconds(p99),
        requests=int(requests),
        usd=int(usd) / _NANO,
        seconds=float(seconds),
        store_errors=int(errors),
        breaker=_STATES[breaker],
    )


def _latency(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else _digits(seconds * _MICRO, 9)


def _digits(number: float, width: int) -> str:
    """What does not fit is shown as the most that does."""
    return str(min(max(0, round(number)), 10**width - 1)).zfill(width)


def _seconds(text: str) -> float | None:
    return None if text == _UNKNOWN else int(text) / _MICRO
