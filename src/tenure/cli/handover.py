"""What `tenure step-down` and `tenure transfer` share: ask the leader from outside, and say what came of it."""

from __future__ import annotations

import enum
import os

import click
import msgspec

from tenure.cli.durations import between
from tenure.cli.place import open_namespace
from tenure.cli.running import run_until_stopped
from tenure.cli.text import printable, show_json
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.outside import Handover, ask_for_handover
from tenure.coordinator.reading import read_state
from tenure.election.records import State
from tenure.entropy import new_id
from tenure.errors import RequestRefused
from tenure.store import Access

TIMEOUT = click.option(
    "--timeout",
    type=between(0.1, 3600),
    default="30s",
    show_default=True,
    help="How long to wait for it (500ms, 30s, 2m). The request itself stays with the leader.",
)
FORCE = click.option(
    "--force",
    is_flag=True,
    help="Also while the leader is inside its min_epoch_duration, or to a worker that is on no record.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print what happened as one JSON object.")


class Verdict(enum.Enum):
    DONE = "done"
    REFUSED = "refused"
    UNCLEAR = "unclear"


_EXIT = {Verdict.DONE: 0, Verdict.REFUSED: 1, Verdict.UNCLEAR: 2}


class Answer(msgspec.Struct, frozen=True):
    """What came of a request. `handover` is there if it is done, `reason` if it is not."""

    verdict: Verdict
    handover: Handover | None = None
    reason: str | None = None


def hand_over(
    command: str, url: str, namespace: str, to: str | None, force: bool, timeout: float, as_json: bool
) -> int:
    answer = run_until_stopped(_ask(command, url, namespace, to, force, timeout))
    if as_json:
        show_json(answer)
    elif answer.handover is not None:
        click.echo(printable(_told(answer.handover)))
    else:
        click.echo(printable(f"tenure: {answer.verdict.value}: {answer.reason}"), err=True)
    return _EXIT[answer.verdict]


async def _ask(command: str, url: str, namespace: str, to: str | None, force: bool, timeout: float) -> Answer:
    # Opening for writing makes a directory that is missing; to ask nobody nothing should be made.
    async with open_namespace(url, namespace, Access.READ_ONLY) as store:
        before = await read_state(store)
    if before is None:
        return Answer(Verdict.REFUSED, reason=f"nobody leads {namespace!r}: it has no lease; check URL and namespace")
    request_ids: list[str] = []

    def draw_id() -> str:
        request_ids.append(new_id())
        return request_ids[-1]

    async with open_namespace(url, namespace, Access.READ_WRITE) as store:
        try:
            done = await ask_for_handover(
                store,
                namespace,
                by=f"tenure {command} on {os.uname().nodename}",
                to=to,
                force=force,
                timeout=timeout,
                clock=SYSTEM_CLOCK,
                draw_id=draw_id,
            )
        except RequestRefused as refused:
            unclear = _why_unclear(before, await read_state(store), request_ids)
            if unclear is not None:
                return Answer(Verdict.UNCLEAR, reason=unclear)
            return Answer(Verdict.REFUSED, reason=str(refused))
    return Answer(Verdict.DONE, done)


def _why_unclear(before: object, now: object, request_ids: list[str]) -> str | None:
    """It was not refused, only not done in time: what is it waiting for?"""
    if not isinstance(now, State):
        return None
    if now.handoff is not None and now.handoff.request_id in request_ids:
        return (
            f"{now.leader_id!r}, epoch {now.epoch}, has not answered in time; it may be frozen or dead. The request "
            "stays in the lease, and is followed if it comes back: see `tenure status`"
        )
    if isinstance(before, State) and not before.released and now.released and now.epoch == before.epoch:
        return f"{before.leader_id!r} has stepped down, and nobody has taken over in time: see `tenure status`"
    return None


def _told(done: Handover) -> str:
    if done.leader == done.previous_leader:
        return f"{done.leader} stepped down, nobody else stood, and it leads again: epoch {done.epoch}"
    return f"{done.leader} leads, epoch {done.epoch}; {done.previous_leader}, epoch {done.previous_epoch}, stepped down"
