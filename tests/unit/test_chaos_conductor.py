"""A fault of a run of chaos counts as felt only if its effect was seen; and what no log has is told as a failure."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.believer import boottime_ns
from lab.chaos import conductor
from lab.chaos.conductor import Conductor, Node, Run
from lab.chaos.node import TRY_AGAIN
from lab.chaos.plan import Kind, Step, Target, Timing
from lab.chaos.site import DirectorySite
from lab.fault_proxy import FaultProxy
from lab.http1 import Request
from lab.process import refuses, state_of

GET = Request("GET", "/bucket/key")
ASKED = '{"said": "joined", "boottime_ns": 1, "worker": "n1", "pid": 1}\n'


class Site:
    """A store to which nothing is done, whatever it is told to do."""

    name = "nothing"

    def __init__(self) -> None:
        self.proxies = [FaultProxy("http://127.0.0.1:1")]
        self.server: list[int] = []
        self.is_down = self.has_filled = False
        self.fills = 0

    def nothing(self) -> None: ...

    start = stop = go_down = come_up = freeze = thaw = free = nothing

    def fill(self) -> None:
        self.fills += 1

    def url(self, node: int | None = None) -> str:
        return "memory://"

    def pids(self) -> list[int]:
        return self.server

    def refuses(self) -> bool:
        return self.is_down

    def is_full(self) -> bool:
        return self.has_filled


class Stage:
    """A conductor whose processes are not those of a run, and that starts none."""

    def __init__(self, folder: Path, site: Site | None = None, kinds: list[Kind] | None = None) -> None:
        steps = tuple(_step(kind, index) for index, kind in enumerate(kinds or [Kind.KILL]))
        self.site = site or Site()
        self.run = Run(store="x", seed=1, seconds=60, nodes=1, broken=[], steps=list(steps))
        self.told: list[str] = []
        self.conductor = Conductor(self.site, folder, steps, self.run, Timing(1.0, 0.01), tell=self.told.append)  # type: ignore[arg-type]
        self.conductor._place = folder
        self.conductor._events = os.open(folder / "events", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.started: list[Node] = []
        self.conductor._start = self.started.append  # type: ignore[method-assign]
        self.folder = folder

    def node(self, process: subprocess.Popen[bytes], name: str = "n1", out: str = ASKED) -> Node:
        node = Node(name, len(self.conductor.nodes), process=process, stem=self.folder / f"{name}-1")
        node.stem.with_suffix(".out").write_text(out)
        self.conductor.nodes.append(node)
        return node

    def step(self, kind: Kind, target: Target = Target.ANY, amount: float = 0.0) -> None:
        asyncio.run(self.conductor._step(_step(kind, 0, target, amount)))

    @property
    def hits(self) -> dict[str, int]:
        return dict(self.conductor._hits)

    @property
    def missed(self) -> dict[str, int]:
        return dict(self.conductor._missed)

    @property
    def events(self) -> list[str]:
        return [line.split()[0] for line in (self.folder / "events").read_text().splitlines()]


def _step(kind: Kind, index: int, target: Target = Target.ANY, amount: float = 0.0) -> Step:
    of_store = kind.value.startswith(("store", "full", "storm"))
    return Step(index, 0, 0.0, 0.01, kind, Target.STORE if of_store else target, 0, amount)


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command or ("sleep", "60"), stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def trapping(deed: str) -> Iterator[subprocess.Popen[bytes]]:
    """A shell that does this on SIGTERM."""
    with running("sh", "-c", f"trap '{deed}' TERM; echo up; while :; do sleep 0.05; done") as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def dead() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["true"])
    process.wait()
    return process


# Felt or not


@pytest.mark.parametrize("kind", [Kind.KILL, Kind.RESTART, Kind.FREEZE, Kind.CLOCK])
def test_what_is_done_to_a_process_that_is_not_there_is_not_felt(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "_SHOWS_WITHIN", 0.05)
    monkeypatch.setattr(conductor, "_LEAPS_WITHIN", 0.0)
    stage = Stage(tmp_path)
    stage.node(dead())
    stage.step(kind, amount=600.0)
    assert (stage.hits, stage.missed) == ({}, {kind.value: 1})
    assert stage.conductor._on == {}


@pytest.mark.parametrize("kind", [Kind.STORE_RESTART, Kind.STORE_FREEZE, Kind.FULL_DISK])
def test_a_store_that_nothing_was_done_to_felt_nothing(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "_SHOWS_WITHIN", 0.05)
    with running() as server:
        stage = Stage(tmp_path)
        stage.site.server = [server.pid]
        stage.step(kind)
        stage.site.server = []
        stage.step(kind)
    assert (stage.hits, stage.missed) == ({}, {kind.value: 2})


@pytest.mark.parametrize("kind", [Kind.KILL, Kind.RESTART, Kind.FREEZE])
def test_what_a_process_felt_is_counted(tmp_path: Path, kind: Kind) -> None:
    stage = Stage(tmp_path)
    with trapping("exit 0") as process:
        stage.node(process)
        stage.step(kind)
        assert (stage.hits, stage.missed) == ({kind.value: 1}, {})
        assert stage.conductor._on == {f"{kind.value} any": 1}
        assert stage.run.failures == []
        if kind is Kind.FREEZE:
            assert state_of(process.pid) not in ("", "T", "Z")


@pytest.mark.parametrize(
    ("life", "amount", "seen", "felt"), [(1, 600.0, 600.0, True), (2, -5.0, -5.0, True), (1, 600.0, 5.0, False)]
)
def test_a_clock_that_leapt_was_noted_by_whoever_had_it(
    tmp_path: Path, life: int, amount: float, seen: float, felt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the process, or by one that was started in its place."""
    monkeypatch.setattr(conductor, "_LEAPS_WITHIN", 0.0)
    stage = Stage(tmp_path)
    with running() as process:
        offset = stage.conductor._offset(stage.node(process))

        async def leap() -> None:
            under_way = asyncio.create_task(stage.conductor._step(_step(Kind.CLOCK, 0, Target.ANY, amount)))
            await asyncio.sleep(0.005)
            assert offset.read_text() == f"{amount:+.0f}\n"
            now_ns, wall_ns = boottime_ns(), time.time_ns() + round(seen * 1e9)
            (tmp_path / f"n1-{life}.clock").write_text(f"1 2\n{now_ns} {wall_ns}\n")
            await under_way

        asyncio.run(leap())
        assert offset.read_text() == "+0\n"
    assert stage.hits == ({"clock": 1} if felt else {})


def test_a_leap_that_was_noted_before_is_none(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    node = Node("n1", 0)
    now_ns, wall_ns = boottime_ns(), time.time_ns() + 600 * 10**9
    (tmp_path / "n1-1.clock").write_text(f"{now_ns} {wall_ns}\n")
    assert stage.conductor._has_leapt(node, 600.0, now_ns)
    assert not stage.conductor._has_leapt(node, 600.0, now_ns + 1)
    assert not stage.conductor._has_leapt(Node("n2", 1), 600.0, now_ns)


def test_who_is_started_while_the_clock_is_wrong_has_the_wrong_clock(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    with running() as process:
        node = stage.node(process)
        node.leaps = [-86_400.0, 600.0]
        stage.conductor._set_clock(node)
        assert stage.conductor._offset(node).read_text() == "+600\n"


class Real(Site):
    """A server that is a process, and that is really stopped and started."""

    def __init__(self) -> None:
        super().__init__()
        self.process = subprocess.Popen(["sleep", "60"])

    def go_down(self) -> None:
        self.process.kill()
        self.process.wait()
        self.is_down = True

    def come_up(self) -> None:
        self.process = subprocess.Popen(["sleep", "60"])
        self.is_down = False

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def pids(self) -> list[int]:
        return [self.process.pid]


@pytest.mark.parametrize("kind", [Kind.STORE_RESTART, Kind.STORE_FREEZE])
def test_what_a_store_felt_is_counted(tmp_path: Path, kind: Kind) -> None:
    site = Real()
    try:
        stage = Stage(tmp_path, site)
        stage.step(kind)
        assert (stage.hits, stage.missed) == ({kind.value: 1}, {})
    finally:
        site.go_down()


def test_a_server_that_comes_back_as_the_same_process_was_not_restarted(tmp_path: Path) -> None:
    with running() as server:
        stage = Stage(tmp_path)
        stage.site.server, stage.site.is_down = [server.pid], True
        stage.step(Kind.STORE_RESTART)
    assert stage.missed == {"store-restart": 1}


def test_a_disk_that_is_not_full_yet_is_filled_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.step(Kind.FULL_DISK)
    assert (stage.missed, stage.site.fills) == ({"full-disk": 1}, conductor._TOPPED_UP)
    stage.site.has_filled = True
    stage.step(Kind.FULL_DISK)
    assert (stage.hits, stage.site.fills) == ({"full-disk": 1}, conductor._TOPPED_UP + 1)


def test_a_disk_is_full_if_a_byte_is_refused_for_want_of_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = DirectorySite(tmp_path)
    site._disk.mkdir()
    assert not site.is_full()

    def refuse(number: int) -> Callable[..., int]:
        def write(self: Path, data: bytes) -> int:
            raise OSError(number, os.strerror(number))

        return write

    monkeypatch.setattr(Path, "write_bytes", refuse(errno.ENOSPC))
    assert site.is_full()
    monkeypatch.setattr(Path, "write_bytes", refuse(errno.EACCES))
    assert not site.is_full()


def test_a_port_refuses_if_nobody_listens() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        assert refuses(port)
        listening.listen()
        assert not refuses(port)


def test_of_a_storm_only_what_was_disturbed_counts(tmp_path: Path) -> None:
    """One in five requests is let through as it is."""
    stage = Stage(tmp_path)
    proxy = stage.site.proxies[0]
    with running() as process:
        stage.node(process)

        @asynccontextmanager
        async def cut(nodes: list[Node]) -> AsyncIterator[None]:
            yield

        stage.conductor._cut = cut  # type: ignore[method-assign,assignment]

        async def storm(requests: int) -> None:
            under_way = asyncio.create_task(stage.conductor._step(_step(Kind.STORM, 0)))
            await asyncio.sleep(0.002)
            for _ in range(requests):
                proxy._choose(GET)
            await under_way

        asyncio.run(storm(10))
        assert (stage.run.faulted, stage.hits) == (8, {"storm": 1})
        asyncio.run(storm(0))
        assert (stage.run.faulted, stage.missed) == (8, {"storm": 1})


# Whom it hit


def believes(node: Node, leads: bool) -> None:
    now = boottime_ns()
    node.stem.with_suffix(".belief").write_text(f"{now} {now} {node.identity} {leads:d} {leads:d} {leads:d}\n")


def test_who_was_hit_in_place_of_the_leader_does_not_count_as_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    with running() as one, running() as other:
        first, second = stage.node(one, "n1"), stage.node(other, "n2")
        believes(first, False)
        believes(second, False)
        stage.step(Kind.FREEZE, Target.LEADER)
        assert stage.conductor._on == {"freeze any": 1}
        believes(second, True)
        stage.step(Kind.FREEZE, Target.LEADER)
        assert stage.conductor._on == {"freeze any": 1, "freeze leader": 1}
        # One that is being stopped already cannot be stopped again: another one is.
        second.busy = True
        stage.step(Kind.FREEZE, Target.LEADER)
        assert stage.conductor._on == {"freeze any": 2, "freeze leader": 1}


# How it ended


@pytest.mark.parametrize(
    ("deed", "out", "code"),
    [("kill -ABRT $$", ASKED, -6), ("exit 1", ASKED, 1), (f"exit {TRY_AGAIN}", ASKED, 75), ("exit 3", "", 3)],
)
@pytest.mark.parametrize("leaving", [False, True])
def test_who_ends_otherwise_than_it_should_when_it_is_asked_to_is_a_failure(
    tmp_path: Path, deed: str, out: str, code: int, leaving: bool
) -> None:
    stage = Stage(tmp_path)
    with trapping(deed) as process:
        node = stage.node(process, out=out)
        asyncio.run(stage.conductor._leave() if leaving else stage.conductor._restart(node, 0.0))
        assert process.returncode == code
    assert len(stage.run.failures) == 1
    assert f"ended with {code} on SIGTERM" in stage.run.failures[0]


@pytest.mark.parametrize(
    ("deed", "out"), [("exit 0", ASKED), (f"exit {TRY_AGAIN}", ""), ("trap - TERM; kill -TERM $$", "")]
)
@pytest.mark.parametrize("leaving", [False, True])
def test_who_ends_as_it_should_is_none(tmp_path: Path, deed: str, out: str, leaving: bool) -> None:
    """One that has not joined may have been told to end before it knew what that means, or could not begin."""
    stage = Stage(tmp_path)
    with trapping(deed) as process:
        node = stage.node(process, out=out)
        asyncio.run(stage.conductor._leave() if leaving else stage.conductor._restart(node, 0.0))
    assert stage.run.failures == []
    assert stage.events == ["terminated", "ended"]


@pytest.mark.parametrize("how", ["kill", "restart", "leave"])
def test_who_had_ended_by_itself_is_a_failure_whatever_was_about_to_be_done(tmp_path: Path, how: str) -> None:
    stage = Stage(tmp_path)
    node = stage.node(dead())
    asyncio.run(
        {
            "kill": lambda: stage.conductor._kill(node, 0.0),
            "restart": lambda: stage.conductor._restart(node, 0.0),
            "leave": stage.conductor._leave,
        }[how]()  # type: ignore[arg-type]
    )
    assert len(stage.run.failures) == 1
    assert "ended by itself with 0" in stage.run.failures[0]


# Wiping


class Rows:
    def __init__(self, *keys: str) -> None:
        self.keys = list(keys)

    async def list(self, prefix: str) -> AsyncIterator[Any]:
        for key in self.keys:
            yield type("Row", (), {"key": key})

    async def delete(self, *keys: str) -> None:
        self.keys = [key for key in self.keys if key not in keys]


def wipe(stage: Stage, store: Rows) -> None:
    async def ready(*_: Any) -> bool:
        return True

    async def until(condition: Callable[[], bool], within: float, what: str) -> bool:
        if what.startswith("all have joined") or condition():
            return True
        stage.conductor._fail(f"in vain until {what}")
        return False

    stage.conductor._store = store  # type: ignore[assignment]
    stage.conductor._until = until  # type: ignore[method-assign]
    asyncio.run(stage.conductor._wipe())


def test_wiping_kills_the_leader_and_says_whom(tmp_path: Path) -> None:
    stage, store = Stage(tmp_path), Rows("a/b", "run/state.json", "c")
    with running() as one, running() as other:
        stage.node(one, "n1")
        node = stage.node(other, "n2")
        believes(node, True)
        identity = node.identity
        wipe(stage, store)
        assert other.returncode == -signal.SIGKILL
        assert one.poll() is None
    assert (stage.run.failures, stage.run.wiped_leader, stage.run.wiped_objects) == ([], identity, 2)
    assert store.keys == ["run/state.json"]
    assert stage.run.wiped is not None


def test_wiping_without_a_leader_or_without_objects_is_a_failure(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    with running() as process:
        believes(stage.node(process), False)
        wipe(stage, Rows("run/state.json"))
        assert process.poll() is None
    assert stage.run.wiped_leader == ""
    assert [text for text in stage.run.failures if "not one object" in text]
    assert [text for text in stage.run.failures if "who can be killed" in text]
