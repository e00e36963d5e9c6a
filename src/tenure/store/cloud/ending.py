"""The end of a process: obstore's threads hand over their last answer before the interpreter is taken down.

A thread of obstore gives an answer to the event loop by calling `call_soon_threadsafe`, which wakes the loop before
it returns. So a short program may be at its end while that thread still waits to go on. Up to Python 3.13 the
interpreter then ends the thread, Rust does not bear that, and the process is aborted: its exit code says that it
failed, though all its work was done.
"""

from __future__ import annotations

import atexit
import sys
import time
from types import FrameType

from tenure.clock import SYSTEM_CLOCK

_STEP = 0.001
_WITHIN = 2.0
"""Seconds, which no thread needs even on a busy machine: the end of a process must not hang."""
_HANDS_OVER = "call_soon_threadsafe"


def _outermost(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def handing_over() -> int:
    """How many threads, started by no Python code, are giving an answer to a loop at this moment."""
    return sum(_outermost(frame).f_code.co_name == _HANDS_OVER for frame in sys._current_frames().values())


def wait_for_answers() -> None:
    """Return once no thread hands anything over, seen twice: each sleep lets those go on that wait for their turn."""
    quiet = 0
    began = SYSTEM_CLOCK.read()
    while SYSTEM_CLOCK.read().follower_elapsed(began) < _WITHIN:
        time.sleep(_STEP)  # noqa: TID251 - the loops and clocks of this process have ended
        quiet = 0 if handing_over() else quiet + 1
        if quiet == 2:
            return


def wait_at_exit() -> None:
    """Have the end of this process wait for answers. May be called again."""
    atexit.unregister(wait_for_answers)
    atexit.register(wait_for_answers)
