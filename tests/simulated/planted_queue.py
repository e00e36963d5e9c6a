"""Histories of a queue that no single mistake of the product leads to, or that are quicker planted than searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from tenure.election.records import decode, encode
from tenure.ledger import InboxName, LogEntry
from tenure.ledger.config import MAX_ENTRY_BYTES
from tenure.ledger.layout import SEGMENTS, log_key
from tenure.plugins.queue.records import Control, Run, Work
from tenure.plugins.queue.wire import Outcome, Piece
from tenure.simulate.queue_fleet import FOLDER, QueueStage
from tenure.simulate.queue_judge import DONE, OUT, Judge, Mail
from tenure.testing.checkers import Checkers

from .calm import calm, changed_once, forge, saying
from .checks import plants

STRANGER = InboxName(1, "stranger-1", 1)


def forged(
    change: Callable[[Work], bool],
    seconds: float = 10.0,
    before: Callable[[Judge], None] = lambda judge: None,
    then: Callable[[QueueStage], None] = lambda stage: None,
) -> Checkers:
    """The judge of a queue in whose log one entry says something else. `change`: False if it is not that one."""

    def changed(entry: LogEntry, events: bytes) -> bytes | None:
        work = msgspec.json.decode(events, type=Work)
        return msgspec.json.encode(work) if change(work) else None

    def prepare(stage: QueueStage) -> None:
        before(stage.judge)
        forge(stage, stage.judge, FOLDER, changed_once(changed))

    with calm(QueueStage, seconds=seconds, before=prepare) as stage:
        then(stage)
        return stage.checkers


def concludes(stage: QueueStage) -> None:
    stage.judge.conclude(stage._look())


def at_rest(stage: QueueStage, *, finished: bool = True) -> None:
    """Nothing is enqueued any more, and all of it is handled."""
    stage.cluster.world.run_until(stage.cluster.world.now + 60)
    assert not finished or not stage.judge.unfinished()


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
        at_rest(stage)
        stage.judge.accepted[10**6] = "stranger-1-7-0"
        stage.conclude()
        return stage.checkers


@plants("queue", "lost")
def messages_are_done_that_nobody_handled() -> Checkers:
    def before(stage: QueueStage) -> None:
        stage.judge.ended = lambda messages: None  # type: ignore[method-assign]

    with calm(QueueStage, before=before, until="lost") as stage:
        at_rest(stage)
        stage.conclude()
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


@plants("queue", "purge")
def a_message_that_was_sent_after_a_purge_comes_before_it() -> Checkers:
    def before(judge: Judge) -> None:
        judge.sends("purge")
        judge.sends_after_purges(1)

    def change(work: Work) -> bool:
        if work.arrived or not work.settled:
            return False  # the first messages are folded already
        work.control.append(Control("purge"))
        return True

    return saying("comes before it", forged(change, before=before, then=concludes))


@plants("queue", "order")
def a_message_of_a_key_is_folded_again_after_a_younger_one() -> Checkers:
    held: list[Run] = []

    def change(work: Work) -> bool:
        if not held:
            held.extend(run for run in work.arrived if run.key)
            return False
        if not any(run.key == held[0].key for run in work.arrived):
            return False
        work.arrived += held
        return True

    return saying("was folded after", forged(change, seconds=40))


@plants("queue", "state")
def all_entries_do_not_add_up() -> Checkers:
    with calm(QueueStage) as stage:
        state = stage._look()
        stage.judge.entries[2] = stage.judge.entries[3]
        stage.judge.conclude(state)
        return saying("all entries do not add up", stage.checkers)


@plants("queue", "state")
def a_report_is_not_in_the_book() -> Checkers:
    def change(work: Work) -> bool:
        work.settled, found = [], bool(work.settled)
        return found

    def then(stage: QueueStage) -> None:
        at_rest(stage, finished=False)
        concludes(stage)

    return saying("another state than the book", forged(change, then=then))


# What the processes say


def mail_given_again(stage: QueueStage, begun: Sequence[tuple[Any, str]]) -> tuple[Any, str, Mail]:
    """A message of an ordering key, as it was begun under a ticket that it was taken from later."""
    for message, uid in begun:
        mail = stage.judge._mail[message.ref_segment, message.index]
        if mail.key and mail.given != message._keeper.id:
            return message, uid, mail
    raise AssertionError("no message of a key was given out twice: run it for longer")


@plants("queue", "acked")
@plants("queue", "order")
def a_message_of_a_key_is_begun_and_acked_when_another_ticket_has_it() -> Checkers:
    begun: list[tuple[Any, str]] = []

    def before(stage: QueueStage) -> None:
        began = stage.judge.began

        def remember(messages: Sequence[Any], uid: str) -> None:
            begun.extend((message, uid) for message in messages)
            began(messages, uid)

        stage.judge.began = remember  # type: ignore[method-assign]

    with calm(QueueStage, seconds=75, before=before) as stage:
        message, uid, mail = mail_given_again(stage, begun)
        stage.judge.began([message], uid)
        acks(stage.judge, message._keeper.id, mail)
        return saying("had been given out again", saying("has it", stage.checkers))


def acks(judge: Judge, ticket: str, mail: Mail) -> None:
    segment, index = mail.place
    hand: Any = SimpleNamespace(id=ticket, runs=[])
    judge.was_acked(hand, Outcome(ticket, done=[Piece(segment, index, index + 1)]))


@plants("queue", "acked")
def a_message_is_acked_and_not_done_at_the_end() -> Checkers:
    with calm(QueueStage) as stage:
        state = stage._look()
        mail = next(mail for mail in stage.judge._mail.values() if mail.state == OUT)
        assert mail.given is not None
        acks(stage.judge, mail.given, mail)
        stage.judge.conclude(state)
        return saying("and is out", stage.checkers)


@plants("queue", "order")
def a_message_of_a_key_is_begun_while_the_one_before_it_is_handled() -> Checkers:
    def before(stage: QueueStage) -> None:
        stage.judge.ended = lambda messages: None  # type: ignore[method-assign]

    with calm(QueueStage, seconds=60, before=before) as stage:
        return saying("before it is not over", stage.checkers)


@plants("queue", "at most once")
def a_message_is_begun_twice() -> Checkers:
    def before(stage: QueueStage) -> None:
        began = stage.judge.began
        stage.judge._at_most_once = True

        def twice(messages: Sequence[Any], uid: str) -> None:
            began(messages, uid)
            began(messages, uid)

        stage.judge.began = twice  # type: ignore[method-assign]

    with calm(QueueStage, before=before) as stage:
        return stage.checkers


@plants("queue", "result")
def the_result_of_a_message_is_another() -> Checkers:
    def before(stage: QueueStage) -> None:
        stage.judge.results = True
        stage.settings["result_retention"] = 3600.0

    with calm(QueueStage, before=before) as stage:
        at_rest(stage)
        done = next(mail for mail in stage.judge._mail.values() if mail.state == DONE)
        stage.cluster.bucket.corrupt(f"{FOLDER}results/{done.id}", b"-1")
        concludes(stage)
        return saying("its result is b'-1'", stage.checkers)
