"""What a store gave away when it was tried out."""

from __future__ import annotations

import msgspec


class Learned(msgspec.Struct, frozen=True):
    reasons: tuple[str, ...] = ()
    """Why it is unfit; empty if nothing was found."""
    dialect: dict[str, object] = {}
    """For another process that opens the same store, which then need not try it out."""
    versioned: bool | None = None
    """Does the bucket keep every version? None: it did not say."""
    credentials: str = "none needed"
