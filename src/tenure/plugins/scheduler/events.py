"""What a schedule tells those who listen: `plugin.on("plg:scheduler:fired", handler)`.

Told by the leader, once what they say is written. `halted`, `leading` and `not-led` are those of every ledger's plugin.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec


class RunFired(msgspec.Struct, frozen=True):
    """A run begins: the first attempt of an occurrence, or another one."""

    name: ClassVar[str] = "fired"
    job: str
    run: str
    scheduled_ms: int
    token: int
    epoch: int
    attempt: int


class RunFinished(msgspec.Struct, frozen=True):
    name: ClassVar[str] = "finished"
    job: str
    run: str
    scheduled_ms: int
    token: int
    attempts: int


class RunFailed(msgspec.Struct, frozen=True):
    name: ClassVar[str] = "failed"
    job: str
    run: str
    scheduled_ms: int
    token: int
    error: str
    retry_ms: int
    """When it is tried again; 0: not at all."""


class OccurrenceSkipped(msgspec.Struct, frozen=True):
    """Another run of the job was open."""

    name: ClassVar[str] = "skipped"
    job: str
    run: str
    scheduled_ms: int


class OccurrencesMissed(msgspec.Struct, frozen=True):
    """They were too old, or too late, or a newer one fired in their place (`coalesced`)."""

    name: ClassVar[str] = "missed"
    job: str
    outcome: str
    from_ms: int
    to_ms: int
    count: int


class RunInterrupted(msgspec.Struct, frozen=True):
    """A run was cut short when its leader's term ended."""

    name: ClassVar[str] = "interrupted"
    job: str
    run: str
    scheduled_ms: int
    again: bool
    """It is begun once more."""
    interruptions: int


class JobUnknown(msgspec.Struct, frozen=True):
    """This leader cannot run a job: nothing of it is decided until one leads that can."""

    name: ClassVar[str] = "job-unknown"
    job: str
    reason: str


class CommandRefused(msgspec.Struct, frozen=True):
    """This leader does not run the command of a job, which is in the bucket and not in its code: each run fails."""

    name: ClassVar[str] = "command-refused"
    job: str
    reason: str


class RunLeftBehind(msgspec.Struct, frozen=True):
    """A run was told to end and has not: it goes on, nobody waits for it, and what comes of it does not count."""

    name: ClassVar[str] = "run-left-behind"
    job: str
    run: str
    scheduled_ms: int
    token: int
