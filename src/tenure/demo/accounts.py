"""Are the shop's books right? What the processes said, compared with what the bucket has. Pure.

Only what was certainly wrong is called wrong: what a process had begun and never heard of, mostly because it was
killed, may have happened or not; once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from tenure.demo.lines import Fire, Handling, Order, Outcome, Step
from tenure.plugins.queue import QueueStats
from tenure.plugins.scheduler import OccurrenceRecord

_PASSED = frozenset({"skipped-overlap", "missed-window", "coalesced"})


class Orders(msgspec.Struct, frozen=True):
    """The queue. Every number from `lost` on must be 0."""

    taken: int
    """Orders that the queue acknowledged."""
    in_doubt: int
    """Begun, and never answered: each may be in the queue, once."""
    handled: int
    """Orders that were handled to the end, each counted once."""
    again: int
    """Deliveries of an order beyond its first: whoever had it before was killed, frozen or late."""
    lost: int
    """Acknowledged, and not handled by anybody."""
    again_after_report: int
    """Brought again, though somebody had reported in time that it is done."""
    unordered: int
    """Handled, though nobody ordered it."""
    left: int
    """Still in the queue, by the bucket."""
    dead: int
    """Given up."""
    miscounted: int
    """By so many the queue's own count of messages is not what was ordered, or its count of those that are done is not
    what was handled."""

    @property
    def ok(self) -> bool:
        wrong = (self.lost, self.again_after_report, self.unordered, self.left, self.dead, self.miscounted)
        return not any(wrong)


def judge_orders(orders: Iterable[Order], handlings: Iterable[Handling], stats: QueueStats) -> Orders:
    outcomes = {order.key: order.outcome for order in orders}  # the last word on each
    taken = {key for key, outcome in outcomes.items() if outcome is Outcome.DONE}
    in_doubt = outcomes.keys() - taken
    handlings = list(handlings)
    begun = [each for each in handlings if each.step is Step.BEGUN]
    handled = {each.key for each in handlings if each.step is Step.COUNTED}
    reported: dict[str, Handling] = {}
    for each in handlings:
        if each.step is Step.REPORTED:
            reported[each.key] = min(each, reported.get(each.key, each), key=lambda report: report.boottime_ns)
    left = stats.ready + stats.delayed + stats.in_flight
    too_few = max(0, len(taken) - stats.enqueued)
    too_many = max(0, stats.enqueued - len(taken) - len(in_doubt))
    return Orders(
        taken=len(taken),
        in_doubt=len(in_doubt),
        handled=len(handled),
        again=len(begun) - len({each.key for each in begun}),
        lost=len(taken - handled),
        again_after_report=sum(_is_after(each, reported.get(each.key)) for each in begun),
        unordered=len({each.key for each in begun} - outcomes.keys()),
        left=left,
        dead=stats.dead,
        miscounted=too_few + too_many + abs(stats.enqueued - left - stats.dead - stats.done),
    )


def _is_after(begun: Handling, report: Handling | None) -> bool:
    """A delivery that was made before the one that was reported on, and begun late, is no new one."""
    return report is not None and begun.token > report.token and begun.boottime_ns > report.boottime_ns


class Ticks(msgspec.Struct, frozen=True):
    """The schedule. Every number from `missing` on must be 0."""

    seconds: int
    """From the first to the last for which the job has a record."""
    fired: int
    """Calls of the job's function, by all processes."""
    passed: int
    """Decided not to fire."""
    interrupted: int
    """Decided to fire, and cut short, mostly because the leader was killed: done or not, and not begun again."""
    latest_seconds: float
    """The longest that one had to wait for its time to be decided: nobody led."""
    missing: int
    """Seconds without a record."""
    decided_twice: int
    """Seconds with more than one."""
    fired_twice: int
    """Seconds for which the function was called more than once."""
    unrecorded: int
    """Calls for which there is no record that it fired."""
    not_done: int
    """On record as done, though nobody did it."""
    early: int
    """Begun before their time."""

    @property
    def ok(self) -> bool:
        wrong = (self.missing, self.decided_twice, self.fired_twice, self.unrecorded, self.not_done, self.early)
        return not any(wrong)


def judge_ticks(fires: Iterable[Fire], records: Sequence[OccurrenceRecord], period_ms: int = 1000) -> Ticks:
    """`records`: all of the job, in any order. One may stand for several seconds in a row that were passed over."""
    calls = Counter(fire.scheduled_ms for fire in fires)
    times: Counter[int] = Counter()
    fired: set[int] = set()
    done: set[int] = set()
    for record in records:
        times.update(record.scheduled_ms + number * period_ms for number in range(record.count))
        if record.outcome not in _PASSED:
            fired.add(record.scheduled_ms)
        if record.outcome == "fired" and record.state == "done":
            done.add(record.scheduled_ms)
    due = range(min(times), max((*times, *calls)) + 1, period_ms) if times else range(0)
    return Ticks(
        seconds=len(due),
        fired=calls.total(),
        passed=sum(record.count for record in records if record.outcome in _PASSED),
        interrupted=sum(record.outcome == "interrupted" for record in records),
        latest_seconds=max(((record.decided_ms - record.scheduled_ms) / 1000 for record in records), default=0.0),
        missing=sum(second not in times for second in due),
        decided_twice=sum(count > 1 for count in times.values()),
        fired_twice=sum(count > 1 for count in calls.values()),
        unrecorded=len(calls.keys() - fired),
        not_done=len(done - calls.keys()),
        early=sum(0 < record.started_ms < record.scheduled_ms for record in records),
    )


class Takings(msgspec.Struct, frozen=True):
    """The counter."""

    total: int
    """What it says, with everything that was acknowledged."""
    counted: int
    """Prices that it acknowledged, each counted once however often it was given."""
    amount: int
    """Their sum."""
    again: int
    """Acknowledged once more, under the same name: must not change anything."""
    in_doubt: int
    """Prices that were given and never acknowledged: each may be in the total, once."""
    in_doubt_counted: int
    """What of these is in the total; -1 if no choice among them explains it."""

    @property
    def ok(self) -> bool:
        return self.in_doubt_counted >= 0


def judge_takings(handlings: Iterable[Handling], total: int) -> Takings:
    prices: dict[str, int] = {}
    acknowledged: Counter[str] = Counter()
    for each in handlings:
        prices[each.key] = each.price
        acknowledged[each.key] += each.step is Step.COUNTED
    counted = [key for key in prices if acknowledged[key]]
    amount = sum(prices[key] for key in counted)
    doubtful = [prices[key] for key in prices if not acknowledged[key]]
    explained = {0}
    for price in doubtful:
        explained |= {known + price for known in explained}
    return Takings(
        total=total,
        counted=len(counted),
        amount=amount,
        again=acknowledged.total() - len(counted),
        in_doubt=len(doubtful),
        in_doubt_counted=total - amount if total - amount in explained else -1,
    )
