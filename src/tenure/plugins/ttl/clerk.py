"""The leader's part of the ledger: it folds requests, and writes down what the sweep did and begins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from tenure.ledger import InboxName, Item, LogEntry, Place, Poison, Situation, TooNewLetter
from tenure.plugins.ttl.records import Cleanup, Counts, Work
from tenure.plugins.ttl.state import TTLMachine
from tenure.plugins.ttl.wire import CLEANUP, Letter, TooNew, Unreadable, read_letter

_log = logging.getLogger("tenure.ttl")
_NOTHING = Work()


class TTLClerk:
    def __init__(self, on_committed: Callable[[LogEntry], None] = lambda entry: None) -> None:
        self.machine = TTLMachine()
        self._on_committed = on_committed
        self._next = Work()
        """What the next entry says, beside what is in the inbox."""

    # What the sweep has to say

    def did(self, counts: Counts) -> None:
        if counts:
            if self._next.counts is None:
                self._next.counts = Counts()
            self._next.counts.add(counts)

    def begins(self, keys: Sequence[str]) -> None:
        """Callbacks that are to be called once the next entry is written."""
        self._next.begun = [*self._next.begun, *keys]

    def settled(self, key: str) -> None:
        self._next.settled.append(key)

    def ended(self, cleanup: Cleanup) -> None:
        self._next.cleanup = cleanup

    # As the ledger asks

    def read(self, name: InboxName, body: bytes) -> tuple[Place, Letter]:
        try:
            letter = read_letter(body)
        except Unreadable as error:
            raise Poison(str(error)) from None
        except TooNew as error:
            raise TooNewLetter(str(error)) from None
        return Place(letter.after, letter.skipped, letter.ahead), letter

    async def prepare(self, items: Sequence[Item]) -> None:
        pass

    def decide(self, items: Sequence[Item], situation: Situation) -> bytes | None:
        work, self._next = self._next, Work()
        for item in items:
            for request in item.content.requests:
                if request.op == CLEANUP:
                    work.asked[request.id] = request.by
                else:
                    _log.warning("a request %r is not known here, and was not followed", request.op[:80])
        if work == _NOTHING:
            return None
        self.machine.enact(work)
        return msgspec.json.encode(work)

    def committed(self, entry: LogEntry, items: Sequence[Item]) -> Sequence[str]:
        self._on_committed(entry)
        return ()
