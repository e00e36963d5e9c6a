"""What lies in a queue's inbox and segments: a line of JSON, then the bodies of the messages, end to end.

The leader reads the line alone; bodies pass through it untouched, and are opened by the worker that handles them. All
of it is untrusted: what does not fit is `Unreadable`.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from typing import Annotated, Any

import msgspec

from tenure.ledger import Place

SCHEMA = 1
MAX_MESSAGES_PER_BATCH = 400_000
"""More than a producer can put into one object, however small they are: a batch that is not read is lost."""
MAX_KEY_CHARACTERS = 256
MAX_HEADERS = 64
MAX_HEADER_CHARACTERS = 1024
MAX_ERROR_CHARACTERS = 1000
MAX_DELAY_MS = 10 * 366 * 86_400_000
MAX_REFS = 10_000
"""Dead letters that one command may name."""
MAX_ATTEMPTS = 1000
MAX_PRIORITY = 1000
MAX_REPORTS = 100_000

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_DELAY_MS)]
Key = Annotated[str, msgspec.Meta(max_length=MAX_KEY_CHARACTERS)]
Small = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Error = Annotated[str, msgspec.Meta(max_length=MAX_ERROR_CHARACTERS)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Headers = Annotated[
    dict[str, Annotated[str, msgspec.Meta(max_length=MAX_HEADER_CHARACTERS)]], msgspec.Meta(max_length=MAX_HEADERS)
]


class Unreadable(Exception):
    """Not what a producer of ours writes."""


class TooNew(Exception):
    """Written by a newer tenure."""


class Options(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """How messages differ from those that `enqueue(body)` makes."""

    delay_ms: Milliseconds = 0
    priority: Annotated[int, msgspec.Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0
    dedup: Annotated[str, msgspec.Meta(max_length=32)] = ""
    """A digest of the deduplication key."""
    key: Key = ""
    """The ordering key."""
    max_attempts: Annotated[int, msgspec.Meta(ge=0, le=MAX_ATTEMPTS)] = 0
    visibility_ms: Milliseconds = 0
    headers: Headers = {}
    raw: bool = False
    """The body is bytes as they were given, and not JSON."""


PLAIN = Options()


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Messages from `first` on, `count` of them, with the same options."""

    first: Small
    count: Small
    options: Options


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a segment, from `low` up to before `high`."""

    segment: Id
    low: Small
    high: Small


class Failure(msgspec.Struct, frozen=True, array_like=True):
    segment: Id
    index: Small
    error: Error
    final: bool = False
    """It need not be tried again: its body cannot be read, or its handler said so."""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What became of a ticket, or of part of one."""

    ticket: Id
    all_done: bool = False
    done: list[Piece] = []
    failed: list[Failure] = []
    back: list[Piece] = []
    """Not begun: given back."""
    extend: bool = False


class WorkerNote(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """From a worker to the leader."""

    uid: Id
    name: Name
    capacity: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """How many messages it can hold."""
    leaving: bool = False
    since: int = 0
    """It reads the log from this number on; of earlier tickets it has only those that `held` names."""
    held: list[Id] = []
    outcomes: Annotated[list[Outcome], msgspec.Meta(max_length=MAX_REPORTS)] = []


class Command(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """From a person."""

    op: str
    """`pause`, `resume`, `purge`, `redrive`, `purge-dead`."""
    refs: list[str] = []
    """Of dead letters; none: all."""
    by: Annotated[str, msgspec.Meta(max_length=256)] = ""


class Header(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The first line of a batch."""

    schema: int
    after: int
    skipped: Annotated[list[Small], msgspec.Meta(max_length=100)] = []
    ahead: Annotated[list[Small], msgspec.Meta(max_length=1000)] = []
    sizes: Annotated[list[Small], msgspec.Meta(max_length=MAX_MESSAGES_PER_BATCH)] = []
    spans: list[Span] = []
    notes: list[WorkerNote] = []
    commands: list[Command] = []


class _Schema(msgspec.Struct):
    schema: int


class Part(msgspec.Struct, frozen=True, array_like=True):
    """One batch in a segment."""

    uid: Id
    number: int
    modified_ms: int
    length: Small
    count: Small


class SegmentHeader(msgspec.Struct, frozen=True):
    schema: int
    parts: list[Part]


_encode = msgspec.json.encode
_header = msgspec.json.Decoder(Header)
_segment = msgspec.json.Decoder(SegmentHeader)


def digest(key: str) -> str:
    """What is remembered of a deduplication key: 128 bits, in the space of 32 letters."""
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


def encode_batch(
    place: Place,
    bodies: Sequence[bytes],
    spans: Sequence[Span] = (),
    notes: Sequence[WorkerNote] = (),
    commands: Sequence[Command] = (),
) -> bytes:
    sizes = [len(body) for body in bodies]
    header = Header(
        SCHEMA, place.after, list(place.skipped), list(place.ahead), sizes, list(spans), list(notes), list(commands)
    )
    return b"\n".join((_encode(header), b"".join(bodies)))


def read_header(body: bytes) -> tuple[Header, int]:
    """The header, and where the bodies begin."""
    end = body.find(b"\n")
    if end < 0:
        raise Unreadable("it has no header line")
    line = body[:end]
    try:
        header = _header.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _raise_if_newer(line)
        raise Unreadable(f"its header is not readable: {str(error)[:200]}") from None
    if header.schema > SCHEMA:
        raise TooNew(f"it is of schema {header.schema}, and this process knows {SCHEMA}: update it")
    if header.schema < 1:
        raise Unreadable(f"its schema is {header.schema}")
    if sum(header.sizes) != len(body) - end - 1:
        raise Unreadable(
            f"it has {len(body) - end - 1:,} bytes of bodies, and says that they have {sum(header.sizes):,}"
        )
    count, last = len(header.sizes), 0
    for span in header.spans:
        if span.first < last or span.first + span.count > count or span.count < 1:
            raise Unreadable("its options are of messages that it does not hold")
        last = span.first + span.count
    return header, end + 1


def _raise_if_newer(line: bytes) -> None:
    try:
        schema = msgspec.json.decode(line, type=_Schema).schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if schema > SCHEMA:
        raise TooNew(f"it is of schema {schema}, and this process knows {SCHEMA}: update it")


def encode_segment(batches: Iterable[tuple[str, int, int, int, bytes]]) -> bytes:
    """A segment of whole batches: (uid, number, modified, count of messages, body)."""
    parts, bodies = [], []
    for uid, number, modified_ms, count, body in batches:
        parts.append(Part(uid, number, modified_ms, len(body), count))
        bodies.append(body)
    return b"\n".join((_encode(SegmentHeader(SCHEMA, parts)), b"".join(bodies)))


class Held(msgspec.Struct, frozen=True):
    """One message, as it lies in a segment."""

    uid: str
    number: int
    index: int
    modified_ms: int
    body: bytes
    options: Options

    @property
    def id(self) -> str:
        return f"{self.uid}-{self.number}-{self.index}"


class Segment:
    """A segment that was read. Messages are numbered through all of its batches."""

    def __init__(self, body: bytes) -> None:
        end = body.find(b"\n")
        if end < 0:
            raise Unreadable("it has no header line")
        try:
            header = _segment.decode(body[:end])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            _raise_if_newer(body[:end])
            raise Unreadable(f"its header is not readable: {str(error)[:200]}") from None
        if header.schema > SCHEMA:
            raise TooNew(f"it is of schema {header.schema}, and this process knows {SCHEMA}: update it")
        if header.schema < 1:
            raise Unreadable(f"its schema is {header.schema}")
        self._body = body
        self._opened: dict[int, _Batch] = {}
        self._parts: list[tuple[int, Part, int]] = []  # first message, part, where it begins
        first, at = 0, end + 1
        for part in header.parts:
            self._parts.append((first, part, at))
            first += part.count
            at += part.length
        if at != len(body):
            raise Unreadable(f"it has {len(body):,} bytes, and says that it has {at:,}")
        self.count = first

    def messages(self, low: int, high: int) -> Iterator[Held]:
        """Those from `low` up to before `high`."""
        for first, part, at in self._parts:
            if first + part.count <= low:
                continue
            if first >= high:
                return
            yield from self._of_part(part, at, max(0, low - first), min(part.count, high - first))

    def _of_part(self, part: Part, at: int, low: int, high: int) -> Iterator[Held]:
        # Messages that were set apart are asked for one by one: a header is not to be read again for each.
        opened = self._opened.get(at)
        if opened is None:
            opened = self._opened[at] = _Batch(self._body[at : at + part.length], part.count)
        uid, number, modified, body, starts = part.uid, part.number, part.modified_ms, opened.body, opened.starts
        for index, options in opened.options(low, high):
            yield Held(uid, number, index, modified, body[starts[index] : starts[index + 1]], options)


class _Batch:
    """One batch of a segment, opened: where each of its messages lies, and what sets it apart."""

    def __init__(self, body: bytes, count: int) -> None:
        header, start = read_header(body)
        if len(header.sizes) != count:
            raise Unreadable(f"a batch has {len(header.sizes)} messages, and {count} are said to be in it")
        self.body = body
        self.starts = list(accumulate(header.sizes, initial=start))
        self._spans = header.spans
        self._firsts = [span.first for span in header.spans]

    def options(self, low: int, high: int) -> Iterator[tuple[int, Options]]:
        if not self._spans:
            return zip(range(low, high), repeat(PLAIN), strict=False)
        return self._set_apart(low, high)

    def _set_apart(self, low: int, high: int) -> Iterator[tuple[int, Options]]:
        place = max(0, bisect_right(self._firsts, low) - 1)
        for index in range(low, high):
            while place < len(self._spans) and self._spans[place].first + self._spans[place].count <= index:
                place += 1
            inside = place < len(self._spans) and self._spans[place].first <= index
            yield index, self._spans[place].options if inside else PLAIN


def encode_body(body: Any) -> tuple[bytes, bool]:
    """The bytes of a message, and whether they are its own and not JSON. Raises `TypeError`."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), True
    return _encode(body), False
