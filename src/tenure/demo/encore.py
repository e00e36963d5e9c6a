"""After the story: three other processes go on with the shop, for as long as somebody wants to look at it."""

from __future__ import annotations

import asyncio
import os

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.demo.cast import Actor
from tenure.demo.place import Place
from tenure.demo.story import WentWrong

THREE_MORE = ("eva", "fin", "gus")


async def play_on(place: Place, clock: Clock = SYSTEM_CLOCK) -> None:
    """Until it is cancelled. Nothing that they say is kept: nobody judges it."""
    cast: list[Actor] = []
    try:
        for name in THREE_MORE:
            await Actor.start(place.encore(name, os.getpid()), clock, cast, is_heard=False)
        await asyncio.wait(
            [asyncio.ensure_future(actor.ended()) for actor in cast], return_when=asyncio.FIRST_COMPLETED
        )
        gone = next(actor for actor in cast if not actor.alive)
        raise WentWrong(f"the process {gone.name} ended by itself with {gone.last_words}")
    finally:
        for actor in cast:
            actor.dismiss()
        await asyncio.gather(*(actor.ended() for actor in cast))
