"""A config that exists can work; one that cannot is refused with the rule that it breaks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.coordinator.config import (
    CircuitBreakerConfig,
    ContentionConfig,
    CoordinatorConfig,
    Hosting,
    MandateEnd,
)
from tenure.errors import ConfigError

PRESETS = [CoordinatorConfig.standard, CoordinatorConfig.fast, CoordinatorConfig.economical]


@pytest.mark.req("EL-6")
def test_timing_defaults() -> None:
    config = CoordinatorConfig()
    assert config.heartbeat_interval == 5.0
    assert config.heartbeat_jitter == 1.0
    assert config.lease_timeout == 15.0
    assert config.worker_timeout == 20.0
    assert config.startup_jitter_min == 0.0
    assert config.startup_jitter_max == 5.0


@pytest.mark.req("CD-4")
def test_contention_is_set_for_each_namespace() -> None:
    config = CoordinatorConfig()
    assert config.contention == ContentionConfig(enabled=True, threshold=2.0, rate_limit=30.0)
    assert config.replace(contention=ContentionConfig(threshold=3)).contention.threshold == 3.0


@pytest.mark.req("CB-4")
def test_circuit_breaker_options() -> None:
    assert CoordinatorConfig().circuit_breaker == CircuitBreakerConfig(
        failure_threshold=5, reset_timeout=30.0, half_open_max_attempts=1
    )


def test_mandate_and_fencing_defaults() -> None:
    config = CoordinatorConfig()
    assert (config.min_epoch_duration, config.max_epoch_duration) == (60.0, 300.0)
    assert config.mandate_end is MandateEnd.RENEW
    assert (config.epoch_fencing_enabled, config.epoch_grace_period) == (True, 5.0)
    assert config.hosting is Hosting.THREAD
    assert config.metrics_buffer_size == 100


def test_what_is_left_out_follows_from_the_lease() -> None:
    config = CoordinatorConfig(lease_timeout=30)
    assert config.renew_deadline_seconds == pytest.approx(20)
    assert config.request_timeout_seconds == 5.0
    assert CoordinatorConfig().request_timeout_seconds == 3.75
    assert config.longest_lease_seconds == 120.0
    assert config.trim_delay_seconds == 240.0


def test_what_is_given_counts() -> None:
    config = CoordinatorConfig(renew_deadline=12, request_timeout=2, longest_lease=20, trim_delay=33)
    assert config.renew_deadline_seconds == 12.0
    assert config.request_timeout_seconds == 2.0
    assert config.longest_lease_seconds == 20.0
    assert config.trim_delay_seconds == 33.0


def test_durations_become_plain_seconds() -> None:
    config = CoordinatorConfig.standard(
        lease_timeout=timedelta(seconds=30), heartbeat_interval=4, renew_deadline=timedelta(seconds=12)
    )
    assert type(config.lease_timeout) is float
    assert config.lease_timeout == 30.0
    assert type(config.heartbeat_interval) is float
    assert config.renew_deadline == 12.0
    breaker = CircuitBreakerConfig(reset_timeout=timedelta(minutes=1))  # type: ignore[arg-type]
    assert breaker.reset_timeout == 60.0


def test_a_config_never_changes() -> None:
    with pytest.raises(AttributeError):
        CoordinatorConfig().lease_timeout = 1.0  # type: ignore[misc]


DURATIONS = [
    "heartbeat_interval",
    "heartbeat_jitter",
    "lease_timeout",
    "worker_timeout",
    "startup_jitter_min",
    "startup_jitter_max",
    "renew_deadline",
    "takeover_margin",
    "takeover_delay",
    "standby_watch_interval",
    "request_timeout",
    "min_epoch_duration",
    "max_epoch_duration",
    "drain_timeout",
    "longest_lease",
    "trim_delay",
    "health_check_interval",
    "epoch_grace_period",
    "max_clock_skew",
    "max_loop_stall",
]


@pytest.mark.req("EL-6")
@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), True, "5", timedelta(seconds=-1), 10**400, [5]])
def test_a_duration_that_is_none_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} is "):
        CoordinatorConfig.standard(**{name: value})


@pytest.mark.parametrize("name", DURATIONS)
def test_only_some_durations_may_be_left_out(name: str) -> None:
    optional = {"renew_deadline", "request_timeout", "longest_lease", "trim_delay", "max_loop_stall"}
    if name in optional:
        assert getattr(CoordinatorConfig.standard(**{name: None}), name) is None
    else:
        with pytest.raises(ConfigError, match=rf"^{name} is None"):
            CoordinatorConfig.standard(**{name: None})


MILLISECONDS = {
    "heartbeat_interval": 5000,
    "lease_timeout": 15000,
    "worker_timeout": 20000,
    "startup_jitter_max": 5000,
    "min_epoch_duration": 60_000,
    "max_epoch_duration": 300_000,
    "drain_timeout": 10_000,
    "epoch_grace_period": 5000,
    "max_clock_skew": 60_000,
}


@pytest.mark.req("EL-6")
@pytest.mark.parametrize(("name", "milliseconds"), MILLISECONDS.items())
def test_milliseconds_are_recognised(name: str, milliseconds: int) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} is .* looks like milliseconds: .* ms is {milliseconds // 1000}$"):
        CoordinatorConfig.standard(**{name: milliseconds})


def test_milliseconds_are_recognised_inside_too() -> None:
    with pytest.raises(ConfigError, match=r"^contention\.rate_limit is .* looks like milliseconds"):
        ContentionConfig(rate_limit=30_000)
    with pytest.raises(ConfigError, match=r"^circuit_breaker\.reset_timeout is .* looks like milliseconds"):
        CircuitBreakerConfig(reset_timeout=30_000)


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    (
        {"heartbeat_interval": 9, "heartbeat_jitter": 1},
        r"heartbeat_interval 9 \+ heartbeat_jitter 1 is 10 s, .* must be less",
    ),
    ({"lease_timeout": 9}, r"a lease_timeout over 9$"),
    ({"renew_deadline": 6}, r"a renew_deadline over 6$"),
    ({"renew_deadline": 14.85}, r"renew_deadline is 14.85 s: it must be under lease_timeout x \(1 - drift\)"),
    ({"request_timeout": 10}, r"request_timeout is 10 s: it must be under renew_deadline, here 10 s"),
    ({"worker_timeout": 6}, r"worker_timeout is 6 s: it must be over heartbeat_interval \+ heartbeat_jitter, here 6 s"),
    ({"standby_watch_interval": 5.1}, r"standby_watch_interval is 5.1 s: it must not be over heartbeat_interval"),
    ({"startup_jitter_min": 6}, r"startup_jitter_min is 6 s: it must not be over startup_jitter_max, here 5 s"),
    ({"drift": 0.11}, r"drift is 0.11: it is a fraction from 0 to 0.1"),
    ({"drift": -0.01}, r"drift is -0.01"),
    ({"drift": float("nan")}, r"drift is nan"),
    ({"drift": True}, r"drift is True"),
    ({"min_epoch_duration": 301}, r"min_epoch_duration is 301 s: it must not be over max_epoch_duration, here 300 s"),
    ({"longest_lease": 14}, r"longest_lease is 14 s: it must not be under lease_timeout, here 15 s"),
    ({"trim_delay": 29}, r"trim_delay is 29 s: it must be at least two leases, here 30 s"),
    ({"max_loop_stall": 10}, r"max_loop_stall is 10 s: it must be under renew_deadline, here 10 s"),
    ({"takeover_margin": 15}, r"takeover_margin is 15 s: it must be under lease_timeout"),
    (
        {"heartbeat_interval": 0.001, "standby_watch_interval": 0.001},
        r"heartbeat_interval is 0.001 s: .* at least 0.01",
    ),
]


@pytest.mark.req("EL-6")
@pytest.mark.parametrize(("settings", "rule"), IMPOSSIBLE)
def test_impossible_combinations_are_refused_with_their_rule(settings: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        CoordinatorConfig(**settings)
    with pytest.raises(ConfigError, match=rule):
        CoordinatorConfig().replace(**settings)


ZERO_IS_FINE = [
    "heartbeat_jitter",
    "startup_jitter_min",
    "startup_jitter_max",
    "takeover_margin",
    "takeover_delay",
    "min_epoch_duration",
    "epoch_grace_period",
]


@pytest.mark.parametrize("name", DURATIONS)
def test_zero_is_refused_where_it_means_nothing(name: str) -> None:
    if name in ZERO_IS_FINE:
        assert getattr(CoordinatorConfig.standard(**{name: 0}), name) == 0.0
    else:
        with pytest.raises(ConfigError, match=rf"^{name} is 0 s: it must be over zero"):
            CoordinatorConfig.standard(**{name: 0})


def test_without_members_their_timeout_does_not_matter() -> None:
    assert CoordinatorConfig(membership=False, heartbeat_interval=25, lease_timeout=90).worker_timeout == 20.0


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"worker_id": ""}, "worker_id is '', which is empty"),
    ({"worker_id": "  "}, "empty or blank"),
    ({"worker_id": "x" * 129}, "is 129 characters long: it must be 1 to 128"),
    ({"worker_id": "a\nb"}, "control character"),
    ({"worker_id": "a\x00"}, "control character"),
    ({"worker_id": "\ud800"}, "worker_id"),
    ({"worker_id": "é" * 40}, "takes 240 bytes when encoded"),
    ({"worker_id": "é" * 32}, "takes 192 bytes when encoded, and the limit is 188"),
    ({"worker_id": 7}, "worker_id is 7"),
    ({"priority": 1.5}, "priority is 1.5: it must be a whole number"),
    ({"priority": True}, "priority is True"),
    ({"health_check": True}, "health_check is True: it must be a function"),
    ({"unhealthy_after": 0}, "unhealthy_after is 0: it must be a whole number from 1"),
    ({"healthy_after": 0}, "healthy_after is 0"),
    ({"metrics_buffer_size": 9}, "metrics_buffer_size is 9: it must be a whole number from 10"),
    ({"event_buffer_size": 0}, "event_buffer_size is 0"),
    ({"membership": "false"}, "membership is 'false': it must be True or False"),
    ({"epoch_fencing_enabled": 0}, "epoch_fencing_enabled is 0: it must be True or False"),
    ({"mandate_end": "renew"}, "mandate_end is 'renew': it must be MandateEnd.RENEW or MandateEnd.HAND_OVER"),
    ({"hosting": None}, "hosting is None: it must be Hosting.THREAD or Hosting.LOOP"),
    ({"contention": True}, "contention is True: it must be a ContentionConfig"),
    ({"circuit_breaker": {}}, "circuit_breaker is {}: it must be a CircuitBreakerConfig"),
]


@pytest.mark.parametrize(("settings", "complaint"), WRONG)
def test_other_settings_that_cannot_work(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        CoordinatorConfig(**settings)


@pytest.mark.parametrize("settings", [{"threshold": 0}, {"threshold": "2"}, {"enabled": 1}, {"rate_limit": -1}])
def test_contention_that_cannot_work(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"contention\.{next(iter(settings))}"):
        ContentionConfig(**settings)


@pytest.mark.parametrize("settings", [{"failure_threshold": 0}, {"half_open_max_attempts": 1.0}, {"reset_timeout": 0}])
def test_a_breaker_that_cannot_work(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"circuit_breaker\.{next(iter(settings))}"):
        CircuitBreakerConfig(**settings)


def test_worker_ids_that_people_use() -> None:
    for worker_id in ("pod-7", "10.0.0.1:8080", "worker-1700000000000-ab12", "Büro 3", "x" * 128):
        assert CoordinatorConfig(worker_id=worker_id).worker_id == worker_id


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_take_changes_and_check_them(preset: Any) -> None:
    assert preset() == preset(priority=0)
    assert preset(worker_id="a", priority=3).priority == 3
    with pytest.raises(ConfigError, match="renew_deadline"):
        preset(lease_timeout=0.5)
    with pytest.raises(ConfigError, match="there is no setting 'heartbeat': did you mean heartbeat_"):
        preset(heartbeat=1)


def test_replace_checks_names_too() -> None:
    with pytest.raises(ConfigError, match="there is no setting 'leese_timeout': did you mean lease_timeout"):
        CoordinatorConfig().replace(leese_timeout=3)


def test_presets_are_what_their_names_say() -> None:
    fast, standard, economical = CoordinatorConfig.fast(), CoordinatorConfig.standard(), CoordinatorConfig.economical()
    assert standard == CoordinatorConfig()
    assert fast.worst_case_failover() < standard.worst_case_failover() < economical.worst_case_failover()
    costs = [sum(config.requests_per_hour(5).values()) for config in (economical, standard, fast)]
    assert costs == sorted(costs)


def test_google_takes_no_fast_renewals() -> None:
    quick = CoordinatorConfig(heartbeat_interval=1.9)
    with pytest.raises(ConfigError, match=r"heartbeat_interval is 1.9 s, and Google .* at least 2 s"):
        quick.check_provider("gs")
    for provider in ("s3", "az", "file", "memory"):
        quick.check_provider(provider)
    CoordinatorConfig(heartbeat_interval=2).check_provider("gs")


def test_differences_name_every_field() -> None:
    def healthy() -> bool:
        return True

    mine = CoordinatorConfig(lease_timeout=20, contention=ContentionConfig(threshold=3), health_check=healthy)
    theirs = CoordinatorConfig(worker_id="b")
    assert mine.differences(mine) == []
    assert mine.differences(theirs) == [
        ("lease_timeout", 20.0, 15.0),
        ("worker_id", None, "b"),
        ("health_check", healthy, None),
        ("contention.threshold", 3.0, 2.0),
    ]


def test_usual_failover_is_the_sum_of_its_parts() -> None:
    assert CoordinatorConfig().usual_failover() == pytest.approx(6 + 15.15 + 0.1 + 1)


def test_worst_case_failover_is_the_sum_of_its_parts() -> None:
    # breaker 30, heartbeat 5 + 1, lease 15.15, margin 0.1, five ranks and a jitter of 1, six requests of 3.75
    assert CoordinatorConfig().worst_case_failover() == pytest.approx(30 + 6 + 15.15 + 0.1 + 6 + 22.5)


def test_requests_per_hour() -> None:
    # A beat each 6 s: 600 an hour; a mandate of 300 s is renewed 12 times an hour.
    config = CoordinatorConfig(heartbeat_interval=5, heartbeat_jitter=2)
    assert config.requests_per_hour(0) == {"get": 0, "put": 0, "list": 0}
    assert config.requests_per_hour(1) == {"get": 0, "put": 1200 + 12, "list": 600}
    # The standby looks each 1.05 s and some, and its heartbeat, each 5 to 7 s, begins anew: five to seven looks a beat.
    looks = config.requests_per_hour(2)["get"]
    assert 5.5 * 600 < looks < 6.5 * 600
    assert config.requests_per_hour(2) == {"get": looks, "put": 1800 + 12, "list": 600}
    assert config.requests_per_hour(4) == {"get": pytest.approx(looks + 2 * 600), "put": 3000 + 12, "list": 600}
    assert config.requests_per_hour(1001)["list"] == 1200
    assert config.requests_per_hour(1001, provider="az")["list"] == 600
    with pytest.raises(ConfigError, match="workers is -1"):
        config.requests_per_hour(-1)


def test_requests_of_election_only() -> None:
    config = CoordinatorConfig(heartbeat_interval=5, heartbeat_jitter=2, membership=False)
    assert config.requests_per_hour(4) == {"get": 1800, "put": 600 + 12, "list": 0}


@given(
    lease=st.floats(0.01, 7200),
    heartbeat=st.floats(0.001, 7200),
    jitter=st.floats(0, 100),
    deadline=st.none() | st.floats(0.01, 7200),
    timeout=st.none() | st.floats(0.01, 100),
    drift=st.floats(0, 0.2),
)
def test_a_config_that_exists_lets_a_leader_renew_in_time(
    lease: float, heartbeat: float, jitter: float, deadline: float | None, timeout: float | None, drift: float
) -> None:
    try:
        config = CoordinatorConfig(
            lease_timeout=lease,
            heartbeat_interval=heartbeat,
            heartbeat_jitter=jitter,
            renew_deadline=deadline,
            request_timeout=timeout,
            drift=drift,
            membership=False,
        )
    except ConfigError:
        return
    renewal = config.heartbeat_interval + config.heartbeat_jitter
    assert renewal < config.renew_deadline_seconds < config.lease_timeout * (1 - config.drift)
    assert config.request_timeout_seconds < config.renew_deadline_seconds
