"""Resources that are broken on purpose."""

from __future__ import annotations

import importlib
from typing import Any

from tenure.database import records, writing
from tenure.database.ids import key_of
from tenure.database.resource import Resource
from tenure.database.writing import Found, Writer, Written
from tenure.errors import RecordNotFound, WriteUnknown
from tenure.store import Applied, Rejected, Unknown, Version
from tenure.testing.broken import Patch, Variant

_module: Any = importlib.import_module("tenure.database.resource")  # the package exports a class of this name


def _blind_swap() -> list[Patch]:
    async def puts(self: Any, key: str, base: Found, draft: Any) -> Written:
        drafts = writing._Drafts(draft)
        version = await self._store.put(key, drafts.compose(self._draw_id()))
        return Written(drafts.last, version)

    return [(Writer, "replace", puts)]


def _blind_insert() -> list[Patch]:
    async def puts(self: Any, key: str, id: str, draft: Any, *, once: bool) -> Written:
        drafts = writing._Drafts(draft)
        version = await self._store.put(key, drafts.compose(self._draw_id()))
        return Written(drafts.last, version)

    return [(Writer, "create", puts)]


def _delete_without_tombstone() -> list[Patch]:
    async def delete(self: Any, id: str, if_version: int | None = None) -> None:
        found = await self._found(id)
        if if_version is not None and found.envelope.version != if_version:
            raise self._conflict(id, if_version, found.envelope.version)
        await self._store.delete(key_of(self.name, id))

    return [(Resource, "delete", delete)]


def _tombstones_removed_blindly() -> list[Patch]:
    async def remove(self: Any, id: str, written: Written) -> None:
        await self._store.delete(key_of(self.name, id))

    return [(Resource, "_remove", remove)]


def _versions_begin_at_one() -> list[Patch]:
    return [(_module, "_random_version", lambda write_id: 1)]


def _created_again() -> list[Patch]:
    return [(Resource, "_is_removed", lambda self, id: False)]


def _rejection_is_believed() -> list[Patch]:
    init = Writer.__init__

    def trusting(self: Any, *arguments: Any, **rest: Any) -> None:
        init(self, *arguments, **rest)
        self._believes_rejections = True

    return [(Writer, "__init__", trusting)]


def _only_the_last_write_remembered() -> list[Patch]:
    return [
        (records, "RECENT_WRITES", 1),
        (records.Envelope, "remembers_all_since", lambda self, version: True),
    ]


def _unknown_is_done() -> list[Patch]:
    async def send(self: Any, attempt: Any, drafts: Any) -> Any:
        outcome = await original(self, attempt, drafts)
        return Applied(Version("?")) if isinstance(outcome, Unknown) else outcome

    original = Writer._send
    return [(Writer, "_send", send)]


def _unknown_is_refused() -> list[Patch]:
    original = Writer._insist

    async def insist(self: Any, attempt: Any, drafts: Any) -> Any:
        settled = await original(self, attempt, drafts)
        if any(isinstance(answer, Unknown) for answer in attempt.answers):
            raise RecordNotFound("no answer is a no", resource="", id="")
        return settled

    return [(Writer, "_insist", insist)]


def _rejection_is_unknown() -> list[Patch]:
    original = Writer._send

    async def send(self: Any, attempt: Any, drafts: Any) -> Any:
        outcome = await original(self, attempt, drafts)
        if isinstance(outcome, Rejected):
            raise WriteUnknown("turned down", record_id="")
        return outcome

    return [(Writer, "_send", send)]


def _version_ignored() -> list[Patch]:
    original = Resource._edit

    async def edit(self: Any, id: str, if_version: int | None, *arguments: Any, **rest: Any) -> Any:
        return await original(self, id, None, *arguments, **rest)

    return [(Resource, "_edit", edit)]


def _another_version_told() -> list[Patch]:
    original = Writer.replace

    async def replace(self: Any, key: str, base: Found, draft: Any) -> Written | None:
        written = await original(self, key, base, draft)
        return None if written is None else Written(base.envelope, written.version)

    return [(Writer, "replace", replace)]


def _tombstones_are_read() -> list[Patch]:
    async def found(self: Any, id: str) -> Found:
        found: Found | None = await self._read(id)
        if found is None:
            raise RecordNotFound("there is none", resource=self.name, id=id)
        return found

    return [(Resource, "_found", found)]


RECORDS_VARIANTS = tuple(
    Variant(f"records-{name}", leaves_out, check, patches)
    for name, leaves_out, check, patches in (
        ("blind-swap", "a record is written over whatever is there", "lost-update", _blind_swap),
        ("blind-insert", "a record is inserted over whatever is there", "lost-update", _blind_insert),
        ("no-tombstone", "a delete is sent without a condition", "removed", _delete_without_tombstone),
        (
            "tombstone-removed-blindly",
            "a tombstone is removed, or what came after",
            "removed",
            _tombstones_removed_blindly,
        ),
        ("versions-from-one", "the versions of an id that returns begin again", "version", _versions_begin_at_one),
        ("created-again", "a create is sent again where tombstones are removed", "twice", _created_again),
        ("rejection-is-believed", "a rejected write has not happened", "refused", _rejection_is_believed),
        ("one-write-remembered", "a record names its last write alone", "refused", _only_the_last_write_remembered),
        ("unknown-is-done", "a write without an answer counts as done", "lost", _unknown_is_done),
        ("unknown-is-refused", "a write without an answer counts as refused", "refused", _unknown_is_refused),
        ("rejection-is-unknown", "a rejected write counts as in doubt", "unsure", _rejection_is_unknown),
        ("version-ignored", "`if_version` is not looked at", "condition", _version_ignored),
        ("another-version", "callers are told the version before", "told-version", _another_version_told),
        ("tombstones-are-read", "a deleted record is read", "read", _tombstones_are_read),
    )
)
