"""The leader's side of a ledger, for one term: fold what is in the inbox, decide, write it down (L-1).

One tick is: look into the inbox, read what is new, let the plugin prepare (bodies go to segments before any entry names
them), decide, create the next entry, and only then clear away what it made superfluous. One create is under way at a
time. The state is changed as decisions are made; if the entry is then not written, the term of this ledger is over, and
the state is thrown away with it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

import msgspec

from tenure.clock import Clock, Reading
from tenure.election.records import encode
from tenure.entropy import NewId
from tenure.errors import LedgerError, LedgerHalted, NotFound, StoreError
from tenure.ledger.catchup import catch_up
from tenure.ledger.config import MAX_ENTRY_BYTES, MAX_INBOX_BYTES, LedgerConfig
from tenure.ledger.inbox import InboxSweep, Letter
from tenure.ledger.layout import DAMAGED, INBOX, InboxName
from tenure.ledger.log import Tenancy, WrittenAlready, append
from tenure.ledger.machine import LedgerState, Machine, Stamp
from tenure.ledger.place import Place
from tenure.ledger.producers import Producers, Remembered, Verdict
from tenure.ledger.records import NOTHING, Kind, LogEntry, Rejection
from tenure.ledger.snapshots import Archivist, Sights, picture_of, write_quietly
from tenure.store import Store, Stored
from tenure.store.protocol import MAX_BODY_BYTES

_log = logging.getLogger("tenure.ledger")
_MAX_REJECTIONS = 1000
_FOREIGN_NAMED = 10
_MAX_FORGOTTEN = 10_000
_REASON_CHARACTERS = 300
_PATIENCE = 0.25
"""Seconds for which a tick waits for all that it reads; after that it takes what it has."""
_MOST_DOUBT = 60.0
_FAR_AHEAD_MS = 60_000
_FORMER_BEGINNINGS = 3
_DELETES = 1000
_UNDELETED = 10
"""Deletes that failed: every so often that is said aloud."""
_MOST_DOOMED = 100_000
"""Names of what is to be deleted; of older ones the next leader sees to it."""
_SWEEPS_TO_RESUME = 2
_SWEEPS_IN_VAIN = 10
"""After so many, and a retention, what follows something that never came is set aside."""


class Poison(Exception):
    """An inbox object that cannot be folded, ever."""


class TooNewLetter(Exception):
    """An inbox object of a newer tenure: it is left for a leader that can read it."""


class Overtaken(LedgerError):
    """A void entry has the number that ours should have: catch up, and begin anew."""


class Item(msgspec.Struct, frozen=True):
    """An inbox object that is folded now."""

    name: InboxName
    modified_ms: int
    body: bytes
    skipped: tuple[int, ...]
    content: Any
    """What the plugin made of it."""


class _Opened(msgspec.Struct, frozen=True):
    """An object that was read, before it is decided whether it can be folded now."""

    place: Place
    item: Item


class Situation(msgspec.Struct, frozen=True):
    """What a plugin needs to know to decide."""

    stamp: Stamp
    """Of the entry that it decides on."""
    swept_ms: int | None
    """Everything that was in the inbox at this time is folded by this entry, or was before ..."""
    slow_ms: int
    """How long the entry before this one took from its decision until it was known to be written."""
    unread: frozenset[str] = frozenset()
    """... but for what lies there of these producers, and cannot be folded yet."""
    doubt_ms: int = 0
    """By how much the times above may be off, either way."""


class Clerk(Protocol):
    """The plugin's part of the leader's work."""

    @property
    def machine(self) -> Machine: ...

    def read(self, name: InboxName, body: bytes) -> tuple[Place, Any]:
        """Its place among its producer's batches, and its content. Raises `Poison` or `TooNewLetter`."""
        ...

    async def prepare(self, items: Sequence[Item]) -> None:
        """Make durable what the entry will refer to. Nothing is decided yet; what raises is tried again."""
        ...

    def decide(self, items: Sequence[Item], situation: Situation) -> bytes | None:
        """Decide, change the machine accordingly, and give the events that do the same to it elsewhere.

        `None`: there was nothing to decide, and nothing was changed.
        """
        ...

    def committed(self, entry: LogEntry, items: Sequence[Item]) -> Sequence[str]:
        """It is written. Gives the keys of what was made superfluous: they are deleted."""
        ...


class _Reading(msgspec.Struct, frozen=True):
    """An object of the inbox that was asked for."""

    size: int
    task: asyncio.Task[tuple[Letter, bytes] | StoreError | None]


class _Gathered(msgspec.Struct):
    items: list[Item]
    rejected: list[tuple[InboxName, Rejection]]
    done: list[InboxName]
    """Copies of what was folded before."""
    strangers: list[InboxName]
    early: int
    left: int
    """Of a newer schema."""
    resumed: dict[str, int]
    bodies: dict[InboxName, bytes] = {}
    """Of what is not folded: as it was judged. What was never read has none."""


class Tick(msgspec.Struct, frozen=True):
    """What came of one."""

    folded: int
    entry: LogEntry | None
    more: bool
    """There is more in the inbox than one tick takes."""


class LedgerTerm:
    """One leadership of one ledger. `begin()`, then `tick()` again and again; any error ends it."""

    def __init__(
        self,
        store: Store,
        lead: Tenancy,
        clerk: Clerk,
        *,
        config: LedgerConfig,
        clock: Clock,
        draw_id: NewId,
        now: Callable[[], Awaitable[float]],
        uncertainty: Callable[[], float] = lambda: 0.0,
        namespace: str = "",
        sights: Sights | None = None,
    ) -> None:
        """`now`: the store's clock, in seconds since 1970; `uncertainty`: by how many seconds it may be off by now.

        `sights`: what this process has seen of the snapshots of this ledger, in other terms as well.
        """
        self._store = store
        self._lead = lead
        self._clerk = clerk
        self._config = config
        self._clock = clock
        self._draw_id = draw_id
        self._now = now
        self._uncertainty = uncertainty
        self._off = math.inf
        self._namespace = namespace
        self._sweep_doubt_ms = 0
        self._ahead_ms = 0
        self._told_ahead = False
        self.state = LedgerState(clerk.machine)
        self._inbox = InboxSweep(store, config.objects_per_tick)
        self._archivist = Archivist(store, config=config, clock=clock, draw_id=draw_id, sights=sights)
        self._sweep_began_ms: int | None = None
        self._sweep_ended = False
        self._sweep_present: set[str] = set()
        self._sweep_blocked = False
        self._sweep_early: set[InboxName] = set()
        self._early: Counter[InboxName] = Counter()
        """In how many sweeps something was found whose predecessor was not."""
        self._first_early: dict[str, int] = {}
        """Of those: the lowest number of each producer."""
        self._pending: dict[InboxName, Letter] = {}
        """Seen and put off: too much for one tick."""
        self._kept: dict[InboxName, tuple[Letter, bytes]] = {}
        """Read, and early: it need not be read again. Bounded by `bytes_per_tick`."""
        self._kept_bytes = 0
        self._reading: dict[InboxName, _Reading] = {}
        self._sweep_unread: set[str] = set()
        """Producers of whom something was found in this sweep, and not read, or not kept ..."""
        self._sweep_held: set[str] = set()
        """... or read, and not folded, since something is to come before it."""
        self._gets = asyncio.Semaphore(config.gets_at_once)
        self._clearing: set[str] = set()
        """Of the inbox: folded, and deleted soon."""
        self._doomed: list[str] = []
        self._deleting: asyncio.Task[None] | None = None
        self._undeleted = 0
        self._archiving: asyncio.Task[None] | None = None
        self._entries_since = 0
        self._bytes_since = 0
        self._condensed_at = clock.read()
        self._slow_ms = 0
        self.problems: dict[str, str] = {}
        """By key: what lies in the inbox and cannot be folded, for reports. Bounded."""
        self._sweep_noted: set[str] = set()
        self._sweep_foreign = 0
        self.ticks = 0

    async def begin(self) -> LogEntry:
        """Catch up, and write the entry that voids whatever a former leader may still send (L-3)."""
        former = 0
        while True:
            await catch_up(self._store, self.state, self._lead, clock=self._clock)
            if self.state.namespace != self._namespace and self.state.namespace:
                # Two elections have two leaders, and epochs that cannot be compared.
                raise LedgerHalted(
                    f"the leaders of namespace {self.state.namespace!r} decide here, and this process belongs to "
                    f"{self._namespace!r}: give it that namespace, or a name of its own to what it works on"
                )
            if self.state.epoch > self._lead.epoch:
                raise LedgerHalted(
                    f"the log knows epoch {self.state.epoch}, and this leader has epoch {self._lead.epoch}: the "
                    "namespace's election was begun anew, or the ledger belongs to another one"
                )
            try:
                entry = await self._append(kind=Kind.TERM)
            except WrittenAlready:
                # We began before in this term, and were cut short: what we sent then has landed. Catch up with it.
                former += 1
                if former > _FORMER_BEGINNINGS:
                    raise
                continue
            if entry.epoch == self._lead.epoch:
                self.state.apply(entry)
                break
            # A former leader's, which came before ours: it counts. Catch up with it.
        if self.state.restored:
            self._archivist.found_sound(self.state.restored)
        if self.state.seq > 1:
            self._entries_since = self._config.snapshot_every  # what is inherited is condensed soon
        return entry

    async def tick(self, *, look: bool = True) -> Tick:
        """Look, read, decide, write. Raises `StoreError` if nothing was decided; anything else ends the term.

        `look=False`: what is to be decided has to do with time, or with this process: the inbox is left alone, and no
        request is made unless there is something to write.
        """
        self._lead.ensure()
        self.ticks += 1
        now_ms, read_at = await self._time()
        if look:
            gathered, more = await self._gather(now_ms)
        else:
            gathered, more = _Gathered([], [], [], [], 0, 0, {}), False
        try:
            if gathered.items:
                await self._clerk.prepare(gathered.items)
            await self._set_aside(gathered)
            now_ms, read_at = await self._time()  # deadlines are counted from it: it must not be older than need be
        except StoreError:
            self._put_off(gathered)
            raise
        self._lead.ensure()
        entry = await self._decide(gathered, now_ms, read_at, look)
        if look:
            self._count_sweep()
        superfluous = self._clerk.committed(entry, gathered.items) if entry is not None else ()
        self._clear(gathered, superfluous)
        if not more or self._entries_since >= 2 * self._config.snapshot_every:
            self._keep_house()
        return Tick(len(gathered.items), entry, more)

    async def _time(self) -> tuple[int, Reading]:
        """The store's time, and our clock before it was asked for: what is late is late by this clock."""
        read_at = self._clock.read()
        measured = int(await self._now() * 1000)
        self._off = self._uncertainty()  # at once: what is learned of the clock later has to do with later times
        self._ahead_ms = max(0, self.state.time_ms - measured)
        if self._ahead_ms > _FAR_AHEAD_MS and not self._told_ahead:
            self._told_ahead = True
            _log.error(
                "the log's time is %.0f s ahead of the store's: somebody's clock was, and until the store's is there "
                "too nothing that waits for a time comes due; see to the time of the store's machines",
                self._ahead_ms / 1000,
            )
        return measured + self._ahead_ms, read_at

    def _doubt_ms(self) -> int:
        """Also for a former leader's clock that was ahead of ours: the log's time stands still until ours is there."""
        return math.ceil(min(self._off, _MOST_DOUBT) * 1000) + self._ahead_ms

    async def aclose(self) -> None:
        """Let go of what runs beside. Nothing is lost: the next leader does it."""
        tasks: list[asyncio.Task[Any]] = [reading.task for reading in self._reading.values()]
        tasks += [task for task in (self._deleting, self._archiving) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Looking

    def _is_swept(self) -> bool:
        """Was everything that the sweep found read?"""
        return self._sweep_ended and not self._pending and not self._reading

    async def _gather(self, now_ms: int) -> tuple[_Gathered, bool]:
        if not self._pending:
            look = await self._inbox.look()
            if look.first:
                self._sweep_began_ms, self._sweep_doubt_ms = now_ms, self._doubt_ms()
                self._sweep_present, self._sweep_blocked = set(), False
                self._sweep_early, self._sweep_unread, self._sweep_noted = set(), set(), set()
                self._sweep_held = set()
                self._sweep_foreign = 0
            self._note_foreign(look.foreign)
            for letter in look.letters:
                self._pending[letter.name] = letter
            self._sweep_ended = look.last
        gathered = _Gathered([], [], [], [], 0, 0, {})
        chosen: list[Letter] = []
        read: list[tuple[Letter, bytes]] = []
        room = self._config.bytes_per_tick - sum(reading.size for reading in self._reading.values())
        for name, letter in list(self._pending.items()):
            self._sweep_present.add(name.uid)
            if name.key in self._clearing or name in self._reading:
                del self._pending[name]
            elif self.state.producers.is_done(name):
                (gathered.done if name.uid in self.state.producers.known else gathered.strangers).append(name)
                del self._pending[name]
            elif letter.size > MAX_BODY_BYTES:
                self._note(name.key, f"{letter.size:,} bytes, and no batch is over {MAX_INBOX_BYTES:,}: move it away")
                del self._pending[name]
            elif letter.size > MAX_INBOX_BYTES:
                reason = f"{letter.size:,} bytes, and no batch is over {MAX_INBOX_BYTES:,}"
                gathered.rejected.append((name, Rejection(name.key, reason)))
                del self._pending[name]
            elif name in self._kept:
                read.append(self._kept[name])
                del self._pending[name]
            elif letter.size <= room or not (chosen or self._reading):
                chosen.append(letter)
                room -= letter.size
                del self._pending[name]
        try:
            read += await self._read(chosen)
        except StoreError:
            self._sweep_unread.update(letter.name.uid for letter, _ in read)
            self._put_off(gathered)
            raise
        self._judge(await self._open(read, gathered), gathered, now_ms)
        if gathered.early or gathered.left:
            self._sweep_blocked = True
        more = bool(self._pending) or not self._sweep_ended
        return gathered, more

    def _put_off(self, gathered: _Gathered) -> None:
        """Nothing of this is folded now: the next sweep finds it again, and this one did not see to everything."""
        self._sweep_blocked = True
        self._sweep_unread.update(item.name.uid for item in gathered.items)
        self._sweep_unread.update(name.uid for name, _ in gathered.rejected)

    def _count_sweep(self) -> None:
        """What a letter follows was there before it: a sweep that read everything has seen it, if it is anywhere."""
        if not self._is_swept():
            return
        for name in [name for name in self._kept if name not in self._sweep_early]:
            self._drop(name)
        unread = self._sweep_unread
        # What was not read is not known to be early. Counted on without it, what follows it would seem to be the first.
        self._early = Counter({name: 0 if name.uid in unread else self._early[name] + 1 for name in self._sweep_early})
        self._first_early = {}
        for name in self._early:
            self._first_early[name.uid] = min(name.number, self._first_early.get(name.uid, name.number))
        self.problems = {key: what for key, what in self.problems.items() if key in self._sweep_noted}

    async def _read(self, letters: Sequence[Letter]) -> list[tuple[Letter, bytes]]:
        """What can be had soon. One answer that takes long does not keep the others waiting: it is for a later tick."""
        spawn = asyncio.get_running_loop().create_task
        for letter in letters:
            self._reading[letter.name] = _Reading(letter.size, spawn(self._fetch(letter)))
        tasks = [reading.task for reading in self._reading.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE)
            if not any(task.done() for task in tasks):
                await asyncio.wait(tasks, timeout=4 * _PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        found, errors = [], []
        for name, reading in list(self._reading.items()):
            if reading.task.done():
                del self._reading[name]
                answer = reading.task.result()
                if isinstance(answer, tuple):
                    found.append(answer)
                elif answer is not None:
                    if name.key not in self.problems:
                        errors.append(answer)
                    self._leave_unread(name, str(answer))
        if errors and not found:
            raise errors[0]  # one that can never be read does so once, and does not keep everything else waiting
        return found

    def _leave_unread(self, name: InboxName, why: str) -> None:
        """It is for the next sweep; this one has not seen what it says."""
        self._sweep_blocked = True
        self._sweep_unread.add(name.uid)
        again = "still " if name.key in self.problems else ""
        reason = f"it {again}cannot be read: {why}"[:_REASON_CHARACTERS]
        self._note(name.key, reason, logging.WARNING if again else logging.DEBUG)

    async def _fetch(self, letter: Letter) -> tuple[Letter, bytes] | StoreError | None:
        async with self._gets:
            try:
                stored = await self._store.get(letter.name.key)
            except NotFound:
                return None  # a former leader's delete: it was folded, or somebody else removed it
            except StoreError as error:
                return error
            assert isinstance(stored, Stored)
            return letter, stored.body

    async def _open(self, read: list[tuple[Letter, bytes]], gathered: _Gathered) -> list[_Opened]:
        """Poison is decided on for good, and what is sound in the inbox may have been acknowledged: so it is poison
        only if it has the size that is listed, and a second read gives the same."""
        opened, doubtful = [], []
        # By age: what a letter may say, a clerk may go by what the letters before it said.
        for letter, body in sorted(read, key=lambda each: (each[0].modified_ms, each[0].name)):
            found = self._understand(letter, body, gathered)
            if isinstance(found, Poison):
                doubtful.append((letter, body))
            elif found is not None:
                opened.append(found)
        second = await asyncio.gather(*(self._fetch(letter) for letter, _ in doubtful))
        for (letter, first), answer in zip(doubtful, second, strict=True):
            if not isinstance(answer, tuple):
                self._leave_unread(letter.name, str(answer or NotFound(letter.name.key)))
                continue
            body = answer[1]
            found = self._understand(letter, body, gathered)
            if not isinstance(found, Poison):
                opened += [found] if found is not None else []
            elif len(body) != letter.size:
                why = f"a read gave {len(body):,} of the {letter.size:,} bytes that are listed"
                self._leave_unread(letter.name, why)
            elif body != first:
                self._leave_unread(letter.name, "two reads of it gave different bytes")
            else:
                reason = str(found)[:_REASON_CHARACTERS]
                gathered.rejected.append((letter.name, Rejection(letter.name.key, reason)))
                gathered.bodies[letter.name] = body
        return opened

    def _understand(self, letter: Letter, body: bytes, gathered: _Gathered) -> _Opened | Poison | None:
        """`None`: of a newer tenure, which is left for that."""
        name = letter.name
        try:
            place, content = self._clerk.read(name, body)
            if not 0 <= place.after < name.number or any(number >= name.number for number in place.ahead):
                return Poison(f"it says that it follows itself: {place}")
        except TooNewLetter as error:
            self._note(name.key, str(error))
            self._sweep_unread.add(name.uid)
            gathered.left += 1
            return None
        except Poison as error:
            return error
        skipped = tuple(number for number in place.skipped if 0 < number <= place.after)
        return _Opened(place, Item(name, letter.modified_ms, body, skipped, content))

    def _judge(self, opened: list[_Opened], gathered: _Gathered, now_ms: int) -> None:
        """Sort out what is folded now: by age, but never before what its producer knew to be durable. However much was
        read, of a tick's bytes only so many are folded that what is decided on them has room in one entry."""
        draft = _Draft(self.state.producers)
        waiting = sorted(opened, key=lambda each: (each.item.modified_ms, each.item.name))
        for name, _ in gathered.rejected:
            draft.fold(name, ())
        progress = True
        room = self._config.bytes_per_tick
        put_off: list[_Opened]
        while waiting and progress:
            progress, put_off = False, []
            for number, each in enumerate(waiting):
                name = each.item.name
                place = each.place
                item = each.item
                verdict = draft.judge(name, place.after, item.skipped, place.ahead)
                is_resumed = verdict is Verdict.EARLY and name.uid not in gathered.resumed and self._was_forgotten(name)
                if (verdict is Verdict.FOLD or is_resumed) and gathered.items and len(item.body) > room:
                    # What is left may be early, or seem so only because this is not folded now: the next tick sees.
                    self._defer([*put_off, *waiting[number:]])
                    put_off, progress = [], False
                    break
                if is_resumed:
                    draft.resume(name.uid, place.after)
                    gathered.resumed[name.uid] = place.after
                    # What it knew to be durable ahead of others was folded as well, or it would be in the inbox.
                    item = msgspec.structs.replace(item, skipped=(*item.skipped, *place.ahead))
                    verdict = Verdict.FOLD
                if verdict is Verdict.FOLD:
                    draft.fold(name, item.skipped)
                    gathered.items.append(item)
                    room -= len(item.body)
                    progress = True
                elif verdict is Verdict.EARLY:
                    put_off.append(each)
                elif verdict is Verdict.DUPLICATE:
                    gathered.done.append(name)
                else:
                    gathered.strangers.append(name)
                    gathered.bodies[name] = item.body
            waiting = put_off
        for each in waiting:
            name = each.item.name
            self._sweep_early.add(name)
            waited = now_ms - each.item.modified_ms > self._config.retention * 1000
            if waited and self._early[name] >= _SWEEPS_IN_VAIN:
                reason = f"it follows number {each.place.after} of its producer, which never came"
                gathered.rejected.append((name, Rejection(name.key, reason)))
                gathered.bodies[name] = each.item.body
            else:
                gathered.early += 1
                self._sweep_held.add(name.uid)
                self._keep(each.item)
        for item in gathered.items:
            self._drop(item.name)
        for name, _ in gathered.rejected:
            self._drop(name)

    def _defer(self, put_off: Sequence[_Opened]) -> None:
        for opened in put_off:
            item = opened.item
            self._pending[item.name] = Letter(item.name, len(item.body), item.modified_ms)
            self._keep(item)

    def _keep(self, item: Item) -> None:
        size = len(item.body)
        if item.name not in self._kept and self._kept_bytes + size <= self._config.bytes_per_tick:
            self._kept[item.name] = (Letter(item.name, size, item.modified_ms), item.body)
            self._kept_bytes += size

    def _drop(self, name: InboxName) -> None:
        if (kept := self._kept.pop(name, None)) is not None:
            self._kept_bytes -= len(kept[1])

    def _was_forgotten(self, name: InboxName) -> bool:
        """Nothing is known of its producer's first batches, and what it follows is not in the inbox: it was folded, and
        then forgotten.

        Nobody is forgotten of whom something is in the inbox. What a batch follows was durable before it, and so seen
        by every whole sweep that began after the batch was seen, unless it had been folded by then. What was seen, and
        is itself early, has a lower number: it is resumed first.
        """
        found = self.state.producers.known.get(name.uid)
        if (found is not None and found.through) or self._early[name] < _SWEEPS_TO_RESUME:
            return False
        return self._first_early.get(name.uid, name.number) >= name.number

    # Deciding

    async def _decide(self, gathered: _Gathered, now_ms: int, read_at: Reading, looked: bool) -> LogEntry | None:
        swept = self._sweep_began_ms if looked and self._is_swept() else None
        stamp = Stamp(self.state.seq + 1, self._lead.epoch, now_ms)
        # What was put off was in the inbox as well: for those who wrote it the sweep does not count.
        situation = Situation(
            stamp,
            swept,
            self._slow_ms,
            frozenset(self._sweep_unread | self._sweep_held),
            max(self._doubt_ms(), self._sweep_doubt_ms if looked else 0),
        )
        try:
            events = self._clerk.decide(gathered.items, situation)
        except Exception as error:
            raise LedgerHalted(f"the plugin could not decide on entry {stamp.seq}: {error!r}") from error
        forgotten: list[str] = []
        horizon = 0
        if swept is not None and not self._sweep_blocked:
            # What is not read may be of a producer that nobody knows yet: it must not become too old meanwhile.
            present = self._sweep_present.union(item.name.uid for item in gathered.items)
            silent = self.state.producers.silent(swept - round(self._config.retention * 1000), present)
            forgotten = silent[:_MAX_FORGOTTEN]
            horizon = self.state.producers.horizon_without(forgotten) if forgotten else 0
        if events is None and not gathered.items and not gathered.rejected and not forgotten:
            return None
        folded: dict[str, list[int]] = {}
        skipped: dict[str, list[int]] = {}
        for item in gathered.items:
            folded.setdefault(item.name.uid, []).append(item.name.number)
            if item.skipped:
                skipped.setdefault(item.name.uid, []).extend(item.skipped)
        for name, _ in gathered.rejected:
            folded.setdefault(name.uid, []).append(name.number)
        entry = await self._append(
            time_ms=now_ms,
            folded=folded,
            skipped=skipped,
            resumed=gathered.resumed,
            rejected=tuple(rejection for _, rejection in gathered.rejected[:_MAX_REJECTIONS]),
            forgotten=tuple(forgotten),
            horizon=horizon,
            events=msgspec.Raw(events) if events is not None else NOTHING,
        )
        if entry.epoch != self._lead.epoch:
            # Void, and in our way: what we decided on has no number now. A term is begun anew in its place.
            raise Overtaken(f"entry {entry.seq} is void, of epoch {entry.epoch}: the work is begun anew after it")
        self._slow_ms = round(self._clock.read().leader_elapsed(read_at) * 1000)
        self.state.conclude(entry)
        return entry

    async def _append(self, **fields: Any) -> LogEntry:
        seq = self.state.seq + 1
        if fields.get("kind") is Kind.TERM:
            fields["machine"] = self.state.machine.version
            fields["time_ms"], _ = await self._time()
            fields["doubt_ms"] = self._doubt_ms()
            fields["namespace"] = self._namespace

        def compose(write_id: str) -> LogEntry:
            return LogEntry(write_id=write_id, seq=seq, epoch=self._lead.epoch, **fields)

        size = len(encode(compose("-")))
        if size > MAX_ENTRY_BYTES:
            raise LedgerHalted(f"entry {seq} would have {size:,} bytes, and the limit is {MAX_ENTRY_BYTES:,}")
        entry = await append(self._store, self._lead, seq, compose, clock=self._clock, draw_id=self._draw_id)
        self._entries_since += 1
        self._bytes_since += size
        return entry

    async def _set_aside(self, gathered: _Gathered) -> None:
        """Keep the bytes of what is not folded, before anybody is told that it is not."""
        for name in [*(name for name, _ in gathered.rejected), *gathered.strangers]:
            body = gathered.bodies.get(name)
            if body is None:
                try:
                    found = await self._store.get(name.key)
                except NotFound:
                    continue
                assert isinstance(found, Stored)
                body = found.body
            await self._store.put(DAMAGED + name.key.removeprefix(INBOX), body)
        for name, rejection in gathered.rejected:
            _log.warning("%s was not folded, and is kept in %s: %s", name.key, DAMAGED, rejection.reason)
        for name in gathered.strangers:
            _log.warning(
                "%s was not folded, and is kept in %s: it is older than what is remembered of its producer",
                name.key,
                DAMAGED,
            )

    # Afterwards

    def _clear(self, gathered: _Gathered, superfluous: Sequence[str]) -> None:
        """Delete what was folded, beside the next tick. Seen again, it is known as folded, and deleted again."""
        names = [
            *(item.name for item in gathered.items),
            *gathered.done,
            *gathered.strangers,
            *(name for name, _ in gathered.rejected),
        ]
        keys = [name.key for name in names]
        self._clearing.update(keys)
        self._doomed += [*keys, *superfluous]
        if self._doomed and (self._deleting is None or self._deleting.done()):
            self._deleting = asyncio.get_running_loop().create_task(self._delete())

    async def _delete(self) -> None:
        """One request at a time: what comes meanwhile goes into the next one."""
        while self._doomed:
            keys, self._doomed = self._doomed[:_DELETES], self._doomed[_DELETES:]
            try:
                await self._store.delete(*keys)
            except StoreError as error:
                # What is in the inbox is found there again; nothing else is.
                self._undeleted += 1
                level = logging.WARNING if self._undeleted % _UNDELETED == 0 else logging.DEBUG
                _log.log(
                    level, "%s folded objects are deleted later (%s failures): %s", len(keys), self._undeleted, error
                )
                self._doomed = [*(key for key in keys if key not in self._clearing), *self._doomed][-_MOST_DOOMED:]
                return
            finally:
                self._clearing.difference_update(keys)

    def _keep_house(self) -> None:
        """Condense and trim, beside everything else."""
        if self._archiving is not None and not self._archiving.done():
            return
        config = self._config
        age = self._clock.read().follower_elapsed(self._condensed_at)
        if (
            self._entries_since >= config.snapshot_every
            or self._bytes_since >= config.snapshot_bytes
            or (self._entries_since and age >= config.snapshot_age)
        ):
            self._entries_since = self._bytes_since = 0
            self._condensed_at = self._clock.read()
            self._archiving = asyncio.get_running_loop().create_task(
                write_quietly(self._archivist, picture_of(self.state))
            )
        elif self._archivist.bound() is not None:
            self._archiving = asyncio.get_running_loop().create_task(self._trim())
        elif self._archivist.to_recall() is not None:
            self._archiving = asyncio.get_running_loop().create_task(self._trim(recall=True))

    async def _trim(self, *, recall: bool = False) -> None:
        try:
            if recall:
                await self._archivist.recall()
            await self._archivist.trim()
        except StoreError as error:
            _log.debug("the log is trimmed later: %s", error)

    def _note_foreign(self, keys: Sequence[str]) -> None:
        """The first few by name, and of all others that there are some: there may be a million."""
        for key in keys[: max(0, _FOREIGN_NAMED - self._sweep_foreign)]:
            self._note(key, "its name is not one that a producer gives: move it away")
        self._sweep_foreign += len(keys)
        if self._sweep_foreign > _FOREIGN_NAMED:
            self._note(INBOX, f"over {_FOREIGN_NAMED} objects there have names that no producer gives: move them away")

    def _note(self, key: str, what: str, level: int = logging.WARNING) -> None:
        if key in self.problems or len(self.problems) < _MAX_REJECTIONS:
            if self.problems.get(key) != what:
                _log.log(level, "%s is not folded: %s", key, what)
            self.problems[key] = what
            self._sweep_noted.add(key)


class _Draft:
    """What producers would be, if this entry were written: theirs is changed only once it is."""

    def __init__(self, producers: Producers) -> None:
        self._real = producers
        self._draft = Producers()
        self._draft.horizon = producers.horizon
        self._copied: set[str] = set()

    def judge(self, name: InboxName, after: int, skipped: Collection[int], ahead: Collection[int]) -> Verdict:
        self._copy(name.uid)
        return self._draft.judge(name, after, skipped, ahead)

    def resume(self, uid: str, through: int) -> None:
        self._draft.resume(uid, through)

    def fold(self, name: InboxName, skipped: Collection[int]) -> None:
        self._copy(name.uid)
        self._draft.fold(name.uid, (name.number, *skipped), 0, 0)

    def _copy(self, uid: str) -> None:
        if uid not in self._copied:
            self._copied.add(uid)
            found = self._real.known.get(uid)
            if found is not None:
                self._draft.known[uid] = Remembered(found.through, list(found.above), found.seq, found.time_ms)
