"""Supervised children: the record that each supervisor keeps of its own."""

from __future__ import annotations

from tenure.clock import Clock
from tenure.coordinator.layout import check_name, namespace_store
from tenure.coordinator.reading import read_state
from tenure.dashboard.bounds import MAX_CHILDREN
from tenure.dashboard.sections import ChildRow, name_of, shown
from tenure.election.records import State
from tenure.errors import StoreUnavailable, TenureError
from tenure.plugins.supervisor.status import SupervisorStatus, read_board
from tenure.store import Store

_LONGEST_MS = 10**15


class ChildrenLook:
    """One supervisor's."""

    def __init__(self, store: Store, name: str, clock: Clock) -> None:
        self.name = name
        self.bytes = 0
        self.rows: list[ChildRow] = []
        self._store = store

    async def look(self, room: int) -> None:
        """Raises `StoreUnavailable`."""
        try:
            board = await read_board(self._store, self.name)
            if board is None:
                self.rows = []
                return
            namespace, status = board
            self.rows = _rows(self.name, status, await self._is_current(namespace, status))
        except StoreUnavailable:
            raise
        except TenureError:
            self.rows = []

    async def _is_current(self, namespace: str, status: SupervisorStatus) -> bool:
        """A newer leader, if there is one, has not written what it does yet."""
        check_name("namespace", namespace, 64)
        lease = await read_state(namespace_store(self._store, namespace))
        return not isinstance(lease, State) or status.epoch >= lease.epoch


def _rows(name: str, status: SupervisorStatus, current: bool) -> list[ChildRow]:
    return [
        ChildRow(
            supervisor=name_of(name),
            node=name_of(status.node),
            epoch=status.epoch,
            current=current,
            child=name_of(child.name),
            state=child.state.value,
            failures=child.failures,
            restarts=max(0, child.starts - 1),
            last_error=None if child.last_error is None else shown(child.last_error),
            since_ms=round(child.since * 1000) if 0 < child.since * 1000 < _LONGEST_MS else None,
        )
        for child in status.children[:MAX_CHILDREN]
    ]
