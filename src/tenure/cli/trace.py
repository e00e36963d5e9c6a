"""Stack traces, for who has asked for them with `--debug`."""

from __future__ import annotations

import traceback

import click

from tenure.observe.printable import printable_lines
from tenure.store.url import redact

_settings = {"wanted": False}


def want(wanted: bool) -> None:
    _settings["wanted"] = wanted


def is_wanted() -> bool:
    return _settings["wanted"]


def show() -> None:
    """Of what is being handled, if it is wanted. What an exception says may come from the bucket, and from a store's
    answer with secrets in it."""
    if is_wanted():
        click.echo(printable_lines(redact(traceback.format_exc())), err=True, nl=False)
