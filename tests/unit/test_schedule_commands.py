"""A command that lies in the bucket is run by a process that knows it by itself, and by no other."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure import Database, RequestRefused, SchedulerPlugin, every
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import CoordinatorConfig
from tenure.errors import ConfigError
from tenure.ledger import Stamp
from tenure.plugins.scheduler import CommandPolicy, OccurrenceRecord
from tenure.plugins.scheduler.commands import MAX_ALLOWED, Commands
from tenure.plugins.scheduler.events import CommandRefused, JobUnknown
from tenure.plugins.scheduler.job import CommandTarget, FunctionTarget, Job, Origin, at, job_from
from tenure.plugins.scheduler.records import Defined, Outcome, Work
from tests.unit.schedules import START_MS, Desk, declared

QUICK = CoordinatorConfig(startup_jitter_max=0.0)
TRUE = CommandTarget(("true",))


def target(*argv: str, cwd: str = "") -> CommandTarget:
    return CommandTarget(argv, cwd)


class TestWhich:
    def test_by_default_those_that_the_code_declares_word_for_word(self) -> None:
        commands = Commands()
        commands.declare(target("pg_dump", "shop", cwd="/data"))
        assert commands.refusal(target("pg_dump", "shop", cwd="/data")) is None
        for other in (
            target("pg_dump", "shop"),
            target("pg_dump", "shop", cwd="/data/"),
            target("pg_dump", "shop", cwd="/tmp"),
            target("pg_dump", cwd="/data"),
            target("pg_dump", "shop", "--file=/etc/cron.d/x", cwd="/data"),
            target("./pg_dump", "shop", cwd="/data"),
            target("pg_dump shop", cwd="/data"),
        ):
            assert commands.refusal(other) is not None

    def test_a_list_has_them_word_for_word_or_with_any_further_arguments(self) -> None:
        commands = Commands([("backup", "--all"), ["/usr/bin/report", "-q", ...]])
        for allowed in (
            target("backup", "--all"),
            target("/usr/bin/report", "-q"),
            target("/usr/bin/report", "-q", "x", "y"),
        ):
            assert commands.refusal(allowed) is None
        for other in (target("backup"), target("backup", "--all", "x"), target("/usr/bin/report"), target("report")):
            assert "SchedulerPlugin(commands=[…])" in (commands.refusal(other) or "")

    def test_a_folder_that_the_bucket_names_is_no_part_of_what_was_allowed(self) -> None:
        """`./backup`, or a module of Python's, is another program in another folder."""
        commands = Commands([("./backup",), ("python3", ...)])
        for other in (target("./backup", cwd="/tmp"), target("python3", "-m", "report", cwd="/tmp")):
            assert "Leave cwd out" in (commands.refusal(other) or "")

    @pytest.mark.parametrize("policy", [CommandPolicy.ANY, "any"])
    def test_any(self, policy: Any) -> None:
        assert Commands(policy).refusal(target("curl", cwd="/tmp")) is None

    @pytest.mark.parametrize("policy", [CommandPolicy.DECLARED, "declared", [], ()])
    def test_none_but_those(self, policy: Any) -> None:
        assert Commands(policy).refusal(TRUE) is not None

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ("all", "give CommandPolicy.DECLARED, CommandPolicy.ANY, or a list"),
            (True, "give CommandPolicy.DECLARED"),
            (None, "give CommandPolicy.DECLARED"),
            (b"true", "give CommandPolicy.DECLARED"),
            ([("true",)] * (MAX_ALLOWED + 1), "a list of up to 1,000"),
            (["true"], "commands has 'true': give the program and its arguments"),
            ([()], "give the program and its arguments"),
            ([("",)], "give the program and its arguments"),
            ([(...,)], "commands=CommandPolicy.ANY"),
            ([("a", ..., "b")], "nowhere but at the end"),
            ([("a", 1)], "give up to 1,000 words"),
            ([("a", "b\0c")], "text without NUL"),
        ],
    )
    def test_what_cannot_be_is_refused_with_what_would_be_right(self, given: Any, says: str) -> None:
        with pytest.raises(ConfigError) as refused:
            SchedulerPlugin(commands=given)
        assert says in str(refused.value)

    def test_what_is_told_is_short_and_shows_control_characters(self) -> None:
        told = Commands().refusal(target("x\x1b[2J", "y" * 100_000, cwd="z" * 4000)) or ""
        assert len(told) < 1000
        assert "\x1b" not in told


class TestDeciding:
    """On a desk: what is begun, and what is told."""

    def test_one_that_nobody_declared_is_decided_and_told_of_once(self) -> None:
        desk = Desk()
        desk.add("planted", every(10), command=("curl", "evil"))
        desk.add("job", every(10))
        desk.settle()
        assert [event.job for event in desk.events(CommandRefused)] == ["planted"]
        for _ in range(3):
            desk.wait(10)
            desk.settle()
            desk.finish("planted", "refused")  # what `Runs` makes of it
            desk.finish("job")
            desk.settle()
        assert desk.outcomes("planted") == ["failed"] * 3, "each has its record"
        assert desk.outcomes("job") == ["fired"] * 3
        assert len(desk.events(CommandRefused)) == 1
        assert not desk.events(JobUnknown)
        desk.new_leader()
        desk.settle()
        assert len(desk.events(CommandRefused)) == 2, "once by each who leads"

    def test_run_now_says_why_not(self) -> None:
        desk = Desk()
        desk.add("planted", every(10), command=("curl", "evil"))
        desk.command("run-now", "planted")
        desk.settle()
        assert "the command 'curl evil' is not run: it comes from the bucket" in desk.refused()[0]
        assert not desk.starts

    def test_a_declared_command_also_of_another_job(self) -> None:
        desk = Desk()
        desk.new_leader(jobs=[declared("dump", every(10), command=("true",))])
        desk.add("same", every(10), command=("true",))
        desk.settle()
        desk.wait(10)
        desk.settle()
        assert sorted(start.job.id for start in desk.starts) == ["dump", "same"]
        assert not desk.events(CommandRefused)

    def test_of_a_job_that_is_declared_the_code_says_what_runs(self) -> None:
        """A definition that was forged in the log is decided on up to now, before what the code says replaces it."""
        desk = Desk(audited=False)
        forged = job_from("dump", every(10), origin=Origin.CODE, command=("curl", "evil"))
        _plant(desk, forged)
        desk.wait(10)
        desk.new_leader(jobs=[declared("dump", every(10), command=("true",))])
        desk.settle()
        assert [start.job.target for start in desk.starts] == [TRUE]
        assert desk.machine.jobs["dump"].job.target == TRUE

    def test_while_a_deployment_rolls_nothing_is_lost_nor_failed(self) -> None:
        """What was due by the older code is decided by that, and run as the newer code has it."""
        older = [declared("dump", every(10), command=("dump", "v1")), declared("moved", every(10), command=("m",))]
        newer = [declared("dump", every(10), command=("dump", "v2")), declared("moved", every(10))]
        desk = Desk()
        desk.new_leader(jobs=older)
        desk.settle()
        desk.wait(10)
        desk.new_leader(jobs=newer)
        desk.settle()
        assert {start.job.id: start.job.target for start in desk.starts} == {
            "dump": target("dump", "v2"),
            "moved": FunctionTarget("work"),
        }
        desk.finish()
        desk.new_leader(jobs=[])  # its code has neither: they wait for one that does
        desk.wait(10)
        desk.settle()
        assert not desk.running()
        assert {event.job for event in desk.events(JobUnknown)} == {"dump", "moved"}
        assert not desk.events(CommandRefused)

    def test_what_only_says_that_it_is_of_the_code_is_not(self) -> None:
        desk = Desk(audited=False)
        _plant(desk, job_from("old", every(10), origin=Origin.CODE, command=("curl", "evil")))
        desk.new_leader()
        desk.wait(10)
        desk.settle()
        assert not desk.starts
        assert [event.job for event in desk.events(JobUnknown)] == ["old"]


def _plant(desk: Desk, job: Job) -> None:
    """As somebody who can write the bucket writes it into the log."""
    desk.seq += 1
    work = Work("x", (Defined(job, START_MS, START_MS, "x"),))
    desk.reader.apply(msgspec.json.encode(work), Stamp(desk.seq, desk.epoch, desk.now_ms))


def now() -> datetime:
    return datetime.fromtimestamp(SYSTEM_CLOCK.read().wall_ns / 1e9, UTC)


async def over(scheduler: SchedulerPlugin, job: str) -> OccurrenceRecord:
    async with asyncio.timeout(60):
        while True:
            records = await scheduler.history(job)
            if records and records[0].finished_ms:
                return records[0]
            await asyncio.sleep(0.05)


class TestReally:
    """With real programs, on a store in memory."""

    async def test_one_that_is_planted_in_the_bucket_does_not_run(self, tmp_path: Path) -> None:
        mark, ours = tmp_path / "planted", tmp_path / "ours"
        url = "memory://schedule-commands"
        async with Database(url) as db, Database(url) as outside:
            scheduler = SchedulerPlugin(config=QUICK, commands=[("touch", str(ours), ...)])
            told: list[Any] = []
            scheduler.declare("declared", at(now()), command=("true",))
            await db.use_plugin(scheduler)
            scheduler.on("plg:scheduler:command-refused", told.append)
            caller = await outside.use_plugin(SchedulerPlugin(takes_part=False))
            await caller.add("planted", at(now()), command=("touch", str(mark)), retries=1, backoff=0)
            await caller.add("allowed", at(now()), command=("touch", str(ours)))
            planted = await over(scheduler, "planted")
            assert (planted.outcome, planted.attempts) == (Outcome.FAILED.value, 2)
            assert "is not run: it comes from the bucket" in planted.error
            assert "SchedulerPlugin(commands=[…])" in planted.error
            for job in ("declared", "allowed"):
                record = await over(scheduler, job)
                assert (record.outcome, record.error) == (Outcome.FIRED.value, "")
            with pytest.raises(RequestRefused, match="it comes from the bucket"):
                await caller.run_now("planted")
            assert [event.event.job for event in told] == ["planted"]
        assert ours.exists()
        assert not mark.exists()

    async def test_who_adds_one_does_not_declare_it(self, tmp_path: Path) -> None:
        """Otherwise it would be run until the process that added it has another leader after it."""
        mark = tmp_path / "mark"
        async with Database("memory://schedule-adds") as db:
            scheduler = await db.use_plugin(SchedulerPlugin(config=QUICK))
            await scheduler.add("mine", at(now()), command=("touch", str(mark)))
            assert (await over(scheduler, "mine")).outcome == Outcome.FAILED.value
        assert not mark.exists()

    @pytest.mark.slow
    async def test_any_is_what_it_says(self, tmp_path: Path) -> None:
        mark = tmp_path / "mark"
        async with Database("memory://schedule-any") as db:
            scheduler = await db.use_plugin(SchedulerPlugin(config=QUICK, commands=CommandPolicy.ANY))
            await scheduler.add("mine", at(now()), command=("touch", "mark"), cwd=tmp_path)
            assert (await over(scheduler, "mine")).error == ""
        assert mark.exists()
