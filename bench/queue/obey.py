"""A process that is told what to do on its standard input, a line of JSON each, and answers the same way.

The orchestrator's half is `Node`; the other half, for producers that are plain functions, is `obey`. Nothing but
Python is needed, since peers run in an environment of their own.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.queue.marks import Marks
from lab.process import die_with_parent

ROOT = Path(__file__).parents[2]
MOST_BEHIND = 10.0
"""Seconds by which a producer may lag behind its pace before it gives up."""


class Node:
    """A process that obeys."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, **(env or {})},
                preexec_fn=die_with_parent,
            )
        self._answers = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, **order: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next line that it writes."""
        output = self.process.stdout
        assert output is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while True:
                line, ended, rest = self._answers.partition(b"\n")
                if ended:
                    self._answers = rest
                    if line.startswith(b'{"'):
                        answer: dict[str, Any] = json.loads(line)
                        return answer
                    with self.log.open("ab") as log:  # some libraries write their complaints there
                        log.write(line + b"\n")
                    continue
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise TimeoutError(f"no answer within {seconds:g} s; {self._tail()}")
                read = os.read(output.fileno(), 65536)
                if not read:
                    raise RuntimeError(f"a process of the benchmark ended; {self._tail()}")
                self._answers += read

    def ask(self, within: float = 30.0, /, **order: Any) -> dict[str, Any]:
        self.tell(**order)
        return self.answer(within)

    def end(self, seconds: float = 15.0) -> None:
        """Close its input, and give it time to wind up."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(seconds)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _tail(self) -> str:
        return f"its log ends with:\n{self.log.read_text(errors='replace')[-3000:]}"


def say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def obey(send: Callable[[int], Any], many: Callable[[Sequence[int]], Any], marks: Marks, batch: int) -> None:
    """Serve a producer that is made of two plain functions, until the input ends."""
    say(ready=True)
    for line in sys.stdin:
        order = json.loads(line)
        first = order["first"]
        began = time.monotonic()
        if order["do"] == "many":
            numbers = range(first, first + order["count"])
            for start in range(0, len(numbers), batch):
                many(numbers[start : start + batch])
            say(began=began, ended=time.monotonic(), count=order["count"])
        elif order["do"] == "singles":
            count = 0
            while count < order["count"] and time.monotonic() - began < order["seconds"]:
                send(first + count)
                count += 1
            say(began=began, ended=time.monotonic(), count=count)
        elif order["do"] == "paced":
            count = 0
            for number in range(order["count"]):
                due = began + number / order["rate"]
                if time.monotonic() - due > MOST_BEHIND:
                    break
                time.sleep(max(0.0, due - time.monotonic()))
                marks.sent[first + number] = due
                send(first + number)
                count += 1
            say(began=began, ended=time.monotonic(), count=count)
