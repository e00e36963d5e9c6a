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

_PER_MESSAGE = 8


class Messages:
    """Some messages of one call, encoded."""

    __slots__ = ("bodies", "first", "spans")

    def __init__(self, bodies: list[bytes], spans: list[Span]) -> None:
        self.bodies = bodies
        self.spans = spans
        self.first = 0
        """Their place in the batch; known when it is put together."""


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
    return encode_batch(place, bodies, spans, notes, commands)


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
        if visibility_ms < 500:
            raise ConfigError(f"visibility_timeout is {visibility_timeout!r}: give at least half a second")
    if isinstance(priority, bool) or not isinstance(priority, int) or not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        raise ConfigError(f"priority is {priority!r}: give a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}")
    if max_attempts is not None and (
        isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or not 1 <= max_attempts <= MAX_ATTEMPTS
    ):
        raise ConfigError(f"max_attempts is {max_attempts!r}: give a whole number from 1 to {MAX_ATTEMPTS}")
    for field, text in (("dedup_key", dedup_key), ("ordering_key", ordering_key)):
        if text is not None and (not isinstance(text, str) or not 1 <= len(text) <= MAX_KEY_CHARACTERS):
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
    if not headers:
        return {}
    if len(headers) > MAX_HEADERS:
        raise ConfigError(f"headers has {len(headers)} entries: give at most {MAX_HEADERS}")
    for name, value in headers.items():
        for text in (name, value):
            if not isinstance(text, str) or len(text) > MAX_HEADER_CHARACTERS:
                raise ConfigError(
                    f"headers holds {name!r:.80}: {value!r:.80}: names and values are text of at most "
                    f"{MAX_HEADER_CHARACTERS} characters"
                )
    return dict(headers)


def _milliseconds(field: str, value: float | timedelta) -> int:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= MAX_DELAY_MS / 1000:
        raise ConfigError(f"{field} is {value!r}: give seconds from 0 to {MAX_DELAY_MS // 1000:,}, or a timedelta")
    return round(number * 1000)


def encode_messages(bodies: Sequence[Any], options: Options, settings: QueueSettings) -> tuple[Messages, int]:
    """Messages that share their options, and their size."""
    encoded: list[bytes] = []
    raw: list[int] = []
    size, most = 0, settings.max_message_bytes
    for index, body in enumerate(bodies):
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
        encoded.append(data)
        size += len(data)
        if is_raw:
            raw.append(index)
    spans = _spans(len(encoded), options, raw)
    return Messages(encoded, spans), size + _PER_MESSAGE * len(encoded)


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
