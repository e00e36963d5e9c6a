"""The files of tests/mutants: what is drawn from, what is named, and which survivors are judged."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

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


def read_named(file: Path) -> list[Named]:
    return _read(file, "mutant", Named)


def _read(file: Path, table: str, entry: type[_Entry]) -> list[_Entry]:
    """All `[[table]]` of the file; none where there is no file."""
    if not file.exists():
        return []
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    if unknown := content.keys() - {table}:
        raise Malformed(f"{file.name}: unknown {', '.join(sorted(unknown))}; every entry is a [[{table}]]")
    try:
        return msgspec.convert(content.get(table, []), list[entry])  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise Malformed(f"{file.name}: {error}") from None
