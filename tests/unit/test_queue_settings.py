"""Settings of a queue: what cannot work is refused with the name, the value, and what would be right."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import ConfigError
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.queue.settings import (
    LARGEST_MESSAGE_BYTES,
    Delivery,
    Ordering,
    QueueSettings,
    checked,
    settings_from,
)

NUMBERS = [name for name in QueueSettings.__struct_fields__ if isinstance(getattr(QueueSettings(), name), int | float)]


def test_the_defaults_can_work() -> None:
    assert checked(QueueSettings()) == QueueSettings() == settings_from({})


def test_words_and_durations_are_understood() -> None:
    chosen = settings_from(
        {
            "ordering": "pass",
            "delivery": "at-most-once",
            "visibility_timeout": timedelta(minutes=2),
            "backoff": timedelta(0),
            "rate_limit": 5,
        }
    )
    assert chosen.ordering is Ordering.PASS
    assert chosen.delivery is Delivery.AT_MOST_ONCE
    assert (chosen.visibility_timeout, chosen.backoff, chosen.rate_limit) == (120.0, 0.0, 5)
    assert settings_from({"ordering": Ordering.WAIT}).ordering is Ordering.WAIT


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, 1e18, math.nan, math.inf, -math.inf, True, "30", None, [], 10**30])
def test_what_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} is .*: give"):
        settings_from({name: value})


@pytest.mark.parametrize("name", ["max_attempts", "key_concurrency", "max_in_flight", "max_message_bytes"])
def test_counts_are_whole(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 1.5: give a whole number"):
        settings_from({name: 1.5})


@pytest.mark.parametrize("name", ["ordering", "delivery"])
@pytest.mark.parametrize("value", ["never", 3, None, [], {}])
def test_words_that_are_none_are_refused_with_those_that_are(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} is .*: give one of '"):
        settings_from({name: value})
    with pytest.raises(ConfigError, match=f"{name} is .*: give one of '"):
        checked(QueueSettings(**{name: value}))


def test_a_setting_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"there is no setting 'visibility'.*visibility_timeout"):
        settings_from({"visibility": 3})


def test_bounds_are_inside() -> None:
    assert settings_from({"max_message_bytes": LARGEST_MESSAGE_BYTES}).max_message_bytes == LARGEST_MESSAGE_BYTES
    with pytest.raises(ConfigError):
        settings_from({"max_message_bytes": LARGEST_MESSAGE_BYTES + 1})
    assert settings_from({"visibility_timeout": 0.5}).visibility_timeout == 0.5
    with pytest.raises(ConfigError):
        settings_from({"visibility_timeout": 0.49})


@given(
    st.dictionaries(
        st.sampled_from(list(QueueSettings.__struct_fields__)),
        st.none() | st.integers() | st.floats() | st.text() | st.timedeltas(),
    )
)
def test_anything_is_taken_or_refused_in_one_sentence(options: dict[str, Any]) -> None:
    try:
        settings_from(options)
    except ConfigError as error:
        assert "\n" not in str(error)
        assert any(name in str(error) for name in options)


def _none() -> None: ...


async def _two(message: object, more: object) -> None: ...


def _named(*, message: object) -> None: ...


@pytest.mark.parametrize("handler", [_none, _two, _named])
def test_a_handler_that_no_message_can_be_given_to_is_refused_where_it_is_written(handler: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be called with a message: give a function of one argument"):
        S3QueuePlugin("jobs").handler(handler)
    with pytest.raises(ConfigError, match="cannot be called with a list of messages"):
        S3QueuePlugin("jobs").handler(handler, batch=10)


@pytest.mark.parametrize("handler", [print, dict, lambda *all: None, lambda message, more=None: None, [].append])
def test_a_handler_may_take_more_than_it_needs(handler: Any) -> None:
    S3QueuePlugin("jobs").handler(handler)
