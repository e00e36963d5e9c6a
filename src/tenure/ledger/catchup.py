"""How a new leader learns everything that was decided before it (L-3)."""

from __future__ import annotations

from tenure.errors import LedgerDamaged
from tenure.ledger.log import Tenancy, first_after, read_entry
from tenure.ledger.machine import LedgerState
from tenure.ledger.snapshots import restore_newest
from tenure.ledger.together import all_of
from tenure.store import Store

_AHEAD = 16
_MAX_ROUNDS = 10_000


async def catch_up(store: Store, state: LedgerState, lead: Tenancy) -> None:
    """Bring `state` to the end of the log, as it is after the grant: every request is sent after this was called.

    One 404 is not the end. An entry may be missing because a snapshot made it superfluous, so after the 404 both the
    snapshots and the log are listed: only if neither shows anything from that number on was it the end.

    One gap is not damage either: between the two listings a snapshot may have been made, and the log been trimmed.
    """
    gap_after: int | None = None
    await restore_newest(store, state, state.seq + 1)
    for _ in range(_MAX_ROUNDS):
        lead.ensure()
        await _read_on(store, state, lead)
        lead.ensure()
        if await restore_newest(store, state, state.seq + 1):
            continue
        following = await first_after(store, state.seq)
        if following is None:
            return
        if following != state.seq + 1 and gap_after != state.seq:
            gap_after = state.seq
        elif following != state.seq + 1:
            raise LedgerDamaged(
                f"entry {state.seq + 1} of the log is missing, entry {following} is there, and no snapshot covers what "
                "is between: put the missing entries back from a backup"
            )
    raise LedgerDamaged("the log grew for as long as it was read: is somebody else writing to it?")


async def _read_on(store: Store, state: LedgerState, lead: Tenancy) -> None:
    """Apply entries until one is not there; several are asked for at once."""
    ahead = 1
    while True:
        lead.ensure()
        numbers = range(state.seq + 1, state.seq + 1 + ahead)
        entries = await all_of(read_entry(store, number) for number in numbers)
        for entry in entries:
            if entry is None:
                return
            state.apply(entry)
        ahead = min(_AHEAD, ahead * 2)
