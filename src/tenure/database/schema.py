"""What the data of a record may be: any JSON object, or what fits a typed class.

Everything is checked before it is sent, and named by its field: numbers that JSON does not have (NaN), keys that are no
text and values of other kinds would otherwise be stored as something else, or not be readable again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec

from tenure.errors import ConfigError

D = TypeVar("D")

MAX_DEPTH = 32
_Object = msgspec.json.Decoder(dict[str, Any])
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1


class Misfit(Exception):
    """Data that cannot be stored, or do not fit; the text names the field."""


class Schema(Generic[D]):
    """The form of a resource's data. `kind`: a `msgspec.Struct` or a dataclass; `None` for any JSON object."""

    def __init__(self, kind: type[D] | None) -> None:
        self.kind = kind
        self._fields = None if kind is None else _supported_fields_of(kind)

    def store(self, data: object, *, max_bytes: int) -> dict[str, Any]:
        """`data` as the JSON object that is stored. Raises `Misfit`."""
        plain = self._plain(data)
        _check_json(plain, "data", 1)
        try:
            body = msgspec.json.encode(plain)
        except (TypeError, ValueError, OverflowError) as error:  # such as a number of a class of its own
            raise Misfit(f"data: {error}") from None
        if len(body) > max_bytes:
            raise Misfit(
                f"data has {len(body):,} bytes as JSON, and the limit is {max_bytes:,}: keep large contents under a "
                "key of your own, and their name in the record"
            )
        return _Object.decode(body)  # no part of it is shared with the caller

    def load(self, stored: dict[str, Any]) -> D:
        """What was stored, in the form that users see. Raises `Misfit`."""
        if self.kind is None:
            return stored  # type: ignore[return-value]
        try:
            return msgspec.convert(stored, self.kind, str_keys=True)
        except Exception as error:  # also what a `__post_init__` raises: one record must not break a listing
            raise Misfit(_complaint(error)) from None

    def plain_value(self, name: str, value: object) -> object:
        """The value of one field as plain JSON. What a typed class may hold, such as a date, may be given as it is."""
        if self.kind is None:
            return value
        try:
            return msgspec.to_builtins(value, str_keys=True)
        except (RecursionError, TypeError, ValueError) as error:
            raise Misfit(f"data.{str(name)[:80]}: {error}") from None

    def check_fields(self, names: Mapping[str, object]) -> None:
        """Refuse fields that the schema does not have: they would be stored, and never be seen again."""
        if self._fields is None:
            return
        for name in names:
            if name not in self._fields:
                known = ", ".join(sorted(self._fields)) or "none"
                raise Misfit(f"field {str(name)[:80]!r} is not in the schema, which has: {known}")

    def check_value(self, name: str, value: object) -> None:
        """Refuse a field whose type cannot hold such a value, as it is stored: its records would not be readable."""
        if self.kind is None:
            return
        try:
            hints = get_type_hints(self.kind, include_extras=True)
        except NameError:
            return  # names that only the place knows where the class was made
        kinds = {_stored_name(self.kind, field): kind for field, kind in hints.items()}
        if name not in kinds:
            return
        try:
            msgspec.convert(value, kinds[name], str_keys=True)
        except (msgspec.ValidationError, TypeError) as error:
            raise Misfit(f"field {name!r} cannot hold {value!r}: {error}") from None

    def _plain(self, data: object) -> dict[str, Any]:
        if self.kind is None:
            if not isinstance(data, Mapping):
                raise Misfit(f"data is {type(data).__name__}: give a dict, or name a schema")
            return dict(data)
        if isinstance(data, self.kind):
            return self._checked(data)
        if isinstance(data, Mapping):
            self.check_fields(data)
            try:
                made = msgspec.convert(dict(data), self.kind, str_keys=True)
            except Exception as error:
                raise Misfit(_complaint(error)) from None
            return self._checked(made)
        raise Misfit(f"data is {type(data).__name__}: give {self.kind.__name__}, or a dict with its fields")

    def _checked(self, data: D) -> dict[str, Any]:
        """Classes do not check their own fields when they are made; going there and back does."""
        try:
            plain = msgspec.to_builtins(data, str_keys=True)
            msgspec.convert(plain, self.kind, str_keys=True)
        except Exception as error:
            raise Misfit(_complaint(error)) from None
        assert isinstance(plain, dict)
        return plain


def _supported_fields_of(kind: type[Any]) -> frozenset[str]:
    try:
        names = _fields_of(kind)
        msgspec.json.Decoder(kind)
    except (TypeError, NameError) as error:  # a type of a field that msgspec does not know, or that is not defined
        raise ConfigError(f"schema {kind.__name__} cannot be used: {error}") from None
    return names


def _fields_of(kind: type[Any]) -> frozenset[str]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        if config.array_like:
            raise ConfigError(f"schema {kind.__name__} is array_like: records are JSON objects, with names for fields")
        names = {field.encode_name for field in msgspec.structs.fields(kind)}
        return frozenset(names | ({config.tag_field} if config.tag_field else set()))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return frozenset(field.name for field in dataclasses.fields(kind))
    raise ConfigError(f"schema is {kind!r}: give a msgspec.Struct class, a dataclass, or None for any JSON object")


def _stored_name(kind: type[Any], field: str) -> str:
    """A Struct may store its fields under other names."""
    if issubclass(kind, msgspec.Struct):
        return dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)).get(field, field)
    return field


def _check_json(value: object, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Misfit(f"{path[:200]} is nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, int):
        if not _MIN_INT <= value <= _MAX_INT:
            raise Misfit(f"{path} is an integer of over 64 bits: store it as text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Misfit(f"{path} is {value}, which JSON does not have")
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise Misfit(f"{path} has the key {key!r}: keys are text")
            _check_text(key, path)
            _check_json(inner, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _check_json(inner, f"{path}[{index}]", depth + 1)
    else:
        raise Misfit(f"{path} is of type {type(value).__name__}, which JSON does not have")


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Misfit(f"{path} is not valid Unicode: it holds half of a surrogate pair") from None


def _complaint(error: BaseException) -> str:
    """msgspec says "Expected `int`, got `str` - at `$.age`"."""
    text = str(error)[:300]
    if not isinstance(error, (msgspec.ValidationError, RecursionError, TypeError, ValueError)):
        text = f"{type(error).__name__}: {text}"
    reason, found, path = text.rpartition(" - at `$")
    if found:
        return f"data{path.rstrip('`')}: {reason}"
    return f"data: {text}"
