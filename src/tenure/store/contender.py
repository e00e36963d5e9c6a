"""A process of contenders in a race: `python -m tenure.store.contender`, driven by `tenure.store.races`.

It reads JSON lines: first an `Entrant`, then one `Challenge` for each round; it answers each with a line. The URL comes
by standard input and not by the command line, where every user of the machine could read its secrets.
"""

from __future__ import annotations

import asyncio
import enum
import os
import sys
import traceback
from typing import BinaryIO

import msgspec

from tenure.entropy import new_id
from tenure.errors import TenureError
from tenure.store.opening import connect
from tenure.store.outcome import Applied, Rejected, Version
from tenure.store.prefixed import Prefixed
from tenure.store.protocol import Store
from tenure.store.url import parse_url


class RaceRecord(msgspec.Struct, frozen=True, rename="camel"):
    """What is written in a race."""

    write_id: str
    purpose: str = "tenure races writers on this store; safe to delete"
    schema_version: int = 1


class Entrant(msgspec.Struct, frozen=True):
    url: str
    contenders: int
    dialect: dict[str, object]


class RoundKind(enum.Enum):
    CREATE = "create"
    REPLACE = "replace"


class Challenge(msgspec.Struct, frozen=True):
    kind: RoundKind
    key: str
    version: Version | None


class Answer(msgspec.Struct, frozen=True):
    write_id: str
    outcome: str


async def contend(store: Store, challenge: Challenge) -> Answer:
    record = RaceRecord(write_id=new_id())
    body = msgspec.json.encode(record)
    if challenge.version is None:
        outcome = await store.create(challenge.key, body)
    else:
        outcome = await store.replace(challenge.key, body, challenge.version)
    name = "applied" if isinstance(outcome, Applied) else "rejected" if isinstance(outcome, Rejected) else "unknown"
    return Answer(record.write_id, name)


async def serve(lines: BinaryIO, answers: BinaryIO) -> None:
    entrant = msgspec.json.decode(lines.readline(), type=Entrant)
    try:
        store = await connect(parse_url(entrant.url))
    except TenureError as error:
        _say(answers, {"error": str(error)})
        return
    if entrant.dialect and isinstance(store, Prefixed):
        from tenure.store.cloud.store import CloudStore, Dialect

        assert isinstance(store.inner, CloudStore)
        store.inner.dialect = msgspec.convert(entrant.dialect, Dialect)
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
