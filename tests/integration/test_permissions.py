"""The permissions in deploy/iam are those that are used, no fewer and no more: counted at a real server.

Every request goes through a proxy, and each is named as the action that AWS would ask for.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from lab.endpoint import S3Endpoint
from lab.fault_proxy import FaultProxy, ProxiedRequest
from tenure.store.url import parse_url

pytestmark = pytest.mark.slow

IAM = Path(__file__).parents[2] / "deploy" / "iam"
SETTINGS = {
    "versioning": "s3:GetBucketVersioning",
    "object-lock": "s3:GetBucketObjectLockConfiguration",
    "encryption": "s3:GetEncryptionConfiguration",
    "replication": "s3:GetReplicationConfiguration",
}
OBJECTS = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "DELETE": "s3:DeleteObject"}


def action(request: ProxiedRequest, bucket: str, prefix: str) -> str:
    """What AWS would ask for; and nothing outside the prefix is ever named."""
    parts = urlsplit(request.path)
    query = parse_qs(parts.query, keep_blank_values=True)
    named, _, key = parts.path.lstrip("/").partition("/")
    assert named == bucket, request
    if key:
        assert key.startswith(prefix), f"outside of the prefix: {request}"
        assert set(query) <= {"x-id"}, f"more than the object itself: {request}"
        return OBJECTS[request.method]
    if request.method == "POST" and "delete" in query:
        return "s3:DeleteObject"
    if request.method == "GET" and "list-type" in query:
        assert query["prefix"][0].startswith(prefix), f"a listing outside of the prefix: {request}"
        return "s3:ListBucket"
    settings = SETTINGS.keys() & query.keys()
    assert request.method == "GET" and len(settings) == 1, f"what is this? {request}"
    return SETTINGS[settings.pop()]


def allowed(*names: str) -> set[str]:
    found: set[str] = set()
    for name in names:
        for statement in json.loads((IAM / name).read_text())["Statement"]:
            actions = statement["Action"]
            found.update([actions] if isinstance(actions, str) else actions)
    return found


def used(proxy: FaultProxy, url: str) -> set[str]:
    place = parse_url(url)
    return {action(request, place.bucket, place.prefix) for request in proxy.requests}


def tenure(url: str, words: Iterable[str], *, codes: Iterable[int] = (0,)) -> None:
    line = [url if word == "URL" else word for word in words]
    done = subprocess.run([sys.executable, "-m", "tenure", *line], capture_output=True, text=True, timeout=240)
    assert done.returncode in codes, (line, done.stdout, done.stderr)


@pytest.fixture
def through(ministack: S3Endpoint, url_of: Callable[[str], str]) -> Callable[[FaultProxy], str]:
    place = parse_url(url_of("ministack"))

    def url(proxy: FaultProxy) -> str:
        return ministack.store_url(place.bucket, place.prefix.rstrip("/"), endpoint=proxy.start())

    return url


@pytest.fixture
def proxy(ministack: S3Endpoint) -> Iterable[FaultProxy]:
    made = FaultProxy(ministack.url)
    yield made
    made.stop()


WORK = (
    ["run", "URL", "--lease", "3s", "--membership", "--", "true"],
    ["queue", "create", "URL", "emails"],
    ["queue", "put", "URL", "emails", "{}"],
    ["counter", "add", "URL", "pages", "home", "views", "--new"],
    ["gc", "URL", "--yes"],
)
LOOKS = (
    ["status", "URL", "--no-wait"],
    ["workers", "URL", "--no-wait"],
    ["watch", "URL", "--for", "1s", "--interval", "200ms", "--json"],
    ["audit", "URL"],
    ["queue", "list", "URL"],
    ["queue", "stats", "URL", "emails"],
    ["queue", "peek", "URL", "emails"],
    ["counter", "get", "URL", "pages", "home", "--consistent"],
    ["schedule", "list", "URL"],
)


def test_who_takes_part_uses_what_is_allowed_and_all_of_it(
    proxy: FaultProxy, through: Callable[[FaultProxy], str]
) -> None:
    url = through(proxy)
    for words in WORK:
        tenure(url, words)
    assert used(proxy, url) == allowed("s3.json")


def test_who_looks_uses_what_is_allowed_and_all_of_it(
    proxy: FaultProxy, through: Callable[[FaultProxy], str], ministack: S3Endpoint
) -> None:
    url = through(proxy)
    for words in WORK:
        tenure(url, words)
    before = len(proxy.requests)
    for words in LOOKS:
        tenure(url, words, codes=(0, 1))
    place = parse_url(url)
    found = {action(request, place.bucket, place.prefix) for request in proxy.requests[before:]}
    assert found == allowed("s3-read-only.json")


def test_all_plugins_and_doctor(proxy: FaultProxy, through: Callable[[FaultProxy], str]) -> None:
    """The demo has processes, a queue, a schedule, counters and fenced objects. Its verdicts do not count here. It
    looks at the bucket first, as doctor does."""
    url = through(proxy)
    tenure(url, ["demo", "--store", "URL", "--json"], codes=(0, 1))
    assert allowed("s3.json") <= used(proxy, url) <= allowed("s3.json", "s3-doctor.json")
    tenure(url, ["doctor", "URL", "--rounds", "2", "--processes", "2"], codes=(0, 1))
    assert used(proxy, url) == allowed("s3.json", "s3-doctor.json")
