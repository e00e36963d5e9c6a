"""Which counters a command is about, how they are read, and which field is meant."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from difflib import get_close_matches
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click

from tenure.cli.place import located
from tenure.cli.queue_place import say_no
from tenure.cli.schedule_place import some_of
from tenure.cli.settings import Refusal
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.layout import check_name
from tenure.database.ids import check_id
from tenure.database.resource import Resource
from tenure.errors import ConfigError
from tenure.ledger import LedgerConfig, LedgerState, ledger_of_onlooker, ledger_store
from tenure.ledger.agreed import read_agreed
from tenure.ledger.layout import INBOX_NAMES, MAX_NAME_CHARACTERS
from tenure.observe.ledgers import names_of, why_nobody
from tenure.observe.printable import printable
from tenure.plugins.counters import Counter, EventualConsistencyPlugin
from tenure.plugins.counters.agreed import SETTINGS, Agreed
from tenure.plugins.counters.fields import check_path
from tenure.plugins.counters.numbers import Number, counter_of
from tenure.plugins.counters.settings import Retention, check_zone
from tenure.plugins.counters.state import CountersMachine
from tenure.plugins.ledgered import LedgerView
from tenure.store import Access, Store, open_store, ours
from tenure.store.url import parse_url

F = TypeVar("F", bound=Callable[..., Any])


def counted(command: F) -> F:
    """Gives a command the arguments URL and RESOURCE, and the option --name."""
    name = click.option(
        "--name",
        metavar="NAME",
        help="Of the plugin, where it was given another than that of its resource.",
        callback=_checked(lambda given: given if given is None else check_name("--name", given, MAX_NAME_CHARACTERS)),
    )
    return located(
        argument("resource", lambda given: check_name("RESOURCE", given, MAX_NAME_CHARACTERS))(name(command))
    )


def argument(name: str, check: Callable[[str], Any], **options: Any) -> Callable[[F], F]:
    """An argument that is refused before anything is opened."""
    return click.argument(name, callback=_checked(check), **options)


def _checked(check: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def callback(context: click.Context, parameter: click.Parameter, given: Any) -> Any:
        try:
            return given if given is None else check(given)
        except ConfigError as error:
            raise Refusal(str(error), context) from None

    return callback


RECORD = argument("id", check_id)
FIELD = argument("field", check_path)


def _machine() -> CountersMachine:
    """How much is kept is the leader's to say: here nothing is left out."""
    return CountersMachine(Retention(hours=24 * 62, days=3660, months=1200))


class Counters:
    """Those of one resource, as anybody sees them who can read the bucket."""

    def __init__(
        self, url: str, resource: str, name: str, store: Store, agreed: Agreed | None, ledger: LedgerConfig
    ) -> None:
        self.url = url
        self.resource = resource
        self.name = name
        self.store = ledger_store(store, EventualConsistencyPlugin.slug, name)
        """The ledger's own."""
        self.agreed = agreed
        self.records: Resource[Any] = Resource(store, resource)
        self.view = LedgerView(self.store, _machine, config=ledger, clock=SYSTEM_CLOCK)

    @property
    def zone(self) -> ZoneInfo:
        return check_zone(self.agreed.timezone if self.agreed is not None else "UTC")

    def fields(self, field: str | None = None) -> dict[str, Counter]:
        """Those that are counted, or one of them. Says no if it is not."""
        words = self.agreed.fields if self.agreed is not None else {}
        if field is not None and field not in words:
            say_no(f"field {field[:100]!r} of {self.resource!r} is not counted: {near(field, words)}")
        chosen = words if field is None else {field: words[field]}
        found = {name: counter_of(word) for name, word in chosen.items()}
        for name, counter in found.items():
            if counter is None and field is not None:
                say_no(f"field {name!r} is counted as {words[name]!r:.60}, which this tenure does not know: update it")
        return {name: counter for name, counter in found.items() if counter is not None}

    async def unread(self) -> str:
        """Why nothing may be there yet: what lies in the inbox, in a sentence; empty if nothing does."""
        count = 0
        async for _ in ours(self.store, INBOX_NAMES):
            count += 1
        if not count:
            return ""
        why = await why_nobody(self.url, await self.view.refresh(), "these counters", "their")
        what = "object lies" if count == 1 else "objects lie"
        return f"{count:,} {what} in the inbox, with amounts that no leader has read yet (if that stays so: {why})"

    def now_ms(self, state: LedgerState) -> int:
        """By this host's clock, and not before what the store's has shown."""
        return max(state.time_ms, SYSTEM_CLOCK.read().wall_ns // 1_000_000)


@contextlib.asynccontextmanager
async def open_counters(url: str, resource: str, name: str | None) -> AsyncIterator[Counters]:
    """To read alone: nothing is made, tried out or written. Says no if nothing is counted there."""
    async with open_store(url, access=Access.READ_ONLY) as store:
        found = await _read(url, resource, name or resource, store)
        if found.agreed is None:
            others = await names_of(store, EventualConsistencyPlugin.slug)
            there = f"there are counters of {some_of(others)}" if others else "check the URL"
            say_no(
                f"nothing of {found.name!r} is counted at {parse_url(url).shown}: {there}; or begin with `tenure "
                "counter add --new`, or a program that has them"
            )
        yield found


async def learned(url: str, resource: str, name: str | None) -> Counters:
    """What is agreed upon, if anything is. The store is closed again."""
    async with open_store(url, access=Access.READ_ONLY) as store:
        return await _read(url, resource, name or resource, store)


async def _read(url: str, resource: str, name: str, store: Store) -> Counters:
    own = ledger_store(store, EventualConsistencyPlugin.slug, name)
    found = await read_agreed(own, SETTINGS, Agreed, f"the counters of {name!r}")
    agreed, ledger = found[0] if found is not None else None, await ledger_of_onlooker(own)
    return Counters(url, resource, name, store, agreed, ledger)


def tell(note: str) -> None:
    """Beside the answer, for people."""
    if note:
        click.echo(printable(f"tenure: {note}"), err=True)


def near(field: str, known: dict[str, str]) -> str:
    close = get_close_matches(field, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"those that are: {some_of(sorted(known))}" if known else "none of it is"


def plain(counter: Counter, value: Number | None) -> int | float | str | None:
    """As JSON has it: decimals, and whole numbers that take more than 64 bits, are text."""
    return None if value is None else counter.stored(value)


def shown(value: object) -> str:
    """For people."""
    return "none" if value is None else format(value, "f") if hasattr(value, "as_tuple") else str(value)
