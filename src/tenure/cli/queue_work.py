"""`tenure queue work`: have the messages of a queue handled by a function."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import multiprocessing
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from tenure.cli.durations import between
from tenure.cli.numbers import Whole
from tenure.cli.place import placed
from tenure.cli.queue_place import QueueCommand, named
from tenure.cli.settings import Refusal
from tenure.cli.timing import config_from, timed
from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.events import LeaderChanged, PluginEvent, WorkerWasReplaced
from tenure.database.core import Database
from tenure.entropy import new_id
from tenure.errors import ConfigError
from tenure.observe.printable import json_text, printable
from tenure.plugins.ledgered import SHUTDOWN_TIMEOUT, Halted
from tenure.plugins.queue import Blocking, S3QueuePlugin
from tenure.plugins.queue.events import LeadingBegan, MessagesDead, TicketsLapsed
from tenure.plugins.queue.hand import Hand
from tenure.plugins.queue.records import ref_of
from tenure.plugins.queue.settings import MAX_CONCURRENCY
from tenure.plugins.queue.wire import Outcome
from tenure.plugins.queue.worker import QueueWorker
from tenure.run.plan import SECOND_SIGNAL_AFTER
from tenure.run.telling import to_standard_error
from tenure.store.url import parse_url

EXIT_CUT_SHORT = 1
EXIT_FORCED = 130
PROGRESS_EVERY = 10.0
MAX_TOLD = 20
"""Failures, and warnings, that are told between two lines of progress; the rest are counted."""
_MAX_HOST = 60
_CUT_SHORT = "its worker was stopped before it was done"
_TOLD_BY_EVENT = "a queue has halted"
_FORM = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

Told = Callable[..., None]


@click.command(cls=QueueCommand, short_help="Handle messages with a function.")
@placed
@named
@click.argument("handler")
@timed
@click.option("--worker-id", envvar="TENURE_WORKER_ID", help="The name of this process.  [default: made up]")
@click.option(
    "--concurrency",
    type=Whole(1, MAX_CONCURRENCY),
    default=10,
    show_default=True,
    help="Calls of HANDLER at once.",
)
@click.option("--batch", type=Whole(1, 10_000), help="HANDLER takes a list of up to so many messages.")
@click.option("--prefetch", type=Whole(1, 100_000), help="Messages held at once.  [default: as it goes]")
@click.option(
    "--blocking",
    type=click.Choice([each.value for each in Blocking]),
    default=Blocking.THREAD.value,
    show_default=True,
    help="Where a HANDLER that is no coroutine runs; inline: on the event loop.",
)
@click.option("--auto-extend", is_flag=True, help="Ask for more time while HANDLER runs.")
@click.option(
    "--shutdown-timeout",
    type=between(0, 3600),
    default=f"{SHUTDOWN_TIMEOUT:g}s",
    show_default=True,
    help="From SIGTERM: how long what runs may take to finish.",
)
@click.option("--quiet", is_flag=True, help="Say only what is wrong.")
@click.option("--json", "as_json", is_flag=True, help="Say what happens as JSON, one object a line, on standard error.")
def work(
    url: str,
    namespace: str,
    name: str,
    handler: str,
    preset: str | None,
    lease: float | None,
    settings: tuple[str, ...],
    worker_id: str | None,
    concurrency: int,
    batch: int | None,
    prefetch: int | None,
    blocking: str,
    auto_extend: bool,
    shutdown_timeout: float,
    quiet: bool,
    as_json: bool,
) -> int:
    """Work on the queue NAME at URL: HANDLER, given as module:function, is called with each message.

    The module is looked for in the working directory first. The function may be a coroutine; it returns: the message is
    done; it raises: the message is tried again later, and is a dead letter in the end. This process stands for election
    like every other that works on the queue; whichever leads hands the messages out. How the queue behaves is agreed on
    by `tenure queue create`.

    SIGTERM and SIGINT end it: what runs is finished within --shutdown-timeout, what was not begun is given back at
    once. A second one ends it at once. What happens is said on standard error; standard output is the handler's.

    Exit code 0: told to end, and everything that it held was finished or given back; 1: told to end, and some of it was
    cut short, or not reported (it is tried again by others); 1: a newer process has taken over this --worker-id; 2:
    asked wrongly, or the store cannot be used; 130: ended by a second signal.

    \b
      tenure queue work s3://bucket/app emails mailer:send --concurrency 50
    """
    tell = _teller(quiet, as_json, SYSTEM_CLOCK)
    config = config_from(preset, lease, settings, worker_id=_made_up() if worker_id is None else worker_id)
    plugin = S3QueuePlugin(name, namespace=namespace, config=config, shutdown_timeout=shutdown_timeout)
    function = load_handler(handler)
    plugin.handler(
        function, concurrency=concurrency, prefetch=prefetch, auto_extend=auto_extend, batch=batch, blocking=blocking
    )
    with _warnings(tell):
        return asyncio.run(_Session(url, plugin, config, handler, tell, SYSTEM_CLOCK).run())


def load_handler(text: str) -> Callable[..., Any]:
    """The function that `module:function` names."""
    if _FORM.fullmatch(text) is None:
        raise Refusal(f"HANDLER is {text[:80]!r}: give module:function, such as mailer:send")
    module, _, path = text.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {module!r} in {here} nor where Python looks for them: begin where it lies, or set "
                "PYTHONPATH"
            ) from error
        raise ConfigError(f"{module!r} cannot be imported ({error}): install what it needs") from error
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {str(error)[:200]}"
        raise ConfigError(f"{module!r} cannot be imported ({what}): mend it; --debug shows where") from error
    for step in path.split("."):
        if not hasattr(found, step):
            raise ConfigError(f"{module!r} has no {path!r}: name a function that takes a message")
        found = getattr(found, step)
    if not callable(found):
        raise ConfigError(f"{text!r} is a {type(found).__name__}, and no function: name one that takes a message")
    handler: Callable[..., Any] = found
    return handler


class _Tally:
    """What became of messages, as far as this process's own reports say."""

    def __init__(self, tell: Told) -> None:
        self._tell = tell
        self.done = 0
        self.failed = 0
        self.cut_short = 0
        self._told = 0
        self._before = (0, 0)

    def acked(self, hand: Hand, outcome: Outcome) -> None:
        self.done += hand.total if outcome.all_done else sum(piece.high - piece.low for piece in outcome.done)
        for failure in outcome.failed:
            self.failed += 1
            self.cut_short += failure.error == _CUT_SHORT
            self._told += 1
            if self._told <= MAX_TOLD:
                ref = ref_of(failure.segment, failure.index)
                verb = "rejected" if failure.final else "failed"
                self._tell(verb, f"{verb}: {ref}: {failure.error}", ref=ref, error=failure.error)

    def progress(self, seconds: float) -> None:
        done, failed = self.done - self._before[0], self.failed - self._before[1]
        self._before, self._told = (self.done, self.failed), 0
        if done or failed:
            sentence = f"handled {done}, failed {failed} in the last {seconds:g} s"
            self._tell("progress", sentence, done=done, failed=failed, seconds=seconds)


class _Session:
    def __init__(
        self, url: str, plugin: S3QueuePlugin, config: CoordinatorConfig, handler: str, tell: Told, clock: Clock
    ) -> None:
        self._url = url
        self._plugin = plugin
        self._worker_id = config.worker_id
        self._handler = handler
        self._tell = tell
        self._clock = clock
        self._stop = asyncio.Event()
        self._asked_at: Any = None
        self._task: asyncio.Task[Any] | None = None
        self._forced = False
        self._replaced = False
        self.tally = _Tally(tell)

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        try:
            return await self._run()
        except asyncio.CancelledError:
            if not self._forced:
                raise  # something else ends the loop, such as a KeyboardInterrupt out of the handler
            self._tell("killed", "a second signal: ended at once; what it held is tried again by others", wrong=True)
            return EXIT_FORCED
        finally:
            # Whoever leaves by os._exit leaves them behind, and they would wait for work for ever.
            for child in multiprocessing.active_children():
                child.kill()
            # Semaphores that nobody has let go of by then are complained about on standard error by Python itself.
            gc.collect()

    async def _run(self) -> int:
        plugin, tally = self._plugin, self.tally
        plugin.acked = tally.acked
        worker: QueueWorker | None = None
        before: Counter[str] = Counter()
        async with Database(self._url, worker_id=self._worker_id) as database:
            if await self._started(database):
                shown = parse_url(self._url).shown
                self._tell(
                    "started",
                    f"{self._handler} works on {plugin.name!r} at {shown} as {self._worker_id} (pid {os.getpid()})",
                    queue=plugin.name,
                    url=shown,
                    worker=self._worker_id,
                    handler=self._handler,
                    pid=os.getpid(),
                )
                self._listen()
                await self._until_stopped()
                worker = plugin.worker
                before = Counter(worker.counts) if worker is not None else before
                held = worker.holding if worker is not None else 0
                self._tell("stopping", f"told to end: messages in hand: {held}; what runs is finished", held=held)
        lost = sum(worker.counts[what] - before[what] for what in ("late", "reports_lost")) if worker is not None else 0
        unclean = tally.cut_short + lost
        self._tell(
            "stopped",
            f"ended: handled {tally.done}, failed {tally.failed}"
            + (f"; {unclean} cut short, or not reported in time: tried again by others" if unclean else ""),
            wrong=bool(unclean),
            done=tally.done,
            failed=tally.failed,
            cut_short=unclean,
        )
        return EXIT_CUT_SHORT if unclean or self._replaced else 0

    def _signalled(self, number: signal.Signals) -> None:
        now = self._clock.read()
        if not self._stop.is_set():
            self._asked_at = now
            self._stop.set()
        elif now.leader_elapsed(self._asked_at) >= SECOND_SIGNAL_AFTER and self._task is not None:
            self._forced = True
            self._task.cancel()

    async def _started(self, database: Database) -> bool:
        """False: told to end meanwhile."""
        starting = asyncio.ensure_future(database.use_plugin(self._plugin))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                return True
            starting.cancel()
            await asyncio.wait([starting])
            return False
        finally:
            stopping.cancel()

    async def _until_stopped(self) -> None:
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(PROGRESS_EVERY):
                    await self._stop.wait()
            except TimeoutError:
                self.tally.progress(PROGRESS_EVERY)

    def _listen(self) -> None:
        plugin = self._plugin
        plugin.on(LeaderChanged.name, self._leader_changed)
        plugin.on(WorkerWasReplaced.name, self._was_replaced)
        for event in (LeadingBegan, MessagesDead, TicketsLapsed, Halted):
            plugin.on(f"plg:{plugin.slug}:{event.name}", self._heard)

    def _leader_changed(self, event: Any) -> None:
        assert isinstance(event, LeaderChanged)
        if event.new_leader is None and event.previous_leader == self._worker_id:
            return  # our own term is over, and whoever leads next is told of
        who = f"{event.new_leader} leads, epoch {event.epoch}" if event.new_leader is not None else "nobody leads"
        self._tell("leader", who, leader=event.new_leader, epoch=event.epoch)

    def _was_replaced(self, event: Any) -> None:
        self._replaced = True
        self._tell("replaced", f"a newer process uses the worker id {self._worker_id}: this one ends", wrong=True)
        self._asked_at = self._clock.read()
        self._stop.set()

    def _heard(self, told: Any) -> None:
        assert isinstance(told, PluginEvent)
        event = told.event
        if isinstance(event, LeadingBegan):
            # What it says is ready leaves out the inbox, which it has not read yet.
            sentence = f"this process leads, and decides on the queue, epoch {event.epoch}"
            self._tell("leading", sentence, epoch=event.epoch, seq=event.seq, ready=event.ready)
        elif isinstance(event, MessagesDead):
            sentence = f"dead letters: {event.messages} more; {event.reason}"
            self._tell("dead", sentence, messages=event.messages, reason=event.reason)
        elif isinstance(event, TicketsLapsed):
            self._tell("lapsed", f"{event.tickets} tickets were not reported on in time", tickets=event.tickets)
        elif isinstance(event, Halted):
            self._tell("halted", f"the queue has halted: {event.reason}", wrong=True, reason=event.reason)


def _teller(quiet: bool, as_json: bool, clock: Clock) -> Told:
    def tell(event: str, sentence: str, *, wrong: bool = False, **facts: Any) -> None:
        if as_json:
            # Seconds since 1970 by this host's wall clock: for people, and never compared.
            at = round(clock.read().wall_ns / 1e9, 3)
            to_standard_error(json_text({"event": event, "at": at, "message": sentence, **facts}, indent=None))
        elif wrong or not quiet:
            to_standard_error(f"tenure queue: {printable(sentence)}")

    return tell


class _Warnings(logging.Handler):
    def __init__(self, tell: Told, clock: Clock) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._clock = clock
        self._since = clock.read()
        self._told = 0

    def emit(self, record: logging.LogRecord) -> None:
        if str(record.msg).startswith(_TOLD_BY_EVENT):
            return
        now = self._clock.read()
        if now.follower_elapsed(self._since) >= PROGRESS_EVERY:
            self._since, self._told = now, 0
        self._told += 1
        if self._told <= MAX_TOLD:
            try:
                text = record.getMessage()
            except Exception:
                text = str(record.msg)
            self._tell("warning", text, wrong=True)


@contextlib.contextmanager
def _warnings(tell: Told) -> Iterator[None]:
    """What the library finds wrong is said as well."""
    handler, logger = _Warnings(tell, SYSTEM_CLOCK), logging.getLogger("tenure")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _made_up() -> str:
    """For people, who look for the machine."""
    host = os.uname().nodename[:_MAX_HOST]
    return f"{host if host.isprintable() and host.strip() else 'host'}-{new_id()[:6]}"
