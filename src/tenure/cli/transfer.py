"""`tenure transfer`: have a certain worker lead."""

from __future__ import annotations

import click

from tenure.cli.handover import AS_JSON, FORCE, TIMEOUT, hand_over
from tenure.cli.place import placed
from tenure.coordinator.layout import check_name

_MAX_WORKER_ID = 128  # as in CoordinatorConfig.worker_id


@click.command(short_help="Have a certain worker lead.")
@placed
@click.option("--to", "to", required=True, metavar="WORKER", help="The worker that shall lead; see `tenure status`.")
@FORCE
@TIMEOUT
@AS_JSON
def transfer(url: str, namespace: str, to: str, force: bool, timeout: float, as_json: bool) -> int:
    """Ask the leader at URL to hand over to WORKER, and wait until it leads.

    The leader sees the request at its next renewal, and refuses it inside its min_epoch_duration unless forced. Exit
    code 0: done; 1: refused, with the reason; 2: it is not clear yet.
    """
    check_name("--to", to, _MAX_WORKER_ID)
    return hand_over("transfer", url, namespace, to, force, timeout, as_json)
