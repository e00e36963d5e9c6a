"""Hours, days, weeks and months: they follow each other, whatever a zone does to its clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tenure.plugins.counters.calendar import DAY_MS, HOUR_MS, moment_of, told, week_of

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour of summer time
    "Asia/Kolkata",  # half an hour off
    "Asia/Kathmandu",
    "America/St_Johns",
    "America/Havana",  # midnight comes twice
    "Asia/Beirut",  # midnight does not come
    "America/Sao_Paulo",
    "Pacific/Apia",  # a whole day does not come
    "Africa/Casablanca",
    "Antarctica/Troll",
]
CHANGES = [("2023-03-08", "2023-04-05"), ("2023-09-28", "2023-11-08"), ("2011-12-28", "2012-01-02")]
"""When clocks are changed somewhere."""


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize("name", ZONES)
def test_beginnings_never_go_back_and_never_come_late(name: str) -> None:
    zone = ZoneInfo(name)
    for first, last in CHANGES:
        ms, end = _ms(f"{first}T00:00+00:00"), _ms(f"{last}T00:00+00:00")
        before = moment_of(ms, zone)
        while ms < end:
            ms += 1_500_000  # 25 minutes: every hour, and at ever other minutes
            now = moment_of(ms, zone)
            assert now.hour_ms >= before.hour_ms, told(ms, zone)
            assert now.day_ms >= before.day_ms, told(ms, zone)
            assert now.month_ms >= before.month_ms, told(ms, zone)
            assert now.month_ms <= now.day_ms <= now.hour_ms <= ms, told(ms, zone)
            assert ms - now.hour_ms < 1.5 * HOUR_MS, told(ms, zone)
            assert ms - now.day_ms < 26 * HOUR_MS, told(ms, zone)
            before = now


@pytest.mark.parametrize("name", ZONES)
def test_every_moment_of_an_hour_is_of_the_same_day_and_month(name: str) -> None:
    """Else the sum of an hour would be in two days."""
    zone = ZoneInfo(name)
    found: dict[int, tuple[int, int]] = {}
    ms = _ms("2023-10-20T00:00+00:00")
    for _ in range(18 * 24 * 4):
        ms += 900_000
        moment = moment_of(ms, zone)
        assert found.setdefault(moment.hour_ms, (moment.day_ms, moment.month_ms)) == (moment.day_ms, moment.month_ms)


def test_days_begin_where_people_say_they_do() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    summer = moment_of(_ms("2024-07-15T13:45:59+02:00"), berlin)
    assert told(summer.hour_ms, berlin) == "2024-07-15T13:00+02:00"
    assert told(summer.day_ms, berlin) == "2024-07-15T00:00+02:00"
    assert told(summer.month_ms, berlin) == "2024-07-01T00:00+02:00"
    twice = [moment_of(_ms(f"2024-10-27T02:30{offset}"), berlin).hour_ms for offset in ("+02:00", "+01:00")]
    assert twice[1] - twice[0] == HOUR_MS, "the hour that comes twice is two hours"
    assert moment_of(_ms("2024-10-27T23:00+01:00"), berlin).day_ms == _ms("2024-10-27T00:00+02:00")
    kolkata = moment_of(_ms("2024-01-01T00:10+05:30"), ZoneInfo("Asia/Kolkata"))
    assert kolkata.hour_ms == _ms("2024-01-01T00:00+05:30")


def test_before_1970_as_well() -> None:
    moment = moment_of(_ms("1969-12-31T23:59:59+00:00"), ZoneInfo("UTC"))
    assert (moment.hour_ms, moment.day_ms) == (-HOUR_MS, -DAY_MS)


@pytest.mark.parametrize("name", ZONES)
def test_weeks_begin_on_mondays(name: str) -> None:
    zone = ZoneInfo(name)
    day = datetime(2024, 1, 1, 12, tzinfo=UTC)
    for _ in range(400):
        day += timedelta(days=1)
        day_ms = moment_of(round(day.timestamp() * 1000), zone).day_ms
        monday = datetime.fromtimestamp(week_of(day_ms, zone) / 1000, zone)
        assert monday.weekday() == 0
        assert -HOUR_MS <= day_ms - week_of(day_ms, zone) <= 6 * DAY_MS + HOUR_MS
