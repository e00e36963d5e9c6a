"""A queue's state as the chunks of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tenure.plugins.queue.records import Dead, Mark, Note, Run, Ticket, Totals, Worker

_AT_ONCE = 100
_CHUNK_BYTES = 1024 * 1024
"""About so many in one chunk; a few hundred long histories may be some more."""


class Frame(msgspec.Struct):
    """The first chunk."""

    paused: bool
    last_seq: int
    orders: int
    totals: Totals
    marks: list[Mark]
    counts: dict[str, int] = {}
    """What is in the others, by field."""


class Contents(msgspec.Struct, omit_defaults=True):
    """All that is in the other chunks, each of which holds some of one field."""

    segments: list[tuple[str, int]] = []
    workers: list[tuple[str, Worker]] = []
    tickets: list[Ticket] = []
    history: list[tuple[str, int, list[Note]]] = []
    dead: list[Dead] = []
    dedup: list[tuple[str, int]] = []
    waiting: list[Run] = []
    delayed: list[Run] = []


_contents = msgspec.json.Decoder(Contents)
_FIELDS = Contents.__struct_fields__


def encode(frame: Frame, contents: Contents) -> list[bytes]:
    frame.counts = _counts(contents)
    chunks = [msgspec.json.encode(frame)]
    for field in _FIELDS:
        chunks += _chunks(field, getattr(contents, field))
    return chunks


def decode(chunks: Sequence[bytes]) -> tuple[Frame, Contents]:
    frame = msgspec.json.decode(chunks[0], type=Frame)
    contents = Contents()
    names: dict[str, str] = {}
    for chunk in chunks[1:]:
        part = _contents.decode(chunk)
        for run in (*part.waiting, *part.delayed):
            # Many runs are of one segment, and many messages of one key: its name is kept once.
            run.segment = names.setdefault(run.segment, run.segment)
            run.key = names.setdefault(run.key, run.key)
        for field in _FIELDS:
            getattr(contents, field).extend(getattr(part, field))
    found = _counts(contents)
    if found != {field: count for field, count in frame.counts.items() if count}:
        raise ValueError(f"{found} were read, and {frame.counts} were written")
    return frame, contents


def _counts(contents: Contents) -> dict[str, int]:
    return {field: count for field in _FIELDS if (count := len(getattr(contents, field)))}


def _chunks(field: str, values: Sequence[Any]) -> Iterator[bytes]:
    """Encoded by the hundred: how long a history is, is not known before."""
    pieces: list[bytes] = []
    size = 0
    for start in range(0, len(values), _AT_ONCE):
        piece = msgspec.json.encode(values[start : start + _AT_ONCE])[1:-1]
        pieces.append(piece)
        size += len(piece)
        if size >= _CHUNK_BYTES or start + _AT_ONCE >= len(values):
            yield b'{"%s":[%s]}' % (field.encode(), b",".join(pieces))
            pieces, size = [], 0
