"""Locks that are broken on purpose: each is a patch to a production class, and leaves out one rule."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.coordinator.lock import contest as contest_module
from tenure.coordinator.lock import desk as desk_module
from tenure.coordinator.lock.desk import Grant, LockDesk, Ours, Standing
from tenure.coordinator.lock.held import Held
from tenure.coordinator.lock.keeper import LockKeeper
from tenure.coordinator.lock.records import LockRecord
from tenure.coordinator.lock.rules import LockRules, Sight, Take
from tenure.coordinator.lock.scope import LockScope
from tenure.election.records import encode
from tenure.errors import StoreError
from tenure.store import Applied, Unknown, Version

Patch = tuple[object, str, object]


def clock_after_send() -> list[Patch]:
    """The holder counts from the answer."""
    take, renew = LockDesk.take, LockDesk.renew

    async def late_take(self: LockDesk, action: Take) -> Any:
        answer = await take(self, action)
        return Grant(answer.record, self._clock.read()) if isinstance(answer, Grant) else answer

    async def late_renew(self: LockDesk, sent: Any) -> Standing:
        standing = await renew(self, sent)
        return Ours(self._clock.read()) if isinstance(standing, Ours) and standing.sent is not None else standing

    return [(LockDesk, "take", late_take), (LockDesk, "renew", late_renew)]


def validity_by_max() -> list[Patch]:
    """Any confirmation extends from the latest sending."""
    settle = LockDesk._settle

    async def latest(self: LockDesk, outcome: Any) -> Standing:
        standing = await settle(self, outcome)
        if isinstance(standing, Ours) and standing.sent is not None:
            return Ours(max(self._sent.values(), key=lambda reading: reading.boottime_ns))
        return standing

    return [(LockDesk, "_settle", latest)]


def no_drift() -> list[Patch]:
    """Neither holder nor waiter allows for clocks that drift."""
    return [(LockRules, "lasts", property(lambda self: self.ttl)), (LockRules, "lapses_after", lambda self, ttl: ttl)]


def waiter_clock_before_read() -> list[Patch]:
    """Waiters time what they see from before they asked."""
    look = LockDesk.look

    async def early(self: LockDesk) -> Sight:
        now = self._clock.read()
        before = self.watch.sight
        sight = await look(self)
        if before is None or sight.since is not before.since:
            sight = self.watch.sight = Sight(sight.found, sight.version, now, sight.last)
        return sight

    return [(LockDesk, "look", early)]


def token_not_raised() -> list[Patch]:
    """A lock that was released is granted under the same token again."""
    decide = contest_module.decide

    def lazy(rules: LockRules, sight: Sight, uid: str, now: Any) -> Any:
        action = decide(rules, sight, uid, now)
        if isinstance(action, Take) and isinstance(sight.found, LockRecord) and sight.found.released:
            return msgspec.structs.replace(action, token=sight.found.token)
        return action

    return [(contest_module, "decide", lazy)]


def blind_release() -> list[Patch]:
    """A release is a plain write."""

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


def release_always_ours() -> list[Patch]:
    """Whoever lets go is told that it was theirs to the end."""
    release = LockDesk.release

    async def flattering(self: LockDesk) -> bool:
        await release(self)
        return True

    return [(LockDesk, "release", flattering)]


def unknown_is_applied() -> list[Patch]:
    """A write without an answer counts as done."""
    write = LockDesk._write

    async def optimistic(self: LockDesk, *arguments: Any) -> Any:
        outcome = await write(self, *arguments)
        return Applied(Version("?")) if isinstance(outcome, Unknown) else outcome

    return [(LockDesk, "_write", optimistic)]


def nothing_taken_back() -> list[Patch]:
    """An acquisition that is cancelled leaves behind what it got."""
    return [(LockKeeper, "drop", lambda self, contest: None)]


def body_not_cancelled() -> list[Patch]:
    """The body of a scope goes on after the loss."""
    return [(LockScope, "_lost", lambda self: None)]


def no_time_to_wind_up() -> list[Patch]:
    """The body is cancelled when the lock may pass on, not before."""
    return [(LockRules, "held_for", property(lambda self: self.lasts))]


def renewal_after_deadline() -> list[Patch]:
    """A renewal that comes late revives a grant that was given up."""

    def revive(self: Held, sent: Any, lasts: float, held_for: float) -> bool:
        self._holding = self._holding.confirmed(sent, lasts, held_for)
        self._ended = None
        return True

    return [(Held, "confirmed", revive)]


def version_timed() -> list[Patch]:
    """Waiters time the object's version: whoever touches it keeps a dead holder alive."""
    observe = desk_module.observe

    def by_version(before: Any, found: Any, version: Any, now: Any) -> Sight:
        if before is not None and before.version is not None and not (version and before.version.matches(version)):
            before = None
        return observe(before, found, version, now)

    return [(desk_module, "observe", by_version)]


VARIANTS = {
    patches.__name__.replace("_", "-"): patches
    for patches in (
        clock_after_send,
        token_not_raised,
        blind_release,
        release_always_ours,
        unknown_is_applied,
        nothing_taken_back,
        body_not_cancelled,
        no_time_to_wind_up,
    )
}
"""Those that random trouble finds. The others take a scenario of their own."""
