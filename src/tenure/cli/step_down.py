"""`tenure step-down`: have another worker lead."""

from __future__ import annotations

import click

from tenure.cli.handover import AS_JSON, FORCE, TIMEOUT, hand_over
from tenure.cli.place import placed


@click.command("step-down", short_help="Have another worker lead.")
@placed
@FORCE
@TIMEOUT
@AS_JSON
def step_down(url: str, namespace: str, force: bool, timeout: float, as_json: bool) -> int:
    """Ask the leader at URL to finish its work and let another worker lead, and wait until one does.

    The leader sees the request at its next renewal, and refuses it inside its min_epoch_duration unless forced. Exit
    code 0: done; 1: refused, with the reason; 2: it is not clear yet.
    """
    return hand_over("step-down", url, namespace, None, force, timeout, as_json)
