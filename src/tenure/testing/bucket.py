"""A bucket that everybody reaches through a network that misbehaves, in simulated time.

    bucket, network = SimulatedBucket(world), Network(world)
    store = SimulatedStore(bucket, host, network)          # one for each process
    network.change(lost_reply=0.05, late_landing=0.02)     # for all
    network.change("a", latency=(0.2, 0.4))                # for host a
    network.cut("b")

The bucket itself is the ground truth: what is stored, and when which write was applied, is known exactly. The network
decides what a caller gets to hear of it. `Network.hits` says how often each fault happened, so that a test can fail if
one that it relies on never did.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tenure.errors import NotFound, ServerError, StoreError, StoreUnavailable
from tenure.store.given import check_flag, check_instance, check_number
from tenure.store.guard import check_body, check_conditional_delete, check_size
from tenure.store.keys import check_after, check_key, check_prefix
from tenure.store.outcome import Applied, Entry, NotModified, Outcome, Rejected, Stored, Unknown, Version
from tenure.store.protocol import MAX_BODY_BYTES, StoreInfo
from tenure.testing.host import Host
from tenure.testing.loop import Crashed
from tenure.testing.machine import EPOCH_SECONDS
from tenure.testing.network import Conditions, Network
from tenure.testing.world import World

__all__ = ["OUTSIDE", "Conditions", "Network", "SimulatedBucket", "SimulatedStore", "Write"]

OUTSIDE = "outside"
"""The host of changes that the scenario made itself."""

_LONGEST_OFFSET = 10 * 365 * 86_400.0
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PAGE = 1000
_MOST_KNOWN = 10_000
_REJECTED = Rejected()
_VERBS = ("get", "put", "create", "replace", "list", "delete", "discard")
_CONDITIONAL = frozenset({"create", "replace", "discard"})
_READS = frozenset({"get", "list"})


class Write(msgspec.Struct, frozen=True):
    """One change of one object, at the instant at which the bucket made it."""

    at: float
    """True time."""
    key: str
    old: bytes | None
    new: bytes | None
    """`None`: removed."""
    host: str
    """Who sent it, or `outside`."""
    verb: str


class _Object:
    __slots__ = ("body", "entry", "modified_us", "version")

    def __init__(self, body: bytes, version: Version, modified_us: int) -> None:
        self.body = body
        self.version = version
        self.modified_us = modified_us
        self.entry: Entry | None = None  # made when it is listed first


class SimulatedBucket:
    """What is stored. Versions count up and are never used twice."""

    def __init__(self, world: World, *, clock_offset: float = 0.0) -> None:
        check_instance("world", world, World)
        check_number("clock_offset", clock_offset, least=-_LONGEST_OFFSET, most=_LONGEST_OFFSET)
        self.versions = 0
        """How many there have been."""
        self.clock_offset = clock_offset
        """By how many seconds the store's own clock is wrong; it times later writes."""
        self.watchers: list[Callable[[Write], None]] = []
        """Called on each change; what they raise ends `World.run_until`."""
        self._world = world
        self._objects: dict[str, _Object] = {}
        self._keys: list[str] = []  # sorted

    def keys(self, prefix: str = "") -> list[str]:
        start = bisect.bisect_left(self._keys, prefix)
        end = bisect.bisect_left(self._keys, prefix + "\x7f", start)  # above every character of a key
        return self._keys[start:end]

    def body(self, key: str) -> bytes | None:
        found = self._objects.get(key)
        return None if found is None else found.body

    def corrupt(self, key: str, body: bytes) -> None:
        """Somebody writes other bytes there, past every rule."""
        self._write(key, body, OUTSIDE, "corrupt")

    def restore(self, key: str, body: bytes) -> None:
        """Somebody puts back an older body: its bytes are known, its version is new."""
        self._write(key, body, OUTSIDE, "restore")

    def remove(self, key: str) -> None:
        self._remove(key, OUTSIDE, "remove")

    def wipe(self, prefix: str = "") -> int:
        """Remove everything below `prefix`; gives how many objects that were."""
        doomed = self.keys(prefix)
        for key in doomed:
            self._remove(key, OUTSIDE, "wipe")
        return len(doomed)

    def _get(self, key: str, unless: Version | None) -> Stored | NotModified | NotFound:
        found = self._objects.get(key)
        if found is None:
            return NotFound(key)
        if unless is not None and unless.matches(found.version):
            return NotModified(found.version)
        return Stored(found.body, found.version)

    def _create(self, key: str, body: bytes, host: str) -> Applied | Rejected:
        if key in self._objects:
            return _REJECTED
        return Applied(self._write(key, body, host, "create"))

    def _replace(self, key: str, body: bytes, expected: Version, host: str) -> Applied | Rejected:
        found = self._objects.get(key)
        if found is None or not expected.matches(found.version):
            return _REJECTED
        return Applied(self._write(key, body, host, "replace"))

    def _delete(self, keys: tuple[str, ...], host: str) -> int:
        return sum(self._remove(key, host, "delete") for key in keys)

    def _discard(self, key: str, expected: Version, host: str) -> Applied | Rejected:
        found = self._objects.get(key)
        if found is None or not expected.matches(found.version):
            return _REJECTED
        self._remove(key, host, "discard")
        return Applied(expected)

    def _page(self, prefix: str, after: str | None, whole_seconds: bool) -> list[Entry]:
        if after is not None and after >= prefix:
            start = bisect.bisect_right(self._keys, after)
        else:
            start = bisect.bisect_left(self._keys, prefix)
        end = bisect.bisect_left(self._keys, prefix + "\x7f", start)
        return [self._entry(key, whole_seconds) for key in self._keys[start : min(end, start + _PAGE)]]

    def _entry(self, key: str, whole_seconds: bool) -> Entry:
        found = self._objects[key]
        if found.entry is None:
            modified = _UNIX_EPOCH + timedelta(microseconds=found.modified_us)
            found.entry = Entry(key, found.version, len(found.body), modified)
        if whole_seconds:
            return msgspec.structs.replace(found.entry, modified=found.entry.modified.replace(microsecond=0))
        return found.entry

    def _write(self, key: str, body: bytes, host: str, verb: str) -> Version:
        old = self._objects.get(key)
        if old is None:
            bisect.insort(self._keys, key)
        self.versions += 1
        version = Version(str(self.versions))
        modified_us = int((EPOCH_SECONDS + self.clock_offset + self._world.now) * 1e6)
        self._objects[key] = _Object(bytes(body), version, modified_us)
        if self.watchers:
            self._tell(Write(self._world.now, key, None if old is None else old.body, bytes(body), host, verb))
        return version

    def _remove(self, key: str, host: str, verb: str) -> bool:
        old = self._objects.pop(key, None)
        if old is None:
            return False
        del self._keys[bisect.bisect_left(self._keys, key)]
        if self.watchers:
            self._tell(Write(self._world.now, key, old.body, None, host, verb))
        return True

    def _tell(self, write: Write) -> None:
        for watcher in self.watchers:
            watcher(write)


class _Request:
    """One request on its way. `future` is where its caller waits, if it still does."""

    __slots__ = ("apply", "arguments", "deadline", "fault", "future", "key", "verb")

    def __init__(
        self,
        verb: str,
        key: str,
        apply: Callable[..., Any],
        arguments: tuple[Any, ...],
        future: asyncio.Future[Any] | None,
        deadline: float,
    ) -> None:
        self.verb = verb
        self.key = key
        self.apply = apply
        self.arguments = arguments
        self.future = future
        self.deadline = deadline
        self.fault = ""


class SimulatedStore:
    """A `Store` for one simulated process. A request that was sent goes its way, whatever becomes of its caller."""

    def __init__(
        self, bucket: SimulatedBucket, host: Host, network: Network, *, conditional_delete: bool = True
    ) -> None:
        check_instance("bucket", bucket, SimulatedBucket)
        check_instance("host", host, Host)
        check_instance("network", network, Network)
        check_flag("conditional_delete", conditional_delete)
        self.info = StoreInfo(provider="memory", url="memory://simulated", conditional_delete=conditional_delete)
        self._bucket = bucket
        self._host = host
        self._name = host.name
        self._world = host.world
        self._network = network
        self._link = network._link(host.name)
        self._draw = network.random.random
        self._counted = {verb: (host.name, verb) for verb in _VERBS}
        self._known: set[str] = set()  # keys that were checked
        self._closed = False

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        if key not in self._known:
            self._learn(key)
        answer: Stored | NotModified | StoreError = await self._send("get", key, self._bucket._get, (key, unless))
        if isinstance(answer, StoreError):
            raise answer
        if isinstance(answer, Stored) and len(answer.body) > MAX_BODY_BYTES:
            check_size(key, len(answer.body))
        return answer

    async def put(self, key: str, body: bytes) -> Version:
        self._check(key, body)
        answer: Version | StoreError = await self._send("put", key, self._bucket._write, (key, body, self._name, "put"))
        if isinstance(answer, StoreError):
            raise answer
        return answer

    async def create(self, key: str, body: bytes) -> Outcome:
        self._check(key, body)
        outcome: Outcome = await self._send("create", key, self._bucket._create, (key, body, self._name))
        return outcome

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        self._check(key, body)
        outcome: Outcome = await self._send("replace", key, self._bucket._replace, (key, body, expected, self._name))
        return outcome

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        check_prefix(prefix)
        check_after(after)
        cursor, whole = after, self._network.whole_second_times
        while True:
            # Errors come as results: one that is set on a future whose caller was cancelled meanwhile would be noise.
            page: list[Entry] | StoreError = await self._send(
                "list", prefix, self._bucket._page, (prefix, cursor, whole)
            )
            if isinstance(page, StoreError):
                raise page
            for entry in page:
                yield entry
            if len(page) < _PAGE:
                return
            cursor = page[-1].key

    async def delete(self, *keys: str) -> None:
        for key in keys:
            check_key(key)
        if keys:
            answer: int | StoreError = await self._send("delete", keys[0], self._bucket._delete, (keys, self._name))
            if isinstance(answer, StoreError):
                raise answer

    async def discard(self, key: str, expected: Version) -> Outcome:
        self._check(key, b"")
        check_conditional_delete(self.info)
        outcome: Outcome = await self._send("discard", key, self._bucket._discard, (key, expected, self._name))
        return outcome

    async def aclose(self) -> None:
        self._closed = True

    def _check(self, key: str, body: bytes) -> None:
        if key not in self._known:
            self._learn(key)
        if len(body) > MAX_BODY_BYTES:
            check_body(key, body)

    def _learn(self, key: str) -> None:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()  # in days of simulated time there are millions
        self._known.add(check_key(key))

    def _send(self, verb: str, key: str, apply: Callable[..., Any], arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        host, world, network, link = self._host, self._world, self._network, self._link
        if not host.alive:
            raise Crashed(self._name)
        if self._closed:
            raise StoreError("the simulated store is closed: open it again")
        now = world.now
        network.requests[self._counted[verb]] += 1
        if network.on_request is not None:
            network.on_request(self._name, verb, key, now)
        future: asyncio.Future[Any] = asyncio.Future(loop=host.loop)
        request = _Request(verb, key, apply, arguments, future, now + link.timeout)
        # One draw decides on the fault, and where there is none also on the latency.
        roll = self._draw()
        if link.dark:
            self._lose(request, link.dark)
        elif link.held is not None and link.held[0] in key and verb not in _READS:
            _, then = link.held
            link.held = None
            self._send_badly(request, "late_landing")
            then()
        elif roll < link.trouble:
            self._send_badly(request, link.fault(roll))
        else:
            self._travel(request, link.low + (roll - link.trouble) * link.calm_scale)
        return future

    def _travel(self, request: _Request, delay: float) -> None:
        world = self._world
        due = world.now + delay
        if due >= request.deadline:
            world.call_at(max(request.deadline, world.now), self._give_up, request)
        world.call_at(due, self._arrive, request)

    def _send_badly(self, request: _Request, fault: str) -> None:
        """A request that one of the faults happens to; what comes at the bucket or later is marked on it."""
        hits, world, conditions = self._network.hits, self._world, self._link.conditions
        if request.verb in _READS and fault in ("late_landing", "repeated"):  # these happen to writes
            fault = "lost_request" if fault == "late_landing" else ""
        if fault == "lost_request":
            hits[fault] += 1
            world.call_at(request.deadline, self._give_up, request)
        elif fault == "late_landing":
            hits[fault] += 1
            self._link.late[request] = self._land
            world.call_at(world.now + self._draw() * conditions.late_seconds, self._land, request)
            at_once = world.now + self._latency()
            world.call_at(at_once if self._draw() < 0.5 else request.deadline, self._give_up, request)
        elif fault == "slow_request":
            hits[fault] += 1
            self._travel(request, self._latency() + self._draw() * conditions.slow_seconds)
        else:
            request.fault = fault
            self._travel(request, self._latency())

    def _latency(self) -> float:
        return self._link.low + self._draw() * self._link.span

    def _arrive(self, request: _Request) -> None:
        """At the bucket."""
        link = self._link
        if link.dark:
            self._lose(request, link.dark)
            return
        if request.fault:
            self._arrive_badly(request)
            return
        answer = request.apply(*request.arguments)
        self._reply(request, answer, link.low + self._draw() * link.span)

    def _arrive_badly(self, request: _Request) -> None:
        fault, hits = request.fault, self._network.hits
        if fault == "server_error":
            applied = request.verb not in _READS and self._draw() < 0.5
            hits["server_error_applied" if applied else "server_error_not_applied"] += 1
            if applied:
                request.apply(*request.arguments)
            error = ServerError(
                f"{request.verb} {request.key!r}: the store failed with an error of its own (simulated)"
            )
            self._reply(request, self._failure(request, error), self._latency())
            return
        hits[fault] += 1
        answer = request.apply(*request.arguments)
        if fault == "lost_reply":
            self._world.call_at(max(request.deadline, self._world.now), self._give_up, request)
        elif fault == "repeated":
            request.fault = ""
            self._travel(request, self._latency())
        else:
            assert fault == "slow_reply", fault
            self._reply(request, answer, self._latency() + self._draw() * self._link.conditions.slow_seconds)

    def _land(self, request: _Request) -> None:
        """At the bucket, long after its caller was told that nothing is known."""
        hits = self._network.hits
        if self._link.late.pop(request, None) is None:
            return  # `Network.land` had it land before
        if self._link.dark == "outage":
            hits["outage"] += 1
            return
        answer = request.apply(*request.arguments)
        happened = answer is not _REJECTED and answer != 0  # a delete says how many keys it found
        hits["late_landing_applied" if happened else "late_landing_rejected"] += 1

    def _reply(self, request: _Request, answer: object, delay: float) -> None:
        due = self._world.now + delay
        if due < request.deadline:
            self._world.call_at(due, self._deliver, request, answer)
        elif self._world.now < request.deadline:  # otherwise it was told so already
            self._world.call_at(request.deadline, self._give_up, request)

    def _deliver(self, request: _Request, answer: object) -> None:
        """At the caller. If its host is frozen, it goes on when that thaws."""
        link = self._link
        if link.dark or link.replies_cut:
            self._lose(request, link.dark or "cut_reply")
            return
        future = request.future
        if future is None or future.done() or not self._host.alive:
            return
        if request.verb in _CONDITIONAL:
            self._network.hits[_TOLD[answer.__class__]] += 1
        request.future = None
        future.set_result(answer)

    def _lose(self, request: _Request, why: str) -> None:
        self._network.hits[why] += 1
        if self._world.now < request.deadline:
            self._world.call_at(request.deadline, self._give_up, request)

    def _give_up(self, request: _Request) -> None:
        """The caller is told that there was no answer."""
        future = request.future
        if future is None or future.done() or not self._host.alive:
            return
        hits = self._network.hits
        late = self._world.now >= request.deadline
        if late:
            hits["timeout"] += 1
        if request.verb in _CONDITIONAL:
            hits["unknown"] += 1
        said = f"no answer within {self._link.timeout:g} s" if late else "the connection was lost"
        error = StoreUnavailable(f"{request.verb} {request.key!r}: {said} (simulated)")
        request.future = None
        future.set_result(self._failure(request, error))

    def _failure(self, request: _Request, error: StoreError) -> Unknown | StoreError:
        return Unknown(error) if request.verb in _CONDITIONAL else error


_TOLD: dict[type, str] = {Applied: "applied", Rejected: "rejected", Unknown: "unknown"}
