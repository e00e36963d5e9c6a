"""The sections as they are now, for everybody who looks at them.

A section is encoded once, however many pages watch. Nothing is queued for anybody: who is slow gets the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from tenure.dashboard.sections import NAMES, Meta, Section, encoded

_BYTES_A_SECOND = 100_000
_SECONDS_BETWEEN = {"latency": 5.0, "usage": 5.0}


class Board:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._sections: dict[str, Section] = {}
        self._marks: dict[str, bytes] = {}
        self._bodies: dict[str, bytes] = {}
        self._versions: dict[str, int] = {}
        self._changed = asyncio.Event()

    def put(self, name: str, section: Section, mark: Section | None = None) -> None:
        """`mark`: what has to differ for the section to count as changed, where that is not all of it."""
        assert name in NAMES
        body = encoded(section)
        stamp = body if mark is None else encoded(mark)
        self._sections[name], self._bodies[name] = section, body
        if self._marks.get(name) != stamp:
            self._marks[name] = stamp
            self._versions[name] = self._versions.get(name, 0) + 1
            self._changed.set()
            self._changed = asyncio.Event()

    def version(self, name: str) -> int:
        """0: there is nothing yet."""
        return self._versions.get(name, 0)

    def section(self, name: str) -> Section | None:
        return self._sections.get(name)

    def body(self, name: str) -> bytes:
        section = self._sections[name]
        if isinstance(section, Meta):
            return encoded(msgspec.structs.replace(section, now_ms=self._now_ms()))
        return self._bodies[name]

    def snapshot(self) -> bytes:
        """All sections, as one JSON object."""
        return b"{%s}" % b",".join(
            b'"%s":%s' % (name.encode(), self.body(name)) for name in NAMES if self.version(name)
        )

    def seconds_between(self, name: str) -> float:
        """Two messages of a section to one page: the larger it is, the more rarely it is sent."""
        return max(_SECONDS_BETWEEN.get(name, 1.0), len(self._bodies.get(name, b"")) / _BYTES_A_SECOND)

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change."""
        return self._changed
