"""ministack, an AWS emulator in pure Python (`pip install ministack`): the default S3 of the tests.

Check and write cannot interleave in it, so it is fit for races. It does not check signatures.
"""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

from lab.endpoint import S3Endpoint
from lab.process import free_port, spawn, stop, wait_for_http

INSTALL = "pip install ministack==1.5.33"


class Ministack:
    """With `persist` the objects are kept under `home` and outlive a stop and start; otherwise memory only."""

    def __init__(self, home: Path, *, persist: bool = False) -> None:
        self.home = home
        self.port = free_port()
        self._persist = persist
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def missing() -> list[str]:
        return [] if importlib.util.find_spec("ministack") else ["ministack"]

    def start(self) -> S3Endpoint:
        self.home.mkdir(parents=True, exist_ok=True)
        env = {
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "SERVICES": "s3,sts",
            # Its other listeners would want fixed ports, and two servers at once would fight over them.
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            # Everything that it writes (pid file, state, data) goes under home.
            "TMPDIR": str(self.home),
            "STATE_DIR": str(self.home / "state"),
            "S3_DATA_DIR": str(self.home / "s3"),
            "S3_PERSIST": "1" if self._persist else "0",
            "PERSIST_STATE": "1" if self._persist else "0",
            "LOG_LEVEL": "WARNING",
        }
        log = self.home / "ministack.log"
        self._process = spawn([sys.executable, "-m", "ministack"], log, env, cwd=self.home)
        url = f"http://127.0.0.1:{self.port}"
        wait_for_http(f"{url}/_ministack/health", self._process, log)
        return S3Endpoint("ministack", url, "test", "testtest")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """None while it is down."""
        return [self._process.pid] if self._process is not None and self._process.poll() is None else []

    def pause(self) -> None:
        """Nothing is answered, and nothing lost."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process)
