"""Which tests show which requirement, and what makes them fail.

Ids and texts come from docs/requirements.md, results from `.reports/requirements-<tier>.json`, which
`tools.pytest_requirements` writes while tests run. The report is about the last run of each test, so it is only as
fresh as those runs. Mutants and broken variants of the simulator come from tests/mutants/named.toml: each names the
requirements that it breaks, and a mark without one is a claim that nobody has seen fail.

Exit status: 0 reported; 1 a test or a mutant names an id that the document does not have, the document or the list of
mutants is malformed, or (with --strict) an id has no passing test, or passing tests and no mutant; 2 there are no
results yet.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
MUTANTS = "tests/mutants/named.toml"

ID = re.compile(r"[A-Z]{2}-[1-9][0-9]*")
SECTION = re.compile(r"## (?P<prefix>[A-Z]{2}): (?P<title>.+)")
BULLET = re.compile(rf"- (?P<id>{ID.pattern}) (?P<text>\S.*)")
RULE = re.compile(rf"{ID.pattern}|[A-Z]-[1-9][0-9]*")
"""A requirement, or a rule or an invariant of the design: `I-3`, `E-4`."""
OF_TESTS = "TS-"
MUTANT_FIELDS = frozenset({"file", "before", "after", "test"})
TEXT_WIDTH = 100

Results = dict[str, set[str]]


class MalformedDocument(Exception):
    """docs/requirements.md cannot be trusted as the list of ids."""


class MalformedMutants(Exception):
    """tests/mutants/named.toml cannot be trusted as the list of mutants."""


@dataclass(frozen=True)
class Requirement:
    id: str
    section: str
    text: str


@dataclass(frozen=True)
class Report:
    requirements: tuple[Requirement, ...]
    passed: Mapping[str, set[str]]
    failed: Mapping[str, set[str]]
    breakers: Mapping[str, list[str]]
    """By id: the mutants and variants for which a test of it fails."""

    @property
    def unknown(self) -> dict[str, list[str]]:
        """Ids that tests or mutants name and the document does not have, with those tests and mutants."""
        known = {requirement.id for requirement in self.requirements}
        named = self.passed.keys() | self.failed.keys() | {id_ for id_ in self.breakers if ID.fullmatch(id_)}
        return {
            id_: sorted({*self.passed.get(id_, ()), *self.failed.get(id_, ()), *self.breakers.get(id_, ())})
            for id_ in sorted(named - known)
        }

    @property
    def unshown(self) -> list[str]:
        return [requirement.id for requirement in self.requirements if not self.passed.get(requirement.id)]

    @property
    def unproven(self) -> list[str]:
        """Ids that tests show, and that nobody has seen a test fail for."""
        return [
            requirement.id
            for requirement in self.requirements
            if self.passed.get(requirement.id) and not self.breakers.get(requirement.id) and _is_of_src(requirement)
        ]


def _is_of_src(requirement: Requirement) -> bool:
    """Could a change of src/ break it? What the tests promise of themselves is in no file that a mutant changes."""
    return not requirement.id.startswith(OF_TESTS)


def parse_document(text: str) -> tuple[Requirement, ...]:
    """The requirements in the order of the page.

    A bullet that is not a requirement is an error: an id with a typing mistake would otherwise drop out unnoticed.
    """
    found: dict[str, Requirement] = {}
    section = prefix = ""
    current: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            heading = SECTION.fullmatch(line)
            section, prefix = (line[3:], heading["prefix"]) if heading else ("", "")
            current = None
        elif section and line.startswith("- "):
            bullet = BULLET.fullmatch(line)
            if bullet is None:
                raise MalformedDocument(f"line {number}: expected `- {prefix}-<number> <text>`")
            current = bullet["id"]
            if not current.startswith(prefix + "-"):
                raise MalformedDocument(f"line {number}: {current} stands under {prefix}")
            if current in found:
                raise MalformedDocument(f"line {number}: {current} is there twice")
            found[current] = Requirement(current, section, bullet["text"])
        elif current and line.startswith("  "):
            before = found[current]
            found[current] = Requirement(current, section, f"{before.text} {line.strip()}")
        else:
            current = None
    if not found:
        raise MalformedDocument("no requirement found")
    return tuple(found.values())


def read_results(folder: Path) -> tuple[Results, Results] | None:
    """What passed and what failed, by id and over all tiers; None where nothing was ever recorded."""
    files = sorted(folder.glob("requirements-*.json"))
    if not files:
        return None
    passed: Results = defaultdict(set)
    failed: Results = defaultdict(set)
    for file in files:
        content = json.loads(file.read_text(encoding="utf-8"))
        for target, key in ((passed, "passed"), (failed, "failed")):
            for id_, tests in content[key].items():
                target[id_].update(tests)
    return dict(passed), dict(failed)


def read_breakers(file: Path) -> dict[str, list[str]]:
    """By id: `mutant <name>` or `variant <name>`. Empty where there is no list."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except tomllib.TOMLDecodeError as error:
        raise MalformedMutants(str(error)) from None
    found: dict[str, list[str]] = defaultdict(list)
    names: set[str] = set()
    for number, entry in enumerate(content.get("mutant", ()), start=1):
        name, breaks = entry.get("name"), entry.get("breaks", ())
        if not isinstance(name, str) or not name:
            raise MalformedMutants(f"entry {number} has no name")
        if name in names:
            raise MalformedMutants(f"{name} is there twice")
        names.add(name)
        fields = entry.keys() - {"name", "breaks"}
        if fields not in ({"variant"}, MUTANT_FIELDS):
            raise MalformedMutants(f"{name}: expected {', '.join(sorted(MUTANT_FIELDS))}, or variant alone")
        wrong = [id_ for id_ in breaks if RULE.fullmatch(id_) is None]
        if wrong or not breaks:
            raise MalformedMutants(f"{name}: breaks takes one or more ids such as 'EF-1'")
        for id_ in breaks:
            found[id_].append(f"variant {entry['variant']}" if "variant" in entry else f"mutant {name}")
    return dict(found)


def fold_cases(tests: Iterable[str]) -> list[str]:
    """One line per test function: a test with two hundred parameters is one proof, not two hundred."""
    cases: dict[str, int] = defaultdict(int)
    for test in tests:
        cases[test.partition("[")[0]] += 1
    return [name if count == 1 else f"{name} ({count} cases)" for name, count in sorted(cases.items())]


def shorten(text: str) -> str:
    return text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1].rsplit(" ", 1)[0] + "…"


def as_text(report: Report) -> Iterator[str]:
    section = ""
    for requirement in report.requirements:
        if requirement.section != section:
            if section:
                yield ""
            section = requirement.section
            yield section
            yield "-" * len(section)
        passed = fold_cases(report.passed.get(requirement.id, ()))
        failed = fold_cases(report.failed.get(requirement.id, ()))
        yield f"{requirement.id:<6} {shorten(requirement.text)}"
        yield from (f"{'':<6}   passed  {test}" for test in passed)
        yield from (f"{'':<6}   FAILED  {test}" for test in failed)
        if not passed:
            yield f"{'':<6}   no passing test"
        breakers = report.breakers.get(requirement.id, ())
        yield from (f"{'':<6}   fails with  {breaker}" for breaker in breakers)
        if passed and not breakers and _is_of_src(requirement):
            yield f"{'':<6}   no mutant or variant makes it fail"
    total = len(report.requirements)
    yield ""
    yield f"{total - len(report.unshown)} of {total} ids shown by a passing test"
    if report.unshown:
        yield f"not shown: {', '.join(report.unshown)}"
    if report.unproven:
        yield f"without a mutant or a variant that makes a test fail: {', '.join(report.unproven)}"


def as_json(report: Report) -> str:
    content = {
        "requirements": [
            {
                "id": requirement.id,
                "section": requirement.section,
                "text": requirement.text,
                "passed": sorted(report.passed.get(requirement.id, ())),
                "failed": sorted(report.failed.get(requirement.id, ())),
                "fails_with": list(report.breakers.get(requirement.id, ())),
            }
            for requirement in report.requirements
        ],
        "unknown": report.unknown,
        "shown": len(report.requirements) - len(report.unshown),
        "total": len(report.requirements),
        "unproven": report.unproven,
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def main(arguments: Sequence[str] | None = None, root: Path = REPOSITORY) -> int:
    parser = argparse.ArgumentParser(description="Print the tests that passed for each requirement.")
    parser.add_argument("--strict", action="store_true", help="fail if an id has no passing test or no mutant")
    parser.add_argument("--json", action="store_true", help="print JSON, with every parametrised case by name")
    options = parser.parse_args(arguments)

    try:
        requirements = parse_document((root / "docs" / "requirements.md").read_text(encoding="utf-8"))
    except MalformedDocument as error:
        print(f"docs/requirements.md: {error}", file=sys.stderr)
        return 1
    try:
        breakers = read_breakers(root / MUTANTS)
    except MalformedMutants as error:
        print(f"{MUTANTS}: {error}", file=sys.stderr)
        return 1
    results = read_results(root / ".reports")
    if results is None:
        print("no test results yet: run `make test` first", file=sys.stderr)
        return 2

    report = Report(requirements, *results, breakers)
    print(as_json(report) if options.json else "\n".join(as_text(report)))
    for id_, tests in report.unknown.items():
        print(f"error: {id_} is not in docs/requirements.md, but is named by {', '.join(tests)}", file=sys.stderr)
    return 1 if report.unknown or (options.strict and (report.unshown or report.unproven)) else 0


if __name__ == "__main__":
    sys.exit(main())
