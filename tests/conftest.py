"""One server of each kind for the whole session, whichever tiers run in it, and a fresh place on it for every test.

Under pytest-xdist the controller has Ceph, Azurite and s3rver, for all workers: a start of Ceph costs both cores some
ten seconds. Of ministack each worker has its own: it is started in a moment, it is one thread of Python that two would
keep busy, and tests make buckets on it by fixed names.

A program that is missing fails the tests that need it, with the way to install it: a test that skips itself proves
nothing and looks like one that passed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lab import azurite as azurite_module
from lab import ceph as ceph_module
from lab import ministack as ministack_module
from lab import s3rver as s3rver_module
from lab.buckets import make_bucket, make_container
from lab.endpoint import AzureEndpoint, GcsEndpoint, S3Endpoint
from lab.gcs import Gcs
from lab.racy import Oddities, RacyS3
from lab.sharing import NotServed, Serving, SharedServers, ask
from lab.slots import slot

BUCKET = "tests"
DAY = "TENURE_TESTS_DAY"
SHARED = pytest.StashKey[SharedServers]()
SLOTS = pytest.StashKey["tempfile.TemporaryDirectory[str]"]()
CLOCKED_AT_ONCE = 2

_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Whoever runs the tests may ignore signals (nohup, a shell's background job), and what is ignored stays so in what
    they start: programs that are to heed them would not."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    # Of many cases some are drawn by the day. Workers inherit it, so all draw the same, also at midnight.
    os.environ.setdefault(DAY, datetime.now(UTC).date().isoformat())


def pytest_report_header() -> str:
    return f"some cases are drawn by the day: {DAY}={os.environ[DAY]} draws the same again"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker of pytest-xdist is told where it can ask the controller for servers, and where places are taken."""
    stash = node.config.stash
    if SHARED not in stash:
        stash[SHARED] = SharedServers(_SERVERS)
        stash[SLOTS] = tempfile.TemporaryDirectory(prefix="tenure-slots-", ignore_cleanup_errors=True)
    node.workerinput["servers"] = stash[SHARED].address
    node.workerinput["slots"] = stash[SLOTS].name


def pytest_unconfigure(config: pytest.Config) -> None:
    if SHARED in config.stash:
        config.stash[SHARED].stop()
        config.stash[SLOTS].cleanup()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tests that are judged by the clock have many processes each: at most two of them run at once."""
    folder = getattr(item.config, "workerinput", {}).get("slots")
    if folder is None or item.get_closest_marker("clock") is None:
        return (yield)
    with slot(Path(folder), CLOCKED_AT_ONCE):
        return (yield)


@pytest.fixture(scope="session")
def ministack() -> Iterator[S3Endpoint]:
    with _explained(), _serving(ministack_module.Ministack, ministack_module.INSTALL) as endpoint:
        make_bucket(endpoint, BUCKET)
        yield endpoint


@pytest.fixture(scope="session")
def ceph(request: pytest.FixtureRequest) -> Iterator[S3Endpoint]:
    with _shared(request.config, "ceph") as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def azurite(request: pytest.FixtureRequest) -> Iterator[AzureEndpoint]:
    with _shared(request.config, "azurite") as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def s3rver(request: pytest.FixtureRequest) -> Iterator[S3Endpoint]:
    """Its bucket is named "bucket"."""
    with _shared(request.config, "s3rver") as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def racy() -> Iterator[S3Endpoint]:
    """Waits between check and write, and is otherwise correct. Its bucket is named "bucket"."""
    with _started(lambda home: RacyS3(home, Oddities(window=0.020))) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsEndpoint]:
    server = Gcs()
    yield server.start()
    server.stop()


@pytest.fixture
def url_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """The URL of a place on the named store that nothing has been written to."""

    def url(kind: str) -> str:
        fresh = f"t{os.getpid()}-{next(_numbers)}"
        if kind == "memory":
            return f"memory://{fresh}"
        if kind == "directory":
            return (tmp_path / fresh).as_uri()
        endpoint = request.getfixturevalue(kind)
        if isinstance(endpoint, GcsEndpoint):
            return endpoint.store_url(BUCKET, fresh, key_file=tmp_path / "service-account.json")
        return str(endpoint.store_url(BUCKET, fresh))

    return url


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except NotServed as problem:
        pytest.fail(str(problem), pytrace=False)


@contextlib.contextmanager
def _shared(config: pytest.Config, name: str) -> Iterator[Any]:
    with _explained(), contextlib.ExitStack() as stack:
        address = getattr(config, "workerinput", {}).get("servers")
        yield stack.enter_context(_SERVERS[name]()) if address is None else ask(address, name)


@contextlib.contextmanager
def _serving(server_class: Any, install: str) -> Iterator[Any]:
    missing = server_class.missing()
    if missing:
        raise NotServed(f"not installed: {', '.join(missing)}; run tools/install-servers, or: {install}")
    with _started(server_class) as endpoint:
        yield endpoint


@contextlib.contextmanager
def _started(server_at: Callable[[Path], Any]) -> Iterator[Any]:
    # Not pytest's own folder: a path to a Unix socket has room for 107 bytes only, and Ceph opens some.
    with tempfile.TemporaryDirectory(prefix="tenure-", ignore_cleanup_errors=True) as home:
        server = server_at(Path(home))
        try:
            yield server.start()
        finally:
            server.stop()


@contextlib.contextmanager
def _ceph() -> Iterator[S3Endpoint]:
    with _serving(ceph_module.Ceph, ceph_module.INSTALL) as endpoint:
        make_bucket(endpoint, BUCKET)
        yield endpoint


@contextlib.contextmanager
def _azurite() -> Iterator[AzureEndpoint]:
    with _serving(azurite_module.Azurite, azurite_module.INSTALL) as endpoint:
        make_container(endpoint, BUCKET)
        yield endpoint


_SERVERS: dict[str, Serving] = {
    "ceph": _ceph,
    "azurite": _azurite,
    "s3rver": lambda: _serving(s3rver_module.S3rver, s3rver_module.INSTALL),
}
