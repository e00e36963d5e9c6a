"""A process ends only when the threads of obstore have handed over their last answer."""

from __future__ import annotations

import _thread
import threading

import pytest

from tenure.clock import Reading
from tenure.store.cloud import ending


class Stranger:
    """A thread that Python did not start gives an answer to a loop, and is held up inside it."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.inside = threading.Event()
        self.gone = threading.Event()

        def wake_the_loop() -> None:
            self.inside.set()
            self.go_on.wait(10)

        def call_soon_threadsafe() -> None:
            wake_the_loop()
            self.gone.set()

        _thread.start_new_thread(call_soon_threadsafe, ())
        assert self.inside.wait(10)


def test_a_thread_that_hands_over_is_waited_for() -> None:
    stranger = Stranger()
    assert ending.handing_over() == 1
    threading.Timer(0.05, stranger.go_on.set).start()
    ending.wait_for_answers()
    assert stranger.gone.is_set()
    assert ending.handing_over() == 0


def test_one_that_never_ends_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    class Slow:
        """Each sleep takes far longer than was asked for: the machine is busy."""

        def read(self) -> Reading:
            passed = 500_000_000 * len(slept)
            return Reading(passed, passed, passed, passed)

    monkeypatch.setattr(ending, "SYSTEM_CLOCK", Slow())
    monkeypatch.setattr(ending.time, "sleep", slept.append)
    stranger = Stranger()
    ending.wait_for_answers()
    assert len(slept) == 4
    assert not stranger.gone.is_set()
    stranger.go_on.set()
    assert stranger.gone.wait(10)


def test_other_threads_are_not_waited_for() -> None:
    leave = threading.Event()
    others = threading.Thread(target=leave.wait, args=(10,))
    others.start()
    try:
        assert ending.handing_over() == 0
    finally:
        leave.set()
        others.join()
