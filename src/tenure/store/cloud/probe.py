"""Finds out how a cloud store speaks, and whether it honours conditions at all.

About ten small requests on keys that nobody else uses, when a store is opened. It catches a store that ignores
conditions; only races catch one that checks them and then writes without holding anything (`tenure doctor`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.entropy import NewId, new_id
from tenure.errors import AccessDenied, BadCredentials, NotFound, StoreError, StoreUnavailable, StoreUnfit, Throttled
from tenure.store.cloud.failures import Failure, NoETag
from tenure.store.cloud.store import CloudStore, Dialect
from tenure.store.outcome import Applied, NotModified, Outcome, Rejected, Unknown, Version
from tenure.store.scratch import PROBE_FOLDER, scratch_body

_TRIES = 3
_PATIENCE = 2.0  # a store that takes longer to fail is not asked again: people wait for this


class Findings(msgspec.Struct, frozen=True):
    dialect: Dialect
    reasons: tuple[str, ...] = ()
    """Why tenure would not be safe here; empty if nothing was found."""


class Probe:
    def __init__(self, store: CloudStore, prefix: str, *, draw_id: NewId = new_id, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._folder = prefix + PROBE_FOLDER
        self._draw_id = draw_id
        self._clock = clock
        self._answered = self._tidied = False
        self._written: Version | None = None

    async def run(self) -> Findings:
        """Raises a `StoreError` if the store cannot be used or judged at all."""
        key, missing = (f"{self._folder}{self._draw_id()}" for _ in range(2))
        try:
            return await self._examine(key, missing)
        except NoETag as error:
            raise StoreUnfit(self._store.info.url, [str(error)]) from None
        finally:
            if self._answered and not self._tidied:  # people wait for the news that nobody is there
                try:
                    await self._store.delete(key, missing)
                except StoreError:
                    pass  # the findings say more than a leftover; `tenure doctor` removes it

    async def _examine(self, key: str, missing: str) -> Findings:
        reasons: list[str] = []
        created, _ = await self._decided(lambda: self._store.try_create(key, self._body()))
        self._answered = True
        if isinstance(created, Rejected) and not await self._exists(key):
            return Findings(self._store.dialect, ("it refuses to create a key that does not exist",))
        if reason := await self._missing_key(missing):
            reasons.append(reason)
        lost, failure = await self._decided(lambda: self._store.try_create(key, self._body()))
        if isinstance(lost, Applied):
            reasons.append("it ignores If-None-Match: a second create of one key succeeded")
        first = await self._version(key)
        dialect = msgspec.structs.replace(self._store.dialect, lost_create_status=(failure and failure.status) or 412)
        quoting = await self._quoting(key, first, dialect)
        if quoting is None:
            return Findings(
                dialect, (*reasons, "it does not honour If-Match: a write with the right version is refused")
            )
        self._store.dialect = dialect = quoting
        current = await self._version(key)
        if self._written is not None and not self._written.matches(current):
            reasons.append("it names one version (ETag) when it writes and another when it reads")
        if isinstance(await self._store.get(key, unless=first), NotModified):
            reasons.append("it answers 304, not modified, for an object that was modified")
        stale, _ = await self._decided(lambda: self._store.try_replace(key, self._body(), first))
        if isinstance(stale, Applied):
            reasons.append("it ignores If-Match: a write with an old version succeeded")
        absent, _ = await self._decided(lambda: self._store.try_replace(missing, self._body(), first))
        if isinstance(absent, Applied):
            reasons.append("it ignores If-Match: a write with a version succeeded on a missing key")
        current = await self._version(key)
        await self._store.get(key, unless=current)
        dialect = msgspec.structs.replace(
            dialect, conditional_get=not self._store.sends_unchanged, versioned=self._store.gives_version_ids
        )
        self._store.dialect = dialect
        if reason := await self._tidiness(key, missing):
            reasons.append(reason)
        return Findings(dialect, tuple(reasons))

    async def _tidiness(self, key: str, missing: str) -> str | None:
        """Listing and deleting are not conditional, but nothing works for long without them."""
        try:
            if key not in [entry.key async for entry in self._store.list(self._folder)]:
                return "it does not list an object that was just written"
        except AccessDenied:
            return "it denies listing: allow this identity to list the bucket below the prefix"
        try:
            await self._store.delete(key, missing)
            self._tidied = True
        except AccessDenied:
            return "it denies deleting: allow this identity to delete below the prefix"
        except StoreUnavailable:
            pass  # says nothing about a permission; `run` tries once more
        return None

    async def _missing_key(self, missing: str) -> str | None:
        try:
            await self._store.get(missing)
        except NotFound:
            return None
        except BadCredentials:
            raise
        except AccessDenied:
            return (
                "it answers 403 for a missing key, which cannot be told from a lost permission: allow this identity to "
                "list the bucket (s3:ListBucket on the bucket itself, storage.objects.list, or Blob Data Contributor)"
            )
        except StoreUnavailable as error:
            if "answered 404" not in str(error):
                raise
            return f"it does not say plainly that a key is missing ({error})"
        return "it answers for a key that was never written"

    async def _quoting(self, key: str, version: Version, dialect: Dialect) -> Dialect | None:
        for quoted in (True, False):
            self._store.dialect = msgspec.structs.replace(dialect, quoted_if_match=quoted)
            replaced, _ = await self._decided(lambda: self._store.try_replace(key, self._body(), version))
            if isinstance(replaced, Applied):
                self._written = replaced.version
                return self._store.dialect
            if not (await self._version(key)).matches(version):
                return self._store.dialect  # the answer was lost and the write was not
        self._store.dialect = dialect
        return None

    async def _decided(
        self, attempt: Callable[[], Awaitable[tuple[Outcome, Failure | None]]]
    ) -> tuple[Outcome, Failure | None]:
        """Repeat a write that got no decisive answer; the steps here are such that repeating one is harmless."""
        for round_number in range(_TRIES):
            started = self._clock.read()
            outcome, failure = await attempt()
            if not isinstance(outcome, Unknown):
                return outcome, failure
            if isinstance(outcome.error, NoETag):
                raise outcome.error  # sent again, it would find its own first copy, and look decided
            slow = self._clock.read().leader_elapsed(started) > _PATIENCE
            if slow or not isinstance(outcome.error, StoreUnavailable):
                break
            # Google allows about one write a second for one key, and the steps here come faster.
            await self._clock.sleep(1.2 if isinstance(outcome.error, Throttled) else 0.2 * 2**round_number)
        assert isinstance(outcome, Unknown)
        raise outcome.error

    async def _exists(self, key: str) -> bool:
        """After a rejected create: was it rejected because of an earlier copy of itself?"""
        try:
            await self._store.get(key)
        except NotFound:
            return False
        return True

    async def _version(self, key: str) -> Version:
        found = await self._store.get(key)
        return found.version

    def _body(self) -> bytes:
        return scratch_body(self._draw_id())
