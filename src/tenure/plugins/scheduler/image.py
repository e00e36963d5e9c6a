"""A schedule's state as the chunks of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tenure.plugins.scheduler.records import Contents, Frame

_AT_ONCE = 20
"""A job may take 64 KiB."""
_CHUNK_BYTES = 1024 * 1024
"""About so many in one chunk, and twice as many at most."""
_FIELDS = Contents.__struct_fields__
_contents = msgspec.json.Decoder(Contents)


def encode(frame: Frame, contents: Contents) -> list[bytes]:
    frame.counts = _counts(contents)
    chunks = [msgspec.json.encode(frame)]
    for field in _FIELDS:
        chunks += _chunks(field, getattr(contents, field))
    return chunks


def decode(chunks: Sequence[bytes]) -> tuple[Frame, Contents]:
    """Raises `ValueError` for what no leader has written."""
    frame = msgspec.json.decode(chunks[0], type=Frame)
    contents = Contents()
    for chunk in chunks[1:]:
        part = _contents.decode(chunk)
        for field in _FIELDS:
            getattr(contents, field).extend(getattr(part, field))
    found = _counts(contents)
    if found != {field: count for field, count in frame.counts.items() if count}:
        raise ValueError(f"{found} were read, and {frame.counts} were written")
    return frame, contents


def _counts(contents: Contents) -> dict[str, int]:
    return {field: count for field in _FIELDS if (count := len(getattr(contents, field)))}


def _chunks(field: str, values: Sequence[Any]) -> Iterator[bytes]:
    pieces: list[bytes] = []
    size = 0
    for start in range(0, len(values), _AT_ONCE):
        piece = msgspec.json.encode(values[start : start + _AT_ONCE])[1:-1]
        pieces.append(piece)
        size += len(piece)
        if size >= _CHUNK_BYTES or start + _AT_ONCE >= len(values):
            yield b'{"%s":[%s]}' % (field.encode(), b",".join(pieces))
            pieces, size = [], 0
