"""The part of Google Cloud Storage's XML API that obstore's GCSStore uses, after Google's documentation.

This is **not** Google's server and no recording of it: it is what Google documents (request preconditions, object
list, quotas), plus the text of a 429 as users have posted it. What it shows is that our side of the GCS dialect is
right: generation as version, one write per second and key, 404 for a DELETE of nothing. What it cannot show is that
Google does as it says.

obstore is pointed at it by a service account without secrets, which also turns OAuth off:

    GCSStore("bucket", service_account_key=endpoint.service_account_key(), client_options={"allow_http": True})

Not by `base_url` with `skip_signature`: reads then work, but obstore 0.12.1 still fetches a token before a PUT, from
the metadata service of the cloud if it knows no other place.

Against this server obstore 0.12.1 gives from `put` and `get` both `e_tag` (quoted MD5) and `version` (the generation),
from `list` the `e_tag` but `version` None. `put(mode={"e_tag": …})` alone is refused before it is sent ("Version
required for conditional update"); with both, only the version is looked at. 429 is a GenericError.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass
from email.utils import formatdate

from lab.answers import content, error, iso_time, listing
from lab.background import BackgroundServer
from lab.endpoint import GcsEndpoint
from lab.http1 import Request, Response, serve_connection

_TOO_FAST = (
    "The object exceeded the rate limit for object mutation operations (create, update, and delete). "
    "Please reduce your request rate. See https://cloud.google.com/storage/docs/gcs429."
)


@dataclass(frozen=True)
class _Object:
    body: bytes
    modified: float
    generation: int

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.body).hexdigest()}"'


class Gcs:
    """Any bucket exists. `writes_per_second` (Google: 1.0) limits the writes to one key; None is no limit."""

    def __init__(self, writes_per_second: float | None = None) -> None:
        self.writes_per_second = writes_per_second
        self._objects: dict[str, dict[str, _Object]] = {}
        self._written: dict[tuple[str, str], float] = {}
        self._generation = 0
        self._server = BackgroundServer(self._connection)

    def start(self) -> GcsEndpoint:
        return GcsEndpoint("gcs", self._server.start())

    def stop(self) -> None:
        self._server.stop()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve_connection(reader, writer, self._handle)

    async def _handle(self, request: Request) -> Response:
        bucket, _, key = request.path.removeprefix("/").partition("/")
        objects = self._objects.setdefault(bucket, {})
        match request.method, bool(key):
            case "GET", False:
                return listing(bucket, objects, request.query, lambda key: _entry(objects[key]))
            case "GET" | "HEAD", True:
                return _get(objects.get(key), request)
            case "PUT" | "DELETE", True:
                return self._mutate(bucket, key, request)
        return error(501, "NotImplemented", f"{request.method} {request.target}")

    def _mutate(self, bucket: str, key: str, request: Request) -> Response:
        objects, now = self._objects[bucket], time.monotonic()
        # Whether Google looks at the rate or at the precondition first is not documented. Rate first is the harder
        # order for us: a 429 then says nothing about who won.
        last = self._written.get((bucket, key))
        if self.writes_per_second and last is not None and now - last < 1 / self.writes_per_second:
            return error(429, "SlowDown", _TOO_FAST)
        current = objects.get(key)
        wanted = request.header("x-goog-if-generation-match")
        if wanted is not None and int(wanted) != (current.generation if current else 0):
            return error(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")
        if request.method == "DELETE" and current is None:
            return error(404, "NoSuchKey", "The specified key does not exist.")
        self._written[bucket, key] = now
        if request.method == "DELETE":
            del objects[key]
            return Response(204)
        stored = objects[key] = _Object(request.body, time.time(), self._next_generation())
        return Response(200, b"", _headers(stored))

    def _next_generation(self) -> int:
        # Microseconds, as Google's are; never the same twice, and never reused for a key that was deleted.
        self._generation = max(self._generation + 1, time.time_ns() // 1000)
        return self._generation


def _get(stored: _Object | None, request: Request) -> Response:
    if stored is None:
        return error(404, "NoSuchKey", "The specified key does not exist.")
    if (request.header("if-none-match") or "").strip('"') == stored.etag.strip('"'):
        return Response(304, b"", _headers(stored))
    return content(request, stored.body, _headers(stored))


def _headers(stored: _Object) -> tuple[tuple[str, str], ...]:
    return (
        ("ETag", stored.etag),
        ("x-goog-generation", str(stored.generation)),
        ("x-goog-metageneration", "1"),
        ("Last-Modified", formatdate(stored.modified, usegmt=True)),
    )


def _entry(stored: _Object) -> str:
    generation = f"<Generation>{stored.generation}</Generation><MetaGeneration>1</MetaGeneration>"
    modified = f"<LastModified>{iso_time(stored.modified)}</LastModified>"
    return f"{generation}{modified}<ETag>{stored.etag}</ETag><Size>{len(stored.body)}</Size>"
