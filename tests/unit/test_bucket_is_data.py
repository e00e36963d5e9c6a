"""What lies in a bucket is data: no part of tenure hands it to an interpreter, a shell, or a page as markup.

The source itself is read, so that a call that is new is found when it is written.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import CoordinatorConfig, GlobalCoordinatorService
from tenure.cli import status
from tenure.cli.main import run
from tenure.election.records import Damage, encode
from tenure.errors import LedgerDamaged
from tenure.ledger import ledger_store
from tenure.ledger.layout import log_key
from tenure.ledger.records import decode_entry
from tenure.plugins.queue import S3QueuePlugin
from tenure.store import open_store
from tenure.store.memory import MemoryStore
from tests.unit.dashboards import a_lease

SOURCE = Path(__file__).parents[2] / "src" / "tenure"
STATIC = SOURCE / "dashboard" / "static"

CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "asyncio.create_subprocess_shell",
    "asyncio.subprocess.create_subprocess_shell",
    "yaml.load",
    "yaml.unsafe_load",
    "tempfile.mktemp",
}
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "jsonpickle",
    "xml",
    "yaml",
    "pty",
}
STARTS = {"create_subprocess_exec", "subprocess_exec", "Popen", "check_call", "check_output", "CommandProcess"}
IMPORTERS = {
    "__init__.py": "names of its own",
    "cli/main.py": "names of its own",
    "cli/queue_work.py": "HANDLER, from the command line",
    "doctor/bucket.py": "boto3",
    "store/cloud/credentials.py": "libraries of the clouds",
}
"""Where a module is imported by a name that is made at run time, and where that name comes from. None: the bucket."""
SHELLS = {"run/health.py": "--health-cmd, from the command line"}
"""Where a shell is started, and where its line comes from."""
STARTERS = {
    "demo/cast.py": "this Python, and words of its own",
    "plugins/poll/checks.py": "a check of the code of this process",
    "plugins/scheduler/runs.py": "the bucket: only what `Commands` allows, asked on the spot",
    "plugins/scheduler/target.py": "checks the words, and starts nothing",
    "plugins/supervisor/command.py": "whoever makes the `Command`",
    "plugins/supervisor/running.py": "a child of the code of this process",
    "plugins/supervisor/watchdog.py": "its own command line",
    "run/health.py": "--health-cmd, from the command line",
    "run/term.py": "the command line",
    "store/races.py": "this Python, and words of its own",
}
"""Where a program is started, or the words for one are put together at run time, and where they come from."""
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|\bFunction\(|srcdoc|DOMParser"
    r"|createContextualFragment|setHTML|javascript:|import\((?!\s*['\"])|setTimeout\(\s*['\"`]|setInterval\(\s*['\"`]"
)


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def findings(tree: ast.AST) -> Iterator[str]:
    """What has no place here, as `kind: detail`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"module: {each.name}" for each in node.names if each.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in MODULES:
            yield f"module: {node.module}"
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in CALLS:
                yield f"call: {name}"
            if name in ("import_module", "importlib.import_module") and not isinstance(node.args[0], ast.Constant):
                yield "importer: by a name that is made"
            if any(
                each.arg == "shell" and not (isinstance(each.value, ast.Constant) and each.value.value is False)
                for each in node.keywords
            ):
                yield "shell: shell="
            last = name.rpartition(".")[2]
            if re.fullmatch(r"(os\.)?(exec[lv]p?e?|spawn[lv]p?e?|posix_spawnp?)", name) or last in STARTS:
                yield f"starter: {name}"
            if last == "Command" and any(isinstance(each, ast.Starred) for each in node.args):
                yield "starter: words that are made"
            words = [each.value for each in node.args if isinstance(each, ast.Constant)]
            if "-c" in words and any(word in ("sh", "bash", "/bin/sh", "/bin/bash") for word in words):
                yield "shell: -c"


def all_findings() -> set[tuple[str, str]]:
    return {
        (str(path.relative_to(SOURCE)), found)
        for path in SOURCE.rglob("*.py")
        for found in findings(ast.parse(path.read_text()))
    }


def test_nothing_is_run_that_was_read() -> None:
    found = all_findings()
    assert {each for each in found if each[1].startswith(("call:", "module:"))} == set()
    assert {file for file, what in found if what.startswith("importer:")} <= set(IMPORTERS)
    assert {file for file, what in found if what.startswith("shell:")} == set(SHELLS)
    assert {file for file, what in found if what.startswith("starter:")} == set(STARTERS)


def test_a_command_of_the_bucket_is_asked_about_before_it_is_started() -> None:
    """In the one place where words of the bucket become a program, nothing comes before the question."""
    tree = ast.parse((SOURCE / "plugins/scheduler/runs.py").read_text())
    starting = [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.AsyncFunctionDef | ast.FunctionDef)
        and any(isinstance(call, ast.Call) and dotted(call.func) == "CommandProcess" for call in ast.walk(each))
    ]
    assert [each.name for each in starting] == ["_command"]
    asked, started = (
        min(call.lineno for call in ast.walk(starting[0]) if isinstance(call, ast.Call) and dotted(call.func) == name)
        for name in ("self._commands.refusal", "CommandProcess")
    )
    assert asked < started


@pytest.mark.parametrize(
    "line",
    [
        "eval(body)",
        "exec(body)",
        "import pickle",
        "from pickle import loads",
        "import xml.etree.ElementTree",
        "os.system(name)",
        "subprocess.run(name, shell=True)",
        "subprocess.run(name, shell=chosen)",
        "yaml.load(body)",
        "importlib.import_module(record.handler)",
        "Command('sh', '-c', line)",
        "Command(*record.argv)",
        "os.execvp(record.program, words)",
        "subprocess.Popen(words)",
        "await asyncio.create_subprocess_exec(*words)",
        "asyncio.create_subprocess_shell(line)",
    ],
)
def test_what_would_be_found(line: str) -> None:
    assert list(findings(ast.parse(line)))


def test_the_page_shows_text_and_no_markup() -> None:
    scripts = sorted(STATIC.glob("*.js"))
    assert len(scripts) > 5
    for script in scripts:
        assert MARKUP.findall(script.read_text()) == [], script.name
    for page in STATIC.glob("*.html"):
        text = page.read_text()
        # What the policy forbids would not run; it should not be there either.
        assert re.findall(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>", text) == []
        assert re.findall(r"\son\w+\s*=|javascript:|\sstyle\s*=", text) == []
        assert re.findall(r"""(?:src|href)=["'](?:https?:)?//""", text) == []


@pytest.mark.parametrize(
    "line", ["e.innerHTML = name", "new Function(x)", "setTimeout('x')", "import(name)", "eval(x)"]
)
def test_what_would_be_found_in_a_script(line: str) -> None:
    assert MARKUP.search(line)


async def test_the_name_of_a_leader_cannot_forge_a_line_of_a_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tenure.coordinator")
    hostile = "a\n2025-01-01 CRITICAL root all is lost \x1b[2J"
    store = MemoryStore()
    await store.put("plugin=coordinator/namespace=default/state.json", encode(a_lease(hostile, uid="u")))
    service = GlobalCoordinatorService(store, config=CoordinatorConfig(worker_id="me", startup_jitter_max=0))
    await service.start()
    try:
        async with asyncio.timeout(20):
            while not [record for record in caplog.records if "as seen here" in record.getMessage()]:
                await asyncio.sleep(0.05)
    finally:
        await service.stop()
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_a_stack_trace_shows_bytes_of_the_bucket_without_what_a_terminal_acts_upon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plant() -> None:
        async with open_store(tmp_path.as_uri()) as store:
            body = b'{"tenure":"\\u001b]0;pwned\\u0007\\u001b[2J","schemaVersion":1}'
            await ledger_store(store, S3QueuePlugin.slug, "q").put(log_key(1), body)

    asyncio.run(plant())
    monkeypatch.setenv("TENURE_DEBUG", "1")
    assert run(["queue", "stats", tmp_path.as_uri(), "q"]) == 2
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert "pwned" in told
    assert all(line.isprintable() for line in told.split("\n"))


def test_a_stack_trace_shows_no_secret_and_no_escape_of_an_exception(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise LedgerDamaged("https://me:hunter2@example.org says \x1b[2J")

    monkeypatch.setattr(status, "find_status", fail)
    assert run(["--debug", "status", tmp_path.as_uri()]) == 2
    told = capsys.readouterr().err
    trace = told.partition("LedgerDamaged: ")[2].partition("\n")[0]
    assert "says \\x1b[2J" in trace
    assert "hunter2" not in trace


def test_what_is_said_of_damage_forges_nothing() -> None:
    damage = decode_entry(b'{"tenure":"\\u001b[2J\\u2028","schemaVersion":1}', 1)
    assert isinstance(damage, Damage)
    assert "[2J" in damage.reason
    assert damage.reason.isprintable()
