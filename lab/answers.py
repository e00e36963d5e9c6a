"""The XML that S3 and, in its XML API, Google Cloud Storage answer with."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from urllib.parse import quote
from xml.sax.saxutils import escape

from lab.http1 import Header, Request, Response

_XML = (("Content-Type", "application/xml"),)
_PAGE = 1000


def xml(body: str, status: int = 200) -> Response:
    return Response(status, f'<?xml version="1.0" encoding="UTF-8"?>\n{body}'.encode(), _XML)


def error(status: int, code: str, message: str = "") -> Response:
    return xml(f"<Error><Code>{code}</Code><Message>{escape(message or code)}</Message></Error>", status)


def content(request: Request, body: bytes, headers: tuple[Header, ...]) -> Response:
    """The body, or the one range of it that was asked for."""
    wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.header("range") or "")
    if wanted is None:
        return Response(200, body, headers)
    first, last = int(wanted[1]), min(int(wanted[2] or len(body)), len(body) - 1)
    if first > last:
        return error(416, "InvalidRange", "The requested range is not satisfiable")
    return Response(206, body[first : last + 1], (*headers, ("Content-Range", f"bytes {first}-{last}/{len(body)}")))


def iso_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}Z"


def listing(bucket: str, keys: Iterable[str], query: dict[str, str], entry: Callable[[str], str]) -> Response:
    """One page of ListObjectsV2; `entry` gives what stands beside the key of one object."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    # The token is the last name of the page before, so a page stays right while keys come and go.
    after = query.get("continuation-token") or query.get("start-after", "")
    limit = min(int(query.get("max-keys", _PAGE)), _PAGE)
    names: list[tuple[str, bool]] = []
    for key in sorted(key for key in keys if key.startswith(prefix)):
        head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
        found = (prefix + head + cut, True) if cut else (key, False)
        if found[0] > after and (not names or names[-1] != found):
            names.append(found)
    page, rest = names[:limit], names[limit:]
    encode = quote if query.get("encoding-type") == "url" else escape
    parts = [f"<Name>{bucket}</Name><Prefix>{encode(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"]
    parts.append(f"<MaxKeys>{limit}</MaxKeys><IsTruncated>{str(bool(rest)).lower()}</IsTruncated>")
    if rest and page:
        parts.append(f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>")
    for name, is_prefix in page:
        if is_prefix:
            parts.append(f"<CommonPrefixes><Prefix>{encode(name)}</Prefix></CommonPrefixes>")
        else:
            parts.append(f"<Contents><Key>{encode(name)}</Key>{entry(name)}</Contents>")
    return xml(f"<ListBucketResult>{''.join(parts)}</ListBucketResult>")
