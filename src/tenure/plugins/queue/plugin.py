"""A queue on a bucket.

    queue = await db.use_plugin(S3QueuePlugin(resource="emails"))

    @queue.handler(concurrency=50)
    async def send(message: Message) -> None:
        await smtp.send(message.body, token=message.token)

    await queue.enqueue({"to": "ada@example.org"})

Guarantee: a message whose `enqueue` returned is handled at least once, or is a dead letter with its history, whatever
crashes; once its handling was reported in time it is not delivered again. Of messages with the same ordering key one
has a valid ticket at a time, in order. A message with a deduplication key that was seen within the window is dropped.

Not guaranteed: that a message is handled only once. Its worker may have died, or been paused past its deadline, after
the work and before the report. `message.token` tells deliveries apart: it only rises.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar, cast, overload

import msgspec

from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import CoordinatorConfig, seconds
from tenure.coordinator.layout import check_name
from tenure.coordinator.plugin import CoordinatorPlugin
from tenure.database.time import StoreTime
from tenure.errors import ConfigError, NotFound, StoreError, TenureError
from tenure.ledger import LedgerConfig, LedgerState, LogEntry, Producer, ledger_store
from tenure.ledger.layout import MAX_NAME_CHARACTERS
from tenure.ledger.log import log_end, read_entry
from tenure.plugins.queue.agreed import agreed_settings
from tenure.plugins.queue.events import QueueNotLed
from tenure.plugins.queue.leading import RESULTS, Leading
from tenure.plugins.queue.looking import (
    DeadLetter,
    PeekedMessage,
    QueueStats,
    dead_letters,
    peek,
    read_queue,
    stats_of,
)
from tenure.plugins.queue.message import BatchHandler, Handler, Message
from tenure.plugins.queue.meter import IdleMeter
from tenure.plugins.queue.outgoing import Outgoing, compose, encode_lots, encode_messages, options_from
from tenure.plugins.queue.records import parse_ref
from tenure.plugins.queue.settings import MAX_CONCURRENCY, Blocking, QueueSettings, settings_from
from tenure.plugins.queue.wire import MAX_REFS, Command
from tenure.plugins.queue.worker import QueueWorker
from tenure.store import Store, Stored

_log = logging.getLogger("tenure.queue")

H = TypeVar("H", bound=Callable[..., Any])
CHUNK = 2000
"""Messages of one `enqueue_many` that are encoded at a time."""
MAX_PROCESSES = 61
LAST_TICK = 2.0
"""Seconds that a leader which stops takes for what it said last as a worker."""
SHUTDOWN_TIMEOUT = 20.0


class S3QueuePlugin(CoordinatorPlugin):
    """`resource` names the queue. Whoever only enqueues gives `producer_only=True`: it takes no part in anything else.

    All other options are settings of the queue (`QueueSettings`) or of the coordinator. What the queue was created with
    (`tenure queue create`) holds for all, and contradicting it is a `ConfigConflict`; of the rest the leader's decide.
    """

    slug = "s3-queue"

    def __init__(
        self,
        resource: str,
        *,
        producer_only: bool = False,
        schema: type[Any] | None = None,
        shutdown_timeout: float | timedelta = SHUTDOWN_TIMEOUT,
        namespace: str = "default",
        config: CoordinatorConfig | None = None,
        ledger: LedgerConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(namespace=namespace, config=config, skip_cold_start=True)
        self.resource = check_name("resource", resource, MAX_NAME_CHARACTERS)
        self._given = settings
        self.settings: QueueSettings = settings_from(settings)
        self._producer_only = producer_only
        self._schema = schema
        self._shutdown_timeout = seconds("shutdown_timeout", shutdown_timeout, zero=True)
        self._ledger_given = ledger
        self._ledger = ledger if ledger is not None else LedgerConfig()
        self._store: Store | None = None
        self._producer: Producer | None = None
        self._time: StoreTime | None = None
        self._handling: tuple[Handler | None, BatchHandler | None, dict[str, Any]] | None = None
        self._worker: QueueWorker | None = None
        self._leading: Leading | None = None
        self._starting_worker: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._bell = asyncio.Event()
        self._alive: frozenset[str] | None = None
        self._meter = IdleMeter(SYSTEM_CLOCK)
        self.acked: Callable[[Any, Any], None] | None = None
        """Told of each report that became durable in time; for tests."""

    @property
    def default_name(self) -> str:
        """What this instance is called if nothing else is said: the name of its queue."""
        return self.resource

    # Enqueueing

    async def enqueue(
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
        """Add a message, and return its id once it is durable. Calls that come together share one request.

        Raises `WriteUnknown` if the store does not say whether it was written: with a `dedup_key` it can be enqueued
        again without harm.
        """
        options = options_from(
            delay=delay,
            priority=priority,
            dedup_key=dedup_key,
            ordering_key=ordering_key,
            max_attempts=max_attempts,
            visibility_timeout=visibility_timeout,
            headers=headers,
        )
        messages, size = encode_messages((body,), options, self.settings)
        receipt = await self._sending().submit(messages, size, ordered=messages.ordered)
        return f"{receipt.uid}-{receipt.number}-{messages.first}"

    async def enqueue_many(
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

        If it raises, some of them may have been added.
        """
        shared = options_from(
            delay=delay,
            priority=priority,
            ordering_key=ordering_key,
            max_attempts=max_attempts,
            visibility_timeout=visibility_timeout,
            headers=headers,
        )
        producer = self._sending()
        sent = []
        chunk: list[Any] = []
        options = shared

        async def flush() -> None:
            nonlocal chunk
            if chunk:
                for messages, weight in encode_lots(chunk, options, self.settings):
                    while producer.is_full:
                        await producer.room()
                    sent.append((messages, producer.submit(messages, weight, ordered=messages.ordered)))
                chunk = []

        for number, body in enumerate(bodies, 1):
            wanted, content = shared, body
            if isinstance(body, Outgoing):
                content = body.body
                wanted = options_from(
                    delay=body.delay,
                    priority=body.priority,
                    dedup_key=body.dedup_key,
                    ordering_key=body.ordering_key,
                    max_attempts=body.max_attempts,
                    visibility_timeout=body.visibility_timeout,
                    headers=body.headers,
                )
            if chunk and (wanted is not options and (wanted != options or wanted.dedup)):
                await flush()
            options = wanted
            chunk.append(content)
            if len(chunk) >= CHUNK:
                await flush()
            if number % CHUNK == 0:
                await self._attached().clock.sleep(0)  # a very long list does not keep the loop to itself
        await flush()
        results = await asyncio.gather(*(future for _, future in sent), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [
            f"{receipt.uid}-{receipt.number}-{messages.first + index}"
            for (messages, _), receipt in zip(sent, cast("list[Any]", results), strict=True)
            for index in range(len(messages.bodies))
        ]

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

    def handler(
        self,
        function: H | None = None,
        *,
        concurrency: int = 10,
        prefetch: int | None = None,
        auto_extend: bool = False,
        batch: int | None = None,
        blocking: Blocking | str = Blocking.THREAD,
    ) -> H | Callable[[H], H]:
        """Have messages handled by a function: `@queue.handler` or `@queue.handler(concurrency=50)`.

        It returns: the message is done. It raises: it is tried again later, and is a dead letter after `max_attempts`
        (at once for `Reject`). A plain function runs in a thread, or as `blocking` says. With `batch=100` it is called
        with lists of up to so many messages, which succeed or fail together.
        """
        count = _count("concurrency", concurrency, 1, MAX_CONCURRENCY)
        if prefetch is not None:
            _count("prefetch", prefetch, 1, 100_000)
        if batch is not None:
            _count("batch", batch, 1, 10_000)
        try:
            where = Blocking(blocking)
        except ValueError:
            raise ConfigError(f"blocking is {blocking!r}: give 'thread', 'process' or 'inline'") from None

        def register(chosen: H) -> H:
            if not callable(chosen):
                raise ConfigError(f"{chosen!r} is not a function: give one that takes a message")
            if self._handling is not None:
                raise ConfigError(f"{self!r} has a handler already: a queue has one in each process")
            if self._producer_only and self._store is not None:
                raise ConfigError(f"{self!r} was started with producer_only=True, and handles nothing")
            options = {
                "concurrency": count,
                "prefetch": prefetch,
                "auto_extend": auto_extend,
                "blocking": where,
                "batch_size": batch or 1,
            }
            self._handling = (None, chosen, options) if batch is not None else (chosen, None, options)
            if self._store is not None:
                self._start_soon()
            return chosen

        return register(function) if function is not None else register

    def on_message(self, function: H, **options: Any) -> H:
        """The same as `handler`, as a call."""
        registered: H = self.handler(**options)(function)
        return registered

    # People

    async def pause(self) -> None:
        """No more tickets are published until `resume()`; what workers hold is finished."""
        await self._command(Command("pause"))

    async def resume(self) -> None:
        await self._command(Command("resume"))

    async def purge(self) -> None:
        """Drop everything that waits. What workers hold, and the dead letters, stay."""
        await self._command(Command("purge"))

    async def redrive(self, *refs: str) -> None:
        """Put dead letters back into the queue: those named (`DeadLetter.ref`), or all."""
        await self._command(Command("redrive", _refs(refs)))

    async def purge_dead(self, *refs: str) -> None:
        """Drop dead letters for good: those named, or all."""
        await self._command(Command("purge-dead", _refs(refs)))

    async def stats(self) -> QueueStats:
        """A look at the whole queue, from any process."""
        state = await self._state()
        return await stats_of(self._opened(), state, await self._now_ms())

    async def peek(self, limit: int = 10) -> list[PeekedMessage]:
        """The first messages that wait, without taking them."""
        return await peek(self._opened(), await self._state(), _count("limit", limit, 1, 1000), await self._now_ms())

    async def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        return await dead_letters(self._opened(), await self._state(), _count("limit", limit, 1, 10_000))

    async def result(self, message_id: str, *, timeout: float = 30.0) -> Any:
        """What the handler returned for a message; waits for it. Needs `result_retention`."""
        if not self.settings.result_retention:
            raise ConfigError(
                "result_retention is 0, and this queue keeps no results: give it seconds, in every process or by "
                "`tenure queue create --set result_retention=1h`"
            )
        store, host = self._opened(), self._attached()
        began = host.clock.read()
        pause = 0.02
        while True:
            try:
                stored = await store.get(_result_key(message_id))
                assert isinstance(stored, Stored)
                return msgspec.json.decode(stored.body)
            except NotFound:
                if host.clock.read().leader_elapsed(began) >= timeout:
                    raise TimeoutError(f"there is no result of {message_id!r} after {timeout:g} s") from None
            await host.clock.sleep(pause)
            pause = min(1.0, pause * 1.5)

    @property
    def is_leading(self) -> bool:
        """Does this process decide on this queue, now, and has it caught up?"""
        return self._leading is not None and self._leading.machine is not None

    @property
    def idle_requests_per_hour(self) -> float:
        """What this process spends on looking for work that is not there; `idle_budget` bounds it."""
        return self._meter.per_hour()

    @property
    def worker(self) -> QueueWorker | None:
        return self._worker

    # Life

    async def start(self) -> None:
        host = cast(Any, self._attached())
        if self.name != self.resource:
            raise ConfigError(f"name is {self.name!r} and resource is {self.resource!r}: leave the name out")
        if self._producer_only and self._handling is not None:
            raise ConfigError(f"{self!r} has a handler, and producer_only=True: leave one of them out")
        store = ledger_store(host.store, self.slug, self.name)
        namespace = None if self._producer_only else self.namespace
        self.settings = await agreed_settings(store, self._given, queue=self.name, namespace=namespace)
        self._store = store
        self._time = StoreTime(host.store, clock=host.clock, draw_id=host.draw_id)
        self._bell = asyncio.Event()
        self._meter = IdleMeter(host.clock)
        self._producer = Producer(
            self._store,
            compose,
            config=self._ledger,
            clock=host.clock,
            draw_id=host.draw_id,
            on_durable=self._bell.set,
        )
        if not self._producer_only:
            await super().start()
            await self._fit_to_lease()
            self._watching = asyncio.get_running_loop().create_task(self._see_that_it_is_led())
        if self._handling is not None:
            await self._start_worker()

    def _keep_long_enough(self) -> None:
        """An entry must outlive whoever may still be about to write it: two leases, unless something else was said."""
        if self._ledger_given is None:
            delay = max(self._ledger.trim_delay, 2 * self.coordinator.config.lease_timeout)
            self._ledger = msgspec.structs.replace(self._ledger, trim_delay=delay)

    async def _fit_to_lease(self) -> None:
        self._keep_long_enough()
        lease, delay = self.coordinator.config.lease_timeout, self._ledger.trim_delay
        if delay < 2 * lease:
            await self.stop()
            raise ConfigError(
                f"trim_delay is {delay:g} s, and the lease {lease:g} s: the log must be kept for at least two leases; "
                f"give ledger=LedgerConfig(trim_delay={2 * lease:g}) in every process, or a shorter lease"
            )

    async def stop(self) -> None:
        beside = [task for task in (self._starting_worker, self._watching) if task is not None]
        for task in beside:
            task.cancel()
        if beside:
            await asyncio.wait(beside)
        self._starting_worker = self._watching = None
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop(self._shutdown_timeout)
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                async with asyncio.timeout(self._shutdown_timeout):
                    await producer.drain()
            except TimeoutError:
                _log.warning("%r was stopped before everything that it was given was written", self)
        leading = self._leading
        if leading is not None:
            await leading.settle(LAST_TICK)  # what this process said last is decided, if it can be done quickly
        await super().stop()
        if producer is not None:
            await producer.aclose()
        if worker is not None:
            worker.shut_down()
        self._store = None

    async def on_become_coordinator(self) -> None:
        lead, host = self.lead, cast(Any, self._attached())
        if lead is None or self._store is None or self._time is None:
            return
        self._keep_long_enough()  # it may lead before it has quite started
        membership = self.coordinator.config.membership
        leading = Leading(
            self._store,
            lead,
            self.settings,
            ledger=self._ledger,
            clock=host.clock,
            random=host.random,
            draw_id=host.draw_id,
            time=self._time,
            bell=self._bell,
            is_alive=self._is_member if membership else lambda name: None,
            emit=lambda event: self.emit(event.name, event),
            on_entry=self._wrote,
            on_idle=self._meter.looked,
        )
        self._leading = leading
        watching = asyncio.get_running_loop().create_task(self._watch_members()) if membership else None
        try:
            await leading.run()
        finally:
            self._leading = None
            if watching is not None:
                watching.cancel()

    # Inside

    def _wrote(self, entry: LogEntry) -> None:
        worker, host = self._worker, self._attached()
        if self._producer is not None:
            self._producer.learn(entry.seq, host.clock.read())
        if worker is not None:
            worker.take(entry)

    async def _watch_members(self) -> None:
        clock = self._attached().clock
        while True:
            try:
                self._alive = frozenset(await self.coordinator.get_active_workers())
            except Exception as error:  # without this nobody would be given anything for the wrong reason
                self._alive = None
                _log.debug("who is alive is not known now: %r", error)
            await clock.sleep(1.0)

    def _is_member(self, name: str) -> bool | None:
        return name in self._alive if self._alive else None

    async def _see_that_it_is_led(self) -> None:
        """The leader of a namespace may be a process that does not have this queue: then nothing happens to it."""
        clock, lease = self._attached().clock, self.coordinator.config.lease_timeout
        seen = 0
        while True:
            await clock.sleep(lease)
            leader, epoch = await self._leader()
            if leader is None or epoch <= seen or self._leading is not None:
                continue
            await clock.sleep(lease)  # it may be catching up
            try:
                end = await log_end(self._opened())
                entry = await read_entry(self._opened(), end) if end else None
            except TenureError:
                continue
            if (await self._leader())[1] != epoch:
                continue
            seen = epoch
            if entry is None or entry.epoch < epoch:
                _log.warning(
                    "%r leads namespace %r and does not work on the queue %r: nothing is handled. Have every process "
                    "of the namespace use this queue, or give it a namespace of its own",
                    leader,
                    self.namespace,
                    self.name,
                )
                self.emit(QueueNotLed.name, QueueNotLed(leader, epoch))

    async def _leader(self) -> tuple[str | None, int]:
        try:
            return await self.coordinator.get_leader(), self.coordinator.get_epoch()
        except TenureError:
            return None, 0

    def _start_soon(self) -> None:
        self._starting_worker = asyncio.get_running_loop().create_task(self._start_worker())
        self._starting_worker.add_done_callback(_complain)

    async def _start_worker(self) -> None:
        assert self._handling is not None
        host, store, producer = cast(Any, self._attached()), self._opened(), self._sending()
        handler, batch_handler, options = self._handling
        blocking, concurrency = options["blocking"], options["concurrency"]

        def new_executor() -> Executor:
            if blocking is Blocking.PROCESS:
                # Not by fork: this process has threads, whose locks a copy would keep for ever.
                return ProcessPoolExecutor(min(concurrency, MAX_PROCESSES), multiprocessing.get_context("spawn"))
            return ThreadPoolExecutor(concurrency, thread_name_prefix=f"queue-{self.name}")

        worker = QueueWorker(
            store,
            producer,
            name=self.worker_id,
            settings=self.settings,
            ledger=self._ledger,
            clock=host.clock,
            handler=handler,
            batch_handler=batch_handler,
            new_executor=new_executor if blocking is not Blocking.INLINE else None,
            is_member=not self._producer_only and self.coordinator.config.membership,
            decode=msgspec.json.Decoder(self._schema).decode if self._schema is not None else None,
            on_acked=self.acked,
            on_idle=self._meter.looked,
            on_result=self._keep_result if self.settings.result_retention else None,
            **options,
        )
        failures = 0
        while True:
            try:
                await worker.start()
                break
            except StoreError as error:
                failures += 1
                _log.warning("%r cannot read its log yet: %s", self, error)
                await host.clock.sleep(min(5.0, 0.2 * 2.0 ** min(failures, 5)))
        self._worker = worker

    async def _keep_result(self, message: Message, result: Any) -> None:
        try:
            body = msgspec.json.encode(result)
        except (TypeError, ValueError):
            body = msgspec.json.encode(repr(result)[:1000])
        await self._opened().put(_result_key(message.id), body)

    async def _command(self, command: Command) -> None:
        await self._sending().submit(msgspec.structs.replace(command, by=self._attached().worker_id), 300)

    async def _state(self) -> LedgerState:
        return await read_queue(self._opened())

    async def _now_ms(self) -> int:
        assert self._time is not None
        return int(await self._time.now() * 1000)

    def _sending(self) -> Producer:
        if self._producer is None:
            raise TenureError(f"{self!r} is not started: `await db.use_plugin(queue)` starts it")
        return self._producer

    def _opened(self) -> Store:
        if self._store is None:
            raise TenureError(f"{self!r} is not started: `await db.use_plugin(queue)` starts it")
        return self._store


def _result_key(message_id: str) -> str:
    return RESULTS + check_name("message_id", message_id, 150)


def _refs(refs: Sequence[str]) -> list[str]:
    for ref in refs:
        if not isinstance(ref, str) or parse_ref(ref)[1] < 0:
            raise ConfigError(f"{ref!r:.80} names no dead letter: give `DeadLetter.ref`, as `dead_letters()` tells it")
    if len(refs) > MAX_REFS:
        raise ConfigError(f"{len(refs):,} dead letters are named: give at most {MAX_REFS:,}, or none for all")
    return list(refs)


def _count(field: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{field} is {value!r}: give a whole number from {low:,} to {high:,}")
    return value


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("the worker of a queue did not start", exc_info=error)
