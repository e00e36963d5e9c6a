"""What a run is asked to do: the program, and what follows when it ends, is not well, or may not go on."""

from __future__ import annotations

import enum
from pathlib import Path

import msgspec

from tenure.plugins.supervisor.child import Restart
from tenure.plugins.supervisor.command import Background
from tenure.plugins.supervisor.restarts import RestartPolicy

EXIT_LOST = 75
"""EX_TEMPFAIL: leadership was lost, the program was ended, and `OnLost.EXIT` was asked for."""
EXIT_FAILED = 125
"""tenure itself failed: as in `docker run` and `timeout`."""
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
SECOND_SIGNAL_AFTER = 1.0
"""Seconds. One request to end may be heard twice: GNU timeout sends its signal to the process and to its group, and
processes of a pool pass on the Ctrl-C that they hear."""


class When(enum.Enum):
    """Is a program that has ended started again, under the same lease?"""

    NEVER = "never"
    """No: the lease is given back, and its exit code is ours."""
    ON_FAILURE = "on-failure"
    """If its exit code is not 0."""
    ALWAYS = "always"

    def is_done(self, code: int) -> bool:
        """Has a program that ended by itself, with this code, done what it was to do?"""
        return self is When.NEVER or (self is When.ON_FAILURE and code == 0)

    @property
    def restart(self) -> Restart:
        return {
            When.NEVER: Restart.TEMPORARY,
            When.ON_FAILURE: Restart.TRANSIENT,
            When.ALWAYS: Restart.PERMANENT,
        }[self]


class OnLost(enum.Enum):
    """What follows when leadership ends, and with it the program, without anybody having asked *us* to end."""

    STAND = "stand"
    """Stand by again."""
    EXIT = "exit"
    """Exit with `EXIT_LOST`."""


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to run what."""

    argv: tuple[str, ...]
    when: When = When.NEVER
    restarts: RestartPolicy = RestartPolicy()
    stop_within: float = 10.0
    """Seconds between SIGTERM and SIGKILL; less where the lease leaves less."""
    on_lost: OnLost = OnLost.STAND
    background: Background = Background.FOLLOW
    ready_file: Path | None = None
    """Is there while the program runs here."""
    health_cmd: str | None = None
    """A shell command; a machine on which it fails neither stands nor stays."""
    health_within: float = 5.0
    has_terminal: bool = False
    """Somebody may close the terminal that we were started from."""
