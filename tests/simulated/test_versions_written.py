"""Every object that tenure writes says of which version it is, or stands below with the reason why it need not."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from tenure.plugins.supervisor.static import StaticPost
from tenure.plugins.supervisor.status import folder_of
from tenure.store import Stored
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock
from tests.unit.counters_rig import PAGES, Rig

from .poll_fleet import FOLDER, Polling
from .test_supervisor import Candidates
from .working import LEDGERS, WorkingFleet

HOUR = 3600.0
NEED_NONE = {
    **{
        f"{folder}chunks/": "a part of a snapshot, read by the checksum in its manifest, which has the versions"
        for folder in LEDGERS.values()
    },
    PAGES: "a part of the history of counters, read by the checksum in the log or the snapshot that names it",
    f"{LEDGERS['s3-queue']}results/": "what a handler returned, as it stands; a later form has a first line of its own",
}


def says_its_version(body: bytes) -> bool:
    """As a field of the object, or of its first line: of fenced values, letters and segments the rest is the user's."""
    try:
        head = json.loads(body.partition(b"\n")[0])
    except ValueError:
        return False
    return isinstance(head, dict) and 1 in (head.get("schemaVersion"), head.get("schema"))


def judge(bodies: dict[str, list[bytes]]) -> Iterable[str]:
    """What has no version, and no reason either."""
    for key, written in bodies.items():
        if not any(key.startswith(folder) for folder in NEED_NONE):
            yield from (f"{key}: {body[:80]!r}" for body in written if not says_its_version(body))


def test_the_judge_finds_what_has_no_version() -> None:
    for body in (b"", b"[]", b'{"a":{"schemaVersion":1}}', b'{"a":1}\n{"schemaVersion":1}', b'{"schema":"1"}'):
        assert list(judge({"plugin=ttl/name=sessions/failed/1": [body]}))
    assert not list(judge({"fenced": [b'{"schemaVersion":1}\nwhatever']}))
    assert not list(judge({f"{PAGES}1": [b'{"rows":[]}']}))


@pytest.mark.req("EL-8")
def test_all_that_a_working_fleet_writes_says_its_version() -> None:
    with WorkingFleet(failing=True) as fleet:
        fleet.run(36)
        assert list(judge(fleet.bodies)) == []
        for folder in NEED_NONE.keys() - {PAGES}:
            assert any(key.startswith(folder) for key in fleet.bodies), f"nothing is written below {folder}"
        for folder in ("log/", "failed/", "due/", "inbox/", "snapshots/"):
            assert any(f"ttl/name=sessions/{folder}" in key for key in fleet.bodies), folder


def test_all_that_counters_write_in_hours_says_its_version() -> None:
    with Rig(interval=600.0) as rig:
        leader, writer = rig.leader(), rig.node("writer")
        rig.done(writer, lambda: writer.counters.add("home", "views"))
        rig.until(lambda: bool(rig.bucket.keys(PAGES)), 3 * HOUR)
        assert list(judge({key: [rig.bucket.body(key) or b""] for key in rig.bucket.keys("")})) == []
        assert leader.leading is not None


def test_what_is_told_of_children_says_its_version() -> None:
    """In both: the header, which all fenced values have, and what is told."""
    with Candidates() as fleet:
        for name in "ab":
            fleet.stand(name, [fleet.book.child("first")])
        fleet.lead()
        fleet.run(5)
        written = fleet.bucket.body(f"{folder_of('coordinator')}children.json") or b""
        header, _, told = written.partition(b"\n")
        assert says_its_version(header)
        assert says_its_version(told)
        assert list(judge({key: [fleet.bucket.body(key) or b""] for key in fleet.bucket.keys("")})) == []


async def test_what_static_nodes_write_says_its_version() -> None:
    store = MemoryStore()
    post = StaticPost(store, "kids", "a", clock=SimulatedClock(), draw_id=lambda: "0123456789abcdef")
    await post.raised_base()
    await post.look_around()
    keys = [row.key async for row in store.list("")]
    assert len(keys) == 2
    for key in keys:
        stored = await store.get(key)
        assert isinstance(stored, Stored)
        assert says_its_version(stored.body), key


def test_all_that_polls_write_says_its_version() -> None:
    with Polling() as polling:
        written: dict[str, list[bytes]] = {}
        polling.fleet.bucket.watchers.append(lambda write: written.setdefault(write.key, []).append(write.new or b""))
        for name in "ab":
            polling.join(name)
        polling.fleet.run(40)
        for kind in ("jobs/", "results/", "worker"):
            assert any(kind in key for key in written if key.startswith(FOLDER)), f"nothing is written below {kind}"
        assert list(judge({key: [body for body in bodies if body] for key, bodies in written.items()})) == []
