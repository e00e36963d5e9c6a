"""One acquisition: watch, take, and know afterwards what became of each write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from tenure.clock import Clock, Reading
from tenure.coordinator.lock.desk import Grant, LockDesk
from tenure.coordinator.lock.records import LockRecord
from tenure.coordinator.lock.rules import LockRules, Refuse, Sight, Take, Wait, decide, longest_poll, next_poll
from tenure.coordinator.lock.tenancy import Tenancy
from tenure.election.records import Damage
from tenure.entropy import Random
from tenure.errors import LockError, LockNotAnswered, LockTimeout, SchemaTooNew, StoreError, StoreUnavailable
from tenure.store import Unknown

_JITTER = 0.25
_LEAST_PAUSE = 0.005
_LONGEST_BACKOFF = 5.0
_TRIES_AT_ONCE = 3
_REQUESTS_AT_ONCE = 2
"""A look and a write: with no timeout given, an attempt lasts as long as these may take."""


class Patience(Enum):
    """What a contender waits for."""

    AT_ONCE = "at once"
    """For nothing: the lock is free, or it is not."""
    UNTIL_KNOWN = "until known"
    """Until it is known whether the holder is alive: it writes again, or its lease has lapsed."""
    UNTIL_ACQUIRED = "until acquired"


class Contest:
    """It is run once. `tenancy` is there as soon as the lock is held, without anything awaited in between."""

    def __init__(
        self,
        desk: LockDesk,
        name: str,
        rules: LockRules,
        clock: Clock,
        random: Random,
        *,
        patience: Patience,
        timeout: float | None,
        install: Callable[[LockDesk, Grant], Tenancy | None],
    ) -> None:
        self.desk = desk
        self.name = name
        self.tenancy: Tenancy | None = None
        self.task: asyncio.Task[Tenancy | None] | None = None
        self.user_loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._rules = rules
        self._clock = clock
        self._random = random
        self.patience = patience
        self._timeout = timeout
        self._install = install
        self._began = clock.read()
        self._first: str | None = None
        """The write of a holder that the first look showed; empty if there was none."""
        self._holder: LockRecord | None = None
        """Another's, which is not over yet, as last seen in this contest."""
        self._failure: StoreError | None = None
        """Since then the store gave no answer."""
        self._asked: Reading | None = None
        """When the request was sent whose answer is waited for."""
        self._turned_down = 0

    async def run(self, pause: float = 0.0) -> Tenancy | None:
        """The lock, once it is ours. `None`: another holds it, and the contender waits for that no longer.

        Raises `LockTimeout`; `LockNotAnswered` if the store gave no answer in time, and another `StoreError` if it
        refuses; `LockError` if the record is damaged.
        """
        limit = self._timeout
        if limit is None and self.patience is Patience.AT_ONCE:
            limit = _REQUESTS_AT_ONCE * self._rules.request_timeout
        try:
            async with asyncio.timeout(limit):
                if pause:  # which leaves time to ask
                    await self._clock.sleep(pause if limit is None else min(pause, limit / 2))
                return await self._run()
        except TimeoutError:
            reason = self.not_acquired()
            if self.patience is not Patience.UNTIL_ACQUIRED and isinstance(reason, LockTimeout):
                return None
            raise reason from self._failure

    async def _run(self) -> Tenancy | None:
        poll, failures = 0.0, 0
        while True:
            try:
                self._asked = self._clock.read()
                sight = await self.desk.look()
                self._asked = None
                grant = self.desk.won()
                if grant is not None and self._begin(grant):
                    return self.tenancy
                if self._first is None:
                    self._first = _write_of(sight)
                action = decide(self._rules, sight, self.desk.uid, self._clock.read())
                if isinstance(action, Refuse):
                    raise refusal(self.name, action)
                if isinstance(action, Take):
                    self._asked = self._clock.read()
                    answer = await self.desk.take(action)
                    self._asked = None
                    if isinstance(answer, Grant):
                        if self._begin(answer):
                            return self.tenancy
                    elif isinstance(answer, Unknown):
                        raise answer.error
                    # Whatever it says, the record shows what happened; but a store that always says no is not hurried.
                    self._turned_down += 1
                    if self._turned_down > 1:
                        await self._clock.sleep(self._backoff(self._turned_down - 1))
                    if self.patience is not Patience.AT_ONCE or self._turned_down < _TRIES_AT_ONCE:
                        continue
                    return None
            except StoreError as error:
                failures += 1
                self._asked, self._failure = None, error
                if not isinstance(error, StoreUnavailable):
                    raise
                if self.patience is Patience.AT_ONCE and self._is_enough(failures):
                    raise self.not_acquired() from error
                await self._clock.sleep(self._backoff(failures))
                continue
            failures = self._turned_down = 0
            assert isinstance(sight.found, LockRecord)
            self._holder, self._failure = sight.found, None
            if self.patience is Patience.AT_ONCE:
                return None
            if self.patience is Patience.UNTIL_KNOWN and self._first != _write_of(sight):
                return None  # its holder wrote it while we watched: it is alive
            poll = await self._wait(action, poll)

    def _is_enough(self, failures: int) -> bool:
        """A store that takes a whole request's time and says nothing is not asked again."""
        return failures >= _TRIES_AT_ONCE or self._seconds_since(self._began) >= self._rules.request_timeout

    def _seconds_since(self, then: Reading) -> float:
        return self._clock.read().leader_elapsed(then)

    def _begin(self, grant: Grant) -> bool:
        """False: the answer came so late that nothing is left of it."""
        self.tenancy = self._install(self.desk, grant)
        return self.tenancy is not None

    async def _wait(self, action: Wait, poll: float) -> float:
        found = self.desk.watch.sight.found if self.desk.watch.sight is not None else None
        ttl = found.ttl_seconds if isinstance(found, LockRecord) else self._rules.ttl
        poll = next_poll(poll, ttl)
        jittered = poll * self._random.uniform(1 - _JITTER, 1 + _JITTER)
        await self._clock.sleep(max(_LEAST_PAUSE, min(jittered, action.seconds)))
        return poll

    def _backoff(self, failures: int) -> float:
        longest = min(_LONGEST_BACKOFF, max(longest_poll(self._rules.ttl), self._rules.ttl / 3))
        grown = min(longest, longest_poll(self._rules.ttl) * 2.0 ** min(failures - 1, 10))
        return grown * self._random.uniform(1 - _JITTER, 1)

    def not_acquired(self) -> LockTimeout | LockNotAnswered:
        """Why not, as the store last said it."""
        seconds = self._timeout if self._timeout is not None else self._seconds_since(self._began)
        holder = self._holder
        told = f"lock {self.name!r} was not acquired within {seconds:.3g} s: "
        if self.tenancy is not None:
            return LockTimeout(f"{told}it lapsed while the event loop that asked for it stood still")
        if not self._is_answered():
            told += "the store gave no answer"
            if self._failure is not None:
                told += f" ({self._failure})"
            if holder is None:
                return LockNotAnswered(f"{told}, and it is not known who holds it")
            return LockNotAnswered(f"{told}; before, it was held by {holder.owner!r} under token {holder.token}")
        if holder is None:
            return LockTimeout(f"{told}others wrote its record first each time")
        return LockTimeout(
            f"{told}held by {holder.owner!r} under token {holder.token}", owner=holder.owner, token=holder.token
        )

    def _is_answered(self) -> bool:
        """Did the store answer until now, but for a request that is still young?"""
        if self._failure is not None or (self._holder is None and not self._turned_down):
            return False
        return self._asked is None or self._seconds_since(self._asked) < self._rules.request_timeout / 2


def refusal(name: str, action: Refuse) -> LockError | SchemaTooNew:
    """Nobody may have this lock: says why, and what to do."""
    if isinstance(action.why, Damage):
        return LockError(
            f"the record of lock {name!r} cannot be trusted ({action.why.reason}), so nobody gets the lock: "
            "stop every process that uses it, then await DistributedLock.rebuild(above=N), where N is the highest "
            "token that anything has seen"
        )
    return SchemaTooNew(
        f"the record of lock {name!r} has schemaVersion {action.why.schema_version}: update this process"
    )


def _write_of(sight: Sight) -> str:
    return sight.found.holder_write_id if isinstance(sight.found, LockRecord) else ""


def elapsed_pause(released: Reading | None, now: Reading, pause: float, random: Random) -> float:
    """Whoever released a lock a moment ago lets others have a look at it first."""
    if released is None or now.leader_elapsed(released) >= pause:
        return 0.0
    return pause * random.uniform(0.5, 1.0)
