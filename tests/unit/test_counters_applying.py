"""Writing totals to records: on a real resource, with others who write to it, and with requests that get lost."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tenure.database.counted import Counted, counted_of
from tenure.database.ids import draw, key_of
from tenure.database.resource import Resource
from tenure.errors import (
    DamagedRecord,
    InvalidRecord,
    LeadershipLost,
    RecordConflict,
    RecordExists,
    RecordNotFound,
)
from tenure.ledger import Stamp
from tenure.plugins.counters.applying import Applier
from tenure.plugins.counters.numbers import Counter
from tenure.plugins.counters.records import Moment, Work
from tenure.plugins.counters.settings import OnDirectWrite
from tenure.plugins.counters.state import CountersMachine
from tenure.plugins.counters.totals import CountedShape, Key
from tenure.store import Stored
from tests.support.store import ANY, CONDITIONAL, Act, Request, ScriptedStore

VIEWS = Counter()
ID = "home"


def before(act: Callable[[], Awaitable[object]]) -> Act:
    async def first(request: Request) -> None:
        await act()

    return first


class Place:
    """A resource that is counted, one leader's state, and another way to the same store."""

    def __init__(self, *, conditional_delete: bool = True, reuse_ids: bool = True) -> None:
        self.store = ScriptedStore(conditional_delete=conditional_delete)
        ids = itertools.count(1)

        def resource(store: ScriptedStore) -> Resource[Any]:
            made: Resource[Any] = Resource(store, "pages", draw_id=lambda: f"w{next(ids)}", reuse_ids=reuse_ids)
            made.shaped_by("n", CountedShape("pages", "n", {"views": VIEWS}, OnDirectWrite.REFUSE))
            return made

        self.pages = resource(self.store)
        self.others = resource(self.store.beside())
        self.machine = CountersMachine()
        self.leads = True
        self.applier = self.new_applier()

    def new_applier(self) -> Applier:
        return Applier(self.pages, "n", self._ensure)

    def _ensure(self) -> None:
        if not self.leads:
            raise LeadershipLost("no more")

    def fold(self, amount: int = 1, id: str = ID) -> None:
        seq = self.machine.seq + 1
        work = Work(ledger="log", fields={"views": "int:sum"}, moment=Moment(0, 0, 0))
        work.rows = {"views": {id: [1, amount]}}
        self.machine.enact(work, Stamp(seq, 1, 0))

    def note(self, through: int, id: str = ID) -> None:
        self.machine.enact(Work(applied={id: through}), Stamp(self.machine.seq + 1, 1, 0))

    async def apply(self, applier: Applier | None = None, id: str = ID) -> Any:
        applier = applier if applier is not None else self.applier
        return await applier.apply(self.machine, id, self.machine.offered(id))

    async def held(self, id: str = ID) -> Counted | None:
        found = await self.others.find(id)
        counted = counted_of(found.envelope.reserved, "n") if found is not None else None
        assert not isinstance(counted, str)
        return counted

    async def total(self, id: str = ID) -> Any:
        held = await self.held(id)
        return held.totals.get("views") if held is not None else None


@pytest.mark.req("EC-1")
async def test_again_and_again_counts_once_whoever_does_it() -> None:
    place = Place()
    await place.others.insert({"views": 2}, ID)
    place.fold(5)
    place.fold(10)
    for applier in (place.applier, place.applier, place.new_applier()):
        applied = await place.apply(applier)
        assert applied is not None and applied.through == 2
    assert await place.total() == 17
    assert (await place.others.get(ID)).data == {"views": 17}
    place.note(2)
    assert await place.apply() is None


async def test_the_next_write_needs_no_read_unless_somebody_else_wrote() -> None:
    place = Place()
    await place.others.insert({}, ID)
    for number in range(1, 4):
        place.fold()
        await place.apply()
        place.note(place.machine.seq)
        assert (place.applier.reads, place.applier.writes) == (1, number)
    await place.others.patch(ID, {"title": "t"})
    place.fold()
    await place.apply()
    assert place.applier.reads == 2
    assert (await place.others.get(ID)).data == {"title": "t", "views": 4}


@pytest.mark.req("EC-1")
async def test_others_write_meanwhile_and_nothing_of_either_is_lost() -> None:
    place = Place()
    await place.others.insert({"views": 0, "n": 0}, ID)
    actions: list[Callable[[], Any]] = [
        lambda: place.others.patch(ID, {"n": 1}),
        lambda: place.others.delete(ID),
        lambda: place.others.insert({"n": 2}, ID),
        lambda: place.others.rewrite(ID, lambda data, reserved: ({**data, "n": 3}, {"mine": 1})),
        lambda: place.others.update(ID, {"n": 4}),
    ]
    for number, action in enumerate(actions, start=1):
        place.fold(10**number)
        place.store.on(CONDITIONAL, ANY, before(action))
        await place.apply()
        place.note(place.machine.seq)
    assert await place.total() == 111110
    assert (await place.others.get(ID)).data == {"n": 4, "views": 111110}


@pytest.mark.req("EC-1")
@pytest.mark.parametrize("is_there", [True, False])
async def test_an_answer_that_is_lost_does_not_count_twice(is_there: bool) -> None:
    place = Place()
    if is_there:
        await place.others.insert({}, ID)
    for _ in range(4):
        place.fold()
        place.store.on(CONDITIONAL, ANY, "kept")
        await place.apply()
        place.note(place.machine.seq)
    assert await place.total() == 4


async def test_a_record_that_is_always_being_written_is_left_for_later() -> None:
    place = Place()
    await place.others.insert({"n": 0}, ID)
    place.fold()
    numbers = itertools.count(1)
    place.store.always(CONDITIONAL, ANY, before(lambda: place.others.patch(ID, {"n": next(numbers)})))
    with pytest.raises(RecordConflict, match="tried again later"):
        await place.apply()


async def test_who_leads_no_more_writes_nothing() -> None:
    place = Place()
    place.fold()
    place.leads = False
    with pytest.raises(LeadershipLost):
        await place.apply()
    assert await place.held() is None


async def test_a_record_that_is_ahead_of_its_log_is_told_and_left_alone() -> None:
    """An older log was put back: numbers that it gives once more are in the watermark already."""
    place = Place()
    for _ in range(3):
        place.fold()
    await place.apply()
    place.machine = CountersMachine()
    place.fold(100)
    with pytest.raises(DamagedRecord, match="older log"):
        await place.apply(place.new_applier())
    assert await place.total() == 3


# Without a record


@pytest.mark.req("EC-1")
@pytest.mark.parametrize("conditional_delete", [True, False])
@pytest.mark.parametrize("reuse_ids", [True, False])
async def test_amounts_for_a_key_without_a_record_wait_in_its_tombstone(
    conditional_delete: bool, reuse_ids: bool
) -> None:
    place = Place(conditional_delete=conditional_delete, reuse_ids=reuse_ids)
    place.fold(5)
    await place.apply()
    found = await place.others.find(ID)
    assert found is not None and found.envelope.is_unborn
    assert not await place.others.exists(ID)
    with pytest.raises(RecordNotFound):
        await place.others.get(ID)
    assert await place.others.count() == 0
    assert await place.pages.keep(ID, {"x": 1}) is None, "what is there is not kept over"
    record = await place.others.insert({"title": "t"}, ID)
    assert record.data == {"title": "t", "views": 5}
    await place.others.delete(ID)
    again = await place.others.find(ID)
    assert again is not None and not again.envelope.is_unborn
    if reuse_ids:
        assert (await place.others.insert({}, ID)).data == {"views": 5}
    else:
        with pytest.raises(RecordExists, match="not used twice"):
            await place.others.insert({}, ID)


async def test_others_insert_over_it_as_well() -> None:
    place = Place()
    for id in ("one", "two"):
        place.fold(7, id)
        await place.apply(id=id)
    assert (await place.others.place("one", {"a": 1})).data == {"a": 1, "views": 7}
    with pytest.raises(RecordExists):
        await place.others.place("one", {"a": 1})
    (done,) = await place.others.insert_many([{"b": 1}], ["two"])
    assert done.record is not None and done.record.data == {"b": 1, "views": 7}


@pytest.mark.req("EC-1")
@pytest.mark.parametrize("conditional_delete", [True, False])
async def test_a_create_that_comes_late_counts_once_or_not_at_all(conditional_delete: bool) -> None:
    """It lands when the record was inserted and deleted again: before or after the amount was applied to that."""
    for is_applied in (True, False):
        place = Place(conditional_delete=conditional_delete, reuse_ids=False)
        place.fold(5)
        key = Key(None, "n")
        late = key.applied(place.machine.offered(ID), place.machine.counters, "log")
        assert late is not None
        await place.others.insert({}, ID)
        if is_applied:
            await place.apply(place.new_applier())
        await place.others.delete(ID)
        await place.pages.keep(ID, late.reserved)
        await place.apply(place.new_applier())
        assert await place.total() == 5


@pytest.mark.req("EC-1")
@pytest.mark.parametrize("is_drawn", [True, False])
async def test_a_plain_delete_takes_no_total_with_it(is_drawn: bool) -> None:
    """Where there is no conditional delete, whatever lies there when it lands is gone: here, what was counted."""
    place = Place(conditional_delete=False, reuse_ids=False)
    others = place.others._store
    assert isinstance(others, ScriptedStore)
    id = (await place.others.insert({})).id if is_drawn else ID
    if not is_drawn:
        await place.others.insert({}, id)
    await place.others.delete(id)
    assert others.count("delete") == 0, "nothing is removed blindly"
    place.fold(3, id)
    await place.apply(id=id)
    assert await place.total(id) == 3


async def test_without_counters_such_tombstones_are_removed_as_ever() -> None:
    store = ScriptedStore(conditional_delete=False)
    pages: Resource[Any] = Resource(store, "pages")
    record = await pages.insert({})
    await pages.delete(record.id)
    assert store.keys_of("delete") == [key_of("pages", record.id)]
    pages.shaped_by("n", CountedShape("pages", "n", {"views": VIEWS}, OnDirectWrite.REFUSE))
    pages.shaped_by("n", None)
    record = await pages.insert({})
    await pages.delete(record.id)
    assert len(store.keys_of("delete")) == 2


async def test_an_id_that_was_drawn_keeps_its_totals_too() -> None:
    place = Place()
    id = draw(lambda: "0123456789")
    place.fold(1, id)
    await place.apply(id=id)
    assert await place.total(id) == 1


async def test_many_are_checked_before_the_first_is_inserted() -> None:
    place = Place()
    with pytest.raises(InvalidRecord, match=r"item 1: .*counted as int"):
        await place.others.insert_many([{"views": 1}, {"views": "one"}], ["a", "b"])
    assert await place.others.count() == 0


# Putting right


async def _put_right(place: Place, expected: int, applier: Applier | None = None) -> Any:
    machine = place.machine
    applier = applier if applier is not None else place.applier
    return await applier.put_right(machine, ID, machine.seq, lambda key: {"views": expected})


async def test_what_was_changed_by_other_means_is_seen_although_it_was_written_just_now() -> None:
    place = Place()
    await place.others.insert({}, ID)
    place.fold(5)
    await place.apply()
    place.note(1)
    found = await place.others.find(ID)
    assert found is not None
    counted = msgspec.to_builtins(Counted("log", 1, {"views": 99}))
    await place.others.swap(found, data={"views": 99}, reserved={"counters": {"n": counted}})
    right, former = await _put_right(place, 5)
    assert (right, former) == ({"views": 5}, {"views": 99})
    assert await place.total() == 5
    assert (await _put_right(place, 5))[1] == {}


@pytest.mark.parametrize("garbage", [{"counters": 5}, {"counters": {"n": "x"}}, {"counters": {"n": {"through": []}}}])
async def test_what_cannot_be_read_is_put_right(garbage: dict[str, Any]) -> None:
    place = Place()
    await place.others.insert({"views": 5}, ID)
    place.fold(5)
    found = await place.others.find(ID)
    assert found is not None
    await place.others.swap(found, reserved=garbage)
    with pytest.raises(DamagedRecord):
        await place.apply()
    right, former = await _put_right(place, 5)
    assert right == {"views": 5}
    assert former == {}, "what stands in it is right"
    held = await place.held()
    assert held is not None and (held.totals, held.through) == ({"views": 5}, 1)


async def test_what_is_right_already_is_not_counted_again_by_what_waits() -> None:
    """Somebody wrote the right total by other means, which says nothing of what is in it."""
    place = Place()
    await place.others.insert({}, ID)
    place.fold(5)
    await place.apply()
    place.note(1)
    place.fold(5)
    found = await place.others.find(ID)
    assert found is not None
    counted = msgspec.to_builtins(Counted("log", 1, {"views": 10}))
    await place.others.swap(found, data={"views": 10}, reserved={"counters": {"n": counted}})
    assert await _put_right(place, 10) == ({"views": 10}, {})
    await place.apply()
    assert await place.total() == 10
    place.note(3)
    writes = place.applier.writes
    assert await _put_right(place, 10) == ({"views": 10}, {})
    assert place.applier.writes == writes, "nothing waits, and nothing is wrong"


async def test_an_object_that_is_gone_is_made_anew() -> None:
    place = Place()
    place.fold(5)
    await place.apply()
    place.note(1)
    await place.store.delete(key_of("pages", ID))
    assert (await _put_right(place, 5))[1] == {"views": 0}
    held = await place.held()
    assert held is not None and (held.totals, held.through) == ({"views": 5}, 2)


async def test_nothing_is_put_right_over_what_was_applied_meanwhile() -> None:
    place = Place()
    await place.others.insert({}, ID)
    place.fold(5)
    await place.apply()
    place.note(1)
    asked: list[int] = []

    def expected(key: Key) -> dict[str, Any]:
        asked.append(key.through("log"))
        return {"views": 6}

    async def meanwhile() -> None:
        place.fold(1)
        place.machine.enact(Work(), Stamp(place.machine.seq, 1, 0))
        await place.apply(Applier(place.others, "n", lambda: None))

    place.store.on(CONDITIONAL, ANY, before(meanwhile))
    await place.applier.put_right(place.machine, ID, place.machine.seq, expected)
    assert asked == [1, 3], "it is judged again by what is there then"
    assert await place.total() == 6


async def test_bytes_of_a_record_that_are_none_concern_that_record() -> None:
    place = Place()
    await place.store.put(key_of("pages", ID), b"not a record")
    place.fold()
    with pytest.raises(DamagedRecord):
        await place.apply()
    place.fold(1, "another")
    assert (await place.apply(id="another")) is not None
    stored = await place.store.get(key_of("pages", ID))
    assert isinstance(stored, Stored) and stored.body == b"not a record"
