"""Watches polling from outside: every change of every job, and which process begins which check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tenure.plugins.poll import JobState, Run
from tenure.plugins.poll.book import folder_of
from tenure.plugins.poll.job import Job, decode_job, parse_job_id
from tenure.plugins.poll.summary import Summary, decode_summary
from tenure.testing.bucket import OUTSIDE, SimulatedBucket, Write
from tenure.testing.checkers import Judge
from tenure.testing.world import World

FOLDER = folder_of("default")
FINAL = ("completed", "failed")
LEGAL = {
    (None, "pending"),
    ("pending", "pending"),  # adopted
    ("pending", "dispatching"),
    ("pending", "failed"),
    ("dispatching", "dispatching"),
    ("dispatching", "running"),
    ("dispatching", "failed"),
    ("running", "running"),  # adopted
    ("running", "completed"),
    ("running", "failed"),
    ("damaged", "failed"),
}


class PollingJudge:
    """Each job ends in one state and is counted once; its check is begun at most once, by who made it running."""

    def __init__(self, world: World, bucket: SimulatedBucket, judge: Judge) -> None:
        self._world = world
        self._bucket = bucket
        self._judge = judge
        self.runs: list[tuple[float, str, Run]] = []
        self.states: dict[str, list[str]] = {}
        """What each job went through."""
        self.deleted: set[str] = set()
        self._ghosts: set[str] = set()
        """Created again, by a late copy, after they had ended and gone."""
        self._running_as: set[tuple[str, str, int]] = set()
        self._begun: set[str] = set()
        self._tokens: dict[str, int] = {}
        bucket.watchers.append(self._written)

    def began(self, node: str, uid: str, run: Run) -> None:
        if run.job_id in self._begun:
            self._judge.report("begun-twice", f"the check of {run.job_id} was begun twice")
        self._begun.add(run.job_id)
        if (run.job_id, uid, run.token) not in self._running_as:
            self._judge.report("not-running", f"{node} runs {run.job_id}, and never made it running")
        last = self._tokens.get(run.schedule, 0)
        # A worker that stood still since may begin one that was given up on: that is what the token is for.
        if run.token <= last and self.states[run.job_id][-1] == "running":
            self._judge.report("poll-token", f"the token of {run.job_id} is {run.token}, after {last}")
        self._tokens[run.schedule] = max(last, run.token)
        self.runs.append((self._world.now, node, run))

    def _written(self, write: Write) -> None:
        if not write.key.startswith(FOLDER + "jobs/"):
            return
        job_id = write.key.removeprefix(FOLDER + "jobs/").removesuffix(".json")
        before = decode_job(job_id, write.old) if write.old is not None else None
        after = decode_job(job_id, write.new) if write.new is not None else None
        was = before.state.value if isinstance(before, Job) else None if before is None else "damaged"
        if after is None:
            if job_id not in self._ghosts and isinstance(before, Job) and not before.state.final:
                self._judge.report("deleted", f"{job_id} was deleted while {was}")
            self.deleted.add(job_id)
            return
        if not isinstance(after, Job):
            if write.host != OUTSIDE:
                self._judge.report("job", f"{job_id} was written as {after}")
            return
        if before is None and job_id in self.deleted:
            self._ghosts.add(job_id)
            return
        if write.host != OUTSIDE:
            self._changed(write.host, before, after, was)

    def _changed(self, host: str, before: object, after: Job, was: str | None) -> None:
        if after.id in self._ghosts:
            self._judge.report("ghost", f"{after.id} ended and went, and goes on as {after.state.value}")
        if (was, after.state.value) not in LEGAL:
            self._judge.report("transition", f"{after.id} went from {was} to {after.state.value}, by {host}")
        if isinstance(before, Job) and after.epoch < before.epoch:
            self._judge.report("job-epoch", f"{after.id} went back from epoch {before.epoch} to {after.epoch}")
        if after.state is JobState.RUNNING and was == "dispatching":
            assert after.uid is not None
            self._running_as.add((after.id, after.uid, after.token))
        self.states.setdefault(after.id, []).append(after.state.value)

    # In the end

    def finals(self) -> Counter[str]:
        """How each ended job ended."""
        return Counter(states[-1] for states in self.states.values() if states[-1] in FINAL)

    def open_jobs(self) -> list[str]:
        return [job for job, states in self.states.items() if states[-1] not in FINAL]

    def summary(self, schedule: str) -> Summary | None:
        body = self._bucket.body(f"{FOLDER}results/schedule={schedule}.json")
        if body is None:
            return None
        summary = decode_summary(schedule, body)
        assert isinstance(summary, Summary), summary
        return summary

    def newest(self, schedule: str) -> int:
        parsed = [found for job in self.states if (found := parse_job_id(job)) is not None]
        return max((number for name, number in parsed if name == schedule), default=0)

    def check_goes_on(self, before: dict[str, int], seconds: float) -> None:
        """Each schedule had that newest job `seconds` ago."""
        for schedule, number in before.items():
            if self.newest(schedule) == number:
                self._judge.report(
                    "stuck", f"{schedule} has had no job after number {number} in {seconds:.0f} s of calm"
                )

    def check_end(self, schedules: Iterable[str]) -> None:
        """After calm: all but the newest job of each schedule have ended, and each was counted once."""
        for schedule in schedules:
            parsed = [found for job in self.states if (found := parse_job_id(job)) is not None]
            numbers = sorted(number for name, number in parsed if name == schedule)
            if numbers != list(range(1, len(numbers) + 1)):
                self._judge.report("numbers", f"the jobs of {schedule} have a gap: {numbers[-5:]}")
            left = [job for job in self.open_jobs() if job.rpartition("-")[0] == schedule]
            if not numbers:
                continue
            if left not in ([], [f"{schedule}-{numbers[-1]:010d}"]):
                self._judge.report("left-open", f"jobs of {schedule} have not ended: {left}")
            summary = self.summary(schedule)
            if summary is None:
                continue
            if summary.total != summary.folded or not 0 <= numbers[-1] - summary.folded <= 1:
                self._judge.report(
                    "counted", f"{summary.total} of {schedule} are counted up to {summary.folded}, of {numbers[-1]}"
                )
