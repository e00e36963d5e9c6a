"""A store whose requests are spans. Of a key, only its first folders are told."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, get_current_span

from tenure.errors import NotFound
from tenure.store import Entry, NotModified, Outcome, Store, Stored, StoreInfo, Unknown, Version
from tenure.store.outcome import name_of

FOLDERS = 2


class StoreSpans(enum.Enum):
    ALL = "all"
    INSIDE = "inside"
    """Only those that are made for something which has a span itself: not heartbeats, and not looking for work."""
    NONE = "none"


def folder_of(key: str) -> str:
    """The first folders of a key: what kind of thing it is about, and not which one."""
    return "/".join(key.split("/")[:-1][:FOLDERS])


class TracedStore:
    """`may_trace`: asked for each request."""

    def __init__(self, inner: Store, tracer: Tracer, may_trace: Callable[[], bool]) -> None:
        self._inner = inner
        self._tracer = tracer
        self._may_trace = may_trace

    @property
    def info(self) -> StoreInfo:
        return self._inner.info

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        if not self._may_trace():
            return await self._inner.get(key, unless=unless)
        with self._request("get", key) as span:
            found = await self._inner.get(key, unless=unless)
            if isinstance(found, Stored):
                _ended(span, "ok", received=len(found.body))
            else:
                _ended(span, "not-modified")
            return found

    async def put(self, key: str, body: bytes) -> Version:
        if not self._may_trace():
            return await self._inner.put(key, body)
        with self._request("put", key) as span:
            version = await self._inner.put(key, body)
            _ended(span, "ok", sent=len(body))
            return version

    async def create(self, key: str, body: bytes) -> Outcome:
        if not self._may_trace():
            return await self._inner.create(key, body)
        with self._request("create", key) as span:
            return _conditional(span, await self._inner.create(key, body), body)

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        if not self._may_trace():
            return await self._inner.replace(key, body, expected)
        with self._request("replace", key) as span:
            return _conditional(span, await self._inner.replace(key, body, expected), body)

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        if not self._may_trace():
            async for entry in self._inner.list(prefix, after=after):
                yield entry
            return
        keys = 0
        with self._request("list", prefix) as span:
            async for entry in self._inner.list(prefix, after=after):
                keys += 1
                yield entry
            _ended(span, "ok")
            span.set_attribute("tenure.store.keys", keys)

    async def delete(self, *keys: str) -> None:
        if not keys or not self._may_trace():
            await self._inner.delete(*keys)
            return
        with self._request("delete", keys[0]) as span:
            span.set_attribute("tenure.store.keys", len(keys))
            await self._inner.delete(*keys)
            _ended(span, "ok")

    async def discard(self, key: str, expected: Version) -> Outcome:
        if not self._may_trace():
            return await self._inner.discard(key, expected)
        with self._request("discard", key) as span:
            return _conditional(span, await self._inner.discard(key, expected), b"")

    async def aclose(self) -> None:
        await self._inner.aclose()

    @contextmanager
    def _request(self, verb: str, key: str) -> Iterator[Span]:
        """A child of the span that is current where the request is made. It is not made current itself: nothing that is
        part of a request has spans, and a listing is left and entered again."""
        span = self._tracer.start_span(
            f"tenure.store {verb}",
            kind=SpanKind.CLIENT,
            attributes={
                "tenure.store.verb": verb,
                "tenure.store.provider": self._inner.info.provider,
                "tenure.store.folder": folder_of(key),
            },
        )
        try:
            yield span
        except NotFound:
            _ended(span, "missing")
            raise
        except Exception as error:
            _ended(span, "error", error)
            raise
        except BaseException:
            _ended(span, "cut-short")  # by whoever asked, or by a time limit: it may still happen
            raise
        finally:
            span.end()


def is_inside() -> bool:
    """Is this done for something that has a span?"""
    return get_current_span().get_span_context().is_valid


def _conditional(span: Span, outcome: Outcome, body: bytes) -> Outcome:
    error = outcome.error if isinstance(outcome, Unknown) else None
    _ended(span, name_of(outcome), error, sent=len(body))
    return outcome


def _ended(span: Span, outcome: str, error: Exception | None = None, sent: int = 0, received: int = 0) -> None:
    span.set_attribute("tenure.store.outcome", outcome)
    if sent:
        span.set_attribute("tenure.store.sent_bytes", sent)
    if received:
        span.set_attribute("tenure.store.received_bytes", received)
    if error is not None:
        # Its text may hold the whole key, and whatever the server said.
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(Status(StatusCode.ERROR, type(error).__name__))
