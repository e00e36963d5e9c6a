"""How a new leader learns everything that was decided before it (L-3)."""

from __future__ import annotations

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.errors import LedgerDamaged
from tenure.ledger.layout import log_key
from tenure.ledger.log import Tenancy, first_after, read_entry
from tenure.ledger.machine import LedgerState
from tenure.ledger.snapshots import restore_if_sound, restore_newest
from tenure.ledger.together import all_of
from tenure.store import Store

_AHEAD = 16
_PAUSES = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Before an entry that is listed, and was not there when it was read, is read again. The first time it may just have
landed."""
_MAX_ROUNDS = 10_000


async def catch_up(store: Store, state: LedgerState, lead: Tenancy, *, clock: Clock = SYSTEM_CLOCK) -> None:
    """Bring `state` to the end of the log, as it is after the grant: every request is sent after this was called.

    One 404 is not the end. An entry may be missing because a snapshot made it superfluous, so after the 404 both the
    snapshots and the log are listed: only if neither shows anything from that number on was it the end.

    One gap is not damage either: between the two listings a snapshot may have been made, and the log been trimmed.
    Nor is an entry that is listed and answers 404, if it can be read some time later. Nor are snapshots of which none
    is sound, if the log has all that they replaced.
    """
    gap_after: int | None = None
    unread, misses = 0, 0
    await restore_if_sound(store, state, state.seq + 1)
    for _ in range(_MAX_ROUNDS):
        lead.ensure()
        await _read_on(store, state, lead)
        lead.ensure()
        try:
            if await restore_newest(store, state, state.seq + 1):
                continue
        except LedgerDamaged as error:
            raise LedgerDamaged(f"entry {state.seq + 1} of the log is not there, and {error}") from None
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
        else:
            unread, misses = following, misses + 1 if unread == following else 1
            if misses > len(_PAUSES):
                raise LedgerDamaged(
                    f"{log_key(following)} is listed, and cannot be read ({misses} times in {sum(_PAUSES):.1f} s the "
                    "store answered that it is not there): nothing is decided until it can be; if it is lost, put it "
                    "back from a backup"
                )
            if pause := _PAUSES[misses - 1]:
                await clock.sleep(pause)
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
