"""The records of polling in the bucket, and the one way to change them.

    plugin=poll/name={name}/jobs/{schedule}-{number}.json     created by the leader, changed by compare-and-swap
                           /results/schedule={name}.json      by the leader
                           /agents/worker={id}.json           who executes, written by that worker
                           /inbox/worker={uid}/{job}.{n}      "job is yours": created by the leader, empty

An inbox object is a hint and decides nothing: the job does. So one that is lost, comes twice or comes late does no
harm. Its name holds the attempt, and is never used again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated

import msgspec

from tenure.clock import Clock
from tenure.coordinator.layout import check_name
from tenure.election.records import Damage, Id, Name, Record, TooNew, decode, encode
from tenure.entropy import NewId
from tenure.errors import InvalidKey, NotFound, StoreError, WriteUnknown
from tenure.plugins.poll.job import Event, Job, Refusal, advance, decode_job, parse_job_id, shows
from tenure.plugins.poll.schedule import MAX_PARTITION_CHARACTERS
from tenure.plugins.poll.summary import MAX_SUMMARY_BYTES, Summary, decode_summary
from tenure.store import (
    Applied,
    Attempt,
    Entry,
    Names,
    Outcome,
    Prefixed,
    Store,
    Stored,
    Version,
    commit,
    ours,
)
from tenure.store import decode_name as decode_segment
from tenure.store import encode_name as encode_segment
from tenure.store.own import create_own
from tenure.store.protocol import StoreInfo

MAX_PLUGIN_NAME = 64
JOBS = "jobs/"
RESULTS = "results/"
AGENTS = "agents/"
INBOX = "inbox/"
MAX_LISTED = 100_000
"""Objects of one folder that are looked at; more cannot be ours."""
MAX_AGENT_BYTES = 4096
_NAMES = {
    RESULTS: Names(RESULTS, f"{RESULTS}schedule=", f"{RESULTS}schedule>"),
    AGENTS: Names(AGENTS, f"{AGENTS}worker=", f"{AGENTS}worker>"),
    INBOX: Names(INBOX, f"{INBOX}worker=", f"{INBOX}worker>"),
}
CHANGE_TRIES = 5
MAX_IN_ONE_DELETE = 500


class Agent(Record, frozen=True, kw_only=True, rename="camel"):
    """A worker that executes checks: `agents/worker={id}.json`.

    It is deleted without a condition when its worker leaves, although its name is used again: a delete that lands late
    hides a worker until that looks after its record, a few seconds later, and does no other harm.
    """

    worker_id: Name
    uid: Id
    """This process start."""
    ordinal: Annotated[int, msgspec.Meta(ge=1, le=2**62)]
    """One more than that of the process which had this id before: the newer start wins."""
    partition: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PARTITION_CHARACTERS)] | None = None
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1


class Held(msgspec.Struct, frozen=True):
    """A job, as it was stored under this version."""

    job: Job
    version: Version


class Broken(msgspec.Struct, frozen=True):
    """There is something under the key, and it is no job that we can read."""

    reason: str
    version: Version
    newer: bool
    """Written by a newer tenure: not ours to touch."""


class PollBook:
    """The records of the polling called `name`. `ensure` is asked before every write, and raises if it must not be."""

    def __init__(
        self, store: Store, name: str, *, clock: Clock, draw_id: NewId, ensure: Callable[[], None] = lambda: None
    ) -> None:
        self._store: Store = Ensured(Prefixed(store, folder_of(name)), ensure)
        self._clock = clock
        self._draw_id = draw_id

    # Jobs

    async def look(self, job_id: str, unless: Held | None = None) -> Held | Broken | None:
        """The job, or `None` if there is none. With `unless`: that one again if it has not changed."""
        try:
            stored = await self._store.get(_job_key(job_id), unless=unless.version if unless is not None else None)
        except NotFound:
            return None
        if not isinstance(stored, Stored):
            return unless
        return _held(job_id, stored)

    async def open(self, job: Job) -> Held | Broken | None:
        """Create it, and give what is there then: another may have been first. `None`: it is not there, or not yet."""
        settled = await commit(
            self._store,
            Attempt(_job_key(job.id), None),
            lambda write_id: encode(msgspec.structs.replace(job, write_id=write_id)),
            write_ids=_write_ids,
            draw_id=self._draw_id,
            clock=self._clock,
        )
        if isinstance(settled.outcome, Applied) and settled.write_id is not None:
            return Held(msgspec.structs.replace(job, write_id=settled.write_id), settled.outcome.version)
        return await self.look(job.id)

    async def change(self, held: Held, event: Event) -> Held | Refusal:
        """Have `event` happen to the job: by compare-and-swap, again and again while others change it meanwhile.

        `Refusal`: it has not happened and will not. Raises `WriteUnknown`, or another `StoreError`, if the store did
        not say; asking again with the same event finds out.
        """
        job_id = held.job.id
        for _ in range(CHANGE_TRIES):
            if shows(held.job, event):
                return held
            after = advance(held.job, event)
            if isinstance(after, Refusal):
                return after
            outcome, write_id = await self._replace(_job_key(job_id), after, held.version)
            if isinstance(outcome, Applied):
                return Held(msgspec.structs.replace(after, write_id=write_id), outcome.version)
            # Rejected or unknown: the record itself tells, since each change leaves its mark on it.
            looked = await self.look(job_id)
            if looked is None:
                return Refusal("gone")
            if isinstance(looked, Broken):
                return Refusal("unreadable")
            held = looked
        raise WriteUnknown(f"job {job_id}: {type(event).__name__} was not settled in {CHANGE_TRIES} tries")

    async def mend(self, broken: Broken, job: Job) -> bool:
        """Put `job` in the place of what cannot be read."""
        outcome, _ = await self._replace(_job_key(job.id), job, broken.version)
        return isinstance(outcome, Applied)

    async def job_ids(self) -> list[str]:
        """In the order of schedule and number."""
        return [
            name
            async for entry in self._listed(JOBS)
            if parse_job_id(name := entry.key.removeprefix(JOBS).removesuffix(".json")) and _job_key(name) == entry.key
        ]

    async def delete_jobs(self, *job_ids: str) -> None:
        """Only of ended ones: their names are never used again."""
        await self._delete([_job_key(job_id) for job_id in job_ids])

    # Results

    async def summary(self, schedule: str) -> tuple[Summary | Damage | TooNew, Version | None]:
        """An empty one, without a version, if there is none."""
        try:
            stored = await self._store.get(_summary_key(schedule))
        except NotFound:
            return Summary(write_id="none", schedule=schedule), None
        assert isinstance(stored, Stored)
        return decode_summary(schedule, stored.body), stored.version

    async def write_summary(self, summary: Summary, expected: Version | None) -> Version | None:
        """`None`: it was not written, or it is not known: read again."""
        key = _summary_key(summary.schedule)
        assert len(encode(summary)) <= MAX_SUMMARY_BYTES
        outcome, _ = await self._replace(key, summary, expected)
        return outcome.version if isinstance(outcome, Applied) else None

    async def schedules_with_results(self) -> list[str]:
        names = []
        async for entry in self._listed(RESULTS):
            name = entry.key.removeprefix(RESULTS).removeprefix("schedule=").removesuffix(".json")
            if _is_named(name) and _summary_key(name) == entry.key:
                names.append(name)
        return names

    # Agents

    async def agent(self, worker_id: str) -> tuple[Agent | Damage | TooNew | None, Version | None]:
        try:
            stored = await self._store.get(_agent_key(worker_id))
        except NotFound:
            return None, None
        assert isinstance(stored, Stored)
        return decode(stored.body, Agent, MAX_AGENT_BYTES), stored.version

    async def write_agent(self, agent: Agent, expected: Version | None) -> Version | None:
        outcome, _ = await self._replace(_agent_key(agent.worker_id), agent, expected)
        return outcome.version if isinstance(outcome, Applied) else None

    async def agents(self, known: dict[str, tuple[Version, Agent]]) -> dict[str, tuple[Version, Agent]]:
        """By worker id. What has the version that is `known` is not read again."""
        found: dict[str, tuple[Version, Agent]] = {}
        async for entry in self._listed(AGENTS):
            worker_id = _worker_of(entry.key)
            if worker_id is None or entry.size > MAX_AGENT_BYTES:
                continue
            before = known.get(worker_id)
            if before is not None and before[0].matches(entry.version):
                found[worker_id] = before
                continue
            agent, version = await self.agent(worker_id)
            if isinstance(agent, Agent) and version is not None and agent.worker_id == worker_id:
                found[worker_id] = (version, agent)
        return found

    async def delete_agents(self, *worker_ids: str) -> None:
        await self._delete([_agent_key(worker_id) for worker_id in worker_ids])

    # Inboxes

    async def tell(self, uid: str, job_id: str, attempt: int) -> bool:
        """Put a note into a worker's inbox. False: it is not known whether it is there."""
        return isinstance(await create_own(self._store, _note_key(uid, job_id, attempt), b""), Applied)

    async def notes(self, uid: str, limit: int) -> list[tuple[str, int]]:
        """(job, attempt) for one worker, at most `limit`."""
        prefix = _inbox_of(uid)
        found: list[tuple[str, int]] = []
        async for entry in self._listed(prefix):
            note = _parse_note(entry.key.removeprefix(prefix))
            if note is not None:
                found.append(note)
            if len(found) >= limit:
                break
        return found

    async def all_notes(self) -> list[tuple[str, str, int]]:
        """(uid, job, attempt) for every worker."""
        found: list[tuple[str, str, int]] = []
        async for entry in self._listed(INBOX):
            folder, _, name = entry.key.removeprefix(INBOX).partition("/")
            note = _parse_note(name)
            try:
                uid = decode_segment(folder.removeprefix("worker="))
            except InvalidKey:
                continue
            if note is not None and _note_key(uid, *note) == entry.key:
                found.append((uid, *note))
        return found

    async def drop_notes(self, *notes: tuple[str, str, int]) -> None:
        await self._delete([_note_key(*note) for note in notes])

    # Inside

    async def _replace(self, key: str, record: Record, expected: Version | None) -> tuple[Outcome, str]:
        settled = await commit(
            self._store,
            Attempt(key, expected),
            lambda write_id: encode(msgspec.structs.replace(record, write_id=write_id)),
            write_ids=_write_ids,
            draw_id=self._draw_id,
            clock=self._clock,
        )
        return settled.outcome, settled.write_id or record.write_id

    async def _listed(self, prefix: str) -> AsyncIterator[Entry]:
        count = 0
        async for entry in ours(self._store, _NAMES.get(prefix) or Names(prefix, prefix[:-1], prefix + "~")):
            count += 1
            if count > MAX_LISTED:
                raise StoreError(f"over {MAX_LISTED:,} objects lie under {prefix!r}: something else writes there")
            yield entry

    async def _delete(self, keys: list[str]) -> None:
        for start in range(0, len(keys), MAX_IN_ONE_DELETE):
            await self._store.delete(*keys[start : start + MAX_IN_ONE_DELETE])


class Ensured:
    """A store that asks before every write whether it may still be made: also before the copies of a settled write."""

    def __init__(self, inner: Store, ensure: Callable[[], None]) -> None:
        self._inner = inner
        self._ensure = ensure
        self.get = inner.get
        self.list = inner.list
        self.aclose = inner.aclose

    @property
    def info(self) -> StoreInfo:
        return self._inner.info

    async def put(self, key: str, body: bytes) -> Version:
        self._ensure()
        return await self._inner.put(key, body)

    async def create(self, key: str, body: bytes) -> Outcome:
        self._ensure()
        return await self._inner.create(key, body)

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        self._ensure()
        return await self._inner.replace(key, body, expected)

    async def delete(self, *keys: str) -> None:
        self._ensure()
        await self._inner.delete(*keys)

    async def discard(self, key: str, expected: Version) -> Outcome:
        self._ensure()
        return await self._inner.discard(key, expected)


def folder_of(name: str) -> str:
    check_name("name", name, MAX_PLUGIN_NAME)
    return f"plugin=poll/name={encode_segment(name)}/"


def _job_key(job_id: str) -> str:
    return f"{JOBS}{job_id}.json"


def _summary_key(schedule: str) -> str:
    return f"{RESULTS}schedule={encode_segment(schedule)}.json"


def _agent_key(worker_id: str) -> str:
    return f"{AGENTS}worker={encode_segment(worker_id)}.json"


def _inbox_of(uid: str) -> str:
    return f"{INBOX}worker={encode_segment(uid)}/"


def _note_key(uid: str, job_id: str, attempt: int) -> str:
    return f"{_inbox_of(uid)}{job_id}.{attempt}"


def _parse_note(name: str) -> tuple[str, int] | None:
    job_id, _, attempt = name.rpartition(".")
    if parse_job_id(job_id) is None or not attempt.isascii() or not attempt.isdigit() or len(attempt) > 4:
        return None
    return job_id, int(attempt)


def _worker_of(key: str) -> str | None:
    try:
        worker_id = decode_segment(key.removeprefix(AGENTS).removeprefix("worker=").removesuffix(".json"))
        return worker_id if _agent_key(worker_id) == key else None
    except InvalidKey:
        return None


def _is_named(schedule: str) -> bool:
    return parse_job_id(f"{schedule}-{1:010d}") is not None


def _held(job_id: str, stored: Stored) -> Held | Broken:
    job = decode_job(job_id, stored.body)
    if isinstance(job, Job):
        return Held(job, stored.version)
    if isinstance(job, TooNew):
        return Broken(f"written by a newer tenure (schemaVersion {job.schema_version})", stored.version, newer=True)
    return Broken(job.reason, stored.version, newer=False)


class _Mark(msgspec.Struct, rename="camel"):
    write_id: str = ""


def _write_ids(body: bytes) -> tuple[str, ...]:
    try:
        return (msgspec.json.decode(body, type=_Mark).write_id,)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ()
