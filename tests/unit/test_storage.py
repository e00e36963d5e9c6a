"""A plugin's own keys: DB-3."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.database.storage import (
    HISTORY,
    LEAST_SWEEP_AFTER,
    Page,
    PluginStorage,
    StorageEntry,
    StorageRecord,
)
from tenure.database.time import StoreTime
from tenure.errors import (
    BodyTooLarge,
    ConfigError,
    Conflict,
    Damaged,
    InvalidKey,
    SchemaTooNew,
    StoreUnavailable,
    WriteUnknown,
)
from tenure.store import Metered, Rejected, Store, Stored, open_store
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock
from tests.support.clock import ScriptedClock
from tests.support.store import ANY, CONDITIONAL, After, Request, ScriptedStore
from tests.unit.leases import numbered

T = TypeVar("T")

VALUES: list[Any] = [None, 0, 1.5, "text", "", [], {}, [1, [2, {"a": None}]], {"ü": "☃"}, True, 2**70]
TEXT = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=20).filter(str.isprintable)


def storage_of(store: Store, slug: str = "p", name: str = "n", **options: Any) -> PluginStorage:
    return PluginStorage(store, slug, name, **options)


@pytest.fixture(params=["memory", "directory"])
async def store(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> AsyncIterator[Store]:
    async with open_store(url_of(request.param)) as opened:
        yield opened


@pytest.fixture
def storage(store: Store) -> PluginStorage:
    return storage_of(store)


class Timed:
    """Storage on a memory store, both on one clock that the test moves."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.clock.advance(0.123456)
        self.store = MemoryStore(clock=self.clock)

    def storage(self, host: SimulatedClock | None = None, **options: Any) -> PluginStorage:
        return storage_of(self.store, clock=host or self.clock, draw_id=numbered(f"{id(host)}-"), **options)


@pytest.fixture
def timed() -> Timed:
    return Timed()


async def raw(store: Store, key: str) -> dict[str, Any]:
    stored = await store.get(f"plugin=p/name=n/storage/{key}")
    assert isinstance(stored, Stored)
    found: dict[str, Any] = json.loads(stored.body)
    return found


async def keys_of(storage: PluginStorage, prefix: str = "", **options: Any) -> list[str]:
    return [entry.key for entry in (await storage.list(prefix, **options)).entries]


# Values


@pytest.mark.req("DB-3")
@pytest.mark.parametrize("value", VALUES)
async def test_a_value_comes_back(storage: PluginStorage, value: Any) -> None:
    assert await storage.get("k") is None
    version = await storage.set("k", value)
    assert await storage.get("k") == value
    assert await storage.get_entry("k") == StorageEntry("k", value, version)


class Point(msgspec.Struct):
    x: int
    label: str = ""


async def test_a_value_of_a_type_comes_back_as_one(storage: PluginStorage) -> None:
    await storage.set("k", Point(1, "a"))
    assert await storage.get("k", Point) == Point(1, "a")
    assert await storage.get("k") == {"x": 1, "label": "a"}
    assert (await storage.list(kind=Point)).entries[0].value == Point(1, "a")
    await storage.set("k", {"x": "no number"})
    with pytest.raises(Damaged, match=r"'k' cannot be read as Point.*x"):
        await storage.get("k", Point)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [object(), math.nan, {"a": [math.inf]}, "\ud800", {(1, 2): 3}, deep(5000), "x" * 1_100_000, {"a": b"x" * 800_000}],
    ids=["object", "nan", "inf", "surrogate", "dict key", "deep", "long", "long bytes"],
)
async def test_a_value_that_cannot_be_kept_is_refused_before_anything_is_sent(value: Any) -> None:
    store = Metered(MemoryStore())
    storage = storage_of(store)
    for call in (
        storage.set("k", value),
        storage.set_if_not_exists("k", value),
        storage.set_if_version("k", value, 1),
        storage.set_many({"good": 1, "k": value}),
    ):
        with pytest.raises(ConfigError, match="value for 'k'"):
            await call
    assert store.usage().total == 0


class Verb(StrEnum):
    GET = "get"


class Pair(NamedTuple):
    left: int
    right: int


class Box(msgspec.Struct, Generic[T]):
    inner: T


class Unequal(msgspec.Struct, eq=False):
    x: int


@dataclass
class Task:
    at: datetime
    tags: tuple[str, ...] = ()
    more: Any = None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"x", r"it is a bytes, and would come back as a str: give text, such as base64"),
        ({"a": [1, bytearray(b"x")]}, r"its \['a'\]\[1\] is a bytearray, and would come back as a str: give text"),
        ((1, 2), r"it is a tuple, and would come back as a list: give a list, list\(value\)"),
        ({"a": {1, 2}}, r"its \['a'\] is a set, and would come back as a list: give a list, such as sorted"),
        ({1: 2}, r"it has the key 1 \(int\), which would come back as text: give text keys"),
        ([{"a": {2.5: 2}}], r"its \[0\]\['a'\] has the key 2.5 \(float\)"),
        (datetime(2026, 1, 1, tzinfo=UTC), r"it is a datetime, .* give text, value.isoformat\(\)"),
        ({"a": Decimal("1.5")}, r"its \['a'\] is a Decimal, .* a msgspec.Struct with a field of this type"),
        (Task(datetime(2026, 1, 1, tzinfo=UTC), more=b"x"), "it is a Task, which would not come back .*declare each"),
        ([Point("x")], r"its \[0\] is a Point, .*Expected `int`, got `str`.*: declare each field"),  # type: ignore[arg-type]
    ],
)
async def test_a_value_that_would_come_back_as_another_is_refused(value: Any, told: str) -> None:
    """Silently, bytes became base64 text, sets and tuples lists, and number keys text."""
    store = Metered(MemoryStore())
    with pytest.raises(ConfigError, match=f"^value for 'k' would not come back as it is: {told}"):
        await storage_of(store).set("k", value)
    assert store.usage().total == 0


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Task(datetime(2026, 1, 1, tzinfo=UTC), ("a", "b"), {"x": [1]}), Task),
        (Pair(1, 2), Pair),
        ([Point(1, "a"), Point(2)], list[Point]),
        ({"a": Pair(1, 2)}, dict[str, Pair]),
        (Box(Point(1)), Box[Point]),
    ],
)
async def test_a_value_whose_type_says_what_it_is_is_taken(value: Any, kind: Any) -> None:
    storage = storage_of(MemoryStore())
    await storage.set("k", value)
    assert await storage.get("k", kind) == value


async def test_a_value_that_equals_nothing_is_taken() -> None:
    storage = storage_of(MemoryStore())
    await storage.set("k", Unequal(1))
    assert (await storage.get("k", Unequal)).x == 1


async def test_an_enum_that_is_text_comes_back_equal() -> None:
    storage = storage_of(MemoryStore())
    await storage.set("k", [Verb.GET])
    assert await storage.get("k") == [Verb.GET]


ANY_TEXT = st.text(st.characters(blacklist_categories=("Cs",)))
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | ANY_TEXT | st.binary()


@given(
    value=st.recursive(
        PLAIN | st.frozensets(st.integers()),
        lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT | st.integers(), inner) | st.tuples(inner, inner),
        max_leaves=10,
    )
)
def test_what_is_taken_comes_back_equal(value: Any) -> None:
    storage = storage_of(MemoryStore())
    try:
        body = storage._encoded("k", value)
    except ConfigError:
        return
    assert msgspec.json.decode(body) == value


async def test_the_limit_of_a_value_can_be_set() -> None:
    store = MemoryStore()
    await storage_of(store, max_value_bytes=5 * 1024 * 1024).set("k", "x" * 4_000_000)
    assert len(await storage_of(store).get("k")) == 4_000_000
    with pytest.raises(ConfigError, match="max_value_bytes is 10"):
        await storage_of(store, max_value_bytes=10).set("k", "x" * 9)
    for limit in (0, 2**40, True):
        with pytest.raises(ConfigError, match="max_value_bytes"):
            storage_of(store, max_value_bytes=limit)


# Keys


@pytest.mark.req("DB-3")
async def test_instances_share_nothing(store: Store) -> None:
    storages = [
        storage_of(store, slug, name) for slug, name in [("p", "n"), ("p", "m"), ("q", "n"), ("p", "n/storage/a")]
    ]
    for number, storage in enumerate(storages):
        await storage.set("a/b", number)
    for number, storage in enumerate(storages):
        assert await storage.get("a/b") == number
        assert await keys_of(storage) == ["a/b"]
    await storages[0].delete("a/b")
    assert await storages[1].get("a/b") == 1


@settings(max_examples=60, deadline=None)
@given(names=st.lists(st.lists(TEXT, min_size=1, max_size=3).map("/".join), min_size=1, max_size=8, unique=True))
def test_any_printable_text_is_a_key(names: list[str]) -> None:
    names = [name for name in names if all(name.split("/"))]

    async def check() -> None:
        storage = storage_of(MemoryStore())
        for name in names:
            await storage.set(name, name)
        for name in names:
            assert await storage.get(name) == name
        assert sorted(await keys_of(storage)) == sorted(names)
        for name in names:
            for end in range(1, len(name)):
                prefix = name[:end]
                expected = sorted(other for other in names if other.startswith(prefix))
                assert sorted(await keys_of(storage, prefix)) == expected

    asyncio.run(check())


@pytest.mark.parametrize("key", ["", "/", "a/", "/a", "a//b", "line\nbreak", "\x00", "x" * 900, "☃" * 80, 7, None])
async def test_what_is_no_key_is_refused(key: Any) -> None:
    store = Metered(MemoryStore())
    storage = storage_of(store)
    for call in (storage.get(key), storage.set(key, 1), storage.delete(key), storage.get_many(["a", key])):
        with pytest.raises(InvalidKey):
            await call
    assert store.usage().total == 0


@pytest.mark.parametrize(
    ("slug", "name", "field"), [("", "n", "slug"), ("a/b", "n", "slug"), ("p", "", "name"), ("p", "x" * 65, "name")]
)
def test_what_is_no_instance_is_refused(slug: str, name: str, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        storage_of(MemoryStore(), slug, name)


async def test_keys_are_not_given_as_one_text(storage: PluginStorage) -> None:
    with pytest.raises(ConfigError, match="keys is the text"):
        await storage.get_many("abc")


# Conditions


@pytest.mark.req("DB-3")
async def test_versions_rise_through_delete_and_all(storage: PluginStorage) -> None:
    first = await storage.set("k", 1)
    second = await storage.set("k", 1)
    third = await storage.set_if_version("k", 2, second)
    assert first < second < third
    assert await storage.delete("k")
    fourth = await storage.set_if_not_exists("k", 3)
    assert fourth is not None
    assert fourth > third + 1
    for stale in (first, second, third):
        with pytest.raises(Conflict, match="nothing was written"):
            await storage.set_if_version("k", "stale", stale)
    assert await storage.get("k") == 3


@pytest.mark.req("DB-3")
async def test_if_not_exists(storage: PluginStorage) -> None:
    assert await storage.set_if_not_exists("k", 1)
    assert await storage.set_if_not_exists("k", 2) is None
    assert await storage.get("k") == 1
    await storage.delete("k")
    assert await storage.set_if_not_exists("k", 3)
    assert await storage.get("k") == 3


@pytest.mark.req("DB-3")
async def test_of_many_at_once_one_wins(store: Store) -> None:
    storages = [storage_of(store) for _ in range(12)]
    told = await asyncio.gather(*(storage.set_if_not_exists("k", n) for n, storage in enumerate(storages)))
    (winner,) = [n for n, version in enumerate(told) if version]
    assert await storages[0].get("k") == winner


@pytest.mark.req("DB-3")
async def test_no_update_is_lost(store: Store) -> None:
    await storage_of(store).set("k", 0)

    async def count_up(storage: PluginStorage) -> None:
        for _ in range(5):
            while True:
                entry = await storage.get_entry("k")
                assert entry is not None
                await asyncio.sleep(0)
                try:
                    await storage.set_if_version("k", entry.value + 1, entry.version)
                    break
                except Conflict:
                    continue

    await asyncio.gather(*(count_up(storage_of(store)) for _ in range(6)))
    assert await storage_of(store).get("k") == 30


async def test_sets_at_once_all_get_through(store: Store) -> None:
    versions = await asyncio.gather(*(storage_of(store).set("k", n) for n in range(16)))
    assert sorted(versions) == list(range(min(versions), min(versions) + 16))


@pytest.mark.parametrize("version", [None, True, "1", 1.0])
async def test_what_is_no_version_is_refused(storage: PluginStorage, version: Any) -> None:
    with pytest.raises(ConfigError, match=r"version is .*set_if_not_exists"):
        await storage.set_if_version("k", 1, version)


# Deleting


@pytest.mark.req("DB-3")
async def test_delete_leaves_a_tombstone_that_nobody_sees(store: Store, storage: PluginStorage) -> None:
    assert not await storage.delete("k")
    await storage.set("k", "secret")
    assert await storage.delete("k")
    assert not await storage.delete("k")
    assert await storage.get("k") is None
    assert await storage.get_entry("k") is None
    assert await keys_of(storage) == []
    left = await raw(store, "k")
    assert left["deleted"]
    assert left["value"] is None
    with pytest.raises(Conflict, match="is gone"):
        await storage.set_if_version("k", 1, left["version"])


@pytest.mark.req("DB-3")
async def test_delete_of_one_version(storage: PluginStorage) -> None:
    first = await storage.set("k", 1)
    second = await storage.set("k", 2)
    with pytest.raises(Conflict):
        await storage.delete("k", version=first)
    assert await storage.get("k") == 2
    assert await storage.delete("k", version=second)
    with pytest.raises(Conflict):
        await storage.delete("k", version=second)


# Time to live


@pytest.mark.req("DB-3")
async def test_what_has_expired_is_absent(timed: Timed) -> None:
    storage = timed.storage()
    await storage.set("k", 1, ttl=30)
    await storage.set("stays", 1)
    entry = await storage.get_entry("k")
    assert entry is not None
    assert entry.expires_at == pytest.approx(1_700_000_000 + 30.1, abs=0.1)
    timed.clock.advance(29)
    assert await storage.get("k") == 1
    assert await keys_of(storage) == ["k", "stays"]
    timed.clock.advance(2)
    assert await storage.get("k") is None
    assert await storage.get_entry("k") is None
    assert await keys_of(storage) == ["stays"]
    assert not await storage.delete("k")
    with pytest.raises(Conflict, match="is gone"):
        await storage.set_if_version("k", 2, entry.version)
    again = await storage.set_if_not_exists("k", 2)
    assert again == entry.version + 1
    timed.clock.advance(1000)
    assert await storage.get("k") == 2, "a value without ttl stays"


@pytest.mark.req("DB-3")
async def test_ttl_begins_anew_with_each_write(timed: Timed) -> None:
    storage = timed.storage()
    version = await storage.set("k", 1, ttl=30)
    timed.clock.advance(20)
    await storage.set_if_version("k", 2, version, ttl=30)
    timed.clock.advance(20)
    assert await storage.get("k") == 2


@pytest.mark.req("DB-3")
async def test_no_hosts_wall_clock_makes_it_live_longer_or_shorter(timed: Timed) -> None:
    """One host is a day behind, another a day ahead; then both are set right, or otherwise wrong."""
    hosts = [SimulatedClock(), SimulatedClock()]
    behind, ahead = (timed.storage(host) for host in hosts)
    hosts[0].step_wall(-86_400)
    hosts[1].step_wall(86_400)
    await behind.set("a", 1, ttl=100)
    await ahead.set("b", 1, ttl=100)

    def advance(seconds: float) -> None:
        for clock in (timed.clock, *hosts):
            clock.advance(seconds)

    async def seen() -> list[Any]:
        return [await storage.get(key) for storage in (behind, ahead) for key in "ab"]

    advance(98)
    assert await seen() == [1, 1, 1, 1]
    advance(4)
    assert await seen() == [None, None, None, None]
    hosts[0].step_wall(-86_400)
    hosts[1].step_wall(-3 * 86_400)
    advance(300)  # measured again
    assert await seen() == [None, None, None, None]


async def test_time_is_only_asked_for_where_something_expires() -> None:
    store = Metered(MemoryStore())
    storage = storage_of(store)
    await storage.set("k", 1)
    await storage.get("k")
    assert "list" not in store.usage().requests
    await storage.set("k", 1, ttl=5)
    await storage.get("k")
    assert store.usage().requests["list"] == {"ok": 1}


async def test_two_storages_may_share_a_clock() -> None:
    store = Metered(MemoryStore())
    time = StoreTime(store)
    for name in "abc":
        storage = storage_of(store, name=name, time=time)
        assert storage.time is time
        await storage.set("k", 1, ttl=5)
    assert store.usage().requests["list"] == {"ok": 1}


@pytest.mark.parametrize("ttl", [0, -1, True, math.nan, math.inf, 11 * 365.25 * 86_400, "5"])
async def test_a_ttl_that_means_nothing_is_refused(ttl: Any) -> None:
    store = Metered(MemoryStore())
    storage = storage_of(store)
    for call in (
        storage.set("k", 1, ttl=ttl),
        storage.set_if_not_exists("k", 1, ttl=ttl),
        storage.set_if_version("k", 1, 1, ttl=ttl),
        storage.set_many({"k": 1}, ttl=ttl),
    ):
        with pytest.raises(ConfigError, match="ttl is"):
            await call
    assert store.usage().total == 0


# Listing


@pytest.mark.req("DB-3")
async def test_pages(storage: PluginStorage) -> None:
    names = [f"jobs/{number:03d}" for number in range(45)]
    await storage.set_many({name: name for name in (*names, "jobs", "jobs2/x", "other")})
    await storage.delete_many(names[10:30])
    page = await storage.list("jobs/", limit=7)
    pages: list[Page] = [page]
    while page.after is not None:
        page = await storage.list("jobs/", limit=7, after=page.after)
        pages.append(page)
    assert [entry.key for page in pages for entry in page.entries] == names[:10] + names[30:]
    assert all(len(page.entries) == 7 for page in pages[:-1])
    assert await keys_of(storage, "job") == ["jobs", *names[:10], *names[30:], "jobs2/x"]
    assert await keys_of(storage, "jobs/00") == names[:10]
    assert await keys_of(storage, "j", after="jobs/035") == [*names[36:], "jobs2/x"]
    assert await keys_of(storage, "nothing/") == []
    assert await keys_of(storage, "o", after="a") == ["other"]


@pytest.mark.parametrize("limit", [0, 1001, True, 1.5])
async def test_a_limit_that_means_nothing_is_refused(storage: PluginStorage, limit: Any) -> None:
    with pytest.raises(ConfigError, match="limit is"):
        await storage.list(limit=limit)


@pytest.mark.parametrize("prefix", ["/", "a//", "\n/", 7])
async def test_a_prefix_that_no_key_has_is_refused(storage: PluginStorage, prefix: Any) -> None:
    with pytest.raises(InvalidKey):
        await storage.list(prefix)


# Batches


@pytest.mark.req("DB-3")
async def test_a_batch_says_what_became_of_each_key() -> None:
    store = ScriptedStore()
    store.always("get", "*unread", "lost")
    store.always("create", "*unsaid", "lost")
    storage = storage_of(store, clock=ScriptedClock())
    names = [f"k{number:02d}" for number in range(40)]
    written = await storage.set_many({name: name for name in (*names, "unread", "unsaid")})
    assert set(written.done) == set(names)
    assert {key: type(error) for key, error in written.failed.items()} == {
        "unread": StoreUnavailable,
        "unsaid": WriteUnknown,
    }
    with pytest.raises(ExceptionGroup, match="2 of 42 keys failed: 'unread', 'unsaid'"):
        written.check()
    read = await storage.get_many([*names, "unread", "absent", "absent"])
    assert [entry.value for entry in read.done.values() if entry] == names
    assert read.done["absent"] is None
    assert list(read.failed) == ["unread"]
    gone = await storage.delete_many([*names[:5], "absent"])
    assert gone.check() == {**dict.fromkeys(names[:5], True), "absent": False}


async def test_a_batch_has_a_limit(storage: PluginStorage) -> None:
    with pytest.raises(ConfigError, match="10001 keys"):
        await storage.get_many(f"k{number}" for number in range(10_001))


# What the store does not say


@pytest.mark.req("DB-3")
@pytest.mark.parametrize("fault", ["kept", "lost", "late", "twice"])
async def test_a_fault_is_settled(fault: str) -> None:
    store = ScriptedStore()
    storage = storage_of(store, clock=ScriptedClock())
    versions = []
    for act in (
        lambda: storage.set("k", 1),
        lambda: storage.set("k", 2),
        lambda: storage.set_if_version("k", 3, versions[-1]),
        lambda: storage.delete("k"),
        lambda: storage.set_if_not_exists("k", 4),
    ):
        store.on(CONDITIONAL, ANY, fault)
        versions.append(await act())
        now = await raw(store, "k")
        assert all(isinstance(landed, Rejected) for landed in await store.land())
        assert await raw(store, "k") == now
    assert versions[3] is True
    assert versions == [versions[0] + n if n != 3 else True for n in range(5)]
    assert await storage.get("k") == 4


@pytest.mark.req("DB-3")
@pytest.mark.parametrize("others", [1, HISTORY - 1, HISTORY + 5])
async def test_a_write_that_was_overwritten_meanwhile_is_still_known(others: int) -> None:
    """Up to as many later writes as a record remembers; beyond that nobody can say, and that is said."""

    async def others_write(request: Request) -> None:
        for number in range(others):
            await other.set("k", number)

    store = ScriptedStore()
    storage, other = storage_of(store, clock=ScriptedClock()), storage_of(store, clock=ScriptedClock())
    before = await storage.set("k", "before")
    store.on(CONDITIONAL, ANY, After(others_write, "kept"))
    if others <= HISTORY:
        assert await storage.set("k", "ours") == before + 1
    else:
        with pytest.raises(WriteUnknown, match="may have happened"):
            await storage.set("k", "ours")
    store.on(CONDITIONAL, ANY, After(others_write, "lost"))
    before_that = (await storage.get_entry("k")).version  # type: ignore[union-attr]
    if others <= HISTORY:
        with pytest.raises(Conflict, match="nothing was written"):
            await storage.set_if_version("k", "ours", before_that)
    else:
        with pytest.raises(WriteUnknown):
            await storage.set_if_version("k", "ours", before_that)


async def test_a_store_that_never_says_gives_unknown() -> None:
    store = ScriptedStore()
    storage = storage_of(store, clock=ScriptedClock())
    store.always(CONDITIONAL, ANY, "lost")
    with pytest.raises(WriteUnknown, match=r"'k' in plugin=p/name=n/storage/.*may have happened"):
        await storage.set("k", 1)


async def test_a_key_that_is_always_written_by_others_is_given_up() -> None:
    async def contest(request: Request) -> None:
        found = await store.inner.get(request.key)
        await store.inner.replace(request.key, await other_body(), found.version)

    store = ScriptedStore()
    store.always("replace", ANY, contest)
    storage = storage_of(store, clock=ScriptedClock())
    await storage.set("k", 0)

    async def other_body() -> bytes:
        now = await raw(store, "k")
        record = msgspec.json.decode(msgspec.json.encode(now), type=StorageRecord)
        return msgspec.json.encode(
            msgspec.structs.replace(
                record,
                write_id=f"other-{record.version}",
                version=record.version + 1,
                history=record.writes[-HISTORY:],
            )
        )

    with pytest.raises(Conflict, match="so often by others"):
        await storage.set("k", 1)


# What others left there


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"{}",
        b"[" * 3000,
        b'{"tenure":"storage"}',
        b'{"tenure":"fenced","writeId":"w","version":1}',
        b'{"tenure":"storage","writeId":"w","version":0}',
        b'{"tenure":"storage","writeId":"w","version":1,"schemaVersion":0}',
        b'{"tenure":"storage","writeId":"w","version":1,"expiresAtMs":-1}',
    ],
)
async def test_damage_is_reported_and_left_alone(body: bytes) -> None:
    store = MemoryStore()
    storage = storage_of(store)
    key = "plugin=p/name=n/storage/k"
    await store.put(key, body)
    await storage.set("good", 1)
    for call in (storage.get("k"), storage.set("k", 1), storage.set_if_not_exists("k", 1), storage.delete("k")):
        with pytest.raises(Damaged, match="is no record of this storage"):
            await call
    page = await storage.list()
    assert [entry.key for entry in page.entries] == ["good"]
    assert page.unreadable == (key,)
    stored = await store.get(key)
    assert isinstance(stored, Stored)
    assert stored.body == body


async def test_a_value_that_is_no_json_is_damage() -> None:
    store = MemoryStore()
    await store.put("plugin=p/name=n/storage/k", b'{"tenure":"storage","writeId":"w","version":1,"value":[1,}')
    with pytest.raises(Damaged):
        await storage_of(store).get("k")


async def test_a_newer_form_is_left_alone() -> None:
    store = MemoryStore()
    storage = storage_of(store)
    await store.put("plugin=p/name=n/storage/k", b'{"tenure":"storage","schemaVersion":2,"new":true}')
    for call in (storage.get("k"), storage.set("k", 1), storage.delete("k")):
        with pytest.raises(SchemaTooNew):
            await call
    assert (await storage.list()).unreadable == ("plugin=p/name=n/storage/k",)


async def test_names_of_other_tools_are_named() -> None:
    store = MemoryStore()
    await store.put("plugin=p/name=n/storage/~zz", b"x")
    page = await storage_of(store).list()
    assert page == Page((), None, ("plugin=p/name=n/storage/~zz",))


@pytest.mark.parametrize("foreign", ["a~2fb", "a~0ab"])
async def test_names_that_only_look_like_keys_neither_stop_nor_turn_back_a_listing(foreign: str) -> None:
    store = MemoryStore()
    storage = storage_of(store)
    await storage.set_many({"a/b": 1, "z": 2})
    await store.put(f"plugin=p/name=n/storage/{foreign}", b"x")
    seen: list[str] = []
    page = await storage.list(limit=1)
    for _ in range(5):
        seen += [entry.key for entry in page.entries]
        if page.after is None:
            break
        page = await storage.list(limit=1, after=page.after)
    assert seen == ["a/b", "z"]
    assert (await storage.list()).unreadable == (f"plugin=p/name=n/storage/{foreign}",)


async def test_what_is_too_large_to_be_read_is_damage() -> None:
    store = ScriptedStore()
    store.always("get", ANY, BodyTooLarge("it has 99,999,999 bytes"))
    with pytest.raises(Damaged, match="99,999,999 bytes"):
        await storage_of(store).set("k", 1)


async def test_a_version_that_can_have_no_next_is_damage() -> None:
    store = MemoryStore()
    body = json.dumps({"tenure": "storage", "writeId": "w", "version": 2**62, "value": 1}).encode()
    await store.put("plugin=p/name=n/storage/k", body)
    with pytest.raises(Damaged, match="highest version"):
        await storage_of(store).set("k", 1)


def test_a_name_that_makes_too_long_a_key_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="takes 198 bytes when encoded, and the limit is 195"):
        storage_of(MemoryStore(), name="ä" * 33)


# Sweeping


@pytest.mark.req("DB-3")
async def test_a_sweep_removes_what_has_long_been_gone(timed: Timed) -> None:
    storage = timed.storage()
    await storage.set_many({"deleted": 1, "stays": 1})
    await storage.set("expired", 1, ttl=10)
    await storage.set("lives", 1, ttl=10 * LEAST_SWEEP_AFTER)
    await storage.delete("deleted")
    timed.clock.advance(LEAST_SWEEP_AFTER / 2)
    await storage.set("late", 1)
    await storage.delete("late")
    assert (await storage.sweep(older_than=LEAST_SWEEP_AFTER)).removed == 0
    timed.clock.advance(LEAST_SWEEP_AFTER / 2 + 20)
    swept = await storage.sweep(older_than=LEAST_SWEEP_AFTER)
    assert (swept.removed, swept.after) == (2, None)
    left = [entry.key.removeprefix("plugin=p/name=n/storage/") async for entry in timed.store.list("plugin=p/")]
    assert left == ["late", "lives", "stays"]
    assert await storage.set_if_not_exists("deleted", 2)


@pytest.mark.req("DB-3")
async def test_a_version_from_before_a_sweep_is_never_good_again(timed: Timed) -> None:
    storage = timed.storage()
    version = await storage.set("k", 1)
    await storage.delete("k")
    timed.clock.advance(2 * LEAST_SWEEP_AFTER)
    assert (await storage.sweep(older_than=LEAST_SWEEP_AFTER)).removed == 1
    assert version not in {await storage.set("k", number) for number in range(50)}


async def test_a_sweep_goes_on_where_it_ended(timed: Timed) -> None:
    storage = timed.storage()
    names = [f"k{number:02d}" for number in range(40)]
    await storage.set_many(dict.fromkeys(names, 1))
    await storage.delete_many(names)
    timed.clock.advance(2 * LEAST_SWEEP_AFTER)
    first = await storage.sweep(older_than=LEAST_SWEEP_AFTER, limit=20)
    assert first.after is not None
    second = await storage.sweep(older_than=LEAST_SWEEP_AFTER, after=first.after)
    assert second.after is None
    assert first.removed + second.removed == 40


async def test_a_record_that_was_refreshed_since_the_listing_is_not_swept(timed: Timed) -> None:
    storage = timed.storage()
    await storage.set("k", 1)
    await storage.delete("k")
    timed.clock.advance(2 * LEAST_SWEEP_AFTER)
    get = timed.store.get

    async def get_late(key: str, **options: Any) -> Any:
        timed.store.get = get  # type: ignore[method-assign]
        await storage.set("k", 2)
        await storage.delete("k")
        return await get(key, **options)

    await storage.time.now()
    timed.store.get = get_late  # type: ignore[method-assign]
    assert (await storage.sweep(older_than=LEAST_SWEEP_AFTER)).removed == 0
    assert (await raw(timed.store, "k"))["deleted"]


async def test_where_nothing_can_be_removed_on_condition_nothing_is() -> None:
    store = MemoryStore()
    store.info = msgspec.structs.replace(store.info, conditional_delete=False)
    metered = Metered(store)
    assert (await storage_of(metered).sweep()).removed == 0
    assert metered.usage().total == 0


@pytest.mark.parametrize("older_than", [0, 3599, math.nan, math.inf, True])
async def test_a_sweep_that_is_too_early_is_refused(storage: PluginStorage, older_than: float) -> None:
    with pytest.raises(ConfigError, match="older_than is"):
        await storage.sweep(older_than=older_than)
