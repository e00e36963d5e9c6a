"""An election, work that only the leader does and a shop that all of them keep; a leader that is killed, one that is
frozen and wakes up too late, one that leaves; then the shop is closed, and come the verdicts on what they did."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from tenure.clock import Reading
from tenure.coordinator.audit import Audit, audit
from tenure.coordinator.fenced import read
from tenure.coordinator.layout import namespace_store
from tenure.demo.accounts import Orders, Takings, Ticks, judge_orders, judge_takings, judge_ticks
from tenure.demo.books import queue_stats, takings, tick_records
from tenure.demo.candidate import Entry, read_ledger
from tenure.demo.cast import Actor, State
from tenure.demo.judge import Thaw, Work, judge_thaw, judge_work, spans, two_at_once
from tenure.demo.lines import Outcome, Step
from tenure.demo.place import LEDGER, NAMESPACE, Place
from tenure.demo.stage import FIRST_THREE, REPLACEMENT, Stage
from tenure.demo.verdicts import (
    Change,
    Verdict,
    on_changes,
    on_doctor,
    on_history,
    on_leaders,
    on_orders,
    on_takings,
    on_thaw,
    on_ticks,
    on_work,
)
from tenure.doctor import Report as DoctorReport
from tenure.doctor import examine
from tenure.errors import Damaged, NotFenced, TenureError
from tenure.store import Access, Store, open_store

RACES = 10
_PATIENCE_LEASES = 10.0
"""How many leases to wait for anything: a busy machine is slow, and only one that hangs is wrong."""
_PIECES = 10
_PIECES_BETWEEN = 5
_REST_SECONDS = 2.0
"""So that the next in rank has seen the fleet: a leader is hardly ever lost in its first second."""
_POLL_SECONDS = 0.01
_LOOK_SECONDS = 0.2
"""From one look into the bucket to the next."""

T = TypeVar("T")


class WentWrong(TenureError):
    """The story could not be told to its end. The message says what was seen."""


class Result(msgspec.Struct, frozen=True):
    """What happened."""

    right: bool
    leader_changes: int
    """From one leader to another, all that were seen."""
    failover_seconds: tuple[float, ...]
    """After the kill, the freeze and the handover."""
    two_leaders_observed: int
    """Pairs of processes that believed at the same instant that they lead."""
    seconds: float
    """That all of it took."""
    store: str
    elected: Change
    changes: tuple[Change, ...]
    epochs: tuple[int, ...]
    """Of every leadership that was seen."""
    reports: int
    """How often a process was asked whether it leads."""
    work: Work | None
    """None: the ledger could not be read."""
    thaw: Thaw
    audit: Audit
    doctor: DoctorReport
    queue: Orders | None
    """None: the bucket has something else where the queue was; likewise these:"""
    schedule: Ticks | None
    counter: Takings | None
    verdicts: tuple[Verdict, ...]


async def tell(place: Place, stage: Stage) -> Result:
    story = _Story(place, stage)
    try:
        elected = await story.join()
        await story.work()
        after_kill = await story.kill()
        after_freeze, thaw_of = await story.freeze()
        after_leave = await story.leave()
        await story.close()
    finally:
        stage.curtain = stage.clock.read()
        for actor in stage.actors:
            actor.dismiss()
        await asyncio.gather(*(actor.ended() for actor in stage.actors))
    # Only now has everything been heard that they said.
    return await story.verdicts(elected, (after_kill, after_freeze, after_leave), thaw_of())


class _Story:
    def __init__(self, place: Place, stage: Stage) -> None:
        self._place = place
        self._stage = stage
        self._clock = stage.clock
        self._patience = _PATIENCE_LEASES * place.lease_seconds

    # The acts

    async def join(self) -> Change:
        stage = self._stage
        names = ", ".join(FIRST_THREE)
        stage.open("join", f"Three processes, {names}, want to lead. All that they share is a {self._place.noun}.")
        began = self._clock.read()
        for name in FIRST_THREE:
            await self._start(name)
        await self._until(lambda: all(actor.said for actor in stage.actors), "all three processes had started")
        change = await self._next_leader("start", 0, began)
        stage.tell(f"{change.leader} leads. This is epoch {change.epoch}: each leadership has a number of its own.")
        stage.close(f"{change.leader} leads, epoch {change.epoch}")
        return change

    async def work(self) -> None:
        stage = self._stage
        stage.open("work", "Only the leader works: each piece of work is an entry in a ledger, by a fenced write.")
        since = self._clock.read()
        await self._pieces(_PIECES)
        leader = await self._leader()
        stage.tell(f"{leader.name} has done {leader.done} pieces of work, and the others none.")
        await self._ticked(since)
        stage.tell(
            "They also keep a shop: all take orders into a queue, and handle and count them; a job fires each second."
        )
        await self._clock.sleep(_REST_SECONDS)
        handled = len(self._handled())
        done = sum(actor.done for actor in stage.actors)
        stage.close(f"{done} pieces of work, all by the leader; {handled} orders handled, by all")

    async def kill(self) -> Change:
        stage = self._stage
        old = await self._leader()
        stage.open("kill", f"{old.name} is killed (SIGKILL), and cannot tell anybody.")
        epoch, began = old.epoch, self._clock.read()
        old.kill()
        change = await self._next_leader("kill", epoch, began)
        stage.tell(
            f"{change}: it had to wait until the lease of {self._place.lease_seconds:g} s ran out, because the dead "
            "cannot be told from the slow."
        )
        stage.close(str(change))
        await self._start(REPLACEMENT)
        await self._until(lambda: bool(stage.actors[-1].said), f"{REPLACEMENT} had started")
        stage.tell(f"{REPLACEMENT} has come in its place. The queue brings again what {old.name} had in hand.")
        since = self._clock.read()
        await self._pieces(_PIECES_BETWEEN)
        await self._ticked(since)
        await self._clock.sleep(max(0.0, _REST_SECONDS - self._clock.read().leader_elapsed(since)))
        return change

    async def freeze(self) -> tuple[Change, Callable[[], Thaw]]:
        """The second is for when everything has been heard that the process said."""
        stage = self._stage
        old = await self._leader()
        stage.open("freeze", f"{old.name} is frozen (SIGSTOP) in its work, and cannot know that time goes on.")
        epoch, began = old.epoch, self._clock.read()
        old.freeze()
        change = await self._next_leader("freeze", epoch, began)
        stage.tell(f"{change}. Now {old.name} wakes up.")
        await self._pieces(_PIECES_BETWEEN)
        thawed = self._clock.read()
        old.thaw()

        def thaw() -> Thaw:
            return judge_thaw(old.name, epoch, began.boottime_ns, thawed.boottime_ns, old.said, old.deeds)

        def gone_on() -> bool:
            """Whether rightly or wrongly is for the verdicts."""
            tried = thaw()
            return old.state is not State.STARTING and tried.refused + tried.landed > 0

        await self._until(gone_on, f"{old.name} had gone on after it was thawed")
        became = "was made, which MUST NOT BE" if thaw().landed else "was refused"
        stage.tell(f"{old.name} tried to go on where it was, and its write {became}: epoch {epoch} is over.")
        stage.close(f"{change}; a late write {became}")
        await self._clock.sleep(_REST_SECONDS)
        return change, thaw

    async def leave(self) -> Change:
        stage = self._stage
        old = await self._leader()
        stage.open("leave", f"{old.name} is asked to stop (SIGTERM), as in every deployment.")
        epoch, began = old.epoch, self._clock.read()
        old.ask_to_leave()
        change = await self._next_leader("leave", epoch, began)
        stage.tell(f"{change}: the lease was handed on, and nobody had to wait.")
        stage.close(str(change))
        await self._until(lambda: not old.alive, f"{old.name} had ended")
        since = self._clock.read()
        await self._pieces(_PIECES)
        await self._ticked(since)
        return change

    async def close(self) -> None:
        """Nothing is called wrong here: what is left after all patience is for the verdicts."""
        stage = self._stage
        stage.open("close", "The shop takes no more orders, and is closed when all have been handled and counted.")
        for actor in stage.actors:
            if actor.alive:
                actor.close_the_shop()
        began = self._clock.read()
        async with open_store(self._place.url.text(), access=Access.READ_ONLY) as store:
            while not await self._is_sold_out(store) and self._clock.read().leader_elapsed(began) < self._patience:
                await self._clock.sleep(_LOOK_SECONDS)
        taken, handled = self._taken(), self._handled()
        came_of = f"{len(taken & handled.keys())} of {len(taken)} orders handled"
        stage.tell(f"{came_of}, for {sum(handled.values()):,} in all.")
        stage.close(came_of)

    async def _is_sold_out(self, store: Store) -> bool:
        """Everything is handled, the queue knows it, and the counter's record has it."""
        taken, handled = self._taken(), self._handled()
        takings = max((till.takings for till in self._stage.tills()), default=0)
        if taken - handled.keys() or takings < sum(handled.values()):
            return False
        stats, _ = await _read(queue_stats(store, self._clock))
        return stats is not None and len(taken) <= stats.enqueued == stats.done + stats.dead

    def _taken(self) -> set[str]:
        return {order.key for order in self._stage.orders() if order.outcome is Outcome.DONE}

    def _handled(self) -> dict[str, int]:
        """With their prices."""
        return {each.key: each.price for each in self._stage.handlings() if each.step is Step.COUNTED}

    # Waiting

    async def _start(self, name: str) -> None:
        await Actor.start(self._place.part(name, os.getpid()), self._clock, self._stage.actors)

    async def _until(self, true: Callable[[], bool], what: str) -> None:
        began = self._clock.read()
        while not true():
            for actor in self._stage.actors:
                if actor.state is State.CRASHED:
                    raise WentWrong(f"the process {actor.name} ended by itself with {actor.last_words}")
            if self._clock.read().leader_elapsed(began) > self._patience:
                raise WentWrong(f"waited {self._patience:g} s until {what}, in vain: {self._seen()}")
            await self._clock.sleep(_POLL_SECONDS)

    def _seen(self) -> str:
        states = ", ".join(f"{actor.name} {actor.state.value}" for actor in self._stage.actors)
        if two_at_once(self._stage.said()):
            return f"{states}; and TWO OF THEM LED AT ONCE: report it"
        return f"{states}; this machine or the store may be very busy; try again, or report it"

    async def _leader(self) -> Actor:
        """Whoever leads. On a busy machine it may not be the one that an earlier act ended with."""
        await self._until(lambda: self._stage.leader is not None, "somebody led")
        leader = self._stage.leader
        assert leader is not None
        return leader

    async def _next_leader(self, cause: str, old_epoch: int, began: Reading) -> Change:
        def found() -> bool:
            leader = self._stage.leader
            return leader is not None and leader.epoch > old_epoch

        await self._until(found, f"somebody led after epoch {old_epoch}" if old_epoch else "somebody led")
        leader = self._stage.leader
        assert leader is not None
        epoch = leader.epoch
        seconds = (leader.first_report_of(epoch).boottime_ns - began.boottime_ns) / 1e9
        return Change(cause, leader.name, epoch, seconds)

    async def _pieces(self, count: int) -> None:
        """Let the leader do so many pieces of work."""
        began_ns = self._clock.read().boottime_ns

        def enough() -> bool:
            leader = self._stage.leader
            recent = leader.deeds[-4 * count :] if leader is not None else []
            return sum(deed.outcome is Outcome.DONE and deed.asked_ns > began_ns for deed in recent) >= count

        await self._until(enough, f"the leader had done {count} pieces of work")

    async def _ticked(self, since: Reading) -> None:
        """Let the job fire, if it has not since then."""

        def fired() -> bool:
            return any(actor.fires and actor.fires[-1].boottime_ns > since.boottime_ns for actor in self._stage.actors)

        await self._until(fired, "the job had fired")

    # The verdicts

    async def verdicts(self, elected: Change, changes: tuple[Change, ...], thaw: Thaw) -> Result:
        stage, said = self._stage, self._stage.said()
        stage.open("verdicts", "The verdicts on what they did:")
        terms = spans(said)
        overlaps = two_at_once(said)
        verdicts: list[Verdict] = []

        def judged(verdict: Verdict) -> None:
            verdicts.append(verdict)
            stage.tell(f"{verdict.says}{'' if verdict.ok else '   <-- WRONG'}")

        judged(on_leaders(len(said), overlaps, terms))
        judged(on_changes(changes))
        entries, why_not = await self._entries()
        work = judge_work(stage.deeds(), entries) if entries is not None else None
        judged(on_work(work, why_not))
        judged(on_thaw(thaw))
        async with open_store(self._place.url.text(), access=Access.READ_ONLY) as store:
            queue, why_not = await _read(queue_stats(store, self._clock))
            orders = judge_orders(stage.orders(), stage.handlings(), queue) if queue is not None else None
            judged(on_orders(orders, why_not))
            records, why_not = await _read(tick_records(store))
            ticks = judge_ticks(stage.fires(), records) if records is not None else None
            judged(on_ticks(ticks, why_not))
            total, why_not = await _read(takings(store, self._clock))
            counted = judge_takings(stage.handlings(), total) if total is not None else None
            judged(on_takings(counted, why_not))
            history = await audit(namespace_store(store, NAMESPACE), NAMESPACE, self._clock)
        judged(on_history(history))
        stage.sentence = (
            f"Now tenure doctor has processes race on the {self._place.noun}, to prove that it can be relied on."
        )
        doctor = await examine(self._place.url.text(), rounds=RACES)
        judged(on_doctor(doctor, self._place.noun))
        right = all(verdict.ok for verdict in verdicts)
        stage.sentence = "All is right." if right else "Something is wrong."
        stage.close(f"{sum(verdict.ok for verdict in verdicts)} of {len(verdicts)} say that all is right")
        return Result(
            right=right,
            leader_changes=len(terms) - 1,
            failover_seconds=tuple(round(change.seconds, 3) for change in changes),
            two_leaders_observed=overlaps,
            seconds=round(self._clock.read().leader_elapsed(stage.began), 2),
            store=self._place.url.shown,
            elected=elected,
            changes=changes,
            epochs=tuple(term.epoch for term in terms),
            reports=len(said),
            work=work,
            thaw=thaw,
            audit=history,
            doctor=doctor,
            queue=orders,
            schedule=ticks,
            counter=counted,
            verdicts=tuple(verdicts),
        )

    async def _entries(self) -> tuple[tuple[Entry, ...] | None, str]:
        try:
            async with open_store(self._place.url.text(), access=Access.READ_ONLY) as store:
                found = await read(store, LEDGER)
            return read_ledger(found.body if found is not None else None).entries, ""
        except (Damaged, NotFenced) as error:
            return None, str(error)


async def _read(reading: Awaitable[T]) -> tuple[T | None, str]:
    """What was read, or else why it was not: damage is no reason to say nothing of the rest."""
    try:
        return await reading, ""
    except TenureError as error:
        return None, str(error)
