"""Races between processes: many writers, one moment, and exactly one may win.

A store that compares and then writes without holding anything passes every test that asks politely. It is caught here:
contenders in several processes send the same conditional write at the same moment, and what they were told is judged
against what is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import sys
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.entropy import NewId, new_id
from tenure.errors import NotFound, StoreError, StoreUnavailable
from tenure.store.contender import Answer, Challenge, Entrant
from tenure.store.opening import connect
from tenure.store.outcome import Stored, Unknown
from tenure.store.protocol import Store
from tenure.store.providers import SECONDS_BETWEEN_WRITES
from tenure.store.scratch import RACE_FOLDER, scratch_body, scratch_ids
from tenure.store.settle import Attempt, Remembers, commit
from tenure.store.url import StoreUrl, redact

_START_SECONDS = 30.0
_ROUND_SECONDS = 30.0
_LOOKS = 3  # times that the outcome of a round is asked for


class RaceKind(enum.Enum):
    CREATE = "create"
    REPLACE = "replace"


class RaceReport(msgspec.Struct, frozen=True):
    kind: str
    rounds: int
    contenders: int
    processes: int
    winners: int
    """Rounds with exactly one winner, whose write is what is stored."""
    unknown: int
    """Answers that decided nothing; each was judged by what is stored."""
    undecided: int
    """Rounds in which nobody won and some got no answer."""
    violations: tuple[str, ...] = ()


class RoundResult(msgspec.Struct, frozen=True):
    """What the contenders of one round were told, and what is stored afterwards."""

    applied: tuple[str, ...]
    unknown: tuple[str, ...]
    stored: str | None


async def race(
    url: StoreUrl,
    kind: RaceKind,
    *,
    rounds: int = 25,
    processes: int = 4,
    contenders_each: int = 4,
    dialect: dict[str, object] | None = None,
    on_round: Callable[[int], None] = lambda number: None,
    clock: Clock = SYSTEM_CLOCK,
    draw_id: NewId = new_id,
    store: Store | None = None,
) -> RaceReport:
    """Let `processes` × `contenders_each` writers race, `rounds` times or until a rule is broken.

    Its objects are removed.
    """
    folder = f"{RACE_FOLDER}{draw_id()}/"
    contenders = processes * contenders_each
    pause = SECONDS_BETWEEN_WRITES.get(url.scheme, 0.0)
    referee = store if store is not None else await connect(url)
    keys: list[str] = []
    results: list[RoundResult] = []
    try:
        async with _contenders(url, processes, contenders_each, dialect) as children:
            for number in range(rounds):
                key = f"{folder}{number if kind is RaceKind.CREATE else 'lease'}"
                if key not in keys:
                    keys.append(key)
                if kind is RaceKind.REPLACE and number == 0:
                    await _lay_down(referee, key, draw_id)
                    await clock.sleep(pause)
                results.append(await _round(referee, children, kind, key))
                on_round(number + 1)
                if judge(kind.value, results, contenders, processes).violations:
                    break  # one is enough
                if kind is RaceKind.REPLACE:
                    await clock.sleep(pause)
    finally:
        await clock.sleep(pause)
        with contextlib.suppress(StoreError):
            await referee.delete(*keys)
        if store is None:
            await referee.aclose()
    return judge(kind.value, results, contenders, processes)


def judge(kind: str, results: Sequence[RoundResult], contenders: int, processes: int) -> RaceReport:
    """Count the winners of each round: told so, and stored."""
    violations: list[str] = []
    winners = undecided = 0
    late = False  # on one key, a write of the round before may still have been on its way, and have won this one
    for number, result in enumerate(results, 1):
        could_be_late, late = late, False
        if len(result.applied) > 1:
            violations.append(
                f"{kind} race {number}: {len(result.applied)} of {contenders} writers were told that they won"
            )
        elif result.applied:
            if result.stored == result.applied[0]:
                winners += 1
            else:
                violations.append(f"{kind} race {number}: the winner's write is not what is stored")
        elif result.stored in result.unknown:
            winners += 1
        elif result.unknown or could_be_late:
            undecided += 1
            late = kind == RaceKind.REPLACE.value
        else:
            violations.append(f"{kind} race {number}: nobody won, although the condition held")
    return RaceReport(
        kind=kind,
        rounds=len(results),
        contenders=contenders,
        processes=processes,
        winners=winners,
        unknown=sum(len(result.unknown) for result in results),
        undecided=undecided,
        violations=tuple(violations),
    )


async def _round(referee: Store, children: Sequence[_Child], kind: RaceKind, key: str) -> RoundResult:
    version = (await _look(referee, key)).version if kind is RaceKind.REPLACE else None
    challenge = Challenge(key=key, version=version)
    answers = [
        answer for answers in await asyncio.gather(*(child.ask(challenge) for child in children)) for answer in answers
    ]
    try:
        found = await _look(referee, key)
        stored = next(iter(scratch_ids(found.body)), None)
    except NotFound:
        stored = None
    return RoundResult(
        applied=tuple(answer.write_id for answer in answers if answer.outcome == "applied"),
        unknown=tuple(answer.write_id for answer in answers if answer.outcome == "unknown"),
        stored=stored,
    )


async def _look(referee: Store, key: str) -> Stored:
    """Read what a round left behind; one silence of the store is not the end of a race."""
    for attempt in range(1, _LOOKS + 1):
        try:
            found = await referee.get(key)
        except StoreUnavailable:
            if attempt == _LOOKS:
                raise
        else:
            assert isinstance(found, Stored)
            return found
    raise AssertionError("unreachable")


async def _lay_down(referee: Store, key: str, draw_id: NewId) -> None:
    """Make the object that is to be replaced."""
    settled = await commit(
        referee,
        Attempt(key, None),
        scratch_body,
        write_ids=scratch_ids,
        remembers=Remembers.EVERY_WRITE,
        draw_id=draw_id,
    )
    if isinstance(settled.outcome, Unknown):
        raise settled.outcome.error


class _Child:
    """A process that holds a few contenders and speaks JSON lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def start(self, entrant: Entrant) -> None:
        await self._tell(entrant)
        async with asyncio.timeout(_START_SECONDS):
            ready = await self._hear()
        if ready.startswith(b'{"error"'):
            raise StoreUnavailable(str(msgspec.json.decode(ready)["error"]))

    async def ask(self, challenge: Challenge) -> list[Answer]:
        await self._tell(challenge)
        async with asyncio.timeout(_ROUND_SECONDS):
            return msgspec.json.decode(await self._hear(), type=list[Answer])

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def _tell(self, message: msgspec.Struct) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(message) + b"\n")
        with contextlib.suppress(ConnectionError):  # its last words, read next, say why
            await self._process.stdin.drain()

    async def _hear(self) -> bytes:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            said = (await self._process.stderr.read()).decode(errors="replace").strip().splitlines()
            last_words = redact(said[-1])[:200] if said else "it said nothing"
            raise StoreUnavailable(f"a racing process ended before the race did ({last_words})")
        return line


@contextlib.asynccontextmanager
async def _contenders(
    url: StoreUrl, processes: int, contenders_each: int, dialect: dict[str, object] | None
) -> AsyncIterator[Sequence[_Child]]:
    entrant = Entrant(url=url.text(), contenders=contenders_each, dialect=dialect or {})
    children: list[_Child] = []
    try:
        for _ in range(processes):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tenure.store.contender"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            children.append(_Child(process))
        try:
            await asyncio.gather(*(child.start(entrant) for child in children))
            yield children
        except TimeoutError:
            raise StoreUnavailable("a racing process did not answer in time") from None
    finally:
        await asyncio.gather(*(child.stop() for child in children))
