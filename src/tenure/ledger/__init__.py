"""What was decided: an inbox, a numbered log and snapshots, one set for each plugin instance.

Everything *to* the leader is an object in `inbox/` that is created once and deleted when it was folded. Everything
*from* it is an entry of `log/`: created once, numbered without gaps, written by the leader alone. Nothing is changed in
place. The state of a plugin is what its machine makes of the entries, in order, on every process and after every crash.

Guarantee (I-4): two leaders never both commit an entry with the same number, and nothing that was committed is missing
from a later leader's state. (I-5): what a producer was told is durable is folded exactly once.

Assumption: the election's (one leader at a time, but for a process that is paused between looking and sending), and
that no request is under way in the network for longer than `retention`.

Not guaranteed: that a call which raised `WriteUnknown` did not happen. It happened once or not at all, and may still.
"""

from tenure.ledger.agreed import agreed_ledger, ledger_of_onlooker
from tenure.ledger.config import LedgerConfig
from tenure.ledger.follower import Resync, Tail
from tenure.ledger.layout import InboxName, ledger_store
from tenure.ledger.leader import Clerk, Item, LedgerTerm, Poison, Situation, Tick, TooNewLetter
from tenure.ledger.machine import LedgerState, Machine, Stamp
from tenure.ledger.place import Place
from tenure.ledger.producer import Lot, Producer, Receipt
from tenure.ledger.records import LogEntry

__all__ = [
    "Clerk",
    "InboxName",
    "Item",
    "LedgerConfig",
    "LedgerState",
    "LedgerTerm",
    "LogEntry",
    "Lot",
    "Machine",
    "Place",
    "Poison",
    "Producer",
    "Receipt",
    "Resync",
    "Situation",
    "Stamp",
    "Tail",
    "Tick",
    "TooNewLetter",
    "agreed_ledger",
    "ledger_of_onlooker",
    "ledger_store",
]
