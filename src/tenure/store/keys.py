"""What a key may look like, and how a name that a person chose becomes a part of one.

A key is segments joined by `/`. Segments use letters, digits and `-_.=~`: characters that no object store, proxy,
signature or file system treats specially, so that the key we send is the key that is stored, listed and sorted.
Names come from users and may hold anything; `encode_name` makes one segment of any name, reversibly.
"""

from __future__ import annotations

import re

from tenure.errors import InvalidKey
from tenure.store.given import shown

MAX_SEGMENT_BYTES = 200  # file systems stop at 255, and the directory store adds up to 52 of its own
MAX_KEY_BYTES = 800  # S3 and Azure stop at 1,024, and the bucket's prefix comes on top
MAX_PREFIX_BYTES = 200
MAX_FULL_KEY_BYTES = MAX_PREFIX_BYTES + MAX_KEY_BYTES

_KEY = re.compile(r"[A-Za-z0-9\-_.=~]+(?:/[A-Za-z0-9\-_.=~]+)*")
_BAD_CHARACTER = re.compile(r"[^A-Za-z0-9\-_.=~/]")
_ITSELF = re.compile(r"[A-Za-z0-9\-_][A-Za-z0-9\-_.]{0,199}")
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
_ENCODED = re.compile(r"(?:[A-Za-z0-9\-_.]|~[0-9a-f]{2})+")
_ESCAPE = re.compile(r"~([0-9a-f]{2})")
_ALPHABET = "letters, digits and - _ . = ~, in segments joined by /"


def encode_name(name: str) -> str:
    """One key segment for any name: `a/b c` becomes `a~2fb~20c`. Different names give different segments."""
    if not isinstance(name, str):
        raise InvalidKey(f"a name is {shown(name)}: give a text")
    if _ITSELF.fullmatch(name):
        return name  # as good as always
    if not name:
        raise InvalidKey("a name is empty: give it at least one character")
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raise InvalidKey(f"name {name!r} is not valid Unicode: it holds half of a surrogate pair") from None
    segment = "".join(chr(byte) if byte in _PLAIN else f"~{byte:02x}" for byte in raw)
    if segment.startswith("."):  # keeps `.` and `..` from being folders, and names from being hidden files
        segment = "~2e" + segment[1:]
    if len(segment) > MAX_SEGMENT_BYTES:
        start = name if len(name) <= 40 else name[:40] + "…"
        raise InvalidKey(
            f"name {start!r} takes {len(segment)} bytes when encoded, and the limit is {MAX_SEGMENT_BYTES}: "
            "shorten it (a character outside A-Z a-z 0-9 - _ . takes 3 bytes or more)"
        )
    return segment


def decode_name(segment: str) -> str:
    """The name that `encode_name` was given."""
    if not isinstance(segment, str):
        raise InvalidKey(f"a segment is {shown(segment)}: give a text")
    if _ENCODED.fullmatch(segment):
        try:
            raw = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), segment).encode("latin-1")
            name = raw.decode()
            if encode_name(name) == segment:
                return name
        except (UnicodeDecodeError, InvalidKey):
            pass
    raise InvalidKey(f"segment {segment[:80]!r} was not made by encode_name")


def check_key(key: str, limit: int = MAX_KEY_BYTES) -> str:
    """Give back `key` if a store may hold it; otherwise say what is wrong with it."""
    if not isinstance(key, str):
        raise InvalidKey(f"a key is {shown(key)}: give a text")
    if is_key(key, limit):
        return key
    named = f"key {(key if len(key) <= 80 else key[:80] + '…')!r}" if key else "key"
    raise InvalidKey(f"{named} {flaw(key, limit)}")


def check_prefix(prefix: str, limit: int = MAX_KEY_BYTES) -> str:
    """Give back `prefix` if it names a folder of keys: empty for all of them, or ending in `/`."""
    if not isinstance(prefix, str):
        raise InvalidKey(f"a prefix is {shown(prefix)}: give a text")
    if not prefix:
        return prefix
    if not prefix.endswith("/"):
        raise InvalidKey(f"prefix {prefix[:80]!r} does not end in /: listings are by folder")
    check_key(prefix[:-1], limit)
    return prefix


def check_after(after: str | None, limit: int = MAX_KEY_BYTES) -> None:
    """A listing goes on after a key, which need not exist."""
    if after is not None:
        check_key(after, limit)


def is_key(text: str, limit: int = MAX_KEY_BYTES) -> bool:
    """May a store hold this key? Listings meet other tools' objects, whose names follow other rules."""
    return len(text) <= limit and bool(_KEY.fullmatch(text)) and all(map(_fits, text.split("/")))


def _fits(segment: str) -> bool:
    return len(segment) <= MAX_SEGMENT_BYTES and segment not in (".", "..")


def flaw(key: str, limit: int = MAX_KEY_BYTES) -> str:
    """What is wrong with a key that no store may hold, in words that do not quote it: it may hold a secret."""
    if not key:
        return "is empty: it needs at least one character"
    if len(key) > limit:
        return f"is {len(key)} characters long, and the limit is {limit}"
    if bad := _BAD_CHARACTER.search(key):
        return (
            f"holds {bad[0]!r}; a key holds {_ALPHABET}: "
            "pass names that come from people through tenure.store.encode_name"
        )
    for segment in key.split("/"):
        if not segment:
            return "has an empty segment: write each / between two segments, once"
        if segment in (".", ".."):
            return f"has the segment {segment!r}, which names a folder elsewhere"
        if len(segment) > MAX_SEGMENT_BYTES:
            return f"has a segment of {len(segment)} bytes, and the limit is {MAX_SEGMENT_BYTES}"
    raise AssertionError(f"no complaint about a key of {len(key)} characters")
