"""requirements-ci.txt and tools/servers: everything that is installed for development, each by version and hash, and no
address of where from."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from lab import azurite, s3rver
from tools.lock import lines, own_title, title

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"([a-z0-9.\-]+)==([0-9][A-Za-z0-9.+!]*) --hash=sha256:[0-9a-f]{64}")


def locked() -> dict[str, str]:
    first, *rest = (ROOT / "requirements-ci.txt").read_text().splitlines()
    assert re.fullmatch(r"# CPython 3\.\d+ on linux \S+; made by tools/lock\.py", first)
    found = [LINE.fullmatch(line) for line in rest]
    assert all(found)
    return {each[1]: each[2] for each in found if each is not None}


def wanted() -> list[Requirement]:
    """All that pyproject.toml asks for, for development."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    found = [*project["dependencies"], *extras["dev"]]
    for extra in re.findall(r"\w+", re.search(r"\[(.*)\]", extras["dev"][0])[1]):  # type: ignore[index]
        found += extras[extra]
    requirements = [Requirement(each) for each in found]
    return [each for each in requirements if each.name != "tenure"]


def test_every_dependency_is_in_it() -> None:
    names = {each.name.lower() for each in wanted()}
    assert len(names) > 20
    assert names - locked().keys() == set()


def test_every_version_in_it_is_one_that_is_asked_for() -> None:
    """Otherwise pip would install another in its place, whose hash nobody has checked."""
    versions = locked()
    assert [str(each) for each in wanted() if not each.specifier.contains(versions[each.name.lower()])] == []


def test_ci_installs_it_where_it_fits_and_says_so_where_it_does_not(tmp_path: Path) -> None:
    assert 'LOCKED="$("${PYTHON:-python3}" tools/lock.py fits && echo 1)"' in (ROOT / ".ci" / "run").read_text()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "lock.py").write_text((ROOT / "tools" / "lock.py").read_text())
    for first, code in ((own_title(), 0), (title("2.7", "plan9", "vax"), 1)):
        (tmp_path / "requirements-ci.txt").write_text(first + "\n")
        ran = subprocess.run([sys.executable, "tools/lock.py", "fits"], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == code
        assert ("CPython 2.7 on plan9 vax, and this is not" in ran.stderr) == bool(code)


def test_a_line_is_name_version_and_hash() -> None:
    file = {"archive_info": {"hashes": {"sha256": "0" * 64}}, "url": "elsewhere"}
    report = {
        "install": [
            {"metadata": {"name": "My_Package", "version": "1.0"}, "download_info": file},
            {"metadata": {"name": "tenure", "version": "0"}, "download_info": {"dir_info": {"editable": True}}},
        ]
    }
    assert lines(report) == [f"my-package==1.0 --hash=sha256:{'0' * 64}"]


def test_what_comes_from_npm_is_there_by_version_and_hash() -> None:
    folder = ROOT / "tools" / "servers"
    named = json.loads((folder / "package.json").read_text())["dependencies"]
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert packages.pop("")["dependencies"] == named
    assert {f"node_modules/{name}" for name in named} <= packages.keys()
    for name, version in named.items():
        assert packages[f"node_modules/{name}"]["version"] == version, "it is a range"
    unpinned = [
        name for name, each in packages.items() if not re.fullmatch(r"sha512-[\w+/]{86}==", each.get("integrity", ""))
    ]
    assert unpinned == []
    assert [name for name, each in packages.items() if "resolved" in each] == [], "it names a registry"
    assert "npm ci " in (ROOT / "tools" / "install-servers").read_text()
    for module, name in ((azurite, "azurite"), (s3rver, "s3rver")):
        assert module.INSTALL.endswith(f" {name}@{named[name]}")


def test_holes_are_looked_for_by_one_version_which_says_so_if_it_cannot() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^PIP_AUDIT := \d+\.\d+\.\d+$", makefile, re.MULTILINE)
    assert "pip-audit==$(PIP_AUDIT)" in makefile
    assert "bin/pip-audit --strict " in makefile
