"""What the files of counters say, without a judgement; and how their lines are written.

Each line is one `write` to a file opened to append. Of writers:

    adding BOOTTIME_NS PROCESS CALL...              `add` or `sub` is called with each of these
    added BOOTTIME_NS PROCESS NAME...               these have returned
    unknown BOOTTIME_NS PROCESS ERROR NAME...       these have raised
    spent BOOTTIME_NS PROCESS REQUESTS              what the process has sent to the store so far

A CALL is `writer:number:id:field:amount:kind`, its NAME `writer:number`. Of the kind `op` it has an `op_id`, and may be
given again. Of a reader:

    read BOOTTIME_NS TOLD_NS PROCESS HOW ID FIELD VALUE     asked and answered; HOW is `consistent` or `plain`
    unread BOOTTIME_NS PROCESS ERROR

Of a process that changes records, whose other field is the `title`:

    writing BOOTTIME_NS PROCESS NUMBER ID WHAT TITLE        `insert`, `update`, `patch` or `delete`
    wrote BOOTTIME_NS PROCESS NUMBER
    unsure BOOTTIME_NS PROCESS NUMBER ERROR                 it may have happened
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from lab.believer import boottime_ns
from lab.judge import Unjudgeable, text_of

Counter = tuple[str, str]
"""A record's id, and a field."""


class Call(msgspec.Struct):
    name: str
    counter: Counter
    amount: int
    """Below zero: it was subtracted."""
    is_op: bool
    began_ns: int
    """When it was first given."""
    acked_ns: int | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.amount:+} for {' '.join(self.counter)})"


class Read(msgspec.Struct, frozen=True):
    asked_ns: int
    told_ns: int
    process: str
    how: str
    counter: Counter
    value: int


class Change(msgspec.Struct):
    """Of a record, by others than the counters."""

    number: int
    id: str
    what: str
    title: int
    done: bool = False


class NoteFile:
    """Lines as above: each is there whole or not at all, for it is one call."""

    def __init__(self, worker_id: str, path: Path) -> None:
        self._process = f"{worker_id}:{os.getpid()}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, what: str, *fields: object) -> None:
        self.write_read(what, boottime_ns(), None, *fields)

    def write_read(self, what: str, at_ns: int, told_ns: int | None, *fields: object) -> None:
        parts = [what, str(at_ns), *([] if told_ns is None else [str(told_ns)]), self._process, *map(str, fields)]
        os.write(self._file, " ".join(parts).encode() + b"\n")


def error_word(error: Exception) -> str:
    return f"{type(error).__name__}:{error}".replace(" ", "_").replace("\n", "_")[:300]


class Notes:
    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}
        self.again = 0
        """Calls with an `op_id` that were given more than once, each time counted."""
        self.reads: list[Read] = []
        self.unread = 0
        self.changes: dict[tuple[str, int], Change] = {}
        self.killed: dict[str, int] = {}
        self.led: set[str] = set()
        """Epochs, as they are written."""
        self._spent: dict[str, int] = {}

    @property
    def requests(self) -> int:
        return sum(self._spent.values())

    def read(self, path: Path) -> None:
        for number, fields in _lines(path):
            if not self._take(fields):
                raise _not_a_line(path, number, fields)

    def read_events(self, path: Path) -> None:
        for number, fields in _lines(path):
            if len(fields) < 3:
                raise _not_a_line(path, number, fields)
            if fields[0] == "killed":
                self.killed[fields[2]] = int(fields[1])
            elif fields[0] == "led":
                self.led.add(fields[3])

    def by_counter(self) -> dict[Counter, list[Call]]:
        found: dict[Counter, list[Call]] = defaultdict(list)
        for call in self.calls.values():
            found[call.counter].append(call)
        return found

    def _take(self, fields: list[str]) -> bool:
        match fields:
            case ["adding", at, _, *calls]:
                for text in calls:
                    self._begin(text, int(at))
            case ["added", at, _, *names]:
                for name in names:
                    call = self.calls.get(name)
                    if call is None:
                        return False
                    call.acked_ns = min(int(at), call.acked_ns) if call.acked_ns is not None else int(at)
            case ["unknown", _, _, _, *names]:
                return all(name in self.calls for name in names)
            case ["spent", _, process, requests]:
                self._spent[process] = max(int(requests), self._spent.get(process, 0))
            case ["read", asked, told, process, how, id, field, value]:
                self.reads.append(Read(int(asked), int(told), process, how, (id, field), int(value)))
            case ["unread", _, _, _]:
                self.unread += 1
            case ["writing", _, process, number, id, what, title]:
                self.changes[process, int(number)] = Change(int(number), id, what, int(title))
            case ["wrote", _, process, number] if (process, int(number)) in self.changes:
                self.changes[process, int(number)].done = True
            case ["unsure", _, process, number, _] if (process, int(number)) in self.changes:
                pass
            case _:
                return False
        return True

    def _begin(self, text: str, at_ns: int) -> None:
        writer, number, id, field, amount, kind = text.split(":")
        name = f"{writer}:{number}"
        known = self.calls.get(name)
        if known is None:
            self.calls[name] = Call(name, (id, field), int(amount), kind == "op", at_ns)
            return
        if not known.is_op or (known.counter, known.amount) != ((id, field), int(amount)):
            raise Unjudgeable(f"{text} was given again, after {known}, and has no op_id by which that could be told")
        self.again += 1
        known.began_ns = min(known.began_ns, at_ns)


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    # What is not ended by a newline was cut off by a kill.
    for number, line in enumerate(text_of(path).split("\n")[:-1], 1):
        yield number, line.split(" ")


def _not_a_line(path: Path, number: int, fields: Sequence[str]) -> Unjudgeable:
    return Unjudgeable(f"{path}:{number}: not a line that can be judged: {' '.join(fields)[:100]!r}")
