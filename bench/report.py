"""Makes docs/benchmarks.md and its pictures from bench/results: no number on that page is written by hand.

python -m bench.report            # write them
python -m bench.report --check    # exit with 1 if they are not what the results say
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.machine import RESULTS
from bench.pages import Page

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = DOCS / "pictures"
NAMES = (
    *("coordination", "failover", "scale", "queue", "counters", "scheduler", "ttl", "store", "idle", "dashboard"),
    "profile",
)
"""In the order of the page; those without results are left out."""
_INTRODUCTION = """\
# Benchmarks

`make bench` measures all of this again, `make bench-NAME` one part of it. Everything runs on one machine, peers beside
us in the same run, with the settings that their documentation gives as the best; **ratios are the result**, absolute
figures are context that another machine will change. Raw samples, versions and settings are in `bench/results/`. This
page is made from them (`python -m bench.report`): no number on it is written by hand.
"""


def pages() -> dict[str, tuple[Page, dict[str, Any]]]:
    found = {}
    for name in NAMES:
        path = RESULTS / f"{name}.json"
        if path.exists():
            result = json.loads(path.read_text())
            found[name] = (import_module(f"bench.pages.{name}").page(result), result)
    return found


def files() -> dict[Path, str]:
    """What is to be written, by path."""
    parts = [_INTRODUCTION]
    written = {}
    for name, (page, result) in pages().items():
        text = page.text.strip()
        for picture, svg in page.pictures.items():
            file = PICTURES / f"bench-{picture}.svg"
            written[file] = svg
            text = text.replace("{{" + picture + "}}", f"![{_spoken(svg)}](pictures/{file.name})")
        machine = result["machine"]
        parts.append(
            f"## {page.title}\n\n{text}\n\n`make bench-{name}`, {machine['measured_at'][:10]}: "
            f"{machine['cores']} cores, {machine['memory_gib']:.0f} GiB, {machine['system'].split()[0]}, "
            f"Python {machine['python']}.\n"
        )
    written[DOCS / "benchmarks.md"] = "\n".join(parts)
    return written


def _spoken(svg: str) -> str:
    return svg.partition("aria-label='")[2].partition("'")[0].replace("&apos;", "'")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if something would change")
    check = parser.parse_args().check
    stale = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path.relative_to(DOCS.parent)}")
        if not check:
            path.write_text(files()[path])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
