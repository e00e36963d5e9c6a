"""What the demo says of what it saw: one sentence for each judge, whether all is right or not. Pure."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from tenure.coordinator.audit import Audit
from tenure.demo.accounts import Orders, Takings, Ticks
from tenure.demo.judge import Span, Thaw, Work
from tenure.doctor import Report as DoctorReport


class Change(msgspec.Struct, frozen=True):
    """A new leader, and how long it took from what was done to the old one until the new one knew that it leads."""

    cause: str
    leader: str
    epoch: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.leader} leads after {in_words(self.seconds)}, epoch {self.epoch}"


def in_words(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2f} s"


class Verdict(msgspec.Struct, frozen=True):
    """What one of the judges says, in a sentence without an end."""

    about: str
    ok: bool
    says: str


def on_leaders(asked: int, overlaps: int, terms: list[Span]) -> Verdict:
    epochs = [term.epoch for term in terms]
    wrong = ""
    if overlaps:
        wrong = f"{overlaps} times TWO OF THEM LED AT ONCE"
    elif not terms:
        wrong = "and nobody ever said that it leads"
    elif len(set(epochs)) < len(epochs):
        wrong = f"and two processes led under one epoch: the epochs were {', '.join(map(str, epochs))}"
    says = wrong or "never two of them said at once that they lead"
    return Verdict("leaders", not wrong, f"asked {asked:,} times in all, {says}")


def on_changes(changes: tuple[Change, ...]) -> Verdict:
    epochs = [change.epoch for change in changes]
    seconds = {change.cause: in_words(change.seconds) for change in changes}
    if any(later <= earlier for earlier, later in pairwise(epochs)):
        return Verdict("failover", False, f"a new leader had no new epoch: they were {', '.join(map(str, epochs))}")
    return Verdict(
        "failover",
        True,
        f"a new leader {seconds['kill']} after the kill, {seconds['freeze']} after the freeze, {seconds['leave']} "
        "after the request to stop",
    )


def on_work(work: Work | None, why_not: str) -> Verdict:
    if work is None:
        return Verdict("work", False, f"the ledger of the work cannot be read: {why_not}")
    if not work.ok:
        wrong = {
            "lost": work.lost,
            "done twice": work.twice,
            "done by nobody": work.unexplained,
            "out of order": work.out_of_order,
            "written by a leader of the past": work.stale,
        }
        return Verdict("work", False, f"of {work.done} pieces of leader-only work {_counts(wrong)}")
    doubt = f" ({work.in_doubt_written} by a process that did not live to hear it)" if work.in_doubt_written else ""
    says = f"{work.written} pieces of leader-only work in the ledger{doubt}: none lost, none done twice"
    # An empty ledger would agree with everything.
    return Verdict("work", work.done > 0, says if work.done else "no work was done at all")


def on_thaw(thaw: Thaw) -> Verdict:
    if thaw.ok:
        says = (
            f"{thaw.worker}, frozen for {thaw.frozen_seconds:.1f} s, did nothing as a leader of the past: "
            f"{thaw.refused} {'try was' if thaw.refused == 1 else 'tries were'} refused"
        )
    else:
        says = (
            f"{thaw.worker} woke up after {thaw.frozen_seconds:.1f} s, said {thaw.believed} times that it still leads, "
            f"and made {thaw.landed} writes under its old epoch; {thaw.refused} were refused"
        )
    return Verdict("thaw", thaw.ok, says)


def on_orders(orders: Orders | None, why_not: str) -> Verdict:
    if orders is None:
        return Verdict("queue", False, f"the queue cannot be read: {why_not}")
    if not orders.ok:
        wrong = {
            "LOST": orders.lost,
            "handled again after they had been reported as done": orders.again_after_report,
            "handled that nobody ordered": orders.unordered,
            "still in the queue": orders.left,
            "given up": orders.dead,
            "wrong in the queue's own count": orders.miscounted,
        }
        return Verdict("queue", False, f"of {orders.taken} orders in the queue {_counts(wrong)}")
    them = "it" if orders.again == 1 else "them"
    again = f"; {orders.again} handled again, as who had {them} was killed, frozen or late" if orders.again else ""
    says = f"{orders.taken} orders acknowledged by the queue, and all handled: 0 lost{again}"
    return Verdict("queue", orders.taken > 0, says if orders.taken else "the queue took no order at all")


def on_ticks(ticks: Ticks | None, why_not: str) -> Verdict:
    if ticks is None:
        return Verdict("schedule", False, f"the schedule cannot be read: {why_not}")
    if not ticks.ok:
        wrong = {
            "without a record": ticks.missing,
            "decided twice": ticks.decided_twice,
            "FIRED TWICE": ticks.fired_twice,
            "fired without a record": ticks.unrecorded,
            "on record as done by nobody": ticks.not_done,
            "begun before their time": ticks.early,
        }
        return Verdict("schedule", False, f"of {ticks.seconds} seconds of the job {_counts(wrong)}")
    passed = f", {ticks.passed} passed over" if ticks.passed else ""
    they = "it" if ticks.interrupted == 1 else "they"
    unended = f", {ticks.interrupted} whose leader could not say that {they} ended" if ticks.interrupted else ""
    says = (
        f"{ticks.seconds} seconds, each with one record of its job: {ticks.fired} fired, none twice{passed}{unended}; "
        f"up to {ticks.latest_seconds:.1f} s late while nobody led"
    )
    return Verdict("schedule", ticks.fired > 0, says if ticks.fired else "the job never fired")


def on_takings(takings: Takings | None, why_not: str) -> Verdict:
    if takings is None:
        return Verdict("counter", False, f"the counter cannot be read: {why_not}")
    if not takings.ok:
        says = (
            f"the counter says {takings.total:,}, and the {takings.counted} prices that it acknowledged are "
            f"{takings.amount:,}, which the {takings.in_doubt} in doubt do not explain"
        )
        return Verdict("counter", False, says)
    again = f", though {takings.again} {'was' if takings.again == 1 else 'were'} given twice" if takings.again else ""
    doubt = f" ({takings.in_doubt_counted:,} of it by processes that never heard)" if takings.in_doubt_counted else ""
    says = f"the counter says {takings.total:,}{doubt}: each of {takings.counted} acknowledged prices, once{again}"
    return Verdict("counter", takings.counted > 0, says if takings.counted else "nothing was counted at all")


def _counts(wrong: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in wrong.items() if count)


def on_history(history: Audit) -> Verdict:
    found = "one leader each, no number missing" if history.ok else history.findings[0].detail
    says = f"the history in the store (tenure audit): {history.terms} terms, {found}"
    return Verdict("audit", history.ok, says)


def on_doctor(doctor: DoctorReport, noun: str) -> Verdict:
    won = sum(race.winners for race in doctor.races.values())
    rounds = sum(race.rounds for race in doctor.races.values())
    found = f"{won} of {rounds} races had exactly one winner"
    if doctor.fit is not True:
        found = "; ".join(doctor.reasons) or found
    says = f"the {noun} itself (tenure doctor): {'fit' if doctor.fit else 'NOT FIT'}, {found}"
    return Verdict("doctor", doctor.fit is True, says)
