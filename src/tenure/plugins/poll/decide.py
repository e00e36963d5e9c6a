"""What the leader does next with one open job. Pure: what it knows, and for how long, is handed in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

import msgspec

from tenure.plugins.poll.book import Agent
from tenure.plugins.poll.job import Failure, Job, JobState
from tenure.plugins.poll.schedule import Anywhere, Assignment, InPartition


class Limits(msgspec.Struct, frozen=True):
    """Seconds, on the leader's own elapsed clock."""

    dispatch_within: float = 15.0
    """A job for which no worker is available for this long has failed: `NO_WORKER`."""
    pickup_within: float = 15.0
    """A worker that has not begun after this long does not get to: another is asked, or it is a `TIMEOUT`."""
    allowance: float = 10.0
    """On top of the check's own timeout, for its worker to say what came of it; then it is a `TIMEOUT`."""
    attempts: int = 3
    """Workers that are asked for one job before it has failed."""


class Wait(msgspec.Struct, frozen=True):
    pass


class Ask(msgspec.Struct, frozen=True):
    agent: Agent


class GiveUp(msgspec.Struct, frozen=True):
    failure: Failure
    detail: str


Step: TypeAlias = Wait | Ask | GiveUp
WAIT = Wait()


def next_step(
    job: Job, waited: float, agent: Agent | None, *, asked_is_alive: bool, wanted: str, limits: Limits
) -> Step:
    """`waited`: for how long it has been seen in this state. `agent`: who could take it now, if anybody."""
    if job.state is JobState.PENDING:
        if agent is not None:
            return Ask(agent)
        if waited >= limits.dispatch_within:
            return GiveUp(Failure.NO_WORKER, f"{wanted} was not available for {waited:.0f} s")
    elif job.state is JobState.DISPATCHING:
        late = waited >= limits.pickup_within
        if (late or not asked_is_alive) and agent is not None and job.attempt < limits.attempts:
            return Ask(agent)
        if late:
            return GiveUp(Failure.TIMEOUT, f"worker {job.worker_id!r} did not begin within {waited:.0f} s")
    elif job.state is JobState.RUNNING and waited >= job.timeout + limits.allowance:
        return GiveUp(
            Failure.TIMEOUT,
            f"worker {job.worker_id!r} began, and was not heard of for {waited:.0f} s; the check may take "
            f"{job.timeout:g} s",
        )
    return WAIT


def choose(
    agents: Collection[Agent],
    assign: Assignment,
    *,
    alive: Collection[str] | None,
    load: Mapping[str, int],
    last_asked: Mapping[str, int],
    not_uid: str | None = None,
) -> Agent | None:
    """The least loaded of those that fit, and of equals the one that was not asked for the longest.

    `alive`: worker ids; `None` if nobody knows. `load`: open jobs by uid. `not_uid` had it, and did not take it: it is
    asked again only if it is the only one.
    """
    fitting = [
        agent
        for agent in agents
        if (alive is None or agent.worker_id in alive)
        and load.get(agent.uid, 0) < agent.concurrency
        and _fits(agent, assign)
    ]
    others = [agent for agent in fitting if agent.uid != not_uid]
    return min(
        others or fitting,
        key=lambda agent: (load.get(agent.uid, 0), last_asked.get(agent.uid, 0), agent.worker_id),
        default=None,
    )


def first_due(every: float, since_last: float | None) -> float:
    """Seconds until a schedule is due for the first time under a new leader.

    `since_last` may come from another host's wall clock, and be anything: it moves the first run by an interval at
    most. `None`: it has never run.
    """
    if since_last is None:
        return 0.0
    return min(max(every - since_last, 0.0), every)


def _fits(agent: Agent, assign: Assignment) -> bool:
    if isinstance(assign, Anywhere):
        return True
    if isinstance(assign, InPartition):
        return agent.partition == assign.partition
    return agent.worker_id == assign.worker_id
