"""Broken builds of the ledger and the queue: each is a patch to a production class, and the judge must catch it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from tenure.election.records import encode
from tenure.errors import StoreError
from tenure.ledger import Stamp
from tenure.ledger import catchup as catchup_module
from tenure.ledger import leader as leader_module
from tenure.ledger.config import LedgerConfig
from tenure.ledger.inbox import InboxSweep, Look
from tenure.ledger.layout import InboxName, log_key
from tenure.ledger.leader import Item, LedgerTerm, Overtaken, Situation
from tenure.ledger.log import Tenancy
from tenure.ledger.machine import LedgerState
from tenure.ledger.producer import Lot, Producer, Receipt
from tenure.ledger.producers import Producers, Verdict
from tenure.ledger.records import LogEntry
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.queue.clerk import QueueClerk
from tenure.plugins.queue.hand import Hand, HeldMessage
from tenure.plugins.queue.keyqueue import KeyQueue
from tenure.plugins.queue.records import Published, Run, Totals, Work
from tenure.plugins.queue.state import QueueMachine
from tenure.plugins.queue.wire import Command, Outcome, Segment
from tenure.plugins.queue.worker import QueueWorker
from tenure.store import Store
from tenure.testing.broken import Patch, Variant


def _folding_not_idempotent() -> list[Patch]:
    judge = Producers.judge

    def forgetful(self: Producers, name: InboxName, *arguments: Any) -> Verdict:
        verdict = judge(self, name, *arguments)
        return Verdict.FOLD if verdict is Verdict.DUPLICATE else verdict

    return [(Producers, "judge", forgetful), (Producers, "is_done", lambda self, name: False)]


def _trusts_one_404() -> list[Patch]:
    async def catch_up(store: Store, state: LedgerState, lead: Tenancy, **options: Any) -> None:
        await catchup_module._read_on(store, state, lead)

    return [(leader_module, "catch_up", catch_up)]


def _reads_ghosts() -> list[Patch]:
    return [(LedgerConfig, "trusted_for", property(lambda self: float("inf")))]


def _no_term_start() -> list[Patch]:
    """The newer leader voids what comes late by its own opinion, and not by an entry that everybody reads."""
    begin, decide = LedgerTerm.begin, LedgerTerm._decide

    async def quiet_begin(self: LedgerTerm) -> LogEntry:
        await catchup_module.catch_up(self._store, self.state, self._lead, clock=self._clock)
        if self.state.seq == 0:
            return await begin(self)
        return LogEntry(write_id="-", seq=self.state.seq, epoch=self._lead.epoch, time_ms=self.state.time_ms)

    async def stubborn_decide(self: LedgerTerm, *arguments: Any) -> LogEntry | None:
        try:
            return await decide(self, *arguments)
        except Overtaken:
            self.state.seq += 1  # void, it thinks, and goes on
            raise StoreError("a number was taken") from None

    return [(LedgerTerm, "begin", quiet_begin), (LedgerTerm, "_decide", stubborn_decide)]


def _acks_before_created() -> list[Patch]:
    send = Producer._send

    async def hasty(self: Producer, me: Any, name: InboxName, body: bytes, lots: list[Lot], began: Any) -> None:
        for index, lot in enumerate(lots):
            if not lot.future.done():
                lot.future.set_result(Receipt(name.uid, name.number, index))
        await send(self, me, name, body, lots, began)

    return [(Producer, "_send", hasty)]


def _expires_without_sweep() -> list[Patch]:
    decide = QueueClerk.decide

    def hasty(self: QueueClerk, items: Sequence[Item], situation: Situation) -> bytes | None:
        return decide(self, items, msgspec.structs.replace(situation, swept_ms=situation.stamp.time_ms))

    return [(QueueClerk, "decide", hasty)]


def _forgets_early() -> list[Patch]:
    silent = Producers.silent

    def hasty(self: Producers, before_ms: int, present: Collection[str]) -> list[str]:
        return silent(self, 2**62, ())

    return [(Producers, "silent", hasty)]


def _ignores_deduplication() -> list[Patch]:
    def all_of_them(self: QueueClerk, low: int, high: int, *arguments: Any) -> list[tuple[int, int]]:
        return [(low, high)]

    return [(QueueClerk, "_distinct", all_of_them)]


def _keys_at_once() -> list[Patch]:
    offered = QueueMachine._offered

    def generous(self: QueueMachine, key: str, queue: KeyQueue, *arguments: Any) -> list[Run]:
        under_way, queue.in_flight = queue.in_flight, 0
        try:
            return offered(self, key, queue, *arguments)
        finally:
            queue.in_flight = under_way

    return [(QueueMachine, "_offered", generous)]


def _deadline_from_sight() -> list[Patch]:
    heed = QueueWorker._heed

    def late(self: QueueWorker, published: Any, base: Any) -> None:
        heed(self, published, self.clock.read())

    return [(QueueWorker, "_heed", late)]


def _settles_afterwards() -> list[Patch]:
    async def hasty(self: QueueWorker, hand: Any, groups: Any) -> None:
        self._make_ready(groups)

    return [(QueueWorker, "_settle_first", hasty)]


def _buries_without_history() -> list[Patch]:
    die = QueueMachine._die

    def forgetful(self: QueueMachine, run: Run, *arguments: Any) -> None:
        die(self, run, *arguments)
        self.dead[run.segment, run.low].history.clear()

    return [(QueueMachine, "_die", forgetful)]


def _ignores_pause() -> list[Patch]:
    give_out = QueueClerk._give_out

    def busy(self: QueueClerk, *arguments: Any) -> None:
        paused, self.machine.paused = self.machine.paused, False
        try:
            give_out(self, *arguments)
        finally:
            self.machine.paused = paused

    return [(QueueClerk, "_give_out", busy)]


def overwrites_the_log() -> list[Patch]:
    """An entry is put, whatever lies there: two leaders, or one that is asked again, write one number twice."""

    async def append(
        store: Store, lead: Tenancy, seq: int, compose: Callable[[str], LogEntry], *, clock: Any, draw_id: Any
    ) -> LogEntry:
        entry = compose(draw_id())
        while True:
            lead.ensure()
            try:
                await store.put(log_key(seq), encode(entry))
            except StoreError:
                await clock.sleep(0.1)
            else:
                lead.ensure()
                return entry

    return [(leader_module, "append", append)]


def _looks_no_further_back() -> list[Patch]:
    look = InboxSweep.look

    async def forward(self: InboxSweep) -> Look:
        before = self._cursor
        found = await look(self)
        self._cursor = max([before or "", *(letter.name.key for letter in found.letters)]) or None
        return found

    return [(InboxSweep, "look", forward)]


def _takes_tickets_of_others() -> list[Patch]:
    heed = QueueWorker._heed

    def greedy(self: QueueWorker, published: Published, base: Any) -> None:
        heed(self, published, base)
        for ticket in published.tickets:
            if ticket.id not in self._hands:
                self._accept(ticket, base)

    return [(QueueWorker, "_heed", greedy)]


def _epoch_as_token() -> list[Patch]:
    give_out = QueueClerk._give_out

    def same(self: QueueClerk, work: Work, stamp: Stamp) -> None:
        give_out(self, work, stamp)
        for ticket in work.tickets:
            ticket.seq = self.machine.tickets[ticket.id].seq = self._epoch

    return [(QueueClerk, "_give_out", same)]


def _purges_what_follows() -> list[Patch]:
    fold = QueueClerk._fold

    def greedy(self: QueueClerk, item: Item, work: Work, stamp: Stamp) -> None:
        if any(control.op == "purge" for control in work.control):
            self._fold_purged(item, work)
        else:
            fold(self, item, work, stamp)

    return [(QueueClerk, "_fold", greedy)]


def _purges_nothing_that_comes_along() -> list[Patch]:
    def fold_purged(self: QueueClerk, item: Item, work: Work) -> None:
        self._fold(item, work, Stamp(0, 0, item.modified_ms))

    return [(QueueClerk, "_fold_purged", fold_purged)]


def _no_deadline() -> list[Patch]:
    return [(Hand, "remaining", lambda self: 0.0 if self.lost else self.visibility)]


def _extends_when_asked() -> list[Patch]:
    outcome = QueueWorker._outcome

    def hopeful(self: QueueWorker, hand: Hand, extend: bool) -> Outcome:
        if extend:
            hand.base = self.clock.read()
        return outcome(self, hand, extend)

    return [(QueueWorker, "_outcome", hopeful)]


def _keeps_no_results() -> list[Patch]:
    async def forget(self: S3QueuePlugin, message: Any, result: Any) -> None:
        """Whoever waits for it waits in vain."""

    return [(S3QueuePlugin, "_keep_result", forget)]


def _failed_is_done() -> list[Patch]:
    def failed(self: QueueWorker, held: HeldMessage, error: BaseException) -> None:
        self._finish(held, "done")

    return [(QueueWorker, "_failed", failed)]


def _ignores_commands() -> list[Patch]:
    def deaf(self: QueueClerk, command: Command, work: Work, stamp: Stamp) -> None:
        """It is folded, and that is all."""

    return [(QueueClerk, "_command", deaf)]


class _FromItsStart:
    """A segment, read from its first message on."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    def messages(self, low: int, high: int) -> Any:
        return self._segment.messages(0, high - low)


def _reads_from_the_start() -> list[Patch]:
    open_ = QueueWorker._open

    def confused(self: QueueWorker, hand: Hand, run: Run, segment: Any) -> list[HeldMessage]:
        return open_(self, hand, run, _FromItsStart(segment))  # type: ignore[arg-type]

    return [(QueueWorker, "_open", confused)]


def _clears_segments_early() -> list[Patch]:
    spend = QueueMachine._spend

    def hasty(self: QueueMachine, segment: str, count: int) -> None:
        spend(self, segment, count)
        if count and segment not in self.spent:
            self.spent.append(segment)

    return [(QueueMachine, "_spend", hasty)]


def _entries_before_segments() -> list[Patch]:
    async def prepare(self: QueueClerk, items: Sequence[Item]) -> None:
        """Names are given, and the bodies are to be written some other time."""
        self._places, self._counts = {}, {}
        for item in items:
            if item.content.sizes:
                self._segment([item])

    return [(QueueClerk, "prepare", prepare)]


def _snapshot_forgets_totals() -> list[Patch]:
    snapshot = QueueMachine.snapshot

    def forgetful(self: QueueMachine) -> list[bytes]:
        totals, self.totals = self.totals, Totals()
        try:
            return snapshot(self)
        finally:
            self.totals = totals

    return [(QueueMachine, "snapshot", forgetful)]


def _given_out_is_still_ready() -> list[Patch]:
    take = QueueMachine._take

    def lenient(self: QueueMachine, wanted: Sequence[Run]) -> None:
        self.ready_count -= sum(run.count for run in wanted if not run.key)
        take(self, [run for run in wanted if run.key])

    return [(QueueMachine, "_take", lenient)]


QUEUE_VARIANTS = (
    Variant(
        "folding-not-idempotent", "a batch that was folded is folded again", "folded twice", _folding_not_idempotent
    ),
    Variant("trusts-one-404", "a new leader takes one missing entry for the end of the log", "lost", _trusts_one_404),
    Variant("reads-ghosts", "who reads along believes whatever it reads, however late", "follower", _reads_ghosts),
    Variant("no-term-start", "a new leader begins without an entry that says so", "folded twice", _no_term_start),
    Variant("acks-before-created", "enqueue returns before the store has answered", "lost", _acks_before_created),
    Variant(
        "expires-without-sweep", "tickets lapse though reports may lie in the inbox", "acked", _expires_without_sweep
    ),
    Variant("forgets-early", "producers are forgotten at once", "lost", _forgets_early),
    Variant(
        "ignores-deduplication", "what has a deduplication key is folded each time", "dedup", _ignores_deduplication
    ),
    Variant("keys-at-once", "an ordering key is given out again while a ticket has it", "order", _keys_at_once),
    Variant(
        "deadline-from-sight", "a worker counts its time from when it sees a ticket", "acked", _deadline_from_sight
    ),
    Variant(
        "settles-afterwards", "at most once: what is handled is settled after it", "at most once", _settles_afterwards
    ),
    Variant(
        "buries-without-history", "a dead letter does not say what happened to it", "history", _buries_without_history
    ),
    Variant("ignores-pause", "tickets are published while the queue is paused", "paused", _ignores_pause),
    Variant("overwrites-the-log", "an entry is written over one that has its number", "log", overwrites_the_log),
    Variant(
        "looks-no-further-back",
        "the inbox is looked through once, and then only on",
        "liveness",
        _looks_no_further_back,
    ),
    Variant(
        "takes-tickets-of-others",
        "a worker takes tickets that are for another",
        "stale ticket",
        _takes_tickets_of_others,
    ),
    Variant("epoch-as-token", "a message's token stays the same within a term", "token", _epoch_as_token),
    Variant("purges-what-follows", "a purge takes messages that came after it", "purge", _purges_what_follows),
    Variant(
        "purge-leaves-new-ones",
        "messages that are folded together with a purge stay",
        "purge",
        _purges_nothing_that_comes_along,
    ),
    Variant("no-deadline", "a worker goes on with a ticket whose time is over", "visibility", _no_deadline),
    Variant(
        "extends-when-asked", "more time counts from the asking, granted or not", "visibility", _extends_when_asked
    ),
    Variant("keeps-no-results", "what a handler returned is not stored", "result", _keeps_no_results),
    Variant("failed-is-done", "a message whose handler failed counts as done", "not handled", _failed_is_done),
    Variant("ignores-commands", "a command is folded, and not followed", "command", _ignores_commands),
    Variant(
        "reads-from-the-start",
        "a ticket's messages are read from the start of a segment",
        "identity",
        _reads_from_the_start,
    ),
    Variant(
        "clears-segments-early",
        "a segment is deleted as soon as one message of it is over",
        "segment",
        _clears_segments_early,
    ),
    Variant(
        "entries-before-segments", "an entry names bodies that are not written yet", "segment", _entries_before_segments
    ),
    Variant("snapshot-forgets-totals", "a snapshot does not say how much there was", "state", _snapshot_forgets_totals),
    Variant("given-out-is-still-ready", "what is in a ticket is given out again", "twice", _given_out_is_still_ready),
)
