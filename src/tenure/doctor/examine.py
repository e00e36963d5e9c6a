"""The examination: from a URL to a report, in an order that finds what is most wrong first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock, Reading
from tenure.doctor.bucket import asked_at, notes_on, objections_to, read_settings
from tenure.doctor.measure import measure_clock, measure_latency, recommend
from tenure.doctor.report import Check, Report
from tenure.doctor.semantics import COUNT, Questions
from tenure.entropy import NewId, new_id
from tenure.errors import ConfigError, StoreError, StoreUnfit, TenureError
from tenure.store import Store
from tenure.store.opening import connect, learn, shared_folder_reasons
from tenure.store.providers import SECONDS_BETWEEN_WRITES
from tenure.store.races import RaceKind, RaceReport, race
from tenure.store.scratch import DOCTOR_FOLDER, RACE_FOLDER, SCRATCH_FOLDERS, scratch_body
from tenure.store.url import StoreUrl, parse_url

_STALE = timedelta(hours=1)
_REMOVED_AT_ONCE = 1000
_UNDECIDED_SHARE = 0.2

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


async def examine(
    url: str,
    *,
    rounds: int = 25,
    processes: int = 4,
    samples: int = 30,
    progress: Progress = lambda step, done, total: None,
    clock: Clock = SYSTEM_CLOCK,
    draw_id: NewId = new_id,
) -> Report:
    """Examine the store at `url`. Raises only `ConfigError`; whatever the store does is in the report."""
    examination = _Examination(parse_url(url), rounds, processes, samples, progress, clock, draw_id)
    started = clock.read()
    try:
        await examination.run()
    except StoreUnfit as unfit:
        examination.fit, examination.reasons = False, [*examination.reasons, *unfit.reasons]
    except ConfigError:
        raise
    except TenureError as error:
        # No bucket, no permission, no answer: nothing was asked of the store's conditional writes, or not enough.
        examination.fit = None
        examination.reasons.append(f"{error} ({asked_at(examination.url)})")
    return examination.report(started)


class _Examination:
    def __init__(
        self,
        url: StoreUrl,
        rounds: int,
        processes: int,
        samples: int,
        progress: Progress,
        clock: Clock,
        draw_id: NewId,
    ) -> None:
        self.url = self._url = url
        self._processes = processes
        self._progress = progress
        self._clock = clock
        self._draw_id = draw_id
        # Google takes about one write a second for one object, so there the doctor takes its time, and fewer samples.
        self._pause = SECONDS_BETWEEN_WRITES.get(url.scheme, 0.0)
        self._samples = min(samples, 5) if self._pause else samples
        self._rounds = min(rounds, 10) if self._pause else rounds
        self._folder = f"{DOCTOR_FOLDER}{draw_id()}/"
        self._found = Report(url=url.shown, provider=url.scheme, fit=None, reasons=())
        self.answered = False
        self.fit: bool | None = None
        self.reasons: list[str] = []

    async def run(self) -> None:
        self._progress("opening", 0, 1)
        store = await connect(self._url, clock=self._clock, draw_id=self._draw_id)
        try:
            await self._run(store)
        finally:
            if self.answered:
                try:
                    await self._tidy(store)
                except StoreError as error:
                    note = f"Objects below {DOCTOR_FOLDER} and {RACE_FOLDER} may be left: {error}"
                    self._note(notes=(*self._found.notes, note))
            await store.aclose()

    def report(self, started: Reading) -> Report:
        elapsed = round(self._clock.read().leader_elapsed(started), 2)
        return msgspec.structs.replace(self._found, fit=self.fit, reasons=tuple(self.reasons), elapsed_seconds=elapsed)

    async def _run(self, store: Store) -> None:
        learned = await learn(store, self._url, draw_id=self._draw_id, clock=self._clock)
        self.answered = True
        self._note(dialect=store.info.dialect, credentials=learned.credentials)
        self.reasons += learned.reasons
        self._progress("opening", 1, 1)
        if self._url.path is not None:
            self.reasons += await shared_folder_reasons(self._url)
        if not self.reasons:
            await self._ask(store)
        if self.reasons:
            self.fit = False
            return
        await self._race(store, learned.dialect)
        if self.reasons:
            self.fit = False
            return
        await self._measure(store)
        settings = await read_settings(self._url, versioned=learned.versioned)
        self._note(bucket=settings, notes=(*self._found.notes, *notes_on(settings, self._url)))
        self.reasons += objections_to(settings, self._url)
        if self.reasons:
            self.fit = False
            return
        self._decide()

    async def _ask(self, store: Store) -> None:
        checks: list[Check] = []
        questions = Questions(store, self._folder, pause=self._pause, clock=self._clock, draw_id=self._draw_id)
        async for check in questions.ask():
            checks.append(check)
            self._note(checks=tuple(checks))
            self._progress("questions", len(checks), COUNT)
        for check in checks:
            if check.ok is False:
                self.reasons.append(
                    f"it fails a question: {check.name}" + (f" ({check.detail})" if check.detail else "")
                )

    async def _race(self, store: Store, dialect: dict[str, object]) -> None:
        races: dict[str, RaceReport] = {}
        if self._url.scheme == "memory":
            self._note(notes=("A memory store lives in one process: races between processes do not apply.",))
            return
        for kind in RaceKind:
            races[kind.value] = await race(
                self._url,
                kind,
                rounds=self._rounds,
                processes=self._processes,
                dialect=dialect,
                on_round=lambda done, kind=kind: self._progress(f"{kind.value} races", done, self._rounds),  # type: ignore[misc]
                store=store,
                draw_id=self._draw_id,
                clock=self._clock,
            )
            self._note(races=dict(races))
        for report in races.values():
            if report.unknown:
                writers = report.rounds * report.contenders
                lost_race = f"no clear answer to {report.unknown} of {writers} writers"
                self._note(dialect={**self._found.dialect, f"lost-{report.kind}-race": lost_race})
            if report.violations:
                more = f" (and {len(report.violations) - 1} more)" if len(report.violations) > 1 else ""
                self.reasons.append(f"it does not hold between check and write: {report.violations[0]}{more}")

    async def _measure(self, store: Store) -> None:
        self._progress("latency", 0, 1)
        body = scratch_body(self._draw_id())
        latency = await measure_latency(store, f"{self._folder}latency/", body, self._samples, self._pause, self._clock)
        offset = await measure_clock(store, f"{self._folder}clock/now", body, self._clock)
        self._note(latency_ms=latency, clock_offset=offset, recommended=recommend(latency, self._url.scheme))
        if offset is not None and abs(offset.seconds) - offset.uncertainty_seconds > 5:
            self._note(
                notes=(
                    *self._found.notes,
                    f"This host's clock and the store's differ by {offset.seconds:+.1f} s: set the clock (chrony or "
                    "ntpd); S3 refuses requests that are 15 minutes off.",
                )
            )
        self._progress("latency", 1, 1)

    def _decide(self) -> None:
        unclear = [
            f"could not be told: {check.name} ({check.detail})" for check in self._found.checks if check.ok is None
        ]
        unclear += [
            f"{report.undecided} of {report.rounds} {report.kind} races had no decisive answer"
            for report in self._found.races.values()
            if report.undecided > _UNDECIDED_SHARE * report.rounds
        ]
        self.reasons += unclear
        self.fit = None if unclear else True

    async def _tidy(self, store: Store) -> None:
        """Remove what this examination wrote, and what one that was killed an hour ago or earlier left behind."""
        await self._clock.sleep(self._pause)
        mine = [entry.key async for entry in store.list(self._folder)]
        await store.delete(*mine)
        await store.put(marker := f"{self._folder}tidy", scratch_body(self._draw_id()))
        try:
            now = max([entry.modified async for entry in store.list(self._folder)], default=None)
            for folder in SCRATCH_FOLDERS:
                stale: list[str] = []
                async for entry in store.list(folder):
                    if now and now - entry.modified > _STALE:
                        stale.append(entry.key)
                    if len(stale) >= _REMOVED_AT_ONCE:
                        await store.delete(*stale)
                        stale = []
                await store.delete(*stale)
        finally:
            await self._clock.sleep(self._pause)
            await store.delete(marker)

    def _note(self, **found: object) -> None:
        self._found = msgspec.structs.replace(self._found, **found)
