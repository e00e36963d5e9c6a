"""What could say no is not true whatever it says: it is the answer, or it raises (WA-2)."""

from __future__ import annotations

import importlib
import pkgutil

import msgspec
import pytest

import tenure
from tenure import blocking
from tenure.blocking.portal import Flag
from tenure.coordinator.audit import Audit
from tenure.coordinator.breaker import CircuitBreakerStatus
from tenure.coordinator.fenced import FencedValue
from tenure.coordinator.fencing import EpochFence
from tenure.coordinator.lead import Lead
from tenure.coordinator.lock import Held
from tenure.database import storage
from tenure.database.gc import Collected
from tenure.database.records import Inserted, Page
from tenure.doctor.report import Check, Report
from tenure.election.holding import Holding
from tenure.errors import WriteUnknown
from tenure.plugins.cluster_health.report import Observation, judge
from tenure.plugins.poll import CheckResult, JobState, Verdict
from tenure.plugins.poll.summary import Outcome
from tenure.store import Attempt, Settled, Unknown
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock
from tests.unit.leases import numbered


def test_a_task_that_is_refused_is_false() -> None:
    """The signature of the first design: `if not validate_epoch(epoch): return` must not execute the task."""
    clock = SimulatedClock()
    fence = EpochFence()
    fence.observe(6, clock.read())
    assert not fence.validate_epoch(5, clock.read())
    assert fence.validate_epoch(6, clock.read())
    fence.observe(7, clock.read())
    late = fence.validate_epoch(6, clock.read())
    assert late
    assert late.reason == "grace_period"


def test_a_lead_is_true_while_it_is_current() -> None:
    clock = SimulatedClock()
    lead = Lead(
        namespace="default",
        worker_id="ada",
        epoch=7,
        grant_id="g7",
        holding=Holding(clock.read(), 14.85, 10.0),
        clock=clock,
        store=MemoryStore(),
        draw_id=numbered("w"),
    )
    leader = blocking.Leader(lead, None, Flag())  # type: ignore[arg-type]
    assert lead
    assert leader
    assert not leader.lost
    clock.advance(10.5)
    assert not lead
    assert not leader
    assert leader.lost


def test_a_lock_is_true_while_it_is_held() -> None:
    clock = SimulatedClock()
    held = Held(name="job", owner="ada", token=7, holding=Holding(clock.read(), 14.85, 10.0), clock=clock)
    in_threads = blocking.Held(None, held)  # type: ignore[arg-type]
    assert held
    assert in_threads
    clock.advance(10.5)
    assert not held
    assert not in_threads


def collected(failed: int) -> Collected:
    return Collected("memory://", False, True, 1, 1, 1, 0, 0, 0, 0, failed, ())


def audit(ok: bool) -> Audit:
    return Audit(ok, "default", True, 1, 1, (), (), 0, ())


@pytest.mark.parametrize(
    ("yes", "no"),
    [
        (FencedValue(b"", 3, "default"), FencedValue(None, 3, "default")),
        (Verdict(True), Verdict(False, "refused")),
        (CheckResult(True, 1.0), CheckResult(False, 1.0)),
        (collected(0), collected(1)),
        (audit(True), audit(False)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_answer_of_two_values_is_true_or_false(yes: object, no: object) -> None:
    assert yes
    assert not no


@pytest.mark.parametrize(
    ("answer", "instead"),
    [
        (Settled(Attempt("k", None), Unknown(WriteUnknown("lost"))), "match its `outcome`"),
        (Inserted(0, "a", error=WriteUnknown("lost")), "`error`"),
        (Page(()), "`records`"),
        (storage.Page((), None), "`entries`"),
        (storage.Batch({}, {"a": WriteUnknown("lost")}), r"`check\(\)`"),
        (Check("read", None), "`ok`"),
        (Report("memory://", "memory", None, ()), "`fit`"),
        (judge(Observation(node="a")), "`status`"),
        (Outcome(1, JobState.FAILED), "`ok`"),
        (CircuitBreakerStatus("open", 5, 5, 30.0, 1), "`state`"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_answer_of_more_values_is_never_a_bool(answer: object, instead: str) -> None:
    with pytest.raises(TypeError, match=f"^{type(answer).__name__} is not true or false: .*{instead}"):
        bool(answer)


NOT_ASKED = tuple(
    f"tenure.{part}" for part in ("__main__", "asgi", "cli", "dashboard", "demo", "simulate", "telemetry", "testing")
)
"""Parts whose answers are for themselves, or that need an extra."""


def structs() -> list[type[msgspec.Struct]]:
    for module in pkgutil.walk_packages(tenure.__path__, "tenure."):
        if not module.name.startswith(NOT_ASKED):
            importlib.import_module(module.name)
    found: list[type[msgspec.Struct]] = []
    ahead: list[type[msgspec.Struct]] = [msgspec.Struct]
    while ahead:
        below = ahead.pop().__subclasses__()
        found += below
        ahead += below
    return [
        kind for kind in found if kind.__module__.startswith("tenure.") and not kind.__module__.startswith(NOT_ASKED)
    ]


def says_yes_or_no(kind: type[msgspec.Struct]) -> bool:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return any(fields.get(name) in (bool, bool | None) for name in ("ok", "valid", "fit"))


def test_no_other_answer_is_always_true() -> None:
    """Whatever has a field that says yes or no has been thought of, also what is added later."""
    saying = [kind for kind in structs() if says_yes_or_no(kind)]
    assert {kind.__name__ for kind in saying} >= {"EpochValidation", "CheckResult", "Audit", "Report"}
    assert [kind.__qualname__ for kind in saying if not hasattr(kind, "__bool__")] == []
