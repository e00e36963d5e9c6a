"""Counts requests between the workers and the server: neither a client's word is taken for it, nor a server's.

    proxy = CountingProxy(endpoint.url)
    url = proxy.start()
    before = proxy.counts("bucket")

Every request goes on as it came. It is counted under its bucket, by what S3 would charge for it, once it was read whole
and before the server sees it, so that one which is answered by 404 or 412 counts as well, and a client's own retry
counts again. `load` says how much it bore, and how long requests took from being read to the server's answer: a proxy
that does not keep up would stretch that.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from typing import Any
from urllib.parse import urlsplit

from lab.background import BackgroundServer
from lab.http1 import Request, encode_response, read_request
from lab.upstream import Upstream

VERBS = ("put", "conditional put", "get", "head", "list", "delete", "delete many")
_CONDITIONS = ("if-match", "if-none-match")


def verb_of(request: Request) -> str:
    """What S3 calls this request, with writes that have a condition told apart."""
    if request.method == "PUT":
        is_conditional = any(request.header(name) is not None for name in _CONDITIONS)
        return "conditional put" if is_conditional else "put"
    if request.method == "GET":
        # What has no key is about the bucket, and of those only listings come often.
        return "list" if "list-type" in request.query or not key_of(request) else "get"
    if request.method == "POST" and "delete" in request.query:
        return "delete many"
    return request.method.lower()


def bucket_of(request: Request) -> str:
    return request.path.lstrip("/").partition("/")[0]


def key_of(request: Request) -> str:
    return request.path.lstrip("/").partition("/")[2]


class CountingProxy:
    def __init__(self, target_url: str) -> None:
        parts = urlsplit(target_url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._host, self._port = parts.hostname, parts.port
        self._server = BackgroundServer(self._connection)
        self._lock = threading.Lock()
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._under_way = 0
        self._most_under_way = 0
        self._seconds: list[float] = []
        self._since = time.monotonic()

    def start(self) -> str:
        return self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def counts(self, bucket: str) -> Counter[str]:
        """Of that bucket, since the beginning."""
        with self._lock:
            return Counter(self._counts[bucket])

    def load(self) -> dict[str, Any]:
        """What went through since this was last asked, and how long it took."""
        with self._lock:
            seconds, self._seconds = sorted(self._seconds), []
            most, self._most_under_way = self._most_under_way, self._under_way
            since, self._since = self._since, time.monotonic()
        if not seconds:
            return {"requests": 0}
        return {
            "requests": len(seconds),
            "per_second": round(len(seconds) / (self._since - since), 1),
            "p50_ms": round(seconds[len(seconds) // 2] * 1000, 2),
            "p99_ms": round(seconds[len(seconds) * 99 // 100] * 1000, 2),
            "most_under_way": most,
        }

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = Upstream(self._host, self._port)
        try:
            while (request := await read_request(reader, writer)) is not None:
                began = self._begin(request)
                try:
                    response = await upstream.send(request)
                finally:
                    self._end(began)  # before the client hears of it, so that it finds its own requests counted
                writer.write(encode_response(response, request.method))
                await writer.drain()
                if (request.header("connection") or "").lower() == "close":
                    return
        finally:
            upstream.close()

    def _begin(self, request: Request) -> float:
        with self._lock:
            self._counts[bucket_of(request)][verb_of(request)] += 1
            self._under_way += 1
            self._most_under_way = max(self._most_under_way, self._under_way)
        return time.monotonic()

    def _end(self, began: float) -> None:
        with self._lock:
            self._under_way -= 1
            self._seconds.append(time.monotonic() - began)
