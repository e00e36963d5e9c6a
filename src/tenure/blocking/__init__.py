"""Tenure for threads and scripts: leadership, locks, records, queues, schedules and counters, without `async`.

    with tenure.blocking.lead("s3://bucket/app") as leader:
        while work_to_do():
            leader.ensure(5)          # raises LeadershipLost unless this process leads for five seconds more
            do_a_piece(leader.epoch)

Guarantee: the body begins only when this process leads, and the lease is not given away while it runs: whoever asks for
a handover waits for it. `leader.is_current()` is false in time, in every thread.

Assumption: those of `tenure.election`; and that the body asks, or waits in `leader.sleep()`, often enough.

Not guaranteed: that the body has ended when another process leads. A thread cannot be cancelled. A body that does not
look goes on after its lease ran out; this is logged, and fenced writes (`leader.put`) protect what it writes. Only
`overrun="exit"` makes sure of it: the process ends before another may lead. It ends itself: one that was frozen past
its lease (SIGSTOP, a suspended machine) runs for a moment when it wakes. `tenure run` ends work from outside.

Everything async runs on one background thread per `Database`, a daemon that starts with `connect()`. Nothing happens on
import.
"""

from tenure.blocking.coordinator import Coordinator, Subscription
from tenure.blocking.counters import Counters
from tenure.blocking.database import Database, lead, terms
from tenure.blocking.leading import Leader, Leadership, Loss
from tenure.blocking.lock import Held, Lock
from tenure.blocking.queue import Queue
from tenure.blocking.resource import Resource
from tenure.blocking.scheduler import Scheduler
from tenure.blocking.terminating import until_terminated
from tenure.blocking.ttl import TTL
from tenure.errors import LeadershipLost, LeadershipTimeout

__all__ = [
    "TTL",
    "Coordinator",
    "Counters",
    "Database",
    "Held",
    "Leader",
    "Leadership",
    "LeadershipLost",
    "LeadershipTimeout",
    "Lock",
    "Loss",
    "Queue",
    "Resource",
    "Scheduler",
    "Subscription",
    "lead",
    "terms",
    "until_terminated",
]
