"""Polling in simulated time: every job ends in exactly one final state, and its check is begun at most once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from tenure.plugins.poll import Failure, InPartition, JobState, On
from tests.simulated.fleet import QUICK, Node
from tests.simulated.poll_fleet import FOLDER, Polling

ROUGH: dict[str, Any] = {
    "lost_request": 0.02,
    "lost_reply": 0.03,
    "late_landing": 0.03,
    "repeated": 0.03,
    "server_error": 0.03,
    "slow_reply": 0.01,
}


@pytest.mark.req("SV-4")
def test_every_due_check_is_dispatched_to_an_available_worker_and_counted() -> None:
    with Polling(schedules={"web": {}, "db": {"every": 5.0}}) as polling:
        for name in "abc":
            polling.join(name)
        polling.fleet.lead()
        polling.fleet.run(100)
        polling.check_end()
        assert polling.finals()["failed"] == 0
        web, db = polling.summary("web"), polling.summary("db")
        assert web is not None
        assert db is not None
        assert 9 <= web.ok <= 11
        assert 18 <= db.ok <= 21
        assert web.availability == 1.0
        assert web.consecutive_failures == 0
        assert web.latency_ms_p50 is not None
        assert 450 <= web.latency_ms_p50 <= 550
        assert {states[0] for states in polling.states.values()} == {"pending"}
        assert ["pending", "dispatching", "running", "completed"] in polling.states.values()
        assert {name for _, name, _ in polling.runs} == {"a", "b", "c"}, "work goes round"
        names = [event.name for event in polling.events]
        assert names.count("plg:poll:job-completed") == web.ok + db.ok
        assert not polling.fleet.bucket.keys(FOLDER + "inbox/"), "notes are cleared away"


@pytest.mark.req("SV-4")
def test_a_partition_and_a_certain_worker_are_kept_to_and_nobody_is_reported_as_such() -> None:
    schedules: dict[str, dict[str, Any]] = {
        "dc1": {"assign": InPartition("dc1")},
        "on-c": {"assign": On("c")},
        "dc9": {"assign": InPartition("dc9")},
    }
    with Polling(schedules=schedules) as polling:
        polling.join("a")
        polling.join("b", worker={"partition": "dc1"})
        polling.join("c", worker={"partition": "dc2"})
        polling.fleet.lead()
        polling.fleet.run(80)
        polling.check_end()
        ran = {(name, run.schedule) for _, name, run in polling.runs}
        assert ran == {("b", "dc1"), ("c", "on-c")}
        nobody = polling.summary("dc9")
        assert nobody is not None
        assert nobody.no_worker == nobody.total >= 3
        assert nobody.consecutive_failures == nobody.total
        assert nobody.availability is None, "nothing is known about the service"
        failed = [event.job for event in polling.events if event.name == "plg:poll:job-failed"]
        assert {job.failure for job in failed} == {Failure.NO_WORKER}
        assert "partition 'dc9'" in failed[0].detail


@pytest.mark.req("SV-4")
def test_a_check_that_takes_too_long_or_raises_or_is_not_known_ends_as_such() -> None:
    schedules: dict[str, dict[str, Any]] = {
        "slow": {"takes": 30.0, "timeout": 2.0},
        "wrong": {"kind": "raises"},
        "silent": {"kind": "raises what cannot be told"},
        "other": {},
    }
    with Polling(schedules=schedules) as polling:
        polling.join("a", executes=False)
        polling.fleet.lead()
        polling.join("b", schedules={"other": {"kind": "another definition"}})
        polling.fleet.run(60)
        polling.check_end()
        slow, wrong, other = polling.summary("slow"), polling.summary("wrong"), polling.summary("other")
        assert slow is not None
        assert wrong is not None
        assert other is not None
        assert slow.last_failure is Failure.TIMEOUT
        assert slow.last_result is not None
        assert 1900 <= slow.last_result.latency_ms <= 2100
        assert slow.not_ok == slow.total, "the service did not answer: that was measured"
        assert wrong.last_failure is Failure.EXECUTION_ERROR
        assert "cannot be done" in wrong.last_detail
        silent = polling.summary("silent")
        assert silent is not None
        assert (silent.last_failure, silent.last_detail) == (
            Failure.EXECUTION_ERROR,
            "Silent: (its text cannot be had)",
        )
        assert other.last_failure is Failure.EXECUTION_ERROR
        assert "defined otherwise" in other.last_detail
        assert not [run for _, _, run in polling.runs if run.schedule == "other"], "nothing of it was run"
        assert polling.workers["b"].status().declined == other.total


@pytest.mark.req("SV-4")
def test_a_worker_that_dies_while_it_runs_a_check_makes_it_a_timeout() -> None:
    with Polling(schedules={"web": {"takes": 3.0}}) as polling:
        leader = polling.join("a", executes=False)
        polling.fleet.lead()
        worker = polling.join("b", leads=False)
        polling.fleet.until(lambda: polling.runs)
        job_id = polling.runs[0][2].job_id
        worker.host.crash()
        took = polling.fleet.until(lambda: polling.states[job_id][-1] == "failed")
        assert 14.0 <= took <= 19.0, "the check's timeout, and the allowance, on the leader's clock"
        assert polling.job(job_id).failure is Failure.TIMEOUT
        assert polling.job(job_id).result is None
        assert leader.leads


@pytest.mark.req("SV-4")
def test_a_worker_that_dies_before_it_begins_is_replaced_by_another() -> None:
    with Polling(schedules={"web": {}}, worker={"poll_interval": 60.0}) as polling:
        polling.join("a", executes=False)
        polling.fleet.lead()
        first = polling.join("b", leads=False)
        polling.fleet.until(lambda: "dispatching" in polling.states.get("web-0000000001", []))
        first.host.crash()
        polling.join("c", leads=False, worker={"poll_interval": 1.0})
        polling.fleet.until(lambda: polling.states["web-0000000001"][-1] == "completed")
        job = polling.job("web-0000000001")
        assert (job.worker_id, job.attempt) == ("c", 2)
        assert polling.violations == []


def frozen_before_its_start() -> Polling:
    """Worker b reads that the job is its own, and stands still before it can say that it begins."""
    with Polling(schedules={"web": {"every": 300.0}}) as polling:
        polling.join("a", executes=False)
        polling.fleet.lead()
        worker = polling.join("b", leads=False)
        struck: list[float] = []

        def freeze(host: str, verb: str, key: str, at: float) -> None:
            if not struck and host == "b" and verb == "get" and key.startswith(FOLDER + "jobs/"):
                struck.append(at)
                polling.fleet.world.call_at(at + 0.001, worker.host.freeze, 40.0)

        polling.fleet.network.on_request = freeze
        polling.fleet.run(120)
        assert struck
        return polling


@pytest.mark.req("SV-4")
def test_a_worker_whose_start_is_rejected_does_not_run_the_check() -> None:
    polling = frozen_before_its_start()
    assert polling.states["web-0000000001"] == ["pending", "dispatching", "dispatching", "failed"]
    assert polling.runs == []
    assert polling.workers["b"].status().stale == 1
    assert polling.violations == []


@pytest.mark.req("SV-4")
def test_a_late_result_is_dropped_and_counted() -> None:
    with Polling(schedules={"web": {"takes": 3.0}}) as polling:
        polling.join("a", executes=False)
        polling.fleet.lead()
        worker = polling.join("b", leads=False)
        polling.fleet.until(lambda: polling.runs)
        job_id = polling.runs[0][2].job_id
        worker.host.freeze(60.0)
        polling.fleet.until(lambda: polling.states[job_id][-1] == "failed")
        polling.fleet.run(70)
        assert polling.states[job_id] == ["pending", "dispatching", "running", "failed"]
        assert polling.workers["b"].status().late == 1
        assert polling.violations == []


def test_old_jobs_are_removed_and_what_lands_late_under_their_names_is_not_theirs() -> None:
    with Polling(schedules={"web": {"every": 2.0}}, orchestrator={"keep_jobs": 3, "sweep_interval": 20.0}) as polling:
        polling.join("a")
        polling.fleet.lead()
        polling.fleet.run(60)
        kept = polling.fleet.bucket.keys(FOLDER + "jobs/")
        assert len(kept) <= 4
        summary = polling.summary()
        assert summary is not None
        assert summary.total > 15
        ghost = msgspec.structs.replace(_pending(polling), number=2)
        polling.put_job(ghost)
        polling.fleet.run(30)
        assert polling.fleet.bucket.body(f"{FOLDER}jobs/web-0000000002.json") is None
        polling.check_end()


def _pending(polling: Polling) -> Any:
    key = polling.fleet.bucket.keys(FOLDER + "jobs/")[-1]
    job = polling.job(key.removeprefix(FOLDER + "jobs/").removesuffix(".json"))
    return msgspec.structs.replace(job, state=JobState.PENDING, uid=None, worker_id=None, failure=None, result=None)


class TestFailover:
    @pytest.mark.req("SV-4")
    @pytest.mark.parametrize("seed", range(6))
    def test_a_leader_that_crashes_at_any_callback_loses_no_job_and_none_ends_twice(self, seed: int) -> None:
        with Polling(seed, schedules={"web": {"takes": 1.0}, "db": {"every": 4.0}}) as polling:
            for name in "abc":
                polling.join(name)
            for _ in range(4):
                leader = polling.fleet.lead()
                polling.fleet.run(polling.fleet.world.random.uniform(2.0, 12.0))
                leader.host.crash_after(polling.fleet.world.random.randint(1, 200))
                _until_dead(polling, leader)
                polling.fleet.run(5)
                polling.join(leader.name)
            polling.fleet.lead()
            polling.fleet.run(60)
            polling.check_end()
            assert len(polling.states) > 15

    @pytest.mark.req("SV-4")
    def test_a_job_that_was_in_flight_goes_on_under_the_new_leader(self) -> None:
        with Polling(schedules={"web": {"takes": 25.0, "timeout": 40.0}}) as polling:
            leader = polling.join("a", executes=False)
            polling.fleet.lead()
            polling.join("b")
            polling.fleet.until(lambda: polling.runs)
            job_id = polling.runs[0][2].job_id
            leader.host.crash()
            polling.fleet.until(lambda: polling.states[job_id][-1] == "completed", within=60)
            polling.fleet.run(30)
            assert polling.states[job_id] == ["pending", "dispatching", "running", "running", "completed"]
            assert polling.job(job_id).epoch == 2, "the new leader answers for it"
            polling.check_end()

    @pytest.mark.req("SV-4")
    def test_a_worker_that_was_chosen_and_not_told_is_told_by_the_next_leader(self) -> None:
        with Polling() as polling:
            leader = polling.join("a", executes=False)
            polling.fleet.lead()
            polling.join("b", executes=False)
            polling.join("c", leads=False)

            def crash(host: str, verb: str, key: str, at: float) -> None:
                if host == "a" and verb == "create" and key.startswith(FOLDER + "inbox/"):
                    polling.fleet.network.cut("a")
                    leader.host.crash()

            polling.fleet.network.on_request = crash
            polling.fleet.until(lambda: polling.states.get("web-0000000001", [""])[-1] == "completed")
            job = polling.job("web-0000000001")
            assert (job.worker_id, job.attempt) == ("c", 1)
            assert not leader.host.alive

    def test_the_phase_is_kept_over_a_change_of_leader(self) -> None:
        with Polling(schedules={"web": {"every": 100.0}}) as polling:
            leader = polling.join("a")
            polling.fleet.lead()
            polling.join("b")
            polling.fleet.until(lambda: polling.runs)
            leader.host.crash()
            polling.fleet.until(lambda: len(polling.runs) == 2, within=200)
            apart = polling.runs[1][0] - polling.runs[0][0]
            assert 90 <= apart <= 110  # either run may come later than its time by some seconds

    @pytest.mark.parametrize("off", [-1e6, 1e6])
    def test_a_wall_clock_that_is_off_moves_the_phase_by_an_interval_at_most(self, off: float) -> None:
        with Polling(schedules={"web": {"every": 50.0}}) as polling:
            leader = polling.join("a")
            polling.fleet.lead()
            node = polling.join("b")
            node.host.step_wall(off)
            polling.fleet.until(lambda: polling.runs)
            polling.fleet.run(5)
            leader.host.crash()
            polling.fleet.until(lambda: polling.fleet.leader is node)
            polling.fleet.until(lambda: len(polling.runs) == 2, within=60)


def _until_dead(polling: Polling, node: Node) -> None:
    polling.fleet.until(lambda: not node.host.alive)


class TestRoughNetwork:
    @pytest.mark.req("SV-4")
    @pytest.mark.parametrize("seed", range(8))
    def test_whatever_the_network_does_each_job_ends_once(self, seed: int) -> None:
        rough(seed)

    def test_the_faults_that_this_relies_on_did_happen(self) -> None:
        hits = sum((Counter(rough(seed)) for seed in (97, 98, 99)), Counter())
        for fault in ("lost_reply", "late_landing_applied", "late_landing_rejected", "server_error_applied"):
            assert hits[fault] > 0, fault


def rough(seed: int, minutes: float = 4.0) -> Any:
    """Faults, pauses and crashes of anybody; then calm, and the checker's verdict."""
    schedules: dict[str, dict[str, Any]] = {
        "web": {"takes": 1.0, "every": 4.0},
        "db": {"takes": 0.0, "every": 3.0, "timeout": 1.0},
        "slow": {"takes": 4.0, "every": 6.0, "timeout": 3.0},
    }
    limits = {"dispatch_within": 6.0, "pickup_within": 6.0, "allowance": 5.0, "keep_jobs": 3, "sweep_interval": 15.0}
    with Polling(seed, schedules=schedules, orchestrator=limits) as polling:
        world, network = polling.fleet.world, polling.fleet.network
        for name in "abc":
            polling.join(name)
        polling.fleet.lead()
        network.change(**ROUGH)
        end = world.now + 60 * minutes
        while world.now < end:
            polling.fleet.run(world.random.uniform(3.0, 15.0))
            node = polling.fleet.nodes[world.random.choice("abc")]
            strike = world.random.random()
            if not node.host.alive:
                polling.join(node.name)
            elif strike < 0.3:
                node.host.crash_after(world.random.randint(1, 100))
            elif strike < 0.6:
                node.host.freeze_after(world.random.randint(1, 100), world.random.uniform(1.0, 40.0))
        network.reset()
        for name in "abc":
            node = polling.fleet.nodes[name]
            node.host.disarm()
            if not node.host.alive:
                polling.join(name)
        polling.fleet.run(150)
        polling.check_end()
        assert len(polling.states) > 60
        return network.hits


# Epochs


def fenced(**changes: Any) -> Polling:
    return Polling(
        schedules={"web": {"every": 3600.0}}, config=QUICK.replace(**changes), orchestrator={"keep_jobs": 1000}
    )


def hand_over(polling: Polling, epoch: int, number: int) -> str:
    """A task of that epoch turns up in worker b's inbox, as a leader of then would have put it."""
    done = polling.job("web-0000000001")
    worker = polling.workers["b"]
    job = msgspec.structs.replace(
        done,
        number=number,
        state=JobState.DISPATCHING,
        worker_id="b",
        uid=worker.uid,
        epoch=epoch,
        token=done.token + number,
        attempt=1,
        ended_by=None,
        result=None,
        failure=None,
    )
    polling.put_job(job)
    polling.fleet.bucket.corrupt(f"{FOLDER}inbox/worker={worker.uid}/{job.id}.1", b"")
    polling.fleet.run(4)
    return polling.job(job.id).state.value


def settle_at_epoch(polling: Polling, epoch: int) -> None:
    """Node a leads again and again; node b, which never does, executes."""
    node = polling.join("a", executes=False)
    polling.fleet.lead()
    polling.join("b", leads=False)
    polling.fleet.until(lambda: polling.finals())
    while polling.workers["b"]._coordinator.get_epoch() < epoch:  # type: ignore[union-attr]
        leader = polling.fleet.lead()
        leader.done(leader.service.step_down())
        polling.fleet.lead()
        polling.fleet.run(8)
    assert node.host.alive


def drift(polling: Polling) -> int:
    return polling.fleet.nodes["b"].service.get_metrics().epoch_drift_events


@pytest.mark.req("EF-2", "EF-5")
def test_a_task_of_a_former_leader_is_refused_and_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    with fenced() as polling:
        settle_at_epoch(polling, 3)
        assert hand_over(polling, 3, 50) == "completed"
        polling.fleet.run(20)  # past every grace
        assert drift(polling) == 0
        assert hand_over(polling, 2, 51) == "dispatching"
        assert drift(polling) == 1
        assert hand_over(polling, 1, 52) == "dispatching"
        polling.fleet.run(10)
        assert drift(polling) == 2, "one for each task, however often it is looked at"
        assert polling.workers["b"].status().refused == 2
        assert "a task of epoch 2 is refused" in caplog.text


@pytest.mark.req("EF-2")
def test_an_epoch_that_the_coordinator_has_seen_is_known_without_any_task_of_it() -> None:
    with fenced() as polling:
        settle_at_epoch(polling, 3)
        assert hand_over(polling, 1, 50) == "dispatching"
        assert drift(polling) == 1


@pytest.mark.req("EF-3")
def test_a_task_of_a_higher_epoch_is_accepted_and_becomes_the_last_known() -> None:
    with fenced() as polling:
        settle_at_epoch(polling, 1)
        assert hand_over(polling, 5, 50) == "completed"
        assert hand_over(polling, 3, 51) == "dispatching"
        assert drift(polling) == 1


@pytest.mark.req("EF-4")
def test_grace_is_for_the_epoch_just_before_and_soon_after_the_change(caplog: pytest.LogCaptureFixture) -> None:
    with fenced(epoch_grace_period=30.0) as polling:
        settle_at_epoch(polling, 2)
        assert hand_over(polling, 2, 49) == "completed"  # this process has seen epoch 2
        leader = polling.fleet.lead()
        leader.done(leader.service.step_down())
        polling.fleet.lead()
        polling.fleet.run(8)
        assert hand_over(polling, 3, 50) == "completed"
        assert hand_over(polling, 2, 51) == "completed"
        assert "arrived late, and is accepted" in caplog.text
        assert hand_over(polling, 1, 52) == "dispatching", "no grace for older ones"
        polling.fleet.run(31)
        assert hand_over(polling, 2, 53) == "dispatching", "and none for ever"
        assert drift(polling) == 2


@pytest.mark.req("EF-6")
def test_without_fencing_every_task_is_accepted_and_nothing_counted() -> None:
    with fenced(epoch_fencing_enabled=False) as polling:
        settle_at_epoch(polling, 3)
        assert hand_over(polling, 1, 50) == "completed"
        assert drift(polling) == 0


def test_a_leader_that_sees_a_higher_epoch_in_a_record_leaves_it_alone() -> None:
    with Polling(schedules={"web": {"takes": 4.0, "every": 30.0}}) as polling:
        polling.join("a")
        polling.fleet.lead()
        polling.fleet.until(lambda: polling.runs)
        job = polling.job(polling.runs[0][2].job_id)
        polling.put_job(msgspec.structs.replace(job, epoch=9, state=JobState.PENDING, uid=None, worker_id=None))
        polling.fleet.run(60)
        assert polling.job(job.id).epoch == 9
        assert polling.job(job.id).state is JobState.PENDING
        assert "epoch 9" in polling.orchestrators["a"].status().problems["web"]


class TestDamage:
    """What lies in a bucket is untrusted."""

    @pytest.mark.parametrize("body", [b"", b"\xff\x00", b"[]", b'{"schemaVersion": 1}', b"x" * 100_000])
    def test_a_job_that_cannot_be_read_has_failed_and_the_next_goes_on(self, body: bytes) -> None:
        with Polling(schedules={"web": {"takes": 4.0}}) as polling:
            polling.join("a")
            polling.fleet.lead()
            polling.fleet.until(lambda: polling.runs)
            key = f"{FOLDER}jobs/{polling.runs[0][2].job_id}.json"
            polling.fleet.bucket.corrupt(key, body)
            polling.fleet.run(40)
            job = polling.job(polling.runs[0][2].job_id)
            assert job.failure is Failure.EXECUTION_ERROR
            assert "unreadable" in job.detail
            assert polling.workers["a"].status().late == 1
            summary = polling.summary()
            assert summary is not None
            assert (summary.execution_error, summary.folded) == (1, summary.total)
            assert summary.ok >= 2

    def test_results_that_cannot_be_read_are_counted_anew_by_the_next_leader(self) -> None:
        with Polling(orchestrator={"keep_jobs": 3}) as polling:
            leader = polling.join("a")
            polling.fleet.lead()
            polling.join("b")
            polling.fleet.run(60)
            leader.host.crash()
            polling.fleet.bucket.corrupt(f"{FOLDER}results/schedule=web.json", b"nonsense")
            before = max(polling.states)
            polling.fleet.until(lambda: polling.fleet.leader)
            polling.fleet.run(40)
            summary = polling.summary()
            assert summary is not None
            assert 3 <= summary.total < summary.folded
            assert max(polling.states) > before, "no number is used twice"
            assert polling.violations == []

    def test_what_a_newer_tenure_wrote_is_left_alone(self) -> None:
        with Polling(schedules={"web": {}, "db": {}}) as polling:
            polling.fleet.bucket.corrupt(f"{FOLDER}results/schedule=web.json", b'{"schemaVersion": 9, "new": true}')
            polling.join("a")
            polling.fleet.lead()
            polling.fleet.run(40)
            assert (
                polling.fleet.bucket.body(f"{FOLDER}results/schedule=web.json") == b'{"schemaVersion": 9, "new": true}'
            )
            assert "newer tenure" in polling.orchestrators["a"].status().problems["web"]
            assert {run.schedule for _, _, run in polling.runs} == {"db"}

    @pytest.mark.parametrize("kind", ["job", "agent", "another's agent"])
    def test_nor_is_anything_else_of_it_touched(self, kind: str) -> None:
        """While work goes on, and when the process ends."""
        with Polling(schedules={"web": {}, "db": {}}) as polling:
            node = polling.join("a")
            polling.fleet.lead()
            polling.fleet.run(20)
            key = (
                FOLDER
                + {
                    "job": f"jobs/{max(id for id in polling.states if id.startswith('web-'))[:-10]}{9999:010d}.json",
                    "agent": "agents/worker=a.json",
                    "another's agent": "agents/worker=zz.json",
                }[kind]
            )
            polling.fleet.bucket.corrupt(key, b'{"schemaVersion": 9, "new": true}')
            polling.fleet.run(60)
            node.run(polling.workers["a"].stop())
            polling.fleet.run(10)
            assert polling.fleet.bucket.body(key) == b'{"schemaVersion": 9, "new": true}'
            assert polling.workers["a"].status().replaced == (kind == "agent")

    def test_other_peoples_objects_are_passed_over(self) -> None:
        with Polling() as polling:
            for key in ("jobs/x", "jobs/web-12.json", "agents/x.json", "inbox/x/y", "inbox/x", "results/x.json"):
                polling.fleet.bucket.corrupt(FOLDER + key, b"?")
            polling.fleet.bucket.corrupt(FOLDER + "agents/worker=zz.json", b"?")
            polling.join("a")
            polling.fleet.lead()
            polling.fleet.run(40)
            polling.check_end()
            assert polling.finals()["completed"] >= 3


@pytest.mark.req("SV-4")
def test_a_schedule_that_is_no_longer_configured_brings_its_open_job_to_an_end() -> None:
    with Polling(schedules={"web": {}, "old": {"takes": 20.0, "timeout": 30.0}}) as polling:
        leader = polling.join("a")
        polling.fleet.lead()
        polling.fleet.until(lambda: any(run.schedule == "old" for _, _, run in polling.runs))
        del polling.schedules["old"]
        polling.join("b")
        leader.host.crash()
        polling.fleet.until(lambda: polling.fleet.leader)
        polling.fleet.run(120)
        assert polling.states["old-0000000001"][-1] == "failed"
        assert polling.job("old-0000000001").failure is Failure.TIMEOUT
        assert "old-0000000002" not in polling.states
        assert polling.violations == []


def test_a_leader_that_does_nothing_asks_for_nothing() -> None:
    with Polling(schedules={"web": {"every": 3000.0}}, orchestrator={"sweep_interval": 3600.0}) as polling:
        polling.join("a", executes=False)
        polling.fleet.lead()
        polling.join("b", leads=False)
        polling.fleet.until(lambda: polling.finals())
        polling.fleet.run(20)
        asked: list[str] = []
        polling.fleet.network.on_request = lambda host, verb, key, at: (
            asked.append(verb) if host == "a" and key.startswith(FOLDER) else None
        )
        polling.fleet.run(600)
        assert asked == []


@pytest.mark.req("SV-4")
def test_a_check_whose_result_and_whose_note_were_both_lost_is_not_begun_again() -> None:
    """Its worker is cut off just as it begins, for longer than it offers its result."""
    settings = {"allowance": 300.0}
    with Polling(schedules={"web": {"every": 3000.0}}, orchestrator=settings) as polling:
        polling.join("a", executes=False)
        polling.fleet.lead()
        polling.join("b", leads=False)
        cut: list[float] = []

        def cut_off(host: str, verb: str, key: str, at: float) -> None:
            if not cut and host == "b" and verb == "delete" and key.startswith(FOLDER + "inbox/"):
                cut.append(at)
                polling.fleet.network.cut("b")
                polling.fleet.world.call_at(at + 100.0, polling.fleet.network.heal, "b")

        polling.fleet.network.on_request = cut_off
        polling.fleet.run(90)
        assert cut
        assert len(polling.runs) == 1
        assert polling.fleet.bucket.keys(FOLDER + "inbox/"), "the note is still there"
        polling.fleet.run(60)
        assert polling.violations == []
        assert len(polling.runs) == 1
        assert polling.states["web-0000000001"][-1] == "running", "until its leader gives up on it"
        polling.fleet.run(250)
        assert polling.states["web-0000000001"][-1] == "failed"
