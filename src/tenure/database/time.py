"""The store's clock, as this process sees it: the one clock that every host of a fleet can share.

    time = StoreTime(store)
    await time.now()          # seconds since 1970, on the store's clock

Guarantee: `now()` is within `uncertainty` of the store's clock, and never goes back within one `StoreTime`. This host's
wall clock has no part in it, so setting that, forward or back, changes nothing.

Assumption: the store stamps an object with its own clock while it is being written (listings may show whole seconds,
rounded down), that clock is not set while it is being used, and runs within `DRIFT` of this host's elapsed clock.

Not guaranteed: that two processes agree to better than the sum of their uncertainties; with the defaults and clocks as
they are in practice that is about a second. A store whose clock is set back has `now()` stand still until the clock has
caught up. The store of a directory or of memory is stamped by this machine's wall clock, and shares its jumps.

How it is measured: an object of our own, under a name that is never used again, is written and then listed. Its time
lies between sending it and hearing of it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import datetime

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock, Reading
from tenure.coordinator.membership import StampedBeat
from tenure.entropy import NewId, new_id
from tenure.errors import ConfigError, StoreError, StoreUnavailable
from tenure.store import Applied, Store, Unknown
from tenure.store.scratch import TIME_FOLDER as TIME_FOLDER
from tenure.store.scratch import scratch_body

DRIFT = 0.01
REMEASURE_AFTER = 120.0
"""Seconds: at the assumed drift, after so long over a second may have been gained or lost."""
GOOD_FOR = 600.0
_RETRY_AFTER = 10.0
_TRIES = 3
_PAUSE = 0.1
_WIDE = 4.0
"""Seconds: what is told cannot be taken back, so a measurement that says no more than this is made again."""


class Span(msgspec.Struct, frozen=True):
    """What the store's clock can have shown, in seconds since 1970, at one reading of ours."""

    at: Reading
    earliest: float
    latest: float

    @property
    def middle(self) -> float:
        return (self.earliest + self.latest) / 2

    @property
    def width(self) -> float:
        return self.latest - self.earliest

    def aged(self, now: Reading) -> Span:
        """The same, at a later reading. It is wider: two clocks drift apart."""
        least = now.follower_elapsed(self.at) * (1 - DRIFT)
        most = now.leader_elapsed(self.at) / (1 - DRIFT)  # of a clock that is slow by so much
        return Span(now, self.earliest + least, self.latest + most)

    def narrowed(self, newer: Span) -> Span:
        """What this and a newer measurement say together. If they contradict each other, the store's clock was set."""
        if newer.at.follower_elapsed(self.at) < 0:
            return newer.narrowed(self)  # told of late: knowledge is only ever aged forward
        before = self.aged(newer.at)
        earliest, latest = max(before.earliest, newer.earliest), min(before.latest, newer.latest)
        return Span(newer.at, earliest, latest) if earliest <= latest else newer


def span_of(sent: Reading, heard: Reading, modified: datetime) -> Span:
    """What a write teaches: it was sent, somewhen the store stamped it `modified`, and then we heard of it."""
    stamp = modified.timestamp()
    under_way = heard.leader_elapsed(sent) / (1 - DRIFT)
    return Span(heard, stamp, stamp + _rounding(modified) + under_way)


def _rounding(modified: datetime) -> float:
    """By how much the stamp may have been rounded down; a time on the full second was, as good as always."""
    if modified.microsecond == 0:
        return 1.0
    return 0.001 if modified.microsecond % 1000 == 0 else 0.0


class StoreTime:
    """The store's clock for one process and one event loop.

    It is measured when it is first asked for, and again once `remeasure_after` seconds have passed; callers that ask
    meanwhile share one measurement. If that fails, an older one is good for `good_for` seconds; after that, or without
    one, `now()` raises the `StoreError`.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock = SYSTEM_CLOCK,
        draw_id: NewId = new_id,
        remeasure_after: float = REMEASURE_AFTER,
        good_for: float = GOOD_FOR,
        beats: Callable[[], StampedBeat | None] = lambda: None,
    ) -> None:
        """`beats`: the newest write that was made and listed anyway, if there is one. It saves measurements, and where
        one comes every few seconds `uncertainty` stays small."""
        if not 0 < remeasure_after <= good_for < math.inf:
            raise ConfigError(
                f"remeasure_after is {remeasure_after!r} and good_for is {good_for!r}: both are seconds above zero, "
                "and a measurement must be good at least until the next one is due"
            )
        self._store = store
        self._clock = clock
        self._draw_id = draw_id
        self._remeasure_after = remeasure_after
        self._good_for = good_for
        self._span: Span | None = None
        self._told = -math.inf
        self._failed: Reading | None = None
        self._tried: Reading | None = None
        """When it was last measured, whatever came of it."""
        self._measuring: asyncio.Task[None] | None = None
        self._beats = beats
        self._beat: StampedBeat | None = None

    async def now(self) -> float:
        """Seconds since 1970 on the store's clock; never less than it was before. Raises `StoreError`."""
        self._learn()
        if self._due(self._clock.read()):
            await self._measure_together()
            self._learn()
        self._told = self._at(self._clock.read())
        return self._told

    @property
    def uncertainty(self) -> float:
        """By how many seconds `now()` may be off, either way; infinite before it was first asked.

        Of what `now()` has just told: ask for it before anything else is awaited, and keep the two together.
        """
        if self._span is None:
            return math.inf
        reading = self._clock.read()
        span, now = self._span.aged(reading), self._at(reading)
        return max(now - span.earliest, span.latest - now)

    @property
    def skew(self) -> float | None:
        """This host's wall clock minus the store's, in seconds, for reports; `None` before the first measurement."""
        if self._span is None:
            return None
        reading = self._clock.read()
        return reading.wall_ns / 1e9 - self._span.aged(reading).middle

    def observe(self, sent: Reading, heard: Reading, modified: datetime) -> None:
        """Learn from a write of ours that was made and listed anyway, such as a heartbeat: it saves a measurement.

        `sent` was read before the write was sent, and `heard` after the store had said that it happened; `modified` is
        that write's time in a listing.
        """
        newer = span_of(sent, heard, modified)
        self._span = newer if self._span is None else self._span.narrowed(newer)
        self._failed = None

    def _learn(self) -> None:
        beat = self._beats()
        if beat is not None and beat is not self._beat:
            self._beat = beat
            self.observe(beat.sent, beat.heard, beat.modified)

    def _at(self, reading: Reading) -> float:
        assert self._span is not None
        return max(self._told, self._span.aged(reading).middle)

    def _due(self, reading: Reading) -> bool:
        if self._span is None or reading.leader_elapsed(self._span.at) >= self._good_for:
            return True
        if self._failed is not None and reading.follower_elapsed(self._failed) < _RETRY_AFTER:
            return False
        if self._span.aged(reading).width > _WIDE and (
            self._tried is None or reading.follower_elapsed(self._tried) >= _RETRY_AFTER
        ):
            return True  # a beat that took very long says little
        return reading.leader_elapsed(self._span.at) >= self._remeasure_after

    async def _measure_together(self) -> None:
        if self._measuring is None or self._measuring.done():
            self._measuring = asyncio.create_task(self._measure())
            # A caller that was cancelled does not hear of a failure, and then nobody does; that is no error.
            self._measuring.add_done_callback(_retrieved)
        try:
            await asyncio.shield(self._measuring)  # one caller that gives up must not end it for the others
        except StoreError:
            now = self._clock.read()
            self._failed = now
            if self._span is None or now.leader_elapsed(self._span.at) >= self._good_for:
                raise

    async def _measure(self) -> None:
        for number in range(_TRIES):
            self._tried = self._clock.read()
            try:
                await self._measure_once()
            except StoreError:
                if number == _TRIES - 1:
                    raise
                await self._clock.sleep(_PAUSE * 2.0**number)
            else:
                assert self._span is not None
                if self._span.aged(self._clock.read()).width <= _WIDE:
                    return  # else this process stood still, or the answer took long: once more, before it is relied on

    async def _measure_once(self) -> None:
        folder = f"{TIME_FOLDER}{self._draw_id()}/"
        key = folder + "mark"
        sent = self._clock.read()
        outcome = await self._store.create(key, scratch_body(self._draw_id()))
        heard = self._clock.read()
        stamps = [entry.modified async for entry in self._store.list(folder) if entry.key == key]
        if not isinstance(outcome, Applied):
            heard = self._clock.read()  # it is there, whatever we were told, and came at some time before the listing
        if not stamps:
            raise outcome.error if isinstance(outcome, Unknown) else StoreUnavailable(f"{key!r} is not in its listing")
        self.observe(sent, heard, stamps[0])
        try:
            await self._store.delete(key)
        except StoreError:
            pass  # what is left is scratch


def _retrieved(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
