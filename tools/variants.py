"""Searches a seed for each broken variant, in which its check reports: tests/simulated/pins.toml.

    python -m tools.variants                      every variant
    python -m tools.variants no-quarantine ...    only these

A test runs each variant on its seed alone. A change to what the simulator does moves what happens in each seed; this
finds new ones. A variant that no seed shows is printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from tenure.simulate.campaign import run_seeds
from tenure.simulate.fleets import FLEETS
from tenure.simulate.seed import Plan
from tenure.testing.broken import variants_of

PINS = Path(__file__).resolve().parent.parent / "tests" / "simulated" / "pins.toml"
MINUTES = (0.5, 1.0, 2.0, 5.0)
"""Of a seed: a short one is enough for most."""
SEEDS = 25
"""Of each length. Where none of these will do, the mixes do not show the variant as they should."""
ENOUGH = 2
"""Seeds found; the one that ends first is taken."""


class Pin(msgspec.Struct, frozen=True):
    """`variant`, a broken kind of fleet `what`, is caught in this seed."""

    what: str
    variant: str
    seed: int
    minutes: float

    @property
    def plan(self) -> Plan:
        check = variants_of(self.what)[self.variant].check
        return Plan(what=self.what, broken=self.variant, minutes=self.minutes, until=check)


def read_pins(path: Path = PINS) -> list[Pin]:
    return [
        Pin(what, variant, **fields)
        for what, pins in tomllib.loads(path.read_text(encoding="utf-8")).items()
        for variant, fields in pins.items()
    ]


def write_pins(pins: Sequence[Pin], path: Path = PINS) -> None:
    path.write_text("\n".join(_lines(pins)) + "\n", encoding="utf-8")


def _lines(pins: Sequence[Pin]) -> Iterator[str]:
    yield "# Written by `make variants`: for each broken variant a seed in which its check reports."
    for what in FLEETS:
        yield f"\n[{what}]"
        for pin in pins:
            if pin.what == what:
                yield f"{pin.variant} = {{ seed = {pin.seed}, minutes = {pin.minutes} }}"


def search(what: str, name: str) -> Pin | None:
    for minutes in MINUTES:
        found: list[tuple[float, int]] = []
        for seed in range(1, SEEDS + 1):
            pin = Pin(what, name, seed, minutes)
            if (seconds := caught_after(pin)) is not None:
                found.append((seconds, seed))
            if len(found) == ENOUGH:
                break
        if found:
            return Pin(what, name, min(found)[1], minutes)
    return None


def caught_after(pin: Pin) -> float | None:
    """Simulated seconds until the variant's check reports; none if it does not, or if the simulation itself crashes."""
    try:
        [result] = run_seeds([pin.seed], pin.plan)
    except Exception:
        return None
    return result.simulated_seconds if result.has_reported(pin.plan.until) else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Search a seed for each broken variant, in which its check reports.")
    parser.add_argument("variants", nargs="*", help="only these")
    names = parser.parse_args(arguments).variants
    every = [(what, variant) for what in FLEETS for variant in variants_of(what).values()]
    if unknown := set(names) - {variant.name for _, variant in every}:
        parser.error(f"there is no variant {', '.join(sorted(unknown))}")
    asked = [(what, variant) for what, variant in every if not names or variant.name in names]
    known = {(pin.what, pin.variant): pin for pin in read_pins()} if PINS.exists() else {}
    missed = 0
    with ProcessPoolExecutor() as pool:
        searches = [pool.submit(search, what, variant.name) for what, variant in asked]
        for (what, variant), each in zip(asked, searches, strict=True):
            pin = each.result()
            if pin is None:
                missed += 1
                known.pop((what, variant.name), None)
                print(
                    f"{what} {variant.name}: {variant.check!r} did not report in {SEEDS} seeds of {MINUTES[-1]:g} min"
                )
                continue
            known[what, variant.name] = pin
            print(f"{what} {variant.name}: seed {pin.seed}, {pin.minutes:g} min")
    write_pins([known[what, variant.name] for what, variant in every if (what, variant.name) in known])
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
