"""What the judge of counters must report, where no broken variant has it do so at that place.

Each history is what processes told the judge; nothing of it is in any record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tenure.plugins.counters import Recalculated
from tenure.simulate.counters_books import Call, Told
from tenure.simulate.counters_judge import LEVEL, MINE, VIEWS, Act, Judge
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster
from tenure.testing.world import World

from .checks import plants


def _told(story: Callable[[Judge], None]) -> Callable[[], Checkers]:
    """The judge that was told all this."""

    @functools.wraps(story)
    def judged() -> Checkers:
        with World(1) as world:
            cluster = SimulatedCluster(world, 1)
            checkers = Checkers(cluster)
            story(Judge(cluster, checkers))
        return checkers

    return judged


def _counted(judge: Judge, field: str, verb: str, amount: int) -> Call:
    """A call that its caller was told to be counted."""
    call = Call("hot", field, verb, amount, "a-1", 0.0)
    judge.gives(call)
    judge.tries(call)
    judge.told(call, Told.DONE)
    judge.book(call.id, field).heard(call)
    return call


@plants("counters", "lost")
@_told
def an_amount_that_returned_is_in_no_total(judge: Judge) -> None:
    _counted(judge, VIEWS, "add", 5)
    judge.check_finals()


@plants("counters", "final")
@_told
def a_set_that_returned_is_in_no_total(judge: Judge) -> None:
    _counted(judge, LEVEL, "set", 5)
    judge.check_finals()


@plants("counters", "sync")
@_told
def a_call_returns_before_its_writers_total_has_it(judge: Judge) -> None:
    judge.is_synced(_counted(judge, MINE, "add", 5))


@plants("counters", "consolidated")
@_told
def who_asked_is_answered_before_an_amount_is_in_its_record(judge: Judge) -> None:
    _counted(judge, VIEWS, "add", 5)
    judge.check_records("consolidated", judge.marks())


@plants("counters", "consistent")
@_told
def a_consistent_look_misses_an_amount(judge: Judge) -> None:
    _counted(judge, MINE, "add", 5)
    judge.check_consistent("hot", judge.marks("hot"), {MINE: 0})


@plants("counters", "recalculated")
@_told
def totals_are_worked_out_that_are_not_put_right(judge: Judge) -> None:
    right: dict[str, Any] = {VIEWS: 5}
    judge.check_put_right("hot", right, Recalculated(totals=right, former={}))


@plants("counters", "user")
@_told
def a_write_is_told_that_is_not_there(judge: Judge) -> None:
    judge.act_told(Act("patch", "hot", is_shaped=True), Told.DONE)
