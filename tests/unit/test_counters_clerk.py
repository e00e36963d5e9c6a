"""The leader's decisions: what it folds, whom it believes, what it forgets, and when something may be removed."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec
import pytest

from tenure.ledger import InboxName, Item, LogEntry, Poison, Situation, Stamp
from tenure.plugins.counters import clerk
from tenure.plugins.counters.cell import Cell
from tenure.plugins.counters.clerk import CountersClerk
from tenure.plugins.counters.numbers import Counter, Kind
from tenure.plugins.counters.pages import Merge
from tenure.plugins.counters.records import Answer, Asked, Chunk, Level, Moment, Page, Work, decode_work
from tenure.plugins.counters.rounds import Rounds
from tenure.plugins.counters.settings import CounterSettings, settings_from
from tenure.plugins.counters.state import CountersMachine
from tenure.plugins.counters.wire import Letter, Request
from tests.unit.counters_rig import cell_of

VIEWS = Counter()
HOUR_MS = 3_600_000


class Desk:
    """A clerk, and the log that it writes."""

    def __init__(self, settings: CounterSettings | None = None) -> None:
        ids = itertools.count(1)
        self.urgent: list[str] = []
        self.clerk = CountersClerk(
            settings if settings is not None else settings_from({}),
            draw_id=lambda: f"log{next(ids)}",
            on_urgent=self.urgent.extend,
        )
        self.log: list[tuple[bytes, Stamp]] = []
        self.numbers = itertools.count(1)

    def item(self, content: Letter) -> Item:
        return Item(InboxName(0, "uid", next(self.numbers)), 0, b"", (), content)

    def decide(self, *letters: Letter, at_ms: int = 0, **situation: Any) -> Work | None:
        stamp = Stamp(len(self.log) + 1, 1, at_ms)
        self.items = [self.item(letter) for letter in letters]
        events = self.clerk.decide(self.items, Situation(stamp, **{"swept_ms": None, "slow_ms": 0, **situation}))
        if events is None:
            return None
        self.log.append((events, stamp))
        return decode_work(events)

    def commit(self) -> list[str]:
        entry = LogEntry(write_id="w", seq=len(self.log), epoch=1, time_ms=0)
        return list(self.clerk.committed(entry, self.items))

    def read_again(self) -> CountersMachine:
        machine = CountersMachine()
        for events, stamp in self.log:
            machine.apply(events, stamp)
        return machine


def _letter(
    rows: dict[str, dict[str, Cell]] | None = None,
    ops: list[tuple[str, str, str, Cell]] | None = None,
    requests: list[Request] | None = None,
    urgent: list[str] | None = None,
    **counters: Counter,
) -> Letter:
    counters = counters or {"views": VIEWS}
    return Letter(counters, rows or {}, ops or [], requests or [], urgent or [])


def _add(amount: int = 1, counter: Counter = VIEWS) -> Cell:
    return cell_of(counter, [("add", amount)])


def test_what_is_in_the_inbox_is_put_together_and_the_log_says_the_same() -> None:
    desk = Desk()
    work = desk.decide(
        _letter({"views": {"a": _add(), "b": _add(5)}}),
        _letter({"views": {"a": cell_of(VIEWS, [("set", 10)])}}),
        _letter({"views": {"a": _add(2)}}, [("op", "views", "a", _add(30))]),
    )
    assert work is not None
    assert work.rows == {"views": {"a": [3, 33, 0, 0, 1, 10, 32], "b": [1, 5]}}
    assert (work.fields, work.ops, work.ledger) == ({"views": "int:sum"}, ["op"], "log1")
    again = desk.decide(_letter({"views": {"a": _add()}}))
    assert again is not None
    assert (again.fields, again.ledger) == ({}, ""), "said once"
    assert desk.read_again().waiting == desk.clerk.machine.waiting


def test_nothing_to_say_is_no_entry() -> None:
    desk = Desk()
    assert desk.decide() is None
    assert desk.decide(_letter()) is None
    assert not desk.clerk.has_news


@pytest.mark.req("EC-2")
def test_an_op_id_counts_once_within_its_window_and_in_the_entry_itself() -> None:
    desk = Desk(settings_from({"dedup_window": 10}))
    letter = _letter(ops=[("op", "views", "a", _add()), ("op", "views", "a", _add(7))])
    first = desk.decide(letter, letter)
    assert first is not None
    assert (first.rows, first.duplicates) == ({"views": {"a": [1, 1]}}, 3)
    second = desk.decide(letter, at_ms=10_000)
    assert second is not None
    assert (second.rows, second.duplicates) == ({}, 2)
    third = desk.decide(_letter({"views": {"b": _add()}}), at_ms=10_001)
    assert third is not None and third.forgotten == 1
    fourth = desk.decide(letter, at_ms=10_001)
    assert fourth is not None and fourth.rows == {"views": {"a": [1, 1]}}
    assert desk.read_again().op_ids == desk.clerk.machine.op_ids


def _body(fields: dict[str, str], rows: dict[str, Any] | None = None) -> bytes:
    return msgspec.json.encode({"schema": 1, "after": 0, "fields": fields, "rows": rows or {}})


def test_who_counts_otherwise_than_others_is_set_aside() -> None:
    desk = Desk()
    desk.decide(_letter({"views": {"a": _add()}}))
    name = InboxName(0, "uid", 1)
    desk.clerk.read(name, _body({"views": "int:sum"}))
    with pytest.raises(Poison, match="and others as int:sum"):
        desk.clerk.read(name, _body({"views": "float:sum"}))
    desk.clerk.read(name, _body({"likes": "float:sum"}))
    with pytest.raises(Poison, match="and others as float:sum"):
        desk.clerk.read(name, _body({"likes": "int:sum"}))
    with pytest.raises(Poison, match="inside the other"):
        desk.clerk.read(name, _body({"views.today": "int:sum"}))
    with pytest.raises(Poison, match="inside the other"):
        desk.clerk.read(name, _body({"a": "int:sum", "a.b": "int:sum"}))
    desk.clerk.read(name, _body({"a": "float:sum"}))  # what was set aside says nothing


def test_how_many_fields_there_are_is_bounded() -> None:
    desk = Desk()
    name = InboxName(0, "uid", 1)
    desk.clerk.read(name, _body({f"f{number}": "int:sum" for number in range(999)}))
    desk.clerk.read(name, _body({"one": "int:sum"}))
    with pytest.raises(Poison, match="at most 1,000"):
        desk.clerk.read(name, _body({"more": "int:sum"}))


def test_a_request_is_covered_by_a_sweep_that_began_after_it_and_read_everything() -> None:
    desk = Desk()
    desk.decide(_letter(requests=[Request("r", "consolidate")]), at_ms=1000)
    assert desk.clerk.is_asked
    for situation in (
        {"swept_ms": None},
        {"swept_ms": 1000},
        {"swept_ms": 1500, "doubt_ms": 500},
        {"swept_ms": 9000, "unread": frozenset({"someone"})},
    ):
        assert desk.decide(at_ms=9000, **situation) is None
    work = desk.decide(at_ms=9000, swept_ms=1502, doubt_ms=500)
    assert work is not None and work.covered == ["r"]
    assert desk.clerk.machine.asked["r"].through == 2
    assert not desk.clerk.is_asked


def test_requests_that_nobody_knows_are_refused_at_once() -> None:
    desk = Desk()
    work = desk.decide(_letter(requests=[Request("r1", "dance", "x"), Request("r2", "recalculate")]))
    assert work is not None
    assert [(answer.request, bool(answer.refused)) for answer in work.answered] == [("r1", True), ("r2", True)]
    assert work.asked == {}


def test_requests_that_cannot_be_done_are_refused_once_nobody_can_wait_for_them() -> None:
    """Each that asked for all records while one could not be written stayed for good."""
    desk = Desk()
    desk.decide(_letter(requests=[Request("old", "consolidate")]), at_ms=1000)
    desk.decide(_letter(requests=[Request("young", "recalculate", "x")]), at_ms=3_000_000)
    assert desk.decide(at_ms=3_601_000) is None, "a caller may wait for an hour"
    work = desk.decide(at_ms=5_000_000)
    assert work is not None
    assert [(answer.request, bool(answer.refused)) for answer in work.answered] == [("old", True)]
    assert list(desk.clerk.machine.asked) == list(desk.read_again().asked) == ["young"]
    desk.clerk.answers(Answer("young"))
    work = desk.decide(at_ms=9_000_000)
    assert work is not None and work.answered == [Answer("young")], "once, and as it was done"


def test_requests_beyond_so_many_are_refused_and_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clerk, "MAX_ASKED", 3)
    desk = Desk()
    desk.decide(_letter(requests=[Request("r1", "consolidate")]), at_ms=1000)
    work = desk.decide(_letter(requests=[Request(f"r{number}", "consolidate") for number in range(2, 6)]), at_ms=1000)
    assert work is not None
    assert list(work.asked) == ["r2", "r3"]
    assert [(answer.request, bool(answer.refused)) for answer in work.answered] == [("r4", True), ("r5", True)]


def test_many_requests_for_all_records_look_at_them_once() -> None:
    class Counted(dict[str, Any]):
        looks = 0

        def __iter__(self) -> Any:
            self.looks += 1
            return super().__iter__()

    rounds, desk = Rounds.__new__(Rounds), Desk()
    machine = desk.clerk.machine
    rounds._clerk, rounds._urgent = desk.clerk, {"b": None, "gone": None}
    machine.waiting = waiting = Counted(dict.fromkeys("abc"))
    machine.asked["r"] = Asked("recalculate", "c", 0, 1)
    assert rounds._wanted() == ["b", "c"]
    machine.asked.update({f"r{number}": Asked("consolidate", "", 0, 1) for number in range(9)})
    assert sorted(rounds._wanted()) == ["a", "b", "c"]
    assert waiting.looks == 1


def test_what_others_have_to_say_goes_into_the_next_entry_once() -> None:
    desk = Desk()
    desk.clerk.applied("a", 5)
    desk.clerk.answers(Answer("r"))
    assert desk.clerk.has_news
    work = desk.decide()
    assert work is not None and (work.applied, len(work.answered)) == ({"a": 5}, 1)
    assert not desk.clerk.has_news


def test_an_hour_that_is_over_is_sealed_also_if_nothing_comes() -> None:
    desk = Desk()
    desk.decide(_letter({"views": {"a": _add()}}), at_ms=10)
    assert desk.decide(at_ms=HOUR_MS - 1) is None
    work = desk.decide(at_ms=HOUR_MS)
    assert work is not None and work.seal
    assert [sealed.rows for sealed in desk.clerk.machine.sealed] == [{"views": {"a": [1, 1]}}]


def test_whom_somebody_waits_for_is_told_once_it_is_written() -> None:
    desk = Desk()
    desk.decide(_letter({"views": {"a": _add()}}, urgent=["a"]))
    assert desk.urgent == []
    desk.commit()
    assert desk.urgent == ["a"]


@pytest.mark.req("EC-2")
def test_pages_are_removed_once_the_entry_that_replaces_them_is_written_and_not_before() -> None:
    """Those that are put together while another entry is on its way are still named by the log: if the leader crashed
    then, their history would be gone."""
    desk = Desk()
    moment = Moment(0, 0, 0)
    old = [Page(Level.HOUR, moment, number, [Chunk(f"p{number}", "a", "b", 1, "")]) for number in (1, 2)]
    machine = desk.clerk.machine
    machine.pages = list(old)
    new = Page(Level.HOUR, moment, 2, [Chunk("p3", "a", "b", 1, "")])
    desk.decide(_letter({"views": {"a": _add()}}))
    desk.clerk.merged(Merge(old, Level.HOUR), new)
    assert desk.commit() == []
    assert machine.pages == old
    desk.decide()
    assert machine.pages == [new]
    assert desk.commit() == ["p1", "p2"]
    assert desk.commit() == []


def test_what_a_page_goes_on_using_is_not_removed() -> None:
    desk = Desk()
    page = Page(Level.HOUR, Moment(0, 0, 0), 1, [Chunk("p1", "a", "b", 1, "")])
    desk.clerk.machine.pages = [page]
    desk.clerk.merged(Merge([page], Level.DAY), msgspec.structs.replace(page, level=Level.DAY))
    desk.decide()
    assert desk.commit() == []


@pytest.mark.req("EC-1")
async def test_while_an_entry_is_on_its_way_nobody_is_given_the_state() -> None:
    """Another leader may have its number: what the state holds under it must not reach a record."""
    desk = Desk()
    assert await desk.clerk.written() is desk.clerk.machine
    desk.decide(_letter({"views": {"a": _add()}}))
    waiting = asyncio.create_task(desk.clerk.written())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    desk.commit()
    assert (await waiting).offered("a")


def test_numbers_of_every_kind_are_said_as_the_machine_has_them() -> None:
    desk = Desk()
    fields = {"f": Counter(Kind.FLOAT), "d": Counter(Kind.DECIMAL), "i": VIEWS}
    rows = {
        "f": {"a": cell_of(fields["f"], [("add", 1.7e308), ("add", 1.7e308)])},
        "d": {"a": cell_of(fields["d"], [("add", 10**29)] * 3)},
        "i": {"a": cell_of(VIEWS, [("add", 2**63 - 1)] * 5)},
    }
    for _ in range(3):
        desk.decide(_letter(rows, **fields), _letter(rows, **fields))
    assert desk.read_again().waiting == desk.clerk.machine.waiting
    twin = CountersMachine()
    twin.restore(desk.clerk.machine.snapshot())
    assert twin.tally == desk.clerk.machine.tally
