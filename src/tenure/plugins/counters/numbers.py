"""What a field counts, and how: the kind of its numbers, and what an amount does to a total. Pure.

Whole numbers are exact without a bound. Decimals are exact: amounts have at most 30 digits on either side of the point.
Floats are added up as doubles in the ledger's order, and every addition rounds: two processes always agree on the
result, which may differ from the exact sum in its last digits. A sum that is too large for a double stays at the
largest one.
"""

from __future__ import annotations

import decimal
import enum
import math
import re
import sys
from decimal import Decimal
from typing import Any

import msgspec

from tenure.errors import ConfigError

Number = int | float | Decimal

LARGEST_AMOUNT = 2**63 - 1
"""Of one call, for whole numbers; totals may be larger."""
DIGITS = 30
"""Of a decimal amount, on either side of the point."""
_SHOWN_LIMIT = 2**63 - 1
_EXACT = decimal.Context(prec=200, traps=[decimal.InvalidOperation, decimal.Overflow, decimal.Inexact])
_NO_DECIMAL = Decimal(0)
_DECIMAL = re.compile(r"-?\d{1,120}(\.\d{1,60})?")


class Kind(enum.Enum):
    INT = "int"
    FLOAT = "float"
    DECIMAL = "decimal"
    """Stored as text, since JSON has no such numbers."""


class Reducer(enum.Enum):
    """What an amount does to the total."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    LAST = "last"
    """The newest in the ledger's order, whatever clocks say."""


INT, FLOAT, SUM = Kind.INT, Kind.FLOAT, Reducer.SUM
"""Used where every amount comes by: a member of an enum that is looked up costs ten times as much as a name."""


class Counter(msgspec.Struct, frozen=True):
    """How one field is counted: `fields={"views": Counter(), "paid": Counter(Kind.DECIMAL)}`."""

    kind: Kind = Kind.INT
    reducer: Reducer = Reducer.SUM

    def __post_init__(self) -> None:
        if not isinstance(self.kind, Kind) or not isinstance(self.reducer, Reducer):
            raise ConfigError(
                f"a counter is of kind {self.kind!r} with reducer {self.reducer!r}: give a Kind and a Reducer"
            )

    @property
    def word(self) -> str:
        """As it is written: `int:sum`."""
        return f"{self.kind.value}:{self.reducer.value}"

    @property
    def zero(self) -> Number | None:
        """The total before the first amount; `None` where there is none."""
        if self.reducer is not SUM:
            return None
        # Not by a dict: an enum's hash is slow, and this is asked for with every amount.
        return 0 if self.kind is INT else 0.0 if self.kind is FLOAT else _NO_DECIMAL

    @property
    def example(self) -> int | float | str:
        """A total as it may stand in a record."""
        examples: dict[Kind, int | float | str] = {Kind.INT: 2, Kind.FLOAT: 2.5, Kind.DECIMAL: "2.5"}
        return examples[self.kind]

    def amount(self, what: str, value: object) -> Number:
        """What a caller gives, checked; otherwise a `ConfigError` that says what would be right."""
        if self.kind is INT:
            if isinstance(value, int) and not isinstance(value, bool) and -LARGEST_AMOUNT <= value <= LARGEST_AMOUNT:
                return int(value)
            right = f"a whole number from -{LARGEST_AMOUNT:,} to {LARGEST_AMOUNT:,}"
        elif self.kind is FLOAT:
            if isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value):
                return float(value)
            right = "a finite number"
        else:
            if isinstance(value, int | Decimal) and not isinstance(value, bool):
                number = Decimal(value)
                if _fits(number):
                    return number
            right = f"a Decimal or a whole number with at most {DIGITS} digits on either side of the point"
        raise ConfigError(f"{what} is {told(value)}: give {right}")

    def read(self, value: object) -> Number | None:
        """A stored total or amount; `None` if it is no number of this kind."""
        if isinstance(value, bool):
            return None
        if self.kind is INT:
            if type(value) is int:
                return value
            if isinstance(value, str) and re.fullmatch(r"-?\d{1,200}", value):
                return int(value)
            return value if isinstance(value, int) else None
        if self.kind is FLOAT:
            return float(value) if isinstance(value, int | float) and _is_finite(value) else None
        if isinstance(value, int) and abs(value) < 10**120:
            return Decimal(value)
        if isinstance(value, float) and _is_finite(value) and abs(value) < 1e30:
            return Decimal(repr(value)) if _DECIMAL.fullmatch(format(Decimal(repr(value)), "f")) else None
        return Decimal(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else None

    def same(self, a: Number | None, b: Number | None) -> bool:
        """Equal; of floats: but for what rounding in another order may change."""
        if self.kind is FLOAT and a is not None and b is not None:
            return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
        return a == b

    def stored(self, value: Number) -> int | float | str:
        """As it is kept beside a record: exact."""
        if isinstance(value, Decimal):
            return format(value, "f")
        if isinstance(value, int) and abs(value) > _SHOWN_LIMIT:
            return str(value)
        return value

    def shown(self, value: Number) -> int | float | str:
        """As it stands in a record: whole numbers that JSON readers do not take are shown as the largest they do."""
        if isinstance(value, Decimal):
            return format(value, "f")
        if isinstance(value, int):
            return max(-_SHOWN_LIMIT - 1, min(_SHOWN_LIMIT, value))
        return value


def counter_of(word: object) -> Counter | None:
    """What a stored word means; `None`: nothing that this tenure knows."""
    return _WORDS.get(word) if isinstance(word, str) else None


_WORDS = {counter.word: counter for counter in (Counter(kind, reducer) for kind in Kind for reducer in Reducer)}


def plus(a: Any, b: Any) -> Any:
    """The sum: exact for whole numbers and decimals. A float stays at the largest there is: JSON has no infinity, and
    what cannot be written down would be lost with all that it was put together with."""
    if isinstance(a, Decimal) or isinstance(b, Decimal):
        return _EXACT.add(a, b)
    total = a + b
    return math.copysign(sys.float_info.max, total) if type(total) is float and math.isinf(total) else total


def minus(a: Any) -> Any:
    return _EXACT.minus(a) if isinstance(a, Decimal) else -a


def told(value: object) -> str:
    """Any value in an error: Python itself refuses to show a whole number of very many digits."""
    try:
        return f"{value!r:.80}"
    except ValueError:
        return "a number of thousands of digits"


def written(number: Any) -> Any:
    """As it goes into a log: decimals as plain text, without exponents."""
    return format(number, "f") if isinstance(number, Decimal) else number


def _is_finite(value: int | float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _fits(number: Decimal) -> bool:
    if not number.is_finite():
        return False
    exponent = number.as_tuple().exponent
    return isinstance(exponent, int) and exponent >= -DIGITS and number.adjusted() < DIGITS
