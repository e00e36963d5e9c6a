"""What a caller gives to be enqueued: checked at the door, and put together into batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from tenure.errors import ConfigError
from tenure.ledger import InboxName, Lot, Place
from tenure.plugins.queue.settings import QueueSettings
from tenure.plugins.queue.wire import (
    MAX_ATTEMPTS,
    MAX_DELAY_MS,
    MAX_HEADER_CHARACTERS,
    MAX_HEADERS,
    MAX_KEY_CHARACTERS,
    MAX_PRIORITY,
    PLAIN,
    Command,
    Options,
    Span,
    WorkerNote,
    digest,
    encode_batch,
    encode_body,
)

_PER_MESSAGE = 12
"""Bytes that even an empty one counts for: so many as a batch can hold must not be more than a leader reads."""
_PER_SPAN = 64
MAX_VISIBILITY_MS = 7 * 86_400_000
LOT_BYTES = 1024 * 1024
"""Messages of one call are given to be written in lots of about this size: an object has a limit."""


class Messages:
    """Some messages of one call, encoded."""

    __slots__ = ("bodies", "first", "spans")

    def __init__(self, bodies: list[bytes], spans: list[Span]) -> None:
        self.bodies = bodies
        self.spans = spans
        self.first = 0
        """Their place in the batch; known when it is put together."""

    @property
    def ordered(self) -> bool:
        """Has one of them an ordering key?"""
        return any(span.options.key for span in self.spans)


def compose(name: InboxName, place: Place, lots: Sequence[Lot]) -> bytes:
    """The body of one batch: messages, workers' notes and commands that were given at about the same time."""
    bodies: list[bytes] = []
    spans: list[Span] = []
    notes: list[WorkerNote] = []
    commands: list[Command] = []
    for lot in lots:
        payload = lot.payload
        if isinstance(payload, Messages):
            payload.first = first = len(bodies)
            bodies += payload.bodies
            if payload.spans:
                spans += [Span(span.first + first, span.count, span.options) for span in payload.spans]
        elif isinstance(payload, WorkerNote):
            notes.append(payload)
        else:
            commands.append(payload)
    try:
        return encode_batch(place, bodies, spans, notes, commands)
    except UnicodeEncodeError:
        # What an exception says need not be text: file names are not. It must not keep everything else from being sent.
        return encode_batch(place, bodies, spans, [_clean_note(note) for note in notes], [*map(_clean, commands)])


def _clean_note(note: WorkerNote) -> WorkerNote:
    outcomes = [
        msgspec.structs.replace(
            outcome,
            failed=[msgspec.structs.replace(failure, error=_clean_text(failure.error)) for failure in outcome.failed],
        )
        for outcome in note.outcomes
    ]
    return msgspec.structs.replace(note, name=_clean_text(note.name), outcomes=outcomes)


def _clean(command: Command) -> Command:
    return Command(_clean_text(command.op), [_clean_text(ref) for ref in command.refs], _clean_text(command.by))


def _clean_text(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One message with options of its own, for `enqueue_many`."""

    body: Any
    delay: float | timedelta = 0.0
    priority: int = 0
    dedup_key: str | None = None
    ordering_key: str | None = None
    max_attempts: int | None = None
    visibility_timeout: float | timedelta | None = None
    headers: Mapping[str, str] | None = None


def with_headers(given: Mapping[str, str] | None, added: Mapping[str, str]) -> Mapping[str, str] | None:
    """What the caller gives comes first: something is added only where that leaves room for it."""
    if not added or (given is not None and not isinstance(given, Mapping)):
        return given
    fitting = {name: text for name, text in added.items() if len(text) <= MAX_HEADER_CHARACTERS}
    together = {**fitting, **(given or {})}
    return together if len(together) <= MAX_HEADERS else given


def options_from(
    *,
    delay: float | timedelta = 0.0,
    priority: int = 0,
    dedup_key: str | None = None,
    ordering_key: str | None = None,
    max_attempts: int | None = None,
    visibility_timeout: float | timedelta | None = None,
    headers: Mapping[str, str] | None = None,
) -> Options:
    """Refuses what cannot be, naming it."""
    delay_ms = _milliseconds("delay", delay)
    visibility_ms = 0
    if visibility_timeout is not None:
        visibility_ms = _milliseconds("visibility_timeout", visibility_timeout)
        if not 500 <= visibility_ms <= MAX_VISIBILITY_MS:
            raise ConfigError(f"visibility_timeout is {visibility_timeout!r}: give half a second to seven days")
    if isinstance(priority, bool) or not isinstance(priority, int) or not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        raise ConfigError(f"priority is {priority!r}: give a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}")
    if max_attempts is not None and (
        isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or not 1 <= max_attempts <= MAX_ATTEMPTS
    ):
        raise ConfigError(f"max_attempts is {max_attempts!r}: give a whole number from 1 to {MAX_ATTEMPTS}")
    for field, text in (("dedup_key", dedup_key), ("ordering_key", ordering_key)):
        if text is not None and (not _is_text(text) or not 1 <= len(text) <= MAX_KEY_CHARACTERS):
            raise ConfigError(f"{field} is {text!r:.80}: give 1 to {MAX_KEY_CHARACTERS} characters")
    return Options(
        delay_ms,
        priority,
        digest(dedup_key) if dedup_key is not None else "",
        ordering_key or "",
        max_attempts or 0,
        visibility_ms,
        _headers(headers),
    )


def _headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise ConfigError(f"headers is {headers!r:.80}: give a dict of text to text")
    if len(headers) > MAX_HEADERS:
        raise ConfigError(f"headers has {len(headers)} entries: give at most {MAX_HEADERS}")
    for name, value in headers.items():
        for text in (name, value):
            if not _is_text(text) or len(text) > MAX_HEADER_CHARACTERS:
                raise ConfigError(
                    f"headers holds {name!r:.80}: {value!r:.80}: names and values are text of at most "
                    f"{MAX_HEADER_CHARACTERS} characters"
                )
    return dict(headers)


def _is_text(text: object) -> bool:
    """Text that can be written: half of a surrogate pair cannot."""
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _milliseconds(field: str, value: float | timedelta) -> int:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= MAX_DELAY_MS / 1000:
        raise ConfigError(f"{field} is {value!r}: give seconds from 0 to {MAX_DELAY_MS // 1000:,}, or a timedelta")
    return round(number * 1000)


def encode_messages(bodies: Sequence[Any], options: Options, settings: QueueSettings) -> tuple[Messages, int]:
    """Messages that share their options, and their size."""
    return _lot([encode_within(body, settings.max_message_bytes) for body in bodies], options)


def encode_lots(bodies: Sequence[Any], options: Options, settings: QueueSettings) -> list[tuple[Messages, int]]:
    """The same, in as many lots as it takes: each fits one object. Nothing is given if one of them is refused."""
    encoded = [encode_within(body, settings.max_message_bytes) for body in bodies]
    lots: list[tuple[Messages, int]] = []
    first = size = 0
    each = _PER_MESSAGE + (_weight(options) if any(is_raw for _, is_raw in encoded) else 0)
    for index, (data, _) in enumerate(encoded):
        if index > first and size + len(data) + each > LOT_BYTES:
            lots.append(_lot(encoded[first:index], options))
            first, size = index, 0
        size += len(data) + each
    return [*lots, _lot(encoded[first:], options)] if encoded else []


def encode_within(body: Any, most: int) -> tuple[bytes, bool]:
    """As it is written, and whether these are its own bytes. Refuses what has more than `most` of them."""
    try:
        data, is_raw = encode_body(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"body is a {type(body).__name__} that cannot be written as JSON ({error}): give bytes, text, numbers, "
            "lists, dicts, dataclasses or msgspec structs"
        ) from None
    if len(data) > most:
        raise ConfigError(
            f"body has {len(data):,} bytes, and the limit is {most:,}: put large data under a key of your own and "
            "enqueue its name, or raise max_message_bytes"
        )
    return data, is_raw


def _lot(encoded: list[tuple[bytes, bool]], options: Options) -> tuple[Messages, int]:
    spans = _spans(len(encoded), options, [index for index, (_, is_raw) in enumerate(encoded) if is_raw])
    size = sum([len(data) for data, _ in encoded]) + _PER_MESSAGE * len(encoded) + _weight(options) * len(spans)
    return Messages([data for data, _ in encoded], spans), size


def _weight(options: Options) -> int:
    """About as many bytes as a span with these takes."""
    return _PER_SPAN + len(options.key) + sum(len(name) + len(value) for name, value in options.headers.items())


def _spans(count: int, options: Options, raw: list[int]) -> list[Span]:
    if not raw:
        return [Span(0, count, options)] if options != PLAIN and count else []
    bytes_too = msgspec.structs.replace(options, raw=True)
    if len(raw) == count:
        return [Span(0, count, bytes_too)]
    marked = set(raw)
    return [
        Span(index, 1, bytes_too if index in marked else options)
        for index in range(count)
        if index in marked or options != PLAIN
    ]
