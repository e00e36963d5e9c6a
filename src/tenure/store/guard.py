"""Checks that every store makes before it sends anything."""

from __future__ import annotations

import os

from tenure.errors import BodyTooLarge, ForkedProcess, NoConditionalDelete, StoreError
from tenure.store.protocol import MAX_BODY_BYTES, StoreInfo


class ForkGuard:
    """Connections and threads do not survive a fork, and a child that writes with them would corrupt its parent's."""

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    def check(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"{self._what} was opened in process {self._pid} and used in its forked child {os.getpid()}: "
                "open stores after the fork, in the child itself (gunicorn: in post_fork; multiprocessing: use 'spawn')"
            )


class OpenGuard(ForkGuard):
    """A `ForkGuard` that also knows whether the store was closed."""

    __slots__ = ("_closed",)

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self._closed = False

    def check(self) -> None:
        super().check()
        if self._closed:
            raise StoreError(f"{self._what} is closed: open it again with open_store(), or its Database with connect()")

    def close(self) -> None:
        self._closed = True


def check_body(key: str, body: bytes) -> None:
    if len(body) > MAX_BODY_BYTES:
        raise BodyTooLarge(
            f"the body for {key!r} has {len(body):,} bytes, and the limit is {MAX_BODY_BYTES:,}: store large data "
            "under a plain key of your own and keep only its name here"
        )


def check_conditional_delete(info: StoreInfo) -> None:
    if not info.conditional_delete:
        raise NoConditionalDelete(
            f"{info.url} cannot remove an object only if it has a certain version: replace it by a tombstone, and let "
            "`tenure gc` remove that"
        )


def check_size(key: str, size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise BodyTooLarge(
            f"the object {key!r} has {size:,} bytes, and nothing that tenure writes is over {MAX_BODY_BYTES:,}: "
            "another program put it there; move it away"
        )
