"""Leadership as a scope, on whole coordinators in simulated time."""

from __future__ import annotations

import asyncio

from tests.simulated.fleet import Fleet


def test_a_term_that_was_lost_before_its_body_began_does_not_end_the_loop_over_terms() -> None:
    with Fleet() as fleet:
        node = fleet.join("a")
        fleet.run(5)
        epochs: list[int] = []

        async def main() -> None:
            async for lead in node.service.terms():
                epochs.append(lead.epoch)
                if lead.epoch == 2:
                    return
                stepping_down = asyncio.ensure_future(node.service.step_down())
                await asyncio.sleep(1.0)  # the term ends here, before its scope is entered
                async with lead:
                    pass
                await stepping_down

        task = node.run(main())
        fleet.run(60)
        assert task.done()
        assert not task.cancelled()
        assert epochs == [1, 2]
