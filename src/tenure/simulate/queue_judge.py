"""A judge who knows everything that was promised about a queue, and what became of it.

It reads the bucket's own history: every segment, and every entry of the log as it was first created, whoever deleted or
re-created it since. From the entries that count it keeps a book of its own, message by message, with none of the
queue's code but the records' form. What was promised is told by the processes at the moment at which they are told.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tenure.election.records import decode
from tenure.errors import LedgerHalted
from tenure.ledger import LedgerState, LogEntry
from tenure.ledger.config import MAX_ENTRY_BYTES
from tenure.ledger.layout import parse_inbox_key, parse_number
from tenure.plugins.queue import Message
from tenure.plugins.queue.hand import Hand
from tenure.plugins.queue.records import Control, Run, Settled, Ticket, Work, parse_ref
from tenure.plugins.queue.state import MAX_HISTORY, QueueMachine
from tenure.plugins.queue.wire import Outcome, Segment
from tenure.testing.bucket import Write
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster

Place = tuple[str, int]
"""A segment, and which of its messages."""
WAITING, OUT, DONE, DEAD, PURGED = "waiting", "out", "done", "dead", "purged"
_OVER = (DONE, DEAD, PURGED)
_STALE_AFTER = 10.0

_work = msgspec.json.Decoder(Work)


class Mail:
    """One message that was folded, and where it stands by the log."""

    __slots__ = ("body", "entry", "failures", "given", "id", "key", "order", "place", "state", "ticket")

    def __init__(self, place: Place, id: str, body: int, key: str, order: int, entry: int) -> None:
        self.place = place
        self.id = id
        self.body = body
        self.key = key
        self.order = order
        self.entry = entry
        """Which folded it."""
        self.state = WAITING
        self.ticket: str | None = None
        """That it is out under, now."""
        self.given: str | None = None
        """Under which it was given out last."""
        self.failures = 0
        """Attempts that came to nothing, since it was enqueued or redriven."""


class Judge:
    def __init__(self, cluster: SimulatedCluster, checkers: Checkers, folder: str, *, at_most_once: bool) -> None:
        self._cluster = cluster
        self._report = checkers.report
        self._folder = folder
        self._at_most_once = at_most_once
        self.counts: Counter[str] = Counter()
        self.entries: dict[int, bytes] = {}
        """The log, as it was first written."""
        self.ghosts = 0
        self.results = False
        """Are results kept?"""
        # What the log says
        self._segments: dict[str, bytes] = {}
        self._opened: dict[str, list[tuple[str, int, str]]] = {}
        """By segment: id, body and ordering key of each message."""
        self._highest_epoch = 0
        self._folded: dict[tuple[str, int], int] = {}
        """By batch: the entry."""
        self._mail: dict[Place, Mail] = {}
        self._by_id: dict[str, Mail] = {}
        self._by_body: dict[int, Mail] = {}
        self._keys: dict[str, list[Mail]] = defaultdict(list)
        """Those of an ordering key that are not over, in order."""
        self._orders = 0
        self._open: dict[str, dict[Place, Mail]] = {}
        """By ticket: what of it is not settled."""
        self._tickets: dict[str, tuple[int, str]] = {}
        """Every ticket of an entry that counts: its number and worker."""
        self._paused = False
        self._purges: list[int] = []
        self._controls: Counter[str] = Counter()
        self._last_of_key: dict[str, int] = {}
        self._posted: dict[str, float] = {}
        # What processes were told
        self.accepted: dict[int, str] = {}
        """By body: the id that `enqueue` returned."""
        self._commands: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        """By command: how often it was sent, and acknowledged."""
        self._begun: dict[int, list[int]] = defaultdict(list)
        """By body: the tokens of its deliveries, as they began."""
        self._succeeded: set[tuple[Place, str]] = set()
        """Messages, and the tickets under which their handlers came to a good end."""
        self._handled: set[Place] = set()
        self._acked: dict[Place, str] = {}
        self._before_purge: list[tuple[int, int]] = []
        """Of the process that purges: (how many it had sent, a message that was accepted before the next one) ..."""
        self._after_purge: list[tuple[int, int]] = []
        """... or was sent after those."""
        cluster.bucket.watchers.append(self._written)

    # The bucket

    def _written(self, write: Write) -> None:
        if not write.key.startswith(self._folder):
            return
        key = write.key.removeprefix(self._folder)
        if key.startswith("log/"):
            self._log_written(key, write)
        elif key.startswith("seg/"):
            self._segment_written(key.removeprefix("seg/"), write)
        elif key.startswith("inbox/"):
            if write.new is None:
                self._posted.pop(key, None)
                self._inbox_removed(key)
            else:
                self._posted.setdefault(key, write.at)
        elif key.startswith("snapshots/"):
            self.counts["snapshots"] += write.new is not None

    def _segment_written(self, name: str, write: Write) -> None:
        if write.new is None:
            needed = [mail for mail in self._of_segment(name) if mail.state in (WAITING, OUT, DEAD)]
            if needed:
                self._report("segment", f"{name} was deleted by {write.host}, and {needed[0].id} is {needed[0].state}")
        elif self._segments.setdefault(name, write.new) != write.new:
            self._report("segment", f"{name} was written twice, with other messages")

    def _of_segment(self, name: str) -> list[Mail]:
        places = ((name, index) for index in range(len(self._opened.get(name, ()))))
        return [self._mail[place] for place in places if place in self._mail]

    def _inbox_removed(self, key: str) -> None:
        name = parse_inbox_key(key)
        if name is not None and (name.uid, name.number) not in self._folded:
            self._report("lost", f"{key} was removed from the inbox before an entry had folded it")

    def _log_written(self, key: str, write: Write) -> None:
        number = parse_number(key)
        if number is None:
            return
        if write.new is None:
            self.counts["trimmed"] += 1
            return
        if number in self.entries:
            if write.old is not None:
                self._report("log", f"entry {number} was written over by {write.host}")
            elif write.new != self.entries[number]:
                self.ghosts += 1
            return
        self.entries[number] = write.new
        if number > 1 and number - 1 not in self.entries:
            self._report("log", f"entry {number} was written before entry {number - 1}")
        entry = decode(write.new, LogEntry, MAX_ENTRY_BYTES)
        if not isinstance(entry, LogEntry) or entry.seq != number:
            self._report("log", f"entry {number} is not readable: {entry}")
        elif entry.epoch < self._highest_epoch:
            self.counts["void entries"] += 1
        else:
            self._highest_epoch = entry.epoch
            self._enter(entry)

    # The book

    def _enter(self, entry: LogEntry) -> None:
        number = entry.seq
        for uid, numbers in entry.folded.items():
            for each in numbers:
                before = self._folded.setdefault((uid, each), number)
                if before != number:
                    self._report("folded twice", f"batch {each} of {uid} was folded by entries {before} and {number}")
        for uid, numbers in entry.skipped.items():
            for each in numbers:
                self._folded.setdefault((uid, each), number)
        self.counts["forgotten"] += len(entry.forgotten)
        self.counts["resumed"] += len(entry.resumed)
        self.counts["skipped"] += len(entry.skipped)
        self.counts["rejected"] += len(entry.rejected)
        for rejection in entry.rejected:
            self._report("rejected", f"entry {number} rejects {rejection.key}: {rejection.reason}")
        events = entry.decided
        if events is None:
            return
        work = _work.decode(events)
        self._count(work)
        for control in work.control:
            self._control(control, number)
        for run in work.arrived:
            for index in range(run.low, run.high):
                self._arrive(run, index, number)
        for settled in work.settled:
            self._settle(settled)
        for joined in work.joined:
            for ticket in self._open_of(joined.uid) if joined.since else ():
                if self._tickets[ticket][0] < joined.since and ticket not in joined.held:
                    self._give_back(self._open.pop(ticket).values())
        for uid in work.left:
            for ticket in self._open_of(uid):
                self._give_back(self._open.pop(ticket).values())
        for settled in work.lapsed:
            self._settle(settled)
        for published in work.tickets:
            self._publish(published, number)

    def _count(self, work: Work) -> None:
        self.counts["tickets"] += len(work.tickets)
        self.counts["lapsed"] += len(work.lapsed)
        self.counts["retried"] += sum(len(settled.retry) for settled in work.settled)
        self.counts["dead"] += sum(len(settled.dead) for settled in (*work.settled, *work.lapsed))
        self.counts["given back"] += sum(len(settled.back) for settled in work.settled)
        self.counts["extended"] += sum(bool(settled.deadline_ms) for settled in work.settled)
        self.counts["duplicates"] += work.duplicates
        self.counts["shifted"] += bool(work.shift)
        self.counts["joined"] += len(work.joined)
        self.counts["left"] += len(work.left)

    def _control(self, control: Control, number: int) -> None:
        self._controls[control.op] += 1
        self.counts[f"command {control.op}"] += 1
        if control.op in ("pause", "resume"):
            self._paused = control.op == "pause"
        elif control.op == "purge":
            self._purges.append(number)
            for mail in [mail for mail in self._mail.values() if mail.state == WAITING]:
                self._end(mail, PURGED)
        elif control.op in ("redrive", "purge-dead"):
            wanted = {parse_ref(ref) for ref in control.refs}
            for mail in [mail for mail in self._mail.values() if mail.state == DEAD]:
                if wanted and mail.place not in wanted:
                    continue
                if control.op == "purge-dead":
                    mail.state = PURGED
                else:
                    self._orders += 1
                    mail.state, mail.failures, mail.order = WAITING, 0, self._orders
                    if mail.key:
                        self._keys[mail.key].append(mail)

    def _arrive(self, run: Run, index: int, number: int) -> None:
        place = (run.segment, index)
        opened = self._opened.get(run.segment)
        if opened is None:
            body = self._segments.get(run.segment)
            if body is None:
                self._report("segment", f"entry {number} names {run.segment}, which was never written")
                return
            opened = self._opened[run.segment] = [
                (held.id, int(msgspec.json.decode(held.body)["n"]), held.options.key)
                for held in Segment(body).messages(0, 2**31)
            ]
        id, sent, key = opened[index]
        before = self._by_body.get(sent)
        if before is not None:
            what = f"message {sent} is in the queue as {before.id} and as {id}, by entry {number}"
            self._report("folded twice" if before.id == id else "dedup", what)
        if key != run.key:
            self._report("order", f"message {id} has the ordering key {key!r}, and entry {number} says {run.key!r}")
        self._orders += 1
        self._mail[place] = self._by_id[id] = self._by_body[sent] = mail = Mail(
            place, id, sent, key, self._orders, number
        )
        if key:
            if sent < self._last_of_key.get(key, 0):
                self._report("order", f"message {sent} of {key} was folded after {self._last_of_key[key]}")
            self._last_of_key[key] = sent
            self._keys[key].append(mail)

    def _settle(self, settled: Settled) -> None:
        ticket = settled.ticket
        held = self._open.get(ticket)
        if held is None:
            return
        done = list(held) if settled.all_done else _places(settled.done)
        for place in done:
            mail = held.pop(place, None)
            if mail is not None:
                self._end(mail, DONE)
                if not self._at_most_once and (place, ticket) not in self._succeeded:
                    self._report("not handled", f"{mail.id} is done under {ticket}, where nobody handled it")
        for bury in settled.dead:
            mail = held.pop((bury.segment, bury.index), None)
            if mail is not None:
                mail.failures += 1
                self._end(mail, DEAD)
        for retry in settled.retry:
            mail = held.pop((retry.segment, retry.index), None)
            if mail is not None:
                mail.failures += bool(retry.counts)
                self._give_back([mail])
        self._give_back([held.pop(place) for place in _places(settled.back) if place in held])
        if settled.lapsed:
            for mail in held.values():
                mail.failures += 1
            self._give_back(list(held.values()))
            held.clear()
        if not held:
            del self._open[ticket]

    def _open_of(self, uid: str) -> list[str]:
        return [ticket for ticket in self._open if self._tickets[ticket][1] == uid]

    def _give_back(self, mails: Iterable[Mail]) -> None:
        for mail in mails:
            mail.state, mail.ticket = WAITING, None

    def _end(self, mail: Mail, state: str) -> None:
        mail.state, mail.ticket = state, None
        if mail in self._keys.get(mail.key, ()):  # else it was ended before, which has been reported
            self._keys[mail.key].remove(mail)

    def _publish(self, ticket: Ticket, number: int) -> None:
        if self._paused:
            self._report("paused", f"entry {number} publishes ticket {ticket.id}, and the queue is paused")
        if ticket.id in self._tickets or ticket.seq != number:
            self._report("token", f"entry {number} publishes ticket {ticket.id} with token {ticket.seq}")
        self._tickets[ticket.id] = (number, ticket.uid)
        held: dict[Place, Mail] = {}
        for run in ticket.runs:
            for index in range(run.low, run.high):
                mail = self._mail.get((run.segment, index))
                if mail is None:
                    self._report("unknown", f"ticket {ticket.id} has message {index} of {run.segment}: none was folded")
                    continue
                if mail.state != WAITING:
                    where = mail.ticket or mail.given
                    self._report("twice", f"{mail.id} is {mail.state} ({where}), and ticket {ticket.id} gives it out")
                if mail.place in self._acked:
                    self._report(
                        "acked", f"{mail.id} was acked under {self._acked[mail.place]}, and is in ticket {ticket.id}"
                    )
                if mail.key:
                    self._check_turn(mail, ticket.id, held)
                mail.state, mail.ticket, mail.given = OUT, ticket.id, ticket.id
                held[mail.place] = mail
        self._open[ticket.id] = held

    def _check_turn(self, mail: Mail, ticket: str, held: dict[Place, Mail]) -> None:
        """One valid ticket for each ordering key, and in order: all before it are over, or in the same ticket."""
        for other in self._keys[mail.key]:
            if other is mail:
                return
            if other.place not in held:
                where = f"in ticket {other.ticket}" if other.ticket else other.state
                self._report(
                    "order", f"ticket {ticket} has {mail.id} of {mail.key}, and {other.id} before it is {where}"
                )
                return

    # Told by the processes

    def sends(self, command: str) -> None:
        self._commands[command][0] += 1

    def followed(self, command: str) -> None:
        self._commands[command][1] += 1

    def purges(self, accepted: Iterable[int]) -> None:
        """A purge is sent, by the process for which these were accepted before."""
        sent = self._commands["purge"][0]
        self._before_purge += [(sent, body) for body in accepted]

    def sends_after_purges(self, body: int) -> None:
        self._after_purge.append((self._commands["purge"][0], body))

    def began(self, messages: Sequence[Message], uid: str) -> None:
        """A handler is called, with one message or with a batch."""
        together: set[Place] = set()
        for message in messages:
            self._begin(message, uid, together)
            together.add(_place(message))

    def _begin(self, message: Message, uid: str, together: set[Place]) -> None:
        body, ticket, place = message.body["n"], _ticket(message), _place(message)
        tokens = self._begun[body]
        known = self._tickets.get(ticket)
        mail = self._mail.get(place)
        if known is None or known != (message.token, uid) or mail is None:
            self._report("stale ticket", f"message {body} was begun under {ticket} for {uid}, which counts: {known}")
            return
        if mail.body != body or mail.id != message.id:
            self._report("identity", f"{message.id} ({body}) was given for {mail.id} ({mail.body})")
        if tokens and message.token < max(tokens):
            # A handler that was paused between its last look at the clock and its first step.
            self.counts["begun late"] += 1
        if tokens and self._at_most_once:
            self._report("at most once", f"{mail.id} was begun under token {tokens[-1]}, and under {message.token}")
        acked = self._acked.get(place)
        if acked is not None and acked != ticket:
            self._report("acked", f"{mail.id} was acked under {acked}, and is begun under {ticket}")
        tokens.append(message.token)
        self.counts["redelivered"] += len(tokens) > 1
        if mail.key:
            self._check_begin(mail, ticket, together)

    def _check_begin(self, mail: Mail, ticket: str, together: set[Place]) -> None:
        if mail.given != ticket:
            self._report("order", f"{mail.id} of {mail.key} is begun under {ticket}, and {mail.given} has it")
        if self._at_most_once:
            return  # those before it were settled before anything was begun
        for other in self._keys[mail.key]:
            if other is mail:
                return
            ended = (other.place, ticket) in self._succeeded or other.place in together
            if other.ticket != ticket or not ended:
                self._report("order", f"{mail.id} of {mail.key} is begun, and {other.id} before it is not over")
                return

    def goes_on(self, message: Message) -> None:
        """In the middle of its handler: as long as there is time, nobody else has this message."""
        mail = self._mail.get(_place(message))
        if mail is not None and message.remaining() > 0 and mail.given != _ticket(message):
            self._report(
                "visibility", f"{mail.id} has {message.remaining():.2f} s under {_ticket(message)}: {mail.given} has it"
            )

    def ended(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.goes_on(message)
            self._handled.add(_place(message))
            self._succeeded.add((_place(message), _ticket(message)))

    def was_acked(self, hand: Hand, outcome: Outcome) -> None:
        """It was reported in time: it must not be given out again, and must not have been before that."""
        places = _places(outcome.done)
        if outcome.all_done:
            places += [(run.segment, index) for run in hand.runs for index in range(run.low, run.high)]
        for place in places:
            mail = self._mail.get(place)
            if mail is None or mail.given != hand.id:
                given = mail.given if mail is not None else None
                self._report("acked", f"{place} was acked under {hand.id}, and had been given out again by {given}")
            self._acked[place] = hand.id
        self.counts["acks"] += 1

    # At the end

    def unfinished(self) -> int:
        """Messages that wait, or are out."""
        return sum(mail.state in (WAITING, OUT) for mail in self._mail.values())

    def stale(self) -> list[str]:
        """What lies in the inbox, and should have been folded by now."""
        limit = self._cluster.world.now - _STALE_AFTER
        return [key for key, at in self._posted.items() if at < limit]

    def dead(self) -> list[Place]:
        return [mail.place for mail in self._mail.values() if mail.state == DEAD]

    @property
    def handled(self) -> int:
        return len(self._begun)

    def conclude(self, state: LedgerState) -> None:
        """`state`: of a process that has just begun to look, from a snapshot and what follows it."""
        self._compare(state)
        for body, id in self.accepted.items():
            self._check_accepted(body, id)
        for place, ticket in self._acked.items():
            if self._mail[place].state != DONE:
                self._report("acked", f"{place} was acked under {ticket}, and is {self._mail[place].state}")
        for command, (sent, acknowledged) in self._commands.items():
            if not acknowledged <= self._controls[command] <= sent:
                self._report(
                    "command",
                    f"{command} was sent {sent} times and acknowledged {acknowledged} times, "
                    f"and is in the log {self._controls[command]} times",
                )
        self._check_purges()
        if self.results:
            self._check_results()

    def _check_purges(self) -> None:
        """A process's messages and purges take effect in the order in which it sent them."""
        sent = self._commands["purge"][0]
        if sent != len(self._purges):
            return  # one was not written, and nobody knows which
        for purge, body in self._before_purge:
            mail = self._by_body.get(body)
            if mail is not None and mail.entry >= self._purges[purge]:
                self._report("purge", f"message {body} was accepted before purge {purge}, and comes after it")
        for purge, body in self._after_purge:
            mail, entry = self._by_body.get(body), self._purges[purge - 1]
            if mail is not None and mail.entry < entry:
                self._report("purge", f"message {body} was sent after purge {purge - 1}, and comes before it")
            if mail is None and self._batch_of(body) == entry and entry not in self._purges[purge:]:
                self._report("purge", f"message {body} was sent after purge {purge - 1}, and is gone with it")

    def _check_accepted(self, body: int, id: str) -> None:
        mail = self._by_id.get(id) or self._by_body.get(body)  # by body: the first of those with its deduplication key
        if mail is None:
            entry = self._batch_of(body)
            if entry is None or entry not in self._purges:  # else it was gone at once
                self._report("lost", f"message {body} ({id}) was accepted, and no entry has it; its batch: {entry}")
            return
        if mail.state in (WAITING, OUT):
            self._report("lost", f"message {body} ({id}) was accepted, and is still {mail.state} at the end")
        elif mail.state == DONE and not self._at_most_once and mail.place not in self._handled:
            self._report("lost", f"message {body} ({id}) was accepted, is done, and was never handled")

    def _batch_of(self, body: int) -> int | None:
        """The entry that has folded the batch of a message that was accepted."""
        if body not in self.accepted:
            return None
        uid, number, _ = self.accepted[body].rsplit("-", 2)
        return self._folded.get((uid, int(number)))

    def _compare(self, state: LedgerState) -> None:
        """What production makes of snapshot and tail, and of all entries, is what the book says."""
        full = LedgerState(QueueMachine())
        try:
            for number in range(1, state.seq + 1):
                entry = decode(self.entries[number], LogEntry, MAX_ENTRY_BYTES)
                assert isinstance(entry, LogEntry)
                full.apply(entry)
        except LedgerHalted as error:
            self._report("state", f"all entries do not add up: {error}")
            return
        for machine, source in ((state.machine, "snapshot and tail"), (full.machine, "all entries")):
            assert isinstance(machine, QueueMachine)
            said = _standing(machine)
            booked = {
                what: {mail.place for mail in self._mail.values() if mail.state == what}
                for what in (WAITING, OUT, DEAD)
            }
            if state.seq == max(self.entries) and said != booked:
                wrong = [
                    f"{what}: {sorted(said[what] ^ booked[what])[:3]}" for what in said if said[what] != booked[what]
                ]
                self._report("state", f"{source} add up to another state than the book: {'; '.join(wrong)}")
            for place, letter in machine.dead.items():
                mail = self._mail.get(place)
                if mail is not None and len(letter.history) != min(MAX_HISTORY, mail.failures):
                    self._report(
                        "history", f"{mail.id} failed {mail.failures} times, and {source} know {len(letter.history)}"
                    )
        first, second = state.machine, full.machine
        assert isinstance(first, QueueMachine)
        assert isinstance(second, QueueMachine)
        if _sums(first) != _sums(second):
            self._report("state", f"all entries add up to {_sums(second)}, and snapshot and tail to {_sums(first)}")

    def _check_results(self) -> None:
        for place in self._handled:
            mail = self._mail[place]
            if mail.state == DONE and not self._at_most_once:
                stored = self._cluster.bucket.body(f"{self._folder}results/{mail.id}")
                if stored is None or msgspec.json.decode(stored) != mail.body:
                    self._report("result", f"{mail.id} is done, and its result is {stored!r}")


def _places(pieces: Iterable[Any]) -> list[Place]:
    return [(piece.segment, index) for piece in pieces for index in range(piece.low, piece.high)]


def _place(message: Message) -> Place:
    return (message.ref_segment, message.index)


def _ticket(message: Message) -> str:
    ticket: str = message._keeper.id  # type: ignore[attr-defined]
    return ticket


def _standing(machine: QueueMachine) -> dict[str, set[Place]]:
    waiting = [run for queue in machine.ready.values() for run in queue]
    waiting += [run for queue in machine.keys.values() for run in queue.waiting]
    waiting += [run for _, _, run in machine.delayed if run.count]
    out = [run for ticket in machine.tickets.values() for run in ticket.runs]
    return {WAITING: set(_places(waiting)), OUT: set(_places(out)), DEAD: set(machine.dead)}


def _sums(machine: QueueMachine) -> dict[str, Any]:
    return {
        "ready": machine.ready_count,
        "delayed": machine.delayed_count,
        "in flight": machine.in_flight_count,
        "segments": dict(sorted(machine.segments.items())),
        "totals": msgspec.structs.asdict(machine.totals),
        "tickets": sorted(machine.tickets),
    }
