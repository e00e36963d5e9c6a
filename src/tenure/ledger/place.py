"""The order of a producer's batches."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Place(msgspec.Struct, frozen=True):
    """What a batch must come after, among those of its producer."""

    after: int
    """All up to this number were durable ..."""
    skipped: Sequence[int] = ()
    """... but for these, which may be ..."""
    ahead: Sequence[int] = ()
    """... and so were these."""
