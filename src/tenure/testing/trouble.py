"""Everything that goes wrong with a fleet, from a seed: crashes, freezes, partitions, clocks, damage, people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tenure.coordinator.layout import METADATA, STATE, WORKERS, namespace_store
from tenure.coordinator.outside import ask_for_handover
from tenure.election.records import State, decode_state
from tenure.entropy import Random
from tenure.errors import ConfigError
from tenure.testing.bucket import SimulatedStore, Write
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker, _quietly
from tenure.testing.mixes import Mix

_MOST_CALLBACKS_AHEAD = 400
_LOOK_EVERY = 0.005
_ROUGH = {
    "lost_request": 0.08,
    "lost_reply": 0.10,
    "late_landing": 0.08,
    "repeated": 0.06,
    "slow_request": 0.12,
    "slow_reply": 0.12,
    "server_error": 0.08,
}
"""What the network does to requests for a while, of one worker or of all."""


class Trouble:
    """Makes trouble for a cluster until `ends_at` (true time), then puts everything right.

    `hit` counts what was done, by kind.
    """

    def __init__(self, cluster: SimulatedCluster, random: Random, mix: Mix) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = random
        self._strikes = Random(f"{cluster.world.seed}/strikes")
        """A stream of its own, so that what else happens in a seed stays the same up to such a strike."""
        self._lease = cluster.config.lease_timeout
        self._old_leases: list[bytes] = []
        self.hit: Counter[str] = Counter()
        self.ends_at = 0.0
        self._mix = mix
        chosen = mix.faults or tuple(KINDS)
        for kind in chosen:
            if kind not in KINDS:
                raise ConfigError(f"there is no fault {kind!r}: there are {', '.join(KINDS)}")
        self._kinds = [kind for kind in chosen for _ in range(KINDS[kind][0])]
        cluster.bucket.watchers.append(self._remember)

    def begin(self, ends_at: float) -> None:
        self.ends_at = ends_at
        if "network" in self._kinds:
            self._cluster.network.change(None, **self._mix.network)
        self._world.call_at(self._world.now + self._pause(), self._next)
        self._world.call_at(ends_at, self._put_right)

    def _next(self) -> None:
        if self._world.now >= self.ends_at:
            return
        kind = self._random.choice(self._kinds)
        if KINDS[kind][1](self):
            self.hit[kind] += 1
        self._world.call_at(min(self._world.now + self._pause(), self.ends_at), self._next)

    def _pause(self) -> float:
        return self._random.expovariate(1 / self._mix.seconds_between_faults)

    def _put_right(self) -> None:
        network = self._cluster.network
        network.outage(False)
        network.reset()
        network.latency_factor = 1.0
        for name, worker in self._cluster.workers.items():
            network.heal(name)
            worker.healthy = True
            worker.host.disarm()
            worker.host.set_slew(0.0)
            worker.start()

    # Whom and when

    def _some(self) -> SimulatedWorker | None:
        """A live worker: the leader as often as all others together, since that is where trouble matters."""
        live = [worker for worker in self._cluster.workers.values() if worker.host.alive and worker.service is not None]
        if not live:
            return None
        leading = [worker for worker in live if worker.is_leader()]
        return leading[0] if leading and self._random.random() < 0.5 else self._random.choice(live)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._world.call_at(min(self._world.now + seconds, max(self.ends_at, self._world.now)), call)

    def _leases(self, least: float, most: float) -> float:
        return self._random.uniform(least, most) * self._lease

    def _callbacks(self) -> int:
        return 1 + int(self._random.expovariate(1 / 60)) % _MOST_CALLBACKS_AHEAD

    def _remember(self, write: Write) -> None:
        if write.key != self._cluster.key(STATE) or write.new is None or self._random.random() > 0.2:
            return
        if isinstance(decode_state(write.new), State):
            self._old_leases.append(write.new)
            del self._old_leases[:-20]

    # What

    def freeze(self) -> bool:
        worker = self._some()
        if worker is None:
            return False
        worker.host.freeze_after(self._callbacks(), self._leases(0.1, 3.0))
        return True

    def suspend(self) -> bool:
        worker = self._some()
        if worker is None:
            return False
        worker.host.suspend_after(self._callbacks(), self._leases(0.1, 3.0))
        return True

    def crash(self) -> bool:
        worker = self._some()
        if worker is None:
            return False
        worker.host.crash_after(self._callbacks())
        self._later(self._leases(0.05, 3.0), lambda: worker.start() if not worker.host.alive else None)
        return True

    def crash_all(self) -> bool:
        for worker in self._cluster.workers.values():
            worker.crash()
            self._later(self._random.uniform(0.1, 3.0), worker.start)
        return True

    def stop(self) -> bool:
        worker = self._some()
        if worker is None:
            return False
        worker.stop()
        self._strike_one_who_leaves(worker)
        self._later(self._leases(0.2, 3.0), worker.start)
        return True

    def step_down(self) -> bool:
        worker = self._some()
        if worker is None:
            return False
        worker.step_down()
        self._strike_one_who_leaves(worker)
        return True

    def _strike_one_who_leaves(self, worker: SimulatedWorker) -> None:
        """A lease is given back in a moment, which strikes at random hardly ever hit: wait for it."""
        if worker.is_leader() and self._strikes.random() < self._mix.struck_when_leaving:
            seconds = self._strikes.uniform(0.1, 2.0) * self._lease
            self._strike_in("release", worker, self._strikes.random() < 0.5, seconds)

    def _strike_in(self, function: str, worker: SimulatedWorker, crash: bool, seconds: float, looks: int = 300) -> None:
        if not worker.host.alive or looks == 0 or self._world.now >= self.ends_at:
            return
        if function not in worker.host.where():
            again = self._world.now + _LOOK_EVERY
            self._world.call_at(again, self._strike_in, function, worker, crash, seconds, looks - 1)
        elif crash:
            worker.host.crash()
            self._later(seconds, lambda: worker.start() if not worker.host.alive else None)
        else:
            worker.host.freeze(seconds)

    def ask(self) -> bool:
        """Somebody outside asks for a handover, through a worker's network."""
        worker = self._some()
        if worker is None:
            return False
        names = list(self._cluster.workers)
        to = self._random.choice([None, *names])
        store = namespace_store(
            SimulatedStore(self._cluster.bucket, worker.host, self._cluster.network), self._cluster.namespace
        )
        force = self._random.random() < 0.7

        async def request() -> None:
            await _quietly(
                ask_for_handover(
                    store,
                    self._cluster.namespace,
                    by="operator",
                    to=to,
                    force=force,
                    timeout=20.0,
                    clock=worker.host.clock,
                    draw_id=self._cluster.draw_id,
                )
            )

        worker.host.start(request())
        return True

    def cut(self) -> bool:
        worker = self._some()
        if worker is None:
            return False
        self._cluster.network.cut(worker.name)
        self._later(self._leases(0.3, 2.5), lambda: self._cluster.network.heal(worker.name))
        return True

    def cut_replies(self) -> bool:
        worker = self._some()
        if worker is None:
            return False
        self._cluster.network.cut_replies(worker.name)
        self._later(self._leases(0.3, 2.0), lambda: self._cluster.network.heal(worker.name))
        return True

    def stutter(self) -> bool:
        """A connection on its way out: answers are lost, for a moment all is well, then nothing passes."""
        worker = self._some()
        if worker is None:
            return False
        network, name = self._cluster.network, worker.name
        deaf, well, dead = self._leases(0.2, 0.7), self._leases(0.02, 0.15), self._leases(1.2, 2.5)
        network.cut_replies(name)
        self._later(deaf, lambda: network.heal(name))
        self._later(deaf + well, lambda: network.cut(name))
        self._later(deaf + well + dead, lambda: network.heal(name))
        return True

    def blur(self) -> bool:
        """Requests of everyone but the leader arrive late; in the middle of that the leader is cut off."""
        leaders = self._cluster.leaders()
        if not leaders:
            return False
        network, leader = self._cluster.network, leaders[0]
        late = 0.9 * self._cluster.config.request_timeout_seconds
        cut_at = self._leases(0.2, 0.8)
        for name in self._cluster.workers:
            if name != leader:
                network.change(name, **self._mix.network | {"slow_request": 0.7, "slow_seconds": late})
                self._later(cut_at + 0.3 * self._lease, lambda name=name: network.reset(name))  # type: ignore[misc]
        self._later(cut_at, lambda: network.cut(leader))
        self._later(cut_at + self._leases(1.3, 2.0), lambda: network.heal(leader))
        return True

    def outage(self) -> bool:
        self._cluster.network.outage(True)
        long = self._random.random() < 0.2
        self._later(75.0 if long else self._leases(0.1, 1.5), lambda: self._cluster.network.outage(False))
        return True

    def rough(self) -> bool:
        """The network is bad, for one worker or for all, and then perhaps cut off."""
        worker = self._some() if self._random.random() < 0.7 else None
        network = self._cluster.network
        seconds = self._leases(0.5, 2.0)
        network.change(worker.name if worker is not None else None, **_ROUGH)
        if worker is None:
            self._later(seconds, lambda: network.change(None, **self._mix.network))
            return True
        name = worker.name
        self._later(seconds, lambda: network.reset(name))
        if self._random.random() < 0.5:
            self._later(seconds, lambda: network.cut(name))
            self._later(seconds + self._leases(1.2, 2.0), lambda: network.heal(name))
        return True

    def slow(self) -> bool:
        self._cluster.network.latency_factor = self._random.uniform(5, 60)
        self._later(self._leases(0.5, 2.0), self._usual_speed)
        return True

    def _usual_speed(self) -> None:
        self._cluster.network.latency_factor = 1.0

    def wall(self) -> bool:
        worker = self._some()
        if worker is None:
            return False
        worker.host.step_wall(self._random.choice([-86400.0, -30.0, -0.5, 0.5, 30.0, 86400.0]))
        return True

    def slew(self) -> bool:
        worker = self._some()
        if worker is None:
            return False
        host, network = worker.host, self._cluster.network
        host.set_slew(self._random.choice([-0.08, -0.02, 0.02, 0.08]))
        self._later(self._leases(2.0, 4.0), lambda: host.set_slew(0.0))
        leaders = self._cluster.leaders()
        if leaders and self._random.random() < 0.6:  # a lease that is counted wrongly shows when it is not renewed
            name = leaders[0]
            cut_at = self._leases(0.1, 0.6)
            self._later(cut_at, lambda: network.cut(name))
            self._later(cut_at + self._leases(1.3, 1.6), lambda: network.heal(name))
        return True

    def unhealthy(self) -> bool:
        worker = self._some()
        if worker is None:
            return False
        worker.healthy = False

        def recover() -> None:
            worker.healthy = True

        self._later(self._leases(1.0, 5.0), recover)
        return True

    def corrupt(self) -> bool:
        if self._cluster.bucket.body(self._cluster.key(STATE)) is None:
            return False
        body = self._random.choice([b"", b"{", b'{"epoch": -1}', b"\xff" * 40, b'{"schemaVersion": 1, "leaderId": 5}'])
        self._cluster.bucket.corrupt(self._cluster.key(STATE), body)
        return True

    def remove(self) -> bool:
        if self._cluster.bucket.body(self._cluster.key(STATE)) is None:
            return False
        self._cluster.bucket.remove(self._cluster.key(STATE))
        return True

    def roll_back(self) -> bool:
        if not self._old_leases:
            return False
        self._cluster.bucket.restore(self._cluster.key(STATE), self._random.choice(self._old_leases))
        return True

    def roll_back_and_restart(self) -> bool:
        """An old lease is put back, and processes that remember nothing start on it."""
        if not self._old_leases:
            return False
        self._cluster.bucket.restore(self._cluster.key(STATE), self._random.choice(self._old_leases))
        for worker in self._cluster.workers.values():
            if not worker.is_leader() and self._random.random() < 0.6:
                worker.crash()
                self._later(self._random.uniform(0.1, 2.0), worker.start)
        return True

    def wipe_workers(self) -> bool:
        return self._cluster.bucket.wipe(self._cluster.key(WORKERS)) > 0

    def wipe_metadata(self) -> bool:
        self._cluster.bucket.remove(self._cluster.key(METADATA))
        return True

    def network(self) -> bool:
        """Its everyday faults are on all the time."""
        return True


KINDS: dict[str, tuple[int, Callable[[Trouble], bool]]] = {
    "freeze": (6, Trouble.freeze),
    "suspend": (3, Trouble.suspend),
    "crash": (8, Trouble.crash),
    "crash-all": (1, Trouble.crash_all),
    "stop": (3, Trouble.stop),
    "step-down": (3, Trouble.step_down),
    "ask": (3, Trouble.ask),
    "cut": (6, Trouble.cut),
    "cut-replies": (3, Trouble.cut_replies),
    "stutter": (5, Trouble.stutter),
    "blur": (4, Trouble.blur),
    "outage": (2, Trouble.outage),
    "rough": (6, Trouble.rough),
    "slow": (2, Trouble.slow),
    "wall": (2, Trouble.wall),
    "slew": (4, Trouble.slew),
    "unhealthy": (2, Trouble.unhealthy),
    "corrupt": (1, Trouble.corrupt),
    "remove": (1, Trouble.remove),
    "roll-back": (1, Trouble.roll_back),
    "roll-back-and-restart": (1, Trouble.roll_back_and_restart),
    "wipe-workers": (1, Trouble.wipe_workers),
    "wipe-metadata": (1, Trouble.wipe_metadata),
    "network": (1, Trouble.network),
}
"""By name: how often, against the others, and what."""
