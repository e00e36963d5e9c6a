"""One acquisition: watch, take, and know afterwards what became of each write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.clock import Clock, Reading
from tenure.coordinator.lock.desk import Grant, LockDesk
from tenure.coordinator.lock.records import LockRecord
from tenure.coordinator.lock.rules import LockRules, Refuse, Take, Wait, decide, longest_poll, next_poll
from tenure.coordinator.lock.tenancy import Tenancy
from tenure.election.records import Damage
from tenure.entropy import Random
from tenure.errors import LockError, LockTimeout, SchemaTooNew, StoreError, StoreUnavailable
from tenure.store import Unknown

_JITTER = 0.25
_LEAST_PAUSE = 0.005
_LONGEST_BACKOFF = 5.0
_IMPATIENT_TRIES = 3


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
        patient: bool,
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
        self._patient = patient
        self._timeout = timeout
        self._install = install
        self._failure: StoreError | None = None

    async def run(self, pause: float = 0.0) -> Tenancy | None:
        """The lock, once it is ours. `None`: it is held, and the contender is not patient.

        Raises `LockTimeout`; `LockError` if the record is damaged; `StoreError` if the store refuses.
        """
        try:
            async with asyncio.timeout(self._timeout):
                if pause:
                    await self._clock.sleep(pause)
                return await self._run()
        except TimeoutError:
            raise LockTimeout(self._why_not()) from self._failure

    async def _run(self) -> Tenancy | None:
        poll, failures, turned_down = 0.0, 0, 0
        while True:
            try:
                sight = await self.desk.look()
                grant = self.desk.won()
                if grant is not None and self._begin(grant):
                    return self.tenancy
                action = decide(self._rules, sight, self.desk.uid, self._clock.read())
                if isinstance(action, Refuse):
                    raise self._refusal(action)
                if isinstance(action, Take):
                    answer = await self.desk.take(action)
                    if isinstance(answer, Grant):
                        if self._begin(answer):
                            return self.tenancy
                    elif isinstance(answer, Unknown):
                        raise answer.error
                    # Whatever it says, the record shows what happened; but a store that always says no is not hurried.
                    turned_down += 1
                    if turned_down > 1:
                        await self._clock.sleep(self._backoff(turned_down - 1))
                    if self._patient or turned_down < _IMPATIENT_TRIES:
                        continue
                    return None
            except StoreError as error:
                failures += 1
                self._failure = error
                if not isinstance(error, StoreUnavailable) or (not self._patient and failures >= _IMPATIENT_TRIES):
                    raise
                await self._clock.sleep(self._backoff(failures))
                continue
            failures = turned_down = 0
            if not self._patient:
                return None
            poll = await self._wait(action, poll)

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

    def _refusal(self, action: Refuse) -> LockError | SchemaTooNew:
        if isinstance(action.why, Damage):
            return LockError(
                f"the record of lock {self.name!r} cannot be trusted ({action.why.reason}), so nobody gets the lock: "
                "stop every process that uses it, then await DistributedLock.rebuild(above=N), where N is the highest "
                "token that anything has seen"
            )
        return SchemaTooNew(
            f"the record of lock {self.name!r} has schemaVersion {action.why.schema_version}: update this process"
        )

    def _why_not(self) -> str:
        sight = self.desk.watch.sight
        found = sight.found if sight is not None else None
        holder = f"held by {found.owner!r} under token {found.token}" if isinstance(found, LockRecord) else "not read"
        if self._failure is not None:
            holder += f"; the store said: {self._failure}"
        return f"lock {self.name!r} was not to be had within {self._timeout:g} s: last seen {holder}"


def elapsed_pause(released: Reading | None, now: Reading, pause: float, random: Random) -> float:
    """Whoever released a lock a moment ago lets others have a look at it first."""
    if released is None or now.leader_elapsed(released) >= pause:
        return 0.0
    return pause * random.uniform(0.5, 1.0)
