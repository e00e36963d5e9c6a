"""Whatever lies in a bucket, what reads it gives a record or says what is wrong; and every reader is tried."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenure
from lab.decoders import DECODERS, REFUSALS, Decoder, bodies, refused
from tenure.clock import SYSTEM_CLOCK
from tenure.election.records import Damage, Record

SOURCES = Path(tenure.__file__).parent
FORGED = rb'"a\u001b[31m\nb"'
PARTS = re.compile(rb'(?<=[:\[,{])("[^"\\]*":?|-?[\d.]+|true|false|null|\{|\[)')
PATIENCE = 20.0
"""Seconds, for hundreds of bodies on a machine that is busy: a body that hangs takes for ever."""
NOT_FROM_A_BUCKET = {
    "cli.": "what people type, and its own files",
    "dashboard.app": "requests over HTTP",
    "demo.": "the demo's own processes and objects",
    "simulate.": "judges of a simulation, which read what was just written",
    "testing.": "broken variants",
    "store.races": "pipes between processes of one program",
    "store.contender": "pipes between processes of one program",
    "database.roundtrip": "what a caller gives",
    "database.schema": "data that a decoder above has read, and what callers give; misfits are told by name",
}
"""Modules that read no bucket. All of a module's functions are meant, also those to come."""
READ_OTHERWISE = {
    "database.storage:PluginStorage._encoded": "what a caller gives",
    "database.storage:_entry": "the value inside a record, for which `Damaged` is raised",
    "doctor.bucket:notes_on": "bytes of its own, as text",
    "plugins.queue.plugin:S3QueuePlugin._start_worker": "the user's schema for messages",
    "plugins.queue.worker:QueueWorker.__init__": "the body of a message, which fails as its handler does",
    "plugins.scheduler.changes:changed_job": "a change to a job that was decoded",
    "plugins.scheduler.target:_json": "what a caller gives",
    "store.cloud.bucket:BucketStore.adopt": "a dialect that this process found",
}
"""Functions, one by one, of modules that may read a bucket: another one in the same module is to be tried."""


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda each: each.name)
def test_what_is_sound_is_accepted(decoder: Decoder) -> None:
    """Else what is spoilt of it says nothing: it would stop at the first check."""
    assert not refused(decoder, decoder.sample)


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda each: each.name)
def test_what_is_spoilt_is_refused_by_name(decoder: Decoder) -> None:
    """And some of it is not, so that what comes after the first check is reached as well."""
    began = SYSTEM_CLOCK.read()
    outcomes = {refused(decoder, body) for body in bodies(decoder, 1, 150)}
    assert outcomes == ({False, True} if decoder.refuses else {False})
    assert SYSTEM_CLOCK.read().leader_elapsed(began) < PATIENCE


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda each: each.name)
def test_what_is_told_of_it_forges_no_line(decoder: Decoder, caplog: pytest.LogCaptureFixture) -> None:
    """What should not be there is quoted, in logs and on terminals: an end of line, or an escape, is told as such."""
    for place in PARTS.finditer(decoder.sample):
        colon = b":" if place[0].endswith(b":") else b""
        body = decoder.sample[: place.start()] + FORGED + colon + decoder.sample[place.end() :]
        try:
            found = decoder.read(body)
        except REFUSALS as error:
            said = str(error)
        else:
            said = found.reason if isinstance(found, Damage) else found if isinstance(found, str) else ""
        assert decoder.name == "body of a message" or said.isprintable(), said
    assert all(record.getMessage().isprintable() for record in caplog.records)


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
        if site not in covered | READ_OTHERWISE.keys()
        and not any(site.startswith(prefix) for prefix in NOT_FROM_A_BUCKET)
    ]
    assert sorted(left) == [], "give it a place in lab/decoders.py"
    for prefix in NOT_FROM_A_BUCKET:
        assert any(site.startswith(prefix) for site in sites), f"{prefix} decodes nothing any more"
    assert READ_OTHERWISE.keys() <= sites


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
