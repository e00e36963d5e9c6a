"""Terms, elections, messages and scheduled runs as spans.

A message takes the context of whoever enqueued it along, in its headers (`traceparent`, as W3C has it), so that its
handling is a child of that. What headers say is not trusted: one that cannot be read is none.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, get_current_span, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tenure.coordinator.events import (
    CircuitBreakerOpen,
    ContentionDetected,
    CoordinatorDemoted,
    CoordinatorPromoted,
    EpochRenewed,
    LoopStalled,
    NamedEvent,
    OverranLease,
    Tap,
)
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database import Database
from tenure.database.tracing import Delivered
from tenure.store import Store
from tenure.store.url import redact
from tenure.telemetry.otel.store import StoreSpans, TracedStore, is_inside

MAX_LINKS = 128
"""Of a batch: so many messages are named."""
MAX_TEXT = 1000
MAX_TRACEBACK = 8000
AS_WANTED = frozenset({"stopped", "step-down", "transfer", "mandate-ended", "better-priority", "scope-ended"})
"""Reasons for which a term ends as somebody wanted it to; every other one is a failure."""

_propagator = TraceContextTextMapPropagator()


class Spans:
    """The tracer of one database; see `tenure.database.tracing`."""

    def __init__(self, tracer: Tracer, database: Database, store_spans: StoreSpans) -> None:
        self._tracer = tracer
        self._database = database
        self._store_spans = store_spans
        self._terms: list[Terms] = []
        self._closed = False

    def close(self) -> None:
        self._closed = True
        if self._database.tracing.tracer is self:
            self._database.tracing.tracer = None
        for terms in self._terms:
            terms.close()

    def store(self, inner: Store) -> Store:
        return TracedStore(inner, self._tracer, self._traces_store)

    def _traces_store(self) -> bool:
        if self._closed or self._store_spans is StoreSpans.NONE:
            return False
        return self._store_spans is StoreSpans.ALL or is_inside()

    def coordinator(self, coordinator: GlobalCoordinatorService) -> None:
        self._terms = [terms for terms in self._terms if not terms.is_over]
        self._terms.append(Terms(self._tracer, coordinator, self._database))

    def enqueueing(self, queue: str, count: int) -> AbstractContextManager[Mapping[str, str]]:
        span = self._tracer.start_span(
            f"send {queue}",
            kind=SpanKind.PRODUCER,
            attributes={**_messaging(queue, "send"), "messaging.batch.message_count": count},
        )
        return _carried(span)

    def handling(self, queue: str, messages: Sequence[Delivered]) -> AbstractContextManager[Followed]:
        attributes: dict[str, str | int] = _messaging(queue, "process")
        context, links = Context(), []
        if len(messages) == 1:
            context = _sent_by(messages[0])
            attributes |= {"messaging.message.id": messages[0].id, "tenure.queue.attempt": messages[0].attempt}
        else:
            attributes["messaging.batch.message_count"] = len(messages)
            found = (get_current_span(_sent_by(each)).get_span_context() for each in messages[:MAX_LINKS])
            links = [Link(sender) for sender in found if sender.is_valid]
        span = self._tracer.start_span(
            f"process {queue}", context=context, kind=SpanKind.CONSUMER, attributes=attributes, links=links
        )
        return _followed(span)

    def running(
        self, schedule: str, job: str, run: str, *, scheduled_ms: int, attempt: int, epoch: int
    ) -> AbstractContextManager[Followed]:
        span = self._tracer.start_span(
            f"run {schedule}",
            context=Context(),  # the schedule's own doing, and no part of what happens to be under way
            attributes={
                "tenure.schedule.name": schedule,
                "tenure.schedule.job": job,
                "tenure.schedule.run": run,
                "tenure.schedule.scheduled": datetime.fromtimestamp(scheduled_ms / 1000, UTC).isoformat(),
                "tenure.schedule.attempt": attempt,
                "tenure.epoch": epoch,
            },
        )
        return _followed(span)


class Terms:
    """The elections that one coordinator wins, and the terms that follow: told of where they happen."""

    def __init__(self, tracer: Tracer, coordinator: GlobalCoordinatorService, database: Database) -> None:
        self._tracer = tracer
        self._coordinator = coordinator
        self._database = database
        self._term: Span | None = None
        self._tap: Tap = coordinator.tap(self._heard, "OpenTelemetry")

    @property
    def is_over(self) -> bool:
        return self._tap.is_closed and self._term is None

    def close(self) -> None:
        self._tap.end()
        self._end("no longer followed", as_wanted=True)

    def _heard(self, event: NamedEvent) -> None:
        match event:
            case CoordinatorPromoted():
                self._begin(event)
            case CoordinatorDemoted():
                self._end(event.reason, as_wanted=event.reason in AS_WANTED)
            case EpochRenewed() | ContentionDetected() | CircuitBreakerOpen() | LoopStalled() | OverranLease():
                if self._term is not None:
                    self._term.add_event(event.name, timestamp=self._now())

    def _begin(self, event: CoordinatorPromoted) -> None:
        self._end("followed by another", as_wanted=True)
        now = int(event.timestamp * 1e9)
        took = self._coordinator.get_metrics().election_duration
        attributes: dict[str, str | int] = {
            "tenure.namespace": self._coordinator.namespace,
            "tenure.worker": event.worker_id,
            "tenure.epoch": event.epoch,
        }
        root = Context()
        election = self._tracer.start_span(
            "tenure.election", context=root, attributes=attributes, start_time=now - int(took * 1e9)
        )
        election.end(now)
        links = [Link(election.get_span_context())]
        self._term = self._tracer.start_span(
            "tenure.term", context=root, attributes=attributes, links=links, start_time=now
        )

    def _end(self, reason: str, *, as_wanted: bool) -> None:
        term, self._term = self._term, None
        if term is None:
            return
        term.set_attribute("tenure.term.ended", reason[:MAX_TEXT])
        if not as_wanted:
            term.set_status(Status(StatusCode.ERROR, reason[:MAX_TEXT]))
        term.end(self._now())

    def _now(self) -> int:
        return self._database.clock.read().wall_ns


class Followed:
    def __init__(self, span: Span) -> None:
        self._span = span

    def failed(self, error: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, redact(error)[:MAX_TEXT]))


@contextmanager
def _followed(span: Span) -> Iterator[Followed]:
    with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield Followed(span)
        except BaseException as error:
            _failed(span, error)
            raise


@contextmanager
def _carried(span: Span) -> Iterator[Mapping[str, str]]:
    with _followed(span):
        carrier: dict[str, str] = {}
        _propagator.inject(carrier)
        yield carrier


def _sent_by(message: Delivered) -> Context:
    return _propagator.extract(message.headers, context=Context())


def _messaging(queue: str, operation: str) -> dict[str, str | int]:
    return {
        "messaging.system": "tenure",
        "messaging.destination.name": queue,
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
    }


def _failed(span: Span, error: BaseException) -> None:
    """As `Span.record_exception` would, but without secrets."""
    kind = type(error).__name__
    if isinstance(error, asyncio.CancelledError):
        span.set_status(Status(StatusCode.ERROR, "cancelled"))
        return
    text = redact(_text(error))[:MAX_TEXT]
    trace = redact("".join(traceback.format_exception(error, limit=-20)))[-MAX_TRACEBACK:]
    span.set_attribute("error.type", kind)
    span.add_event("exception", {"exception.type": kind, "exception.message": text, "exception.stacktrace": trace})
    span.set_status(Status(StatusCode.ERROR, f"{kind}: {text}"))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception is other people's code as well
        return "(its text cannot be had)"
