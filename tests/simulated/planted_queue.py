"""Histories of a queue that no single mistake of the product leads to, or that are quicker planted than searched."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tenure.election.records import decode, encode
from tenure.ledger import InboxName, LogEntry
from tenure.ledger.config import MAX_ENTRY_BYTES
from tenure.ledger.layout import SEGMENTS, log_key
from tenure.plugins.queue.records import Control, Work
from tenure.simulate.queue_fleet import FOLDER, QueueStage
from tenure.testing.checkers import Checkers

from .calm import calm, changed_once, forge
from .checks import plants

STRANGER = InboxName(1, "stranger-1", 1)


def forged(change: Callable[[Work], bool]) -> Checkers:
    """The judge of a queue in whose log one entry says something else. `change`: False if it is not that one."""

    def changed(events: bytes) -> bytes | None:
        work = msgspec.json.decode(events, type=Work)
        return msgspec.json.encode(work) if change(work) else None

    def before(stage: QueueStage) -> None:
        forge(stage, stage.judge, FOLDER, changed_once(changed))

    with calm(QueueStage, before=before) as stage:
        return stage.checkers


@plants("queue", "rejected")
def somebody_puts_junk_into_the_inbox() -> Checkers:
    with calm(QueueStage) as stage:
        stage.cluster.bucket.corrupt(FOLDER + STRANGER.key, b"junk")
        stage.cluster.world.run_until(stage.cluster.world.now + 5)
        return stage.checkers


@plants("queue", "lost")
def a_batch_is_removed_before_it_is_folded() -> Checkers:
    with calm(QueueStage) as stage:
        stage.cluster.bucket.corrupt(FOLDER + STRANGER.key, b"junk")
        stage.cluster.bucket.remove(FOLDER + STRANGER.key)
        return stage.checkers


@plants("queue", "lost")
def an_accepted_message_is_in_no_entry() -> Checkers:
    with calm(QueueStage) as stage:
        stage.judge.accepted[10**6] = "stranger-1-7-0"
        stage.conclude()
        return stage.checkers


@plants("queue", "lost")
def messages_are_done_that_nobody_handled() -> Checkers:
    def before(stage: QueueStage) -> None:
        stage.judge.ended = lambda messages: None  # type: ignore[method-assign]

    with calm(QueueStage, before=before) as stage:
        state = stage._look()
        stage.judge.conclude(state)
        return stage.checkers


@plants("queue", "log")
def an_entry_is_written_before_the_one_before_it() -> Checkers:
    with calm(QueueStage) as stage:
        last = max(stage.judge.entries)
        entry = decode(stage.judge.entries[last], LogEntry, MAX_ENTRY_BYTES)
        assert isinstance(entry, LogEntry)
        ahead = msgspec.structs.replace(entry, seq=last + 5)
        stage.cluster.bucket.corrupt(FOLDER + log_key(last + 5), encode(ahead))
        return stage.checkers


@plants("queue", "log")
def an_entry_cannot_be_read() -> Checkers:
    with calm(QueueStage) as stage:
        stage.cluster.bucket.corrupt(FOLDER + log_key(max(stage.judge.entries) + 1), b"{")
        return stage.checkers


@plants("queue", "state")
def who_starts_cannot_read_the_log() -> Checkers:
    with calm(QueueStage, until="state") as stage:
        stage.cluster.bucket.corrupt(FOLDER + log_key(max(stage.judge.entries)), b"{")
        stage.judge.unfinished = lambda: 0  # type: ignore[method-assign]
        stage.conclude()
        return stage.checkers


@plants("queue", "segment")
def a_segment_is_written_twice() -> Checkers:
    with calm(QueueStage) as stage:
        segment = next(iter(stage.judge._segments))
        stage.cluster.bucket.corrupt(FOLDER + SEGMENTS + segment, b"other messages")
        return stage.checkers


@plants("queue", "unknown")
def a_ticket_has_a_message_that_was_never_folded() -> Checkers:
    def change(work: Work) -> bool:
        for ticket in work.tickets:
            ticket.runs[-1].high += 1000
        return bool(work.tickets)

    return forged(change)


@plants("queue", "token")
def a_ticket_has_the_token_of_another_entry() -> Checkers:
    def change(work: Work) -> bool:
        for ticket in work.tickets:
            ticket.seq -= 1
        return bool(work.tickets)

    return forged(change)


@plants("queue", "order")
def a_message_is_folded_under_another_ordering_key() -> Checkers:
    def change(work: Work) -> bool:
        for run in work.arrived:
            run.key += "!"
        return bool(work.arrived)

    return forged(change)


@plants("queue", "paused")
def a_queue_gives_out_in_the_entry_that_pauses_it() -> Checkers:
    def change(work: Work) -> bool:
        work.control.append(Control("pause"))
        return bool(work.tickets)

    return forged(change)


@plants("queue", "command")
def a_command_was_acknowledged_and_is_not_in_the_log() -> Checkers:
    with calm(QueueStage) as stage:
        stage.judge.sends("redrive")
        stage.judge.followed("redrive")
        stage.judge.conclude(stage._look())
        return stage.checkers
