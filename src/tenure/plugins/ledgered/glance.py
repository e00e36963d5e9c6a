"""What a process knows of a ledger by itself, at no cost: for telemetry."""

from __future__ import annotations

import msgspec


class LedgerGlance(msgspec.Struct, frozen=True, kw_only=True):
    takes_part: bool
    """This process may decide; it does not only write to the inbox."""
    leading: bool
    """This process decides here, and has caught up ..."""
    halted: bool
    """... or cannot go on."""
    tick_age: float | None
    """Seconds since the leader's last tick that succeeded; `None`: this process does not lead."""
    waiting: int
    """Calls of this process that are not durable yet."""
    batches: int
    """Inbox objects that this process has written."""
