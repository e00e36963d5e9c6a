"""What a store gives back.

A conditional write has three outcomes, and the third is real: when the answer is lost, the write may have happened, may
never happen, or may happen later, when its packets finally arrive. `tenure.store.settle` finds out which.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, NoReturn, TypeAlias

import msgspec

from tenure.errors import StoreError


class Version(msgspec.Struct, frozen=True):
    """An opaque mark of one state of one object, good for `replace` and for `get(unless=…)`.

    It may be a hash of the content (S3), so writing the same bytes twice may give the same version: a body whose
    writes must be told apart carries a fresh id of its own.
    """

    e_tag: str
    generation: str | None = None

    def matches(self, other: Version) -> bool:
        """Do both name the same state? Listings on some stores leave the generation out."""
        if self.generation is not None and other.generation is not None:
            return self.generation == other.generation
        return self.e_tag == other.e_tag


class Stored(msgspec.Struct, frozen=True):
    """A body and its version, from one request."""

    body: bytes
    version: Version


class NotModified(msgspec.Struct, frozen=True):
    """The object still has the version that `get(unless=…)` named."""

    version: Version


class Entry(msgspec.Struct, frozen=True):
    """One row of a listing. `modified` is the store's clock, and may be rounded to a second."""

    key: str
    version: Version
    size: int
    modified: datetime


class NeverABool:
    """An answer with more than two values, or with more than one question in it: `if answer:` raises."""

    __slots__ = ()
    instead: ClassVar[str]
    """What to ask instead; it follows "X is"."""

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is {self.instead}")


class _OneOfThree(NeverABool):
    __slots__ = ()
    instead: ClassVar[str] = "one of three outcomes: match on Applied, Rejected and Unknown"


class Applied(msgspec.Struct, _OneOfThree, frozen=True):
    """The write happened, and the object now has this version."""

    version: Version


class Rejected(msgspec.Struct, _OneOfThree, frozen=True):
    """The condition did not hold, and this request changed nothing.

    Between us and the store something may have sent the request twice; where "it did not happen" is acted on, `settle`
    confirms it.
    """


class Unknown(msgspec.Struct, _OneOfThree, frozen=True):
    """No decisive answer: the write may have happened, or may still. `error` says what came back instead."""

    error: StoreError


Outcome: TypeAlias = Applied | Rejected | Unknown


def name_of(outcome: Outcome) -> str:
    """`applied`, `rejected` or `unknown`: for counting and for wires."""
    return type(outcome).__name__.lower()
