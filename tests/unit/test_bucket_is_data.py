"""What lies in a bucket is data: no part of tenure hands it to an interpreter, a shell, or a page as markup.

The source itself is read, so that a call that is new is found when it is written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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
