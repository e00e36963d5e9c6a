"""A schedule, for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from tenure.blocking.coordinator import without_loop
from tenure.blocking.portal import Portal
from tenure.coordinator.events import Handler, Subscription
from tenure.plugins.scheduler import Fire, Job, JobView, OccurrenceRecord, SchedulerPlugin, ScheduleStats
from tenure.plugins.scheduler.job import JobOptions, Schedule
from tenure.plugins.scheduler.plugin import ANSWER_WITHIN

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Scheduler:
    """The schedule of a `SchedulerPlugin`, for threads. Made by `Database.use_plugin()`; see the plugin for what it
    promises.

    Any thread may call it, also a job. A job that is a plain function runs in a thread of its own, where it may use the
    blocking API; a coroutine runs on tenure's own, where it may not. A call that Ctrl-C interrupts may have happened or
    not, as one that raised `WriteUnknown`.
    """

    def __init__(self, portal: Portal, plugin: SchedulerPlugin) -> None:
        self._portal = portal
        self._plugin = plugin

    def __repr__(self) -> str:
        return f"<blocking Scheduler {self.name!r}>"

    @property
    def name(self) -> str:
        return self._plugin.name

    @property
    def is_leading(self) -> bool:
        """Does this process decide on this schedule, now, and has it caught up?"""
        return self._plugin.is_leading

    # Declared in code

    def job(self, schedule: Schedule, *, id: str | None = None, **options: Unpack[JobOptions]) -> Callable[[F], F]:
        """Have a function called at its times: `@scheduler.job(every(60))`. It is given a `Run`, if it takes one.

        Its id is its name, unless another is given.
        """
        self._portal.check()
        register = self._plugin.job(schedule, id=id, **options)
        return lambda function: self._on_loop(lambda: register(function))

    def function(self, name: str | None = None) -> Callable[[F], F]:
        """Let jobs name a function: `@scheduler.function("remind")`, then `add(..., function="remind")`."""
        self._portal.check()
        register = self._plugin.function(name)
        return lambda function: self._on_loop(lambda: register(function))

    def declare(self, id: str, schedule: Schedule, **options: Unpack[JobOptions]) -> Job:
        """Declare a job by its target: `declare("report", every(60), queue="emails", body={...})`."""
        return self._on_loop(lambda: self._plugin.declare(id, schedule, **options))

    # Stored, from any process

    def add(
        self,
        id: str,
        schedule: Schedule,
        *,
        replace: bool = False,
        wait: bool = True,
        within: float = ANSWER_WITHIN,
        **options: Unpack[JobOptions],
    ) -> None:
        """Add a job. Returns when the leader has added it; with `wait=False` when it is durable that it will.

        Raises `RequestRefused` if there is one of that id already, unless `replace=True`, and `RequestNotAnswered` if
        nobody has decided in `within` seconds: it will still be decided.
        """
        self._portal.call(lambda: self._plugin.add(id, schedule, replace=replace, wait=wait, within=within, **options))

    def update(
        self,
        id: str,
        schedule: Schedule | None = None,
        *,
        wait: bool = True,
        within: float = ANSWER_WITHIN,
        **options: Unpack[JobOptions],
    ) -> None:
        """Change a stored job: what is given, and nothing else. Naming another kind of target makes a new one."""
        self._portal.call(lambda: self._plugin.update(id, schedule, wait=wait, within=within, **options))

    def remove(self, id: str, *, wait: bool = True, within: float = ANSWER_WITHIN) -> None:
        """Remove a job. What runs of it goes on to its end; what waits does not begin."""
        self._portal.call(lambda: self._plugin.remove(id, wait=wait, within=within))

    def pause(self, id: str | None = None, *, wait: bool = True, within: float = ANSWER_WITHIN) -> None:
        """Begin nothing of a job, or of all, until `resume`: its times pass without occurrences. What runs goes on."""
        self._portal.call(lambda: self._plugin.pause(id, wait=wait, within=within))

    def resume(self, id: str | None = None, *, wait: bool = True, within: float = ANSWER_WITHIN) -> None:
        self._portal.call(lambda: self._plugin.resume(id, wait=wait, within=within))

    def run_now(self, id: str, *, wait: bool = True, within: float = ANSWER_WITHIN) -> str:
        """Run a job once, whatever its times are and also if it is paused. Gives the id of the run: `Run.id`.

        Returns when it was decided, and not when it has ended: `history` tells. Raises `RequestRefused` if a run of it
        is open and its overlap policy allows no other.
        """
        return self._portal.call(lambda: self._plugin.run_now(id, wait=wait, within=within))

    # Looking

    def jobs(self) -> list[JobView]:
        """Every job, and where it stands; from any process, as the bucket has it."""
        return self._portal.call(self._plugin.jobs)

    def get(self, id: str) -> JobView:
        return self._portal.call(lambda: self._plugin.get(id))

    def history(self, id: str | None = None, limit: int = 100) -> list[OccurrenceRecord]:
        """What was decided on a job's occurrences, or on all, newest first."""
        return self._portal.call(lambda: self._plugin.history(id, limit))

    def next_fires(self, id: str, count: int = 5) -> list[Fire]:
        """The next times of a job, with clock changes spelled out; without jitter."""
        return self._portal.call(lambda: self._plugin.next_fires(id, count))

    def stats(self) -> ScheduleStats:
        return self._portal.call(self._plugin.stats)

    # Being told

    def on(self, name: str, handler: Handler) -> Subscription:
        """Call `handler(event)` for every event called `name`, as `Coordinator.on` does, on a thread of tenure's."""
        self._portal.check()
        return without_loop(lambda: self._plugin.on(name, handler))

    def _on_loop(self, work: Callable[[], T]) -> T:
        """The leader, if it is this process, is told of it: on its own thread."""

        async def begin() -> T:
            return work()

        return self._portal.call(begin)
