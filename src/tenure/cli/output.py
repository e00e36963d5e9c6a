"""Standard output that cannot be written to: a full disk behind it must not read like a full store."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

NAME = "standard output"
DONE = "what was asked for is done: do not repeat it"
DURABLE = "what was asked for is durable: do not repeat it"
"""Others have not done it yet, and will."""
_done: list[str] = []


class _Named(io.FileIO):
    """What goes wrong with it names it, as an error of any other file does."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(stream.fileno(), "wb", closefd=False)
        # It closes the descriptor once nobody knows it any more, and the next file would have that number.
        self._stream = stream

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = NAME
            raise


def name_it() -> None:
    """Before anything is printed."""
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper):
        return
    raw = _Named(stream)
    is_buffered = isinstance(stream.buffer, io.BufferedWriter)  # it is not with PYTHONUNBUFFERED
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw) if is_buffered else raw,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def begin() -> None:
    """A command begins: nothing is done yet."""
    _done.clear()


def carried_out(what: str = DONE) -> None:
    """From here on only the telling of it can fail."""
    _done[:] = [what]


def complaint(error: OSError) -> str:
    """What to say of an error that names standard output."""
    why = os.strerror(error.errno) if error.errno is not None else str(error)
    return f"{NAME} cannot be written to ({why})" + "".join(f"; {what}" for what in _done)
