"""Reading along (L-4): the next number, again and again, without a listing.

An entry that was trimmed can be created once more by a former leader that was paused in the middle of sending it. Such
a ghost has the number of an entry that everybody else has long read. Who reads along tells it from the real one by
time: at the sending of a poll that found nothing, the real entry did not exist yet; it is then trimmed no earlier than
`trim_delay` after that. What is read within that time is real; what is read later is not believed.
"""

from __future__ import annotations

import enum

from tenure.clock import Clock, Reading
from tenure.ledger.agreed import Trust
from tenure.ledger.config import LedgerConfig
from tenure.ledger.log import log_end, read_entry
from tenure.ledger.records import LogEntry
from tenure.store import Store


class Resync(enum.Enum):
    """Instead of an entry: the log cannot be followed from here on."""

    LOST = "lost"


class Tail:
    """Gives the entries of a log from `position` on, each once, in order."""

    def __init__(self, store: Store, *, config: LedgerConfig, clock: Clock) -> None:
        self._store = store
        self._trust = Trust(store, config)
        self._clock = clock
        self.position = 0
        """The number of the next entry; 0 before `start`."""
        self.absent_since: Reading | None = None
        """When the poll was sent that last found nothing, at `position` or below it: what is read now is younger."""
        self.epoch = 0
        """The highest seen."""

    async def start(self) -> int:
        """Begin at the end of the log, and say where that is."""
        sent = self._clock.read()
        end = await log_end(self._store)
        self.position = max(self.position, end + 1)  # it may have moved on meanwhile, and never goes back
        self.absent_since = sent
        return self.position

    async def poll(self) -> LogEntry | Resync | None:
        """The next entry, which is then to be `took`; `None` if there is none yet, or it was `took` meanwhile."""
        assert self.absent_since is not None, "start() first"
        sent, position = self._clock.read(), self.position
        entry = await read_entry(self._store, position)
        is_believed = await self._trust.holds(self._clock.read().leader_elapsed(self.absent_since))
        if self.position != position:
            if entry is None:
                self.absent_since = sent  # those after it were not there either
            return None
        if not is_believed:
            return Resync.LOST  # what is there may be a ghost, and what is not there may have been trimmed
        if entry is None:
            self.absent_since = sent
        return entry

    def took(self, entry: LogEntry) -> bool:
        """Go on after this entry, which was polled, or written by this process. False: it is void (L-2)."""
        self.position = entry.seq + 1
        if entry.epoch < self.epoch:
            return False
        self.epoch = entry.epoch
        return True
