"""Which fields are counted, and where they stand in a record: `views`, or `stats.likes` for one inside another."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any

from tenure.errors import ConfigError
from tenure.plugins.counters.numbers import Counter, Kind, counter_of

MAX_FIELDS = 100
MAX_FIELD_CHARACTERS = 200
MAX_DEPTH = 16
MAX_KNOWN = 1000
"""Fields of one resource that were ever counted."""
_PATH = re.compile(r"[^.\x00-\x1f\x7f]+(\.[^.\x00-\x1f\x7f]+)*")
_BY_TYPE = {int: Kind.INT, float: Kind.FLOAT, Decimal: Kind.DECIMAL}

Fields = Mapping[str, Counter]


def fields_from(given: object) -> dict[str, Counter]:
    """Fields as a user names them: a list of names (whole numbers that are added up), or a dict that says how each is
    counted: by a `Counter`, by its word (`"decimal:max"`), or by one of `int`, `float` and `Decimal`."""
    if isinstance(given, str):
        given = (given,)
    if isinstance(given, Mapping):
        fields = {name: _counter(name, value) for name, value in given.items()}
    elif isinstance(given, Iterable):
        fields = {check_path(name): Counter() for name in given}
    else:
        raise ConfigError(f"fields is {given!r:.80}: give the names of fields, or a dict of names and Counters")
    if not 1 <= len(fields) <= MAX_FIELDS:
        raise ConfigError(f"fields has {len(fields)} names: give 1 to {MAX_FIELDS}")
    for name in fields:
        check_path(name)
    if (pair := overlapping(fields)) is not None:
        raise ConfigError(f"fields has {pair[0]!r} and {pair[1]!r}: a number holds no other field; count one of them")
    return fields


def overlapping(names: Collection[str]) -> tuple[str, str] | None:
    """Two of them of which one is inside the other."""
    for name in names:
        parts = name.split(".")
        for depth in range(1, len(parts)):
            if (outer := ".".join(parts[:depth])) in names:
                return outer, name
    return None


def check_path(name: object) -> str:
    if (
        not isinstance(name, str)
        or len(name) > MAX_FIELD_CHARACTERS
        or name.count(".") >= MAX_DEPTH
        or not _PATH.fullmatch(name)
        or _is_half(name)
    ):
        raise ConfigError(
            f"field {name!r:.80} cannot be counted: give a name of 1 to {MAX_FIELD_CHARACTERS} characters, with dots "
            f"between those of fields inside others, at most {MAX_DEPTH} deep"
        )
    return name


def value_at(data: Mapping[str, Any], path: str) -> object:
    """What stands there; `None` if nothing does."""
    found: object = data
    for part in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def with_value(data: dict[str, Any], path: str, value: object) -> dict[str, Any] | None:
    """The data with this value there; `None` if something on the way is no object, or if more than a value stands in
    its place: that is somebody's data. Nothing that was given changes."""
    first, _, rest = path.partition(".")
    inner = data.get(first)
    if not rest:
        return None if isinstance(inner, dict | list) else {**data, first: value}
    if inner is None:
        inner = {}
    if not isinstance(inner, dict):
        return None
    below = with_value(inner, rest, value)
    return None if below is None else {**data, first: below}


def _counter(name: object, value: object) -> Counter:
    if isinstance(value, Counter):
        return value
    if isinstance(value, type) and value in _BY_TYPE:
        return Counter(_BY_TYPE[value])
    if (counter := counter_of(value)) is not None:
        return counter
    raise ConfigError(
        f"fields[{name!r:.80}] is {value!r:.80}: give int, float or Decimal, a word such as 'decimal:max', or a Counter"
    )


def _is_half(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return True
    return False
