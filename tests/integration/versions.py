"""Processes of several versions of tenure at once, and what is asked of them.

A member runs a script that gets the folder of its version, the URL of a store, its name, and what else it is given. It
says things as lines of JSON, and is asked by lines on its input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import zipfile
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import tenure

FIXTURES = Path(__file__).parents[1] / "fixtures"
PRESENT = Path(tenure.__file__).parents[1]
PATIENCE = 90.0

BEATS = '''
import os, time

class Beats:
    """What this process believes, a hundred times a second: lines of kind, number, boot time and name."""

    def __init__(self, folder, name):
        self._file = os.open(os.path.join(folder, name + ".beats"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._name = name

    def note(self, kind, number, holds):
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if holds():  # what holds now held when the clock was read
            os.write(self._file, f"{kind} {number} {now} {self._name}\\n".encode())
'''
"""Part of scripts."""


def unpacked(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


class Member:
    """One process of one version."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self._process = process
        self.name = name
        self.said: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, script: str, version: Path, url: str, name: str, *more: str) -> Member:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, str(version), url, name, *more,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        member = cls(process, name)
        where = await member.until("file")
        assert where["file"].startswith(str(version)), "the other version ran"
        return member

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.said.append(json.loads(line))

    async def until(self, what: str, since: int = 0) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while True:
                for said in self.said[since:]:
                    if what in said:
                        return said
                assert self._process.returncode is None, "it has ended"
                await asyncio.sleep(0.05)

    async def ask(self, what: str, *more: str) -> Any:
        since = len(self.said)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{' '.join((what, *more))}\n".encode())
        return (await self.until(what, since))[what]

    async def until_it_says(self, what: str, wanted: Any, *more: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while (said := await self.ask(what, *more)) != wanted:
                await asyncio.sleep(0.2)
        assert said == wanted

    async def leads(self) -> None:
        await self.until_it_says("leader", self.name)

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(60):
            assert await self._process.wait() == 0
            await self._reading

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


class Stay(NamedTuple):
    """A leadership, a holding or a child's run: from the first to the last time that its process believed in it."""

    number: int
    name: str
    begin_ns: int
    end_ns: int


def stays(lines: Iterable[str], kind: str) -> list[Stay]:
    """Those of one kind, by when they began. Raises `AssertionError` if two were at once, or numbers do not rise."""
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for line in lines:
        what, number, at, name = line.split()
        if what == kind:
            begin, end = found.get((int(number), name), (int(at), int(at)))
            found[int(number), name] = min(begin, int(at)), max(end, int(at))
    ordered = sorted((Stay(*key, *span) for key, span in found.items()), key=lambda stay: stay.begin_ns)
    for one, other in pairwise(ordered):
        assert one.end_ns < other.begin_ns, f"two at once: {one} and {other}"
        assert one.number < other.number, f"numbers do not rise: {one}, then {other}"
    return ordered


def beats(folder: Path) -> Iterator[str]:
    for file in folder.glob("*.beats"):
        yield from (line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n"))
