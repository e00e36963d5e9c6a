"""A small fleet in which nothing goes wrong, whose judge is then shown something that must never happen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from tenure.coordinator.config import CoordinatorConfig
from tenure.election.records import decode, encode
from tenure.entropy import Random
from tenure.ledger import LogEntry
from tenure.ledger.config import MAX_ENTRY_BYTES
from tenure.simulate.stage import Stage
from tenure.testing.bucket import Write
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.world import World

S = TypeVar("S", bound=Stage)
Change = Callable[[LogEntry, Write], tuple[LogEntry, Write]]


@contextlib.contextmanager
def calm_election(*, workers: int = 1, seconds: float = 10.0) -> Iterator[tuple[SimulatedCluster, Checkers]]:
    """Somebody has led for a while."""
    with World(1) as world:
        cluster = SimulatedCluster(world, workers, CoordinatorConfig.fast())
        checkers = Checkers(cluster)
        cluster.start()
        world.run_until(seconds)
        yield cluster, checkers


@contextlib.contextmanager
def calm(
    kind: type[S],
    *,
    workers: int = 1,
    seconds: float = 10.0,
    before: Callable[[S], None] = lambda stage: None,
    until: str | None = None,
) -> Iterator[S]:
    """A fleet that has worked for so many seconds. `before`: what is done to it before it starts; `until`: the check
    that it is judged by to the end, whatever else is reported."""
    with World(1) as world:
        stage: S

        async def work(worker: SimulatedWorker) -> None:
            await stage.work(worker)

        cluster = SimulatedCluster(world, workers, CoordinatorConfig.fast(), work=work)
        stage = kind(cluster, Checkers(cluster, until), Random("calm"), cluster.config)
        stage.stops_at = seconds
        before(stage)
        cluster.start()
        stage.begin()
        world.run_until(seconds)
        yield stage


def forge(stage: Stage, judge: object, folder: str, change: Change) -> None:
    """The judge sees another log than the fleet has written: `change` is shown each entry as it is written."""
    watchers = stage.cluster.bucket.watchers
    watch = judge._written  # type: ignore[attr-defined]

    def forged(write: Write) -> None:
        if write.new is not None and write.key.startswith(f"{folder}log/"):
            entry = decode(write.new, LogEntry, MAX_ENTRY_BYTES)
            assert isinstance(entry, LogEntry)
            entry, write = change(entry, write)
            write = msgspec.structs.replace(write, new=encode(entry))
        watch(write)

    watchers[watchers.index(watch)] = forged


def changed_once(change: Callable[[LogEntry, bytes], bytes | None]) -> Change:
    """`change` is shown entries with their events until it gives other ones; `None`: this entry stays as it is."""
    done = False

    def once(entry: LogEntry, write: Write) -> tuple[LogEntry, Write]:
        nonlocal done
        if not done and (events := entry.decided) is not None and (new := change(entry, events)) is not None:
            done = True
            entry = msgspec.structs.replace(entry, events=msgspec.Raw(new))
        return entry, write

    return once


def saying(what: str, checkers: Checkers) -> Checkers:
    """For a check that is reported at several places: it is this one."""
    assert any(what in violation.what for violation in checkers.violations), checkers.violations
    return checkers
