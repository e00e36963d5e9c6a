"""What a run says of itself: a line on standard error for each thing that happens, for people or as JSON.

Standard output is the program's. Who leads elsewhere is told as the bucket has it, so every line is made printable.
"""

from __future__ import annotations

import enum
import os
import select
from collections.abc import Callable
from typing import Any

import msgspec

from tenure.clock import Clock
from tenure.observe.printable import json_text, printable

Write = Callable[[str], None]


class Voice(enum.Enum):
    LINES = "lines"
    JSON = "json"
    QUIET = "quiet"
    """Only what is wrong."""


class Teller:
    """`tell("started", "leading, epoch 5: started sleep (pid 7)", epoch=5, pid=7)`"""

    def __init__(self, voice: Voice, clock: Clock, write: Write) -> None:
        self._voice = voice
        self._clock = clock
        self._write = write

    def __call__(self, event: str, sentence: str, *, wrong: bool = False, **facts: Any) -> None:
        if self._voice is Voice.JSON:
            # Seconds since 1970 by this host's wall clock: for people, and never compared.
            said = {"event": event, "at": round(self._clock.read().wall_ns / 1e9, 3), "message": sentence, **facts}
            self._write(json_text(msgspec.to_builtins(said, enc_hook=str), indent=None))
        elif wrong or self._voice is Voice.LINES:
            self._write(f"tenure run: {printable(sentence)}")


def to_standard_error(line: str) -> None:
    """Whole lines, whatever else writes there. Who does not read is no reason to stand still: a line that there is no
    room for is left out, and one that might not fit at once is cut."""
    text = line.encode(errors="replace")
    ready = select.poll()
    try:
        ready.register(2, select.POLLOUT)
        if ready.poll(0):
            os.write(2, text[: select.PIPE_BUF - 1] + b"\n")
    except OSError:
        pass
