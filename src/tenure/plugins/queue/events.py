"""What a queue tells those who listen: `plugin.on("plg:s3-queue:tickets-published", handler)`."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class TicketsPublished(msgspec.Struct, frozen=True):
    """The leader has given messages to workers."""

    name: ClassVar[str] = "tickets-published"
    tickets: int
    messages: int
    seq: int
    epoch: int


class MessagesDead(msgspec.Struct, frozen=True):
    """Messages became dead letters."""

    name: ClassVar[str] = "messages-dead"
    messages: int
    reason: str


class TicketsLapsed(msgspec.Struct, frozen=True):
    """Nobody reported on tickets in time: their messages are handled again."""

    name: ClassVar[str] = "tickets-lapsed"
    tickets: int


class LeadingBegan(msgspec.Struct, frozen=True):
    """This process has caught up, and decides on this queue from here on."""

    name: ClassVar[str] = "leading"
    seq: int
    epoch: int
    ready: int
