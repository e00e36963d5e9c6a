"""Broken builds of the ledger and the queue: each is a patch to a production class, and the judge must catch it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from tenure.errors import StoreError
from tenure.ledger import catchup as catchup_module
from tenure.ledger import leader as leader_module
from tenure.ledger.config import LedgerConfig
from tenure.ledger.layout import InboxName
from tenure.ledger.leader import Item, LedgerTerm, Overtaken, Situation
from tenure.ledger.log import Tenancy
from tenure.ledger.machine import LedgerState
from tenure.ledger.producer import Lot, Producer, Receipt
from tenure.ledger.producers import Producers, Verdict
from tenure.ledger.records import LogEntry
from tenure.plugins.queue.clerk import QueueClerk
from tenure.plugins.queue.keyqueue import KeyQueue
from tenure.plugins.queue.records import Run
from tenure.plugins.queue.state import QueueMachine
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
    async def catch_up(store: Store, state: LedgerState, lead: Tenancy) -> None:
        await catchup_module._read_on(store, state, lead)

    return [(leader_module, "catch_up", catch_up)]


def _reads_ghosts() -> list[Patch]:
    return [(LedgerConfig, "trusted_for", property(lambda self: float("inf")))]


def _no_term_start() -> list[Patch]:
    """The newer leader voids what comes late by its own opinion, and not by an entry that everybody reads."""
    begin, decide = LedgerTerm.begin, LedgerTerm._decide

    async def quiet_begin(self: LedgerTerm) -> LogEntry:
        await catchup_module.catch_up(self._store, self.state, self._lead)
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
)
