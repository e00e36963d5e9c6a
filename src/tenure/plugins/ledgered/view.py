"""A ledger's state that is brought up to date when somebody asks: reading costs what has changed since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import takewhile
from typing import cast

from tenure.clock import Clock, Reading
from tenure.ledger import LedgerConfig, LedgerState, LogEntry, Machine, Tail
from tenure.ledger.agreed import Trust
from tenure.ledger.log import log_end, read_entry
from tenure.ledger.together import all_of
from tenure.plugins.ledgered.looking import look_up
from tenure.store import Store

_AHEAD = 16
"""Entries that are asked for at once, if there are many."""


class LedgerView:
    """Every entry that was there when `refresh` was called is in the state that it gives."""

    def __init__(self, store: Store, machine: Callable[[], Machine], *, config: LedgerConfig, clock: Clock) -> None:
        self._store = store
        self._machine = machine
        self._config = config
        self._trust = Trust(store, config)
        self._clock = clock
        self._state: LedgerState | None = None
        self._tail = Tail(store, config=config, clock=clock)
        self._reading = asyncio.Lock()

    async def refresh(self, until: int | None = None) -> LedgerState:
        """The state; the next call changes it. `until`: no further than this entry, which is known to be there, unless
        it is further already."""
        async with self._reading:
            state, self._state = self._state, None  # if something goes wrong half way, it is read anew
            if state is not None and not await self._read_on(state, until):
                state = None
            if state is None:
                state = await self._anew()
            self._state = state
            return state

    async def _read_on(self, state: LedgerState, until: int | None) -> bool:
        """False: the log cannot be followed any more."""
        ahead = 1
        listed: Reading | None = None
        while until is None or state.seq < until:
            count = ahead if until is None else min(ahead, until - state.seq)
            found = await self._poll(count)
            if found is None:
                return False
            for entry in found:
                self._tail.took(entry)
                state.apply(entry)
            if len(found) < count:
                return until is None  # one that is known to have been there was trimmed
            if ahead == _AHEAD and until is None:
                listed = self._clock.read()
                until = await log_end(self._store)  # it may grow as fast as it is read
            ahead = min(_AHEAD, 2 * ahead)
        if listed is not None:
            # What comes after the end is younger than the listing. What came before it was not, so not before now.
            self._tail.absent_since = listed
        return True

    async def _poll(self, count: int) -> list[LogEntry] | None:
        """As `Tail.poll`, several at once."""
        tail, sent = self._tail, self._clock.read()
        entries = await all_of(read_entry(self._store, tail.position + number) for number in range(count))
        assert tail.absent_since is not None
        if not await self._trust.holds(self._clock.read().leader_elapsed(tail.absent_since)):
            return None
        found = list(takewhile(lambda entry: entry is not None, entries))
        if len(found) < count:
            tail.absent_since = sent
        return cast("list[LogEntry]", found)

    async def _anew(self) -> LedgerState:
        began = self._clock.read()  # what comes next was not there when this was asked for
        state = LedgerState(self._machine())
        await look_up(self._store, state)
        self._tail = Tail(self._store, config=self._config, clock=self._clock)
        self._tail.position, self._tail.absent_since, self._tail.epoch = state.seq + 1, began, state.epoch
        return state
