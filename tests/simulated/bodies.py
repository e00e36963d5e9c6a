"""What lies in the bucket of a working fleet, by kind: the sound samples that `lab/decoders.py` spoils.

python -m tests.simulated.bodies    # writes lab/sound.json anew
"""

from __future__ import annotations

import json
from pathlib import Path

from tenure.coordinator.layout import folder_of

from .working import LEDGERS, WorkingFleet

SOUND = Path(__file__).parents[2] / "lab" / "sound.json"
SECONDS = 14.0
OURS = folder_of("default")
_QUEUE, _TTL = LEDGERS["s3-queue"], LEDGERS["ttl"]
_SCHEDULE, _COUNTERS = LEDGERS["scheduler"], LEDGERS["eventual-consistency"]

KINDS = {
    "lease": f"{OURS}state.json",
    "term": f"{OURS}terms/",
    "worker": f"{OURS}workers/",
    "members": f"{OURS}members.json",
    "metadata": f"{OURS}metadata.json",
    "ledger": f"{_QUEUE}ledger.json",
    "settings of counters": f"{_COUNTERS}settings.json",
    "settings of a ttl": f"{_TTL}settings.json",
    "storage": "plugin=kept/name=things/storage/",
    "lock": "plugin=locks/lock=",
    "fenced object": "fenced",
    "record": "resource=sessions/data/",
    "counted record": "resource=pages/data/",
    "manifest": f"{_QUEUE}snapshots/",
    "batch of a queue": f"{_QUEUE}inbox/",
    "segment of a queue": f"{_QUEUE}seg/",
    "result of a queue": f"{_QUEUE}results/",
    "batch of a schedule": f"{_SCHEDULE}inbox/",
    "letter of a ttl": f"{_TTL}inbox/",
    "failed callback": f"{_TTL}failed/",
    "letter of counters": f"{_COUNTERS}inbox/",
}
"""By what its key begins with. Of each, the longest that was written."""


def live() -> dict[str, list[bytes]]:
    """Every body that a fleet writes in so long, by key."""
    with WorkingFleet(failing=True) as fleet:
        fleet.run(SECONDS)
        return fleet.bodies


def sound(bodies: dict[str, list[bytes]]) -> dict[str, str | list[str]]:
    found: dict[str, str | list[str]] = {}
    for kind, start in KINDS.items():
        written = [body for key, each in sorted(bodies.items()) if key.startswith(start) for body in each]
        found[kind] = max(written, key=len).decode()
    for slug, folder in LEDGERS.items():
        found[f"log of {slug}"] = [
            each[0].decode() for key, each in sorted(bodies.items()) if key.startswith(f"{folder}log/")
        ]
    return found


if __name__ == "__main__":
    SOUND.write_text(json.dumps(sound(live()), indent=1) + "\n")
