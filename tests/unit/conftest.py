"""Property tests here are replayed, not drawn anew: a failure on one machine is a failure on all of them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unit", derandomize=True, deadline=None, max_examples=60, database=None)
settings.load_profile("unit")
