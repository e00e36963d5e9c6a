"""One suite for every store: what `tenure.store.protocol` promises, asked of each in the same words."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import obstore
import pytest

from lab.endpoint import S3Endpoint
from tenure.errors import BodyTooLarge, InvalidKey, NoConditionalDelete, NotFound, ReadOnlyStore, StoreError
from tenure.store import (
    Access,
    Applied,
    Entry,
    Faults,
    Faulty,
    Metered,
    NotModified,
    Outcome,
    Prefixed,
    Rejected,
    Store,
    Stored,
    Version,
    decode_name,
    encode_name,
    open_store,
)
from tenure.store.directory.layout import file_of
from tenure.store.protocol import MAX_BODY_BYTES
from tests.integration.settling import Settling

KINDS = [
    "memory",
    "directory",
    "ministack",
    "gcs",
    "faulty",
    "prefixed",
    "metered",
    pytest.param("ceph", marks=pytest.mark.servers),
    pytest.param("azurite", marks=pytest.mark.servers),
]
HOLDS_FOREIGN_OBJECTS = [kind for kind in KINDS if kind not in ("memory", "faulty", "prefixed", "metered")]
ALL_FAULTS = Faults(
    lost_request=0.1, lost_reply=0.1, late_landing=0.1, repeated=0.1, failed_read=0.1, late_seconds=0.005
)
WAYWARD_NAMES = (
    *("🦀", "two words", "..", ".", "100%", "a/b", "~2f", "ünïcödé", "\x00\x1f\x7f", "a\\b", "C:", "*?<>|", "."),
    *("-", "_", "+tmp", "a@", "name=value", "Ünder the 🌉/..", "\n", " ", "CON", "x" * 200, "%2e%2e", "&;'\""),
)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def store(kind: str, url_of: Callable[[str], str]) -> AsyncIterator[Store]:
    async with _opened(kind, url_of) as opened:
        yield opened


@contextlib.asynccontextmanager
async def _opened(kind: str, url_of: Callable[[str], str]) -> AsyncIterator[Store]:
    inner = "memory" if kind in ("faulty", "prefixed", "metered") else kind
    async with open_store(url_of(inner), timeout=20) as opened:
        if kind == "faulty":
            faulty = Faulty(opened, ALL_FAULTS, random=Random(20))
            yield Settling(faulty)
            await faulty.drain()
        elif kind == "prefixed":
            yield Prefixed(opened, "some/folder/")
        elif kind == "metered":
            yield Metered(opened)
        else:
            yield opened


def applied(outcome: Outcome) -> Version:
    assert isinstance(outcome, Applied), outcome
    return outcome.version


async def body_of(store: Store, key: str) -> bytes:
    found = await store.get(key)
    assert isinstance(found, Stored)
    return found.body


async def entries(store: Store, prefix: str = "", after: str | None = None) -> list[Entry]:
    return [entry async for entry in store.list(prefix, after=after)]


async def keys(store: Store, prefix: str = "", after: str | None = None) -> list[str]:
    return [entry.key for entry in await entries(store, prefix, after)]


async def side_by_side(work: Iterable[Awaitable[object]], width: int = 32) -> None:
    """Do all of it, `width` at a time."""
    left = iter(work)

    async def take() -> None:
        for piece in left:
            await piece

    await asyncio.gather(*(take() for _ in range(width)))


class TestReading:
    async def test_a_body_and_its_version_come_from_one_get(self, store: Store) -> None:
        version = await store.put("a", b"one")
        found = await store.get("a")
        assert isinstance(found, Stored)
        assert found.body == b"one"
        assert found.version.matches(version)
        assert isinstance(await store.replace("a", b"two", found.version), Applied)

    async def test_a_missing_key_is_not_found_by_name(self, store: Store) -> None:
        with pytest.raises(NotFound, match="no/such") as caught:
            await store.get("no/such.key")
        assert caught.value.key == "no/such.key"

    async def test_a_missing_key_is_not_found_below_or_above_an_existing_one(self, store: Store) -> None:
        await store.put("a/b", b"x")
        for missing in ("a", "a/b/c", "a/bb", "a/B"):
            with pytest.raises(NotFound):
                await store.get(missing)

    async def test_a_conditional_get_answers_not_modified_until_it_is(self, store: Store) -> None:
        first = await store.put("a", b"one")
        unchanged = await store.get("a", unless=first)
        assert isinstance(unchanged, NotModified)
        assert unchanged.version.matches(first)
        second = await store.put("a", b"two")
        changed = await store.get("a", unless=first)
        assert isinstance(changed, Stored)
        assert changed.body == b"two"
        assert changed.version.matches(second)

    async def test_a_conditional_get_of_a_missing_key_is_not_found(self, store: Store) -> None:
        version = await store.put("a", b"one")
        with pytest.raises(NotFound):
            await store.get("b", unless=version)

    @pytest.mark.parametrize(
        "body", [b"", bytes(range(256)) * 4, b"\r\n\r\n", bytes(1024 * 1024)], ids=["empty", "bytes", "lines", "1MB"]
    )
    async def test_a_body_comes_back_as_it_was(self, store: Store, body: bytes) -> None:
        first = applied(await store.create("created", body))
        assert await body_of(store, "created") == body
        applied(await store.replace("created", body + b"!", first))
        assert await body_of(store, "created") == body + b"!"
        await store.put("put", body)
        assert await body_of(store, "put") == body
        assert {entry.key: entry.size for entry in await entries(store)} == {"created": len(body) + 1, "put": len(body)}


class TestWriting:
    async def test_create_happens_once(self, store: Store) -> None:
        applied(await store.create("a", b"first"))
        assert isinstance(await store.create("a", b"second"), Rejected)
        assert await body_of(store, "a") == b"first"

    async def test_replace_wants_the_current_version(self, store: Store) -> None:
        first = applied(await store.create("a", b"1"))
        second = applied(await store.replace("a", b"2", first))
        assert not first.matches(second)
        assert isinstance(await store.replace("a", b"stale", first), Rejected)
        assert await body_of(store, "a") == b"2"
        applied(await store.replace("a", b"3", second))
        assert await body_of(store, "a") == b"3"

    async def test_replace_of_a_missing_key_is_rejected_and_makes_nothing(self, store: Store) -> None:
        version = await store.put("other", b"x")
        assert isinstance(await store.replace("a", b"y", version), Rejected)
        assert await keys(store) == ["other"]

    async def test_replace_with_the_version_of_another_object_is_rejected(self, store: Store) -> None:
        await store.put("a", b"1")
        other = await store.put("b", b"2")
        assert isinstance(await store.replace("a", b"3", other), Rejected)
        assert await body_of(store, "a") == b"1"

    async def test_put_writes_whatever_is_there(self, store: Store) -> None:
        first = await store.put("a", b"1")
        second = await store.put("a", b"2")
        assert not first.matches(second)
        assert isinstance(await store.replace("a", b"3", first), Rejected)
        applied(await store.replace("a", b"3", second))

    async def test_versions_from_every_source_agree(self, store: Store) -> None:
        async def agree(version: Version) -> None:
            assert (await store.get("a")).version.matches(version)
            (listed,) = await entries(store)
            assert listed.version.matches(version)
            assert version.matches(listed.version)
            assert isinstance(await store.get("a", unless=listed.version), NotModified)

        created = applied(await store.create("a", b"created"))
        await agree(created)
        replaced = applied(await store.replace("a", b"replaced", created))
        await agree(replaced)
        await agree(await store.put("a", b"put"))
        assert not (await store.get("a")).version.matches(replaced)

    async def test_a_version_from_get_is_good_for_replace(self, store: Store) -> None:
        await store.put("a", b"1")
        for number in range(3):
            applied(await store.replace("a", b"x" * number, (await store.get("a")).version))

    async def test_after_a_delete_the_old_version_is_worthless(self, store: Store) -> None:
        version = await store.put("a", b"1")
        await store.delete("a")
        assert isinstance(await store.replace("a", b"2", version), Rejected)
        with pytest.raises(NotFound):
            await store.get("a")
        applied(await store.create("a", b"3"))

    async def test_of_many_creates_one_wins(self, store: Store) -> None:
        outcomes = await asyncio.gather(*(store.create("a", b"%d" % number) for number in range(32)))
        (winner,) = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Applied)]
        assert await body_of(store, "a") == b"%d" % winner

    async def test_of_many_replaces_of_one_version_one_wins(self, store: Store) -> None:
        version = await store.put("a", b"start")
        outcomes = await asyncio.gather(*(store.replace("a", b"%d" % number, version) for number in range(32)))
        (winner,) = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Applied)]
        assert await body_of(store, "a") == b"%d" % winner
        assert applied(outcomes[winner]).matches((await store.get("a")).version)

    async def test_creates_of_different_keys_do_not_disturb_each_other(self, store: Store) -> None:
        outcomes = await asyncio.gather(*(store.create(f"f{n % 4}/k{n}", b"%d" % n) for n in range(32)))
        assert all(isinstance(outcome, Applied) for outcome in outcomes)
        assert len(await keys(store)) == 32


class TestListing:
    async def test_nothing_is_an_empty_listing(self, store: Store) -> None:
        assert await keys(store) == []
        assert await keys(store, "no/such/folder/") == []
        await store.put("a", b"x")
        assert await keys(store, "a/") == []
        assert await keys(store, after="a") == []

    async def test_the_order_is_that_of_the_bytes(self, store: Store) -> None:
        names = [
            "a",
            "a-b",
            "a.b",
            "a/b",
            "a/b/c",
            "a/c",
            "a0",
            "a=b",
            "aB",
            "a_b",
            "ab",
            "a~",
            "A",
            "B",
            "b",
            "0",
            "~",
        ]
        await side_by_side(store.put(name, b"x") for name in names)
        assert await keys(store) == sorted(names)

    async def test_a_prefix_is_a_folder(self, store: Store) -> None:
        names = ["a", "a/x", "a/y/z", "ab/x", "a-b", "b/a/x", "A/x"]
        await side_by_side(store.put(name, b"x") for name in names)
        assert await keys(store, "a/") == ["a/x", "a/y/z"]
        assert await keys(store, "a/y/") == ["a/y/z"]
        assert await keys(store, "b/") == ["b/a/x"]
        with pytest.raises(InvalidKey, match="does not end in /"):
            await keys(store, "a")

    async def test_after_is_strict_and_need_not_exist(self, store: Store) -> None:
        names = ["a", "a/b", "a/c", "a/c/d", "ab", "b", "c/a"]
        await side_by_side(store.put(name, b"x") for name in names)
        for after in [*names, "0", "a/-", "a/bb", "a/c/-", "aa", "b/x", "zz"]:
            assert await keys(store, after=after) == [name for name in sorted(names) if name > after], after
        for after in ["a", "a/b", "a/c", "a/c/d", "a/d", "0", "zz"]:
            expected = [name for name in sorted(names) if name > after and name.startswith("a/")]
            assert await keys(store, "a/", after) == expected, after

    async def test_a_listing_goes_on_past_the_first_page(self, store: Store) -> None:
        names = [f"many/{number:05d}" for number in range(1100)]
        await side_by_side(store.put(name, b"%d" % index) for index, name in enumerate(names))
        await store.put("many-more", b"x")
        assert await keys(store, "many/") == names
        assert await keys(store, "many/", after=names[1049]) == names[1050:]
        assert await keys(store, "many/", after=names[0]) == names[1:]
        await store.delete(*names)
        assert await keys(store) == ["many-more"]

    async def test_an_entry_says_size_and_time(self, store: Store) -> None:
        before = datetime.now(UTC)
        await store.put("a", b"12345")
        await store.put("empty", b"")
        first, second = await entries(store)
        assert (first.key, first.size, second.key, second.size) == ("a", 5, "empty", 0)
        for entry in (first, second):
            assert entry.modified.tzinfo is not None
            # Whole seconds on some stores, and their clock is the one of this host.
            assert before - timedelta(seconds=2) <= entry.modified <= datetime.now(UTC) + timedelta(seconds=2)

    async def test_a_listing_may_be_left_early(self, store: Store) -> None:
        await side_by_side(store.put(f"k{number}", b"x") for number in range(5))
        async for entry in store.list():
            assert entry.key == "k0"
            break
        assert len(await keys(store)) == 5


class TestDeleting:
    async def test_many_at_once_also_missing_ones(self, store: Store) -> None:
        names = [f"d/{number}" for number in range(20)]
        await side_by_side(store.put(name, b"x") for name in names)
        await store.delete(*names[:10], "d/missing", "elsewhere/missing", "d/3/below")
        assert await keys(store) == sorted(names[10:])
        await store.delete(*names)
        assert await keys(store) == []

    async def test_a_missing_key(self, store: Store) -> None:
        await store.delete("never/was")
        await store.delete()
        await store.put("a", b"x")
        await store.delete("a")
        await store.delete("a")
        with pytest.raises(NotFound):
            await store.get("a")

    async def test_only_what_was_named(self, store: Store) -> None:
        await side_by_side(store.put(name, b"x") for name in ("a", "a/b", "a/b/c", "A", "ab"))
        await store.delete("a/b")
        assert await keys(store) == ["A", "a", "a/b/c", "ab"]


class TestDiscarding:
    """Removing only what has the expected version, where the store can; where it cannot it says so and does nothing."""

    async def test_what_has_the_version_goes_and_nothing_else(self, store: Store) -> None:
        first = applied(await store.create("a/k", b"one"))
        await store.put("a/j", b"x")
        if not store.info.conditional_delete:
            with pytest.raises(NoConditionalDelete, match="tombstone"):
                await store.discard("a/k", first)
            assert await body_of(store, "a/k") == b"one"
            return
        second = applied(await store.replace("a/k", b"two", first))
        assert isinstance(await store.discard("a/k", first), Rejected)
        assert await body_of(store, "a/k") == b"two"
        assert applied(await store.discard("a/k", second)).matches(second)
        with pytest.raises(NotFound):
            await store.get("a/k")
        assert await keys(store) == ["a/j"]
        assert isinstance(await store.discard("a/k", second), Rejected)

    async def test_what_comes_back_has_a_version_of_its_own(self, store: Store) -> None:
        if not store.info.conditional_delete:
            return
        seen = []
        for number in range(8):
            seen.append(applied(await store.create("k", b"same")))
            assert isinstance(await store.replace("k", b"x", seen[number - 1]), Rejected) or number == 0
            seen[-1] = (await store.get("k")).version  # type: ignore[union-attr]
            assert isinstance(await store.discard("k", seen[-1]), Applied)
        assert len({version.e_tag for version in seen}) == 8

    async def test_of_many_at_once_one_has_its_way(self, store: Store) -> None:
        if not store.info.conditional_delete:
            return
        version = applied(await store.create("k", b"x"))
        outcomes = await asyncio.gather(
            *(store.discard("k", version) for _ in range(8)), *(store.replace("k", b"y", version) for _ in range(8))
        )
        assert sum(isinstance(outcome, Applied) for outcome in outcomes) == 1


class TestNames:
    async def test_any_name_makes_a_key(self, store: Store) -> None:
        for name in set(WAYWARD_NAMES):
            applied(await store.create(f"n/{encode_name(name)}", name.encode()))
            assert await body_of(store, f"n/{encode_name(name)}") == name.encode()
        listed = await keys(store, "n/")
        assert {decode_name(key.removeprefix("n/")) for key in listed} == set(WAYWARD_NAMES)
        assert len(listed) == len(set(WAYWARD_NAMES))
        assert listed == sorted(listed)

    async def test_a_key_and_a_folder_of_the_same_name(self, store: Store) -> None:
        for key in ("a", "a/b", "a/b/c"):
            applied(await store.create(key, key.encode()))
        for key in ("a", "a/b", "a/b/c"):
            assert await body_of(store, key) == key.encode()
        assert await keys(store) == ["a", "a/b", "a/b/c"]
        assert await keys(store, "a/") == ["a/b", "a/b/c"]

    async def test_names_that_differ_only_in_case(self, store: Store) -> None:
        for key in ("a", "A", "aB", "Ab", "ab", "AB", "a/X", "A/x"):
            applied(await store.create(key, key.encode()))
        assert await keys(store) == sorted(("a", "A", "aB", "Ab", "ab", "AB", "a/X", "A/x"))
        for key in await keys(store):
            assert await body_of(store, key) == key.encode()

    async def test_the_longest_key(self, store: Store) -> None:
        # 596 characters: what remains of the limit when a test's own folder stands before it.
        key = "/".join(("X" * 198, "y" * 198, "Z" * 198))
        applied(await store.create(key, b"x"))
        assert await keys(store) == [key]
        assert await keys(store, key[:397] + "/") == [key]

    async def test_what_is_no_key_is_refused_before_it_is_sent(self, store: Store) -> None:
        version = await store.put("a", b"x")
        for key in ("", "/a", "a/", "a//b", "a/../b", ".", "a b", "ä", "a%20", "x" * 201, "a\\b"):
            await self._is_refused(store, key, version)
        assert await keys(store) == ["a"]

    async def _is_refused(self, store: Store, key: str, version: Version) -> None:
        with pytest.raises(InvalidKey):
            await store.get(key)
        with pytest.raises(InvalidKey):
            await store.put(key, b"x")
        with pytest.raises(InvalidKey):
            await store.create(key, b"x")
        with pytest.raises(InvalidKey):
            await store.replace(key, b"x", version)
        with pytest.raises(InvalidKey):
            await store.delete("a", key)


class TestLimits:
    async def test_a_body_over_the_limit_is_not_sent(self, store: Store) -> None:
        version = await store.put("a", b"x")
        huge = bytes(MAX_BODY_BYTES + 1)
        with pytest.raises(BodyTooLarge, match="64"):
            await store.put("a", huge)
        with pytest.raises(BodyTooLarge):
            await store.create("b", huge)
        with pytest.raises(BodyTooLarge):
            await store.replace("a", huge, version)
        assert await keys(store) == ["a"]
        assert await body_of(store, "a") == b"x"

    @pytest.mark.parametrize("kind", HOLDS_FOREIGN_OBJECTS)
    async def test_an_object_over_the_limit_is_not_read(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        await store.put("foreign", bytes(2000))
        monkeypatch.setattr("tenure.store.guard.MAX_BODY_BYTES", 1999)
        with pytest.raises(BodyTooLarge, match="another program put it there"):
            await store.get("foreign")
        (listed,) = await entries(store)
        assert listed.size == 2000

    async def test_a_huge_file_is_not_read(self, tmp_path: Path) -> None:
        async with open_store((tmp_path / "s").as_uri()) as store:
            await store.put("a", b"x")
            with (tmp_path / "s" / file_of("a")).open("wb") as file:
                file.truncate(MAX_BODY_BYTES + 1)
            with pytest.raises(BodyTooLarge, match="67,108,865"):
                await store.get("a")

    async def test_a_huge_object_on_s3_is_not_read(self, ministack: S3Endpoint) -> None:
        bucket = obstore.store.S3Store(
            "tests",
            endpoint=ministack.url,
            access_key_id=ministack.access_key,
            secret_access_key=ministack.secret_key,
            region=ministack.region,
            client_options={"allow_http": True},
        )
        await bucket.put_async("huge/object", bytes(MAX_BODY_BYTES + 1), use_multipart=False)
        try:
            async with open_store(ministack.store_url("tests", "huge")) as store:
                with pytest.raises(BodyTooLarge, match="67,108,865"):
                    await store.get("object")
        finally:
            await bucket.delete_async("huge/object")


class TestForeignObjects:
    async def test_other_tools_objects_are_left_out_of_a_listing(self, ministack: S3Endpoint) -> None:
        bucket = obstore.store.S3Store(
            "tests",
            endpoint=ministack.url,
            access_key_id=ministack.access_key,
            secret_access_key=ministack.secret_key,
            region=ministack.region,
            client_options={"allow_http": True},
        )
        for name in ("two words", "ünïcödé", "a+b", "plain"):
            await bucket.put_async(f"foreign/{name}", b"x")
        async with open_store(ministack.store_url("tests", "foreign")) as store:
            assert await keys(store) == ["plain"]

    async def test_other_peoples_files_are_left_out_of_a_listing(self, tmp_path: Path) -> None:
        async with open_store((tmp_path / "s").as_uri()) as store:
            await store.put("mine", b"x")
            for name in ("two words", "UPPER", "ünïcödé", "+odd", "x+", "x+zz", "a+0", ".hidden~1"):
                (tmp_path / "s" / name).write_bytes(b"x")
            (tmp_path / "s" / "folder").mkdir()
            (tmp_path / "s" / "folder" / "file").write_bytes(b"x")
            assert await keys(store) == [".hidden~1", "mine"]


class TestOpening:
    async def test_a_second_store_on_the_same_place_sees_the_first_ones_objects(
        self, kind: str, url_of: Callable[[str], str]
    ) -> None:
        url = url_of("memory" if kind in ("faulty", "prefixed", "metered") else kind)
        async with open_store(url, timeout=20) as one, open_store(url, timeout=20) as two:
            version = applied(await one.create("a", b"1"))
            assert isinstance(await two.create("a", b"2"), Rejected)
            applied(await two.replace("a", b"3", version))
            assert isinstance(await one.replace("a", b"4", version), Rejected)
            assert await body_of(one, "a") == b"3"

    async def test_read_only_reads_and_refuses_to_write(self, kind: str, url_of: Callable[[str], str]) -> None:
        url = url_of("memory" if kind in ("faulty", "prefixed", "metered") else kind)
        async with (
            open_store(url, timeout=20) as store,
            open_store(url, timeout=20, access=Access.READ_ONLY) as looking,
        ):
            version = await store.put("a", b"1")
            assert await body_of(looking, "a") == b"1"
            assert await keys(looking) == ["a"]
            for write in (
                looking.put("a", b"2"),
                looking.create("b", b"2"),
                looking.replace("a", b"2", version),
                looking.delete("a"),
            ):
                with pytest.raises(ReadOnlyStore):
                    await write

    async def test_a_closed_store_says_so(self, kind: str, url_of: Callable[[str], str]) -> None:
        async with open_store(url_of("memory" if kind in ("faulty", "prefixed", "metered") else kind)) as store:
            pass
        with pytest.raises(StoreError, match="is closed"):
            await store.get("a")
        with pytest.raises(StoreError, match="is closed"):
            await store.put("a", b"x")
        with pytest.raises(StoreError, match="is closed"):
            await keys(store)


async def test_every_fault_of_the_faulty_store_happened(url_of: Callable[[str], str]) -> None:
    """The suite above proves something about faults only if they do occur."""
    async with open_store(url_of("memory")) as memory:
        faulty = Faulty(memory, ALL_FAULTS, random=Random(20))
        settling = Settling(faulty)
        for number in range(100):
            version = applied(await settling.create(f"k{number}", b"1"))
            applied(await settling.replace(f"k{number}", b"2", version))
        await faulty.drain()
        assert set(faulty.hit) == {"lost_request", "lost_reply", "late_landing", "repeated", "failed_read"}
        for number in range(100):
            assert await body_of(settling, f"k{number}") == b"2"
