"""A job's life, its summary, and what the leader decides: the pure parts of polling."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.election.records import Damage, TooNew, encode
from tenure.errors import ConfigError
from tenure.plugins.poll import (
    Anywhere,
    CheckResult,
    CommandCheck,
    Failure,
    HttpCheck,
    InPartition,
    Job,
    JobState,
    On,
    PollOrchestrator,
    PollSchedule,
    PollWorker,
    Summary,
    TcpCheck,
)
from tenure.plugins.poll.book import Agent
from tenure.plugins.poll.decide import Ask, GiveUp, Limits, Wait, choose, first_due, next_step
from tenure.plugins.poll.job import (
    Adopted,
    Assigned,
    Declined,
    GivenUp,
    Refusal,
    Reported,
    Started,
    advance,
    bounded,
    decode_job,
    job_id,
    next_token,
    parse_job_id,
    shows,
)
from tenure.plugins.poll.summary import MAX_SUMMARY_BYTES, fold

PENDING = Job(write_id="w", schedule="web", number=7, fingerprint="f", timeout_ms=5000, epoch=3)
OK = CheckResult(True, 12.5, "200 OK")


def after(job: Job, *events: Any) -> Job:
    for event in events:
        changed = advance(job, event)
        assert isinstance(changed, Job), changed
        job = changed
    return job


ASKED = after(PENDING, Assigned(3, "b", "uid-b", 100))
RUNNING = after(ASKED, Started("uid-b", 100))
COMPLETED = after(RUNNING, Reported("uid-b", 100, OK))
FAILED = after(RUNNING, GivenUp(3, Failure.TIMEOUT, "not heard of"))


class TestAdvance:
    @pytest.mark.req("SV-4")
    def test_a_life(self) -> None:
        states = [job.state.value for job in (PENDING, ASKED, RUNNING, COMPLETED)]
        assert states == ["pending", "dispatching", "running", "completed"]
        assert COMPLETED.result == OK
        assert COMPLETED.ended_by == "worker"
        assert (ASKED.worker_id, ASKED.uid, ASKED.token, ASKED.attempt) == ("b", "uid-b", 100, 1)

    @pytest.mark.req("SV-4")
    @pytest.mark.parametrize("final", [COMPLETED, FAILED])
    @pytest.mark.parametrize(
        "event",
        [
            Assigned(99, "c", "uid-c", 10**9),
            Adopted(99),
            GivenUp(99, Failure.TIMEOUT, ""),
            GivenUp(99, Failure.NO_WORKER, ""),
            Started("uid-b", 100),
            Declined("uid-b", 100, ""),
            Reported("uid-b", 100, OK),
        ],
    )
    def test_a_final_state_never_changes(self, final: Job, event: Any) -> None:
        assert advance(final, event) == Refusal("final")

    @pytest.mark.parametrize("job", [PENDING, ASKED, RUNNING])
    @pytest.mark.parametrize("event", [Assigned(2, "c", "u", 10**9), Adopted(2), GivenUp(2, Failure.TIMEOUT, "")])
    def test_a_leader_of_an_older_epoch_touches_nothing(self, job: Job, event: Any) -> None:
        assert advance(job, event) == Refusal("newer-epoch")

    def test_another_worker_may_be_asked_until_one_begins(self) -> None:
        again = after(ASKED, Assigned(4, "c", "uid-c", 101))
        assert (again.worker_id, again.attempt, again.epoch) == ("c", 2, 4)
        assert advance(again, Started("uid-b", 100)) == Refusal("not-yours")
        assert advance(RUNNING, Assigned(4, "c", "uid-c", 101)) == Refusal("wrong-state")
        assert advance(ASKED, Assigned(4, "c", "uid-c", 100)) == Refusal("wrong-state"), "a token only rises"

    @pytest.mark.parametrize(
        ("job", "event", "reason"),
        [
            (PENDING, Started("uid-b", 0), "not-yours"),
            (ASKED, Started("uid-x", 100), "not-yours"),
            (ASKED, Started("uid-b", 99), "not-yours"),
            (ASKED, Reported("uid-b", 100, OK), "wrong-state"),
            (RUNNING, Started("uid-b", 100), "wrong-state"),
            (RUNNING, Declined("uid-b", 100, ""), "wrong-state"),
            (RUNNING, Reported("uid-b", 100, None), "wrong-state"),
            (RUNNING, GivenUp(3, Failure.NO_WORKER, ""), "wrong-state"),
            (PENDING, GivenUp(3, Failure.TIMEOUT, ""), "wrong-state"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, job: Job, event: Any, reason: Any) -> None:
        assert advance(job, event) == Refusal(reason)

    def test_a_worker_that_cannot_run_it_says_so(self) -> None:
        declined = after(ASKED, Declined("uid-b", 100, "no such schedule"))
        assert (declined.state, declined.failure) == (JobState.FAILED, Failure.EXECUTION_ERROR)

    @pytest.mark.parametrize(
        ("before", "event"),
        [
            (PENDING, Assigned(3, "b", "uid-b", 100)),
            (PENDING, Adopted(9)),
            (PENDING, GivenUp(3, Failure.NO_WORKER, "x")),
            (ASKED, Started("uid-b", 100)),
            (ASKED, Declined("uid-b", 100, "x")),
            (RUNNING, Reported("uid-b", 100, OK)),
        ],
    )
    def test_a_change_leaves_a_mark_by_which_it_is_known(self, before: Job, event: Any) -> None:
        assert not shows(before, event)
        assert shows(after(before, event), event)

    EVENTS = st.one_of(
        st.builds(
            Assigned, st.integers(0, 4), st.just("w"), st.sampled_from(["u1", "u2"]), st.integers(0, 6), st.just("")
        ),
        st.builds(Adopted, st.integers(0, 4)),
        st.builds(GivenUp, st.integers(0, 4), st.sampled_from(list(Failure)), st.just("d")),
        st.builds(Started, st.sampled_from(["u1", "u2"]), st.integers(0, 6)),
        st.builds(Declined, st.sampled_from(["u1", "u2"]), st.integers(0, 6), st.just("d")),
        st.builds(Reported, st.sampled_from(["u1", "u2"]), st.integers(0, 6), st.sampled_from([None, OK])),
    )

    @pytest.mark.req("SV-4")
    @given(st.lists(EVENTS, max_size=30))
    def test_whatever_happens_it_runs_at_most_once_and_ends_at_most_once(self, events: list[Any]) -> None:
        job = msgspec.structs.replace(PENDING, epoch=0)
        begun = ended = 0
        for event in events:
            changed = advance(job, event)
            if isinstance(changed, Refusal):
                continue
            assert changed.epoch >= job.epoch
            assert changed.token >= job.token
            assert isinstance(decode_job(changed.id, encode(changed)), Job)
            begun += changed.state is JobState.RUNNING is not job.state
            ended += changed.state.final
            job = changed
        assert begun <= 1
        assert ended <= 1


class TestBytes:
    @pytest.mark.parametrize("text", ["web-0000000007", "a.b-c_d-0000000001"])
    def test_ids_are_read_back(self, text: str) -> None:
        parsed = parse_job_id(text)
        assert parsed is not None
        assert job_id(*parsed) == text

    @pytest.mark.parametrize(
        "text", ["", "web", "web-7", "web-0000000000", "-0000000001", "../x-0000000001", "web-000000000१"]
    )
    def test_what_is_no_id_is_none(self, text: str) -> None:
        assert parse_job_id(text) is None

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"\xff",
            b"[]",
            b"{}",
            b"null",
            b"[" * 100_000,
            encode(msgspec.structs.replace(RUNNING, uid=None)),
            encode(msgspec.structs.replace(FAILED, failure=None)),
            encode(msgspec.structs.replace(COMPLETED, result=None)),
            encode(msgspec.structs.replace(PENDING, number=8)),
            encode(msgspec.structs.replace(PENDING, token=-1)),
            encode(msgspec.structs.replace(PENDING, detail="x" * 2000)),
        ],
    )
    def test_what_is_no_job_is_damage_and_never_an_error(self, body: bytes) -> None:
        assert isinstance(decode_job("web-0000000007", body), Damage)

    def test_a_newer_form_is_not_ours_to_judge(self) -> None:
        newer = encode(msgspec.structs.replace(PENDING, schema_version=2))
        assert isinstance(decode_job("web-0000000007", newer), TooNew)

    @given(st.text(max_size=6000))
    def test_any_text_fits_into_a_record(self, text: str) -> None:
        reported = after(RUNNING, Reported("uid-b", 100, CheckResult(False, 1.0, text), Failure.TIMEOUT, text))
        assert isinstance(decode_job(reported.id, encode(reported)), Job)
        assert len(bounded(text).encode()) <= 1024

    def test_secrets_are_taken_out(self) -> None:
        assert "hunter2" not in bounded("GET https://me:hunter2@example.org/?token=hunter2")

    def test_tokens_rise_over_epochs_and_within_one(self) -> None:
        first = next_token(4, 0)
        assert next_token(4, first) == first + 1
        assert next_token(5, first) > first
        assert next_token(0, first) == first + 1, "also where nobody is elected any more"


class TestSummary:
    def test_each_job_counts_once_and_under_one_heading(self) -> None:
        summary = Summary(write_id="none", schedule="web", folded=6)
        number = 6
        for job in (COMPLETED, FAILED, after(PENDING, GivenUp(3, Failure.NO_WORKER, "nobody"))):
            number += 1
            job = msgspec.structs.replace(job, number=number)
            summary = fold(summary, job, epoch=3, keep=10, keep_jobs=2)
            assert fold(summary, job, epoch=3, keep=10, keep_jobs=2) is summary, "twice is once"
        assert (summary.ok, summary.timeout, summary.no_worker, summary.total) == (1, 1, 1, 3)
        assert summary.consecutive_failures == 2
        assert summary.availability == 1.0, "the others say nothing about the service"
        assert (summary.folded, summary.first_kept) == (9, 8)
        assert summary.last_failure is Failure.NO_WORKER

    def test_a_check_that_took_too_long_is_a_service_that_did_not_answer(self) -> None:
        slow = after(RUNNING, Reported("uid-b", 100, CheckResult(False, 5000.0, ""), Failure.TIMEOUT))
        summary = fold(Summary(write_id="none", schedule="web"), slow, epoch=3, keep=10, keep_jobs=5)
        assert (summary.not_ok, summary.timeout, summary.availability) == (1, 0, 0.0)

    def test_percentiles_are_by_nearest_rank_of_the_kept_ones(self) -> None:
        summary = Summary(write_id="none", schedule="web")
        for number in range(1, 31):
            job = msgspec.structs.replace(COMPLETED, number=number, result=CheckResult(True, float(number)))
            summary = fold(summary, job, epoch=3, keep=20, keep_jobs=5)
        assert (summary.latency_ms_p50, summary.latency_ms_p95) == (20.0, 29.0)
        assert len(summary.kept) == 20

    def test_the_largest_fits(self) -> None:
        detail = "\N{GRINNING FACE}" * 256
        summary = Summary(write_id="none", schedule="s" * 64)
        for number in range(1, 1001):
            job = msgspec.structs.replace(
                COMPLETED, schedule="s" * 64, number=number, detail=detail, result=CheckResult(True, 1234.56789, detail)
            )
            summary = fold(summary, job, epoch=3, keep=1000, keep_jobs=5)
        assert len(encode(summary)) < MAX_SUMMARY_BYTES


LIMITS = Limits(dispatch_within=15, pickup_within=10, allowance=5, attempts=2)


def agent(worker_id: str, partition: str | None = None, concurrency: int = 2) -> Agent:
    return Agent(
        write_id="w",
        worker_id=worker_id,
        uid=f"uid-{worker_id}",
        ordinal=1,
        partition=partition,
        concurrency=concurrency,
    )


class TestDecide:
    def step(self, job: Job, waited: float, who: Agent | None = None, *, alive: bool = True) -> Any:
        return next_step(job, waited, who, asked_is_alive=alive, wanted="any worker", limits=LIMITS)

    @pytest.mark.req("SV-4")
    def test_a_job_for_which_nobody_is_there_fails_as_such_after_a_while(self) -> None:
        assert self.step(PENDING, 14.9) == Wait()
        assert self.step(PENDING, 99.0, agent("b")) == Ask(agent("b"))
        given_up = self.step(PENDING, 15.0)
        assert isinstance(given_up, GiveUp)
        assert given_up.failure is Failure.NO_WORKER
        assert "any worker" in given_up.detail

    @pytest.mark.req("SV-4")
    def test_a_worker_that_does_not_begin_is_not_waited_for_for_ever(self) -> None:
        assert self.step(ASKED, 9.9, agent("c")) == Wait()
        assert self.step(ASKED, 10.0, agent("c")) == Ask(agent("c"))
        assert self.step(ASKED, 1.0, agent("c"), alive=False) == Ask(agent("c"))
        assert self.step(ASKED, 1.0, None, alive=False) == Wait()
        assert self.step(ASKED, 10.0).failure is Failure.TIMEOUT
        twice = after(ASKED, Assigned(3, "c", "uid-c", 101))
        assert self.step(twice, 10.0, agent("d")).failure is Failure.TIMEOUT, "asked twice is enough"

    @pytest.mark.req("SV-4")
    def test_a_worker_that_began_gets_the_checks_time_and_an_allowance(self) -> None:
        assert self.step(RUNNING, 9.9, agent("c"), alive=False) == Wait()
        assert self.step(RUNNING, 10.0, agent("c")).failure is Failure.TIMEOUT

    def pick(self, assign: Any = None, **changes: Any) -> str | None:
        agents = [agent("a"), agent("b", "dc1"), agent("c", "dc1"), agent("d", "dc2")]
        settings: dict[str, Any] = {"alive": {"a", "b", "c", "d"}, "load": {}, "last_asked": {}, **changes}
        found = choose(agents, assign if assign is not None else Anywhere(), **settings)
        return found.worker_id if found is not None else None

    @pytest.mark.req("SV-4")
    def test_who_is_chosen(self) -> None:
        assert self.pick() == "a"
        assert self.pick(last_asked={"uid-a": 2, "uid-b": 1}) == "c", "round robin"
        assert self.pick(load={"uid-a": 1, "uid-b": 1, "uid-c": 1}) == "d", "the least loaded"
        assert self.pick(load={f"uid-{name}": 2 for name in "abcd"}) is None, "all are busy"
        assert self.pick(InPartition("dc1")) == "b"
        assert self.pick(InPartition("dc1"), alive={"a", "c"}) == "c"
        assert self.pick(InPartition("dc3")) is None
        assert self.pick(On("d")) == "d"
        assert self.pick(On("d"), alive={"a"}) is None
        assert self.pick(On("d"), alive=None) == "d", "nobody is elected, so nobody knows who lives"
        assert self.pick(InPartition("dc1"), not_uid="uid-b") == "c", "it had its chance"
        assert self.pick(On("d"), not_uid="uid-d") == "d", "there is no other"

    @pytest.mark.parametrize(
        ("since", "first"), [(None, 0.0), (0.0, 60.0), (20.0, 40.0), (61.0, 0.0), (1e9, 0.0), (-1e9, 60.0)]
    )
    def test_another_hosts_clock_moves_the_first_run_by_an_interval_at_most(
        self, since: float | None, first: float
    ) -> None:
        assert first_due(60.0, since) == first


class TestSettings:
    def test_the_fingerprint_is_of_what_runs_and_not_of_secrets(self) -> None:
        def of(check: Any, **settings: Any) -> str:
            return PollSchedule("web", check, **{"every": 5, **settings}).fingerprint

        url = "https://example.org/health"
        same = of(HttpCheck(url, headers={"Authorization": "Bearer one"}))
        assert same == of(HttpCheck(url, headers={"authorization": "Bearer two"}))
        assert same != of(HttpCheck(url))
        assert same != of(HttpCheck(url + "z", headers={"Authorization": "Bearer one"}))
        assert of(TcpCheck("db", 1)) != of(TcpCheck("db", 2))
        assert of(CommandCheck("true")) != of(CommandCheck("false"))
        assert of(CommandCheck("true")) != of(CommandCheck("true"), timeout=3)
        assert of(CommandCheck("true")) == of(CommandCheck("true"), every=50), "when it runs is the leader's alone"

    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (lambda: PollSchedule("", TcpCheck("db", 1), 5), "name of the schedule"),
            (lambda: PollSchedule("a/b", TcpCheck("db", 1), 5), "name of the schedule"),
            (lambda: PollSchedule("x" * 65, TcpCheck("db", 1), 5), "name of the schedule"),
            (lambda: PollSchedule("web", "ping", 5), "check of schedule 'web'"),  # type: ignore[arg-type]
            (lambda: PollSchedule("web", TcpCheck("db", 1), 0.5), "every of schedule 'web' is 0.5"),
            (lambda: PollSchedule("web", TcpCheck("db", 1), True), "every of"),
            (lambda: PollSchedule("web", TcpCheck("db", 1), float("nan")), "every of"),
            (lambda: PollSchedule("web", TcpCheck("db", 1), 5, timeout=0), "timeout of"),
            (lambda: PollSchedule("web", TcpCheck("db", 1), 5, assign="dc1"), "assign of"),  # type: ignore[arg-type]
            (lambda: InPartition(""), "partition is ''"),
            (lambda: On("x" * 200), "worker_id is"),
            (lambda: TcpCheck("", 1), "host is"),
            (lambda: TcpCheck("db", 0), "port is 0"),
            (lambda: HttpCheck("ftp://example.org"), "url must be http"),
            (lambda: HttpCheck("http://"), "url must be http"),
            (lambda: HttpCheck("http://example.org:99999/"), "url cannot be read"),
            (lambda: HttpCheck("http://example.org/\r\nX: y"), "url must be"),
            (lambda: HttpCheck("http://me:hunter2@example.org"), "user name or password"),
            (lambda: HttpCheck("http://example.org", expect=()), "expect is"),
            (lambda: HttpCheck("http://example.org", expect=(99,)), "expect has 99"),
            (lambda: HttpCheck("http://example.org", method="get"), "method is 'get'"),
            (lambda: HttpCheck("http://example.org", headers={"X": "a\r\nb"}), "value of header 'X'"),
            (lambda: HttpCheck("http://example.org", headers={"Host": "a"}), "headers has 'Host'"),
            (lambda: CommandCheck(), "argv is empty"),
            (lambda: CommandCheck("a\0b"), "argv has"),
            (lambda: CommandCheck("true", expect=(256,)), "expect has 256"),
            (lambda: CommandCheck("true", env={"A=": "x"}), "env has"),
            (lambda: PollOrchestrator([PollSchedule("web", TcpCheck("d", 1), 5)] * 2), "given twice"),
            (lambda: PollOrchestrator(["web"]), "schedules has 'web'"),  # type: ignore[list-item]
            (lambda: PollOrchestrator([], name=""), "name is ''"),
            (lambda: PollOrchestrator([], keep_jobs=0), "keep_jobs is 0"),
            (lambda: PollOrchestrator([], attempts=True), "attempts is True"),
            (lambda: PollOrchestrator([], allowance=float("inf")), "allowance is inf"),
            (lambda: PollWorker(None, None, []), "give a coordinator"),  # type: ignore[arg-type]
            (lambda: PollWorker(None, None, [], worker_id="a", concurrency=0), "concurrency is 0"),  # type: ignore[arg-type]
            (lambda: PollWorker(None, None, [], worker_id="a", partition=""), "partition is ''"),  # type: ignore[arg-type]
        ],
    )
    def test_what_cannot_work_is_refused_by_name(self, make: Any, says: str) -> None:
        with pytest.raises(ConfigError) as refused:
            make()
        assert says in str(refused.value)
        assert "hunter2" not in str(refused.value)
