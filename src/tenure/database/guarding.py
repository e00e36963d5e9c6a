"""What has to be done before a record may be written: a plugin's say in every write of a resource.

A guard gives a `Cover` for each call that writes. Before every attempt of that call the cover is asked to `prepare`
it: to make durable what must be there before the record is, and to add what is to be kept with it. Just before each
copy is sent it may still object, because what it prepared has become too old.
"""

from __future__ import annotations

from typing import Any, Protocol

from tenure.database.records import Envelope


class Outdated(Exception):
    """What was prepared is too old to be relied on, and nothing was sent since: prepare it again."""


class Cover(Protocol):
    """For one call on one record."""

    async def prepare(
        self, base: Envelope | None, data: dict[str, Any] | None, reserved: dict[str, Any]
    ) -> dict[str, Any]:
        """Before an attempt to write `data` (`None`: to delete) over `base`. Gives the reserved fields to be written.

        Raises `InvalidRecord` if such data cannot be written, and `StoreError` if it could not be prepared: then
        nothing is sent.
        """
        ...

    def sending(self) -> None:
        """A copy is sent next. Raises `Outdated`, or `WriteUnknown` if an earlier copy of this attempt is under way."""
        ...

    def decided(self, applied: bool) -> None:
        """The attempt was applied, or never will be."""
        ...

    def renewal(self) -> Cover | None:
        """Once it was applied: if that took so long that what was prepared may be gone, a cover to write it anew."""
        ...

    def close(self) -> None:
        """The call is over. An attempt that was not decided may still be applied."""
        ...


class Guard(Protocol):
    is_retired: bool
    """It goes on guarding, but another may take its place."""

    def check(self, id: str, data: dict[str, Any]) -> None:
        """Raises `InvalidRecord` for data that no cover would let pass."""
        ...

    def cover(self, id: str) -> Cover: ...


class _Uncovered:
    """For resources that nobody guards."""

    async def prepare(
        self, base: Envelope | None, data: dict[str, Any] | None, reserved: dict[str, Any]
    ) -> dict[str, Any]:
        return reserved

    def sending(self) -> None:
        pass

    def decided(self, applied: bool) -> None:
        pass

    def renewal(self) -> None:
        return None

    def close(self) -> None:
        pass


UNCOVERED = _Uncovered()


class Shape(Protocol):
    """A plugin's say in the data that are written: fields that are its own. Pure: it may be asked again and again."""

    def shaped(self, id: str, base: Envelope | None, data: dict[str, Any]) -> dict[str, Any]:
        """The data to be written over `base` (`None`, or a tombstone: it is inserted), with its own fields in them.

        Raises `InvalidRecord` for data that contradict it.
        """
        ...
