"""`tenure`, with a watchdog that does not keep time: a broken variant, in which a frozen leader's program runs on.

python -m lab.unguarded run URL -- CMD
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tenure.cli import main
from tenure.plugins.supervisor import watchdog

_IN_TIME = "return min(until - now for until, now in zip(self._until, now_ns(), strict=True)) / NANO"

if __name__ == "__main__":
    source = Path(watchdog.__file__).read_text()
    assert source.count(_IN_TIME) == 1
    with tempfile.NamedTemporaryFile("w", suffix="watchdog.py") as broken:
        broken.write(source.replace(_IN_TIME, 'return float("inf")'))
        broken.flush()
        watchdog.__file__ = broken.name
        main()
