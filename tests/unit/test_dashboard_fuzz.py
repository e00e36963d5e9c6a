"""Every route of the dashboard, asked for anything: no defect, no markup, no secret, nothing written.

The routes are walked, so that one that is new cannot be left out.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.routing import Mount, Route
from starlette.types import Message

from tenure.dashboard import app
from tenure.dashboard.bounds import MAX_BODY_BYTES
from tenure.store import open_store
from tests.unit.dashboards import HERE, TOKEN, Page, a_store, shown

EVIL = "<script>alert(1)</script>"
QUERY = ("offset", "limit", "filter", "state", "sort")
ANSWERS = (200, 206, 304, 307, 400, 401, 403, 404, 405, 409, 413, 416, 421, 422, 429, 503, 504)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
TEXTS = (
    *("", "x", EVIL, "'\"><img src=x onerror=alert(1)>", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%00", "\0"),
    *("a" * 2000, "😀", "-1", "0", "1e9", "9" * 30, "NaN", "null", "true", "[]", "{{initial}}", "${7*7}", "\r\nx: y"),
)
BODIES: tuple[Any, ...] = (
    *(b"", b"{", b"[]", b"null", b"5", b'"x"', b"\xff\xfe", b"[" * 20_000, b'{"a":' * 9000, b"{}", b"\x00" * 100),
    b" " * (MAX_BODY_BYTES + 1),
    *(json.dumps({name: value}).encode() for name in ("token", "queue", "to", "schedule", "force") for value in TEXTS),
    *(json.dumps({"schedule": one, "job": other}).encode() for one in TEXTS[:6] for other in ("", EVIL, None, 5)),
)
HEADERS = (
    {"authorization": "Bearer"},
    {"authorization": f"Basic {TOKEN}"},
    {"cookie": "tenure_session=" + "0" * 64},
    {"cookie": "tenure_session_8321=" + "0" * 64},
    {"cookie": EVIL},
    {"origin": EVIL},
    {"origin": "http://evil.example"},
    {"x-forwarded-for": EVIL, "x-forwarded-proto": "javascript"},
    {"content-type": "text/html"},
    {"content-length": "5"},
    {"range": "bytes=0-99999999999"},
    {"if-none-match": EVIL, "if-modified-since": EVIL},
    {"accept": "text/html"},
)


def paths_of(routes: list[Any]) -> list[str]:
    found = []
    for route in routes:
        assert isinstance(route, Route | Mount)
        found.append(f"{route.path}/index.html" if isinstance(route, Mount) else route.path)
    return found


class Leaving(httpx.AsyncBaseTransport):
    """A client that leaves as soon as it was sent something of an answer that has no end, or even before."""

    def __init__(self, app: Any, *, at_once: bool = False) -> None:
        self.app = app
        self.at_once = at_once

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.split(b"?")[0],
            "query_string": request.url.query,
            "server": (request.url.host, request.url.port),
            "client": ("127.0.0.1", 5),
            "root_path": "",
        }
        sent: list[Message] = []
        asked, leaves = False, asyncio.Event()

        async def receive() -> Message:
            nonlocal asked
            if not asked and not self.at_once:
                asked = True
                return {"type": "http.request", "body": b"", "more_body": False}
            if not self.at_once:
                await leaves.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)
            if message["type"] == "http.response.body":
                leaves.set()

        async with asyncio.timeout(30):
            await self.app(scope, receive, send)
        start, *parts = sent
        body = b"".join(part.get("body", b"") for part in parts)
        return httpx.Response(start["status"], headers=start["headers"], content=body, request=request)


async def ask(page: Page, chance: random.Random, path: str) -> httpx.Response:
    method = chance.choice(METHODS)
    name = chance.choice(("step-down", "queue-pause", "schedule-run", *TEXTS[1:]))
    path = path.replace("{name}", quote(name))
    if chance.random() < 0.3 and path.startswith("/static"):
        path = "/static/" + chance.choice(("../app.py", "..%2fapp.py", "%2e%2e/app.py", "//etc/passwd", "%00", ".", ""))
    query = {each: chance.choice(TEXTS) for each in QUERY if chance.random() < 0.4}
    headers = {**(chance.choice(HEADERS) if chance.random() < 0.6 else {})}
    if chance.random() < 0.4 and "authorization" not in headers:
        headers["authorization"] = f"Bearer {TOKEN}"
    if path == "/events" and method in ("GET", "HEAD"):
        async with httpx.AsyncClient(transport=Leaving(page.app, at_once=chance.random() < 0.3)) as leaving:
            return await leaving.request(method, f"{HERE}{path}", params=query, headers=headers)
    content = chance.choice(BODIES) if method in ("POST", "PUT", "PATCH", "BREW") else b""
    return await page.request(method, f"{HERE}{path}", params=query, headers=headers, content=content)


def check(response: httpx.Response) -> None:
    told = (response.request.method, str(response.request.url), response.status_code, response.text[:300])
    assert response.status_code in ANSWERS, told
    assert response.headers.get("location", HERE).startswith(HERE), "it leads elsewhere"
    kind = response.headers.get("content-type", "")
    if response.status_code >= 400 and response.request.method != "HEAD":
        assert kind.startswith(("application/json", "text/plain")), told
    if kind.startswith("text/html"):
        assert response.request.url.path in ("/", "/static/index.html"), told
        assert EVIL not in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"], told
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["x-frame-options"] == "DENY"
    assert "defect" not in response.text, told
    assert "Traceback" not in response.text
    assert TOKEN not in response.text + str(response.headers)
    assert "root:" not in response.text
    assert "def routes" not in response.text, "the source itself was served"
    assert "x" not in response.headers, "a header of the request became one of the answer"


@pytest.mark.parametrize("seed", range(2))
async def test_every_route_asked_for_anything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_FRESH_WITHIN", 0.001)
    url = a_store()
    chance = random.Random(seed)
    async with open_store(url) as store, shown(url, token=TOKEN) as page:
        paths = paths_of(page.dashboard.routes())
        assert "/api/actions/{name}" in paths
        for path in paths:
            for _ in range(20):
                check(await ask(page, chance, path))
                assert page.dashboard.collector.clients == 0, "somebody who has left is counted"
        assert [entry.key async for entry in store.list()] == [], "something was written"


async def test_a_path_that_is_none_of_ours() -> None:
    async with shown(a_store(), token=TOKEN) as page:
        for text in TEXTS[1:]:
            check(await page.get(f"{HERE}/{quote(text)}"))
            check(await page.get(f"{HERE}//evil.example/{quote(text, safe='')}"))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("at_once", [False, True])
async def test_a_page_that_leaves(method: str, at_once: bool) -> None:
    """Whatever it asked with, nobody watches any more."""
    async with shown(a_store(), token=TOKEN) as page:
        leaving = httpx.AsyncClient(transport=Leaving(page.app, at_once=at_once))
        for headers in ({}, *HEADERS):
            response = await leaving.request(method, f"{HERE}/events", headers=headers)
            check(response)
            assert response.status_code in (200, 401), headers
            assert page.dashboard.collector.clients == 0
        await leaving.aclose()
