"""The log: adding to it with every outcome (L-2), catching up (L-3), reading along (L-4), snapshots and trim (L-5)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.election.records import Damage, TooNew, encode
from tenure.errors import LeadershipLost, LedgerDamaged, LedgerHalted, NotFound, SchemaTooNew, StoreUnavailable
from tenure.ledger import LedgerConfig, LedgerState, LogEntry, Resync, Tail
from tenure.ledger.catchup import catch_up
from tenure.ledger.inbox import InboxSweep
from tenure.ledger.layout import InboxName, log_key, parse_inbox_key, parse_number, snapshot_key
from tenure.ledger.log import Superseded, append, first_after, log_end, read_entry
from tenure.ledger.records import Chunk, Kind, Manifest, checksum, decode_entry, decode_manifest
from tenure.ledger.snapshots import Archivist, Found, Sights, picture_of, read_snapshot, restore_newest
from tenure.plugins.ledgered.looking import look_up
from tests.support.clock import ScriptedClock
from tests.support.lease import ScriptedLease
from tests.support.store import ANY, Request, ScriptedStore
from tests.unit.ledgers import QUICK, Ledger, Notes


def an_entry(seq: int, *texts: str, epoch: int = 1, write_id: str = "w", **fields: object) -> LogEntry:
    events = {"events": msgspec.Raw(msgspec.json.encode(list(texts)))} if texts else {}
    return LogEntry(write_id=write_id, seq=seq, epoch=epoch, time_ms=seq, **events, **fields)  # type: ignore[arg-type]


class Log:
    """A log by hand."""

    def __init__(self) -> None:
        self.time = ScriptedClock()
        self.store = ScriptedStore(clock=self.time)
        self.lease = ScriptedLease(1)
        self._ids = iter(f"id{number}" for number in range(10_000))

    def draw_id(self) -> str:
        return next(self._ids)

    async def add(self, *entries: LogEntry) -> None:
        for entry in entries:
            await self.store.inner.put(log_key(entry.seq), msgspec.json.encode(entry))

    async def fill(self, count: int, first: int = 1, epoch: int = 1) -> None:
        await self.add(*(an_entry(seq, f"t{seq}", epoch=epoch) for seq in range(first, first + count)))

    async def append(self, seq: int, text: str = "new", epoch: int = 1) -> LogEntry:
        self.lease.epoch = epoch

        def compose(write_id: str) -> LogEntry:
            return an_entry(seq, text, epoch=epoch, write_id=write_id)

        return await append(self.store, self.lease, seq, compose, clock=self.time, draw_id=self.draw_id)

    async def state(self) -> LedgerState:
        state = LedgerState(Notes())
        await catch_up(self.store, state, self.lease, clock=self.time)
        return state

    def archivist(self, config: LedgerConfig = QUICK, sights: Sights | None = None) -> Archivist:
        return Archivist(self.store, config=config, clock=self.time, draw_id=self.draw_id, sights=sights)

    async def snapshot(self, archivist: Archivist, seq: int) -> None:
        """Of the log up to `seq`, by reading it."""
        state = LedgerState(Notes())
        for number in range(1, seq + 1):
            entry = await read_entry(self.store, number)
            if entry is None:
                await restore_newest(self.store, state, 1)
                continue
            if number == state.seq + 1:
                state.apply(entry)
        assert state.seq == seq
        await archivist.write(picture_of(state))

    async def remove(self, *keys: str) -> None:
        await self.store.inner.delete(*keys)


@pytest.fixture
def log() -> Log:
    return Log()


def texts(state: LedgerState) -> list[str]:
    assert isinstance(state.machine, Notes)
    return state.machine.texts


class TestAppend:
    async def test_applied(self, log: Log) -> None:
        entry = await log.append(1)
        assert await read_entry(log.store, 1) == entry

    @pytest.mark.parametrize("fates", [["kept"], ["lost"], ["lost", "lost", "kept"], ["lost"] * 9, ["kept"] * 9])
    async def test_without_an_answer(self, log: Log, fates: list[str]) -> None:
        log.store.on("create", log_key(1), *fates)
        entry = await log.append(1)
        assert await read_entry(log.store, 1) == entry, "what it gives is what lies there"

    async def test_an_earlier_copy_lands_late(self, log: Log) -> None:
        """Between the second copy and its read-back: what is given is what lies there."""
        log.store.on("create", log_key(1), "late", "lost")

        async def land(request: Request) -> None:
            if log.store.count("create") == 2:
                await log.store.land()

        log.store.always("get", ANY, land)
        entry = await log.append(1)
        assert await read_entry(log.store, 1) == entry
        assert entry.write_id == "id0"

    async def test_a_copy_that_lands_afterwards_changes_nothing(self, log: Log) -> None:
        log.store.on("create", log_key(1), "late")
        entry = await log.append(1)
        await log.store.land()
        assert await read_entry(log.store, 1) == entry

    async def test_the_store_cannot_be_read_for_a_while(self, log: Log) -> None:
        log.store.on("create", log_key(1), "kept")
        failures = [StoreUnavailable("no") for _ in range(10)]

        async def fail(request: Request) -> None:
            if failures:
                raise failures.pop()

        log.store.always("get", ANY, fail)
        entry = await log.append(1)
        assert await read_entry(log.store, 1) == entry

    async def test_the_lease_ends_before_an_answer(self, log: Log) -> None:
        log.store.on("create", log_key(1), *(["lost"] * 1000))

        def lapse() -> None:
            if len(log.time.slept) > 3:
                log.lease.valid = False

        log.time.on_sleep = lapse
        with pytest.raises(LeadershipLost):
            await log.append(1)

    async def test_the_lease_ended_before_the_answer_came(self, log: Log) -> None:
        async def lapse(request: Request) -> None:
            log.lease.valid = False

        log.store.always("create", ANY, lapse)
        with pytest.raises(LeadershipLost):
            await log.append(1)
        assert await read_entry(log.store, 1) is not None, "it happened, and was not acknowledged"

    async def test_nothing_is_sent_without_a_lease(self, log: Log) -> None:
        log.lease.valid = False
        with pytest.raises(LeadershipLost):
            await log.append(1)
        assert log.store.count("create") == 0

    async def test_a_lower_epoch_is_there(self, log: Log) -> None:
        theirs = an_entry(1, "theirs", epoch=1)
        await log.add(theirs)
        assert await log.append(1, epoch=2) == theirs

    async def test_a_higher_epoch_is_there(self, log: Log) -> None:
        await log.add(an_entry(1, epoch=3))
        with pytest.raises(Superseded):
            await log.append(1, epoch=2)

    async def test_this_epoch_is_there_and_not_ours(self, log: Log) -> None:
        await log.add(an_entry(1, epoch=2))
        with pytest.raises(LedgerDamaged):
            await log.append(1, epoch=2)

    @pytest.mark.parametrize("body", [b"", b"rubbish", b"[]", b"\xff\xfe", b'{"tenure":"log"}', b"[" * 100_000])
    async def test_rubbish_is_there(self, log: Log, body: bytes) -> None:
        await log.store.inner.put(log_key(1), body)
        with pytest.raises(LedgerDamaged, match="put it back from a backup"):
            await log.append(1)

    async def test_a_newer_schema_is_there(self, log: Log) -> None:
        await log.add(an_entry(1, schema_version=99))
        with pytest.raises(SchemaTooNew, match="schemaVersion 99"):
            await log.append(1, epoch=2)


class TestRecords:
    @given(st.binary(max_size=200))
    def test_any_bytes(self, body: bytes) -> None:
        assert isinstance(decode_entry(body, 1), Damage | TooNew | LogEntry)
        assert isinstance(decode_manifest(body, 1), Damage | TooNew | Manifest)

    @given(
        st.fixed_dictionaries(
            {"tenure": st.sampled_from(["log", "snapshot", "other", 3])},
            optional={
                name: st.one_of(st.none(), st.integers(), st.text(max_size=3), st.lists(st.integers(), max_size=3))
                for name in ("seq", "epoch", "timeMs", "writeId", "kind", "folded", "horizon", "chunks", "machine")
            },
        )
    )
    def test_any_fields(self, fields: dict[str, object]) -> None:
        body = msgspec.json.encode(fields)
        assert isinstance(decode_entry(body, 1), Damage | TooNew | LogEntry)
        assert isinstance(decode_manifest(body, 1), Damage | TooNew | Manifest)

    @pytest.mark.parametrize(
        "changes", [{"seq": 2}, {"seq": 0}, {"epoch": 0}, {"timeMs": -1}, {"kind": "party"}, {"horizon": -1}]
    )
    def test_one_wrong_field(self, changes: dict[str, object]) -> None:
        sound = msgspec.json.decode(msgspec.json.encode(an_entry(1, "a")))
        assert isinstance(decode_entry(msgspec.json.encode(sound), 1), LogEntry)
        assert isinstance(decode_entry(msgspec.json.encode(sound | changes), 1), Damage)

    @given(
        st.dictionaries(st.text("ab-", min_size=1, max_size=4), st.lists(st.integers(1, 99), max_size=3), max_size=3),
        st.integers(0, 9),
        st.lists(st.text(max_size=5), max_size=3),
    )
    def test_there_and_back(self, folded: dict[str, list[int]], horizon: int, lines: list[str]) -> None:
        entry = an_entry(7, *lines, folded=folded, horizon=horizon, forgotten=("x",), kind=Kind.TERM)
        assert decode_entry(msgspec.json.encode(entry), 7) == entry

    @pytest.mark.parametrize(
        ("key", "wanted"),
        [
            ("inbox/00000000000000000005-a-b-1-0000000012", InboxName(5, "a-b-1", 12)),
            ("inbox/00000000000000000005-a-0000000000", None),
            ("inbox/5-a-0000000001", None),
            ("inbox/00000000000000000005-a-000000001", None),
            ("inbox/00000000000000000005--0000000001", None),
            (f"inbox/00000000000000000005-{'a' * 65}-0000000001", None),
            ("inbox/README", None),
            ("log/00000000000000000005-a-0000000001", None),
        ],
    )
    def test_names(self, key: str, wanted: InboxName | None) -> None:
        assert parse_inbox_key(key) == wanted
        assert wanted is None or wanted.key == key

    def test_numbers(self) -> None:
        assert parse_number(log_key(12)) == parse_number(snapshot_key(12)) == 12
        assert parse_number("log/12") is None
        assert parse_number(log_key(12) + "0") is None


class TestMachine:
    def test_entries_come_one_after_the_other(self) -> None:
        state = LedgerState(Notes())
        state.apply(an_entry(1, "a"))
        for wrong in (1, 3):
            with pytest.raises(LedgerHalted, match=f"entry {wrong} cannot follow entry 1"):
                state.apply(an_entry(wrong, "b"))

    def test_an_entry_below_the_highest_epoch_is_void(self) -> None:
        state = LedgerState(Notes())
        state.apply(an_entry(1, "a", epoch=2))
        assert not state.apply(an_entry(2, "b", epoch=1, folded={"p": [1]}, forgotten=("x",), horizon=9))
        assert (state.seq, state.voids, state.producers.known, state.producers.horizon) == (2, 1, {}, 0)
        assert state.apply(an_entry(3, "c", epoch=2))
        assert texts(state) == ["a", "c"]

    def test_a_machine_that_raises_halts(self) -> None:
        state = LedgerState(Notes())
        with pytest.raises(LedgerHalted, match="entry 1 could not be applied"):
            state.apply(an_entry(1, "unheard of"))
        assert state.seq == 0

    def test_newer_entries_halt_older_code(self) -> None:
        state = LedgerState(Notes(1))
        with pytest.raises(LedgerHalted, match="update it"):
            state.apply(an_entry(1, machine=2))

    def test_a_term_is_told_each_time_that_it_is_begun(self) -> None:
        machine = Notes()
        state = LedgerState(machine)
        for seq, epoch in enumerate([1, 1, 3, 3, 4], 1):
            state.apply(an_entry(seq, epoch=epoch, kind=Kind.TERM))
        assert machine.terms == [1, 1, 3, 3, 4]

    def test_a_snapshot_is_the_same_state(self) -> None:
        state = LedgerState(Notes())
        state.apply(an_entry(1, "a", folded={"p": [1, 3]}, skipped={"q": [2]}))
        state.apply(an_entry(2, "b", epoch=4, resumed={"r": 9}, folded={"r": [10]}, forgotten=("q",), horizon=1))
        copy = LedgerState(Notes())
        assert copy.restore(state.snapshot()) is None
        assert copy.snapshot() == state.snapshot()
        following = an_entry(3, "c", epoch=4, folded={"p": [2]})
        state.apply(following)
        copy.apply(following)
        assert copy.snapshot() == state.snapshot()

    @pytest.mark.parametrize("chunks", [[], [b""], [b"rubbish"], [b"{}"], [b"\xff"]])
    def test_a_snapshot_that_is_none(self, chunks: list[bytes]) -> None:
        state = LedgerState(Notes())
        assert isinstance(state.restore(chunks), Damage)
        assert state.seq == 0


class TestCatchUp:
    async def test_an_empty_ledger(self, log: Log) -> None:
        state = await log.state()
        assert state.seq == 0

    async def test_a_log_alone(self, log: Log) -> None:
        await log.fill(40)
        assert texts(await log.state()) == [f"t{seq}" for seq in range(1, 41)]

    async def test_from_the_newest_snapshot(self, log: Log) -> None:
        await log.fill(20)
        await log.snapshot(log.archivist(), 15)
        await log.remove(*(log_key(seq) for seq in range(1, 16)))
        state = await log.state()
        assert (state.seq, state.restored) == (20, 15)
        assert texts(state) == [f"t{seq}" for seq in range(1, 21)]

    async def test_a_snapshot_without_anything_after_it(self, log: Log) -> None:
        await log.fill(5)
        await log.snapshot(log.archivist(), 5)
        await log.remove(*(log_key(seq) for seq in range(1, 6)))
        assert (await log.state()).seq == 5

    async def test_one_404_is_not_the_end(self, log: Log) -> None:
        """While it reads, everything that it has yet to read is condensed, and trimmed."""
        await log.fill(30)
        trimmed = False

        async def trim(request: Request) -> None:
            nonlocal trimmed
            if request.key == log_key(3) and not trimmed:
                trimmed = True
                await log.snapshot(log.archivist(), 30)
                await log.remove(*(log_key(seq) for seq in range(1, 31)))
                await log.fill(2, first=31)

        reader = log.store.beside()
        reader.always("get", ANY, trim)
        state = LedgerState(Notes())
        await catch_up(reader, state, log.lease)
        assert trimmed
        assert texts(state) == [f"t{seq}" for seq in range(1, 33)]

    async def test_an_entry_that_lands_after_the_404_is_not_missed(self, log: Log) -> None:
        await log.fill(3)
        landed = False

        async def land(request: Request) -> None:
            nonlocal landed
            if request.key == "log/" and not landed:
                landed = True
                await log.fill(1, first=4)

        log.store.always("list", ANY, land)
        assert (await log.state()).seq == 4

    async def test_an_entry_that_is_listed_and_cannot_be_read_is_asked_for_now_and_then(self, log: Log) -> None:
        """WA-8: it costs a few requests, and is told for what it is."""
        await log.fill(5)
        log.store.always("get", log_key(3), NotFound(log_key(3)))
        began = log.time.true_seconds
        with pytest.raises(LedgerDamaged, match=r"log/0+3 is listed, and cannot be read \(7 times in 3.1 s"):
            await log.state()
        assert log.time.true_seconds - began == pytest.approx(3.1)
        assert log.store.count("get", log_key(3)) == 7
        assert log.store.count() < 40

    @pytest.mark.parametrize("lies", [1, 2, 6])
    async def test_an_entry_that_could_not_be_read_for_a_while_is_read(self, log: Log, lies: int) -> None:
        await log.fill(40)
        log.store.on("get", log_key(3), *[NotFound(log_key(3))] * lies)
        log.store.on("get", log_key(30), *[NotFound(log_key(30))] * lies)
        began = log.time.true_seconds
        assert texts(await log.state()) == [f"t{seq}" for seq in range(1, 41)]
        log.store.assert_script_was_met()
        assert (lies == 1) == (log.time.true_seconds == began), "the first time it may have landed meanwhile"

    @pytest.mark.parametrize("missing", [1, 2, 5])
    async def test_a_gap_is_damage(self, log: Log, missing: int) -> None:
        await log.fill(6)
        await log.remove(log_key(missing))
        with pytest.raises(LedgerDamaged, match=f"entry {missing} of the log is missing"):
            await log.state()

    async def test_a_gap_that_a_trim_made_while_it_was_looked_for_is_none(self, log: Log) -> None:
        """The reader stood still between the two listings."""
        await log.fill(30)
        reader = log.store.beside()
        trimmed = False

        async def trim(request: Request) -> None:
            nonlocal trimmed
            if request.key == "log/" and not trimmed:
                trimmed = True
                await log.fill(10, first=31)
                await log.snapshot(log.archivist(), 35)
                await log.remove(*(log_key(seq) for seq in range(1, 35)))

        reader.always("list", ANY, trim)
        state = LedgerState(Notes())
        await catch_up(reader, state, log.lease)
        assert trimmed
        assert texts(state) == [f"t{seq}" for seq in range(1, 41)]

    @pytest.mark.parametrize("harm", ["manifest", "chunk", "no chunk", "no manifest"])
    async def test_the_second_newest_snapshot_takes_the_place_of_a_damaged_one(self, log: Log, harm: str) -> None:
        await log.fill(20)
        archivist = log.archivist()
        await log.snapshot(archivist, 10)
        await log.snapshot(archivist, 15)
        await log.remove(*(log_key(seq) for seq in range(1, 10)))
        chunk = next(key for key in await log.store.keys("chunks/") if int(key[7:27]) == 15)
        if harm == "manifest":
            await log.store.inner.put(snapshot_key(15), b"rubbish")
        elif harm == "no manifest":
            await log.remove(snapshot_key(15))
        elif harm == "chunk":
            await log.store.inner.put(chunk, b"rubbish")
        else:
            await log.remove(chunk)
        state = await log.state()
        assert state.restored == 10
        assert texts(state) == [f"t{seq}" for seq in range(1, 21)]

    @pytest.mark.parametrize("harm", ["repeated", "elsewhere", "above", "of another", "size"])
    async def test_a_manifest_names_each_of_its_own_chunks_once(self, log: Log, harm: str) -> None:
        """Whoever can write one would have every reader fetch and hold one object ten thousand times, or another's."""
        await log.fill(20)
        archivist = log.archivist()
        await log.snapshot(archivist, 10)
        await log.snapshot(archivist, 15)
        found = await read_snapshot(log.store, 15)
        older = await read_snapshot(log.store, 10)
        assert isinstance(found, Found)
        assert isinstance(older, Found)
        chunks, body = found.manifest.chunks, found.chunks[0]
        await log.store.inner.put("other/big", body)
        forged = {
            "repeated": (*chunks, chunks[0]),
            "elsewhere": (Chunk("other/big", len(body), checksum(body)), *chunks[1:]),
            "above": (Chunk("ledger.json", len(body), checksum(body)), *chunks[1:]),
            "of another": (older.manifest.chunks[0], *chunks[1:]),
            "size": (msgspec.structs.replace(chunks[0], size=1), *chunks[1:]),
        }[harm]
        manifest = msgspec.structs.replace(found.manifest, chunks=forged)
        await log.store.inner.put(snapshot_key(15), encode(manifest))
        gets: list[str] = []

        async def note(request: Request) -> None:
            gets.append(request.key)

        reader = log.store.beside()
        reader.always("get", ANY, note)
        assert isinstance(await read_snapshot(reader, 15), str)
        assert harm == "size" or gets == [snapshot_key(15)]

    async def test_snapshots_that_were_trimmed_while_they_were_read_are_looked_for_again(self, log: Log) -> None:
        """The reader stood still after the listing: all that it saw is gone, and newer ones are there."""
        await log.fill(40)
        archivist = log.archivist()
        await log.snapshot(archivist, 10)
        await log.snapshot(archivist, 15)
        reader = log.store.beside()
        trimmed = False

        async def trim(request: Request) -> None:
            nonlocal trimmed
            if request.key.startswith("snapshots/") and not trimmed:
                trimmed = True
                await log.snapshot(archivist, 30)
                await log.snapshot(archivist, 35)
                log.time.advance(QUICK.trim_delay + 1)
                await archivist.trim()
                assert [parse_number(key) for key in await log.store.keys("snapshots/")] == [30, 35]

        reader.always("get", ANY, trim)
        state = LedgerState(Notes())
        await catch_up(reader, state, log.lease)
        assert trimmed
        assert state.restored == 35
        assert texts(state) == [f"t{seq}" for seq in range(1, 41)]

    async def test_without_a_sound_snapshot_nothing_is_decided(self, log: Log) -> None:
        await log.fill(20)
        await log.snapshot(log.archivist(), 10)
        await log.remove(*(log_key(seq) for seq in range(1, 10)), *await log.store.keys("chunks/"))
        with pytest.raises(LedgerDamaged, match="no snapshot can be used"):
            await log.state()

    @pytest.mark.parametrize("harm", ["manifest", "chunk", "no chunk", "of another entry"])
    @pytest.mark.parametrize("onlooker", [False, True])
    async def test_without_a_sound_snapshot_the_whole_log_is_read(
        self, log: Log, harm: str, onlooker: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """WA-9."""
        await log.fill(20)
        archivist = log.archivist()
        if harm == "of another entry":
            state = LedgerState(Notes())
            for seq in range(1, 4):
                state.apply(an_entry(seq, "forged"))
            await archivist.write(msgspec.structs.replace(picture_of(state), seq=10))
        else:
            await log.snapshot(archivist, 10)
            chunk, *_ = await log.store.keys("chunks/")
            if harm == "no chunk":
                await log.remove(chunk)
            else:
                await log.store.inner.put(snapshot_key(10) if harm == "manifest" else chunk, b"rubbish")
        state = LedgerState(Notes())
        if onlooker:
            await look_up(log.store, state)
        else:
            await catch_up(log.store, state, log.lease, clock=log.time)
        assert (state.seq, state.restored) == (20, 0)
        assert texts(state) == [f"t{seq}" for seq in range(1, 21)]
        assert "the snapshot of entry 10 cannot be used" in caplog.text

    @pytest.mark.parametrize("missing", [1, 5, 20])
    async def test_a_log_that_is_not_whole_takes_no_snapshots_place(self, log: Log, missing: int) -> None:
        """Nothing is decided on less than what was decided before."""
        await log.fill(20)
        await log.snapshot(log.archivist(), 20)
        await log.remove(log_key(missing), *await log.store.keys("chunks/"))
        with pytest.raises(
            LedgerDamaged, match=f"entry {missing} of the log is not there, and no snapshot can be used"
        ):
            await log.state()

    async def test_a_snapshot_of_newer_code_halts(self, log: Log) -> None:
        await log.fill(5)
        state = LedgerState(Notes(2))
        await catch_up(log.store, state, log.lease)
        await log.archivist().write(picture_of(state))
        with pytest.raises(LedgerHalted, match="version 2"):
            await log.state()

    async def test_a_damaged_entry_is_told(self, log: Log) -> None:
        await log.fill(5)
        await log.store.inner.put(log_key(3), b"rubbish")
        with pytest.raises(LedgerDamaged, match="is damaged"):
            await log.state()

    async def test_nothing_goes_on_without_a_lease(self, log: Log) -> None:
        await log.fill(5)

        async def lapse(request: Request) -> None:
            log.lease.valid = False

        log.store.always("get", ANY, lapse)
        with pytest.raises(LeadershipLost):
            await log.state()

    async def test_where_the_log_ends(self, log: Log) -> None:
        assert await log_end(log.store) == 0
        await log.fill(5)
        assert (await log_end(log.store), await first_after(log.store, 3)) == (5, 4)
        await log.snapshot(log.archivist(), 5)
        await log.remove(*(log_key(seq) for seq in range(1, 6)))
        assert (await log_end(log.store), await first_after(log.store, 5)) == (5, None)
        await log.store.inner.put("log/README", b"")
        assert await log_end(log.store) == 5


class TestSnapshots:
    async def test_nothing_is_superfluous_before_two_are_sound_and_one_is_old(self, log: Log) -> None:
        await log.fill(20)
        archivist = log.archivist()
        assert archivist.bound() is None
        await log.snapshot(archivist, 5)
        log.time.advance(100)
        assert archivist.bound() is None
        await log.snapshot(archivist, 10)
        assert archivist.bound() is None
        log.time.advance(QUICK.trim_delay - 0.01)
        assert archivist.bound() is None
        log.time.advance(0.02)
        assert archivist.bound() == 5

    async def test_trim_leaves_what_two_snapshots_need(self, log: Log) -> None:
        await log.fill(20)
        archivist = log.archivist()
        for seq in (5, 10, 15):
            await log.snapshot(archivist, seq)
        log.time.advance(QUICK.trim_delay + 1)
        assert await archivist.trim() == 9 + 1 + 2
        assert [parse_number(key) for key in await log.store.keys("log/")] == list(range(10, 21))
        assert [parse_number(key) for key in await log.store.keys("snapshots/")] == [10, 15]
        assert {int(key[7:27]) for key in await log.store.keys("chunks/")} == {10, 15}
        assert await archivist.trim() == 0
        await log.store.inner.put(snapshot_key(15), b"rubbish")
        assert texts(await log.state()) == [f"t{seq}" for seq in range(1, 21)]

    async def test_some_at_a_time(self, log: Log) -> None:
        await log.fill(20)
        archivist = log.archivist(msgspec.structs.replace(QUICK, trims_per_tick=4))
        await log.snapshot(archivist, 10)
        await log.snapshot(archivist, 15)
        log.time.advance(QUICK.trim_delay + 1)
        removed = [await archivist.trim() for _ in range(4)]
        assert removed == [4, 4, 1, 0]

    async def test_one_that_cannot_be_read_back_does_not_count(self, log: Log) -> None:
        await log.fill(10)
        archivist = log.archivist()

        async def lose(request: Request) -> None:
            if request.key.startswith("snapshots/"):
                await log.store.inner.delete(*await log.store.keys("chunks/"))

        log.store.always("create", ANY, lose)
        await log.snapshot(archivist, 5)
        assert archivist.verified == []

    @pytest.mark.parametrize("fate", ["kept", "lost", "late"])
    async def test_a_manifest_without_an_answer_counts_if_it_is_there(self, log: Log, fate: str) -> None:
        await log.fill(10)
        log.store.on("create", snapshot_key(5), fate)
        archivist = log.archivist()
        await log.snapshot(archivist, 5)
        assert [seq for seq, _ in archivist.verified] == ([5] if fate == "kept" else [])
        await log.store.land()
        assert (await log.state()).seq == 10

    async def test_foreign_objects_neither_stop_the_trim_nor_are_removed(self, log: Log) -> None:
        await log.fill(20)
        foreign = ["log/-note", "log/5", "log/README", f"{log_key(3)}.bak", "snapshots/-x", "chunks/1"]
        for key in foreign:
            await log.store.inner.put(key, b"")
        archivist = log.archivist()
        await log.snapshot(archivist, 10)
        await log.snapshot(archivist, 15)
        log.time.advance(QUICK.trim_delay + 1)
        await archivist.trim()
        keys = await log.store.keys()
        assert all(key in keys for key in foreign)
        assert log_key(1) not in keys
        assert (await log.state()).seq == 20

    async def test_a_ghost_below_the_trim_is_removed_by_a_later_one_and_read_by_nobody(self, log: Log) -> None:
        await log.fill(20)
        archivist = log.archivist()
        await log.snapshot(archivist, 10)
        await log.snapshot(archivist, 15)
        log.time.advance(QUICK.trim_delay + 1)
        await archivist.trim()
        await log.add(an_entry(4, "ghost"))
        assert texts(await log.state()) == [f"t{seq}" for seq in range(1, 21)]
        await log.snapshot(archivist, 20)
        log.time.advance(QUICK.trim_delay + 1)
        await archivist.trim()
        assert log_key(4) not in await log.store.keys("log/")

    async def test_what_is_remembered_is_bounded(self, log: Log) -> None:
        archivist = log.archivist()
        for seq in range(1, 200):
            archivist.found_sound(seq)
            log.time.advance(QUICK.trim_delay / 2)
        assert len(archivist.verified) <= 5
        assert archivist.bound() is not None
        archivist.found_sound(3)
        assert archivist.verified[-1][0] == 199

    async def test_what_a_process_saw_before_its_term_counts_by_its_own_clock(self, log: Log) -> None:
        """Terms shorter than `trim_delay`: each leader alone never had a snapshot that was old enough."""
        await log.fill(40)
        sights, delay = Sights(), QUICK.trim_delay
        for term, seq in enumerate((5, 10, 15, 20)):
            leader = log.archivist()
            if term:
                leader.found_sound(5 * term)
            await log.snapshot(leader, seq)
            sights.saw(seq, log.time.read(), delay)  # by a process that does not lead
            log.time.advance(0.45 * delay)
            assert (leader.bound(), leader.to_recall()) == (None, None)
        archivist = log.archivist(sights=sights)
        archivist.found_sound(20)
        assert archivist.bound() is None
        assert archivist.to_recall() == 10, "15 was seen 0.9 of the delay ago"
        await archivist.recall()
        assert (archivist.bound(), archivist.to_recall()) == (5, None)
        await archivist.trim()
        assert [parse_number(key) for key in await log.store.keys("log/")] == list(range(5, 41))
        assert texts(await log.state()) == [f"t{seq}" for seq in range(1, 41)]

    async def test_a_process_that_saw_nothing_before_its_term_waits(self, log: Log) -> None:
        await log.fill(20)
        for seq in (5, 10, 15):
            await log.snapshot(log.archivist(), seq)
        log.time.advance(10 * QUICK.trim_delay)
        archivist = log.archivist(sights=Sights())
        archivist.found_sound(15)
        assert (archivist.bound(), archivist.to_recall()) == (None, None)

    @pytest.mark.parametrize("key", ["chunks/", "snapshots/"])
    @pytest.mark.parametrize("spoilt", [5, 10])
    async def test_what_was_seen_and_is_not_sound_now_does_not_count(self, log: Log, key: str, spoilt: int) -> None:
        await log.fill(20)
        sights = Sights()
        for seq in (5, 10, 15):
            await log.snapshot(log.archivist(sights=sights), seq)
            log.time.advance(0.6 * QUICK.trim_delay)
        await log.remove(*(each for each in await log.store.keys(key) if f"{spoilt:020d}" in each))
        archivist = log.archivist(sights=sights)
        archivist.found_sound(15)
        assert archivist.to_recall() == 10
        await archivist.recall()
        assert (archivist.bound(), archivist.to_recall()) == (None, None)
        assert await archivist.trim() == 0

    async def test_a_snapshot_is_recalled_once_the_store_answers(self, log: Log) -> None:
        await log.fill(20)
        sights = Sights()
        for seq in (5, 10, 15):
            await log.snapshot(log.archivist(sights=sights), seq)
        log.time.advance(1.1 * QUICK.trim_delay)
        archivist = log.archivist(sights=sights)
        archivist.found_sound(15)
        assert archivist.bound() is None

        failing = log.store.always("get", ANY, StoreUnavailable("no"))
        with pytest.raises(StoreUnavailable):
            await archivist.recall()
        failing.stop()
        await archivist.recall()
        assert archivist.bound() == 10

    async def test_sights_are_bounded_and_always_lead_to_something(self, log: Log) -> None:
        sights, delay = Sights(), QUICK.trim_delay
        for seq in range(1, 5000):
            sights.saw(seq, log.time.read(), delay)
            log.time.advance(delay / 500)
            assert len(sights) <= 64
            if seq > 1000:
                ripe = sights.ripe(log.time.read(), delay)
                assert ripe is not None
                assert seq - 1100 < ripe <= seq - 499

    async def test_what_was_read_is_what_was_written(self, log: Log) -> None:
        await log.fill(5)
        await log.snapshot(log.archivist(), 5)
        found = await read_snapshot(log.store, 5)
        assert not isinstance(found, str)
        assert found.manifest.seq == 5
        assert snapshot_key(4) in str(await read_snapshot(log.store, 4))


class TestTail:
    def tail(self, log: Log) -> Tail:
        return Tail(log.store, config=QUICK, clock=log.time)

    async def test_each_entry_once_in_order(self, log: Log) -> None:
        await log.fill(3)
        tail = self.tail(log)
        assert await tail.start() == 4
        assert await tail.poll() is None
        await log.fill(3, first=4)
        seen = []
        while isinstance(found := await tail.poll(), LogEntry):
            assert tail.took(found)
            seen.append(found.seq)
        assert seen == [4, 5, 6]

    async def test_what_was_polled_and_not_taken_comes_again(self, log: Log) -> None:
        tail = self.tail(log)
        await tail.start()
        await log.fill(1)
        assert await tail.poll() == await tail.poll()

    async def test_void_entries_are_passed_over(self, log: Log) -> None:
        tail = self.tail(log)
        await tail.start()
        assert tail.took(an_entry(1, epoch=3))
        assert not tail.took(an_entry(2, epoch=2))
        assert tail.took(an_entry(3, epoch=3))
        assert tail.position == 4

    async def test_a_ghost_is_not_believed(self, log: Log) -> None:
        tail = self.tail(log)
        await tail.start()
        assert await tail.poll() is None
        log.time.advance(QUICK.trim_delay)
        await log.add(an_entry(1, "ghost"))
        assert await tail.poll() is Resync.LOST
        assert await tail.start() == 2

    async def test_time_that_passes_while_the_answer_is_under_way_counts(self, log: Log) -> None:
        tail = self.tail(log)
        await tail.start()
        await log.add(an_entry(1, "ghost"))

        async def wait(request: Request) -> None:
            log.time.advance(QUICK.trim_delay)

        log.store.always("get", ANY, wait)
        assert await tail.poll() is Resync.LOST

    async def test_a_404_that_took_long_is_not_believed_either(self, log: Log) -> None:
        """Entries may have come, and been trimmed."""
        tail = self.tail(log)
        await tail.start()
        log.time.advance(QUICK.trim_delay)
        assert await tail.poll() is Resync.LOST

    @pytest.mark.parametrize(("share", "believed"), [(0.97, True), (0.985, False)])
    async def test_how_long_an_entry_is_believed(self, log: Log, share: float, believed: bool) -> None:
        tail = self.tail(log)
        await tail.start()
        log.time.advance(QUICK.trim_delay * share)
        await log.fill(1)
        assert isinstance(await tail.poll(), LogEntry) is believed

    async def test_a_404_counts_from_when_it_was_asked_for(self, log: Log) -> None:
        tail = self.tail(log)
        await tail.start()
        log.time.advance(5)

        async def wait(request: Request) -> None:
            log.time.advance(3)

        waiting = log.store.always("get", ANY, wait)
        assert await tail.poll() is None
        waiting.stop()
        assert tail.absent_since is not None
        assert log.time.read().leader_elapsed(tail.absent_since) == pytest.approx(3)

    async def test_what_this_process_wrote_meanwhile_is_not_given_again(self, log: Log) -> None:
        tail = self.tail(log)
        await tail.start()
        await log.fill(1)

        async def take(request: Request) -> None:
            tail.took(an_entry(1, "t1"))

        log.store.always("get", ANY, take)
        assert await tail.poll() is None
        assert tail.position == 2

    async def test_it_starts_after_a_snapshot(self, log: Log) -> None:
        await log.fill(5)
        await log.snapshot(log.archivist(), 5)
        await log.remove(*(log_key(seq) for seq in range(1, 6)))
        assert await self.tail(log).start() == 6


class TestInbox:
    async def look_all(self, sweep: InboxSweep) -> list[list[int]]:
        pages = []
        while True:
            look = await sweep.look()
            assert look.first is (not pages)
            pages.append([letter.name.number for letter in look.letters])
            if look.last:
                return pages

    @pytest.mark.parametrize(
        ("count", "limit", "pages"),
        [(0, 3, [[]]), (2, 3, [[1, 2]]), (3, 3, [[1, 2, 3]]), (4, 3, [[1, 2, 3], [4]]), (6, 3, [[1, 2, 3], [4, 5, 6]])],
    )
    async def test_pages(self, count: int, limit: int, pages: list[list[int]]) -> None:
        ledger = Ledger()
        for number in range(1, count + 1):
            await ledger.put("p", number)
        sweep = InboxSweep(ledger.store, limit)
        assert await self.look_all(sweep) == pages
        assert await self.look_all(sweep) == pages

    async def test_foreign_names_between_ours_count_towards_the_page(self) -> None:
        ledger = Ledger()
        for number in range(5):
            await ledger.raw(f"inbox/0-{number}", b"")
        await ledger.put("p", 1)
        sweep = InboxSweep(ledger.store, 3)
        look = await sweep.look()
        assert (len(look.foreign), look.letters, look.last) == (3, [], False)
        look = await sweep.look()
        assert (len(look.foreign), len(look.letters), look.last) == (2, 1, True)

    async def test_foreign_names_before_and_behind_ours_do_not(self) -> None:
        """However many there are, one look reaches what is ours, and ends the sweep."""
        ledger = Ledger()
        for number in range(1500):
            await ledger.raw(f"inbox/-{number:04d}", b"")
            await ledger.raw(f"inbox/2026-{number:04d}", b"")
        await ledger.put("p", 1)
        look = await InboxSweep(ledger.store, 3).look()
        assert (len(look.foreign), len(look.letters), look.last) == (2000, 1, True)

    async def test_a_page_that_failed_is_asked_for_again(self) -> None:
        ledger = Ledger()
        for number in range(1, 5):
            await ledger.put("p", number)
        sweep = InboxSweep(ledger.store, 2)
        await sweep.look()

        failing = ledger.store.always("list", ANY, StoreUnavailable("no"))
        with pytest.raises(StoreUnavailable):
            await sweep.look()
        failing.stop()
        assert [letter.name.number for letter in (await sweep.look()).letters] == [3, 4]

    async def test_anew(self) -> None:
        ledger = Ledger()
        for number in range(1, 5):
            await ledger.put("p", number)
        sweep = InboxSweep(ledger.store, 2)
        await sweep.look()
        sweep.again()
        look = await sweep.look()
        assert look.first
        assert [letter.name.number for letter in look.letters] == [1, 2]

    async def test_sizes_and_times(self) -> None:
        ledger = Ledger()
        ledger.time.advance(1.234)
        name = await ledger.put("p", 1)
        look = await InboxSweep(ledger.store, 2).look()
        body = (await ledger.store.inner.get(name.key)).body  # type: ignore[union-attr]
        assert look.letters[0].size == len(body)
        assert look.letters[0].modified_ms == round(await ledger.time.now() * 1000)


class TestConfig:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"trim_delay": 0},
            {"retention": -1},
            {"retention": float("nan")},
            {"snapshot_every": 0},
            {"in_flight": 0},
            {"in_flight": 65},
            {"waiting": 0},
            {"batch_bytes": 0},
            {"batch_bytes": 5 * 1024 * 1024},
            {"bytes_per_tick": 2**30},
            {"drift": 0.2},
            {"linger": 2},
            {"retention": 200, "give_up_after": 60},
        ],
    )
    def test_what_cannot_be(self, wrong: dict[str, float]) -> None:
        with pytest.raises(Exception, match=next(iter(wrong))):
            LedgerConfig(**wrong)  # type: ignore[arg-type]

    def test_margins(self) -> None:
        config = LedgerConfig()
        assert config.trusted_for < config.trim_delay_seconds
        assert config.known_for + config.give_up_after + config.send_timeout < config.retention
