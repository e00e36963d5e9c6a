"""When records expire, and what a record is judged to be: pure rules, and what they refuse."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.database.expiry import Expiry, Pending, with_expiry
from tenure.database.records import Envelope
from tenure.errors import ConfigError
from tenure.plugins.ttl import OnExpire, TTLPlugin
from tenure.plugins.ttl.index import LAST_SLOT, slot_of
from tenure.plugins.ttl.judge import NEAR_MS, Verdict, judge, next_look, quarantine_ends
from tenure.plugins.ttl.rules import LATEST_MS, BadTime, Now, Rules, iso, milliseconds, moment_of
from tenure.plugins.ttl.settings import settings_from


def rules(**settings: Any) -> Rules:
    return Rules(settings_from(settings))


class TestSettings:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({}, "neither ttl nor field is given"),
            ({"ttl": 0}, "ttl is 0: give from 0.001"),
            ({"ttl": -5}, "ttl is -5"),
            ({"ttl": "60"}, "ttl is '60': give a number of seconds"),
            ({"ttl": True}, "ttl is True"),
            ({"ttl": float("nan")}, "ttl is nan"),
            ({"ttl": 1e12}, "ttl is 1000000000000.0: give from"),
            ({"field": ""}, "field is ''"),
            ({"field": 7}, "field is 7"),
            ({"ttl": 1, "tick": 0}, "tick is 0: give from 0.1 to 3600"),
            ({"ttl": 1, "quarantine": 1}, "quarantine is 1"),
            ({"ttl": 1, "rate_limit": -1}, "rate_limit is -1"),
            ({"ttl": 1, "at_once": 0}, "at_once is 0: give a whole number"),
            ({"ttl": 1, "max_attempts": 1.5}, "max_attempts is 1.5"),
            ({"ttl": 1, "on_expire": "shred"}, "on_expire is 'shred': give one of 'hard-delete', 'soft-delete'"),
            ({"ttl": 1, "on_expire": "archive"}, "on_expire is 'archive' and archive is None"),
            ({"ttl": 1, "archive": "old"}, "on_expire is 'hard-delete' and archive is 'old'"),
            ({"field": "t", "on_expire": "soft-delete", "soft_field": "t"}, "field and soft_field are both 't'"),
            ({"ttl": 1, "speed": 2}, "there is no setting 'speed' of a TTL: there are archive, at_once"),
        ],
    )
    def test_what_cannot_work_is_refused_by_name(self, options: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigError) as caught:
            TTLPlugin("things", **options)
        assert said in str(caught.value)

    def test_a_callback_belongs_to_its_strategy(self) -> None:
        with pytest.raises(ConfigError, match="on_expire is 'callback' and callback is None"):
            TTLPlugin("things", ttl=1, on_expire="callback")
        with pytest.raises(ConfigError, match="on_expire is 'hard-delete' and callback is"):
            TTLPlugin("things", ttl=1, on_expire="hard-delete", callback=print)
        with pytest.raises(ConfigError, match="callback is 7: give a function"):
            TTLPlugin("things", ttl=1, callback=7)  # type: ignore[arg-type]
        assert TTLPlugin("things", ttl=1, callback=print).settings.on_expire is OnExpire.CALLBACK

    def test_names_of_resources(self) -> None:
        with pytest.raises(ConfigError, match="archive is 'things', the resource itself"):
            TTLPlugin("things", ttl=1, on_expire="archive", archive="things")
        with pytest.raises(ConfigError, match="resource"):
            TTLPlugin("", ttl=1)

    def test_durations_and_words(self) -> None:
        settings = settings_from({"ttl": timedelta(minutes=1), "on_expire": OnExpire.SOFT_DELETE})
        assert (settings.ttl, settings.on_expire) == (60.0, OnExpire.SOFT_DELETE)


class TestTimes:
    @pytest.mark.req("TT-1")
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("1970-01-01T00:00:01+00:00", 1000),
            ("1970-01-01T00:00:01Z", 1000),
            ("1970-01-01T02:00:01+02:00", 1000),
            ("1970-01-01T00:00:00.0001+00:00", 1),
            (1, 1000),
            (1.0001, 1001),
            (99_999_999_999, 99_999_999_999_000),
            (100_000_000_000, 100_000_000_000),
            (1_700_000_000, 1_700_000_000_000),
            (1_700_000_000_000, 1_700_000_000_000),
            (0, 0),
        ],
    )
    def test_of_a_field(self, value: Any, expected: int) -> None:
        assert milliseconds("t", value) == expected

    @pytest.mark.req("TT-1")
    @pytest.mark.parametrize(
        ("value", "said"),
        [
            ("tomorrow", "t is 'tomorrow', which is no time: give ISO 8601 with an offset"),
            ("2026-01-01T00:00:00", "a time without an offset from UTC"),
            ("2026-01-01", "a time without an offset"),
            (True, "t is True"),
            (float("inf"), "t is inf"),
            (-1, "before 1970 or after 9999"),
            (1e18, "before 1970 or after 9999"),
            (["x"], "t is ['x'], which is no time"),
            ({}, "t is {}"),
            ("0001-01-01T00:00:00+23:00", "t is"),
        ],
    )
    def test_what_is_none(self, value: Any, said: str) -> None:
        try:
            found = milliseconds("t", value)
        except BadTime as error:
            assert said in str(error)
        else:
            assert found < 0  # a time long ago is one

    @pytest.mark.req("TT-1")
    @given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 30)))
    def test_never_rounded_to_an_earlier_time(self, naive: datetime) -> None:
        moment = naive.replace(tzinfo=UTC)
        found = milliseconds("t", moment.isoformat())
        assert timedelta(0) <= moment_of(found) - moment < timedelta(milliseconds=1)
        assert milliseconds("t", iso(found)) == found

    @pytest.mark.req("TT-1")
    @given(st.integers(min_value=0, max_value=LATEST_MS))
    def test_the_slot_of_a_time_is_never_before_it(self, at_ms: int) -> None:
        slot = slot_of(at_ms)
        assert slot % 1000 == 0
        assert slot == LAST_SLOT or 0 <= slot - at_ms < 1000
        assert len(f"{slot:013d}") == 13

    @pytest.mark.req("TT-1")
    def test_from_creation_is_counted_from_the_latest_that_it_can_be(self) -> None:
        assert rules(ttl=10).from_now(Now(1000, 300)) == 11_300
        assert rules(ttl=10).from_now(Now(1000, 300), 500) == 1800
        assert (Now(1000, 300).earliest_ms, Now(1000, 300).latest_ms) == (700, 1300)

    @pytest.mark.req("TT-1")
    def test_by_a_field(self) -> None:
        absolute, relative = rules(field="t"), rules(field="t", ttl=5)
        assert absolute.at_by_field({"t": 7}) == 7000
        assert relative.at_by_field({"t": 7}) == 12_000
        assert absolute.at_by_field({}) is None
        assert absolute.at_by_field({"t": None}) is None

    @pytest.mark.req("TT-1")
    def test_the_field_keeps_the_form_that_it_has(self) -> None:
        relative = rules(field="t", ttl=5)
        for former in (7, 7.5, 1_700_000_000_000, "1970-01-01T00:00:01Z", None, True):
            field = relative.field_for(1_800_000_000_000, former)
            assert 0 <= (relative.at_by_field({"t": field}) or 0) - 1_800_000_000_000 < 1000
            assert isinstance(field, str if former in (None, "1970-01-01T00:00:01Z") or former is True else int | float)

    @pytest.mark.req("TT-1")
    def test_what_is_marked_as_deleted_does_not_expire(self) -> None:
        soft = rules(ttl=5, on_expire="soft-delete")
        assert soft.at_of({"deleted_at": "x"}, Expiry(7)) is None
        assert soft.at_of({"deleted_at": None}, Expiry(7)) == 7
        by_field = rules(field="t", on_expire="soft-delete")
        assert by_field.at_of({"t": 7, "deleted_at": "x"}, Expiry()) is None
        assert rules(ttl=5).at_of({"deleted_at": "x"}, Expiry(7)) == 7


def envelope(expiry: Expiry | None, *, deleted: bool = False, **data: Any) -> Envelope:
    return Envelope(
        id="x",
        version=3,
        first_version=1,
        write_id="w",
        recent_writes=("w",),
        data=data,
        deleted=deleted,
        reserved=with_expiry({}, expiry) if expiry is not None else {},
    )


WORK = Pending(how="archive", data={}, version=1, write="w", at=5)
BY_AGE = rules(ttl=5)
BY_FIELD = rules(field="t")


class TestJudge:
    @pytest.mark.req("TT-1")
    @pytest.mark.parametrize(
        ("found", "by", "verdict"),
        [
            (None, BY_AGE, Verdict.ABSENT),
            (envelope(None), BY_AGE, Verdict.ELSEWHERE),
            (envelope(Expiry(keep=True)), BY_AGE, Verdict.ELSEWHERE),
            (envelope(Expiry(1000, "other")), BY_AGE, Verdict.ELSEWHERE),
            (envelope(Expiry(1000, "e")), BY_AGE, Verdict.EXPIRE),
            (envelope(Expiry(5000, "e")), BY_AGE, Verdict.EXPIRE),
            (envelope(Expiry(5001, "e")), BY_AGE, Verdict.WAIT),
            (envelope(Expiry(5000 + NEAR_MS, "e")), BY_AGE, Verdict.WAIT),
            (envelope(Expiry(5001 + NEAR_MS, "e")), BY_AGE, Verdict.MOVE),
            (envelope(Expiry(None, "e")), BY_AGE, Verdict.RELEASE),
            (envelope(Expiry(1000, "e"), deleted=True), BY_AGE, Verdict.ABSENT),
            (envelope(Expiry(pending={"e": WORK}), deleted=True), BY_AGE, Verdict.WORK),
            (envelope(Expiry(9999, "f", pending={"e": WORK})), BY_AGE, Verdict.WORK),
            (envelope(Expiry(9999, "f", pending={"g": WORK})), BY_AGE, Verdict.ELSEWHERE),
            (envelope(Expiry(1000, "e"), t=900), BY_FIELD, Verdict.MOVE),
            (envelope(Expiry(1000, "e"), t=3), BY_FIELD, Verdict.EXPIRE),
            (envelope(Expiry(1000, "e")), BY_FIELD, Verdict.RELEASE),
            (envelope(Expiry(1000, "e"), t="soon"), BY_FIELD, Verdict.DAMAGED),
        ],
    )
    def test_by_the_record_itself(self, found: Envelope | None, by: Rules, verdict: Verdict) -> None:
        assert judge(found, "e", 5000, by).verdict is verdict

    def test_damage_is_said(self) -> None:
        broken = Envelope(
            id="x",
            version=3,
            first_version=1,
            write_id="w",
            recent_writes=("w",),
            data={},
            reserved={"ttl": {"at": "soon"}},
        )
        judgement = judge(broken, "e", 5000, BY_AGE)
        assert judgement.verdict is Verdict.DAMAGED
        assert "reserved.ttl is not readable" in judgement.reason

    @given(st.integers(0, 10**13), st.integers(0, 10**8), st.integers(100, 60_000), st.floats(10, 10_000))
    def test_looks_become_rarer_and_end_with_the_quarantine(
        self, modified: int, age: int, tick: int, quarantine: float
    ) -> None:
        ends = quarantine_ends(modified, quarantine)
        looks = 0
        now = modified + min(age, round(quarantine * 1000))
        while now < ends:
            following = next_look(modified, now, tick_ms=tick, ends_ms=ends)
            assert now < following <= ends
            now = max(following, min(now + tick, ends))
            looks += 1
        assert looks <= 60_000 // tick + 40
