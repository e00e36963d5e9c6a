"""`tenure plan`: what does it cost, and how soon is a leader replaced?"""

from __future__ import annotations

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenure.cli.durations import between
from tenure.cli.numbers import Decimal, Whole
from tenure.cli.text import console_for_output, show_json
from tenure.cli.timing import config_from, timed
from tenure.errors import ConfigError
from tenure.plan import PROVIDERS, Circumstances, Knob, Plan, make_plan
from tenure.plan.cost import MAX_NAMESPACES, MAX_VERSION_DAYS, MAX_WORKERS
from tenure.store.url import parse_url

_NAMES = {"s3": "Amazon S3", "gs": "Google", "az": "Azure", "file": "directory"}
_KNOBS_SHOWN = 8
_ROOM_FOR_ALL = 60


@click.command(short_help="Say what coordination costs, and how soon it fails over.")
@click.argument("url", envvar="TENURE_URL", required=False)
@click.option("--workers", type=Whole(1, MAX_WORKERS), default=3, show_default=True, help="Processes in the fleet.")
@click.option(
    "--namespaces",
    type=Whole(1, MAX_NAMESPACES),
    default=1,
    show_default=True,
    help="Elections on that store, each with all the workers.",
)
@timed
@click.option("--membership/--no-membership", default=True, show_default=True, help="Keep a record of every worker.")
@click.option(
    "--provider",
    type=click.Choice([*PROVIDERS, "all"]),
    help="Whose prices.  [default: that of URL, or all]",
)
@click.option("--kms", is_flag=True, help="Objects are encrypted by SSE-KMS, without S3 bucket keys.")
@click.option(
    "--versioned",
    type=Decimal(0, MAX_VERSION_DAYS, min_open=True),
    metavar="DAYS",
    help="The bucket keeps overwritten versions, for so many days.",
)
@click.option(
    "--latency",
    type=between(0, 60),
    default="50ms",
    show_default=True,
    metavar="DURATION",
    help="What a request usually takes; `tenure doctor` measures it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as one JSON object.")
def plan(
    url: str | None,
    workers: int,
    namespaces: int,
    preset: str | None,
    lease: float | None,
    settings: tuple[str, ...],
    membership: bool,
    provider: str | None,
    kms: bool,
    versioned: float | None,
    latency: float,
    as_json: bool,
) -> int:
    """Say what coordination costs with these timings, how soon a crashed leader is replaced, and what would change it.

    Nothing is opened or asked: of URL, only the scheme is read. Requests are those of a fleet in which nothing
    happens; prices are public list prices. Exit code 0, or 2 if it was asked wrongly.
    """
    config = config_from(preset, lease, settings, membership=membership)
    if latency >= config.request_timeout_seconds:
        raise ConfigError(
            f"--latency is {latency:g} s: it must be under request_timeout, here {config.request_timeout_seconds:g} s, "
            "after which a request is given up; a longer --lease has a longer one"
        )
    around = Circumstances(workers=workers, namespaces=namespaces, latency=latency, kms=kms, versioned_days=versioned)
    made = make_plan(config, around, _providers(provider, url))
    if as_json:
        show_json(made)
    else:
        show(made, console_for_output())
    return 0


def _providers(provider: str | None, url: str | None) -> tuple[str, ...]:
    if provider is None and url is not None:
        provider = parse_url(url).scheme
        if provider == "memory":
            provider = "file"  # neither costs a request
    elif url is not None:
        parse_url(url)
    return PROVIDERS if provider in (None, "all") else (provider,)


def show(made: Plan, console: Console) -> None:
    """Print a plan for a person."""
    config = made.config
    console.print(
        f"[bold]{made.workers:,} worker{'s' if made.workers > 1 else ''}"
        f"{f', {made.namespaces:,} namespaces' if made.namespaces > 1 else ''}[/]: "
        f"lease {config['lease_timeout']:g} s, heartbeat {config['heartbeat_interval']:g} + up to "
        f"{config['heartbeat_jitter']:g} s, {'membership' if config['membership'] else 'election only'}, "
        f"requests of {made.latency_seconds * 1000:g} ms",
        soft_wrap=True,
    )
    _show_failover(made, console)
    _show_cost(made, console)
    _show_knobs(made, console)
    for note in made.notes:
        console.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)
    console.print(f"[bold]{escape(made.advice)}[/]", soft_wrap=True)


def _show_failover(made: Plan, console: Console) -> None:
    found = made.failover_seconds
    table = Table("leader replaced after", "seconds", "when", box=box.SIMPLE_HEAD)
    table.columns[1].justify = "right"
    for name, seconds, when in (
        ("a crash, best", found.best, "it came just before a renewal"),
        ("a crash, expected", found.expected, "the mean"),
        ("a crash, at most", found.worst_without_outage, "the store answers as usual"),
        ("a crash, worst", found.worst, "every request times out, and a circuit breaker had just opened"),
        ("a stop, expected", made.graceful_failover_seconds, "its work had ended"),
        ("a store that fails for", made.outage_borne_seconds, "or longer, when a renewal was due; less is borne"),
    ):
        table.add_row(name, f"{seconds:,.1f}", f"[dim]{when}[/]")
    console.print(table)


def _show_cost(made: Plan, console: Console) -> None:
    verbs = made.requests_per_hour_by_verb
    console.print(
        f"[bold]{made.requests_per_hour:,.0f} requests an hour[/]: {verbs['get']:,.0f} reads, {verbs['put']:,.0f} "
        f"writes, {verbs['list']:,.0f} listings",
        soft_wrap=True,
    )
    has_kms = any(found.kms for found in made.charges.values())
    has_versions = any(found.versions for found in made.charges.values())
    extra = [name for name, is_there in (("KMS", has_kms), ("old versions", has_versions)) if is_there]
    table = Table("USD a month", *(["requests", *extra] if extra else []), "total", box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for provider, found in made.charges.items():
        parts = [found.requests, *([found.kms] if has_kms else []), *([found.versions] if has_versions else [])]
        cells = [f"{part:,.2f}" for part in (parts if extra else [])]
        table.add_row(_NAMES.get(provider, provider), *cells, f"[bold]{found.total:,.2f}[/]")
    console.print(table)


def _show_knobs(made: Plan, console: Console) -> None:
    usd = made.usd_per_month
    dearest = max(usd, key=lambda provider: usd[provider])
    of_whom = f" (USD a month: {_NAMES.get(dearest, dearest)})" if usd[dearest] else ""
    console.print(f"[bold]What changes it most[/]{of_whom}", soft_wrap=True)
    cost = "USD" if usd[dearest] else "requests"
    table = Table("setting", "from", "to", cost, "mean s", "worst s", box=box.SIMPLE_HEAD, pad_edge=False)
    narrow = console.width < _ROOM_FOR_ALL
    table.padding = (0, 0) if narrow else (0, 1)
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.justify = "right"
        column.overflow = "fold"
        column.no_wrap = not narrow
    for knob in made.knobs[:_KNOBS_SHOWN]:
        effect = knob.effect
        if not usd[dearest]:
            change = f"{effect.requests_per_hour:+,.0f}"
        elif dearest in effect.usd_per_month:
            change = f"{effect.usd_per_month[dearest]:+,.2f}"
        else:
            change = "-"
        table.add_row(
            knob.setting,
            *_values(knob),
            change,
            f"{effect.failover_expected_seconds:+,.1f}",
            f"{effect.failover_worst_seconds:+,.1f}",
        )
    console.print(table)


def _values(knob: Knob) -> tuple[str, str]:
    before, after = (
        ("on" if value else "off") if isinstance(value, bool) else f"{value:g} s" for value in (knob.before, knob.after)
    )
    return before, after
