"""A judge who knows what was promised about records that expire, and what became of each of them.

It reads the bucket's own history: every write of every record, index entry and log entry at the instant at which it
lands, whoever overwrote or removed it since. It knows who wrote because ids are drawn through it: a write whose id was
drawn by a call of a process is that call's, any other is the cleaner's. It uses none of the plugin's code but the
records' form, and none of its clocks: an expiry counts by the store's own clock, to the millisecond.
"""

from __future__ import annotations

import contextvars
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from tenure.database.ids import parse_key
from tenure.database.records import Envelope
from tenure.entropy import NewId
from tenure.ledger import LogEntry
from tenure.ledger.layout import ledger_folder, parse_number
from tenure.simulate.ttl_rules import (
    SLOT_MS,
    Act,
    Decision,
    Entry,
    Rule,
    Told,
    entry_of,
    kept_of,
    parse_entry,
    pending_of,
)
from tenure.testing.bucket import Write
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster
from tenure.testing.machine import EPOCH_SECONDS

ACT: contextvars.ContextVar[Act | None] = contextvars.ContextVar("act", default=None)
"""The call that is under way, for everything that is done in it."""

CAUGHT_UP_AFTER = 20.0
_STALE_AFTER = 10.0
_MOST_OBJECTS = 100
_MOST_DOUBT = 150.0
"""Seconds by which the expiry of a process that knows the time badly may lie later than it asked for."""

_envelope = msgspec.json.Decoder(Envelope)
_log_entry = msgspec.json.Decoder(LogEntry)
Key = tuple[str, str]
"""A resource, and an id in it."""


class Judge:
    def __init__(
        self, cluster: SimulatedCluster, checkers: Checkers, rules: tuple[Rule, ...], *, quarantine: float
    ) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._report = checkers.report
        self._rules = {rule.name: rule for rule in rules}
        self._archives = {rule.archive: rule for rule in rules if rule.archive}
        self._folders = {ledger_folder("ttl", rule.name): rule.name for rule in rules}
        self._quarantine = quarantine
        self.counts: Counter[str] = Counter()
        self._calm_since = self._in_time = float("inf")
        # What lies in the bucket
        self.records: dict[Key, Envelope] = {}
        """Tombstones included."""
        self._history: dict[Key, list[tuple[float, bool, int | None]]] = defaultdict(list)
        """From when on, whether there was a record, and its expiry."""
        self._entries: dict[Key, Entry] = {}
        """By resource and name: the index."""
        self._inbox: dict[str, float] = {}
        self._log: dict[Key, tuple[int, str]] = {}
        """By resource and number: the epoch, and who wrote it."""
        self._logged: Counter[str] = Counter()
        """By resource: the highest number."""
        self._epochs: Counter[str] = Counter()
        self.expiring: dict[Key, int] = {}
        """Records that expire, and when."""
        self.strange: set[Key] = set()
        """Records that were last written by a process without the plugin: nobody promised that the index has them."""
        self._lived: set[Key] = set()
        # What was decided
        self._expirations: Counter[str] = Counter()
        self._decisions: dict[tuple[str, str], Decision] = {}
        """By resource and the id of the write that expired."""
        self._archived: dict[str, Decision] = {}
        """By key of the archive."""
        self._calls: dict[tuple[str, str], int] = {}
        # What processes were told
        self._acts: dict[str, Act] = {}
        """By each id that was drawn in it."""
        cluster.bucket.watchers.append(self._written)

    def drawing(self, draw_id: NewId) -> NewId:
        """Draws ids, and remembers for whom."""

        def draw() -> str:
            id = draw_id()
            act = ACT.get()
            if act is not None:
                self._acts[id] = act
            return id

        return draw

    def store_ms(self, true_time: float | None = None) -> float:
        """What the store's clock shows."""
        now = self._world.now if true_time is None else true_time
        return (EPOCH_SECONDS + self._cluster.bucket.clock_offset + now) * 1000

    def true_time(self, store_ms: float) -> float:
        return store_ms / 1000 - EPOCH_SECONDS - self._cluster.bucket.clock_offset

    # The bucket

    def _written(self, write: Write) -> None:
        key = write.key
        if key.startswith("resource="):
            parsed = parse_key(key)
            assert parsed is not None
            if parsed[0] in self._rules:
                self._record_written(self._rules[parsed[0]], parsed, write)
            elif parsed[0] in self._archives:
                self._archive_written(self._archives[parsed[0]], parsed, write)
        elif key.startswith("plugin=ttl/"):
            folder, _, rest = key[len("plugin=ttl/") :].partition("/")
            resource = self._folders[f"plugin=ttl/{folder}/"]
            if rest.startswith("due/"):
                self._entry_written(resource, rest, write)
            elif rest.startswith("log/") and write.new is not None:
                self._log_written(resource, rest, write)
            elif rest.startswith("inbox/"):
                if write.new is None:
                    self._inbox.pop(key, None)
                else:
                    self._inbox.setdefault(key, write.at)

    # Records

    def _record_written(self, rule: Rule, key: Key, write: Write) -> None:
        old = None if write.old is None else _envelope.decode(write.old)
        if write.new is None:
            assert old is not None
            del self.records[key]
            self.expiring.pop(key, None)
            self.strange.discard(key)
            if not old.deleted:
                self._report("removed", f"{write.host} removed {_named(key, old)}, which was no tombstone")
            elif old.reserved:
                self._report("removed", f"the tombstone {_named(key, old)} was removed with {sorted(old.reserved)}")
            return
        new = _envelope.decode(write.new)
        self.records[key] = new
        expiry = rule.expiry_of(new)
        self._history[key].append((write.at, not new.deleted, expiry))
        if expiry is None:
            self.expiring.pop(key, None)
        else:
            self.expiring[key] = expiry
        act = self._acts.get(new.write_id)
        self._check_base(key, old, new, write)
        if act is not None and act.is_strange:
            act.landed.append((key[1], new.version))
            self.counts["written by strangers"] += 1
            self.strange.add(key)
        elif act is not None:
            self._user_wrote(rule, key, old, new, act)
        else:
            self._cleaner_wrote(rule, key, old, new, write)
        stays_strange = key in self.strange and act is None and old is not None and kept_of(old) == kept_of(new)
        if not stays_strange and (act is None or not act.is_strange):
            self.strange.discard(key)
            self._check_indexed(rule, key, new, write)
        if not new.deleted:
            self._lived.add(key)

    def _check_base(self, key: Key, old: Envelope | None, new: Envelope, write: Write) -> None:
        """Whoever writes has read what it overwrites, and carries along what is not its own."""
        if old is None:
            return
        if new.version != old.version + 1 or len(new.recent_writes) < 2 or new.recent_writes[-2] != old.write_id:
            self._report("overwritten", f"{write.host} wrote {_named(key, new)} without having read {old.version}")
        if new.reserved.get("note") != old.reserved.get("note") and self._verb(new) != "note":
            self._report("reserved", f"{write.host} lost the note of {_named(key, old)}")
        before, after = pending_of(old), pending_of(new)
        for name in before.keys() - after.keys():
            self._settled(key, before[name], write)
        if after.keys() - before.keys() and new.write_id in self._acts:
            self._report("pending", f"a {self._verb(new)} of {_named(key, new)} made something pending")

    def _verb(self, envelope: Envelope) -> str:
        act = self._acts.get(envelope.write_id)
        return act.verb if act is not None else "cleaner"

    def _check_indexed(self, rule: Rule, key: Key, new: Envelope, write: Write) -> None:
        """A record that expires is in the index before it is there: nobody would ever look for it otherwise."""
        expiry = rule.expiry_of(new)
        if expiry is not None:
            name = entry_of(new)
            found = self._entries.get((rule.name, name))
            if found is None or key[1] not in found.ids or found.slot_ms > expiry + SLOT_MS:
                verb = self._verb(new)
                self._report("index", f"{_named(key, new)} ({verb}, by {write.host}) expires, and {name!r} has it not")
            elif found.slot_ms < self.store_ms():
                self.counts["landed after its entry was due"] += 1
        for name in pending_of(new):
            if (rule.name, name) not in self._entries:
                self._report("index", f"{_named(key, new)} has something pending, and no entry {name!r} leads to it")

    def _user_wrote(self, rule: Rule, key: Key, old: Envelope | None, new: Envelope, act: Act) -> None:
        before = key[1] in [id for id, _ in act.landed]
        act.landed.append((key[1], new.version))
        expiry = rule.expiry_of(new)
        act.expiries.append(expiry)
        was = rule.expiry_of(old) if old is not None else None
        if before:
            # A call that stood still for long writes its record anew, whatever that is by then, for the index's sake.
            self.counts["written anew"] += 1
            if old is None or (old.deleted, old.data, was) != (new.deleted, new.data, expiry):
                self._report("twice", f"{act.verb} of {_named(key, new)} was made a second time")
            return
        if new.deleted:
            if act.verb != "delete":
                self._report("user", f"{act.verb} of {_named(key, new)} deleted it")
            if kept_of(new):
                self._report("user", f"the tombstone {_named(key, new)} keeps its expiry")
            return
        self.counts["re-inserted"] += act.is_insert and key in self._lived
        self.counts["inserted"] += act.is_insert
        if act.keeps:
            if expiry is not None:
                self._report("persist", f"{_named(key, new)} persists by what its {act.verb} said, and expires")
        elif rule.is_marked(new):
            self.counts["refreshed after it was marked"] += act.verb == "touch"
        elif act.lasts is not None and (rule.field is None or act.verb == "touch"):
            self.counts["refreshed"] += act.verb == "touch"
            self._check_lasting(key, new, act, expiry)
        elif rule.field is None and old is not None and expiry != was and key not in self.strange:
            self._report("expiry", f"{act.verb} of {_named(key, new)} changed its expiry from {was} to {expiry}")
        if act.at_last_instant and expiry != was:
            self.counts["refreshed at the last instant"] += 1
        if rule.field is not None and not act.is_insert and expiry != was:
            self.counts["refreshed"] += 1

    def _check_lasting(self, key: Key, new: Envelope, act: Act, expiry: int | None) -> None:
        """From creation, or from now on: never less than was asked for."""
        assert act.lasts is not None
        least = self.store_ms(act.began) + act.lasts * 1000
        what = f"{_named(key, new)} shall last {act.lasts:g} s by its {act.verb}"
        if expiry is None:
            self._report("expiry", f"{what}, and does not expire")
        elif expiry < int(least):
            self._report("early", f"{what}, and expires {(least - expiry) / 1000:.3f} s earlier")
        elif expiry > self.store_ms() + (act.lasts + _MOST_DOUBT) * 1000:
            self._report("late", f"{what}, and expires {(expiry - least) / 1000:.3f} s later")

    # The cleaner

    def _cleaner_wrote(self, rule: Rule, key: Key, old: Envelope | None, new: Envelope, write: Write) -> None:
        if old is None:
            self._report("resurrected", f"{write.host} made {_named(key, new)}, which nobody inserted")
            return
        if old.deleted and not new.deleted:
            self._report("resurrected", f"{write.host} brought {_named(key, new)} back")
        elif (old.deleted, old.data) == (new.deleted, new.data) and self._may_move(rule, key, old, new):
            self.counts["moved"] += kept_of(new) != kept_of(old)
            if kept_of(new) == kept_of(old) and pending_of(old).keys() <= pending_of(new).keys():
                self._report("changed", f"{write.host} wrote {_named(key, old)} again, and changed nothing")
        else:
            self._expired(rule, key, old, new, write)

    def _may_move(self, rule: Rule, key: Key, old: Envelope, new: Envelope) -> bool:
        """Is this a change of what leads to the record, and not of when it expires?"""
        was, expiry = rule.expiry_of(old), rule.expiry_of(new)
        if was == expiry:
            return True
        # From creation, by a process without the plugin: it counts from that write on.
        written_at = self._history[key][-2][0]
        given = rule.field is None and rule.ttl is not None and key in self.strange and was is None
        return given and expiry is not None and expiry >= int(self.store_ms(written_at) + (rule.ttl or 0) * 1000)

    def _expired(self, rule: Rule, key: Key, old: Envelope, new: Envelope, write: Write) -> None:
        expiry, now = rule.expiry_of(old), self.store_ms()
        if expiry is None:
            self._report("persist", f"{write.host} expired {_named(key, old)}, which persists")
            return
        if now < expiry:
            self._report("early", f"{write.host} expired {_named(key, old)} {(expiry - now) / 1000:.3f} s early")
        self.counts["expired"] += 1
        self._expirations[rule.name] += 1
        late = (now - expiry) / 1000
        self.counts["caught up"] += late > CAUGHT_UP_AFTER
        in_time = self._in_time + (rule.longest_call if rule.strategy == "callback" else 0.0)
        if self.true_time(expiry) > self._calm_since and late > in_time and key not in self.strange:
            self._report("late", f"{_named(key, old)} expired {late:.1f} s late, and nothing went wrong meanwhile")
        wanted = {**old.data, rule.soft_field: None} if rule.strategy == "soft-delete" else {}
        got = {**new.data, rule.soft_field: None} if rule.strategy == "soft-delete" else new.data
        if new.deleted is (rule.strategy == "soft-delete") or wanted != got:
            self._report("strategy", f"{_named(key, old)} expired ({rule.strategy}) to {new.data}, {new.deleted}")
        if rule.strategy == "soft-delete":
            self._check_soft(rule, key, old, new, expiry)
        if kept_of(new):
            self._report("strategy", f"{_named(key, old)} has expired, and keeps its expiry {kept_of(new)}")
        entry = self._entries.get((rule.name, entry_of(old)))
        if entry is not None:
            entry.served += 1
        made = {name: pending for name, pending in pending_of(new).items() if name not in pending_of(old)}
        if rule.strategy in ("archive", "callback"):
            self._decide(rule, key, old, made, expiry, write)
        elif made:
            self._report("pending", f"{_named(key, old)} expired ({rule.strategy}), and something is pending")

    def _check_soft(self, rule: Rule, key: Key, old: Envelope, new: Envelope, expiry: int) -> None:
        had, has = old.data.get(rule.soft_field), new.data.get(rule.soft_field)
        if had is not None:
            if has != had:
                self._report("strategy", f"{_named(key, old)} was deleted at {had}, and now says {has}")
        elif not isinstance(has, str) or abs(datetime.fromisoformat(has).timestamp() * 1000 - expiry) > 1000:
            self._report("strategy", f"{_named(key, old)} expired at {expiry}, and says {has!r}")

    def _decide(self, rule: Rule, key: Key, old: Envelope, made: dict[str, Any], expiry: int, write: Write) -> None:
        if len(made) != 1:
            self._report("pending", f"{_named(key, old)} expired ({rule.strategy}), and {len(made)} are pending")
            return
        (pending,) = made.values()
        said = (pending.get("how"), pending.get("data"), pending.get("version"), pending.get("at"))
        if said != (rule.strategy, old.data, old.version, expiry):
            self._report(
                "pending", f"{_named(key, old)} of {old.data} expired at {expiry}, and what is pending: {said}"
            )
        self._decisions[rule.name, old.write_id] = Decision(
            key[1], old.version, old.data, expiry, write.at, write.host, old.write_id
        )
        self.counts["decided"] += 1

    def _settled(self, key: Key, pending: dict[str, Any], write: Write) -> None:
        """What was pending is so no longer."""
        decision = self._decisions.get((key[0], pending["write"]))
        if decision is None:
            self._report("pending", f"{key} was cleared of {pending['write']}, which had never been decided")
            return
        if decision.settled_at is not None:
            self._report("pending", f"{key} was cleared of {pending['write']} twice")
        decision.settled_at = write.at
        if not decision.archived and not decision.successes:
            self._report("pending", f"{write.host} cleared {key} of {pending['write']} before it was done")
        self.counts["taken over"] += write.host != decision.by

    # Archives and callbacks

    def _archive_written(self, rule: Rule, key: Key, write: Write) -> None:
        if write.old is not None or write.new is None:
            self._report("archive", f"{write.host} ({write.verb}) changed {key} of the archive")
            return
        new = _envelope.decode(write.new)
        fitting = [
            decision
            for (name, _), decision in self._decisions.items()
            if name == rule.name and not decision.archived and _archives(new, decision)
        ]
        if not fitting:
            again = any(_archives(new, decision) for decision in self._decisions.values())
            why = "is in the archive already" if again else "was never decided"
            self._report("archive", f"{write.host} archived {new.data} as {key[1]}, which {why}")
            return
        fitting[0].archived = True
        self.counts["archived"] += 1

    def called(self, rule: Rule, expired: Any, host: str, leads: bool) -> Decision | None:
        """A callback begins, in the process `host`."""
        self.counts["callbacks"] += 1
        decision = next(
            (
                decision
                for (name, _), decision in self._decisions.items()
                if name == rule.name and decision.id == expired.id and decision.version == expired.version
            ),
            None,
        )
        if decision is None or decision.data != expired.data:
            self._report("callback", f"{host} called back for {expired}, which was never decided")
            return None
        if abs(expired.expired_at.timestamp() * 1000 - decision.expiry_ms) > 1.0:
            self._report("callback", f"{expired.id} expired at {decision.expiry_ms}, and {expired.expired_at} is told")
        entry = self._log.get((rule.name, str(expired.token)))
        if entry is None or entry[1] != host:
            self._report("token", f"{host} called back for {expired.id} with token {expired.token}: it is {entry}")
        if decision.token is not None:
            self.counts["callbacks repeated"] += 1
            if expired.token < decision.token:
                # A process that stood still between its last look at the clock and the callback.
                self.counts["called late"] += 1
                if leads:
                    self._report("token", f"{expired.id}: {expired.token} by the leader, after {decision.token}")
            elif expired.token == decision.token and host != decision.called_by:
                self._report("token", f"{expired.id}: {expired.token} by {host} and by {decision.called_by}")
        if decision.token is None or expired.token >= decision.token:
            decision.token, decision.called_by = expired.token, host
        return decision

    # The index, and the log

    def _entry_written(self, resource: str, name: str, write: Write) -> None:
        body = write.new if write.new is not None else write.old
        assert body is not None
        stem, entry = parse_entry(name, body, write.at)
        key = (resource, stem)
        if write.new is not None:
            if write.old is not None and write.old != write.new:
                self._report("index", f"entry {name} was written twice, with other ids")
            if write.old is None:
                self.counts["entries"] += 1
                self.counts["group entries"] += len(entry.ids) > 1
            self._entries[key] = entry
            return
        entry = self._entries.pop(key)
        if not entry.served:
            self.counts["quarantined" if write.at - entry.written_at > 0.9 * self._quarantine else "spent"] += 1
        rule = self._rules[resource]
        for id in entry.ids:
            record = self.records.get((resource, id))
            if record is None:
                continue
            is_strange = (resource, id) in self.strange
            if entry_of(record) == stem and rule.expiry_of(record) is not None and not is_strange:
                self._report("index", f"{write.host} dropped {stem}, and {_named((resource, id), record)} needs it")
            if stem in pending_of(record):
                self._report("index", f"{write.host} dropped {stem}: {_named((resource, id), record)} has it pending")

    def _log_written(self, resource: str, key: str, write: Write) -> None:
        number = parse_number(key)
        if number is None or number <= self._logged[resource]:
            return
        assert write.new is not None
        self._logged[resource] = number
        entry = _log_entry.decode(write.new)
        if entry.epoch >= self._epochs[resource]:
            self._epochs[resource] = entry.epoch
            self._log[resource, str(number)] = (entry.epoch, write.host)

    # Told by the processes

    def told(self, act: Act, told: Told, version: int | None = None) -> None:
        """What a call was told at its end; `version`: of the record that it gave back."""
        act.told = told
        self.counts[f"{act.verb} {told.value}"] += 1
        if act.verb == "dry run":
            if act.landed:
                self._report("dry run", f"a dry run wrote {act.landed} of {act.resource}")
            return
        if act.verb == "insert many":
            return  # each of them is told of by itself
        if told is Told.NO and act.landed:
            self._report("told", f"{act.verb} of {act.landed} happened, and its caller was told that it did not")
        if told is Told.DONE and not act.landed:
            self._report("lost", f"{act.verb} of {act.resource} {act.id!r} was told that it is written, and it is not")
        if told is Told.DONE and version is not None and version not in [landed for _, landed in act.landed]:
            self._report("lost", f"{act.verb} was told version {version}, and wrote {act.landed}")

    def touched(self, act: Act, until: datetime | None) -> None:
        said = None if until is None else round(until.timestamp() * 1000)
        if said not in act.expiries:
            self._report("expires_at", f"touch was told {said}, and {act.resource} {act.id!r} expires {act.expiries}")

    def inserted(self, act: Act, id: str, version: int) -> None:
        """One of many."""
        if (id, version) not in act.landed:
            self._report("lost", f"{id!r} of {act.resource} was told to be there as {version}, and is not")

    def expiry_told(self, resource: str, id: str, began: float, told: datetime | None) -> None:
        """`expires_at` was asked at `began`, and has answered: that was so at some instant since."""
        said = None if told is None else round(told.timestamp() * 1000)
        history = self._history[resource, id]
        known = [expiry for _, _, expiry in _since(history, began)]
        if said not in known and not (said is None and not history):
            self._report("expires_at", f"{resource} {id!r}: {said} was said, and since {began:.1f} it was {known}")

    # At the end

    def near(self, seconds: float) -> list[Key]:
        """Records that expire within so many seconds."""
        now = self.store_ms()
        return [key for key, expiry in self.expiring.items() if 0 <= expiry - now < seconds * 1000]

    def expiry_of(self, key: Key) -> int | None:
        return self.expiring.get(key)

    def begin_calm(self, in_time: float) -> None:
        """From here on nothing goes wrong and nobody writes, so that whatever expires does so within `in_time`."""
        self._calm_since, self._in_time = self._world.now, in_time

    def waits_for_quarantine(self) -> bool:
        """Are there entries that came due, and will be dropped?"""
        return any(entry.slot_ms < self.store_ms() for entry in self._entries.values())

    def unfinished(self, slack: float) -> list[str]:
        """What should have come about by now."""
        return [*self._overdue(slack), *self._undone(), *self._left_over(slack), *self._stale()]

    def check_totals(self, rule: Rule, expired: int, archived: int, called: int) -> None:
        """What is said to have been done was done. A crash may lose some of the count, and nothing adds to it."""
        known = [decision for (name, _), decision in self._decisions.items() if name == rule.name]
        for what, said, most in (
            ("expired", expired, self._expirations[rule.name]),
            ("archived", archived, sum(decision.archived for decision in known)),
            ("called", called, sum(decision.successes for decision in known)),
        ):
            if said > most:
                self._report("totals", f"{said} records of {rule.name} are said to be {what}, and {most} were")

    def check_bounds(self) -> None:
        """What the plugins keep for themselves does not grow with what they did."""
        for folder, resource in self._folders.items():
            keys = [key for key in self._cluster.bucket.keys(folder) if not key.startswith(f"{folder}due/")]
            if len(keys) > _MOST_OBJECTS:
                self._report("bounds", f"{len(keys)} objects are kept for {resource} beside its index: {keys[0]}")

    def _overdue(self, slack: float) -> Iterator[str]:
        now = self.store_ms()
        for key, expiry in self.expiring.items():
            if expiry < now - slack * 1000 and key not in self.strange:
                yield f"{_named(key, self.records[key])} should have expired {(now - expiry) / 1000:.1f} s ago"

    def _undone(self) -> Iterator[str]:
        for (resource, _), decision in self._decisions.items():
            what = f"{resource} {decision.id!r} version {decision.version}, decided at {decision.at:.1f}"
            if self._rules[resource].strategy == "archive" and not decision.archived:
                yield f"{what}, is not in the archive"
            elif self._rules[resource].strategy == "callback" and not decision.successes:
                yield f"{what}, was not called back for"
            elif decision.settled_at is None:
                yield f"{what}, is still pending"

    def _left_over(self, slack: float) -> Iterator[str]:
        """Index entries that lead nowhere, and are older than whatever could still be under way."""
        now, due = self._world.now, self.store_ms() - slack * 1000
        for (resource, name), entry in self._entries.items():
            if entry.slot_ms >= due or now - entry.written_at < self._quarantine * 1.03 + slack:
                continue
            records = [self.records.get((resource, id)) for id in entry.ids]
            if not any(
                record is not None
                and (
                    name in pending_of(record)
                    or (entry_of(record) == name and self._rules[resource].expiry_of(record) is not None)
                )
                for record in records
            ):
                yield f"entry {name} of {resource} is still there, and leads nowhere"

    def _stale(self) -> list[str]:
        limit = self._world.now - _STALE_AFTER
        return [f"{key} lies in the inbox" for key, at in self._inbox.items() if at < limit]


def _archives(envelope: Envelope, decision: Decision) -> bool:
    data = envelope.data
    said = (
        data["id"],
        data["version"],
        data["data"],
        round(datetime.fromisoformat(data["expired_at"]).timestamp() * 1000),
    )
    return said == (decision.id, decision.version, decision.data, decision.expiry_ms)


def _since(history: list[tuple[float, bool, int | None]], began: float) -> list[tuple[float, bool, int | None]]:
    """What was so at `began`, and all that came after."""
    later = [item for item in history if item[0] > began]
    before = [item for item in history if item[0] <= began]
    return [*before[-1:], *later] if before else [(0.0, False, None), *later]


def _named(key: Key, envelope: Envelope) -> str:
    return f"{key[0]} {key[1]!r} version {envelope.version}"
