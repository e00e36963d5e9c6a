"""What there is to see of the demo, and what was heard: for the story, which changes it, and for the panel."""

from __future__ import annotations

from collections.abc import Callable

from tenure.clock import SYSTEM_CLOCK, Clock, Reading
from tenure.demo.cast import Actor, State
from tenure.demo.lines import Deed, Fire, Handling, Order, Report, Till

FIRST_THREE = ("ada", "ben", "cyd")
REPLACEMENT = "dan"
ACTS = ("join", "work", "kill", "freeze", "leave", "close", "verdicts")

Say = Callable[[str], None]


class Stage:
    """What there is to see: who is on it, which act it is, and what came of the acts before."""

    def __init__(self, say: Say, clock: Clock = SYSTEM_CLOCK) -> None:
        self._say = say
        self.clock = clock
        self.began = clock.read()
        self.actors: list[Actor] = []
        self.act = 0
        """The number of the current act; 0 before the first."""
        self.sentence = ""
        self.came_of: dict[int, str] = {}
        self.curtain: Reading | None = None
        """When the processes were sent home."""

    def open(self, title: str, sentence: str) -> None:
        self.act = ACTS.index(title) + 1
        self.sentence = sentence
        self._say(f"{self.act}. {sentence}")

    def tell(self, sentence: str) -> None:
        self.sentence = sentence
        self._say(f"   {sentence}")

    def close(self, came_of: str) -> None:
        """The act is over; what came of it, in few words."""
        self.came_of[self.act] = came_of

    @property
    def over(self) -> bool:
        return len(ACTS) in self.came_of

    @property
    def leader(self) -> Actor | None:
        return next((actor for actor in self.actors if actor.state is State.LEADING), None)

    def said(self) -> list[Report]:
        return [report for actor in self.actors for report in actor.said]

    def deeds(self) -> list[Deed]:
        return [deed for actor in self.actors for deed in actor.deeds]

    def orders(self) -> list[Order]:
        return [order for actor in self.actors for order in actor.orders]

    def handlings(self) -> list[Handling]:
        return [handling for actor in self.actors for handling in actor.handlings]

    def fires(self) -> list[Fire]:
        return [fire for actor in self.actors for fire in actor.fires]

    def tills(self) -> list[Till]:
        return [till for actor in self.actors for till in actor.tills]
