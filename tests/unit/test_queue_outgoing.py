"""What a caller enqueues: refused at the door, or read by the leader as it was given. Nothing in between."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.errors import ConfigError
from tenure.ledger import InboxName, Lot, Place
from tenure.ledger.config import MAX_INBOX_BYTES, LedgerConfig
from tenure.plugins.queue.outgoing import (
    _PER_MESSAGE,
    LOT_BYTES,
    Messages,
    compose,
    encode_lots,
    encode_messages,
    options_from,
)
from tenure.plugins.queue.settings import LARGEST_MESSAGE_BYTES, QueueSettings
from tenure.plugins.queue.wire import (
    MAX_HEADER_CHARACTERS,
    MAX_HEADERS,
    MAX_KEY_CHARACTERS,
    MAX_MESSAGES_PER_BATCH,
    PLAIN,
    Command,
    Failure,
    Options,
    Outcome,
    Segment,
    WorkerNote,
    digest,
    encode_segment,
    read_header,
)

NAME = InboxName(0, "u", 1)


async def lot(payload: Any, size: int = 0) -> Lot:
    return Lot(payload, size, asyncio.get_running_loop().create_future())


def composed(*payloads: Any) -> bytes:
    async def build() -> bytes:
        return compose(NAME, Place(0), [await lot(payload) for payload in payloads])

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(build())
    finally:
        loop.close()


any_text = st.text(max_size=MAX_KEY_CHARACTERS + 5)


@settings(max_examples=300)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "delay": st.floats() | st.integers() | st.timedeltas() | st.none() | st.booleans(),
            "priority": st.integers() | st.floats() | st.booleans() | st.none(),
            "dedup_key": any_text | st.none() | st.binary(max_size=3),
            "ordering_key": any_text | st.none() | st.integers(),
            "max_attempts": st.integers() | st.none() | st.booleans(),
            "visibility_timeout": st.floats() | st.timedeltas() | st.none(),
            "headers": st.dictionaries(any_text, any_text | st.integers(), max_size=3)
            | st.none()
            | any_text
            | st.lists(any_text),
        },
    )
)
def test_what_passes_the_door_can_be_read_by_the_leader(given_options: dict[str, Any]) -> None:
    try:
        options = options_from(**given_options)
    except ConfigError as error:
        assert any(name in str(error) for name in given_options)
        return
    messages, _ = encode_messages([1, b"raw", "text"], options, QueueSettings())
    body = composed(messages)
    header, _ = read_header(body)
    assert len(header.sizes) == 3
    held = list(Segment(encode_segment([("u", 1, 1, 3, body)])).messages(0, 3))
    assert [each.body for each in held] == [b"1", b"raw", b'"text"']
    assert [each.options.raw for each in held] == [False, True, False]
    assert {each.options.key for each in held} == {given_options.get("ordering_key") or ""}
    assert held[0].options == options


def test_surrogates_are_refused_at_the_door() -> None:
    """They cannot be written; found out later, they would fail everything that shares their batch."""
    for name, value in (("dedup_key", "\ud800"), ("ordering_key", "a\udcff"), ("headers", {"a": "\ud800"})):
        with pytest.raises(ConfigError, match=name):
            options_from(**{name: value})
    with pytest.raises(ConfigError, match="headers"):
        options_from(headers={"\ud800": "a"})
    with pytest.raises(ConfigError, match="body"):
        encode_messages(["\ud800"], PLAIN, QueueSettings())


def test_errors_that_are_not_text_do_not_keep_a_report_from_being_sent() -> None:
    failed = [Failure("s", 0, "no such file: caf\udce9")]
    note = WorkerNote("u", "n", 5, outcomes=[Outcome("t", failed=failed), Outcome("v", all_done=True)])
    messages, _ = encode_messages([1], PLAIN, QueueSettings())
    header, _ = read_header(composed(messages, note, Command("redrive", ["\ud800:1"])))
    assert header.notes[0].outcomes[0].failed[0].error == "no such file: caf?"
    assert header.notes[0].outcomes[1].all_done
    assert header.notes[0].capacity == 5
    assert header.commands == [Command("redrive", ["?:1"])]
    assert header.sizes == [1]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"delay": -1}, "delay is -1"),
        ({"delay": math.nan}, "delay is nan"),
        ({"delay": "5"}, "delay is '5'"),
        ({"delay": timedelta(days=-1)}, "delay is"),
        ({"delay": timedelta(days=4000)}, "delay is"),
        ({"priority": 1001}, "priority is 1001"),
        ({"priority": True}, "priority is True"),
        ({"priority": 1.0}, "priority is 1.0"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"max_attempts": 1001}, "max_attempts is 1001"),
        ({"visibility_timeout": 0.4}, "visibility_timeout is 0.4"),
        ({"dedup_key": ""}, "dedup_key is ''"),
        ({"ordering_key": "k" * (MAX_KEY_CHARACTERS + 1)}, "ordering_key is 'kkk"),
        ({"ordering_key": 5}, "ordering_key is 5"),
        ({"headers": [("a", "b")]}, "headers is"),
        ({"headers": "ab"}, "headers is"),
        ({"headers": {"a": 1}}, "headers holds 'a': 1"),
        ({"headers": {"a": "x" * (MAX_HEADER_CHARACTERS + 1)}}, "headers holds"),
        ({"headers": {str(number): "x" for number in range(MAX_HEADERS + 1)}}, "headers has 65 entries"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match) as caught:
        options_from(**options)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_options_are_as_they_were_given() -> None:
    assert options_from() == PLAIN
    assert options_from(
        delay=timedelta(seconds=1.5),
        priority=-3,
        dedup_key="d",
        ordering_key="o",
        max_attempts=7,
        visibility_timeout=2,
        headers={"a": "b"},
    ) == Options(1500, -3, digest("d"), "o", 7, 2000, {"a": "b"})


def test_bodies_that_cannot_be_written_or_are_too_large_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for body in (object(), loop, {1: object()}):
        with pytest.raises(ConfigError, match="cannot be written as JSON"):
            encode_messages([body], PLAIN, QueueSettings())
    with pytest.raises(ConfigError, match="body has 11 bytes, and the limit is 10"):
        encode_messages([b"x" * 11], PLAIN, QueueSettings(max_message_bytes=10))
    encode_messages([b"x" * 10], PLAIN, QueueSettings(max_message_bytes=10))


def test_messages_know_their_place_in_the_batch() -> None:
    first, _ = encode_messages([1, 2], options_from(priority=1), QueueSettings())
    second, _ = encode_messages([b"3"], PLAIN, QueueSettings())
    header, _ = read_header(composed(first, WorkerNote("u", "n"), second, Command("pause")))
    assert (first.first, second.first) == (0, 2)
    assert [(span.first, span.count, span.options.raw) for span in header.spans] == [(0, 2, False), (2, 1, True)]
    assert [note.uid for note in header.notes] == ["u"]
    assert [command.op for command in header.commands] == ["pause"]


def test_no_batch_can_have_more_messages_than_a_leader_reads() -> None:
    """Empty ones, in the largest batch that there can be: what is not read would be lost after it was confirmed."""
    LedgerConfig(batch_bytes=MAX_INBOX_BYTES // 2)
    per_lot = 2000
    assert MAX_INBOX_BYTES // 2 // _PER_MESSAGE + per_lot <= MAX_MESSAGES_PER_BATCH
    _, size = encode_messages([b""] * 1000, PLAIN, QueueSettings())
    assert size >= 1000 * _PER_MESSAGE
    many = Messages([b""] * MAX_MESSAGES_PER_BATCH, [])
    assert len(read_header(composed(many))[0].sizes) == MAX_MESSAGES_PER_BATCH


@pytest.mark.parametrize("size", [1, 1000, 256 * 1024, LARGEST_MESSAGE_BYTES])
@pytest.mark.parametrize("headers", [None, {"trace": "x" * 1000}])
def test_many_large_messages_of_one_call_are_several_lots(size: int, headers: dict[str, str] | None) -> None:
    """As one they would be an object that no leader reads."""
    count = min(2000, 3 * MAX_INBOX_BYTES // size)
    chosen = QueueSettings(max_message_bytes=LARGEST_MESSAGE_BYTES)
    bodies: list[Any] = [b"x" * size if number % 2 else "x" * max(0, size - 2) for number in range(count)]
    lots = encode_lots(bodies, options_from(headers=headers), chosen)
    assert [len(body) for messages, _ in lots for body in messages.bodies] == [
        size if number % 2 else max(2, size) for number in range(count)
    ]
    for messages, weight in lots:
        assert weight <= LOT_BYTES or len(messages.bodies) == 1
        body = composed(messages)
        assert len(body) <= weight + 200  # for what every batch begins with
        header, _ = read_header(body)
        assert len(header.sizes) == len(messages.bodies)
    assert encode_lots([], PLAIN, chosen) == []


def test_lots_are_refused_together() -> None:
    with pytest.raises(ConfigError):
        encode_lots([b"x" * 300_000] * 10 + [object()], PLAIN, QueueSettings(max_message_bytes=LARGEST_MESSAGE_BYTES))
