"""Property tests here are replayed, not drawn anew: a failure on one machine is a failure on all of them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unit",
    derandomize=True,
    deadline=None,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is not a defect
)
settings.load_profile("unit")
