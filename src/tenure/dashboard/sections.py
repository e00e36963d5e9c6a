"""What is sent to a page, as typed structs: one for each part that changes by itself. Names in JSON are camelCase.

Times end in `ms` and are milliseconds since 1970, on the dashboard's or the store's clock: for people.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from tenure.dashboard.bounds import LONGEST_NAME, LONGEST_TEXT

NAMES = (
    "meta",
    "lease",
    "terms",
    "workers",
    "latency",
    "usage",
    "queues",
    "schedules",
    "counters",
    "children",
    "changes",
)
"""In the order in which a page that has just connected is sent them."""


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class Problem(Section, frozen=True, kw_only=True):
    text: str
    since_ms: int


class Meta(Section, frozen=True, kw_only=True):
    place: str
    namespace: str
    version: str
    started_ms: int
    now_ms: int
    interval_seconds: float
    election_only: bool = False
    """There is a lease, and no record of any worker: those who stand by cannot be seen."""
    problem: Problem | None = None


class Asked(Section, frozen=True, kw_only=True):
    by: str
    to: str | None


class Lease(Section, frozen=True, kw_only=True):
    phase: str = "starting"
    leader: str | None = None
    epoch: int = 0
    since_ms: int | None = None
    lease_seconds: float | None = None
    renewals: int = 0
    last_renewal_ms: int | None = None
    successor: str | None = None
    mandate_ends_ms: int | None = None
    handoff: Asked | None = None
    problem: str | None = None


class TermRow(Section, frozen=True, kw_only=True):
    epoch: int
    leader: str | None
    start_ms: int
    end_ms: int | None
    how: str | None
    unconfirmed: bool
    after_damage: bool


class Terms(Section, frozen=True, kw_only=True):
    terms: list[TermRow] = []


class Workers(Section, frozen=True, kw_only=True):
    total: int = 0
    active: int = 0
    silent: int = 0
    unhealthy: int = 0
    never_stands: int = 0
    left_out: int = 0
    unreadable: int = 0
    revision: int = 0


class FleetRow(Section, frozen=True, kw_only=True):
    """One worker, in the answer of `api/workers`."""

    id: str
    state: str
    is_leader: bool
    rank: int | None
    age_seconds: float
    priority: int
    healthy: bool
    eligible: bool
    started_at: str
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    latency_p99_ms: float | None = None
    requests_per_hour: float | None = None
    usd_per_day: float | None = None
    breaker: str | None = None
    store_errors: int | None = None
    pulse_age_seconds: float | None = None


class FleetPage(Section, frozen=True, kw_only=True):
    matched: int
    offset: int
    rows: list[FleetRow]


Point: TypeAlias = tuple[float | None, ...]


class Latency(Section, frozen=True, kw_only=True):
    """Points begin with their time; the others are milliseconds."""

    leader: list[Point] = []
    store: list[Point] = []


class OwnUsage(Section, frozen=True, kw_only=True):
    requests: int = 0
    requests_per_hour: float | None = None
    usd_per_day: float | None = None
    by_verb: dict[str, int] = {}


class Usage(Section, frozen=True, kw_only=True):
    requests_per_hour: float | None = None
    usd_per_day: float | None = None
    sampled: int = 0
    workers: int = 0
    dashboard: OwnUsage = OwnUsage()


class QueueRow(Section, frozen=True, kw_only=True):
    name: str
    ready: int | None = None
    delayed: int | None = None
    in_flight: int | None = None
    dead: int | None = None
    inbox: int | None = None
    paused: bool = False
    oldest_age_seconds: float | None = None
    workers: int | None = None
    enqueue_rate: float | None = None
    done_rate: float | None = None
    namespace: str = ""
    looked_ms: int | None = None
    problem: str | None = None


class Queues(Section, frozen=True, kw_only=True):
    total: int = 0
    rows: list[QueueRow] = []


class ScheduleRow(Section, frozen=True, kw_only=True):
    name: str
    paused: bool = False
    jobs: int = 0
    running: int = 0
    namespace: str = ""
    problem: str | None = None


class LastRun(Section, frozen=True, kw_only=True):
    state: str
    outcome: str
    scheduled_ms: int
    finished_ms: int
    error: str


class JobRow(Section, frozen=True, kw_only=True):
    schedule: str
    id: str
    when: str
    timezone: str
    target: str
    next_ms: int | None
    paused: bool
    enabled: bool
    running: int
    waiting: int
    last: LastRun | None = None


class Schedules(Section, frozen=True, kw_only=True):
    total: int = 0
    schedules: list[ScheduleRow] = []
    rows: list[JobRow] = []


class CounterRow(Section, frozen=True, kw_only=True):
    name: str
    fields: dict[str, str] = {}
    inbox: int | None = None
    pending: int | None = None
    records: int | None = None
    lag_seconds: float | None = None
    calls: int | None = None
    namespace: str = ""
    problem: str | None = None


class Counters(Section, frozen=True, kw_only=True):
    rows: list[CounterRow] = []


class ChildRow(Section, frozen=True, kw_only=True):
    supervisor: str
    node: str
    epoch: int
    current: bool
    """False: a newer leader has not written yet, so this shows what was."""
    child: str
    state: str
    failures: int
    restarts: int
    last_error: str | None
    since_ms: int | None


class Children(Section, frozen=True, kw_only=True):
    rows: list[ChildRow] = []


class ChangeRow(Section, frozen=True, kw_only=True):
    at: str
    kind: str
    leader: str | None
    epoch: int
    detail: str
    worker: str | None


class Changes(Section, frozen=True, kw_only=True):
    rows: list[ChangeRow] = []


def name_of(text: str) -> str:
    """A name from the bucket. What may be named in an action is printable, and comes through unchanged."""
    return shown(text, LONGEST_NAME)


def perhaps(text: str | None) -> str | None:
    return None if text is None else name_of(text)


def shown(text: str, longest: int = LONGEST_TEXT) -> str:
    """Text from the bucket, cut, and without characters that a page would act upon rather than show."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return cut if cut.isprintable() else "".join(map(_visible, cut))


def _visible(character: str) -> str:
    return (
        character
        if character.isprintable()
        else character.encode("ascii", "backslashreplace").decode()
        if (ord(character) > 0x7F)
        else f"\\x{ord(character):02x}"
    )


def encoded(section: Any) -> bytes:
    return msgspec.json.encode(section)
