"""`tenure audit`: is the history of leaders whole?"""

from __future__ import annotations

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenure.cli.place import open_namespace, placed
from tenure.cli.running import run_until_stopped
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.audit import Audit, TermSeen, audit
from tenure.store import Access

_SHOWN = 20


@click.command(name="audit")
@placed
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def audit_command(url: str, namespace: str, as_json: bool) -> int:
    """Check the record of every leadership that was ever granted at URL: one leader per epoch, no number missing, and a
    lease that fits it.

    Only reads. Exit code 0: all is right; 1: something is not, and is named; 2: it could not be told.
    """
    result = run_until_stopped(_audit(url, namespace))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result), indent=2))
    else:
        show(result, Console(highlight=False))
    if not result.founded:
        click.echo(f"tenure: there is no namespace {namespace!r} at this URL: check both names", err=True)
        return 2
    return 0 if result.ok else 1


async def _audit(url: str, namespace: str) -> Audit:
    async with open_namespace(url, namespace, Access.READ_ONLY) as store:
        return await audit(store, namespace, SYSTEM_CLOCK)


def show(result: Audit, console: Console) -> None:
    """Print the result for a person."""
    if not result.founded:
        return
    if result.timeline:
        table = Table("epoch", "leader", "elected at (its own clock)", "")
        for term in result.timeline[-_SHOWN:]:
            table.add_row(str(term.epoch), escape(term.leader or "?"), escape(term.elected_at), _note(term))
        console.print(table)
        if result.terms > len(result.timeline[-_SHOWN:]):
            console.print(f"[dim]the newest {len(result.timeline[-_SHOWN:])} of {result.terms} terms[/]")
    for finding in result.findings:
        console.print(f"[red]{finding.kind.value}[/] {escape(finding.key)}: {escape(finding.detail)}", soft_wrap=True)
    if result.findings_left_out:
        console.print(f"[red]and {result.findings_left_out} more findings[/]")
    if result.ok:
        console.print(f"[bold green]right[/]: {_count(result.terms)} on record, one leader each, no number missing")
    else:
        console.print(
            "[bold red]not right[/]: somebody other than tenure has written to the objects above, or removed some. "
            "Epochs stay safe: a lease that does not fit is set aside, and rebuilt above the history. Find out who "
            "writes there; if you need the history, restore those objects from a backup, or from their older versions.",
            soft_wrap=True,
        )


def _note(term: TermSeen) -> str:
    if not term.confirmed:
        return "never led: its winner did not get as far"
    return "lease rebuilt after damage" if term.after_damage else ""


def _count(terms: int) -> str:
    return "1 term" if terms == 1 else f"{terms} terms"
