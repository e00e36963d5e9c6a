"""The queues that jobs put messages on: those that this process has, or producers of our own, opened when needed."""

from __future__ import annotations

import asyncio
from typing import Any

from tenure.errors import TenureError
from tenure.ledger import LedgerConfig
from tenure.plugins.queue import S3QueuePlugin


class Queues:
    def __init__(self, host: Any, ledger: LedgerConfig | None = None) -> None:
        """`host`: the database. `ledger`: how the queues' ledgers are kept, if not as by default. A queue whose ledger
        is kept in a way of its own must be a plugin of this process: who sends has to know how long it is remembered.
        """
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
                made = S3QueuePlugin(name, producer_only=True, ledger=self._ledger)
                made.attach(self._host, name)
                await made.start()
                self._own[name] = made
            return self._own[name]

    async def aclose(self) -> None:
        own, self._own = self._own, {}
        for plugin in own.values():
            try:
                await plugin.stop()
            except TenureError:
                pass  # what it was given is durable, or its run is not over
