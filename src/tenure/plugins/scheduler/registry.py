"""What the code of this process knows: functions that jobs may name, and jobs that it declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.errors import ConfigError
from tenure.plugins.scheduler.job import FunctionTarget, Job, Origin
from tenure.plugins.scheduler.target import check_target

Function = Callable[..., Any]


class Registry:
    def __init__(self) -> None:
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
        self.jobs[job.id] = job
        self.version += 1

    def unknown(self, job: Job) -> str | None:
        """Why this process cannot run a job; `None`: it can."""
        if job.origin is Origin.CODE and job.id not in self.jobs:
            return "it is declared in code, and not in that of the process that leads"
        if isinstance(job.target, FunctionTarget) and job.target.name not in self.functions:
            return f"the process that leads has no function {job.target.name!r}"
        return None
