"""Sees every write of a resource's records, and judges what each caller was told by what the bucket went through.

1. A version of a key is given once. It is one more than that of the object it was written over.
2. What is removed is a tombstone with nothing in `reserved`.
3. A call that returned made exactly one write, as it said; one that said no made none; any other made at most one.
4. A write with `if_version` was made over the very record that its caller had read.
5. A write without one was made over the record that it says it was made from: nothing was lost in between.
6. Where nothing goes wrong no caller is left in doubt, and a record is read as it is.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from tenure.database.records import Envelope
from tenure.testing.bucket import Write
from tenure.testing.checkers import Judge
from tenure.testing.world import World


class Call(msgspec.Struct):
    """One call of a method, as its caller saw it."""

    verb: str
    write_ids: list[str]
    told: str = "nothing"
    """`done`, `no`, `unknown`, or `nothing` if its process died."""
    version: int | None = None
    read: tuple[int, str] | None = None
    """With `if_version`: the version and the mark of the record that it was based on."""


class RecordsJudge(Judge):
    def __init__(self, world: World, until: str | None = None) -> None:
        super().__init__(world, until)
        self.calls: list[Call] = []
        self.told: Counter[str] = Counter()
        self.removed = 0
        self.records: dict[str, Envelope | None] = {}
        """By key: what the bucket holds."""
        self._writes: dict[str, list[tuple[Envelope | None, Envelope]]] = {}  # by write id
        self._versions: set[tuple[str, int]] = set()

    def began(self, call: Call) -> None:
        self.calls.append(call)

    def ended(self, call: Call, calm: bool) -> None:
        self.told[f"{call.verb} {call.told}"] += 1
        if calm and call.told == "unknown":
            self.report("unsure", f"{call.verb} was told nothing certain, and nothing goes wrong")

    def written(self, write: Write) -> None:
        old = None if write.old is None else msgspec.json.decode(write.old, type=Envelope)
        if write.new is None:
            self.removed += 1
            self.records[write.key] = None
            if old is not None and (not old.deleted or old.reserved):
                self.report("removed", f"{write.verb} by {write.host} removed {old.data}, version {old.version}")
            return
        new = msgspec.json.decode(write.new, type=Envelope)
        self.records[write.key] = new
        if (write.key, new.version) in self._versions:
            self.report("version", f"version {new.version} of {write.key} was given twice")
        self._versions.add((write.key, new.version))
        if old is not None and new.version != old.version + 1:
            self.report("version", f"version {new.version} of {write.key} was written over {old.version}")
        if old is not None and not old.deleted and not new.deleted and new.data["n"] != old.data["n"] + 1:
            self.report("lost-update", f"{new.data} was written over {old.data}")
        self._writes.setdefault(new.write_id, []).append((old, new))

    def check_calls(self) -> None:
        """When all of them have ended, and what was on its way has landed."""
        for call in self.calls:
            made = [write for write_id in call.write_ids for write in self._writes.get(write_id, [])]
            if len(made) > 1:
                self.report("twice", f"{call.verb}, told {call.told!r}, made {len(made)} writes")
            if call.told == "done" and not made:
                self.report("lost", f"{call.verb} was acknowledged, and never happened")
            if call.told == "no" and made:
                self.report("refused", f"{call.verb} was told no, and was applied")
            for old, new in made:
                if call.version is not None and new.version != call.version:
                    self.report("told-version", f"{call.verb} was told version {call.version}, and wrote {new.version}")
                if call.read is not None and (old is None or (old.version, old.data.get("mark")) != call.read):
                    self.report("condition", f"{call.verb} of version {call.read} was made over {old}")

    def check_read(self, key: str, version: int | None) -> None:
        """A caller has read this version (`None`: no record), and nobody writes any more."""
        held = self.records.get(key)
        expected = held.version if held is not None and not held.deleted else None
        if version != expected:
            self.report("read", f"{key} was read as version {version}, and it is {expected}")
