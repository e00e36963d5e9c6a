"""Runs mutants. Exit status: 0 as expected, 1 not, 2 a list is wrong, or the tests fail without a mutant."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from tenure.testing.broken import all_variants
from tools.mutants.lists import (
    Area,
    Malformed,
    Named,
    Survivor,
    as_entry,
    complaints,
    read_areas,
    read_named,
    read_survivors,
)
from tools.mutants.sources import Mutant, drawn, mutants_of
from tools.mutants.trial import Overlay, Result, Verdict

REPOSITORY = Path(__file__).resolve().parent.parent.parent
NAMED_TIMEOUT_S = 120.0
BASELINE_TIMEOUT_S = 600.0
QUICK = ("-m", "not servers and not slow and not trials")

_Entry = TypeVar("_Entry", Area, Named)


def timeout_of(baseline: Result) -> float:
    """Far beyond what the same tests took without a mutant: a busy machine is not a hanging test."""
    return 30.0 + 4 * baseline.seconds


class Campaign:
    """Mutants drawn from areas, one after the other, and what became of each."""

    def __init__(self, root: Path, overlay: Overlay, survivors: Sequence[Survivor]) -> None:
        self._root = root
        self._overlay = overlay
        self._listed = {survivor.id for survivor in survivors}
        self.existing: set[str] = set()
        self.survived: dict[str, bool] = {}
        self.counts: dict[str, Counter[Verdict]] = {}
        self.seconds: list[float] = []
        self.unjudged: list[Mutant] = []

    def run(self, area: Area, seed: int, count: int, only: Sequence[str]) -> None:
        """`count` that are programs, in the order of the seed, and all that are listed. Raises `Malformed`."""
        mutants = [mutant for file in area.sources for mutant in mutants_of(self._root, file)]
        self.existing.update(mutant.id for mutant in mutants)
        if only:
            mutants = [mutant for mutant in mutants if any(text in str(mutant) for text in only)]
            count = len(mutants)
        tests = area.tests_of_all(dict.fromkeys(mutant.file for mutant in mutants))
        if not tests:
            return
        baseline = self._overlay.run([*QUICK, *tests], BASELINE_TIMEOUT_S)
        if baseline.verdict is not Verdict.SURVIVED:
            raise Malformed(f"{area.name}: the tests fail without a mutant: {baseline.detail}")
        print(f"{area.name}: {len(mutants)} possible, the tests take {baseline.seconds:.0f} s", flush=True)
        counts = self.counts.setdefault(area.name, Counter())
        for mutant in drawn(mutants, seed):
            is_drawn = counts.total() - counts[Verdict.INVALID] < count
            if is_drawn or mutant.id in self._listed:
                result = self._try(area, mutant, timeout_of(baseline))
                counts[result.verdict] += is_drawn

    def _try(self, area: Area, mutant: Mutant, timeout: float) -> Result:
        text = (self._root / mutant.file).read_text(encoding="utf-8")
        tests = [*QUICK, *area.tests_of(mutant.file)]
        result = self._overlay.run(tests, timeout, (mutant.file, mutant.applied(text)))
        print(_line(str(mutant), result), flush=True)
        self.seconds.append(result.seconds)
        self.survived[mutant.id] = result.verdict is Verdict.SURVIVED
        if result.verdict is Verdict.SURVIVED and mutant.id not in self._listed:
            self.unjudged.append(mutant)
        return result

    def table(self) -> Iterator[str]:
        yield f"{'area':<10}" + "".join(f"{verdict.value:>10}" for verdict in Verdict)
        for name, counts in self.counts.items():
            yield f"{name:<10}" + "".join(f"{counts[verdict]:>10}" for verdict in Verdict)
        if self.seconds:
            yield f"{len(self.seconds)} run, {sum(self.seconds) / len(self.seconds):.1f} s each"


def shares(count: int, areas: int) -> Iterator[int]:
    """`count`, spread evenly."""
    for number in range(areas):
        yield count // areas + (number < count % areas)


def run_drawn(campaign: Campaign, areas: Sequence[Area], options: argparse.Namespace) -> None:
    print(f"seed {options.seed}")
    for area, count in zip(areas, shares(options.count, len(areas)), strict=True):
        campaign.run(area, options.seed, count, options.only or ())
    print("", *campaign.table(), sep="\n")
    for mutant in campaign.unjudged:
        print(f"\n# {mutant.file}:{mutant.line}: {mutant.after!r}", as_entry(mutant), sep="\n")


def run_named(root: Path, mutants: Sequence[Named], overlay: Overlay) -> int:
    """Every test passes without its mutant and fails with it; every variant is one that the simulator knows."""
    variants = all_variants()
    missed = 0
    for mutant in mutants:
        if mutant.variant is not None:
            missed += (unknown := mutant.variant not in variants)
            print(f"{'UNKNOWN ' if unknown else 'variant '} {mutant.name}: {mutant.variant}", flush=True)
            continue
        assert mutant.test is not None
        changed = mutant.changed(root)
        result = overlay.run([mutant.test], NAMED_TIMEOUT_S)
        if result.verdict is not Verdict.SURVIVED:
            missed += 1
            print(f"BROKEN   {mutant.name}: fails without the mutant: {result.detail}", flush=True)
            continue
        result = overlay.run([mutant.test], NAMED_TIMEOUT_S, changed)
        missed += not result.caught
        print(_line(mutant.name, result), flush=True)
    print(f"{len(mutants)} named, {missed} not as expected")
    return missed


def _line(name: str, result: Result) -> str:
    verdict = result.verdict.value if result.caught else result.verdict.value.upper()
    return f"{verdict:<8} {name} ({result.seconds:.1f} s) {result.detail}".rstrip()


def _chosen(entries: list[_Entry], names: Iterable[str]) -> list[_Entry]:
    by_name = {entry.name: entry for entry in entries}
    if unknown := set(names) - by_name.keys():
        raise Malformed(f"not there: {', '.join(sorted(unknown))}; there are {', '.join(by_name)}")
    return [by_name[name] for name in names] or entries


def main(arguments: Sequence[str] | None = None, root: Path = REPOSITORY) -> int:
    parser = argparse.ArgumentParser(prog="tools.mutants", description="Do the tests see small mistakes?")
    parser.add_argument("--named", nargs="*", metavar="NAME", help="run the mutants of tests/mutants/named.toml")
    parser.add_argument("--area", action="append", default=[], help="draw from this area alone; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="which are drawn")
    parser.add_argument("--count", type=int, default=200, help="how many, over all areas")
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="all whose line in the output holds this, in place of a draw"
    )
    options = parser.parse_args(arguments)
    lists = root / "tests" / "mutants"
    try:
        with tempfile.TemporaryDirectory(prefix="tenure-mutants-") as home:
            overlay = Overlay(root, Path(home))
            if options.named is not None:
                named = _chosen(read_named(lists / "named.toml"), options.named)
                return 1 if run_named(root, named, overlay) else 0
            survivors = read_survivors(lists / "survivors.toml")
            areas = _chosen(read_areas(lists / "areas.toml"), options.area)
            files = {file for area in areas for file in area.sources}
            listed = [survivor for survivor in survivors if not options.area or survivor.file in files]
            campaign = Campaign(root, overlay, listed)
            run_drawn(campaign, areas, options)
    except Malformed as error:
        print(error, file=sys.stderr)
        return 2
    wrong = list(complaints(listed, campaign.existing, campaign.survived))
    print("", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
