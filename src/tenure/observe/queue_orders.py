"""Commands to the leader of a queue from outside: pause, resume, purge, redrive.

What is sent is durable. A leader need not be alive for that, and nothing happens until one is.
"""

from __future__ import annotations

import msgspec

from tenure.clock import Clock
from tenure.entropy import new_id
from tenure.ledger import InboxName, LedgerConfig, LedgerState, Producer, agreed_ledger
from tenure.ledger.catchup import catch_up
from tenure.ledger.layout import MAX_SEQ
from tenure.ledger.producer import Receipt
from tenure.plugins.ledgered import Onlooker
from tenure.plugins.queue.outgoing import compose
from tenure.plugins.queue.state import QueueMachine
from tenure.plugins.queue.wire import Command
from tenure.store import Store

_POLL = 0.1
_LONGEST_POLL = 1.0


class Followed(msgspec.Struct, frozen=True):
    """A leader has read it: it has taken effect."""

    seq: int
    """Up to which entry of the log it had."""
    epoch: int


async def send(store: Store, name: str, command: Command, clock: Clock) -> Receipt:
    """It is durable when this returns. `store` is the queue's own."""
    config = await agreed_ledger(store, LedgerConfig(), is_given=False, what=f"the queue {name!r}", draw_id=new_id)
    producer = Producer(store, compose, config=config, clock=clock, draw_id=new_id)
    try:
        return await producer.submit(command, 300 + sum(map(len, command.refs)))
    finally:
        await producer.aclose()


async def follow(store: Store, receipt: Receipt, timeout: float, clock: Clock) -> Followed | None:
    """Read the log until it has the command; `None`: it has not, after so many seconds."""
    state = LedgerState(QueueMachine())
    started, pause = clock.read(), _POLL
    name = InboxName(MAX_SEQ, receipt.uid, receipt.number)
    while True:
        await catch_up(store, state, Onlooker(), clock=clock)
        if state.producers.is_done(name):
            return Followed(state.seq, state.epoch)
        left = timeout - clock.read().leader_elapsed(started)
        if left <= 0:
            return None
        await clock.sleep(min(pause, left))
        pause = min(_LONGEST_POLL, pause * 1.3)
