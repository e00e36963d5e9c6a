"""Whether a value that was written as JSON is read back as the same value.

msgspec writes bytes as base64 text, sets and tuples as lists, keys that are numbers as text, and times, ids and
decimals as text. Whoever reads them back has something else, and no error. A value whose type says what it is (a
msgspec `Struct`, a dataclass, a named tuple) is read back as that type by whoever names it, and is judged so.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

import msgspec

_BYTES = "give text, such as base64.b64encode(value).decode(), or put it into an object of its own"
_INSTEAD: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((bytes, bytearray, memoryview), _BYTES),
    ((set, frozenset), "give a list, such as sorted(value)"),
    (tuple, "give a list, list(value)"),
    ((datetime.datetime, datetime.date, datetime.time), "give text, value.isoformat()"),
    (datetime.timedelta, "give its seconds, value.total_seconds()"),
)
_ELSE = "give text, or a msgspec.Struct with a field of this type, and read it with kind="
_SHOWN = 60


def objection(value: Any, body: bytes) -> str | None:
    """Why `value` does not come back from `body`, its JSON: where, what it is and what to give instead. None: it does.

    `body` must not be nested deeper than can be read.
    """
    back = msgspec.json.decode(body)
    if _is_typed(value):
        return _of_typed("it", value)
    if back == value:
        return None
    waiting: list[tuple[str, Any, Any]] = [("", value, back)]
    while waiting:
        path, given, read = waiting.pop()
        where = f"its {path}" if path else "it"
        if _is_typed(given):
            if (why := _of_typed(where, given)) is not None:
                return why
        elif isinstance(given, Mapping) and isinstance(read, dict):
            for key in given:
                if key not in read:
                    kind = type(key).__name__
                    return f"{where} has the key {_short(key)} ({kind}), which would come back as text: give text keys"
            waiting.extend((f"{path}[{_short(key)}]", each, read[key]) for key, each in given.items())
        elif isinstance(given, list) and isinstance(read, list):
            waiting.extend((f"{path}[{n}]", *pair) for n, pair in enumerate(zip(given, read, strict=True)))
        elif given != read:
            kinds = type(given).__name__, type(read).__name__
            return f"{where} is {_article(kinds[0])}, and would come back as {_article(kinds[1])}: {_instead(given)}"
    return None


def _is_typed(value: Any) -> bool:
    kind = type(value)
    is_named_tuple = isinstance(value, tuple) and hasattr(kind, "_fields")
    return is_named_tuple or isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(kind)


def _of_typed(where: str, value: Any) -> str | None:
    kind = type(value)
    is_generic = bool(getattr(kind, "__parameters__", None))
    if isinstance(value, msgspec.Struct):
        compares = value.__struct_config__.eq
    else:
        compares = any("__eq__" in vars(each) for each in kind.__mro__[:-1])
    if is_generic or not compares:
        return None  # what it should equal cannot be told
    try:
        decoder = msgspec.json.Decoder(kind)
    except (TypeError, NameError):
        return None  # its annotations cannot be evaluated here: it is for those who read it without its type
    try:
        if decoder.decode(msgspec.json.encode(value)) == value:
            return None
        why = "a field of it holds another type than the one declared"
    except msgspec.ValidationError as error:
        why = str(error)
    return (
        f"{where} is {_article(kind.__name__)}, which would not come back ({why}): declare each field as what it holds"
    )


def _instead(value: Any) -> str:
    return next((advice for kinds, advice in _INSTEAD if isinstance(value, kinds)), _ELSE)


def _article(kind: str) -> str:
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def _short(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
