"""The files of tests/mutants: what is drawn from, what is named, and which survivors are judged."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from tools.mutants.sources import Mutant, known_as

_Entry = TypeVar("_Entry")


class Malformed(Exception):
    """A list cannot be relied on."""


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mistake that somebody thought of, and what must see it: a test, or a pin of the simulator (`variant`)."""

    name: str
    breaks: tuple[str, ...] = ()
    """The requirements that would be broken."""
    variant: str | None = None
    file: str | None = None
    before: str | None = None
    """Occurs exactly once in `file`."""
    after: str | None = None
    test: str | None = None
    """Fails with the mutant, and passes without."""

    def __post_init__(self) -> None:
        edit = (self.file, self.before, self.after, self.test)
        if self.variant is None and None in edit:
            raise ValueError(f"{self.name}: needs file, before, after and test, or a variant")
        if self.variant is not None and edit != (None, None, None, None):
            raise ValueError(f"{self.name}: a variant needs nothing beside it")

    def changed(self, root: Path) -> tuple[str, str]:
        """The file that it changes, and its text with the mistake in it."""
        assert self.file is not None
        assert self.before is not None
        assert self.after is not None
        text = (root / self.file).read_text(encoding="utf-8")
        if (times := text.count(self.before)) != 1:
            raise Malformed(f"{self.name}: `before` occurs {times} times in {self.file}, not once")
        return self.file, text.replace(self.before, self.after)


class Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the sources from which mutants are drawn, and the tests that should see them."""

    name: str
    sources: dict[str, tuple[str, ...]]
    """Each file, with the tests that are most likely to see a mutant of it; they run first."""
    tests: tuple[str, ...] = ()
    """What runs after them, whichever file it is."""

    def tests_of(self, file: str) -> list[str]:
        return list(dict.fromkeys((*self.sources[file], *self.tests)))

    def tests_of_all(self, files: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(test for file in files for test in self.tests_of(file)))


class Survivor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mutant that no test sees, and why that is right."""

    file: str
    function: str
    text: str
    operator: str
    verdict: Literal["equivalent", "accepted"]
    """`equivalent`: nobody could tell it from the original. `accepted`: one could, and no test is worth it."""
    reason: str
    nth: int = 1

    @property
    def id(self) -> str:
        return known_as(self.file, self.function, self.text, self.operator, self.nth)


def read_named(file: Path) -> list[Named]:
    return _read(file, "mutant", Named)


def read_areas(file: Path) -> list[Area]:
    return _read(file, "area", Area)


def read_survivors(file: Path) -> list[Survivor]:
    survivors = _read(file, "survivor", Survivor)
    for survivor in survivors:
        if not survivor.reason.strip():
            raise Malformed(f"{file.name}: no reason for {survivor.id}")
    if len({survivor.id for survivor in survivors}) < len(survivors):
        raise Malformed(f"{file.name}: a survivor stands there twice")
    return survivors


def complaints(survivors: list[Survivor], existing: set[str], survived: Mapping[str, bool]) -> Iterator[str]:
    """What is wrong with the list, or with the tests. `survived`: of each mutant that was run, whether it did."""
    listed = {survivor.id for survivor in survivors}
    for name in sorted(listed - existing):
        yield f"listed, but there is no such mutant any more: take it out of the list: {name}"
    for name, alive in survived.items():
        if alive and name not in listed:
            yield f"survived: write a test that sees it, or judge it in the list: {name}"
        if not alive and name in listed:
            yield f"listed, but a test sees it now: take it out of the list: {name}"


def as_entry(mutant: Mutant) -> str:
    """What to add to the list of survivors, without the reason."""
    fields = {"file": mutant.file, "function": mutant.function, "text": mutant.text, "operator": mutant.operator}
    lines = ["[[survivor]]", *(f"{name} = {_quoted(value)}" for name, value in fields.items())]
    lines += [f"nth = {mutant.nth}"] if mutant.nth > 1 else []
    return "\n".join([*lines, 'verdict = ""', 'reason = ""'])


def _quoted(value: str) -> str:
    if "'" not in value:
        return f"'{value}'"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _read(file: Path, table: str, entry: type[_Entry]) -> list[_Entry]:
    """All `[[table]]` of the file; none where there is no file."""
    if not file.exists():
        return []
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        if unknown := content.keys() - {table}:
            raise Malformed(f"{file.name}: unknown {', '.join(sorted(unknown))}; every entry is a [[{table}]]")
        return msgspec.convert(content.get(table, []), list[entry])  # type: ignore[valid-type]
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise Malformed(f"{file.name}: {error}") from None
