"""Reading a ledger as anybody may who can read the bucket."""

from __future__ import annotations

from tenure.ledger import LedgerState
from tenure.ledger.catchup import catch_up
from tenure.ledger.log import log_end, read_entry
from tenure.ledger.snapshots import restore_if_sound
from tenure.ledger.together import all_of
from tenure.store import Store

_AHEAD = 16
_ROUNDS = 5


class Onlooker:
    """Nobody's leadership: reading needs none."""

    epoch = 2**62

    def remaining(self) -> float:
        return float("inf")

    def ensure(self, seconds: float = 0.0) -> None:
        pass


async def look_up(store: Store, state: LedgerState) -> None:
    """Bring the state to the end of the log as it is now, or further: what is written meanwhile is not waited for.

    A leader that catches up has to find the very end, and is alone. An onlooker is not: a log that is busy grows while
    he makes sure that it does not.
    """
    end = await log_end(store)
    for _ in range(_ROUNDS):
        await restore_if_sound(store, state, state.seq + 1)
        if await _read_on(store, state, end):
            return
    await catch_up(store, state, Onlooker())  # which tells what is wrong


async def _read_on(store: Store, state: LedgerState, end: int) -> bool:
    """False: an entry is not there any more; a snapshot has taken its place."""
    while state.seq < end:
        numbers = range(state.seq + 1, min(end, state.seq + _AHEAD) + 1)
        for entry in await all_of(read_entry(store, number) for number in numbers):
            if entry is None:
                return False
            state.apply(entry)
    return True
