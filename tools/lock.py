"""Write requirements-ci.txt: what CI installs, each file by version and hash, from a report of pip.

    python -m pip install --dry-run --ignore-installed --report report.json -e '.[dev]'
    python tools/lock.py report.json > requirements-ci.txt

The hashes are of the files that pip chose, for the Python and the platform that it ran on: elsewhere pip would choose
others, and refuse them. So the file is for CI alone (`make venv LOCKED=1`), and names what it is for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def lines(report: dict[str, Any]) -> list[str]:
    found = []
    for each in report["install"]:
        if each.get("download_info", {}).get("dir_info") is not None:
            continue  # tenure itself
        name, version = each["metadata"]["name"].lower().replace("_", "-"), each["metadata"]["version"]
        digest = each["download_info"]["archive_info"]["hashes"]["sha256"]
        found.append(f"{name}=={version} --hash=sha256:{digest}")
    return sorted(found)


def main() -> None:
    report = json.loads(Path(sys.argv[1]).read_text())
    around = report["environment"]
    platform = f"{around['sys_platform']} {around['platform_machine']}"
    print(f"# CPython {around['python_version']} on {platform}; made by tools/lock.py")
    print("\n".join(lines(report)))


if __name__ == "__main__":
    main()
