"""What Prometheus scrapes: everything that is counted, under bounded labels, at no request, from any thread."""

from __future__ import annotations

import asyncio
import math
import threading
import time
import urllib.request
from collections.abc import Iterable
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import tenure.blocking
from tenure import Database
from tenure.coordinator.config import Hosting
from tenure.coordinator.metrics import CoordinatorMetrics
from tenure.errors import ConfigError
from tenure.plugins.queue import S3QueuePlugin
from tenure.telemetry.catalogue import CAPPED, CATALOGUE, EPOCH, HEARTBEAT_DURATION, QUEUE_DONE, Buckets, Kind, Sample
from tenure.telemetry.limits import Limits
from tenure.telemetry.prometheus import TenureCollector, metrics_app, registry_of, serve
from tests.support.waiting import eventually
from tests.unit.telemetry_rig import SWIFT, nowhere, process, scraped

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def values(families: Iterable[Metric]) -> Values:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(found: Values, name: str, /, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


@pytest.mark.req("MT-6")
def test_a_scrape_is_parsed_and_has_every_metric_that_there_is() -> None:
    text, openmetrics = scraped()
    families = list(parse_text(text))
    assert {family.name for family in families} == {family.name.removesuffix("_total") for family in CATALOGUE}
    types = {family.name.removesuffix("_total"): family.kind.value for family in CATALOGUE}
    assert {family.name: family.type for family in families} == types
    stricter = {family.name: family.type for family in parse_openmetrics(openmetrics)}
    assert stricter == types
    assert all(family.documentation for family in families)


@pytest.mark.req("MT-6")
def test_what_happened_is_in_the_scrape() -> None:
    found = values(parse_text(scraped()[0]))
    queue = {"namespace": "default", "queue": "emails"}
    assert value(found, "tenure_is_leader", namespace="default") == 1
    assert value(found, "tenure_leader_seen", namespace="default") == 1
    assert value(found, "tenure_epoch", namespace="default") == 1
    assert 0 < value(found, "tenure_lease_remaining_seconds", namespace="default") <= 3
    assert value(found, "tenure_workers", namespace="default") == 1
    assert value(found, "tenure_queue_messages", **queue, state="dead") == 1
    assert value(found, "tenure_queue_enqueued_total", **queue) == 2
    assert value(found, "tenure_queue_done_total", **queue) == 1
    assert value(found, "tenure_queue_dead_letters_total", **queue) == 1
    assert value(found, "tenure_queue_handled_total", **queue, outcome="done") == 1
    assert value(found, "tenure_queue_handled_total", **queue, outcome="failed") == 1
    assert value(found, "tenure_schedule_jobs", namespace="default", schedule="scheduler") == 1
    assert value(found, "tenure_schedule_manual_total", namespace="default", schedule="scheduler") == 1
    assert 0 < value(found, "tenure_schedule_next_fire_seconds", namespace="default", schedule="scheduler") <= 3600
    assert value(found, "tenure_counters_calls_total", namespace="default", resource="pages") == 1
    assert value(found, "tenure_ttl_cleanups_total", namespace="default", resource="sessions") == 1
    running = {"namespace": "default", "supervisor": "default"}
    assert value(found, "tenure_supervisor_children", **running, state="running") == 1
    assert value(found, "tenure_supervisor_child_running", **running, child="mailer") == 1
    assert value(found, "tenure_locks_held") == 1
    assert value(found, "tenure_store_requests_total", verb="create", outcome="applied") > 5
    assert value(found, "tenure_store_sent_bytes_total") > 500
    assert value(found, "tenure_store_cost_usd_total") == 0.0  # memory costs nothing
    for plugin, name in (("s3-queue", "emails"), ("scheduler", "scheduler"), ("ttl", "sessions")):
        assert value(found, "tenure_ledger_leading", namespace="default", plugin=plugin, name=name) == 1


NAMES = {
    "heartbeat_count": "tenure_heartbeats_total",
    "election_count": "tenure_elections_total",
    "election_duration": "tenure_last_election_duration_seconds",
    "election_duration_sum": "tenure_election_duration_seconds_sum",
    "leader_changes": "tenure_leader_changes_total",
    "worker_registrations": "tenure_worker_registrations_total",
    "worker_timeouts": "tenure_worker_timeouts_total",
    "start_time": "tenure_start_time_seconds",
    "last_heartbeat_time": "tenure_last_heartbeat_timestamp_seconds",
    "epoch_drift_events": "tenure_epoch_drift_events_total",
    "contention_events": "tenure_contention_events_total",
    "circuit_breaker_trips": "tenure_circuit_breaker_trips_total",
    "store_errors": "tenure_coordinator_store_errors_total",
    "heartbeat_duration_sum": "tenure_heartbeat_duration_seconds_sum",
}
"""Fields that are one number."""
OTHERWISE = {
    "election_duration_histogram",
    "heartbeat_duration_histogram",
    "circuit_breaker_state",
    "heartbeat_latency_p50",
    "heartbeat_latency_p95",
    "heartbeat_latency_p99",
    "latency_note",
}
LEFT_OUT = {"last_error"}
"""A text: it is in the log."""


@pytest.mark.req("MT-6", "MT-1", "MT-2", "MT-4")
async def test_every_field_of_the_metrics_is_exported_with_its_own_value() -> None:
    assert {*NAMES, *OTHERWISE, *LEFT_OUT} == set(CoordinatorMetrics.__struct_fields__)
    async with Database(nowhere()) as db:
        coordinator = await db.get_global_coordinator(config=SWIFT.replace(hosting=Hosting.LOOP))
        await coordinator.start()
        await eventually(lambda: coordinator.is_leader() and coordinator.get_metrics().heartbeat_count >= 1)
        counted: Any = coordinator._metrics
        # Numbers that differ, so that none is taken for another.
        for number in range(20):
            counted.heartbeat(0.01 * number, 1000.0 + number)
        counted.election(0.07)
        counted.election(70.0)
        counted.worker_registered(30)
        counted.worker_timed_out(40)
        counted.store_failed("no answer")
        for _ in range(50):
            counted.leader_changed()
        coordinator.count_epoch_drift(60)
        engine: Any = coordinator._engine
        engine.contention.events = 70
        for _ in range(99):
            engine.breaker.failed(db.clock.read())
        # No await from here on: the coordinator lives on this loop, and counts nothing meanwhile.
        now = coordinator.get_metrics()
        found = values(parse_text(generate_latest(registry_of(db)).decode()))
    told = {field: value(found, name, namespace="default") for field, name in NAMES.items()}
    assert told == {field: getattr(now, field) for field in NAMES}
    assert len({*told.values()}) >= len(told) - 2
    states = {state: value(found, "tenure_circuit_breaker_state", namespace="default", state=state) for state in STATES}
    assert states == {"closed": 0, "open": 1, "half-open": 0}
    assert now.circuit_breaker_state == "open"
    for quantile, seconds in (
        ("0.5", now.heartbeat_latency_p50),
        ("0.95", now.heartbeat_latency_p95),
        ("0.99", now.heartbeat_latency_p99),
    ):
        assert seconds > 0
        assert value(found, "tenure_heartbeat_latency_seconds", namespace="default", quantile=quantile) == seconds
    assert value(found, "tenure_heartbeat_latency_known", namespace="default") == 1
    for field, name in (
        ("election_duration_histogram", "tenure_election_duration_seconds"),
        ("heartbeat_duration_histogram", "tenure_heartbeat_duration_seconds"),
    ):
        so_far = 0
        for bound, count in getattr(now, field).items():
            so_far += count
            le = bound if bound == "+Inf" else str(float(bound))
            assert value(found, f"{name}_bucket", namespace="default", le=le) == so_far
        assert value(found, f"{name}_count", namespace="default") == so_far


STATES = ("closed", "open", "half-open")


@pytest.mark.req("MT-3")
async def test_with_too_few_heartbeats_percentiles_say_that_they_are_not_known() -> None:
    async with Database(nowhere()) as db:
        await db.get_global_coordinator()
        found = values(parse_text(generate_latest(registry_of(db)).decode()))
    assert value(found, "tenure_heartbeat_latency_known", namespace="default") == 0
    assert value(found, "tenure_heartbeat_latency_seconds", namespace="default", quantile="0.99") == 0
    assert ("tenure_last_heartbeat_timestamp_seconds", (("namespace", "default"),)) not in found
    assert value(found, "tenure_is_leader", namespace="default") == 0
    assert value(found, "tenure_coordinator_running", namespace="default") == 0


def test_names_and_labels_follow_the_rules() -> None:
    bounded = CAPPED | {"verb", "outcome", "state", "quantile", "event", "reason", "version", "store"}
    for family in CATALOGUE:
        assert family.name.startswith("tenure_")
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER), family.name
        assert set(family.labels) <= bounded, family.name
        assert not any(unit in family.name for unit in ("_ms", "millis", "minutes", "percent", "_kb")), family.name
    assert len({family.name for family in CATALOGUE}) == len(CATALOGUE)


async def test_a_scrape_makes_no_request() -> None:
    async with process(hosting=Hosting.LOOP) as it:
        registry = registry_of(it.db)
        before = it.db.usage().total
        for _ in range(3):
            generate_latest(registry)
        assert it.db.usage().total == before


@pytest.mark.req("MT-6")
async def test_scrapes_come_on_other_threads_while_everything_works() -> None:
    async with process() as it:
        registry = registry_of(it.db)
        wrong: list[BaseException] = []
        scrapes = 0
        enough = threading.Event()

        def scrape() -> None:
            nonlocal scrapes
            try:
                while not enough.is_set():
                    list(parse_text(generate_latest(registry).decode()))
                    scrapes += 1
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=scrape) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(200):
            await it.queue.enqueue(number, ordering_key=f"key-{number}")
            await it.counters.add(f"page-{number}", "views")
        await eventually(lambda: scrapes >= 5 or wrong)
        enough.set()
        await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
        assert not wrong


async def test_a_loop_that_stands_still_does_not_hold_up_a_scrape() -> None:
    async with process() as it:
        registry = registry_of(it.db)
        generate_latest(registry)
        await it.queue.enqueue("good")
        texts: list[str] = []
        took: list[float] = []

        def scrape() -> None:
            began = time.monotonic()
            time.sleep(0.2)
            texts.append(generate_latest(registry).decode())
            took.append(time.monotonic() - began)

        thread = threading.Thread(target=scrape)
        thread.start()
        time.sleep(1.6)  # the loop stands still, as it does in bad programs
        done_meanwhile = list(texts)
        await asyncio.to_thread(thread.join)
        assert done_meanwhile, took
        found = values(parse_text(done_meanwhile[0]))
        assert value(found, "tenure_plugins_read_age_seconds") > 0.2
        assert value(found, "tenure_is_leader", namespace="default") == 1
        assert value(found, "tenure_queue_workers", namespace="default", queue="emails") <= 1
        found = values(parse_text(generate_latest(registry).decode()))
        assert value(found, "tenure_plugins_read_age_seconds") < 0.2


async def test_a_plugin_that_cannot_be_read_hides_no_other() -> None:
    async with process() as it:

        def broken() -> None:
            raise RuntimeError("no")

        it.queue.glance = broken  # type: ignore[method-assign, assignment]
        found = values(parse_text(generate_latest(registry_of(it.db)).decode()))
    assert value(found, "tenure_telemetry_errors_total", plugin="s3-queue") == 1
    assert value(found, "tenure_telemetry_errors_total", plugin="ttl") == 0
    assert value(found, "tenure_schedule_jobs", namespace="default", schedule="scheduler") == 1


async def test_it_is_served_over_http_on_loopback_alone() -> None:
    async with Database(nowhere()) as db:
        await db.get_global_coordinator("reports")
        with serve(db, 0, labels={"service": "mailer"}) as server:
            assert server.host == "127.0.0.1"

            def ask(accept: str) -> tuple[str, str]:
                request = urllib.request.Request(server.url, headers={"Accept": accept})
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return answer.headers["Content-Type"], answer.read().decode()

            kind, text = await asyncio.to_thread(ask, "text/plain")
            assert kind.startswith("text/plain")
            found = values(parse_text(text))
            assert value(found, "tenure_epoch", service="mailer", namespace="reports") == 0
            kind, text = await asyncio.to_thread(ask, "application/openmetrics-text; version=1.0.0")
            assert "openmetrics" in kind
            assert {family.name for family in parse_openmetrics(text)} >= {"tenure_epoch", "tenure_build_info"}
        with pytest.raises(OSError):
            await asyncio.to_thread(ask, "text/plain")
        server.close()  # a second time changes nothing


async def test_it_is_an_asgi_application() -> None:
    async with Database(nowhere()) as db:
        await db.get_global_coordinator("reports")
        transport = httpx.ASGITransport(app=metrics_app(db))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            answer = await client.get("/metrics")
        assert answer.status_code == 200
        assert value(values(parse_text(answer.text)), "tenure_epoch", namespace="reports") == 0


def test_a_blocking_database_is_scraped_as_well() -> None:
    with tenure.blocking.Database(nowhere()) as db:
        queue = db.use_plugin(S3QueuePlugin("emails", config=SWIFT))
        queue.enqueue({"to": "ada"})
        found = values(parse_text(generate_latest(registry_of(db)).decode()))
        batches = value(found, "tenure_ledger_batches_total", namespace="default", plugin="s3-queue", name="emails")
        assert batches == 1


async def test_a_database_that_is_not_connected_has_nothing_to_tell() -> None:
    db = Database(nowhere())
    registry = registry_of(db)
    assert generate_latest(registry) == b""
    async with db:
        assert b"tenure_build_info" in generate_latest(registry)
    assert generate_latest(registry) == b""
    await db.connect()
    assert b"tenure_build_info" in generate_latest(registry)
    await db.disconnect()


async def test_two_databases_of_one_process_are_told_apart_by_labels() -> None:
    async with Database(nowhere()) as one, Database(nowhere()) as two:
        await one.get_global_coordinator("a")
        await two.get_global_coordinator("a")
        collector = TenureCollector(one, labels={"bucket": "one"})
        collector.add(two, labels={"bucket": "two"})
        registry = CollectorRegistry()
        registry.register(collector)
        text = generate_latest(registry).decode()
        found = values(parse_text(text))
        assert text.count("# TYPE tenure_epoch gauge") == 1
        for bucket in ("one", "two"):
            assert value(found, "tenure_epoch", bucket=bucket, namespace="a") == 0
        with pytest.raises(ValueError, match="Duplicated"):
            registry.register(TenureCollector(two))
        for labels in ({"bucket": "two"}, {"app": "three"}, {}):
            with pytest.raises(ConfigError, match="those of the first database"):
                collector.add(one, labels=labels)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"labels": {"namespace": "x"}}, "none of"),
        ({"labels": {"a-b": "x"}}, "letters, digits and _"),
        ({"labels": {"le": "x"}}, "none of"),
        ({"labels": {"a": 1}}, "give a text"),
        ({"labels": {f"l{number}": "x" for number in range(17)}}, "at most 16"),
        ({"max_values": 0}, "from 1 to"),
        ({"max_values": True}, "from 1 to"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        TenureCollector(Database(nowhere()), **options)


def test_what_is_no_database_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"give a tenure\.Database"):
        TenureCollector("s3://bucket")
    with pytest.raises(ConfigError, match="port is -1"):
        serve(Database(nowhere()), -1)


# Bounds


@pytest.mark.req("MT-5")
def test_labels_have_at_most_so_many_values_and_the_rest_are_other() -> None:
    limits = Limits(2)
    samples = [Sample(QUEUE_DONE, ("default", f"queue-{number}"), float(number)) for number in range(5)]
    told = {sample.labels[1]: sample.value for sample in limits.apply(samples)}
    assert told == {"queue-0": 0.0, "queue-1": 1.0, "other": 2.0 + 3.0 + 4.0}
    again = {sample.labels[1]: sample.value for sample in limits.apply(reversed(samples))}
    assert again == told  # who was admitted once stays


def test_gauges_become_one_by_their_kind_and_histograms_by_their_buckets() -> None:
    limits = Limits(1)
    epochs = [Sample(EPOCH, (name,), number) for name, number in (("a", 5.0), ("b", 2.0), ("c", 9.0))]
    assert {sample.labels: sample.value for sample in limits.apply(epochs)} == {("a",): 5.0, ("other",): 9.0}
    buckets = Buckets((("1.0", 2), ("+Inf", 3)), 4.0)
    durations = [Sample(HEARTBEAT_DURATION, (name,), buckets) for name in ("a", "b", "c")]
    told = {sample.labels: sample.value for sample in limits.apply(durations)}
    assert told["other",] == Buckets((("1.0", 4), ("+Inf", 6)), 8.0)


@pytest.mark.req("MT-5")
async def test_a_hundred_queues_are_scraped_quickly_and_within_bounds() -> None:
    async with Database(nowhere()) as db:
        for number in range(100):
            await db.use_plugin(S3QueuePlugin(f"queue-{number:03}", config=SWIFT.replace(heartbeat_interval=1.0)))
        queues = [plugin for plugin in db.plugins.values() if isinstance(plugin, S3QueuePlugin)]
        await eventually(lambda: all(queue.is_leading for queue in queues))
        registry = registry_of(db)
        took = math.inf
        for _ in range(7):
            began = time.thread_time()
            text = generate_latest(registry).decode()
            took = min(took, time.thread_time() - began)
        print(f"a scrape of 100 queues: {1000 * took:.1f} ms of CPU, {len(text):,} characters")
        found = values(parse_text(text))
        named = [key for key in found if key[0] == "tenure_queue_messages"]
        assert len(named) == 400
        assert took < 0.2  # 25 ms where nothing else runs; see docs/telemetry.md
        few = values(parse_text(generate_latest(registry_of(db, max_values=10)).decode()))
        queues_told = {dict(labels)["queue"] for name, labels in few if name == "tenure_queue_messages"}
        assert len(queues_told) == 11
        assert "other" in queues_told
        assert len(few) < len(found) / 5


def test_samples_are_frozen() -> None:
    sample = Sample(EPOCH, ("a",), 1.0)
    with pytest.raises(AttributeError):
        sample.value = 2.0  # type: ignore[misc]
    assert msgspec.structs.replace(sample, value=2.0).value == 2.0
