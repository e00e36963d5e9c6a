"""What can be read about a namespace by anybody, without taking part in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from tenure.clock import Clock
from tenure.coordinator.layout import (
    MEMBERS,
    METADATA,
    STATE,
    TERM_NAMES,
    WORKER_NAMES,
    epoch_of,
    is_key_of,
    is_worker_key,
)
from tenure.election.rank import ranked
from tenure.election.records import (
    MAX_LEASE_MS,
    MAX_MEMBERS_BYTES,
    MAX_RECORD_BYTES,
    Damage,
    Member,
    Members,
    Metadata,
    State,
    TooNew,
    Worker,
    decode,
    decode_state,
)
from tenure.errors import NotFound
from tenure.store import Entry, Store, Stored, Strangers, ours
from tenure.store.ours import PASSED

MAX_WORKERS_READ = 5000
MAX_OTHERS = PASSED
"""Objects among the workers that hold no record are named up to so many."""
DEFAULT_WORKER_TIMEOUT = 20.0
"""Where the namespace does not say what it was founded with."""
MAX_VERSION_SHOWN = 10**9
_AT_ONCE = 32


class WorkerStatus(msgspec.Struct, frozen=True):
    """One worker, as its record says. `age_seconds` is by the store's clock, against the newest record there."""

    worker_id: str
    age_seconds: float
    active: bool
    priority: int
    healthy: bool
    is_leader: bool
    eligible: bool = True
    """False: a member that never stands for election."""
    rank: int | None = None
    """Its place in the order of succession, from 1. `None`: it leads, or would not be chosen as it is."""
    started_at: str = ""
    """By its own clock, for people."""
    uid: str = ""


class Status(msgspec.Struct, frozen=True):
    """A namespace as the store shows it."""

    namespace: str
    leader: str | None
    epoch: int
    lease_seconds: float | None
    lease_remaining_seconds: float | None
    """At most: a renewal was seen within this look. `None`: it was not watched for long enough to say."""
    workers: tuple[WorkerStatus, ...]
    successor: str | None
    elected_at: str
    mandate_ends_at: str
    renewals: int
    problem: str | None
    """What is wrong with the lease, if something is."""
    workers_left_out: int = 0
    """Records beyond the `MAX_WORKERS_READ` newest, which were not read."""
    workers_unreadable: int = 0
    """Objects among the worker records that are none."""
    first_unreadable: str | None = None
    """The key of one of them, within the namespace."""
    unclear: bool = False
    """It could not be told who leads."""
    workers_unclear: bool = False
    """It could not be told which workers are alive."""


class WorkersRead(msgspec.Struct, frozen=True):
    """The workers, the leader first, and what could not be told of them."""

    workers: tuple[WorkerStatus, ...] = ()
    left_out: int = 0
    """The oldest, if there are too many."""
    unreadable: tuple[str, ...] = ()
    """Keys, sorted."""


async def read_state(store: Store) -> State | Damage | TooNew | None:
    """The lease; `None` if there is none. Raises `StoreError`."""
    try:
        stored = await store.get(STATE)
    except NotFound:
        return None
    assert isinstance(stored, Stored)
    return decode_state(stored.body)


def too_new(found: TooNew) -> str:
    """What to say of it. The number is whatever somebody wrote, of any length."""
    number = found.schema_version
    return f"written by a newer tenure (schemaVersion {number if number <= MAX_VERSION_SHOWN else 'far above ours'})"


async def read_epoch(store: Store) -> int:
    """The highest epoch that was granted; 0 if none ever was. Raises `StoreError`."""
    state = await read_state(store)
    if isinstance(state, State):
        return state.epoch
    highest = 0
    async for entry in ours(store, TERM_NAMES):
        highest = max(highest, epoch_of(entry.key) or 0)
    return highest


async def read_worker_timeout(store: Store) -> float | None:
    """What the namespace was founded with; `None` if it does not say, or nothing that could be."""
    try:
        stored = await store.get(METADATA)
    except NotFound:
        return None
    assert isinstance(stored, Stored)
    metadata = decode(stored.body, Metadata)
    ms = metadata.timing.get("worker_timeout") if isinstance(metadata, Metadata) else None
    return ms / 1000 if ms is not None and 1 <= ms <= MAX_LEASE_MS else None


async def read_members(store: Store) -> tuple[Member, ...]:
    """The members that the leader last wrote down."""
    try:
        stored = await store.get(MEMBERS)
    except NotFound:
        return ()
    assert isinstance(stored, Stored)
    members = decode(stored.body, Members, MAX_MEMBERS_BYTES)
    return members.members if isinstance(members, Members) else ()


async def read_workers(store: Store, worker_timeout: float, but: str | None = None) -> list[str]:
    """The ids of the workers whose records are fresh, against the freshest. The one with the uid `but` is known to be
    gone: where it was the last, its own record is the freshest."""
    workers = await list_workers(store, worker_timeout)
    return sorted(worker.worker_id for worker in workers if worker.active and worker.uid != but)


async def list_workers(store: Store, worker_timeout: float, leader: str | None = None) -> tuple[WorkerStatus, ...]:
    return (await read_worker_records(store, worker_timeout, leader)).workers


async def read_worker_records(store: Store, worker_timeout: float, leader: str | None = None) -> WorkersRead:
    listed = await list_newest(store, MAX_WORKERS_READ)
    read, unreadable = await read_entries(store, listed.newest)
    # What is no record must not make the records of the living look old.
    newest = max((entry.modified for entry, _ in read), default=None)
    found = [
        WorkerStatus(
            worker_id=worker.worker_id,
            age_seconds=(age := (newest - entry.modified).total_seconds()),
            active=age <= worker_timeout,
            priority=worker.priority,
            healthy=worker.healthy,
            is_leader=worker.worker_id == leader,
            eligible=worker.eligible,
            started_at=worker.registered_at,
            uid=worker.uid,
        )
        for entry, worker in read
        if newest is not None
    ]
    return WorkersRead(with_ranks(found), listed.left_out, tuple(sorted([*unreadable, *listed.others])))


class Newest(msgspec.Struct, frozen=True):
    """What a listing of the workers shows that may hold records, and is worth reading."""

    newest: list[Entry]
    """Newest first."""
    left_out: int
    """Older ones."""
    others: list[str]
    """Keys of what holds none, of some of them."""


async def list_newest(store: Store, most: int) -> Newest:
    """Of the records of workers the newest, however many there are: never many more than `most` are held."""
    kept: list[Entry] = []
    others: list[str] = []
    strangers = Strangers()
    count = 0
    async for entry in ours(store, WORKER_NAMES, strangers=strangers):
        if is_worker_key(entry.key) and is_of_a_size(entry):
            count += 1
            kept.append(entry)
            if len(kept) >= 2 * most:
                kept = _newest(kept, most)
        elif len(others) < MAX_OTHERS:
            others.append(entry.key)
    return Newest(_newest(kept, most), max(0, count - most), [*strangers.met, *others])


def _newest(entries: list[Entry], most: int) -> list[Entry]:
    return sorted(entries, key=lambda entry: entry.modified, reverse=True)[:most]


def is_of_a_size(entry: Entry) -> bool:
    """Whether it may hold the record of a worker."""
    return entry.size <= MAX_RECORD_BYTES


async def read_entries(store: Store, entries: Sequence[Entry]) -> tuple[list[tuple[Entry, Worker]], list[str]]:
    """The records of those entries that hold one, and the keys of those that do not; some are read at once. What was
    removed meanwhile is neither. Raises `StoreError`."""
    found: list[tuple[Entry, Worker]] = []
    unreadable: list[str] = []
    waiting = iter(entries)

    async def reader() -> None:
        for entry in waiting:
            try:
                stored = await store.get(entry.key)
            except NotFound:
                continue
            assert isinstance(stored, Stored)
            worker = decode(stored.body, Worker)
            if isinstance(worker, Worker) and is_key_of(worker.worker_id, entry.key):
                found.append((entry, worker))
            else:
                unreadable.append(entry.key)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(_AT_ONCE, len(entries))):
                group.create_task(reader())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return found, unreadable


def with_ranks(workers: Iterable[WorkerStatus], *, lapsed_uid: str | None = None) -> tuple[WorkerStatus, ...]:
    """Sorted: the leader, then the order of succession, then those that would not be chosen."""
    workers = tuple(workers)
    standing = [
        Member(worker.worker_id, worker.uid, worker.priority, worker.eligible)
        for worker in workers
        if worker.active and worker.healthy and not worker.is_leader
    ]
    places = {member.worker_id: place for place, member in enumerate(ranked(standing, lapsed_uid=lapsed_uid), 1)}
    placed = (msgspec.structs.replace(worker, rank=places.get(worker.worker_id)) for worker in workers)
    return tuple(
        sorted(
            placed,
            key=lambda worker: (
                not worker.is_leader,
                worker.rank if worker.rank is not None else len(workers) + 1,
                not worker.active,
                -worker.priority,
                worker.worker_id,
            ),
        )
    )


async def read_status(store: Store, namespace: str, clock: Clock, *, watch_seconds: float = 0.0) -> Status:
    """Everything that a look from outside can show. `store` is the namespace's.

    Nobody's wall clock is believed: how long the lease is still good for can only be bounded, by the time since it was
    first seen as it is.
    """
    state = await read_state(store)
    first_seen = clock.read()
    if watch_seconds > 0:
        await clock.sleep(watch_seconds)
        again = await read_state(store)
        if isinstance(again, State) and isinstance(state, State) and again.leader_write_id != state.leader_write_id:
            first_seen = clock.read()
        state = again
    timeout = await read_worker_timeout(store) or DEFAULT_WORKER_TIMEOUT
    leader = state.leader_id if isinstance(state, State) else None
    read = await read_worker_records(store, timeout, leader)
    held = isinstance(state, State) and leader is not None
    problem = None
    if isinstance(state, Damage):
        problem = state.reason
    elif isinstance(state, TooNew):
        problem = too_new(state)
    lease = state.lease_seconds if isinstance(state, State) else None
    left = max(0.0, lease - clock.read().follower_elapsed(first_seen)) if held and lease is not None else None
    return Status(
        namespace=namespace,
        leader=leader,
        epoch=state.epoch if isinstance(state, State) else 0,
        lease_seconds=lease,
        lease_remaining_seconds=left,
        workers=read.workers,
        successor=state.successor if isinstance(state, State) else None,
        elected_at=state.elected_at if isinstance(state, State) else "",
        mandate_ends_at=state.mandate_ends_at if isinstance(state, State) else "",
        renewals=state.renewals if isinstance(state, State) else 0,
        problem=problem,
        workers_left_out=read.left_out,
        workers_unreadable=len(read.unreadable),
        first_unreadable=read.unreadable[0] if read.unreadable else None,
        unclear=problem is not None,
    )
