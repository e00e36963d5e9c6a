"""`tenure watch` beside a fleet: as lines, as JSON, and on a terminal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.process import Child
from tenure.coordinator.layout import STATE, namespace_store, worker_key
from tenure.election.records import State, Worker, encode
from tenure.store import open_store
from tests.acceptance.fleet import fleet, leader_of
from tests.acceptance.test_doctor import files_of
from tests.acceptance.test_status import DEAD, command, plant
from tests.support.command import tenure_process
from tests.support.waiting import eventually

PATIENCE = 60.0


class Watch(Child):
    """The command as a process, its lines read as they come."""

    def changes(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.lines]

    async def until(self, kind: str, times: int = 1, **fields: object) -> dict[str, Any]:
        """The change, once it was told so many times."""

        def found() -> list[dict[str, Any]]:
            assert self.runs, self.report()
            fits = [
                each
                for each in self.changes()
                if each["kind"] == kind and all(each[name] == value for name, value in fields.items())
            ]
            return fits[times - 1 :]

        return (await eventually(found, self.report, pause=0.05))[0]

    def stop(self) -> tuple[int, str]:
        return self.end(signal.SIGINT), self.err


def watching(folder: Path, *arguments: str) -> Watch:
    return Watch([sys.executable, "-m", "tenure", "watch", *arguments], folder)


@pytest.mark.req("OP-1")
@pytest.mark.slow
async def test_what_happens_in_a_fleet_is_told_as_it_happens(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    async with fleet(url, "ada", "ben", min_epoch_duration=0) as coordinators:
        first = await leader_of(coordinators)
        (second,) = {"ada", "ben"} - {first}
        with watching(tmp_path, url, "--json", "--interval", "200ms") as watch:
            begun = await watch.until("watching")
            assert (begun["leader"], begun["epoch"]) == (first, 1)
            await watch.until("renewed", leader=first)
            await coordinators[first].step_down()
            elected = await watch.until("elected", epoch=2)
            assert elected["leader"] == second
            await coordinators[first].stop()
            assert (await watch.until("worker-left"))["worker"] == first
            await coordinators[second].stop()
            await watch.until("stepped-down", leader=None)
            assert watch.stop() == (0, "")
            kinds = [each["kind"] for each in watch.changes()]
            assert kinds.count("watching") == kinds.count("renewed") == 1
            assert next(each["epoch"] for each in watch.changes() if each["kind"] == "elected") == 2


@pytest.mark.slow
async def test_a_leader_that_dies_and_damage_are_told(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    await plant(url, encode(DEAD), workers=("ada",))
    with watching(tmp_path, url, "--json", "--interval", "100ms") as watch:
        lapsed = await watch.until("lapsed")
        assert (lapsed["leader"], lapsed["epoch"]) == (None, 7)
        async with open_store(url) as store:
            inside = namespace_store(store, "default")
            await inside.put(STATE, encode(msgspec.structs.replace(DEAD, write_id="o", leader_write_id="o", epoch=6)))
            assert "rolled back: epoch 6 after epoch 7" in (await watch.until("damaged"))["detail"]
            taken: State = msgspec.structs.replace(
                DEAD, write_id="n", leader_write_id="n", grant_id="h", epoch=8, leader_id="ben", previous_leader="ada"
            )
            await inside.put(STATE, encode(taken))
            assert (await watch.until("elected"))["detail"] == "ben leads, epoch 8, after ada"
            await inside.put(worker_key("zoe"), encode(Worker(write_id="w", worker_id="zoe", uid="u", ordinal=1)))
            assert (await watch.until("worker-joined"))["worker"] == "zoe"
            await inside.delete(STATE)
            await watch.until("lease-gone")
        assert watch.stop() == (0, "")


async def test_lines_for_people_and_an_end_after_a_while(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    await plant(url, encode(DEAD))
    before = {file: Path(file).stat().st_mtime_ns for file in files_of(tmp_path)}
    run = await command("watch", url, "--for", "2s", "--interval", "200ms")
    assert (run.code, run.err) == (0, "")
    first, second = run.out.splitlines()
    assert first.endswith("watching          ada holds the lease of epoch 7; not seen to renew it yet")
    assert "lapsed            ada has not renewed epoch 7" in second
    assert run.seconds >= 2
    assert {file: Path(file).stat().st_mtime_ns for file in files_of(tmp_path)} == before  # nothing was written


def test_a_reader_that_leaves_ends_it_quietly(tmp_path: Path) -> None:
    """Also while nothing happens that could be written."""
    line = f"{sys.executable} -m tenure watch --json {tmp_path.as_uri()} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=PATIENCE)
    first, code = done.stdout.splitlines()
    assert msgspec.json.decode(first)["kind"] == "watching"
    assert (code, done.stderr) == ("0", "")


def test_a_place_that_cannot_be_looked_at_is_an_error(tmp_path: Path) -> None:
    run = tenure_process("watch", (tmp_path / "nothing").as_uri(), "--for", "5s")
    assert (run.code, run.out) == (2, "")
    assert "no directory" in run.err


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_asked_again() -> None:
    url = "s3://bucket/x?endpoint=http://127.0.0.1:9&region=x&access_key_id=a&secret_access_key=hidden"
    run = tenure_process("watch", url, "--for", "6s", "--interval", "100ms", "--json")
    assert (run.code, run.err) == (0, "")
    (change,) = [msgspec.json.decode(line) for line in run.out.splitlines()]
    assert change["kind"] == "store-error"
    assert "hidden" not in run.out


def test_wrong_credentials_are_an_error_at_once(ministack: Any) -> None:
    url = ministack.store_url("no-such-bucket", "x")
    run = tenure_process("watch", url, "--for", "20s")
    assert (run.code, run.out) == (2, "")
    assert "no-such-bucket" in run.err


@pytest.mark.req("OP-1")
async def test_the_live_view_on_a_terminal(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with fleet(url, "ada", "ben") as coordinators:
        leader = await leader_of(coordinators)
        shown, code = await asyncio.to_thread(_on_a_terminal, url, f"{leader} leads")
    assert code == 0
    assert f"{leader} leads" in shown
    assert "s left of 3 s" in shown
    assert "workers: 2 active of 2" in shown
    assert "nothing is written" in shown
    # What changed is left on the terminal when the view has gone.
    assert "watching" in shown.rpartition("\x1b[?1049l")[2]


def _on_a_terminal(url: str, awaited: str) -> tuple[str, int]:
    """What a terminal of 100 by 30 was sent, until Ctrl-C was typed some time after `awaited` was shown."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-m", "tenure", "watch", url, "--interval", "200ms"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
        env=environment,
    )
    os.close(theirs)
    sent = b""
    typed = False
    deadline = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    got = os.read(ours, 65536)
                except OSError:  # the other end was closed
                    break
                if not got:
                    break
                sent += got
            plain = re.sub(r"\x1b\[[0-9;]*m", "", sent.decode(errors="replace"))
            if not typed and awaited in plain and "active of 2" in plain:
                os.write(ours, b"\x03")
                typed = True
        code = process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", sent.decode(errors="replace")), code
