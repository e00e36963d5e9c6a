"""Write requirements-ci.txt: what CI installs, each file by version and hash, from a report of pip.

    python -m pip install --dry-run --ignore-installed --report report.json -e '.[dev]'
    python tools/lock.py report.json > requirements-ci.txt
    python tools/lock.py fits        # is that file for this Python on this platform?

The hashes are of the files that pip chose, for the Python and the platform that it ran on: elsewhere pip would choose
others, and refuse them. So the file is for CI alone (`make venv LOCKED=1`), and names what it is for.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements-ci.txt"


def lines(report: dict[str, Any]) -> list[str]:
    found = []
    for each in report["install"]:
        if each.get("download_info", {}).get("dir_info") is not None:
            continue  # tenure itself
        name, version = each["metadata"]["name"].lower().replace("_", "-"), each["metadata"]["version"]
        digest = each["download_info"]["archive_info"]["hashes"]["sha256"]
        found.append(f"{name}=={version} --hash=sha256:{digest}")
    return sorted(found)


def title(python: str, system: str, machine: str) -> str:
    """The first line: what the file is for."""
    return f"# CPython {python} on {system} {machine}; made by tools/lock.py"


def own_title() -> str:
    """As it would be of a file that is made here."""
    return title(".".join(platform.python_version_tuple()[:2]), sys.platform, platform.machine())


def main() -> None:
    if sys.argv[1:] == ["fits"]:
        with LOCK.open() as lock:
            first = lock.readline().strip()
        if first != own_title():
            sys.exit(f"{LOCK.name} is {first[2:].partition(';')[0]}, and this is not: what is installed is not pinned")
        return
    report = json.loads(Path(sys.argv[1]).read_text())
    around = report["environment"]
    print(title(around["python_version"], around["sys_platform"], around["platform_machine"]))
    print("\n".join(lines(report)))


if __name__ == "__main__":
    main()
