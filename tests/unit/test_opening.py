"""From a URL to a store."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from tenure.errors import AccessDenied, ConfigError, InvalidUrl, NotFound, StoreError, StoreUnfit, TenureError
from tenure.store import Applied, Rejected, Unknown, Version, open_store, opening
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock


@pytest.mark.parametrize("timeout", [0.0, -1.0, 0.09, 60.1, 5000.0, float("nan"), float("inf")])
def test_a_timeout_that_makes_no_sense_is_refused(timeout: float) -> None:
    with pytest.raises(ConfigError, match=rf"timeout is {timeout}: give seconds between 0\.1 and 60"):
        open_store("memory://", timeout=timeout)


@pytest.mark.parametrize("timeout", [0.1, 5, 60.0])
async def test_a_timeout_within_bounds(timeout: float) -> None:
    async with open_store("memory://", timeout=timeout) as store:
        await store.put("k", b"")


def test_a_wrong_url_is_refused_at_once() -> None:
    with pytest.raises(InvalidUrl):
        open_store("nowhere://x")


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_awaited_or_as_a_context(kind: str, tmp_path: Path) -> None:
    url = "memory://" if kind == "memory" else (tmp_path / "store").as_uri()
    awaited = await open_store(url)
    assert isinstance(await awaited.create("k", b"1"), Applied)
    await awaited.aclose()
    async with open_store(url) as entered:
        await entered.put("k", b"2")
        assert (await entered.get("k")).body == b"2"
    for store in (awaited, entered):
        with pytest.raises(
            StoreError, match=r"is closed: open it again with open_store\(\), or its Database with connect\(\)"
        ):
            await store.get("k")


async def test_a_named_memory_store_is_shared() -> None:
    async with open_store("memory://here") as one, open_store("memory://here") as other:
        await one.put("k", b"1")
        assert (await other.get("k")).body == b"1"


async def test_a_directory_is_made_and_found_again(tmp_path: Path) -> None:
    url = (tmp_path / "not yet" / "there").as_uri()
    async with open_store(url) as store:
        version = await store.put("a/k", b"1")
    assert (tmp_path / "not yet/there/a@/k").read_bytes() == b"1"
    async with open_store(url) as store:
        assert (await store.get("a/k")).version == version


async def test_a_path_that_is_no_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnfit, match=f"{tmp_path}/file is unfit: it is not a directory: name one, or a path"):
        await open_store((tmp_path / "file").as_uri())


@pytest.mark.skipif(os.getuid() == 0, reason="root is never denied")
async def test_a_directory_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o000)
    with pytest.raises(AccessDenied, match="this user needs to read and write"):
        await open_store((tmp_path / "closed").as_uri())


async def test_clock_and_ids_are_handed_on(tmp_path: Path) -> None:
    drawn = []

    def draw_id() -> str:
        drawn.append(f"id{len(drawn)}")
        return drawn[-1]

    async with open_store(tmp_path.as_uri(), clock=SimulatedClock(), draw_id=draw_id) as store:
        version = await store.put("k", b"")
    assert int(version.e_tag, 16) == 1_700_000_000 * 10**9
    assert drawn


async def test_a_store_that_turns_out_unfit_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[MemoryStore] = []

    async def connect(*arguments: object, **options: object) -> MemoryStore:
        opened.append(MemoryStore())
        return opened[0]

    async def unfit(*arguments: object) -> None:
        raise StoreUnfit("memory://", ["it is a test"])

    monkeypatch.setattr(opening, "connect", connect)
    monkeypatch.setattr(opening, "_check", unfit)
    with pytest.raises(StoreUnfit, match="memory:// is unfit: it is a test"):
        await open_store("memory://")
    with pytest.raises(StoreError, match="is closed"):
        await opened[0].get("k")


# What a store gives back.


@pytest.mark.parametrize("outcome", [Applied(Version("1")), Rejected(), Unknown(StoreError("x"))])
def test_an_outcome_is_never_a_bool(outcome: object) -> None:
    with pytest.raises(TypeError, match=f"{type(outcome).__name__} is one of three outcomes: match on Applied"):
        bool(outcome)
    with pytest.raises(TypeError):
        if outcome:
            pass
    with pytest.raises(TypeError):
        assert not outcome


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Version("e"), Version("e"), True),
        (Version("e"), Version("f"), False),
        (Version("e", "1"), Version("e", "2"), False),
        (Version("e", "1"), Version("f", "1"), True),
        (Version("e", "1"), Version("e"), True),
        (Version("e"), Version("f", "1"), False),
    ],
)
def test_versions_match_by_generation_where_both_have_one(one: Version, other: Version, same: bool) -> None:
    assert one.matches(other) == same
    assert other.matches(one) == same


@pytest.mark.parametrize("error", [NotFound("k"), StoreUnfit("s3://b", ["one", "two"]), ConfigError("x")])
def test_errors_survive_pickling(error: TenureError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
