"""What a plan says, and that its figures belong together."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tenure.coordinator.config import CoordinatorConfig
from tenure.errors import ConfigError
from tenure.plan import PROVIDERS, Circumstances, Knob, Plan, make_plan
from tenure.plan.chances import later, mean_age, mean_of_first, until_heartbeat, until_standby_looks
from tenure.plan.cost import LEASE_BYTES, WORKER_BYTES, charges, requests_per_hour, version_bytes
from tenure.plan.failover import failover, graceful_failover

STANDARD = CoordinatorConfig()


@pytest.mark.req("OP-4")
def test_dollars_are_requests_times_prices() -> None:
    plan = make_plan(STANDARD, Circumstances(workers=3))
    verbs = plan.requests_per_hour_by_verb
    assert plan.requests_per_hour == pytest.approx(sum(verbs.values()))
    s3 = 730 * (verbs["put"] * 0.005 + verbs["list"] * 0.005 + verbs["get"] * 0.0004) / 1000
    assert plan.usd_per_month["s3"] == pytest.approx(s3, abs=1e-5)
    assert plan.usd_per_month["gs"] == plan.usd_per_month["s3"]
    assert plan.usd_per_month["az"] > plan.usd_per_month["s3"]
    assert plan.usd_per_month["file"] == 0
    assert 12 < plan.usd_per_month["s3"] < 15  # as the page on cost says


def test_namespaces_multiply_the_cost_and_not_the_failover() -> None:
    one, ten = (make_plan(STANDARD, Circumstances(namespaces=n, versioned_days=3, kms=True), ("s3",)) for n in (1, 10))
    assert ten.requests_per_hour == pytest.approx(10 * one.requests_per_hour)
    assert ten.usd_per_month["s3"] == pytest.approx(10 * one.usd_per_month["s3"], abs=1e-4)
    assert ten.failover_seconds == one.failover_seconds


def test_a_key_service_is_asked_at_each_read_and_write_of_s3_alone() -> None:
    around = Circumstances(workers=5, kms=True)
    sent = requests_per_hour(STANDARD, around, "s3")
    assert charges(STANDARD, around, "s3").kms == pytest.approx(730 * (sent["get"] + sent["put"]) * 0.03 / 10_000)
    assert charges(STANDARD, around, "gs").kms == charges(STANDARD, around, "az").kms == 0
    assert charges(STANDARD, Circumstances(workers=5), "s3").kms == 0
    assert any("bucket keys" in note for note in make_plan(STANDARD, around).notes)


def test_versions_cost_their_bytes() -> None:
    config = CoordinatorConfig(heartbeat_interval=6, heartbeat_jitter=0, max_epoch_duration=3600)
    around = Circumstances(workers=2, versioned_days=10)
    bytes_kept = 240 * (600 * (LEASE_BYTES + 2 * WORKER_BYTES) + LEASE_BYTES)
    assert version_bytes(config, around) == pytest.approx(bytes_kept)
    assert charges(config, around, "s3").versions == pytest.approx(bytes_kept / 2**30 * 0.023)
    assert charges(config, around, "file").total == 0
    election_only = config.replace(membership=False)
    assert version_bytes(election_only, around) == pytest.approx(240 * 601 * LEASE_BYTES)
    assert version_bytes(config, Circumstances(workers=2)) == 0
    assert 300 < WORKER_BYTES < LEASE_BYTES < 800


def test_listings_have_pages_of_the_providers_size() -> None:
    around = Circumstances(workers=1500)
    s3, az = (requests_per_hour(STANDARD, around, provider)["list"] for provider in ("s3", "az"))
    assert s3 == pytest.approx(2 * az)
    assert make_plan(STANDARD, around).requests_per_hour_by_verb["list"] == pytest.approx(s3)
    assert make_plan(STANDARD, around, ("az",)).requests_per_hour_by_verb["list"] == pytest.approx(az)


def test_google_is_left_out_or_refused_if_it_cannot_keep_up() -> None:
    plan = make_plan(CoordinatorConfig.fast(), Circumstances())
    assert set(plan.usd_per_month) == set(PROVIDERS) - {"gs"}
    assert any(note.startswith("gs is left out: heartbeat_interval is 0.75 s") for note in plan.notes)
    with pytest.raises(ConfigError, match="Google"):
        make_plan(CoordinatorConfig.fast(), Circumstances(), ("gs",))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"workers": True}, "workers is True"),
        ({"namespaces": 10**9}, "namespaces is 1000000000"),
        ({"latency": -1}, "latency is -1 s"),
        ({"latency": float("nan")}, "latency is nan s"),
        ({"versioned_days": 0}, "versioned days is 0"),
    ],
)
def test_circumstances_that_cannot_be(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Circumstances(**wrong)


@pytest.mark.req("OP-4")
def test_knobs_do_what_they_say() -> None:
    around = Circumstances(workers=5)
    plan = make_plan(STANDARD, around)
    changes: dict[tuple[str, Any], CoordinatorConfig] = {
        ("lease", 7.5): CoordinatorConfig.for_lease(7.5),
        ("lease", 30.0): CoordinatorConfig.for_lease(30),
        ("membership", False): STANDARD.replace(membership=False),
        ("heartbeat_interval", 2.5): STANDARD.replace(heartbeat_interval=2.5),
        ("standby_watch_interval", 0.5): STANDARD.replace(standby_watch_interval=0.5),
        ("takeover_delay", 2.0): STANDARD.replace(takeover_delay=2),
    }
    told = {(knob.setting, knob.after): knob for knob in plan.knobs}
    assert changes.keys() <= told.keys()
    for which, config in changes.items():
        then, effect = make_plan(config, around), told[which].effect
        for provider, change in effect.usd_per_month.items():
            difference = then.usd_per_month[provider] - plan.usd_per_month[provider]
            assert change == pytest.approx(difference, abs=1e-4), which
        assert effect.failover_expected_seconds == pytest.approx(
            then.failover_seconds.expected - plan.failover_seconds.expected, abs=1e-4
        )
        assert effect.failover_worst_seconds == pytest.approx(
            then.failover_seconds.worst - plan.failover_seconds.worst, abs=1e-4
        )
    # A heartbeat of 10 s does not go with a lease of 15 s, and Google not with one of 1.9 s.
    assert ("heartbeat_interval", 10.0) not in told
    assert told["lease", 7.5].not_for == ("gs",)
    assert "gs" not in told["lease", 7.5].effect.usd_per_month
    assert told["lease", 30.0].not_for == ()


def test_knobs_are_sorted_by_how_much_they_change() -> None:
    plan = make_plan(STANDARD, Circumstances(), ("s3",))

    def weight(knob: Knob) -> float:
        failover = plan.failover_seconds
        return max(
            abs(knob.effect.usd_per_month["s3"]) / plan.usd_per_month["s3"],
            abs(knob.effect.failover_expected_seconds) / failover.expected,
            abs(knob.effect.failover_worst_seconds) / failover.worst,
        )

    weights = [weight(knob) for knob in plan.knobs]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] > 0
    assert len({(knob.setting, knob.after) for knob in plan.knobs}) == len(plan.knobs)


def test_advice_is_one_sentence_that_can_be_typed() -> None:
    plan = make_plan(STANDARD, Circumstances())
    assert plan.advice.startswith("To pay less, --no-membership")
    assert "--lease 7.5s (not on gs)" in plan.advice
    assert plan.advice.count(". ") == 0
    assert plan.advice.endswith(".")
    free = make_plan(STANDARD, Circumstances(), ("file",))
    assert "--no-membership" in free.advice  # where requests cost nothing, they are still work


def test_a_config_that_bears_less_is_no_advice() -> None:
    six = make_plan(CoordinatorConfig.for_lease(6), Circumstances(workers=5), ("s3",))
    assert six.outage_borne_seconds == pytest.approx(4 - 1.8)
    (longer,) = [knob for knob in six.knobs if (knob.setting, knob.after) == ("heartbeat_interval", 3.0)]
    # It would be cheaper and sooner, for a leader that a single failed renewal may cost its office.
    assert longer.effect.usd_per_month["s3"] < 0 > longer.effect.failover_expected_seconds
    assert longer.effect.outage_borne_seconds == pytest.approx(-1.5)
    assert "heartbeat_interval" not in six.advice
    assert "to fail over sooner, --lease 3s" in six.advice


def test_json_has_the_names_that_are_promised() -> None:
    found = msgspec.json.decode(msgspec.json.encode(make_plan(STANDARD, Circumstances())))
    assert set(found["failover_seconds"]) == {"best", "expected", "worst_without_outage", "worst"}
    assert {"setting", "from", "to", "effect"} <= set(found["knobs"][0])
    assert found["config"]["lease_timeout"] == 15
    assert found["config"]["renew_deadline"] == 10
    assert set(found) == set(Plan.__struct_fields__)


# Failover


@pytest.mark.req("OP-4")
def test_failover_is_the_sum_of_its_parts() -> None:
    # Without jitter, without latency, and with a standby that looks all the time.
    config = CoordinatorConfig(
        heartbeat_interval=4, heartbeat_jitter=0, standby_watch_interval=0.01, drift=0.01, takeover_margin=0.1
    )
    found = failover(config, Circumstances(workers=2, latency=0))
    assert found.best == pytest.approx(15.25 / 1.01 - 4)
    assert found.expected == pytest.approx(15.25 - 2, abs=0.02)  # the last renewal is 2 s old, on average
    assert found.worst_without_outage == pytest.approx(15.25 / 0.99 + 0.011)
    assert found.worst == config.worst_case_failover()
    slow = failover(config, Circumstances(workers=2, latency=0.1))
    # It is seen, and then: list and read the workers, list and read terms, take, record, read back.
    assert slow.expected - found.expected == pytest.approx(0.1 * (1 + 7), abs=0.1)


def test_one_worker_is_replaced_by_its_restart() -> None:
    found = failover(STANDARD, Circumstances(workers=1, latency=0))
    assert found.best == pytest.approx(15.25 / 1.01)
    assert found.expected == pytest.approx(2.5 + 15.25)
    assert found.worst == STANDARD.worst_case_failover() + 5
    assert any("nobody takes over" in note for note in make_plan(STANDARD, Circumstances(workers=1)).notes)


def test_a_stop_is_quicker_than_a_crash() -> None:
    for config, workers in itertools.product(
        (STANDARD, CoordinatorConfig.fast(), CoordinatorConfig.economical(), STANDARD.replace(membership=False)),
        (1, 2, 3, 20),
    ):
        around = Circumstances(workers=workers)
        assert graceful_failover(config, around) < failover(config, around).expected


def test_more_followers_are_sooner_without_ranks() -> None:
    config = STANDARD.replace(membership=False)
    times = [failover(config, Circumstances(workers=workers)).expected for workers in (2, 3, 5, 20, 1000)]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(times)


@given(
    heartbeat=st.floats(0.1, 60),
    jitter=st.floats(0, 10),
    lease=st.floats(1, 300),
    watch=st.floats(0.05, 60),
    delay=st.floats(0, 10),
    membership=st.booleans(),
    workers=st.integers(1, 3000),
    latency=st.floats(0, 1),
)
def test_best_expected_worst_are_in_order(
    heartbeat: float,
    jitter: float,
    lease: float,
    watch: float,
    delay: float,
    membership: bool,
    workers: int,
    latency: float,
) -> None:
    try:
        config = CoordinatorConfig(
            heartbeat_interval=heartbeat,
            heartbeat_jitter=jitter,
            lease_timeout=lease,
            standby_watch_interval=watch,
            takeover_delay=delay,
            membership=membership,
            worker_timeout=200,
        )
    except ConfigError:
        assume(False)
    around = Circumstances(workers=workers, latency=latency)
    found = failover(config, around)
    assert 0 <= found.best <= found.expected <= found.worst_without_outage <= found.worst
    assert graceful_failover(config, around) > 0
    assert all(count >= 0 for count in requests_per_hour(config, around, "s3").values())


# Chances


def test_a_mean_is_the_integral_of_survival() -> None:
    beat = until_heartbeat(STANDARD)
    assert beat(0) == 1
    assert beat(6) == 0
    # The mean wait for the next heartbeat, and the mean age of the last, are the same.
    assert mean_of_first([(beat, 1)], 6.0) == pytest.approx(mean_age(STANDARD), rel=1e-3)
    assert mean_age(STANDARD) == pytest.approx((5.5**2 + 1 / 12) / 11)
    assert mean_of_first([(beat, 2)], 6.0) == pytest.approx(5.5 / 3, rel=0.02)
    assert mean_of_first([(later(beat, 2.0), 1)], 8.0) == pytest.approx(2 + mean_age(STANDARD), rel=1e-3)
    assert mean_of_first([(later(beat, 0.0, 4.0), 1)], 10.0) == pytest.approx(2 + mean_age(STANDARD), rel=1e-3)
    assert mean_of_first([(beat, 1)], 0.0) == 0


def test_the_standby_looks_sooner_than_others() -> None:
    standby, other = until_standby_looks(STANDARD, 0.05), until_heartbeat(STANDARD)
    for tenth in range(1, 60):
        assert standby(tenth / 10) <= other(tenth / 10) + 1e-9
    assert standby(1.06) < 0.01
    assert mean_of_first([(standby, 1)], 1.2) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    ("heartbeat", "jitter", "watch", "looks"),
    [
        (5, 0, 5, 1.0),
        (5, 0, 1, 5.0),  # the fifth is cut off by the heartbeat, which looks itself
        (5, 0, 1.1, 5.0),
        (30, 3, 10, 4.0),
        (30, 0, 10, 3.0),
    ],
)
def test_heartbeats_cut_the_watch_short(heartbeat: float, jitter: float, watch: float, looks: float) -> None:
    config = CoordinatorConfig.economical(
        heartbeat_interval=heartbeat, heartbeat_jitter=jitter, standby_watch_interval=watch
    )
    assert config.standby_looks_per_heartbeat(0.0) == pytest.approx(looks, abs=0.01)
