"""The judges of the demo's queue, schedule and counter, each shown what is right and what is wrong; and the lines of
the panel that show them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tenure.demo.accounts import judge_orders, judge_takings, judge_ticks
from tenure.demo.cast import Role
from tenure.demo.lines import Fire, Handling, Order, Outcome, Step, Till
from tenure.demo.shopfront import Shopfront, shopfront
from tenure.demo.stage import Stage
from tenure.demo.verdicts import on_orders, on_takings, on_ticks
from tenure.plugins.queue import QueueStats
from tenure.plugins.scheduler import OccurrenceRecord
from tests.unit.test_demo_story import S, StoppedClock, at

ADA, BEN = 11, 12


def order(key: str, outcome: Outcome = Outcome.DONE, price: int = 5, process: int = ADA, ns: int = 0) -> list[Order]:
    """As a process tells it."""
    begun = Order(ns, process, key, price, Outcome.BEGUN)
    return [begun] if outcome is Outcome.BEGUN else [begun, Order(ns + 1, process, key, price, outcome)]


def handling(key: str, token: int, ns: int, *steps: Step, price: int = 5, process: int = ADA) -> list[Handling]:
    """A delivery, and how far it came; to the end, unless steps are given."""
    chosen = steps or (Step.BEGUN, Step.COUNTED, Step.REPORTED)
    return [Handling(ns + number, process, key, price, token, step) for number, step in enumerate(chosen)]


def stats(enqueued: int, done: int, *, ready: int = 0, dead: int = 0) -> QueueStats:
    return QueueStats(
        ready=ready,
        delayed=0,
        in_flight=0,
        dead=dead,
        inbox=0,
        paused=False,
        oldest_age=None,
        workers=2,
        enqueue_rate=0.0,
        done_rate=0.0,
        enqueued=enqueued,
        done=done,
        failed=0,
        lapsed=0,
        duplicates=0,
        seq=9,
        epoch=2,
    )


# Ada orders three times, and is killed in the third; she handles one, and is killed in another, which Ben has then.
ORDERS = [*order("a1"), *order("a2"), *order("a3", Outcome.BEGUN)]
HANDLINGS = [
    *handling("a1", 1, 10),
    *handling("a2", 1, 20, Step.BEGUN, Step.COUNTED, price=7),
    *handling("a2", 4, 90, price=7, process=BEN),
]


def test_orders_that_were_handled_at_least_once() -> None:
    books = judge_orders(ORDERS, HANDLINGS, stats(2, 2))
    assert books.ok
    assert (books.taken, books.in_doubt, books.handled, books.again) == (2, 1, 2, 1)
    verdict = on_orders(books, "")
    assert verdict.ok
    assert "0 lost; 1 handled again" in verdict.says


def test_an_order_in_doubt_may_be_there() -> None:
    assert judge_orders(ORDERS, [*HANDLINGS, *handling("a3", 5, 95)], stats(3, 3)).ok


@pytest.mark.parametrize(
    ("handlings", "seen", "fault", "says"),
    [
        (HANDLINGS[:3], stats(2, 2), "lost", "1 LOST"),
        # Begun, and never to the end.
        ([*HANDLINGS[:3], *handling("a2", 4, 90, Step.BEGUN, Step.FAILED)], stats(2, 2), "lost", "1 LOST"),
        ([*HANDLINGS, *handling("a1", 6, 99)], stats(2, 2), "again_after_report", "handled again after"),
        ([*HANDLINGS, *handling("x9", 6, 99)], stats(2, 2), "unordered", "nobody ordered"),
        (HANDLINGS, stats(2, 1, ready=1), "left", "still in the queue"),
        (HANDLINGS, stats(2, 1, dead=1), "dead", "given up"),
        (HANDLINGS, stats(1, 1), "miscounted", "own count"),
        (HANDLINGS, stats(4, 4), "miscounted", "own count"),
        (HANDLINGS, stats(2, 1), "miscounted", "own count"),
    ],
)
def test_a_queue_that_breaks_its_word(handlings: list[Handling], seen: QueueStats, fault: str, says: str) -> None:
    books = judge_orders(ORDERS, handlings, seen)
    assert not books.ok
    assert getattr(books, fault) > 0
    verdict = on_orders(books, "")
    assert not verdict.ok
    assert says in verdict.says


def test_an_old_delivery_that_is_begun_late_is_not_a_new_one() -> None:
    """Its process was frozen between being given the order and beginning with it."""
    late = handling("a2", 1, 200, Step.BEGUN, price=7)
    books = judge_orders(ORDERS, [*handling("a1", 1, 10), *handling("a2", 4, 90, price=7), *late], stats(2, 2))
    assert books.ok
    assert books.again == 1


def record(
    second: int, outcome: str = "fired", state: str = "done", *, count: int = 1, late: int = 5
) -> OccurrenceRecord:
    ms = second * 1000
    return OccurrenceRecord(
        run=f"tick@{ms}",
        job="tick",
        scheduled_ms=ms,
        decided_ms=ms + late,
        outcome=outcome,
        state=state,
        started_ms=ms + late if outcome in ("fired", "interrupted") else 0,
        finished_ms=0,
        epoch=1,
        worker="ada",
        token=second,
        attempts=1,
        failures=0,
        interruptions=0,
        error="",
        manual="",
        to_ms=ms + (count - 1) * 1000 if count > 1 else 0,
        count=count,
        retry_ms=0,
    )


def fire(second: int, process: int = ADA) -> Fire:
    return Fire(second * S, process, second * 1000, second)


# The fourth second was late, the fifth was cut short before it was begun, the sixth and seventh were passed over, and
# the last one is not on record as done yet.
RECORDS = [
    record(1),
    record(2),
    record(3),
    record(4, late=2500),
    record(5, "interrupted"),
    record(6, "coalesced", count=2),
    record(8, state="running"),
]
FIRES = [fire(1), fire(2), fire(3), fire(4, BEN), fire(8, BEN)]


def test_seconds_with_one_record_each() -> None:
    ticks = judge_ticks(FIRES, list(reversed(RECORDS)))
    assert ticks.ok
    assert (ticks.seconds, ticks.fired, ticks.passed, ticks.interrupted) == (8, 5, 2, 1)
    assert ticks.latest_seconds == 2.5
    verdict = on_ticks(ticks, "")
    assert verdict.ok
    assert "none twice, 2 passed over, 1 whose leader could not say" in verdict.says


@pytest.mark.parametrize(
    ("fires", "records", "fault", "says"),
    [
        (FIRES, [*RECORDS[:1], *RECORDS[2:]], "missing", "without a record"),
        (FIRES, RECORDS[:-2], "missing", "3 without a record"),  # a call is later than all that is on record
        (FIRES, [*RECORDS, record(7, "skipped-overlap")], "decided_twice", "1 decided twice"),
        (FIRES, [*RECORDS, record(3)], "decided_twice", "1 decided twice"),
        ([*FIRES, fire(3, BEN)], RECORDS, "fired_twice", "1 FIRED TWICE"),
        ([*FIRES, fire(6)], RECORDS, "unrecorded", "fired without a record"),
        ([*FIRES[:2], *FIRES[3:]], RECORDS, "not_done", "done by nobody"),
        (FIRES, [*RECORDS[:2], record(3, late=-10), *RECORDS[3:]], "early", "before their time"),
    ],
)
def test_a_schedule_that_breaks_its_word(
    fires: list[Fire], records: list[OccurrenceRecord], fault: str, says: str
) -> None:
    ticks = judge_ticks(fires, records)
    assert not ticks.ok
    assert getattr(ticks, fault) > 0
    verdict = on_ticks(ticks, "")
    assert not verdict.ok
    assert says in verdict.says


IN_DOUBT = [*HANDLINGS, *handling("a3", 5, 95, Step.BEGUN, price=3), *handling("a4", 5, 96, Step.BEGUN, price=4)]


@pytest.mark.parametrize(
    ("handlings", "total", "right"),
    [
        (HANDLINGS, 12, True),  # a2 was given twice, and counts once
        (HANDLINGS, 19, False),  # twice
        (HANDLINGS, 5, False),  # not at all
        (HANDLINGS, 0, False),
        *((IN_DOUBT, 12 + extra, extra in (0, 3, 4, 7)) for extra in range(-1, 12)),
        # What failed once and was counted in the end is not in doubt.
        ([*handling("a1", 1, 10, Step.BEGUN, Step.FAILED), *handling("a1", 2, 20)], 5, True),
        ([*handling("a1", 1, 10, Step.BEGUN, Step.FAILED), *handling("a1", 2, 20)], 10, False),
    ],
)
def test_a_counter_has_each_price_once(handlings: list[Handling], total: int, right: bool) -> None:
    """And what is in doubt once or not at all."""
    takings = judge_takings(handlings, total)
    assert takings.ok is right
    verdict = on_takings(takings, "")
    assert verdict.ok is right
    assert f"the counter says {total}" in verdict.says
    assert right or "do not explain" in verdict.says


def test_books_that_are_empty_or_cannot_be_read_are_no_proof() -> None:
    for verdict, says in (
        (on_orders(judge_orders([], [], stats(0, 0)), ""), "no order"),
        (on_orders(None, "somebody else wrote there"), "somebody else wrote there"),
        (on_ticks(judge_ticks([], []), ""), "never fired"),
        (on_ticks(None, "somebody else wrote there"), "somebody else wrote there"),
        (on_takings(judge_takings([], 0), ""), "nothing was counted"),
        (on_takings(None, "somebody else wrote there"), "somebody else wrote there"),
    ):
        assert not verdict.ok
        assert says in verdict.says


def open_shop() -> Stage:
    """Since second 100: orders at 101 and 102, the first handled at 103; the job at 101, and three times at 104."""
    stage = Stage(lambda line: None, StoppedClock())
    role = Role("ada", 100 * S)
    for second, key in ((101, "a1"), (102, "a2")):
        for line in order(key, price=second - 100, ns=second * S):
            role.hear(line)
    for line in handling("a1", 1, 103 * S, Step.BEGUN, Step.BEGUN, Step.COUNTED, price=1):
        role.hear(line)
    for second in (101, 104, 104, 104):
        role.hear(Fire(second * S, ADA, second * 1000, second))
    role.hear(Till(int(103.5 * S), ADA, 1))
    stage.actors.append(role)
    return stage


def test_what_the_panel_says_of_the_shop() -> None:
    shop = Shopfront(open_shop())
    assert [shop.waiting_at(int(second * S)) for second in (100.5, 101.5, 102.5, 103.5)] == [0, 1, 2, 1]
    assert [shop.takings_at(int(second * S)) for second in (103, 104)] == [0, 1]
    assert (shop.handled, shop.again, shop.given, shop.last_fire_ns()) == (1, 1, 1, 104 * S)


def test_the_lines_of_the_shop_stand_below_the_time_line() -> None:
    console = Console(width=100, file=io.StringIO(), force_terminal=True, color_system=None)

    def instant(cell: int) -> int | None:
        return (100 + cell) * S if cell <= 5 else None

    with console.capture() as captured:
        console.print(shopfront(open_shop(), at(105), 47, 20, instant))
    queue, schedule, counter = (line.rstrip() for line in captured.get().splitlines())
    assert queue.startswith("queue     1 handled, 1 waiting, 1 again")
    assert queue[47:] == "  ▁▂▁▁"
    assert schedule.startswith("schedule  4 fired, the last 1.0 s ago")
    assert schedule[47:] == "•  3"
    assert counter.startswith("counter   1 in its record, 1 given")
    assert counter[47:] == "    ██"
