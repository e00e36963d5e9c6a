"""Hours, days, weeks and months in a time zone. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from tenure.plugins.counters.records import Moment

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def moment_of(ms: int, zone: tzinfo) -> Moment:
    """The beginnings of the hour, day and month in which it is."""
    local = datetime.fromtimestamp(ms / 1000, UTC).astimezone(zone)
    hour = local.replace(minute=0, second=0, microsecond=0)
    day = hour.replace(hour=0, fold=0)
    month = day.replace(day=1)
    return Moment(min(_ms(hour), ms), min(_ms(day), ms), min(_ms(month), ms))


def week_of(day_ms: int, zone: tzinfo) -> int:
    """The beginning of the Monday of a day's week."""
    local = datetime.fromtimestamp(day_ms / 1000, UTC).astimezone(zone)
    naive = local.replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0) - timedelta(days=local.weekday())
    return _ms(naive.replace(tzinfo=zone))


def told(ms: int, zone: tzinfo) -> str:
    """For people: the local time of a beginning."""
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone(zone).isoformat(timespec="minutes")


def _ms(local: datetime) -> int:
    return round(local.timestamp() * 1000)
