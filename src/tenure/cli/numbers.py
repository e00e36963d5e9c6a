"""Numbers as options take them: refused with the range that they may be in."""

from __future__ import annotations

import math
from typing import Any

import click

_MAX_SHOWN = 60


class Whole(click.IntRange):
    """The type of an option that takes a whole number, and says which."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            given = str(value)[:_MAX_SHOWN]
            self.fail(f"give a whole number from {self.min} to {self.max}, and not {given!r}", param, ctx)


class Decimal(click.FloatRange):
    """The type of an option that takes any number, and says which."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if math.isnan(number):  # which click lets through: it is neither below a range nor above it
            over = "over" if self.min_open else "from"
            given = str(value)[:_MAX_SHOWN]
            self.fail(f"give a number {over} {self.min} and up to {self.max}, and not {given!r}", param, ctx)
        return number
