"""How a worker says how it is, in a line that never changes its length (MT-2, OP-5)."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenure
from tenure.coordinator.breaker import BreakerState
from tenure.coordinator.metrics import ENOUGH_HEARTBEATS, Latencies, Metrics
from tenure.coordinator.pulse import Pulse, read_pulse, write_pulse
from tenure.election.records import Worker, decode
from tenure.store import Stored
from tenure.store.memory import MemoryStore
from tenure.store.metered import Metered

LENGTH = len(write_pulse(Latencies(), 0, 0.0, 0.0, 0, "closed"))
STATES: list[BreakerState] = ["closed", "half-open", "open"]
seconds = st.none() | st.floats(0, 1e12)


@given(
    seconds,
    seconds,
    seconds,
    seconds,
    st.integers(0, 2**80),
    st.floats(0, 1e30),
    st.floats(0, 1e30),
    st.integers(0, 2**70),
)
def test_it_always_has_the_same_length(
    last: float | None,
    p50: float | None,
    p95: float | None,
    p99: float | None,
    n: int,
    usd: float,
    over: float,
    bad: int,
) -> None:
    for state in STATES:
        line = write_pulse(Latencies(last, p50, p95, p99), n, usd, over, bad, state)
        assert len(line) == LENGTH
        assert read_pulse(line) is not None


def test_what_was_written_is_read() -> None:
    line = write_pulse(Latencies(0.012, 0.011, 0.5, 2.25), 1234, 0.0061725, 3600.4, 7, "half-open")
    assert read_pulse(line) == Pulse(
        latency_last=0.012,
        latency_p50=0.011,
        latency_p95=0.5,
        latency_p99=2.25,
        requests=1234,
        usd=0.0061725,
        seconds=3600.0,
        store_errors=7,
        breaker="half-open",
    )


def test_what_is_not_known_is_not_zero() -> None:
    pulse = read_pulse(write_pulse(Latencies(0.5), 1, 0.0, 1.0, 0, "closed"))
    assert pulse is not None
    assert (pulse.latency_last, pulse.latency_p50, pulse.latency_p99) == (0.5, None, None)


GOOD = write_pulse(Latencies(0.1), 1, 0.1, 1.0, 0, "closed")


@pytest.mark.parametrize(
    "line", ["", "2" + GOOD[1:], GOOD + " ", GOOD[:-1] + "x", "x" * LENGTH, GOOD.replace("0", "٠"), GOOD + "\n"]
)
def test_what_is_none_is_none(line: str) -> None:
    assert read_pulse(line) is None


def test_latencies_of_few_and_of_many_heartbeats() -> None:
    metrics = Metrics(100, 0.0)
    assert metrics.latencies() == Latencies()
    for number in range(ENOUGH_HEARTBEATS - 1):
        metrics.heartbeat(number / 1000, 1.0)
    assert metrics.latencies() == Latencies(0.008)
    for number in range(9, 250):
        metrics.heartbeat(number / 1000, 1.0)
    found = metrics.latencies()
    assert found.last == pytest.approx(0.249)
    assert (found.p50, found.p95, found.p99) == pytest.approx((0.199, 0.244, 0.248))


async def test_a_worker_carries_it_and_its_record_keeps_its_size(tmp_path: Path) -> None:
    config = tenure.CoordinatorConfig.fast(startup_jitter_max=0)
    sizes: set[int] = set()
    async with tenure.Database(tmp_path.as_uri(), worker_id="ann") as db:
        coordinator = await db.get_global_coordinator(config=config)
        await coordinator.start()
        async with asyncio.timeout(60), coordinator.leadership():
            while True:
                records = [entry async for entry in db.store.list("") if "worker=ann" in entry.key]
                for entry in records:
                    stored = await db.store.get(entry.key)
                    assert isinstance(stored, Stored)
                    worker = decode(stored.body, Worker)
                    assert isinstance(worker, Worker)
                    pulse = read_pulse(worker.pulse)
                    assert pulse is not None
                    if worker.is_coordinator:
                        sizes.add(len(stored.body))
                if records and pulse.latency_last is not None and pulse.requests > 10 and pulse.seconds >= 1:
                    break
                await asyncio.sleep(0.05)
    assert len(sizes) == 1


async def test_a_meter_counts_on_two_threads() -> None:
    """A coordinator uses the store on a thread of its own while the program uses it on another."""
    store = Metered(MemoryStore())
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    async def many() -> None:
        for _ in range(2000):
            await store.put("a", b"xyz")

    try:
        others = [threading.Thread(target=asyncio.run, args=(many(),)) for _ in range(3)]
        for each in others:
            each.start()
        while any(each.is_alive() for each in others):
            store.usage()
        for each in others:
            each.join()
    finally:
        sys.setswitchinterval(switch)
    usage = store.usage()
    assert (usage.total, usage.bytes_sent) == (6000, 18000)
    assert usage.seconds >= 0
