"""Where the processes of a run have their store, and what may be done to it as a whole."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from lab.buckets import make_bucket
from lab.ceph import Ceph
from lab.endpoint import S3Endpoint
from lab.fault_proxy import FaultProxy
from lab.ministack import Ministack
from lab.process import refuses

BUCKET = "chaos"
DISK_BYTES = 512 * 2**20
_KEPT = 1000
"""Requests that a proxy keeps: a long run has hundreds of thousands."""


class Site(Protocol):
    name: str
    proxies: list[FaultProxy]
    """One for each process; none where there is no network."""

    def start(self, nodes: int) -> None: ...

    def stop(self) -> None: ...

    def url(self, node: int | None = None) -> str:
        """As this process sees the store; None: as nobody disturbs it."""

    def go_down(self) -> None: ...

    def come_up(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def fill(self) -> None: ...

    def free(self) -> None: ...

    # What shows that it was really done

    def pids(self) -> list[int]:
        """Of the server, those that `freeze` stops and of which `go_down` ends at least one."""

    def refuses(self) -> bool:
        """No connection is accepted."""

    def is_full(self) -> bool:
        """A single byte is refused with ENOSPC."""


class _Served:
    """A server behind proxies."""

    name: str

    def __init__(self) -> None:
        self.proxies: list[FaultProxy] = []
        self._endpoint: S3Endpoint | None = None

    def _open(self, endpoint: S3Endpoint, nodes: int) -> None:
        self._endpoint = endpoint
        make_bucket(endpoint, BUCKET)
        self.proxies = [FaultProxy(endpoint.url, log_limit=_KEPT) for _ in range(nodes)]
        self._urls = [endpoint.store_url(BUCKET, "run", proxy.start()) for proxy in self.proxies]

    def url(self, node: int | None = None) -> str:
        assert self._endpoint is not None
        return self._endpoint.store_url(BUCKET, "run") if node is None else self._urls[node]

    def _close(self) -> None:
        for proxy in self.proxies:
            proxy.stop()

    def fill(self) -> None:
        raise NotImplementedError("no disk of this server is full by plan")

    free = fill

    def is_full(self) -> bool:
        return False


class MinistackSite(_Served):
    name = "ministack"

    def __init__(self, home: Path) -> None:
        super().__init__()
        # What it has acknowledged must outlive it, as with any store that one would use.
        self._server = Ministack(home, persist=True)

    def pids(self) -> list[int]:
        return self._server.pids

    def refuses(self) -> bool:
        return refuses(self._server.port)

    def start(self, nodes: int) -> None:
        self._open(self._server.start(), nodes)

    def stop(self) -> None:
        self._close()
        self._server.resume()
        self._server.stop()

    def go_down(self) -> None:
        self._server.stop()

    def come_up(self) -> None:
        self._server.start()

    def freeze(self) -> None:
        self._server.pause()

    def thaw(self) -> None:
        self._server.resume()


class CephSite(_Served):
    name = "ceph"

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._server = Ceph(home)

    def pids(self) -> list[int]:
        return self._server.pids

    def refuses(self) -> bool:
        return refuses(self._server.port)

    def start(self, nodes: int) -> None:
        self._open(self._server.start(), nodes)

    def stop(self) -> None:
        self._close()
        self._server.stop()

    def go_down(self) -> None:
        self._server.kill_gateway()

    def come_up(self) -> None:
        self._server.start_gateway()

    def freeze(self) -> None:
        self._server.pause()

    def thaw(self) -> None:
        self._server.resume()


class DirectorySite:
    """A directory on a small disk of its own, in memory: it can really be full. Needs root."""

    name = "directory"

    def __init__(self, home: Path) -> None:
        self.proxies: list[FaultProxy] = []
        self._disk = home / "disk"
        self._filler = self._disk / "filler"

    def start(self, nodes: int) -> None:
        self._disk.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tenure-chaos", str(self._disk)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"a disk that can be full needs the right to mount one: {done.stderr.strip()}")

    def stop(self) -> None:
        subprocess.run(["umount", "--lazy", str(self._disk)], capture_output=True, check=False)

    def url(self, node: int | None = None) -> str:
        return (self._disk / "store").as_uri()

    def fill(self) -> None:
        """Write until the disk says that it is full; again, once something was deleted meanwhile."""
        file = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            for size in (2**20, 4096, 1):
                while True:
                    try:
                        os.write(file, bytes(size))
                    except OSError as refused:
                        if refused.errno != errno.ENOSPC:
                            raise
                        break
        finally:
            os.close(file)

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def is_full(self) -> bool:
        probe = self._disk / "probe"
        try:
            probe.write_bytes(b"x")
        except OSError as refused:
            return refused.errno == errno.ENOSPC
        finally:
            probe.unlink(missing_ok=True)
        return False

    def pids(self) -> list[int]:
        return []

    def refuses(self) -> bool:
        return False

    def go_down(self) -> None:
        raise NotImplementedError("a directory has no server")

    come_up = freeze = thaw = go_down


SITES: dict[str, Callable[[Path], Site]] = {"ministack": MinistackSite, "ceph": CephSite, "directory": DirectorySite}


def home_for(name: str) -> tempfile.TemporaryDirectory[str]:
    """Short: a path to a Unix socket has room for 107 bytes only, and Ceph opens some."""
    return tempfile.TemporaryDirectory(prefix=f"tenure-{name}-", ignore_cleanup_errors=True)
