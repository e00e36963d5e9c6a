"""Timetables: the instants of cron, every and at, also where clocks are changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import ConfigError
from tenure.plugins.scheduler.job import Dst, Job, at, cron, every, job_from
from tenure.plugins.scheduler.schedule import ALIASES, MAX_MS, Schedule
from tenure.plugins.scheduler.timetable import Timetable, jitter_of, timetable_of
from tests.unit.minute_walk import Walk

CHANGING = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca")
STEADY = ("UTC", "Asia/Tokyo", "Asia/Kolkata")
CHANGES = {
    "Europe/Berlin": "2026-03-29T01:00 2026-10-25T01:00 2027-03-28T01:00 "
    "2027-10-31T01:00 2028-03-26T01:00 2028-10-29T01:00",
    "America/New_York": "2026-03-08T07:00 2026-11-01T06:00 2027-03-14T07:00 "
    "2027-11-07T06:00 2028-03-12T07:00 2028-11-05T06:00",
    "Australia/Lord_Howe": "2026-04-04T15:00 2026-10-03T15:30 2027-04-03T15:00 "
    "2027-10-02T15:30 2028-04-01T15:00 2028-09-30T15:30",
    "Africa/Casablanca": "2026-02-15T02:00 2026-03-22T02:00 2027-02-07T02:00 "
    "2027-03-14T02:00 2028-01-23T02:00 2028-03-05T02:00",
}
"""In UTC. In Casablanca it is an hour earlier during Ramadan; on Lord Howe clocks are changed by half an hour."""
AROUND = timedelta(hours=5)
POLICIES = tuple(Dst)
START, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2029, 1, 1, tzinfo=UTC)

DAILY = ("30 2 * * *", "0 2 * * *", "0 3 * * *", "45 1 * * *", "59 1,2 * * *", "0,30 1-3 * * *", "0 0 * * *")
SPARSE = (
    "15 1,2,3 * * SUN",
    "10-50/20 2 * * 0",
    "0 9 * * 1-5",
    "5 4 1 * *",
    "0 12 13 * FRI",
    "0 12 */2 * FRI",
    "0 0 29 2 *",
    "0 0 1,15 */3 *",
    "0 1-5/2 31 * *",
    "30 2 L * *",
    "30 2 * MAR,OCT 7#4",
    "20/25 2 25-31 3,4,9-11 *",
)
FOLLOWING = ("30 * * * *", "*/20 2 * * *", "0 */2 * * *", "* 2,3 * * SUN", "5 */6 1-7 * *")
DENSE = ("* * * * *", "*/5 * * * *", "*/15 1-3 * * *", "7,37 */1 * * *")


def ms(*moment: int, zone: str = "UTC", fold: int = 0) -> int:
    year, month, day, hour, minute = (*moment, 0, 0)[:5]
    return int(datetime(year, month, day, hour, minute, tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


def table(schedule: Schedule, anchor_ms: int = 0, **options: Any) -> Timetable:
    return timetable_of(job_from("job", schedule, function="f", **options), anchor_ms)


def between(timetable: Timetable, start: datetime, end: datetime) -> list[int]:
    first, last = int(start.timestamp() * 1000), int(end.timestamp() * 1000)
    return list(takewhile(lambda at_ms: at_ms < last, timetable.iterate(first - 1)))


def changes(zone: str) -> list[datetime]:
    return [datetime.fromisoformat(moment).replace(tzinfo=UTC) for moment in CHANGES[zone].split()]


def of_cronsim(text: str, zone: str, start: datetime, end: datetime) -> list[int]:
    found = CronSim(text, (start - timedelta(seconds=1)).astimezone(ZoneInfo(zone)))
    return [int(when.timestamp() * 1000) for when in takewhile(lambda when: when < end, found)]


# Against a walk through time


@pytest.mark.req("SC-1")
@pytest.mark.parametrize("zone", CHANGING + STEADY)
def test_fires_over_three_years_are_those_of_a_walk(zone: str) -> None:
    walk = Walk(zone, START, END, step=30)
    assert walk.changes == (changes(zone) if zone in CHANGING else [])
    for text in DAILY[:1] + SPARSE:
        for policy in POLICIES if zone in CHANGING else (Dst.ONCE,):
            found = between(table(cron(text, zone, policy)), START, END)
            assert found == walk.fires(text, policy.value), (text, policy)


@pytest.mark.req("SC-1")
@pytest.mark.parametrize("zone", CHANGING)
def test_fires_around_every_change_of_the_clocks_are_those_of_a_walk_by_minutes(zone: str) -> None:
    for change in changes(zone):
        start, end = change - AROUND, change + AROUND
        walk = Walk(zone, start, end)
        assert walk.changes == [change]
        for text in DAILY + FOLLOWING + DENSE:
            for policy in POLICIES:
                found = between(table(cron(text, zone, policy)), start, end)
                assert found == walk.fires(text, policy.value), (text, policy, change)


@pytest.mark.req("SC-1")
@pytest.mark.slow
@pytest.mark.parametrize("zone", CHANGING + STEADY)
def test_fires_over_three_years_are_those_of_a_walk_by_minutes(zone: str) -> None:
    walk = Walk(zone, START, END)
    assert walk.changes == (changes(zone) if zone in CHANGING else [])
    for text in DAILY + SPARSE + FOLLOWING + DENSE[2:3]:
        for policy in POLICIES if zone in CHANGING else (Dst.ONCE,):
            found = between(table(cron(text, zone, policy)), START, END)
            assert found == walk.fires(text, policy.value), (text, policy)


@pytest.mark.req("SC-1")
@pytest.mark.parametrize("zone", CHANGING + STEADY)
def test_once_is_what_cronsim_does(zone: str) -> None:
    for text in SPARSE[::2]:
        assert between(table(cron(text, zone)), START, END) == of_cronsim(text, zone, START, END), text
    for change in changes(zone) if zone in CHANGING else ():
        start, end = change - AROUND, change + AROUND
        for text in DAILY:
            assert between(table(cron(text, zone)), start, end) == of_cronsim(text, zone, start, end), (text, change)


@pytest.mark.req("SC-1")
@pytest.mark.parametrize("zone", CHANGING)
def test_what_follows_real_time_is_what_cronsim_does(zone: str) -> None:
    """But for a zone that is moved by half an hour, where cronsim goes on from the wrong minute in one hour a year."""
    for change in changes(zone):
        start, end = change - AROUND, change + AROUND
        for text in FOLLOWING + DENSE[1:] if zone != "Australia/Lord_Howe" else DENSE[:2]:
            assert between(table(cron(text, zone)), start, end) == of_cronsim(text, zone, start, end), (text, change)


# Changes of the clocks, told


@pytest.mark.req("SC-1")
@pytest.mark.parametrize(
    ("text", "policy", "after", "fires"),
    [
        (
            "30 2 * * *",
            Dst.ONCE,
            ms(2027, 3, 27, 12),
            [
                (
                    "2027-03-28 03:00:00 +02:00",
                    "02:30 does not exist on 2027-03-28 in Europe/Berlin: fires at 03:00 +02:00, right after the gap",
                ),
                ("2027-03-29 02:30:00 +02:00", ""),
            ],
        ),
        (
            "0,30 2 * * *",
            Dst.BOTH,
            ms(2027, 3, 27, 12),
            [
                (
                    "2027-03-28 03:00:00 +02:00",
                    "02:00, 02:30 do not exist on 2027-03-28 in Europe/Berlin: fires once, at 03:00 +02:00, right "
                    "after the gap",
                ),
                ("2027-03-29 02:00:00 +02:00", ""),
            ],
        ),
        (
            "0-59/10 2,3 * * *",
            Dst.ONCE,
            ms(2027, 3, 27, 12),
            [
                (
                    "2027-03-28 03:00:00 +02:00",
                    "02:00, …, 02:50 do not exist on 2027-03-28 in Europe/Berlin: fires once, at 03:00 +02:00, which "
                    "is a time of its own",
                ),
                ("2027-03-28 03:10:00 +02:00", ""),
            ],
        ),
        (
            "30 2 * * *",
            Dst.SKIP,
            ms(2027, 3, 27, 12),
            [
                (
                    "2027-03-29 02:30:00 +02:00",
                    "02:30 does not exist on 2027-03-28 in Europe/Berlin, and is left out",
                ),
                ("2027-03-30 02:30:00 +02:00", ""),
            ],
        ),
        (
            "0 * * * *",
            Dst.ONCE,
            ms(2027, 3, 28, 0),
            [
                ("2027-03-28 03:00:00 +02:00", "02:00 does not exist on 2027-03-28 in Europe/Berlin"),
                ("2027-03-28 04:00:00 +02:00", ""),
            ],
        ),
        (
            "30 2 * * *",
            Dst.ONCE,
            ms(2027, 10, 30, 12),
            [
                (
                    "2027-10-31 02:30:00 +02:00",
                    "02:30 comes twice on 2027-10-31 in Europe/Berlin: this is the first, and the second does not fire",
                ),
                ("2027-11-01 02:30:00 +01:00", ""),
            ],
        ),
        (
            "30 2 * * *",
            Dst.BOTH,
            ms(2027, 10, 30, 12),
            [
                (
                    "2027-10-31 02:30:00 +02:00",
                    "02:30 comes twice on 2027-10-31 in Europe/Berlin: this is the first",
                ),
                (
                    "2027-10-31 02:30:00 +01:00",
                    "02:30 comes twice on 2027-10-31 in Europe/Berlin: this is the second",
                ),
                ("2027-11-01 02:30:00 +01:00", ""),
            ],
        ),
    ],
)
def test_a_change_of_the_clocks_is_told(text: str, policy: Dst, after: int, fires: list[tuple[str, str]]) -> None:
    timetable = table(cron(text, "Europe/Berlin", policy))
    told = timetable.fires(after, len(fires))
    assert [(fire.local, fire.note) for fire in told] == fires
    assert [fire.at_ms for fire in told] == list(islice(timetable.iterate(after), len(fires)))


@pytest.mark.req("SC-1")
def test_notes_are_the_same_however_few_fires_are_asked_for() -> None:
    timetable = table(cron("0-59/10 2,3 * * *", "Europe/Berlin"))
    after = ms(2027, 3, 27, 12)
    assert timetable.fires(after, 1) == timetable.fires(after, 30)[:1]


@pytest.mark.req("SC-1")
def test_a_day_that_does_not_exist_fires_once_at_its_end() -> None:
    """Samoa had no 30 December 2011."""
    timetable = table(cron("0,30 9-17 30 12 *", "Pacific/Apia"))
    (fire,) = timetable.fires(ms(2011, 12, 1), 1)
    assert fire.local == "2011-12-31 00:00:00 +14:00"
    assert fire.note.startswith("09:00, …, 17:30 do not exist on 2011-12-30 in Pacific/Apia: fires once")
    assert list(islice(table(cron("0 9 * * *", "Pacific/Apia", Dst.SKIP)).iterate(ms(2011, 12, 29)), 2)) == [
        ms(2011, 12, 29, 9, zone="Pacific/Apia"),
        ms(2011, 12, 31, 9, zone="Pacific/Apia"),
    ]


@pytest.mark.req("SC-1")
def test_half_an_hour_on_lord_howe() -> None:
    """02:00 becomes 02:30 in October, and 02:00 becomes 01:30 in April."""
    zone = "Australia/Lord_Howe"
    gap = table(cron("15 2 * * *", zone)).fires(ms(2027, 10, 2), 1)[0]
    assert gap.local == "2027-10-03 02:30:00 +11:00"
    both = table(cron("45 1 * * *", zone, Dst.BOTH)).fires(ms(2027, 4, 3), 2)
    assert [fire.local for fire in both] == ["2027-04-04 01:45:00 +11:00", "2027-04-04 01:45:00 +10:30"]


@pytest.mark.req("SC-1")
def test_within_the_hour_that_comes_twice_nothing_is_lost_or_repeated() -> None:
    zone = "Europe/Berlin"
    first, second = ms(2027, 10, 31, 2, 30, zone=zone), ms(2027, 10, 31, 2, 30, zone=zone, fold=1)
    both = table(cron("30 2 * * *", zone, Dst.BOTH))
    assert both.next_after(first - 1) == first
    assert both.next_after(first) == both.next_after(first + 20 * 60_000) == both.next_after(second - 1) == second
    once = table(cron("30,45 2 * * *", zone))
    assert once.next_after(first + 15 * 60_000) == ms(2027, 11, 1, 2, 30, zone=zone)
    assert once.next_after(second) == ms(2027, 11, 1, 2, 30, zone=zone)


@pytest.mark.req("SC-1")
def test_an_end_soon_after_a_gap_cuts_off_only_what_is_later() -> None:
    zone = "Europe/Berlin"
    end = datetime(2027, 3, 28, 3, 20, tzinfo=ZoneInfo(zone))
    timetable = table(cron("*/10 * * * *", zone), end=end)
    assert list(timetable.iterate(ms(2027, 3, 28, 1, 40, zone=zone))) == [
        ms(2027, 3, 28, 1, 50, zone=zone),
        ms(2027, 3, 28, 3, 0, zone=zone),
        ms(2027, 3, 28, 3, 10, zone=zone),
    ]


# Properties

TEXTS = st.one_of(
    st.sampled_from(DAILY + SPARSE + FOLLOWING + DENSE),
    st.builds(
        "{} {} {} * {}".format,
        st.sampled_from(["*", "*/7", "0", "30", "5-55/10", "1,59"]),
        st.sampled_from(["*", "*/3", "0", "2", "1-3", "23"]),
        st.sampled_from(["*", "1", "*/2", "28-31", "L"]),
        st.sampled_from(["*", "0", "MON-FRI", "7", "SAT#2"]),
    ),
)


def _moments(zone: str) -> st.SearchStrategy[tuple[str, int]]:
    near = st.builds(
        lambda change, offset: int(change.timestamp() * 1000) + offset,
        st.sampled_from(changes(zone)),
        st.integers(-3 * 3_600_000, 3 * 3_600_000),
    )
    return st.tuples(st.just(zone), st.one_of(near, near, st.integers(ms(2020, 1, 1), ms(2040, 1, 1))))


PLACES = st.sampled_from(CHANGING).flatmap(_moments)
"""A zone and an instant, mostly about when its clocks are changed."""


def rises(timetable: Timetable, after: int, count: int) -> list[int]:
    found = list(islice(timetable.iterate(after), count))
    assert all(early < late for early, late in pairwise([after, *found]))
    assert all(isinstance(at_ms, int) for at_ms in found)
    return found


def chain(timetable: Timetable, after: int) -> Iterator[int]:
    found = timetable.next_after(after)
    while found is not None:
        yield found
        found = timetable.next_after(found)


@pytest.mark.req("SC-1")
@given(TEXTS, PLACES, st.sampled_from(POLICIES))
def test_cron_rises_and_does_not_depend_on_where_the_search_began(text: str, place: tuple[str, int], dst: Dst) -> None:
    zone, after = place
    timetable = table(cron(text, zone, dst))
    found = rises(timetable, after, 12)
    assert found == list(islice(chain(timetable, after), 12))
    earlier = after - 5 * 3_600_000
    assert next(at_ms for at_ms in timetable.iterate(earlier) if at_ms > after) == found[0]
    assert [fire.at_ms for fire in timetable.fires(after, 12)] == found
    assert all(at_ms % 60_000 == 0 for at_ms in found)


@pytest.mark.req("SC-1")
@given(TEXTS, PLACES, st.sampled_from(POLICIES), st.integers(1, 300))
def test_start_and_end_cut_off_and_change_nothing_between(
    text: str, place: tuple[str, int], dst: Dst, minutes: int
) -> None:
    zone, first = place
    start = datetime.fromtimestamp(first // 1000, UTC)
    end = start + timedelta(minutes=minutes)
    bounded = table(cron(text, zone, dst), start=start, end=end)
    wanted = between(table(cron(text, zone, dst)), start, end)
    assert list(bounded.iterate(0)) == wanted
    assert [fire.at_ms for fire in bounded.fires(0, 400)] == wanted
    assert list(chain(bounded, 0)) == wanted


@pytest.mark.req("SC-1")
@given(
    st.integers(1000, 400_000_000),
    st.integers(0, 2_000_000_000_000),
    st.one_of(st.none(), st.integers(0, 2_000_000_000_000)),
    st.integers(-1, 2_000_000_000_000),
)
def test_every_rises_from_its_anchor(period: int, anchor: int, start: int | None, after: int) -> None:
    moment = None if start is None else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=start)
    timetable = table(every(period / 1000), anchor, start=moment)
    found = rises(timetable, after, 5)
    assert found == list(islice(chain(timetable, after), 5))
    base = anchor if start is None else start
    assert all((at_ms - base) % period == 0 for at_ms in found)
    first = anchor + period if start is None else start
    assert found[0] == first or first < found[0] <= after + period


# Bounds and corners


@pytest.mark.req("SC-1")
def test_every_is_counted_from_when_it_was_added_or_from_its_start() -> None:
    assert list(islice(table(every(60), 5_500).iterate(5_500), 2)) == [65_500, 125_500]
    assert table(every(60), 5_500).next_after(0) == 65_500
    started = table(every(60), 5_500, start=datetime(1970, 1, 1, 0, 1, tzinfo=UTC))
    assert list(islice(started.iterate(0), 2)) == [60_000, 120_000]
    assert table(every(timedelta(days=3650)), 0).next_after(0) == 3650 * 86_400_000


@pytest.mark.req("SC-1")
def test_at_is_once() -> None:
    when = datetime(2036, 7, 29, 12, 0, 0, 250_000, tzinfo=ZoneInfo("Europe/Berlin"))
    moment = int(when.timestamp() * 1000)
    timetable = table(at(when))
    assert timetable.next_after(ms(2026, 7, 29)) == timetable.next_after(moment - 1) == moment
    assert timetable.next_after(moment) is None
    assert list(timetable.iterate(0)) == [moment]
    assert list(timetable.iterate(moment)) == []
    assert [fire.local for fire in timetable.fires(0, 5)] == ["2036-07-29 10:00:00.250 +00:00"]


@pytest.mark.req("SC-1")
@pytest.mark.parametrize("schedule", [cron("0 * * * *"), every(3600)])
def test_nothing_before_the_start_nor_from_the_end_on(schedule: Schedule) -> None:
    start, end = datetime(2027, 1, 1, 10, tzinfo=UTC), datetime(2027, 1, 1, 12, tzinfo=UTC)
    timetable = table(schedule, start=start, end=end)
    wanted = [ms(2027, 1, 1, 10), ms(2027, 1, 1, 11)]
    assert list(timetable.iterate(0)) == [fire.at_ms for fire in timetable.fires(0, 10)] == wanted
    assert timetable.next_after(ms(2027, 1, 1, 10)) == ms(2027, 1, 1, 11)
    assert timetable.next_after(ms(2027, 1, 1, 11)) is None


@pytest.mark.req("SC-1")
def test_a_start_between_two_seconds_is_not_before_its_time() -> None:
    start = datetime(2027, 1, 1, 10, 0, 0, 1, tzinfo=UTC)
    assert table(cron("0 * * * *"), start=start).next_after(0) == ms(2027, 1, 1, 11)


@pytest.mark.req("SC-1")
@pytest.mark.parametrize("alias", ALIASES)
def test_words_stand_for_five_fields(alias: str) -> None:
    after = ms(2026, 5, 5, 5, 5)
    spelled = table(cron(ALIASES[alias]))
    for word in (alias, alias.upper()):
        assert list(islice(table(cron(word)).iterate(after), 20)) == list(islice(spelled.iterate(after), 20))


@pytest.mark.req("SC-1")
def test_leap_days() -> None:
    leap = table(cron("0 0 29 2 *"))
    assert leap.next_after(ms(2096, 3, 1)) == ms(2104, 2, 29)
    assert table(cron("0 0 29 2 */7")).next_after(ms(2026, 1, 1)) == ms(2032, 2, 29)  # a Sunday


def test_there_is_an_end_of_time() -> None:
    for schedule in (cron("* * * * *", "Europe/Berlin"), every(60)):
        timetable = table(schedule)
        assert timetable.next_after(MAX_MS) is None
        assert timetable.next_after(10**18) is None
        assert list(timetable.iterate(MAX_MS - 30_000)) in ([], [MAX_MS])
        assert timetable.next_after(-(10**15)) == (0 if schedule == cron("* * * * *", "Europe/Berlin") else 60_000)


@pytest.mark.parametrize("count", [0, -1, 1001, True, 1.5, "3"])
def test_only_so_many_fires_are_told(count: Any) -> None:
    for schedule in (cron("* * * * *"), every(60)):
        with pytest.raises(ConfigError, match="give a whole number from 1 to 1,000"):
            table(schedule).fires(0, count)


@pytest.mark.req("SC-1")
@given(st.text("abc", min_size=1, max_size=5), st.integers(0, MAX_MS), st.integers(0, 86_400_000))
def test_jitter_is_within_its_bound_and_always_the_same(id: str, at_ms: int, jitter: int) -> None:
    job = job_from(id, every(60), function="f", jitter=jitter / 1000)
    assert 0 <= jitter_of(job, at_ms) <= job.jitter_ms
    assert jitter_of(job, at_ms) == jitter_of(job, at_ms)


@pytest.mark.req("SC-1")
def test_jitter_spreads() -> None:
    job: Job = job_from("job", every(60), function="f", jitter=10)
    drawn = [jitter_of(job, 60_000 * k) for k in range(1000)]
    assert 4_500 < sum(drawn) / len(drawn) < 5_500
    assert len(set(drawn)) > 900
