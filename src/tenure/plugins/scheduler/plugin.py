"""Jobs that fire at their times, on one process of a fleet.

    scheduler = SchedulerPlugin()

    @scheduler.job(cron("0 3 * * *", timezone="Europe/Berlin"), id="nightly", retries=3, timeout=600)
    async def nightly(run: Run) -> None:
        await write_report(run.scheduled, token=run.token)

    await db.use_plugin(scheduler)
    await scheduler.add("reminder", at(tomorrow), function="remind", payload={"who": "ada"})

Guarantee: for the whole fleet each occurrence is decided once, by the leader, and has one record with what became of
it. Nothing fires before its time by the store's clock, however wrong the clock of a host is. A change to a job neither
loses nor repeats an occurrence.

Not guaranteed: that a run happens only once. A leader may die, or be paused past its lease, after the work and before
the record: by `Interrupted.RERUN` the next one begins it again. `run.token` tells attempts apart: it only rises. A
message on a queue is enqueued once, if the next leader comes within that queue's `dedup_window`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, Unpack, cast

import msgspec

from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import DAY, CoordinatorConfig, seconds
from tenure.coordinator.given import check_flag, shown
from tenure.coordinator.lead import Lead
from tenure.errors import ConfigError, RequestRefused
from tenure.ledger import InboxName, LedgerConfig, LedgerState, LogEntry, Lot, Place
from tenure.plugins.ledgered import SHUTDOWN_TIMEOUT, LedgerPlugin
from tenure.plugins.queue.meter import IdleMeter
from tenure.plugins.scheduler.calls import Calls
from tenure.plugins.scheduler.changes import changes_between
from tenure.plugins.scheduler.commands import Allowed, CommandPolicy, Commands
from tenure.plugins.scheduler.glance import ScheduleGlance, glance_of
from tenure.plugins.scheduler.job import (
    Job,
    JobOptions,
    Origin,
    Schedule,
    change_job,
    check_job_id,
    encode_job,
    job_from,
)
from tenure.plugins.scheduler.leading import ScheduleLeading
from tenure.plugins.scheduler.looking import (
    JobView,
    OccurrenceRecord,
    ScheduleStats,
    fires_of,
    history_of,
    job_of,
    jobs_of,
    machine_of,
    read_schedule,
    stats_of,
)
from tenure.plugins.scheduler.queues import Queues
from tenure.plugins.scheduler.records import run_name
from tenure.plugins.scheduler.registry import Registry
from tenure.plugins.scheduler.runs import MAX_RUNS, MAX_THREADS
from tenure.plugins.scheduler.timetable import Fire
from tenure.plugins.scheduler.wire import ADD, PAUSE, REMOVE, RESUME, RUN_NOW, UPDATE, Command, compose

F = TypeVar("F", bound=Callable[..., Any])

IDLE_BUDGET = 720.0
ANSWER_WITHIN = 30.0
MOST_RECORDS = 100_000
MOST_FIRES = 10_000


class SchedulerPlugin(LedgerPlugin):
    """Every process that may lead has the same plugin, with the same code. `takes_part=False`: it only adds and
    changes jobs, and takes no part in running them.

    `idle_budget`: requests per hour that the leader may spend on looking for commands while there are none.

    `commands`: which OS commands this process runs of jobs that are in the bucket and not in its code. By default none,
    for whoever can write the bucket could name any. See `CommandPolicy`.
    """

    slug = "scheduler"
    what = "schedule"

    def __init__(
        self,
        *,
        takes_part: bool = True,
        idle_budget: float = IDLE_BUDGET,
        max_runs: int = MAX_RUNS,
        max_threads: int = MAX_THREADS,
        commands: CommandPolicy | str | Sequence[Allowed] = CommandPolicy.DECLARED,
        shutdown_timeout: float | timedelta = SHUTDOWN_TIMEOUT,
        namespace: str = "default",
        config: CoordinatorConfig | None = None,
        ledger: LedgerConfig | None = None,
        enable_coordinator: bool = True,
    ) -> None:
        """`max_runs`: of all jobs together, at once; further ones wait. `max_threads`: of plain functions.

        `commands=[("pg_dump", "shop"), ("/usr/bin/report", ...)]`: these, word for word, and with `...` also with any
        further arguments. Jobs that name a `cwd` are run if they are declared.
        """
        if enable_coordinator is not True:
            raise ConfigError(
                f"enable_coordinator is {enable_coordinator!r}: a schedule is decided by an elected leader, also where "
                "there is only one process; leave it out"
            )
        super().__init__(
            namespace=namespace,
            config=config,
            ledger=ledger,
            shutdown_timeout=shutdown_timeout,
            takes_part=takes_part,
        )
        if isinstance(idle_budget, bool) or not isinstance(idle_budget, int | float) or not 12 <= idle_budget <= 1e6:
            raise ConfigError(f"idle_budget is {idle_budget!r}: give requests per hour, from 12 to 1,000,000")
        self._idle_budget = float(idle_budget)
        self._max_runs = _count("max_runs", max_runs, 1, 100_000)
        self._max_threads = _count("max_threads", max_threads, 1, 10_000)
        self._registry = Registry(Commands(commands))
        self._queues: Queues | None = None
        self._calls: Calls | None = None
        self._meter = IdleMeter(SYSTEM_CLOCK)

    # Declared in code

    def job(self, schedule: Schedule, *, id: str | None = None, **options: Unpack[JobOptions]) -> Callable[[F], F]:
        """Have a function called at its times: `@scheduler.job(every(60))`. It is given a `Run`, if it takes one.

        Its id is its name, unless another is given.
        """

        def register(function: F) -> F:
            chosen = id if id is not None else getattr(function, "__name__", "")
            if "queue" in options or "command" in options:
                raise ConfigError(f"job {chosen!r} is a function: leave queue= and command= out, or use declare()")
            named = cast(JobOptions, {"function": chosen, **options})
            made = job_from(chosen, schedule, origin=Origin.CODE, **named)
            self._registry.add_function(named["function"], function)
            self._declare(made)
            return function

        return register

    def function(self, name: str | None = None) -> Callable[[F], F]:
        """Let jobs name a function: `@scheduler.function("remind")`, then `add(..., function="remind")`."""

        def register(function: F) -> F:
            self._registry.add_function(name if name is not None else getattr(function, "__name__", ""), function)
            self._stir()
            return function

        return register

    def declare(self, id: str, schedule: Schedule, **options: Unpack[JobOptions]) -> Job:
        """Declare a job by its target: `declare("report", every(60), queue="emails", body={...})`."""
        made = job_from(id, schedule, origin=Origin.CODE, **options)
        self._declare(made)
        return made

    # Stored, from any process

    async def add(
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

        A command is added, and not declared by that, here or anywhere: see `commands` of this class.

        Raises `RequestRefused` if there is one of that id already, unless `replace=True`, and `RequestNotAnswered` if
        nobody has decided in `within` seconds: it may still be, and will be if it is written, which the error says.
        """
        made = job_from(id, schedule, origin=Origin.STORED, **options)
        command = Command(ADD, id, msgspec.Raw(encode_job(made)), replace=check_flag("replace", replace))
        await self._give(command, wait, within)

    async def update(
        self,
        id: str,
        schedule: Schedule | None = None,
        *,
        wait: bool = True,
        within: float = ANSWER_WITHIN,
        **options: Unpack[JobOptions],
    ) -> None:
        """Change a stored job: what is given, and nothing else. Naming another kind of target makes a new one.

        What the job was due for until then is decided as it was defined until then.
        """
        known = machine_of(await self._state()).jobs.get(check_job_id(id))
        if known is None:
            raise RequestRefused(f"there is no job {id!r}")
        changes = changes_between(known.job, change_job(known.job, schedule, **options))
        await self._give(Command(UPDATE, id, changes=changes), wait, within)

    async def remove(self, id: str, *, wait: bool = True, within: float = ANSWER_WITHIN) -> None:
        """Remove a job. What runs of it goes on to its end; what waits does not begin."""
        await self._give(Command(REMOVE, check_job_id(id)), wait, within)

    async def pause(self, id: str | None = None, *, wait: bool = True, within: float = ANSWER_WITHIN) -> None:
        """Begin nothing of a job, or of all, until `resume`: its times pass without occurrences. What runs goes on."""
        await self._give(Command(PAUSE, check_job_id(id) if id is not None else ""), wait, within)

    async def resume(self, id: str | None = None, *, wait: bool = True, within: float = ANSWER_WITHIN) -> None:
        await self._give(Command(RESUME, check_job_id(id) if id is not None else ""), wait, within)

    async def run_now(self, id: str, *, wait: bool = True, within: float = ANSWER_WITHIN) -> str:
        """Run a job once, whatever its times are and also if it is paused. Gives the id of the run: `Run.id`.

        Raises `RequestRefused` if a run of it is open and its overlap policy allows no other.
        """
        drawn = cast(Any, self._attached()).draw_id()[-32:]
        await self._give(Command(RUN_NOW, check_job_id(id), run=drawn), wait, within)
        return run_name(id, 0, drawn)

    # Looking

    async def jobs(self) -> list[JobView]:
        """Every job, and where it stands; from any process, as the bucket has it."""
        return jobs_of(await self._state(), await self._now_ms())

    async def get(self, id: str) -> JobView:
        return job_of(await self._state(), check_job_id(id), await self._now_ms())

    async def history(self, id: str | None = None, limit: int = 100) -> list[OccurrenceRecord]:
        """What was decided on a job's occurrences, or on all, newest first."""
        return history_of(
            await self._state(),
            check_job_id(id) if id is not None else None,
            _count("limit", limit, 1, MOST_RECORDS),
        )

    async def next_fires(self, id: str, count: int = 5) -> list[Fire]:
        """The next times of a job, with clock changes spelled out; without jitter."""
        return fires_of(
            await self._state(), check_job_id(id), _count("count", count, 1, MOST_FIRES), await self._now_ms()
        )

    async def stats(self) -> ScheduleStats:
        return await stats_of(self._opened(), await self._state())

    @property
    def idle_requests_per_hour(self) -> float:
        """What this process spends on looking for commands that are not there; `idle_budget` bounds it."""
        return self._meter.per_hour()

    def glance(self) -> ScheduleGlance | None:
        """What this process knows without a request; `None`: it does not lead. Called on the plugin's loop."""
        leading = self._leading
        if not isinstance(leading, ScheduleLeading) or leading.clerk is None or leading.halted is not None:
            return None
        behind = leading.runs.left_behind if leading.runs is not None else 0
        return glance_of(leading.clerk, self._about_ms(), behind)

    # Life

    def compose(self, name: InboxName, place: Place, lots: Any) -> bytes:
        return compose(name, place, cast("list[Lot]", lots))

    def new_leading(self, lead: Lead) -> ScheduleLeading:
        host = cast(Any, self._attached())
        assert self._queues is not None
        return ScheduleLeading(
            self._opened(),
            lead,
            ledger=self._ledger,
            clock=host.clock,
            draw_id=host.draw_id,
            time=self._time,
            bell=self._bell,
            emit=lambda event: self.emit(event.name, event),
            on_entry=self._wrote,
            sights=self._sights,
            registry=self._registry,
            queues=self._queues,
            name=self.name,
            worker=self.worker_id,
            random=host.random,
            idle_budget=self._idle_budget,
            max_runs=self._max_runs,
            max_threads=self._max_threads,
            on_idle=self._meter.looked,
            tracing=self._tracing,
        )

    async def prepare(self, store: Any) -> None:
        host = cast(Any, self._attached())
        self._meter = IdleMeter(host.clock)
        self._queues = Queues(host, self._ledger_given)

    async def ending(self) -> None:
        calls, self._calls = self._calls, None
        if calls is not None:
            await calls.aclose()

    async def stop(self) -> None:
        await super().stop()
        queues, self._queues = self._queues, None
        if queues is not None:
            await queues.aclose()

    # Inside

    def _wrote(self, entry: LogEntry) -> None:
        super()._wrote(entry)
        if self._calls is not None:
            self._calls.heard(entry)

    def _declare(self, job: Job) -> None:
        self._registry.declare(job)
        self._stir()

    def _stir(self) -> None:
        leading = self._leading
        if isinstance(leading, ScheduleLeading):
            leading.stir()

    async def _give(self, command: Command, wait: bool, within: float) -> None:
        check_flag("wait", wait)
        within = seconds("within", within, zero=True, longest=7 * DAY)
        host, producer = self._attached(), self._sending()
        if self._calls is None:
            self._calls = Calls(self._opened(), producer, ledger=self._ledger, clock=host.clock)
        command = msgspec.structs.replace(command, by=host.worker_id[:256])
        refused = await self._calls.give(command, within if wait else None)
        if refused is not None:
            raise RequestRefused(refused)

    async def _state(self) -> LedgerState:
        return await read_schedule(self._opened())


def _count(field: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{field} is {shown(value)}: give a whole number from {low:,} to {high:,}")
    return value
