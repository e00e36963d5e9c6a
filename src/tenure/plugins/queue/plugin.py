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
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar, cast, overload

import msgspec

from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import DAY, CoordinatorConfig, seconds
from tenure.coordinator.given import check_flag, check_instance, takes
from tenure.coordinator.layout import check_name
from tenure.coordinator.lead import Lead
from tenure.coordinator.seldom import Seldom
from tenure.election.records import newer
from tenure.errors import BodyTooLarge, ConfigError, Damaged, NotFound, SchemaTooNew, StoreError
from tenure.ledger import InboxName, LedgerConfig, LedgerState, LogEntry, Lot, Place
from tenure.ledger.layout import MAX_NAME_CHARACTERS
from tenure.plugins.ledgered import SHUTDOWN_TIMEOUT, LedgerPlugin
from tenure.plugins.queue.agreed import agreed_settings
from tenure.plugins.queue.glance import QueueGlance, led
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
from tenure.plugins.queue.outgoing import (
    Outgoing,
    compose,
    encode_lots,
    encode_messages,
    options_from,
    with_headers,
)
from tenure.plugins.queue.records import parse_ref
from tenure.plugins.queue.settings import MAX_CONCURRENCY, Blocking, QueueSettings, settings_from
from tenure.plugins.queue.wire import MAX_REFS, Command, Options
from tenure.plugins.queue.worker import QueueWorker
from tenure.store import Applied, Store, Stored

_log = logging.getLogger("tenure.queue")

H = TypeVar("H", bound=Callable[..., Any])
CHUNK = 2000
"""Messages of one `enqueue_many` that are encoded at a time."""
MAX_PROCESSES = 61
_UNFOLLOWED: AbstractContextManager[Mapping[str, str]] = nullcontext({})


class S3QueuePlugin(LedgerPlugin):
    """`resource` names the queue. Whoever only enqueues gives `producer_only=True`: it takes no part in anything else.

    All other options are settings of the queue (`QueueSettings`) or of the coordinator. What the queue was created with
    (`tenure queue create`) holds for all, and contradicting it is a `ConfigConflict`; of the rest the leader's decide.
    """

    slug = "s3-queue"
    what = "queue"

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
        super().__init__(
            namespace=namespace,
            config=config,
            ledger=ledger,
            shutdown_timeout=shutdown_timeout,
            takes_part=not check_flag("producer_only", producer_only),
        )
        self.resource = check_name("resource", resource, MAX_NAME_CHARACTERS)
        self._given = settings
        self.settings: QueueSettings = settings_from(settings)
        self._producer_only = producer_only
        if schema is not None:
            check_instance("schema", schema, type)
        self._schema = schema
        self._handling: tuple[Handler | None, BatchHandler | None, dict[str, Any]] | None = None
        self._worker: QueueWorker | None = None
        self._stopped_worker: QueueWorker | None = None
        self._starting_worker: asyncio.Task[None] | None = None
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
        with self._followed(1) as added:
            options = options_from(
                delay=delay,
                priority=priority,
                dedup_key=dedup_key,
                ordering_key=ordering_key,
                max_attempts=max_attempts,
                visibility_timeout=visibility_timeout,
                headers=with_headers(headers, added),
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
        check_instance("bodies", bodies, Iterable)
        with self._followed(len(bodies) if isinstance(bodies, Sized) else 0) as added:
            shared = options_from(
                delay=delay,
                priority=priority,
                ordering_key=ordering_key,
                max_attempts=max_attempts,
                visibility_timeout=visibility_timeout,
                headers=with_headers(headers, added),
            )
            return await self._enqueue_all(bodies, shared, added)

    async def _enqueue_all(self, bodies: Iterable[Any], shared: Options, added: Mapping[str, str]) -> list[str]:
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
                    headers=with_headers(body.headers, added),
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
        check_flag("auto_extend", auto_extend)
        try:
            where = Blocking(blocking)
        except ValueError:
            raise ConfigError(f"blocking is {blocking!r}: give 'thread', 'process' or 'inline'") from None

        def register(chosen: H) -> H:
            if not callable(chosen):
                raise ConfigError(f"{chosen!r} is not a function: give one that takes a message")
            if not takes(chosen, 1):
                given = "a list of messages" if batch is not None else "a message"
                raise ConfigError(f"{chosen!r} cannot be called with {given}: give a function of one argument")
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
        timeout = seconds("timeout", timeout, zero=True, longest=DAY)
        store, host = self._opened(), self._attached()
        began = host.clock.read()
        pause = 0.02
        while True:
            try:
                stored = await store.get(_result_key(message_id))
                assert isinstance(stored, Stored)
                return decode_result(message_id, stored.body)
            except NotFound:
                if host.clock.read().leader_elapsed(began) >= timeout:
                    raise TimeoutError(f"there is no result of {message_id!r} after {timeout:g} s") from None
            except BodyTooLarge as error:
                raise _no_result(message_id, error) from None
            await host.clock.sleep(pause)
            pause = min(1.0, pause * 1.5)

    @property
    def idle_requests_per_hour(self) -> float:
        """What this process spends on looking for work that is not there; `idle_budget` bounds it."""
        return self._meter.per_hour()

    def glance(self) -> QueueGlance:
        """What this process knows without a request. Called where the plugin lives: on its loop."""
        leading, worker = self._leading, self._worker
        machine = leading.machine if isinstance(leading, Leading) else None
        return QueueGlance(
            led=led(machine, self._about_ms()) if machine is not None else None,
            worker=dict(worker.counts) if worker is not None else None,
            holding=worker.holding if worker is not None else 0,
            idle_requests_per_hour=self.idle_requests_per_hour,
        )

    @property
    def worker(self) -> QueueWorker | None:
        return self._worker

    # Life

    async def prepare(self, store: Store) -> None:
        if self.name != self.resource:
            raise ConfigError(f"name is {self.name!r} and resource is {self.resource!r}: leave the name out")
        if self._producer_only and self._handling is not None:
            raise ConfigError(f"{self!r} has a handler, and producer_only=True: leave one of them out")
        namespace = None if self._producer_only else self.namespace
        self.settings = await agreed_settings(store, self._given, queue=self.name, namespace=namespace)
        self._meter = IdleMeter(self._attached().clock)

    async def began(self) -> None:
        if self._handling is not None:
            await self._start_worker()

    async def ending(self) -> None:
        starting, self._starting_worker = self._starting_worker, None
        if starting is not None:
            starting.cancel()
            await asyncio.wait([starting])
        self._stopped_worker, self._worker = self._worker, None
        if self._stopped_worker is not None:
            await self._stopped_worker.stop(self._shutdown_timeout)

    def ended(self) -> None:
        worker, self._stopped_worker = self._stopped_worker, None
        if worker is not None:
            worker.shut_down()

    async def on_become_coordinator(self) -> None:
        membership = self.coordinator.config.membership
        watching = asyncio.get_running_loop().create_task(self._watch_members()) if membership else None
        try:
            await super().on_become_coordinator()
        finally:
            if watching is not None:
                watching.cancel()

    def compose(self, name: InboxName, place: Place, lots: Sequence[Lot]) -> bytes:
        return compose(name, place, lots)

    def new_leading(self, lead: Lead) -> Leading:
        host = cast(Any, self._attached())
        return Leading(
            self._opened(),
            lead,
            self.settings,
            ledger=self._ledger,
            clock=host.clock,
            random=host.random,
            draw_id=host.draw_id,
            time=self._time,
            bell=self._bell,
            is_alive=self._is_member if self.coordinator.config.membership else lambda name: None,
            emit=lambda event: self.emit(event.name, event),
            on_entry=self._wrote,
            sights=self._sights,
            on_idle=self._meter.looked,
        )

    # Inside

    def _followed(self, count: int) -> AbstractContextManager[Mapping[str, str]]:
        """Headers for messages that are enqueued now, from whoever follows them; as a rule nobody does."""
        tracer = self._tracing.tracer
        return tracer.enqueueing(self.name, count) if tracer is not None else _UNFOLLOWED

    def _wrote(self, entry: LogEntry) -> None:
        super()._wrote(entry)
        if self._worker is not None:
            self._worker.take(entry)

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
            queue=self.name,
            tracing=self._tracing,
            on_result=self._keep_result if self.settings.result_retention else None,
            **options,
        )
        failures = 0
        seldom = Seldom(_log)
        while True:
            try:
                await worker.start()
                break
            except StoreError as error:
                failures += 1
                seldom.warning(host.clock.read(), "%r cannot read its log yet: %s", self, error)
                await host.clock.sleep(min(5.0, 0.2 * 2.0 ** min(failures, 5)))
        self._worker = worker

    async def _keep_result(self, message: Message, result: Any) -> None:
        try:
            body = msgspec.json.encode(result)
        except (TypeError, ValueError):
            body = msgspec.json.encode(repr(result)[:1000])
        store, key = self._opened(), _result_key(message.id)
        if isinstance(await store.create(key, body), Applied):
            return
        try:  # handled before, perhaps by a newer process; or the answer was lost
            stored = await store.get(key)
        except (NotFound, BodyTooLarge):
            stored = None
        if not isinstance(stored, Stored) or _newer_result(stored.body) is None:
            await store.put(key, body)

    async def _command(self, command: Command) -> None:
        await self._sending().submit(msgspec.structs.replace(command, by=self._attached().worker_id), 300)

    async def _state(self) -> LedgerState:
        return await read_queue(self._opened())


def _newer_result(body: bytes) -> int | None:
    """A result is what the handler returned, as one line of JSON. In a later form a line stands before it that says
    which: then what one of ours returned cannot be taken for it, whatever that was."""
    head, line_break, _ = body.partition(b"\n")
    return newer(head) if line_break else None


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


def decode_result(message_id: str, body: bytes) -> Any:
    """Raises `Damaged`, and `SchemaTooNew`."""
    if (version := _newer_result(body)) is not None:
        raise SchemaTooNew(
            f"the result of {message_id!r} was written by a newer tenure (schemaVersion {version}): update this process"
        )
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_result(message_id, error) from None


def _no_result(message_id: str, error: Exception) -> Damaged:
    return Damaged(f"what is kept as the result of {message_id!r} is none: {str(error)[:300]}")
