"""What a handler is given, and what it may ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tenure.clock import SYSTEM_CLOCK
from tenure.errors import TenureError


class Reject(TenureError):
    """Raised by a handler: this message need not be tried again. It becomes a dead letter, with this as its error."""


class Retry(TenureError):
    """Raised by a handler: try this message again, as after any error."""


class Keeper(Protocol):
    """What keeps a message for its handler."""

    @property
    def token(self) -> int: ...

    def remaining(self) -> float: ...

    def extend(self) -> Awaitable[None]: ...


class Message:
    """One delivery of one message.

    `token` only rises from one delivery of a message to the next: give it along with what the handler writes elsewhere,
    so that a handler that was paused for long can be told from the one that took over.
    """

    __slots__ = ("_keeper", "attempt", "body", "enqueued_ms", "headers", "id", "index", "ordering_key", "ref_segment")

    def __init__(
        self,
        id: str,
        body: Any,
        attempt: int,
        headers: dict[str, str],
        ordering_key: str | None,
        enqueued_ms: int,
        keeper: Keeper,
        ref_segment: str,
        index: int,
    ) -> None:
        self.id = id
        self.body = body
        self.attempt = attempt
        self.headers = headers
        self.ordering_key = ordering_key
        self.enqueued_ms = enqueued_ms
        self._keeper = keeper
        self.ref_segment = ref_segment
        self.index = index

    def __repr__(self) -> str:
        return f"<Message {self.id}, attempt {self.attempt}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process of this machine (`blocking="process"`), without what keeps it here."""
        known = (self.id, self.body, self.attempt, self.headers, self.ordering_key, self.enqueued_ms)
        return _elsewhere, (*known, self.token, self.remaining(), self.ref_segment, self.index)

    @property
    def token(self) -> int:
        return self._keeper.token

    def remaining(self) -> float:
        """Seconds for which nobody else is given this message. What is finished later may be done twice."""
        return self._keeper.remaining()

    async def extend(self) -> None:
        """Ask for another visibility timeout, and wait until the leader has granted it."""
        await self._keeper.extend()


class _Elsewhere:
    """What keeps a message in another process than its worker's: it knows how much time there was, and gets no more."""

    def __init__(self, token: int, remaining: float) -> None:
        self.token = token
        self._remaining = remaining
        self._since = SYSTEM_CLOCK.read()

    def remaining(self) -> float:
        return max(0.0, self._remaining - SYSTEM_CLOCK.read().leader_elapsed(self._since))

    async def extend(self) -> None:
        raise TenureError("a handler in another process cannot extend its message: use auto_extend=True")


def _elsewhere(
    id: str,
    body: Any,
    attempt: int,
    headers: dict[str, str],
    key: str | None,
    at_ms: int,
    token: int,
    remaining: float,
    segment: str,
    index: int,
) -> Message:
    return Message(id, body, attempt, headers, key, at_ms, _Elsewhere(token, remaining), segment, index)


Handler = Callable[[Message], Any]
BatchHandler = Callable[[list[Message]], Any]
Loop = asyncio.AbstractEventLoop
