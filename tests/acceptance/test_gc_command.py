"""`tenure gc` as people run it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.database.resource import Resource
from tenure.store import open_store
from tests.support.command import tenure_process


async def leave_tombstones(url: str) -> None:
    async with open_store(url) as store:
        notes: Resource[dict[str, Any]] = Resource(store, "notes")
        for number in range(3):
            await notes.insert({"n": number}, id=str(number))
        await notes.delete("1")


@pytest.mark.slow
async def test_on_a_bucket_it_wants_to_be_told_that_nobody_writes(url_of: Callable[[str], str]) -> None:
    url = url_of("ministack")
    await leave_tombstones(url)
    refused = await asyncio.to_thread(tenure_process, "gc", url)
    assert refused.code == 2
    assert "stop every process that writes to its resources and plugin storages, and say so with --yes" in refused.err
    looked = (await asyncio.to_thread(tenure_process, "gc", url, "--dry-run", "--json")).json()
    assert (looked["removed"], looked["records"], looked["dry_run"]) == (1, 2, True)
    done = await asyncio.to_thread(tenure_process, "gc", url, "--yes")
    assert done.code == 0
    assert "1 of 1 tombstones removed; 2 records left alone" in done.out
    assert (await asyncio.to_thread(tenure_process, "gc", url, "--yes", "--json")).json()["removed"] == 0


@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_a_directory_that_is_not_there_is_not_made(option: str, tmp_path: Path) -> None:
    refused = tenure_process("gc", (tmp_path / "mistyped").as_uri(), option, "--json")
    assert (refused.code, refused.out) == (2, "")
    assert f"there is no directory {tmp_path}/mistyped" in refused.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("DB-2")
async def test_on_a_directory_it_asks_nothing_and_names_what_is_damaged(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    await leave_tombstones(url)
    done = await asyncio.to_thread(tenure_process, "gc", url)
    assert done.code == 0
    assert "0 of 0 tombstones removed; 2 records left alone" in done.out
    async with open_store(url) as store:
        await store.put("resource=notes/data/id=x.json", b"x" * 511)
    found = await asyncio.to_thread(tenure_process, "gc", url)
    assert found.code == 1
    assert "damaged resource=notes/data/id=x.json" in found.out
