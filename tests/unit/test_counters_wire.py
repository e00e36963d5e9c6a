"""What lies in the inbox: it is read as it was written, and what nobody of ours writes concerns itself alone."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.ledger import InboxName, Lot, Place, Poison, TooNewLetter
from tenure.plugins.counters.cell import Cell
from tenure.plugins.counters.group import Group
from tenure.plugins.counters.numbers import Counter, Kind
from tenure.plugins.counters.wire import LARGEST_ROW, Request, compose, read_letter
from tests.unit.counters_rig import COUNTERS, Call, calls, cell_of

NAME = InboxName(0, "uid", 1)
PLACE = Place(0, [], [])


def _lot(payload: Any) -> Lot:
    loop = asyncio.new_event_loop()
    try:
        return Lot(payload, 1, loop.create_future())
    finally:
        loop.close()


def _read(lots: list[Lot], place: Place = PLACE) -> Any:
    return read_letter(compose(NAME, place, lots))[1]


Given = list[tuple[Counter, str, list[Call]]]


def _given() -> st.SearchStrategy[Given]:
    one = st.sampled_from(COUNTERS).flatmap(
        lambda counter: st.tuples(st.just(counter), st.sampled_from(["a", "b c", "\n", "é"]), calls(counter, 3))
    )
    return st.lists(one, max_size=4)


def _group(given_calls: Given, *, as_ops: bool = False) -> Group:
    group = Group()
    for number, (counter, id, each) in enumerate(given_calls):
        field = counter.word.replace(":", "-")
        for verb, amount in each:
            cell = group.op(f"op{number}", field, counter, id) if as_ops else group.cell(field, counter, id)
            getattr(cell, verb)(counter, amount)
    return group


def _expected(groups: list[Given]) -> dict[str, dict[str, Cell]]:
    found: dict[tuple[Counter, str], list[Call]] = {}
    for group in groups:
        for counter, id, each in group:
            if each:
                found.setdefault((counter, id), []).extend(each)
    rows: dict[str, dict[str, Cell]] = {}
    for (counter, id), each in found.items():
        rows.setdefault(counter.word.replace(":", "-"), {})[id] = cell_of(counter, each)
    return rows


@settings(max_examples=30)
@given(st.lists(_given(), max_size=3))
def test_a_batch_is_read_as_its_groups_were_filled(groups: list[Given]) -> None:
    lots = [_lot(_group(group)) for group in groups]
    letter = _read(lots)
    assert letter.rows == _expected(groups)
    assert all(lot.payload.closed for lot in lots)


@settings(max_examples=30)
@given(st.lists(_given(), min_size=1, max_size=3))
def test_a_group_that_was_composed_for_nothing_holds_what_it_held(groups: list[Given]) -> None:
    """A batch that is too large is put back, and composed again in smaller ones: nothing is there twice, or gone."""
    lots = [_lot(_group(group)) for group in groups]
    compose(NAME, PLACE, lots)
    for lot, group in zip(lots, groups, strict=True):
        assert _read([lot]).rows == _expected([group])
    assert _read(lots).rows == _expected(groups)


def test_what_has_an_op_id_stands_by_itself_in_order() -> None:
    counter = Counter()
    group = _group([(counter, "a", [("add", 1), ("sub", 2)])], as_ops=True)
    letter = _read([_lot(group), _lot(Request("r1", "consolidate")), _lot(Request("r2", "recalculate", "a"))])
    assert [(op_id, id, cell.net) for op_id, _, id, cell in letter.ops] == [("op0", "a", 1), ("op0", "a", -2)]
    assert letter.rows == {}
    assert letter.counters == {"int-sum": counter}
    assert [(each.request, each.op, each.id) for each in letter.requests] == [
        ("r1", "consolidate", ""),
        ("r2", "recalculate", "a"),
    ]


def test_a_place_is_carried() -> None:
    place, _ = read_letter(compose(NAME, Place(7, [3, 5], [9]), []))
    assert place == Place(7, [3, 5], [9])


def _body(**changes: Any) -> bytes:
    letter = {"schema": 1, "after": 0, "fields": {"views": "int:sum"}, "rows": {"views": {"a": [1, 1]}}, **changes}
    return msgspec.json.encode({name: value for name, value in letter.items() if value is not None})


POISON: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"\xff\xfe",
    "not UTF-8": b'{"schema":1,"after":0,"rows":{"\xff":{}}}',
    "a list": b"[]",
    "no schema": _body(schema=None),
    "schema 0": _body(schema=0),
    "schema true": _body(schema=True),
    "half a character": b'{"schema":1,"after":0,"urgent":["\\ud800"]}',
    "nested without end": b'{"schema":1,"after":0,"rows":{"v":{"a":' + b"[" * 100_000,
    "nested and closed": b'{"schema":1,"after":0,"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "a number of a million digits": _body().replace(b"[1,1]", b"[1," + b"9" * 10**6 + b"]"),
    "a number of 4,000 digits": _body().replace(b"[1,1]", b"[1," + b"9" * 4000 + b"]"),
    "a number that no calls can give": _body().replace(b"[1,1]", b"[1,-" + str(LARGEST_ROW).encode() + b"]"),
    "a long text of digits": _body(rows={"views": {"a": [1, "9" * 100]}}),
    "not a number": _body().replace(b"[1,1]", b"[1,NaN]"),
    "infinite": _body(fields={"views": "float:sum"}).replace(b"[1,1]", b"[1,1e999]"),
    "null": _body(rows={"views": {"a": [1, None]}}),
    "a decimal with an exponent": _body(fields={"views": "decimal:sum"}, rows={"views": {"a": [1, "1E+1000000"]}}),
    "a decimal of 100 digits": _body(fields={"views": "decimal:sum"}, rows={"views": {"a": [1, "9" * 100]}}),
    "a set to 100 digits": _body(rows={"views": {"a": [0, 0, 0, 0, 1, "9" * 100, 0]}}),
    "of an op": _body(rows={}, ops=[["op", "views", "a", [1, "9" * 100]]]),
    "an empty id": _body(rows={"views": {"": [1, 1]}}),
    "an id that is too long": _body(rows={"views": {"x" * 129: [1, 1]}}),
    "an id that is too long, in two lines": _body(rows={"views": {"x" * 100 + "\n" + "y" * 100: [1, 1]}}),
    "an id that takes too many bytes": _body(rows={"views": {"é" * 64: [1, 1]}}),
    "one such id among others": _body(rows={"views": {"a": [1, 1], "x" * 200: [1, 1], "b": [1, 1]}}),
    "an op's id that is too long": _body(rows={}, ops=[["op", "views", "x" * 200, [1, 1]]]),
    "a request's id that is too long": _body(requests=[{"request": "r", "op": "recalculate", "id": "x" * 200}]),
    "an empty op_id": _body(ops=[["", "views", "a", [1, 1]]]),
    "an op_id that is too long": _body(ops=[["o" * 129, "views", "a", [1, 1]]]),
    "a field that is none": _body(fields={"a..b": "int:sum"}, rows={}),
    "a field that is too long": _body(fields={"f" * 201: "int:sum"}, rows={}),
    "a field of 100 levels": _body(fields={".".join("a" * 100): "int:sum"}, rows={}),
    "a field of which it does not say how": _body(fields={}),
    "an op's field of which it does not say how": _body(fields={}, rows={}, ops=[["op", "views", "a", [1, 1]]]),
    "too many fields": _body(fields={f"f{number}": "int:sum" for number in range(1001)}, rows={}),
    "rows that are a list": _body(rows=[]),
    "skipped below zero": _body(skipped=[-1]),
    "too many requests": _body(requests=[{"request": "r", "op": "x"}] * 10_001),
}


@pytest.mark.parametrize("what", POISON)
def test_what_nobody_of_ours_writes_is_set_aside(what: str) -> None:
    with pytest.raises(Poison) as poison:
        read_letter(POISON[what])
    assert len(str(poison.value)) < 300


def test_what_a_newer_process_writes_is_left_to_one_that_knows_it() -> None:
    for body in (_body(schema=2), _body(schema=2, rows="whatever"), _body(fields={"views": "int:avg"}, rows={})):
        with pytest.raises(TooNewLetter, match="update it"):
            read_letter(body)


def test_of_a_name_that_comes_twice_the_last_counts() -> None:
    letter = read_letter(b'{"schema":1,"after":0,"fields":{"v":"int:sum"},"rows":{"v":{"a":[1,1],"a":[1,5]}}}')[1]
    assert letter.rows["v"]["a"].net == 5


def test_large_numbers_that_calls_can_give_are_read() -> None:
    group = Group()
    counter = Counter()
    for _ in range(10):
        group.cell("views", counter, "7" * 70).add(counter, 2**63 - 1)
    decimal = Counter(Kind.DECIMAL)
    group.cell("paid", decimal, "a").add(decimal, decimal.amount("x", 10**30 - 1))
    letter = _read([_lot(group)])
    assert letter.rows["views"]["7" * 70].net == 10 * (2**63 - 1)
    assert letter.rows["paid"]["a"].net == 10**30 - 1
    floats = read_letter(_body(fields={"views": "float:sum"}).replace(b"[1,1]", b"[1,1.7e308]"))[1]
    assert floats.rows["views"]["a"].net == 1.7e308
