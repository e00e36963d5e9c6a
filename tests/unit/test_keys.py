"""What a key may look like, and how names become segments."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenure.errors import InvalidKey
from tenure.store import open_store
from tenure.store.directory.layout import LOCKS, TEMPORARY, file_of, folders_of
from tenure.store.keys import (
    MAX_FULL_KEY_BYTES,
    MAX_KEY_BYTES,
    MAX_SEGMENT_BYTES,
    check_key,
    check_prefix,
    decode_name,
    encode_name,
    is_key,
)

AWKWARD = [
    "/",
    "..",
    ".",
    "%",
    "~",
    "~2f",
    "a b",
    "😀",
    "\0",
    "\x7f\n\t",
    "...",
    ".hidden",
    "a/../b",
    "ä",
    "A",
    "=",
    "+",
]
NAMES = st.one_of(st.sampled_from(AWKWARD), st.text(min_size=1, max_size=15))
SEGMENTS = st.text("abcXYZ019-_.=~", min_size=1, max_size=8).filter(lambda text: text not in (".", ".."))
KEYS = st.lists(SEGMENTS, min_size=1, max_size=5).map("/".join)


@given(NAMES)
@example("/")
@example("..")
@example(".")
@example("\0")
@example("%2F")
def test_any_name_survives_the_round_trip(name: str) -> None:
    segment = encode_name(name)
    assert decode_name(segment) == name
    assert check_key(segment) == segment
    assert "/" not in segment
    assert not segment.startswith(".")


@given(NAMES, NAMES)
def test_different_names_give_different_segments(one: str, other: str) -> None:
    assert (encode_name(one) == encode_name(other)) == (one == other)


@pytest.mark.parametrize(
    ("name", "segment"),
    [("a/b c", "a~2fb~20c"), ("..", "~2e."), (".x", "~2ex"), ("a.b", "a.b"), ("~", "~7e"), ("😀", "~f0~9f~98~80")],
)
def test_encoding_is_as_documented(name: str, segment: str) -> None:
    assert encode_name(name) == segment


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "a name is empty"),
        ("\ud800", "half of a surrogate pair"),
        ("a" * (MAX_SEGMENT_BYTES + 1), "takes 201 bytes when encoded, and the limit is 200: shorten it"),
        ("😀" * 17, "takes 204 bytes when encoded, and the limit is 200"),
        ("." * MAX_SEGMENT_BYTES, "takes 202 bytes"),
    ],
)
def test_names_that_cannot_be_encoded(name: str, complaint: str) -> None:
    with pytest.raises(InvalidKey, match=complaint):
        encode_name(name)


def test_a_long_name_is_not_repeated_in_full() -> None:
    with pytest.raises(InvalidKey) as caught:
        encode_name("n" * 10_000)
    assert len(str(caught.value)) < 300


def test_the_longest_names_fit() -> None:
    assert len(encode_name("a" * MAX_SEGMENT_BYTES)) == MAX_SEGMENT_BYTES
    assert decode_name(encode_name("é" * 33)) == "é" * 33


@pytest.mark.parametrize("segment", ["", ".", "..", ".x", "~2E", "~61", "~", "a~2", "~ff", "a/b", "a=b", "~2f" * 67])
def test_only_what_was_encoded_is_decoded(segment: str) -> None:
    with pytest.raises(InvalidKey, match="was not made by encode_name"):
        decode_name(segment)


@given(st.text("ab~2ef./=", max_size=12))
def test_decoding_is_the_inverse_or_refused(segment: str) -> None:
    try:
        name = decode_name(segment)
    except InvalidKey:
        return
    assert encode_name(name) == segment


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("", "key is empty: it needs at least one character"),
        ("a" * (MAX_KEY_BYTES + 1), "is 801 characters long, and the limit is 800"),
        ("a b", "holds ' '; a key holds letters, digits .* pass names .* through tenure.store.encode_name"),
        ("a\n", r"holds '\\n'"),
        ("é", "holds 'é'"),
        ("a+b", r"holds '\+'"),
        ("a@b", "holds '@'"),
        ("\ud800", "holds"),
        ("/a", "has an empty segment"),
        ("a/", "has an empty segment"),
        ("a//b", "has an empty segment: write each / between two segments, once"),
        (".", "has the segment '.', which names a folder elsewhere"),
        ("a/../b", "has the segment '..'"),
        ("x/" + "s" * (MAX_SEGMENT_BYTES + 1), "has a segment of 201 bytes, and the limit is 200"),
    ],
)
def test_refused_keys(key: str, complaint: str) -> None:
    assert not is_key(key)
    with pytest.raises(InvalidKey, match=complaint):
        check_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "a",
        "A",
        "plugin=coordinator/namespace=x/state.json",
        ".hidden",
        "...",
        "a/.b",
        "~",
        "a" * 200,
        "/".join(["a"] * 400),
    ],
)
def test_accepted_keys(key: str) -> None:
    assert is_key(key)
    assert check_key(key) == key


def test_a_longer_limit_for_keys_with_their_prefix() -> None:
    long = "/".join(["a" * 99] * 9)
    assert not is_key(long)
    assert is_key(long, MAX_FULL_KEY_BYTES)
    assert check_key(long, MAX_FULL_KEY_BYTES) == long
    with pytest.raises(InvalidKey, match="is 1011 characters long, and the limit is 1000"):
        check_key("/".join(["a" * 91] * 11), MAX_FULL_KEY_BYTES)


@given(st.text(max_size=20))
def test_any_text_is_a_key_or_refused(text: str) -> None:
    try:
        accepted = check_key(text) == text
    except InvalidKey:
        accepted = False
    assert accepted == is_key(text)


@pytest.mark.parametrize("prefix", ["", "a/", "a/b/", ".x/"])
def test_accepted_prefixes(prefix: str) -> None:
    assert check_prefix(prefix) == prefix


@pytest.mark.parametrize(
    ("prefix", "complaint"),
    [
        ("a", "does not end in /: listings are by folder"),
        ("/", "is empty"),
        ("a//", "empty segment"),
        ("../", "names a folder elsewhere"),
        ("a b/", "holds ' '"),
    ],
)
def test_refused_prefixes(prefix: str, complaint: str) -> None:
    with pytest.raises(InvalidKey, match=complaint):
        check_prefix(prefix)


@given(st.one_of(KEYS, NAMES.map(encode_name), st.text("./@+~=aA", min_size=1, max_size=12).filter(is_key)))
@example("+locks/00.0")
@example("...")
def test_no_key_leaves_its_directory_or_enters_ours(key: str) -> None:
    root = Path("/srv/store")
    if not is_key(key):
        return
    file = (root / file_of(key)).resolve()
    assert file.is_relative_to(root)
    assert file != root
    assert file.relative_to(root).parts[0] not in (LOCKS, TEMPORARY)
    folder = root.joinpath(*folders_of(key + "/")).resolve()
    assert folder.is_relative_to(root)
    assert folder.relative_to(root).parts[0] not in (LOCKS, TEMPORARY)


@pytest.mark.parametrize("after", ["a//b", "../x", "a/", "", "with space"])
async def test_a_listing_goes_on_after_a_key_and_nothing_else(after: str, tmp_path: Path) -> None:
    for url in ("memory://", tmp_path.as_uri()):
        async with open_store(url) as store:
            with pytest.raises(InvalidKey):
                [entry async for entry in store.list(after=after)]
