"""What somebody wrote to the bucket, on its way to a terminal."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.cli.text import marked
from tenure.observe.printable import json_text, printable

TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=40)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("worker-1", "worker-1"),
        ("zoë 日本 🦊", "zoë 日本 🦊"),
        ("a\x1b]0;pwned\x07b", r"a\x1b]0;pwned\x07b"),
        ("a\nFAKE\r\tb", r"a\x0aFAKE\x0d\x09b"),
        ("\x7f\x9b31m\x85", r"\x7f\x9b31m\x85"),
        ("\u202eevil\u2066\u200b\u2028\u2029\ufeff", r"\u202eevil\u2066\u200b\u2028\u2029\ufeff"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_a_terminal_would_act_upon_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


def is_harmless(text: str) -> bool:
    return text.isprintable() and not any(unicodedata.category(each)[0] == "C" for each in text)


@given(TEXT)
def test_nothing_is_left_that_it_acts_upon(text: str) -> None:
    assert is_harmless(printable(text))
    assert is_harmless(marked(text))


@given(TEXT)
def test_json_says_the_same_and_is_harmless_as_well(text: str) -> None:
    for indent in (None, 2):
        told = json_text({"name": text}, indent=indent)
        assert json.loads(told) == {"name": text}
        assert is_harmless(told.replace("\n", ""))
    assert "\n" not in json_text({"name": text}, indent=None)


def test_json_stays_readable() -> None:
    assert json_text({"name": "zoë"}, indent=None) == '{"name":"zoë"}'
