"""What a working fleet writes is accepted by the readers that are fuzzed; and they are fuzzed with what is like it."""

from __future__ import annotations

import json

from lab.decoders import DECODERS, refused
from tenure.ledger.records import LogEntry, decode_entry

from .bodies import KINDS, SOUND, live, sound
from .working import LEDGERS

BY_NAME = {decoder.name: decoder for decoder in DECODERS}
BY_KIND = {
    "lease": "lease",
    "term": "election.records.Term",
    "worker": "election.records.Worker",
    "members": "election.records.Members",
    "metadata": "election.records.Metadata",
    "ledger": "ledger.agreed.AgreedLedger",
    "settings of counters": "plugins.counters.agreed.Agreed",
    "settings of a ttl": "plugins.ttl.agreed.Agreed",
    "storage": "database.storage.StorageRecord",
    "lock": "lock",
    "fenced object": "fenced object",
    "batch of a queue": "batch of a queue",
    "segment of a queue": "segment of a queue",
    "result of a queue": "result of a queue",
    "batch of a schedule": "batch of a schedule",
    "letter of a ttl": "letter of a ttl",
    "failed callback": "failed callback",
    "letter of counters": "letter of counters",
}
BY_THEIR_KEYS = {"record", "counted record", "manifest"}
"""Read as what their keys say, which the samples know and the others do not."""


def test_what_is_written_is_accepted_and_the_samples_are_like_it() -> None:
    bodies = live()
    assert KINDS.keys() == BY_KIND.keys() | BY_THEIR_KEYS
    for kind, start in KINDS.items():
        written = [body for key, each in bodies.items() if key.startswith(start) for body in each]
        assert written
        if kind in BY_KIND:
            for body in written:
                assert not refused(BY_NAME[BY_KIND[kind]], body), body
    for folder in LEDGERS.values():
        for number in range(1, 10):
            (body,) = bodies[f"{folder}log/{number:020d}"]
            assert isinstance(decode_entry(body, number), LogEntry)
    kept, fresh = json.loads(SOUND.read_text()), sound(bodies)
    assert kept.keys() == fresh.keys()
    for kind in set(KINDS) - {"fenced object", "segment of a queue", "batch of a queue", "result of a queue"}:
        assert json.loads(kept[kind]).keys() == json.loads(str(fresh[kind])).keys(), f"write {SOUND.name} anew: {kind}"
