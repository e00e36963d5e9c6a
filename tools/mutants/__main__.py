"""Runs mutants. Exit status: 0 as expected, 1 not, 2 a list is wrong, or the tests fail without a mutant."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tenure.testing.broken import all_variants
from tools.mutants.lists import Malformed, Named, read_named
from tools.mutants.trial import Overlay, Result, Verdict

REPOSITORY = Path(__file__).resolve().parent.parent.parent
NAMED_TIMEOUT_S = 120.0


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
    return 1 if missed else 0


def _line(name: str, result: Result) -> str:
    verdict = result.verdict.value if result.caught else result.verdict.value.upper()
    return f"{verdict:<8} {name} ({result.seconds:.1f} s) {result.detail}".rstrip()


def main(arguments: Sequence[str] | None = None, root: Path = REPOSITORY) -> int:
    parser = argparse.ArgumentParser(prog="tools.mutants", description="Do the tests see small mistakes?")
    parser.add_argument("--named", nargs="*", metavar="NAME", help="run the mutants of tests/mutants/named.toml")
    options = parser.parse_args(arguments)
    lists = root / "tests" / "mutants"
    try:
        with tempfile.TemporaryDirectory(prefix="tenure-mutants-") as home:
            named = read_named(lists / "named.toml")
            chosen = [mutant for mutant in named if not options.named or mutant.name in options.named]
            return run_named(root, chosen, Overlay(root, Path(home)))
    except Malformed as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
