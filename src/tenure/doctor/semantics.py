"""One question after the other, each of which a store that is fit answers in one way only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from tenure.clock import Clock
from tenure.doctor.report import Check
from tenure.entropy import NewId
from tenure.errors import NotFound, StoreError, StoreUnavailable, Throttled
from tenure.store import (
    Applied,
    Attempt,
    NotModified,
    Outcome,
    Rejected,
    Remembers,
    Store,
    Stored,
    Unknown,
    Version,
    commit,
)
from tenure.store.scratch import scratch_body, scratch_ids

COUNT = 14
_TRIES = 3


class Questions:
    """Asks about keys below `folder`; the caller removes what lies there afterwards.

    `pause` seconds pass between two writes to one key, for stores that allow only so many.
    """

    def __init__(self, store: Store, folder: str, *, pause: float, clock: Clock, draw_id: NewId) -> None:
        self._store = store
        self._folder = folder
        self._pause = pause
        self._clock = clock
        self._draw_id = draw_id

    async def ask(self) -> AsyncIterator[Check]:
        """Raises `StoreUnavailable` where the store does not answer: nothing can be concluded from silence."""
        store, key, missing = self._store, f"{self._folder}lease", f"{self._folder}missing"
        check, first = await self._is_applied("creates a key that is absent", key, None)
        yield check
        if first is None:
            return
        yield await self._is_rejected("refuses to create a key that exists", lambda: store.create(key, self._body()))
        yield Check("gives back what was written", await self._read(key) == first)
        check, second = await self._is_applied("replaces the version that it has", key, first.version)
        yield check
        if second is None:
            return
        yield Check("names the same version when it writes and when it reads", await self._read(key) == second)
        yield await self._is_rejected(
            "refuses to replace an old version", lambda: store.replace(key, self._body(), first.version)
        )
        made_up = Version(e_tag="0123456789abcdef0123456789abcdef", generation=first.version.generation and "1")
        yield await self._is_rejected(
            "refuses to replace a version that never was", lambda: store.replace(key, self._body(), made_up)
        )
        yield await self._is_rejected(
            "refuses to replace a key that is absent", lambda: store.replace(missing, self._body(), first.version)
        )
        yield Check("keeps what was written when it refuses", await self._read(key) == second)
        unchanged = await store.get(key, unless=second.version)
        yield Check("says that what did not change did not change", isinstance(unchanged, NotModified))
        yield Check("sends what did change", await store.get(key, unless=first.version) == second)
        yield await self._says_missing(missing)
        async for check in self._listing(key, second):
            yield check

    async def _is_applied(self, name: str, key: str, expected: Version | None) -> tuple[Check, Stored | None]:
        """The check, and what must be stored now."""
        bodies: dict[str, bytes] = {}

        def compose(write_id: str) -> bytes:
            bodies[write_id] = scratch_body(write_id)
            return bodies[write_id]

        await self._clock.sleep(self._pause)
        settled = await commit(
            self._store,
            Attempt(key, expected),
            compose,
            write_ids=scratch_ids,
            remembers=Remembers.EVERY_WRITE,  # nobody else writes here
            draw_id=self._draw_id,
            clock=self._clock,
        )
        outcome = settled.outcome
        if isinstance(outcome, Unknown):
            # A store that refuses everything looks like one whose writes are pending for ever.
            if all(isinstance(answer, Rejected) for answer in settled.attempt.answers):
                return Check(name, False, "it was refused"), None
            raise outcome.error
        if isinstance(outcome, Rejected):
            return Check(name, False, "it was refused"), None
        assert settled.write_id is not None
        return Check(name, True), Stored(bodies[settled.write_id], outcome.version)

    async def _is_rejected(self, name: str, send: Callable[[], Awaitable[Outcome]]) -> Check:
        said = ""
        for _ in range(_TRIES):
            await self._clock.sleep(self._pause)
            outcome = await send()
            if isinstance(outcome, Applied):
                return Check(name, False, "it was written")
            if isinstance(outcome, Rejected):
                return Check(name, True)
            if not isinstance(outcome.error, StoreUnavailable):
                raise outcome.error
            said = str(outcome.error)
            await self._clock.sleep(1.2 if isinstance(outcome.error, Throttled) else 0.2)
        return Check(name, None, said)

    async def _says_missing(self, missing: str) -> Check:
        name = "says plainly that a key is missing"
        try:
            await self._store.get(missing)
        except NotFound:
            return Check(name, True)
        except StoreUnavailable:
            raise
        except StoreError as error:
            return Check(name, False, str(error))
        return Check(name, False, "it answers for a key that was never written")

    async def _listing(self, key: str, stored: Stored) -> AsyncIterator[Check]:
        others = [f"{self._folder}{name}" for name in ("z", "a", "m/b", "m")]
        for other in others:
            await self._store.put(other, self._body())
        listed = [entry async for entry in self._store.list(self._folder)]
        keys = [entry.key for entry in listed]
        yield Check("lists every key as soon as it is written, in order", keys == sorted([*others, key]))
        versions = [entry.version for entry in listed if entry.key == key]
        yield Check("lists the version that it has", bool(versions) and versions[0].matches(stored.version))

    async def _read(self, key: str) -> Stored:
        found = await self._store.get(key)
        assert isinstance(found, Stored)
        return found

    def _body(self) -> bytes:
        return scratch_body(self._draw_id())
