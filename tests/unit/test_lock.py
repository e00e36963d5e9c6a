"""requirements-ci.txt: everything that is installed for development, each by version and hash, and no address in it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tools.lock import lines

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"([a-z0-9.\-]+)==([0-9][A-Za-z0-9.+!]*) --hash=sha256:[0-9a-f]{64}")


def locked() -> dict[str, str]:
    first, *rest = (ROOT / "requirements-ci.txt").read_text().splitlines()
    assert re.fullmatch(r"# CPython 3\.\d+ on linux \S+; made by tools/lock\.py", first)
    found = [LINE.fullmatch(line) for line in rest]
    assert all(found)
    return {each[1]: each[2] for each in found if each is not None}


def test_every_dependency_is_in_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["dev"]]
    for extra in re.findall(r"\w+", re.search(r"\[(.*)\]", extras["dev"][0])[1]):  # type: ignore[index]
        wanted += extras[extra]
    names = {re.split(r"[<>=\[ ]", each, maxsplit=1)[0].lower() for each in wanted} - {"tenure"}
    assert len(names) > 20
    assert names - locked().keys() == set()


def test_a_line_is_name_version_and_hash() -> None:
    file = {"archive_info": {"hashes": {"sha256": "0" * 64}}, "url": "elsewhere"}
    report = {
        "install": [
            {"metadata": {"name": "My_Package", "version": "1.0"}, "download_info": file},
            {"metadata": {"name": "tenure", "version": "0"}, "download_info": {"dir_info": {"editable": True}}},
        ]
    }
    assert lines(report) == [f"my-package==1.0 --hash=sha256:{'0' * 64}"]
