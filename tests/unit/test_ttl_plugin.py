"""`TTLPlugin` as its users see it: single records, cleanups on demand, reindexing, and what is refused."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import tenure
from tenure import CoordinatorConfig, Database, Expired, OnExpire, TTLPlugin
from tenure.database.expiry import Expiry
from tenure.database.ids import key_of
from tenure.errors import ConfigConflict, ConfigError, DamagedRecord, RecordNotFound, StoreError, TenureError
from tenure.ledger import InboxName, Item, Place, Poison, Situation, Stamp
from tenure.ledger.leader import TooNewLetter
from tenure.plugins.ttl.clerk import TTLClerk
from tenure.plugins.ttl.index import slot_in
from tenure.plugins.ttl.records import Cleanup, Counts, Work
from tenure.plugins.ttl.rules import moment_of
from tenure.plugins.ttl.state import MAX_CLEANUPS, MAX_TRIALS, TTLMachine
from tenure.plugins.ttl.wire import CLEANUP, Letter, Request
from tests.support.lease import ScriptedLease
from tests.support.store import ANY
from tests.support.store import Request as StoreRequest
from tests.unit.ttl_rig import NAME, Node, Rig

SWIFT = CoordinatorConfig.fast(startup_jitter_max=0, takeover_delay=0.05, min_epoch_duration=0)


def insert(node: Node, id: str | None = None, **data: Any) -> Any:
    return node.rig.done(node, lambda: node.things.insert(data, id))


class Session(msgspec.Struct):
    user: str
    until: datetime | None = None


class TestDatabase:
    @pytest.mark.req("TT-1")
    async def test_from_insert_to_gone(self) -> None:
        called: list[Expired] = []
        async with Database("memory://") as db:
            sessions = db.resource("sessions", schema=Session)
            events = []
            ttl = await db.use_plugin(TTLPlugin("sessions", ttl=0.2, tick=0.1, config=SWIFT))
            ttl.on("plg:ttl:expired", lambda event: events.append(event))
            calls = await db.use_plugin(
                TTLPlugin(db.resource("jobs"), field="until", tick=0.1, callback=called.append, config=SWIFT)
            )
            assert (ttl.name, calls.name) == ("sessions", "jobs")
            await sessions.insert(Session("ada"), id="s1")
            await sessions.insert(Session("ben"), id="s2")
            await ttl.persist("s2")
            await db.resource("jobs").insert({"until": 5}, id="j1")
            assert await ttl.expires_at("s1") is not None
            async with asyncio.timeout(30):
                while await sessions.exists("s1") or not called:
                    await asyncio.sleep(0.02)
                cleanup = await ttl.run_cleanup()
                assert cleanup.asked
                stats = await ttl.stats()
            assert stats.totals.deleted == 1
            assert stats.last is not None
            assert stats.last_at is not None
            assert await sessions.exists("s2")
            assert called[0].data == {"until": 5}
            assert called[0].expired_at == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)

    async def test_after_it_was_stopped_records_are_still_indexed(self) -> None:
        async with Database("memory://") as db:
            things = db.resource("things")
            ttl = await db.use_plugin(TTLPlugin("things", ttl=60, takes_part=False))
            await ttl.stop()
            record = await things.insert({}, id="x")
            assert record.reserved["ttl"]["at"]
            with pytest.raises(TenureError, match="is not started"):
                await ttl.stats()
            await ttl.start()
            again = TTLPlugin("things", ttl=60, takes_part=False)
            with pytest.raises(ConfigError, match="there is a plugin 'things' of kind 'ttl' already"):
                await db.use_plugin(again)

    async def test_what_does_not_fit_the_resource(self) -> None:
        async with Database("memory://") as db:
            db.resource("sessions", schema=Session)
            with pytest.raises(ConfigError, match="field is 'expires', and resource 'sessions' cannot have it"):
                await db.use_plugin(TTLPlugin("sessions", field="expires"))
            with pytest.raises(ConfigError, match="soft_field is 'deleted_at', and resource 'sessions' cannot have it"):
                await db.use_plugin(TTLPlugin("sessions", ttl=5, on_expire=OnExpire.SOFT_DELETE))
            with pytest.raises(ConfigError, match="name is 'other' and resource is 'sessions'"):
                await db.use_plugin(TTLPlugin("sessions", ttl=5), name="other")
            await db.use_plugin(TTLPlugin("untyped", ttl=5, takes_part=False))
            with pytest.raises(ConfigConflict):
                db.resource("untyped", schema=Session)

    async def test_a_typed_time(self) -> None:
        async with Database("memory://") as db:
            sessions = db.resource("sessions", schema=Session)
            ttl = await db.use_plugin(TTLPlugin("sessions", field="until", takes_part=False))
            moment = datetime(2030, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
            await sessions.insert(Session("ada", moment), id="s1")
            assert await ttl.expires_at("s1") == moment
            touched = await ttl.touch("s1", ttl=timedelta(minutes=1))
            assert touched == await ttl.expires_at("s1") == (await sessions.get("s1")).data.until
            await ttl.persist("s1")
            assert (await sessions.get("s1")).data.until is None

    async def test_names_at_the_front_door(self) -> None:
        assert tenure.TTLPlugin is TTLPlugin
        assert tenure.OnExpire is OnExpire
        assert tenure.Expired is Expired


class TestSingleRecords:
    @pytest.mark.req("TT-1")
    def test_touch_persist_and_expires_at(self) -> None:
        with Rig(ttl=20.0) as rig:
            leader, writer = rig.node("leader"), rig.node("writer")
            leader.lead()
            for id in ("a", "b", "c"):
                insert(writer, id)
            until = rig.done(writer, lambda: writer.ttl.touch("a", ttl=60))
            assert until == rig.done(writer, lambda: writer.ttl.expires_at("a"))
            assert until == moment_of(rig.expiry("a").at or 0)
            rig.done(writer, lambda: writer.ttl.persist("b"))
            assert rig.done(writer, lambda: writer.ttl.expires_at("b")) is None
            rig.wait(25.0)
            assert rig.alive() == ["a", "b"]
            rig.wait(40.0)
            assert rig.alive() == ["b"]
            rig.done(writer, lambda: writer.ttl.touch("b"))
            rig.wait(25.0)
            assert rig.alive() == []

    @pytest.mark.parametrize("method", ["touch", "persist", "expires_at"])
    def test_of_a_record_that_is_not_there(self, method: str) -> None:
        with Rig(ttl=20.0) as rig:
            writer = rig.node("writer")
            with pytest.raises(RecordNotFound, match="'things' has no record 'x'"):
                rig.done(writer, lambda: getattr(writer.ttl, method)("x"))
            assert rig.entries == []
            insert(writer, "x")
            rig.done(writer, lambda: writer.things.delete("x"))
            with pytest.raises(RecordNotFound):
                rig.done(writer, lambda: getattr(writer.ttl, method)("x"))

    def test_bad_input(self) -> None:
        with Rig(ttl=20.0) as rig:
            writer = rig.node("writer")
            for ttl, said in ((0, "ttl is 0"), ("5", "ttl is '5'"), (-1, "ttl is -1"), (1e12, "ttl is")):
                with pytest.raises(ConfigError, match=said):
                    rig.done(writer, lambda ttl=ttl: writer.ttl.touch("x", ttl=ttl))
            with pytest.raises(ConfigError, match="record id is ''"):
                rig.done(writer, lambda: writer.ttl.touch(""))
            with pytest.raises(ConfigError, match="limit is 0"):
                rig.done(writer, lambda: writer.ttl.failed(0))
            with pytest.raises(ConfigError, match="name is 'other'"):
                rig.done(writer, lambda: writer.ttl.cleanup_resource("other"))

    def test_by_a_field(self) -> None:
        with Rig(ttl=None, field="until") as rig:
            leader, writer = rig.node("leader"), rig.node("writer")
            leader.lead()
            insert(writer, "x", until=rig.now_ms // 1000 + 10)
            with pytest.raises(ConfigError, match=r"ttl is not given, and .* has none of its own"):
                rig.done(writer, lambda: writer.ttl.touch("x"))
            rig.done(writer, lambda: writer.ttl.touch("x", ttl=100))
            rig.wait(30.0)
            assert rig.lives("x")
            data = rig.envelope("x").data  # type: ignore[union-attr]
            assert isinstance(data["until"], int)
            rig.done(writer, lambda: writer.ttl.persist("x"))
            rig.wait(100.0)
            assert rig.lives("x")
            assert rig.entries == []

    def test_relative_to_a_field(self) -> None:
        with Rig(ttl=30.0, field="updated_at") as rig:
            leader, writer = rig.node("leader"), rig.node("writer")
            leader.lead()
            insert(writer, "x", updated_at=moment_of(rig.now_ms).isoformat())
            rig.wait(20.0)
            rig.done(writer, lambda: writer.things.patch("x", {"updated_at": moment_of(rig.now_ms).isoformat()}))
            rig.wait(20.0)
            assert rig.lives("x")
            rig.done(writer, lambda: writer.ttl.touch("x"))
            rig.wait(25.0)
            assert rig.lives("x")
            rig.wait(10.0)
            assert not rig.lives("x")

    def test_a_field_that_somebody_else_has_damaged(self) -> None:
        with Rig(ttl=None, field="until") as rig:
            writer = rig.node("writer")
            writer.things._guard = None
            insert(writer, "x", until="soon")
            with pytest.raises(DamagedRecord, match="until is 'soon', which is no time"):
                rig.done(writer, lambda: writer.ttl.expires_at("x"))


class TestCleanup:
    def test_from_any_process(self) -> None:
        with Rig(ttl=20.0, tick=600.0) as rig:
            leader, writer = rig.node("leader"), rig.node("writer")
            insert(writer, "x")
            insert(writer, "y")
            rig.wait(25.0)
            asked = writer.do(writer.ttl.run_cleanup)
            rig.wait(5.0)
            assert not asked
            leader.lead()
            rig.wait(2.0)
            (cleanup,) = asked
            assert (cleanup.counts.expired, cleanup.counts.deleted, cleanup.counts.read) == (2, 2, 2)
            assert rig.alive() == []
            insert(writer, "z")
            rig.wait(25.0)
            own = leader.do(leader.ttl.cleanup_resource)
            rig.wait(2.0)
            assert own[0].counts.expired == 1

    def test_if_nobody_leads(self) -> None:
        with Rig(ttl=20.0) as rig:
            writer = rig.node("writer")
            with pytest.raises(TimeoutError, match="no leader has cleaned up 'things' within 3 s"):
                rig.done(writer, lambda: writer.ttl.run_cleanup(timeout=3.0), within=10.0)

    def test_if_nobody_leads_and_the_log_is_too_slow_to_be_believed(self) -> None:
        with Rig(ttl=20.0) as rig:
            writer = rig.node("writer")
            writer.ttl._ledger = msgspec.structs.replace(writer.ttl._ledger, trim_delay=0.001)
            with pytest.raises(TimeoutError, match="no leader has cleaned up 'things' within 3 s"):
                rig.done(writer, lambda: writer.ttl.run_cleanup(timeout=3.0), within=10.0)

    @pytest.mark.parametrize("verb", ["list", "create", "get"])
    def test_if_the_store_does_not_answer(self, verb: str) -> None:
        with Rig(ttl=20.0) as rig:
            leader, writer = rig.node("leader"), rig.node("writer")
            silent = True

            async def silence(request: StoreRequest) -> None:
                while silent and request.verb == verb:
                    await writer.host.clock.sleep(1.0)

            writer.store.always(ANY, ANY, silence)
            known = "the request is written down" if verb == "get" else "the store has not confirmed the request"
            with pytest.raises(TimeoutError, match=f"no leader has cleaned up 'things' within 5 s: {known}"):
                rig.done(writer, lambda: writer.ttl.run_cleanup(timeout=5.0), within=5.5)
            silent = False
            leader.lead()
            rig.wait(10.0)
            cleanup = rig.done(writer, lambda: writer.ttl.run_cleanup(timeout=30.0), within=10.0)
            assert cleanup.counts.expired == 0
            stats = rig.done(writer, writer.ttl.stats)
            assert (stats.asked, stats.cleanups) == (0, 2)

    def test_if_the_answer_is_there_before_the_request_is_confirmed(self) -> None:
        with Rig(ttl=20.0) as rig:
            leader, writer = rig.node("leader"), rig.node("writer")
            leader.lead()
            rig.done(writer, writer.ttl.run_cleanup)
            sending = writer.ttl._sending()
            submit = sending.submit

            def late(*given: Any, **options: Any) -> asyncio.Future[Any]:
                async def confirmed() -> Any:
                    receipt = await submit(*given, **options)
                    await writer.host.clock.sleep(15.0)
                    return receipt

                return asyncio.ensure_future(confirmed())

            async def slowly(request: StoreRequest) -> None:
                if request.verb == "list":
                    await writer.host.clock.sleep(3.0)

            sending.submit = late  # type: ignore[method-assign, assignment]
            writer.store.always(ANY, ANY, slowly)
            assert rig.done(writer, lambda: writer.ttl.run_cleanup(timeout=40.0), within=41.0).counts.expired == 0

    def test_without_patience_it_is_asked_for_all_the_same(self) -> None:
        with Rig(ttl=20.0) as rig:
            leader, writer = rig.node("leader"), rig.node("writer")
            leader.lead()
            rig.wait(5.0)
            with pytest.raises(TimeoutError, match="within 0 s"):
                rig.done(writer, lambda: writer.ttl.run_cleanup(timeout=0))
            rig.wait(5.0)
            assert rig.done(writer, writer.ttl.stats).cleanups == 1

    def test_a_dry_run_changes_nothing(self) -> None:
        with Rig(ttl=20.0, on_expire="archive", archive="old") as rig:
            writer = rig.node("writer")
            for number in range(3):
                insert(writer, f"r{number}")
            rig.done(writer, lambda: writer.things.insert_many([{}] * 5, [f"g{n}" for n in range(5)]))
            rig.done(writer, lambda: writer.things.delete("r2"))
            rig.wait(22.0)
            insert(writer, "later")
            before = {key: rig.bucket.body(key) for key in rig.bucket.keys("") if not key.startswith("tenure")}
            cleanup = rig.done(writer, lambda: writer.ttl.run_cleanup(dry_run=True))
            assert cleanup.dry_run
            assert cleanup.counts.expired == 7
            after = {key: rig.bucket.body(key) for key in rig.bucket.keys("") if not key.startswith("tenure")}
            assert after == before

    def test_stats_go_on_after_a_failover(self) -> None:
        with Rig(ttl=5.0) as rig:
            writer = rig.node("writer")
            for epoch in range(1, 4):
                leader = rig.node(f"leader{epoch}")
                leader.lead(epoch)
                insert(writer, f"r{epoch}")
                rig.wait(15.0)
                leader.host.crash()
            stats = rig.done(writer, writer.ttl.stats)
            assert (stats.totals.expired, stats.cleanups, stats.epoch) == (3, 3, 3)


class TestReindex:
    def test_what_was_written_before_gets_an_entry(self) -> None:
        with Rig(ttl=30.0) as rig:
            leader, writer = rig.node("leader"), rig.node("writer")
            guard, writer.things._guard = writer.things._guard, None
            for number in range(40):
                writer.do(lambda number=number: writer.things.insert({}, f"old{number}"))
            rig.wait(2.0)
            writer.things._guard = guard
            insert(writer, "new")
            insert(writer, "kept")
            rig.done(writer, lambda: writer.ttl.persist("kept"))
            before = rig.expiry("new")
            done = rig.done(writer, writer.ttl.reindex, within=10.0)
            assert (done.records, done.indexed, done.damaged) == (42, 40, 0)
            assert rig.expiry("new") == before
            assert rig.expiry("kept") == Expiry(keep=True)
            for number in range(40):
                expiry = rig.expiry(f"old{number}")
                assert slot_in(expiry.entry) is not None
                assert 0 <= (expiry.at or 0) - (rig.now_ms - rig.world.now * 1000 + 30_000) <= 5000
            assert rig.done(writer, writer.ttl.reindex, within=10.0).indexed == 0
            leader.lead()
            rig.wait(45.0)
            assert rig.alive() == ["kept"]

    def test_by_a_field_and_around_damage(self) -> None:
        with Rig(ttl=None, field="until") as rig:
            leader, writer = rig.node("leader"), rig.node("writer")
            soon = rig.now_ms // 1000 + 60
            insert(writer, "right", until=soon)
            guard, writer.things._guard = writer.things._guard, None
            insert(writer, "unindexed", until=soon)
            insert(writer, "never")
            insert(writer, "bad", until="soon")
            rig.bucket.corrupt(key_of(NAME, "broken"), b"not a record")
            rig.done(writer, lambda: writer.things.patch("right", {"until": soon - 20}))
            writer.things._guard = guard
            done = rig.done(writer, writer.ttl.reindex)
            assert (done.records, done.indexed, done.damaged) == (5, 2, 2)
            assert rig.expiry("right").at == (soon - 20) * 1000
            leader.lead()
            rig.wait(70.0)
            assert [id for id in rig.ids() if id != "broken" and rig.lives(id)] == ["bad", "never"]

    def test_lost_entries_are_written_anew(self) -> None:
        with Rig(ttl=30.0) as rig:
            leader, writer = rig.node("leader"), rig.node("writer")
            insert(writer, "x")
            rig.bucket.wipe("plugin=ttl/")
            assert rig.done(writer, writer.ttl.reindex).indexed == 0
            assert rig.done(writer, lambda: writer.ttl.reindex(all=True)).indexed == 1
            leader.lead()
            rig.wait(40.0)
            assert rig.alive() == []

    def test_the_store_fails_in_the_middle(self) -> None:
        with Rig(ttl=30.0) as rig:
            writer = rig.node("writer")
            writer.things._guard = None
            insert(writer, "x")
            rig.network.cut("writer")
            with pytest.raises(StoreError):
                rig.done(writer, writer.ttl.reindex, within=10.0)


class TestArchiveThatExpires:
    def test_two_resources_of_one_process(self) -> None:
        with Rig(ttl=10.0, on_expire="archive", archive="old") as rig:
            leader, writer = rig.node("leader"), rig.node("writer")
            purge = TTLPlugin("old", field="expired_at", ttl=30.0, tick=2.0, takes_part=False)
            purge.attach(leader.home, "old")  # type: ignore[arg-type]
            rig.done(leader, purge.start)
            leader.lead()

            async def purging() -> None:
                await purge.new_leading(ScriptedLease(1)).run()  # type: ignore[arg-type]

            leader.host.start(purging())
            insert(writer, "x", a=1)
            rig.wait(15.0)
            assert len(rig.alive("old")) == 1
            rig.wait(35.0)
            assert rig.alive("old") == []


STAMP = Stamp(1, 1, 0)
SITUATION = Situation(STAMP, None, 0)


class TestLedger:
    def test_the_state_is_the_same_after_a_snapshot(self) -> None:
        machine = TTLMachine()
        work = Work(
            asked={"q": "ada"}, begun=["a", "b"], counts=Counts(expired=3, deleted=3), cleanup=Cleanup(5, Counts())
        )
        machine.apply(msgspec.json.encode(work), STAMP)
        machine.apply(msgspec.json.encode(Work(begun=["a"], settled=["b"])), STAMP)
        other = TTLMachine()
        other.restore(machine.snapshot())
        assert other.snapshot() == machine.snapshot()
        assert dict(other.trials) == {"a": 2}
        assert dict(other.asked) == {"q": "ada"}

    def test_everything_is_bounded(self) -> None:
        machine = TTLMachine()
        machine.enact(Work(begun=[str(n) for n in range(MAX_TRIALS + 5)]))
        assert len(machine.trials) == MAX_TRIALS
        for number in range(MAX_CLEANUPS + 5):
            machine.enact(Work(cleanup=Cleanup(number, Counts())))
        assert [cleanup.at_ms for cleanup in machine.cleanups] == list(range(5, MAX_CLEANUPS + 5))
        machine.enact(Work(asked={str(n): "" for n in range(5000)}))
        assert len(machine.asked) == 1000

    def test_what_lies_in_the_inbox_is_not_trusted(self) -> None:
        clerk, name = TTLClerk(), InboxName(0, "u", 1)
        for body in (b"", b"[]", b"\xff", b'{"schema":0,"after":0}', b'{"schema":1}'):
            with pytest.raises(Poison):
                clerk.read(name, body)
        with pytest.raises(TooNewLetter, match="update it"):
            clerk.read(name, b'{"schema":2}')
        place, letter = clerk.read(name, msgspec.json.encode(Letter(1, 0, requests=[Request("shred", "r1")])))
        assert place == Place(0, [], [])
        item = Item(name, 0, b"", (), letter)
        assert clerk.decide([item], SITUATION) is None
        wanted = Letter(1, 0, requests=[Request(CLEANUP, "r2", "ada")])
        assert clerk.decide([Item(name, 0, b"", (), wanted)], SITUATION) is not None
        assert dict(clerk.machine.asked) == {"r2": "ada"}
