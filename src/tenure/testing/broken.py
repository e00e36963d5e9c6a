"""Deliberately broken builds: each is a patch to a production class, and some checker must catch it.

A checker that never fails proves nothing. Each variant leaves out one rule of the protocol.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from tenure.clock import Reading
from tenure.coordinator.engine import Engine
from tenure.coordinator.fenced import FencedWriter, split
from tenure.coordinator.layout import STATE
from tenure.coordinator.lead import Lead
from tenure.coordinator.lease import Grant, Held, LeaseDesk, Standing, Taken
from tenure.election import decide as decide_module
from tenure.election.decide import Knowledge, Opening, Rules, Stand
from tenure.election.records import State, encode
from tenure.election.sight import Sight
from tenure.errors import ConfigError, Fenced, StoreError
from tenure.store import Applied, Stored, Unknown, Version

Patch = tuple[object, str, object]


class Variant(msgspec.Struct, frozen=True):
    name: str
    leaves_out: str
    """The rule that is missing."""
    check: str
    """What must report it. An exception is no such check: a variant that merely crashes is not caught."""
    patches: Callable[[], list[Patch]]


@contextlib.contextmanager
def broken(name: str | None) -> Iterator[None]:
    """Run the body with one rule left out; `None`: with all of them."""
    if name is None:
        yield
        return
    known = all_variants()
    if name not in known:
        raise ConfigError(f"there is no broken variant {name!r}: there are {', '.join(sorted(known))}")
    patches = known[name].patches()
    # From the class's own dictionary: a property must be restored as it was defined, not as it is read.
    before = [(owner, attribute, vars(owner)[attribute]) for owner, attribute, _ in patches]
    try:
        for owner, attribute, replacement in patches:
            setattr(owner, attribute, replacement)
        yield
    finally:
        for owner, attribute, original in before:
            setattr(owner, attribute, original)


def _no_drift_margin() -> list[Patch]:
    return [
        (Rules, "lasts", property(lambda self: self.lease)),
        (Rules, "lapses_after", lambda self, lease: lease),
    ]


def _lease_from_answer() -> list[Patch]:
    renew, stand = LeaseDesk.renew, LeaseDesk.stand

    async def late_renew(self: LeaseDesk, *arguments: Any, **changes: Any) -> Standing:
        standing = await renew(self, *arguments, **changes)
        if isinstance(standing, Held) and standing.sent is not None:
            return Held(self._clock.read(), standing.landed)
        return standing

    async def late_stand(self: LeaseDesk, action: Any) -> Grant | None:
        grant = await stand(self, action)
        return None if grant is None else msgspec.structs.replace(grant, sent=self._clock.read())

    return [(LeaseDesk, "renew", late_renew), (LeaseDesk, "stand", late_stand)]


def _wall_clock_expiry() -> list[Patch]:
    original = decide_module.opening

    def opening(rules: Rules, sight: Sight, uid: str, worker_id: str) -> Opening | None:
        chance = original(rules, sight, uid, worker_id)
        found = sight.found
        if chance is None or not isinstance(found, State) or found.released or found.uid == uid:
            return chance
        expires = datetime.fromisoformat(found.lease_expires_at).timestamp()
        return Opening(max(0.0, expires - sight.since.wall_ns / 1e9), chance.contested)

    return [(decide_module, "opening", opening)]


def _blind_release() -> list[Patch]:
    async def release(self: LeaseDesk, successor: str | None, pinned: bool) -> bool | None:
        await _put(self, _given_away(self, successor))
        return True

    return [(LeaseDesk, "release", release)]


def _epoch_reset_on_release() -> list[Patch]:
    async def release(self: LeaseDesk, successor: str | None, pinned: bool) -> bool | None:
        assert self._mine_version is not None
        state = msgspec.structs.replace(_given_away(self, successor), epoch=1)
        return isinstance(await self._store.replace(STATE, encode(state), self._mine_version), Applied)

    return [(LeaseDesk, "release", release)]


def _given_away(desk: LeaseDesk, successor: str | None) -> State:
    assert desk.mine is not None
    write_id = desk._draw_id()
    return msgspec.structs.replace(
        desk.mine, write_id=write_id, leader_write_id=write_id, leader_id=None, uid=None, successor=successor
    )


async def _put(desk: LeaseDesk, state: State) -> None:
    try:
        await desk._store.put(STATE, encode(state))
    except StoreError:
        pass


def _unknown_is_applied() -> list[Patch]:
    write = LeaseDesk._write

    async def optimistic(self: LeaseDesk, *arguments: Any) -> Any:
        outcome = await write(self, *arguments)
        return Applied(Version("?")) if isinstance(outcome, Unknown) else outcome

    return [(LeaseDesk, "_write", optimistic)]


def _unknown_is_rejected() -> list[Patch]:
    settle = LeaseDesk.settle

    async def pessimistic(self: LeaseDesk, outcome: Any) -> Standing:
        return Taken(None) if isinstance(outcome, Unknown) else await settle(self, outcome)

    return [(LeaseDesk, "settle", pessimistic)]


def _flag_not_deadline() -> list[Patch]:
    return [
        (Lead, "remaining", lambda self: 1.0 if self._ended is None else 0.0),
        (Lead, "holds", lambda self: self._ended is None),
    ]


def _valid_until_by_max() -> list[Patch]:
    settle = LeaseDesk.settle

    async def latest(self: LeaseDesk, outcome: Any) -> Standing:
        standing = await settle(self, outcome)
        if isinstance(standing, Held) and standing.sent is not None and self.mine is not None:
            sent = [each.at for each in self._sent.values() if each.grant_id == self.mine.grant_id]
            return Held(max(sent, key=lambda reading: reading.boottime_ns), standing.landed)
        return standing

    return [(LeaseDesk, "settle", latest), (Lead, "sending", lambda self, now, lasts: None)]


def _rebuild_at_once() -> list[Patch]:
    return [(Rules, "damage_lapses_after", property(lambda self: 0.0))]


def _grant_without_term_record() -> list[Patch]:
    async def confirm(self: LeaseDesk, grant: Grant, within: float) -> bool | None:
        return True

    return [(LeaseDesk, "confirm", confirm)]


def _follower_clock_before_read() -> list[Patch]:
    async def read(self: LeaseDesk) -> Sight:
        now = self._clock.read()
        found, version, body = await self._look()
        return self._see(found, version, now, body)

    return [(LeaseDesk, "read", read)]


def _ignores_fence() -> list[Patch]:
    current = FencedWriter._current

    async def blind(self: FencedWriter, key: str, sent: bool) -> tuple[bytes | None, Version | None]:
        try:
            return await current(self, key, sent)
        except Fenced:
            stored = await self._store.get(key)
            assert isinstance(stored, Stored)
            return split(key, stored.body)[1], stored.version

    return [(FencedWriter, "_current", blind)]


def _goes_on_as_its_namesake() -> list[Patch]:
    """Who has the name of the leader is the leader, though another process was granted the lease."""
    opening, stand, confirm = decide_module.opening, LeaseDesk.stand, LeaseDesk.confirm

    def is_of_namesake(found: object, uid: str, worker_id: str) -> bool:
        return isinstance(found, State) and found.leader_id == worker_id and found.uid != uid

    def open_to_namesakes(rules: Rules, sight: Sight, uid: str, worker_id: str) -> Opening | None:
        if is_of_namesake(sight.found, uid, worker_id):
            return Opening(0.0, False)
        return opening(rules, sight, uid, worker_id)

    async def take_up(self: LeaseDesk, action: Stand) -> Grant | None:
        found = action.over
        if found is None or not is_of_namesake(found, self._who.uid, self._who.worker_id):
            return await stand(self, action)
        assert self.sight is not None
        assert self.sight.version is not None
        self._hold(found, self.sight.version)
        return Grant(found, self._clock.read(), None, False)

    async def confirm_by_name(self: LeaseDesk, grant: Grant, within: float) -> bool | None:
        return grant.state.uid != self._who.uid or await confirm(self, grant, within)

    return [
        (decide_module, "opening", open_to_namesakes),
        (LeaseDesk, "stand", take_up),
        (LeaseDesk, "confirm", confirm_by_name),
    ]


def _waits_for_release() -> list[Patch]:
    opening = decide_module.opening

    def patient(rules: Rules, sight: Sight, uid: str, worker_id: str) -> Opening | None:
        found = sight.found
        if isinstance(found, State) and not found.released and found.uid != uid:
            return None
        return opening(rules, sight, uid, worker_id)

    return [(decide_module, "opening", patient)]


def _looks_without_pause() -> list[Patch]:
    knowledge = Engine._knowledge

    def eager(self: Engine, now: Reading) -> Knowledge:
        return msgspec.structs.replace(knowledge(self, now), look_every=0.005)

    return [(Engine, "_knowledge", eager)]


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(
            "no-drift-margin",
            "neither leader nor follower allows for clocks that drift",
            "one-leader",
            _no_drift_margin,
        ),
        Variant(
            "lease-from-answer",
            "the leader counts its lease from the answer, not the sending",
            "one-leader",
            _lease_from_answer,
        ),
        Variant("wall-clock-expiry", "followers compare wall clocks", "one-leader", _wall_clock_expiry),
        Variant("blind-release", "the lease is released without a condition", "epochs", _blind_release),
        Variant("epoch-reset-on-release", "a released lease starts counting anew", "epochs", _epoch_reset_on_release),
        Variant("unknown-is-applied", "a write without an answer counts as done", "one-leader", _unknown_is_applied),
        Variant(
            "unknown-is-rejected",
            "a write without an answer counts as lost to another",
            "honest-loss",
            _unknown_is_rejected,
        ),
        Variant(
            "flag-not-deadline", "is_leader() is a flag that a loop must turn off", "one-leader", _flag_not_deadline
        ),
        Variant(
            "valid-until-by-max",
            "any confirmation extends the lease from the latest sending",
            "one-leader",
            _valid_until_by_max,
        ),
        Variant("rebuild-at-once", "a damaged lease is rebuilt without waiting", "one-leader", _rebuild_at_once),
        Variant(
            "grant-without-term-record",
            "a won lease is leadership, recorded or not",
            "epochs",
            _grant_without_term_record,
        ),
        Variant(
            "follower-clock-before-read",
            "followers read their clock before the request",
            "one-leader",
            _follower_clock_before_read,
        ),
        Variant("ignores-fence", "fenced writes are not checked against a newer epoch", "fencing", _ignores_fence),
        Variant(
            "goes-on-as-its-namesake",
            "a process that starts again leads under the lease of its former life",
            "own-grant",
            _goes_on_as_its_namesake,
        ),
        Variant("waits-for-release", "a lease that has lapsed is left to its holder", "liveness", _waits_for_release),
        Variant("looks-without-pause", "followers look at the lease again and again", "storm", _looks_without_pause),
    )
}


KINDS_WITH_VARIANTS = ("election", "queue", "schedule", "ttl", "counters", "lock", "children", "records", "polling")
"""Kinds of fleet."""


def variants_of(what: str) -> dict[str, Variant]:
    """Of one of `KINDS_WITH_VARIANTS`."""
    if what == "election":
        return VARIANTS
    from tenure.testing.broken_children import CHILDREN_VARIANTS
    from tenure.testing.broken_counters import COUNTERS_VARIANTS
    from tenure.testing.broken_lock import LOCK_VARIANTS
    from tenure.testing.broken_polling import POLLING_VARIANTS
    from tenure.testing.broken_queue import QUEUE_VARIANTS
    from tenure.testing.broken_records import RECORDS_VARIANTS
    from tenure.testing.broken_schedule import SCHEDULE_VARIANTS
    from tenure.testing.broken_ttl import TTL_VARIANTS

    known = {
        "queue": QUEUE_VARIANTS,
        "schedule": SCHEDULE_VARIANTS,
        "ttl": TTL_VARIANTS,
        "counters": COUNTERS_VARIANTS,
        "lock": LOCK_VARIANTS,
        "children": CHILDREN_VARIANTS,
        "records": RECORDS_VARIANTS,
        "polling": POLLING_VARIANTS,
    }
    return {variant.name: variant for variant in known[what]}


def all_variants() -> dict[str, Variant]:
    found: dict[str, Variant] = {}
    for what in KINDS_WITH_VARIANTS:
        for name, variant in variants_of(what).items():
            # The later one would be run, and judged, in the place of the other.
            assert name not in found, f"two broken variants are called {name!r}"
            found[name] = variant
    return found
