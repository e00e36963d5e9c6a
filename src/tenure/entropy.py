"""The one place that draws randomness. Everything else is handed it, so that a simulation can replay."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import TypeAlias

__all__ = ["NewId", "Random", "new_id"]

NewId: TypeAlias = Callable[[], str]
"""Gives an id that no other call, in any process, will give again."""


def new_id() -> str:
    """128 random bits as 32 hex digits, straight from the operating system: a forked child never repeats one."""
    return os.urandom(16).hex()
