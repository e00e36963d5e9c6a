"""The demo's own judges, each shown what is right and what is wrong; and the picture, where two never seem to lead."""

from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from tenure.clock import SYSTEM_CLOCK, Reading
from tenure.coordinator.audit import Audit, Finding, FindingKind
from tenure.coordinator.lead import Lead
from tenure.demo.candidate import Entry, Ledger, Part, Worker, read_ledger
from tenure.demo.cast import Role, State
from tenure.demo.judge import judge_thaw, judge_work, spans, two_at_once
from tenure.demo.lines import Deed, Outcome, Report
from tenure.demo.panel import MIN_HEIGHT, can_show, picture, strip
from tenure.demo.place import fresh_part_of
from tenure.demo.stage import ACTS, Stage
from tenure.demo.verdicts import Change, on_changes, on_doctor, on_history, on_leaders, on_thaw, on_work
from tenure.doctor import Report as DoctorReport
from tenure.election.holding import Holding
from tenure.entropy import new_id
from tenure.errors import ConfigError, Damaged
from tenure.store.url import parse_url
from tests.support.store import ANY, Request, ScriptedStore

ADA, BEN, CYD = 11, 12, 13
S = 1_000_000_000


def term(process: int, epoch: int, first: int, last: int) -> list[Report]:
    return [Report(at, at + 2, process, True, epoch) for at in range(first, last + 1, 10)]


@pytest.mark.parametrize(
    ("reports", "pairs"),
    [
        (term(ADA, 1, 0, 100) + term(BEN, 2, 110, 200), 0),
        (term(ADA, 1, 0, 100) + term(BEN, 2, 90, 200), 1),
        (term(ADA, 1, 0, 100) + term(BEN, 2, 30, 40), 1),
        (term(ADA, 1, 0, 100) + term(BEN, 2, 50, 200) + term(CYD, 3, 70, 80), 3),
        (term(ADA, 1, 0, 100) + term(ADA, 2, 110, 200), 0),
        # Two processes under one epoch are two leaders like any others.
        (term(ADA, 1, 0, 100) + term(BEN, 1, 50, 200), 1),
        # One answer alone was given at some instant between its two times, and proves no overlap at the edge.
        (term(ADA, 1, 0, 100) + term(BEN, 2, 99, 99), 0),
        # Frozen between the two times of an answer: it was found before, and says nothing of the time after.
        ([*term(ADA, 1, 0, 100), Report(110, 900, ADA, True, 1), *term(BEN, 2, 400, 950)], 0),
        ([Report(5, 6, BEN, False, 0), *term(ADA, 1, 0, 100)], 0),
        ([], 0),
    ],
)
def test_two_at_once(reports: list[Report], pairs: int) -> None:
    assert two_at_once(reports) == pairs
    assert two_at_once(reversed(reports)) == pairs


def test_leaderships_are_listed_by_epoch() -> None:
    found = spans(term(BEN, 2, 110, 200) + term(ADA, 1, 0, 100) + term(ADA, 3, 300, 300))
    assert [(span.process, span.epoch) for span in found] == [(ADA, 1), (BEN, 2), (ADA, 3)]


def piece(process: int, epoch: int, serial: int, at: int, outcome: Outcome = Outcome.DONE) -> list[Deed]:
    """As a process tells it: what it begins, and what came of it."""
    begun = Deed(at, at, process, epoch, serial, Outcome.BEGUN)
    return [begun] if outcome is Outcome.BEGUN else [begun, Deed(at, at + 5, process, epoch, serial, outcome)]


def claim(process: int, epoch: int, at: int) -> list[Deed]:
    return [Deed(at, at + 5, process, epoch, 0, Outcome.CLAIMED)]


# Ada works, and is killed in her third piece; Ben claims, works, and is refused in the end.
DEEDS = [
    *claim(ADA, 1, 0),
    *piece(ADA, 1, 1, 10),
    *piece(ADA, 1, 2, 20),
    *piece(ADA, 1, 3, 30, Outcome.BEGUN),
    *claim(BEN, 2, 100),
    *piece(BEN, 2, 1, 110),
    *piece(BEN, 2, 2, 120, Outcome.REFUSED),
]
A1, A2, A3, B1, B2 = Entry(1, ADA, 1), Entry(1, ADA, 2), Entry(1, ADA, 3), Entry(2, BEN, 1), Entry(2, BEN, 2)


@pytest.mark.parametrize("entries", [(A1, A2, B1), (A1, A2, A3, B1)])
def test_work_that_was_done_once(entries: tuple[Entry, ...]) -> None:
    """What a killed process had begun may be there or not."""
    work = judge_work(DEEDS, entries)
    assert work.ok
    assert (work.done, work.refused, work.in_doubt, work.written) == (3, 1, 1, len(entries))
    assert work.in_doubt_written == (A3 in entries)


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ((A1, B1), "lost"),
        ((), "lost"),
        ((A1, A1, A2, B1), "twice"),
        ((A1, A2, A3, A3, B1), "twice"),
        ((A1, A2, B1, B2), "unexplained"),
        ((A1, A2, B1, Entry(2, CYD, 1)), "unexplained"),
        ((A1, A2, B1, A3), "out_of_order"),
    ],
)
def test_a_ledger_that_does_not_agree(entries: tuple[Entry, ...], fault: str) -> None:
    work = judge_work(DEEDS, entries)
    assert not work.ok
    assert getattr(work, fault) > 0


@pytest.mark.parametrize(("at", "stale"), [(90, 0), (104, 0), (110, 1)])
def test_a_write_of_the_past_that_was_made(at: int, stale: int) -> None:
    """Begun when a newer epoch had the ledger, and acknowledged. In the ledger it may be gone, or look harmless."""
    work = judge_work([*DEEDS, *piece(ADA, 1, 4, at)], (A1, A2, Entry(1, ADA, 4), B1))
    assert work.stale == stale
    assert work.ok is (stale == 0)


def test_a_process_that_wakes_up_and_notices() -> None:
    said = [*term(BEN, 2, 0, 100), Report(505, 506, BEN, False, 0), *term(BEN, 4, 800, 900)]
    deeds = [*piece(BEN, 2, 1, 90), *piece(BEN, 2, 2, 510, Outcome.REFUSED), *piece(BEN, 4, 3, 810)]
    thaw = judge_thaw("ben", 2, 100, 500, said, deeds)
    assert thaw.ok
    assert (thaw.refused, thaw.landed, thaw.believed) == (1, 0, 0)


def test_a_write_that_landed_before_the_freeze_and_was_answered_after_it() -> None:
    deeds = [Deed(95, 505, BEN, 2, 1, Outcome.DONE), *piece(BEN, 2, 2, 510, Outcome.REFUSED)]
    assert judge_thaw("ben", 2, 100, 500, [], deeds).ok


@pytest.mark.parametrize(
    ("said", "deeds"),
    [
        ([Report(505, 506, BEN, True, 2)], piece(BEN, 2, 2, 510, Outcome.REFUSED)),
        ([], [*piece(BEN, 2, 2, 505), *piece(BEN, 2, 3, 510, Outcome.REFUSED)]),
        ([], []),  # it tried nothing, so nothing is shown
        ([], piece(BEN, 2, 1, 50, Outcome.REFUSED)),
    ],
)
def test_a_process_that_wakes_up_and_goes_on(said: list[Report], deeds: list[Deed]) -> None:
    assert not judge_thaw("ben", 2, 100, 500, said, deeds).ok


def test_a_ledger_of_somebody_else_is_damage() -> None:
    assert read_ledger(None) == Ledger()
    assert read_ledger(b'{"entries":[[1,11,1]]}') == Ledger((A1,))
    for body in (b"hello", b'{"entries":[["one"]]}', b"\xff", b'{"entries":' + b"[" * 100_000):
        with pytest.raises(Damaged, match="ledger"):
            read_ledger(body)


async def test_a_leader_that_is_overtaken_in_the_middle_of_a_write_is_refused_in_the_end() -> None:
    """The write in between may have happened, as far as it knows; then it must ask again, and hear no."""
    store = ScriptedStore()
    told: list[Deed] = []

    def lead_of(epoch: int) -> Lead:
        holding = Holding(SYSTEM_CLOCK.read(), 60.0, 50.0)
        return Lead(
            namespace="demo",
            worker_id="ada",
            epoch=epoch,
            grant_id=f"g{epoch}",
            holding=holding,
            clock=SYSTEM_CLOCK,
            store=store,
            draw_id=new_id,
        )

    old, new = lead_of(1), lead_of(2)
    overtaken: list[Request] = []

    async def overtake(request: Request) -> None:
        if b"[1," in request.body and not overtaken:
            overtaken.append(request)
            await new.claim("ledger")

    store.always("replace", ANY, overtake)
    part = Part("memory://", "demo", "ada", "ledger", 0, lease_seconds=3.0, work_seconds=0.001)
    working = asyncio.create_task(Worker(lambda: old if not told else None, part, SYSTEM_CLOCK, told.append).run())
    async with asyncio.timeout(30):
        while not any(deed.outcome is Outcome.REFUSED for deed in told):
            await asyncio.sleep(0.01)
    working.cancel()
    value = await new.get("ledger")
    assert value is not None
    assert judge_work(told, read_ledger(value.body).entries).ok
    assert Outcome.DONE not in {deed.outcome for deed in told}


def test_a_demo_on_a_store_has_a_part_of_it_to_itself() -> None:
    directory = fresh_part_of(parse_url("file:///srv/app?shared=1"), lambda: "0123456789abcdef")
    assert directory.text() == "file:///srv/app/tenure-demo-0123456789ab?shared=1"
    bucket = fresh_part_of(parse_url("s3://bucket/some/prefix?region=eu-west-1"), lambda: "0123456789abcdef")
    assert bucket.shown == "s3://bucket/some/prefix/tenure-demo-0123456789ab/?region=eu-west-1"
    with pytest.raises(ConfigError, match="memory://"):
        fresh_part_of(parse_url("memory://"))


def test_every_verdict_can_be_no() -> None:
    """And says so in words that a person understands."""
    overlapping = spans(term(ADA, 1, 0, 100) + term(BEN, 2, 50, 200))
    same_epoch = spans(term(ADA, 1, 0, 100) + term(BEN, 1, 150, 200))
    lost = judge_work(DEEDS, (A1, B1))
    history = Audit(
        ok=False,
        namespace="demo",
        founded=True,
        terms=2,
        lease_epoch=3,
        unconfirmed=(),
        findings=(Finding(FindingKind.MISSING, "terms/2", "epoch 2 is not on record"),),
        findings_left_out=0,
        timeline=(),
    )
    changes = tuple(Change(cause, "ada", epoch, 1.0) for cause, epoch in (("kill", 2), ("freeze", 2), ("leave", 3)))
    for verdict, says in (
        (on_leaders(500, 1, overlapping), "TWO OF THEM LED AT ONCE"),
        (on_leaders(500, 0, same_epoch), "under one epoch"),
        (on_leaders(500, 0, []), "nobody"),
        (on_changes(changes), "epoch"),
        (on_work(lost, ""), "1 lost"),
        (on_work(judge_work([], ()), ""), "no work"),
        (on_work(None, "somebody else wrote there"), "somebody else wrote there"),
        (on_thaw(judge_thaw("ben", 2, 100, 500, [], piece(BEN, 2, 2, 505))), "1 writes under its old epoch"),
        (on_history(history), "epoch 2 is not on record"),
        (on_doctor(DoctorReport("file:///x", "file", False, ("it lies",)), "directory"), "NOT FIT, it lies"),
        (on_doctor(DoctorReport("file:///x", "file", None, ("it was silent",)), "directory"), "it was silent"),
    ):
        assert not verdict.ok, verdict
        assert says in verdict.says


def at(seconds: float) -> Reading:
    ns = int(seconds * S)
    return Reading(ns, ns, ns, ns)


class StoppedClock:
    def read(self) -> Reading:
        return at(100)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError


def report(process: int, seconds: float, epoch: int = 0) -> Report:
    return Report(int(seconds * S), int(seconds * S), process, bool(epoch), epoch)


def test_what_is_heard_late_does_not_revive_the_killed_or_wake_the_frozen() -> None:
    role = Role("ada", 0)
    role.hear(report(ADA, 1, epoch=1))
    assert (role.state, role.epoch) == (State.LEADING, 1)
    role.become(State.FROZEN, 2 * S)
    role.hear(report(ADA, 1.9, epoch=1))
    assert (role.state, role.epoch, role.last_epoch) == (State.FROZEN, 0, 1)
    role.become(State.STARTING, 5 * S)
    role.hear(report(ADA, 5.1))
    role.become(State.KILLED, 6 * S)
    role.hear(report(ADA, 5.9, epoch=3))
    assert not role.alive
    seen = [role.state_at(int(second * S)) for second in (-1, 0.5, 1.5, 3, 5.5, 7)]
    assert seen == [
        *(State.ABSENT, State.STARTING, State.LEADING),
        *(State.FROZEN, State.STANDING_BY, State.KILLED),
    ]


def stage_with_a_handover() -> Stage:
    """Ada leads from second 101, Ben from 107.3 on, without a gap: as close as it may be."""
    stage = Stage(lambda line: None, StoppedClock())
    for name, process, since in (("ada", ADA, 101.0), ("ben", BEN, 107.3), ("cyd", CYD, 900.0)):
        role = Role(name, 100 * S)
        for tenth in range(1005, 1150):
            leads = since <= tenth / 10 and not (process == ADA and tenth >= 1073)
            role.hear(report(process, tenth / 10, epoch=process if leads else 0))
        stage.actors.append(role)
    stage.open("kill", "ada is killed (SIGKILL), and cannot tell anybody. " * 2)
    stage.came_of[1] = "ada leads, epoch 1"
    return stage


@pytest.mark.parametrize("cells", [20, 31, 33, 71])
@pytest.mark.parametrize("now", [109.5, 114.9, 131.0])
def test_no_column_of_the_time_line_shows_two_leaders(cells: int, now: float) -> None:
    stage = stage_with_a_handover()
    strips = [strip(actor, stage, at(now), cells).plain for actor in stage.actors]
    assert all(len(each) <= cells for each in strips)
    assert {each.count("█") for each in zip(*strips, strict=True)} <= {0, 1}
    assert all("█" in each for each in strips[:2])
    assert "█" not in strips[2]


@pytest.mark.parametrize("width", [76, 80, 100, 120, 300])
def test_the_picture_fits_a_small_terminal(width: int) -> None:
    stage = stage_with_a_handover()
    stage.actors.append(Role("dan", 110 * S))
    lines = drawn(stage, width)
    assert len(lines) < MIN_HEIGHT
    assert max(map(len, lines)) <= min(width, 120)
    assert all(any(act in line for line in lines) for act in ACTS)
    assert any("ben" in line and "leading" in line and "12" in line for line in lines)


def test_the_picture_does_not_jump() -> None:
    stage = stage_with_a_handover()
    many = len(drawn(stage, 80))
    stage.sentence = "short"
    del stage.actors[1:]
    assert len(drawn(stage, 80)) == many


def drawn(stage: Stage, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(picture(stage, at(114), width))
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize(
    ("width", "height", "terminal", "shown"),
    [(80, 24, True, True), (80, 24, False, False), (60, 24, True, False), (80, 15, True, False)],
)
def test_where_there_is_no_room_there_are_plain_lines(width: int, height: int, terminal: bool, shown: bool) -> None:
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = Console(width=width, height=height, file=output, force_terminal=terminal, _environ={"TERM": "xterm"})
    assert can_show(console) is shown
