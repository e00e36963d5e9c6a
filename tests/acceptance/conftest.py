"""Commands are often called in the process that runs the tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_orphans_are_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tenure run` takes every child that it has not started for one that a killed watchdog left behind, and ends it.

    That is right in a process of its own. Here it would end the servers of other tests, long after it was called.
    """
    monkeypatch.setattr("tenure.run.session.adopt_orphans", lambda: False)
