"""`DistributedLock`: what users touch."""

from __future__ import annotations

import asyncio
import math
import os
import platform
from datetime import timedelta
from types import TracebackType
from typing import Any

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.config import Hosting
from tenure.coordinator.layout import check_name
from tenure.coordinator.lock.contest import Contest, Patience, refusal
from tenure.coordinator.lock.desk import Grant, LockDesk
from tenure.coordinator.lock.held import Held
from tenure.coordinator.lock.keeper import LockKeeper
from tenure.coordinator.lock.records import (
    MAX_OWNER_CHARACTERS,
    MAX_TOKEN,
    MAX_TTL_SECONDS,
    LockRecord,
    decode_lock,
    lock_key,
)
from tenure.coordinator.lock.rules import LockRules, Refuse, Wait, decide
from tenure.coordinator.lock.scope import LockScope
from tenure.coordinator.lock.tenancy import Tenancy
from tenure.election.holding import Holding
from tenure.election.records import TooNew, encode
from tenure.entropy import NewId, Random, new_id
from tenure.errors import ConfigError, LockError, LockLost, NotFound, SchemaTooNew
from tenure.store import Applied, Store, Stored, Unknown
from tenure.store.limited import TimeLimited

DEFAULT_TTL = 15.0
MIN_TTL_SECONDS = 0.5
_GCS_SHORTEST_RENEWAL = 2.0
_DAY = 86_400.0


class LockHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lock, as its record in the bucket says."""

    owner: str
    token: int
    ttl: float
    """Seconds for which it is held without being renewed."""


class DistributedLock:
    """A lock that at most one process holds, by name, on a bucket. Made by `Database.lock()`.

        async with db.lock("nightly-report", ttl=30) as held:
            await write_report(fencing_token=held.token)

    `ttl`: for how long it is held without being renewed, in seconds; it is renewed by itself, every third of it. Longer
    outlives longer outages of the store; shorter is passed on sooner after its holder died. `owner` is what others are
    told of who holds it. `timeout` is for `async with`: as in `acquire()`; `None` waits for ever.

    The object may be shared: each `acquire()` is a contender of its own, and never do two of them hold the lock. It is
    not reentrant: a task inside `async with` that acquires the same lock again gets a `LockError` at once.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        ttl: float | timedelta = DEFAULT_TTL,
        timeout: float | timedelta | None = None,
        owner: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
        draw_id: NewId = new_id,
        hosting: Hosting = Hosting.THREAD,
        keeper: LockKeeper | None = None,
    ) -> None:
        self._key = lock_key(name)
        self.name = name
        self.ttl = _ttl(ttl)
        _check_provider(self.ttl, store.info.provider)
        self.owner = _owner(owner)
        self._timeout = _timeout(timeout)
        self._rules = LockRules(round(self.ttl * 1000) / 1000)  # as the record says it
        self._store = TimeLimited(store, self._rules.request_timeout)
        self._clock = clock
        self._random = random if random is not None else Random()
        self._draw_id = draw_id
        self._keeper = keeper if keeper is not None else LockKeeper(clock=clock, hosting=hosting)
        self._keeper_is_ours = keeper is None
        self._scopes: dict[object, LockScope] = {}

    def __repr__(self) -> str:
        return f"<DistributedLock {self.name!r}, ttl {self.ttl:g} s>"

    async def acquire(self, timeout: float | timedelta | None = None) -> Held:
        """Wait until the lock is ours. It is then renewed until it is released, lost, or the process ends.

        After `timeout` seconds it raises `LockTimeout` if another holds it, and `LockNotAnswered` if the store gave no
        answer; `LockError` if its record is damaged. If the call is cancelled, what it may have sent is taken back.
        """
        self._check_not_inside()
        seconds, began = _timeout(timeout), self._clock.read()
        while True:
            left = None if seconds is None else max(0.0, seconds - self._clock.read().leader_elapsed(began))
            contest = self._contest(Patience.AT_ONCE if left == 0 else Patience.UNTIL_ACQUIRED, left or None)
            held = await self._contend(contest)
            if held is not None:
                return held
            if left == 0:
                raise contest.not_acquired()

    async def try_acquire(self, timeout: float | timedelta = 0.0) -> Held | None:
        """The lock, if nobody holds it; `None` if somebody does. Raises `LockNotAnswered` if the store did not say.

        Whether the holder of a lock that was not released is alive shows only with time. Without a `timeout` it is
        taken to be, so that a new process never takes over from one that died. With one, the record is watched for so
        long at most: `None` as soon as its holder renews it; the lock if it is released, or if its lease lapses, which
        is `ttl` x 1.01 + 0.1 s after the first look. Give `timeout=1.1 * ttl + 1`, with the `ttl` that its holders use.

        What was watched counts for the next call of the same `Database` (of at most 10,000 locks), so that calls
        without a timeout, at least one in a ttl, find a dead holder too.
        """
        wait = _timeout(timeout)
        if wait is None:
            raise ConfigError("timeout is None: give seconds or a timedelta; acquire() waits for ever")
        return await self._contend(self._contest(Patience.UNTIL_KNOWN if wait else Patience.AT_ONCE, wait or None))

    async def holder(self) -> LockHolder | None:
        """Who holds it, as the store shows it now (one request); `None` if nobody does. It may be over any time.

        A holder that died is named until its lease has lapsed before the eyes of this `Database`: as in
        `try_acquire()`, it has to be asked at least once in a ttl for that. Raises `StoreError` if the store does not
        say, and `LockError` if the record is damaged.
        """
        self._keeper.check_process()
        desk = self._desk("")
        sight = await desk.look()
        self._keeper.keep_watch(self._key, desk.watch)
        action = decide(self._rules, sight, desk.uid, self._clock.read())
        if isinstance(action, Refuse):
            raise refusal(self.name, action)
        record = sight.found
        if not isinstance(action, Wait) or not isinstance(record, LockRecord):
            return None
        return LockHolder(owner=record.owner, token=record.token, ttl=record.ttl_seconds)

    async def aclose(self) -> None:
        """Give back all that was acquired here. For a lock made without a `Database`, which does this for its own."""
        if not self._keeper_is_ours:
            raise LockError(
                f"lock {self.name!r} shares its thread with the other locks of its Database, and is closed with them "
                "by disconnect(): use release()"
            )
        await self._keeper.aclose()

    async def rebuild(self, *, above: int) -> None:
        """Put right a record that is damaged: the next token will be over `above`.

        First stop every process that uses the lock: a holder that is still at work would not be waited for. A record
        that can be read is left alone, and `LockError` raised.
        """
        self._keeper.check_process()
        if isinstance(above, bool) or not isinstance(above, int) or not 1 <= above < MAX_TOKEN:
            raise ConfigError(f"above is {above!r}: give the highest token that anything has seen, 1 or more")
        version = None
        try:
            stored = await self._store.get(self._key)
        except NotFound:
            pass
        else:
            assert isinstance(stored, Stored)
            found = decode_lock(stored.body, self.name)
            if isinstance(found, TooNew):
                raise SchemaTooNew(f"lock {self.name!r} has schemaVersion {found.schema_version}: update this process")
            if isinstance(found, LockRecord) and found.token >= above:
                raise LockError(f"lock {self.name!r} is not damaged: its token is {found.token}")
            version = stored.version
        write_id = self._draw_id()
        record = LockRecord(
            write_id=write_id,
            name=self.name,
            uid=self._draw_id(),
            owner=self.owner,
            token=above,
            holder_write_id=write_id,
            ttl_ms=round(self._rules.ttl * 1000),
            released=True,
        )
        body = encode(record)
        outcome = (
            await self._store.create(self._key, body)
            if version is None
            else await self._store.replace(self._key, body, version)
        )
        if isinstance(outcome, Unknown):
            raise outcome.error
        if not isinstance(outcome, Applied):
            raise LockError(f"lock {self.name!r} was written by somebody else meanwhile: is every process stopped?")
        self._keeper.forget_watch(self._key)

    async def __aenter__(self) -> Held:
        self._check_not_inside()
        task = asyncio.current_task()
        held = await self.acquire(self._timeout)
        self._keeper.bodies.add((self._key, task))
        self._scopes[task] = LockScope(held)
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:  # by `bool` a type checker believes that what the body raises is suppressed
        scope = self._leave_scope()
        self._keeper.bodies.discard((self._key, scope.task))
        held = scope.held
        cancelled_by_us = scope.leave(kind)
        why = held.ended
        was_ours = await held.release()
        if cancelled_by_us or (kind is None and not was_ours):
            raise LockLost(
                f"lock {self.name!r}, token {held.token}, was lost ({why or held.ended}), and with it this scope"
            ) from error
        return False

    # Inside

    def _leave_scope(self) -> LockScope:
        """Of this task; or the only one there is: an async generator may be closed by another task than it ran in."""
        task: object = asyncio.current_task()
        if task not in self._scopes:
            if len(self._scopes) != 1:
                raise LockError(
                    f"{len(self._scopes)} tasks are inside `async with` of lock {self.name!r}, and another task leaves "
                    "it: enter and leave it in the same task, or use acquire() and release()"
                )
            task = next(iter(self._scopes))
        return self._scopes.pop(task)

    def _desk(self, uid: str) -> LockDesk:
        desk = LockDesk(self._store, self.name, uid, self.owner, self._rules, self._clock, self._draw_id)
        desk.watch = self._keeper.watch_of(self._key)
        return desk

    def _contest(self, patience: Patience, timeout: float | None) -> Contest:
        self._keeper.check_process()
        contest = Contest(
            self._desk(self._draw_id()),
            self.name,
            self._rules,
            self._clock,
            self._random,
            patience=patience,
            timeout=timeout,
            install=lambda desk, grant: self._install(desk, grant, contest.user_loop),
        )
        return contest

    async def _contend(self, contest: Contest) -> Held | None:
        courteous = contest.patience is Patience.UNTIL_ACQUIRED
        try:
            tenancy = await self._keeper.ask(self._keeper.contend(contest, self._random, courteous=courteous))
        except BaseException:
            self._keeper.tell(self._keeper.drop, contest)
            raise
        finally:
            self._keeper.keep_watch(self._key, contest.desk.watch)
        if tenancy is None:
            if contest.desk.may_have_landed:
                self._keeper.tell(self._keeper.drop, contest)
            return None
        if not tenancy.held.is_held():
            # It was ours, and this loop or process stood still until it was not: nothing may begin under it.
            await tenancy.held.release()
            return None
        return tenancy.held

    def _install(self, desk: LockDesk, grant: Grant, user_loop: asyncio.AbstractEventLoop) -> Tenancy | None:
        """The grant begins here, on the keeper's loop; `None`: nothing is left of it."""
        rules = self._rules
        holding = Holding(grant.sent, rules.lasts, rules.held_for)
        if holding.leading(self._clock.read()) <= 0:
            return None
        held = Held(name=self.name, owner=self.owner, token=grant.record.token, holding=holding, clock=self._clock)
        tenancy = Tenancy(desk, held, rules, self._clock, user_loop, self._keeper.forget)
        held._tenant = _Remote(self._keeper, tenancy)
        self._keeper.install(tenancy)
        return tenancy

    def _check_not_inside(self) -> None:
        self._keeper.check_process()
        if (self._key, asyncio.current_task()) in self._keeper.bodies:
            raise LockError(
                f"this task holds lock {self.name!r} already, and would wait for itself: a lock is not reentrant; pass "
                "the Held on to the code that needs it"
            )


class _Remote:
    """A tenancy, from the loop of its user."""

    def __init__(self, keeper: LockKeeper, tenancy: Tenancy) -> None:
        self._keeper = keeper
        self._tenancy = tenancy
        self._given_back: bool | None = None

    async def renew_now(self) -> None:
        if self._tenancy.held.is_held():
            await self._keeper.ask(self._tenancy.renew_now())

    async def give_back(self) -> bool:
        if self._given_back is None:
            self._tenancy.held.is_held()  # a deadline that has passed is why it ended, whatever comes now
            self._tenancy.held.end("released")
            self._given_back = await self._keeper.give_back(self._tenancy)
        return self._given_back


def _ttl(value: Any) -> float:
    seconds = _seconds("ttl", value)
    if seconds < MIN_TTL_SECONDS:
        raise ConfigError(f"ttl is {seconds:g} s: it must be at least {MIN_TTL_SECONDS:g} s")
    if seconds > MAX_TTL_SECONDS:
        raise ConfigError(
            f"ttl is {seconds:g} s, which looks like milliseconds: durations are in seconds, and this one is at most "
            f"one hour; {seconds:g} ms is {seconds / 1000:g}"
        )
    return seconds


def _timeout(value: Any) -> float | None:
    if value is None:
        return None
    seconds = _seconds("timeout", value)
    if not 0 <= seconds <= _DAY:
        raise ConfigError(f"timeout is {seconds:g} s: it must be from 0 to {_DAY:g} s (one day); None waits for ever")
    return seconds


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} is {value!r}: it must be a number of seconds or a timedelta")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise ConfigError(f"{name} is {seconds}: it must be a number of seconds or a timedelta, and finite")
    return seconds


def _owner(owner: str | None) -> str:
    if owner is None:
        return f"{platform.node()[: MAX_OWNER_CHARACTERS - 20] or 'unknown'}:{os.getpid()}"
    return check_name("owner", owner, MAX_OWNER_CHARACTERS)


def _check_provider(ttl: float, provider: str) -> None:
    if provider == "gs" and ttl < 3 * _GCS_SHORTEST_RENEWAL:
        raise ConfigError(
            f"ttl is {ttl:g} s, renewed every {ttl / 3:g} s, and Google Cloud Storage takes about one write a second "
            f"for one object, retries included: make it at least {3 * _GCS_SHORTEST_RENEWAL:g} s on gs://"
        )
