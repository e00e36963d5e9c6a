"""The way from every simulated process to the bucket, and what goes wrong on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from tenure.entropy import Random
from tenure.errors import ConfigError
from tenure.store.given import check_instance, check_number, shown
from tenure.testing.host import Host
from tenure.testing.world import World

_FAULTS = ("lost_request", "lost_reply", "late_landing", "repeated", "slow_request", "slow_reply", "server_error")

_LONGEST = 10 * 365 * 86_400.0


class Conditions(msgspec.Struct, frozen=True):
    """What the network is like. The shares run from 0 (never) to 1; at most one of the faults happens to a request."""

    latency: tuple[float, float] = (0.002, 0.020)
    """Least and most seconds that a message takes, each way."""
    timeout: float = 5.0
    """Seconds of true time after which a caller is told that there was no answer. The request itself goes on."""
    lost_request: float = 0.0
    """It never reaches the bucket, and the caller hears nothing."""
    lost_reply: float = 0.0
    """It happens, and the caller hears nothing."""
    late_landing: float = 0.0
    """A write gets no answer, at once or at the timeout, and reaches the bucket up to `late_seconds` after it was sent.

    A read gets no answer.
    """
    repeated: float = 0.0
    """A write reaches the bucket twice, and the second answer is heard: a conditional write that happened is told
    that it did not."""
    slow_request: float = 0.0
    """It is under way for up to `slow_seconds` longer."""
    slow_reply: float = 0.0
    server_error: float = 0.0
    """The store answers with an error of its own; of the writes, half have happened."""
    slow_seconds: float = 8.0
    late_seconds: float = 40.0

    def __post_init__(self) -> None:
        shares = [getattr(self, name) for name in _FAULTS]
        for name, share in zip(_FAULTS, shares, strict=True):
            check_number(name, share, least=0.0, most=1.0)
        for name in ("timeout", "slow_seconds", "late_seconds"):
            check_number(name, getattr(self, name), least=0.0, most=_LONGEST)
        if sum(shares) > 1.0 + 1e-9:
            raise ConfigError(f"the shares of {', '.join(_FAULTS)} together are over 1")
        if not isinstance(self.latency, tuple | list) or len(self.latency) != 2:
            raise ConfigError(f"latency is {shown(self.latency)}: give least and most seconds")
        least, most = (check_number("latency", each, least=0.0, most=_LONGEST) for each in self.latency)
        if least > most:
            raise ConfigError(f"latency is {shown(self.latency)}: give least and most seconds")


class Link:
    """One host's way to the bucket, with everything that a request asks for worked out beforehand."""

    __slots__ = (
        "calm_scale",
        "conditions",
        "dark",
        "faults",
        "held",
        "late",
        "low",
        "replies_cut",
        "span",
        "timeout",
        "trouble",
    )

    def __init__(self) -> None:
        self.dark = ""  # why nothing passes, if so
        self.late: dict[Any, Callable[[Any], None]] = {}
        """Requests that will land late, and what has one land."""
        self.held: tuple[str, Callable[[], object]] | None = None
        """What the key of a write has in it that is to be held up, and what is called when it is."""
        self.replies_cut = False

    def compile(self, conditions: Conditions, latency_factor: float) -> None:
        self.conditions = conditions
        self.timeout = conditions.timeout
        self.low = conditions.latency[0] * latency_factor
        self.span = (conditions.latency[1] - conditions.latency[0]) * latency_factor
        self.faults: list[tuple[float, str]] = []
        self.trouble = 0.0
        for name in _FAULTS:
            if share := getattr(conditions, name):
                self.trouble += share
                self.faults.append((self.trouble, name))
        self.calm_scale = self.span / (1.0 - self.trouble) if self.trouble < 1.0 else 0.0

    def fault(self, roll: float) -> str:
        for bound, name in self.faults:
            if roll < bound:
                return name
        return self.faults[-1][1]


class Network:
    """Between the hosts and the bucket. Everything about it may be changed while the simulation runs."""

    def __init__(self, world: World, conditions: Conditions | None = None) -> None:
        check_instance("world", world, World)
        if conditions is not None:
            check_instance("conditions", conditions, Conditions)
        self.hits: Counter[str] = Counter()
        """How often each fault happened (by its name in `Conditions`), and what callers were told.

        Told: `applied`, `rejected`, `unknown` (conditional writes only), `timeout`. Switched: `cut`, `cut_reply`,
        `outage`. Further: `late_landing_applied`, `late_landing_rejected`, `server_error_applied`,
        `server_error_not_applied`.
        """
        self.requests: Counter[tuple[str, str]] = Counter()
        """(host, verb): what was sent."""
        self.on_request: Callable[[str, str, str, float], None] | None = None
        """Called with host, verb, key (of a delete: the first; of a listing: the prefix) and true time."""
        self.whole_second_times = False
        """Listings round `modified` down, as some stores do."""
        self.random = Random(f"{world.seed}/network")
        self._conditions = Conditions() if conditions is None else conditions
        self._own: dict[str, Conditions] = {}
        self._latency_factor = 1.0
        self._outage = False
        self._cut: dict[str, bool] = {}
        self._links: dict[str, Link] = {}

    def conditions(self, host: Host | str | None = None) -> Conditions:
        """Those of `host`, or those of every host that has none of its own."""
        return self._own.get(_name(host), self._conditions) if host is not None else self._conditions

    def change(self, host: Host | str | None = None, **fields: Any) -> None:
        """Change fields of `Conditions`, for all hosts or for one, which then keeps conditions of its own."""
        changed = msgspec.structs.replace(self.conditions(host), **fields)
        if host is None:
            self._conditions = changed
            self._own = {name: msgspec.structs.replace(own, **fields) for name, own in self._own.items()}
        else:
            self._own[_name(host)] = changed
        self._compile()

    def reset(self, host: Host | str | None = None) -> None:
        """Back to `Conditions()` for all; or `host` back to what all have."""
        if host is None:
            self._conditions = Conditions()
            self._own.clear()
        else:
            self._own.pop(_name(host), None)
        self._compile()

    @property
    def latency_factor(self) -> float:
        """Makes every message slower or faster."""
        return self._latency_factor

    @latency_factor.setter
    def latency_factor(self, factor: float) -> None:
        self._latency_factor = factor
        self._compile()

    def cut(self, host: Host | str) -> None:
        """Nothing passes between `host` and the bucket, either way, including what is under way."""
        self._cut[_name(host)] = True
        self._compile()

    def cut_replies(self, host: Host | str) -> None:
        """Requests of `host` arrive, and it does not hear of it."""
        self._link(_name(host)).replies_cut = True

    def heal(self, host: Host | str) -> None:
        """Undo `cut` and `cut_replies`."""
        self._cut.pop(_name(host), None)
        self._link(_name(host)).replies_cut = False
        self._compile()

    def hold_next(self, host: Host | str, part: str, then: Callable[[], object]) -> None:
        """The next write of `host` to a key with this part in it gets no answer, and lands late; `then` is called."""
        self._link(_name(host)).held = (part, then)

    def land(self, host: Host | str) -> None:
        """What would land late of what `host` sent lands now."""
        for request, land in list(self._link(_name(host)).late.items()):
            land(request)

    def outage(self, on: bool) -> None:
        """Nobody reaches the bucket; what is under way is lost, and late landings too."""
        self._outage = on
        self._compile()

    def _link(self, host: str) -> Link:
        link = self._links.get(host)
        if link is None:
            link = self._links[host] = Link()
            self._compile_one(host, link)
        return link

    def _compile(self) -> None:
        for host, link in self._links.items():
            self._compile_one(host, link)

    def _compile_one(self, host: str, link: Link) -> None:
        link.dark = "outage" if self._outage else "cut" if self._cut.get(host) else ""
        link.compile(self._own.get(host, self._conditions), self._latency_factor)


def _name(host: Host | str) -> str:
    return host if isinstance(host, str) else host.name
