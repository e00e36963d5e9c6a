"""What can go wrong between a client and its store: how often the request lands, and what the client hears of it.

The two are independent, and that is the whole difficulty: an error says nothing about whether the write landed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Landing(Enum):
    NEVER = "never"
    ONCE = "once"
    TWICE = "twice"
    LATE = "late"


class Reply(Enum):
    GENUINE = "genuine"
    STATUS = "status"
    CLOSE = "close"
    RESET = "reset"
    HANG = "hang"


@dataclass(frozen=True)
class Fault:
    landing: Landing
    reply: Reply
    status: int | None = None
    code: str | None = None
    seconds: float = 0.0
    """How long the request is held back before it is forwarded."""

    def __post_init__(self) -> None:
        has_answer = self.landing in (Landing.ONCE, Landing.TWICE)
        assert has_answer or self.reply is not Reply.GENUINE, "no genuine reply without a landing before it"
        assert (self.status is not None) == (self.reply is Reply.STATUS), "a status belongs to Reply.STATUS"

    @property
    def disturbs(self) -> bool:
        """A client or a store could notice it: a storm lets some requests through as they are."""
        return self.landing is not Landing.ONCE or self.reply is not Reply.GENUINE or self.seconds > 0


def status_after_apply(status: int = 500, code: str | None = None) -> Fault:
    """The write lands; the client is told that it failed."""
    return Fault(Landing.ONCE, Reply.STATUS, status, code)


def close_after_apply() -> Fault:
    """The write lands; the connection is closed cleanly without an answer."""
    return Fault(Landing.ONCE, Reply.CLOSE)


def reset_after_apply() -> Fault:
    """The write lands; the client gets a TCP reset."""
    return Fault(Landing.ONCE, Reply.RESET)


def hang_after_apply() -> Fault:
    """The write lands; the client hears nothing until its own timeout."""
    return Fault(Landing.ONCE, Reply.HANG)


def status_before_apply(status: int = 503, code: str | None = None) -> Fault:
    """Nothing lands, and the client is told so."""
    return Fault(Landing.NEVER, Reply.STATUS, status, code)


def close_before_apply() -> Fault:
    return Fault(Landing.NEVER, Reply.CLOSE)


def reset_before_apply() -> Fault:
    """With `times=None`: the client is cut off from the store."""
    return Fault(Landing.NEVER, Reply.RESET)


def hang_before_apply() -> Fault:
    return Fault(Landing.NEVER, Reply.HANG)


def delay_before_forward(seconds: float, status: int | None = 500) -> Fault:
    """A late landing: the client is told at once that it failed (None: by a close); the write lands afterwards."""
    return Fault(Landing.LATE, Reply.CLOSE if status is None else Reply.STATUS, status, seconds=seconds)


def repeat() -> Fault:
    """A middlebox sends the request twice and passes on the second answer."""
    return Fault(Landing.TWICE, Reply.GENUINE)


def slow(seconds: float) -> Fault:
    """No failure: the request is held for a while, lands, and is answered."""
    return Fault(Landing.ONCE, Reply.GENUINE, seconds=seconds)
