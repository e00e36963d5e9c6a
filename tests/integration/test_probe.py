"""What a store gives away when it is opened: its dialect, or why tenure would not be safe on it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from lab.endpoint import S3Endpoint
from lab.fault_proxy import FaultProxy
from lab.faults import close_after_apply, status_after_apply, status_before_apply
from lab.gcs import Gcs
from lab.process import free_port
from lab.racy import Oddities, RacyS3
from tenure.clock import SystemClock
from tenure.errors import (
    AccessDenied,
    BucketMissing,
    ClockSkewed,
    ConfigError,
    StoreUnavailable,
    StoreUnfit,
    Throttled,
)
from tenure.store import Applied, Prefixed, Rejected, Store, Unknown, open_store
from tenure.store.cloud.store import CloudStore, Dialect
from tenure.store.opening import connect
from tenure.store.url import parse_url


def dialect_of(store: Store) -> Dialect:
    assert isinstance(store, Prefixed)
    assert isinstance(store.inner, CloudStore)
    return store.inner.dialect


async def leftovers(url: str) -> list[str]:
    store = await connect(parse_url(url), timeout=20)
    try:
        return [entry.key async for entry in store.list()]
    finally:
        await store.aclose()


@contextlib.contextmanager
def odd_server(home: Path, oddities: Oddities) -> Iterator[str]:
    server = RacyS3(home, oddities)
    try:
        yield server.start().store_url("bucket", "app")
    finally:
        server.stop()


@contextlib.asynccontextmanager
async def odd_store(home: Path, oddities: Oddities) -> AsyncIterator[Store]:
    """Opened, tried out by a few writes, and left clean."""
    with odd_server(home, oddities) as url:
        async with open_store(url, timeout=20) as store:
            assert await leftovers(url) == []
            await _works(store)
            yield store


async def _works(store: Store) -> None:
    created = await store.create("k", b"1")
    assert isinstance(created, Applied)
    replaced = await store.replace("k", b"2", created.version)
    assert isinstance(replaced, Applied)
    assert not isinstance(await store.replace("k", b"3", created.version), Applied)
    assert not isinstance(await store.create("k", b"4"), Applied)
    assert (await store.get("k")).version.matches(replaced.version)
    await store.delete("k")


class TestDialects:
    async def test_plain_s3(self, tmp_path: Path) -> None:
        async with odd_store(tmp_path, Oddities(window=0)) as store:
            assert dialect_of(store) == Dialect()

    async def test_if_match_without_quotes(self, tmp_path: Path) -> None:
        async with odd_store(tmp_path, Oddities(window=0, bare_etag=True)) as store:
            assert dialect_of(store) == Dialect(quoted_if_match=False)
            assert store.info.dialect["if-match"] == "bare"

    async def test_a_bucket_that_keeps_old_versions(self, tmp_path: Path) -> None:
        async with odd_store(tmp_path, Oddities(window=0, versioned=True)) as store:
            assert dialect_of(store).versioned

    async def test_a_window_between_check_and_write_is_not_found_by_asking_politely(self, tmp_path: Path) -> None:
        """Opening is no proof: only races find this one, and `tenure doctor` runs them."""
        async with odd_store(tmp_path, Oddities(window=0.001)) as store:
            assert dialect_of(store) == Dialect()

    async def test_ministack(self, url_of: Callable[[str], str]) -> None:
        url = url_of("ministack")
        async with open_store(url) as store:
            assert dialect_of(store) == Dialect()
            assert await leftovers(url) == []
            await _works(store)

    @pytest.mark.servers
    async def test_ceph(self, url_of: Callable[[str], str]) -> None:
        url = url_of("ceph")
        async with open_store(url, timeout=20) as store:
            assert dialect_of(store) == Dialect(quoted_if_match=False)
            assert await leftovers(url) == []
            await _works(store)

    @pytest.mark.servers
    async def test_azurite(self, url_of: Callable[[str], str]) -> None:
        url = url_of("azurite")
        async with open_store(url, timeout=20) as store:
            assert dialect_of(store).lost_create_status == 409
            assert dialect_of(store).quoted_if_match
            assert await leftovers(url) == []
            await _works(store)

    async def test_gcs(self, url_of: Callable[[str], str]) -> None:
        url = url_of("gcs")
        async with open_store(url) as store:
            assert dialect_of(store) == Dialect()
            assert await leftovers(url) == []
            await _works(store)


class TestUnfit:
    @pytest.mark.parametrize(
        ("oddities", "named"),
        [
            (Oddities(window=0, ignore=("if-match",)), "If-Match"),
            (Oddities(window=0, ignore=("if-none-match",)), "If-None-Match"),
            (Oddities(window=0, missing_key_status=403), "s3:ListBucket"),
        ],
        ids=["if-match", "if-none-match", "no-ListBucket"],
    )
    async def test_what_is_wrong_is_named(self, tmp_path: Path, oddities: Oddities, named: str) -> None:
        with odd_server(tmp_path, oddities) as url:
            with pytest.raises(StoreUnfit, match=named) as caught:
                await open_store(url, timeout=20)
            assert all(named in reason for reason in caught.value.reasons), caught.value.reasons
            assert "testtest" not in str(caught.value)
            assert await leftovers(url) == []

    async def test_everything_wrong_at_once_is_named_at_once(self, tmp_path: Path) -> None:
        oddities = Oddities(window=0, ignore=("if-match", "if-none-match"), missing_key_status=403)
        with odd_server(tmp_path, oddities) as url:
            with pytest.raises(StoreUnfit) as caught:
                await open_store(url, timeout=20)
            text = " ".join(caught.value.reasons)
            for named in ("If-None-Match", "If-Match: a write with an old version", "s3:ListBucket"):
                assert named in text
            assert await leftovers(url) == []

    @pytest.mark.servers
    async def test_s3rver(self, s3rver: S3Endpoint) -> None:
        url = s3rver.store_url("bucket", "app")
        with pytest.raises(StoreUnfit, match="ignores If-None-Match"):
            await open_store(url, timeout=20)
        assert await leftovers(url) == []

    @pytest.mark.parametrize("status", [409, 500])
    async def test_a_store_that_never_says_plainly_who_lost_is_not_opened(self, tmp_path: Path, status: int) -> None:
        """409 and 500 decide nothing, so a store that has no other word for "you lost" cannot be judged."""
        with odd_server(tmp_path, Oddities(window=0, lose_with=status)) as url:
            with pytest.raises(StoreUnavailable, match=str(status)):
                await open_store(url, timeout=20)
            assert await leftovers(url) == []


class TestUnusable:
    async def test_a_clock_that_is_off(self, tmp_path: Path) -> None:
        with odd_server(tmp_path, Oddities(window=0, skewed=True)) as url, pytest.raises(ClockSkewed, match="chrony"):
            await open_store(url, timeout=20)

    async def test_a_bucket_that_does_not_exist(self, tmp_path: Path, ministack: S3Endpoint) -> None:
        with pytest.raises(BucketMissing, match="no-such-bucket"):
            await open_store(ministack.store_url("no-such-bucket", "app"), timeout=20)
        with odd_server(tmp_path, Oddities(window=0)) as url, pytest.raises(BucketMissing):
            await open_store(url.replace("s3://bucket/", "s3://another/"), timeout=20)

    @pytest.mark.servers
    async def test_a_bucket_that_does_not_exist_on_ceph(self, ceph: S3Endpoint) -> None:
        with pytest.raises(BucketMissing):
            await open_store(ceph.store_url("no-such-bucket", "app"), timeout=20)

    @pytest.mark.servers
    async def test_a_container_that_does_not_exist(self, azurite: S3Endpoint) -> None:
        with pytest.raises(BucketMissing):
            await open_store(azurite.store_url("no-such-container", "app"), timeout=20)

    @pytest.mark.servers
    async def test_a_wrong_secret_on_ceph(self, ceph: S3Endpoint) -> None:
        wrong = S3Endpoint(ceph.name, ceph.url, ceph.access_key, "not-the-secret", ceph.region)
        with pytest.raises(AccessDenied) as caught:
            await open_store(wrong.store_url("tests", "app"), timeout=20)
        assert "not-the-secret" not in str(caught.value)

    async def test_nobody_listens(self) -> None:
        endpoint = S3Endpoint("nobody", f"http://127.0.0.1:{free_port()}", "test", "testtest")
        started = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await open_store(endpoint.store_url("bucket", "app"))
        assert time.monotonic() - started < 10

    @pytest.mark.slow
    async def test_somebody_listens_and_says_nothing(self) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(16)
            endpoint = S3Endpoint("mute", f"http://127.0.0.1:{listener.getsockname()[1]}", "test", "testtest")
            started = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await open_store(endpoint.store_url("bucket", "app"))
            assert time.monotonic() - started < 10


class TestThroughFaults:
    @pytest.mark.parametrize("fault", [status_after_apply(500), close_after_apply(), status_before_apply(500)])
    async def test_a_lost_answer_does_not_mislead_the_probe(
        self, fault: object, ministack: S3Endpoint, url_of: Callable[[str], str]
    ) -> None:
        """Whichever of its writes it hits: the store is as fit as before, and its dialect is the same."""
        prefix = parse_url(url_of("ministack")).prefix
        for hit in range(1, 6):
            proxy = FaultProxy(ministack.url)
            try:
                url = ministack.store_url("tests", f"{prefix}{hit}", endpoint=proxy.start())
                rule = proxy.every(hit, fault, "PUT")  # type: ignore[arg-type]
                rule.times = 1
                async with open_store(url, timeout=5) as store:
                    assert rule.hits == 1
                    assert dialect_of(store) == Dialect()
            finally:
                proxy.stop()
            assert await leftovers(ministack.store_url("tests", f"{prefix}{hit}")) == []


class BriskClock(SystemClock):
    """For a server whose second is a fifth of one."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 5)


class TestGcs:
    async def test_the_generation_is_what_is_compared(self, url_of: Callable[[str], str]) -> None:
        """The same bytes have the same ETag; a writer that held the older of two such states has lost all the same."""
        async with open_store(url_of("gcs")) as store:
            first = await store.put("a", b"same")
            second = await store.put("a", b"same")
            assert first.e_tag == second.e_tag
            assert first.generation is not None
            assert not first.matches(second)
            assert isinstance(await store.replace("a", b"x", first), Rejected)
            assert isinstance(await store.replace("a", b"x", second), Applied)

    async def test_a_version_from_a_listing_is_refused_for_replace(self, url_of: Callable[[str], str]) -> None:
        async with open_store(url_of("gcs")) as store:
            await store.put("a", b"1")
            (entry,) = [entry async for entry in store.list()]
            with pytest.raises(ConfigError, match=r"no generation.*use one from get\(\) or a write"):
                await store.replace("a", b"2", entry.version)
            assert isinstance(await store.replace("a", b"2", (await store.get("a")).version), Applied)

    async def test_two_quick_writes_of_one_key_are_throttled(self, tmp_path: Path) -> None:
        server = Gcs()
        endpoint = server.start()
        try:
            async with open_store(endpoint.store_url("b", "p", key_file=tmp_path / "key.json")) as store:
                server.writes_per_second = 0.01
                created = await store.create("a", b"1")
                assert isinstance(created, Applied)
                outcome = await store.replace("a", b"2", created.version)
                assert isinstance(outcome, Unknown)
                assert isinstance(outcome.error, Throttled)
                assert isinstance(outcome := await store.create("a", b"3"), Unknown)
                assert isinstance(outcome.error, Throttled)
                with pytest.raises(Throttled, match="slow down"):
                    await store.put("a", b"4")
                assert isinstance(await store.create("another", b"1"), Applied)
                assert (await store.get("a")).version.matches(created.version)
        finally:
            server.stop()

    async def test_opening_gets_along_with_one_write_per_second_and_key(self, tmp_path: Path) -> None:
        server = Gcs(writes_per_second=5)
        endpoint = server.start()
        try:
            url = endpoint.store_url("b", "p", key_file=tmp_path / "key.json")
            async with open_store(url, clock=BriskClock()) as store:
                assert dialect_of(store) == Dialect()
            assert await leftovers(url) == []
        finally:
            server.stop()
