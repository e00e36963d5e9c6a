"""A named collection of JSON records, for threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tenure import database
from tenure.blocking.portal import Portal
from tenure.coordinator.given import shown
from tenure.database.records import Inserted, Page, Record, SetAside
from tenure.errors import ConfigError

D = TypeVar("D")
_log = logging.getLogger("tenure.resource")


class Resource(Generic[D]):
    """The records of one name. Made by `Database.resource()`; see `tenure.database.resource` for what it promises.

    A call that Ctrl-C interrupts may have happened or not, as one that raised `WriteUnknown`.
    """

    def __init__(self, portal: Portal, resource: database.Resource[D]) -> None:
        self._portal = portal
        self._resource = resource

    def __repr__(self) -> str:
        return f"<blocking Resource {self.name!r}>"

    @property
    def name(self) -> str:
        return self._resource.name

    @property
    def schema(self) -> type[D] | None:
        return self._resource.schema

    def insert(self, data: D | Mapping[str, Any], id: str | None = None) -> Record[D]:
        """Add a record; without `id` one is drawn. Raises `RecordExists` if the id is taken."""
        return self._portal.call(lambda: self._resource.insert(data, id))

    def insert_many(
        self, items: Sequence[D | Mapping[str, Any]], ids: Sequence[str] | None = None
    ) -> tuple[Inserted[D], ...]:
        """Insert each of `items`, some at a time, and say of each what became of it: one that fails stops no other."""
        return self._portal.call(lambda: self._resource.insert_many(items, ids))

    def get(self, id: str) -> Record[D]:
        """The record. Raises `RecordNotFound`, and `DamagedRecord` if what is stored is none or does not fit."""
        return self._portal.call(lambda: self._resource.get(id))

    def get_or_none(self, id: str) -> Record[D] | None:
        """The record, or `None` if there is none."""
        return self._portal.call(lambda: self._resource.get_or_none(id))

    def exists(self, id: str) -> bool:
        """Is there a record with this id? Also true of one that does not fit the schema."""
        return self._portal.call(lambda: self._resource.exists(id))

    def update(self, id: str, data: D | Mapping[str, Any], if_version: int | None = None) -> Record[D]:
        """Replace the record's data. With `if_version` only if it is in that version, otherwise `Conflict`."""
        return self._portal.call(lambda: self._resource.update(id, data, if_version))

    def patch(self, id: str, changes: Mapping[str, Any], if_version: int | None = None) -> Record[D]:
        """Change some fields of the record, and leave the others. `None` sets null; `REMOVE` takes a field away."""
        return self._portal.call(lambda: self._resource.patch(id, changes, if_version))

    def delete(self, id: str, if_version: int | None = None) -> None:
        """Delete the record. Raises `RecordNotFound` if there is none, and `Conflict` as `update` does."""
        self._portal.call(lambda: self._resource.delete(id, if_version))

    def list(self, limit: int = 100, after: str | None = None) -> Page[D]:
        """Up to `limit` records whose keys come after that of the id `after`: `after=page.next` goes on."""
        return self._portal.call(lambda: self._resource.list(limit, after))

    def records(
        self, *, after: str | None = None, on_damaged: Callable[[SetAside], object] | None = None
    ) -> Iterator[Record[D]]:
        """Every record, page by page. What cannot be given back goes to `on_damaged`, or is logged."""
        if on_damaged is not None and not callable(on_damaged):
            raise ConfigError(f"on_damaged is {shown(on_damaged)}: give a function of one argument")
        while True:
            page = self.list(after=after)
            for damaged in page.damaged:
                if on_damaged is not None:
                    on_damaged(damaged)
                else:
                    _log.warning("resource %r: record %r was left out: %s", self.name, damaged.id, damaged.reason)
            yield from page.records
            if page.next is None:
                return
            after = page.next

    def count(self) -> int:
        """How many records there are, by the listing alone: one request for each thousand."""
        return self._portal.call(self._resource.count)
