"""A small S3 that is correct but for its faults, each of which has a name here and can be switched on alone.

Its default fault is the one that matters most: it checks If-Match and If-None-Match, waits for `window` seconds, and
then writes, so that two racers which arrive together both win. One writer at a time sees a faultless S3. With
`window=0` nothing can come between check and write, and it *is* faultless, unless another oddity is on.

It checks no signatures, and ETags are the MD5 of the body (as on S3: the same bytes give the same ETag).
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from pathlib import Path
from xml.sax.saxutils import escape

from lab.answers import content, error, iso_time, listing, xml
from lab.endpoint import S3Endpoint
from lab.http1 import Request, Response, serve_connection
from lab.process import free_port, spawn, stop, wait_for_http

_SWITCHES = (
    "bare_etag",
    "skewed",
    "versioned",
    "always_304",
    "unordered",
    "two_etags",
    "undeletable",
    "no_etag",
    "denied",
)
_LOST = {412: "PreconditionFailed", 409: "ConditionalRequestConflict", 500: "InternalError"}


@dataclass(frozen=True)
class Oddities:
    window: float = 0.020
    """Seconds between the check of a condition and the write."""
    missing_key_status: int = 404
    """403 is what AWS answers for a missing key to a caller who may not list the bucket."""
    ignore: tuple[str, ...] = ()
    """Conditions of a PUT that are not looked at: "if-match", "if-none-match"."""
    lose_with: int = 412
    """The status for a condition that does not hold: 412, 409, or 500 (as Ceph gives to some losers)."""
    bare_etag: bool = False
    """If-Match holds only without the quotes around the ETag, as on Ceph."""
    skewed: bool = False
    """Every request is refused as if the client's clock were wrong."""
    versioned: bool = False
    """Answers carry x-amz-version-id."""
    always_304: bool = False
    """A GET with If-None-Match is answered 304, whatever the ETag."""
    unordered: bool = False
    """Listings come in the reverse of the order of their keys."""
    two_etags: bool = False
    """A PUT answers another ETag than a GET."""
    undeletable: bool = False
    """Deletes are denied."""
    no_etag: bool = False
    """A PUT is answered without an ETag."""
    denied: bool = False
    """Every write is denied."""

    def flags(self) -> list[str]:
        words = ["--window", str(self.window), "--missing-key-status", str(self.missing_key_status)]
        words += ["--lose-with", str(self.lose_with)]
        words += [word for name in self.ignore for word in ("--ignore", name)]
        return words + [f"--{name.replace('_', '-')}" for name in _SWITCHES if getattr(self, name)]


class RacyS3:
    """The server as a child process. It starts with one bucket, named "bucket"."""

    def __init__(self, home: Path, oddities: Oddities | None = None) -> None:
        self.home = home
        self.port = free_port()
        self.oddities = oddities or Oddities()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> S3Endpoint:
        log = self.home / "racy.log"
        command = [sys.executable, "-m", "lab.racy", "--port", str(self.port), *self.oddities.flags()]
        self._process = spawn(command, log, cwd=Path(__file__).resolve().parents[1])
        url = f"http://127.0.0.1:{self.port}"
        wait_for_http(url, self._process, log)
        return S3Endpoint("racy", url, "test", "testtest")

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process)


@dataclass(frozen=True)
class _Object:
    body: bytes
    modified: float
    version: str

    @property
    def etag(self) -> str:
        return hashlib.md5(self.body).hexdigest()


@dataclass
class _Server:
    oddities: Oddities
    buckets: dict[str, dict[str, _Object]] = field(default_factory=lambda: {"bucket": {}})
    writes: int = 0

    async def handle(self, request: Request) -> Response:
        if self.oddities.skewed:
            return error(
                403,
                "RequestTimeTooSkewed",
                "The difference between the request time and the current time is too large.",
            )
        bucket, _, key = request.path.removeprefix("/").partition("/")
        if not bucket:
            return xml("<ListAllMyBucketsResult></ListAllMyBucketsResult>")
        if not key and request.method == "PUT":
            self.buckets.setdefault(bucket, {})
            return Response(200)
        objects = self.buckets.get(bucket)
        if objects is None:
            return error(404, "NoSuchBucket", "The specified bucket does not exist")
        match request.method, bool(key):
            case "PUT", True:
                return await self._put(objects, key, request)
            case "GET" | "HEAD", True:
                return self._get(objects, key, request)
            case "DELETE" | "POST", _ if self.oddities.undeletable:
                return error(403, "AccessDenied", "Access Denied")
            case "DELETE", True:
                objects.pop(key, None)
                return Response(204)
            case "POST", False if "delete" in request.query:
                return _delete_many(objects, request)
            case "GET", False:
                answer = listing(bucket, objects, request.query, lambda key: _entry(objects[key]))
                return _backwards(answer) if self.oddities.unordered else answer
            case "HEAD", False:
                return Response(200)
        return error(501, "NotImplemented", f"{request.method} {request.target}")

    async def _put(self, objects: dict[str, _Object], key: str, request: Request) -> Response:
        if self.oddities.denied:
            return error(403, "AccessDenied", "Access Denied")
        refusal = self._refusal(objects.get(key), request)
        if refusal is not None:
            return refusal
        if self.oddities.window:
            # The fault itself: whatever another writer does meanwhile is overwritten without a second look.
            await asyncio.sleep(self.oddities.window)
        self.writes += 1
        stored = objects[key] = _Object(request.body, time.time(), f"v{self.writes:08d}")
        headers = self._headers(stored)
        if self.oddities.no_etag:
            return Response(200, b"", headers[1:])
        return Response(200, b"", (("ETag", '"another"'), *headers[1:]) if self.oddities.two_etags else headers)

    def _refusal(self, current: _Object | None, request: Request) -> Response | None:
        if_match, if_none_match = self._condition(request, "if-match"), self._condition(request, "if-none-match")
        if if_match is not None and current is None:
            return error(404, "NoSuchKey", "The specified key does not exist.")
        lost = if_none_match is not None and current is not None and _names(if_none_match, current)
        if if_match is not None and current is not None:
            lost |= not _names(if_match, current, bare=self.oddities.bare_etag)
        return error(self.oddities.lose_with, _LOST[self.oddities.lose_with]) if lost else None

    def _condition(self, request: Request, name: str) -> str | None:
        return None if name in self.oddities.ignore else request.header(name)

    def _get(self, objects: dict[str, _Object], key: str, request: Request) -> Response:
        stored = objects.get(key)
        if stored is None and self.oddities.missing_key_status == 403:
            return error(403, "AccessDenied", "Access Denied")
        if stored is None:
            return error(404, "NoSuchKey", "The specified key does not exist.")
        if (unless := request.header("if-none-match")) and (self.oddities.always_304 or _names(unless, stored)):
            return Response(304, b"", self._headers(stored))
        if (only := request.header("if-match")) and not _names(only, stored):
            return error(412, "PreconditionFailed")
        headers = (*self._headers(stored), ("Last-Modified", formatdate(stored.modified, usegmt=True)))
        return content(request, stored.body, headers)

    def _headers(self, stored: _Object) -> tuple[tuple[str, str], ...]:
        version = (("x-amz-version-id", stored.version),) if self.oddities.versioned else ()
        return (("ETag", f'"{stored.etag}"'), *version)


def _names(condition: str, stored: _Object, *, bare: bool = False) -> bool:
    """Whether an If-Match or If-None-Match names this object. S3 takes the ETag with and without quotes."""
    return condition == "*" or (condition if bare else condition.strip('"')) == stored.etag


def _entry(stored: _Object) -> str:
    modified, size = iso_time(stored.modified), len(stored.body)
    return f'<LastModified>{modified}</LastModified><ETag>"{stored.etag}"</ETag><Size>{size}</Size>'


def _backwards(answer: Response) -> Response:
    first, *entries = re.split(rb"(?=<Contents>)", answer.body)
    last, end, rest = (entries.pop() if entries else b"").partition(b"</Contents>")
    body = first + b"".join(reversed([*entries, last + end])) + rest
    return Response(answer.status, body, answer.headers)


def _delete_many(objects: dict[str, _Object], request: Request) -> Response:
    root = ElementTree.fromstring(request.body)
    keys = [element.text or "" for element in root.iter() if element.tag.rpartition("}")[2] == "Key"]
    for key in keys:
        objects.pop(key, None)
    deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
    return xml(f"<DeleteResult>{deleted}</DeleteResult>")


async def _serve(port: int, oddities: Oddities) -> None:
    server = _Server(oddities)
    listener = await asyncio.start_server(
        partial(serve_connection, handler=server.handle), "127.0.0.1", port, backlog=512
    )
    await listener.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="lab.racy", description="An S3 whose check and write do not belong together.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--window", type=float, default=0.020)
    parser.add_argument("--missing-key-status", type=int, choices=(404, 403), default=404)
    parser.add_argument("--ignore", action="append", choices=("if-match", "if-none-match"), default=[])
    parser.add_argument("--lose-with", type=int, choices=sorted(_LOST), default=412)
    for switch in _SWITCHES:
        parser.add_argument(f"--{switch.replace('_', '-')}", action="store_true")
    given = vars(parser.parse_args())
    port = given.pop("port")
    asyncio.run(_serve(port, Oddities(**{**given, "ignore": tuple(given["ignore"])})))


if __name__ == "__main__":
    main()
