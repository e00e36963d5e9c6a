"""Which OS commands this process runs.

    SchedulerPlugin(commands=[("/usr/bin/backup", "--all"), ("/usr/bin/report", ...)])

A job lies in the bucket, and its command with it. Whoever can write there can name any program: so what is run is
judged by what this process knows by itself, its code and its settings, and never by what the bucket says of a job (its
id, its origin, who added it).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, TypeAlias

from tenure.errors import ConfigError
from tenure.plugins.scheduler.target import MAX_ARGUMENTS, CommandTarget, check_target

MAX_ALLOWED = 1000


class CommandPolicy(enum.Enum):
    """Which commands of jobs in the bucket a process runs when it leads."""

    DECLARED = "declared"
    """Those that its own code declares, word for word, and no others."""
    ANY = "any"
    """Whatever a job names. Who can write the bucket can run programs as the user of this process."""


Allowed: TypeAlias = Sequence[str | EllipsisType]
"""A program and its arguments; `...` at the end: and any further ones."""


class Commands:
    """The commands that one process may run: those that it declares, and those that it was allowed."""

    def __init__(self, allowed: CommandPolicy | str | Sequence[Allowed] = CommandPolicy.DECLARED) -> None:
        self._any = False
        self._exact: set[tuple[tuple[str, ...], str]] = set()
        """Words and folder."""
        self._beginnings: list[tuple[str, ...]] = []
        if isinstance(allowed, CommandPolicy | str):
            self._any = _policy(allowed) is CommandPolicy.ANY
            return
        if not isinstance(allowed, list | tuple) or len(allowed) > MAX_ALLOWED:
            raise _wrong(allowed)
        for each in allowed:
            self._allow(each)

    def declare(self, target: CommandTarget) -> None:
        """The code of this process names it."""
        self._exact.add((target.argv, target.cwd))

    def refusal(self, target: CommandTarget) -> str | None:
        """Why this process does not run it, and what to do; `None`: it does."""
        argv, cwd = target.argv, target.cwd
        if self._any or (argv, cwd) in self._exact:
            return None
        is_allowed = any(argv[: len(words)] == words for words in self._beginnings)
        if is_allowed and not cwd:
            return None
        told = f"the command {' '.join(argv)!r:.200}" + (f" in {cwd!r:.100}" if cwd else "")
        if is_allowed or (argv, "") in self._exact:
            return (
                f"{told} is not run: it is allowed where the process that leads runs, and not in a folder that the "
                "bucket names. Leave cwd out, or declare the job in code"
            )
        return (
            f"{told} is not run: it comes from the bucket, and the process that leads neither declares it in code nor "
            "was allowed it. If it is yours, declare the job, or allow it by SchedulerPlugin(commands=[…]), in every "
            "process that may lead; otherwise find out who can write the bucket"
        )

    def _allow(self, words: Any) -> None:
        if not isinstance(words, list | tuple):
            raise ConfigError(
                f"commands has {words!r:.80}: give the program and its arguments, such as ('pg_dump', 'shop'), or "
                "('pg_dump', ...) for any arguments"
            )
        is_open = len(words) > 0 and words[-1] is ...
        argv = tuple(words[:-1] if is_open else words)
        if is_open and not argv:
            raise ConfigError("commands has (...,), which is every program: say so by commands=CommandPolicy.ANY")
        if len(argv) > MAX_ARGUMENTS or not all(isinstance(word, str) for word in argv):
            raise ConfigError(
                f"commands has {words!r:.80}: give up to {MAX_ARGUMENTS:,} words, and ... nowhere but at the end"
            )
        check_target(CommandTarget(argv))
        if is_open:
            self._beginnings.append(argv)
        else:
            self._exact.add((argv, ""))


def _policy(given: CommandPolicy | str) -> CommandPolicy:
    try:
        return CommandPolicy(given)
    except ValueError:
        raise _wrong(given) from None


def _wrong(given: object) -> ConfigError:
    return ConfigError(
        f"commands is {given!r:.80}: give CommandPolicy.DECLARED, CommandPolicy.ANY, or a list of up to "
        f"{MAX_ALLOWED:,} commands, such as [('pg_dump', 'shop'), ('/usr/bin/report', ...)]"
    )
