"""Darwin's full sync, which empties the drive's own cache: for files and for folders, where the file system has it."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from tenure.store.directory.disk import Disk

FULL_SYNC = 51


class Syncs:
    """Notes which kind of sync was asked for; the full one may fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.error = 0

    def fcntl(self, descriptor: int, command: int) -> int:
        assert command == FULL_SYNC
        self.calls.append("full")
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return 0

    def fsync(self, descriptor: int) -> None:
        self.calls.append("plain")


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    syncs = Syncs()
    monkeypatch.setattr("tenure.store.directory.disk._FULL_SYNC", FULL_SYNC)
    monkeypatch.setattr(fcntl, "fcntl", syncs.fcntl)
    monkeypatch.setattr(os, "fsync", syncs.fsync)
    return syncs


def sync_both(root: Path) -> None:
    disk = Disk()
    with disk.open_root(root) as folder:
        descriptor = disk.write_new(folder / "file", b"")
        try:
            disk.sync_file(descriptor)
        finally:
            disk.close(descriptor)
            (root / "file").unlink()
        disk.sync_folder(folder)


def test_folders_are_synced_as_fully_as_files(tmp_path: Path, syncs: Syncs) -> None:
    sync_both(tmp_path)
    assert syncs.calls == ["full", "full"]


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_without_it_is_synced_as_well_as_it_can(number: int, tmp_path: Path, syncs: Syncs) -> None:
    syncs.error = number
    sync_both(tmp_path)
    assert syncs.calls == ["full", "plain", "full", "plain"]


def test_a_full_sync_that_fails_has_failed(tmp_path: Path, syncs: Syncs) -> None:
    syncs.error = errno.EIO
    with pytest.raises(OSError, match="Input/output error"), Disk().open_root(tmp_path) as folder:
        Disk().sync_folder(folder)
    assert syncs.calls == ["full"]
