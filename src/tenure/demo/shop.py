"""What every process of the demo does besides standing for election: it keeps a shop together with the others.

Each takes orders into a queue, and handles what the queue brings: the price of an order is added to a counter, the
till. A job is due every second, and is done by whoever leads. Everything is said, before and after (`lines`), so that
it can be compared with the bucket at the end.

An order that is brought twice, since its first handler was killed, is in the till once: the counter is given the key of
the order as `op_id`. That is how work is done once on a queue that delivers at least once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from tenure.clock import Clock
from tenure.coordinator.config import CoordinatorConfig
from tenure.database import Database
from tenure.demo.lines import Fire, Handling, Order, Outcome, Say, Step, Till
from tenure.errors import TenureError
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.queue import Message, S3QueuePlugin
from tenure.plugins.scheduler import Run, SchedulerPlugin, every

ORDERS = "orders"
"""The queue."""
TICK = "tick"
"""The job, of a schedule that has the name of its kind."""
PERIOD_SECONDS = 1
SHOP, TILL, TAKINGS = "shop", "till", "takings"
"""A resource, a record of it, and the field that is counted."""
MAX_ORDERS = 100_000
"""By one process. It must end some day, and by then everybody has seen enough."""
MOST_RECORDS = 10_000
_HANDLING_SECONDS = 0.15
_HIGHEST_PRICE = 9
_ATTEMPTS = 50
"""More than a busy machine may need: an order that is late is brought again, and must not be given up."""


class Shop:
    """This process's part of it."""

    def __init__(
        self,
        namespace: str,
        config: CoordinatorConfig,
        *,
        order_seconds: float,
        visibility_seconds: float,
        queue_seconds: float,
        look_seconds: float,
        clock: Clock,
        say: Say,
    ) -> None:
        self._order_seconds = order_seconds
        self._look_seconds = look_seconds
        self._clock = clock
        self._say = say
        self._closed = asyncio.Event()
        self._in_hand: dict[tuple[str, int], Handling] = {}
        """By where the queue keeps it."""
        self.orders = S3QueuePlugin(
            ORDERS,
            namespace=namespace,
            config=config,
            visibility_timeout=visibility_seconds,
            margin=visibility_seconds / 2,
            max_attempts=_ATTEMPTS,
            # It need not be the fastest: others have work on this machine too, and a bucket's requests cost money.
            tick_interval=queue_seconds,
            load_interval=2 * queue_seconds,
            poll_interval=queue_seconds,
        )
        self.orders.acked = self._reported
        self.orders.handler(self._handle, concurrency=4, prefetch=4)
        self.schedule = SchedulerPlugin(namespace=namespace, config=config)
        # `abandon`: what a leader had begun when it was killed is not begun again, so that no second is done twice.
        # `allow`: the seconds for which nobody led are all made up for, and need not wait for each other.
        self.schedule.job(
            every(PERIOD_SECONDS),
            id=TICK,
            overlap="allow",
            max_running=100,
            interrupted="abandon",
            history=MOST_RECORDS,
        )(self._tick)
        self.counters = EventualConsistencyPlugin(
            SHOP, [TAKINGS], namespace=namespace, config=config, interval=self._look_seconds
        )

    async def open(self, database: Database) -> None:
        await database.use_plugin(self.counters)  # first, for a handler uses it
        await database.use_plugin(self.schedule)
        await database.use_plugin(self.orders)

    def close(self) -> None:
        """Take no more orders. What has been taken is handled as before."""
        self._closed.set()

    async def sell(self) -> None:
        for serial in range(1, MAX_ORDERS + 1):
            if self._closed.is_set():
                return
            await self._order(f"{os.getpid()}-{serial}", 1 + serial * 7 % _HIGHEST_PRICE)
            await self._pause()

    async def watch_the_till(self, is_leader: Callable[[], bool]) -> None:
        """The leader says what is in the record. It is only looked at, so that it does not matter if that fails."""
        while True:
            if is_leader():
                try:
                    takings = await self.counters.get(TILL, TAKINGS)
                    assert isinstance(takings, int)
                    self._say(Till(self._now_ns(), os.getpid(), takings))
                except TenureError:
                    pass
            await self._clock.sleep(self._look_seconds)

    async def _order(self, key: str, price: int) -> None:
        self._say(Order(self._now_ns(), os.getpid(), key, price, Outcome.BEGUN))
        outcome = Outcome.DONE
        try:
            await self.orders.enqueue({"key": key, "price": price})
        except TenureError:
            outcome = Outcome.UNKNOWN
        self._say(Order(self._now_ns(), os.getpid(), key, price, outcome))

    async def _handle(self, message: Message) -> None:
        begun = Handling(
            self._now_ns(), os.getpid(), message.body["key"], message.body["price"], message.token, Step.BEGUN
        )
        self._say(begun)
        self._in_hand[message.ref_segment, message.index] = begun
        await self._clock.sleep(_HANDLING_SECONDS)
        try:
            await self.counters.add(TILL, TAKINGS, begun.price, op_id=begun.key)
        except TenureError:
            self._tell(begun, Step.FAILED)
            raise
        self._tell(begun, Step.COUNTED)

    def _reported(self, hand: Any, outcome: Any) -> None:
        """What was reported as done, of one ticket: all of it, or the pieces that are named."""
        for piece in hand.runs if outcome.all_done else outcome.done:
            for index in range(piece.low, piece.high):
                begun = self._in_hand.get((piece.segment, index))
                if begun is not None and begun.token == hand.token:  # else it was brought here again since
                    del self._in_hand[piece.segment, index]
                    self._tell(begun, Step.REPORTED)

    async def _tick(self, run: Run) -> None:
        self._say(Fire(self._now_ns(), os.getpid(), round(run.scheduled.timestamp() * 1000), run.token))

    def _tell(self, begun: Handling, step: Step) -> None:
        self._say(Handling(self._now_ns(), begun.process, begun.key, begun.price, begun.token, step))

    async def _pause(self) -> None:
        """Until the next order, or until no more are taken."""
        sleeping = asyncio.ensure_future(self._clock.sleep(self._order_seconds))
        closing = asyncio.ensure_future(self._closed.wait())
        await asyncio.wait({sleeping, closing}, return_when=asyncio.FIRST_COMPLETED)
        sleeping.cancel()
        closing.cancel()

    def _now_ns(self) -> int:
        return self._clock.read().boottime_ns
