"""A store that does as the test says: requests that fail, wait, land late, are repeated, or are answered with a lie."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.errors import StoreError, StoreUnavailable
from tenure.store import Applied, Entry, NotModified, Outcome, Rejected, Store, Stored, Unknown, Version
from tenure.store.guard import check_conditional_delete
from tenure.store.memory import MemoryStore

ANY = "*"
CONDITIONAL = "create replace"
WRITES = "put create replace delete discard"
_ANSWERED = {"create", "replace", "discard"}
"""These do not raise what the store did: they answer `Unknown`."""


class Request(msgspec.Struct, frozen=True):
    """One request, as the store was asked. The key of a listing is its prefix, that of a delete its first key."""

    verb: str
    key: str
    body: bytes = b""
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.verb} {self.key}"

    def fits(self, verbs: str, key: str) -> bool:
        """Is it one of these verbs, on this key, or on one that fits the pattern?"""
        if verbs != ANY and self.verb not in verbs.split():
            return False
        return any(each == key or fnmatchcase(each, key) for each in self.keys or (self.key,))


Fate: TypeAlias = "str | Exception | Act | After"
Act: TypeAlias = Callable[[Request], Awaitable[Any]]
"""Called before the request is served. It may return a fate; if it returns none, the request goes on."""

NAMED = ("ok", "lost", "kept", "late", "twice", "denied", "rejected", "lied", "truncated")
"""What a fate given by name does:

- `ok`: it is served and answered.
- `lost`: it never arrives; no answer.
- `kept`: it is served; no answer.
- `late`: no answer; it is served at `ScriptedStore.land`.
- `twice`: it is served twice; the second answer is given.
- `denied`: it is served, and answered with `Rejected`.
- `rejected`: it never arrives, and is answered with `Rejected`.
- `lied`: it never arrives, and is answered with `Applied`.
- `truncated`: it is served; of a body that is read, the first half is given.
"""


class After:
    """A fate: the request meets `fate`, and `act` runs before the caller hears of it."""

    def __init__(self, act: Act, fate: Fate = "ok") -> None:
        self.act = act
        self.fate = fate


class Hold:
    """An act: requests wait until `release`. `reached` returns once so many have begun to wait."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self._released = asyncio.Event()
        self._arrived = asyncio.Condition()

    async def __call__(self, request: Request) -> None:
        self.begun += 1
        async with self._arrived:
            self._arrived.notify_all()
        try:
            await self._released.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def reached(self, count: int = 1) -> None:
        async with self._arrived, asyncio.timeout(30):
            await self._arrived.wait_for(lambda: self.begun >= count)

    def release(self) -> None:
        self._released.set()


async def yields(request: Request) -> None:
    """An act: others get a turn first, so that requests overlap."""
    await asyncio.sleep(0)


class Rule:
    """What the requests meet that fit: the next of `fates`, from the `nth` request on. Made by `ScriptedStore`."""

    def __init__(self, verbs: str, key: str, fates: tuple[Fate, ...], nth: int, forever: bool) -> None:
        for fate in fates:
            _check_fate(fate)
        self.verbs = verbs
        self.key = key
        self.left = list(fates)
        self.seen = 0
        self._nth = nth
        self._forever = forever

    def stop(self) -> None:
        """Requests that come from now on are not concerned."""
        self.left.clear()
        self._forever = False

    def next_for(self, request: Request) -> Fate | None:
        if not self.left or not request.fits(self.verbs, self.key):
            return None
        self.seen += 1
        if self.seen < self._nth:
            return None
        return self.left[0] if self._forever else self.left.pop(0)

    @property
    def is_unmet(self) -> bool:
        return self.seen < self._nth if self._forever else bool(self.left)

    def __str__(self) -> str:
        return f"{self.verbs} {self.key}: {len(self.left)} left, {self.seen} requests seen"


class ScriptedStore:
    """Passes requests on to `inner` (a memory store of its own, if not given) unless a rule says otherwise.

    Every rule that fits a request is asked, in the order in which they were made, until one decides: an act that
    returns nothing leaves the decision to the next. A request that no rule decides goes well.
    """

    __slots__ = ("_at_once", "_late", "_rules", "info", "inner", "most_at_once", "requests")

    def __init__(
        self,
        *fates: Fate,
        inner: Store | None = None,
        clock: Clock = SYSTEM_CLOCK,
        conditional_delete: bool | None = None,
    ) -> None:
        """`fates` are what the first conditional writes meet (`create` and `replace`, of any key)."""
        self.inner: Store = inner if inner is not None else MemoryStore(clock=clock)
        self.info = self.inner.info
        if conditional_delete is not None:
            self.info = msgspec.structs.replace(self.info, conditional_delete=conditional_delete)
        self.requests: list[Request] = []
        self.most_at_once: Counter[str] = Counter()
        """By verb: how many requests were served at the same time."""
        self._at_once: Counter[str] = Counter()
        self._rules: list[Rule] = []
        self._late: list[Callable[[], Awaitable[Any]]] = []
        if fates:
            self.on(CONDITIONAL, ANY, *fates)

    # The script

    def on(self, verbs: str, key: str, *fates: Fate, nth: int = 1) -> Rule:
        """The requests that fit meet these fates in turn, from the `nth` on; later ones go well.

        `verbs` are words with spaces between, `key` may have wildcards.
        """
        return self._add(Rule(verbs, key, fates, nth, forever=False))

    def always(self, verbs: str, key: str, fate: Fate, *, nth: int = 1) -> Rule:
        """Every request that fits meets this fate, from the `nth` on, until `Rule.stop`."""
        return self._add(Rule(verbs, key, (fate,), nth, forever=True))

    def assert_script_was_met(self) -> None:
        """Fail if a rule still has fates that no request came for: the test shows less than it seems to."""
        unmet = [str(rule) for rule in self._rules if rule.is_unmet]
        assert not unmet, "\n".join(["these rules were not used up:", *unmet, "requests:", *self.log])

    def end_script(self) -> None:
        """From now on all goes well."""
        for rule in self._rules:
            rule.stop()

    def beside(self) -> ScriptedStore:
        """Another process's way to the same objects, without a script."""
        return ScriptedStore(inner=self.inner, conditional_delete=self.info.conditional_delete)

    async def land(self) -> list[Any]:
        """Everything that is late is served now. Gives the answers that nobody hears."""
        late, self._late = self._late, []
        return [await send() for send in late]

    # What was asked

    @property
    def log(self) -> list[str]:
        """`get the/key`, for each request."""
        return [str(request) for request in self.requests]

    def made(self, verbs: str = ANY, key: str = ANY) -> list[Request]:
        return [request for request in self.requests if request.fits(verbs, key)]

    def count(self, verbs: str = ANY, key: str = ANY) -> int:
        return len(self.made(verbs, key))

    def keys_of(self, verbs: str) -> list[str]:
        """Of each such request the key, or the keys."""
        return [key for request in self.made(verbs) for key in request.keys or (request.key,)]

    async def keys(self, prefix: str = "") -> list[str]:
        """What is stored now, without a request."""
        return [entry.key async for entry in self.inner.list(prefix)]

    # Store

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        found: Stored | NotModified = await self._serve(Request("get", key), lambda: self.inner.get(key, unless=unless))
        return found

    async def put(self, key: str, body: bytes) -> Version:
        version: Version = await self._serve(Request("put", key, body), lambda: self.inner.put(key, body))
        return version

    async def create(self, key: str, body: bytes) -> Outcome:
        return await self._answer(Request("create", key, body), lambda: self.inner.create(key, body))

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        return await self._answer(Request("replace", key, body), lambda: self.inner.replace(key, body, expected))

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        request = Request("list", prefix)
        if not any(request.fits(rule.verbs, rule.key) for rule in self._rules):
            self.requests.append(request)
            async for entry in self.inner.list(prefix, after=after):
                yield entry
            return

        async def rows() -> list[Entry]:
            return [entry async for entry in self.inner.list(prefix, after=after)]

        for entry in await self._serve(request, rows):
            yield entry

    async def delete(self, *keys: str) -> None:
        await self._serve(Request("delete", keys[0] if keys else "", keys=keys), lambda: self.inner.delete(*keys))

    async def discard(self, key: str, expected: Version) -> Outcome:
        check_conditional_delete(self.info)
        return await self._answer(Request("discard", key), lambda: self.inner.discard(key, expected))

    async def aclose(self) -> None:
        await self.inner.aclose()

    def _add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    async def _answer(self, request: Request, send: Callable[[], Awaitable[Outcome]]) -> Outcome:
        outcome: Outcome = await self._serve(request, send)
        return outcome

    async def _serve(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        self.requests.append(request)
        self._at_once[request.verb] += 1
        self.most_at_once[request.verb] = max(self.most_at_once[request.verb], self._at_once[request.verb])
        try:
            for rule in self._rules:  # also one that is made while an act waits
                fate = rule.next_for(request)
                if callable(fate):
                    fate = await fate(request)
                if fate is not None:
                    return await self._meet(fate, request, send)
            return await send()
        finally:
            self._at_once[request.verb] -= 1

    async def _meet(self, fate: Fate, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        if isinstance(fate, After):
            try:
                return await self._meet(fate.fate, request, send)
            finally:
                await fate.act(request)
        if isinstance(fate, StoreError) and request.verb in _ANSWERED:
            return Unknown(fate)
        if isinstance(fate, Exception):
            raise fate
        match fate:
            case "ok":
                return await send()
            case "twice":
                await send()
                return await send()
            case "denied":
                await send()
                return Rejected()
            case "rejected":
                return Rejected()
            case "lied":
                return Applied(Version("no such version"))
            case "truncated":
                answer = await send()
                if not isinstance(answer, Stored):
                    return answer
                return Stored(answer.body[: len(answer.body) // 2], answer.version)
            case "kept":
                await send()
            case "late":
                self._late.append(send)
            case "lost":
                pass
            case _:
                _check_fate(fate)
        return await self._meet(StoreUnavailable(f"{request}: no answer ({fate})"), request, send)


def _check_fate(fate: Fate) -> None:
    if isinstance(fate, str) and fate not in NAMED:
        raise ValueError(f"there is no fate {fate!r}: there are {', '.join(NAMED)}")


class WholeSeconds(MemoryStore):
    """Its listings say when an object was written without the fraction, as those of most buckets."""

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        async for entry in super().list(prefix, after=after):
            yield msgspec.structs.replace(entry, modified=entry.modified.replace(microsecond=0))
