"""A resource whose records expire, in a directory of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.ttl.disk import files_in
from bench.ttl.meter import SortedMeter
from tenure import Database
from tenure.coordinator.config import CoordinatorConfig
from tenure.database.resource import Resource
from tenure.plugins.ttl import TTLPlugin

RESOURCE = "sessions"
PAST = 1_767_225_600
"""The beginning of 2026: what expired then is due."""
FUTURE = 4_102_444_800
"""The year 2100."""
ALONE = CoordinatorConfig(startup_jitter_max=0.0, takeover_delay=0.05)
"""Nobody else stands for election, so that nothing has to be waited for. All else is as it comes."""
_BODY_BYTES = 200


@dataclass
class Scene:
    """Who writes and who cleans up there has the same settings."""

    folder: Path
    settings: dict[str, Any] = field(default_factory=lambda: {"field": "expires_at"})

    @property
    def url(self) -> str:
        return self.folder.as_uri()

    @property
    def records(self) -> Path:
        """Where the directory store keeps them."""
        return self.folder / f"resource={RESOURCE}@" / "data@"

    def due_entries(self) -> int:
        """Index entries of what is due, as they lie on the disk."""
        due = self.folder / "plugin=ttl@" / f"name={RESOURCE}@" / "due@"
        return sum(files_in(slot) for slot in due.glob("*@") if int(slot.name[:-1]) < FUTURE * 1000)

    @asynccontextmanager
    async def writing(self, *, expiring: bool = True) -> AsyncIterator[tuple[SortedMeter, Resource[dict[str, Any]]]]:
        """As a process does that never leads."""
        async with Database(self.url) as database:
            meter = SortedMeter.watch(database, RESOURCE)
            records = database.resource(RESOURCE)
            if expiring:
                await database.use_plugin(TTLPlugin(RESOURCE, takes_part=False, **self.settings))
            yield meter, records

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[tuple[SortedMeter, Database, TTLPlugin]]:
        """A process that will lead as soon as it uses the plugin, which is for the caller to do."""
        async with Database(self.url) as database:
            meter = SortedMeter.watch(database, RESOURCE)
            yield meter, database, TTLPlugin(RESOURCE, config=ALONE, **self.settings)


def body_of(number: int, expires_at: int) -> dict[str, Any]:
    """A record of about 200 bytes."""
    body: dict[str, Any] = {"user": f"user-{number}", "expires_at": expires_at}
    return {**body, "pad": "x" * (_BODY_BYTES - 60 - len(str(number)))}
