"""What OpenTelemetry is told, by its real SDK: the same metrics, and spans of terms, requests, messages and runs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tenure import Database, Message, Outgoing, S3QueuePlugin, every
from tenure.errors import ConfigError, StoreUnavailable
from tenure.plugins.queue.outgoing import with_headers
from tenure.store import Faults, Faulty, Metered, Store
from tenure.telemetry.catalogue import CATALOGUE, Kind
from tenure.telemetry.otel import Instrumentation, StoreSpans, instrument
from tenure.telemetry.otel.instruments import otel_name
from tenure.telemetry.otel.store import folder_of
from tenure.telemetry.sampling import Sampler
from tests.support.store import ANY, Hold, ScriptedStore
from tests.support.waiting import eventually
from tests.unit.telemetry_rig import SWIFT, nowhere, process

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
DOWN = Faults(lost_request=1.0, failed_read=1.0)


class Told(msgspec.Struct):
    """The program's own set-up of OpenTelemetry, which keeps everything."""

    reader: InMemoryMetricReader
    meters: MeterProvider
    exporter: InMemorySpanExporter
    tracers: TracerProvider

    def instrument(self, db: object, **options: Any) -> Instrumentation:
        return instrument(db, self.meters, self.tracers, **options)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return tuple(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric for resource in data.resource_metrics for scope in resource.scope_metrics
            for metric in scope.metrics
        }  # fmt: skip


@pytest.fixture
def told() -> Iterator[Told]:
    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    meters, tracers = MeterProvider([reader]), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    yield Told(reader, meters, exporter, tracers)
    meters.shutdown()
    tracers.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def context_of(span: ReadableSpan) -> trace.SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def id_of(span: ReadableSpan) -> int:
    return context_of(span).span_id


# Metrics


@pytest.mark.req("MT-6")
async def test_every_metric_is_an_instrument_with_the_same_values(told: Told) -> None:
    async with process() as it:
        told.instrument(it.db, attributes={"service": "mailer"})
        await it.queue.enqueue("good")
        await it.ttl.run_cleanup()
        await eventually(lambda: (led := it.queue.glance().led) is not None and led.totals.done == 1)
        coordinator = await it.db.get_global_coordinator()
        await eventually(lambda: coordinator.get_metrics().heartbeat_count >= 1)
        found = await asyncio.to_thread(told.metrics)
        expected = {sample.family.name for sample in Sampler(it.db).sample()}
    names: set[str] = set()
    for family in CATALOGUE:
        name, unit = otel_name(family)
        parts = [f".{part}" for part in ("bucket", "sum", "count")] if family.kind is Kind.HISTOGRAM else [""]
        for part in parts:
            names.add(name + part)
            metric = found[name + part]
            assert metric.description == family.help
            assert metric.unit == (unit if part in ("", ".sum") else "1")
            assert isinstance(metric.data, Sum) == (family.kind is not Kind.GAUGE)
    assert set(found) == names
    assert len(expected) == len(CATALOGUE)
    [done] = found["tenure.queue.done"].data.data_points
    assert dict(done.attributes) == {"service": "mailer", "namespace": "default", "queue": "emails"}
    assert done.value == 1
    buckets = found["tenure.heartbeat.duration.bucket"].data.data_points
    [count] = found["tenure.heartbeat.duration.count"].data.data_points
    assert max(point.value for point in buckets) == count.value >= 1
    assert [point.attributes["le"] for point in buckets][-1] == "+Inf"
    assert found["tenure.store.cost"].unit == "USD"
    assert {point.attributes["verb"] for point in found["tenure.store.requests"].data.data_points} >= {"get", "create"}


def test_names_and_units_follow_opentelemetry() -> None:
    by_name = {family.name: family for family in CATALOGUE}
    for name, expected in {
        "tenure_queue_oldest_message_age_seconds": ("tenure.queue.oldest_message_age", "s"),
        "tenure_epoch": ("tenure.epoch", "1"),
        "tenure_heartbeats_total": ("tenure.heartbeats", "1"),
        "tenure_store_sent_bytes_total": ("tenure.store.sent", "By"),
        "tenure_store_cost_usd_total": ("tenure.store.cost", "USD"),
        "tenure_last_heartbeat_timestamp_seconds": ("tenure.last.heartbeat_timestamp", "s"),
    }.items():
        assert otel_name(by_name[name]) == expected
    assert len({otel_name(family) for family in CATALOGUE}) == len(CATALOGUE)


# Terms


@pytest.mark.req("MT-6")
async def test_an_election_and_the_term_that_follows_are_spans(told: Told) -> None:
    db = Database(nowhere(), worker_id="one")
    told.instrument(db)  # before anything is connected
    async with db:
        coordinator = await db.get_global_coordinator("reports", config=SWIFT)
        await coordinator.start()
        await eventually(coordinator.is_leader)
        await eventually(lambda: told.named("tenure.election"))
        assert not told.named("tenure.term")
        await coordinator.step_down()
        await eventually(lambda: told.named("tenure.term"))
        [election], [term] = told.named("tenure.election")[:1], told.named("tenure.term")[:1]
        for span in (election, term):
            known = {"tenure.namespace": "reports", "tenure.worker": "one", "tenure.epoch": 1}
            assert known.items() <= attributes(span).items()
            assert span.parent is None
        assert [link.context.span_id for link in term.links] == [id_of(election)]
        assert attributes(term)["tenure.term.ended"] == "step-down"
        assert term.status.status_code is StatusCode.UNSET
        assert election.start_time is not None
        assert election.end_time is not None
        assert term.start_time == election.end_time >= election.start_time
        took = coordinator.get_metrics().election_duration
        assert (election.end_time - election.start_time) / 1e9 == pytest.approx(took, abs=0.01)


@pytest.mark.req("MT-6")
async def test_a_term_that_was_lost_has_failed(told: Told) -> None:
    async with Database(nowhere()) as db:
        assert isinstance(db.store, Metered)
        broken: list[Faulty] = []

        def break_later(inner: Store) -> Store:
            broken.append(Faulty(inner, Faults(), random=Random(1)))
            return broken[0]

        db.store.wrap(break_later)
        told.instrument(db, store_spans=StoreSpans.NONE)
        coordinator = await db.get_global_coordinator(config=SWIFT.replace(lease_timeout=1.0))
        await coordinator.start()
        await eventually(coordinator.is_leader)
        broken[0]._faults = DOWN
        await eventually(lambda: told.named("tenure.term"))
        broken[0]._faults = Faults()
        [term] = told.named("tenure.term")
        assert term.status.status_code is StatusCode.ERROR
        assert attributes(term)["tenure.term.ended"] == "renew-deadline"
        assert {span.name for span in told.spans} == {"tenure.election", "tenure.term"}


# Requests


@pytest.mark.req("MT-6")
async def test_each_request_is_a_span_with_verb_and_outcome_and_no_key(told: Told) -> None:
    async with Database(nowhere()) as db:
        told.instrument(db)
        store = db.store
        with trace.use_span(told.tracers.get_tracer("test").start_span("work"), end_on_exit=True):
            await store.create(f"folder/inner/{SECRET}/k", b"12345")
            await store.create(f"folder/inner/{SECRET}/k", b"1")
            await store.get(f"folder/inner/{SECRET}/k")
            with pytest.raises(LookupError):
                try:
                    await store.get("folder/none")
                except Exception as error:
                    raise LookupError from error
            assert [entry.key async for entry in store.list("folder/")]
            await store.delete(f"folder/inner/{SECRET}/k")
        [work] = told.named("work")
        requests = [span for span in told.spans if span.name.startswith("tenure.store ")]
        seen = [(attributes(span)["tenure.store.verb"], attributes(span)["tenure.store.outcome"]) for span in requests]
        assert seen == [
            ("create", "applied"),
            ("create", "rejected"),
            ("get", "ok"),
            ("get", "missing"),
            ("list", "ok"),
            ("delete", "ok"),
        ]
        for span in requests:
            assert parent(span) == id_of(work)
            assert span.kind is SpanKind.CLIENT
            assert span.status.status_code is StatusCode.UNSET
            assert attributes(span)["tenure.store.provider"] == "memory"
        assert attributes(requests[0])["tenure.store.folder"] == "folder/inner"
        assert attributes(requests[0])["tenure.store.sent_bytes"] == 5
        assert attributes(requests[2])["tenure.store.received_bytes"] == 5
        assert SECRET not in "".join(span.to_json() for span in told.spans)


@pytest.mark.req("MT-6")
async def test_a_request_that_failed_says_so_by_its_kind(told: Told) -> None:
    async with Database(nowhere()) as db:
        assert isinstance(db.store, Metered)
        db.store.wrap(lambda inner: Faulty(inner, DOWN, random=Random(1)))
        told.instrument(db)
        with pytest.raises(StoreUnavailable):
            await db.store.get("folder/key")
        await db.store.create("folder/key", b"")
    got, created = told.spans
    for span, outcome in ((got, "error"), (created, "unknown")):
        assert attributes(span)["tenure.store.outcome"] == outcome
        assert attributes(span)["error.type"] == "StoreUnavailable"
        assert span.status.status_code is StatusCode.ERROR
        assert "folder/key" not in span.to_json()


async def test_a_request_that_was_cut_short_ends_its_span(told: Told) -> None:
    async with Database(nowhere()) as db:
        assert isinstance(db.store, Metered)
        scripted, hold = ScriptedStore(), Hold()
        scripted.always("get", ANY, hold)
        db.store.wrap(lambda inner: scripted)
        told.instrument(db)
        task = asyncio.create_task(db.store.get("folder/key"))
        await hold.reached()
        task.cancel()
        await asyncio.wait([task])
    [span] = told.spans
    assert attributes(span)["tenure.store.outcome"] == "cut-short"


async def test_requests_outside_of_any_span_can_be_left_out(told: Told) -> None:
    async with Database(nowhere()) as db:
        told.instrument(db, store_spans=StoreSpans.INSIDE)
        await db.store.put("folder/key", b"")
        assert not told.spans
        with trace.use_span(told.tracers.get_tracer("test").start_span("work"), end_on_exit=True):
            await db.store.put("folder/key", b"")
        assert [span.name for span in told.spans] == ["tenure.store put", "work"]


def test_of_a_key_the_first_folders_are_told() -> None:
    assert folder_of("a/b/c/d") == "a/b"
    assert folder_of("a/b") == "a"
    assert folder_of("a") == folder_of("") == ""


# Messages


@contextmanager
def work(told: Told, name: str = "work") -> Iterator[trace.Span]:
    with trace.use_span(told.tracers.get_tracer("test").start_span(name), end_on_exit=True) as span:
        yield span


@pytest.mark.req("MT-6")
async def test_a_message_takes_the_context_of_its_sender_to_its_handler(told: Told) -> None:
    async with Database(nowhere()) as db:
        told.instrument(db, store_spans=StoreSpans.INSIDE)
        queue = await db.use_plugin(S3QueuePlugin("emails", config=SWIFT))
        with work(told):
            await queue.enqueue({"to": "ada"}, headers={"mine": "kept"})
        current: list[trace.SpanContext] = []
        headers: list[dict[str, str]] = []

        @queue.handler
        async def handle(message: Message) -> None:
            current.append(trace.get_current_span().get_span_context())
            headers.append(message.headers)
            await db.store.put("folder/done", b"")

        await eventually(lambda: told.named("process emails"))
        [sender], [send], [handled] = told.named("work"), told.named("send emails"), told.named("process emails")
        assert parent(send) == id_of(sender)
        assert parent(handled) == id_of(send)
        assert context_of(handled).trace_id == context_of(sender).trace_id
        assert (send.kind, handled.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
        assert [context.span_id for context in current] == [id_of(handled)]
        assert headers[0]["mine"] == "kept"
        assert headers[0]["traceparent"].split("-")[2] == f"{id_of(send):016x}"
        known = attributes(handled)
        assert known["messaging.system"] == "tenure"
        assert known["messaging.destination.name"] == "emails"
        assert known["tenure.queue.attempt"] == 1
        written = [span for span in told.named("tenure.store put") if parent(span) == id_of(handled)]
        assert len(written) == 1


async def test_a_handler_that_fails_is_recorded_without_secrets(told: Told) -> None:
    async with Database(nowhere()) as db:
        told.instrument(db, store_spans=StoreSpans.NONE)
        queue = await db.use_plugin(S3QueuePlugin("emails", config=SWIFT, max_attempts=1))
        await queue.enqueue("x")
        threads: list[str] = []
        current: list[int] = []

        @queue.handler
        def handle(message: Message) -> None:
            threads.append(threading.current_thread().name)
            current.append(trace.get_current_span().get_span_context().span_id)
            raise ValueError(f"cannot reach https://x.example?token={SECRET}")

        await eventually(lambda: told.named("process emails"))
        [handled] = told.named("process emails")
        assert threads[0].startswith("queue-emails")
        assert current == [id_of(handled)]  # also in its thread
        assert handled.status.status_code is StatusCode.ERROR
        assert attributes(handled)["error.type"] == "ValueError"
        [event] = handled.events
        assert event.name == "exception"
        assert "cannot reach" in str((event.attributes or {})["exception.message"])
        assert "test_telemetry_otel" in str((event.attributes or {})["exception.stacktrace"])
        assert SECRET not in json.dumps(handled.to_json())


async def test_a_batch_is_linked_to_all_who_sent_it(told: Told) -> None:
    async with Database(nowhere()) as db:
        told.instrument(db, store_spans=StoreSpans.NONE)
        queue = await db.use_plugin(S3QueuePlugin("emails", config=SWIFT))
        await queue.enqueue_many(["a", Outgoing(body="b", headers={"mine": "kept"})])
        await queue.enqueue("c", headers={"traceparent": "00-nonsense"})
        handled: list[Message] = []

        @queue.handler(batch=10)
        async def handle(messages: list[Message]) -> None:
            handled.extend(messages)

        await eventually(lambda: len(handled) == 3)
        await eventually(lambda: sum(map(_count, told.named("process emails"))) == 3)
        many = told.named("send emails")[0]
        links = [link.context.span_id for span in told.named("process emails") for link in span.links]
        parents = [parent(span) for span in told.named("process emails")]
        assert sorted([*links, *(each for each in parents if each is not None)]) == [id_of(many)] * 2
        assert attributes(many)["messaging.batch.message_count"] == 2
        assert next(message for message in handled if message.body == "b").headers["mine"] == "kept"


def _count(span: ReadableSpan) -> int:
    return int(attributes(span).get("messaging.batch.message_count", 1))


def test_headers_that_leave_no_room_stay_as_they_are() -> None:
    full = {f"h{number}": "x" for number in range(64)}
    assert with_headers(full, {"traceparent": "y"}) == full
    assert with_headers(None, {"traceparent": "y"}) == {"traceparent": "y"}
    assert with_headers({"traceparent": "mine"}, {"traceparent": "y"}) == {"traceparent": "mine"}
    assert with_headers(None, {"tracestate": "z" * 2000}) == {}
    assert with_headers(None, {}) is None


# Runs


@pytest.mark.req("MT-6")
async def test_a_scheduled_run_is_a_span_and_its_message_a_part_of_it(told: Told) -> None:
    async with process() as it:
        told.instrument(it.db, store_spans=StoreSpans.NONE)
        current: list[int] = []

        @it.scheduler.function("fail")
        async def fail() -> None:
            current.append(trace.get_current_span().get_span_context().span_id)
            raise ValueError("broken")

        far = every(7200)
        await it.scheduler.add("failing", far, function="fail")
        await it.scheduler.add("sending", far, queue="emails", body="good")
        await it.scheduler.run_now("failing")
        await it.scheduler.run_now("sending")
        await eventually(lambda: told.named("process emails") and len(told.named("run scheduler")) >= 2)
        by_job = {attributes(span)["tenure.schedule.job"]: span for span in told.named("run scheduler")}
        failed, sent = by_job["failing"], by_job["sending"]
        assert current == [id_of(failed)]
        assert failed.parent is None
        assert failed.status.status_code is StatusCode.ERROR
        assert failed.status.description == "ValueError: broken"
        assert attributes(failed)["tenure.schedule.attempt"] == 1
        assert attributes(failed)["tenure.epoch"] == 1
        assert sent.status.status_code is StatusCode.UNSET
        [send] = [span for span in told.named("send emails") if parent(span) == id_of(sent)]
        [handled] = told.named("process emails")
        assert parent(handled) == id_of(send)


# Its own life


async def test_after_close_nothing_is_told_and_it_can_be_begun_again(told: Told) -> None:
    async with Database(nowhere()) as db:
        with told.instrument(db):
            with pytest.raises(ConfigError, match="traced already"):
                told.instrument(db)
            coordinator = await db.get_global_coordinator(config=SWIFT)
            await coordinator.start()
            await eventually(lambda: coordinator.is_leader() and told.named("tenure.election"))
        [term] = told.named("tenure.term")
        assert attributes(term)["tenure.term.ended"] == "no longer followed"
        told.exporter.clear()
        await db.store.put("folder/key", b"")
        await coordinator.step_down()
        await eventually(coordinator.is_leader)
        assert not told.named("tenure.store put")
        assert not told.named("tenure.term")
        assert not told.named("tenure.election")
        assert not told.metrics()
        with told.instrument(db):
            await db.store.put("folder/key", b"")
        assert len(told.named("tenure.store put")) == 1


def test_options_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="store_spans is 'all'"):
        instrument(Database(nowhere()), store_spans="all")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"give a tenure\.Database"):
        instrument(object())


async def test_without_providers_of_its_own_it_costs_next_to_nothing_and_breaks_nothing() -> None:
    async with Database(nowhere()) as db:
        with instrument(db):
            queue = await db.use_plugin(S3QueuePlugin("emails", config=SWIFT))
            handled: list[Message] = []
            queue.on_message(handled.append)
            await queue.enqueue("x")
            await eventually(lambda: handled)
            assert "traceparent" not in handled[0].headers
