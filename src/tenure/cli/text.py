"""What commands print: for people in tables as wide as their terminal, for programs as JSON.

Neither has anything in it that a terminal would act upon (`tenure.observe.printable`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from tenure.observe.printable import json_text, printable

_UNBOUNDED = 100_000
"""Columns, where nobody looks at a terminal: what is read by a program is never cut."""


def marked(text: str) -> str:
    """As `printable`, and no markup for rich either."""
    return escape(printable(text))


def show_json(value: Any, *, indent: int | None = 2) -> None:
    """Print the value as JSON on standard output."""
    click.echo(json_text(value, indent=indent))


def console_for_output() -> Console:
    """Standard output: as wide as the terminal, or as whatever is printed if it is none."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=_UNBOUNDED)


def fitting_table(console: Console, makers: Sequence[Callable[[], Table]]) -> Table:
    """The first of these tables that fits the terminal; the last one, which folds, if none does."""
    wide = console.options.update(width=_UNBOUNDED)
    for make in makers[:-1]:
        table = make()
        if Measurement.get(console, wide, table).maximum <= console.width:
            return table
    return makers[-1]()
