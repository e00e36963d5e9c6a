"""The bounds of a ledger, all of them."""

from __future__ import annotations

import msgspec

from tenure.coordinator.given import check_count, check_number
from tenure.errors import ConfigError

MAX_ENTRY_BYTES = 32 * 1024 * 1024
MAX_CHUNKS = 10_000
MAX_INBOX_BYTES = 8 * 1024 * 1024
"""An inbox object over this is no producer's of ours, and is never read."""
USUAL_TRIM_DELAY = 120.0

_TEN_YEARS = 10 * 365 * 86_400.0
_MOST_DRIFT = 0.099
_MOST = 10**12
_COUNTS = {
    **dict.fromkeys(("snapshot_every", "snapshot_bytes", "objects_per_tick", "gets_at_once", "trims_per_tick"), _MOST),
    "waiting": _MOST,
    "bytes_per_tick": MAX_ENTRY_BYTES // 8,
    "batch_bytes": MAX_INBOX_BYTES // 2,
    "in_flight": 64,
}


class LedgerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How one ledger is kept. Durations are seconds."""

    trim_delay: float | None = None
    """How long an entry outlives the snapshot that makes it superfluous; at least two leases. `None`: as the others
    have it, and if nobody has said anything two minutes, or two of the longest leases of the namespace."""
    retention: float = 3600.0
    """How long a silent producer is remembered. No request may be under way for longer."""
    drift: float = 0.01
    snapshot_every: int = 500
    """Entries between two snapshots."""
    snapshot_bytes: int = 32 * 1024 * 1024
    """Bytes of entries between two snapshots."""
    snapshot_age: float = 600.0
    """Seconds after which a log that has grown at all is condensed."""
    objects_per_tick: int = 1000
    bytes_per_tick: int = 4 * 1024 * 1024
    """What is decided on them may take five times as many bytes (small messages, each with options of its own), and
    must fit into one entry."""
    gets_at_once: int = 32
    trims_per_tick: int = 1000
    linger: float = 0.003
    """Seconds for which a call waits for others to share its write ..."""
    linger_busy: float = 0.03
    """... and at most, while other writes are under way."""
    batch_bytes: int = 1024 * 1024
    in_flight: int = 8
    """Writes of one producer that may be under way at once."""
    waiting: int = 10_000
    """Calls that may wait for their turn to be written."""
    send_timeout: float = 10.0
    """An answer that takes longer does not count, whatever it says."""
    give_up_after: float = 60.0
    """Seconds for which a write without a decisive answer is sent again."""

    def __post_init__(self) -> None:
        if self.trim_delay is not None:
            check_number("trim_delay", self.trim_delay, least=0.001, most=_TEN_YEARS)
        for name in ("retention", "snapshot_age", "send_timeout", "give_up_after"):
            check_number(name, getattr(self, name), least=0.001, most=_TEN_YEARS)
        for name, most in _COUNTS.items():
            check_count(name, getattr(self, name), least=1, most=most)
        for name, greatest in (("drift", _MOST_DRIFT), ("linger", 1.0), ("linger_busy", 1.0)):
            check_number(name, getattr(self, name), least=0.0, most=greatest)
        if self.give_up_after + self.send_timeout > self.retention / 4:
            raise ConfigError(
                f"retention is {self.retention:g} s, and a producer may go on sending for "
                f"{self.give_up_after + self.send_timeout:g} s: it must be remembered at least four times as long"
            )

    def remembered_for(self, retention: float) -> LedgerConfig:
        """The same for a ledger whose producers are remembered for so long: none sends for longer than it may."""
        sending = self.give_up_after + self.send_timeout
        share = min(1.0, retention / 4 / sending * (1 - 1e-9))
        return msgspec.structs.replace(
            self,
            retention=retention,
            give_up_after=self.give_up_after * share,
            send_timeout=self.send_timeout * share,
        )

    @property
    def trim_delay_seconds(self) -> float:
        return USUAL_TRIM_DELAY if self.trim_delay is None else self.trim_delay

    @property
    def known_for(self) -> float:
        """Seconds for which a producer may rely on the log number that it knows."""
        return self.retention / 4

    @property
    def trusted_for(self) -> float:
        """Seconds after a poll that found no entry within which a later poll's entry is certainly the first one."""
        return self.trim_delay_seconds * (1 - 2 * self.drift)
