"""Definitions of jobs: what cannot work is refused with the name, the value, and what would be right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import ConfigError, Damaged
from tenure.plugins.scheduler.job import (
    MAX_JOB_BYTES,
    At,
    CommandTarget,
    Cron,
    DamagedJob,
    Dst,
    Every,
    FunctionTarget,
    Interrupted,
    Job,
    JobOptions,
    Misfire,
    Origin,
    Overlap,
    QueueTarget,
    at,
    change_job,
    check_job,
    cron,
    decode_job,
    encode_job,
    every,
    job_from,
    same_job,
    same_timetable,
)
from tenure.plugins.scheduler.schedule import CACHED_EXPRESSIONS, MAX_MS, parsed, zone_of

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
DAY = 86_400_000


def job(id: Any = "job", schedule: Any = None, **options: Any) -> Job:
    if not {"function", "queue", "command"} & set(options):
        options["function"] = "f"
    return job_from(id, schedule if schedule is not None else every(60), **options)


def test_a_job_is_plain_data_with_defaults() -> None:
    made = job_from("nightly", cron("0 3 * * *", timezone="Europe/Berlin"), function="nightly")
    assert made == Job(
        id="nightly",
        schedule=Cron("0 3 * * *", "Europe/Berlin", Dst.ONCE),
        target=FunctionTarget("nightly"),
        origin=Origin.CODE,
        enabled=True,
        jitter_ms=0,
        start_ms=None,
        end_ms=None,
        misfire=Misfire.FIRE_ONCE,
        misfire_grace_ms=30_000,
        misfire_window_ms=DAY,
        catch_up=100,
        overlap=Overlap.SKIP,
        max_running=10,
        interrupted=Interrupted.RERUN,
        max_interruptions=3,
        timeout_ms=0,
        retries=0,
        backoff_ms=1000,
        max_backoff_ms=300_000,
        history=100,
    )
    assert msgspec.json.decode(encode_job(made)) == {
        "id": "nightly",
        "schedule": {"kind": "cron", "text": "0 3 * * *", "timezone": "Europe/Berlin"},
        "target": {"kind": "function", "name": "nightly"},
    }


def test_words_durations_and_moments_are_understood() -> None:
    made = job(
        jitter=timedelta(seconds=2),
        start=NOON.astimezone(ZoneInfo("Asia/Tokyo")),
        end=NOON + timedelta(days=3650),
        misfire="fire-all",
        overlap="queue-one",
        interrupted=Interrupted.ABANDON,
        timeout=0.0001,
        backoff=0,
        retries=5,
        enabled=False,
        origin=Origin.STORED,
    )
    assert (made.jitter_ms, made.start_ms, made.end_ms) == (2000, 1893499200000, 1893499200000 + 3650 * DAY)
    assert (made.misfire, made.overlap, made.interrupted) == (Misfire.FIRE_ALL, Overlap.QUEUE_ONE, Interrupted.ABANDON)
    assert made.timeout_ms == 1, "no timeout is 0, and one that is very short is not none"
    assert (made.backoff_ms, made.retries, made.enabled, made.origin) == (0, 5, False, Origin.STORED)


@pytest.mark.req("SC-1")
def test_schedules() -> None:
    assert every(1.5) == every(timedelta(seconds=1.5)) == Every(1500)
    assert cron("  0 3\t* * * ", "UTC", "both") == Cron("0 3 * * *", "UTC", Dst.BOTH)
    assert at(datetime(1970, 1, 2, tzinfo=timezone(timedelta(hours=1)))) == At(DAY - 3_600_000)
    assert at(datetime(2030, 1, 1, 12, 0, 0, 1, tzinfo=UTC)) == At(1893499200001), "rounded up: nothing is early"
    assert at(datetime(2036, 1, 1, tzinfo=UTC)).at_ms == 2082758400000


def test_targets() -> None:
    @dataclass
    class Letter:
        to: str

    queue = job(
        queue="emails",
        body=Letter("a"),
        priority=3,
        ordering_key="k",
        delay=timedelta(seconds=1),
        max_attempts=2,
        visibility_timeout=60,
        headers={"h": "v"},
    )
    assert queue.target == QueueTarget("emails", {"to": "a"}, 3, "k", 1000, 2, 60_000, {"h": "v"})
    command = job(command=["pg_dump", "db"], cwd=Path("/data"), terminate_within=timedelta(seconds=9))
    assert command.target == CommandTarget(("pg_dump", "db"), "/data", 9000)
    assert job(function="f", payload={"a": (1, 2), 3: None}).target == FunctionTarget("f", {"a": [1, 2], "3": None})
    for each in (queue, command):
        assert decode_job(encode_job(each)) == each


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"cron is '', which has 0 fields: give five"),
        ("0 3 * *", "which has 4 fields: give five, minute, hour"),
        ("0 0 3 * * *", "which has 6 fields.*seconds and years are not among them"),
        ("60 * * * *", r"bad minute: give 0 to 59; also \*, lists"),
        ("* 24 * * *", "bad hour: give 0 to 23"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * * 13 *", "bad month: give 1 to 12, or JAN to DEC"),
        ("* * * * 8", "bad day-of-week: give 0 to 7"),
        ("*/0 * * * *", "bad minute"),
        ("5-1 * * * *", "bad minute"),
        ("٣ * * * *", "bad minute"),
        ("1,,2 * * * *", "bad minute"),
        ("0 0 31 2 *", "bad day-of-month: .*one that the month has"),
        ("0 0 30,31 2 *", "bad day-of-month"),
        ("0 0 */15 * MON#2", "never happens: no day in 50 years matches"),
        ("@reboot", "there is @hourly, .*no boot of a fleet"),
        ("@noon", "no other word with an @"),
        ("@daily 5", "no other word with an @"),
        ("1 " * 2000, "of 3,999 characters: give at most 1,000"),
        (f"{'9' * 900} * * * *", "bad minute"),
        (None, "cron is None: give five fields as text"),
        (["0", "3"], "give five fields as text"),
    ],
)
def test_a_cron_expression_that_cannot_be_is_refused(text: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        cron(text)


@pytest.mark.req("SC-1")
@given(st.lists(st.text("0123456789*/,-#LWMONJA²\x00 ", max_size=6), min_size=5, max_size=5).map(" ".join))
def test_whatever_is_given_as_cron_is_followed_or_refused(text: str) -> None:
    try:
        schedule = cron(text)
    except ConfigError:
        return
    assert decode_job(encode_job(job(schedule=schedule))).schedule == schedule


@pytest.mark.parametrize(
    ("zone", "says"),
    [
        ("europe/berlin", r"timezone is 'europe/berlin', which is not known here: did you mean 'Europe/Berlin'\?"),
        ("Berlin", r"did you mean 'Europe/Berlin'\?"),
        ("Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("Nowhere/Atall", "give an IANA name, such as"),
        ("localtime", "which is not known here"),
        ("right/Europe/Berlin", "which is not known here"),
        ("Europe", "which is not known here"),
        ("../../etc/passwd", "give the name of a zone, such as"),
        ("/etc/localtime", "give the name of a zone"),
        ("+02:00", "give the name of a zone"),
        ("UTC\0", "give the name of a zone"),
        ("", "give the name of a zone"),
        ("A" * 65, "give the name of a zone"),
        (None, "timezone is None: give the name of a zone"),
        (ZoneInfo("UTC"), "give the name of a zone"),
        (["UTC"], "give the name of a zone"),
    ],
)
def test_a_zone_that_is_not_known_is_refused(zone: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        cron("0 3 * * *", timezone=zone)


@pytest.mark.parametrize("period", [0, 0.999, -5, math.nan, math.inf, 10**9, 10**400, True, "60", None, timedelta(0)])
def test_a_period_that_cannot_be_is_refused(period: Any) -> None:
    with pytest.raises(ConfigError, match=r"every is .*: give seconds from 1 to 316,224,000 \(ten years\), or a timed"):
        every(period)


@pytest.mark.parametrize(
    ("when", "says"),
    [
        (datetime(2030, 1, 1), r"at is 2030-01-01T00:00:00, which has no time zone.*datetime\(\.\.\., tzinfo=UTC\)"),
        (datetime(1969, 12, 31, tzinfo=UTC), "give a time from 1970 to the year 9000"),
        (datetime(9999, 1, 1, tzinfo=UTC), "give a time from 1970 to the year 9000"),
        (1893499200, "at is 1893499200: give a datetime with a time zone"),
        ("2030-01-01", "give a datetime with a time zone"),
    ],
)
def test_a_moment_that_cannot_be_is_refused(when: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        at(when)
    with pytest.raises(ConfigError, match=says.replace("at is", "start is")):
        job(start=when)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"schedule": "0 3 * * *"}, r"schedule is '0 3 \* \* \*': give cron\("),
        ({"schedule": 60}, r"schedule is 60: .*every\(60\)"),
        ({"schedule": Every(5)}, r"every is 0.005 s: give one second to ten years"),
        ({"schedule": At(-1)}, "give a time up to the year 9000"),
        ({"schedule": Cron("0 3 * * *", "UTC", "once")}, "dst is 'once'"),  # type: ignore[arg-type]
        ({"jitter": -1}, "jitter is -1: give seconds from 0 to 86,400, or a timedelta"),
        ({"jitter": "5"}, "jitter is '5'"),
        ({"timeout": math.nan}, "timeout is nan"),
        ({"timeout": timedelta(days=31)}, "timeout is .*give seconds from 0 to 2,592,000"),
        ({"retries": -1}, "retries is -1: give a whole number from 0 to 1,000"),
        ({"retries": True}, "retries is True"),
        ({"catch_up": 0}, "catch_up is 0: give a whole number from 1 to 10,000"),
        ({"max_running": 1.5}, "max_running is 1.5"),
        ({"history": 10_001}, "history is 10001"),
        ({"misfire": "fire_once"}, "misfire is 'fire_once': give one of 'skip', 'fire-once', 'fire-all'"),
        ({"overlap": None}, "overlap is None: give one of 'skip', 'queue-one', 'allow'"),
        ({"interrupted": []}, r"interrupted is \[\]: give one of 'rerun', 'abandon'"),
        ({"enabled": 1}, "enabled is 1: give True or False"),
        ({"origin": "code"}, "origin is 'code': give Origin.CODE or Origin.STORED"),
        ({"misfire_window": 10}, "misfire_window is 10 s and misfire_grace 30 s"),
        ({"start": NOON, "end": NOON}, "end of job 'job' is not after its start"),
        ({"schedule": At(5), "start": NOON}, "at of job 'job' is not between its start and end"),
        ({"schedule": At(5), "end": datetime(1970, 1, 1, tzinfo=UTC)}, "at of job 'job' is not between"),
        ({"colour": 3}, "there is no option 'colour' of a job: there are backoff, body"),
        ({"function": "f", "queue": "q"}, "function and queue of function=, queue= and command= is given"),
        ({"function": "f", "body": 1}, "body goes with queue=, and this job has function="),
        ({"queue": "q", "payload": 1}, "payload goes with function=, and this job has queue="),
        ({"queue": "q", "cwd": "/"}, "cwd goes with command="),
        ({"function": ""}, "function is '': give 1 to 128 printable characters"),
        ({"function": len}, "function is <built-in function len>"),
        ({"queue": "a\nb"}, "queue is 'a.*': give 1 to 64 printable"),
        ({"queue": "q", "priority": 10_000}, "priority is 10000"),
        ({"queue": "q", "delay": -1}, "delay is -1"),
        ({"queue": "q", "headers": {"a": 1}}, "headers holds 'a'"),
        ({"queue": "q", "body": b"raw"}, "body is bytes: give text, numbers"),
        ({"payload": {1, object()}}, "payload is a set that cannot be written as JSON"),
        ({"payload": "\ud800"}, "payload is a str that cannot be written as JSON"),
        ({"payload": "x" * MAX_JOB_BYTES}, "job 'job' takes 65,.* bytes, and the limit is 65,536"),
        ({"command": "pg_dump db"}, r"command is 'pg_dump db': give the program and its arguments, such as \('pg_d"),
        ({"command": ()}, "argv is empty"),
        ({"command": ("a", 1)}, "argv has 1: every argument is text without NUL"),
        ({"command": ("a", "b\0")}, "every argument is text without NUL"),
        ({"command": ("a b",)}, "give each argument by itself"),
        ({"command": ("a",) * 1001}, "command has 1,001 words: give at most 1,000"),
        ({"command": ("a", "\udcff")}, "cannot be written as JSON"),
        ({"command": ("a",), "cwd": 5}, "cwd is 5: give a folder"),
        ({"command": ("a",), "cwd": "/" * 4097}, "give at most 4,096 characters"),
        ({"command": ("a",), "terminate_within": 0}, "terminate_within is 0"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        job(**options)


def test_a_job_does_something() -> None:
    with pytest.raises(ConfigError, match="none of function=, queue= and command= is given: give exactly one"):
        job_from("job", every(60))


@pytest.mark.parametrize("id", ["", "a b", "a/b", "a@b", "é", ".a", "-a", "x" * 129, "a\n", None, 5])
def test_an_id_that_cannot_be_is_refused(id: Any) -> None:
    with pytest.raises(ConfigError, match=r"id is .*: give 1 to 128 of A-Z a-z 0-9 \. _ : -, beginning with"):
        job(id)


@pytest.mark.parametrize("id", ["a", "9", "billing:nightly-2.report_x", "x" * 128])
def test_ids(id: str) -> None:
    assert job(id).id == id


# From the bucket


def test_every_bound_of_an_option_is_a_bound_of_what_is_read_back() -> None:
    bounds = {
        "jitter": (0, 86_400),
        "misfire_grace": (0, 86_400),
        "misfire_window": (30, 316_224_000),
        "timeout": (0, 2_592_000),
        "backoff": (0, 86_400),
        "max_backoff": (0, 2_592_000),
        "catch_up": (1, 10_000),
        "max_running": (1, 1000),
        "max_interruptions": (0, 1000),
        "retries": (0, 1000),
        "history": (1, 10_000),
    }
    for name, (least, most) in bounds.items():
        for value in (least, most):
            made = job(**{name: value})
            assert decode_job(encode_job(made)) == made, (name, value)
        field = name if name in Job.__struct_fields__ else f"{name}_ms"
        for value in (-1, 10**12):
            wrong = msgspec.structs.replace(job(), **{field: value})
            with pytest.raises(DamagedJob):
                decode_job(msgspec.json.encode(wrong))
            with pytest.raises(ConfigError):
                job(**{name: value})


GOOD = {"id": "a", "schedule": {"kind": "every", "periodMs": 1000}, "target": {"kind": "function", "name": "f"}}


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 50_000,
        {},
        {**GOOD, "id": "a/b"},
        {**GOOD, "id": 5},
        {**GOOD, "schedule": {"kind": "cron", "text": "nonsense"}},
        {**GOOD, "schedule": {"kind": "cron", "text": "0 3 * * *", "timezone": "../../etc/passwd"}},
        {**GOOD, "schedule": {"kind": "cron", "text": "0 3 * * *", "timezone": "Mars/Base"}},
        {**GOOD, "schedule": {"kind": "cron", "text": "0 3 * * *", "dst": "thrice"}},
        {**GOOD, "schedule": {"kind": "every", "periodMs": 999}},
        {**GOOD, "schedule": {"kind": "every", "periodMs": 1000.5}},
        {**GOOD, "schedule": {"kind": "at", "atMs": MAX_MS + 1}},
        {**GOOD, "schedule": {"kind": "moon"}},
        {**GOOD, "target": {"kind": "function"}},
        {**GOOD, "target": {"kind": "command", "argv": []}},
        {**GOOD, "target": {"kind": "command", "argv": ["a\u0000"]}},
        {**GOOD, "target": {"kind": "queue", "queue": "q", "priority": 1001}},
        {**GOOD, "misfire": "sometimes"},
        {**GOOD, "retries": "3"},
        {**GOOD, "startMs": 5, "endMs": 5},
        {**GOOD, "target": {"kind": "function", "name": "f", "payload": "x" * 200_000}},
        {**GOOD, "target": {"kind": "function", "name": "f", "payload": "x" * 65_500}},
    ],
)
def test_what_does_not_fit_is_damaged(wrong: Any) -> None:
    body = wrong if isinstance(wrong, bytes) else msgspec.json.encode(wrong)
    with pytest.raises(DamagedJob) as caught:
        decode_job(body)
    assert isinstance(caught.value, Damaged)
    assert len(str(caught.value)) < 500


def test_what_fits_is_read_also_with_fields_of_a_newer_tenure() -> None:
    assert decode_job(msgspec.json.encode({**GOOD, "colour": "red"})) == job("a", every(1))


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(body: bytes) -> None:
    with pytest.raises(DamagedJob):
        decode_job(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_a_payload_comes_back_as_it_was_given(payload: Any) -> None:
    try:
        made = job(payload=payload)
    except ConfigError as error:
        assert "cannot be written as JSON" in str(error)  # half of a surrogate pair
        return
    again = decode_job(encode_job(made))
    assert again == made
    assert same_job(again, made)


# Comparing and changing


def test_jobs_are_the_same_if_all_they_say_is() -> None:
    assert same_job(job(payload={"a": 1, "b": 2}), job(payload={"b": 2, "a": 1}))
    assert not same_job(job(payload=1), job(payload=True))
    assert job(payload=1) == job(payload=1)
    changes: list[dict[str, Any]] = [
        {"retries": 1},
        {"origin": Origin.STORED},
        {"function": "g"},
        {"enabled": False},
        {"schedule": every(61)},
        {"jitter": 1},
    ]
    for change in changes:
        assert job(**change) != job()
        assert not same_job(job(**change), job())


@pytest.mark.req("SC-1")
def test_timetables_are_the_same_whatever_else_differs() -> None:
    base = job(schedule=cron("@daily", "Europe/Berlin"))
    assert same_timetable(base, job(schedule=cron("0 0 * * *", "Europe/Berlin"), retries=3, jitter=5, function="g"))
    assert same_timetable(job(schedule=cron("0 0 * * mon")), job(schedule=cron("0 0 * * MON")))
    for other in (
        job(schedule=cron("@daily")),
        job(schedule=cron("@daily", "Europe/Berlin", Dst.SKIP)),
        job(schedule=cron("@hourly", "Europe/Berlin")),
        job(schedule=cron("@daily", "Europe/Berlin"), start=NOON),
        job(schedule=cron("@daily", "Europe/Berlin"), end=NOON),
        job(schedule=every(86_400)),
        job(schedule=at(NOON)),
    ):
        assert not same_timetable(base, other)


@pytest.mark.req("SC-1")
def test_some_options_are_changed_and_the_others_stay() -> None:
    before = job(retries=3, timeout=5, payload={"a": 1}, start=NOON, origin=Origin.STORED)
    after = change_job(before, every(90), timeout=7)
    assert after == msgspec.structs.replace(before, schedule=Every(90_000), timeout_ms=7000)
    assert change_job(before) == before
    assert change_job(before, start=None).start_ms is None
    assert change_job(before, queue="q", body=5).target == QueueTarget("q", 5)
    assert change_job(before, function="g").target == FunctionTarget("g", {"a": 1})
    assert change_job(before, payload=2).target == FunctionTarget("f", 2)
    with pytest.raises(ConfigError, match="body goes with queue=, and this job has function="):
        change_job(before, body=2)
    with pytest.raises(ConfigError, match="end of job 'job' is not after its start"):
        change_job(before, end=NOON)
    with pytest.raises(ConfigError, match="there is no option 'id'"):
        change_job(before, id="other")  # type: ignore[call-arg]


def test_some_options_of_a_target_are_changed_and_the_others_stay() -> None:
    options = {"priority": 3, "ordering_key": "k", "delay": 1.5, "max_attempts": 2, "visibility_timeout": 60}
    queue = job(queue="q", body=1, headers={"h": "v"}, **options)
    assert change_job(queue, body=2) == job(queue="q", body=2, headers={"h": "v"}, **options)
    assert change_job(queue, ordering_key=None).target == msgspec.structs.replace(queue.target, ordering_key="")
    assert change_job(job(queue="q"), priority=1).target == QueueTarget("q", priority=1)
    command = job(command=("a", "b"), cwd="/tmp", terminate_within=2)
    assert change_job(command, command=("c",)).target == CommandTarget(("c",), "/tmp", 2000)
    assert change_job(command, function="f").target == FunctionTarget("f")
    for each in (queue, command, job(queue="q"), job(command=("a",)), job(payload=[1])):
        for option in ({"queue": "q"}, {"command": ("a",)}, {"function": "f"}):
            if next(iter(option)) == msgspec.json.decode(encode_job(each))["target"]["kind"]:
                assert change_job(change_job(each, **option), retries=1).target == change_job(each, **option).target


@pytest.mark.req("SC-1")
def test_every_option_reaches_the_job() -> None:
    of_targets = {"payload", "body", "priority", "ordering_key", "delay", "max_attempts", "visibility_timeout"}
    of_targets |= {"headers", "cwd", "terminate_within", "function", "queue", "command"}
    fields = {name.removesuffix("_ms") for name in Job.__struct_fields__} - {"id", "schedule", "target", "origin"}
    assert set(JobOptions.__annotations__) - of_targets == fields


def test_what_is_parsed_is_kept_within_bounds() -> None:
    parsed.cache_clear()
    for minute in range(60):
        for hour in range(24):
            check_job(job(schedule=cron(f"{minute} {hour} * * *")))
            check_job(job(schedule=cron(f"{minute} {hour} 1 * *")))
    assert parsed.cache_info().currsize == CACHED_EXPRESSIONS
    assert zone_of("Europe/Berlin") is zone_of("Europe/Berlin")


def test_a_message_has_room_for_the_headers_that_the_schedule_adds() -> None:
    """With 62 a job was accepted, and each of its runs failed."""
    most = {f"h{number}": "v" for number in range(61)}
    made = job(queue="q", headers=most)
    assert decode_job(encode_job(made)) == made
    with pytest.raises(ConfigError, match="headers has 62 entries: give at most 61"):
        job(queue="q", headers={**most, "one-more": "v"})
    with pytest.raises(ConfigError, match="at most 61"):
        change_job(made, headers={**most, "one-more": "v"})
