"""A leadership and a held lock, asked in unusual places: in a signal handler, and in a forked child."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, TypeVar

import pytest

from tenure.clock import Reading
from tenure.coordinator.breaker import CircuitBreakerStatus
from tenure.coordinator.lead import Lead
from tenure.coordinator.lock import Held
from tenure.coordinator.metrics import Metrics
from tenure.election.holding import Holding
from tenure.errors import LeadershipLost, LockLost
from tenure.store.memory import MemoryStore
from tests.unit.leases import at, numbered

LASTS, HELD_FOR = 10.0, 8.0
PATIENCE = 15.0


class Stopped:
    """A clock that stands still."""

    now: Reading = at(0)

    def read(self) -> Reading:
        return self.now

    async def sleep(self, seconds: float) -> None: ...


def a_lead(clock: Stopped) -> Lead:
    return Lead(
        namespace="default",
        worker_id="ada",
        epoch=7,
        grant_id="g7",
        holding=Holding(at(0), LASTS, HELD_FOR),
        clock=clock,
        store=MemoryStore(),
        draw_id=numbered("w"),
    )


def a_held_lock(clock: Stopped) -> Held:
    return Held(name="job", owner="ada", token=7, holding=Holding(at(0), LASTS, HELD_FOR), clock=clock)


class Deadlock(BaseException):
    """The handler waits for the code that it interrupted, which waits for the handler."""


def _give_up(*_: object) -> None:
    raise Deadlock


@contextmanager
def interrupted_at_each_line(file: str, ask: Callable[[], object]) -> Iterator[list[str]]:
    """A real signal arrives before each line of `file` that the body executes; its handler calls `ask`."""
    lines: list[str] = []
    interesting: dict[CodeType, bool] = {}

    def on_line(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            lines.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
            signal.raise_signal(signal.SIGUSR1)
        return on_line

    def on_call(frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if code not in interesting:
            interesting[code] = code.co_filename.endswith(file)
        return on_line if interesting[code] else None

    tracer = sys.gettrace()
    handlers = {
        signal.SIGUSR1: signal.signal(signal.SIGUSR1, lambda *_: ask()),
        signal.SIGALRM: signal.signal(signal.SIGALRM, _give_up),
    }
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    sys.settrace(on_call)
    try:
        yield lines
    finally:
        sys.settrace(tracer)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_a_deadlock_in_a_handler_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests below could only hang, or prove nothing."""
    held = a_held_lock(Stopped())
    monkeypatch.setattr(held, "_lock", threading.Lock())
    monkeypatch.setattr(sys.modules[__name__], "PATIENCE", 0.2)
    with pytest.raises(Deadlock), interrupted_at_each_line("lock/held.py", held.is_held):
        held.is_held()


HELD_CALLS: dict[str, Callable[[Held], object]] = {
    "is_held": Held.is_held,
    "remaining": Held.remaining,
    "time_to_wind_up": Held.time_to_wind_up,
    "ensure": Held.ensure,
    "sending": lambda held: held.sending(at(1), LASTS),
    "a release is sent": lambda held: held.sending(at(1), 0.0),
    "confirmed": lambda held: held.confirmed(at(0), LASTS, HELD_FOR),
    "end": lambda held: held.end("taken"),
    "on_loss": lambda held: held.on_loss(lambda: None),
    "lost": Held.lost,
}


def is_good(handle: Held | Lead) -> bool:
    return handle.is_held() if isinstance(handle, Held) else handle.is_current()


def ask_all(handle: Held | Lead) -> None:
    good, left = is_good(handle), handle.remaining()
    assert good == (left > 0)
    assert handle.time_to_wind_up() >= left
    try:
        handle.ensure()
    except (LockLost, LeadershipLost):
        assert not good
    assert repr(handle)
    assert good == (handle.ended is None)
    if isinstance(handle, Held):
        handle.on_loss(lambda: None)
    else:
        assert handle.holds()


Handle = TypeVar("Handle", Held, Lead)


def interrupt(handle: Handle, call: Callable[[Handle], object], file: str) -> None:
    with interrupted_at_each_line(file, lambda: ask_all(handle)) as lines:
        call(handle)
    assert len(lines) >= 2


def is_over_for_good(make: Callable[[Stopped], Held | Lead], reason: str) -> None:
    """Its deadline was seen to pass once: a clock that goes back changes nothing."""
    clock = Stopped()
    handle = make(clock)
    clock.now = at(HELD_FOR)
    assert not is_good(handle)
    clock.now = at(0)
    assert not is_good(handle)
    assert handle.ended == reason


@pytest.mark.req("DB-4")
@pytest.mark.parametrize("interrupted", HELD_CALLS)
def test_a_signal_handler_may_ask_about_a_lock_wherever_it_interrupts(interrupted: str) -> None:
    interrupt(a_held_lock(Stopped()), HELD_CALLS[interrupted], "lock/held.py")


@pytest.mark.req("DB-4")
def test_a_lock_that_ends_while_a_signal_handler_asks_has_ended_for_the_interrupted_code_too() -> None:
    """Its deadline passes between any two lines of a renewal's confirmation: the handler, told first, is told right."""
    for nth in range(1, 20):
        clock, answers, asked = Stopped(), list[bool](), 0
        held = a_held_lock(clock)

        def ask(clock: Stopped = clock, held: Held = held, answers: list[bool] = answers, nth: int = nth) -> None:
            nonlocal asked
            asked += 1
            if asked == nth:
                clock.now = at(HELD_FOR)
                answers.append(held.is_held())
                clock.now = at(0)

        with interrupted_at_each_line("lock/held.py", ask):
            confirmed = held.confirmed(at(0), LASTS, HELD_FOR)
        if asked < nth:
            break
        assert answers[0] == held.is_held()
        assert confirmed or not answers[0]
    else:
        pytest.fail("a confirmation has more lines than were tried")


@pytest.mark.req("DB-4")
def test_each_who_runs_under_a_lock_is_told_of_its_loss_once_whoever_interrupts() -> None:
    told: list[str] = []
    held = a_held_lock(Stopped())
    held.on_loss(lambda: told.append("body"))
    asked = 0

    def ask() -> None:
        nonlocal asked
        asked += 1
        name = f"handler {asked}"
        held.on_loss(lambda: told.append(name))

    with interrupted_at_each_line("lock/held.py", ask):
        held.end("taken")
        held.lost()
    assert sorted(told) == sorted(["body", *(f"handler {n}" for n in range(1, asked + 1))])
    assert not held.has_body


@pytest.mark.req("DB-4")
def test_a_lock_that_was_said_to_be_over_stays_so_whatever_the_clock_says_next() -> None:
    is_over_for_good(a_held_lock, "deadline")


@pytest.mark.req("EL-15")
def test_a_leadership_that_was_said_to_be_over_stays_so_whatever_the_clock_says_next() -> None:
    is_over_for_good(a_lead, "renew-deadline")


LEAD_CALLS: dict[str, Callable[[Lead], object]] = {
    "is_current": Lead.is_current,
    "remaining": Lead.remaining,
    "holds": Lead.holds,
    "time_to_wind_up": Lead.time_to_wind_up,
    "ensure": Lead.ensure,
    "sending": lambda lead: lead.sending(at(1), LASTS),
    "confirmed": lambda lead: lead.confirmed(at(0), LASTS, HELD_FOR),
    "end": lambda lead: lead.end("step-down"),
}


@pytest.mark.req("EL-9")
@pytest.mark.parametrize("interrupted", LEAD_CALLS)
def test_a_signal_handler_may_ask_who_leads_wherever_it_interrupts(interrupted: str) -> None:
    interrupt(a_lead(Stopped()), LEAD_CALLS[interrupted], "coordinator/lead.py")


@pytest.mark.req("EL-9")
def test_a_signal_handler_may_ask_for_metrics_wherever_it_interrupts() -> None:
    metrics = Metrics(10, 0.0)
    breaker = CircuitBreakerStatus("closed", 0, 5, 30.0, 0)

    def ask() -> None:
        metrics.snapshot(breaker=breaker, contention_events=0)
        metrics.latencies()

    with interrupted_at_each_line("coordinator/metrics.py", ask) as lines:
        metrics.heartbeat(0.1, 1.0)
        ask()
    assert len(lines) >= 2
    assert metrics.snapshot(breaker=breaker, contention_events=0).heartbeat_count == 1


FORKED = """
import asyncio, json, os, sys, warnings
warnings.simplefilter("ignore")
from tests.unit.test_handles_anywhere import Stopped, a_held_lock, a_lead

def answer(call, *arguments):
    try:
        result = call(*arguments)
        if asyncio.iscoroutine(result):
            result = asyncio.run(result)
        return result
    except Exception as error:
        return type(error).__name__

def answers(lead, held):
    return {
        "lead.is_current": answer(lead.is_current), "lead.remaining": answer(lead.remaining),
        "lead.holds": answer(lead.holds), "lead.time_to_wind_up": answer(lead.time_to_wind_up),
        "lead.ensure": answer(lead.ensure), "lead.put": answer(lead.put, "k", b""),
        "lead.claim": answer(lead.claim, "k"), "lead.delete": answer(lead.delete, "k"),
        "lead.get": answer(lead.get, "k"),
        "held.is_held": answer(held.is_held), "held.remaining": answer(held.remaining),
        "held.time_to_wind_up": answer(held.time_to_wind_up), "held.ensure": answer(held.ensure),
        "held.renew": answer(held.renew), "held.release": answer(held.release),
    }

lead, held = a_lead(Stopped()), a_held_lock(Stopped())
child = os.fork()
if child == 0:
    print(json.dumps(answers(lead, held)), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(json.dumps([lead.is_current(), lead.holds(), lead.time_to_wind_up(), held.is_held(), held.time_to_wind_up()]))
"""


@pytest.fixture(scope="module")
def forked() -> list[Any]:
    """What handles of the parent answer in a child, and then in the parent. In a program of its own: a test process
    has threads, and forking it makes Python warn."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


NOTHING_IN_A_CHILD = {
    "lead.is_current": False,
    "lead.remaining": 0.0,
    "lead.holds": False,
    "lead.time_to_wind_up": 0.0,
    "lead.ensure": "LeadershipLost",
    "lead.put": "ForkedProcess",
    "lead.claim": "ForkedProcess",
    "lead.delete": "ForkedProcess",
    "lead.get": "ForkedProcess",
    "held.is_held": False,
    "held.remaining": 0.0,
    "held.time_to_wind_up": 0.0,
    "held.ensure": "LockLost",
    "held.renew": "ForkedProcess",
    "held.release": "ForkedProcess",
}


@pytest.mark.req("EL-21")
@pytest.mark.parametrize("asked", [each for each in NOTHING_IN_A_CHILD if each.startswith("lead.")])
def test_a_leadership_does_not_pass_to_a_forked_child(forked: list[Any], asked: str) -> None:
    assert forked[0][asked] == NOTHING_IN_A_CHILD[asked]


@pytest.mark.req("DB-4")
@pytest.mark.parametrize("asked", [each for each in NOTHING_IN_A_CHILD if each.startswith("held.")])
def test_a_held_lock_does_not_pass_to_a_forked_child(forked: list[Any], asked: str) -> None:
    assert forked[0][asked] == NOTHING_IN_A_CHILD[asked]


def test_the_parent_of_a_forked_child_keeps_what_it_has(forked: list[Any]) -> None:
    assert forked[1] == [True, True, LASTS, True, LASTS]
