"""What callers give, checked before anything is made of it: the field, what it is, and what would be right."""

from __future__ import annotations

import enum
import inspect
import math
from collections.abc import Callable
from typing import Any

from tenure.errors import ConfigError

_MAX_SHOWN = 80


def shown(value: object) -> str:
    """For a message: whatever was given, on one line, and not all of it."""
    try:
        text = repr(value)
    except Exception:  # a class of the caller's, or a number of more digits than Python prints
        text = f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def check_flag(field: str, value: object) -> bool:
    """Text such as "no" counts as true in Python: it is refused, and not guessed at."""
    if not isinstance(value, bool):
        raise ConfigError(f"{field} is {shown(value)}: it must be True or False")
    return value


def check_number(field: str, value: object, *, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(f"{field} is {shown(value)}: give a number from {least:g} to {most:g}")
    return float(value)


def check_asked(field: str, value: object) -> float:
    """Seconds for which something is asked to last. Also below zero, or without end: then it does, or does not."""
    # What is no number compares as false, and would be taken for certain.
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ConfigError(f"{field} is {shown(value)}: give a number of seconds")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_count(field: str, value: object, *, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{field} is {shown(value)}: give a whole number from {least:,} to {most:,}")
    return value


def check_choice(field: str, value: object, kind: type[enum.Enum]) -> None:
    if not isinstance(value, kind):
        choices = " or ".join(f"{kind.__name__}.{each.name}" for each in kind)
        raise ConfigError(f"{field} is {shown(value)}: give {choices}")


def check_function(field: str, value: object, of: str) -> None:
    if not callable(value):
        raise ConfigError(f"{field} is {shown(value)}: give a function of {of}")


def takes(function: Callable[..., Any], arguments: int) -> bool:
    """Can it be called with so many positional arguments?"""
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except TypeError:
        return False
    except ValueError:  # some that are written in C do not say
        return True
    return True


def check_instance(field: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise ConfigError(f"{field} is {shown(value)}: give a {kind.__name__}")
