"""Run the real `tenure` command and look at what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str
    seconds: float

    def json(self) -> Any:
        return json.loads(self.out)


def tenure(*arguments: str, timeout: float = 120, **environment: str) -> Run:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tenure", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    run = Run(done.returncode, done.stdout, done.stderr, time.monotonic() - started)
    assert "Traceback" not in run.out + run.err, run.err
    return run
