"""Where the directory store keeps a key."""

from __future__ import annotations

from pathlib import PurePath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenure.store.directory.layout import file_of, fold, folders_of, segment_of, unfold
from tenure.store.keys import MAX_SEGMENT_BYTES

ALPHABET = "aAbBzZ019-_.=~"
SEGMENTS = st.text(ALPHABET, min_size=1, max_size=10).filter(lambda text: text not in (".", ".."))
KEYS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize(
    ("key", "file"),
    [
        ("app/state.json", "app@/state.json"),
        ("app", "app"),
        ("App", "app+1"),
        ("App/x", "app+1@/x"),
        ("aPP", "app+6"),
        ("1-A", "1-a+1"),
        ("a/b/C", "a@/b@/c+1"),
    ],
)
def test_layout_is_as_documented(key: str, file: str) -> None:
    assert file_of(key) == PurePath(file)


@pytest.mark.parametrize(("prefix", "folder"), [("", "."), ("a/", "a@"), ("A/b/", "a+1@/b@")])
def test_folders(prefix: str, folder: str) -> None:
    assert PurePath(*folders_of(prefix)) == PurePath(folder)


@given(SEGMENTS)
def test_folding_is_reversible(segment: str) -> None:
    name = fold(segment)
    assert name == name.casefold()
    assert unfold(name) == segment
    assert segment_of(name) == segment


@given(KEYS, KEYS)
@example("Ab", "aB")
@example("a", "A")
def test_different_keys_never_share_a_file_where_case_is_ignored(one: str, other: str) -> None:
    assert (str(file_of(one)).casefold() == str(file_of(other)).casefold()) == (one == other)


@given(st.text(ALPHABET + "/", min_size=1, max_size=10), SEGMENTS)
def test_a_key_may_be_a_folder_as_well(key: str, below: str) -> None:
    key = key.strip("/").replace("//", "/") or "k"
    parent = file_of(f"{key}/{below}").parent
    assert parent != file_of(key)
    assert parent == PurePath(*folders_of(key + "/"))


@given(st.text(ALPHABET, min_size=MAX_SEGMENT_BYTES, max_size=MAX_SEGMENT_BYTES))
@example("A" * MAX_SEGMENT_BYTES)
def test_the_longest_segment_fits_a_file_system(segment: str) -> None:
    assert len(fold(segment) + "@") <= 255
    assert unfold(fold(segment)) == segment


@pytest.mark.parametrize(
    "name",
    [
        "",
        "App",
        "app+",
        "app+0",
        "app+8",
        "app+01",
        "app+1x",
        "app+-1",
        "app+0x1",
        "app+1+1",
        "+locks",
        "+tmp",
        "lost+found",
        "a b",
        "é",
        "É",
        "ß+1",
        ".",
        "..",
        "a@",
        "a@b",
        "#backup#",
        "x~?",
        "1+1",
        "a" * (MAX_SEGMENT_BYTES + 1),
    ],
)
def test_names_of_other_programs_are_no_segments(name: str) -> None:
    assert segment_of(name) is None


@given(st.text("aAbB1+@.xf-_ é", max_size=8))
def test_a_name_is_ours_only_if_we_would_write_it_so(name: str) -> None:
    segment = segment_of(name)
    assert segment is None or fold(segment) == name
