"""What is to be done about a record to which a due index entry leads. Pure: by the record itself, and the time."""

from __future__ import annotations

import enum

import msgspec

from tenure.database.expiry import NONE, Expiry, expiry_of
from tenure.database.records import Envelope
from tenure.plugins.ttl.rules import BadTime, Rules

NEAR_MS = 60_000
"""A record whose time is so near is waited for; for one that is further off, another entry is written."""
WATCHED_MS = 60_000
"""For so long after an entry was written, a record that does not name it is looked at at every tick: a write that is
late lands by then, or rarely ever."""
ROUNDED_MS = 1000
"""Listings may show whole seconds, rounded down."""


class Verdict(enum.Enum):
    EXPIRE = "expire"
    """Its time has come."""
    WORK = "work"
    """It expired under this entry, and something is still to be done with what it was."""
    WAIT = "wait"
    MOVE = "move"
    """It names this entry, and its data say that it expires much later."""
    RELEASE = "release"
    """It names this entry, and does not expire."""
    ELSEWHERE = "elsewhere"
    """The record does not name this entry ..."""
    ABSENT = "absent"
    """... or there is none."""
    DAMAGED = "damaged"


class Judgement(msgspec.Struct, frozen=True):
    verdict: Verdict
    expiry: Expiry = NONE
    at_ms: int = 0
    reason: str = ""


def judge(envelope: Envelope | None, stem: str, limit_ms: int, rules: Rules) -> Judgement:
    """`stem`: the entry that led here. `limit_ms`: the store's clock shows this, or more."""
    if envelope is None:
        return Judgement(Verdict.ABSENT)
    expiry = expiry_of(envelope.reserved)
    if isinstance(expiry, str):
        return Judgement(Verdict.DAMAGED, reason=expiry)
    if stem in expiry.pending:
        return Judgement(Verdict.WORK, expiry)
    if envelope.deleted:
        return Judgement(Verdict.ABSENT, expiry)
    if expiry.entry != stem:
        return Judgement(Verdict.ELSEWHERE, expiry)
    try:
        at_ms = rules.at_of(envelope.data, expiry)
    except BadTime as error:
        return Judgement(Verdict.DAMAGED, expiry, reason=str(error))
    if at_ms is None:
        return Judgement(Verdict.RELEASE, expiry)
    if at_ms <= limit_ms:
        return Judgement(Verdict.EXPIRE, expiry, at_ms)
    return Judgement(Verdict.WAIT if at_ms - limit_ms <= NEAR_MS else Verdict.MOVE, expiry, at_ms)


def quarantine_ends(modified_ms: int, quarantine: float) -> int:
    """From here on no write can land that was prepared by an entry of that time."""
    return modified_ms + ROUNDED_MS + round(quarantine * 1000)


def next_look(modified_ms: int, limit_ms: int, *, tick_ms: int, ends_ms: int) -> int:
    """When to look again for a write that may still land: often at first, then ever more rarely, and at the end."""
    age = limit_ms - modified_ms
    return min(limit_ms + (1 if age < WATCHED_MS else max(tick_ms, age)), ends_ms)
