"""Many seeds on all cores, and what they add up to."""

from __future__ import annotations

import gc
import itertools
import logging
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

import msgspec

from tenure.clock import SYSTEM_CLOCK
from tenure.simulate.fleets import FLEETS
from tenure.simulate.seed import Plan, SeedResult
from tenure.testing.broken import Variant, variants_of

_SEEDS_AT_ONCE = 4  # of one process, between two reports


class FirstViolation(msgspec.Struct, frozen=True):
    seed: int
    at: float
    check: str
    what: str


class Report(msgspec.Struct, frozen=True):
    """What `tenure simulate --json` prints."""

    seeds: int
    violations: int
    """Seeds in which something happened that must never happen."""
    simulated_seconds: float
    wall_seconds: float
    first_violation: FirstViolation | None
    coverage: dict[str, int]
    """How often each fault, outcome, late landing, end of a term, and point of a crash or freeze was hit."""
    not_covered: list[str]
    """What should have been hit and was not; only told of runs that are long enough."""
    fewest_faults: int
    """In one seed."""
    terms: int
    workers: int
    minutes: float
    broken: str | None
    what: str = "election"


class CatchRate(msgspec.Struct, frozen=True):
    """In how many seeds a broken variant's check reported."""

    variant: str
    check: str
    seeds: int
    caught: int
    first: int | None
    """The first seed that caught it."""
    by_mix: dict[str, tuple[int, int]]
    """(caught, seeds) under each mix of faults."""

    @property
    def share(self) -> float:
        return self.caught / self.seeds


Progress = Callable[[int, int], None]
"""Told how many seeds are done, and how many of them were violated."""


def run_campaign(
    first_seed: int,
    seeds: int,
    plan: Plan,
    *,
    processes: int | None = None,
    progress: Progress = lambda done, violated: None,
    stop_at_violation: bool = False,
) -> Report:
    started = SYSTEM_CLOCK.read()
    total = _Total(plan.until)
    for _, results in _results(_chunks(first_seed, seeds, plan), processes):
        for result in results:
            total.add(result)
        progress(total.seeds, total.violated)
        if stop_at_violation and total.violated:
            break
    gc.collect()  # the pool's semaphores, before the command leaves without taking the interpreter down
    return total.report(plan, SYSTEM_CLOCK.read().leader_elapsed(started))


def catch_rates(
    first_seed: int,
    seeds: int,
    plan: Plan,
    *,
    processes: int | None = None,
    progress: Progress = lambda done, caught: None,
) -> list[CatchRate]:
    """Of each broken variant of the plan's kind of fleet. `progress` hears of seeds done, and of those that caught."""
    variants = variants_of(plan.what)
    plans = [msgspec.structs.replace(plan, broken=name, until=each.check) for name, each in variants.items()]
    found: dict[str, list[tuple[bool, SeedResult]]] = {name: [] for name in variants}
    done = caught = 0
    chunks = [chunk for each in plans for chunk in _chunks(first_seed, seeds, each)]
    for each, results in _results(chunks, processes):
        assert each.broken is not None
        judged = [(result.has_reported(each.until), result) for result in results]
        found[each.broken] += judged
        done, caught = done + len(judged), caught + sum(is_caught for is_caught, _ in judged)
        progress(done, caught)
    return [_rate(variant, found[name]) for name, variant in variants.items()]


def _rate(variant: Variant, judged: Sequence[tuple[bool, SeedResult]]) -> CatchRate:
    by_mix: dict[str, tuple[int, int]] = {}
    for is_caught, result in judged:
        caught, seeds = by_mix.get(result.mix, (0, 0))
        by_mix[result.mix] = (caught + is_caught, seeds + 1)
    catching = [result.seed for is_caught, result in judged if is_caught]
    return CatchRate(variant.name, variant.check, len(judged), len(catching), min(catching, default=None), by_mix)


_Chunk = tuple[Sequence[int], Plan]


def _chunks(first: int, seeds: int, plan: Plan) -> list[_Chunk]:
    starts = range(first, first + seeds, _SEEDS_AT_ONCE)
    return [(range(start, min(start + _SEEDS_AT_ONCE, first + seeds)), plan) for start in starts]


def _results(chunks: Sequence[_Chunk], processes: int | None) -> Iterator[tuple[Plan, list[SeedResult]]]:
    processes = processes or os.cpu_count() or 1
    if processes == 1:
        for seeds, plan in chunks:
            yield plan, run_seeds(seeds, plan)
        return
    # Spawned, not forked: whoever calls this may have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_parent) as pool:
        waiting: dict[Future[list[SeedResult]], Plan] = {}
        ahead = iter(chunks)
        try:
            while True:
                for seeds, plan in itertools.islice(ahead, max(0, 2 * processes - len(waiting))):
                    waiting[pool.submit(run_seeds, seeds, plan)] = plan
                if not waiting:
                    return
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield waiting.pop(future), future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def run_seeds(seeds: Sequence[int], plan: Plan) -> list[SeedResult]:
    run = FLEETS[plan.what].run
    logger = logging.getLogger("tenure")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # trouble that is made on purpose is not warned of
    try:
        return [run(seed, plan) for seed in seeds]
    finally:
        logger.setLevel(level)


def _end_with_parent() -> None:
    """A run that is killed must not leave its processes behind, waiting for work."""

    def wait_for_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait_for_parent, daemon=True).start()


class _Total:
    def __init__(self, until: str | None) -> None:
        self.until = until
        self.seeds = self.violated = self.terms = 0
        self.simulated = 0.0
        self.coverage: Counter[str] = Counter()
        self.first: FirstViolation | None = None
        self.fewest_faults: int | None = None

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        self.terms += result.terms
        self.simulated += result.simulated_seconds
        self.coverage.update(result.coverage)
        self.fewest_faults = min(result.faults, self.fewest_faults if self.fewest_faults is not None else result.faults)
        violations = [each for each in result.violations if self.until in (None, each.check)]
        if violations:
            self.violated += 1
            worst = violations[0]
            if self.first is None or result.seed < self.first.seed:
                self.first = FirstViolation(result.seed, worst.at, worst.check, worst.what)

    def report(self, plan: Plan, wall_seconds: float) -> Report:
        return Report(
            seeds=self.seeds,
            violations=self.violated,
            simulated_seconds=round(self.simulated, 1),
            wall_seconds=round(wall_seconds, 2),
            first_violation=self.first,
            coverage=dict(sorted(self.coverage.items())),
            not_covered=self._not_covered(plan),
            fewest_faults=self.fewest_faults or 0,
            terms=self.terms,
            workers=plan.workers,
            minutes=plan.minutes,
            broken=plan.broken,
            what=plan.what,
        )

    def _not_covered(self, plan: Plan) -> list[str]:
        fleet = FLEETS[plan.what]
        if self.seeds < fleet.enough or plan.faults or plan.broken or plan.minutes < 5 or plan.workers < 3:
            return []
        struck = [
            point
            for point in fleet.crash_points
            if not any(key.startswith(("crash:", "freeze:")) and point in _functions(key) for key in self.coverage)
        ]
        return [item for item in fleet.expected if not self.coverage[item]] + [
            f"crash or freeze in {point}" for point in struck
        ]


def _functions(key: str) -> list[str]:
    """The names in `crash:coordinator.lease:LeaseDesk.renew > _write > replace`."""
    return [part.rpartition(".")[2].rpartition(":")[2] for part in key.split(" > ")]
