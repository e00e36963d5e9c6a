"""Log records as JSON: always one line, always valid, never a secret; and what tenure logs says what it is about."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenure
from tenure import Database
from tenure.coordinator.config import ContentionConfig
from tenure.store import Faults, Faulty, Metered
from tenure.telemetry.logs import LOGGERS, MAX_TEXT, JsonFormatter
from tests.support.waiting import eventually
from tests.unit.telemetry_rig import SWIFT, nowhere

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
SOURCE = Path(tenure.__file__).parent


def record(message: Any = "hello", *arguments: Any, error: BaseException | None = None, **extra: Any) -> Any:
    made = logging.LogRecord("tenure.test", logging.WARNING, "x.py", 1, message, arguments, None)
    if error is not None:
        made.exc_info = (type(error), error, error.__traceback__)
    vars(made).update(extra)
    return made


def told(made: logging.LogRecord, **fields: str) -> dict[str, Any]:
    line = JsonFormatter(**fields).format(made)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_line_has_time_level_logger_message_and_fields() -> None:
    made = record("%s leads", "one", namespace="default", epoch=7)
    made.created = 1_700_000_000.25
    assert told(made, worker="one") == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "WARNING",
        "logger": "tenure.test",
        "message": "one leads",
        "worker": "one",
        "namespace": "default",
        "epoch": 7,
    }


def test_what_a_record_says_itself_comes_first() -> None:
    assert told(record(worker="two"), worker="one", service="mailer")["worker"] == "two"
    assert told(record(level="none", time=0))["level"] == "WARNING"


def test_errors_are_told_with_their_traceback_on_one_line() -> None:
    try:
        raise ValueError(f"no answer from https://x?token={SECRET}")
    except ValueError as error:
        found = told(record(error=error))
    assert found["error"].startswith("Traceback")
    assert "ValueError: no answer" in found["error"]
    assert SECRET not in found["error"]


def test_secrets_are_taken_out_everywhere() -> None:
    made = record(
        "GET https://x?sig=%s",
        SECRET,
        url=f"s3://b?secret_access_key={SECRET}",
        secret_access_key=SECRET,
        nested={"token": SECRET, "urls": [f"http://user:{SECRET}@host/"]},
    )
    line = JsonFormatter(place=f"s3://b?secret_access_key={SECRET}").format(made)
    assert SECRET not in line
    assert "***" in line


@pytest.mark.parametrize(
    "name", ["token", "dbPassword", "db_password", "secretAccessKey", "AccountKey", "x-api-key", "authorization"]
)
def test_a_field_with_the_name_of_a_secret_is_hidden_whole(name: str) -> None:
    for value in (f"'{SECRET}'", f'"SE {SECRET}', [SECRET], {"value": SECRET}, (f"a {SECRET}",), SECRET.encode()):
        assert told(record(**{name: value}))[name] == "***"
        assert told(record(nested={name: value}))["nested"] == {name: "***"}
    assert told(record(), **{name: f"a {SECRET}"})[name] == "***"


def test_a_fencing_token_is_a_number_and_no_secret() -> None:
    found = told(record("token: 7", token=7, fencing_token=8, password=9, tokens="two", secret=None))
    assert [found[name] for name in ("message", "token", "fencing_token", "password", "tokens", "secret")] == [
        *("token: 7", 7, 8, "***", "two", None)
    ]


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_nothing_makes_it_raise() -> None:
    looped: dict[str, Any] = {}
    looped["self"] = looped
    hostile = [
        record("%d", "text"),
        record("%s %s", "one"),
        record("%s", Hostile()),
        record(Hostile()),
        record(field=Hostile()),
        record(field=looped),
        record(field=float("nan"), other=[float("inf")]),
        record("half \ud800 a character", field="\udfff"),
        record("x" * 100_000),
        record(**{f"field{number}": number for number in range(1000)}),
        record(field=object(), data=b"\xff"),
        record(exc_info=("not", "an", "error")),
        record(created="never"),
        record("a\nb"),
    ]
    for made in hostile:
        found = told(made)
        assert found["message"]
        assert len(found["message"]) <= MAX_TEXT
        assert len(found) < 60
    assert JsonFormatter().format(None)  # type: ignore[arg-type]


@given(st.text(), st.dictionaries(st.text(max_size=20), st.floats() | st.text() | st.none() | st.binary(), max_size=5))
def test_whatever_it_is_handed_a_line_is_json(message: str, fields: dict[str, Any]) -> None:
    harmless = {name: value for name, value in fields.items() if name not in vars(record())}
    told(record(message.replace("%", "%%"), **harmless))


async def test_what_the_coordinator_logs_says_what_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tenure")

    def events() -> dict[str, dict[str, Any]]:
        found = [told(made) for made in caplog.records]
        return {each["event"]: each for each in found if "event" in each}

    async with Database(nowhere(), worker_id="one") as db:
        assert isinstance(db.store, Metered)
        broken: list[Faulty] = []

        def break_later(inner: Any) -> Faulty:
            broken.append(Faulty(inner, Faults(), random=Random(1)))
            return broken[0]

        db.store.wrap(break_later)
        config = SWIFT.replace(
            heartbeat_interval=0.1,
            standby_watch_interval=0.1,
            lease_timeout=1.0,
            contention=ContentionConfig(threshold=2.0),
        )
        coordinator = await db.get_global_coordinator("reports", config=config)
        await coordinator.start()
        await eventually(coordinator.is_leader)
        broken[0]._faults = Faults(max_latency=0.9)
        await eventually(lambda: "contention" in events())
        broken[0]._faults = Faults(lost_request=1.0, failed_read=1.0)
        await eventually(lambda: {"no-longer-leading", "circuit-breaker-open"} <= set(events()))
        broken[0]._faults = Faults()
    found = events()
    for event in ("leading", "no-longer-leading", "contention", "circuit-breaker-open"):
        assert found[event]["namespace"] == "reports"
        assert found[event]["worker"] == "one"
        assert found[event]["epoch"] >= 1
        assert found[event]["logger"] == "tenure.coordinator"
    assert found["no-longer-leading"]["reason"] == "renew-deadline"
    assert found["circuit-breaker-open"]["level"] == "WARNING"
    assert found["contention"]["seconds"] > 0.2


async def test_another_leader_is_told_of_and_ones_own_term_only_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tenure")
    url = nowhere()
    async with Database(url, worker_id="one") as first, Database(url, worker_id="two") as second:
        leader, follower = [await db.get_global_coordinator(config=SWIFT) for db in (first, second)]
        await leader.start()
        await eventually(leader.is_leader)
        await follower.start()
        await eventually(lambda: follower.leader_seen == "one")
    changes = [each for each in map(told, caplog.records) if each.get("event") == "leader-changed"]
    assert {(each["worker"], each["leader"]) for each in changes if each["leader"]} == {("two", "one")}


def test_every_logger_is_listed() -> None:
    named: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for text in re.findall(r"getLogger\(([^)]+)\)", path.read_text()):
            if (plain := re.fullmatch(r'"(tenure\.\w+)"', text)) is not None:
                named.add(plain[1])
            else:
                assert text in ('"tenure"', 'f"tenure.{self.what}"'), (path, text)
    named |= {f"tenure.{what}" for what in ("queue", "schedule", "ttl", "counters", "ledger")}
    assert set(LOGGERS) == named
