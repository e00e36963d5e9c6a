"""What the judge of records that expire must report, where no broken variant has it do so at that place.

Each history is a few writes to a bucket, made by a call of a process (`Act`) or, without one, by the cleaner.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tenure.database.ids import key_of
from tenure.database.records import Envelope, encode
from tenure.simulate.ttl_judge import ACT, Judge
from tenure.simulate.ttl_rules import Act, Rule, Told
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster
from tenure.testing.world import World

from .checks import plants

RULE = Rule(name="notes", ttl=10.0)


class Story:
    """One record of one resource, and who writes it."""

    def __init__(self, cluster: SimulatedCluster, judge: Judge) -> None:
        self.judge = judge
        self._bucket = cluster.bucket
        self._draw_id = judge.drawing(cluster.draw_id)
        self._last: Envelope | None = None

    def act(self, verb: str, **more: Any) -> Act:
        return Act(verb, RULE.name, "x", 0.0, **more)

    def expiry(self, seconds: float) -> dict[str, Any]:
        """Reserved fields of a record that expires so many seconds from now."""
        return {"ttl": {"at": int(self.judge.store_ms() + seconds * 1000), "entry": "0000000000000/0000000000000000."}}

    def write(self, act: Act | None = None, **fields: Any) -> None:
        token = ACT.set(act)
        write_id = self._draw_id()
        ACT.reset(token)
        if self._last is not None:
            self._last = self._last.followed_by(write_id, "", **fields)
        else:
            self._last = Envelope(
                id="x",
                version=1,
                first_version=1,
                write_id=write_id,
                recent_writes=(write_id,),
                **{"data": {}, **fields},
            )
        self._bucket.corrupt(key_of(RULE.name, "x"), encode(self._last))

    def remove(self) -> None:
        self._bucket.remove(key_of(RULE.name, "x"))


def _told(story: Callable[[Story], None]) -> Callable[[], Checkers]:
    """The judge that has seen it all."""

    @functools.wraps(story)
    def judged() -> Checkers:
        with World(1) as world:
            cluster = SimulatedCluster(world, 1)
            checkers = Checkers(cluster)
            story(Story(cluster, Judge(cluster, checkers, (RULE,), quarantine=64.0)))
        return checkers

    return judged


@plants("ttl", "persist")
@_told
def a_record_that_persists_expires(story: Story) -> None:
    story.write(story.act("insert"), reserved={"ttl": {"keep": True}})
    story.write(deleted=True, reserved={})


@plants("ttl", "resurrected")
@_told
def the_cleaner_makes_a_record(story: Story) -> None:
    story.write()


@plants("ttl", "removed")
@_told
def a_tombstone_is_removed_with_what_is_pending(story: Story) -> None:
    pending = {"how": "archive", "data": {}, "version": 1, "write": "w", "at": 0}
    story.write(story.act("insert"))
    story.write(story.act("delete"), deleted=True, reserved={"ttl": {"pending": {"stem": pending}}})
    story.remove()


@plants("ttl", "strategy")
@_told
def what_expired_keeps_its_data(story: Story) -> None:
    story.write(story.act("insert"), data={"n": 1}, reserved=story.expiry(0.0))
    story.write(deleted=True, reserved={})


@plants("ttl", "expiry")
@_told
def an_insert_does_not_expire(story: Story) -> None:
    story.write(story.act("insert", lasts=10.0))


@plants("ttl", "early")
@_told
def an_insert_lasts_for_half_the_time(story: Story) -> None:
    story.write(story.act("insert", lasts=10.0), reserved=story.expiry(5.0))


@plants("ttl", "late")
@_told
def an_insert_lasts_a_hundred_times_as_long(story: Story) -> None:
    story.write(story.act("insert", lasts=10.0), reserved=story.expiry(1000.0))


@plants("ttl", "user")
@_told
def a_patch_deletes(story: Story) -> None:
    story.write(story.act("insert"))
    story.write(story.act("patch"), deleted=True)


@plants("ttl", "pending")
@_told
def a_patch_makes_something_pending(story: Story) -> None:
    story.write(story.act("insert"))
    story.write(story.act("patch"), reserved={"ttl": {"pending": {"stem": {"write": "w"}}}})


@plants("ttl", "lost")
@_told
def a_caller_is_told_another_version(story: Story) -> None:
    act = story.act("insert")
    story.write(act)
    story.judge.told(act, Told.DONE, version=2)


@plants("ttl", "lost")
@_told
def one_of_many_is_not_there(story: Story) -> None:
    story.judge.inserted(story.act("insert many"), "x", 1)


@plants("ttl", "expires_at")
@_told
def a_touch_is_told_another_time(story: Story) -> None:
    act = story.act("touch", lasts=10.0)
    story.write(act, reserved=story.expiry(20.0))
    story.judge.touched(act, None)


@plants("ttl", "totals")
@_told
def a_callback_is_counted_that_nobody_called(story: Story) -> None:
    story.judge.check_totals(RULE, expired=0, archived=0, called=1)
