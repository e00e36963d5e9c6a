"""What the processes of the demo say: a JSON object to a line.

All times are of the clock that every process of a host shares (`boottime_ns`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TypeAlias

import msgspec


class Report(msgspec.Struct, frozen=True, tag=True):
    """Whether this process leads. The two times enclose the question."""

    asked_ns: int
    boottime_ns: int
    process: int
    leads: bool
    epoch: int
    """Of its own leadership; 0 if it does not lead."""


class Outcome(enum.Enum):
    CLAIMED = "claimed"
    """The ledger was taken over: nobody of an older epoch can write it from here on."""
    BEGUN = "begun"
    """Said before anything is sent. Of a process that was killed it may be the last word."""
    DONE = "done"
    REFUSED = "refused"
    """The process no longer leads: certainly not written."""
    UNKNOWN = "unknown"


class Deed(msgspec.Struct, frozen=True, tag=True):
    """A piece of work, or a step of one. The two times enclose what was tried."""

    asked_ns: int
    boottime_ns: int
    process: int
    epoch: int
    serial: int
    """Counts the pieces of work of this process, from 1; 0 for a claim."""
    outcome: Outcome


class Order(msgspec.Struct, frozen=True, tag=True):
    """A message for the queue. Done: it was acknowledged, and must be handled."""

    boottime_ns: int
    process: int
    key: str
    """Its own, whatever the queue calls it."""
    price: int
    outcome: Outcome


class Step(enum.Enum):
    BEGUN = "begun"
    COUNTED = "counted"
    """Its price was acknowledged by the counter, and the handler returns."""
    FAILED = "failed"
    """It is not known whether its price was counted; the queue will bring it again."""
    REPORTED = "reported"
    """In time, and durable: the queue must not bring it again."""


class Handling(msgspec.Struct, frozen=True, tag=True):
    """A step of one delivery of an order."""

    boottime_ns: int
    process: int
    key: str
    price: int
    token: int
    """Rises from one delivery of an order to the next."""
    step: Step


class Fire(msgspec.Struct, frozen=True, tag=True):
    """The job's function was called."""

    boottime_ns: int
    process: int
    scheduled_ms: int
    """The time that it was called for: by this, and not by when it was, one call is told from another."""
    token: int


class Till(msgspec.Struct, frozen=True, tag=True):
    """The counter as it stood in its record."""

    boottime_ns: int
    process: int
    takings: int


Line: TypeAlias = Report | Deed | Order | Handling | Fire | Till
Say: TypeAlias = Callable[[Line], None]
