"""Every parameter of every public class and function, given what it cannot be: one sentence that names it.

What is public is walked, so that a parameter that is new cannot be left out: values follow from its annotation. What is
not tried stands in `NOT_TRIED` with the reason, and what is named there must be there.
"""

from __future__ import annotations

import asyncio
import enum
import importlib
import inspect
import math
import re
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tenure
from tenure.dashboard import create_app
from tenure.database import Database
from tenure.entropy import Random
from tenure.errors import ConfigError, TenureError
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.poll import HttpCheck, PollSchedule, read_jobs, read_results
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.supervisor import Child
from tenure.plugins.ttl import TTLPlugin
from tenure.store import Attempt, Faults
from tenure.store.memory import MemoryStore
from tenure.testing import Network, SimulatedBucket, World

MODULES = (
    "tenure",
    *(f"tenure.plugins.{name}" for name in ("cluster_health", "counters", "poll", "queue", "scheduler")),
    *(f"tenure.plugins.{name}" for name in ("supervisor", "ttl")),
)
FURTHER = (
    *("store", "ledger", "testing", "blocking", "asgi", "dashboard"),
    *("telemetry.prometheus", "telemetry.otel", "telemetry.logs"),
)
"""Below `tenure`: doors of their own. What they give is called by the module's name as well: `asgi.lifespan`."""
LONG = "x" * 5000
LONGEST_SENTENCE = 700
SECONDS = 10.0
"""No call that is wrong takes as long."""

GIVEN_BACK = {
    *("Context", "Expired", "Held", "Lead", "LockHolder", "Message", "Record", "Run"),
    *("ChildHealth", "HealthChanged", "HealthReport", "NodeDown", "NodeUp", "Observation", "judge"),
    *("ApplyFailed", "Bucket", "Consolidated", "CounterStats", "FieldHidden", "Recalculated", "Top"),
    *("CheckResult", "JobCompleted", "JobDispatched", "JobFailed", "Outcome", "PollStatus", "Summary", "Verdict"),
    *("Check", "WorkerStatus", "DeadLetter", "PeekedMessage", "QueueStats", "Fire", "Job", "JobView"),
    *("OccurrenceRecord", "ScheduleStats", "ChildStatus", "Service", "SupervisorStatus", "Cleanup", "Counts"),
    *("FailedCallback", "TTLStats"),
}
"""Made by tenure, or derived from by users, and handed to them: nobody gives options to these."""

GIVEN_BACK_FURTHER = {
    "store": {
        *("Applied", "Attempt", "Entry", "NotModified", "Rejected", "Settled", "Stored", "StoreInfo", "Unknown"),
        *("Usage", "Version", "Store"),
        *("Names", "Strangers", "numbered", "ours"),  # of listings, as the parts of tenure hand them to each other
    },
    "ledger": {
        *("Clerk", "InboxName", "Item", "LedgerState", "LedgerTerm", "LogEntry", "Lot", "Machine", "Place"),
        *("Producer", "Receipt", "Situation", "Stamp", "Tail", "Tick"),
        *("agreed_ledger", "ledger_of_onlooker", "ledger_store"),  # called by plugins alone
    },
    "testing": {"Host", "Write"},  # made by `World.host`, and by the bucket
    "blocking": {
        *("Coordinator", "Counters", "Held", "Leader", "Leadership", "Lock", "Loss", "Queue", "Resource", "Scheduler"),
        *("Subscription", "TTL"),  # what a database gives: see test_wrong_calls.py for their methods
    },
    "telemetry.prometheus": {"MetricsServer"},
    "telemetry.otel": {"Instrumentation"},
}
"""The same, for each of the further modules."""

NUMBER = ["5", True, math.nan, math.inf, -math.inf, -1, 10**400, [1], object()]
WHOLE = ["5", True, 1.5, math.nan, -1, 10**30, [1]]
DURATION = [*NUMBER, 10.0**12]
"""The last is what milliseconds look like, where a duration of that length makes no sense."""
TEXT = [5, b"x", "", LONG, "\udcff", ["x"]]
NAME = [*TEXT, "a\nb", "a\x1b[31mb"]
FLAG = ["no", 2, [True]]
CHOICE = ["odd", 5, ""]
OBJECT = ["odd", 5, [1]]

KINDS: list[tuple[str, list[Any]]] = [
    (r"bool( \| None)?", FLAG),
    (r"float \| (datetime\.)?timedelta( \| None)?", DURATION),
    (r"float( \| None)?", DURATION),
    (r"int( \| None)?", WHOLE),
    (r"str( \| None)?", NAME),
    (r"(Path \| str|str \| Path)( \| None)?", [5, b"x", ["x"], "a\0b"]),
    (r"Mapping\[str, (str|Any)\]( \| None)?", ["odd", 5, [1], {5: "x"}]),
    (r"(Sequence|Collection|Iterable)\[.*\]( \| None)?", [5, None]),
    (r"datetime( \| None)?", ["2026-01-01", 5, True]),
    (r"tuple\[float, float\]", ["odd", 5, (1,), (1, 2, 3), ("a", "b"), (math.nan, 1), (2, 1), (-1, 1), None]),
    (r"bytes", ["text", 5, None]),
    (r"Number", ["5", True, math.nan, math.inf, -math.inf, [1], object()]),
    (r"\w+ \| str( \| None)?", CHOICE),
    (r"(Callable|collections\.abc\.Callable|Callback|OnLost|Handler).*", ["odd", 5]),
]
"""By annotation. What is left is a class of tenure, or one of some: `OBJECT`, or `CHOICE` for an enumeration."""

HANDED_IN = {"clock", "random", "draw_id", "exit_process", "usage", "keeper", "hosting", "time", "environ", "store"}
"""What tests and tenure itself put in the place of the world; users have no reason to."""

RIGHT: dict[str, Any] = {
    "store": lambda: MemoryStore(),
    "slug": "kept",
    "name": "thing",
    "connection_string": "memory://",
    "url": "memory://",
    "resource": "pages",
    "fields": ["views"],
    "children": lambda: [Child("one", _child)],
    "runs": lambda: _child,
    "schedules": lambda: [PollSchedule("web", HttpCheck("http://127.0.0.1/"), 5.0)],
    "check": lambda: HttpCheck("http://127.0.0.1/"),
    "every": 60.0,
    "partition": "eu",
    "worker_id": "ada",
    "when": "never",
    "host": "127.0.0.1",
    "port": 80,
    "text": "* * * * *",
    "period": 60.0,
    "body": {"n": 1},
    "argv": "true",
    "database": lambda: Database("memory://"),
    "coordinator": None,
    "ttl": 5.0,
    "prefix": "folder/",
    "segment": "name",
    "attempt": lambda: Attempt("key", None),
    "compose": lambda: _compose,
    "write_ids": lambda: _write_ids,
    "inner": lambda: MemoryStore(),
    "faults": lambda: Faults(),
    "dashboard": lambda: create_app("memory://"),
    "world": lambda: World(1),
    "bucket": lambda: SimulatedBucket(World(1)),
    "network": lambda: Network(World(1)),
    "seed": 1,
    **dict.fromkeys(("write", "read", "list", "delete"), 1.0),
}


def _compose(write_id: str) -> bytes:
    return write_id.encode()


def _write_ids(body: bytes) -> list[str]:
    return [body.decode()]


async def _child(context: object) -> None:
    raise AssertionError("nothing is started here")


NOT_TRIED: dict[tuple[str, str], str] = {
    ("Outgoing", "*"): "checked where it is enqueued, with what the queue allows: see test_wrong_calls.py",
    ("read_results", "database"): "anything that has a store, as tests give; what has none is an AttributeError",
    ("read_jobs", "database"): "as read_results",
    ("lead", "*"): "a scope, which has to be entered: see test_wrong_calls.py",
    ("terms", "*"): "as lead",
    ("EventualConsistencyPlugin", "fields"): "names, or a mapping of them: see tests/unit/test_counters_fields.py",
    ("PollWorker", "database"): "as read_results",
    ("blocking.lead", "*"): "as lead",
    ("blocking.terms", "*"): "as lead",
    ("store.Faulty", "inner"): "any object that has the methods of a store, as tests give",
    ("store.Metered", "inner"): "as store.Faulty",
    ("store.Prefixed", "inner"): "as store.Faulty",
    ("dashboard.create_app", "allowed_hosts"): "see test_hosts_that_are_none",
}

ALSO: dict[str, dict[str, Any]] = {
    "HttpCheck": {"url": "http://127.0.0.1/"},
    "PollWorker": {"worker_id": "ada"},
    "TTLPlugin": {"ttl": 5.0},
    "dashboard.create_app": {"token": "0123456789abcdef"},
    "testing.SimulatedStore": {"host": World(1).host("a")},
}
"""Without these it is refused for another reason."""
INSTEAD = {("PollWorker", "coordinator"): {"worker_id": None}}
"""What is not given together."""

FINE: dict[tuple[str, str], list[Any]] = {
    ("CoordinatorConfig", "priority"): [-1],
    ("EventualConsistencyPlugin", "resource"): ["odd"],
    ("TTLPlugin", "resource"): ["odd"],
    ("Command", "argv"): [LONG, "\udcff", "a\nb", "a\x1b[31mb"],
    ("CommandCheck", "argv"): [LONG, "\udcff", "a\nb", "a\x1b[31mb"],
    ("store.encode_name", "name"): ["a\nb", "a\x1b[31mb"],
    ("store.Prefixed", "prefix"): [""],
    ("store.commit", "within"): [math.inf, -math.inf, -1, 10**400, 10.0**12],
    ("store.settle", "within"): [math.inf, -math.inf, -1, 10**400, 10.0**12],
    ("testing.World", "seed"): [-1, 10**30],
    ("testing.SimulatedBucket", "clock_offset"): [-1],
}
"""Right, for these: a priority may be below the usual one, a resource be called so, a program be given any words, a
name be made a part of a key, the time for a write be over already or without end, a simulated clock be behind."""


def _opened() -> Any:
    return SimpleNamespace(store=MemoryStore())


VIA: dict[str, Any] = {
    "QueueSettings": lambda **given: S3QueuePlugin("pages", **given),
    "CounterSettings": lambda **given: EventualConsistencyPlugin("pages", ["views"], **given),
    "TTLSettings": lambda **given: TTLPlugin("pages", **({"ttl": 5.0} if "field" not in given else {}) | given),
    "read_jobs": lambda **given: read_jobs(_opened(), **given),
    "read_results": lambda **given: read_results(_opened(), **given),
}
"""Settings are checked by the plugin that they are given to, by their names; what reads needs a store that is open."""


def public() -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for module in MODULES:
        home = importlib.import_module(module)
        for name in home.__all__:
            found = getattr(home, name)
            if id(found) in seen or name in GIVEN_BACK or not callable(found):
                continue
            seen.add(id(found))
            if inspect.isclass(found) and issubclass(found, BaseException | enum.Enum):
                continue
            yield name, found
    for part in FURTHER:
        home = importlib.import_module(f"tenure.{part}")
        for name in home.__all__:
            found = getattr(home, name)
            if id(found) in seen or name in GIVEN_BACK_FURTHER.get(part, ()) or not callable(found):
                continue
            if inspect.isclass(found) and issubclass(found, BaseException | enum.Enum):
                continue
            if isinstance(found, types.UnionType):
                continue
            seen.add(id(found))
            yield f"{part}.{name}", found


PUBLIC = dict(public())


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    return {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in HANDED_IN and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }


def annotation(parameter: inspect.Parameter) -> str:
    given = parameter.annotation
    text = given if isinstance(given, str) else given.__name__ if isinstance(given, type) else str(given)
    return text.replace("typing.", "").replace("'", "")


def wrong_values(parameter: inspect.Parameter) -> list[Any]:
    text = annotation(parameter)
    optional = text.endswith("| None") or parameter.default is None
    for pattern, values in KINDS:
        if re.fullmatch(pattern, text):
            return [value for value in values if value is not None] + ([] if optional else [None])
    values = CHOICE if isinstance(parameter.default, enum.Enum) else OBJECT
    return values if optional else [*values, None]


def right_values(function: Any, but: Iterable[str] = ()) -> dict[str, Any]:
    found = {}
    for name, parameter in parameters(function).items():
        if name in but:
            continue
        if parameter.default is inspect.Parameter.empty and parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
            value = RIGHT[name]
            found[name] = value() if callable(value) and not inspect.isclass(value) else value
    return found


def call(owner: str, name: str, value: Any) -> Any:
    function = PUBLIC[owner]
    if owner in VIA:
        return VIA[owner](**{name: value})
    given = ALSO.get(owner, {}) | INSTEAD.get((owner, name), {})
    given = right_values(function, but=given) | given
    spread: tuple[Any, ...] = ()
    for each, parameter in parameters(function).items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            spread = (value,) if each == name else ("true",)
        elif each == name:
            given[each] = value
    if "store" in inspect.signature(function).parameters:
        given["store"] = MemoryStore()
    if "random" in inspect.signature(function).parameters:
        given["random"] = Random(1)
    return function(*spread, **given)


CONSTRUCTED = [
    pytest.param(name, each, id=f"{name}.{each}")
    for name, found in PUBLIC.items()
    for each in parameters(found)
    if (name, each) not in NOT_TRIED and (name, "*") not in NOT_TRIED
]


def complaint(error: BaseException | None, name: str, value: Any) -> str | None:
    """What is wrong with how it was refused; `None`: nothing."""
    if error is None:
        return "taken"
    if not isinstance(error, TenureError):
        return f"{type(error).__name__}: {str(error)[:120]}"
    text = str(error)
    if not any(alias in text for alias in (name, name.replace("_", " "), *ALIASES.get(name, ()))):
        return f"does not name it: {text[:200]}"
    if len(text) > LONGEST_SENTENCE:
        return f"{len(text)} characters long"
    if not text.isprintable():
        return f"not printable: {text[:80]!r}"
    return None


ALIASES = {
    "argv": ("command", "argument"),
    "connection_string": ("store URL", "the URL"),
    "runs": ("child",),
    "namespace": ("name of the supervisor",),
    "text": ("cron",),
    "period": ("every",),
    "when": ("at is",),
    "url": ("store URL",),
}


def test_what_is_not_tried_is_there() -> None:
    assert {owner for owner, _ in (*NOT_TRIED, *FINE)} | set(VIA) <= set(PUBLIC)
    for owner, name in (*NOT_TRIED, *FINE):
        assert name == "*" or name in parameters(PUBLIC[owner])
    assert {each for module in MODULES for each in importlib.import_module(module).__all__} >= GIVEN_BACK
    for part, names in GIVEN_BACK_FURTHER.items():
        assert set(importlib.import_module(f"tenure.{part}").__all__) >= names
    assert len(CONSTRUCTED) > 220


@pytest.mark.parametrize(("owner", "name"), CONSTRUCTED)
def test_what_it_cannot_be_is_refused_by_name(owner: str, name: str) -> None:
    function = PUBLIC[owner]
    complaints = []
    for value in wrong_values(parameters(function)[name]):
        if any(value is each or value == each for each in FINE.get((owner, name), ())):
            continue
        error: BaseException | None = None
        try:
            made = call(owner, name, value)
            if inspect.iscoroutine(made):
                asyncio.run(asyncio.wait_for(made, SECONDS))
        except Exception as raised:
            error = raised
        if found := complaint(error, name, value):
            complaints.append(f"{value!r:.40}: {found}")
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("given", ["odd", b"odd", 5, None, [5], [None], ["odd/"], ["a b"], ["host:80"], [""]])
def test_hosts_that_are_none(given: Any) -> None:
    """A text would be taken for one name for each of its letters."""
    with pytest.raises(ConfigError, match=r"^(allowed_hosts|a host) is "):
        create_app("memory://", allowed_hosts=given)


@pytest.mark.parametrize("given", ["", "no", 0, 1, None])
def test_a_page_that_was_meant_to_be_closed_is_not_open(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^read_needs_token is .*: it must be True or False$"):
        create_app("memory://", token="0123456789abcdef", read_needs_token=given)


def test_a_token_that_is_no_text_is_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"^the token is a bytes: give a text$"):
        create_app("memory://", token=b"secret")  # type: ignore[arg-type]


NO_DOORS = {
    "tenure.cli": "the command: see test_wrong_options.py",
    "tenure.doctor": "behind `tenure doctor`",
    "tenure.plan": "behind `tenure plan`",
    "tenure.database": "its names are given by `tenure`",
    "tenure.entropy": "what tests put in the place of chance",
    "tenure.coordinator": "its names are given by `tenure`, and handed around by its parts",
    "tenure.ledger.": "its names are given by `tenure.ledger`",
    "tenure.plugins.": "its names are given by the plugin's package",
    "tenure.store.": "its names are given by `tenure.store`",
    "tenure.testing.": "its names are given by `tenure.testing`",
    "tenure.blocking.": "its names are given by `tenure.blocking`",
}
"""Modules that say which of their names are for others, by what theirs begins with, and why they are not walked."""


def test_every_module_that_says_what_is_public_in_it_is_walked() -> None:
    root = Path(tenure.__file__).parent
    walked = {*MODULES, *(f"tenure.{part}" for part in FURTHER)}
    found = set()
    for path in root.rglob("*.py"):
        if re.search(r"^__all__\b", path.read_text(), re.MULTILINE):
            parts = path.relative_to(root).with_suffix("").parts
            found.add(".".join(("tenure", *parts)).removesuffix(".__init__"))
    assert found > walked
    assert [name for name in sorted(found - walked) if not name.startswith(tuple(NO_DOORS))] == []
    for start in NO_DOORS:
        assert any(name.startswith(start) for name in found - walked), f"there is no {start} any more"
