"""Fenced writes on real stores, and why the fence is part of the body: EF-8."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import obstore
import pytest
from obstore.exceptions import PreconditionError
from obstore.store import S3Store

from lab.endpoint import S3Endpoint
from tenure.coordinator.fenced import Fence, FencedValue, FencedWriter, Header, join, read, split
from tenure.errors import Fenced
from tenure.store import Applied, Store, Stored, Version, open_store
from tests.support.store import After, Request, ScriptedStore

BUCKET = "tests"
KINDS = [
    "ministack",
    pytest.param("ceph", marks=pytest.mark.servers),
    pytest.param("azurite", marks=pytest.mark.servers),
]
_numbers = itertools.count(1)


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> AsyncIterator[Store]:
    async with open_store(url_of(request.param), timeout=20) as opened:
        yield opened


def writer(store: Any, epoch: int) -> FencedWriter:
    return FencedWriter(store, Fence("default", epoch), lambda: f"w{next(_numbers)}", lambda: None)


async def version_of(store: Store, key: str) -> Version:
    stored = await store.get(key)
    assert isinstance(stored, Stored)
    return stored.version


@pytest.mark.req("EF-8")
async def test_a_stale_leader_is_fenced_and_the_object_untouched(store: Store) -> None:
    stale, current = writer(store, 1), writer(store, 2)
    await stale.put("k", b"line\nline\n")
    assert await current.claim("k") == b"line\nline\n"
    before = await store.get("k")
    for call in (stale.put("k", b"late"), stale.claim("k"), stale.delete("k")):
        with pytest.raises(Fenced):
            await call
    assert await store.get("k") == before
    assert await current.claim("absent") is None
    with pytest.raises(Fenced):
        await stale.put("absent", b"late")
    await current.delete("k")
    assert await read(store, "k") == FencedValue(None, 2, "default")


@pytest.mark.req("EF-8")
async def test_a_claim_between_reading_and_writing_stops_the_write(store: Store) -> None:
    """The value is the same before and after the claim: only the header moves the version."""
    await writer(store, 1).put("k", b"value")

    async def claim(request: Request) -> None:
        await writer(store, 2).claim("k")

    overtaken = ScriptedStore(inner=store)
    overtaken.on("get", "k", After(claim))
    with pytest.raises(Fenced):
        await writer(overtaken, 1).put("k", b"stale")
    assert await read(store, "k") == FencedValue(b"value", 2, "default")


@pytest.mark.req("EF-8")
async def test_a_claim_moves_the_version(store: Store) -> None:
    await writer(store, 1).put("k", b"value")
    before = await version_of(store, "k")
    await writer(store, 2).claim("k")
    assert not before.matches(await version_of(store, "k"))
    assert not isinstance(await store.replace("k", b"stale", before), Applied)


# Why not in the metadata


async def test_on_s3_the_same_bytes_keep_their_version(url_of: Callable[[str], str]) -> None:
    """The version is a hash of the body, so a swap that was based on the first write goes through after the second."""
    async with open_store(url_of("ministack"), timeout=20) as store:
        await store.put("k", b"value")
        before = await version_of(store, "k")
        await store.put("k", b"value")
        assert before.matches(await version_of(store, "k"))
        assert isinstance(await store.replace("k", b"stale", before), Applied)


async def test_a_fence_in_the_metadata_would_not_stop_a_deposed_leader(ministack: S3Endpoint) -> None:
    """Epoch 1 reads. Epoch 2 claims: the same value, a newer epoch in the metadata. Epoch 1 swaps, and wins."""
    bucket = S3Store(
        BUCKET,
        prefix=f"metadata-{next(_numbers)}",
        endpoint=ministack.url,
        region=ministack.region,
        access_key_id=ministack.access_key,
        secret_access_key=ministack.secret_key,
        client_options={"allow_http": True},
    )
    await obstore.put_async(bucket, "k", b"value", attributes={"epoch": "1"})
    read_by_epoch_1 = (await obstore.head_async(bucket, "k"))["e_tag"]
    await obstore.put_async(bucket, "k", b"value", attributes={"epoch": "2"})
    assert (await obstore.head_async(bucket, "k"))["e_tag"] == read_by_epoch_1
    await obstore.put_async(bucket, "k", b"stale", mode={"e_tag": read_by_epoch_1}, attributes={"epoch": "1"})
    assert bytes(await (await obstore.get_async(bucket, "k")).bytes_async()) == b"stale"

    # The same with the fence in the body: the swap of epoch 1 is refused.
    sealed = [join(Header(namespace="default", epoch=epoch, write_id=f"w{epoch}"), b"value") for epoch in (1, 2)]
    await obstore.put_async(bucket, "k", sealed[0])
    read_by_epoch_1 = (await obstore.head_async(bucket, "k"))["e_tag"]
    await obstore.put_async(bucket, "k", sealed[1])
    with pytest.raises(PreconditionError):
        await obstore.put_async(bucket, "k", b"stale", mode={"e_tag": read_by_epoch_1})
    assert split("k", bytes(await (await obstore.get_async(bucket, "k")).bytes_async()))[0].epoch == 2


@pytest.mark.servers
async def test_azure_moves_the_version_of_the_same_bytes(url_of: Callable[[str], str]) -> None:
    """There a fence in the metadata would do; the envelope is the same everywhere so that nobody has to know."""
    async with open_store(url_of("azurite"), timeout=20) as store:
        await store.put("k", b"value")
        before = await version_of(store, "k")
        await store.put("k", b"value")
        assert not before.matches(await version_of(store, "k"))
