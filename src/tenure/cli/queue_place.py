"""Which queue a command is about, and how it is read."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn, TypeVar

import click

from tenure.cli.place import URL_LEFT_OUT, UrlArgument, located
from tenure.cli.settings import Refusal
from tenure.coordinator.layout import check_name
from tenure.errors import ConfigError
from tenure.ledger import LedgerState, ledger_store
from tenure.ledger.catchup import catch_up
from tenure.ledger.layout import MAX_NAME_CHARACTERS
from tenure.observe.printable import printable
from tenure.plugins.ledgered import Onlooker
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.queue.state import QueueMachine
from tenure.store import Access, Store, open_store
from tenure.store.url import parse_url

F = TypeVar("F", bound=Callable[..., Any])

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:/")


class QueueCommand(click.Command):
    """Takes URL, NAME and more, of which URL may be left out where it comes from elsewhere.

    The first word is a URL if it looks like one, or if there are more words than the others take.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            ctx.meta[URL_LEFT_OUT] = self._is_left_out(ctx, args)
        return super().parse_args(ctx, args)

    def _is_left_out(self, ctx: click.Context, args: list[str]) -> bool:
        ctx.meta[URL_LEFT_OUT] = False
        given, more, _ = self.make_parser(ctx).parse_args(list(args))
        arguments = [each for each in self.get_params(ctx) if isinstance(each, click.Argument)]
        if more or not any(isinstance(each, UrlArgument) for each in arguments):
            return False
        url, *others = (given.get(each.name or "") for each in arguments)
        if isinstance(url, str) and _URL.match(url):
            return False
        return not (arguments[-1].nargs == 1 and isinstance(others[-1], str))


def named(command: F) -> F:
    """Gives a command the argument NAME; above it stands what gives URL."""
    return click.argument("name", callback=_checked_name)(command)


def queued(command: F) -> F:
    """Gives a command the arguments URL and NAME."""
    return located(named(command))


def _checked_name(context: click.Context, parameter: click.Parameter, name: str) -> str:
    try:
        return check_name("NAME", name, MAX_NAME_CHARACTERS)
    except ConfigError as error:
        raise Refusal(str(error), context) from None


@contextlib.asynccontextmanager
async def open_queue(url: str, name: str, access: Access) -> AsyncIterator[Store]:
    """The queue's own part of the store. With `Access.READ_ONLY` nothing is made, tried out or written."""
    async with open_store(url, access=access) as store:
        yield ledger_store(store, S3QueuePlugin.slug, name)


async def ensure_there(store: Store, url: str, name: str) -> None:
    """A name that was mistyped is not answered with zeros."""
    async for _ in store.list():
        return
    say_no(
        f"there is no queue {name!r} at {parse_url(url).shown}: nothing was ever put into it; check the name, or begin "
        "with `tenure queue put` or `tenure queue create`"
    )


def say_no(sentence: str) -> NoReturn:
    """The answer is no."""
    click.echo(printable(f"tenure: {sentence}"), err=True)
    raise click.exceptions.Exit(1)


def unread() -> LedgerState:
    return LedgerState(QueueMachine())


async def read_on(store: Store, state: LedgerState) -> QueueMachine:
    """Bring it to the end of the log. The first time all is read, later only what is new."""
    await catch_up(store, state, Onlooker())
    assert isinstance(state.machine, QueueMachine)
    return state.machine
