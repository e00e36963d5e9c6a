"""Azurite, Microsoft's emulator of Azure Blob storage (npm `azurite`), kept in memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.endpoint import AZURITE_ACCOUNT, AzureEndpoint
from lab.node import missing_program, node_program
from lab.process import free_port, spawn, stop, wait_for_http

PROGRAM = "azurite-blob"
INSTALL = "npm install --prefix .servers/node azurite@3.37.0"
WITHOUT_SWEEPS = Path(__file__).with_name("azurite_without_sweeps.cjs")


class Azurite:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def missing() -> list[str]:
        return missing_program(PROGRAM)

    def start(self) -> AzureEndpoint:
        self.home.mkdir(parents=True, exist_ok=True)
        log = self.home / "azurite.log"
        command = [str(node_program(PROGRAM)), "--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        command += ["--inMemoryPersistence", "--silent"]
        # obstore may speak a newer API version than Azurite knows of; the part we use has not changed.
        command += ["--skipApiVersionCheck", "--disableTelemetry"]
        self._process = spawn(command, log, env={"NODE_OPTIONS": f'--require "{WITHOUT_SWEEPS}"'}, cwd=self.home)
        url = f"http://127.0.0.1:{self.port}/{AZURITE_ACCOUNT}"
        wait_for_http(url, self._process, log)
        return AzureEndpoint("azurite", url)

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process)
