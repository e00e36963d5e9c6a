"""A warning that a lasting condition repeats is logged once a minute. Pure: the time is handed in."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from tenure.clock import Reading

EVERY_SECONDS = 60.0
_MOST = 200
"""Warnings that are remembered; of more the one that was met longest ago is forgotten."""


class _Logged(msgspec.Struct):
    at: Reading
    size: float
    held_back: int = 0


class Seldom:
    """Warnings of one logger. The first of each is logged as such. What follows within a minute goes to DEBUG, and is
    counted in the next warning; one that is twice as bad as what was logged (`size`) does not wait.

    `key` tells warnings apart: the text before its arguments, unless it is given. Give the name of what fails, never
    an error's text, which may be another each time.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._logged: dict[str, _Logged] = {}

    def warning(
        self,
        now: Reading,
        text: str,
        *args: object,
        key: str = "",
        size: float = 0.0,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        held_back = self._held_back(now, key or text, size)
        if held_back is None:
            self._log.debug(text, *args, extra=extra, stacklevel=2)
            return
        if held_back:
            text, args = text + " (and %d times more since this was last logged)", (*args, held_back)
        self._log.warning(text, *args, extra=extra, stacklevel=2)

    def _held_back(self, now: Reading, key: str, size: float) -> int | None:
        """How many were not logged since the last one that was. None: nor is this one.

        Without a lock, which a signal handler or a forked child could find taken: at worst one is logged twice.
        """
        last = self._logged.pop(key, None)
        if last is None:
            for oldest in list(self._logged)[: len(self._logged) - _MOST + 1]:
                self._logged.pop(oldest, None)
        elif now.follower_elapsed(last.at) < EVERY_SECONDS and not 0 < 2 * last.size <= size:
            last.held_back += 1
            self._logged[key] = last
            return None
        self._logged[key] = _Logged(now, size)
        return last.held_back if last is not None else 0
