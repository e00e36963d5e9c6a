"""What this process knows by itself: functions that jobs may name, jobs that it declares, commands that it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.errors import ConfigError
from tenure.plugins.scheduler.commands import Commands
from tenure.plugins.scheduler.job import CommandTarget, FunctionTarget, Job, Origin
from tenure.plugins.scheduler.target import check_target

Function = Callable[..., Any]


class Registry:
    def __init__(self, commands: Commands | None = None) -> None:
        self.commands = commands if commands is not None else Commands()
        self.functions: dict[str, Function] = {}
        self.jobs: dict[str, Job] = {}
        self.version = 0
        """Rises with every change."""

    def add_function(self, name: str, function: Function) -> None:
        check_target(FunctionTarget(name))
        if not callable(function):
            raise ConfigError(f"function {name!r} is {function!r:.80}: give a function, async or plain")
        if self.functions.get(name, function) is not function:
            raise ConfigError(f"there is a function {name!r} already: give each a name of its own")
        self.functions[name] = function
        self.version += 1

    def declare(self, job: Job) -> None:
        if job.id in self.jobs:
            raise ConfigError(f"job {job.id!r} is declared twice: give each an id of its own")
        if isinstance(job.target, CommandTarget):
            self.commands.declare(job.target)
        self.jobs[job.id] = job
        self.version += 1

    def unknown(self, job: Job) -> str | None:
        """Why this process cannot run a job; `None`: it can."""
        if job.origin is Origin.CODE and job.id not in self.jobs:
            return "it is declared in code, and not in that of the process that leads"
        if isinstance(job.target, FunctionTarget) and job.target.name not in self.functions:
            return f"the process that leads has no function {job.target.name!r}"
        return None

    def refused(self, job: Job) -> str | None:
        """Why this process does not run the command of a job; `None`: it does, or that is no command."""
        return self.commands.refusal(job.target) if isinstance(job.target, CommandTarget) else None

    def as_run(self, job: Job) -> Job:
        """What a run does whose job has a command in the bucket. If this process declares the job, then what that
        says: nobody else's words, also while what an older code declared is still decided on."""
        return self.jobs.get(job.id, job) if isinstance(job.target, CommandTarget) else job
