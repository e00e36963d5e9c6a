"""A ledger's state that is brought up to date when somebody asks: reading costs what has changed since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.clock import Clock
from tenure.ledger import LedgerConfig, LedgerState, LogEntry, Machine, Resync, Tail
from tenure.ledger.catchup import catch_up
from tenure.plugins.ledgered.looking import Onlooker
from tenure.store import Store


class LedgerView:
    """Every entry that was there when `refresh` was called is in the state that it gives."""

    def __init__(self, store: Store, machine: Callable[[], Machine], *, config: LedgerConfig, clock: Clock) -> None:
        self._store = store
        self._machine = machine
        self._config = config
        self._clock = clock
        self._state: LedgerState | None = None
        self._tail = Tail(store, config=config, clock=clock)
        self._reading = asyncio.Lock()

    async def refresh(self) -> LedgerState:
        """The state; the next call changes it."""
        async with self._reading:
            state, self._state = self._state, None  # if something goes wrong half way, it is read anew
            while state is not None:
                found = await self._tail.poll()
                if isinstance(found, LogEntry):
                    self._tail.took(found)
                    state.apply(found)
                elif found is Resync.LOST:
                    state = None
                else:
                    break
            if state is None:
                state = await self._anew()
            self._state = state
            return state

    async def _anew(self) -> LedgerState:
        began = self._clock.read()  # what comes next was not there when the last request of this was sent
        state = LedgerState(self._machine())
        await catch_up(self._store, state, Onlooker())
        self._tail = Tail(self._store, config=self._config, clock=self._clock)
        self._tail.position, self._tail.absent_since, self._tail.epoch = state.seq + 1, began, state.epoch
        return state
