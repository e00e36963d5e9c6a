"""When cron expressions fire, found the slow way: walk through time, and look at the clock on the wall.

It shares nothing with what it is held against: no parser, no search, no arithmetic with offsets. UTC is walked in steps
(of a minute; of half an hour where the walk has to be quick, as no clock is changed within one), each step is
shown by the zone's clock, and fields are matched against what it shows. Minutes that the clock leaves out, and those
that it shows again, are noticed as somebody would notice them who writes down what it shows.
"""

from __future__ import annotations

import calendar
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_NAMES = {name: str(number) for number, name in [*enumerate(_DAYS), *enumerate(_MONTHS, 1)]}


def _numbers(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start = low if first == "*" else int(_NAMES.get(first, first))
        end = high if first == "*" or (step and not last) else int(_NAMES.get(last or first, last or first))
        found |= set(range(start, end + 1, int(step or 1)))
    return found


class Matcher:
    """Five fields, against what a clock and a calendar show."""

    def __init__(self, text: str) -> None:
        minute, hour, days, month, weekdays = text.split()
        self.minutes, self.hours = _numbers(minute, 0, 59), _numbers(hour, 0, 23)
        self.is_fixed = minute[0] != "*" and hour[0] != "*"
        self._months = _numbers(month, 1, 12)
        self._days = _numbers(days, 1, 31) if days != "L" else None
        weekday, _, self._nth = weekdays.partition("#")
        self._weekdays = {number % 7 for number in _numbers(weekday, 0, 7)}
        self._needs_both = days[0] == "*" or weekdays[0] == "*"

    def day(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        if self._days is not None:
            by_month = day.day in self._days
        else:
            by_month = day.day == calendar.monthrange(day.year, day.month)[1]
        by_week = day.isoweekday() % 7 in self._weekdays
        if self._nth:
            by_week = by_week and (day.day - 1) // 7 + 1 == int(self._nth)
        return by_month and by_week if self._needs_both else by_month or by_week

    def local(self, local: datetime) -> bool:
        return local.minute in self.minutes and local.hour in self.hours and self.day(local.date())


class Walk:
    """What the clock of a zone shows, from one instant to another."""

    def __init__(self, zone: str, start: datetime, end: datetime, step: int = 1) -> None:
        self.start, self.end = start, end
        self._step = step
        self._shown: dict[date, dict[int, list[tuple[int, int, bool]]]] = defaultdict(lambda: defaultdict(list))
        """By day and hour: the minute that it shows, the instant, and whether it has shown that minute before."""
        self.gaps: list[tuple[int, list[datetime]]] = []
        """The instant at which the clock jumps, and the minutes that it leaves out."""
        self.folds: list[int] = []
        clock, stride = ZoneInfo(zone), timedelta(minutes=step)
        utc, expected, latest = start, None, datetime.min
        while utc < end:
            local = utc.astimezone(clock).replace(tzinfo=None, fold=0)
            at = int(utc.timestamp())
            if expected is not None and local > expected:
                left_out = [expected + k * MINUTE for k in range((local - expected) // MINUTE)]
                self.gaps.append((at, left_out))
            elif expected is not None and local < expected:
                self.folds.append(at)
            self._shown[local.date()][local.hour].append((local.minute, at, local < latest))
            expected = local + stride
            latest = max(latest, expected)
            utc += stride

    @property
    def changes(self) -> list[datetime]:
        return [datetime.fromtimestamp(at, UTC) for at in sorted([at for at, _ in self.gaps] + self.folds)]

    def fires(self, text: str, policy: str) -> list[int]:
        """Milliseconds, ascending."""
        matcher = Matcher(text)
        fires_again = policy == "both" or not matcher.is_fixed
        found: set[int] = set()
        for hours in [hours for day, hours in self._shown.items() if matcher.day(day)]:
            for first, at, again in [entry for hour in matcher.hours for entry in hours.get(hour, ())]:
                if again and not fires_again:
                    continue
                for minute in range(first, first + self._step):
                    if minute in matcher.minutes:
                        found.add(at + 60 * (minute - first))
        if matcher.is_fixed and policy != "skip":
            found |= {at for at, left_out in self.gaps if any(matcher.local(local) for local in left_out)}
        return [at * 1000 for at in sorted(found)]
