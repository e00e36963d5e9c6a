"""Shared by the tests of the ledger: a tiny machine and its clerk, a leadership."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.ledger import InboxName, Item, LedgerConfig, LedgerTerm, LogEntry, Lot, Place, Poison, Situation, Stamp
from tenure.ledger.leader import TooNewLetter
from tests.support.clock import ScriptedClock
from tests.support.lease import ScriptedLease
from tests.support.store import ScriptedStore

EPOCH_MS = 1_700_000_000_000
QUICK = LedgerConfig(
    trim_delay=10.0, retention=100.0, send_timeout=5.0, give_up_after=15.0, linger=0.001, snapshot_every=1000
)


class _Saved(msgspec.Struct):
    """What a `Notes` machine has seen: `[seq, text]`, and the terms."""

    notes: list[tuple[int, str]] = []
    terms: list[int] = []


class Notes:
    """The smallest machine: a list of the payloads that were applied, in order."""

    def __init__(self, version: int = 1) -> None:
        self.version = version
        self.notes: list[tuple[int, str]] = []
        self.terms: list[int] = []

    def apply(self, events: bytes, stamp: Stamp) -> None:
        for text in msgspec.json.decode(events, type=list[str]):
            self.add(text, stamp.seq)

    def add(self, text: str, seq: int) -> None:
        if text == "unheard of":
            raise ValueError("a machine that is not total")
        self.notes.append((seq, text))

    def began(self, stamp: Stamp) -> None:
        self.terms.append(stamp.epoch)

    def snapshot(self) -> list[bytes]:
        return [msgspec.json.encode(_Saved(self.notes, self.terms))]

    def restore(self, chunks: Sequence[bytes]) -> None:
        found = msgspec.json.decode(chunks[0], type=_Saved)
        self.notes, self.terms = found.notes, found.terms

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.notes]


class Batch(msgspec.Struct):
    after: int
    texts: list[str]
    skipped: list[int] = []
    ahead: list[int] = []


def compose(name: InboxName, place: Place, lots: Sequence[Lot]) -> bytes:
    texts = [lot.payload for lot in lots]
    return msgspec.json.encode(Batch(place.after, texts, list(place.skipped), list(place.ahead)))


class NotesClerk:
    """Folds batches of texts into `Notes`."""

    def __init__(self, machine: Notes | None = None) -> None:
        self.machine = machine if machine is not None else Notes()
        self.situations: list[Situation] = []
        self.superfluous: list[str] = []
        self.committed_entries: list[LogEntry] = []
        self.prepare_errors: list[Exception] = []
        self.prepared: list[str] = []

    def read(self, name: InboxName, body: bytes) -> tuple[Place, Any]:
        if body.startswith(b"newer"):
            raise TooNewLetter("it is of schema 2")
        try:
            batch = msgspec.json.decode(body, type=Batch)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Poison(f"not a batch: {error}") from None
        return Place(batch.after, batch.skipped, batch.ahead), batch.texts

    async def prepare(self, items: Sequence[Item]) -> None:
        if self.prepare_errors:
            raise self.prepare_errors.pop(0)
        self.prepared += [item.name.key for item in items]

    def decide(self, items: Sequence[Item], situation: Situation) -> bytes | None:
        self.situations.append(situation)
        texts = [text for item in items for text in item.content]
        for text in texts:
            self.machine.add(text, situation.stamp.seq)
        return msgspec.json.encode(texts) if texts else None

    def committed(self, entry: LogEntry, items: Sequence[Item]) -> Sequence[str]:
        self.committed_entries.append(entry)
        superfluous, self.superfluous = self.superfluous, []
        return superfluous


class Ledger:
    """One ledger in memory: terms that follow each other, and inbox objects by hand."""

    def __init__(self, **changes: Any) -> None:
        self.time = ScriptedClock()
        self.store = ScriptedStore(clock=self.time)
        self.config = msgspec.structs.replace(QUICK, **changes)
        self.epoch = 0
        self._ids = itertools.count(1)
        self.lease = ScriptedLease(0)
        self.clerk = NotesClerk()
        self.term: LedgerTerm

    def draw_id(self) -> str:
        return f"id{next(self._ids):06d}"

    async def lead(
        self, *, store: ScriptedStore | None = None, version: int = 1, epoch: int | None = None
    ) -> LedgerTerm:
        """The next leader begins; the one before it is not told."""
        self.epoch = epoch if epoch is not None else self.epoch + 1
        self.lease = ScriptedLease(self.epoch)
        self.clerk = NotesClerk(Notes(version))
        self.term = LedgerTerm(
            store if store is not None else self.store,
            self.lease,
            self.clerk,
            config=self.config,
            clock=self.time,
            draw_id=self.draw_id,
            now=self.time.now,
        )
        await self.term.begin()
        return self.term

    async def tick(self, times: int = 1) -> None:
        for _ in range(times):
            await self.term.tick()
            await settle_tasks()

    async def sweep(self) -> None:
        """Tick until the whole inbox was looked through once."""
        for _ in range(1000):
            tick = await self.term.tick()
            await settle_tasks()
            if not tick.more:
                return
        raise AssertionError("the sweep has no end")

    async def put(
        self, uid: str, number: int, *texts: str, after: int | None = None, known: int = 0, **fields: Any
    ) -> InboxName:
        """An inbox object, as a producer would have written it; its text is its name."""
        name = InboxName(known, uid, number)
        batch = Batch(number - 1 if after is None else after, list(texts) or [f"{uid}{number}"], **fields)
        await self.store.inner.create(name.key, msgspec.json.encode(batch))
        return name

    async def raw(self, key: str, body: bytes) -> None:
        await self.store.inner.put(key, body)

    @property
    def texts(self) -> list[str]:
        return self.clerk.machine.texts

    async def inbox(self) -> list[str]:
        return [key.removeprefix("inbox/") for key in await self.store.keys("inbox/")]


async def settle_tasks(turns: int = 20) -> None:
    """Let what runs beside have its turns."""
    for _ in range(turns):
        await asyncio.sleep(0)
