"""s3rver (npm `s3rver`), which answers 200 to every conditional PUT: the negative control for `tenure doctor`.

Nothing may ever elect a leader on it. It starts with one bucket, named "bucket".
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.endpoint import S3Endpoint
from lab.node import missing_program, node_program
from lab.process import free_port, spawn, stop, wait_for_http

PROGRAM = "s3rver"
INSTALL = "npm install --prefix .servers/node s3rver@3.7.1"


class S3rver:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def missing() -> list[str]:
        return missing_program(PROGRAM)

    def start(self) -> S3Endpoint:
        data = self.home / "data"
        data.mkdir(parents=True, exist_ok=True)
        log = self.home / "s3rver.log"
        command = [str(node_program(PROGRAM)), "--directory", str(data), "--address", "127.0.0.1"]
        command += ["--port", str(self.port), "--no-vhost-buckets", "--silent", "--configure-bucket", "bucket"]
        self._process = spawn(command, log, cwd=self.home)
        url = f"http://127.0.0.1:{self.port}"
        wait_for_http(url, self._process, log)
        return S3Endpoint("s3rver", url, "S3RVER", "S3RVER")

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process)
