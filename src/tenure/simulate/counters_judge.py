"""A judge who knows what was promised about counters, and what became of each amount.

It reads the bucket's own history: every write of every record and log entry at the instant at which it lands. It knows
who wrote because ids are drawn through it: a write whose id was drawn by a call of a process is that call's, any other
is the leader's. What a total may be it knows from what callers were told (`counters_books`), with none of the plugin's
code but the records' form; so that it finds the very write that counts an amount twice, and the one that loses it.
"""

from __future__ import annotations

import contextvars
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tenure.database.ids import parse_key
from tenure.database.records import Envelope
from tenure.entropy import NewId
from tenure.ledger import LogEntry
from tenure.ledger.layout import ledger_folder, parse_number
from tenure.plugins.counters import Bucket, Counter, Kind, Recalculated, Reducer, Top
from tenure.simulate.counters_books import Book, Call, ExtremeBook, LevelBook, OwnBook, SumBook, Told
from tenure.testing.bucket import OUTSIDE, Write
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster

RESOURCE = "pages"
FOLDER = ledger_folder("eventual-consistency", RESOURCE)
VIEWS, LIKES, PAID, WEIGHT, BASE = "views", "stats.likes", "paid", "weight", "base"
LOW, HIGH, LATEST, MINE, LEVEL = "low", "high", "latest", "mine", "level"
FIELDS = {
    VIEWS: Counter(),
    LIKES: Counter(),
    PAID: Counter(Kind.DECIMAL),
    WEIGHT: Counter(Kind.FLOAT),
    BASE: Counter(),
    LOW: Counter(Kind.INT, Reducer.MIN),
    HIGH: Counter(Kind.DECIMAL, Reducer.MAX),
    LATEST: Counter(Kind.INT, Reducer.LAST),
    MINE: Counter(),
    LEVEL: Counter(),
}
"""Everybody adds to the first five; `base` has a value before; `mine` is its writer's alone; `level` is set by all."""
SUMS = (VIEWS, LIKES, PAID, WEIGHT, BASE)
_TOP_LEVEL = {field.partition(".")[0] for field in FIELDS}
_STALE_AFTER = 10.0
_MOST_OBJECTS = 300

_envelope = msgspec.json.Decoder(Envelope)
_log_entry = msgspec.json.Decoder(LogEntry)


class Act(msgspec.Struct, eq=False):
    """A call of the users' own code on a record."""

    verb: str
    id: str
    is_shaped: bool
    """Made where the counters are attached."""
    data: dict[str, Any] = {}
    """What it gives to the other fields."""
    landed: list[int] = []
    """Versions."""


ACT: contextvars.ContextVar[Act | None] = contextvars.ContextVar("act", default=None)
"""The call of the users' code that is under way, for everything that is done in it."""


class Held(msgspec.Struct, frozen=True):
    """What is counted of one key, as it lies in the bucket."""

    ledger: str = ""
    through: int = 0
    totals: dict[str, Any] = {}
    starts: dict[str, Any] = {}


NOTHING = Held()


class Judge:
    def __init__(self, cluster: SimulatedCluster, checkers: Checkers) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._report = checkers.report
        self.counts: Tally[str] = Tally()
        self.books: dict[tuple[str, str], Book] = {}
        """By id and field."""
        self.ops: dict[str, Call] = {}
        """Calls with an `op_id` that nobody knows to be counted."""
        # What lies in the bucket
        self.records: dict[str, Envelope] = {}
        """Tombstones included."""
        self._seen: dict[tuple[str, str], list[tuple[float, Any]]] = {}
        """By id and field: what a look at the record showed, and from when on."""
        self._lived: set[str] = set()
        self._posted: dict[str, float] = {}
        self._logged = self._epoch = 0
        self._last_written = 0
        """The highest entry that counts."""
        self._acts: dict[str, Act] = {}
        """By each id that was drawn in it."""
        cluster.bucket.watchers.append(self._written)

    def drawing(self, draw_id: NewId) -> NewId:
        """Draws ids, and remembers for whom."""

        def draw() -> str:
            id = draw_id()
            act = ACT.get()
            if act is not None:
                self._acts[id] = act
            return id

        return draw

    def book(self, id: str, field: str) -> Book:
        if (id, field) not in self.books:
            self.books[id, field] = _book(field)
        return self.books[id, field]

    # The bucket

    def _written(self, write: Write) -> None:
        key = write.key
        if key.startswith("resource="):
            parsed = parse_key(key)
            if parsed is not None and parsed[0] == RESOURCE:
                self._record_written(parsed[1], write)
        elif key.startswith(FOLDER):
            rest = key.removeprefix(FOLDER)
            if rest.startswith("log/"):
                self._log_written(rest, write)
            elif rest.startswith("inbox/"):
                if write.new is None:
                    self._posted.pop(key, None)
                else:
                    self._posted.setdefault(key, write.at)
            elif rest.startswith("pages/"):
                self.counts["pages" if write.new is not None else "pages removed"] += 1
            elif rest.startswith("snapshots/"):
                self.counts["snapshots"] += write.new is not None

    def _record_written(self, id: str, write: Write) -> None:
        old = None if write.old is None else _envelope.decode(write.old)
        before = _held(old)
        if write.new is None:
            self.records.pop(id, None)
            if write.host != OUTSIDE and (old is None or not old.deleted or old.reserved):
                self._report("removed", f"{write.host} removed {_named(id, old)}, and with it {before}")
            return
        new = self.records[id] = _envelope.decode(write.new)
        held = _held(new)
        if write.host == OUTSIDE:
            return  # somebody damaged it on purpose
        self._check_base(id, old, new, write)
        act = self._acts.get(new.write_id)
        if act is not None:
            self._user_wrote(id, old, new, before, held, act)
        else:
            self._leader_wrote(id, old, new, before, held, write)
        for field in FIELDS:
            shown = _shown_total(new, held, field)
            history = self._seen.setdefault((id, field), [(0.0, FIELDS[field].zero)])
            if history[-1][1] != shown:
                history.append((write.at, shown))

    def _check_base(self, id: str, old: Envelope | None, new: Envelope, write: Write) -> None:
        """Whoever writes has read what it overwrites."""
        if old is not None and (new.version != old.version + 1 or new.recent_writes[-2:-1] != (old.write_id,)):
            self._report("overwritten", f"{write.host} wrote {_named(id, new)} without having read {old.version}")

    # The users' own code

    def _user_wrote(self, id: str, old: Envelope | None, new: Envelope, before: Held, held: Held, act: Act) -> None:
        act.landed.append(new.version)
        if len(act.landed) > 1:
            self._report("twice", f"{act.verb} of {_named(id, new)} was made a second time")
        if held != before:
            self._report("carried", f"{act.verb} of {_named(id, new)} made {held} of {before}")
        if new.deleted:
            self.counts["deleted when counted"] += before is not NOTHING
            return
        if act.verb == "insert":
            self.counts["inserted again when counted"] += before is not NOTHING
            self._lived.add(id)
        wanted = act.data if act.verb != "patch" or old is None else {**_others(old.data), **act.data}
        if _others(new.data) != wanted:
            self._report("user", f"{act.verb} of {_named(id, new)} gave {wanted}, and it holds {_others(new.data)}")
        if act.is_shaped:
            self._check_shown(id, new, held, held.totals)

    # The leader

    def _leader_wrote(
        self, id: str, old: Envelope | None, new: Envelope, before: Held, held: Held, write: Write
    ) -> None:
        if old is None:
            self.counts["kept without a record"] += 1
            if not new.deleted:
                self._report("resurrected", f"{write.host} made {_named(id, new)}, which nobody inserted")
        elif old.deleted != new.deleted or _others(old.data) != _others(new.data):
            self._report("changed", f"{write.host} made {new.data} of {old.data} in {_named(id, new)}")
        else:
            self.counts["counted in a tombstone" if new.deleted else "counted in a record"] += 1
        if held.through <= before.through or (before.ledger and held.ledger != before.ledger):
            self._report(
                "watermark",
                f"{write.host} wrote {_named(id, new)}, and its watermark went from {before.through} to {held.through}",
            )
        if held.through > self._last_written:
            self._report(
                "watermark",
                f"{_named(id, new)} holds entry {held.through}, and the last one that was written is "
                f"{self._last_written}",
            )
        if lost := before.totals.keys() - held.totals.keys():
            self._report("lost", f"{write.host} wrote {_named(id, new)}, and left out the totals of {sorted(lost)}")
        changed = [field for field, total in held.totals.items() if before.totals.get(field) != total]
        for field in changed:
            counter = FIELDS[field]
            start = counter.zero
            if field not in before.totals and old is not None and not old.deleted:
                own = counter.read(_value_at(old.data, field))
                start = own if own is not None else start
            wrong = self.book(id, field).recorded(counter.read(held.totals[field]), start)
            if wrong is not None:
                self._report("total", f"{field} of {_named(id, new)}, by {write.host} to {held.through}: {wrong}")
        if not new.deleted:
            self._check_shown(id, new, held, changed)

    def _check_shown(self, id: str, new: Envelope, held: Held, fields: Iterable[str]) -> None:
        for field in fields:
            counter = FIELDS[field]
            total = counter.read(held.totals[field])
            if counter.read(_value_at(new.data, field)) != total:
                self._report("shown", f"{_named(id, new)} shows {new.data}, and its total of {field} is {total}")

    # The log

    def _log_written(self, key: str, write: Write) -> None:
        number = parse_number(key)
        if number is None:
            return
        if write.new is None:
            self.counts["trimmed"] += 1
            return
        if number <= self._logged:
            self.counts["ghosts"] += 1
            return
        self._logged = number
        entry = _log_entry.decode(write.new)
        if entry.epoch < self._epoch:
            self.counts["void entries"] += 1
            return
        self._epoch, self._last_written = entry.epoch, number
        self.counts["forgotten"] += len(entry.forgotten)
        for rejection in entry.rejected:
            self._report("rejected", f"entry {number} rejects {rejection.key}: {rejection.reason}")
        work = msgspec.json.decode(entry.decided) if entry.decided is not None else {}
        for id, through in work.get("applied", {}).items():
            holds = _held(self.records.get(id)).through
            if holds < through:
                self._report("applied", f"entry {number} says that {id!r} holds {through}, and it holds {holds}")
        self.counts["applied"] += len(work.get("applied", {}))
        self.counts["duplicates"] += work.get("duplicates", 0)
        self.counts["sealed"] += bool(work.get("seal"))
        self.counts["paged"] += len(work.get("paged", ()))
        for page in work.get("merged", ()):
            self.counts[f"merged to {page['level']}"] += 1

    # Told by the processes

    def gives(self, call: Call) -> None:
        """A call is made for the first time."""
        self.book(call.id, call.field).given(call)
        if call.op_id is not None:
            self.ops[call.op_id] = call

    def tries(self, call: Call) -> None:
        call.attempts += 1
        if call.attempts > 1:
            self.counts["given again"] += 1

    def told(self, call: Call, told: Told) -> None:
        self.counts[f"{call.verb} {told.value}"] += 1
        now = self._world.now
        call.ended_at = call.ended_at if call.ended_at is not None else now
        if told is Told.DONE:
            call.acked_at = call.acked_at if call.acked_at is not None else now
            if call.op_id is not None:
                self.ops.pop(call.op_id, None)
        elif told is Told.NO:
            call.refusals += 1

    def is_synced(self, call: Call) -> None:
        """A call in mode `sync` has returned: the record holds it."""
        self.counts["sync"] += 1
        book = self.book(call.id, call.field)
        if isinstance(book, SumBook) and not call.counted:
            self._report("sync", f"{call.verb} of {call.amount} to {call.field} of {call.id!r} is not in the record")
        elif isinstance(book, OwnBook) and (wrong := book.verdict(self._total(call.id, call.field), book.mark())):
            self._report("sync", f"{call.field} of {call.id!r}: {wrong}")

    def marks(self, id: str | None = None) -> dict[tuple[str, str], Any]:
        """What has been acknowledged so far, of one id or of all."""
        return {key: book.mark() for key, book in self.books.items() if id is None or key[0] == id}

    def check_records(self, what: str, marks: Mapping[tuple[str, str], Any]) -> None:
        """Everything that was acknowledged then is in the records now."""
        self.counts[what] += 1
        for (id, field), mark in marks.items():
            wrong = self.books[id, field].verdict(self._total(id, field), mark)
            if wrong is not None:
                self._report(what, f"{field} of {id!r}: {wrong}")

    def check_consistent(self, id: str, marks: Mapping[tuple[str, str], Any], found: Mapping[str, Any]) -> None:
        """A consistent look that was begun when `marks` were made has found this."""
        self.counts["consistent"] += 1
        for field, value in found.items():
            if (id, field) not in marks:
                continue  # nobody had begun to count it by then
            wrong = self.books[id, field].verdict(value, marks[id, field])
            if wrong is not None:
                self._report("consistent", f"{field} of {id!r}: {wrong}")

    def check_look(self, id: str, began: float, found: Mapping[str, Any]) -> None:
        """A look at the record that was begun then: what it found was there at some instant since."""
        self.counts["looks"] += 1
        for field, value in found.items():
            history = self._seen.get((id, field), [(0.0, FIELDS[field].zero)])
            later = [shown for at, shown in history if at > began]
            before = [shown for at, shown in history if at <= began]
            if value not in [*before[-1:], *later]:
                self._report("look", f"{field} of {id!r}: {value} was told, and it was {[*before[-1:], *later]}")

    def act_told(self, act: Act, told: Told) -> None:
        self.counts[f"{act.verb} {told.value}"] += 1
        if told is Told.NO and act.landed:
            self._report("told", f"{act.verb} of {act.id!r} happened, and its caller was told that it did not")
        if told is Told.DONE and not act.landed:
            self._report("user", f"{act.verb} of {act.id!r} was told that it is written, and it is not")

    def check_recalculated(self, id: str, marks: Mapping[tuple[str, str], Any], found: Recalculated) -> None:
        self.counts["recalculated"] += 1
        if found.former:
            self._report("recalculated", f"{found.former} of {id!r} were not right, and nobody had touched them")
        self._check_values("recalculated", id, marks, found.totals)

    def _check_values(
        self, what: str, id: str, marks: Mapping[tuple[str, str], Any], values: Mapping[str, Any]
    ) -> None:
        for (each, field), mark in marks.items():
            if each == id and field in values and (wrong := self.books[id, field].verdict(values[field], mark)):
                self._report(what, f"{field} of {id!r}: {wrong}")

    # At the end

    def ids(self) -> list[str]:
        """Of which something was counted."""
        return sorted(id for id, envelope in self.records.items() if _held(envelope) is not NOTHING)

    def stale(self) -> list[str]:
        limit = self._world.now - _STALE_AFTER
        return [key for key, at in self._posted.items() if at < limit]

    def settle(self) -> None:
        """Nobody counts any more: whoever did not hear of its last call never will."""
        for book in self.books.values():
            if isinstance(book, OwnBook):
                book.settle()

    def fields_of(self, id: str) -> list[str]:
        """Of which something is counted."""
        return [field for (each, field), book in self.books.items() if each == id and book.total is not None]

    def check_put_right(self, id: str, right: Mapping[str, Any], found: Recalculated) -> None:
        """`right`: as it was before somebody damaged it, if anybody did."""
        self.counts["put right"] += bool(found.former)
        if found.totals != right:
            self._report("recalculated", f"{id!r}: {found.totals} were worked out, and {right} are right")
        if self.totals_of(id) != right:
            self._report("recalculated", f"{id!r} holds {self.totals_of(id)}, and {right} are right")

    def check_finals(self) -> None:
        """Everything is in the records: what callers were told was so."""
        self.check_records("final", self.marks())
        for (id, field), book in self.books.items():
            if isinstance(book, LevelBook) and (wrong := book.final()):
                self._report("final", f"{field} of {id!r}: {wrong}")
            if isinstance(book, SumBook) and book.open:
                left = [call for call in book.open if call.is_acked]
                if left:
                    self._report("lost", f"{left[0].amount} for {field} of {id!r} returned, and was never counted")
                self.counts["unknown and not counted"] += len(book.open)
                self.counts["unknown and counted"] += sum(not call.is_acked for call in book.counted)

    def check_shown(self, ids: Iterable[str]) -> None:
        """What stands in records is what was counted."""
        for id in ids:
            envelope = self.records.get(id)
            if envelope is not None and not envelope.deleted:
                held = _held(envelope)
                self._check_shown(id, envelope, held, held.totals)

    def totals_of(self, id: str) -> dict[str, Any]:
        held = _held(self.records.get(id))
        return {field: FIELDS[field].read(total) for field, total in held.totals.items()}

    def check_exactly(self, what: str, id: str, found: Mapping[str, Any]) -> None:
        """In peace there is one right answer."""
        envelope = self.records[id]
        for field, value in found.items():
            expected = _shown_total(envelope, _held(envelope), field)
            if value != expected:
                self._report(what, f"{field} of {id!r}: {value} was told, and its record holds {expected}")

    def check_history(self, id: str, field: str, buckets: list[Bucket]) -> None:
        self._check_buckets(f"{field} of {id!r}", [self.books[id, field]], buckets, whole=True)

    def check_rollup(self, field: str, buckets: list[Bucket], *, whole: bool) -> None:
        """`whole`: nothing of it was old enough to be dropped."""
        books = [book for (_, each), book in self.books.items() if each == field]
        self._check_buckets(f"all of {field}", books, buckets, whole=whole)

    def _check_buckets(self, what: str, books: list[Book], buckets: list[Bucket], *, whole: bool) -> None:
        self.counts["histories"] += 1
        starts = [bucket.start_ms for bucket in buckets]
        if starts != sorted(starts, reverse=True):
            self._report("history", f"{what}: buckets come as {starts}")
        for verb, calls, amount in (
            ("add", sum(bucket.adds for bucket in buckets), sum((bucket.added for bucket in buckets), 0)),
            ("sub", sum(bucket.subs for bucket in buckets), sum((bucket.subbed for bucket in buckets), 0)),
            ("set", sum(bucket.sets for bucket in buckets), None),
        ):
            made = [call for book in books for call in _calls(book) if call.verb == verb]
            if all(isinstance(book, SumBook) for book in books):
                counted = [call for call in made if call.counted]
                right: tuple[int, Any] = (len(counted), sum((call.amount for call in counted), 0))
                if amount is not None and (calls, amount) != right and (whole or calls > right[0]):
                    self._report("history", f"{what}: {calls} {verb} of {amount}, and {right} were counted")
                continue
            least = sum(call.is_acked for call in made)
            most = sum(not call.is_refused for call in made)
            if not (least if whole else 0) <= calls <= most:
                self._report("history", f"{what}: {calls} {verb}, and from {least} to {most} were counted")

    def check_top(self, field: str, found: list[Top]) -> None:
        """Without what the fields held before."""
        self.counts["tops"] += 1
        right = []
        for (id, each), book in self.books.items():
            if each == field and isinstance(book, SumBook) and book.counted:
                right.append((book.total - book.start, id, len(book.counted)))
        right.sort(reverse=True)
        said = [(top.value, top.id, top.calls) for top in found]
        if said != right[: len(said)] or (len(said) < len(right) and len(said) < 10):
            self._report("top", f"{field}: {said[:3]} were told, and {right[:3]} are right")

    def check_bounds(self) -> None:
        """What the plugin keeps for itself does not grow with what it did."""
        keys = self._cluster.bucket.keys(FOLDER)
        if len(keys) > _MOST_OBJECTS:
            self._report("bounds", f"{len(keys)} objects are kept: {keys[0]}")

    def _total(self, id: str, field: str) -> Any:
        held = _held(self.records.get(id))
        counter = FIELDS[field]
        return counter.read(held.totals[field]) if field in held.totals else counter.zero


def _book(field: str) -> Book:
    counter = FIELDS[field]
    if field == MINE:
        return OwnBook(counter)
    if field == LEVEL:
        return LevelBook(counter)
    if counter.reducer is not Reducer.SUM:
        return ExtremeBook(counter)
    return SumBook(counter, may_start=field == BASE)


def _calls(book: Book) -> list[Call]:
    return [*book.counted, *book.calls] if isinstance(book, SumBook) else book.calls


def _held(envelope: Envelope | None) -> Held:
    found = None if envelope is None else envelope.reserved.get("counters", {}).get(RESOURCE)
    return NOTHING if found is None else msgspec.convert(found, Held)


def _shown_total(envelope: Envelope, held: Held, field: str) -> Any:
    """What a look at the record shows: the total, or before that its own value."""
    counter = FIELDS[field]
    if field in held.totals:
        return counter.read(held.totals[field])
    own = None if envelope.deleted else counter.read(_value_at(envelope.data, field))
    return own if own is not None else counter.zero


def _others(data: dict[str, Any]) -> dict[str, Any]:
    """Fields that are not counted."""
    return {name: value for name, value in data.items() if name not in _TOP_LEVEL}


def _value_at(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _named(id: str, envelope: Envelope | None) -> str:
    return f"{id!r} version {envelope.version if envelope is not None else None}"
