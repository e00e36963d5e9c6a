"""Counters on records: contention-free to write, consolidated by the leader, each amount counted exactly once."""

from tenure.plugins.counters.events import ApplyFailed, Consolidated, FieldHidden
from tenure.plugins.counters.looking import Bucket, CounterStats, Period, Top
from tenure.plugins.counters.numbers import Counter, Kind, Reducer
from tenure.plugins.counters.plugin import EventualConsistencyPlugin, Recalculated
from tenure.plugins.counters.settings import CounterSettings, Mode, OnDirectWrite, Retention

__all__ = [
    "ApplyFailed",
    "Bucket",
    "Consolidated",
    "Counter",
    "CounterSettings",
    "CounterStats",
    "EventualConsistencyPlugin",
    "FieldHidden",
    "Kind",
    "Mode",
    "OnDirectWrite",
    "Period",
    "Recalculated",
    "Reducer",
    "Retention",
    "Top",
]
