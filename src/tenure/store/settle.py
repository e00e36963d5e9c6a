"""Turns `Unknown` into applied or rejected, also when the write lands late.

The rules, each of which answers a failure that was seen:

- Every body carries a fresh write id. What is read back is compared with *all* ids under which this write was sent:
  the copy that landed may be an earlier one.
- "Not there" is not final: the request may still be on its way. It becomes final when a later compare-and-swap of ours
  moves the version, because then the condition of the late copy can no longer hold. So a write that is pending is sent
  again, under a new id and with the **same** condition: at most one of the copies can ever be applied.
- A rejection is not final either. Something between us and the store may have sent the request twice, so that the
  second copy was rejected because of the first. It is confirmed by reading back.
- If somebody else's write is there, ours may have come before it, unless the record remembers every write
  (`Remembers.EVERY_WRITE`); where it does not, the outcome stays `Unknown`, and `Attempt.answers` says what the store
  had said.

Only for keys that nobody deletes: an object that was created, and then deleted by its reader, looks like one that has
not landed yet, and would be sent again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import ClassVar

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.entropy import NewId, new_id
from tenure.errors import NotFound, StoreError, StoreUnavailable
from tenure.store.given import check_asked, check_choice, check_count, check_function, check_instance, check_number
from tenure.store.outcome import Applied, NeverABool, Outcome, Rejected, Stored, Unknown, Version
from tenure.store.protocol import Store

WriteIds = Callable[[bytes], Collection[str]]
"""The ids of the writes that a body proves to have happened. A body that cannot be decoded proves none."""

Compose = Callable[[str], bytes]
"""The body to write, carrying the write id that it is given."""


_MOST_TRIES = 1000
_LONGEST_PAUSE = 3600.0


class Remembers(enum.Enum):
    """How much a record says about the writes that came before it."""

    LAST_WRITE = "last write"
    """Its own write id: a write of ours that was overwritten has left no trace."""
    EVERY_WRITE = "every write"
    """Every write since the expected version. An object that is created and never changed remembers every write."""


class Attempt(msgspec.Struct):
    """One intended write: its condition, and every id under which it was sent.

    Whoever may be cancelled while it is settled keeps it: the ids are needed to recognise the write later.
    """

    key: str
    expected: Version | None
    """`None`: only if the key is absent."""
    ids: list[str] = []
    answers: list[Outcome] = []
    """What the store said to each copy; one that was cancelled has none."""

    @property
    def trouble(self) -> StoreError | None:
        """Why the store did not take it, if it said so: that a write is not there says nothing of the reason."""
        return next((answer.error for answer in reversed(self.answers) if isinstance(answer, Unknown)), None)


class Settled(msgspec.Struct, NeverABool, frozen=True):
    """What became of an attempt."""

    instead: ClassVar[str] = "not true or false: match its `outcome` on Applied, Rejected and Unknown"

    attempt: Attempt
    outcome: Outcome
    write_id: str | None = None
    """The id under which it was applied."""
    stored: Stored | None = None
    """What was read back, if anything was: saves the next read."""


async def commit(
    store: Store,
    attempt: Attempt,
    compose: Compose,
    *,
    write_ids: WriteIds,
    remembers: Remembers = Remembers.LAST_WRITE,
    draw_id: NewId = new_id,
    clock: Clock = SYSTEM_CLOCK,
    tries: int = 4,
    within: float | None = None,
) -> Settled:
    """Send one conditional write, and settle it unless the first answer is decisive.

        settled = await commit(store, Attempt("lease", stored.version), compose, write_ids=ids_in)

    Nothing is begun once `within` seconds have passed; a request that is under way then ends by its own timeout.
    """
    _check(attempt, write_ids, remembers, tries, within)
    check_function("compose", compose, "a write id, which gives the body")
    started = clock.read()
    outcome = await _send(store, attempt, compose, draw_id)
    if isinstance(outcome, Applied):
        return Settled(attempt, outcome, attempt.ids[-1])
    return await settle(
        store,
        attempt,
        write_ids=write_ids,
        remembers=remembers,
        resend=compose,
        draw_id=draw_id,
        clock=clock,
        tries=tries,
        within=None if within is None else within - clock.read().leader_elapsed(started),
    )


async def settle(
    store: Store,
    attempt: Attempt,
    *,
    write_ids: WriteIds,
    remembers: Remembers = Remembers.LAST_WRITE,
    resend: Compose | None = None,
    draw_id: NewId = new_id,
    clock: Clock = SYSTEM_CLOCK,
    tries: int = 4,
    pause: float = 0.05,
    within: float | None = None,
) -> Settled:
    """Find out what became of `attempt`; with `resend`, make it final by sending it again while it is pending.

    Gives `Unknown` only if the store could not be read, the record does not remember enough, (without `resend`) the
    write is still pending, or `within` seconds have passed. Every id that was used is added to `attempt.ids`.
    """
    _check(attempt, write_ids, remembers, tries, within)
    check_number("pause", pause, least=0.0, most=_LONGEST_PAUSE)
    if resend is not None:
        check_function("resend", resend, "a write id, which gives the body")
    started = clock.read()

    def is_over() -> bool:
        return within is not None and clock.read().leader_elapsed(started) >= within

    verdict = Settled(attempt, Unknown(StoreUnavailable(f"nothing was read back for {attempt.key!r}")))
    for round_number in range(tries):
        if round_number:
            await clock.sleep(pause * 2.0 ** (round_number - 1))
        if is_over():
            return verdict
        verdict, pending = await _read_back(store, attempt, write_ids, remembers)
        if not isinstance(verdict.outcome, Unknown):
            return verdict
        if is_over():
            return verdict
        if pending and resend is not None:
            outcome = await _send(store, attempt, resend, draw_id)
            if isinstance(outcome, Applied):
                return Settled(attempt, outcome, attempt.ids[-1])
        elif pending or verdict.stored is not None:
            return verdict  # reading again would show the same, or more of what cannot be told apart
    if resend is not None and not is_over():
        verdict, _ = await _read_back(store, attempt, write_ids, remembers)  # what the last copy did
    return verdict


def _check(attempt: Attempt, write_ids: WriteIds, remembers: Remembers, tries: int, within: float | None) -> None:
    check_instance("attempt", attempt, Attempt)
    check_function("write_ids", write_ids, "a body, which gives the ids in it")
    check_choice("remembers", remembers, Remembers)
    check_count("tries", tries, least=0, most=_MOST_TRIES)
    if within is not None:
        check_asked("within", within)


async def _send(store: Store, attempt: Attempt, compose: Compose, draw_id: NewId) -> Outcome:
    write_id = draw_id()
    attempt.ids.append(write_id)  # before sending: a cancelled call may still have been sent
    body = compose(write_id)
    if attempt.expected is None:
        outcome = await store.create(attempt.key, body)
    else:
        outcome = await store.replace(attempt.key, body, attempt.expected)
    attempt.answers.append(outcome)
    return outcome


async def _read_back(store: Store, attempt: Attempt, write_ids: WriteIds, remembers: Remembers) -> tuple[Settled, bool]:
    """The verdict so far, and whether the write is pending: its condition still holds, so that it may yet land."""
    try:
        stored = await store.get(attempt.key)
    except NotFound as missing:
        return Settled(attempt, Unknown(attempt.trouble or missing)), attempt.expected is None
    except StoreError as error:
        return Settled(attempt, Unknown(error)), False
    assert isinstance(stored, Stored)
    proven = write_ids(stored.body)
    for write_id in reversed(attempt.ids):
        if write_id in proven:
            return Settled(attempt, Applied(stored.version), write_id, stored), False
    if attempt.expected is not None and attempt.expected.matches(stored.version):
        pending = StoreUnavailable(f"the write to {attempt.key!r} has not landed, and may still land")
        return Settled(attempt, Unknown(attempt.trouble or pending), stored=stored), True
    if remembers is Remembers.EVERY_WRITE:
        return Settled(attempt, Rejected(), stored=stored), False
    overwritten = StoreUnavailable(
        f"{attempt.key!r} was written by another; whether ours came before it is not recorded"
    )
    return Settled(attempt, Unknown(overwritten), stored=stored), False
