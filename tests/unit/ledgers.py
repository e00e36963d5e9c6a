"""Shared by the tests of the ledger: a tiny machine and its clerk, a leadership, and a store that fails as told."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from tenure.clock import Reading
from tenure.errors import LeadershipLost, StoreUnavailable
from tenure.ledger import InboxName, Item, LedgerConfig, LedgerTerm, LogEntry, Lot, Place, Poison, Situation, Stamp
from tenure.ledger.leader import TooNewLetter
from tenure.store import Entry, NotModified, Outcome, Stored, Unknown, Version
from tenure.store.memory import Contents, MemoryStore

EPOCH_MS = 1_700_000_000_000
QUICK = LedgerConfig(
    trim_delay=10.0, retention=100.0, send_timeout=5.0, give_up_after=15.0, linger=0.001, snapshot_every=1000
)


class Time:
    """A clock that goes on only when somebody sleeps, or the test says so. A sleep takes no real time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []
        self.on_sleep: Callable[[], object] | None = None

    def read(self) -> Reading:
        ns = round(self.seconds * 1e9)
        return Reading(ns, ns, ns, EPOCH_MS * 1_000_000 + ns)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)
        self.seconds += max(0.0, seconds)
        if self.on_sleep is not None:
            self.on_sleep()

    async def now(self) -> float:
        return EPOCH_MS / 1000 + self.seconds


class Lease:
    """A leadership, which ends when the test says so."""

    def __init__(self, epoch: int = 1) -> None:
        self.epoch = epoch
        self.valid = True

    def remaining(self) -> float:
        return 60.0 if self.valid else 0.0

    def ensure(self, seconds: float = 0.0) -> None:
        if not self.valid:
            raise LeadershipLost("the lease has lapsed")


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


Hook = Callable[[str, str], Awaitable[object]]


class Willful(MemoryStore):
    """A memory store whose requests the test can stop, fail, or let land late.

    `before[verb]` is called with the key before a request is served; what it raises is what the caller gets. Fates of
    creates, by key (or `""` for the next one of any key): `lost`, `kept` (it happens, and the reply is lost), `late`.
    """

    def __init__(self, *, clock: Any, contents: Contents | None = None) -> None:
        super().__init__(clock=clock, contents=contents)
        self.before: dict[str, Callable[[str], Awaitable[object]]] = {}
        self.fates: dict[str, list[str]] = {}
        self.late: list[Callable[[], Awaitable[Outcome]]] = []
        self.creates: list[str] = []
        self.requests: list[tuple[str, str]] = []

    def beside(self) -> Willful:
        """Another process's view of the same objects."""
        return Willful(clock=self._clock, contents=self._contents)

    async def _enter(self, verb: str, key: str) -> None:
        self.requests.append((verb, key))
        hook = self.before.get(verb)
        if hook is not None:
            await hook(key)

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        await self._enter("get", key)
        return await super().get(key, unless=unless)

    async def put(self, key: str, body: bytes) -> Version:
        await self._enter("put", key)
        return await super().put(key, body)

    async def create(self, key: str, body: bytes) -> Outcome:
        self.creates.append(key)
        await self._enter("create", key)
        fates = self.fates.get(key) or self.fates.get("")
        fate = fates.pop(0) if fates else "ok"
        if fate == "ok":
            return await super().create(key, body)
        create = super().create
        if fate == "kept":
            await create(key, body)
        elif fate == "late":
            self.late.append(lambda: create(key, body))
        return Unknown(StoreUnavailable(f"create {key!r}: no answer ({fate})"))

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        await self._enter("list", prefix)
        async for entry in super().list(prefix, after=after):
            yield entry

    async def delete(self, *keys: str) -> None:
        await self._enter("delete", keys[0])
        await super().delete(*keys)

    async def land(self) -> list[Outcome]:
        """Everything that was late lands now."""
        late, self.late = self.late, []
        return [await each() for each in late]

    async def keys(self, prefix: str = "") -> list[str]:
        return [entry.key async for entry in MemoryStore.list(self, prefix)]


class Ledger:
    """One ledger in memory: terms that follow each other, and inbox objects by hand."""

    def __init__(self, **changes: Any) -> None:
        self.time = Time()
        self.store = Willful(clock=self.time)
        self.config = msgspec.structs.replace(QUICK, **changes)
        self.epoch = 0
        self._ids = itertools.count(1)
        self.lease = Lease(0)
        self.clerk = NotesClerk()
        self.term: LedgerTerm

    def draw_id(self) -> str:
        return f"id{next(self._ids):06d}"

    async def lead(self, *, store: Willful | None = None, version: int = 1, epoch: int | None = None) -> LedgerTerm:
        """The next leader begins; the one before it is not told."""
        self.epoch = epoch if epoch is not None else self.epoch + 1
        self.lease = Lease(self.epoch)
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
        await MemoryStore.create(self.store, name.key, msgspec.json.encode(batch))
        return name

    async def raw(self, key: str, body: bytes) -> None:
        await MemoryStore.put(self.store, key, body)

    @property
    def texts(self) -> list[str]:
        return self.clerk.machine.texts

    async def inbox(self) -> list[str]:
        return [key.removeprefix("inbox/") for key in await self.store.keys("inbox/")]


async def settle_tasks(turns: int = 20) -> None:
    """Let what runs beside have its turns."""
    for _ in range(turns):
        await asyncio.sleep(0)
