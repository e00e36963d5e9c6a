"""The queues that jobs put messages on: those that this process has, or producers of our own, opened when needed."""

from __future__ import annotations

import asyncio
from typing import Any

from tenure.errors import TenureError
from tenure.ledger import LedgerConfig, agreed_ledger, ledger_store
from tenure.plugins.queue import S3QueuePlugin


class Queues:
    def __init__(self, host: Any, ledger: LedgerConfig | None = None) -> None:
        """`host`: the database. `ledger`: how the ledger is kept of a queue that nobody has used yet."""
        self._host = host
        self._ledger = ledger
        self._own: dict[str, S3QueuePlugin] = {}
        self._opening = asyncio.Lock()

    async def open(self, name: str) -> S3QueuePlugin:
        """Raises what opening raises: `StoreError`, `ConfigError`."""
        plugin = getattr(self._host, "plugins", {}).get((S3QueuePlugin.slug, name))
        if isinstance(plugin, S3QueuePlugin):
            return plugin
        async with self._opening:
            if name not in self._own:
                made = S3QueuePlugin(name, producer_only=True, ledger=await self._ledger_of(name))
                made.attach(self._host, name)
                await made.start()
                self._own[name] = made
            return self._own[name]

    async def _ledger_of(self, name: str) -> LedgerConfig:
        """As its own processes keep it, whatever was said of this schedule's."""
        return await agreed_ledger(
            ledger_store(self._host.store, S3QueuePlugin.slug, name),
            self._ledger if self._ledger is not None else LedgerConfig(),
            is_given=False,
            what=f"the queue {name!r}",
            draw_id=self._host.draw_id,
        )

    async def aclose(self) -> None:
        own, self._own = self._own, {}
        for plugin in own.values():
            try:
                await plugin.stop()
            except TenureError:
                pass  # what it was given is durable, or its run is not over
