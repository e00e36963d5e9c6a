"""The dashboard as an ASGI application: its routes, and what each of them needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.given import check_flag, check_number, shown
from tenure.coordinator.layout import folder_of
from tenure.dashboard.access import Access, address_of, set_cookie
from tenure.dashboard.actions import Actions
from tenure.dashboard.bounds import MAX_BODY_BYTES, MAX_CLIENTS, MAX_ROWS_PER_PAGE, MAX_WORKERS
from tenure.dashboard.collector import Collector
from tenure.dashboard.fleet import SORTS, STATES
from tenure.dashboard.guard import Guard
from tenure.dashboard.metrics import CONTENT_TYPE, exposition
from tenure.dashboard.refusal import Refused, json_response
from tenure.dashboard.stream import EventStream
from tenure.entropy import NewId, new_id
from tenure.errors import ConfigError
from tenure.store import Access as StoreAccess
from tenure.store import open_store
from tenure.store.url import parse_url

_log = logging.getLogger("tenure.dashboard")

STATIC = Path(__file__).parent / "static"
INITIAL = "{{initial}}"
_FRESH_WITHIN = 0.5
_LONGEST_FILTER = 256
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    token: str


class Dashboard:
    """The parts of one, and its routes."""

    def __init__(self, url: str, namespace: str, access: Access, *, interval: float, clock: Clock) -> None:
        self.url = url
        self.namespace = namespace
        self.access = access
        self.interval = interval
        self.clock = clock
        self.closing = asyncio.Event()
        """Set: streams end, so that the server can."""
        self.actions = Actions(url, namespace, clock)
        self._running: Collector | None = None

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        """While it lasts, the bucket is looked at."""
        async with open_store(self.url, access=StoreAccess.READ_ONLY) as store:
            self._running = collector = Collector(
                store, parse_url(self.url).shown, self.namespace, interval=self.interval, clock=self.clock
            )
            looking = asyncio.ensure_future(collector.run())
            try:
                yield
            finally:
                self.closing.set()
                self._running = None
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)

    @property
    def collector(self) -> Collector:
        if self._running is None:
            raise Refused(503, "the dashboard was not started: run its lifespan in the application that mounts it")
        return self._running

    def routes(self) -> list[Route | Mount]:
        return [
            Route("/", self.page),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/events", self.events),
            Route("/api/snapshot", self.snapshot),
            Route("/api/workers", self.workers),
            Route("/api/session", self.session),
            Route("/api/sign-in", self.sign_in, methods=["POST"]),
            Route("/api/sign-out", self.sign_out, methods=["POST"]),
            Route("/api/actions/{name}", self.action, methods=["POST"]),
            Route("/healthz", self.healthz),
            Route("/readyz", self.readyz),
            Route("/metrics", self.metrics),
        ]

    # Looking

    async def page(self, request: Request) -> Response:
        """With everything that is known already in it, so that there is something to see at once."""
        initial = "{}"
        if not self.access.read_needs_token or self.access.signed_in(request):
            await self._fresh()
            initial = self.collector.board.snapshot().decode().translate(_ESCAPES)
        html = (STATIC / "index.html").read_text()
        return Response(html.replace(INITIAL, initial), media_type="text/html")

    async def snapshot(self, request: Request) -> Response:
        self.access.ensure_may_read(request)
        await self._fresh()
        return Response(self.collector.board.snapshot(), media_type="application/json")

    async def workers(self, request: Request) -> Response:
        self.access.ensure_may_read(request)
        self.collector.touch()
        query = request.query_params
        filter = query.get("filter", "")
        if len(filter) > _LONGEST_FILTER:
            raise Refused(422, f"filter has {len(filter)} characters: give at most {_LONGEST_FILTER}")
        return json_response(
            self.collector.fleet.page(
                offset=_number(query.get("offset"), "offset", 0, 0, MAX_WORKERS),
                limit=_number(query.get("limit"), "limit", 50, 1, MAX_ROWS_PER_PAGE),
                filter=filter,
                state=_one_of(query.get("state", "all"), "state", STATES),
                sort=_one_of(query.get("sort", "rank"), "sort", SORTS),
            )
        )

    async def events(self, request: Request) -> ASGIApp | Response:
        self.access.ensure_may_read(request)
        if self.collector.clients >= MAX_CLIENTS:
            raise Refused(503, f"{MAX_CLIENTS} pages watch already, and no more may: close some", {"retry-after": "10"})
        self.collector.touch()
        return EventStream(self.collector, self.clock, self.closing, self.access.stays(request))

    async def _fresh(self) -> None:
        """After nobody watched for a while what is known may be old: wait a moment for a look."""
        self.collector.touch()
        await self.collector.looked(_FRESH_WITHIN)

    # Who

    async def session(self, request: Request) -> Response:
        return json_response(self.access.session_of(request))

    async def sign_in(self, request: Request) -> Response:
        given = await body_of(request, SignIn)
        id, answer = self.access.sign_in(request, given.token)
        response = json_response(answer)
        set_cookie(response, request, id)
        return response

    async def sign_out(self, request: Request) -> Response:
        self.access.sign_out(request)
        response = json_response(self.access.answer(None))
        set_cookie(response, request, None)
        return response

    # Acting

    async def action(self, request: Request) -> Response:
        try:
            self.access.ensure_may_act(request)
            name = request.path_params["name"]
            if name not in self.actions.all:
                raise Refused(404, f"there is no action {name[:60]!r}: there are {', '.join(self.actions.all)}")
            given = await body_of(request, self.actions.all[name][0])
            self.collector.touch()
            done = await self.actions.do(name, given, address_of(request))
            for section, field in (("queues", "queue"), ("schedules", "schedule")):
                self.collector.work.hurry(section, getattr(given, field, ""))
            return json_response(done)
        except Refused as refused:
            answer = {"ok": False, "says": refused.sentence, "error": refused.sentence}
            return json_response(answer, refused.status, refused.headers)

    # Health

    async def healthz(self, request: Request) -> Response:
        return json_response({"ok": True})

    async def readyz(self, request: Request) -> Response:
        self.access.ensure_may_read(request)
        await self._fresh()
        trouble = self.collector.trouble
        if trouble is not None:
            raise Refused(503, trouble)
        return json_response({"ok": True})

    async def metrics(self, request: Request) -> Response:
        self.access.ensure_may_read(request)
        await self._fresh()
        return Response(exposition(self.collector), headers={"content-type": CONTENT_TYPE})


S = TypeVar("S", bound=msgspec.Struct)


async def body_of(request: Request, kind: type[S]) -> S:
    """Raises if it is too large, or not what it should be. What was sent is not repeated: it may be a token."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY_BYTES:
                raise Refused(413, f"the request has a body of more than {MAX_BODY_BYTES:,} bytes")
    except ClientDisconnect:
        raise Refused(400, "the request ended in the middle of its body") from None  # which nobody reads any more
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(422, f"the body is not the JSON that is expected here: {_without_values(error)}") from None


def _without_values(error: Exception) -> str:
    return str(error)[:200] if isinstance(error, msgspec.ValidationError) else "it cannot be read"


def _number(given: str | None, name: str, default: int, least: int, most: int) -> int:
    if given is None:
        return default
    if not given.isascii() or not given.isdigit() or len(given) > 9 or not least <= int(given) <= most:
        raise Refused(422, f"{name} is {given[:40]!r}: give a whole number from {least} to {most:,}")
    return int(given)


def _one_of(given: str, name: str, choices: Iterable[str]) -> str:
    if given not in choices:
        raise Refused(422, f"{name} is {given[:40]!r}: give one of {', '.join(choices)}")
    return given


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error.response()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = {404: "there is nothing here", 405: "this is not how it is asked for"}.get(error.status_code)
    return json_response({"error": sentence or str(error.detail)}, error.status_code, dict(error.headers or {}))


def build(
    url: str,
    namespace: str = "default",
    *,
    token: str | None = None,
    read_needs_token: bool = False,
    bound_host: str = "127.0.0.1",
    allowed_hosts: Iterable[str] = (),
    interval: float = 1.0,
    clock: Clock = SYSTEM_CLOCK,
    draw_id: NewId = new_id,
) -> tuple[Starlette, Dashboard]:
    parse_url(url)
    folder_of(namespace)
    check_flag("read_needs_token", read_needs_token)
    check_number("interval", interval, least=0.1, most=3600)
    if isinstance(allowed_hosts, str | bytes) or not isinstance(allowed_hosts, Iterable):
        raise ConfigError(f"allowed_hosts is {shown(allowed_hosts)}: give a list of names, such as ['ops.example.org']")
    access = Access(
        token,
        read_needs_token=read_needs_token,
        bound_host=bound_host,
        allowed_hosts=tuple(allowed_hosts),
        clock=clock,
        draw_id=draw_id,
    )
    dashboard = Dashboard(url, namespace, access, interval=interval, clock=clock)
    app = Starlette(
        routes=dashboard.routes(),
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={Refused: _refused, HTTPException: _http_error},
        lifespan=dashboard.lifespan,
    )
    app.state.dashboard = dashboard
    return app, dashboard
