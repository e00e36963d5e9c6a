"""The leader's rounds: writing to records what was folded for them, and answering who waits for that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

from tenure.clock import Clock, Reading
from tenure.coordinator.events import NamedEvent
from tenure.errors import CoordinationError, DamagedRecord, NotFound, TenureError
from tenure.plugins.counters.applying import Applier, Failures
from tenure.plugins.counters.clerk import CountersClerk
from tenure.plugins.counters.events import ApplyFailed, Consolidated, FieldHidden, RecordRecalculated
from tenure.plugins.counters.history import recorded
from tenure.plugins.counters.numbers import Number
from tenure.plugins.counters.pages import PageBook
from tenure.plugins.counters.records import Answer, Asked
from tenure.plugins.counters.settings import CounterSettings
from tenure.plugins.counters.state import CountersMachine, Offer
from tenure.plugins.counters.totals import Key
from tenure.plugins.counters.wire import CONSOLIDATE, RECALCULATE
from tenure.plugins.ledgered import either

_log = logging.getLogger("tenure.counters")
RETRY = 5.0
"""Seconds before a record that could not be written is tried again; more each time ..."""
LONGEST_RETRY = 300.0
"""... up to this."""
MAX_TROUBLED = 10_000
MAX_HIDDEN = 1000
_RECALCULATIONS = 5


class Trouble:
    def __init__(self, since: Reading, error: TenureError) -> None:
        self.since = since
        self.reason = str(error)
        self.is_damage = isinstance(error, DamagedRecord)
        self.pause = RETRY


class _Overtaken(Exception):
    """Somebody applied more than what is being compared."""


class Rounds:
    """For one term."""

    def __init__(
        self,
        clerk: CountersClerk,
        applier: Applier,
        book: PageBook,
        settings: CounterSettings,
        *,
        resource: str,
        epoch: int,
        clock: Clock,
        emit: Callable[[NamedEvent], None],
        stir: Callable[[], None],
    ) -> None:
        """`stir`: called when the next entry has something to say."""
        self._clerk = clerk
        self._applier = applier
        self._book = book
        self._settings = settings
        self._resource = resource
        self._epoch = epoch
        self._clock = clock
        self._emit = emit
        self._stir = stir
        self._urgent: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._is_full = False
        self._answered: set[str] = set()
        """Requests whose answers are under way."""
        self._tried: dict[str, Reading] = {}
        """Recalculations that could not be done although nothing else helps, and what had failed last by then."""
        self._hidden: set[tuple[str, str]] = set()
        self.troubled: dict[str, Trouble] = {}

    def hurry(self, ids: Iterable[str]) -> None:
        """Somebody waits for these."""
        self._urgent.update(dict.fromkeys(ids))
        self._wake.set()

    def make_room(self) -> None:
        """As much waits as may: the inbox is left alone until it is written, and with it whoever asks for something."""
        self._is_full = True
        self._wake.set()

    def entry_written(self) -> None:
        """Requests may be covered now, or answered for good."""
        asked = self._clerk.machine.asked
        self._answered &= asked.keys()
        for request in self._tried.keys() - asked.keys():
            del self._tried[request]
        if asked:
            self._wake.set()

    async def run(self) -> None:
        """For the whole term: a round every `interval`, and whenever somebody waits."""
        machine = self._clerk.machine
        began = self._clock.read()
        is_first = True  # what a former leader left is not kept waiting
        while True:
            left = self._settings.interval - self._clock.read().leader_elapsed(began)
            if left > 0 and not is_first and not self._wake.is_set():
                await either(self._wake, left)
            self._wake.clear()
            is_due = self._clock.read().leader_elapsed(began) >= self._settings.interval
            if is_first or is_due or self._is_full:
                began, is_first, self._is_full = self._clock.read(), False, False
                wanted = list(machine.waiting)
            else:
                wanted = self._wanted()
            if wanted:
                await self._round(wanted)
            await self._answer()

    def _wanted(self) -> list[str]:
        """What somebody waits for."""
        machine = self._clerk.machine
        wanted = dict(self._urgent)
        asked = [asked.id for asked in machine.asked.values() if asked.through]
        wanted.update(dict.fromkeys(asked))
        if "" in wanted:  # all of them; once, however often it was asked for
            wanted.update(dict.fromkeys(machine.waiting))
        return [id for id in wanted if id in machine.waiting]

    async def _round(self, ids: list[str]) -> None:
        began = self._clock.read()
        machine = await self._clerk.written()
        ready = [(id, machine.offered(id)) for id in ids if self._is_ready(id)]
        done = {"records": 0, "failed": 0}
        pieces = iter(ready)

        async def take() -> None:
            while (piece := await self._next(pieces)) is not None:
                await self._one(*piece, done)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._settings.at_once, len(ready))):
                    group.create_task(take())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        if done["records"] or done["failed"]:
            seconds = round(self._clock.read().leader_elapsed(began), 3)
            self._emit(Consolidated(self._resource, self._epoch, done["records"], done["failed"], seconds))

    async def _next(self, pieces: Iterator[tuple[str, list[Offer]]]) -> tuple[str, list[Offer]] | None:
        """Whom somebody waits for comes first, also in the middle of a long round."""
        while self._urgent:
            machine = await self._clerk.written()
            if self._urgent:
                id = next(iter(self._urgent))
                del self._urgent[id]
                if id in machine.waiting and self._is_ready(id):
                    return id, machine.offered(id)
        return next(pieces, None)

    async def _one(self, id: str, offers: list[Offer], done: dict[str, int]) -> None:
        try:
            applied = await self._applier.apply(self._clerk.machine, id, offers)
        except CoordinationError:
            raise
        except TenureError as error:  # whatever it is, it concerns this record alone
            done["failed"] += 1
            self._trouble(id, error)
            return
        self.troubled.pop(id, None)
        if applied is not None:
            done["records"] += applied.wrote
            self._clerk.applied(applied.id, applied.through)
            self._stir()
            for field in applied.hidden:
                self._hide(id, field)

    def _is_ready(self, id: str) -> bool:
        trouble = self.troubled.get(id)
        return trouble is None or self._clock.read().leader_elapsed(trouble.since) >= trouble.pause

    def _trouble(self, id: str, error: TenureError) -> None:
        now, known, reason = self._clock.read(), self.troubled.get(id), str(error)
        if known is None:
            if len(self.troubled) >= MAX_TROUBLED:
                self.troubled.pop(next(iter(self.troubled)))
            self.troubled[id] = Trouble(now, error)
            _log.warning("record %r of %r is not up to date, and is tried again: %s", id, self._resource, reason)
            self._emit(ApplyFailed(self._resource, id, reason[:1000]))
        else:
            known.since, known.reason, known.pause = now, reason, min(LONGEST_RETRY, 2 * known.pause)
            known.is_damage = isinstance(error, DamagedRecord)

    def _hide(self, id: str, field: str) -> None:
        if (id, field) not in self._hidden and len(self._hidden) < MAX_HIDDEN:
            self._hidden.add((id, field))
            _log.warning(
                "field %r of record %r of %r is counted, and cannot be shown there: something on the way to it is no "
                "object",
                field,
                id,
                self._resource,
            )
            self._emit(FieldHidden(self._resource, id, field))

    # Requests

    async def _answer(self) -> None:
        machine = self._clerk.machine
        for request, asked in list(machine.asked.items()):
            if request in self._answered or not asked.through:
                continue
            is_waited_for = not machine.is_consolidated(asked.through, asked.id)
            if is_waited_for and (not self._is_stuck(machine, asked) or self._was_tried(request, asked)):
                continue
            if asked.op == CONSOLIDATE:
                answer = Answer(request)
            elif asked.op == RECALCULATE:
                found = await self._recalculate(request, asked)
                if found is None:
                    if is_waited_for and (trouble := self.troubled.get(asked.id)) is not None:
                        self._tried[request] = trouble.since
                    continue
                answer = found
            else:
                answer = Answer(request, refused=f"{asked.op!r:.64} is not known here")
            self._answered.add(request)
            self._clerk.answers(answer)
            self._stir()

    def _is_stuck(self, machine: CountersMachine, asked: Asked) -> bool:
        """To be recalculated, and what waits for it cannot be applied before that.

        What is offered has numbers of its own. If a watermark covers these, each is passed over by whoever applies;
        what comes later has higher ones. Of what is put together beyond that a watermark might cover a part.
        """
        waiting, trouble = machine.waiting.get(asked.id), self.troubled.get(asked.id)
        is_damaged = asked.op == RECALCULATE and trouble is not None and trouble.is_damage
        return is_damaged and waiting is not None and waiting.rest is None

    def _was_tried(self, request: str, asked: Asked) -> bool:
        """Then not again before what waits was tried once more, of which the pauses grow."""
        return self._tried.get(request) is self.troubled[asked.id].since

    async def _recalculate(self, request: str, asked: Asked) -> Answer | None:
        """`None`: it is tried again in the next round."""
        id = asked.id
        for _ in range(_RECALCULATIONS):
            machine = await self._clerk.written()
            if id in machine.waiting and not self._is_stuck(machine, asked):
                return None  # once that is applied, and written down
            try:
                totals, former = await self._compare(machine, id)
            except (_Overtaken, NotFound):
                continue  # more was applied, or pages were put together, meanwhile
            except Failures as error:
                self._trouble(id, error)
                return None
            except TenureError as error:
                return Answer(request, refused=str(error)[:1000])
            values = {
                field: machine.counters[field].stored(total) for field, total in totals.items() if total is not None
            }
            wrong = {
                field: None if total is None else machine.counters[field].stored(total)
                for field, total in former.items()
            }
            if self.troubled.pop(id, None) is not None:
                self._urgent[id] = None  # what waited is in it now, which is to be written down
                self._wake.set()
            self._emit(RecordRecalculated(self._resource, id, values, wrong))
            return Answer(request, values, wrong)
        return None

    async def _compare(
        self, machine: CountersMachine, id: str
    ) -> tuple[dict[str, Number | None], dict[str, Number | None]]:
        through = machine.seq  # all of it is in the log, and nothing waits that has other numbers as well
        history = await recorded(self._book, machine, id)

        def expected(key: Key) -> dict[str, Number | None]:
            if key.through(machine.ledger) > through:
                raise _Overtaken
            return {
                field: cell.applied_to(
                    machine.counters[field], key.start(field, machine.counters[field], machine.ledger)
                )
                for field, cell in history.items()
            }

        return await self._applier.put_right(machine, id, through, expected)
