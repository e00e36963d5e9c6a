"""Watches a simulated fleet, from outside, for everything that must never happen.

Each check is on ground truth: true time, the bucket's own history, and what the processes would answer at this instant.
`tenure simulate --broken …` shows that each can fail.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from tenure.coordinator.fenced import split
from tenure.coordinator.layout import STATE
from tenure.coordinator.lead import Lead
from tenure.election.holding import Holding
from tenure.election.records import State, decode_state
from tenure.errors import NotFenced
from tenure.testing.bucket import OUTSIDE, Write
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.host import Host
from tenure.testing.world import World

FENCED_PREFIX = "fenced/"
MAX_VIOLATIONS_OF_A_CHECK = 5
_LOOK_SECONDS = 1.0


class Violation(msgspec.Struct, frozen=True):
    """Something that must never happen did."""

    at: float
    """True time, in seconds since the start."""
    check: str
    what: str


class Judge:
    """Collects the violations of one run. Each of its checks has a name."""

    def __init__(self, world: World, until: str | None = None) -> None:
        """`until`: the check that the run is for, if it is for one."""
        self._world = world
        self._until = until
        self._reports: Counter[str] = Counter()
        self.violations: list[Violation] = []

    def report(self, check: str, what: str) -> None:
        self._reports[check] += 1
        if self._reports[check] <= MAX_VIOLATIONS_OF_A_CHECK:
            self.violations.append(Violation(self._world.now, check, what))

    def is_settled(self) -> bool:
        """Has the run shown what it is for? Any violation does; a run for one check goes on until it reports."""
        return bool(self.violations) if self._until is None else self._until in self._reports

    def run_until(self, end: float) -> None:
        """Let time pass to the end, or in a run for one check until that check reports."""
        while self._world.now < end and (self._until is None or self._until not in self._reports):
            self._world.run_until(min(end, self._world.now + _LOOK_SECONDS))


class Checkers(Judge):
    """One leader, epochs, own grants, honest loss, fenced writes, no request storm; at the end, liveness."""

    def __init__(self, cluster: SimulatedCluster, until: str | None = None) -> None:
        super().__init__(cluster.world, until)
        self._cluster = cluster
        self._state_key = cluster.key(STATE)
        self.terms: list[tuple[float, str, int]] = []
        """(true time, worker, epoch) of each leadership that began."""
        self.ends: Counter[str] = Counter()
        """Why terms ended."""
        self.most_requests = 0
        self._seen: dict[str, tuple[Holding, str | None]] = {}
        self._known_leads: set[tuple[str, str]] = set()
        """By grant and process start: a grant that another process leads under is another leadership ..."""
        self._ended_leads: set[tuple[str, str]] = set()
        """... and these are over."""
        self._highest_led = 0
        self._highest_written = 0
        self._issued: dict[str, tuple[str, str | None]] = {}  # grant id -> (host, process start) that first wrote it
        self._grants_in_state: list[str] = []
        self._fenced: dict[str, int] = {}
        self._idle_renewals: dict[str, int] = {}
        self._beat = cluster.config.heartbeat_interval + cluster.config.heartbeat_jitter
        # In calm a worker sends two or three requests a heartbeat, and a standby its looks; in trouble some more tries.
        self._limit = round(60 + 4 * self._beat + self._beat / cluster.config.standby_watch_interval)
        self._window: dict[str, tuple[int, int]] = {}
        cluster.world.on_step = self._stepped
        cluster.bucket.watchers.append(self._written)
        cluster.network.on_request = self._requested

    def check_defects(self) -> None:
        """An exception that nobody foresaw is survived in production, and is a violation here."""
        for worker in self._cluster.workers.values():
            engine = worker.service._engine if worker.service is not None else None
            if engine is not None and engine.defects:
                self.report("defect", f"{worker.name} met {engine.defects} exceptions that nobody foresaw")

    def check_liveness(self, within: float) -> None:
        """Faults ended `within` seconds ago, the computed bound: somebody must lead."""
        leaders = self._cluster.leaders()
        if len(leaders) != 1:
            self.report("liveness", f"{len(leaders)} leaders {within:.0f} s after the last fault")

    # One leader at every instant: two can only begin to overlap when one of them begins or extends

    def _stepped(self, host: Host) -> None:
        worker = self._cluster.workers.get(host.name)
        if worker is None or not host.alive or worker.host is not host:
            return
        lead = worker.lead
        if lead is None:
            return
        holding, ended = lead._holding, lead._ended
        seen = self._seen.get(host.name)
        if seen is not None and seen[0] is holding and seen[1] is ended:
            return
        self._seen[host.name] = (holding, ended)
        uid = _uid(worker)
        leadership = (lead.grant_id, uid)
        if leadership not in self._known_leads:
            self._known_leads.add(leadership)
            self._began(worker, lead, uid)
        if ended is not None and leadership not in self._ended_leads:
            self._ended_leads.add(leadership)
            self._ended(worker, lead, ended)
        self.check_one_leader()

    def check_one_leader(self) -> None:
        holders = self._cluster.holders()
        if len(holders) > 1:
            epochs = {name: lead.epoch for name in holders if (lead := self._cluster.workers[name].lead) is not None}
            self.report("one-leader", f"the lease is valid for {holders} at once, epochs {epochs}")
        leaders = self._cluster.leaders()
        if len(leaders) > 1:
            self.report("one-leader", f"{leaders} answer true to is_leader() at once")

    # Epochs, and own grants

    def _began(self, worker: SimulatedWorker, lead: Lead, uid: str) -> None:
        self.terms.append((self._world.now, worker.name, lead.epoch))
        if lead.epoch <= self._highest_led:
            self.report("epochs", f"{worker.name} began to lead epoch {lead.epoch} after epoch {self._highest_led}")
        self._highest_led = max(self._highest_led, lead.epoch)
        issuer = self._issued.get(lead.grant_id)
        if issuer != (worker.name, uid):
            self.report("own-grant", f"{worker.name} leads under a grant that was issued by {issuer}")

    def _ended(self, worker: SimulatedWorker, lead: Lead, reason: str) -> None:
        self.ends[reason] += 1
        if reason != "taken":
            return
        # "Taken" is a claim about the bucket: there must have been another grant since.
        later = self._grants_in_state[self._position(lead.grant_id) :]
        if all(grant == lead.grant_id for grant in later):
            self.report("honest-loss", f"{worker.name} gave up epoch {lead.epoch} as taken, and nobody had taken it")

    def _position(self, grant_id: str) -> int:
        return self._grants_in_state.index(grant_id) if grant_id in self._grants_in_state else 0

    # The bucket's history

    def _written(self, write: Write) -> None:
        if write.key == self._state_key:
            self._lease_written(write)
        elif write.key.startswith(FENCED_PREFIX) and write.new is not None:
            self._fenced_written(write.key, write.new)

    def _lease_written(self, write: Write) -> None:
        new = decode_state(write.new) if write.new is not None else None
        self._grants_in_state.append(new.grant_id if isinstance(new, State) else "none")
        if write.host == OUTSIDE:
            return
        if not isinstance(new, State):
            self.report("epochs", f"{write.host} wrote a lease that cannot be read: {new}")
            return
        self._issued.setdefault(new.grant_id, (write.host, new.uid))
        old = decode_state(write.old) if write.old is not None else None
        if isinstance(old, State) and new.epoch < old.epoch:
            self.report("epochs", f"{write.host} took the lease back from epoch {old.epoch} to {new.epoch}")
        if not isinstance(old, State) and new.epoch <= self._highest_led and write.old is not None:
            self.report("epochs", f"{write.host} rebuilt the lease at epoch {new.epoch}, not above {self._highest_led}")
        self._check_renewal(write.host, new)
        self._highest_written = max(self._highest_written, new.epoch)

    def _check_renewal(self, host: str, new: State) -> None:
        """A process that renews a lease must lead, or be winding up: otherwise nobody does, for as long as it lives."""
        lead = self._cluster.workers[host].lead
        idle = lead is not None and lead.grant_id == new.grant_id and lead._ended == "renew-deadline"
        self._idle_renewals[host] = self._idle_renewals.get(host, 0) + 1 if idle and not new.released else 0
        if self._idle_renewals[host] == 3:
            self.report("liveness", f"{host} renews the lease, and does not lead")

    def _fenced_written(self, key: str, body: bytes) -> None:
        try:
            header, _ = split(key, body)
        except NotFenced:
            self.report("fencing", f"{key} was written without a fence")
            return
        before = self._fenced.get(key, 0)
        if header.epoch < before:
            self.report("fencing", f"{key} went back from epoch {before} to {header.epoch}")
        self._fenced[key] = max(before, header.epoch)

    # Requests

    def _requested(self, host: str, verb: str, key: str, now: float) -> None:
        if not key.startswith(self._cluster.folder):
            return  # what plugins send is theirs to bound
        window = int(now / self._beat)
        current, count = self._window.get(host, (window, 0))
        count = count + 1 if current == window else 1
        self._window[host] = (window, count)
        self.most_requests = max(self.most_requests, count)
        if count == self._limit + 1:
            self.report("storm", f"{host} sent over {self._limit} requests within {self._beat:g} s")


def _uid(worker: SimulatedWorker) -> str:
    """Of a process that leads, or did: this start of it."""
    assert worker.service is not None
    assert worker.service._engine is not None
    return worker.service._engine._who.uid
