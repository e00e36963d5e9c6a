"""True time, and every simulated process in it, on one thread: a run is a function of its seed.

    with World(seed=7) as world:
        host = world.host("a", rate=1.01)
        task = host.start(main(host.clock))
        world.call_at(3.0, host.freeze, 20.0)
        world.run_until(60.0)

Guarantee: two runs of the same program with the same seed run the same callbacks in the same order at the same
instants, whatever the hash seed and however fast the machine.

Assumption: the program under test gets time, randomness and its store from the simulation, and does not act on the
order in which a `set` is walked or on `id()`.

Not simulated: the time that computing takes. A callback takes none; `Host.freeze_after` puts a pause before any.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import sys
from collections import Counter, deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tenure.entropy import Random
from tenure.errors import ConfigError
from tenure.store.given import shown
from tenure.testing.host import Host
from tenure.testing.loop import Callback, Timer
from tenure.testing.machine import Machine

MAX_CALLBACKS_PER_EVENT = 100_000
"""A program that does more without letting time pass spins, and would hang the simulation."""

_COMPACT_FROM = 100  # cancelled timers that are not worth a rebuild of the heap


class World:
    """True time and its one queue of what happens when."""

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ConfigError(f"seed is {shown(seed)}: give a whole number")
        self.seed = seed
        self.random = Random(seed)
        """For the scenario. The network draws from a stream of its own, so that neither disturbs the other."""
        self.now = 0.0
        """True time in seconds, which no host can see."""
        self.hosts: dict[str, Host] = {}
        """The newest process of each name."""
        self.errors: list[tuple[str, BaseException]] = []
        """(host, exception): what ended a task given to `Host.start`, and what nobody retrieved from other tasks.

        The latter is known when the task is dropped, its host crashes, or the world is closed.
        """
        self.strikes: Counter[tuple[str, str]] = Counter()
        """(`crash`, `freeze` or `suspend`, `Host.where()` at that moment): which points were hit."""
        self.on_step: Callable[[Host], None] | None = None
        """Called after each callback of a host; what it raises ends `run_until`."""
        self.callbacks = 0
        """How many callbacks have run."""
        self._queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._order = itertools.count()  # equal times go by the order of asking
        self._ready: deque[Callback | Timer] = deque()
        self._cancelled = 0
        self._born = 0
        self._graves: list[Host] = []
        self._draining = False
        self._running = False

    def host(
        self,
        name: str,
        *,
        rate: float = 1.0,
        slew: float = 0.0,
        wall_offset: float = 0.0,
        boot_offset: float | None = None,
    ) -> Host:
        """A process on a machine of its own, whose clocks run at `rate`, and but for MONOTONIC_RAW at `rate + slew`.

        `wall_offset`: by how many seconds its wall clock is wrong; `boot_offset`: how long it has been up.
        """
        if name in self.hosts and self.hosts[name].alive:
            raise ValueError(f"there is a living host {name!r} already: crash it, then use its respawn()")
        uptime = 1000.0 + 777.0 * len(self.hosts) if boot_offset is None else boot_offset
        return self._adopt(Host(self, name, Machine(self, rate, slew, wall_offset, uptime)))

    def call_at(self, true_time: float, function: Callable[..., object], *arguments: Any) -> None:
        """Call `function` at that instant, outside any host."""
        if true_time < self.now:
            raise ValueError(f"true_time is {true_time}, and it is {self.now} already")
        heapq.heappush(self._queue, (true_time, next(self._order), function, arguments))

    def run_until(self, true_time: float) -> None:
        """Let everything happen that is due up to and at `true_time`, which is what `now` is afterwards."""
        if true_time < self.now:
            raise ValueError(f"true_time is {true_time}, and it is {self.now} already")
        if self._running:
            raise RuntimeError("run_until was called from within the simulation: schedule with call_at instead")
        outer, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
        asyncio._set_running_loop(None)
        self._running = True
        try:
            self._run(true_time)
        finally:
            self._running = False
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(outer)
        for host in self.hosts.values():
            host._forget_finished()

    def close(self) -> None:
        """End every process, quietly, and complete `errors`."""
        self._queue.clear()  # nothing comes due any more, and each burial would look through all of it
        for host in self.hosts.values():
            host._bury_for_good()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _adopt(self, host: Host) -> Host:
        self.hosts[host.name] = host
        return host

    def _run(self, end: float) -> None:
        queue, ready = self._queue, self._ready
        while True:
            if ready:
                self._drain()
            if not queue or queue[0][0] > end:
                break
            self.now, _, function, arguments = heapq.heappop(queue)
            function(*arguments)
        self.now = end

    def _drain(self) -> None:
        """Run what is ready, in order. This is the inner loop: the entering of hosts and the gate are kept cheap."""
        ready, graves = self._ready, self._graves
        entered: Host | None = None
        left = MAX_CALLBACKS_PER_EVENT
        self._draining = True
        try:
            while ready:
                callback = ready.popleft()
                if callback._cancelled:
                    continue
                host = callback.host
                if not host._gated or host._admits(callback):
                    if host is not entered:
                        host._enter()
                        entered = host
                    try:
                        callback._context.run(callback._callback, *callback._args)
                    except (KeyboardInterrupt, SystemExit):
                        raise
                    except BaseException as error:
                        host.loop.call_exception_handler({"message": "a callback failed", "exception": error})
                    left -= 1
                    if self.on_step is not None:
                        self.on_step(host)
                if graves:
                    self._bury()
                    entered = None
                if not left:
                    raise RuntimeError(
                        f"{MAX_CALLBACKS_PER_EVENT:,} callbacks ran at {self.now} s without time passing, the last of "
                        f"them on host {host.name!r} in {host.where()}: it spins"
                    )
        finally:
            self._draining = False
            self.callbacks += MAX_CALLBACKS_PER_EVENT - left
            asyncio._set_running_loop(None)

    def _bury(self) -> None:
        while self._graves:
            self._graves.pop(0)._bury()

    def _timer_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > _COMPACT_FROM and self._cancelled * 2 > len(self._queue):
            self._requeue(lambda due, timer: None if timer is not None and timer._cancelled else due)
            self._cancelled = 0

    def _requeue(self, time_of: Callable[[float, Timer | None], float | None]) -> None:
        """Give each entry of the queue the time that `time_of` says, or drop it if it says none."""
        moved = []
        for due, order, function, arguments in self._queue:
            first = arguments[0] if arguments else None
            new = time_of(due, first if isinstance(first, Timer) else None)
            if new is not None:
                moved.append((new, order, function, arguments))
        heapq.heapify(moved)
        self._queue[:] = moved  # in place: `_run` holds the list
