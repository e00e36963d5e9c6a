"""Resources on a store in memory: what each call gives back, and what it refuses before anything is sent."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pytest

from tenure.database.ids import DRAWN, MAX_ID_CHARACTERS, key_of, parse_key
from tenure.database.records import MAX_VERSION, RECENT_WRITES, Envelope, decode, encode, is_tombstone_size
from tenure.database.resource import MAX_INSERTS, REMOVE, Resource
from tenure.errors import (
    BodyTooLarge,
    ConfigError,
    Conflict,
    DamagedRecord,
    InvalidRecord,
    RecordConflict,
    RecordExists,
    RecordNotFound,
    StoreUnavailable,
    WriteUnknown,
)
from tenure.store import Metered, Store, Stored
from tenure.store.memory import MemoryStore
from tests.support.clock import ScriptedClock
from tests.support.store import ANY, CONDITIONAL, Act, After, Request, ScriptedStore, yields


class Email(msgspec.Struct, frozen=True):
    to: Annotated[str, msgspec.Meta(min_length=3)]
    subject: str = ""
    tries: int = 0


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


class Picky(msgspec.Struct):
    x: int

    def __post_init__(self) -> None:
        if self.x == 7:
            raise KeyError("no sevens")


class Due(msgspec.Struct):
    at: datetime
    tags: set[str] = set()
    where: Point | None = None


class Number(int):
    pass


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def emails(store: MemoryStore) -> Resource[Email]:
    return Resource(store, "emails", Email)


async def raw(store: Store, name: str, id: str) -> dict[str, Any]:
    stored = await store.get(key_of(name, id))
    assert isinstance(stored, Stored)
    found: dict[str, Any] = json.loads(stored.body)
    return found


class TestOneRecord:
    @pytest.mark.req("DB-2")
    async def test_from_insert_to_delete(self, emails: Resource[Email]) -> None:
        record = await emails.insert(Email("ada@example.com", "hello"), id="e1")
        assert record.data == Email("ada@example.com", "hello")
        assert await emails.get("e1") == record
        updated = await emails.update("e1", Email("ada@example.com", "again"))
        assert updated.version == record.version + 1
        patched = await emails.patch("e1", {"tries": 2}, if_version=updated.version)
        assert patched.data == Email("ada@example.com", "again", 2)
        assert patched.version == record.version + 2
        assert await emails.exists("e1")
        await emails.delete("e1", if_version=patched.version)
        assert not await emails.exists("e1")
        assert await emails.get_or_none("e1") is None
        with pytest.raises(RecordNotFound, match="'emails' has no record 'e1'") as caught:
            await emails.get("e1")
        assert (caught.value.resource, caught.value.id) == ("emails", "e1")

    @pytest.mark.req("DB-2")
    async def test_of_a_missing_record(self, emails: Resource[Email]) -> None:
        for call in (emails.update("x", Email("abc")), emails.patch("x", {"tries": 1}), emails.delete("x")):
            with pytest.raises(RecordNotFound):
                await call

    @pytest.mark.req("DB-2")
    async def test_an_id_that_is_taken(self, emails: Resource[Email]) -> None:
        first = await emails.insert(Email("ada"), id="e1")
        with pytest.raises(RecordExists, match="'e1' of 'emails' exists already") as caught:
            await emails.insert(Email("ben"), id="e1")
        assert caught.value.found == first.version
        assert isinstance(caught.value, Conflict)
        assert (await emails.get("e1")).data == Email("ada")

    @pytest.mark.req("DB-2")
    async def test_a_version_that_has_moved_on(self, emails: Resource[Email]) -> None:
        first = await emails.insert(Email("ada"), id="e1")
        second = await emails.update("e1", Email("ben"), if_version=first.version)
        for call in (
            emails.update("e1", Email("cyd"), if_version=first.version),
            emails.patch("e1", {"tries": 1}, if_version=first.version),
            emails.delete("e1", if_version=first.version),
        ):
            with pytest.raises(RecordConflict, match=f"is in version {second.version}, not {first.version}") as caught:
                await call
            assert (caught.value.expected, caught.value.found) == (first.version, second.version)
        assert await emails.get("e1") == second

    @pytest.mark.req("DB-2")
    async def test_a_version_of_a_record_that_was_deleted_never_fits_the_one_inserted_after_it(
        self, emails: Resource[Email]
    ) -> None:
        old = await emails.insert(Email("ada"), id="e1")
        await emails.delete("e1")
        new = await emails.insert(Email("ben"), id="e1")
        with pytest.raises(Conflict):
            await emails.update("e1", Email("ada"), if_version=old.version)
        assert await emails.get("e1") == new

    @pytest.mark.req("DB-2")
    async def test_generated_ids_begin_at_version_one_and_cannot_be_given(self, emails: Resource[Email]) -> None:
        record = await emails.insert({"to": "ada"})
        assert record.id.startswith(DRAWN)
        assert record.version == 1
        with pytest.raises(ConfigError, match="begins with 'auto-'"):
            await emails.insert({"to": "ada"}, id=record.id)
        assert await emails.patch(record.id, {"tries": 1}) == await emails.get(record.id)

    @pytest.mark.req("DB-2")
    async def test_a_field_can_be_null_or_removed(self, store: MemoryStore) -> None:
        notes: Resource[dict[str, Any]] = Resource(store, "notes")
        await notes.insert({"a": 1, "b": 2, "c": {"d": 3}}, id="n")
        patched = await notes.patch("n", {"a": None, "b": REMOVE, "c": {"e": 4}, "never": REMOVE})
        assert patched.data == {"a": None, "c": {"e": 4}}
        typed = Resource(store, "notes", Email)
        await typed.insert(Email("ada", "hello"), id="m")
        assert (await typed.patch("m", {"subject": REMOVE})).data == Email("ada")

    @pytest.mark.req("DB-2")
    async def test_updates_without_a_version_all_count(self) -> None:
        store = ScriptedStore()
        store.always("get replace", ANY, yields)
        numbers: Resource[dict[str, Any]] = Resource(store, "numbers")
        await numbers.insert({"n": 0}, id="n")

        async def add() -> None:
            def one_more(data: dict[str, Any], reserved: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
                return {"n": data["n"] + 1}, {**reserved, "seen": data["n"]}

            for _ in range(5):
                await numbers.rewrite("n", one_more)

        await asyncio.gather(*(add() for _ in range(4)))
        record = await numbers.get("n")
        assert record.data == {"n": 20}
        assert record.reserved == {"seen": 19}


class TestDeleting:
    @pytest.mark.req("DB-2")
    async def test_with_a_conditional_delete_nothing_is_left(self, store: MemoryStore, emails: Resource[Email]) -> None:
        for id in ("e1", None):
            record = await emails.insert(Email("ada"), id=id)
            await emails.delete(record.id)
        assert [entry.key async for entry in store.list()] == []

    @pytest.mark.req("DB-2")
    async def test_without_one_a_tombstone_stays_and_the_next_insert_goes_on_from_it(self) -> None:
        store = ScriptedStore(conditional_delete=False)
        emails = Resource(store, "emails", Email)
        first = await emails.insert(Email("ada"), id="e1")
        await emails.delete("e1")
        assert await emails.count() == 0
        assert (await emails.list()).records == ()
        tombstone = await raw(store, "emails", "e1")
        assert tombstone["deleted"] is True
        assert tombstone["data"] == {}
        assert tombstone["version"] == first.version + 1
        again = await emails.insert(Email("ben"), id="e1")
        assert again.version == first.version + 2
        assert store.count("delete") == 0
        assert await emails.count() == 1

    async def test_ids_that_are_never_used_again_leave_nothing(self) -> None:
        store = ScriptedStore(conditional_delete=False)
        emails = Resource(store, "emails", Email)
        drawn = await emails.insert(Email("ada"))
        await emails.delete(drawn.id)
        once = Resource(store, "once", Email, reuse_ids=False)
        given = await once.insert(Email("ada"), id="e1")
        assert given.version == 1
        await once.delete("e1")
        assert [entry.key async for entry in store.list()] == []
        assert len(store.keys_of("delete")) == 2

    @pytest.mark.req("DB-2")
    @pytest.mark.parametrize("conditional_delete", [True, False])
    async def test_reserved_fields_outlive_everything(self, conditional_delete: bool) -> None:
        store = ScriptedStore(conditional_delete=conditional_delete)
        notes: Resource[dict[str, Any]] = Resource(store, "notes")
        await notes.insert({"a": 1}, id="n")
        marked = await notes.rewrite("n", lambda data, reserved: (data, {"watermark": 7}))
        assert (await notes.update("n", {"a": 2})).reserved == {"watermark": 7}
        assert (await notes.patch("n", {"a": 3})).reserved == {"watermark": 7}
        await notes.delete("n")
        assert (await raw(store, "notes", "n"))["reserved"] == {"watermark": 7}
        again = await notes.insert({"b": 1}, id="n")
        assert again.reserved == {"watermark": 7}
        assert again.version == marked.version + 4
        assert again.data == {"b": 1}

    @pytest.mark.req("DB-2")
    async def test_a_tombstone_that_could_not_be_removed_is_a_delete_all_the_same(self) -> None:
        store = ScriptedStore()
        store.always("discard", ANY, "lost")
        notes: Resource[dict[str, Any]] = Resource(store, "notes")
        first = await notes.insert({}, id="n")
        await notes.delete("n")
        assert not await notes.exists("n")
        assert (await notes.insert({}, id="n")).version == first.version + 2

    @pytest.mark.req("DB-2")
    async def test_an_id_that_shall_not_be_used_twice_and_whose_tombstone_is_there(self) -> None:
        store = ScriptedStore(conditional_delete=False)
        store.always("delete", ANY, "lost")
        once: Resource[dict[str, Any]] = Resource(store, "once", reuse_ids=False)
        await once.insert({}, id="n")
        await once.delete("n")
        with pytest.raises(RecordExists, match="ids are not used twice here"):
            await once.insert({}, id="n")


class TestListing:
    @pytest.mark.req("DB-2")
    async def test_pages(self, store: MemoryStore, emails: Resource[Email]) -> None:
        ids = sorted((f"e {number:02d}" for number in range(25)), key=lambda id: key_of("emails", id))
        for id in ids:
            await emails.insert(Email("ada", id), id=id)
        await Resource(store, "emails2", Email).insert(Email("ben"))
        seen: list[str] = []
        after = None
        while True:
            page = await emails.list(limit=10, after=after)
            seen += [record.id for record in page.records]
            if page.next is None:
                break
            after = page.next
        assert seen == ids
        assert [record.id async for record in emails.records()] == ids
        assert await emails.count() == 25

    async def test_tombstones_cost_no_request(self) -> None:
        inner = ScriptedStore(conditional_delete=False)
        store = Metered(inner)
        notes: Resource[dict[str, Any]] = Resource(store, "notes")
        for number in range(8):
            await notes.insert({"n": "x" * number}, id=str(number))
            if number % 2:
                await notes.delete(str(number))
        before = store.usage().requests["get"]["ok"]
        page = await notes.list()
        assert [record.id for record in page.records] == ["0", "2", "4", "6"]
        assert await notes.count() == 4
        assert store.usage().requests["get"]["ok"] == before + 4
        assert store.usage().requests["list"]["ok"] == 2

    async def test_what_is_damaged_is_set_aside_and_named(
        self, store: MemoryStore, emails: Resource[Email], caplog: pytest.LogCaptureFixture
    ) -> None:
        await emails.insert(Email("ada"), id="good")
        untyped: Resource[dict[str, Any]] = Resource(store, "emails")
        await untyped.insert({"to": "ada", "tries": "many"}, id="misfit")
        await store.put(key_of("emails", "junk"), b"not json")
        await store.put(key_of("emails", "deep"), b"[" * 100_000)
        await store.put("resource=emails/data/readme.txt", b"hello")
        other = await store.get(key_of("emails", "good"))
        assert isinstance(other, Stored)
        await store.put(key_of("emails", "copy"), other.body)
        newer = other.body.replace(b'"schemaVersion":1', b'"schemaVersion":2')
        await store.put(key_of("emails", "newer"), newer)
        page = await emails.list()
        assert [record.id for record in page.records] == ["good"]
        reasons = {damaged.id: damaged.reason for damaged in page.damaged}
        assert set(reasons) == {"misfit", "junk", "deep", "copy", "newer", "readme.txt"}
        assert "data.tries: Expected `int`, got `str`" in reasons["misfit"]
        assert "somebody copied it here" in reasons["copy"]
        assert "newer tenure" in reasons["newer"]
        with pytest.raises(DamagedRecord, match=r"'misfit' of 'emails' is damaged: it does not fit the schema"):
            await emails.get("misfit")
        with pytest.raises(DamagedRecord):
            await emails.update("junk", Email("ada"))
        with pytest.raises(DamagedRecord, match="newer tenure"):
            await emails.delete("newer")
        assert [record.id async for record in emails.records()] == ["good"]
        assert "'misfit' was left out" in caplog.text
        told: list[str] = []
        assert len([1 async for _ in emails.records(on_damaged=lambda damaged: told.append(damaged.id))]) == 1
        assert set(told) == set(reasons)
        await emails.update("misfit", Email("cured"))
        assert (await emails.get("misfit")).data == Email("cured")

    async def test_an_object_too_large_to_be_read_is_set_aside(self) -> None:
        store = ScriptedStore()
        store.always("get", key_of("notes", "large"), BodyTooLarge("it has 99,999,999 bytes"))
        notes: Resource[dict[str, Any]] = Resource(store, "notes")
        await notes.insert({}, id="a")
        await store.put(key_of("notes", "large"), b"x")
        page = await notes.list()
        assert [record.id for record in page.records] == ["a"]
        assert [damaged.id for damaged in page.damaged] == ["large"]
        with pytest.raises(DamagedRecord, match="99,999,999 bytes"):
            await notes.get("large")

    async def test_a_record_that_its_class_refuses_is_set_aside(self, store: MemoryStore) -> None:
        await Resource(store, "picky").insert({"x": 7}, id="seven")
        page = await Resource(store, "picky", Picky).list()
        assert "KeyError: 'no sevens'" in page.damaged[0].reason

    async def test_an_outage_is_a_store_error_and_no_group(self) -> None:
        store = ScriptedStore()
        store.always("get", ANY, "lost")
        notes: Resource[dict[str, Any]] = Resource(store, "notes")
        await notes.insert({}, id="a")
        await notes.insert({}, id="b")
        with pytest.raises(StoreUnavailable):
            await notes.list()

    async def test_a_listing_goes_on_after_names_that_no_record_can_have(self, store: MemoryStore) -> None:
        notes: Resource[dict[str, Any]] = Resource(store, "notes")
        foreign = f"id={'a' * (MAX_ID_CHARACTERS + 1)}.json"
        await store.put(f"resource=notes/data/{foreign}", b"{}")
        for id in ("0", "b", "c"):
            await notes.insert({}, id=id)
        seen, named, after = [], [], None
        while True:
            page = await notes.list(limit=1, after=after)
            seen += [record.id for record in page.records]
            named += [damaged.id for damaged in page.damaged]
            if (after := page.next) is None:
                break
        assert seen == ["0", "b", "c"]
        assert named == [foreign]
        assert await notes.count() == 3

    @pytest.mark.parametrize("limit", [0, 1001, 2.5, True])
    async def test_the_size_of_a_page_is_bounded(self, emails: Resource[Email], limit: Any) -> None:
        with pytest.raises(ConfigError, match=f"limit is {limit}: give 1 to 1000"):
            await emails.list(limit=limit)


class TestManyInserts:
    @pytest.mark.req("DB-2")
    async def test_each_has_its_own_fate(self, emails: Resource[Email]) -> None:
        await emails.insert(Email("taken"), id="b")
        results = await emails.insert_many([Email("ada"), Email("ben"), {"to": "cyd"}], ids=["a", "b", "c"])
        assert [(result.index, result.id) for result in results] == [(0, "a"), (1, "b"), (2, "c")]
        assert isinstance(results[1].error, RecordExists)
        assert [result.record is not None for result in results] == [True, False, True]
        assert await emails.count() == 3
        assert (await emails.get("b")).data == Email("taken")

    @pytest.mark.req("DB-2")
    async def test_one_that_does_not_fit_stops_all_before_anything_is_sent(self, emails: Resource[Email]) -> None:
        with pytest.raises(InvalidRecord, match=r"item 1: .*subject"):
            await emails.insert_many([Email("ada"), {"to": "ben", "subject": 5}])
        assert await emails.count() == 0

    async def test_bounds(self, emails: Resource[Email]) -> None:
        assert await emails.insert_many([]) == ()
        with pytest.raises(ConfigError, match="2 records and 1 ids"):
            await emails.insert_many([Email("ada"), Email("ben")], ids=["a"])
        with pytest.raises(ConfigError, match="at most 10,000"):
            await emails.insert_many([Email("ada")] * (MAX_INSERTS + 1))

    @pytest.mark.req("DB-2")
    async def test_a_hundred_at_once(self, emails: Resource[Email]) -> None:
        results = await emails.insert_many([Email("ada", str(number)) for number in range(100)])
        assert all(result.record is not None and result.record.data.subject == str(result.index) for result in results)
        assert await emails.count() == 100


class TestChecks:
    @pytest.mark.req("DB-2")
    async def test_a_patch_takes_what_the_class_may_hold(self, store: MemoryStore) -> None:
        dues = Resource(store, "dues", Due)
        due = await dues.insert(Due(datetime(2030, 1, 1, tzinfo=UTC), where=Point(1)))
        later = datetime(2031, 1, 1, tzinfo=UTC)
        patched = await dues.patch(due.id, {"at": later, "tags": {"a"}, "where": REMOVE})
        assert patched.data == Due(later, {"a"})
        assert (await dues.patch(due.id, {"where": Point(2)})).data.where == Point(2)
        with pytest.raises(InvalidRecord, match=r"data\.at"):
            await dues.patch(due.id, {"at": object()})

    @pytest.mark.req("DB-2")
    async def test_what_cannot_be_written_as_json_is_refused_by_name(self, store: MemoryStore) -> None:
        with pytest.raises(InvalidRecord, match="Number"):
            await Resource(store, "notes").insert({"n": Number(3)})
        with pytest.raises(InvalidRecord, match="no sevens"):
            await Resource(store, "picky", Picky).insert({"x": 7})

    def test_a_class_that_cannot_be_read_is_refused_at_once(self, store: MemoryStore) -> None:
        class Ambiguous(msgspec.Struct):
            x: list[int] | set[int]

        class Undefined(msgspec.Struct):
            x: Nowhere  # type: ignore[name-defined] # noqa: F821

        for kind in (Ambiguous, Undefined):
            with pytest.raises(ConfigError, match=f"schema {kind.__name__} cannot be used"):
                Resource(store, "notes", kind)

    def test_a_name_that_makes_too_long_a_key_is_refused_at_once(self, store: MemoryStore) -> None:
        with pytest.raises(ConfigError, match="takes 198 bytes when encoded, and the limit is 190"):
            Resource(store, "ä" * 33)

    @pytest.mark.req("DB-2")
    @pytest.mark.parametrize(
        ("data", "complaint"),
        [
            ({"to": "a"}, r"data.to: Expected `str` of length >= 3"),
            ({"subject": "x"}, "missing required field `to`"),
            ({"to": "ada", "tires": 1}, "field 'tires' is not in the schema, which has: subject, to, tries"),
            (Email("ada", tries="1"), "data.tries: Expected `int`, got `str`"),  # type: ignore[arg-type]
            (Email("a"), "data.to: Expected `str` of length >= 3"),
            ("ada", "data is str: give Email, or a dict with its fields"),
            (None, "data is NoneType"),
        ],
    )
    async def test_a_schema_is_kept_on_writing(self, emails: Resource[Email], data: Any, complaint: str) -> None:
        await emails.insert(Email("ada"), id="e")
        with pytest.raises(InvalidRecord, match=complaint):
            await emails.insert(data)
        with pytest.raises(InvalidRecord, match=complaint):
            await emails.update("e", data)
        assert await emails.count() == 1

    @pytest.mark.req("DB-2")
    async def test_a_patch_is_judged_by_what_it_makes(self, emails: Resource[Email]) -> None:
        await emails.insert(Email("ada"), id="e")
        for changes, complaint in (
            ({"tries": "x"}, "data.tries: Expected `int`"),
            ({"to": REMOVE}, "missing required field `to`"),
            ({"oops": 1}, "'oops' is not in the schema"),
            ([], "changes are list"),
        ):
            with pytest.raises(InvalidRecord, match=complaint):
                await emails.patch("e", changes)  # type: ignore[arg-type]
        assert (await emails.get("e")).data == Email("ada")

    @pytest.mark.req("DB-2")
    @pytest.mark.parametrize(
        ("data", "complaint"),
        [
            ({"a": float("nan")}, "data.a is nan, which JSON does not have"),
            ({"a": [1, float("inf")]}, r"data.a\[1\] is inf"),
            ({1: 2}, "data has the key 1: keys are text"),
            ({"a": {1: 2}}, "data.a has the key 1"),
            ({"a": {1, 2}}, "data.a is of type set"),
            ({"a": 2**64}, "data.a is an integer of over 64 bits"),
            ({"a": "\ud800"}, "data.a is not valid Unicode"),
            ({"a": "x" * 1_000_000}, "bytes as JSON, and the limit is 1,000,000"),
            ([1], "data is list: give a dict"),
        ],
    )
    async def test_what_json_cannot_hold(self, store: MemoryStore, data: Any, complaint: str) -> None:
        notes: Resource[dict[str, Any]] = Resource(store, "notes")
        with pytest.raises(InvalidRecord, match=complaint):
            await notes.insert(data)
        assert await notes.count() == 0

    async def test_nesting_is_bounded(self, store: MemoryStore) -> None:
        notes: Resource[dict[str, Any]] = Resource(store, "notes")
        deep: dict[str, Any] = {}
        inner = deep
        for _ in range(5000):
            inner["a"] = {}
            inner = inner["a"]
        with pytest.raises(InvalidRecord, match="nested more than 32 deep"):
            await notes.insert(deep)

    @pytest.mark.req("DB-2")
    async def test_a_dataclass_is_a_schema_too(self, store: MemoryStore) -> None:
        points = Resource(store, "points", Point)
        await points.insert(Point(1, 2.5), id="p")
        assert (await points.get("p")).data == Point(1, 2.5)
        assert (await points.patch("p", {"x": 3})).data == Point(3, 2.5)
        with pytest.raises(InvalidRecord, match=r"data.x: Expected `int`, got `str`"):
            await points.insert(Point("a"))  # type: ignore[arg-type]
        with pytest.raises(InvalidRecord, match=r"data.y is nan"):
            await points.insert(Point(1, float("nan")))

    async def test_what_is_stored_is_not_shared_with_the_caller(self, store: MemoryStore) -> None:
        notes: Resource[dict[str, Any]] = Resource(store, "notes")
        data: dict[str, Any] = {"tags": ["a"]}
        record = await notes.insert(data)
        data["tags"].append("b")
        assert record.data == {"tags": ["a"]}

    @pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", None, 5])
    def test_a_name_that_cannot_be_one(self, store: MemoryStore, name: Any) -> None:
        with pytest.raises(ConfigError, match="resource name is"):
            Resource(store, name)

    @pytest.mark.parametrize("id", ["", "x" * (MAX_ID_CHARACTERS + 1), "ä" * 64, "\ud800", 5])
    async def test_an_id_that_cannot_be_one(self, emails: Resource[Email], id: Any) -> None:
        for call in (
            emails.get(id),
            emails.insert(Email("ada"), id),
            emails.delete(id),
            emails.update(id, Email("ada")),
            emails.patch(id, {}),
            emails.exists(id),
            emails.list(after=id),
        ):
            with pytest.raises(ConfigError, match="record id"):
                await call

    @pytest.mark.parametrize("schema", [int, dict, "Email", [Email]])
    def test_a_schema_that_cannot_be_one(self, store: MemoryStore, schema: Any) -> None:
        with pytest.raises(ConfigError, match="schema is"):
            Resource(store, "x", schema)

    @pytest.mark.req("DB-2")
    async def test_a_version_that_is_none(self, emails: Resource[Email]) -> None:
        await emails.insert(Email("ada"), id="e")
        for version in (True, "1", 1.0):
            with pytest.raises(ConfigError, match="if_version is"):
                await emails.delete("e", if_version=version)  # type: ignore[arg-type]

    @pytest.mark.req("DB-2")
    @pytest.mark.parametrize("id", ["a/b", "..", "~2f", "🦀", "A", "a", "x" * 128, " "])
    async def test_any_id_finds_its_record_again(self, emails: Resource[Email], id: str) -> None:
        await emails.insert(Email("ada"), id=id)
        assert (await emails.get(id)).id == id
        assert [record.id for record in (await emails.list()).records] == [id]
        assert parse_key(key_of("emails", id)) == ("emails", id)


class TestEnvelope:
    def test_a_tombstone_is_told_by_its_size(self) -> None:
        for padding in range(0, 1100, 3):
            for deleted in (True, False):
                envelope = Envelope(
                    id="a",
                    version=1,
                    first_version=1,
                    write_id="w",
                    recent_writes=("w",),
                    deleted=deleted,
                    data={"x": "y" * padding},
                )
                body = encode(envelope)
                assert is_tombstone_size(len(body)) == deleted
                assert decode(body, "a") == envelope

    @pytest.mark.req("DB-2")
    def test_it_remembers_so_many_writes(self) -> None:
        envelope = Envelope(id="a", version=5, first_version=5, write_id="w", recent_writes=("w",), data={})
        assert envelope.remembers_its_creation
        for number in range(RECENT_WRITES):
            envelope = envelope.followed_by(f"w{number}", "")
        assert envelope.version == 5 + RECENT_WRITES
        assert len(envelope.recent_writes) == RECENT_WRITES
        assert not envelope.remembers_its_creation
        assert envelope.remembers_all_since(5)
        assert not envelope.remembers_all_since(4)

    def test_a_version_that_can_have_no_next_is_damage(self) -> None:
        envelope = Envelope(
            id="a",
            version=MAX_VERSION,
            first_version=1,
            write_id="w",
            recent_writes=("w",),
            first_write_id="w",
            data={},
        )
        assert decode(encode(envelope), "a") == f"its version is {MAX_VERSION}, after which there is none"


def patches(store: ScriptedStore, count: int) -> Act:
    """Others write to the record so often."""
    others: Resource[dict[str, Any]] = Resource(store, "notes")

    async def others_write(request: Request) -> None:
        for number in range(count):
            await others.patch("n", {"b": number})

    return others_write


class TestUncertainty:
    """Answers that are lost. What random walks find is in tests/simulated/test_fleets.py."""

    @pytest.mark.req("DB-2")
    async def test_a_create_that_cannot_be_seen_is_not_sent_twice_where_tombstones_are_removed(self) -> None:
        store = ScriptedStore()
        store.always("create", ANY, "lost")
        notes: Resource[dict[str, Any]] = Resource(store, "notes", clock=ScriptedClock())
        with pytest.raises(WriteUnknown, match="may have happened, or may still") as caught:
            await notes.insert({"a": 1})
        assert store.count("create") == 1
        assert caught.value.record_id is not None
        assert caught.value.record_id.startswith(DRAWN)

    @pytest.mark.req("DB-2")
    @pytest.mark.parametrize("conditional", [False, True])
    async def test_a_rejection_of_our_own_repeated_write_is_no_conflict(self, conditional: bool) -> None:
        """Something on the way sends each conditional write twice, and passes on the second answer."""
        store = ScriptedStore(conditional_delete=conditional)
        store.always(CONDITIONAL, ANY, "twice")
        notes: Resource[dict[str, Any]] = Resource(store, "notes", clock=ScriptedClock())
        first = await notes.insert({"a": 1}, id="n")
        second = await notes.update("n", {"a": 2}, if_version=first.version)
        assert second.version == first.version + 1
        await notes.delete("n", if_version=second.version)
        again = await notes.insert({"a": 3}, id="n")
        assert again.version == first.version + 3 or conditional
        with pytest.raises(RecordExists):
            await notes.insert({"a": 4}, id="n")

    @pytest.mark.req("DB-2")
    async def test_an_insert_that_was_refused_by_what_is_gone_since_is_not_sent_again_where_no_id_returns(self) -> None:
        """Something sends our create twice; before the second one a reader took the record and deleted it."""
        store = ScriptedStore(conditional_delete=False)
        store.always("create", ANY, "rejected")
        notes: Resource[dict[str, Any]] = Resource(store, "notes", clock=ScriptedClock())
        with pytest.raises(WriteUnknown):
            await notes.insert({"a": 1})
        assert store.count("create") == 1

    @pytest.mark.req("DB-2")
    @pytest.mark.parametrize("lands", [True, False])
    async def test_an_insert_without_an_answer_is_told_however_often_the_key_was_written(self, lands: bool) -> None:
        """Our create gets no answer; others write many times before we look."""
        store = ScriptedStore(conditional_delete=False)
        notes: Resource[dict[str, Any]] = Resource(store, "notes", clock=ScriptedClock())
        others: Resource[dict[str, Any]] = Resource(store, "notes")

        async def others_write(request: Request) -> None:
            if not lands:
                await others.insert({"a": 0}, id="n")
            for number in range(2 * RECENT_WRITES):
                await others.patch("n", {"b": number})

        store.on("create", ANY, After(others_write, "kept" if lands else "lost"))
        if lands:
            assert (await notes.insert({"a": 1}, id="n")).data == {"a": 1}
        else:
            with pytest.raises(RecordExists):
                await notes.insert({"a": 1}, id="n")

    @pytest.mark.req("DB-2")
    async def test_a_write_that_was_overwritten_meanwhile_is_recognised(self) -> None:
        """Our update lands, its answer is lost, and others write before we look."""
        store = ScriptedStore(conditional_delete=False)
        notes: Resource[dict[str, Any]] = Resource(store, "notes", clock=ScriptedClock())
        first = await notes.insert({"a": 1}, id="n")
        store.on("replace", ANY, After(patches(store, 3), "kept"))
        updated = await notes.update("n", {"a": 2}, if_version=first.version)
        assert updated.version == first.version + 1
        assert (await notes.get("n")).data == {"a": 2, "b": 2}
        assert (await notes.get("n")).version == first.version + 4

    @pytest.mark.req("DB-2")
    async def test_one_that_too_many_have_overwritten_is_unknown(self) -> None:
        store = ScriptedStore(conditional_delete=False)
        notes: Resource[dict[str, Any]] = Resource(store, "notes", clock=ScriptedClock())
        first = await notes.insert({"a": 1}, id="n")
        store.on("replace", ANY, After(patches(store, RECENT_WRITES + 1), "lost"))
        with pytest.raises(WriteUnknown):
            await notes.update("n", {"a": 2}, if_version=first.version)
