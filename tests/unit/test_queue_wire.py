"""What lies in a queue's inbox and segments: as it was written, or `Unreadable` or `TooNew`, and nothing else."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.ledger import Place
from tenure.ledger.config import MAX_INBOX_BYTES
from tenure.plugins.queue.wire import (
    MAX_ATTEMPTS,
    MAX_DELAY_MS,
    MAX_ERROR_CHARACTERS,
    MAX_HEADERS,
    MAX_PRIORITY,
    PLAIN,
    SCHEMA,
    Command,
    Failure,
    Header,
    Options,
    Outcome,
    Piece,
    Segment,
    Span,
    TooNew,
    Unreadable,
    WorkerNote,
    digest,
    encode_batch,
    encode_body,
    encode_segment,
    read_header,
)

text = st.text(st.characters(codec="utf-8"), max_size=20)
ids = st.text("abcdef0123456789-", min_size=1, max_size=64)
options = st.builds(
    Options,
    delay_ms=st.integers(0, MAX_DELAY_MS),
    priority=st.integers(-MAX_PRIORITY, MAX_PRIORITY),
    dedup=st.just("") | text.map(digest),
    key=text,
    max_attempts=st.integers(0, MAX_ATTEMPTS),
    visibility_ms=st.integers(0, MAX_DELAY_MS),
    headers=st.dictionaries(text, text, max_size=4),
    raw=st.booleans(),
)
pieces = st.builds(Piece, ids, st.integers(0, 2**31), st.integers(0, 2**31))
notes = st.builds(
    WorkerNote,
    uid=ids,
    name=ids,
    capacity=st.integers(0, 1_000_000),
    leaving=st.booleans(),
    since=st.integers(0, 2**40),
    held=st.lists(ids, max_size=3),
    outcomes=st.lists(
        st.builds(
            Outcome,
            ticket=ids,
            all_done=st.booleans(),
            done=st.lists(pieces, max_size=3),
            failed=st.lists(st.builds(Failure, ids, st.integers(0, 9), text, st.booleans()), max_size=3),
            back=st.lists(pieces, max_size=3),
            extend=st.booleans(),
        ),
        max_size=3,
    ),
)
commands = st.builds(Command, op=text, refs=st.lists(text, max_size=3), by=text)
places = st.builds(
    Place,
    after=st.integers(0, 10**10),
    skipped=st.lists(st.integers(0, 2**31), max_size=3),
    ahead=st.lists(st.integers(0, 2**31), max_size=3),
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[tuple[bytes, Options]], bytes]:
    """Messages with their options, and the batch that holds them."""
    bodies: list[bytes] = []
    spans: list[Span] = []
    each: list[tuple[bytes, Options]] = []
    for _ in range(draw(st.integers(0, 4))):
        group = draw(st.lists(st.binary(max_size=12), min_size=1, max_size=4))
        chosen = draw(st.just(PLAIN) | options)
        if chosen != PLAIN:
            spans.append(Span(len(bodies), len(group), chosen))
        bodies += group
        each += [(body, chosen) for body in group]
    return each, encode_batch(draw(places), bodies, spans, draw(st.lists(notes, max_size=2)))


@given(
    places, st.lists(st.binary(max_size=50), max_size=5), st.lists(notes, max_size=2), st.lists(commands, max_size=2)
)
def test_a_batch_is_read_as_it_was_written(
    place: Place, bodies: list[bytes], notes: list[WorkerNote], commands: list[Command]
) -> None:
    body = encode_batch(place, bodies, (), notes, commands)
    header, start = read_header(body)
    assert header == Header(
        SCHEMA,
        place.after,
        list(place.skipped),
        list(place.ahead),
        [len(each) for each in bodies],
        [],
        notes,
        commands,
    )
    assert body[start:] == b"".join(bodies)


@given(st.lists(batches(), min_size=1, max_size=4), st.data())
def test_a_segment_gives_back_every_message_with_its_options(
    batches: list[tuple[list[tuple[bytes, Options]], bytes]], data: st.DataObject
) -> None:
    batches = [batch for batch in batches if batch[0]]
    segment = Segment(
        encode_segment(
            (f"u{number}", number, 1000 + number, len(each), raw) for number, (each, raw) in enumerate(batches)
        )
    )
    expected = [
        (f"u{number}", number, index, 1000 + number, body, chosen)
        for number, (each, _) in enumerate(batches)
        for index, (body, chosen) in enumerate(each)
    ]
    assert segment.count == len(expected)
    low = data.draw(st.integers(0, len(expected)))
    high = data.draw(st.integers(low, len(expected)))
    for _ in range(2):  # what was opened once is the same the second time
        found = [
            (held.uid, held.number, held.index, held.modified_ms, held.body, held.options)
            for held in segment.messages(low, high)
        ]
        assert found == expected[low:high]
    assert [held.id for held in segment.messages(0, 1)] == (
        [f"u{expected[0][1]}-{expected[0][1]}-0"] if expected else []
    )


def read(body: bytes) -> Any:
    """What both readers make of it; anything but the two errors is a failure of this test."""
    found = []
    for reader in (read_header, lambda raw: list(Segment(raw).messages(0, 2**31))):
        try:
            found.append(reader(body))  # type: ignore[operator]
        except (Unreadable, TooNew) as error:
            found.append(type(error))
    return found


@settings(max_examples=300)
@given(st.binary(max_size=200).filter(lambda body: b'"schema"' not in body))  # what has that may be none
def test_garbage_is_unreadable(body: bytes) -> None:
    assert read(body) == [Unreadable, Unreadable]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from(["schema", "after", "skipped", "ahead", "sizes", "spans", "notes", "commands", "parts", "?"]),
        json_values | st.lists(st.integers(-1, 5), max_size=5),
    ),
    st.binary(max_size=20),
)
def test_headers_of_any_shape_are_read_or_refused(header: dict[str, Any], rest: bytes) -> None:
    header.setdefault("schema", 1)
    read(msgspec.json.encode(header) + b"\n" + rest)


@settings(max_examples=200)
@given(st.data())
def test_what_was_cut_short_or_changed_is_read_or_refused(data: st.DataObject) -> None:
    _, batch = data.draw(batches())
    whole = data.draw(st.sampled_from([batch, encode_segment([("u", 1, 1, len(read_header(batch)[0].sizes), batch)])]))
    cut = data.draw(st.integers(0, len(whole) - 1))
    read(whole[:cut])
    read(whole[:cut] + data.draw(st.binary(max_size=3)) + whole[cut + 1 :])


@given(st.data())
def test_a_batch_that_was_cut_short_is_never_taken_for_a_whole_one(data: st.DataObject) -> None:
    each, batch = data.draw(batches())
    cut = data.draw(st.integers(0, len(batch) - 1))
    with pytest.raises(Unreadable):
        read_header(batch[:cut])
    if each:
        segment = encode_segment([("u", 1, 1, len(each), batch)])
        with pytest.raises(Unreadable):
            Segment(segment[: data.draw(st.integers(0, len(segment) - 1))])


@pytest.mark.parametrize(
    "header",
    [
        b'{"schema":1,"after":0,"sizes":[1],"spans":[[0,2,{}]]}',
        b'{"schema":1,"after":0,"sizes":[1],"spans":[[0,0,{}]]}',
        b'{"schema":1,"after":0,"sizes":[1],"spans":[[0,1,{}],[0,1,{}]]}',
        b'{"schema":1,"after":0,"sizes":[2147483648]}',
        b'{"schema":1,"after":0,"sizes":[1,-1,1]}',
        b'{"schema":1,"after":0,"sizes":[1],"spans":[[0,1,{"priority":1001}]]}',
        b'{"schema":1,"after":0,"sizes":[1],"spans":[[0,1,{"delayMs":-1}]]}',
        b'{"schema":0,"after":0,"sizes":[1]}',
        b'{"schema":-5,"after":0,"sizes":[1]}',
        b'{"schema":1.5,"after":0,"sizes":[1]}',
        b'{"schema":1,"sizes":[1]}',
        b'{"schema":1,"after":0,"sizes":[1],"notes":[{"uid":"","name":"n"}]}',
        b'{"schema":1,"after":0,"sizes":[1],"notes":[{"uid":"u","name":"n","capacity":1e9}]}',
        b'{"schema":1,"after":0,"sizes":[1],"notes":[{"uid":"u","name":"\xff"}]}',
        b'{"schema":1,"after":0,"sizes":[1],"x":' + b"[" * 50_000,
        b'{"schema":1,"after":0,"sizes":[1],"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"schema":' + b"9" * 5000 + b',"after":0}',
        b"[1,0]",
        b"",
        b"null",
    ],
)
def test_what_no_producer_writes_is_unreadable(header: bytes) -> None:
    with pytest.raises(Unreadable):
        read_header(header + b"\nx")
    with pytest.raises(Unreadable):
        Segment(header + b"\nx")


@pytest.mark.parametrize("header", [b'{"schema":2,"after":0}', b'{"schema":7,"after":"elsewhere"}', b'{"schema":99}'])
def test_what_a_newer_tenure_wrote_is_too_new(header: bytes) -> None:
    """It is left for one that can read it, and not counted as damage: nothing of it may be buried."""
    with pytest.raises(TooNew):
        read_header(header + b"\n")
    with pytest.raises(TooNew):
        Segment(header + b"\n")
    segment = Segment(encode_segment([("u", 1, 1, 1, header + b"\n")]))
    with pytest.raises(TooNew):
        list(segment.messages(0, 1))


def test_a_segment_whose_parts_do_not_add_up_is_unreadable() -> None:
    batch = encode_batch(Place(0), [b"one", b"two"])
    for count in (0, 1, 3, 2**31):
        segment = Segment(encode_segment([("u", 1, 1, count, batch)]))
        if count:
            with pytest.raises(Unreadable):
                list(segment.messages(0, 1))
    with pytest.raises(Unreadable):
        Segment(encode_segment([("u", 1, 1, 2, batch)]) + b"x")


@pytest.mark.parametrize(
    "part",
    [
        b"[0,1,{}],",
        b'{"uid":"u","name":"n"},',
        b'["s",0,""],',
        b"0,",
        b'"",',
        b"{},",
        b"[],",
    ],
)
@pytest.mark.parametrize("field", ["spans", "notes", "sizes", "commands", "skipped", "ahead", "unknown"])
def test_a_hostile_header_takes_memory_in_proportion_to_its_size(field: str, part: bytes) -> None:
    size = MAX_INBOX_BYTES // 16
    inner = (part * (size // len(part)))[:-1]
    body = b'{"schema":1,"after":0,"' + field.encode() + b'":[' + inner + b"]}\n"
    tracemalloc.start()
    try:
        assert read(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 * size


def test_sizes_that_claim_much_take_nothing() -> None:
    body = msgspec.json.encode({"schema": 1, "after": 0, "sizes": [2**31] * 1000}) + b"\n"
    tracemalloc.start()
    try:
        assert read(body) == [Unreadable, Unreadable]
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_limits_are_held() -> None:
    too_many = {str(number): "x" for number in range(MAX_HEADERS + 1)}
    with pytest.raises(Unreadable):
        read_header(encode_batch(Place(0), [b"x"], [Span(0, 1, Options(headers=too_many))]))
    failed = [Failure("s", 0, "x" * (MAX_ERROR_CHARACTERS + 1))]
    with pytest.raises(Unreadable):
        read_header(encode_batch(Place(0), [], [], [WorkerNote("u", "n", outcomes=[Outcome("t", failed=failed)])]))


def test_digests_are_short_and_differ() -> None:
    assert len({digest(str(number)) for number in range(1000)}) == 1000
    assert {len(digest(key)) for key in ("", "a", "b" * 256)} == {32}


def test_bodies_are_bytes_or_json() -> None:
    assert encode_body(b"\x00\xff") == (b"\x00\xff", True)
    assert encode_body(bytearray(b"ab")) == (b"ab", True)
    assert encode_body(memoryview(b"ab")) == (b"ab", True)
    assert encode_body({"a": [1, None]}) == (b'{"a":[1,null]}', False)
    assert encode_body("text\n") == (b'"text\\n"', False)
    with pytest.raises(TypeError):
        encode_body(object())
