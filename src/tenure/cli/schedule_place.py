"""Which schedule a command is about, how it is read, and which of its jobs is meant."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeVar

import click

from tenure.cli.place import UrlArgument, checked_url, located
from tenure.cli.queue_place import say_no
from tenure.cli.settings import Refusal
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.layout import check_name
from tenure.errors import ConfigError
from tenure.ledger import LedgerState, ledger_store
from tenure.ledger.catchup import catch_up
from tenure.ledger.layout import MAX_NAME_CHARACTERS
from tenure.observe.ledgers import names_of
from tenure.plugins.ledgered import Onlooker
from tenure.plugins.scheduler import SchedulerPlugin
from tenure.plugins.scheduler.looking import machine_of
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.store import Access, Store, open_store
from tenure.store.url import parse_url

F = TypeVar("F", bound=Callable[..., Any])

_NAMES_SHOWN = 5


def _checked_name(context: click.Context, parameter: click.Parameter, name: str) -> str:
    try:
        return check_name("--name", name, MAX_NAME_CHARACTERS)
    except ConfigError as error:
        raise Refusal(str(error), context) from None


NAME = click.option(
    "--name",
    default=SchedulerPlugin.slug,
    show_default=True,
    callback=_checked_name,
    help="Which schedule, where there are several: the name that its plugin was given.",
)


def scheduled(command: F) -> F:
    """Gives a command the argument URL and the option --name."""
    return located(NAME(command))


def perhaps_scheduled(command: F) -> F:
    """The same, for a command that may do without a bucket: URL is `None` where nobody gave one."""

    def checked(context: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
        return checked_url(context, parameter, url) if url is not None else None

    argument = click.argument("url", cls=UrlArgument, envvar="TENURE_URL", required=False, callback=checked)
    return argument(NAME(command))


@contextlib.asynccontextmanager
async def open_schedule(url: str, name: str, access: Access = Access.READ_ONLY) -> AsyncIterator[Store]:
    """The schedule's own part of the store. Says no if there is no such schedule."""
    async with open_store(url, access=access) as store:
        own = ledger_store(store, SchedulerPlugin.slug, name)
        await _ensure_there(store, own, url, name)
        yield own


def unread() -> LedgerState:
    return LedgerState(ScheduleMachine())


async def read_on(store: Store, state: LedgerState) -> ScheduleMachine:
    """Bring it to the end of the log. The first time all is read, later only what is new."""
    await catch_up(store, state, Onlooker())
    return machine_of(state)


def now_ms(state: LedgerState) -> int:
    """By this host's clock, and not before what the store's has shown: for people, and nothing is decided by it."""
    return max(state.time_ms, wall_ms())


def wall_ms() -> int:
    return SYSTEM_CLOCK.read().wall_ns // 1_000_000


def ensure_known(job: str, known: Iterable[str], name: str) -> None:
    """A job that was mistyped is not answered with nothing."""
    ids = list(known)
    if job in ids:
        return
    close = get_close_matches(job, ids, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`tenure schedule list` shows those that there are"
    say_no(f"the schedule {name!r} has no job {job[:100]!r}: {hint}")


async def _ensure_there(store: Store, own: Store, url: str, name: str) -> None:
    """A name that was mistyped is not answered with an empty list."""
    async for _ in own.list():
        return
    others = await names_of(store, SchedulerPlugin.slug)
    if others:
        hint = f"there is {some_of(others)}: choose by --name"
    else:
        hint = "no process has ever led one there; check the URL"
    say_no(f"there is no schedule {name!r} at {parse_url(url).shown}: {hint}")


def some_of(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_NAMES_SHOWN])) + (", …" if len(names) > _NAMES_SHOWN else "")
