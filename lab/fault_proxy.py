"""An HTTP proxy between a client and a store that misbehaves on demand. See lab/faults.py for what it can do.

    proxy = FaultProxy(endpoint.url)
    store_url = endpoint.store_url("bucket", endpoint=proxy.start())
    proxy.plan(status_after_apply(500), match="PUT state.json")

Requests go on byte for byte as to method, target, body and headers, Host included: a SigV4 signature covers the host
that the client spoke to, and Ceph checks it. Runs in a thread of its own; every method may be called from any thread.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from lab.answers import error
from lab.background import BackgroundServer
from lab.faults import Fault, Landing, Reply
from lab.http1 import Request, Response, encode_response, read_request
from lab.upstream import Upstream

Match = str | Callable[[Request], bool] | None

_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE"})
_CODES = {
    403: "AccessDenied",
    408: "RequestTimeout",
    409: "ConditionalRequestConflict",
    429: "SlowDown",
    503: "SlowDown",
}
_LOG_LIMIT = 100_000


@dataclass(frozen=True)
class ProxiedRequest:
    method: str
    path: str
    """Decoded, with the query."""
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    """Of a POST, which names its keys there. Those of others may be large, and are not kept."""
    status_given: int | None
    """What the client was told; None when it was told nothing."""
    status_landed: int | None
    """What the store had answered by then; None when nothing had landed."""
    fault: Fault | None


@dataclass
class Rule:
    fault: Fault
    match: Match
    every: int = 1
    times: int | None = None
    seen: int = 0
    hits: int = 0

    def wants(self, request: Request) -> bool:
        if self.times is not None and self.hits >= self.times:
            return False
        if not matches(self.match, request):
            return False
        self.seen += 1
        return self.seen % self.every == 0


def matches(match: Match, request: Request) -> bool:
    """A predicate, or words that must all hold: the name of a method, or else a part of the target.

    obstore deletes on S3 and Azure by POST, even a single key, with the keys in the body; only on GCS by DELETE.
    """
    if match is None or callable(match):
        return match is None or match(request)
    target = unquote(request.target)
    return all(word == request.method if word in _METHODS else word in target for word in match.split())


class FaultProxy:
    def __init__(self, target_url: str, *, log_limit: int = _LOG_LIMIT) -> None:
        """`log_limit`: so many of the newest requests are kept to be looked at."""
        parts = urlsplit(target_url)
        if parts.scheme != "http" or not parts.hostname or not parts.port:
            raise ValueError(f"not a plain http URL with a port: {target_url}")
        self._host, self._port, self._base_path = parts.hostname, parts.port, parts.path
        self._server = BackgroundServer(self._connection)
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._log: deque[ProxiedRequest] = deque(maxlen=log_limit)
        self._counts: Counter[str] = Counter()
        self._late: set[asyncio.Task[None]] = set()
        self._late_statuses: list[int | None] = []
        self._late_pending = 0

    def start(self) -> str:
        """The proxy's URL, with the path of the target's. A start after a stop gives the same one."""
        return self._server.start() + self._base_path

    def stop(self) -> None:
        """Late landings that have not landed by now never will."""
        self._server.stop()
        with self._lock:
            self._late_pending = 0

    def plan(self, fault: Fault, match: Match = None, times: int | None = 1, *, ahead: bool = False) -> Rule:
        """Do `fault` to the next `times` requests that match (None: until `clear`).

        The oldest plan goes first, unless it is put ahead of all.
        """
        return self._add(Rule(fault, match, times=times), ahead)

    def every(self, n: int, fault: Fault, match: Match = None, *, ahead: bool = False) -> Rule:
        """Do `fault` to each n-th request that matches, until `clear`."""
        return self._add(Rule(fault, match, every=n), ahead)

    def remove(self, rule: Rule) -> None:
        """Undo one plan, and leave the others. One that has ended by itself may be removed as well."""
        with self._lock:
            self._rules = [each for each in self._rules if each is not rule]

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    @property
    def requests(self) -> list[ProxiedRequest]:
        """What went through, oldest first, each noted before its answer is sent. The last 100,000, or `log_limit`."""
        with self._lock:
            return list(self._log)

    @property
    def counts(self) -> Counter[str]:
        """Requests by method, since the beginning."""
        with self._lock:
            return Counter(self._counts)

    @property
    def late_statuses(self) -> list[int | None]:
        """What the store answered to each late landing; None where it could not be reached."""
        with self._lock:
            return list(self._late_statuses)

    def drain(self, seconds: float) -> None:
        """Return once every late landing has landed; TimeoutError if that takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self._lock:
                if not self._late_pending:
                    return
            time.sleep(0.005)
        raise TimeoutError(f"{self._late_pending} late landings still under way after {seconds} s")

    def _add(self, rule: Rule, ahead: bool) -> Rule:
        with self._lock:
            self._rules.insert(0 if ahead else len(self._rules), rule)
        return rule

    def _choose(self, request: Request) -> Fault | None:
        with self._lock:
            self._counts[request.method] += 1
            # Every rule counts what it has seen, whether or not an older one acts on it.
            willing = [rule for rule in self._rules if rule.wants(request)]
            if not willing:
                return None
            willing[0].hits += 1
            self._rules = [rule for rule in self._rules if rule.times is None or rule.hits < rule.times]
            return willing[0].fault

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = Upstream(self._host, self._port)
        try:
            while (request := await read_request(reader, writer)) is not None:
                fault = self._choose(request)
                answer = await self._land(request, fault, upstream)
                if not await self._reply(request, fault, answer, reader, writer):
                    return
        finally:
            upstream.close()

    async def _land(self, request: Request, fault: Fault | None, upstream: Upstream) -> Response | None:
        landing = fault.landing if fault else Landing.ONCE
        if landing is Landing.NEVER:
            return None
        if fault and landing is Landing.LATE:
            with self._lock:
                self._late_pending += 1
            task = asyncio.create_task(self._land_late(request, fault.seconds))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            return None
        if fault and fault.seconds:
            await asyncio.sleep(fault.seconds)
        if landing is Landing.TWICE:
            await upstream.send(request)
        return await upstream.send(request)

    async def _land_late(self, request: Request, seconds: float) -> None:
        await asyncio.sleep(seconds)
        upstream = Upstream(self._host, self._port)
        status = None
        try:
            status = (await upstream.send(request)).status
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            upstream.close()
            with self._lock:
                self._late_statuses.append(status)
                self._late_pending -= 1

    async def _reply(
        self,
        request: Request,
        fault: Fault | None,
        answer: Response | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Tell the client what the fault lets it hear. False: the connection is at its end."""
        reply = fault.reply if fault else Reply.GENUINE
        given = answer if reply is Reply.GENUINE else None
        if fault and fault.status is not None:
            given = error(fault.status, fault.code or _CODES.get(fault.status, "InternalError"), "injected by the lab")
        self._note(request, fault, given, answer)
        if given is not None:
            writer.write(encode_response(given, request.method))
            await writer.drain()
            return (request.header("connection") or "").lower() != "close"
        if reply is Reply.HANG:
            await reader.read()
        if reply is Reply.RESET:
            # Lingering for zero seconds makes the kernel send RST instead of FIN.
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        return False

    def _note(self, request: Request, fault: Fault | None, given: Response | None, landed: Response | None) -> None:
        headers = {name.lower(): value for name, value in request.headers}
        status_given, status_landed = given.status if given else None, landed.status if landed else None
        body = request.body if request.method == "POST" else b""
        entry = ProxiedRequest(
            request.method, unquote(request.target), headers, body, status_given, status_landed, fault
        )
        with self._lock:
            self._log.append(entry)
