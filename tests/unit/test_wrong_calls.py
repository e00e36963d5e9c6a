"""Every public method that takes something from users, given what it cannot be: refused by name, nothing written.

Which methods there are is found by walking the classes, and parameters by walking the methods: what is not tried stands
in `INTERNAL` or `NOT_TRIED`, with the reason.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from tenure.database import Database, PluginStorage, Resource
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.scheduler import SchedulerPlugin, every
from tenure.plugins.ttl import TTLPlugin
from tenure.store.metered import Metered

from .test_wrong_values import SECONDS, complaint, parameters, wrong_values

CLASSES = (Database, Resource, PluginStorage, S3QueuePlugin)
INTERNAL = {
    *("attach", "prepare", "new_leading", "lead_term", "compose", "emit", "trace", "guarded_by", "shaped_by", "find"),
    *("amend", "entries", "check_field", "clear_away", "fitting", "keep", "place", "rewrite", "swap", "on_message"),
    "opened_resource",
}
"""What tenure's own parts call."""
NOT_TRIED = {
    "use_plugin": "takes a plugin: see tests/unit/test_front_door.py",
    "on": "names of events: see tests/unit/test_events.py",
    "events": "as on",
    "ensure_coordinator": "needs an election: see tests/simulated/test_plugin.py",
    "validate_epoch": "see tests/unit/test_epoch_fence.py",
    "is_epoch_valid": "as validate_epoch",
    "result": "a queue that keeps none says so first: see tests/unit/test_queue_worker.py",
    "handler": "is given once, and told of at the start: see tests/unit/test_queue_worker.py",
}
NO_TEXT_IS_WRONG = ["a\nb", "a\x1b[31mb"]
FINE = {
    ("enqueue", "priority"): [-1],
    ("enqueue_many", "priority"): [-1],
    ("enqueue", "dedup_key"): NO_TEXT_IS_WRONG,
    ("enqueue", "ordering_key"): NO_TEXT_IS_WRONG,
    ("enqueue_many", "ordering_key"): NO_TEXT_IS_WRONG,
    ("list", "prefix"): ["", *NO_TEXT_IS_WRONG],
    ("insert_many", "ids"): [None],
    ("list", "after"): NO_TEXT_IS_WRONG,
    ("records", "after"): NO_TEXT_IS_WRONG,
    ("exists", "id"): NO_TEXT_IS_WRONG,
    ("get_or_none", "id"): NO_TEXT_IS_WRONG,
    ("insert", "id"): NO_TEXT_IS_WRONG,
}
"""Right, for these: ids and keys of messages and records may be any text, and are encoded."""
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
    "body": {"n": 1},
    "bodies": [{"n": 1}],
    "version": 1,
    "message_id": "a-1-1",
    "schedule": every(60),
    "function": None,
}
ANYTHING = {"kind", "body", "value", "function", "schema", "on_damaged"}
"""Any value, type or function: see the tests of each."""


class Rig:
    """Everything, on one store in memory; nobody leads, so that nothing is written but by a call."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.database = await Database("memory://").connect()
        pages = self.database.resource("pages")
        queue = S3QueuePlugin("jobs", producer_only=True)
        counters = EventualConsistencyPlugin("pages", ["views"], producer_only=True)
        schedule = SchedulerPlugin(takes_part=False)
        ttl = TTLPlugin("sessions", ttl=60.0, takes_part=False)
        self.database.resource("sessions")
        for plugin in (queue, counters, schedule, ttl):
            await self.database.use_plugin(plugin)
        self.of: dict[type, Any] = {
            Database: self.database,
            Resource: pages,
            PluginStorage: self.database.plugin_storage("kept", "things"),
            S3QueuePlugin: queue,
            EventualConsistencyPlugin: counters,
            SchedulerPlugin: schedule,
            TTLPlugin: ttl,
        }

    def written(self) -> set[str]:
        store = self.database._store
        assert isinstance(store, Metered)

        async def listed() -> set[str]:
            return {entry.key async for entry in store.list() if not entry.key.startswith("tenure-")}

        return self.runner.run(listed())

    def call(self, method: Any, given: dict[str, Any]) -> BaseException | None:
        async def made() -> None:
            async with asyncio.timeout(SECONDS / 10):
                found = method(**given)
                if inspect.isawaitable(found):
                    await found
                elif inspect.isasyncgen(found):
                    async for _ in found:
                        break

        try:
            self.runner.run(made())
        except Exception as error:
            return error
        return None

    def close(self) -> None:
        self.runner.run(self.database.disconnect())
        self.runner.close()


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def test_what_is_named_here_is_there() -> None:
    there = {name for owner in CLASSES for name, _ in inspect.getmembers(owner, inspect.isfunction)}
    assert there >= INTERNAL | set(NOT_TRIED) | {name for name, _ in FINE}


def methods() -> Iterator[tuple[type, str, str]]:
    for owner in CLASSES:
        for name, function in inspect.getmembers(owner, inspect.isfunction):
            if name.startswith("_") or name in INTERNAL or name in NOT_TRIED:
                continue
            for each in parameters(function):
                if each not in ("self", *ANYTHING):
                    yield owner, name, each


CASES = [pytest.param(owner, name, each, id=f"{owner.__name__}.{name}.{each}") for owner, name, each in methods()]


@pytest.mark.slow
@pytest.mark.parametrize(("owner", "name", "each"), CASES)
def test_a_call_that_cannot_be_is_refused(rig: Rig, owner: type, name: str, each: str) -> None:
    function = getattr(owner, name)
    found = parameters(function)
    right = {
        key: RIGHT[key]
        for key, parameter in found.items()
        if key != "self"
        and parameter.default is inspect.Parameter.empty
        and parameter.kind is not inspect.Parameter.VAR_POSITIONAL
    }
    before = rig.written()
    complaints = []
    fine = FINE.get((name, each), [])
    for value in wrong_values(found[each]):
        if any(value is one or value == one for one in fine):
            continue
        if found[each].kind is inspect.Parameter.VAR_POSITIONAL:
            bound = getattr(rig.of[owner], name)
            error = rig.call(lambda bound=bound, value=value: bound(value), {})
        else:
            error = rig.call(getattr(rig.of[owner], name), right | {each: value})
        what = complaint(error, each, value)
        # Of what is looked up it is enough to say which was not found; and a part of a key is a name.
        said = str(error)
        shows = (
            f"{value!r}"[:20] in said or "name '" in said or "record" in said or "key is" in said or "keys is" in said
        )
        if what is not None and not (what.startswith("does not name it") and shows):
            complaints.append(f"{value!r:.40}: {what}")
    written = sorted(rig.written() - before)
    assert not complaints and not written, "\n".join([*complaints, *written])
