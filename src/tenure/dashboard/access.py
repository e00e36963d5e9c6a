"""Who may look, and who may act.

Guarantee: without the token nothing can be changed, and where the dashboard can be reached from elsewhere nothing can
be seen. A page of another site that a browser shows can do neither: it has no token (CSRF), its origin is another, and
a name that was pointed here (DNS rebinding) is not one of ours. The token is compared in constant time, guesses are
limited, and it is in no answer and no log.

Not guaranteed: secrecy on the way. Where others can listen, put a proxy with TLS in front.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenure.clock import Clock, Reading
from tenure.coordinator.given import shown
from tenure.dashboard.bounds import MAX_SESSIONS
from tenure.dashboard.refusal import Refused
from tenure.entropy import NewId
from tenure.errors import ConfigError

COOKIE = "tenure_session"
CSRF_HEADER = "x-csrf-token"
SHORTEST_TOKEN = 16
LONGEST_TOKEN = 1024
IDLE_SECONDS = 8 * 3600.0
LONGEST_SECONDS = 24 * 3600.0
FAILURES_OF_ONE = 5
"""Wrong tokens from one address in a minute ..."""
FAILURES_OF_ALL = 60
"""... and from all of them that have not shown the right one."""
_MINUTE = 60.0
_MAX_ADDRESSES = 1000
_MAX_KNOWN = 100
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.%]{2,64}\]|[A-Za-z0-9._\-]{1,255})(?::(?P<port>[0-9]{1,5}))?")
_ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - names to compare with


def check_token(token: str) -> str:
    """Raises `ConfigError`, without the token in it."""
    if not isinstance(token, str):
        raise ConfigError(f"the token is a {type(token).__name__}: give a text")
    if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN:
        raise ConfigError(
            f"the token has {len(token)} characters: give {SHORTEST_TOKEN} to {LONGEST_TOKEN}, for example those that "
            "`openssl rand -hex 32` prints"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError("the token has characters that no header can carry: give printable ASCII without spaces")
    return token


def is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Session(msgspec.Struct, frozen=True):
    csrf: str
    began: Reading
    used: Reading


class Sessions:
    """Of those who have signed in. The oldest give way."""

    def __init__(self, clock: Clock, draw_id: NewId) -> None:
        self._clock = clock
        self._draw_id = draw_id
        self._open: OrderedDict[str, Session] = OrderedDict()

    def begin(self) -> str:
        id, now = self._draw_id() + self._draw_id(), self._clock.read()
        self._open[id] = Session(self._draw_id(), now, now)
        while len(self._open) > MAX_SESSIONS:
            self._open.popitem(last=False)
        return id

    def find(self, id: str | None, *, touch: bool = True) -> Session | None:
        """`touch=False`: to ask is no use of it."""
        session = self._open.get(id) if id is not None else None
        if id is None or session is None:
            return None
        now = self._clock.read()
        if now.leader_elapsed(session.used) > IDLE_SECONDS or now.leader_elapsed(session.began) > LONGEST_SECONDS:
            del self._open[id]
            return None
        if touch:
            self._open[id] = msgspec.structs.replace(session, used=now)
        return session

    def end(self, id: str | None) -> None:
        if id is not None:
            self._open.pop(id, None)

    def __len__(self) -> int:
        return len(self._open)


class Attempts:
    """Wrong tokens, by address and in all: after too many, none is tried for the rest of the minute.

    An address that has shown the right token is limited by its own mistakes alone: strangers who guess must not keep
    out those who know it. The longest unseen of these give way.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.read()
        self._all = 0
        self._by_address: dict[str, int] = {}
        self._known: OrderedDict[str, None] = OrderedDict()

    def ensure_allowed(self, address: str) -> None:
        now = self._clock.read()
        elapsed = now.follower_elapsed(self._began)
        if elapsed >= _MINUTE:
            self._began, self._all, elapsed = now, 0, 0.0
            self._by_address.clear()
        too_many_of_all = self._all >= FAILURES_OF_ALL and address not in self._known
        if self._by_address.get(address, 0) >= FAILURES_OF_ONE or too_many_of_all:
            wait = max(1, round(_MINUTE - elapsed))
            raise Refused(429, f"too many wrong tokens: try again in {wait} s", {"retry-after": str(wait)})

    def succeeded(self, address: str) -> None:
        self._known[address] = None
        self._known.move_to_end(address)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)

    def failed(self, address: str) -> None:
        self._all += 1
        if address in self._by_address or len(self._by_address) < _MAX_ADDRESSES:
            self._by_address[address] = self._by_address.get(address, 0) + 1


class SessionAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `api/session` says."""

    actions: bool
    """A token was configured."""
    signed_in: bool
    csrf: str | None
    read_needs_token: bool


class Access:
    def __init__(
        self,
        token: str | None,
        *,
        read_needs_token: bool,
        bound_host: str,
        allowed_hosts: Iterable[str],
        clock: Clock,
        draw_id: NewId,
    ) -> None:
        if token is None and read_needs_token:
            raise ConfigError("read_needs_token is True, and there is no token: nobody could look")
        self._digest = None if token is None else _digest(check_token(token))
        self.read_needs_token = read_needs_token
        self._at_any_address = bound_host in _ANY_ADDRESS
        self._hosts = frozenset(check_host(host) for host in (*allowed_hosts, *([bound_host] if bound_host else [])))
        self._sessions = Sessions(clock, draw_id)
        self._attempts = Attempts(clock)

    @property
    def has_token(self) -> bool:
        return self._digest is not None

    # Hosts

    def is_our_host(self, header: str, reached: str | None) -> bool:
        """`reached`: the address of this machine at which the request arrived."""
        found = _HOST.fullmatch(header)
        if found is None:
            return False
        name = _plain(found["name"])
        is_where_it_arrived = self._at_any_address and reached is not None and name == _plain(reached)
        return is_loopback(name) or name in self._hosts or is_where_it_arrived

    def ensure_same_origin(self, request: Request, *, required: bool) -> None:
        """A browser says from which site a POST comes; other programs need not."""
        origin = request.headers.get("origin")
        if origin is None and not required:
            return
        if origin is None or _authority(origin, "") is None or _authority(origin, "") != _host_of(request, origin):
            raise Refused(403, "the request comes from a page of another site, or does not say from which (Origin)")

    # Who asks

    def stays(self, request: Request) -> Callable[[], bool]:
        """Whether whoever may read now still may, later on: a token does not change, and a session may end."""
        if not self.read_needs_token or self._has_bearer(request):
            return lambda: True
        # A page that was left open asks all the time, and nobody may be there.
        id = request.cookies.get(cookie_name(request))
        return lambda: self._sessions.find(id, touch=False) is not None

    def signed_in(self, request: Request) -> bool:
        """By session or by bearer token."""
        return self._session(request) is not None or self._has_bearer(request)

    def ensure_may_read(self, request: Request) -> None:
        if self.read_needs_token and not self.signed_in(request):
            raise Refused(401, "sign in with the token of this dashboard", {"www-authenticate": "Bearer"})

    def ensure_may_act(self, request: Request) -> None:
        if not self.has_token:
            raise Refused(403, "this dashboard only shows: it was started without a token")
        if self._has_bearer(request):
            return
        session = self._session(request)
        if session is None:
            raise Refused(401, "sign in with the token of this dashboard", {"www-authenticate": "Bearer"})
        self.ensure_same_origin(request, required=True)
        if not hmac.compare_digest(request.headers.get(CSRF_HEADER, "").encode(), session.csrf.encode()):
            raise Refused(403, "the header X-CSRF-Token is not that of this session: load the page again")

    def answer(self, session: Session | None, *, bearer: bool = False) -> SessionAnswer:
        return SessionAnswer(
            actions=self.has_token,
            signed_in=session is not None or bearer,
            csrf=session.csrf if session is not None else None,
            read_needs_token=self.read_needs_token,
        )

    def session_of(self, request: Request) -> SessionAnswer:
        return self.answer(self._session(request), bearer=self._has_bearer(request))

    def sign_in(self, request: Request, token: str) -> tuple[str, SessionAnswer]:
        """The session's id, which goes into the cookie and nowhere else."""
        if not self.has_token:
            raise Refused(403, "this dashboard only shows: it was started without a token")
        self.ensure_same_origin(request, required=False)
        if not self._is_token(token, address_of(request)):
            raise Refused(401, "that is not the token of this dashboard")
        id = self._sessions.begin()
        return id, self.answer(self._sessions.find(id))

    def sign_out(self, request: Request) -> None:
        self.ensure_same_origin(request, required=False)
        self._sessions.end(request.cookies.get(cookie_name(request)))

    def _session(self, request: Request) -> Session | None:
        return self._sessions.find(request.cookies.get(cookie_name(request)))

    def _has_bearer(self, request: Request) -> bool:
        """Raises if there is one that is not ours: whoever sends one means to be somebody."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self.has_token:
            return False
        if not self._is_token(given.strip(), address_of(request)):
            raise Refused(401, "that is not the token of this dashboard", {"www-authenticate": "Bearer"})
        return True

    def _is_token(self, given: str, address: str) -> bool:
        self._attempts.ensure_allowed(address)
        assert self._digest is not None
        if hmac.compare_digest(_digest(given[: 2 * LONGEST_TOKEN]), self._digest):
            self._attempts.succeeded(address)
            return True
        self._attempts.failed(address)
        return False


def cookie_name(request: Request) -> str:
    """A browser sends a host's cookies to all of its ports: two dashboards of one host must not share a name."""
    found = _HOST.fullmatch(request.headers.get("host", ""))
    return COOKIE if found is None or found["port"] is None else f"{COOKIE}_{found['port']}"


def set_cookie(response: Response, request: Request, id: str | None) -> None:
    """`None`: take it away."""
    secure = request.url.scheme == "https"
    name, path = cookie_name(request), f"{request.scope.get('root_path', '')}/"
    if id is None:
        response.delete_cookie(name, path=path, secure=secure, httponly=True, samesite="strict")
    else:
        response.set_cookie(name, id, path=path, secure=secure, httponly=True, samesite="strict")


def check_host(host: str) -> str:
    if not isinstance(host, str):
        raise ConfigError(f"a host is {shown(host)}: give a name or an address")
    name = f"[{host}]" if ":" in host and not host.startswith("[") else host
    found = _HOST.fullmatch(name)
    if found is None or found["port"] is not None:
        raise ConfigError(f"a host is {host[:100]!r}: give a name or an address, without a port, as a browser shows it")
    return _plain(found["name"])


def _plain(name: str) -> str:
    """As it is compared: addresses in one form."""
    bare = name.strip("[]").lower().rstrip(".")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return bare


def _authority(url: str, scheme: str) -> tuple[str, int | None] | None:
    """Host and port of an origin; `None` for what is none."""
    try:
        parts = urlsplit(url)
        default = {"http": 80, "https": 443}.get(parts.scheme or scheme)
        if parts.hostname is None or default is None or parts.path or parts.query or parts.fragment or parts.username:
            return None
        return _plain(parts.hostname), parts.port or default
    except ValueError:
        return None


def _host_of(request: Request, origin: str) -> tuple[str, int | None] | None:
    """What the request says it was sent to, with the port that the origin's scheme implies."""
    return _authority(f"{urlsplit(origin).scheme}://{request.headers.get('host', '')}", "")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""
