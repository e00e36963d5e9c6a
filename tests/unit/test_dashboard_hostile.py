"""Whoever can write to the bucket can write anything: nothing of it ends the dashboard, or is more than text in it."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import msgspec
import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from tenure.coordinator.fenced import Header, join
from tenure.coordinator.layout import METADATA, STATE, namespace_store, term_key, worker_key
from tenure.coordinator.pulse import read_pulse
from tenure.dashboard import collector, work
from tenure.dashboard.app import build
from tenure.dashboard.sections import shown as shown_text
from tenure.dashboard.stream import EventStream
from tenure.election.records import Term, Worker, encode
from tenure.errors import RequestRefused
from tenure.ledger import ledger_store
from tenure.plugins.supervisor.status import folder_of
from tenure.store import Store, encode_name, open_store
from tests.unit.dashboards import TOKEN, a_lease, a_store, shown

EVIL = "</script><script>alert(1)</script>"
LONG = "x" * 1_000_000


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "SECONDS_BETWEEN_LISTINGS", 0.2)
    monkeypatch.setattr(collector, "_WORK_PAUSE", 0.1)


def a_worker(name: str, **changes: Any) -> bytes:
    return encode(Worker(**{"write_id": "w", "worker_id": name, "uid": f"u-{name}"[:64], "ordinal": 1, **changes}))


async def put_text_from_evil_people(store: Store) -> None:
    own = namespace_store(store, "default")
    lease = a_lease(EVIL[:60], previous_leader=EVIL[:60], successor=EVIL[:60], elected_at=EVIL, mandate_ends_at=EVIL)
    await own.put(STATE, encode(lease))
    term = Term(write_id="w", epoch=1, leader_id=EVIL[:60], uid="u", grant_id="g1", elected_at=EVIL)
    await own.put(term_key(1), encode(term))
    await own.put(worker_key(EVIL), a_worker(EVIL, registered_at=EVIL, pulse=EVIL))
    await ledger_store(store, "s3-queue", EVIL).put("log/00000000000000000001", b"{}")
    await ledger_store(store, "scheduler", EVIL).put("snapshots/00000000000000000001", EVIL.encode())
    await ledger_store(store, "eventual-consistency", EVIL).put("log/00000000000000000001", b"null")
    await ledger_store(store, "s3-queue", "fine").put("inbox/what-is-this", EVIL.encode())
    header = Header(namespace=EVIL, epoch=1, write_id="w")
    child = {"name": EVIL, "state": "failed", "lastError": EVIL}
    children = {"name": EVIL, "node": EVIL, "epoch": 1, "children": [child]}
    await store.put(f"{folder_of('services')}children.json", join(header, msgspec.json.encode(children)))


async def test_markup_in_names_is_text() -> None:
    url = a_store()
    async with open_store(url) as store:
        await put_text_from_evil_people(store)
        async with shown(url, token=TOKEN) as page:
            await page.until(lambda seen: seen["workers"]["total"] == 1 and seen["queues"]["total"] == 2)
            found = await page.until(lambda seen: all(row["lookedMs"] for row in seen["queues"]["rows"]))
            html = (await page.get("/")).text
            assert EVIL in str(found), "it is shown as it is, by whoever shows it as text"
            assert "alert(1)" in html
            assert "<script>alert" not in html
            inside = html.partition('id="initial">')[2].partition("</script>")[0]
            assert "<" not in inside
            assert msgspec.json.decode(inside)["lease"]["leader"] == EVIL[:60]
            assert "problem" in found["queues"]["rows"][0]
            assert any(row["problem"] for row in found["queues"]["rows"])
            assert (await page.get("/api/workers", params={"filter": EVIL})).json()["matched"] == 1
            metrics = (await page.get("/metrics")).text
            assert all(re.match(r"(#|tenure_fleet_\w+(\{.*\})? \S+$)", line) for line in metrics.splitlines())


@pytest.mark.parametrize(
    ("body", "phase"),
    [
        (b"", "damaged"),
        (b"\xff" * 100, "damaged"),
        (b"[" * 60_000, "damaged"),
        (b'{"schemaVersion": 99999999999999999999}', "too-new"),
        (b'{"schemaVersion": 7}', "too-new"),
        (b'{"leaderId": "%s"}' % LONG.encode(), "damaged"),
        (encode(a_lease(epoch=10**18)), "leading"),
        (encode(a_lease(lease_duration_ms=1, renewals=2**62)), "leading"),
    ],
)
async def test_a_lease_that_is_none(body: bytes, phase: str) -> None:
    url = a_store()
    async with open_store(url) as store:
        own = namespace_store(store, "default")
        await own.put(STATE, body)
        await own.put(METADATA, body)
        async with shown(url) as page:
            found = await page.until(lambda seen: seen["lease"]["phase"] != "starting")
            assert found["lease"]["phase"] == phase or (phase == "leading" and found["lease"]["phase"] == "lapsed")
            assert (phase in ("damaged", "too-new")) == bool(found["lease"]["problem"])
            assert len(found["lease"]["problem"] or "") < 1000
            assert (await page.get("/")).status_code == 200
            assert (await page.get("/metrics")).status_code == 200
            assert (await page.get("/readyz")).status_code == 200, "the store answers"


async def test_records_that_are_none() -> None:
    url = a_store()
    async with open_store(url) as store:
        own = namespace_store(store, "default")
        await own.put(STATE, encode(a_lease(epoch=3)))
        await own.put(term_key(1), b"nothing")
        await own.put(term_key(2), encode(Term(write_id="w", epoch=7, leader_id="x", uid="u", grant_id="g")))
        await own.put(term_key(3), b"x" * 100_000)
        await own.put("terms/readme.txt", b"")
        await own.put(worker_key("ada"), a_worker("ada"))
        await own.put(worker_key("eve"), a_worker("mallory"))
        await own.put(worker_key("bob"), b"{")
        await own.put(worker_key("big"), LONG.encode())
        await own.put(worker_key("new"), b'{"schemaVersion": 2}')
        await own.put("workers/other", b"")
        await store.put("plugin=s3-queue/readme", b"")
        await store.put("plugin=s3-queue/name=~zz/log/1", b"")
        await store.put(f"plugin=scheduler/name={encode_name('s')}/log/{1:020d}", LONG.encode())
        await store.put(f"{folder_of('a')}children.json", b"not fenced")
        await store.put(f"{folder_of('b')}children.json", join(Header(namespace="n", epoch=1, write_id="w"), b"[]"))
        async with shown(url) as page:
            await page.until(lambda seen: seen["workers"]["revision"])
            found = await page.until(lambda seen: seen["schedules"]["schedules"][0]["problem"])
            assert found["workers"]["total"] == 1
            assert found["workers"]["unreadable"] == 5
            assert [term["leader"] for term in found["terms"]["terms"]] == [None, None, None]
            assert found["children"]["rows"] == []
            assert len(str(found)) < 10_000


async def test_what_is_missing_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of a look is told, and the others go on."""

    async def broken(self: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(work.Work, "search", broken)
    url = a_store()
    async with open_store(url) as store:
        await namespace_store(store, "default").put(STATE, encode(a_lease()))
        async with shown(url) as page:
            found = await page.until(lambda seen: seen["meta"]["problem"] and seen["lease"]["phase"] == "leading")
            assert "a defect" in found["meta"]["problem"]["text"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("Ünïcödé ☃ 日本", "Ünïcödé ☃ 日本"),
        ("a\x1b[31m\nb", "a\\x1b[31m\\x0ab"),
        ("\u202eevil", "\\u202eevil"),
        ("\ud800half", "\\ud800half"),
        ("y" * 500, "y" * 299 + "…"),
    ],
)
def test_text_that_a_page_would_act_upon(text: str, expected: str) -> None:
    assert shown_text(text) == expected
    msgspec.json.encode(shown_text(text))


def test_a_pulse_that_is_none() -> None:
    assert read_pulse(EVIL) is None


async def test_a_defect_is_answered_with_all_headers_and_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with shown(a_store(), token=TOKEN) as page:
        sound = await page.get("/api/session")

        def breaks(*given: object) -> None:
            raise RuntimeError("the secret of this process")

        monkeypatch.setattr(page.dashboard.access, "session_of", breaks)
        response = await page.get("/api/session")
    assert response.status_code == 500
    assert "defect" in response.json()["error"]
    assert "the secret" not in response.text
    assert "the secret of this process" in caplog.text
    assert set(sound.headers) <= set(response.headers)


async def asked_of(method: str, path: str, *sent: Message) -> list[Message]:
    """What the server is given to send, for a client that sends this and then nothing."""
    app, dashboard = build(a_store(), token=TOKEN)
    answered: list[Message] = []
    messages = iter(sent)

    async def receive() -> Message:
        if (message := next(messages, None)) is None:
            await asyncio.Event().wait()
            raise AssertionError
        return message

    async def send(message: Message) -> None:
        answered.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1:8321")],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8321),
    }
    async with dashboard.lifespan(app):
        await app(scope, receive, send)
    return answered


async def test_a_client_that_hangs_up_in_the_middle_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    part = {"type": "http.request", "body": b"{", "more_body": True}
    answered = await asked_of("POST", "/api/sign-in", part, {"type": "http.disconnect"})
    assert answered[0]["status"] == 400
    assert caplog.text == ""


@pytest.mark.parametrize(("error", "is_told"), [(KeyError("odd"), True), (ClientDisconnect(), False)])
async def test_a_defect_in_the_middle_of_an_answer_is_told(
    error: Exception, is_told: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(*given: object) -> None:
        raise error

    monkeypatch.setattr(EventStream, "_stream", breaks)
    with pytest.raises(type(error)):
        await asked_of("GET", "/events", {"type": "http.request", "body": b"", "more_body": False})
    assert ("a defect of tenure: the answer to '/events' broke off" in caplog.text) == is_told


@pytest.mark.parametrize("refused", [True, False])
async def test_a_reason_of_the_bucket_forges_no_line_of_the_log(
    refused: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tenure.dashboard")
    hostile = "no\n2026-01-01 10.0.0.9 asked for transfer\x1b[2J"

    async def hand_over(*given: object) -> str:
        if refused:
            raise RequestRefused(hostile)
        return hostile

    async with shown(a_store(), token=TOKEN) as page:
        monkeypatch.setattr(page.dashboard.actions, "_hand_over", hand_over)
        await page.post("/api/actions/step-down", json={}, headers={"authorization": f"Bearer {TOKEN}"})
    (told,) = [each.getMessage() for each in caplog.records if "asked for step-down" in each.getMessage()]
    assert told.isprintable()
    assert "no\\x0a2026" in told
