"""Requests to a leader from outside: step down, or hand over to somebody (rule E-6).

The request is written into the lease, by compare-and-swap, where none is waiting; nothing else is changed, so that
followers do not take it for a renewal. The leader sees it when its next renewal is rejected for the moved version.
"""

from __future__ import annotations

import msgspec

from tenure.clock import Clock
from tenure.coordinator.layout import MAX_WORKER_ID_CHARACTERS, STATE, check_name, term_key, worker_key
from tenure.coordinator.reading import read_members
from tenure.election.records import Damage, Handoff, State, Term, TooNew, decode, decode_state, encode
from tenure.entropy import NewId
from tenure.errors import NotFound, RequestNotAnswered, RequestRefused, StoreError
from tenure.store import Applied, Store, Stored, Version

_TRIES = 20
_POLL_SECONDS = 0.25


class Handover(msgspec.Struct, frozen=True):
    """A change of leader that was asked for and happened."""

    previous_leader: str
    previous_epoch: int
    leader: str
    epoch: int


async def ask_for_handover(
    store: Store,
    namespace: str,
    *,
    by: str,
    to: str | None = None,
    force: bool = False,
    timeout: float = 30.0,
    clock: Clock,
    draw_id: NewId,
) -> Handover:
    """Ask, and wait until somebody else leads (`to`, if given). `store` is the namespace's.

    Raises `RequestRefused` with the reason; without `force` a leader refuses inside its `min_epoch_duration`.
    """
    started = clock.read()
    vouched = True
    if to is not None:
        check_name("to", to, MAX_WORKER_ID_CHARACTERS)
        is_member = await _check_target(store, namespace, to)
        vouched = is_member or force or await _is_on_record(store, to)
    request_id = draw_id()
    asked = await _write_request(store, namespace, request_id, by, to, force, vouched, draw_id, clock)
    assert asked.leader_id is not None
    while True:
        left = timeout - clock.read().leader_elapsed(started)
        if left <= 0:
            break
        await clock.sleep(min(_POLL_SECONDS, left))
        try:
            state, _ = await _read(store, namespace)
        except StoreError:
            continue  # the request stands; only the wait for its effect is disturbed
        if state.refusal is not None and state.refusal.request_id == request_id:
            raise RequestRefused(f"{asked.leader_id!r}, epoch {asked.epoch}, says no: {state.refusal.reason}")
        if state.epoch > asked.epoch and state.leader_id is not None and await _is_recorded(store, state):
            if to is not None and state.leader_id != to:
                raise RequestRefused(
                    f"{asked.leader_id!r} stepped down, but {state.leader_id!r} leads now (epoch {state.epoch}), not "
                    f"{to!r}: it did not take the lease in time"
                )
            return Handover(asked.leader_id, asked.epoch, state.leader_id, state.epoch)
    raise RequestNotAnswered(
        f"nobody else leads after {timeout:g} s: {asked.leader_id!r}, epoch {asked.epoch}, may be frozen, winding up "
        "its work, or the only worker there is; the request stands"
    )


async def _is_recorded(store: Store, state: State) -> bool:
    """A grant is leadership only once its term is on record (E-3)."""
    try:
        stored = await store.get(term_key(state.epoch))
    except StoreError:
        return False
    assert isinstance(stored, Stored)
    term = decode(stored.body, Term)
    return isinstance(term, Term) and term.grant_id == state.grant_id


async def _check_target(store: Store, namespace: str, to: str) -> bool:
    """Is it a member? Raises if there are members, and it is none of them, or never stands."""
    members = {member.worker_id: member for member in await read_members(store)}
    if members and to not in members:
        raise RequestRefused(f"{to!r} is not a live worker of {namespace!r}: there are {', '.join(sorted(members))}")
    if to in members and not members[to].eligible:
        raise RequestRefused(f"{to!r} does not stand for election: it was started with eligible=False")
    return to in members


async def _is_on_record(store: Store, worker_id: str) -> bool:
    """In an election-only namespace nobody is, and a leader would step down for a name that is nobody's."""
    try:
        await store.get(worker_key(worker_id))
    except NotFound:
        return False
    return True


async def _write_request(
    store: Store,
    namespace: str,
    request_id: str,
    by: str,
    to: str | None,
    force: bool,
    vouched: bool,
    draw_id: NewId,
    clock: Clock,
) -> State:
    sent: State | None = None  # a copy whose answer was lost
    for number in range(_TRIES):
        if number:
            await clock.sleep(0.02 * number)  # the leader's renewals go first
        state, version = await _read(store, namespace)
        if state.handoff is not None and state.handoff.request_id == request_id:
            return state
        if sent is not None and (state.epoch != sent.epoch or state.leader_id is None):
            return sent  # the term is over, as was asked for: the next one must not be asked as well
        if state.leader_id is None:
            raise RequestRefused(f"nobody leads {namespace!r}: epoch {state.epoch} was released")
        if state.leader_id == to:
            raise RequestRefused(f"{to!r} leads {namespace!r} already, epoch {state.epoch}")
        waiting = state.request()
        if waiting is not None:
            raise RequestRefused(f"a request by {waiting.by!r} is waiting for the leader already: try again later")
        if not vouched:
            raise RequestRefused(
                f"{namespace!r} has no record of {to!r}: it is not there, or the workers keep none (election-only). "
                "The leader would step down, and anybody might take over; force it if you are sure of the name"
            )
        handoff = Handoff(request_id=request_id, epoch=state.epoch, by=by[:512], to=to, forced=force)
        asked = msgspec.structs.replace(state, write_id=draw_id(), handoff=handoff)
        outcome = await store.replace(STATE, encode(asked), version)
        if isinstance(outcome, Applied):
            return asked
        sent = asked  # also if it was rejected: something between us and the store may have sent it twice
    raise RequestRefused(f"the lease of {namespace!r} changed {_TRIES} times while the request was written: try again")


async def _read(store: Store, namespace: str) -> tuple[State, Version]:
    try:
        stored = await store.get(STATE)
    except NotFound:
        raise RequestRefused(f"nobody leads {namespace!r}: it has no lease") from None
    assert isinstance(stored, Stored)
    state = decode_state(stored.body)
    if isinstance(state, Damage):
        raise RequestRefused(f"the lease of {namespace!r} is damaged ({state.reason}): wait until it has been rebuilt")
    if isinstance(state, TooNew):
        raise RequestRefused(f"namespace {namespace!r} is used by a newer tenure: update this command")
    return state, stored.version
