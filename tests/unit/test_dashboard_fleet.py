"""A real fleet with a queue, a schedule, counters and children, as the dashboard shows it; and what is asked of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenure import (
    Child,
    CoordinatorCandidate,
    CoordinatorConfig,
    Database,
    EventualConsistencyPlugin,
    Message,
    S3QueuePlugin,
    SchedulerPlugin,
    cron,
)
from tenure.dashboard import collector, work
from tests.unit.dashboards import TOKEN, Page, a_store, shown

pytestmark = pytest.mark.req("OP-5")

SWIFT = CoordinatorConfig.for_lease(2.0, startup_jitter_max=0.0, heartbeat_interval=0.3, heartbeat_jitter=0.0)
BEARER = {"authorization": f"Bearer {TOKEN}"}


async def act(page: Page, name: str, status: int = 200, **body: Any) -> str:
    response = await page.post(f"/api/actions/{name}", json=body, headers=BEARER)
    assert response.status_code == status, response.text
    answer = response.json()
    assert answer["ok"] is (status == 200)
    return str(answer["says"])


async def test_a_fleet_and_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "SECONDS_BETWEEN_LOOKS", 0.2)
    monkeypatch.setattr(work, "SECONDS_BETWEEN_SEARCHES", 0.5)
    monkeypatch.setattr(collector, "SECONDS_BETWEEN_LISTINGS", 0.3)
    monkeypatch.setattr(collector, "_WORK_PAUSE", 0.1)
    url = a_store()

    async def forever() -> None:
        await asyncio.Event().wait()

    async with Database(url, worker_id="ada") as one, Database(url, worker_id="bob") as two:
        queue = await one.use_plugin(S3QueuePlugin("emails", config=SWIFT))
        failed = asyncio.Event()

        @queue.handler
        async def send(message: Message) -> None:
            failed.set()
            raise ValueError("no such address")

        schedule = await one.use_plugin(SchedulerPlugin(config=SWIFT))
        ran = asyncio.Event()

        @schedule.job(cron("0 3 * * *"))
        async def reports() -> None:
            ran.set()

        counters = await one.use_plugin(EventualConsistencyPlugin("pages", ["views"], config=SWIFT))
        await one.use_plugin(CoordinatorCandidate([Child("mailer", forever)], namespace="services", config=SWIFT))
        other = await two.get_global_coordinator("default", config=SWIFT)
        await other.start()
        async with shown(url, token=TOKEN) as page:
            await page.until(lambda seen: seen["lease"]["phase"] == "leading")
            found = await page.until(lambda seen: seen["workers"]["active"] == 2)
            assert found["lease"]["leader"] == "ada"
            assert found["meta"]["place"].startswith("memory://")
            assert not found["meta"]["electionOnly"]
            assert found["terms"]["terms"][-1]["leader"] == "ada"

            await queue.enqueue({"to": "nobody"}, max_attempts=1)
            await counters.add("home", "views", 3)
            await asyncio.wait_for(failed.wait(), 30)

            rows = (await page.get("/api/workers?sort=id")).json()
            assert [row["id"] for row in rows["rows"]] == ["ada", "bob"]
            assert rows["rows"][0]["isLeader"]
            assert rows["rows"][1]["rank"] == 1

            found = await page.until(lambda seen: seen["queues"]["rows"][0]["dead"] == 1)
            assert found["queues"]["rows"][0] | {"lookedMs": 0} == found["queues"]["rows"][0] | {
                "name": "emails",
                "problem": None,
                "namespace": "default",
                "lookedMs": 0,
            }
            found = await page.until(lambda seen: seen["counters"]["rows"][0]["calls"] == 1)
            assert found["counters"]["rows"][0]["fields"] == {"views": "int:sum"}
            found = await page.until(lambda seen: seen["children"]["rows"][0]["state"] == "running")
            assert found["children"]["rows"][0]["child"] == "mailer"
            assert found["children"]["rows"][0]["current"]
            found = await page.until(lambda seen: seen["schedules"]["rows"])
            job = found["schedules"]["rows"][0]
            assert job["id"] == "reports"
            assert job["nextMs"] > found["meta"]["nowMs"]
            assert found["schedules"]["schedules"][0]["jobs"] == 1

            assert "paused" in await act(page, "queue-pause", queue="emails")
            await page.until(lambda seen: seen["queues"]["rows"][0]["paused"])
            await act(page, "queue-redrive", queue="emails")
            await page.until(lambda seen: seen["queues"]["rows"][0]["ready"] == 1)
            await act(page, "queue-resume", queue="emails")
            await act(page, "schedule-run", schedule="scheduler", job="reports")
            await asyncio.wait_for(ran.wait(), 30)
            await act(page, "schedule-pause", schedule="scheduler", job="reports")
            found = await page.until(lambda seen: seen["schedules"]["rows"][0]["paused"])
            assert found["schedules"]["rows"][0]["nextMs"] is None
            await act(page, "schedule-resume", schedule="scheduler", job=None)

            assert "no queue" in await act(page, "queue-pause", 422, queue="emials")
            assert "no job" in await act(page, "schedule-run", 422, schedule="scheduler", job="reprots")
            assert "no schedule" in await act(page, "schedule-pause", 422, schedule="elsewhere")
            assert "'eve'" in await act(page, "transfer", 409, to="eve")
            assert "bob leads" in await act(page, "transfer", to="bob", force=True)
            found = await page.until(lambda seen: seen["lease"]["leader"] == "bob")
            assert found["terms"]["terms"][-1]["epoch"] == found["lease"]["epoch"] == 2
            assert found["terms"]["terms"][0]["how"] in ("released", "replaced")  # if it was seen between
            assert any(change["kind"] == "elected" for change in found["changes"]["rows"])

            metrics = (await page.get("/metrics")).text
            families = {family.name: family for family in text_string_to_metric_families(metrics)}
            assert families["tenure_fleet_epoch"].samples[0].value == 2
            assert families["tenure_fleet_leader_info"].samples[0].labels == {"leader": "bob"}
            assert {sample.labels["queue"] for sample in families["tenure_fleet_queue_messages"].samples} == {"emails"}
            assert sum(sample.value for sample in families["tenure_fleet_dashboard_requests"].samples) > 10
            assert (await page.get("/readyz")).json() == {"ok": True}

            # The pulses of a fleet: what its heartbeats take, and what it asks of the store.
            found = await page.until(lambda seen: seen["latency"]["leader"] and seen["usage"]["sampled"] >= 0)
            assert found["latency"]["leader"][-1][1] >= 0
            assert found["latency"]["store"][-1][1] >= 0
