"""The processes of the demo, seen from outside: started, stopped, killed, and listened to."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import signal
import sys
from bisect import bisect_right

import msgspec

from tenure.clock import Clock
from tenure.demo.candidate import CLOSE_THE_SHOP, Part
from tenure.demo.lines import Deed, Fire, Handling, Line, Order, Outcome, Report, Till
from tenure.store.url import redact

_MAX_COMPLAINT = 2000
_LINE: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class State(enum.Enum):
    ABSENT = "not there"
    STARTING = "starting"
    LEADING = "leading"
    STANDING_BY = "standing by"
    FROZEN = "frozen"
    LEAVING = "leaving"
    LEFT = "left"
    KILLED = "killed"
    DISMISSED = "ended"
    """By the story, when it was over."""
    CRASHED = "crashed"
    """Ended by itself, which none of them should."""


GONE = frozenset({State.LEFT, State.KILLED, State.DISMISSED, State.CRASHED})


class Role:
    """One process as it was seen: everything that it said, and what was done to it. Pure."""

    def __init__(self, name: str, began_ns: int) -> None:
        self.name = name
        self.said: list[Report] = []
        self.deeds: list[Deed] = []
        self.done = 0
        self.refused = 0
        self.orders: list[Order] = []
        self.handlings: list[Handling] = []
        self.fires: list[Fire] = []
        self.tills: list[Till] = []
        self._changes: list[tuple[int, State]] = [(began_ns, State.STARTING)]
        """The state from a time on."""

    def hear(self, said: Line) -> None:
        match said:
            case Report():
                self.said.append(said)
                # What it said before it was frozen or killed may be heard afterwards.
                if self.state in (State.STARTING, State.LEADING, State.STANDING_BY):
                    self.become(State.LEADING if said.leads else State.STANDING_BY, said.boottime_ns)
            case Deed():
                self.deeds.append(said)
                self.done += said.outcome is Outcome.DONE
                self.refused += said.outcome is Outcome.REFUSED
            case Order():
                self.orders.append(said)
            case Handling():
                self.handlings.append(said)
            case Fire():
                self.fires.append(said)
            case Till():
                self.tills.append(said)

    def become(self, state: State, at_ns: int) -> None:
        last_ns, was = self._changes[-1]
        if state is not was:
            self._changes.append((max(at_ns, last_ns), state))

    @property
    def state(self) -> State:
        return self._changes[-1][1]

    def state_at(self, boottime_ns: int) -> State:
        place = bisect_right(self._changes, boottime_ns, key=lambda change: change[0])
        return self._changes[place - 1][1] if place else State.ABSENT

    @property
    def alive(self) -> bool:
        return self.state not in GONE

    @property
    def epoch(self) -> int:
        """Of the leadership that it has; 0 for none."""
        return self.said[-1].epoch if self.state is State.LEADING else 0

    @property
    def last_epoch(self) -> int:
        """Of the last leadership that it had; 0 for none."""
        return next((report.epoch for report in reversed(self.said) if report.leads), 0)

    def first_report_of(self, epoch: int) -> Report:
        return next(report for report in self.said if report.leads and report.epoch == epoch)


class Actor(Role):
    """A process that plays its part."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, clock: Clock, is_heard: bool = True) -> None:
        super().__init__(name, clock.read().boottime_ns)
        self._is_heard = is_heard
        self._process = process
        self._clock = clock
        self._complaint = ""
        self._listening = asyncio.gather(self._listen(), self._listen_to_complaints(), self._await_end())

    @classmethod
    async def start(cls, part: Part, clock: Clock, cast: list[Actor], *, is_heard: bool = True) -> None:
        """It joins `cast` before anything else is awaited: whoever ends the others must know of it.

        Without `is_heard` nothing that it says is kept, so that it can go on for hours.
        """
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tenure.demo.candidate"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C is for the story, which ends its processes itself. Not a session of its own: the system wakes, and
            # hangs up on, what is stopped in a group whose last relative in the session is gone.
            process_group=0,
        )
        cast.append(cls(part.worker, process, clock, is_heard))
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it has ended already, and `complaint` says why
            process.stdin.write(msgspec.json.encode(part) + b"\n")
            await process.stdin.drain()
        process.stdin.close()

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                if self._is_heard and line.endswith(b"\n"):  # else it was cut short by a kill, and says nothing
                    self.hear(_LINE.decode(line))
        except (msgspec.DecodeError, ValueError) as error:  # ValueError: a line without an end
            self._complaint = f"it said what no process of the demo says ({error})"
            self._send(signal.SIGKILL)

    async def _listen_to_complaints(self) -> None:
        assert self._process.stderr is not None
        while text := await self._process.stderr.read(4096):
            self._complaint = (self._complaint + text.decode(errors="replace"))[-_MAX_COMPLAINT:]

    async def _await_end(self) -> None:
        await self._process.wait()
        if self.alive:
            polite = self.state is State.LEAVING and self._process.returncode == 0
            self._become(State.LEFT if polite else State.CRASHED)

    @property
    def last_words(self) -> str:
        """How it ended, and the last line that it wrote to standard error."""
        lines = redact(self._complaint).strip().splitlines()
        return f"code {self._process.returncode}" + (f"; its last words: {lines[-1]}" if lines else "")

    # What is done to it

    def freeze(self) -> None:
        self._send(signal.SIGSTOP)
        self._become(State.FROZEN)

    def thaw(self) -> None:
        self._become(State.STARTING)  # only what it says from here on counts
        self._send(signal.SIGCONT)

    def close_the_shop(self) -> None:
        self._send(CLOSE_THE_SHOP)

    def ask_to_leave(self) -> None:
        self._send(signal.SIGTERM)
        self._become(State.LEAVING)

    def kill(self) -> None:
        self._send(signal.SIGKILL)
        self._become(State.KILLED)

    def dismiss(self) -> None:
        """The story is over, and a process that is frozen would not hear a request to leave."""
        self._send(signal.SIGKILL)
        if self.alive:
            self._become(State.DISMISSED)

    async def ended(self) -> None:
        """Wait for its end, and hear all that it said before."""
        await self._listening

    def _become(self, state: State) -> None:
        self.become(state, self._clock.read().boottime_ns)

    def _send(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)
