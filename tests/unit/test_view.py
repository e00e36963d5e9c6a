"""What `tenure watch` makes of what it sees: the pure core, look by look."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from tenure.cli.screen import Footing, draw, is_drawable
from tenure.cli.watch import _line
from tenure.clock import Reading
from tenure.election.records import Damage, Handoff, Refusal, State, TooNew, Worker
from tenure.election.sight import Absent, Found
from tenure.observe.view import (
    MAX_CHANGES_OF_A_KIND,
    Change,
    Kind,
    Phase,
    Seen,
    View,
    WorkerRow,
    see_answer,
    see_failure,
    see_lease,
    see_same_lease,
    see_workers,
)
from tenure.store import Version


def at(seconds: float) -> Reading:
    ns = int(seconds * 1e9)
    return Reading(ns, ns, ns, ns)


def lease(epoch: int = 1, renewals: int = 0, leader: str | None = "ada", **changes: object) -> State:
    state = State(
        write_id=f"{epoch}.{renewals}",
        leader_id=leader,
        uid=f"u-{leader}" if leader else None,
        epoch=epoch,
        grant_id=f"g{epoch}",
        leader_write_id=f"{epoch}.{renewals}",
        lease_duration_ms=3000,
        renewals=renewals,
    )
    return msgspec.structs.replace(state, **changes)


class Story:
    """A view, and all that it told."""

    def __init__(self) -> None:
        self.view = View("default", worker_timeout=10)
        self.told: list[tuple[str, str]] = []
        self.last: list[Kind] = []
        self._version = 0

    def fold(self, seen: Seen) -> list[Kind]:
        self.view, changes = seen
        self.told += [(change.kind.value, change.detail) for change in changes]
        self.last = [change.kind for change in changes]
        self.leaders = [change.leader for change in changes]
        return self.last

    def see(self, found: Found, seconds: float) -> list[Kind]:
        self._version += 1
        version = None if isinstance(found, Absent) else Version(str(self._version))
        return self.fold(see_lease(self.view, found, version, at(seconds)))

    def same(self, seconds: float) -> list[Kind]:
        return self.fold(see_same_lease(self.view, at(seconds)))

    def workers(self, seconds: float, *rows: WorkerRow) -> list[Kind]:
        return self.fold(see_workers(self.view, rows, 0, at(seconds)))


def row(name: str, mark: int = 0, age: float = 0.0, uid: str = "u", **fields: object) -> WorkerRow:
    return WorkerRow(Worker(write_id="w", worker_id=name, uid=uid, ordinal=1, **fields), str(mark), age)  # type: ignore[arg-type]


def test_an_election_from_the_first_look_to_the_next_leader() -> None:
    story = Story()
    assert story.see(lease(renewals=5), 0) == [Kind.WATCHING]
    assert story.leaders == ["ada"]
    assert not story.view.renewal_seen
    assert story.same(1) == []
    assert story.view.lease_left(at(1)) == pytest.approx(2)
    assert story.see(lease(renewals=6), 2) == [Kind.RENEWED]  # the first only
    assert story.view.renewal_seen
    assert story.view.lease_left(at(2)) == pytest.approx(3)  # refilled
    assert story.see(lease(renewals=7), 3) == []
    released = lease(renewals=8, leader=None, previous_leader="ada", successor="ben")
    assert story.see(released, 4) == [Kind.STEPPED_DOWN]
    assert (story.view.phase, story.view.leader) == (Phase.RELEASED, None)
    assert story.view.lease_left(at(4)) == 0
    assert story.same(4.5) == []
    assert story.see(lease(2, leader="ben", previous_leader="ada"), 5) == [Kind.ELECTED]
    assert (story.view.leader, story.view.epoch) == ("ben", 2)
    assert story.view.renewal_seen  # it was seen to be written
    assert story.told[2:] == [
        ("stepped-down", "ada released epoch 1, for ben to take"),
        ("elected", "ben leads, epoch 2, after ada"),
    ]


def test_a_lease_lapses_by_our_clock_alone_and_is_told_once() -> None:
    story = Story()
    story.see(lease(mandate_ends_at="2001-01-01T00:00:00+00:00", lease_expires_at="2001-01-01T00:00:00+00:00"), 0)
    assert story.same(3.1) == []  # not by everybody's clock yet
    assert story.view.phase is Phase.LEADING
    assert story.same(3.6) == [Kind.LAPSED]
    assert story.leaders == [None]
    assert story.same(9) == []
    assert story.see(lease(renewals=1), 10) == [Kind.RENEWED]  # frozen, not dead
    assert story.view.phase is Phase.LEADING
    story.same(14)
    assert story.see(lease(3, leader="cyd", previous_leader="ada"), 15) == [Kind.ELECTED]
    assert story.told[-1][1] == "cyd leads, epoch 3, after ada; 1 epoch before it went by unseen"


def test_after_a_long_time_without_a_look_a_lease_is_watched_anew() -> None:
    story = Story()
    story.see(lease(), 0)
    assert story.same(1000) == []
    assert story.view.phase is Phase.LEADING
    assert story.same(1004) == [Kind.LAPSED]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (Damage("unreadable"), "unreadable"),
        (TooNew(9), "schemaVersion 9"),
        (lease(3, renewals=9), "rolled back: epoch 3 after epoch 4"),
        (lease(4, renewals=1), "rolled back: renewal 1 after renewal 2"),
        (lease(4, renewals=9, grant_id="another"), "granted twice"),
    ],
)
def test_damage_is_told_once_and_its_end_too(found: Found, reason: str) -> None:
    story = Story()
    story.see(lease(4, renewals=2), 0)
    assert story.see(found, 1) == [Kind.DAMAGED]
    assert reason in story.told[-1][1]
    assert story.view.leader is None
    assert story.same(2) == []
    assert story.see(found, 3) == []
    assert story.see(lease(5, leader="ben"), 4) == [Kind.ELECTED]
    assert story.view.phase is Phase.LEADING


def test_a_lease_that_is_put_back_where_it_was_is_held_again() -> None:
    story = Story()
    story.see(lease(4, renewals=2), 0)
    story.see(Damage("unreadable"), 1)
    assert story.see(lease(4, renewals=3), 2) == [Kind.RENEWED]


def test_a_lease_that_is_gone_and_one_that_was_never_there() -> None:
    story = Story()
    assert story.see(Absent(), 0) == [Kind.WATCHING]
    assert story.see(Absent(), 1) == []
    assert story.see(lease(), 2) == [Kind.ELECTED]
    assert story.see(Absent(), 3) == [Kind.LEASE_GONE]
    assert story.see(Absent(), 4) == []


def test_a_request_and_its_refusal_are_told() -> None:
    story = Story()
    story.see(lease(), 0)
    asked = lease(write_id="x", handoff=Handoff(request_id="r", epoch=1, by="tenure step-down on h", to="ben"))
    assert story.see(asked, 1) == [Kind.ASKED]
    assert not story.view.renewal_seen  # it is no renewal
    assert story.see(msgspec.structs.replace(asked, write_id="y"), 2) == []
    refused = lease(renewals=1, refusal=Refusal(request_id="r", reason="too early"))
    assert story.see(refused, 3) == [Kind.RENEWED, Kind.REFUSED]
    assert story.told[-1][1] == "ada says no: too early"
    assert story.see(lease(renewals=2, refusal=refused.refusal), 4) == []


def test_workers_come_go_fall_silent_and_come_back() -> None:
    story = Story()
    story.see(lease(), 0)
    assert story.workers(0, row("ada"), row("ben"), row("old", age=99)) == []
    assert story.workers(5, row("ada", 1), row("ben"), row("cyd"), row("old", age=104)) == [Kind.JOINED]
    assert story.told[-1] == ("worker-joined", "cyd joined, with priority 0")
    assert story.workers(11, row("ada", 2), row("ben"), row("cyd", 1)) == [Kind.SILENT, Kind.LEFT]
    assert [worker.worker_id for worker in story.view.ranked() if not worker.active] == ["ben"]
    assert story.workers(12, row("ada", 3), row("ben", 1), row("cyd", 2)) == [Kind.BACK]
    assert story.workers(13, row("ada", 4), row("ben", 2, uid="v"), row("cyd", 3, healthy=False)) == [
        Kind.RESTARTED,
        Kind.UNHEALTHY,
    ]
    assert story.workers(14, row("ada", 5), row("ben", 3, uid="v"), row("cyd", 4)) == [Kind.HEALTHY]


def test_where_all_have_died_all_fall_silent() -> None:
    """The newest record is then old as well, and only our own clock tells."""
    story = Story()
    story.see(lease(), 0)
    story.workers(0, row("ada"), row("ben", age=1))
    assert story.workers(9.5, row("ada"), row("ben", age=1)) == [Kind.SILENT]
    assert story.workers(11, row("ada"), row("ben", age=1)) == [Kind.SILENT]
    assert not any(worker.active for worker in story.view.ranked())


def test_the_order_of_succession() -> None:
    story = Story()
    story.see(lease(leader="ben"), 0)
    story.workers(
        0,
        row("ada", uid="1", priority=5, healthy=False),
        row("ben", uid="u-ben"),
        row("cyd", uid="3"),
        row("dan", uid="4", priority=9),
        row("eva", uid="5", eligible=False),
        row("fay", uid="6", age=99),
    )
    ranked = [(worker.worker_id, worker.rank) for worker in story.view.ranked()]
    assert ranked == [("ben", None), ("dan", 1), ("cyd", 2), ("ada", None), ("eva", None), ("fay", None)]
    story.same(4)  # lapsed: whoever let it lapse comes last
    assert [(worker.worker_id, worker.rank) for worker in story.view.ranked()][:3] == [
        ("dan", 1),
        ("cyd", 2),
        ("ben", 3),
    ]


def test_a_thousand_workers_that_start_at_once_are_one_line() -> None:
    story = Story()
    story.see(lease(), 0)
    story.workers(0)
    few = [row(f"a{n}") for n in range(MAX_CHANGES_OF_A_KIND)]
    assert len(story.workers(1, *few)) == MAX_CHANGES_OF_A_KIND
    many = [row(f"w{n:04}") for n in range(1000)]
    assert story.workers(2, *few, *many) == [Kind.JOINED]
    assert story.told[-1][1].startswith("1000 workers: w0000, w0001, ")


def test_a_store_that_does_not_answer_is_told_once_and_when_it_does() -> None:
    story = Story()
    story.see(lease(), 0)
    assert story.fold(see_failure(story.view, "no route", at(1))) == [Kind.STORE_ERROR]
    assert story.fold(see_failure(story.view, "no route", at(2))) == []
    assert (story.view.failures, story.view.error) == (2, "no route")
    assert story.fold(see_answer(story.view, at(3))) == [Kind.STORE_BACK]
    assert story.fold(see_answer(story.view, at(4))) == []
    assert (story.view.failures, story.view.error) == (0, None)


@pytest.mark.parametrize(("width", "height"), [(100, 30), (80, 24), (60, 14), (200, 60), (20, 5)])
def test_a_frame_fits_the_terminal_and_shows_what_matters(width: int, height: int) -> None:
    story = Story()

    def frame(seconds: float) -> str:
        console = Console(width=width, height=height, file=io.StringIO(), force_terminal=True, color_system=None)
        drawn = draw(story.view, "file:///x", (), Footing(3, None, 1), at(seconds), width=width, height=height)
        console.print(drawn, height=height)
        file = console.file
        assert isinstance(file, io.StringIO)
        lines = file.getvalue().rstrip("\n").split("\n")
        assert len(lines) <= height
        assert max(map(len, lines)) <= width
        return "\n".join(lines)

    frame(0)  # nothing seen yet
    story.see(lease(12, renewals=4, leader="[bold]ada"), 0)
    story.workers(0, row("[bold]ada"), *(row(f"w{n:03}") for n in range(300)))
    story.see(lease(12, renewals=5, leader="[bold]ada"), 1)
    drawn = frame(2)
    if height >= 14:
        assert "[bold]ada leads  epoch 12" in drawn  # a name is no markup
        assert "2.0 s left of 3 s" in drawn
        assert "more" in drawn
    if height >= 24:
        assert "… and" in drawn
        assert "nothing is written" in drawn
    for found in (Damage("unreadable"), TooNew(3), Absent(), lease(13, leader=None, previous_leader="ada")):
        story.see(found, 3)
        frame(3)


EVIL = "e\x1b]0;pwned\x07\x1b[31mvil\nFAKE  elected\u202e\x9b"


@pytest.mark.parametrize("phase", ["leads", "lapsed", "released", "damaged"])
def test_names_and_reasons_cannot_act_upon_the_terminal(phase: str) -> None:
    story = Story()
    changes: list[Change] = []

    def fold(seen: Seen) -> None:
        story.fold(seen)
        changes.extend(seen[1])

    held = lease(leader=EVIL, elected_at=EVIL, mandate_ends_at=EVIL)
    fold(see_lease(story.view, held, Version("1"), at(0)))
    asked = msgspec.structs.replace(
        held,
        write_id="asked",
        handoff=Handoff(request_id="r", epoch=1, by=EVIL, to=EVIL),
        refusal=Refusal(request_id="q", reason=EVIL),
    )
    fold(see_lease(story.view, asked, Version("2"), at(1)))
    fold(see_workers(story.view, [row(EVIL)], 0, at(1)))
    fold(see_workers(story.view, [row(EVIL), row(EVIL + "2")], 0, at(2), (f"workers/{EVIL}",)))
    if phase == "lapsed":
        fold(see_same_lease(story.view, at(9)))
    if phase == "released":
        gone = lease(renewals=1, leader=None, previous_leader=EVIL, successor=EVIL)
        fold(see_lease(story.view, gone, Version("3"), at(3)))
    if phase == "damaged":
        fold(see_lease(story.view, Damage(EVIL), Version("3"), at(3)))
        fold(see_failure(story.view, EVIL, at(3)))
    assert {Kind.WATCHING, Kind.ASKED, Kind.REFUSED, Kind.JOINED, Kind.UNREADABLE} <= {each.kind for each in changes}
    console = Console(width=200, height=40, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(draw(story.view, "file:///x", changes, Footing(3, None, 1), at(3), width=200, height=40), height=40)
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue() + "\n".join(_line(change) for change in changes)
    assert all(each == "\n" or each.isprintable() for each in told)
    assert r"e\x1b]0;pwned\x07\x1b[31mvil\x0aFAKE" in told
    assert len(told.splitlines()) == 40 + len(changes)


def test_what_is_no_record_is_told_once_and_counted() -> None:
    story = Story()
    story.see(lease(), 0)
    assert story.fold(see_workers(story.view, [], 0, at(0), ("workers/x",))) == [Kind.UNREADABLE]
    assert story.told[-1] == ("worker-unreadable", "workers/x is no record of a worker")
    assert story.fold(see_workers(story.view, [], 0, at(1), ("workers/x",))) == []
    console = Console(width=100, height=30, file=io.StringIO(), color_system=None)
    console.print(draw(story.view, "file:///x", (), Footing(3, None, 1), at(1), width=100, height=30), height=30)
    assert isinstance(console.file, io.StringIO)
    assert "1 not readable" in console.file.getvalue()
    assert "election-only" not in console.file.getvalue()


def test_a_version_of_thousands_of_digits_is_not_shown() -> None:
    story = Story()
    story.see(TooNew(10**4000), 0)
    assert len(story.told[-1][1]) < 200


def test_which_terminals_can_show_a_frame() -> None:
    assert is_drawable("utf-8")
    assert not any(is_drawable(each) for each in ("ascii", "latin-1", "none such", None))
