"""Ask the leader from outside to hand over, and say what came of it."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from tenure.clock import Clock
from tenure.coordinator.layout import namespace_store
from tenure.coordinator.outside import Handover, ask_for_handover
from tenure.coordinator.reading import read_state
from tenure.election.records import State
from tenure.entropy import new_id
from tenure.errors import RequestRefused
from tenure.store import Access, Store, open_store


class Verdict(enum.Enum):
    DONE = "done"
    REFUSED = "refused"
    UNCLEAR = "unclear"


class Answer(msgspec.Struct, frozen=True):
    """What came of a request. `handover` is there if it is done, `reason` if it is not."""

    verdict: Verdict
    handover: Handover | None = None
    reason: str | None = None


async def ask(
    url: str, namespace: str, *, by: str, to: str | None, force: bool, timeout: float, clock: Clock
) -> Answer:
    """Raises `StoreError` if it cannot be told."""
    # Opening for writing makes a directory that is missing; to ask nobody nothing should be made.
    async with _open(url, namespace, Access.READ_ONLY) as store:
        before = await read_state(store)
    if before is None:
        return Answer(Verdict.REFUSED, reason=f"nobody leads {namespace!r}: it has no lease; check URL and namespace")
    request_ids: list[str] = []

    def draw_id() -> str:
        request_ids.append(new_id())
        return request_ids[-1]

    async with _open(url, namespace, Access.READ_WRITE) as store:
        try:
            done = await ask_for_handover(
                store, namespace, by=by, to=to, force=force, timeout=timeout, clock=clock, draw_id=draw_id
            )
        except RequestRefused as refused:
            unclear = _why_unclear(before, await read_state(store), request_ids)
            if unclear is not None:
                return Answer(Verdict.UNCLEAR, reason=unclear)
            return Answer(Verdict.REFUSED, reason=str(refused))
    return Answer(Verdict.DONE, done)


def told(done: Handover) -> str:
    if done.leader == done.previous_leader:
        return f"{done.leader} stepped down, nobody else stood, and it leads again: epoch {done.epoch}"
    return f"{done.leader} leads, epoch {done.epoch}; {done.previous_leader}, epoch {done.previous_epoch}, stepped down"


@asynccontextmanager
async def _open(url: str, namespace: str, access: Access) -> AsyncIterator[Store]:
    async with open_store(url, access=access) as store:
        yield namespace_store(store, namespace)


def _why_unclear(before: object, now: object, request_ids: list[str]) -> str | None:
    """It was not refused, only not done in time: what is it waiting for?"""
    if not isinstance(now, State):
        return None
    if now.handoff is not None and now.handoff.request_id in request_ids:
        return (
            f"{now.leader_id!r}, epoch {now.epoch}, has not answered in time; it may be frozen or dead. The request "
            "stays in the lease, and is followed if it comes back: see `tenure status`"
        )
    if isinstance(before, State) and not before.released and now.released and now.epoch == before.epoch:
        return f"{before.leader_id!r} has stepped down, and nobody has taken over in time: see `tenure status`"
    return None
