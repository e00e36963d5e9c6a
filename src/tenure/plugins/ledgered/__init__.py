"""What every plugin whose state is a ledger has in common: how it starts and stops, and how its leader works."""

from tenure.plugins.ledgered.following import Following
from tenure.plugins.ledgered.glance import LedgerGlance
from tenure.plugins.ledgered.leading import Halted, LeadingBegan, LedgerLeading, either
from tenure.plugins.ledgered.looking import Onlooker, look_up
from tenure.plugins.ledgered.plugin import SHUTDOWN_TIMEOUT, ClockSkewed, LedgerPlugin, NotLed
from tenure.plugins.ledgered.view import LedgerView

__all__ = [
    "SHUTDOWN_TIMEOUT",
    "ClockSkewed",
    "Following",
    "Halted",
    "LeadingBegan",
    "LedgerGlance",
    "LedgerLeading",
    "LedgerPlugin",
    "LedgerView",
    "NotLed",
    "Onlooker",
    "either",
    "look_up",
]
