"""What is known of a TTL, as a function of its log. Pure: no clock, no store, no randomness.

Which records expire when is not in it: that is with the records and in the index. A crash may lose the counts of what
was done since the last entry, and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from tenure.ledger import Stamp
from tenure.plugins.ttl.records import Cleanup, Counts, Work, decode_work

VERSION = 1
MAX_TRIALS = 20_000
"""Callbacks that are open at a time; above this the oldest are forgotten, and counted anew."""
MAX_ASKED = 1000
MAX_CLEANUPS = 50


class _Image(msgspec.Struct):
    totals: Counts
    trials: dict[str, int]
    asked: dict[str, str]
    cleanups: list[Cleanup]
    runs: int


class TTLMachine:
    version = VERSION

    def __init__(self) -> None:
        self.totals = Counts()
        self.trials: OrderedDict[str, int] = OrderedDict()
        """How often each open callback was begun."""
        self.asked: OrderedDict[str, str] = OrderedDict()
        """Requests for a cleanup that none has answered."""
        self.cleanups: list[Cleanup] = []
        """The last ones that did something, or were asked for."""
        self.runs = 0

    def apply(self, events: bytes, stamp: Stamp) -> None:
        self.enact(decode_work(events))

    def enact(self, work: Work) -> None:
        for request, by in work.asked.items():
            if len(self.asked) < MAX_ASKED:
                self.asked[request] = by
        for key in work.settled:
            self.trials.pop(key, None)
        for key in work.begun:
            self.trials[key] = self.trials.pop(key, 0) + 1
        while len(self.trials) > MAX_TRIALS:
            self.trials.popitem(last=False)
        if work.counts is not None:
            self.totals.add(work.counts)
        if work.cleanup is not None:
            self.runs += 1
            for request in work.cleanup.asked:
                self.asked.pop(request, None)
            self.cleanups = [*self.cleanups, work.cleanup][-MAX_CLEANUPS:]

    def began(self, stamp: Stamp) -> None:
        pass

    def snapshot(self) -> list[bytes]:
        image = _Image(self.totals, dict(self.trials), dict(self.asked), self.cleanups, self.runs)
        return [msgspec.json.encode(image)]

    def restore(self, chunks: Sequence[bytes]) -> None:
        image = msgspec.json.decode(chunks[0], type=_Image)
        self.totals, self.cleanups, self.runs = image.totals, image.cleanups, image.runs
        self.trials, self.asked = OrderedDict(image.trials), OrderedDict(image.asked)
