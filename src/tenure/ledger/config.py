"""The bounds of a ledger, all of them."""

from __future__ import annotations

import msgspec

from tenure.errors import ConfigError

MAX_ENTRY_BYTES = 32 * 1024 * 1024
MAX_CHUNKS = 10_000
MAX_INBOX_BYTES = 8 * 1024 * 1024
"""An inbox object over this is no producer's of ours, and is never read."""
USUAL_TRIM_DELAY = 120.0


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
        for name in ("trim_delay_seconds", "retention", "snapshot_age", "send_timeout", "give_up_after"):
            if not 0.001 <= getattr(self, name) < 10 * 365 * 86400:
                field = name.removesuffix("_seconds")
                raise ConfigError(f"{field} is {getattr(self, name)!r}: give seconds, 0.001 to ten years")
        for name in ("snapshot_every", "objects_per_tick", "bytes_per_tick", "gets_at_once", "trims_per_tick"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)!r}: give at least 1")
        if self.bytes_per_tick > MAX_ENTRY_BYTES // 8:
            raise ConfigError(f"bytes_per_tick is {self.bytes_per_tick!r}: give at most {MAX_ENTRY_BYTES // 8:,}")
        if not 1 <= self.in_flight <= 64 or self.waiting < 1 or not 1 <= self.batch_bytes <= MAX_INBOX_BYTES // 2:
            raise ConfigError(
                f"in_flight is {self.in_flight!r}, waiting is {self.waiting!r}, batch_bytes is {self.batch_bytes!r}: "
                f"give 1 to 64, at least 1, and 1 to {MAX_INBOX_BYTES // 2:,}"
            )
        if not 0 <= self.drift < 0.1 or not 0 <= self.linger <= 1 or not 0 <= self.linger_busy <= 1:
            raise ConfigError(
                f"drift is {self.drift!r}, linger is {self.linger!r}, linger_busy is {self.linger_busy!r}: give 0 to "
                "0.1, and 0 to 1 s"
            )
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
