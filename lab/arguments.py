"""Numbers on the command line of what runs for long: what cannot be is refused at once, in one sentence."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 9 or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r}: give a whole number from {least} to {most:,}")
        return int(text)

    return read


def minutes(text: str) -> float:
    try:
        given = float(text)
    except ValueError:
        given = math.nan
    if not 0 < given <= _A_WEEK:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: give minutes, more than 0 and at most {_A_WEEK:,}")
    return given


_A_WEEK = 7 * 24 * 60
