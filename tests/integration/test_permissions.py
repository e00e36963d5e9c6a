"""The permissions in deploy/iam are those that are used, no fewer and no more: counted at servers.

Every request goes through a proxy, and each is named as what its cloud would ask for. The keys are looked at as well:
none is outside of the prefix, nor are those in the body of a request that deletes many. S3 is a real server, Azure is
Azurite, and Google Cloud Storage is what Google documents (`lab.gcs`): what our side sends is real in all of them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import unescape

import click
import pytest
import yaml

from lab.endpoint import AzureEndpoint, GcsEndpoint, S3Endpoint
from lab.fault_proxy import FaultProxy, ProxiedRequest
from lab.process import spawn, stop
from tenure.cli.main import cli, run
from tenure.clock import SYSTEM_CLOCK
from tenure.dashboard.actions import Actions
from tenure.store.url import parse_url
from tests.acceptance.test_dashboard_command import Served, served
from tests.support.command import tenure_process
from tests.support.waiting import eventually_here

ROOT = Path(__file__).parents[2]
IAM = ROOT / "deploy" / "iam"
PATIENCE = 120.0
TOKEN = "a-token-of-some-length"
SETTINGS = {
    "versioning": "s3:GetBucketVersioning",
    "object-lock": "s3:GetBucketObjectLockConfiguration",
    "encryption": "s3:GetEncryptionConfiguration",
    "replication": "s3:GetReplicationConfiguration",
    "lifecycle": "s3:GetLifecycleConfiguration",
}
OBJECTS = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "DELETE": "s3:DeleteObject"}
SHORTEST_ON_GCS = 8
"""Seconds of a lease: of one object Google takes about one write a second."""
GOOGLE = "storage.objects"
BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"


@dataclass(frozen=True)
class Asked:
    """A request, taken apart: the key is empty where it is of the bucket itself."""

    request: ProxiedRequest
    key: str
    query: dict[str, list[str]]
    prefix: str

    def inside(self, *keys: str) -> None:
        assert keys, f"it names nothing: {self.request}"
        for key in keys:
            assert key.startswith(self.prefix) and ".." not in key.split("/"), f"outside of the prefix: {self.request}"

    def lists(self) -> None:
        assert self.query["prefix"][0].startswith(self.prefix), f"a listing outside of the prefix: {self.request}"


def asked(request: ProxiedRequest, place: Any, account: str = "") -> Asked:
    parts = urlsplit(request.path)
    named, _, key = parts.path.removeprefix(account).lstrip("/").partition("/")
    assert named == place.bucket, request
    return Asked(request, key, parse_qs(parts.query, keep_blank_values=True), place.prefix)


def of_s3(request: ProxiedRequest, place: Any) -> set[str]:
    """What AWS would ask for."""
    each = asked(request, place)
    if each.key:
        each.inside(each.key)
        assert set(each.query) <= {"x-id"}, f"more than the object itself: {request}"
        return {OBJECTS[request.method]}
    if request.method == "POST" and "delete" in each.query:
        each.inside(*(unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", request.body.decode(), re.DOTALL)))
        return {"s3:DeleteObject"}
    if request.method == "GET" and "list-type" in each.query:
        each.lists()
        return {"s3:ListBucket"}
    settings = SETTINGS.keys() & each.query.keys()
    assert request.method == "GET" and len(settings) == 1, f"what is this? {request}"
    return {SETTINGS[settings.pop()]}


def of_gcs(request: ProxiedRequest, place: Any) -> set[str]:
    """What Google would ask for: also to delete, where a write may overwrite."""
    each = asked(request, place)
    if not each.key:
        assert request.method == "GET" and "list-type" in each.query, f"what is this? {request}"
        each.lists()
        return {f"{GOOGLE}.list"}
    each.inside(each.key)
    assert not each.query, f"more than the object itself: {request}"
    if request.method == "PUT":
        creates = request.headers.get("x-goog-if-generation-match") == "0"
        return {f"{GOOGLE}.create"} if creates else {f"{GOOGLE}.create", f"{GOOGLE}.delete"}
    return {f"{GOOGLE}.{'delete' if request.method == 'DELETE' else 'get'}"}


def of_azure(request: ProxiedRequest, place: Any) -> set[str]:
    """What Azure would ask for: of a batch, what it would ask for each request in it."""
    account = urlsplit(place.options["endpoint"]).path
    each = asked(request, place, account)
    if each.key:
        each.inside(each.key)
        assert not each.query, f"more than the blob itself: {request}"
        verbs = {"GET": "read", "HEAD": "read", "PUT": "write", "DELETE": "delete"}
        return {f"{BLOBS}/{verbs[request.method]}"}
    if request.method == "POST" and each.query.get("comp") == ["batch"]:
        lines = re.findall(r"^([A-Z]+) (\S+) HTTP/1\.1\r?$", request.body.decode(), re.MULTILINE)
        assert {method for method, _ in lines} == {"DELETE"}, f"what is this? {request}"
        paths = [unquote(path).removeprefix(account) for _, path in lines]
        assert all(path.startswith(f"/{place.bucket}/") for path in paths), request
        each.inside(*(path.removeprefix(f"/{place.bucket}/") for path in paths))
        return {f"{BLOBS}/delete"}
    assert request.method == "GET" and each.query.get("comp") == ["list"], f"what is this? {request}"
    each.lists()
    return {f"{BLOBS}/read"}


NAMES: dict[str, Callable[[ProxiedRequest, Any], set[str]]] = {"s3": of_s3, "gs": of_gcs, "az": of_azure}
FILES = {
    "s3": ("s3.json", "s3-read-only.json"),
    "gs": ("gcs.yaml", "gcs-read-only.yaml"),
    "az": ("azure.json", "azure-read-only.json"),
}
"""Of who takes part, and of who looks."""


def allowed(*names: str) -> set[str]:
    found: set[str] = set()
    for name in names:
        policy = yaml.safe_load((IAM / name).read_text())
        found.update(policy.get("includedPermissions", []), policy.get("DataActions", []))
        assert not (policy.get("Actions") or policy.get("NotActions") or policy.get("NotDataActions"))
        for statement in policy.get("Statement", []):
            actions = statement["Action"]
            found.update([actions] if isinstance(actions, str) else actions)
    return found


def used(proxy: FaultProxy, url: str) -> set[str]:
    place = parse_url(url)
    name = NAMES[place.scheme]
    return {action for request in proxy.requests for action in name(request, place)}


S3 = "s3://tests/app?endpoint=http://127.0.0.1:1"
AZURE = "az://tests/app?account=me&endpoint=http://127.0.0.1:1/me"
MANY = "<Delete><Object><Key>{}</Key></Object><Object><Key>{}</Key></Object></Delete>"
BATCH = "--batch\r\n\r\nDELETE {} HTTP/1.1\r\nhost: x\r\n--batch\r\n\r\nDELETE {} HTTP/1.1\r\n--batch--"
OUTSIDE = {
    "an object": (S3, "GET", "/tests/apple/a", ""),
    "an object by climbing": (S3, "PUT", "/tests/app/../a", ""),
    "another bucket": (S3, "GET", "/others/app/a", ""),
    "a listing": (S3, "GET", "/tests?list-type=2&prefix=ap", ""),
    "one of many": (S3, "POST", "/tests?delete", MANY.format("app/a", "apple/a")),
    "many of none": (S3, "POST", "/tests?delete", "<Delete></Delete>"),
    "a setting": (S3, "PUT", "/tests?versioning", ""),
    "a blob": (AZURE, "GET", "/me/tests/apple/a", ""),
    "a batch": (
        AZURE,
        "POST",
        "/me/tests?restype=container&comp=batch",
        BATCH.format("/me/tests/app/a", "/me/tests/b"),
    ),
    "another container": (
        AZURE,
        "POST",
        "/me/tests?restype=container&comp=batch",
        BATCH.format("/tests/app/a", "/b/app/a"),
    ),
    "a change in a batch": (
        AZURE,
        "POST",
        "/me/tests?comp=batch",
        BATCH.format("/tests/app/a", "/tests/app/b").replace("DELETE", "PUT", 1),
    ),
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_what_would_be_noticed(what: str) -> None:
    url, method, path, body = OUTSIDE[what]
    place = parse_url(url)
    with pytest.raises(AssertionError):
        NAMES[place.scheme](ProxiedRequest(method, path, {}, body.encode(), 200, 200, None), place)


def test_the_keys_of_many_are_read() -> None:
    for url, path, body, names in (
        (S3, "/tests?delete", MANY.format("app/a", "app/b&amp;"), {"s3:DeleteObject"}),
        (
            AZURE,
            "/me/tests?comp=batch",
            BATCH.format("/me/tests/app/a", "/tests/app/b%3D"),
            {f"{BLOBS}/delete"},
        ),
    ):
        place = parse_url(url)
        assert NAMES[place.scheme](ProxiedRequest("POST", path, {}, body.encode(), 200, 200, None), place) == names


class Place:
    """An empty place on a server, and ways to it on which everything is noted."""

    def __init__(self, endpoint: S3Endpoint | AzureEndpoint | GcsEndpoint, url: str, folder: Path) -> None:
        self.endpoint = endpoint
        self.url = parse_url(url)
        self.folder = folder
        self.proxies: list[FaultProxy] = []

    def way(self) -> tuple[FaultProxy, str]:
        proxy = FaultProxy(self.endpoint.url)
        self.proxies.append(proxy)
        bucket, prefix, there = self.url.bucket, self.url.prefix.rstrip("/"), proxy.start()
        if isinstance(self.endpoint, GcsEndpoint):
            key_file = self.folder / f"service-account-{len(self.proxies)}.json"
            return proxy, self.endpoint.store_url(bucket, prefix, key_file=key_file, endpoint=there)
        return proxy, self.endpoint.store_url(bucket, prefix, endpoint=there)


@pytest.fixture
def place_on(
    request: pytest.FixtureRequest, url_of: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[[str], Place]]:
    made: list[Place] = []

    def place(kind: str) -> Place:
        made.append(Place(request.getfixturevalue(kind), url_of(kind), tmp_path))
        return made[-1]

    yield place
    for each in made:
        for proxy in each.proxies:
            proxy.stop()


def said(url: str, words: Iterable[str], codes: Iterable[int] = (0,)) -> str:
    """By a process of its own."""
    line = [url if word == "URL" else word for word in words]
    done = tenure_process(*line, timeout=240)
    assert done.code in codes, (line, done.out, done.err)
    return done.out


TRIED_ELSEWHERE = {
    "demo": "of a bucket of its own: test_all_plugins_and_doctor",
    "doctor": "has a policy of its own: test_all_plugins_and_doctor",
    "plan": "asks no store",
    "simulate": "asks no store",
}
LOOKS = (
    "status URL --no-wait",
    "workers URL --no-wait",
    "watch URL --for 1s --interval 200ms --json",
    "audit URL",
    "queue list URL",
    "queue stats URL emails",
    "queue peek URL emails",
    "queue dead list URL emails",
    "queue dead show URL emails DEAD",
    "schedule list URL",
    "schedule next URL often",
    "schedule history URL",
    "counter get URL pages home --consistent",
    "counter top URL pages views",
    "counter history URL pages home views",
    "gc URL --dry-run",
)
ACTS = (
    "step-down URL --force",
    "transfer URL --to ada --force",
    "queue create URL more",
    "queue put URL emails {}",
    "queue pause URL emails --wait",
    "queue resume URL emails --wait",
    "queue dead redrive URL emails --all --wait",
    "queue dead purge URL emails --all --yes --wait",
    "queue purge URL emails --yes --wait",
    "schedule run URL often --wait",
    "schedule pause URL often",
    "schedule resume URL often",
    "counter add URL pages home views",
)
ALONE = ("run URL --namespace jobs --lease 8s --membership -- true", "gc URL --yes")
"""Once the others have left."""
SERVING = ("dashboard", "queue work")
"""Until they are told to end."""
ASKED = {
    "queue-pause": {"queue": "emails"},
    "queue-resume": {"queue": "emails"},
    "queue-redrive": {"queue": "emails"},
    "schedule-pause": {"schedule": "scheduler"},
    "schedule-resume": {"schedule": "scheduler"},
    "schedule-run": {"schedule": "scheduler", "job": "often"},
    "transfer": {"to": "ben", "force": True},
    "step-down": {"force": True},
}
"""Every action of the dashboard, and those last after which ada may not lead any more."""
LOOKED_AT = ("", "api/snapshot", "api/workers", "api/session", "healthz", "readyz", "metrics")


def every_command(group: click.Group, *names: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from every_command(found, *names, name)
        else:
            yield " ".join((*names, name))


def test_no_command_and_no_action_is_left_out() -> None:
    tried = {line.partition(" URL")[0] for line in (*LOOKS, *ACTS, *ALONE)} | {*SERVING}
    assert set(every_command(cli)) == tried | TRIED_ELSEWHERE.keys()
    assert ASKED.keys() == Actions("memory://", "default", SYSTEM_CLOCK).all.keys()


class Fleet:
    """Ada takes part in everything, and ben works on her queue."""

    def __init__(self, url: str, lease: int, folder: Path) -> None:
        self.url = url
        self.lease = lease
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *words: str) -> None:
        self.processes.append(spawn([sys.executable, *words], self.folder / f"{name}.log", cwd=ROOT))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def heard(self, name: str, word: str) -> None:
        def there() -> bool:
            assert all(process.poll() is None for process in self.processes), self.log(name)
            return word in self.log(name)

        eventually_here(there, self.log(name))

    def begin(self) -> None:
        handler = "tests.integration.all_parts:handle"
        self.start("ada", "-m", "tests.integration.all_parts", self.url, "ada", "--lease", f"{self.lease}")
        self.heard("ada", "led")
        work = ("-m", "tenure", "queue", "work", self.url, "emails", handler, "--lease", f"{self.lease}s")
        self.start("ben", *work, "--worker-id", "ben")
        self.heard("ada", "done")

    def end(self) -> None:
        for process in self.processes:
            stop(process)
        self.processes.clear()


def run_here(url: str, line: str, codes: Iterable[int] = (0,)) -> None:
    """In this process, which saves the start of one."""
    words = [url if word == "URL" else word for word in line.split()]
    assert run(words) in codes, line


def look_at(server: Served) -> None:
    eventually_here(lambda: server.ask("api/snapshot")[1]["queues"]["rows"])
    for path in LOOKED_AT:
        with urllib.request.urlopen(server.url + path, timeout=PATIENCE) as answer:
            assert answer.status == 200
    with urllib.request.urlopen(server.url + "events", timeout=PATIENCE) as answer:
        eventually_here(lambda: answer.readline().startswith(b"event: "))


def act_on(server: Served) -> None:
    for name, given in ASKED.items():
        body = json.dumps(given).encode()
        status, answer = server.ask(f"api/actions/{name}", body, Authorization=f"Bearer {TOKEN}")
        assert status == 200, (name, answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "lease"),
    [("ministack", 3), pytest.param("azurite", 3, marks=pytest.mark.servers), ("gcs", SHORTEST_ON_GCS)],
)
def test_every_part_uses_what_is_allowed_and_all_of_it(
    kind: str, lease: int, place_on: Callable[[str], Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_on(kind)
    (taking, url), (looking, to_look) = place.way(), place.way()
    fleet = Fleet(url, lease, tmp_path)
    try:
        fleet.begin()
        dead = json.loads(said(url, ["queue", "dead", "list", "URL", "emails", "--json"]))
        (ref,) = [each["ref"] for each in dead["letters"]]
        for line in LOOKS:
            run_here(to_look, line.replace("DEAD", ref), (0, 1))
        with served(to_look, "--port", "0") as server:
            look_at(server)
        for line in ACTS:
            run_here(url, line)
        with served(url, "--port", "0", TENURE_DASHBOARD_TOKEN=TOKEN) as server:
            look_at(server)
            act_on(server)
    finally:
        fleet.end()
    for line in ALONE:
        said(url, line.split())
    takes_part, looks = FILES[place.url.scheme]
    assert used(looking, to_look) == allowed(looks)
    assert used(taking, url) == allowed(takes_part)


@pytest.mark.slow
def test_all_plugins_and_doctor(place_on: Callable[[str], Place]) -> None:
    """The demo has processes, a queue, a schedule, counters and fenced objects. Its verdicts do not count here. It
    looks at the bucket first, as doctor does."""
    proxy, url = place_on("ministack").way()
    said(url, ["demo", "--store", "URL", "--json"], codes=(0, 1))
    assert allowed("s3.json") <= used(proxy, url) <= allowed("s3.json", "s3-doctor.json")
    said(url, ["doctor", "URL", "--rounds", "2", "--processes", "2"], codes=(0, 1))
    assert used(proxy, url) == allowed("s3.json", "s3-doctor.json")
