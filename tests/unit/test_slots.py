"""So many at a time: a place is free again when its block ends, or its process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from pathlib import Path

from lab.slots import slot

HOLDER = "import sys; from pathlib import Path; from lab.slots import slot\n"
HOLDER += "with slot(Path(sys.argv[1]), 1): print('held', flush=True); sys.stdin.read()"
ROOT = Path(__file__).resolve().parents[2]


def test_a_place_is_free_again_when_its_block_ends(tmp_path: Path) -> None:
    with slot(tmp_path, 2) as first, slot(tmp_path, 2) as second:
        assert {first, second} == {0, 1}
    with contextlib.suppress(ZeroDivisionError), slot(tmp_path, 1):
        raise ZeroDivisionError
    with slot(tmp_path, 1) as again:
        assert again == 0


def test_more_than_there_are_places_wait(tmp_path: Path) -> None:
    had = threading.Event()

    def wait() -> None:
        with slot(tmp_path, 1, pause=0.001):
            had.set()

    waiting = threading.Thread(target=wait)
    with slot(tmp_path, 1):
        waiting.start()
        assert not had.wait(0.05)
    waiting.join(60)
    assert had.is_set()


def test_a_process_that_is_killed_leaves_its_place(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
        holder.wait()
        with slot(tmp_path, 1) as number:
            assert number == 0
