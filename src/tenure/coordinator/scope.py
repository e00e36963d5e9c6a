"""Leadership as a scope: its body runs only while this process leads, and is cancelled when that cannot be trusted."""

from __future__ import annotations

import asyncio
import enum
from types import TracebackType
from typing import Any, Protocol

from tenure.coordinator.hooks import Subscriber
from tenure.coordinator.lead import Lead
from tenure.errors import LeadershipLost


class Host(Protocol):
    """What a scope needs of the coordinator."""

    def subscribe(self, plugin: Subscriber) -> None: ...

    def unsubscribe(self, plugin: Subscriber) -> None: ...

    async def leave(self, reason: str) -> None: ...

    async def must_go_on(self) -> None:
        """Raises when this coordinator will never lead again."""
        ...


class OnLoss(enum.Enum):
    RAISE = "raise LeadershipLost"
    SUPPRESS = "end the body, and go on after it"


class LeadershipScope:
    """`async with coordinator.leadership() as lead:`"""

    def __init__(self, host: Host, on_loss: OnLoss = OnLoss.RAISE) -> None:
        self._host = host
        self._on_loss = on_loss
        self._lead: Lead | None = None
        self._arrival: asyncio.Future[Lead] | None = None
        self._closed = asyncio.Event()
        self._body: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._lost = False
        self._cancelled = False

    async def __aenter__(self) -> Lead:
        lead = await self.acquire()
        self.enter()
        return lead

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:  # by `bool` a type checker believes that what the body raises is suppressed
        suppressed = self.leave_body(kind)
        await self.close()
        if suppressed and self._on_loss is OnLoss.RAISE:
            lead = self._lead
            assert lead is not None
            raise LeadershipLost(
                f"epoch {lead.epoch} of {lead.namespace!r} ended ({lead.ended}), and with it this scope"
            ) from error
        return suppressed

    async def acquire(self) -> Lead:
        """Wait until this process leads."""
        loop = asyncio.get_running_loop()
        self._arrival = loop.create_future()
        self._host.subscribe(self)
        try:
            while True:
                ending = loop.create_task(self._host.must_go_on())
                try:
                    waiting: list[asyncio.Future[Any]] = [self._arrival, ending]
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    ending.cancel()
                if ending.done() and not ending.cancelled():
                    ending.result()
                if not self._arrival.done():
                    continue
                lead = self._arrival.result()
                if lead.is_current():
                    self._lead = lead
                    return lead
                self._arrival = loop.create_future()
        except BaseException:
            await self.close()
            raise

    def enter(self) -> None:
        """From here on the current task is cancelled when the term ends."""
        task = asyncio.current_task()
        assert task is not None
        self._body = task
        self._cancelling = task.cancelling()
        if self._lost:
            # Not at once: a task that cancels itself and then does not wait is left with a cancellation too many.
            asyncio.get_running_loop().call_soon(self._cancel_body)

    def leave_body(self, kind: type[BaseException] | None) -> bool:
        """The body has ended. True: it was cancelled by us, and by nobody else."""
        task, self._body = self._body, None
        if task is None or not self._cancelled:
            return False
        return task.uncancel() <= self._cancelling and kind is not None and issubclass(kind, asyncio.CancelledError)

    async def close(self) -> None:
        """Give leadership back, and stop listening."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._host.unsubscribe(self)
        if self._lead is not None and not self._lost:
            await self._host.leave("scope-ended")

    # As a subscriber

    def on_become_coordinator(self, lead: Lead) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(lead)

    async def on_stop_being_coordinator(self) -> None:
        if self._lead is None:
            return  # nobody has entered yet: the wait goes on
        self._lost = True
        if self._body is not None:
            self._cancel_body()
        await self._closed.wait()

    def _cancel_body(self) -> None:
        if not self._cancelled and self._body is not None:
            self._cancelled = True
            self._body.cancel()
