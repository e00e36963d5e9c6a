"""Broken builds of counters: each is a patch to a production class, and the judge must catch it."""

from __future__ import annotations

from tenure.testing.broken import Variant

COUNTERS_VARIANTS: tuple[Variant, ...] = ()
