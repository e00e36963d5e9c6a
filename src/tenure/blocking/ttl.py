"""Records that expire, for threads."""

from __future__ import annotations

from datetime import datetime, timedelta

from tenure.blocking.coordinator import without_loop
from tenure.blocking.portal import Portal
from tenure.coordinator.events import Handler, Subscription
from tenure.plugins.ttl import TTLPlugin
from tenure.plugins.ttl.looking import FailedCallback, TTLStats
from tenure.plugins.ttl.records import Cleanup
from tenure.plugins.ttl.reindex import Reindexed
from tenure.plugins.ttl.settings import TTLSettings


class TTL:
    """The expiry of a resource, by a `TTLPlugin`, for threads. Made by `Database.use_plugin()`; see the plugin for what
    it promises.

    Any thread may call it. A callback that is a plain function runs in a thread, where it may use the blocking API. A
    call that Ctrl-C interrupts may have happened or not, as one that raised `WriteUnknown`.
    """

    def __init__(self, portal: Portal, plugin: TTLPlugin) -> None:
        self._portal = portal
        self._plugin = plugin

    def __repr__(self) -> str:
        return f"<blocking TTL of {self.resource!r}>"

    @property
    def resource(self) -> str:
        return self._plugin.resource

    @property
    def settings(self) -> TTLSettings:
        return self._plugin.settings

    @property
    def is_leading(self) -> bool:
        """Does this process clean up, now, and has it caught up?"""
        return self._plugin.is_leading

    # Single records

    def touch(self, id: str, ttl: float | timedelta | None = None) -> datetime | None:
        """Have the record live for `ttl` more from now on (by default as long as a new one), and say until when.

        It wins against the leader as long as the record is there, also after its time. `None`: it is marked as deleted,
        and stays so. Raises `RecordNotFound`.
        """
        return self._portal.call(lambda: self._plugin.touch(id, ttl))

    def persist(self, id: str) -> None:
        """Have the record not expire, until it is touched."""
        self._portal.call(lambda: self._plugin.persist(id))

    def expires_at(self, id: str) -> datetime | None:
        """When the record expires; `None`: it does not. Raises `RecordNotFound`."""
        return self._portal.call(lambda: self._plugin.expires_at(id))

    # All of them

    def run_cleanup(self, *, dry_run: bool = False, timeout: float | timedelta = 60.0) -> Cleanup:
        """Have the leader clean up now, and say what came of it; from any process.

        `dry_run`: count what would expire now, and change nothing. Raises `TimeoutError` if no leader has done it in
        time; it may still.
        """
        return self._portal.call(lambda: self._plugin.run_cleanup(dry_run=dry_run, timeout=timeout))

    def cleanup_resource(self, name: str | None = None, *, dry_run: bool = False) -> Cleanup:
        """The same, for those who name the resource: each has a plugin of its own."""
        return self._portal.call(lambda: self._plugin.cleanup_resource(name, dry_run=dry_run))

    def reindex(self, *, all: bool = False) -> Reindexed:
        """Read every record once, and see to it that those which expire will be found."""
        return self._portal.call(lambda: self._plugin.reindex(all=all))

    def stats(self) -> TTLStats:
        return self._portal.call(self._plugin.stats)

    def failed(self, limit: int = 100) -> list[FailedCallback]:
        """Records whose callback has failed for good, oldest first."""
        return self._portal.call(lambda: self._plugin.failed(limit))

    # Being told

    def on(self, name: str, handler: Handler) -> Subscription:
        """Call `handler(event)` for every event called `name`, as `Coordinator.on` does, on a thread of tenure's."""
        self._portal.check()
        return without_loop(lambda: self._plugin.on(name, handler))
