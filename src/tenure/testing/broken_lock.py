"""Locks that are broken on purpose: the rules of the election's lease, and those that a lock adds."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.coordinator.lock import contest as contest_module
from tenure.coordinator.lock import desk as desk_module
from tenure.coordinator.lock import rules as rules_module
from tenure.coordinator.lock.desk import Grant, LockDesk, Ours, Standing, Taken
from tenure.coordinator.lock.held import Held
from tenure.coordinator.lock.keeper import LockKeeper
from tenure.coordinator.lock.records import LockRecord
from tenure.coordinator.lock.rules import LockRules, Sight, Take
from tenure.coordinator.lock.scope import LockScope
from tenure.election.records import encode
from tenure.errors import StoreError
from tenure.store import Applied, Rejected, Unknown, Version
from tenure.testing.broken import Patch, Variant


def _no_drift_margin() -> list[Patch]:
    return [
        (LockRules, "lasts", property(lambda self: self.ttl)),
        (LockRules, "lapses_after", lambda self, ttl: ttl),
    ]


def _counted_from_answer() -> list[Patch]:
    take, renew = LockDesk.take, LockDesk.renew

    async def late_take(self: LockDesk, action: Take) -> Any:
        answer = await take(self, action)
        return Grant(answer.record, self._clock.read()) if isinstance(answer, Grant) else answer

    async def late_renew(self: LockDesk, sent: Any) -> Standing:
        standing = await renew(self, sent)
        return Ours(self._clock.read()) if isinstance(standing, Ours) and standing.sent is not None else standing

    return [(LockDesk, "take", late_take), (LockDesk, "renew", late_renew)]


def _blind_release() -> list[Patch]:
    async def release(self: LockDesk) -> bool:
        assert self.mine is not None
        write_id = self._draw_id()
        gone = msgspec.structs.replace(self.mine, write_id=write_id, holder_write_id=write_id, released=True)
        try:
            await self._store.put(self._key, encode(gone))
        except StoreError:
            pass
        return True

    return [(LockDesk, "release", release)]


def _blind_renewal() -> list[Patch]:
    async def renew(self: LockDesk, sent: Any) -> Standing:
        assert self.mine is not None
        write_id = self._draw_id()
        record = msgspec.structs.replace(self.mine, write_id=write_id, holder_write_id=write_id)
        self._sent[write_id] = sent
        try:
            version = await self._store.put(self._key, encode(record))
        except StoreError as error:
            return await self._settle(Unknown(error))
        self.mine, self._mine_version = record, version
        return Ours(sent)

    return [(LockDesk, "renew", renew)]


def _unknown_is_applied() -> list[Patch]:
    write = LockDesk._write

    async def optimistic(self: LockDesk, *arguments: Any) -> Any:
        outcome = await write(self, *arguments)
        return Applied(Version("?")) if isinstance(outcome, Unknown) else outcome

    return [(LockDesk, "_write", optimistic)]


def _unknown_is_rejected() -> list[Patch]:
    settle = LockDesk._settle

    async def pessimistic(self: LockDesk, outcome: Any) -> Standing:
        return Taken("somebody", None) if isinstance(outcome, Unknown) else await settle(self, outcome)

    return [(LockDesk, "_settle", pessimistic)]


def _rejection_is_believed() -> list[Patch]:
    settle = LockDesk._settle

    async def trusting(self: LockDesk, outcome: Any) -> Standing:
        return Taken("somebody", None) if isinstance(outcome, Rejected) else await settle(self, outcome)

    return [(LockDesk, "_settle", trusting)]


def _flag_not_deadline() -> list[Patch]:
    return [
        (Held, "remaining", lambda self: 1.0 if self._ended is None else 0.0),
        (Held, "time_to_wind_up", lambda self: 1.0 if self._ended is None else 0.0),
    ]


def _valid_until_by_max() -> list[Patch]:
    settle = LockDesk._settle

    async def latest(self: LockDesk, outcome: Any) -> Standing:
        standing = await settle(self, outcome)
        if isinstance(standing, Ours) and standing.sent is not None:
            return Ours(max(self._sent.values(), key=lambda reading: reading.boottime_ns))
        return standing

    sending = Held.sending

    def unless_renewed(self: Held, now: Any, lasts: float) -> None:
        if lasts <= 0:
            sending(self, now, lasts)

    return [(LockDesk, "_settle", latest), (Held, "sending", unless_renewed)]


def _waiter_clock_before_read() -> list[Patch]:
    look = LockDesk.look

    async def early(self: LockDesk) -> Sight:
        now = self._clock.read()
        before = self.watch.sight
        sight = await look(self)
        if before is None or sight.since is not before.since:
            sight = self.watch.sight = Sight(sight.found, sight.version, now, sight.last)
        return sight

    return [(LockDesk, "look", early)]


def _version_timed() -> list[Patch]:
    observe = rules_module.observe

    def by_version(before: Any, found: Any, version: Any, now: Any) -> Sight:
        if before is not None and before.version is not None and not (version and before.version.matches(version)):
            before = None
        return observe(before, found, version, now)

    return [(desk_module, "observe", by_version)]


def _token_not_raised() -> list[Patch]:
    decide = rules_module.decide

    def lazy(rules: LockRules, sight: Sight, uid: str, now: Any) -> Any:
        action = decide(rules, sight, uid, now)
        if isinstance(action, Take) and isinstance(sight.found, LockRecord) and sight.found.released:
            return msgspec.structs.replace(action, token=sight.found.token)
        return action

    return [(contest_module, "decide", lazy)]


def _taken_without_condition() -> list[Patch]:
    async def write(self: LockDesk, record: LockRecord, expected: Version | None, sent: Any) -> Any:
        self._sent[record.write_id] = sent
        try:
            return Applied(await self._store.put(self._key, encode(record)))
        except StoreError as error:
            return Unknown(error)

    return [(LockDesk, "_write", write)]


def _release_always_ours() -> list[Patch]:
    release = LockDesk.release

    async def flattering(self: LockDesk) -> bool:
        await release(self)
        return True

    return [(LockDesk, "release", flattering)]


def _nothing_taken_back() -> list[Patch]:
    return [(LockKeeper, "drop", lambda self, contest: None)]


def _body_not_cancelled() -> list[Patch]:
    return [(LockScope, "_lost", lambda self: None)]


def _no_time_to_wind_up() -> list[Patch]:
    return [(LockRules, "held_for", property(lambda self: self.lasts))]


def _renewed_after_deadline() -> list[Patch]:
    def revive(self: Held, sent: Any, lasts: float, held_for: float) -> bool:
        self._holding = self._holding.confirmed(sent, lasts, held_for)
        self._ended = None
        return True

    return [(Held, "confirmed", revive)]


def _unreadable_release() -> list[Patch]:
    async def release(self: LockDesk) -> bool:
        assert self.mine is not None
        return isinstance(await self._store.replace(self._key, b"{}", self._mine_version or Version("?")), Applied)

    return [(LockDesk, "release", release)]


LOCK_VARIANTS = tuple(
    Variant(f"lock-{name}", leaves_out, check, patches)
    for name, leaves_out, check, patches in (
        ("no-drift-margin", "neither holder nor waiter allows for clocks that drift", "one-holder", _no_drift_margin),
        ("counted-from-answer", "a holder counts from the answer, not the sending", "one-holder", _counted_from_answer),
        ("blind-release", "the lock is released without a condition", "record", _blind_release),
        ("blind-renewal", "the lock is renewed without a condition", "record", _blind_renewal),
        ("blind-take", "the lock is written without a condition", "record", _taken_without_condition),
        ("unknown-is-applied", "a write without an answer counts as done", "one-holder", _unknown_is_applied),
        (
            "unknown-is-rejected",
            "a write without an answer counts as lost to another",
            "honest-loss",
            _unknown_is_rejected,
        ),
        ("rejection-is-believed", "a rejected write counts as lost to another", "honest-loss", _rejection_is_believed),
        ("flag-not-deadline", "is_held() is a flag that a loop must turn off", "one-holder", _flag_not_deadline),
        (
            "valid-until-by-max",
            "any confirmation extends it from the latest sending",
            "one-holder",
            _valid_until_by_max,
        ),
        (
            "waiter-clock-before-read",
            "waiters read their clock before the request",
            "one-holder",
            _waiter_clock_before_read,
        ),
        ("version-timed", "waiters time the object's version, whoever wrote it", "liveness", _version_timed),
        ("token-not-raised", "a released lock is granted under its old token", "tokens", _token_not_raised),
        ("release-always-ours", "whoever lets go hears that it was theirs to the end", "release", _release_always_ours),
        ("nothing-taken-back", "an attempt that is cancelled keeps what it got", "starved", _nothing_taken_back),
        ("body-not-cancelled", "what runs under a lock goes on after its loss", "body", _body_not_cancelled),
        ("no-time-to-wind-up", "the body is cancelled when the lock may pass on", "body", _no_time_to_wind_up),
        ("renewed-after-deadline", "a late renewal revives what was over", "for-good", _renewed_after_deadline),
        ("unreadable-release", "a release leaves what nobody can read", "record", _unreadable_release),
    )
)
