"""The instants at which a job fires: worked out, never looked up, and the same in every process with the same zones.

    timetable_of(job, anchor_ms).next_after(decided_ms)

Guaranteed: what `iterate` gives is strictly ascending, strictly after what it was asked for, and does not depend on
where the search began: the instants after x are those after an earlier y, without those up to x. Nothing here reads a
clock, and one search takes microseconds; the longest (a 29th of February that must be a Sunday) a few milliseconds.

Assumed: the zone's rules stay as they are. When they change (a newer `tzdata`), instants that are not decided yet move.

Local times are found without a zone, and then placed in it (PEP 495): one exists once, or twice (a fold: clocks go
back), or not at all (a gap: clocks go forward). `Dst` says what happens then to a job at fixed times; one whose minute
or hour begins with `*` follows real time. For `Dst.ONCE` that is what cronsim and Debian's cron do.
"""

from __future__ import annotations

import enum
import hashlib
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import msgspec

from tenure.errors import ConfigError
from tenure.plugins.scheduler.schedule import MAX_MS, At, Cron, Dst, Every, parsed, zone_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from tenure.plugins.scheduler.job import Job

MAX_FIRES = 1000
"""As many as are told at once."""
_SHOWN = 3


class Fire(msgspec.Struct, frozen=True):
    """One instant, for people."""

    at_ms: int
    local: str
    """In the job's time zone, with the offset that holds then."""
    note: str = ""
    """What a change of the clocks has to do with it, in words."""


class Timetable(Protocol):
    """All the instants of a job, in milliseconds since 1970."""

    def next_after(self, after_ms: int) -> int | None:
        """The first instant strictly after; `None` if there is none any more, or none within 50 years."""
        ...

    def iterate(self, after_ms: int) -> Iterator[int]:
        """All of them that are strictly after, ascending; maybe without end."""
        ...

    def fires(self, after_ms: int, count: int) -> list[Fire]:
        """The next so many, told so that people can check them."""
        ...


def timetable_of(job: Job, anchor_ms: int) -> Timetable:
    """The timetable of a job that was added at `anchor_ms`: from there an `every` without a start is counted.

    It takes up little, and keeps nothing that was parsed: as many may be kept as there are jobs.
    """
    first = 0 if job.start_ms is None else job.start_ms
    end = MAX_MS + 1 if job.end_ms is None else job.end_ms
    match job.schedule:
        case Cron() as schedule:
            return CronTimetable(schedule, first, end)
        case Every(period_ms):
            if job.start_ms is None:
                return EveryTimetable(period_ms, max(anchor_ms, 0) + period_ms, end)
            return EveryTimetable(period_ms, first, end)
        case At(at_ms):
            return EveryTimetable(0, at_ms, end if first <= at_ms else 0)


def jitter_of(job: Job, at_ms: int) -> int:
    """By how many milliseconds this occurrence is put off: always the same for it, and another for the next."""
    if not job.jitter_ms:
        return 0
    drawn = hashlib.blake2b(f"{job.id}@{at_ms}".encode(), digest_size=8).digest()
    return int.from_bytes(drawn, "big") % (job.jitter_ms + 1)


class EveryTimetable(msgspec.Struct, frozen=True, gc=False):
    """`first`, and then once per period, before `end`; without a period only the first."""

    period_ms: int
    first_ms: int
    end_ms: int

    def next_after(self, after_ms: int) -> int | None:
        found = self.first_ms
        if found <= after_ms:
            if not self.period_ms:
                return None
            found += ((after_ms - found) // self.period_ms + 1) * self.period_ms
        return found if found < self.end_ms else None

    def iterate(self, after_ms: int) -> Iterator[int]:
        found = self.next_after(after_ms)
        if found is not None:
            yield from range(found, self.end_ms if self.period_ms else found + 1, self.period_ms or 1)

    def fires(self, after_ms: int, count: int) -> list[Fire]:
        return [
            Fire(at_ms, _told(datetime.fromtimestamp(at_ms // 1000, UTC), at_ms % 1000))
            for at_ms in islice(self.iterate(after_ms), _checked(count))
        ]


class _How(enum.Enum):
    """How a local time that matches comes to be an instant."""

    PLAIN = enum.auto()
    FIRST = enum.auto()
    """Of the two times that it comes."""
    SECOND = enum.auto()
    AFTER_GAP = enum.auto()
    """It does not exist, and fires right after."""
    LEFT_OUT = enum.auto()
    """It does not exist, and does not fire."""


class CronTimetable(msgspec.Struct, frozen=True, gc=False):
    """The instants of a cron expression in a zone, from `first` on and before `end`."""

    schedule: Cron
    first_ms: int
    end_ms: int

    def next_after(self, after_ms: int) -> int | None:
        return next(self.iterate(after_ms), None)

    def iterate(self, after_ms: int) -> Iterator[int]:
        last = max(after_ms, self.first_ms - 1)
        for at, how, _ in self._walk(last // 1000):
            at_ms = at * 1000
            if at_ms >= self.end_ms:
                return
            if at_ms > last and how is not _How.LEFT_OUT:
                last = at_ms
                yield at_ms

    def fires(self, after_ms: int, count: int) -> list[Fire]:
        """A time that was left out is told with the one that fires next."""
        zone, last = zone_of(self.schedule.timezone), max(after_ms, self.first_ms - 1)
        fires: list[Fire] = []
        left_out: list[datetime] = []
        merged: list[datetime] = []
        _checked(count)
        for at, how, local in self._walk(last // 1000):
            at_ms = at * 1000
            if at_ms >= self.end_ms:
                break
            if how is _How.LEFT_OUT:
                left_out.append(local)
                continue
            if fires and fires[-1].at_ms == at_ms:  # right after the gap: further ones from it, or one of its own
                merged.append(local)
                fires[-1] = msgspec.structs.replace(fires[-1], note=self._gap_note(merged, at, zone))
                continue
            if len(fires) == count:
                break
            if at_ms <= last:
                continue
            merged = [local]
            told = [self._left_out_note(left_out)] if left_out else []
            if how is _How.AFTER_GAP:
                told.append(self._gap_note(merged, at, zone))
            elif how is not _How.PLAIN:
                told.append(self._fold_note(local, how))
            fires.append(Fire(at_ms, _told(datetime.fromtimestamp(at, zone)), "; ".join(told)))
            left_out = []
        return fires

    def _walk(self, after: int) -> Iterator[tuple[int, _How, datetime]]:
        """Local times that match and their instants in seconds, ascending, from `after` or a little before it on.

        Several local times may have the same instant: that right after a gap.
        """
        if after * 1000 >= MAX_MS:
            return
        zone, expression = zone_of(self.schedule.timezone), parsed(self.schedule.text)
        follows, dst = not expression.is_fixed, self.schedule.dst
        here = datetime.fromtimestamp(max(after, -1), zone)
        since = here.replace(tzinfo=None, fold=0)
        if not here.fold and (apart := here.replace(fold=1).timestamp() - here.timestamp()) > 0:
            since -= timedelta(seconds=apart)  # clocks will go back: times before this one come again
        seconds: deque[tuple[int, datetime]] = deque()
        gap_end = 0
        for local in expression.after(since):
            placed = local.replace(tzinfo=zone)
            early = at = int(placed.timestamp())
            late = int(placed.replace(fold=1).timestamp())
            while seconds and seconds[0][0] <= at:
                yield seconds[0][0], _How.SECOND, seconds.popleft()[1]
            if early == late:
                yield at, _How.PLAIN, local
            elif early < late:
                yield at, _How.FIRST, local
                if follows or dst is Dst.BOTH:
                    seconds.append((late, local))
            elif follows or dst is Dst.SKIP:
                yield late, _How.LEFT_OUT, local  # so that it is not taken for later than what comes after it
            else:
                if not late < gap_end <= early:
                    gap_end = _change_between(zone, late, early)
                yield gap_end, _How.AFTER_GAP, local
        for at, local in seconds:
            yield at, _How.SECOND, local

    def _gap_note(self, locals: list[datetime], at: int, zone: ZoneInfo) -> str:
        after = datetime.fromtimestamp(at, zone)
        own = after.replace(tzinfo=None)
        missing = [local for local in locals if local != own]
        once = "once, " if len(locals) > 1 else ""
        with_own = "which is a time of its own" if len(missing) < len(locals) else "right after the gap"
        return f"{self._missing(missing)}: fires {once}at {after:%H:%M} {_offset(after)}, {with_own}"

    def _left_out_note(self, locals: list[datetime]) -> str:
        by_policy = ", and is left out" if len(locals) == 1 else ", and are left out"
        return self._missing(locals) + (by_policy if parsed(self.schedule.text).is_fixed else "")

    def _missing(self, locals: list[datetime]) -> str:
        shown = [f"{local:%H:%M}" for local in locals]
        if len(shown) > _SHOWN:
            shown = [shown[0], "…", shown[-1]]
        verb = "do not exist" if len(locals) > 1 else "does not exist"
        return f"{', '.join(shown)} {verb} on {locals[0]:%Y-%m-%d} in {self.schedule.timezone}"

    def _fold_note(self, local: datetime, how: _How) -> str:
        which = "second" if how is _How.SECOND else "first"
        alone = parsed(self.schedule.text).is_fixed and self.schedule.dst is not Dst.BOTH
        rest = ", and the second does not fire" if alone else ""
        return f"{local:%H:%M} comes twice on {local:%Y-%m-%d} in {self.schedule.timezone}: this is the {which}{rest}"


def _change_between(zone: ZoneInfo, before: int, after: int) -> int:
    """The second at which the clocks of a zone are changed, later than `before` and not later than `after`."""
    old = datetime.fromtimestamp(before, zone).utcoffset()
    while after - before > 1:
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after


def _told(when: datetime, ms: int = 0) -> str:
    fraction = f".{ms:03d}" if ms else ""
    return f"{when:%Y-%m-%d %H:%M:%S}{fraction} {_offset(when)}"


def _offset(when: datetime) -> str:
    return when.isoformat()[19:]


def _checked(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_FIRES:
        raise ConfigError(f"count is {count!r:.80}: give a whole number from 1 to {MAX_FIRES:,}")
    return count
