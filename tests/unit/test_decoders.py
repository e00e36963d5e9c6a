"""Whatever lies in a bucket, what reads it gives a record or says what is wrong; and every reader is tried."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenure
from lab.decoders import DECODERS, Decoder, bodies, refused
from tenure.clock import SYSTEM_CLOCK
from tenure.election.records import Record

SOURCES = Path(tenure.__file__).parent
PATIENCE = 20.0
"""Seconds, for hundreds of bodies on a machine that is busy: a body that hangs takes for ever."""
NOT_FROM_A_BUCKET = {
    "cli.": "what people type, and its own files",
    "dashboard.app": "requests over HTTP",
    "doctor.bucket": "bytes of its own, as text",
    "demo.": "the demo's own processes and objects",
    "simulate.": "judges of a simulation, which read what was just written",
    "testing.": "broken variants",
    "store.races": "pipes between processes of one program",
    "store.contender": "pipes between processes of one program",
    "store.cloud.bucket": "a dialect that this process found",
    "database.schema": "data that a decoder above has read, and what callers give; misfits are told by name",
    "database.storage:PluginStorage._encoded": "what a caller gives",
    "database.storage:_entry": "the value inside a record, for which `Damaged` is raised",
    "plugins.counters.pages": "bodies whose checksum is in the log",
    "plugins.queue.plugin:S3QueuePlugin.result": "`Damaged` is raised for what is none",
    "plugins.queue.plugin:S3QueuePlugin._start_worker": "the user's schema for messages",
    "plugins.queue.worker:QueueWorker.__init__": "the body of a message, which fails as its handler does",
    "plugins.scheduler.changes": "a change to a job that was decoded",
    "plugins.scheduler.target": "what a caller gives",
    "plugins.supervisor.static": "as `_write_ids`, which is tried, with the same errors caught",
    "plugins.supervisor.status": "inside a fenced object",
    "plugins.ttl.looking": "what is no such record is passed over",
}


@pytest.mark.req("EL-20")
@pytest.mark.parametrize("decoder", DECODERS, ids=lambda each: each.name)
def test_what_is_spoilt_is_refused_by_name(decoder: Decoder) -> None:
    began = SYSTEM_CLOCK.read()
    outcomes = {refused(decoder, body) for body in bodies(decoder, 1, 150)}
    assert outcomes
    assert SYSTEM_CLOCK.read().leader_elapsed(began) < PATIENCE


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda each: each.name)
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(body=st.binary(max_size=300) | st.text(alphabet='{}[]":,01e-\\ntu\n', max_size=120).map(str.encode))
def test_no_bytes_make_it_fall_over(decoder: Decoder, body: bytes) -> None:
    refused(decoder, body)


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda each: each.name)
def test_nothing_is_nested_too_deeply_or_too_long(decoder: Decoder) -> None:
    head = decoder.sample.rstrip()[:-1] or b"{"
    for body in (
        b"[" * 100_000,
        b'{"a":' * 100_000,
        head + b',"z":' + b"[" * 100_000,
        head + b',"z":' + b"9" * 100_000 + b"}",
    ):
        refused(decoder, body)


def _sites() -> Iterator[str]:
    """Every function that decodes by itself: `module:function`, below `tenure`."""
    for path in sorted(SOURCES.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
        tree = ast.parse(path.read_text())
        decoders = {
            target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and "json.Decoder(" in ast.unparse(node.value)
            for each in node.targets
            for target in (each.elts if isinstance(each, ast.Tuple) else [each])
        }
        for name, body in _functions(tree):
            for node in ast.walk(body):
                if isinstance(node, ast.Attribute) and node.attr in ("decode", "convert"):
                    of = ast.unparse(node.value)
                    if of.startswith("msgspec") or of.rpartition(".")[2] in decoders:
                        yield f"{module}:{name}"


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{inner.name}", inner
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def test_every_function_that_decodes_is_tried() -> None:
    covered = {name for decoder in DECODERS for name in decoder.covers}
    sites = set(_sites())
    assert len(sites) > 40, "they are found"
    left = [
        site
        for site in sites
        if site not in covered and not any(site.startswith(prefix) for prefix in NOT_FROM_A_BUCKET)
    ]
    assert sorted(left) == [], "give it a place in lab/decoders.py"
    for prefix in NOT_FROM_A_BUCKET:
        assert any(site.startswith(prefix) for site in sites), f"{prefix} decodes nothing any more"


def test_every_kind_of_record_is_tried() -> None:
    for module in pkgutil.walk_packages([str(SOURCES)], "tenure."):
        if ".simulate" not in module.name and not module.name.endswith(("__main__", "watchdog")):
            importlib.import_module(module.name)
    kinds = [kind for kind in _below(Record) if kind.__module__.startswith("tenure.")]
    assert len(kinds) >= 14
    samples = [decoder.sample for decoder in DECODERS if "election.records:decode" in decoder.covers]
    assert len(samples) >= len(kinds), [kind.__name__ for kind in kinds]


def _below(kind: type[Record]) -> Iterator[type[Record]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)
