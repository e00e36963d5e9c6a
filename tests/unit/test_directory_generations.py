"""A frozen writer that was passed by can change nothing, even if whoever passed it by died on the way."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tenure.store import Applied, Outcome, Rejected, Stored
from tenure.store.directory import DirectoryStore
from tenure.store.directory.disk import Disk
from tenure.store.directory.layout import LOCKS
from tenure.store.directory.locks import StripedLocks, stripe_of


class FreezesAtRename(Disk):
    """Stands still, once, with the lock held and the comparison made."""

    def __init__(self) -> None:
        self.frozen = threading.Event()
        self.thaw = threading.Event()

    def rename(self, source: Path, target: Path) -> None:
        if not self.frozen.is_set():
            self.frozen.set()
            self.thaw.wait(10)
        super().rename(source, target)


async def race_with_a_frozen_writer(root: Path) -> tuple[Outcome, Outcome, bytes]:
    """The frozen writer's outcome, the newcomer's, and what is stored."""
    disk = FreezesAtRename()
    old = DirectoryStore(root, disk=disk)
    created = await old.create("lease", b"v1")
    assert isinstance(created, Applied)
    frozen = asyncio.ensure_future(old.replace("lease", b"frozen", created.version))
    await asyncio.to_thread(disk.frozen.wait, 10)
    # Somebody lost patience, started the next generation, and was killed before it could do anything else.
    (root / LOCKS / f"{stripe_of('lease'):02x}.1").touch()
    newcomer = DirectoryStore(root)
    won = await newcomer.replace("lease", b"newcomer", created.version)
    disk.thaw.set()
    lost = await frozen
    stored = await newcomer.get("lease")
    assert isinstance(stored, Stored)
    await old.aclose()
    await newcomer.aclose()
    return lost, won, stored.body


async def test_a_newcomer_disarms_a_frozen_writer(tmp_path: Path) -> None:
    lost, won, body = await race_with_a_frozen_writer(tmp_path)
    assert isinstance(won, Applied)
    assert isinstance(lost, Rejected)
    assert body == b"newcomer"


async def test_without_disarming_there_are_two_winners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: the test above can fail."""
    monkeypatch.setattr(StripedLocks, "_disarm_earlier_holders", lambda *arguments: None)
    lost, won, body = await race_with_a_frozen_writer(tmp_path)
    assert isinstance(won, Applied)
    assert isinstance(lost, Applied)
    assert body == b"frozen"
