"""Which tests show which requirement.

Ids and texts come from docs/requirements.md, results from `.reports/requirements-<tier>.json`, which
`tools.pytest_requirements` writes while tests run. The report is about the last run of each test, so it is only as
fresh as those runs.

Exit status: 0 reported; 1 a test names an id that the document does not have, the document itself is malformed, or
(with --strict) an id has no passing test; 2 there are no results yet.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

ID = re.compile(r"[A-Z]{2}-[1-9][0-9]*")
SECTION = re.compile(r"## (?P<prefix>[A-Z]{2}): (?P<title>.+)")
BULLET = re.compile(rf"- (?P<id>{ID.pattern}) (?P<text>\S.*)")
TEXT_WIDTH = 100

Results = dict[str, set[str]]


class MalformedDocument(Exception):
    """docs/requirements.md cannot be trusted as the list of ids."""


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

    @property
    def unknown(self) -> dict[str, list[str]]:
        """Ids that tests name and the document does not have, with those tests."""
        known = {requirement.id for requirement in self.requirements}
        named = self.passed.keys() | self.failed.keys()
        return {id_: sorted(self.passed.get(id_, set()) | self.failed.get(id_, set())) for id_ in sorted(named - known)}

    @property
    def unshown(self) -> list[str]:
        return [requirement.id for requirement in self.requirements if not self.passed.get(requirement.id)]


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
    total = len(report.requirements)
    yield ""
    yield f"{total - len(report.unshown)} of {total} ids shown by a passing test"
    if report.unshown:
        yield f"not shown: {', '.join(report.unshown)}"


def as_json(report: Report) -> str:
    content = {
        "requirements": [
            {
                "id": requirement.id,
                "section": requirement.section,
                "text": requirement.text,
                "passed": sorted(report.passed.get(requirement.id, ())),
                "failed": sorted(report.failed.get(requirement.id, ())),
            }
            for requirement in report.requirements
        ],
        "unknown": report.unknown,
        "shown": len(report.requirements) - len(report.unshown),
        "total": len(report.requirements),
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def main(arguments: Sequence[str] | None = None, root: Path = REPOSITORY) -> int:
    parser = argparse.ArgumentParser(description="Print the tests that passed for each requirement.")
    parser.add_argument("--strict", action="store_true", help="fail if an id has no passing test")
    parser.add_argument("--json", action="store_true", help="print JSON, with every parametrised case by name")
    options = parser.parse_args(arguments)

    try:
        requirements = parse_document((root / "docs" / "requirements.md").read_text(encoding="utf-8"))
    except MalformedDocument as error:
        print(f"docs/requirements.md: {error}", file=sys.stderr)
        return 1
    results = read_results(root / ".reports")
    if results is None:
        print("no test results yet: run `make test` first", file=sys.stderr)
        return 2

    report = Report(requirements, *results)
    print(as_json(report) if options.json else "\n".join(as_text(report)))
    for id_, tests in report.unknown.items():
        print(f"error: {id_} is not in docs/requirements.md, but is named by {', '.join(tests)}", file=sys.stderr)
    return 1 if report.unknown or (options.strict and report.unshown) else 0


if __name__ == "__main__":
    sys.exit(main())
