"""Servers that are shared: started once, when they are first asked for, and stopped at the end."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab.sharing import NotServed, SharedServers, ask


class Started:
    """What became of two servers, one of which cannot start."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.may_start = threading.Event()
        self.may_start.set()
        self.shared = SharedServers({"good": self.good, "bad": self.bad, "unused": self.good})

    @contextlib.contextmanager
    def good(self) -> Iterator[str]:
        self.may_start.wait(60)
        self.events.append("started")
        yield "http://here"
        self.events.append("stopped")

    @contextlib.contextmanager
    def bad(self) -> Iterator[str]:
        self.events.append("failed")
        raise RuntimeError("it is not installed")
        yield ""


@pytest.fixture
def started() -> Iterator[Started]:
    started = Started()
    yield started
    started.may_start.set()
    started.shared.stop()


def test_many_that_ask_at_once_get_one_server(started: Started) -> None:
    started.may_start.clear()
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(ask, started.shared.address, "good") for _ in range(8)]
        started.may_start.set()
        assert [each.result() for each in asked] == ["http://here"] * 8
    assert started.events == ["started"]
    started.shared.stop()
    assert started.events == ["started", "stopped"]


def test_what_nobody_asks_for_is_not_started(started: Started) -> None:
    started.shared.stop()
    assert started.events == []


def test_each_that_asks_hears_why_a_server_did_not_start(started: Started) -> None:
    for _ in range(2):
        with pytest.raises(NotServed, match="it is not installed"):
            ask(started.shared.address, "bad")
    assert started.events == ["failed"], "it is not tried again for each test"
    assert ask(started.shared.address, "good") == "http://here"


def test_a_process_that_is_killed_while_it_asks_harms_nobody(started: Started) -> None:
    started.may_start.clear()
    process = multiprocessing.get_context("spawn").Process(target=ask, args=(started.shared.address, "good"))
    process.start()
    process.kill()
    process.join()
    started.may_start.set()
    assert ask(started.shared.address, "good") == "http://here"
    assert started.events == ["started"]
