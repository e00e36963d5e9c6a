"""Requests to a leader from outside: E-6 and EL-17."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tenure.coordinator.layout import MEMBERS, STATE, term_key, worker_key
from tenure.coordinator.outside import Handover, ask_for_handover
from tenure.election.records import Handoff, Member, Members, Refusal, State, Term, decode_state, encode
from tenure.errors import ConfigError, RequestNotAnswered, RequestRefused
from tenure.store import Stored
from tests.support.clock import ScriptedClock
from tests.support.store import ANY, Request, ScriptedStore
from tests.unit.leases import held, numbered, released

Act = Callable[[], Awaitable[None]]


class Scene(ScriptedClock):
    """A lease, and what happens to it at each pause of whoever asks."""

    def __init__(self, *acts: Act) -> None:
        super().__init__(*acts)
        self.store = ScriptedStore(clock=self)

    async def lease(self) -> State:
        stored = await self.store.inner.get(STATE)
        assert isinstance(stored, Stored)
        state = decode_state(stored.body)
        assert isinstance(state, State)
        return state

    async def put(self, state: State) -> None:
        await self.store.inner.put(STATE, encode(state))

    async def change(self, **changes: Any) -> None:
        await self.put(msgspec.structs.replace(await self.lease(), **changes))

    async def renew(self, request: Request | None = None) -> None:
        state = await self.lease()
        number = state.renewals + 1
        await self.change(write_id=f"n{number}", leader_write_id=f"n{number}", renewals=number)

    def elects(self, name: str, epoch: int = 8) -> Act:
        async def act() -> None:
            state = held(name, epoch=epoch, grant_id=f"g{epoch}", write_id="n", leader_write_id="n")
            await self.put(state)
            term = Term(write_id="t", epoch=epoch, leader_id=name, uid=state.uid, grant_id=state.grant_id)
            await self.store.inner.put(term_key(epoch), encode(term))

        return act

    def refuses(self, reason: str) -> Act:
        async def act() -> None:
            asked = (await self.lease()).handoff
            assert asked is not None
            await self.change(handoff=None, refusal=Refusal(request_id=asked.request_id, reason=reason))

        return act

    async def fleet(self, *names: str) -> None:
        members = tuple(Member(name, f"{name}-1") for name in names)
        await self.store.inner.put(MEMBERS, encode(Members(write_id="m", epoch=7, version=1, members=members)))

    async def ask(self, **options: Any) -> Handover:
        return await ask_for_handover(
            self.store, "default", **{"by": "ops", "clock": self, "draw_id": numbered("ops-"), **options}
        )


async def nothing() -> None:
    """A pause in which nothing happens."""


# Asking


@pytest.mark.req("EL-17")
async def test_a_request_changes_nothing_but_itself() -> None:
    """E-6: followers must not take it for a renewal, nor the leader for somebody else's grant."""
    scene = Scene()
    await scene.put(held())
    with pytest.raises(RequestNotAnswered):
        await scene.ask(to="ben", force=True, timeout=1.0)
    state = await scene.lease()
    assert state.handoff == Handoff(request_id="ops-1", epoch=7, by="ops", to="ben", forced=True)
    assert state.write_id != held().write_id
    assert msgspec.structs.replace(state, handoff=None, write_id=held().write_id) == held()


@pytest.mark.req("EL-17")
async def test_it_is_over_when_somebody_else_leads() -> None:
    scene = Scene(nothing, nothing)
    scene.acts.append(scene.elects("ben"))
    await scene.put(held())
    assert await scene.ask() == Handover("ada", 7, "ben", 8)


@pytest.mark.req("EL-17")
async def test_a_lease_that_was_released_is_not_yet_anothers() -> None:
    async def release() -> None:
        await scene.put(released("ben", write_id="n", leader_write_id="n"))

    scene = Scene(release, nothing)
    scene.acts.append(scene.elects("ben"))
    await scene.put(held())
    assert (await scene.ask()).leader == "ben"


@pytest.mark.req("EL-17")
async def test_a_grant_that_is_not_on_record_is_not_leadership_yet() -> None:
    """E-3: its winner may find that the epoch is another's, and never lead."""
    scene = Scene()

    async def unrecorded() -> None:
        await scene.elects("ben")()
        await scene.store.delete(term_key(8))

    async def recorded_as_anothers() -> None:
        term = Term(write_id="t", epoch=8, leader_id="cyd", uid="cyd-1", grant_id="hers")
        await scene.store.inner.put(term_key(8), encode(term))

    await scene.put(held())
    scene.acts = [unrecorded, recorded_as_anothers]
    with pytest.raises(RequestNotAnswered):
        await scene.ask(timeout=2.0)
    scene.acts = [scene.elects("cyd", 9)]
    assert (await scene.ask()).epoch == 9


@pytest.mark.req("EL-17")
async def test_a_transfer_says_so_if_another_came_first() -> None:
    scene = Scene()
    scene.acts.append(scene.elects("cyd"))
    await scene.fleet("ada", "ben", "cyd")
    await scene.put(held())
    with pytest.raises(RequestRefused, match="'cyd' leads now"):
        await scene.ask(to="ben")


@pytest.mark.req("EL-17")
async def test_a_refusal_comes_with_its_reason() -> None:
    scene = Scene()
    scene.acts.append(scene.refuses("elected 3 s ago"))
    await scene.put(held())
    with pytest.raises(RequestRefused, match="elected 3 s ago"):
        await scene.ask()


@pytest.mark.req("EL-17")
async def test_a_refusal_of_another_request_is_not_ours() -> None:
    scene = Scene(nothing)
    scene.acts.append(scene.elects("ben"))
    await scene.put(held(refusal=Refusal(request_id="earlier", reason="no")))
    assert (await scene.ask()).leader == "ben"


@pytest.mark.req("EL-17")
async def test_nothing_that_comes_of_it_is_not_a_refusal() -> None:
    scene = Scene()
    await scene.put(held())
    with pytest.raises(RequestNotAnswered, match="the request stands"):
        await scene.ask(timeout=3.0)
    assert 3.0 <= scene.true_seconds < 4.0
    assert (await scene.lease()).request() is not None


# What cannot be asked


@pytest.mark.req("EL-17")
async def test_without_a_lease_nobody_can_be_asked() -> None:
    with pytest.raises(RequestRefused, match="has no lease"):
        await Scene().ask()


@pytest.mark.req("EL-17")
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (encode(released("ben")), "was released"),
        (b"junk", "damaged"),
        (b'{"schemaVersion":2}', "newer tenure"),
        (encode(held(handoff=Handoff(request_id="r", epoch=7, by="someone"))), "'someone'"),
        (encode(held("ben")), "leads 'default' already"),
    ],
    ids=["released", "damaged", "newer", "another request", "leads already"],
)
async def test_a_lease_that_takes_no_request_is_left_alone(body: bytes, message: str) -> None:
    scene = Scene()
    await scene.fleet("ada", "ben")
    await scene.store.put(STATE, body)
    with pytest.raises(RequestRefused, match=message):
        await scene.ask(to="ben")
    answer = await scene.store.get(STATE)
    assert isinstance(answer, Stored)
    assert answer.body == body


@pytest.mark.req("EL-17")
async def test_a_request_to_an_earlier_epoch_is_in_nobodys_way() -> None:
    scene = Scene()
    scene.acts.append(scene.elects("ben"))
    await scene.put(held(handoff=Handoff(request_id="r", epoch=6, by="someone")))
    assert (await scene.ask()).leader == "ben"


@pytest.mark.req("EL-17")
async def test_a_name_that_is_on_no_record_needs_force() -> None:
    """In an election-only namespace nobody is on record: the leader must not step down for a slip of the pen."""
    scene = Scene()
    await scene.put(held())
    with pytest.raises(RequestRefused, match=r"no record of 'ben': it is not there, or the workers keep none"):
        await scene.ask(to="ben")
    assert await scene.lease() == held()
    await scene.store.put(worker_key("ben"), b"{}")
    scene.acts.append(scene.elects("ben"))
    assert (await scene.ask(to="ben")).leader == "ben"


@pytest.mark.req("EL-17")
async def test_whoever_is_not_there_cannot_be_given_it() -> None:
    scene = Scene()
    await scene.put(held())
    await scene.fleet("ada", "cyd")
    with pytest.raises(RequestRefused, match=r"'ben' is not a live worker.*ada, cyd"):
        await scene.ask(to="ben")
    assert await scene.lease() == held()


@pytest.mark.parametrize("name", ["", "x" * 129, "two\nlines"])
async def test_a_name_that_nobody_can_have_is_refused(name: str) -> None:
    scene = Scene()
    await scene.put(held())
    with pytest.raises(ConfigError):
        await scene.ask(to=name)
    assert await scene.lease() == held()


# Between others' writes


@pytest.mark.req("EL-17")
async def test_a_renewal_that_came_between_is_not_overwritten() -> None:
    scene = Scene(nothing)
    scene.acts.append(scene.elects("ben"))
    await scene.put(held())
    scene.store.on("replace", ANY, scene.renew)
    await scene.ask()
    assert scene.store.count("replace") == 2


async def test_a_lease_that_never_holds_still_is_not_asked_for_ever() -> None:
    scene = Scene()
    await scene.put(held())
    scene.store.always("replace", ANY, scene.renew)
    with pytest.raises(RequestRefused, match="changed"):
        await scene.ask()
    assert scene.store.count("replace") < 100
    assert (await scene.lease()).handoff is None


@pytest.mark.req("EL-17")
@pytest.mark.parametrize("fates", [["kept"], ["lost"], ["lost", "kept"]])
async def test_a_request_whose_answer_was_lost_is_made_once(fates: list[str]) -> None:
    scene = Scene(*[nothing] * len(fates))
    scene.acts.append(scene.elects("ben"))
    await scene.put(held())
    scene.store.on("replace", ANY, *fates)
    assert await scene.ask() == Handover("ada", 7, "ben", 8)
    assert scene.store.count("replace") == len(fates) + ("kept" not in fates)


async def test_a_store_that_fails_while_it_waits_disturbs_only_the_wait() -> None:
    async def fail() -> None:
        scene.store.on("get", ANY, "lost")

    scene = Scene(fail, fail)
    scene.acts.append(scene.elects("ben"))
    await scene.put(held())
    assert (await scene.ask()).leader == "ben"


@pytest.mark.req("EL-17")
async def test_a_request_that_was_followed_at_once_is_not_made_to_the_next_leader() -> None:
    scene = Scene()
    scene.acts.append(scene.elects("ben"))
    await scene.put(held())
    scene.store.on("replace", ANY, "kept")
    try:
        assert await scene.ask(force=True, timeout=2.0) == Handover("ada", 7, "ben", 8)
    finally:
        assert (await scene.lease()).handoff is None


@pytest.mark.req("EL-17")
async def test_a_transfer_that_was_followed_at_once_is_a_success() -> None:
    scene = Scene()
    scene.acts.append(scene.elects("ben"))
    await scene.fleet("ada", "ben")
    await scene.put(held())
    scene.store.on("replace", ANY, "kept")
    assert await scene.ask(to="ben") == Handover("ada", 7, "ben", 8)
