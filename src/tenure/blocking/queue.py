"""A queue, for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, TypeVar, overload

from tenure.blocking.coordinator import without_loop
from tenure.blocking.portal import Portal
from tenure.coordinator.events import Handler, Subscription
from tenure.coordinator.given import check_instance
from tenure.plugins.queue import Blocking, DeadLetter, PeekedMessage, QueueSettings, QueueStats, S3QueuePlugin

H = TypeVar("H", bound=Callable[..., Any])

PIECE = 20_000
"""Bodies of one `enqueue_many` that are drawn from an iterator at a time."""


class Queue:
    """The queue of an `S3QueuePlugin`, for threads. Made by `Database.use_plugin()`; see there for what it promises.

    Any thread may call it, also a handler. Calls of several threads that come together share one request, as those of
    tasks do. A call that Ctrl-C interrupts may have happened or not, as one that raised `WriteUnknown`.
    """

    def __init__(self, portal: Portal, plugin: S3QueuePlugin) -> None:
        self._portal = portal
        self._plugin = plugin

    def __repr__(self) -> str:
        return f"<blocking Queue {self.name!r}>"

    @property
    def name(self) -> str:
        return self._plugin.name

    @property
    def settings(self) -> QueueSettings:
        return self._plugin.settings

    @property
    def is_leading(self) -> bool:
        """Does this process decide on this queue, now, and has it caught up?"""
        return self._plugin.is_leading

    # Enqueueing

    def enqueue(
        self,
        body: Any,
        *,
        delay: float | timedelta = 0.0,
        priority: int = 0,
        dedup_key: str | None = None,
        ordering_key: str | None = None,
        max_attempts: int | None = None,
        visibility_timeout: float | timedelta | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Add a message, and return its id once it is durable.

        Raises `WriteUnknown` if the store does not say whether it was written: with a `dedup_key` it can be enqueued
        again without harm.
        """
        return self._portal.call(
            lambda: self._plugin.enqueue(
                body,
                delay=delay,
                priority=priority,
                dedup_key=dedup_key,
                ordering_key=ordering_key,
                max_attempts=max_attempts,
                visibility_timeout=visibility_timeout,
                headers=headers,
            )
        )

    def enqueue_many(
        self,
        bodies: Iterable[Any],
        *,
        delay: float | timedelta = 0.0,
        priority: int = 0,
        ordering_key: str | None = None,
        max_attempts: int | None = None,
        visibility_timeout: float | timedelta | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Add many messages; returns their ids, in order, once all are durable. An `Outgoing` has its own options.

        If it raises, some of them may have been added. An iterator runs here, on the thread that calls.
        """
        submit = partial(
            self._plugin.enqueue_many,
            delay=delay,
            priority=priority,
            ordering_key=ordering_key,
            max_attempts=max_attempts,
            visibility_timeout=visibility_timeout,
            headers=headers,
        )
        check_instance("bodies", bodies, Iterable)
        if isinstance(bodies, (list, tuple)):
            return self._portal.call(partial(submit, bodies))
        # On the loop a generator that waits would hold up everything else, and rows of a database are its thread's.
        rest = iter(bodies)
        ids: list[str] = []
        while True:
            piece = list(islice(rest, PIECE))
            if piece or not ids:
                ids += self._portal.call(partial(submit, piece))
            if len(piece) < PIECE:
                return ids

    # Handling

    @overload
    def handler(
        self,
        function: H,
        *,
        concurrency: int = 10,
        prefetch: int | None = None,
        auto_extend: bool = False,
        batch: int | None = None,
        blocking: Blocking | str = Blocking.THREAD,
    ) -> H: ...
    @overload
    def handler(
        self,
        function: None = None,
        *,
        concurrency: int = 10,
        prefetch: int | None = None,
        auto_extend: bool = False,
        batch: int | None = None,
        blocking: Blocking | str = Blocking.THREAD,
    ) -> Callable[[H], H]: ...
    def handler(self, function: H | None = None, **options: Any) -> H | Callable[[H], H]:
        """Have messages handled by a function: `@queue.handler` or `@queue.handler(concurrency=50)`.

        It returns: the message is done. It raises: it is tried again later, and is a dead letter after `max_attempts`
        (at once for `Reject`). A plain function runs in a thread, where it may use the blocking API; a coroutine, or
        `blocking="inline"`, on tenure's own, where it may not.
        """
        self._portal.check()
        register: Callable[[H], H] = self._plugin.handler(**options)  # refuses options that cannot be

        def hand_over(chosen: H) -> H:
            async def begin() -> H:
                return register(chosen)

            return self._portal.call(begin)

        return hand_over if function is None else hand_over(function)

    def on_message(self, function: H, **options: Any) -> H:
        """The same as `handler`, as a call."""
        registered: H = self.handler(**options)(function)
        return registered

    # People

    def pause(self) -> None:
        """No more tickets are published until `resume()`; what workers hold is finished."""
        self._portal.call(self._plugin.pause)

    def resume(self) -> None:
        self._portal.call(self._plugin.resume)

    def purge(self) -> None:
        """Drop everything that waits. What workers hold, and the dead letters, stay."""
        self._portal.call(self._plugin.purge)

    def redrive(self, *refs: str) -> None:
        """Put dead letters back into the queue: those named (`DeadLetter.ref`), or all."""
        self._portal.call(lambda: self._plugin.redrive(*refs))

    def purge_dead(self, *refs: str) -> None:
        """Drop dead letters for good: those named, or all."""
        self._portal.call(lambda: self._plugin.purge_dead(*refs))

    def stats(self) -> QueueStats:
        """A look at the whole queue, from any process."""
        return self._portal.call(self._plugin.stats)

    def peek(self, limit: int = 10) -> list[PeekedMessage]:
        """The first messages that wait, without taking them."""
        return self._portal.call(lambda: self._plugin.peek(limit))

    def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        return self._portal.call(lambda: self._plugin.dead_letters(limit))

    def result(self, message_id: str, *, timeout: float = 30.0) -> Any:
        """What the handler returned for a message; waits for it. Needs `result_retention`."""
        return self._portal.call(lambda: self._plugin.result(message_id, timeout=timeout))

    # Being told

    def on(self, name: str, handler: Handler) -> Subscription:
        """Call `handler(event)` for every event called `name`, as `Coordinator.on` does, on a thread of tenure's."""
        self._portal.check()
        return without_loop(lambda: self._plugin.on(name, handler))
