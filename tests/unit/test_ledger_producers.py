"""Which batches of which producers were folded: each once, in its producer's order, and for as long as it matters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.ledger.layout import InboxName
from tenure.ledger.producers import MAX_AHEAD, Producers, Remembered, Verdict


def judged(producers: Producers, number: int, after: int = 0, **more: object) -> Verdict:
    known = more.pop("known", 0)
    return producers.judge(InboxName(known, "p", number), after, **more)  # type: ignore[arg-type]


@pytest.fixture
def producers() -> Producers:
    return Producers()


def test_the_first_is_folded(producers: Producers) -> None:
    assert judged(producers, 1) is Verdict.FOLD
    assert judged(producers, 7) is Verdict.FOLD


def test_what_was_folded_is_a_copy(producers: Producers) -> None:
    producers.fold("p", [1, 3], 5, 100)
    assert [judged(producers, number) for number in (1, 2, 3, 4)] == [
        Verdict.DUPLICATE,
        Verdict.FOLD,
        Verdict.DUPLICATE,
        Verdict.FOLD,
    ]
    assert [producers.is_done(InboxName(0, "p", number)) for number in (1, 2, 3, 4)] == [True, False, True, False]


def test_gaps_are_closed(producers: Producers) -> None:
    producers.fold("p", [3, 2, 5], 1, 1)
    assert producers.known["p"] == Remembered(0, [2, 3, 5], 1, 1)
    producers.fold("p", [1], 2, 2)
    assert producers.known["p"] == Remembered(3, [5], 2, 2)
    producers.fold("p", [4, 4, 1], 3, 1)
    assert producers.known["p"] == Remembered(5, [], 3, 2)


def test_what_it_follows_comes_first(producers: Producers) -> None:
    assert judged(producers, 3, 2) is Verdict.EARLY
    producers.fold("p", [1], 1, 1)
    assert judged(producers, 3, 2) is Verdict.EARLY
    assert judged(producers, 3, 2, skipped=[2]) is Verdict.FOLD
    producers.fold("p", [2], 1, 1)
    assert judged(producers, 3, 2) is Verdict.FOLD


def test_what_was_durable_ahead_comes_first(producers: Producers) -> None:
    producers.fold("p", [1], 1, 1)
    assert judged(producers, 5, 1, ahead=[3]) is Verdict.EARLY
    producers.fold("p", [3], 1, 1)
    assert judged(producers, 5, 1, ahead=[3]) is Verdict.FOLD
    assert judged(producers, 5, 1, ahead=[1, 3]) is Verdict.FOLD


def test_looking_for_what_is_missing_is_bounded(producers: Producers) -> None:
    assert judged(producers, 10**9, 10**9 - 1, skipped=[1]) is Verdict.EARLY
    assert judged(producers, MAX_AHEAD + 1, MAX_AHEAD, skipped=range(1, MAX_AHEAD + 1)) is Verdict.FOLD


def test_strangers(producers: Producers) -> None:
    producers.forget((), 10)
    assert judged(producers, 1, known=9) is Verdict.STRANGER
    assert judged(producers, 1, known=10) is Verdict.FOLD
    assert producers.is_done(InboxName(9, "p", 1))
    assert not producers.is_done(InboxName(10, "p", 1))
    producers.fold("p", [1], 11, 1)
    assert judged(producers, 2, known=3) is Verdict.FOLD, "one that is remembered is believed"


def test_silence_is_counted_from_the_last_fold(producers: Producers) -> None:
    producers.fold("p", [1], 4, 100)
    producers.fold("q", [1], 5, 200)
    producers.fold("r", [1], 6, 100)
    assert producers.silent(100, ()) == []
    assert producers.silent(101, ["r"]) == ["p"]
    assert sorted(producers.silent(201, ())) == ["p", "q", "r"]


def test_the_horizon_covers_all_that_are_forgotten_and_never_falls(producers: Producers) -> None:
    producers.fold("p", [1], 4, 100)
    producers.fold("q", [1], 9, 200)
    assert producers.horizon_without(["p"]) == 4
    assert producers.horizon_without(["p", "q"]) == 9
    producers.forget(["p", "q"], 9)
    producers.forget([], 3)
    assert (producers.horizon, producers.known) == (9, {})
    assert producers.horizon_without([]) == 9


def test_resuming(producers: Producers) -> None:
    producers.resume("p", 7)
    assert judged(producers, 7) is Verdict.DUPLICATE
    assert judged(producers, 9, 8) is Verdict.EARLY
    assert judged(producers, 8, 7) is Verdict.FOLD


def test_resuming_one_of_whom_something_was_rejected(producers: Producers) -> None:
    producers.fold("p", [5, 8, 11], 1, 1)
    producers.resume("p", 10)
    assert producers.known["p"].above == [11]
    producers.fold("p", [12], 2, 2)
    assert producers.known["p"] == Remembered(12, [], 2, 2)
    producers.resume("p", 3)
    assert producers.known["p"].through == 12


def test_a_snapshot_is_a_copy(producers: Producers) -> None:
    producers.fold("p", [1, 3], 4, 100)
    taken = producers.snapshot()
    producers.fold("p", [2], 5, 200)
    assert taken == {"p": Remembered(1, [3], 4, 100)}
    other = Producers()
    other.restore(taken, 7)
    assert judged(other, 2) is Verdict.FOLD
    assert other.horizon == 7


class _Sender:
    """A producer as the protocol describes it, with numbers alone."""

    def __init__(self) -> None:
        self.next = 1
        self.settled: set[int] = set()
        self.skipped: set[int] = set()
        self.flying: dict[int, tuple[int, list[int], list[int], frozenset[int]]] = {}

    def send(self) -> None:
        through = 0
        while through + 1 in self.settled:
            through += 1
        ahead = sorted(number for number in self.settled if number > through and number not in self.skipped)
        skipped = sorted(number for number in self.skipped if number <= through)
        before = frozenset(self.settled - self.skipped)
        self.flying[self.next] = (through, skipped, ahead, before)
        self.next += 1


@given(st.data())
@settings(max_examples=80)
def test_any_interleaving_of_sends_losses_copies_and_folds(data: st.DataObject) -> None:
    """Each durable batch is folded exactly once, one that was given up on at most once, and each after all that its
    producer knew to be durable when it sent it."""
    producers = Producers()
    sender = _Sender()
    inbox: set[int] = set()
    folded: list[int] = []
    places: dict[int, tuple[int, list[int], list[int], frozenset[int]]] = {}
    durable: set[int] = set()
    seq = 0

    def tick(numbers: list[int]) -> None:
        nonlocal seq
        seq += 1
        for number in numbers:
            after, skipped, ahead, before = places[number]
            verdict = judged(producers, number, after, skipped=skipped, ahead=ahead)
            if verdict is Verdict.FOLD:
                assert before - set(folded) == set(), f"{number} overtakes {before - set(folded)}"
                folded.append(number)
                producers.fold("p", [number, *skipped], seq, seq)
            if verdict is not Verdict.EARLY:
                inbox.discard(number)

    for _ in range(data.draw(st.integers(1, 60))):
        step = data.draw(st.sampled_from(["send", "send", "land", "land", "answer", "give up", "copy", "tick", "tick"]))
        flying = sorted(sender.flying)
        if step == "send" and len(flying) < 5:
            sender.send()
            places[sender.next - 1] = sender.flying[sender.next - 1]
        elif step == "land" and flying:
            inbox.add(data.draw(st.sampled_from(flying)))
        elif step == "answer" and flying:
            number = data.draw(st.sampled_from(flying))
            if number not in folded and number not in producers.known.get("p", Remembered()).above:
                inbox.add(number)  # it is there when the store says yes
            del sender.flying[number]
            sender.settled.add(number)
            durable.add(number)
        elif step == "give up" and flying:
            number = data.draw(st.sampled_from(flying))
            del sender.flying[number]
            sender.settled.add(number)
            sender.skipped.add(number)
        elif step == "copy" and places:
            inbox.add(data.draw(st.sampled_from(sorted(places))))
        elif inbox:
            tick(data.draw(st.permutations(sorted(inbox))))
        remembered = producers.known.get("p", Remembered())
        assert len(remembered.above) <= len(places)
    for _ in range(len(places) + 1):
        tick(sorted(inbox))
    assert len(folded) == len(set(folded))
    assert durable <= set(folded)
    assert not inbox or all(number in sender.flying or number in sender.skipped for number in inbox)
