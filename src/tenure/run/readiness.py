"""Telling others on this machine how far we are: a file that is there while the program runs, and systemd."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping
from pathlib import Path

import msgspec

from tenure.errors import ConfigError

_MAX_STATUS = 500
_SYSTEMD = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")


class ReadyFile:
    """There while the program runs here; what an earlier process left is removed at the start."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def prepare(self) -> None:
        """Raises `ConfigError` if it could not be written later on."""
        if self._path is None:
            return
        if self._path.is_dir() or not self._path.parent.is_dir() or not os.access(self._path.parent, os.W_OK):
            raise ConfigError(f"the ready file is {str(self._path)!r}: give a file in a folder that can be written to")
        self.remove()

    def write(self, facts: dict[str, object]) -> str | None:
        """Gives what went wrong: a full disk is no reason to end the program."""
        if self._path is None:
            return None
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            beside.write_bytes(msgspec.json.encode(facts) + b"\n")
            beside.replace(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink()
            return f"the ready file {str(self._path)!r} cannot be written: {error.strerror}"
        return None

    def remove(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()


class Systemd:
    """`Type=notify`: ready when we take part, a status line for `systemctl status`, and a heartbeat if it wants one.

    Nothing happens where systemd did not start us. Its variables are taken out of `environ`: the program would
    otherwise talk to it in our name.
    """

    def __init__(self, environ: MutableMapping[str, str], pid: int) -> None:
        address, meant_for, every = (environ.pop(name, "") for name in _SYSTEMD)
        self._address = "\0" + address[1:] if address.startswith("@") else address
        if not address.startswith(("/", "@")):
            self._address = ""
        self.heartbeat_seconds: float | None = None
        """How often it wants to hear from us; half of what it allows."""
        if self._address and every.isdecimal() and int(every) > 0 and meant_for in ("", str(pid)):
            self.heartbeat_seconds = int(every) / 1e6 / 2

    def ready(self, status: str) -> None:
        self._send("READY=1", _status(status))

    def status(self, status: str) -> None:
        self._send(_status(status))

    def beat(self) -> None:
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | _CLOEXEC) as out:
            out.setblocking(False)
            out.sendto("\n".join(lines).encode(errors="replace"), self._address)


_CLOEXEC = getattr(socket, "SOCK_CLOEXEC", 0)


def _status(text: str) -> str:
    return "STATUS=" + " ".join(text.split())[:_MAX_STATUS]
