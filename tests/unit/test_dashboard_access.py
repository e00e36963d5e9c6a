"""Who may look at a dashboard, and who may act: the token, sessions, other sites, and names that point here."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

import tenure.dashboard
from tenure.clock import SYSTEM_CLOCK
from tenure.dashboard import access
from tenure.dashboard.access import Sessions, check_host, check_token
from tenure.dashboard.bounds import MAX_BODY_BYTES, MAX_SESSIONS
from tenure.entropy import new_id
from tenure.errors import ConfigError
from tenure.testing import SimulatedClock
from tests.unit.dashboards import HERE, TOKEN, a_store, shown

ACTION = "/api/actions/queue-pause"
BODY = {"queue": "emails"}


@pytest.mark.req("OP-5")
async def test_without_a_token_it_only_shows() -> None:
    async with shown(a_store()) as page:
        assert (await page.get("/")).status_code == 200
        assert (await page.get("/api/session")).json() == {
            "actions": False,
            "signedIn": False,
            "csrf": None,
            "readNeedsToken": False,
        }
        for path in (ACTION, "/api/actions/step-down"):
            response = await page.post(path, json={}, headers={"origin": HERE, "authorization": f"Bearer {TOKEN}"})
            assert response.status_code == 403
            assert "without a token" in response.json()["error"]
        response = await page.post("/api/sign-in", json={"token": TOKEN}, headers={"origin": HERE})
        assert response.status_code == 403


@pytest.mark.req("OP-5")
async def test_an_action_needs_session_csrf_token_and_origin() -> None:
    async with shown(a_store(), token=TOKEN) as page:
        assert (await page.post(ACTION, json=BODY, headers={"origin": HERE})).status_code == 401
        assert (await page.post("/api/sign-in", json={"token": "wrong" * 5})).status_code == 401
        headers = await page.sign_in()
        assert (await page.get("/api/session")).json()["signedIn"]
        for wrong in (
            {"origin": HERE},
            {"origin": HERE, "x-csrf-token": "0" * 32},
            {"x-csrf-token": headers["x-csrf-token"]},
            {**headers, "origin": "http://evil.example"},
            {**headers, "origin": "http://127.0.0.1:1"},
            {**headers, "origin": "null"},
            {**headers, "origin": "http://127.0.0.1:8321/"},
            {**headers, "origin": "file://"},
        ):
            response = await page.post(ACTION, json=BODY, headers=wrong)
            assert response.status_code == 403, wrong
        # All is well now, and the queue is asked for: there is none.
        assert (await page.post(ACTION, json=BODY, headers=headers)).status_code == 422
        # Somebody else's session has another token against forgery.
        page.cookies.clear()
        assert (await page.sign_in())["x-csrf-token"] != headers["x-csrf-token"]
        assert (await page.post(ACTION, json=BODY, headers=headers)).status_code == 403
        assert (await page.post("/api/sign-out", headers={"origin": "http://evil.example"})).status_code == 403
        assert (await page.post("/api/sign-out", headers={"origin": HERE})).json()["signedIn"] is False
        assert (await page.post(ACTION, json=BODY, headers=headers)).status_code == 401


@pytest.mark.req("OP-5")
async def test_a_page_of_another_site_cannot_sign_anybody_in() -> None:
    async with shown(a_store(), token=TOKEN) as page:
        response = await page.post("/api/sign-in", json={"token": TOKEN}, headers={"origin": "http://evil.example"})
        assert response.status_code == 403
        assert "set-cookie" not in response.headers


@pytest.mark.req("OP-5")
async def test_scripts_use_the_token_itself() -> None:
    async with shown(a_store(), token=TOKEN) as page:
        response = await page.post(ACTION, json=BODY, headers={"authorization": f"Bearer {TOKEN}"})
        assert response.status_code == 422
        response = await page.post(ACTION, json=BODY, headers={"authorization": "Bearer something-else-entirely"})
        assert response.status_code == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b'{"queue": 5}', 422),
        (b'{"queue": "a", "more": 1}', 422),
        (b'{"queue": "a\\nb"}', 422),
        (b'{"queue": "%s"}' % (b"a" * 65), 422),
        (b'{"queue": ""}', 422),
        (b"[" * 10_000, 422),
        (b"\xff\xfe", 422),
        (b" " * (MAX_BODY_BYTES + 1), 413),
    ],
)
async def test_bad_input(body: bytes, status: int) -> None:
    async with shown(a_store(), token=TOKEN) as page:
        response = await page.post(ACTION, content=body, headers={"authorization": f"Bearer {TOKEN}"})
        assert response.status_code == status
        assert response.json()["ok"] is False
        assert response.json()["error"]


@pytest.mark.parametrize(
    "query",
    ["offset=-1", "offset=x", "limit=0", "limit=201", "state=odd", "sort=odd", "limit=٣", "filter=" + "a" * 257],
)
async def test_a_list_that_cannot_be_made(query: str) -> None:
    async with shown(a_store()) as page:
        response = await page.get(f"/api/workers?{query}")
        assert response.status_code == 422
        assert response.json()["error"]


async def test_what_is_not_there() -> None:
    async with shown(a_store(), token=TOKEN) as page:
        for response, status in (
            (await page.get("/nothing"), 404),
            (await page.get("/static/../app.py"), 404),
            (await page.get("/static/nothing.js"), 404),
            (await page.post("/api/snapshot"), 405),
            (await page.get(ACTION), 405),
            (await page.post("/api/actions/format-disk", headers={"authorization": f"Bearer {TOKEN}"}), 404),
        ):
            assert response.status_code == status
            assert response.json()["error"]


@pytest.mark.parametrize("path", ["/", "/api/snapshot", "/api/session", "/metrics", "/static/index.html", "/healthz"])
async def test_what_a_browser_may_do_with_an_answer(path: str) -> None:
    async with shown(a_store()) as page:
        response = await page.get(path)
        assert response.status_code == 200
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cross-origin-resource-policy"] == "same-origin"
        assert response.headers["cache-control"] == ("no-cache" if "static" in path else "no-store")


class TestNamesThatPointHere:
    @pytest.mark.req("OP-5")
    @pytest.mark.parametrize(
        "host",
        ["127.0.0.1", "127.0.0.1:8321", "localhost:1", "[::1]:8321", "127.8.9.1", "LocalHost", "ops.example.org"],
    )
    async def test_ours(self, host: str) -> None:
        async with shown(a_store(), allowed_hosts=["Ops.Example.ORG"]) as page:
            assert (await page.get("/api/snapshot", headers={"host": host})).status_code == 200

    @pytest.mark.req("OP-5")
    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "127.0.0.1@evil.example",
            "10.0.0.7",
            "0.0.0.0",
            "",
            "a b",
            "ops.example.org.evil.example",
            "[::2]:8321",
        ],
    )
    async def test_others(self, host: str) -> None:
        async with shown(a_store(), allowed_hosts=["ops.example.org"]) as page:
            for path in ("/", "/api/snapshot", "/events", "/static/index.html", "/metrics", "/readyz", "/api/session"):
                response = await page.get(path, headers={"host": host})
                assert response.status_code == 421
                assert "error" in response.json()
            assert (await page.get("/healthz", headers={"host": host})).json() == {"ok": True}

    @pytest.mark.req("OP-5")
    async def test_where_it_arrived_if_it_listens_everywhere(self) -> None:
        async with shown(
            a_store(), token=TOKEN, read_needs_token=True, bound_host="0.0.0.0", base="http://10.1.2.3:80"
        ) as page:
            assert (await page.get("/api/session")).status_code == 200  # the transport says so: it arrived there
            assert (await page.get("/api/session", headers={"host": "evil.example"})).status_code == 421

    @pytest.mark.req("OP-5")
    async def test_two_hosts_or_none(self) -> None:
        async with shown(a_store()) as page:
            request = page.build_request("GET", "/api/session", headers=[("host", "127.0.0.1"), ("host", "127.0.0.1")])
            assert (await page.send(request)).status_code == 400

    @pytest.mark.parametrize("host", ["a b", "http://x", "x:80", "", "x/y"])
    def test_a_name_that_is_none(self, host: str) -> None:
        with pytest.raises(ConfigError, match="host"):
            check_host(host)


class TestReachedFromElsewhere:
    PATHS = ("/events", "/api/snapshot", "/api/workers", "/metrics", "/readyz")

    @pytest.mark.req("OP-5")
    async def test_nothing_is_shown_without_the_token(self) -> None:
        async with shown(a_store(), token=TOKEN, read_needs_token=True) as page:
            for path in self.PATHS:
                response = await page.get(path)
                assert response.status_code == 401, path
                assert "place" not in response.text
            assert (await page.get("/healthz")).json() == {"ok": True}
            response = await page.get("/")
            assert response.status_code == 200
            assert "memory" not in response.text
            assert (await page.get("/api/session")).json()["readNeedsToken"]
            assert (await page.get("/static/index.html")).status_code == 200

            await page.sign_in()
            for path in self.PATHS[1:]:
                assert (await page.get(path)).status_code in (200, 503), path
            assert "memory:" in (await page.get("/")).text

    @pytest.mark.req("OP-5")
    async def test_or_with_it_in_a_header(self) -> None:
        async with shown(a_store(), token=TOKEN, read_needs_token=True) as page:
            response = await page.get("/api/snapshot", headers={"authorization": f"Bearer {TOKEN}"})
            assert response.status_code == 200

    @pytest.mark.req("OP-5")
    def test_there_has_to_be_one(self) -> None:
        with pytest.raises(ConfigError, match="no token"):
            tenure.dashboard.create_app("memory://", read_needs_token=True)


class TestGuessing:
    @pytest.mark.req("OP-5")
    async def test_is_limited_by_address_and_in_all(self) -> None:
        clock = SimulatedClock()
        async with shown(a_store(), token=TOKEN, clock=clock) as page:
            for _ in range(access.FAILURES_OF_ONE):
                assert (await page.post("/api/sign-in", json={"token": "x" * 20})).status_code == 401
            # Now even the right one is not tried, or a guess would be told from a mistake.
            response = await page.post("/api/sign-in", json={"token": TOKEN})
            assert response.status_code == 429
            assert int(response.headers["retry-after"]) > 0
            response = await page.get("/api/session", headers={"authorization": f"Bearer {TOKEN}"})
            assert response.status_code == 429
            clock.advance(61)
            assert (await page.post("/api/sign-in", json={"token": TOKEN})).status_code == 200

    @pytest.mark.req("OP-5")
    async def test_from_many_addresses(self) -> None:
        attempts = access.Attempts(SimulatedClock())
        with pytest.raises(Exception, match="too many"):
            for number in range(access.FAILURES_OF_ALL + 1):
                attempts.ensure_allowed(f"10.0.{number}.1")
                attempts.failed(f"10.0.{number}.1")

    @pytest.mark.req("OP-5")
    async def test_by_strangers_does_not_keep_out_those_who_know_it(self) -> None:
        attempts = access.Attempts(SimulatedClock())
        attempts.succeeded("10.1.1.1")
        for number in range(access.FAILURES_OF_ALL):
            attempts.failed(f"10.0.{number}.1")
        attempts.ensure_allowed("10.1.1.1")
        for refused in ("10.1.1.2", "10.0.0.1"):
            with pytest.raises(Exception, match="too many"):
                attempts.ensure_allowed(refused)
        for _ in range(access.FAILURES_OF_ONE):
            attempts.failed("10.1.1.1")
        with pytest.raises(Exception, match="too many"):
            attempts.ensure_allowed("10.1.1.1")

    async def test_known_addresses_are_bounded(self) -> None:
        attempts = access.Attempts(SimulatedClock())
        for number in range(300):
            attempts.succeeded(f"10.0.{number // 200}.{number % 200}")
        assert len(attempts._known) <= 100

    @pytest.mark.req("OP-5")
    async def test_of_strangers_leaves_a_script_with_the_token_alone(self) -> None:
        async with shown(a_store(), token=TOKEN) as page:
            right = {"authorization": f"Bearer {TOKEN}"}
            assert (await page.get("/api/session", headers=right)).status_code == 200
            attempts = page.dashboard.access._attempts
            for number in range(access.FAILURES_OF_ALL):
                attempts.failed(f"10.0.{number}.1")
            assert (await page.get("/api/session", headers=right)).status_code == 200

    @pytest.mark.req("OP-5")
    async def test_by_header_too(self) -> None:
        async with shown(a_store(), token=TOKEN, read_needs_token=True) as page:
            seen = {
                (await page.get("/api/snapshot", headers={"authorization": f"Bearer {'y' * 20}{number}"})).status_code
                for number in range(20)
            }
            assert seen == {401, 429}


async def test_the_token_is_in_no_log_and_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    secret = "s3cr3t-" * 4
    async with shown(a_store(), token=secret) as page:
        headers = await page.sign_in(secret)
        cookie = page.cookies["tenure_session_8321"]
        for path in ("/", "/api/snapshot", "/api/session", "/metrics", "/api/workers"):
            response = await page.get(path)
            said += [response.text, str(response.headers)]
        for sent in ({"token": secret + "x"}, {"tokem": secret}, {"token": [secret]}, secret):
            response = await page.post("/api/sign-in", json=sent)
            said += [response.text, str(response.headers)]
        response = await page.post(ACTION, json=BODY, headers=headers)
        said += [response.text, str(response.headers)]
    told = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("tenure"))
    assert secret not in "".join(said) + told
    assert cookie not in "".join(said) + told
    assert "queue-pause" in told  # who asked for what is told


@pytest.mark.req("OP-5")
async def test_two_dashboards_of_one_host_have_cookies_of_their_own() -> None:
    names = set()
    for base in ("http://127.0.0.1", "http://127.0.0.1:8321", "http://127.0.0.1:8322"):
        async with shown(a_store(), token=TOKEN, base=base) as page:
            await page.sign_in(origin=base)
            names |= set(page.cookies)
            assert (await page.get("/api/session")).json()["signedIn"]
    assert names == {"tenure_session", "tenure_session_8321", "tenure_session_8322"}


@pytest.mark.req("OP-5")
async def test_the_cookie_is_the_sessions_alone() -> None:
    async with shown(a_store(), token=TOKEN) as page:
        response = await page.post("/api/sign-in", json={"token": TOKEN})
        cookie = response.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "path=/;" in cookie
        assert "secure" not in cookie
        assert "csrf" not in cookie
    async with shown(a_store(), token=TOKEN, base="https://127.0.0.1:8321") as page:
        response = await page.post("/api/sign-in", json={"token": TOKEN}, headers={"origin": "https://127.0.0.1:8321"})
        assert "secure" in response.headers["set-cookie"].lower()


class TestSessions:
    def test_the_oldest_give_way(self) -> None:
        sessions = Sessions(SYSTEM_CLOCK, new_id)
        first = sessions.begin()
        others = [sessions.begin() for _ in range(MAX_SESSIONS)]
        assert len(sessions) == MAX_SESSIONS
        assert sessions.find(first) is None
        assert all(sessions.find(each) is not None for each in others)

    @pytest.mark.req("OP-5")
    def test_they_end_by_themselves(self) -> None:
        clock = SimulatedClock()
        sessions = Sessions(clock, new_id)
        idle, used = sessions.begin(), sessions.begin()
        for _ in range(3):
            clock.advance(7 * 3600)
            assert sessions.find(used) is not None
        assert sessions.find(idle) is None
        clock.advance(4 * 3600)
        assert sessions.find(used) is None, "however much it is used"
        assert len(sessions) == 0

    @pytest.mark.req("OP-5")
    def test_a_page_that_is_left_open_is_no_use(self) -> None:
        clock = SimulatedClock()
        door = access.Access(TOKEN, read_needs_token=True, bound_host="", allowed_hosts=(), clock=clock, draw_id=new_id)
        id, _ = door.sign_in(Request({"type": "http", "headers": []}), TOKEN)
        stays = door.stays(Request({"type": "http", "headers": [(b"cookie", f"{access.COOKIE}={id}".encode())]}))
        for _ in range(7):
            clock.advance(3600)
            assert stays()
        clock.advance(3601)
        assert not stays(), "nobody has used it for eight hours"


@pytest.mark.req("OP-5")
@pytest.mark.parametrize("token", ["", "short", "x" * 15, "x" * 1025, "with a space in it", "ümläut" * 4, "a\n" * 10])
def test_a_token_that_will_not_do(token: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_token(token)
    assert not token or token not in str(refused.value)


class TestMounted:
    async def test_below_a_path(self) -> None:
        def mount(app: Any) -> Starlette:
            return Starlette(routes=[Mount("/ops/tenure", app)])

        async with shown(a_store(), token=TOKEN, mount=mount) as page:
            html = (await page.get("/ops/tenure/")).text
            assert 'src="/' not in html
            assert 'href="/' not in html
            assert (await page.get("/ops/tenure/static/index.html")).status_code == 200
            assert (await page.get("/ops/tenure/api/snapshot")).json()["lease"]
            assert (await page.get("/ops/tenure/healthz", headers={"host": "whatever"})).json() == {"ok": True}
            response = await page.post("/ops/tenure/api/sign-in", json={"token": TOKEN}, headers={"origin": HERE})
            assert "path=/ops/tenure/;" in response.headers["set-cookie"].lower()
            headers = {"origin": HERE, "x-csrf-token": response.json()["csrf"]}
            assert (await page.post(f"/ops/tenure{ACTION}", json=BODY, headers=headers)).status_code == 422

    async def test_the_lifespan_of_the_application_around_it(self) -> None:
        dashboard = tenure.dashboard.create_app(a_store(), allowed_hosts=["testserver"])
        around = Starlette(routes=[Mount("/t", dashboard)], lifespan=tenure.dashboard.lifespan(dashboard))
        transport = httpx.ASGITransport(app=around)
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
            response = await client.get("/t/api/snapshot")
            assert response.status_code == 503
            assert "lifespan" in response.json()["error"]
            async with around.router.lifespan_context(around):
                assert (await client.get("/t/api/snapshot")).status_code == 200
