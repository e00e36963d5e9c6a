"""What goes wrong with processes that elect nobody: they contend, write or work each for itself.

`Trouble` is for a fleet with a leader. Most of what it does makes sense without one too, and has the same name here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from tenure.entropy import Random
from tenure.errors import ConfigError
from tenure.simulate.seed import Played
from tenure.testing.checkers import Judge
from tenure.testing.host import Host
from tenure.testing.mixes import Mix
from tenure.testing.network import Network
from tenure.testing.world import World

CALM = {"lost_request": 0.004, "lost_reply": 0.01, "late_landing": 0.006, "repeated": 0.01, "slow_request": 0.006}
"""What the network does to requests all the time."""
ROUGH = {
    "lost_request": 0.06,
    "lost_reply": 0.15,
    "late_landing": 0.12,
    "repeated": 0.08,
    "slow_request": 0.10,
    "slow_reply": 0.10,
    "server_error": 0.10,
}
"""And for a while to one process, or to all."""


class Process(Protocol):
    """One of the fleet. Its machine outlives it."""

    name: str
    host: Host

    def start(self) -> None:
        """Begin again after a crash."""


class Fleet(Protocol):
    """Processes without a leader, and their judge."""

    network: Network

    @property
    def judge(self) -> Judge: ...

    def conclude(self, longest_pause: float) -> None:
        """Trouble is over: see what was promised come about. A process may stand still for so long yet."""


class ProcessTrouble:
    """Makes trouble until `ends_at` (true time), then puts everything right. `hit` counts what was done, by kind."""

    kinds: ClassVar[dict[str, tuple[int, Callable[[Any], bool]]]]
    """By name: how often, against the others, and what."""
    calm: ClassVar[dict[str, float]] = CALM
    callbacks: ClassVar[int] = 50
    """A strike comes after at most so many steps of its process."""

    def __init__(
        self,
        world: World,
        network: Network,
        processes: Sequence[Process],
        random: Random,
        mix: Mix,
        unit: float,
        *,
        never: tuple[str, ...] = (),
    ) -> None:
        """`unit`: seconds of which a usual fault lasts one or two; `never`: what the network does not do."""
        self._world = world
        self._network = network
        self._processes = processes
        self._random = random
        self._mix = mix
        self._unit = unit
        self._calm = {name: share for name, share in self.calm.items() if name not in never}
        self._rough = {name: share for name, share in ROUGH.items() if name not in never}
        self.hit: Counter[str] = Counter()
        self.ends_at = 0.0
        chosen = mix.faults or tuple(self.kinds)
        for kind in chosen:
            if kind not in self.kinds:
                raise ConfigError(f"there is no fault {kind!r} here: there are {', '.join(self.kinds)}")
        self._chosen = [kind for kind in chosen for _ in range(self.kinds[kind][0])]

    def begin(self, ends_at: float) -> None:
        self.ends_at = ends_at
        if "network" in self._chosen:
            self._network.change(None, **self._calm)
        self._world.call_at(min(ends_at, self._world.now + 1.0), self._next)
        self._world.call_at(ends_at, self._put_right)

    def longest(self) -> float:
        """Seconds for which what the last fault left behind may go on."""
        return 2.5 * self._unit

    # To override

    def matters(self, process: Any) -> bool:
        """Is trouble with this one more interesting than with the others?"""
        return False

    # Whom and when

    def _next(self) -> None:
        if self._world.now >= self.ends_at:
            return
        kind = self._random.choice(self._chosen)
        if self.kinds[kind][1](self):
            self.hit[kind] += 1
        pause = self._random.expovariate(1 / self._mix.seconds_between_faults)
        self._world.call_at(min(self.ends_at, self._world.now + pause), self._next)

    def _put_right(self) -> None:
        self._network.outage(False)
        self._network.reset()
        self._network.latency_factor = 1.0
        for process in self._processes:
            self._network.heal(process.name)
            process.host.disarm()
            process.host.set_slew(0.0)
            if not process.host.alive:
                process.start()

    def _some(self) -> Any:
        """A living process: one that matters as often as all others together."""
        live = [process for process in self._processes if process.host.alive]
        first = [process for process in live if self.matters(process)]
        if first and self._random.random() < 0.5:
            return first[0]
        return self._random.choice(live) if live else None

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        """Unless everything has been put right by then."""
        if self._world.now + seconds < self.ends_at:
            self._world.call_at(self._world.now + seconds, call)

    def _units(self, least: float, most: float) -> float:
        return self._random.uniform(least, most) * self._unit

    def _steps(self) -> int:
        return self._random.randint(1, self.callbacks)

    # What

    def freeze(self) -> bool:
        if (process := self._some()) is None:
            return False
        process.host.freeze_after(self._steps(), self._units(0.1, 2.5))
        return True

    def suspend(self) -> bool:
        if (process := self._some()) is None:
            return False
        process.host.suspend_after(self._steps(), self._units(0.1, 2.5))
        return True

    def crash(self) -> bool:
        if (process := self._some()) is None:
            return False
        process.host.crash_after(self._steps())
        self._later(self._units(0.1, 2.0), lambda: None if process.host.alive else process.start())
        return True

    def cut(self) -> bool:
        if (process := self._some()) is None:
            return False
        self._network.cut(process.name)
        self._later(self._units(0.2, 2.5), lambda: self._network.heal(process.name))
        return True

    def cut_replies(self) -> bool:
        if (process := self._some()) is None:
            return False
        self._network.cut_replies(process.name)
        self._later(self._units(0.1, 0.9), lambda: self._network.heal(process.name))
        return True

    def stutter(self) -> bool:
        """Answers are lost, for a moment all is well, then nothing passes: a renewal that is counted wrongly shows."""
        if (process := self._some()) is None:
            return False
        name, network = process.name, self._network
        deaf, well, dead = self._units(0.1, 0.6), self._random.uniform(0.005, 0.15), self._units(1.2, 2.5)
        network.cut_replies(name)
        self._later(deaf, lambda: network.heal(name))
        self._later(deaf + well, lambda: network.cut(name))
        self._later(deaf + well + dead, lambda: network.heal(name))
        return True

    def outage(self) -> bool:
        self._network.outage(True)
        self._later(self._units(0.1, 1.0), lambda: self._network.outage(False))
        return True

    def rough(self) -> bool:
        """The network is bad, for one process or for all, and then perhaps cut off."""
        process = self._some() if self._random.random() < 0.6 else None
        network, seconds = self._network, self._units(0.5, 2.0)
        network.change(process.name if process is not None else None, **self._rough)
        if process is None:
            usual = dict.fromkeys(self._rough, 0.0) | (self._calm if "network" in self._chosen else {})
            self._later(seconds, lambda: network.change(None, **usual))
            return True
        self._later(seconds, lambda: network.reset(process.name))
        if self._random.random() < 0.6:
            self._later(seconds, lambda: network.cut(process.name))
            self._later(seconds + self._units(1.2, 2.0), lambda: network.heal(process.name))
        return True

    def slow(self) -> bool:
        self._network.latency_factor = self._random.uniform(5, 25)
        self._later(self._units(0.5, 2.0), self._usual_speed)
        return True

    def _usual_speed(self) -> None:
        self._network.latency_factor = 1.0

    def slew(self) -> bool:
        if (process := self._some()) is None:
            return False
        host = process.host
        host.set_slew(self._random.choice([-0.08, 0.08]))
        self._later(self._units(2.0, 4.0), lambda: host.set_slew(0.0) if host.alive else None)
        return True

    def wall(self) -> bool:
        if (process := self._some()) is None:
            return False
        process.host.step_wall(self._random.choice([-86400.0, -5.0, 0.5, 5.0, 86400.0]))
        return True

    def quirks(self) -> bool:
        """The network's everyday faults are on all the time."""
        return True


def play_trouble(
    fleet: Fleet,
    trouble: ProcessTrouble,
    minutes: float,
    *,
    terms: Callable[[], int],
    seen: Callable[[Counter[str]], None],
    foreseen: tuple[type[BaseException], ...],
) -> Played:
    """Trouble for so many minutes, then none."""
    trouble.begin(minutes * 60)
    fleet.judge.run_until(trouble.ends_at)
    if not fleet.judge.is_settled():
        fleet.conclude(trouble.longest())
    return Played(fleet.judge, fleet.network, trouble.hit, terms, seen, foreseen)
