"""A host whose wall clock is off: where the server refuses its signatures, the worker says that it is the clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.buckets import make_bucket
from lab.endpoint import S3Endpoint
from lab.fault_proxy import FaultProxy
from lab.faults import status_before_apply
from tenure import CoordinatorConfig, Database
from tests.support.waiting import eventually


@pytest.fixture
def proxy(ministack: S3Endpoint) -> Iterator[FaultProxy]:
    proxy = FaultProxy(ministack.url)
    yield proxy
    proxy.stop()


@pytest.mark.req("EF-1")
async def test_a_refused_signature_names_the_clock_and_the_worker_recovers(
    ministack: S3Endpoint, proxy: FaultProxy
) -> None:
    make_bucket(ministack, "skewed")
    url = ministack.store_url("skewed", endpoint=proxy.start())
    async with Database(url, worker_id="a") as database:
        coordinator = await database.get_global_coordinator(config=CoordinatorConfig.fast(startup_jitter_max=0))
        named: list[str] = []
        coordinator.on("clock:skewed", lambda event: named.append(event.detail))
        await coordinator.start()
        await eventually(coordinator.is_leader)
        epoch = coordinator.get_epoch()
        proxy.plan(status_before_apply(403, "RequestTimeTooSkewed"), times=None)
        await eventually(lambda: not coordinator.is_leader())
        await eventually(lambda: bool(named))
        assert "clock" in named[0]
        assert "clock" in (coordinator.get_metrics().last_error or "")
        proxy.clear()
        await eventually(coordinator.is_leader)
        assert coordinator.get_epoch() > epoch
