"""A machine's state as the chunks of a snapshot: a frame, and lists that are cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

_AT_ONCE = 20
"""A job of a schedule may take 64 KiB."""
_CHUNK_BYTES = 1024 * 1024
"""At most so many in one chunk, unless a single value is larger."""


class Frame(msgspec.Struct, rename="camel", kw_only=True):
    """The first chunk; subclasses add what is no list."""

    counts: dict[str, int] = {}
    """What is in the others, by field."""


F = TypeVar("F", bound=Frame)
C = TypeVar("C", bound=msgspec.Struct)


def encode(frame: Frame, contents: msgspec.Struct) -> list[bytes]:
    """`contents`: lists, each of which goes into chunks of its own."""
    frame.counts = _counts(contents)
    chunks = [msgspec.json.encode(frame)]
    for field in contents.__struct_fields__:
        chunks += _chunks(field, getattr(contents, field))
    return chunks


def decode(chunks: Sequence[bytes], frame_kind: type[F], contents_kind: type[C]) -> tuple[F, C]:
    """Raises `ValueError` for what no leader has written."""
    frame = msgspec.json.decode(chunks[0], type=frame_kind)
    contents, part_of = contents_kind(), msgspec.json.Decoder(contents_kind)
    for chunk in chunks[1:]:
        part = part_of.decode(chunk)
        for field in contents.__struct_fields__:
            getattr(contents, field).extend(getattr(part, field))
    found = _counts(contents)
    if found != {field: count for field, count in frame.counts.items() if count}:
        raise ValueError(f"{found} were read, and {frame.counts} were written")
    return frame, contents


def _counts(contents: msgspec.Struct) -> dict[str, int]:
    return {field: count for field in contents.__struct_fields__ if (count := len(getattr(contents, field)))}


def _chunks(field: str, values: Sequence[Any]) -> Iterator[bytes]:
    pieces: list[bytes] = []
    size = 0
    for piece in _pieces(values):
        if pieces and size + len(piece) > _CHUNK_BYTES:
            yield _chunk(field, pieces)
            pieces, size = [], 0
        pieces.append(piece)
        size += len(piece)
    if pieces:
        yield _chunk(field, pieces)


def _pieces(values: Sequence[Any]) -> Iterator[bytes]:
    """Several values each, for speed; large ones by themselves, since all that is in a piece goes into one object."""
    for start in range(0, len(values), _AT_ONCE):
        some = values[start : start + _AT_ONCE]
        piece = msgspec.json.encode(some)[1:-1]
        if len(piece) <= _CHUNK_BYTES:
            yield piece
        else:
            yield from map(msgspec.json.encode, some)


def _chunk(field: str, pieces: list[bytes]) -> bytes:
    return b'{"%s":[%s]}' % (field.encode(), b",".join(pieces))
