"""A process of contenders in a race: `python -m tenure.store.contender`, driven by `tenure.store.races`.

It reads JSON lines: first an `Entrant`, then one `Challenge` for each round; it answers each with a line. The URL comes
by standard input and not by the command line, where every user of the machine could read its secrets.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from typing import BinaryIO

import msgspec

from tenure.entropy import new_id
from tenure.errors import TenureError
from tenure.store.opening import connect
from tenure.store.outcome import Version, name_of
from tenure.store.protocol import Store
from tenure.store.scratch import scratch_body
from tenure.store.url import parse_url


class Entrant(msgspec.Struct, frozen=True):
    url: str
    contenders: int
    dialect: dict[str, object]


class Challenge(msgspec.Struct, frozen=True):
    """One round: create `key`, or replace its `version`."""

    key: str
    version: Version | None


class Answer(msgspec.Struct, frozen=True):
    write_id: str
    outcome: str


async def contend(store: Store, challenge: Challenge) -> Answer:
    write_id = new_id()
    body = scratch_body(write_id)
    if challenge.version is None:
        outcome = await store.create(challenge.key, body)
    else:
        outcome = await store.replace(challenge.key, body, challenge.version)
    return Answer(write_id, name_of(outcome))


async def serve(lines: BinaryIO, answers: BinaryIO) -> None:
    entrant = msgspec.json.decode(lines.readline(), type=Entrant)
    try:
        store = await connect(parse_url(entrant.url))
    except TenureError as error:
        _say(answers, {"error": str(error)})
        return
    if entrant.dialect:
        from tenure.store.cloud.bucket import BucketStore

        assert isinstance(store, BucketStore)
        store.adopt(entrant.dialect)
    _say(answers, {"ready": True})
    while line := await asyncio.to_thread(lines.readline):
        challenge = msgspec.json.decode(line, type=Challenge)
        _say(answers, await asyncio.gather(*(contend(store, challenge) for _ in range(entrant.contenders))))


def _say(answers: BinaryIO, message: object) -> None:
    answers.write(msgspec.json.encode(message) + b"\n")
    answers.flush()


if __name__ == "__main__":
    code = 0
    try:
        asyncio.run(serve(sys.stdin.buffer, sys.stdout.buffer))
    except BaseException:
        traceback.print_exc()
        code = 1
    # obstore's threads may abort the process if they are busy while the interpreter is being taken down.
    sys.stderr.flush()
    os._exit(code)
