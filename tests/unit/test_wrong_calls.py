"""Every public method that takes something from users, given what it cannot be: refused by name, nothing written.

Which methods there are is found by walking the public classes, and parameters by walking the methods. Each method is
tried here, passes on what it is given to one that is (`tenure.blocking`), or is exempt, with the reason: a new one that
is none of these fails.
"""

from __future__ import annotations

import asyncio
import enum
import importlib
import inspect
import math
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

import tenure
from tenure import blocking
from tenure.blocking.portal import Flag
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.hooks import HookOverrun
from tenure.coordinator.layout import STATE, folder_of
from tenure.coordinator.lead import Lead
from tenure.coordinator.lock import DistributedLock, Held
from tenure.coordinator.plugin import CoordinatorPlugin
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database import Database, PluginStorage, Resource
from tenure.election.holding import Holding
from tenure.election.records import State, encode
from tenure.entropy import new_id
from tenure.errors import ConfigError, TenureError
from tenure.ledger.machine import LedgerState
from tenure.plugins.cluster_health import ClusterHealth
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.poll import HttpCheck, PollOrchestrator, PollSchedule
from tenure.plugins.queue import Outgoing, S3QueuePlugin
from tenure.plugins.scheduler import SchedulerPlugin, every
from tenure.plugins.scheduler.job import JobOptions, Origin, job_from
from tenure.plugins.scheduler.records import JobState
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.plugins.supervisor import Child, CoordinatorCandidate
from tenure.plugins.ttl import TTLPlugin
from tenure.store.scratch import TIME_FOLDER

from .test_wrong_values import LONG, LONGEST_SENTENCE, MODULES, SECONDS, _child, parameters, wrong_values

# What there is


class Method:
    """A public method with parameters, on the first public class that has it."""

    def __init__(self, owner: type, name: str, function: Any) -> None:
        self.owner = owner
        self.name = name
        self.function = function
        in_blocking = function.__module__.startswith("tenure.blocking")
        self.label = ("blocking." if in_blocking else "") + function.__qualname__

    def parameters(self) -> dict[str, inspect.Parameter]:
        return {each: found for each, found in parameters(self.function).items() if each not in ("self", "cls")}

    @property
    def takes_options(self) -> bool:
        kinds = (each.kind for each in inspect.signature(self.function).parameters.values())
        return inspect.Parameter.VAR_KEYWORD in kinds


def public_methods() -> Iterator[Method]:
    seen = set()
    for module in (*MODULES, "tenure.blocking"):
        home = importlib.import_module(module)
        for owner in (getattr(home, name) for name in home.__all__):
            if not inspect.isclass(owner) or issubclass(owner, BaseException | enum.Enum):
                continue
            for name, found in inspect.getmembers(owner, lambda each: inspect.isroutine(each)):
                function = inspect.unwrap(getattr(found, "__func__", found))
                if name.startswith("_") or not inspect.isfunction(function) or function in seen:
                    continue
                seen.add(function)
                method = Method(owner, name, function)
                if method.parameters() or method.takes_options:
                    yield method


METHODS = {method.label: method for method in public_methods()}

PLUGINS = ("S3QueuePlugin", "SchedulerPlugin", "TTLPlugin", "EventualConsistencyPlugin")
EXEMPT = {
    "called by the parts of tenure with each other, never by users": [
        *("CoordinatorPlugin.attach", "CoordinatorPlugin.emit", "CoordinatorPlugin.lead_term"),
        *("CoordinatorCandidate.attach", "CoordinatorCandidate.on_become_coordinator", "CoordinatorSupervisor.run"),
        *(f"{plugin}.{name}" for plugin in PLUGINS for name in ("compose", "new_leading")),
        *("Counter.amount", "Counter.read", "Counter.same", "Counter.shown", "Counter.stored", "Counts.add"),
        *("CoordinatorConfig.check_provider", "CoordinatorConfig.differences", "Retention.of"),
        *("CoordinatorConfig.standby_look_every", "CoordinatorConfig.standby_looks_per_heartbeat"),
        *("Database.opened_resource", "Database.trace"),
        *("GlobalCoordinatorService.count_epoch_drift", "GlobalCoordinatorService.emit"),
        *("GlobalCoordinatorService.give_way", "GlobalCoordinatorService.leave", "GlobalCoordinatorService.tap"),
        *("Held.confirmed", "Held.end", "Held.on_loss", "Held.sending", "Lead.confirmed", "Lead.end", "Lead.sending"),
        *(f"Resource.{name}" for name in ("amend", "check_field", "clear_away", "entries", "find", "fitting")),
        *(f"Resource.{name}" for name in ("guarded_by", "keep", "place", "rewrite", "shaped_by", "swap")),
        *("Subscription.is_for", "Subscription.offer", "Listener.wants"),
    ],
    "called by the supervisor or the worker, with a context or a run that they made": [
        *("Check.run", "CommandCheck.run", "HttpCheck.run", "TcpCheck.run"),
        *("ClusterHealth.start", "PollOrchestrator.start", "Service.start"),
    ],
    "only compares: what is not there is not there (`test_what_is_asked_of_nobody`)": [
        *("GlobalCoordinatorService.is_leader", "GlobalCoordinatorService.off", "ClusterHealth.off"),
        *("PollOrchestrator.off", "GlobalCoordinatorService.unsubscribe", "GlobalCoordinatorService.withdraw"),
    ],
}
EXEMPTED = [label for labels in EXEMPT.values() for label in labels]

TWINS: dict[type, type] = {
    blocking.TTL: TTLPlugin,
    blocking.Coordinator: GlobalCoordinatorService,
    blocking.Counters: EventualConsistencyPlugin,
    blocking.Database: Database,
    blocking.Held: Held,
    blocking.Leader: Lead,
    blocking.Lock: DistributedLock,
    blocking.Queue: S3QueuePlugin,
    blocking.Resource: Resource,
    blocking.Scheduler: SchedulerPlugin,
}
"""What passes on unchanged what it is given; `test_threads_pass_on_what_they_are_given` shows it."""
OF_THREADS = {
    *("blocking.Coordinator.leadership", "blocking.Coordinator.terms", "blocking.Database.use_plugin"),
    *("blocking.Leader.sleep", "blocking.Leader.wait_lost", "blocking.Loss.wait", "blocking.Queue.enqueue_many"),
    "blocking.Resource.records",
}
"""What does more than that, and is tried itself."""


def is_passed_on(method: Method) -> bool:
    return method.owner in TWINS and method.label.startswith("blocking.") and method.label not in OF_THREADS


# What is given

NO_TEXT_IS_WRONG = ["a\nb", "a\x1b[31mb"]
ANY_NUMBER = [-1, math.nan, math.inf, -math.inf, 10**400, 10.0**12]
COUNTING = ("add", "sub", "set")
ASKING = ("get", "history", "consolidate", "recalculate")
FINE: dict[str, list[Any]] = {
    "S3QueuePlugin.enqueue.priority": [-1],
    "S3QueuePlugin.enqueue_many.priority": [-1],
    "S3QueuePlugin.enqueue.dedup_key": NO_TEXT_IS_WRONG,
    "S3QueuePlugin.enqueue.ordering_key": NO_TEXT_IS_WRONG,
    "S3QueuePlugin.enqueue_many.ordering_key": NO_TEXT_IS_WRONG,
    "blocking.Queue.enqueue_many.priority": [-1],
    "blocking.Queue.enqueue_many.ordering_key": NO_TEXT_IS_WRONG,
    "PluginStorage.list.prefix": ["", *NO_TEXT_IS_WRONG],
    "Resource.list.after": NO_TEXT_IS_WRONG,
    "Resource.records.after": NO_TEXT_IS_WRONG,
    "blocking.Resource.records.after": NO_TEXT_IS_WRONG,
    "Resource.exists.id": NO_TEXT_IS_WRONG,
    "Resource.get_or_none.id": NO_TEXT_IS_WRONG,
    "Resource.insert.id": NO_TEXT_IS_WRONG,
    **{f"EventualConsistencyPlugin.{name}.id": NO_TEXT_IS_WRONG for name in (*COUNTING, *ASKING)},
    **{f"EventualConsistencyPlugin.{name}.op_id": NO_TEXT_IS_WRONG for name in COUNTING},
    "CoordinatorConfig.requests_per_hour.provider": ["", LONG, "\udcff", *NO_TEXT_IS_WRONG],
    "Lead.ensure.seconds": [-1, math.inf, -math.inf, 10**400, 10.0**12],
    "Held.ensure.seconds": [-1, math.inf, -math.inf, 10**400, 10.0**12],
    "CoordinatorPlugin.validate_epoch.dispatched_ago": ANY_NUMBER,
    "CoordinatorPlugin.is_epoch_valid.dispatched_ago": ANY_NUMBER,
    **{f"PluginStorage.{name}.kind": [None] for name in ("get", "get_entry", "get_many", "list")},
}
"""Right, for these: ids and keys of messages and records may be any text, and are encoded; a provider that is not known
is counted as S3; nothing is certain for ever, and everything for less than nothing; a stamp that makes no sense narrows
the grace."""
NOT_JSON = [object(), {"n": object()}, [{1j}]]
WRONG: dict[str, list[Any]] = {
    "S3QueuePlugin.enqueue.body": NOT_JSON,
    "S3QueuePlugin.enqueue_many.bodies": [5, None, *([each] for each in NOT_JSON)],
    **{f"PluginStorage.{name}.value": NOT_JSON for name in ("set", "set_if_not_exists", "set_if_version")},
}
"""Where the annotation says too little."""
RIGHT: dict[str, Any] = {
    "id": "front",
    "field": "views",
    "value": 1,
    "key": "k",
    "keys": ["k"],
    "values": {"k": 1},
    "name": "thing",
    "slug": "kept",
    "data": {"views": 1},
    "changes": {"title": "x"},
    "items": [{"views": 1}],
    "body": b"{}",
    "bodies": [{"n": 1}],
    "version": 1,
    "message_id": "a-1-1",
    "schedule": every(60),
    "function": None,
    "above": 7,
    "to": "ben",
    "handler": print,
    "task_epoch": 1,
    "seconds": 0.1,
    "workers": 3,
    "lease_timeout": 15.0,
}
NAMED = {"on": "*"}
"""Names of events."""
TARGET = {"function": "f"}
OPTIONS: dict[str, dict[str, Any]] = {"SchedulerPlugin.add": TARGET, "SchedulerPlugin.declare": TARGET}
"""Without these it is refused for another reason."""
ALIASES = {"values": "key", "changes": "key"}
"""A wrong key of a mapping is named as such."""


class Straight:
    """In the place of the thread behind `tenure.blocking`: the loop of the rig."""

    is_forked = is_closed = False

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def call(self, work: Any, **_: Any) -> Any:
        async def done() -> Any:
            found = work()
            return await found if inspect.isawaitable(found) else found

        return self._runner.run(done())

    def check(self) -> None:
        pass

    def check_process(self) -> None:
        pass

    def is_inside(self) -> bool:
        return False


class Plugin(CoordinatorPlugin):
    slug = "plain"


class Rig:
    """Everything, on one store in memory; nobody leads or beats, so that nothing is written but by a call."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.portal: Any = Straight(self.runner)
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.database = database = await Database("memory://").connect()
        pages = database.resource("pages")
        await pages.insert({"title": "x"}, id="front")
        queue = S3QueuePlugin("jobs", producer_only=True, result_retention=60.0)
        counters = EventualConsistencyPlugin("pages", ["views"], producer_only=True)
        schedule = SchedulerPlugin(takes_part=False)
        ttl = TTLPlugin("sessions", ttl=60.0, takes_part=False)
        database.resource("sessions")
        for plugin in (queue, counters, schedule, ttl):
            await database.use_plugin(plugin)
        schedule._state = self._schedule  # type: ignore[method-assign]
        service = await database.get_global_coordinator("quiet")
        plain = Plugin()
        plain.attach(database, "plain")
        plain._begin(service, database.clock)  # the election is left out
        candidate = CoordinatorCandidate([Child("one", _child)])
        candidate.attach(database, "one")
        now = SYSTEM_CLOCK.read()
        holding = Holding(now, 3600.0, 3600.0)
        lead = Lead(
            namespace="quiet",
            worker_id="ada",
            epoch=1,
            grant_id="g",
            holding=holding,
            clock=SYSTEM_CLOCK,
            store=database.store,
            draw_id=new_id,
        )
        state = State(
            write_id="w",
            leader_id="ada",
            uid="u",
            epoch=1,
            grant_id="g",
            leader_write_id="w",
            lease_duration_ms=1000,
            renewals=1,
        )
        await database.store.put(folder_of("quiet") + STATE, encode(state))
        leader = blocking.Leader(lead, self.portal, Flag())
        threads = blocking.Database("memory://")
        threads._portal, threads._database = self.portal, database
        self.of: dict[type, Any] = {
            Database: database,
            Resource: pages,
            PluginStorage: database.plugin_storage("kept", "things"),
            S3QueuePlugin: queue,
            EventualConsistencyPlugin: counters,
            SchedulerPlugin: schedule,
            TTLPlugin: ttl,
            CoordinatorConfig: CoordinatorConfig(),
            CoordinatorPlugin: plain,
            CoordinatorCandidate: candidate,
            GlobalCoordinatorService: service,
            DistributedLock: database.lock("door"),
            Held: Held(name="door", owner="ada", token=1, holding=holding, clock=SYSTEM_CLOCK),
            Lead: lead,
            ClusterHealth: ClusterHealth.observe(service),
            PollOrchestrator: PollOrchestrator([PollSchedule("web", HttpCheck("http://127.0.0.1/"), 5.0)]),
            blocking.Coordinator: blocking.Coordinator(self.portal, service),
            blocking.Database: threads,
            blocking.Leader: leader,
            blocking.Loss: leader.lost,
            blocking.Queue: blocking.Queue(self.portal, queue),
            blocking.Resource: blocking.Resource(self.portal, pages),
        }

    def right(self, method: Method) -> dict[str, Any]:
        """What cannot be told before everything is open."""
        of_threads = method.label.startswith("blocking.")
        return {
            "coordinator": self.of[GlobalCoordinatorService],
            "plugin": S3QueuePlugin("other", producer_only=True) if of_threads else Plugin(),
            **({"name": NAMED[method.name]} if method.name in NAMED else {}),
        }

    async def _schedule(self) -> LedgerState:
        """With the job `front`, as if a leader had added it."""
        machine = ScheduleMachine()
        machine.jobs["front"] = JobState(job_from("front", every(60), origin=Origin.STORED, function="f"), 0, 0)
        return LedgerState(machine)

    def stored(self) -> dict[str, Any]:
        """What lies in the store, by version; but for what is written to be told the store's time."""

        async def listed() -> dict[str, Any]:
            entries = self.database.store.list()
            return {each.key: each.version async for each in entries if not each.key.startswith(TIME_FOLDER)}

        return self.runner.run(listed())

    def call(self, method: Method, *spread: Any, **given: Any) -> Exception | None:
        """What it raised."""
        bound = getattr(self.of[method.owner], method.name)

        def first_of(found: Any) -> Any:
            if inspect.isgenerator(found):
                return next(found, None)
            return found(tidy) if method.name in ("job", "function") else found

        async def made() -> None:
            async with asyncio.timeout(SECONDS):
                found = first_of(bound(*spread, **given))
                if inspect.isawaitable(found):
                    await found
                elif inspect.isasyncgen(found):
                    async for _ in found:
                        break

        try:
            if method.label.startswith("blocking."):
                first_of(bound(*spread, **given))
            else:
                self.runner.run(made())
        except Exception as error:
            return error
        return None

    def close(self) -> None:
        self.runner.run(self.database.disconnect())
        self.runner.close()


def tidy() -> None:
    raise AssertionError("nothing is run here")


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


# The inventory


def test_every_public_method_is_tried_or_exempt(rig: Rig) -> None:
    exempt = set(EXEMPTED)
    assert len(EXEMPTED) == len(exempt)
    assert not (exempt | OF_THREADS) - set(METHODS), "exempt, and not there"
    nobody_tries = {
        method.label
        for method in METHODS.values()
        if method.label not in exempt and not is_passed_on(method) and method.owner not in rig.of
    }
    assert not nobody_tries
    assert len(CASES) > 150


# Wrong values


def tried() -> Iterator[Method]:
    for method in METHODS.values():
        if method.label not in EXEMPTED and not is_passed_on(method):
            yield method


CASES = [pytest.param(method, each, id=f"{method.label}.{each}") for method in tried() for each in method.parameters()]


def complaint(error: Exception | None, name: str, value: Any) -> str | None:
    """What is wrong with how it was refused; `None`: nothing."""
    if error is None:
        return "taken"
    if not isinstance(error, TenureError):
        return f"{type(error).__name__}: {str(error)[:120]}"
    text = str(error)
    names = (name, name.replace("_", " "), ALIASES.get(name, name))
    named = any(re.search(rf"\b{each}\b", text) for each in names)
    shown = f"{value!r:.20}" in text or f" {type(value).__name__}" in text
    if not named and not shown:
        return f"neither names nor shows it: {text[:200]}"
    if len(text) > LONGEST_SENTENCE:
        return f"{len(text)} characters long"
    if not text.isprintable():
        return f"not printable: {text[:80]!r}"
    return None


def right(rig: Rig, method: Method) -> dict[str, Any]:
    """What has to be given besides."""
    known = RIGHT | rig.right(method)
    return {
        each: known[each]
        for each, found in method.parameters().items()
        if found.default is inspect.Parameter.empty and found.kind is not inspect.Parameter.VAR_POSITIONAL
    } | OPTIONS.get(method.label, {})


@pytest.mark.parametrize(("method", "each"), CASES)
def test_a_call_that_cannot_be_is_refused(rig: Rig, method: Method, each: str) -> None:
    found = method.parameters()[each]
    key = f"{method.label}.{each}"
    before = rig.stored()
    complaints = []
    for value in WRONG.get(key, wrong_values(found)):
        if any(value is one or value == one for one in FINE.get(key, ())):
            continue
        if found.kind is inspect.Parameter.VAR_POSITIONAL:
            error = rig.call(method, value)
        else:
            error = rig.call(method, **right(rig, method) | {each: value})
        if (what := complaint(error, each, value)) is not None:
            complaints.append(f"{value!r:.40}: {what}")
    after = rig.stored()
    written = sorted(key for key in after.keys() | before.keys() if after.get(key) != before.get(key))
    assert not complaints and not written, "\n".join([*complaints, *written])


# Options of a job

JOB_METHODS = ("SchedulerPlugin.add", "SchedulerPlugin.declare", "SchedulerPlugin.job", "SchedulerPlugin.update")
OF_A_QUEUE = ("body", "priority", "ordering_key", "delay", "max_attempts", "visibility_timeout", "headers")
OF_A_COMMAND = ("cwd", "terminate_within")
FINE_FOR_JOBS: dict[str, list[Any]] = {
    "priority": [-1],
    "ordering_key": NO_TEXT_IS_WRONG,
    "command": [],
}
NOT_FOR_FUNCTIONS = ("queue", "command", *OF_A_QUEUE, *OF_A_COMMAND)
"""`job` is for functions, and says so."""


def job_option(name: str) -> inspect.Parameter:
    given = JobOptions.__annotations__[name]
    text = getattr(given, "__forward_arg__", given)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=text)


def target_for(option: str) -> dict[str, Any]:
    if option in OF_A_QUEUE:
        return {"queue": "jobs"}
    if option in OF_A_COMMAND:
        return {"command": ["true"]}
    return {} if option in ("function", "queue", "command") else TARGET


@pytest.mark.parametrize("label", JOB_METHODS)
@pytest.mark.parametrize("option", sorted(JobOptions.__annotations__))
def test_an_option_of_a_job_that_cannot_be_is_refused(rig: Rig, label: str, option: str) -> None:
    method = METHODS[label]
    target = target_for(option)
    if label == "SchedulerPlugin.job":
        if option in NOT_FOR_FUNCTIONS:
            return
        target = {}
    needed = {each: value for each, value in right(rig, method).items() if each not in TARGET}
    before = rig.stored()
    complaints = []
    values = NOT_JSON if option in ("body", "payload") else wrong_values(job_option(option))
    for value in values:
        if any(value is one or value == one for one in FINE_FOR_JOBS.get(option, ())):
            continue
        error = rig.call(method, **needed | target | {option: value})
        if (what := complaint(error, option, value)) is not None:
            complaints.append(f"{value!r:.40}: {what}")
    assert not complaints and rig.stored() == before, "\n".join(complaints)


@pytest.mark.parametrize("method", [method for method in tried() if method.takes_options], ids=lambda each: each.label)
def test_an_option_that_is_not_there_is_refused(rig: Rig, method: Method) -> None:
    before = rig.stored()
    error = rig.call(method, **right(rig, method) | {"oddly": 1})
    assert isinstance(error, ConfigError | TypeError) and "oddly" in str(error), repr(error)
    assert rig.stored() == before


@pytest.mark.parametrize("each", [each for each in parameters(Outgoing) if each != "body"])
def test_a_message_with_options_that_cannot_be_is_refused(rig: Rig, each: str) -> None:
    before = rig.stored()
    complaints = []
    for value in wrong_values(parameters(Outgoing)[each]):
        if any(value is one or value == one for one in FINE.get(f"S3QueuePlugin.enqueue.{each}", ())):
            continue
        error = rig.call(METHODS["S3QueuePlugin.enqueue_many"], [Outgoing(body={"n": 1}, **{each: value})])
        if (what := complaint(error, each, value)) is not None:
            complaints.append(f"{value!r:.40}: {what}")
    assert not complaints and rig.stored() == before, "\n".join(complaints)


# What only compares


def test_what_is_asked_of_nobody(rig: Rig) -> None:
    """False, or nothing: an id that nobody has leads nowhere, and who does not listen is forgotten already."""
    service, before = rig.of[GlobalCoordinatorService], rig.stored()
    listening = [service, rig.of[ClusterHealth], rig.of[PollOrchestrator]]

    async def ask() -> None:
        for value in (5, b"x", "", LONG, "\udcff", ["x"], object()):
            assert service.is_leader(value) is False
            assert [each.off(value, value) for each in listening] == [False, False, False]
            service.unsubscribe(value)
            await service.withdraw(value)

    rig.runner.run(ask())
    assert rig.stored() == before


def test_a_policy_may_be_named_by_its_word(rig: Rig) -> None:
    """Text that is right was taken for another policy."""
    service: GlobalCoordinatorService = rig.of[GlobalCoordinatorService]
    plugin: Any = Plugin()

    async def subscribe() -> HookOverrun:
        service.subscribe(plugin, hook_overrun="exit")  # type: ignore[arg-type]
        (seat,) = (seat for seat in service._seats if seat.subscriber is plugin)
        service.unsubscribe(plugin)
        return seat.overrun

    assert rig.runner.run(subscribe()) is HookOverrun.EXIT


# The front doors

DOORS = [tenure.lead, tenure.terms, blocking.lead, blocking.terms]
THROUGH_DOORS = [
    pytest.param(door, each, id=f"{door.__module__}.{door.__name__}.{each}")
    for door in DOORS
    for each in parameters(door)
]


def enter(door: Any, given: dict[str, Any]) -> Exception | None:
    """What it raised; `None`: it led."""

    async def go_in(made: Any) -> None:
        async with asyncio.timeout(SECONDS):
            if inspect.isasyncgen(made):
                await anext(made)
                await made.aclose()
            else:
                async with made:
                    pass

    try:
        made = door(**given)
        if inspect.isgenerator(made):
            next(made)
            made.close()
        elif hasattr(made, "__enter__") and not hasattr(made, "__aenter__"):
            with made:
                pass
        else:
            asyncio.run(go_in(made))
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize(("door", "each"), THROUGH_DOORS)
def test_nobody_comes_in_with_what_cannot_be(door: Any, each: str) -> None:
    complaints = []
    for value in wrong_values(parameters(door)[each]):
        error = enter(door, {"url": "memory://", each: value})
        # The URL is named as such, and its letters are not shown: it may hold a secret.
        if (what := complaint(error, "URL" if each == "url" else each, value)) is not None:
            complaints.append(f"{value!r:.40}: {what}")
    assert not complaints, "\n".join(complaints)


# For threads


class Passed(Exception):
    """Holds what the twin was given."""


class Twin:
    """In the place of what works on the loop: tells what it was called with, by the names that it has for it."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        signature = inspect.signature(getattr(self._kind, name))

        def called(*given: Any, **named: Any) -> Any:
            raise Passed(name, dict(signature.bind(self, *given, **named).arguments))

        return called


OPTION_OF = {"Queue": "concurrency", "Scheduler": "timeout"}
"""One of those that a method takes as further options."""
HANDED_OVER = {"blocking.Queue.handler", "blocking.Queue.on_message"}
"""Their function goes to what `handler` of the twin gives: see tests/unit/test_blocking_queue.py."""
PASSED_ON = [method for method in METHODS.values() if is_passed_on(method)]


@pytest.mark.parametrize("method", PASSED_ON, ids=lambda each: each.label)
def test_threads_pass_on_what_they_are_given(rig: Rig, method: Method) -> None:
    twin: Any = Twin(TWINS[method.owner])
    made: Any = object.__new__(method.owner)
    made._pid, made._inside, made._portal = os.getpid(), {}, rig.portal
    made._plugin = made._service = made._database = made._resource = made._held = made._lead = made._lock = twin
    given: dict[str, Any] = {}
    spread: tuple[Any, ...] = ()
    for each, found in method.parameters().items():
        if found.kind is inspect.Parameter.VAR_POSITIONAL:
            spread = (object(), object())
        else:
            given[each] = object()
    expected_all = dict(given)
    if spread:
        expected_all |= dict.fromkeys(method.parameters(), spread)
    if method.takes_options:
        given[OPTION_OF[method.owner.__name__]] = option = object()
    with pytest.raises(Passed) as passed:
        getattr(made, method.name)(*spread, **given)
    name, got = passed.value.args
    if method.label in HANDED_OVER:
        assert name == "handler"
        expected_all.pop("function")
    else:
        assert name == method.name
    got.pop("self")
    if method.takes_options:
        named = OPTION_OF[method.owner.__name__]
        assert got.pop("options", {named: got.pop(named, None)}) == {named: option}
    assert got == expected_all
