"""Text that came out of a bucket, made fit for a terminal.

Names, reasons and dates in a bucket are written by whoever can write to it. Shown as they are, they could move the
cursor, set the title of the window, colour what follows, turn the direction of the text or forge a line of their own.
Whatever tenure writes to a terminal passes through here.

Guarantee: what `printable` and `json_text` return has no character in it that a terminal acts upon.

Not guaranteed: two names may look alike (a Latin and a Cyrillic a).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import msgspec

_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls, formats (among them those that turn the direction of text), surrogates, private and unassigned characters,
and what separates lines and paragraphs."""
_NOT_ASCII = re.compile(r"[^\x20-\x7e\n]")


def printable(text: str) -> str:
    """The text with every character that a terminal would act upon replaced by its escape: `\\x1b`, `\\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if _is_safe(each) else _escaped(each) for each in text)


def printable_lines(text: str) -> str:
    """The same for text of several lines, which it keeps: a stack trace."""
    return "\n".join(map(printable, text.split("\n")))


def json_text(value: Any, *, indent: int | None = 2) -> str:
    """The value as JSON; with `indent=None` on one line. Other letters than ASCII's stay readable."""
    body = msgspec.json.encode(value)
    text = (body if indent is None else msgspec.json.format(body, indent=indent)).decode()
    return _NOT_ASCII.sub(lambda found: found[0] if _is_safe(found[0]) else _escaped_for_json(found[0]), text)


def _is_safe(character: str) -> bool:
    return character.isprintable() and unicodedata.category(character) not in _UNSAFE_CATEGORIES


def _escaped(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number <= 0xFF else f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def _escaped_for_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
