"""How the children are, readable from every worker: one fenced record, written by the leader when it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from tenure.clock import Clock
from tenure.coordinator.fenced import Fence, FencedWriter, read
from tenure.coordinator.layout import check_name
from tenure.election.records import SCHEMA_VERSION, newer, time_of_day, told
from tenure.entropy import NewId
from tenure.errors import CoordinationError, SchemaTooNew, StoreError
from tenure.plugins.supervisor.child import MAX_NAME, ChildStatus
from tenure.store import Prefixed, Store, encode_name

_log = logging.getLogger("tenure.supervisor")

_KEY = "children.json"
_WRITES_EVERY = 1.0
MAX_CHILDREN = 1000


class SupervisorStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the leader last wrote of its children."""

    name: str
    node: str
    """The worker that wrote it."""
    epoch: int
    """The leadership under which it was written: an older one than the present shows what was."""
    written_at: str = ""
    """On that worker's wall clock: for people."""
    children: tuple[ChildStatus, ...] = ()


def folder_of(name: str) -> str:
    check_name("name of the supervisor", name, MAX_NAME)
    return f"plugin=supervisor/name={encode_name(name)}/"


async def read_status(store: Store, name: str = "coordinator") -> SupervisorStatus | None:
    """The children as last written by a leader; `None`: nobody ever wrote, or what is there cannot be read."""
    found = await read_board(store, name)
    return found[1] if found is not None else None


async def read_board(store: Store, name: str) -> tuple[str, SupervisorStatus] | None:
    """The same, and the namespace whose leader wrote it."""
    value = await read(Prefixed(store, folder_of(name)), _KEY)
    if value is None or value.body is None:
        return None
    status = decode_status(name, value.body)
    return (value.namespace, status) if status is not None else None


def decode_status(name: str, body: bytes) -> SupervisorStatus | None:
    """`None`: it cannot be read, which is told of."""
    if (why := _too_new(body)) is not None:
        _log.warning("the status of supervisor %r cannot be read: %s", name, why)
        return None
    try:
        return msgspec.json.decode(body, type=SupervisorStatus)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        _log.warning("the status of supervisor %r cannot be read: %s", name, told(error))
        return None


def _too_new(body: bytes) -> str | None:
    version = newer(body)
    return f"a newer tenure wrote it (schemaVersion {version}): update this process" if version is not None else None


class StatusBoard:
    """Writes the status when it changes, at most once a second, for as long as it runs."""

    def __init__(
        self,
        store: Store,
        name: str,
        fence: Fence,
        node: str,
        children: Callable[[], tuple[ChildStatus, ...]],
        *,
        clock: Clock,
        draw_id: NewId,
        still_leading: Callable[[], None],
    ) -> None:
        self._name = name
        self._node = node
        self._epoch = fence.epoch
        self._children = children
        self._clock = clock
        self._writer = FencedWriter(Prefixed(store, folder_of(name)), fence, draw_id, still_leading)
        self._changed = asyncio.Event()
        self._told_of_newer = False

    def changed(self) -> None:
        self._changed.set()

    async def write_last(self, within: float) -> None:
        """How it ended. Whoever lost the lease does not get to say."""
        try:
            async with asyncio.timeout(within):
                await self._write()
        except (TimeoutError, CoordinationError, StoreError) as error:
            _log.debug("the last status of %r was not written: %s", self._name, error)

    async def _write(self) -> None:
        status = SupervisorStatus(
            name=self._name,
            node=self._node,
            epoch=self._epoch,
            written_at=time_of_day(self._clock.read().wall_ns),
            children=self._children(),
        )
        told = {"schemaVersion": SCHEMA_VERSION, **msgspec.to_builtins(status)}
        await self._writer.put(_KEY, msgspec.json.encode(told), unless=_too_new)

    async def run(self) -> None:
        """Until cancelled, or until a newer leader has written."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write()
            except SchemaTooNew as error:
                if not self._told_of_newer:
                    self._told_of_newer = True
                    _log.warning("the status of supervisor %r is left as it is: %s", self._name, error)
            except CoordinationError as error:
                _log.debug("the status of %r is written by somebody else now: %s", self._name, error)
                return
            except StoreError as error:
                _log.debug("the status of %r was not written: %s", self._name, error)
                self._changed.set()
            except Exception:
                _log.exception("a defect of tenure: the status of %r could not be written", self._name)
            await self._clock.sleep(_WRITES_EVERY)
