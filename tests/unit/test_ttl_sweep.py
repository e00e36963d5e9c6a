"""The leader's sweep, in simulated time: what expires when, what wins, and what a crash at any step leaves to do."""

from __future__ import annotations

import asyncio
import itertools
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tenure.database.ids import key_of
from tenure.errors import RecordConflict, RecordNotFound, StoreError, StoreUnavailable
from tenure.plugins.ttl import Expired, sweep
from tenure.plugins.ttl.calling import Caller
from tenure.plugins.ttl.events import (
    CallbackFailed,
    CleanupFinished,
    CleanupStarted,
    RecordDamaged,
    RecordsExpired,
)
from tenure.plugins.ttl.rules import iso
from tests.support.store import ANY, Act, Request
from tests.unit.ttl_rig import DUE, FOLDER, NAME, Node, Rig

BOTH = pytest.mark.parametrize("conditional_delete", [True, False], ids=["directory", "bucket"])


def insert(node: Node, id: str | None = None, **data: Any) -> Any:
    return node.rig.done(node, lambda: node.things.insert(data, id))


def fleet(rig: Rig) -> tuple[Node, Node]:
    """Somebody who leads, and somebody who writes."""
    leader, writer = rig.node("leader"), rig.node("writer")
    leader.lead()
    return leader, writer


class TestHardDelete:
    @BOTH
    @pytest.mark.req("TT-1")
    def test_gone_within_a_tick_after_its_time_and_never_before(self, conditional_delete: bool) -> None:
        with Rig(ttl=20.0, tick=5.0, conditional_delete=conditional_delete) as rig:
            _, writer = fleet(rig)
            for number in range(20):
                insert(writer, f"r{number}", n=number)
            drawn = insert(writer).id
            rig.wait(40.0)
            assert rig.alive() == []
            assert rig.entries == []
            assert len(rig.ends) == 21
            for at, host, _, envelope in rig.ends:
                late = at - (envelope.reserved["ttl"]["at"] - rig.now_ms) / 1000 - rig.world.now
                assert host == "leader"
                assert 0 <= late <= 5.0
            assert rig.ids() == ([] if conditional_delete else [f"r{number}" for number in sorted(range(20), key=str)])
            assert rig.envelope(drawn) is None
            for id in rig.ids():
                assert rig.envelope(id).reserved == {}  # type: ignore[union-attr]

    @pytest.mark.req("TT-2")
    def test_a_leader_whose_wall_clock_is_a_day_ahead_expires_nothing_early(self) -> None:
        with Rig(ttl=30.0) as rig:
            leader = rig.node("leader", wall_offset=86_400.0)
            writer = rig.node("writer", wall_offset=-86_400.0)
            leader.lead()
            insert(writer, "x")
            rig.wait(27.0)
            assert rig.alive() == ["x"]
            rig.wait(6.0)
            assert rig.alive() == []

    @BOTH
    def test_by_a_field_and_what_has_none_stays(self, conditional_delete: bool) -> None:
        with Rig(ttl=None, field="until", conditional_delete=conditional_delete) as rig:
            _, writer = fleet(rig)
            now = rig.now_ms // 1000
            insert(writer, "soon", until=now + 30)
            insert(writer, "past", until=5)
            insert(writer, "never")
            insert(writer, "much-later", until=now + 3_000_000_000)
            rig.wait(3.0)
            assert rig.alive() == ["much-later", "never", "soon"]
            rig.wait(30.0)
            assert rig.alive() == ["much-later", "never"]

    def test_a_record_that_others_gave_another_time_is_moved(self) -> None:
        with Rig(ttl=None, field="until") as rig:
            _, writer = fleet(rig)
            insert(writer, "x", until=rig.now_ms // 1000 + 10)
            insert(writer, "y", until=rig.now_ms // 1000 + 10)
            insert(writer, "z", until=rig.now_ms // 1000 + 10)
            later = rig.now_ms // 1000 + 200
            writer.things._guard = None
            rig.done(writer, lambda: writer.things.patch("x", {"until": later}))
            rig.done(writer, lambda: writer.things.patch("y", {"until": None}))
            rig.done(writer, lambda: writer.things.patch("z", {"until": rig.now_ms // 1000 + 14}))
            rig.wait(25.0)
            assert rig.alive() == ["x", "y"]
            assert rig.expiry("y").entry == ""
            assert len(rig.entries) == 1
            assert rig.expiry("x").at == later * 1000
            rig.wait(190.0)
            assert rig.alive() == ["y"]
            assert rig.entries == []

    @pytest.mark.req("TT-2")
    def test_a_long_outage_is_caught_up_page_by_page(self) -> None:
        with Rig(ttl=20.0, at_once=64) as rig:
            writer = rig.node("writer")
            for first in range(0, 2000, 1000):
                rig.done(
                    writer,
                    lambda first=first: writer.things.insert_many([{}] * 1000, [f"r{first + n}" for n in range(1000)]),
                    within=10.0,
                )
            rig.wait(3600.0)
            assert len(rig.alive()) == 2000
            leader = rig.node("leader")
            leader.lead()
            rig.wait(20.0)
            assert rig.alive() == []
            assert rig.entries == []
            stats = rig.done(writer, writer.ttl.stats)
            assert (stats.totals.expired, stats.totals.deleted, stats.totals.errors) == (2000, 2000, 0)

    def test_what_the_store_refuses_is_done_at_the_next_tick(self) -> None:
        with Rig(ttl=20.0) as rig:
            _, writer = fleet(rig)
            for number in range(10):
                insert(writer, f"r{number}")
            rig.network.change("leader", lost_request=0.2, lost_reply=0.2, server_error=0.2, timeout=0.5)
            rig.wait(60.0)
            rig.network.reset()
            rig.wait(130.0)  # the quarantine, for what the leader never heard of
            assert rig.alive() == []
            assert rig.entries == []


class TestWhatWins:
    @BOTH
    @pytest.mark.req("TT-2")
    def test_a_refresh_at_the_last_instant_wins_against_a_delete_that_lands_late(
        self, conditional_delete: bool
    ) -> None:
        with Rig(ttl=20.0, conditional_delete=conditional_delete) as rig:
            leader, writer = fleet(rig)
            insert(writer, "x", a=1)

            async def touch_first(request: Request) -> None:
                writer.do(lambda: writer.ttl.touch("x", ttl=100.0))
                await leader.host.clock.sleep(3.0)  # decided, and sent three seconds later

            leader.store.on("replace", key_of(NAME, "x"), touch_first)
            rig.wait(30.0)
            leader.store.assert_script_was_met()
            assert rig.lives("x")
            assert rig.ends == []
            assert rig.entries == [rig.expiry("x").entry + "x"]
            rig.wait(100.0)
            assert not rig.lives("x")

    @BOTH
    @pytest.mark.req("TT-2")
    def test_what_was_deleted_and_inserted_again_lives(self, conditional_delete: bool) -> None:
        with Rig(ttl=20.0, conditional_delete=conditional_delete) as rig:
            leader, writer = fleet(rig)
            insert(writer, "x", a=1)
            replaced: list[bool] = []

            async def again() -> None:
                await writer.things.delete("x")
                await writer.things.insert({"a": 2}, "x")
                replaced.append(True)

            async def replace_first(request: Request) -> None:
                writer.do(again)
                await leader.host.clock.sleep(3.0)

            leader.store.on("replace", key_of(NAME, "x"), replace_first)
            rig.wait(26.0)
            assert replaced
            assert rig.envelope("x").data == {"a": 2}  # type: ignore[union-attr]
            assert rig.lives("x")
            rig.wait(30.0)
            assert not rig.lives("x")
            assert rig.entries == []

    @pytest.mark.req("TT-2")
    def test_a_former_leader_that_was_paused_harms_nothing(self) -> None:
        """It wakes in the middle of its sweep, with records that it judged long ago, and sends all the same."""
        with Rig(ttl=20.0, conditional_delete=False) as rig:
            former, leader, writer = rig.node("former"), rig.node("leader"), rig.node("writer")
            former.lead(1)
            rig.done(writer, lambda: writer.things.insert_many([{}] * 8, [f"r{n}" for n in range(8)]))

            async def pause(request: Request) -> None:
                await former.host.clock.sleep(60.0)

            former.store.always("replace", f"resource={NAME}/*", pause)
            rig.wait(22.0)
            assert former.store.count("replace", f"resource={NAME}/*") == 8
            leader.lead(2)
            rig.wait(10.0)
            assert rig.alive() == []
            for number in range(8):
                insert(writer, f"r{number}", n=100 + number)
                rig.done(writer, lambda number=number: writer.ttl.touch(f"r{number}", ttl=600.0))
            rig.wait(80.0)
            assert len(rig.alive()) == 8
            assert len(rig.entries) == 8
            rig.wait(600.0)
            assert rig.alive() == []
            assert rig.entries == []

    def test_touch_after_its_time_wins_as_long_as_it_is_there(self) -> None:
        with Rig(ttl=20.0) as rig:
            writer = rig.node("writer")
            insert(writer, "x")
            rig.wait(60.0)
            rig.done(writer, lambda: writer.ttl.touch("x"))
            leader = rig.node("leader")
            leader.lead()
            rig.wait(10.0)
            assert rig.lives("x")
            rig.wait(15.0)
            assert not rig.lives("x")
            with pytest.raises(RecordNotFound):
                rig.done(writer, lambda: writer.ttl.touch("x"))


class TestQuarantine:
    def test_a_crash_between_index_and_record_leaves_an_entry_that_is_dropped_after_it(self) -> None:
        with Rig(ttl=20.0, quarantine=120.0) as rig:
            _, writer = fleet(rig)

            async def crash(request: Request) -> None:
                writer.host.crash()

            writer.store.on("create", "resource=*", crash)
            writer.do(lambda: writer.things.insert({}, "x"))
            rig.wait(1.0)
            assert len(rig.entries) == 1
            rig.wait(110.0)
            assert len(rig.entries) == 1
            rig.wait(20.0)
            assert rig.entries == []
            assert rig.ids() == []

    @BOTH
    @pytest.mark.req("TT-2")
    def test_a_record_that_lands_long_after_it_was_due_expires_all_the_same(self, conditional_delete: bool) -> None:
        with Rig(ttl=5.0, quarantine=400.0, conditional_delete=conditional_delete) as rig:
            _, writer = fleet(rig)
            for pause in (10.0, 100.0):
                landed: list[float] = []

                async def late(request: Request, pause: float = pause, landed: list[float] = landed) -> None:
                    await writer.host.clock.sleep(pause)
                    landed.append(rig.world.now)

                writer.store.on("create", key_of(NAME, "x"), late)
                writer.do(lambda: writer.things.insert({}, "x"))
                rig.wait(pause + 1.0)
                assert landed
                rig.wait(pause + 5.0)  # looks become rarer, up to double the age
                assert rig.alive() == []
                assert len(rig.ends) == (1 if pause == 10.0 else 2)

    def test_what_is_waited_for_is_not_read_at_every_tick(self) -> None:
        with Rig(ttl=5.0, tick=2.0, quarantine=600.0) as rig:
            _, writer = fleet(rig)
            rig.done(writer, lambda: writer.things.insert_many([{}] * 50, [f"r{n}" for n in range(50)]))
            writer.things._guard = None
            for number in range(50):
                writer.do(lambda number=number: writer.things.delete(f"r{number}"))
            rig.wait(70.0)
            before = rig.requests("leader")["get"]
            rig.wait(450.0)
            assert rig.requests("leader")["get"] - before <= 50 * 4
            assert len(rig.entries) == 1
            rig.wait(100.0)
            assert rig.entries == []

    def test_what_is_remembered_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sweep, "MAX_REMEMBERED", 10)
        sizes: list[int] = []
        original = sweep.Sweeper._forget_what_is_gone

        def noted(self: Any, limit_ms: int) -> None:
            original(self, limit_ms)
            sizes.append(self.remembered)

        monkeypatch.setattr(sweep.Sweeper, "_forget_what_is_gone", noted)
        with Rig(ttl=5.0, quarantine=120.0) as rig:
            fleet(rig)
            for number in range(30):
                rig.bucket.corrupt(f"{DUE}{rig.now_ms // 1000 * 1000:013d}/{number:016x}.r{number}", b"{}")
            rig.wait(130.0)
            assert max(sizes) <= 10
            assert rig.entries == []
            rig.wait(10.0)
            assert sizes[-1] == 0

    def test_names_that_nobody_gives_are_left_alone(self) -> None:
        with Rig(ttl=5.0) as rig:
            _, writer = fleet(rig)
            rig.bucket.corrupt(DUE + "0000000000000/readme", b"hello")
            insert(writer, "x")
            rig.wait(20.0)
            assert rig.entries == ["0000000000000/readme"]
            assert rig.alive() == []

    def test_a_damaged_record_is_told_of_and_stays(self) -> None:
        with Rig(ttl=5.0, quarantine=60.0) as rig:
            _, writer = fleet(rig)
            insert(writer, "x")
            rig.bucket.corrupt(key_of(NAME, "x"), b"not a record")
            insert(writer, "y")
            rig.wait(20.0)
            assert len(rig.entries) == 1
            assert [event.id for event in rig.of(RecordDamaged)] == ["x"]
            rig.wait(100.0)
            assert len(rig.of(RecordDamaged)) in (2, 3)  # looked at again from time to time, and never dropped
            assert rig.bucket.body(key_of(NAME, "x")) == b"not a record"
            assert len(rig.entries) == 1

    def test_a_damaged_group_is_told_of_and_stays(self) -> None:
        with Rig(ttl=5.0, quarantine=60.0) as rig:
            fleet(rig)
            key = f"{DUE}{rig.now_ms // 1000 * 1000:013d}/{7:016x}"
            rig.bucket.corrupt(key, b"[]")
            rig.wait(20.0)
            assert len(rig.of(RecordDamaged)) == 1
            assert rig.bucket.body(key) == b"[]"


class TestGroups:
    @BOTH
    def test_shared_entries_are_deleted_when_the_last_of_them_is_done(self, conditional_delete: bool) -> None:
        with Rig(ttl=30.0, conditional_delete=conditional_delete) as rig:
            _, writer = fleet(rig)
            rig.done(writer, lambda: writer.things.insert_many([{}] * 20, [f"r{n}" for n in range(20)]))
            assert len(rig.entries) <= 2
            rig.done(writer, lambda: writer.ttl.touch("r3", ttl=200.0))
            rig.done(writer, lambda: writer.things.delete("r4"))
            rig.done(writer, lambda: writer.ttl.persist("r5"))
            rig.wait(35.0)
            assert rig.alive() == ["r3", "r5"]
            assert len(rig.entries) >= 2  # of r4 nobody knows that it was ever there
            rig.wait(130.0)
            assert rig.entries == [rig.expiry("r3").entry + "r3"]
            rig.wait(60.0)
            assert rig.alive() == ["r5"]
            assert rig.entries == []

    def test_a_new_leader_goes_on_with_what_is_left(self) -> None:
        with Rig(ttl=20.0, rate_limit=10.0) as rig:
            leader, writer = fleet(rig)
            rig.done(writer, lambda: writer.things.insert_many([{}] * 60, [f"r{n}" for n in range(60)]))
            rig.wait(21.0)
            leader.host.crash()
            left = len(rig.alive())
            assert 20 < left < 60
            second = rig.node("second")
            second.lead(2)
            rig.wait(150.0)
            assert rig.alive() == []
            assert rig.entries == []


class TestCost:
    @staticmethod
    def _cost(stored: int, due: int) -> tuple[float, dict[str, int]]:
        """Requests of the leader that S3 bills (deletes are free there), for each expired record."""
        with Rig(ttl=1000.0, tick=10.0, conditional_delete=False) as rig:
            writer = rig.node("writer")
            stores = [f"stay{n}" for n in range(stored)]
            for first in range(0, stored, 1000):
                ids = stores[first : first + 1000]
                rig.done(writer, lambda ids=ids: writer.things.insert_many([{}] * len(ids), ids), within=8.0)
            rig.wait(60.0)
            leader = rig.node("leader")
            leader.lead()
            for number in range(due):
                writer.do(lambda number=number: writer.things.insert({"due": 1}, f"due{number}"))
                rig.wait(0.02)
            for number in range(due):
                writer.do(lambda number=number: writer.ttl.touch(f"due{number}", ttl=5.0))
                rig.wait(0.02)
            rig.wait(1.0)
            rig.network.requests.clear()
            rig.wait(20.0)
            assert len(rig.alive()) == stored
            requests = rig.requests("leader")
            billed = sum(count for verb, count in requests.items() if verb not in ("delete", "discard"))
            return billed / due, requests

    @pytest.mark.req("TT-2")
    def test_few_requests_for_each_and_none_for_what_is_not_due(self) -> None:
        few, _ = self._cost(10, 100)
        many, requests = self._cost(1000, 100)
        assert few <= 2.5
        assert many <= 2.5
        assert abs(few - many) <= 0.2 * few
        assert requests["get"] <= 100 + 10  # and some of the log
        assert requests["replace"] == 100

    def test_rate_limit(self) -> None:
        with Rig(ttl=10.0, rate_limit=5.0) as rig:
            _, writer = fleet(rig)
            rig.done(writer, lambda: writer.things.insert_many([{}] * 100, [f"r{n}" for n in range(100)]))
            rig.wait(13.0)
            began = rig.world.now
            before = len(rig.alive())
            rig.wait(8.0)
            assert 35 <= before - len(rig.alive()) <= 45
            assert rig.world.now == began + 8.0
            rig.wait(15.0)
            assert rig.alive() == []


class TestSoftDelete:
    @pytest.mark.req("TT-1")
    def test_it_stays_and_says_when_it_expired(self) -> None:
        with Rig(ttl=20.0, on_expire="soft-delete", soft_field="gone") as rig:
            _, writer = fleet(rig)
            insert(writer, "x", a=1)
            insert(writer, "y", a=1)
            due = rig.expiry("x").at
            rig.wait(25.0)
            record = rig.done(writer, lambda: writer.things.get("x"))
            assert record.data["a"] == 1
            assert record.data["gone"] == iso(due)
            assert record.reserved == {}
            assert rig.entries == []
            assert rig.done(writer, lambda: writer.ttl.expires_at("x")) is None
            rig.done(writer, lambda: writer.things.patch("x", {"a": 2}))
            assert rig.done(writer, lambda: writer.ttl.touch("x")) is None
            rig.wait(40.0)
            assert rig.done(writer, lambda: writer.things.get("x")).data["gone"] == record.data["gone"]
            stats = rig.done(writer, writer.ttl.stats)
            assert (stats.totals.expired, stats.totals.soft_deleted, stats.totals.deleted) == (2, 2, 0)

    def test_a_touch_that_the_leader_was_faster_than_does_not_promise_anything(self) -> None:
        with Rig(ttl=20.0, on_expire="soft-delete") as rig:
            leader, writer = rig.node("leader"), rig.node("writer")
            insert(writer, "x")
            rig.wait(25.0)

            async def wait(request: Request) -> None:
                await writer.host.clock.sleep(5.0)

            writer.store.on("replace", key_of(NAME, "x"), wait)
            told = writer.do(lambda: writer.ttl.touch("x"))
            leader.lead()
            rig.wait(10.0)
            assert told == [None]
            assert rig.done(writer, lambda: writer.ttl.expires_at("x")) is None

    def test_by_a_field_once(self) -> None:
        with Rig(ttl=None, field="until", on_expire="soft-delete") as rig:
            _, writer = fleet(rig)
            insert(writer, "x", until=5)
            rig.wait(5.0)
            record = rig.done(writer, lambda: writer.things.get("x"))
            assert record.data["deleted_at"] == "1970-01-01T00:00:05.000+00:00"
            rig.done(writer, lambda: writer.things.patch("x", {"a": 2}))
            assert rig.entries == []
            written = rig.done(writer, lambda: writer.things.patch("x", {"deleted_at": None}))
            assert written.reserved["ttl"]["at"] == 5000
            rig.wait(5.0)
            assert rig.done(writer, lambda: writer.things.get("x")).data["deleted_at"]


def archive(rig: Rig) -> list[dict[str, Any]]:
    return [rig.envelope(id, "old").data for id in rig.alive("old")]  # type: ignore[union-attr]


ARCHIVING = {"ttl": 20.0, "on_expire": "archive", "archive": "old"}


class TestArchive:
    @BOTH
    @pytest.mark.req("TT-1")
    def test_gone_here_and_there_once(self, conditional_delete: bool) -> None:
        with Rig(conditional_delete=conditional_delete, **ARCHIVING) as rig:
            _, writer = fleet(rig)
            record = insert(writer, "x", a=1, deep={"b": [1, 2]})
            due = rig.expiry("x").at
            rig.wait(25.0)
            assert rig.alive() == []
            assert rig.entries == []
            (found,) = archive(rig)
            assert found == {
                "resource": NAME,
                "id": "x",
                "version": record.version,
                "created_at": record.created_at,
                "expired_at": iso(due),
                "data": {"a": 1, "deep": {"b": [1, 2]}},
            }
            assert rig.ids() == ([] if conditional_delete else ["x"])
            if not conditional_delete:
                assert rig.envelope("x").reserved == {}  # type: ignore[union-attr]
            stats = rig.done(writer, writer.ttl.stats)
            assert (stats.totals.expired, stats.totals.archived) == (1, 1)

    @pytest.mark.req("TT-1")
    @pytest.mark.parametrize("step", range(1, 14))
    def test_once_though_leaders_crash_at_each_step(self, step: int) -> None:
        """The n-th request of each leader that has to do with records is its last."""
        with Rig(conditional_delete=step % 2 == 0, quarantine=40.0, **ARCHIVING) as rig:
            writer = rig.node("writer")
            for number in range(3):
                insert(writer, f"r{number}", n=number)
            rig.wait(20.0)
            for epoch in range(1, 4):
                leader = rig.node(f"leader{epoch}")
                leader.store.always(ANY, ANY, _crash_at(leader, step * epoch))
                leader.lead(epoch)
                rig.wait(8.0)
            last = rig.node("last")
            last.lead(9)
            rig.wait(60.0)
            assert rig.alive() == []
            assert sorted(found["data"]["n"] for found in archive(rig)) == [0, 1, 2]
            assert rig.entries == []

    @BOTH
    @pytest.mark.req("TT-2")
    def test_inserted_again_while_it_is_being_archived_both_are_there(self, conditional_delete: bool) -> None:
        with Rig(conditional_delete=conditional_delete, **ARCHIVING) as rig:
            leader, writer = fleet(rig)
            insert(writer, "x", life=1)

            leader.store.always(ANY, "resource=old/*", StoreUnavailable("no"))
            rig.wait(25.0)
            assert rig.alive() == []
            assert list(rig.expiry("x").pending) == [rig.entries[0].removesuffix("x")]
            insert(writer, "x", life=2)
            rig.done(writer, lambda: writer.things.patch("x", {"patched": True}))
            assert rig.lives("x")
            assert len(rig.expiry("x").pending) == 1
            rig.wait(25.0)  # the second life expires as well, while the first still waits
            assert len(rig.expiry("x").pending) == 2
            insert(writer, "x", life=3)
            leader.store.end_script()
            rig.wait(10.0)
            assert rig.lives("x")
            assert rig.expiry("x").pending == {}
            assert sorted(found["data"]["life"] for found in archive(rig)) == [1, 2]
            rig.wait(15.0)
            assert sorted(found["data"]["life"] for found in archive(rig)) == [1, 2, 3]
            rig.wait(130.0)
            assert rig.entries == []

    def test_not_more_than_four_lives_wait_at_a_time(self) -> None:
        with Rig(**{**ARCHIVING, "ttl": 3.0}) as rig:
            leader, writer = fleet(rig)

            leader.store.always(ANY, "resource=old/*", StoreUnavailable("no"))
            for life in range(5):
                insert(writer, "x", life=life)
                rig.wait(8.0)
            assert len(rig.expiry("x").pending) == 4
            assert rig.lives("x")  # the fifth
            leader.store.end_script()
            rig.wait(15.0)
            assert not rig.lives("x")
            assert sorted(found["data"]["life"] for found in archive(rig)) == [0, 1, 2, 3, 4]

    def test_a_record_of_the_largest_size_can_be_archived(self) -> None:
        with Rig(**ARCHIVING) as rig:
            _, writer = fleet(rig)
            deep: Any = "x"
            for _ in range(29):
                deep = {"d": deep}
            insert(writer, "x", text="x" * 990_000, deep=deep)
            rig.wait(25.0)
            (found,) = archive(rig)
            assert found["data"] == {"text": "x" * 990_000, "deep": deep}

    def test_what_others_keep_with_the_key_stays(self) -> None:
        with Rig(**ARCHIVING) as rig:
            _, writer = fleet(rig)
            insert(writer, "x")
            rig.done(writer, lambda: writer.things.rewrite("x", lambda data, reserved: (data, {"count": 7})))
            rig.wait(25.0)
            envelope = rig.envelope("x")
            assert envelope is not None
            assert envelope.deleted
            assert envelope.reserved == {"count": 7}


def _crash_at(node: Node, number: int) -> Act:
    seen: list[str] = []

    async def before(request: Request) -> StoreError | None:
        if request.key.startswith("resource=") or (request.verb == "delete" and request.key.startswith(DUE)):
            seen.append(request.key)
            if len(seen) == number:
                node.host.crash()
        return None

    return before


class TestCallback:
    @BOTH
    @pytest.mark.req("EF-9")
    def test_called_with_what_it_was_and_a_token(self, conditional_delete: bool) -> None:
        calls: list[Expired] = []

        async def callback(expired: Expired) -> None:
            calls.append(expired)

        with Rig(ttl=20.0, callback=callback, conditional_delete=conditional_delete) as rig:
            _, writer = fleet(rig)
            record = insert(writer, "x", a=1)
            due = rig.expiry("x").at
            rig.wait(25.0)
            (call,) = calls
            assert (call.resource, call.id, call.data, call.version) == (NAME, "x", {"a": 1}, record.version)
            assert (call.attempt, call.created_at) == (1, record.created_at)
            assert call.expired_at.timestamp() * 1000 == due
            assert call.token >= 2
            assert rig.bucket.body(f"{FOLDER}log/{call.token:020d}") is not None
            assert rig.alive() == []
            assert rig.entries == []
            stats = rig.done(writer, writer.ttl.stats)
            assert (stats.totals.called, stats.calling) == (1, 0)

    @pytest.mark.req("EF-9")
    def test_what_raises_is_called_again_later_and_later_with_rising_tokens(self) -> None:
        calls: list[tuple[float, Expired]] = []

        async def callback(expired: Expired) -> None:
            calls.append((rig.world.now, expired))
            if len(calls) < 5:
                raise RuntimeError("not now")

        with Rig(ttl=20.0, tick=1.0, callback=callback, backoff=4.0) as rig:
            _, writer = fleet(rig)
            insert(writer, "x")
            rig.wait(120.0)
            assert [call.attempt for _, call in calls] == [1, 2, 3, 4, 5]
            tokens = [call.token for _, call in calls]
            assert tokens == sorted(set(tokens))
            pauses = [second - first for (first, _), (second, _) in itertools.pairwise(calls)]
            assert all(wanted <= pause <= wanted + 2.0 for pause, wanted in zip(pauses, (4, 8, 16, 32), strict=True))
            assert len(rig.of(CallbackFailed)) == 4
            assert rig.entries == []
            stats = rig.done(writer, writer.ttl.stats)
            assert (stats.totals.called, stats.totals.failed_calls, stats.calling) == (1, 4, 0)

    def test_given_up_it_is_kept_for_inspection(self) -> None:
        async def callback(expired: Expired) -> None:
            raise RuntimeError("never")

        with Rig(ttl=20.0, callback=callback, backoff=0.1, max_attempts=3) as rig:
            _, writer = fleet(rig)
            insert(writer, "x", a=1)
            rig.wait(40.0)
            assert [event.given_up for event in rig.of(CallbackFailed)] == [False, False, True]
            (failed,) = rig.done(writer, writer.ttl.failed)
            assert (failed.id, failed.data, failed.attempts, failed.error) == ("x", {"a": 1}, 3, "RuntimeError: never")
            assert rig.alive() == []
            assert rig.entries == []
            stats = rig.done(writer, writer.ttl.stats)
            assert (stats.totals.given_up, stats.calling) == (1, 0)

    def test_one_that_would_end_the_program_has_failed(self) -> None:
        async def callback(expired: Expired) -> None:
            if expired.id == "x":
                sys.exit(3)

        with Rig(ttl=20.0, callback=callback, backoff=0.1, max_attempts=2) as rig:
            _, writer = fleet(rig)
            insert(writer, "x")
            insert(writer, "y")
            rig.wait(40.0)
            (failed,) = rig.done(writer, writer.ttl.failed)
            assert (failed.id, failed.attempts, failed.error) == ("x", 2, "SystemExit: 3")
            assert rig.alive() == []
            assert rig.entries == []

    @pytest.mark.parametrize("how", ["waits for what is cancelled", "cancels itself", "keeps that to itself"])
    def test_one_that_is_cancelled_by_itself_has_failed(self, how: str) -> None:
        called: list[tuple[str, int]] = []

        async def callback(expired: Expired) -> None:
            called.append((expired.id, expired.attempt))
            if how == "waits for what is cancelled":
                other = asyncio.get_running_loop().create_future()
                other.cancel()
                await other
            task = asyncio.current_task()
            assert task is not None
            rig.world.call_at(rig.world.now + 0.01, task.cancel)  # as timeouts of older libraries do
            try:
                await rig.world.hosts["leader"].clock.sleep(1.0)
            except asyncio.CancelledError:
                if how == "cancels itself":
                    raise

        with Rig(ttl=20.0, callback=callback, backoff=0.1, max_attempts=2, at_once=1) as rig:
            _, writer = fleet(rig)
            insert(writer, "x")
            insert(writer, "y")
            rig.wait(40.0)
            assert rig.alive() == []
            assert rig.entries == []
            failed = rig.done(writer, writer.ttl.failed)
            if how == "keeps that to itself":
                assert failed == []
                assert sorted(called) == [("x", 1), ("y", 1)]
            else:
                assert {(each.id, each.attempts, each.error) for each in failed} == {
                    ("x", 2, "CancelledError: "),
                    ("y", 2, "CancelledError: "),
                }
                assert sorted(called) == [("x", 1), ("x", 2), ("y", 1), ("y", 2)]

    async def test_whoever_calls_may_be_cancelled(self) -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def callback(expired: Expired) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        now = datetime.fromtimestamp(0, UTC)
        given = Expired(resource="r", id="x", data={}, version=1, expired_at=now, created_at="", token=1, attempt=1)
        call = asyncio.ensure_future(Caller(callback, timeout=60.0, threads=1).call(given))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert cancelled.is_set()

    async def test_and_so_has_a_plain_one(self) -> None:
        def callback(expired: Expired) -> None:
            sys.exit(3)

        caller = Caller(callback, timeout=60.0, threads=1)
        now = datetime.fromtimestamp(0, UTC)
        given = Expired(resource="r", id="x", data={}, version=1, expired_at=now, created_at="", token=1, attempt=1)
        assert await caller.call(given) == "SystemExit: 3"

    @pytest.mark.req("EF-9")
    @pytest.mark.parametrize("step", range(1, 9))
    def test_at_least_once_though_leaders_crash_at_each_step(self, step: int) -> None:
        calls: list[Expired] = []

        async def callback(expired: Expired) -> None:
            calls.append(expired)

        with Rig(ttl=20.0, callback=callback, quarantine=40.0, conditional_delete=step % 2 == 0) as rig:
            writer = rig.node("writer")
            for number in range(3):
                insert(writer, f"r{number}", n=number)
            rig.wait(20.0)
            for epoch in range(1, 4):
                leader = rig.node(f"leader{epoch}")
                leader.store.always(ANY, ANY, _crash_at(leader, step * epoch))
                leader.lead(epoch)
                rig.wait(8.0)
            rig.node("last").lead(9)
            rig.wait(60.0)
            assert rig.alive() == []
            assert rig.entries == []
            assert {call.id for call in calls} == {"r0", "r1", "r2"}
            for id in ("r0", "r1", "r2"):
                own = [(call.token, call.attempt) for call in calls if call.id == id]
                assert own == sorted(set(own))

    def test_a_call_that_hangs_has_failed(self) -> None:
        async def callback(expired: Expired) -> None:
            if expired.attempt == 1:
                await rig.world.hosts["leader"].clock.sleep(1e6)

        with Rig(ttl=20.0, callback=callback, callback_timeout=3.0, backoff=0.1) as rig:
            _, writer = fleet(rig)
            insert(writer, "x")
            insert(writer, "y")
            rig.wait(40.0)
            assert rig.alive() == []
            assert rig.entries == []
            assert {event.id for event in rig.of(CallbackFailed)} == {"x", "y"}

    def test_called_once_though_what_was_done_could_not_be_cleared(self) -> None:
        calls: list[Expired] = []

        async def callback(expired: Expired) -> None:
            calls.append(expired)
            leader.store.always("replace", "resource=*", "lost")

        with Rig(ttl=20.0, callback=callback) as rig:
            leader, writer = fleet(rig)
            insert(writer, "x")
            rig.wait(40.0)
            assert len(rig.expiry("x").pending) == 1
            leader.store.end_script()
            rig.wait(10.0)
            assert len(calls) == 1
            assert rig.entries == []

    def test_a_leader_without_the_callback_leaves_them_for_one_that_has_it(self) -> None:
        calls: list[Expired] = []

        async def callback(expired: Expired) -> None:
            calls.append(expired)

        with Rig(ttl=20.0, callback=callback) as rig:
            leader, writer = rig.node("leader"), rig.node("writer")
            insert(writer, "x")
            leader.ttl._callback = None
            leader.lead(1)
            rig.wait(30.0)
            assert not rig.lives("x")
            assert calls == []
            leader.host.crash()
            rig.node("other").lead(2)
            rig.wait(10.0)
            assert [call.id for call in calls] == ["x"]


class TestEvents:
    def test_of_a_cleanup(self) -> None:
        with Rig(ttl=20.0) as rig:
            _, writer = fleet(rig)
            rig.wait(10.0)
            assert rig.of(CleanupStarted) == []
            for number in range(3):
                insert(writer, f"r{number}")
            rig.wait(30.0)
            assert rig.of(CleanupStarted)
            finished = rig.of(CleanupFinished)
            assert len(finished) == len(rig.of(CleanupStarted))
            assert sum(event.counts.expired for event in finished) == 3
            assert sorted(id for event in rig.of(RecordsExpired) for id in event.ids) == ["r0", "r1", "r2"]

    def test_nothing_is_written_when_nothing_happens(self) -> None:
        with Rig(ttl=20.0) as rig:
            leader = rig.node("leader")
            leader.lead()
            rig.wait(10.0)
            before = rig.requests("leader")
            rig.wait(100.0)
            after = rig.requests("leader")
            assert after.get("create", 0) - before.get("create", 0) <= 1 + 1  # a look at the store's clock
            assert after.get("put", 0) == before.get("put", 0)


def test_a_version_that_the_leader_has_seen_does_not_fit_what_came_after() -> None:
    with Rig(ttl=20.0) as rig:
        writer = rig.node("writer")
        record = insert(writer, "x")
        rig.done(writer, lambda: writer.ttl.touch("x"))
        with pytest.raises(RecordConflict):
            rig.done(writer, lambda: writer.things.update("x", {}, if_version=record.version))
        assert msgspec.json.encode(rig.expiry("x"))


# Found by mutants


def test_an_entry_that_its_writer_deleted_is_not_waited_for_any_more() -> None:
    with Rig(ttl=5.0, quarantine=600.0) as rig:
        _, writer = fleet(rig)
        key = f"{DUE}{rig.now_ms // 1000 * 1000:013d}/{1:016x}.x"
        rig.bucket.corrupt(key, b"{}")
        rig.wait(10.0)
        cleanup = rig.done(writer, lambda: writer.ttl.run_cleanup(), within=10.0)
        assert cleanup.counts.waiting == 1
        rig.done(writer, lambda: writer.store.delete(key))
        cleanup = rig.done(writer, lambda: writer.ttl.run_cleanup(), within=10.0)
        assert cleanup.counts.waiting == 0


def test_records_and_groups_that_are_damaged_are_counted() -> None:
    with Rig(ttl=5.0, quarantine=600.0) as rig:
        _, writer = fleet(rig)
        insert(writer, "x")
        rig.bucket.corrupt(key_of(NAME, "x"), b"not a record")
        rig.bucket.corrupt(f"{DUE}{rig.now_ms // 1000 * 1000:013d}/{7:016x}", b"[]")
        rig.wait(20.0)
        assert sum(event.counts.damaged for event in rig.of(CleanupFinished)) == 2


def test_a_record_that_meets_a_defect_is_tried_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sweep, "judge", fail)
    with Rig(ttl=5.0, tick=2.0) as rig:
        _, writer = fleet(rig)
        insert(writer, "x")
        rig.wait(50.0)
        assert [event.id for event in rig.of(RecordDamaged)] == ["x"]
        rig.wait(60.0)
        assert [event.id for event in rig.of(RecordDamaged)] == ["x", "x"]


def test_a_record_that_cannot_be_cleared_after_its_callback_is_one_error_and_no_second_call() -> None:
    calls: list[float] = []

    async def callback(expired: Expired) -> None:
        calls.append(rig.world.now)

    async def before(request: Request) -> StoreError | None:
        is_out = bool(calls) and rig.world.now < calls[0] + 5.0
        return StoreUnavailable("not now") if is_out else None

    with Rig(ttl=5.0, tick=30.0, callback=callback) as rig:
        leader, writer = fleet(rig)
        leader.store.always(ANY, key_of(NAME, "x"), before)
        insert(writer, "x")
        rig.wait(100.0)
        assert len(calls) == 1
        assert sum(event.counts.errors for event in rig.of(CleanupFinished)) == 1
        assert rig.alive() == rig.entries == []


def test_a_record_whose_time_cannot_be_read_is_told_of_and_stays() -> None:
    with Rig(ttl=5.0, quarantine=600.0) as rig:
        _, writer = fleet(rig)
        insert(writer, "x")
        damaged = msgspec.structs.replace(rig.envelope("x"), reserved={"ttl": {"at": "soon"}})
        rig.bucket.corrupt(key_of(NAME, "x"), msgspec.json.encode(damaged))
        rig.wait(20.0)
        (told,) = rig.of(RecordDamaged)
        assert (told.id, "reserved.ttl is not readable" in told.reason) == ("x", True)
        assert rig.lives("x")
