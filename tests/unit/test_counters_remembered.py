"""Records that the leader has written are remembered, so that their next write needs no read before it."""

from __future__ import annotations

import tenure
from tenure.ledger import Stamp
from tenure.plugins.counters.applying import Applier
from tenure.plugins.counters.records import Moment, Work
from tenure.plugins.counters.state import CountersMachine


async def test_a_record_is_read_once_also_if_a_round_finds_nothing_to_do_for_it() -> None:
    """What is in the record and not yet noted in the log is offered again: that must not cost it its place."""
    machine = CountersMachine()

    def count(seq: int) -> None:
        first = {"ledger": "l", "fields": {"views": "int:sum"}} if seq == 1 else {}
        work = Work(moment=Moment(0, 0, 0), rows={"views": {"home": [1, 1]}}, **first)  # type: ignore[arg-type]
        machine.enact(work, Stamp(seq=seq, epoch=1, time_ms=seq))

    async with tenure.Database("memory://") as db:
        pages = db.resource("pages")
        await pages.insert({"title": "x"}, id="home")
        applier = Applier(pages, "pages", lambda: None)
        for seq, rounds in ((1, 2), (2, 3)):
            count(seq)
            applied = [await applier.apply(machine, "home", machine.offered("home")) for _ in range(rounds)]
            assert [each.wrote for each in applied if each is not None] == [True, *[False] * (rounds - 1)]
        assert (applier.reads, applier.writes) == (1, 2)
        assert (await pages.get("home")).data["views"] == 2

        await pages.patch("home", {"title": "y"})  # somebody else writes: then it is read again
        count(3)
        assert await applier.apply(machine, "home", machine.offered("home")) is not None
        assert (applier.reads, applier.writes) == (2, 4)
        assert (await pages.get("home")).data == {"title": "y", "views": 3}
