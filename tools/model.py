"""Searches the model of the lease (spec/lease.pml) with spin: every state of every configuration.

    python -m tools.model                            all configurations, one line each
    python -m tools.model "three processes" ...      only these
    python -m tools.model --if-changed               all, unless exactly these have been searched before
    python -m tools.model --explain BLIND_RELEASE    the shortest way to its violation, step by step

Three kinds of configuration: the model itself has to hold; a broken variant has to violate an invariant, or the model
could not see that mistake; a landmark has to be reached, or the model holds because nothing happens in it. A search
that was cut short (memory, depth) counts as none. Exits with 1 if anything is not as expected.

A search of all configurations that ends as expected is recorded in spec/searched.txt, which is committed. The result
follows from the model and from this file alone, so `make test-servers` searches only when one of them has changed.
"""

from __future__ import annotations

import argparse
import enum
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import msgspec

MODEL = Path(__file__).resolve().parent.parent / "spec" / "lease.pml"
SEARCHED = MODEL.with_name("searched.txt")
INSTALL = "apt-get install --no-install-recommends spin gcc libc6-dev"

# Of one search. Two at once stay under 6 GB.
MEMORY_MB = 2500
DEPTH = 100_000
TIMEOUT_S = 1800
# Each search for a violation ends within seconds; the shortest way to one is searched breadth first, which takes more.
EXPLAIN_MEMORY_MB = 5000


class Expected(enum.Enum):
    HOLDS = "holds"
    VIOLATES = "violates"
    REACHES = "reaches"


class Configuration(msgspec.Struct, frozen=True):
    name: str
    expected: Expected
    defines: Mapping[str, int | None]

    def options(self) -> list[str]:
        return [f"-D{name}" if value is None else f"-D{name}={value}" for name, value in self.defines.items()]

    def bounds(self) -> str:
        numbers = {"N": 2, **self.defines}
        return " ".join(f"{name.lower()}={value}" for name, value in numbers.items() if value is not None)


class Result(msgspec.Struct, frozen=True):
    configuration: Configuration
    as_expected: bool
    verdict: str
    states: int = 0
    depth: int = 0
    seconds: float = 0.0

    def line(self) -> str:
        found = f"{self.states:>10,} states  depth {self.depth:>5}  {self.seconds:6.1f} s"
        mark = "as expected" if self.as_expected else "NOT AS EXPECTED"
        return f"{self.configuration.name:<34} {found}  {self.verdict}: {mark}  ({self.configuration.bounds()})"


def _holds(name: str, **bounds: int) -> Configuration:
    return Configuration(name, Expected.HOLDS, bounds)


def _violates(name: str, **bounds: int) -> Configuration:
    return Configuration(name, Expected.VIOLATES, {"WRITES": 1, **bounds, name: None})


def _reaches(name: str, landmark: int, **bounds: int) -> Configuration:
    return Configuration(name, Expected.REACHES, {**bounds, "REACH": landmark})


# The long ones first: the short ones fill the cores at the end.
CONFIGURATIONS = (
    _holds("put back", N=2, ROLLBACKS=1),
    _holds("put back twice", N=2, WRITES=1, ROLLBACKS=2),
    _holds("lost", N=2, LOSSES=1),
    _holds("lost and put back", N=2, EPOCHS=2, WRITES=1, LOSSES=1, ROLLBACKS=1),
    _holds("lost twice", N=2, WRITES=1, LOSSES=2),
    _holds("three processes, put back", N=3, EPOCHS=2, WRITES=1, ROLLBACKS=1),
    _holds("three processes, lost", N=3, EPOCHS=2, WRITES=1, LOSSES=1),
    _holds("three processes", N=3, EPOCHS=4),
    _holds("three processes, two lengths", N=3, SHORT=1),
    _holds("two processes", N=2, EPOCHS=4, SHORT=1),
    _holds("two processes, long leases", N=2, LONG=4, SHORT=2),
    _violates("NO_DRIFT_MARGIN"),
    _violates("LEASE_FROM_ANSWER"),
    _violates("VALID_UNTIL_BY_MAX", SHORT=1),
    _violates("FLAG_NOT_DEADLINE"),
    _violates("FOLLOWER_CLOCK_BEFORE_READ"),
    _violates("WALL_CLOCK_EXPIRY"),
    _violates("UNKNOWN_IS_APPLIED"),
    _violates("UNKNOWN_IS_REJECTED"),
    _violates("BLIND_RELEASE"),
    _violates("EPOCH_RESET_ON_RELEASE"),
    _violates("REBUILD_AT_ONCE", LOSSES=1),
    _violates("GRANT_WITHOUT_TERM_RECORD", ROLLBACKS=1),
    _violates("TERM_BY_NAME", ROLLBACKS=1),
    _violates("BACKFILL_AFTER_LEADING", ROLLBACKS=1),
    _violates("STAND_WHILE_VALID", ROLLBACKS=1),
    _violates("STAND_AFTER_REJECTED_TERM", ROLLBACKS=1),
    _violates("DAMAGE_KEEPS_WATCH", ROLLBACKS=1),
    _violates("DAMAGE_BY_VERSION_ALONE", LOSSES=2),
    # Not a mistake of ours but more than the model promises: if it held, the promise should be made.
    _violates("ROLLBACK_WITHIN_TERM", ROLLBACKS=1),
    _reaches("leads under the last epoch", 1, N=3, EPOCHS=4),
    _reaches("confirmed when the lease is over", 2, N=2),
    _reaches("learns late of its renewal", 3, N=2),
    _reaches("fills in the term before", 4, N=2),
    _reaches("is refused its term", 5, N=2, WRITES=1, ROLLBACKS=1),
    _reaches("rebuilds what was lost", 6, N=2, WRITES=1, LOSSES=1),
    _reaches("rebuilds what was put back", 7, N=2, WRITES=1, ROLLBACKS=1),
    _reaches("gives up a grant with a term", 8, N=2),
)


class CannotSearch(Exception):
    """The model could not be translated, compiled or run: nothing is known about it."""


def missing() -> list[str]:
    """The programs that the search needs and that are not installed."""
    return [program for program in ("spin", "cc") if shutil.which(program) is None]


def search(configuration: Configuration) -> Result:
    started = monotonic()
    with tempfile.TemporaryDirectory(prefix="tenure-model-") as folder:
        # Full state space: no bitstate, no hash compaction. Partial order reduction is on unless it is switched off.
        # What ends within seconds is not worth the seconds that a better compilation takes.
        effort = "-O2" if configuration.expected is Expected.HOLDS else "-O1"
        flags = [effort, "-DSAFETY", f"-DMEMLIM={MEMORY_MB}"]
        try:
            _build(Path(folder), configuration.options(), flags)
            # -w: the first size of the hash table, 2^22; it grows by itself. -n: no list of unreached states.
            output = _run(["./pan", f"-m{DEPTH}", "-w22", "-n"], Path(folder))
        except CannotSearch as problem:
            return Result(configuration, False, str(problem), seconds=monotonic() - started)
    return judge(configuration, output, monotonic() - started)


def judge(configuration: Configuration, output: str, seconds: float = 0.0) -> Result:
    """What the output of a search means; anything but a clear answer is not as expected."""
    states = _number(r"([\d.e+]+) states, stored", output)
    depth = _number(r"depth reached (\d+)", output)
    errors = re.search(r"errors: (\d+)", output)
    violated = re.search(r"assertion violated\s+(.*?)\s+\(at depth \d+\)", output)
    cut_short = re.search(r"out of memory|reached -DMEMLIM|max search depth too small|Search not completed", output)
    if errors is None:
        verdict, holds, found = "no result", False, None
    elif violated is not None:
        found = _invariant(violated[1])
        verdict, holds = f"{'reached' if found.startswith('landmark') else 'violated'} {found}", False
    elif cut_short is not None or "Bit statespace" in output or "Hash-Compact" in output:
        verdict, holds, found = f"not a complete search ({cut_short[0] if cut_short else 'lossy'})", False, None
    elif errors[1] != "0":
        verdict, holds, found = "failed otherwise than by an assertion", False, None
    else:
        complete = "+ Partial Order Reduction" in output and states > 1
        verdict, holds, found = ("holds" if complete else "no search"), complete, None
    match configuration.expected:
        case Expected.HOLDS:
            as_expected = holds
        case Expected.VIOLATES:
            as_expected = found in ("I-1", "I-2", "I-3")
        case Expected.REACHES:
            as_expected = found == f"landmark {configuration.defines['REACH']}"
    return Result(configuration, as_expected, verdict, states, depth, seconds)


def _invariant(assertion: str) -> str:
    landmark = re.fullmatch(r"\((\d+)!=\1\)", assertion)
    if landmark is not None:
        return f"landmark {landmark[1]}"
    for mark, name in ((">1", "I-1"), (">top", "I-2"), (">=r_epoch", "I-2"), ("GRANT", "I-3")):
        if mark in assertion:
            return name
    return f"an assertion without a name: {assertion}"


def _number(pattern: str, output: str) -> int:
    found = re.search(pattern, output)
    return int(float(found[1])) if found else 0


def explain(configuration: Configuration) -> str:
    """The shortest way to the violation, in the words of the model's own printf."""
    with tempfile.TemporaryDirectory(prefix="tenure-model-") as name:
        folder = Path(name)
        # Breadth first cannot be had with hidden variables.
        options = ["-DSCRATCH=", *configuration.options()]
        _build(folder, options, ["-O2", "-DSAFETY", "-DBFS", f"-DMEMLIM={EXPLAIN_MEMORY_MB}"])
        found = judge(configuration, _run(["./pan", f"-m{DEPTH}", "-w22", "-n"], folder))
        if not (folder / f"{MODEL.name}.trail").exists():
            return f"{configuration.name}: {found.verdict}, no way to a violation to show"
        steps = _run(["spin", "-t", *options, MODEL.name], folder).splitlines()
    ours = [step.strip() for step in steps if re.match(r"\s{4,}\S", step)]
    return "\n".join([f"{configuration.name}: {found.verdict}", *(f"  {step}" for step in ours)])


def _build(folder: Path, options: Sequence[str], flags: Sequence[str]) -> None:
    shutil.copy(MODEL, folder)
    _run(["spin", "-a", *options, MODEL.name], folder)
    _run(["cc", *flags, "-o", "pan", "pan.c"], folder)


def _run(command: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    except OSError as error:
        raise CannotSearch(f"{command[0]} could not be run: {error.strerror}; {INSTALL}") from error
    except subprocess.TimeoutExpired as error:
        raise CannotSearch(f"{command[0]} took more than {TIMEOUT_S} s") from error
    if done.returncode != 0 and command[0] != "./pan":
        raise CannotSearch(f"{' '.join(command)} failed: {(done.stdout + done.stderr).strip()[-400:]}")
    return done.stdout + done.stderr


def search_all(configurations: Sequence[Configuration], at_once: int | None = None) -> Iterator[Result]:
    """In the order given, each as soon as it and those before it are there."""
    with ThreadPoolExecutor(at_once or min(os.cpu_count() or 1, 2)) as pool:
        yield from pool.map(search, configurations)


def fingerprint() -> str:
    """Of everything that a search depends on: the model, and this program with its configurations and its judge."""
    together = hashlib.sha256()
    for path in (MODEL, Path(__file__)):
        together.update(hashlib.sha256(path.read_bytes()).digest())
    return together.hexdigest()


def is_searched() -> bool:
    try:
        return SEARCHED.read_text(encoding="utf-8").split()[-1:] == [fingerprint()]
    except FileNotFoundError:
        return False


def record() -> None:
    text = f"# Written by `make model`: what was searched last, and found as expected.\n{fingerprint()}\n"
    SEARCHED.write_text(text, encoding="utf-8")


def named(names: Sequence[str]) -> list[Configuration]:
    by_name = {configuration.name: configuration for configuration in CONFIGURATIONS}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise SystemExit(f"no configuration {', '.join(map(repr, unknown))}; there are: {', '.join(by_name)}")
    return [by_name[name] for name in names]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.model", description="Search the model of the lease.")
    parser.add_argument("names", nargs="*", metavar="CONFIGURATION", help="only these (all)")
    parser.add_argument("--if-changed", action="store_true", help="not, if spec/searched.txt says that it was done")
    parser.add_argument("--explain", metavar="CONFIGURATION", help="show the shortest way to its violation")
    given = parser.parse_args(arguments)
    if given.if_changed and is_searched():
        print("The model of the lease is the one that was searched last; `make model` searches it again.")
        return 0
    absent = missing()
    if absent:
        print(f"not installed: {', '.join(absent)}; run tools/install-servers, or: {INSTALL}", file=sys.stderr)
        return 1
    if given.explain is not None:
        print(explain(named([given.explain])[0]))
        return 0
    wrong = 0
    for result in search_all(named(given.names) if given.names else CONFIGURATIONS):
        print(result.line(), flush=True)
        wrong += not result.as_expected
    if wrong:
        print(f"{wrong} not as expected", file=sys.stderr)
        return 1
    if not given.names and not is_searched():
        record()
        print("The model of the lease was searched, and is as expected: commit spec/searched.txt.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
