"""The totals of one key: what amounts make of them, what other writes may not, and how they are put right."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tenure.database.counted import COUNTERS, Counted, counted_of, still_counted, with_counted
from tenure.database.records import Envelope
from tenure.errors import DamagedRecord, InvalidRecord
from tenure.plugins.counters.fields import fields_from
from tenure.plugins.counters.numbers import Counter, Kind, Reducer
from tenure.plugins.counters.settings import OnDirectWrite
from tenure.plugins.counters.state import Offer
from tenure.plugins.counters.totals import CountedShape, Key, Written
from tests.unit.counters_rig import cell_of

VIEWS, PAID = Counter(), Counter(Kind.DECIMAL)
FIELDS = {"views": VIEWS, "stats.paid": PAID, "high": Counter(Kind.INT, Reducer.MAX)}


def _envelope(data: dict[str, Any] | None = None, **changes: Any) -> Envelope:
    fields: dict[str, Any] = {"data": data if data is not None else {}, **changes}
    return Envelope(id="x", version=1, first_version=1, write_id="w", recent_writes=("w",), created_at="1", **fields)


def _counted(through: int = 5, ledger: str = "log", **totals: Any) -> dict[str, Any]:
    return with_counted({}, "n", Counted(ledger, through, totals))


def _offer(number: int, amount: int = 1, field: str = "views") -> Offer:
    return Offer(number, {field: cell_of(FIELDS[field], [("add", amount)])})


def _applied(envelope: Envelope | None, *offers: Offer, ledger: str = "log") -> Written | None:
    return Key(envelope, "n").applied(offers, FIELDS, ledger)


def _held(written: Written | None) -> Counted:
    assert written is not None
    found = counted_of(written.reserved, "n")
    assert isinstance(found, Counted)
    return found


@pytest.mark.req("EC-1")
def test_a_total_and_its_watermark_change_together_and_once() -> None:
    written = _applied(_envelope({"views": 3, "title": "t"}), _offer(6), _offer(8, 10))
    assert written is not None
    assert written.data == {"views": 14, "title": "t"}
    assert _held(written) == Counted("log", 8, {"views": 14}, {"views": 3})
    again = _envelope(written.data, reserved=written.reserved)
    assert _applied(again, _offer(6), _offer(8, 10)) is None
    later = _applied(again, _offer(8, 10), _offer(9, 100))
    assert _held(later) == Counted("log", 9, {"views": 114}, {"views": 3})


def test_without_a_record_totals_are_kept_and_nothing_is_shown() -> None:
    for envelope in (None, _envelope(deleted=True)):
        written = _applied(envelope, _offer(6))
        assert written is not None and written.data == {}
        assert _held(written) == Counted("log", 6, {"views": 1})


def test_what_others_keep_with_the_key_stays() -> None:
    reserved = {"ttl": {"at": 5}, COUNTERS: {"another": {"ledger": "l", "through": 1}}}
    written = _applied(_envelope(reserved=reserved), _offer(6))
    assert written is not None
    assert written.reserved["ttl"] == {"at": 5}
    assert written.reserved[COUNTERS]["another"] == {"ledger": "l", "through": 1}


def test_a_watermark_of_another_log_says_nothing_and_its_totals_are_what_counting_begins_with() -> None:
    base = _envelope({"views": 40}, reserved=_counted(900, "former", views=40))
    written = _applied(base, _offer(1, 2))
    assert _held(written) == Counted("log", 1, {"views": 42}, {"views": 40})
    assert Key(base, "n").start("views", VIEWS, "log") == 40


def test_a_total_that_cannot_be_read_is_damage_and_not_nothing() -> None:
    """Taken for nothing, the next amount would overwrite what was counted."""
    for reserved in (_counted(views="many"), _counted(views=1.5), {COUNTERS: 5}, {COUNTERS: {"n": {"through": -1}}}):
        with pytest.raises(DamagedRecord, match="recalculate"):
            _applied(_envelope(reserved=reserved), _offer(6))
        with pytest.raises(DamagedRecord):
            Key(_envelope(reserved=reserved), "n").total("views", VIEWS)
        mended = Key(_envelope(reserved=reserved), "n", is_mended=True)
        written = mended.put_right({"views": 7}, FIELDS, "log", 9)
        assert (_held(written).totals, _held(written).through) == ({"views": 7}, 9)


def test_a_record_that_lost_what_was_kept_began_with_nothing() -> None:
    """What stands in it is a copy of its total: begun with that, everything would be counted twice."""
    stripped = Key(_envelope({"views": 12}), "n", is_mended=True)
    assert stripped.start("views", VIEWS, "log") == 0
    written = stripped.put_right({"views": 12}, FIELDS, "log", 9)
    assert _held(written) == Counted("log", 9, {"views": 12})
    again = Key(_envelope(written.data, reserved=written.reserved), "n")
    assert again.start("views", VIEWS, "log") == 0


def test_what_a_field_held_before_is_remembered_through_deletion() -> None:
    written = _applied(_envelope({"views": 3, "stats": {"paid": "0.5"}}), _offer(6), _offer(7, 2, "stats.paid"))
    tombstone = _envelope(deleted=True, reserved=still_counted(_held_reserved(written), {}))
    key = Key(tombstone, "n")
    assert (key.start("views", VIEWS, "log"), key.start("stats.paid", PAID, "log")) == (3, Decimal("0.5"))
    assert key.total("stats.paid", PAID) == Decimal("2.5")


def _held_reserved(written: Written | None) -> dict[str, Any]:
    assert written is not None
    return written.reserved


def test_a_total_that_cannot_be_shown_is_counted_and_told() -> None:
    for data in ({"stats": 5}, {"stats": [1]}, {"stats": {"paid": {"eur": 1}}}):
        written = _applied(_envelope(dict(data)), _offer(6, 2, "stats.paid"))
        assert written is not None
        assert (written.data, written.hidden) == (data, ("stats.paid",))
        assert _held(written).totals == {"stats.paid": "2"}


def test_totals_too_large_for_json_are_shown_as_the_largest_and_kept_exactly() -> None:
    written = _applied(_envelope(reserved=_counted(views=str(2**70))), _offer(6))
    assert written is not None
    assert written.data == {"views": 2**63 - 1}
    assert _held(written).totals == {"views": str(2**70 + 1)}


# Other writes


def _shaped(
    base: Envelope | None, data: dict[str, Any], policy: OnDirectWrite = OnDirectWrite.REFUSE
) -> dict[str, Any]:
    return CountedShape("r", "n", FIELDS, policy).shaped("x", base, data)


COUNTED = _envelope({"views": 7, "stats": {"paid": "2.50"}}, reserved=_counted(views=7, **{"stats.paid": "2.50"}))


def test_totals_are_put_into_every_write() -> None:
    assert _shaped(COUNTED, {}) == {"views": 7, "stats": {"paid": "2.50"}}
    assert _shaped(COUNTED, {"views": 7, "stats": {"paid": "2.5", "x": 1}, "t": 1}) == {
        "views": 7,
        "stats": {"paid": "2.50", "x": 1},
        "t": 1,
    }
    tombstone = _envelope(deleted=True, reserved=COUNTED.reserved)
    assert _shaped(tombstone, {"t": 1}) == {"t": 1, "views": 7, "stats": {"paid": "2.50"}}
    assert _shaped(tombstone, {"views": 0})["views"] == 7, "a class whose field begins at zero has no other way"


@pytest.mark.parametrize(
    "data", [{"views": 8}, {"views": None, "stats": {"paid": "2.51"}}, {"views": "x"}, {"high": 1}]
)
def test_another_value_is_refused_or_the_total_stays(data: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord, match="it is counted"):
        _shaped(COUNTED, data)
    kept = _shaped(COUNTED, data, OnDirectWrite.KEEP)
    assert (kept["views"], kept["stats"]["paid"]) == (7, "2.50")


def test_a_new_record_brings_its_own_value_if_it_is_a_number() -> None:
    assert _shaped(None, {"views": 5, "high": 3}) == {"views": 5, "high": 3}
    with pytest.raises(InvalidRecord, match="counted as int"):
        _shaped(None, {"views": "five"})
    with pytest.raises(InvalidRecord, match="counted as decimal"):
        _shaped(None, {"stats": {"paid": [1]}})
    with pytest.raises(InvalidRecord, match="it is counted"):
        _shaped(_envelope(deleted=True, reserved=COUNTED.reserved), {"views": 5})


def test_a_field_that_was_never_counted_cannot_be_changed_by_hand_either() -> None:
    base = _envelope({"views": 3})
    assert _shaped(base, {"t": 1}) == {"t": 1, "views": 3}
    with pytest.raises(InvalidRecord):
        _shaped(base, {"views": 4})
    assert _shaped(_envelope({"t": 1}), {"t": 2}) == {"t": 2}, "what was not there is not put there"


def test_what_was_read_from_a_record_may_be_written_back_however_large_its_total() -> None:
    base = _envelope({"views": 2**63 - 1}, reserved=_counted(views=str(2**70)))
    assert _shaped(base, {"views": 2**63 - 1}) == {"views": 2**63 - 1}


def test_a_write_over_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(DamagedRecord):
        _shaped(_envelope(reserved={COUNTERS: {"n": []}}), {})


def test_names_with_dots_lead_inside() -> None:
    assert fields_from(list(FIELDS)).keys() == FIELDS.keys()
    key = Key(_envelope({"stats": {"paid": 1.25}}), "n")
    assert key.total("stats.paid", PAID) == Decimal("1.25")
    assert key.total("high", FIELDS["high"]) is None
