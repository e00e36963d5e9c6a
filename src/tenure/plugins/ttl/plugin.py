"""Records that expire.

    sessions = db.resource("sessions")
    ttl = await db.use_plugin(TTLPlugin("sessions", ttl=1800))        # half an hour after they were inserted

    await sessions.insert({"user": "ada"}, id="s1")
    await ttl.touch("s1")                                             # half an hour from now

Guarantee: a record whose time has come is deleted (or marked, archived, given to a function) within `tick` seconds
after it, by the store's clock, however many are stored; after an outage, as soon as the leader can work again. It is
never done early, and never to a record that was refreshed, or deleted and inserted again, however late a request
lands. What is archived is archived once; a callback is called at least once, with a token that only rises.

Assumption: every process that inserts into the resource, or changes when its records expire, uses this plugin with the
same settings (others may change and delete records), and no request is under way for longer than three quarters of
`quarantine`. `reindex()` finds what was written otherwise.

Not guaranteed: that an expired record cannot be read any more before the leader has come to it; `expires_at` says when
its time was. That no copy of an archived record comes back if it is deleted from the archive within moments.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from tenure.coordinator.config import DAY, CoordinatorConfig, seconds
from tenure.coordinator.given import check_flag, shown
from tenure.coordinator.layout import check_name
from tenure.coordinator.lead import Lead
from tenure.database.expiry import Expiry, expiry_of
from tenure.database.ids import check_id
from tenure.database.resource import Resource
from tenure.errors import ConfigError, DamagedRecord, RecordNotFound
from tenure.ledger import InboxName, LedgerConfig, Lot, Place, Resync, Tail
from tenure.ledger.layout import MAX_NAME_CHARACTERS
from tenure.plugins.ledgered import SHUTDOWN_TIMEOUT, LedgerPlugin
from tenure.plugins.ttl.agreed import agree
from tenure.plugins.ttl.calling import Callback, Caller
from tenure.plugins.ttl.expiring import Call, Deed
from tenure.plugins.ttl.glance import TTLGlance, glance_of
from tenure.plugins.ttl.guard import TTLGuard
from tenure.plugins.ttl.index import IndexWriter
from tenure.plugins.ttl.leading import TTLLeading
from tenure.plugins.ttl.looking import FailedCallback, TTLStats, failed_callbacks, read_state, stats_of
from tenure.plugins.ttl.records import Cleanup, Counts, decode_work
from tenure.plugins.ttl.reindex import Reindexed, reindex
from tenure.plugins.ttl.rules import BadTime, Rules, Wish, moment_of
from tenure.plugins.ttl.settings import OnExpire, TTLSettings, seconds_given, settings_from
from tenure.plugins.ttl.state import TTLMachine
from tenure.plugins.ttl.sweep import Sweeper
from tenure.plugins.ttl.wire import CLEANUP, Request, compose
from tenure.store import Store

_POLL = 0.2
MAX_FAILED_SHOWN = 10_000


class TTLPlugin(LedgerPlugin):
    """`resource`: the name of the resource whose records expire, or the object itself. One plugin for each resource.

    Give `ttl` (seconds from creation), `field` (it holds the time, see `tenure.plugins.ttl.rules`), or both (seconds
    from the time in the field). All other options are settings (`TTLSettings`), or of the coordinator.
    """

    slug = "ttl"
    what = "ttl"

    def __init__(
        self,
        resource: str | Resource[Any],
        *,
        callback: Callback | None = None,
        namespace: str = "default",
        config: CoordinatorConfig | None = None,
        ledger: LedgerConfig | None = None,
        shutdown_timeout: float | timedelta = SHUTDOWN_TIMEOUT,
        takes_part: bool = True,
        **settings: Any,
    ) -> None:
        """`takes_part=False`: this process only writes records, and never leads."""
        super().__init__(
            namespace=namespace,
            config=config,
            ledger=ledger,
            shutdown_timeout=shutdown_timeout,
            takes_part=takes_part,
        )
        self._given = resource if isinstance(resource, Resource) else None
        name = resource.name if isinstance(resource, Resource) else resource
        self.resource = check_name("resource", name, MAX_NAME_CHARACTERS)
        if callback is not None and "on_expire" not in settings:
            settings = {**settings, "on_expire": OnExpire.CALLBACK}
        self.settings: TTLSettings = settings_from(settings)
        if callback is not None and not callable(callback):
            raise ConfigError(f"callback is {callback!r}: give a function that takes an `Expired`")
        if (self.settings.on_expire is OnExpire.CALLBACK) != (callback is not None):
            raise ConfigError(
                f"on_expire is {self.settings.on_expire.value!r} and callback is {callback!r}: give a function "
                "together with on_expire='callback', and not otherwise"
            )
        if self.settings.archive is not None:
            check_name("archive", self.settings.archive, MAX_NAME_CHARACTERS)
            if self.settings.archive == self.resource:
                raise ConfigError(f"archive is {self.resource!r}, the resource itself: give another one")
        self._callback = callback
        self._rules = Rules(self.settings)
        self._guard: TTLGuard | None = None
        self._records: Resource[Any] | None = None
        self._caller: Caller | None = None

    @property
    def default_name(self) -> str:
        """What this instance is called if nothing else is said: the name of its resource."""
        return self.resource

    # Single records

    async def touch(self, id: str, ttl: float | timedelta | None = None) -> datetime | None:
        """Have the record live for `ttl` more from now on (by default as long as a new one), and say until when.

        It wins against the leader as long as the record is there, also after its time. `None`: it is marked as deleted,
        and stays so. Raises `RecordNotFound`. With `field` it is that field which is set.
        """
        guard, rules = self._guarding(), self._rules
        ttl_ms = None if ttl is None else math.ceil(seconds_given("ttl", ttl) * 1000)
        if ttl_ms is None and rules.ttl_ms is None:
            raise ConfigError(f"ttl is not given, and {self!r} has none of its own: touch(id, ttl=60)")
        if not rules.by_field:
            cover = guard.cover(check_id(id), wish=Wish.TOUCH, ttl_ms=ttl_ms)
            await self._resource().amend(id, cover)
            return None if cover.at_ms is None else moment_of(cover.at_ms)
        at_ms: int | None = rules.from_now(await guard.now(), ttl_ms)

        def refreshed(data: dict[str, Any]) -> dict[str, Any]:
            nonlocal at_ms
            assert self.settings.field is not None
            assert until_ms is not None
            changed = {**data, self.settings.field: rules.field_for(until_ms, data.get(self.settings.field))}
            at_ms = rules.at_by_field(changed)
            return changed

        until_ms = at_ms
        await self._resource().amend(id, guard.cover(check_id(id)), refreshed)
        return None if at_ms is None else moment_of(at_ms)

    async def persist(self, id: str) -> None:
        """Have the record not expire, until it is touched. With `field` it is that field which is set to null."""
        guard = self._guarding()
        if not self._rules.by_field:
            await self._resource().amend(id, guard.cover(check_id(id), wish=Wish.PERSIST))
            return
        field = self.settings.field
        await self._resource().amend(id, guard.cover(check_id(id)), lambda data: {**data, field: None})  # type: ignore[dict-item]

    async def expires_at(self, id: str) -> datetime | None:
        """When the record expires; `None`: it does not. Raises `RecordNotFound`."""
        found = await self._resource().find(check_id(id))
        if found is None or found.envelope.deleted:
            raise RecordNotFound(f"resource {self.resource!r} has no record {id!r}", resource=self.resource, id=id)
        expiry = expiry_of(found.envelope.reserved)
        try:
            at_ms = self._rules.at_of(found.envelope.data, expiry if isinstance(expiry, Expiry) else Expiry())
        except BadTime as error:
            raise DamagedRecord(
                f"record {id!r} of {self.resource!r} is damaged: {error}", resource=self.resource, id=id
            ) from None
        return None if at_ms is None else moment_of(at_ms)

    # All of them

    async def run_cleanup(self, *, dry_run: bool = False, timeout: float | timedelta = 60.0) -> Cleanup:
        """Have the leader clean up now, and say what came of it; from any process.

        `dry_run`: count what would expire now, in this process, and change nothing. Raises `TimeoutError` if no leader
        has done it in time, or the store does not answer; it may still be done.
        """
        patience = seconds("timeout", timeout, zero=True, longest=DAY)
        if check_flag("dry_run", dry_run):
            return await self._survey()
        clock = self._attached().clock
        request = self._draw()
        tail = Tail(self._opened(), config=self._ledger, clock=clock)
        asked = self._sending().submit(Request(CLEANUP, request, self._attached().worker_id[:256]), 200)
        try:
            async with asyncio.timeout(patience):
                await tail.start()
                await asked
                if (found := await self._cleanup_of(request)) is not None:
                    return found  # below where the tail begins
                while True:
                    entry = await tail.poll()
                    if entry is Resync.LOST:
                        if (found := await self._cleanup_of(request)) is not None:
                            return found
                        await tail.start()
                    elif entry is not None:
                        if tail.took(entry) and (work := entry.decided_as(decode_work)) is not None:
                            done = work.cleanup
                            if done is not None and request in done.asked:
                                return done
                        continue
                    await clock.sleep(_POLL)
        except TimeoutError:
            is_written = asked.done() and not asked.cancelled() and asked.exception() is None
            raise TimeoutError(
                f"no leader has cleaned up {self.resource!r} within {patience:g} s: "
                + (
                    "the request is written down, and one will still do it"
                    if is_written
                    else "the store has not confirmed the request, which may still be written down and followed"
                )
            ) from None
        finally:
            asked.cancel()  # whoever waits is gone; it is sent all the same

    async def cleanup_resource(self, name: str | None = None, *, dry_run: bool = False) -> Cleanup:
        """The same, for those who name the resource: each has a plugin of its own."""
        if name is not None and name != self.resource:
            raise ConfigError(
                f"name is {shown(name)}, and {self!r} is for {self.resource!r}: ask the plugin of that resource"
            )
        return await self.run_cleanup(dry_run=dry_run)

    async def reindex(self, *, all: bool = False) -> Reindexed:
        """Read every record once, and see to it that those which expire will be found.

        For records that were written before the plugin was used, or by processes without it. Those of an age count from
        their last write, on the store's clock. `all`: also those that have an index entry, in case it was lost.
        """
        return await reindex(self._resource(), self._guarding(), anew=check_flag("all", all))

    async def stats(self) -> TTLStats:
        """From any process."""
        return stats_of(self.resource, await read_state(self._opened()))

    def glance(self) -> TTLGlance | None:
        """What this process knows without a request; `None`: it does not lead. Called on the plugin's loop."""
        leading = self._leading
        if not isinstance(leading, TTLLeading) or leading.clerk is None or leading.halted is not None:
            return None
        return glance_of(leading.clerk.machine)

    async def failed(self, limit: int = 100) -> list[FailedCallback]:
        """Records whose callback has failed for good, oldest first."""
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_FAILED_SHOWN:
            raise ConfigError(f"limit is {shown(limit)}: give a whole number from 1 to {MAX_FAILED_SHOWN:,}")
        return await failed_callbacks(self._opened(), limit)

    # Life

    async def start(self) -> None:
        if self.name != self.resource:
            raise ConfigError(f"name is {self.name!r} and resource is {self.resource!r}: leave the name out")
        self._open_resource()
        try:
            await super().start()
        except BaseException:
            self.ended()
            raise

    async def prepare(self, store: Store) -> None:
        draw_id = cast(Any, self._attached()).draw_id
        await agree(store, self.settings.quarantine, resource=self.resource, draw_id=draw_id)

    async def began(self) -> None:
        self._guarding()

    async def ending(self) -> None:
        if self._guard is not None:
            await self._guard.index.drain()

    def ended(self) -> None:
        # The guard stays: whoever goes on writing must not write records that never expire.
        if self._guard is not None:
            self._guard.is_retired = True
        self._caller = None

    def compose(self, name: InboxName, place: Place, lots: Sequence[Lot]) -> bytes:
        return compose(name, place, lots)

    def new_leading(self, lead: Lead) -> TTLLeading:
        host = cast(Any, self._attached())
        assert self._time is not None
        if self._callback is not None and self._caller is None:
            self._caller = Caller(
                self._callback, timeout=self.settings.callback_timeout, threads=min(32, self.settings.at_once)
            )
        return TTLLeading(
            self._opened(),
            lead,
            resource=self._resource(),
            guard=self._guarding(),
            archive=self._archive,
            caller=self._caller,
            ledger=self._ledger,
            clock=host.clock,
            draw_id=host.draw_id,
            time=self._time,
            bell=self._bell,
            emit=lambda event: self.emit(event.name, event),
            on_entry=self._wrote,
            sights=self._sights,
        )

    # Inside

    def _open_resource(self) -> None:
        host = cast(Any, self._attached())
        records = self._given or host.opened_resource(self.resource) or host.resource(self.resource)
        if self.settings.field is not None:
            records.check_field("field", self.settings.field)
        if self.settings.on_expire is OnExpire.SOFT_DELETE:
            records.check_field("soft_field", self.settings.soft_field)
        if records is not self._records:
            self._records, self._guard = records, None

    def _guarding(self) -> TTLGuard:
        """Made when it is first needed: by who leads, or when everything runs."""
        if self._guard is None:
            host, store = cast(Any, self._attached()), self._opened()
            assert self._time is not None
            index = IndexWriter(store, clock=host.clock, draw_id=host.draw_id)
            guard = TTLGuard(self.resource, self._rules, index, time=self._time, clock=host.clock)
            self._resource().guarded_by(guard)
            self._guard = guard
        self._guard.is_retired = False
        return self._guard

    def _resource(self) -> Resource[Any]:
        if self._records is None:
            raise self._not_started()
        return self._records

    def _archive(self, name: str) -> Resource[Any]:
        host = cast(Any, self._attached())
        found: Resource[Any] = host.opened_resource(name) or host.resource(name)
        return found

    def _draw(self) -> str:
        return str(cast(Any, self._attached()).draw_id())[-32:]

    async def _cleanup_of(self, request: str) -> Cleanup | None:
        machine = (await read_state(self._opened())).machine
        assert isinstance(machine, TTLMachine)
        return next((each for each in machine.cleanups if request in each.asked), None)

    async def _survey(self) -> Cleanup:
        clock, guard = self._attached().clock, self._guarding()
        began = clock.read()
        counts = Counts()

        async def nobody(calls: Sequence[Call], counts: Counts) -> list[bool]:
            raise AssertionError("a dry run calls nobody")

        deed = Deed(
            self._resource(),
            self._rules,
            archive=self._archive,
            settled=lambda key: None,
            not_before=lambda key: 0,
        )
        sweeper = Sweeper(
            self._opened(),
            self._resource(),
            guard,
            deed,
            clock=clock,
            ensure=lambda: None,
            call=nobody,
            emit=lambda event: None,
            dry_run=True,
        )
        await sweeper.sweep(counts)
        counts.waiting = 0
        seconds = round(clock.read().leader_elapsed(began), 3)
        return Cleanup((await guard.now()).ms, counts, seconds, dry_run=True)
