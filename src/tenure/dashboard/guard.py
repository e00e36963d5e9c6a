"""Stands before every route: who is addressed, and what a browser may do with the answer."""

from __future__ import annotations

import logging

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenure.dashboard.access import Access
from tenure.dashboard.refusal import Refused

_log = logging.getLogger("tenure.dashboard")
_DEFECT = "this is a defect of tenure: see the log of the dashboard"
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
OPEN_TO_ALL = "/healthz"
"""Probes come under whatever name, and learn nothing but that we are alive."""


class Guard:
    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        # Routers change the scope on the way: what is asked for is told before.
        kept = "no-cache" if route_of(scope).startswith("/static/") else "no-store"

        has_begun = False

        async def guarded(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", kept)
            await send(message)

        refused = self._refusal(scope)
        if refused is not None:
            await refused.response()(scope, receive, guarded)
            return
        try:
            await self._app(scope, receive, guarded)
        except Exception as error:
            if has_begun:
                if not isinstance(error, ClientDisconnect | OSError):  # as servers say that the reader has gone
                    _log.exception("a defect of tenure: the answer to %r broke off", scope["path"][:200])
                raise
            _log.exception("a defect of tenure: %r could not be answered", scope["path"][:200])
            # Here, since whatever stands before this would answer without the headers.
            await Refused(500, _DEFECT).response()(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Refused | None:
        if route_of(scope) == OPEN_TO_ALL:
            return None
        hosts = Headers(scope=scope).getlist("host")
        if len(hosts) != 1:
            return Refused(400, "the request names no host, or several")
        server = scope.get("server")
        if self._access.is_our_host(hosts[0], server[0] if server else None):
            return None
        return Refused(
            421, f"this dashboard is not called {hosts[0][:100]!r}: if it should be, start it with --allow-host"
        )


def route_of(scope: Scope) -> str:
    """The path below where the dashboard is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"
