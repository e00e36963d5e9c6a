"""Server-sent events: each section when it has changed, and to each page at its own pace.

Nothing is queued. A page that reads slowly is sent the newest of each section when it has read the last, and one that
does not read at all is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.types import Receive, Scope, Send

from tenure.clock import Clock, Reading
from tenure.dashboard.collector import Collector
from tenure.dashboard.sections import NAMES

KEEP_ALIVE_SECONDS = 15.0
SEND_WITHIN = 30.0
_RETRY_MS = 2000


class EventStream:
    """One page's."""

    def __init__(
        self, collector: Collector, clock: Clock, closing: asyncio.Event, may_go_on: Callable[[], bool]
    ) -> None:
        self._collector = collector
        self._clock = clock
        self._closing = closing
        self._may_go_on = may_go_on
        self._sent: dict[str, tuple[int, Reading]] = {}
        """By section: the version that was sent last, and when."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_gone(receive))
        closing = asyncio.ensure_future(self._closing.wait())
        self._collector.joined()
        try:
            async with asyncio.timeout(SEND_WITHIN):
                await send(
                    {
                        "type": "http.response.start",
                        "status": 200,
                        "headers": [
                            (b"content-type", b"text/event-stream; charset=utf-8"),
                            (b"cache-control", b"no-store"),
                            (b"x-accel-buffering", b"no"),
                        ],
                    }
                )
            if scope.get("method") == "HEAD":
                await _send(send, b"", more=False)  # it is sent nothing else, and would be counted until it leaves
            else:
                await self._stream(send, gone, closing)
        except (TimeoutError, OSError):
            pass  # it does not read, or has gone
        finally:
            self._collector.left()
            for each in (gone, closing):
                each.cancel()

    async def _stream(self, send: Send, gone: asyncio.Future[Any], closing: asyncio.Future[Any]) -> None:
        await _send(send, b"retry: %d\n\n" % _RETRY_MS)
        spoke = self._clock.read()
        while not gone.done() and not closing.done() and self._may_go_on():
            changed = self._collector.board.changed  # before the look: what changes meanwhile is not missed
            body, wait = self._due()
            now = self._clock.read()
            if not body and now.leader_elapsed(spoke) >= KEEP_ALIVE_SECONDS:
                body = b": still here\n\n"
            if body:
                await _send(send, body)
                spoke = self._clock.read()
                continue
            left = KEEP_ALIVE_SECONDS - now.leader_elapsed(spoke)
            await self._wait(changed, min(wait, left) if wait is not None else left, gone, closing)
        if not gone.done():
            await _send(send, b"", more=False)

    def _due(self) -> tuple[bytes, float | None]:
        """What is to be sent now; or after how many seconds something is, if it is known."""
        board, now = self._collector.board, self._clock.read()
        parts: list[bytes] = []
        wait: float | None = None
        for name in NAMES:
            version = board.version(name)
            sent, when = self._sent.get(name, (0, None))
            if version == sent:
                continue
            left = 0.0 if when is None else board.seconds_between(name) - now.leader_elapsed(when)
            if left > 0:
                wait = left if wait is None else min(wait, left)
                continue
            parts.append(b"event: %s\ndata: %s\n\n" % (name.encode(), board.body(name)))
            self._sent[name] = (version, now)
        return b"".join(parts), wait

    async def _wait(
        self, changed: asyncio.Event, seconds: float, gone: asyncio.Future[Any], closing: asyncio.Future[Any]
    ) -> None:
        told = asyncio.ensure_future(changed.wait())
        slept = asyncio.ensure_future(self._clock.sleep(max(0.0, seconds)))
        try:
            await asyncio.wait((told, slept, gone, closing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            slept.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Send, body: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(SEND_WITHIN):
        await send({"type": "http.response.body", "body": body, "more_body": more})
