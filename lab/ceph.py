"""One-node Ceph with its S3 gateway (Debian's `ceph-mon ceph-osd radosgw`): the production-grade S3 of the tests.

Needs root (its daemons open raw stores), no systemd. About 15 s to start and 330 MB of memory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from lab.buckets import make_bucket, put_empty
from lab.endpoint import S3Endpoint
from lab.process import free_port, wait_for_http

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "monmaptool")
INSTALL = "apt-get install -y --no-install-recommends ceph-mon ceph-osd radosgw"

_STARTS = 3
_PATIENCE = 60.0
"""Seconds, for a server that is starting."""

_CONFIG = """
[global]
fsid = {fsid}
mon_host = [v1:127.0.0.1:{mon_port}/0]
public_network = 127.0.0.0/8
ms_bind_msgr2 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
run_dir = {home}/run
admin_socket = {home}/run/$cluster-$name.$pid.asok
pid_file = {home}/run/$type.$id.pid
log_file = {home}/log/$type.$id.log
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
mon_data_avail_crit = 1
[mon.a]
mon_data = {home}/mon
mon_initial_members = a
[osd.0]
osd_data = {home}/osd
osd_objectstore = bluestore
bluestore_block_size = 8589934592
bluestore_block_db_create = false
bluestore_block_wal_create = false
osd_class_load_list = *
osd_class_default_list = *
[client.rgw.a]
rgw_data = {home}/rgw
rgw_frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw_dns_name = localhost
rgw_run_sync_thread = false
rgw_zone = default
"""


class Ceph:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self._folder = home
        self._config = home / "ceph.conf"

    @staticmethod
    def missing() -> list[str]:
        return [program for program in PROGRAMS if shutil.which(program) is None]

    def start(self) -> S3Endpoint:
        """Start everything, in a fresh folder if it has to be tried again, and have the first slow writes behind us."""
        for number in range(1, _STARTS + 1):
            self._folder = self.home / str(number)
            self._config = self._folder / "ceph.conf"
            try:
                return self._start()
            except (RuntimeError, OSError, subprocess.SubprocessError):
                self.stop()
                if number == _STARTS:
                    raise
                self.port = free_port()
        raise AssertionError("unreachable")

    def _start(self) -> S3Endpoint:
        for folder in ("mon", "osd", "rgw", "run", "log"):
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
        fsid = Path("/proc/sys/kernel/random/uuid").read_text().strip()
        mon_port = free_port()
        self._config.write_text(_CONFIG.format(fsid=fsid, home=self._folder, mon_port=mon_port, port=self.port))
        monmap = str(self._folder / "monmap")
        self._run(
            "monmaptool", "--create", "--clobber", "--fsid", fsid, "--addv", "a", f"[v1:127.0.0.1:{mon_port}]", monmap
        )
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "-c", str(self._config))
        self._run("ceph-mon", "-i", "a", "-c", str(self._config))
        osd_uuid = Path("/proc/sys/kernel/random/uuid").read_text().strip()
        self._ask("osd", "new", osd_uuid, "0")
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd_uuid, "-c", str(self._config))
        self._start_osd()
        self._wait_for_osd()
        self.start_gateway()
        self._run(
            *("radosgw-admin", "-c", str(self._config), "user", "create", "--uid=test"),
            *("--display-name=test", "--access-key=test", "--secret-key=testtest"),
        )
        endpoint = S3Endpoint("ceph", f"http://127.0.0.1:{self.port}", "test", "testtest", region="default")
        make_bucket(endpoint, "warm-up")
        put_empty(endpoint, "/warm-up/object")  # makes the pools: a first PUT takes two seconds
        return endpoint

    def start_gateway(self) -> None:
        """About ten seconds."""
        self._run("radosgw", "-c", str(self._config), "-n", "client.rgw.a")
        log = self._folder / "log" / "client.rgw.a.log"
        wait_for_http(f"http://127.0.0.1:{self.port}/", None, log)

    def kill_gateway(self) -> None:
        """The S3 side alone, without a word: what the storage behind it was told stays."""
        self._signal("client.rgw.a.pid", signal.SIGKILL)
        # The number may soon be another's, who is not to be signalled in its place.
        (self._folder / "run" / "client.rgw.a.pid").unlink()

    @property
    def pids(self) -> list[int]:
        """Of gateway and storage, as far as they are there: those that `pause` stops."""
        found = []
        for name in ("client.rgw.a.pid", "osd.0.pid"):
            with contextlib.suppress(OSError, ValueError):
                found.append(int((self._folder / "run" / name).read_text()))
        return found

    def pause(self) -> None:
        """Gateway and storage stand still, with everything that they have in hand."""
        self._signal_if_there(signal.SIGSTOP, "client.rgw.a.pid", "osd.0.pid")

    def resume(self) -> None:
        self._signal_if_there(signal.SIGCONT, "osd.0.pid", "client.rgw.a.pid")

    def stop(self) -> None:
        # The gateway first: without its OSD it would spend its last seconds waiting for one.
        self._signal_if_there(signal.SIGKILL, "client.rgw.a.pid", "osd.0.pid", "mon.a.pid")

    def _signal_if_there(self, number: int, *names: str) -> None:
        """The gateway may be away, and between two starts it is."""
        for name in names:
            with contextlib.suppress(OSError, ValueError):
                self._signal(name, number)

    def _signal(self, name: str, number: int) -> None:
        os.kill(int((self._folder / "run" / name).read_text()), number)

    def _start_osd(self) -> None:
        # About once in five starts the OSD speaks to the monitor before it has its map, is told 'wrong fsid', and ends.
        for is_last in (False, False, True):
            try:
                self._run("ceph-osd", "-i", "0", "-c", str(self._config))
            except RuntimeError as failure:
                if is_last or "wrong fsid" not in str(failure):
                    raise
                time.sleep(0.5)
            else:
                return

    def _wait_for_osd(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if "1 up" in self._ask("osd", "stat"):
                return
            time.sleep(0.2)
        raise RuntimeError(f"Ceph's OSD did not come up within {_PATIENCE:.0f} s; see {self._folder}/log")

    def _ask(self, *words: str) -> str:
        """The monitor, which on a busy machine takes its time until it knows who may ask it: until then it refuses."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return self._run("ceph", "-c", str(self._config), *words)
            except RuntimeError as failure:
                if "command descriptions" not in str(failure) or time.monotonic() >= deadline:
                    raise
                time.sleep(0.5)

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed ({done.returncode}): {done.stderr[-2000:]}")
        return done.stdout
