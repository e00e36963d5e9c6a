"""The messages that a schedule's occurrences have put on a queue, by that queue's own log."""

from __future__ import annotations

from collections import Counter

import msgspec

from tenure.election.records import decode
from tenure.ledger import LogEntry
from tenure.ledger.config import MAX_ENTRY_BYTES
from tenure.ledger.layout import parse_number
from tenure.plugins.queue.records import Work
from tenure.plugins.queue.wire import Segment, read_header
from tenure.testing.bucket import Write

_work = msgspec.json.Decoder(Work)


class Post:
    """Every message that an entry which counts has taken into the queue, as it was first written."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.messages: Counter[str] = Counter()
        """By what is remembered of their deduplication keys ..."""
        self.headers: dict[str, dict[str, str]] = {}
        """... and what the last one says of itself."""
        self.posted: set[str] = set()
        """The same of what lay in the inbox at some time."""
        self.duplicates = 0
        self._segments: dict[str, bytes] = {}
        self._entries: set[int] = set()
        self._epoch = 0
        self._posted: dict[str, float] = {}

    def written(self, write: Write) -> None:
        if not write.key.startswith(self._folder):
            return
        key = write.key.removeprefix(self._folder)
        if key.startswith("inbox/"):
            if write.new is None:
                self._posted.pop(key, None)
            else:
                self._posted.setdefault(key, write.at)
                header, _ = read_header(write.new)
                self.posted.update(span.options.dedup for span in header.spans)
        elif key.startswith("seg/") and write.new is not None:
            self._segments.setdefault(key.removeprefix("seg/"), write.new)
        elif key.startswith("log/") and write.new is not None:
            number = parse_number(key)
            if number is not None and number not in self._entries:
                self._entries.add(number)
                self._enter(write.new)

    def stale(self, before: float) -> list[str]:
        """What lies in the inbox, and should have been taken in by now."""
        return [key for key, at in self._posted.items() if at < before]

    def _enter(self, body: bytes) -> None:
        entry = decode(body, LogEntry, MAX_ENTRY_BYTES)
        if not isinstance(entry, LogEntry) or entry.epoch < self._epoch:
            return
        self._epoch = entry.epoch
        if (events := entry.decided) is None:
            return
        work = _work.decode(events)
        self.duplicates += work.duplicates
        for run in work.arrived:
            for held in Segment(self._segments[run.segment]).messages(run.low, run.high):
                self.messages[held.options.dedup] += 1
                self.headers[held.options.dedup] = held.options.headers
