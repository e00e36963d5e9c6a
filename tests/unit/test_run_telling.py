"""What `tenure run` says on a terminal: names of leaders come from the bucket, and are not to be acted upon."""

from __future__ import annotations

import json

from tenure.clock import SYSTEM_CLOCK
from tenure.run.telling import Teller, Voice

HOSTILE = "l\x1b[2J\x1b]0;x\x07\ntenure run: all is well\u202e"


def told(voice: Voice) -> str:
    lines: list[str] = []
    Teller(voice, SYSTEM_CLOCK, lines.append)("leader", f"standing by: {HOSTILE} leads", leader=HOSTILE, epoch=3)
    (line,) = lines
    return line


def test_a_line_is_one_line_without_commands_for_the_terminal() -> None:
    line = told(Voice.LINES)
    assert line.isprintable()
    assert line == ("tenure run: standing by: l\\x1b[2J\\x1b]0;x\\x07\\x0atenure run: all is well\\u202e leads")


def test_json_is_one_line_and_says_the_name_as_it_is() -> None:
    line = told(Voice.JSON)
    assert line.isprintable()
    assert json.loads(line)["leader"] == HOSTILE
