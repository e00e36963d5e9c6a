"""Every way in which a conditional write can fail, put between obstore and an S3 server by a proxy.

For each: what tenure reports, what is stored, and what `settle` makes of it. The reports are right if they never claim
more than is known; that some writes happened although nobody said so is the point of the third outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import count

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store

from lab.background import BackgroundServer
from lab.endpoint import S3Endpoint
from lab.fault_proxy import FaultProxy
from lab.faults import (
    Fault,
    close_after_apply,
    close_before_apply,
    delay_before_forward,
    hang_after_apply,
    hang_before_apply,
    repeat,
    reset_after_apply,
    reset_before_apply,
    status_after_apply,
    status_before_apply,
)
from lab.http1 import Request, Response, serve_connection
from tenure.errors import AccessDenied, ClockSkewed, NotFound, StoreError, StoreUnavailable, Throttled
from tenure.store import (
    Applied,
    Attempt,
    Outcome,
    Rejected,
    Remembers,
    Store,
    Stored,
    Unknown,
    Version,
    commit,
    open_store,
    settle,
)
from tenure.store.opening import connect
from tenure.store.url import parse_url

KEY = "state.json"
TIMEOUT = 1.0
_LATE = 0.8


@dataclass(frozen=True)
class Row:
    name: str
    fault: Fault
    outcome: type
    """What tenure reports."""
    lands: bool
    """Whether the write is stored all the same."""
    error: type[StoreError] = StoreUnavailable


ROWS = [
    Row("500 after apply", status_after_apply(500), Unknown, lands=True),
    Row("503 after apply", status_after_apply(503), Unknown, lands=True, error=Throttled),
    Row("close after apply", close_after_apply(), Unknown, lands=True),
    Row("reset after apply", reset_after_apply(), Unknown, lands=True),
    Row("timeout after apply", hang_after_apply(), Unknown, lands=True),
    Row("409 after apply", status_after_apply(409), Unknown, lands=True),
    Row("403 after apply", status_after_apply(403), Unknown, lands=True, error=AccessDenied),
    Row("503 before apply", status_before_apply(503), Unknown, lands=False, error=Throttled),
    Row("429 before apply", status_before_apply(429), Unknown, lands=False, error=Throttled),
    Row("408 before apply", status_before_apply(408), Unknown, lands=False),
    Row("500 before apply", status_before_apply(500), Unknown, lands=False),
    Row("409, nothing stored", status_before_apply(409), Unknown, lands=False),
    Row("close before apply", close_before_apply(), Unknown, lands=False),
    Row("reset before apply", reset_before_apply(), Unknown, lands=False),
    Row("timeout before apply", hang_before_apply(), Unknown, lands=False),
    Row("sent twice", repeat(), Rejected, lands=True),
]


def compose(write_id: str) -> bytes:
    return json.dumps({"writeId": write_id}).encode()


def write_ids(body: bytes) -> list[str]:
    return [json.loads(body)["writeId"]]


async def stored_id(store: Store) -> str | None:
    try:
        found = await store.get(KEY)
    except NotFound:
        return None
    assert isinstance(found, Stored)
    return write_ids(found.body)[0]


@dataclass
class Write:
    """One conditional write, of either kind, with fixed ids so that it can be said which copy of it was applied."""

    store: Store
    truth: Store
    """The same objects without the proxy."""
    proxy: FaultProxy
    expected: Version | None

    def __post_init__(self) -> None:
        self._numbers = count(1)
        self.attempt = Attempt(KEY, self.expected, [])

    def draw_id(self) -> str:
        return f"copy-{next(self._numbers)}"

    @property
    def before(self) -> str | None:
        return None if self.expected is None else "start"

    async def send(self) -> Outcome:
        write_id = self.draw_id()
        self.attempt.ids.append(write_id)
        if self.expected is None:
            return await self.store.create(KEY, compose(write_id))
        return await self.store.replace(KEY, compose(write_id), self.expected)


@pytest.fixture
def proxy(ministack: S3Endpoint) -> Iterator[FaultProxy]:
    proxy = FaultProxy(ministack.url)
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture
async def write(
    request: pytest.FixtureRequest, ministack: S3Endpoint, proxy: FaultProxy, url_of: Callable[[str], str]
) -> AsyncIterator[Write]:
    async with _writing(request.param, ministack, proxy, url_of) as write:
        yield write


@contextlib.asynccontextmanager
async def _writing(
    kind: str, ministack: S3Endpoint, proxy: FaultProxy, url_of: Callable[[str], str], timeout: float = TIMEOUT
) -> AsyncIterator[Write]:
    direct = url_of("ministack")
    by_proxy = direct.replace(f"%3A{ministack.url.rpartition(':')[2]}", f"%3A{_port(proxy)}")
    assert by_proxy != direct
    truth = await connect(parse_url(direct), timeout=20)
    async with open_store(by_proxy, timeout=timeout) as store:
        expected = await truth.put(KEY, compose("start")) if kind == "replace" else None
        yield Write(store, truth, proxy, expected)
    await truth.aclose()


def _port(proxy: FaultProxy) -> int:
    return proxy._server.port


both = pytest.mark.parametrize("write", ["create", "replace"], indirect=True)
rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.replace(" ", "-"))


@rows
@both
async def test_what_is_reported_what_is_stored_and_what_settles_it(row: Row, write: Write) -> None:
    rule = write.proxy.plan(row.fault, f"PUT {KEY}")
    outcome = await write.send()
    assert rule.hits == 1
    assert isinstance(outcome, row.outcome), outcome
    if isinstance(outcome, Unknown):
        assert isinstance(outcome.error, row.error), outcome.error
    assert await stored_id(write.truth) == ("copy-1" if row.lands else write.before)

    looked = await settle(write.store, write.attempt, write_ids=write_ids)
    if row.lands:
        assert isinstance(looked.outcome, Applied)
        assert looked.write_id == "copy-1"
        assert looked.outcome.version.matches((await write.truth.get(KEY)).version)
    else:
        assert isinstance(looked.outcome, Unknown), "it may still land: no read can rule that out"

    final = await settle(write.store, write.attempt, write_ids=write_ids, resend=compose, draw_id=write.draw_id)
    assert isinstance(final.outcome, Applied)
    assert final.write_id == ("copy-1" if row.lands else "copy-2")
    assert await stored_id(write.truth) == final.write_id
    assert final.outcome.version.matches((await write.truth.get(KEY)).version)


@pytest.mark.parametrize("row", [row for row in ROWS if "timeout" not in row.name], ids=lambda row: row.name)
@both
async def test_commit_gets_through_each_of_them(row: Row, write: Write) -> None:
    write.proxy.plan(row.fault, f"PUT {KEY}")
    settled = await commit(
        write.store, Attempt(KEY, write.expected), compose, write_ids=write_ids, draw_id=write.draw_id
    )
    assert isinstance(settled.outcome, Applied)
    assert settled.write_id == await stored_id(write.truth) == ("copy-1" if row.lands else "copy-2")


@both
async def test_a_write_that_lands_late_is_pending_until_it_lands(write: Write) -> None:
    write.proxy.plan(delay_before_forward(_LATE), f"PUT {KEY}")
    assert isinstance(await write.send(), Unknown)
    before = await settle(write.store, write.attempt, write_ids=write_ids, tries=1)
    landed_meanwhile = bool(write.proxy.late_statuses)  # on a machine that stood still
    assert isinstance(before.outcome, Unknown) or landed_meanwhile
    await asyncio.to_thread(write.proxy.drain, 10)
    assert write.proxy.late_statuses == [200]
    after = await settle(write.store, write.attempt, write_ids=write_ids)
    assert isinstance(after.outcome, Applied)
    assert after.write_id == await stored_id(write.truth) == "copy-1"


@both
async def test_a_write_that_would_land_late_is_made_final_by_sending_it_again(write: Write) -> None:
    write.proxy.plan(delay_before_forward(_LATE), f"PUT {KEY}")
    assert isinstance(await write.send(), Unknown)
    final = await settle(write.store, write.attempt, write_ids=write_ids, resend=compose, draw_id=write.draw_id)
    assert isinstance(final.outcome, Applied)
    if final.write_id == "copy-2":  # the usual course; on a machine that stood still the first copy came in time
        await asyncio.to_thread(write.proxy.drain, 10)
        assert write.proxy.late_statuses == [412]
    assert await stored_id(write.truth) == final.write_id
    assert final.outcome.version.matches((await write.truth.get(KEY)).version)


@both
async def test_a_late_write_does_not_overwrite_what_others_wrote_meanwhile(write: Write) -> None:
    write.proxy.plan(delay_before_forward(_LATE), f"PUT {KEY}")
    assert isinstance(await write.send(), Unknown)
    if write.expected is None:
        other = await write.truth.create(KEY, compose("other"))
    else:
        other = await write.truth.replace(KEY, compose("other"), write.expected)
    assert isinstance(other, Applied)
    await asyncio.to_thread(write.proxy.drain, 10)
    assert write.proxy.late_statuses == [412]
    assert await stored_id(write.truth) == "other"
    forgetful = await settle(write.store, write.attempt, write_ids=write_ids)
    assert isinstance(forgetful.outcome, Unknown), (
        "a record of the last write alone cannot say that ours was not before"
    )
    remembering = await settle(write.store, write.attempt, write_ids=write_ids, remembers=Remembers.EVERY_WRITE)
    assert isinstance(remembering.outcome, Rejected)


@both
async def test_a_write_is_sent_once(write: Write) -> None:
    for fault in (status_before_apply(500), status_before_apply(503), close_before_apply()):
        write.proxy.plan(fault, f"PUT {KEY}")
        sent = write.proxy.counts["PUT"]
        assert isinstance(await write.send(), Unknown)
        assert write.proxy.counts["PUT"] == sent + 1


@pytest.mark.parametrize("fault", [status_after_apply(500), status_after_apply(503), close_after_apply()])
async def test_with_retries_obstore_is_refused_because_of_its_own_write(
    fault: Fault, ministack: S3Endpoint, proxy: FaultProxy, url_of: Callable[[str], str]
) -> None:
    """Why writes go through a client that never retries: with retries, "exists already" may be ourselves."""
    prefix = parse_url(url_of("ministack")).prefix
    client = S3Store(
        "tests",
        endpoint=f"http://127.0.0.1:{_port(proxy)}",
        access_key_id=ministack.access_key,
        secret_access_key=ministack.secret_key,
        region=ministack.region,
        client_options={"allow_http": True},
    )
    key = f"{prefix}{KEY}"
    proxy.plan(fault, f"PUT {KEY}")
    with pytest.raises(AlreadyExistsError):
        await obstore.put_async(client, key, b"mine", mode="create")
    found = await client.get_async(key)
    assert bytes(await found.bytes_async()) == b"mine"

    proxy.plan(fault, f"PUT {KEY}")
    with pytest.raises(PreconditionError):
        await obstore.put_async(client, key, b"mine again", mode={"e_tag": found.meta["e_tag"]})
    assert bytes(await (await client.get_async(key)).bytes_async()) == b"mine again"


class TestOtherRequests:
    @pytest.mark.parametrize("write", ["replace"], indirect=True)
    @pytest.mark.parametrize("fault", [status_before_apply(503), status_before_apply(500), close_before_apply()])
    async def test_a_read_is_tried_again(self, write: Write, fault: Fault) -> None:
        rule = write.proxy.plan(fault, f"GET {KEY}")
        assert await stored_id(write.store) == "start"
        assert rule.hits == 1

    @pytest.mark.parametrize("write", ["replace"], indirect=True)
    async def test_a_listing_is_tried_again(self, write: Write) -> None:
        rule = write.proxy.plan(status_before_apply(503), "GET list-type")
        assert [entry.key async for entry in write.store.list()] == [KEY]
        assert rule.hits == 1

    @pytest.mark.parametrize("write", ["replace"], indirect=True)
    async def test_a_read_that_keeps_failing_is_an_error_in_bounded_time(self, write: Write) -> None:
        rule = write.proxy.plan(status_before_apply(503), "GET", times=None)
        async with asyncio.timeout(10):
            with pytest.raises(StoreUnavailable, match="503"):
                await write.store.get(KEY)
        assert 1 < rule.hits < 10

    @pytest.mark.parametrize("write", ["replace"], indirect=True)
    async def test_a_read_without_an_answer_is_an_error_in_bounded_time(self, write: Write) -> None:
        write.proxy.plan(hang_before_apply(), "GET", times=None)
        async with asyncio.timeout(10):
            with pytest.raises(StoreUnavailable):
                await write.store.get(KEY)
            with pytest.raises(StoreUnavailable):
                assert [entry async for entry in write.store.list()]

    @pytest.mark.parametrize("write", ["replace"], indirect=True)
    async def test_a_put_and_a_delete_are_sent_once(self, write: Write) -> None:
        put = write.proxy.plan(status_before_apply(503), "PUT", times=None)
        with pytest.raises(Throttled):
            await write.store.put(KEY, b"{}")
        assert put.hits == 1
        delete = write.proxy.plan(status_before_apply(500), "POST", times=None)
        with pytest.raises(StoreUnavailable):
            await write.store.delete(KEY)
        assert delete.hits == 1
        assert await stored_id(write.truth) == "start"

    @pytest.mark.parametrize("write", ["replace"], indirect=True)
    async def test_a_404_that_names_no_missing_key_is_not_a_missing_key(self, write: Write) -> None:
        write.proxy.plan(status_before_apply(404, "NoSuchService"), f"GET {KEY}")
        with pytest.raises(StoreUnavailable, match="404"):
            await write.store.get(KEY)
        write.proxy.plan(status_before_apply(404, "NoSuchService"), f"PUT {KEY}")
        assert isinstance(await write.send(), Unknown)

    async def test_the_404_of_a_web_server_is_not_a_missing_key(self) -> None:
        """A load balancer without its backend, or the wrong port: nothing follows from it about the key."""

        async def answer(request: Request) -> Response:
            return Response(404, b"<html><body>Not Found</body></html>", (("Content-Type", "text/html"),))

        async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await serve_connection(reader, writer, answer)

        server = BackgroundServer(connection)
        endpoint = S3Endpoint("web", server.start(), "test", "testtest")
        try:
            store = await connect(parse_url(endpoint.store_url("bucket", "x")), timeout=2)
            with pytest.raises(StoreUnavailable, match="404"):
                await store.get("a")
            outcome = await store.replace("a", b"x", Version("0"))
            assert isinstance(outcome, Unknown)
            with pytest.raises(StoreError):
                await open_store(endpoint.store_url("bucket", "x"), timeout=2)
            await store.aclose()
        finally:
            server.stop()

    @pytest.mark.parametrize("write", ["create", "replace"], indirect=True)
    async def test_a_clock_that_is_off_is_named(self, write: Write) -> None:
        write.proxy.plan(status_before_apply(403, "RequestTimeTooSkewed"), KEY, times=2)
        with pytest.raises(ClockSkewed, match="clock of this host"):
            await write.store.get(KEY)
        outcome = await write.send()
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.error, ClockSkewed)

    @pytest.mark.parametrize("write", ["replace"], indirect=True)
    async def test_nothing_that_is_raised_shows_a_secret(self, write: Write, ministack: S3Endpoint) -> None:
        write.proxy.plan(close_before_apply(), None, times=None)
        with pytest.raises(StoreError) as caught:
            await write.store.put(KEY, b"x")
        outcome = await write.send()
        assert isinstance(outcome, Unknown)
        for text in (str(caught.value), str(outcome.error)):
            assert ministack.secret_key not in text
            assert "Signature" not in text
            assert "\n" not in text
