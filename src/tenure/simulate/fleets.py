"""The kinds of fleet that a campaign can play, what each must have met, and what it promises."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tenure.simulate.children_fleet import run_children_seed
from tenure.simulate.counters_fleet import run_counters_seed
from tenure.simulate.lock_fleet import LockTrouble, run_lock_seed
from tenure.simulate.polling_fleet import run_polling_seed
from tenure.simulate.queue_fleet import run_queue_seed
from tenure.simulate.records_fleet import RecordsTrouble, run_records_seed
from tenure.simulate.schedule_fleet import run_schedule_seed
from tenure.simulate.seed import Plan, SeedResult, run_seed
from tenure.simulate.ttl_fleet import run_ttl_seed
from tenure.testing.trouble import KINDS

_ALWAYS = (
    *(f"fault:{kind}" for kind in KINDS),
    *(
        f"network:{name}"
        for name in (
            *("applied", "rejected", "unknown", "timeout", "cut", "cut_reply", "outage", "repeated"),
            *("lost_request", "lost_reply", "slow_request", "slow_reply"),
            *("late_landing", "late_landing_applied", "late_landing_rejected"),
            *("server_error_applied", "server_error_not_applied"),
        )
    ),
)
_OF_NETWORK = tuple(item for item in _ALWAYS if item.startswith("network:"))
_OF_LEDGERS = tuple(f"fault:{kind}" for kind in ("late-entries", "long-freeze", "leave", "overtaken"))
_OF_STAGES = tuple(fault for fault in _OF_LEDGERS if fault != "fault:overtaken")
_LEDGER_POINTS = (
    *("look", "_fetch", "append", "all_of", "catch_up", "write", "read_snapshot", "trim", "_delete"),
    *("_send", "log_end"),
)


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    run: Callable[[int, Plan], SeedResult]
    enough: int
    """With so many seeds and all faults, one that was never hit is a defect of the simulation."""
    expected: tuple[str, ...]
    """What must have been hit by then."""
    crash_points: tuple[str, ...]
    """Functions in which some process must have been killed or frozen while it waited."""
    title: str = ""
    """Of the coverage that is its own."""
    promise: str = ""
    """What is said if nothing was violated, besides what is said of the election."""
    faults: tuple[str, ...] = tuple(KINDS)
    """The kinds of trouble that it can have."""
    began: str = "terms began"
    """What is counted as terms."""
    is_elected: bool = True
    """Does the fleet have a leader?"""


FLEETS = {
    "election": Fleet(
        run=run_seed,
        enough=200,
        expected=(
            *_ALWAYS,
            *(
                f"end:{reason}"
                for reason in ("renew-deadline", "taken", "damaged", "stopped", "step-down", "unhealthy")
            ),
        ),
        crash_points=("renew", "stand", "confirm", "settle", "release", "read", "beat", "_listing"),
    ),
    "queue": Fleet(
        run=run_queue_seed,
        enough=1000,
        expected=(
            *_ALWAYS,
            *_OF_LEDGERS,
            *(
                f"queue:{what}"
                for what in (
                    *("accepted", "acks", "handled", "tickets", "lapsed", "retried", "dead", "given back"),
                    *("duplicates", "shifted", "forgotten", "resumed", "skipped", "joined", "left", "resyncs"),
                    *("late reports", "ghosts", "enqueue refused or unknown", "snapshots", "trimmed", "extended"),
                    *("extended by hand", "redelivered"),
                    *(f"command {command}" for command in ("pause", "resume", "purge", "redrive", "purge-dead")),
                )
            ),
        ),
        crash_points=(*_LEDGER_POINTS, "poll", "_get_segment", "handle_all", "_settle_first", "extend"),
        title="Of the queue",
        promise="No message lost, none delivered again after its ack, keys in order, none that was a duplicate.",
    ),
    "schedule": Fleet(
        run=run_schedule_seed,
        enough=1000,
        expected=(
            *_ALWAYS,
            *_OF_LEDGERS,
            *(
                f"schedule:{what}"
                for what in (
                    *("decided", "fired", "begun", "succeeded", "failed", "retried", "timed out", "left behind"),
                    *("coalesced", "missed-window", "skipped-overlap", "queued", "by hand", "declared", "undeclared"),
                    *("interrupted", "rerun", "abandoned", "sent again", "ghosts", "snapshots", "trimmed", "refused"),
                    *("messages", "messages dropped as duplicates", "call not answered", "looks"),
                    *(f"command {op}" for op in ("add", "update", "remove", "pause", "resume", "run-now")),
                )
            ),
        ),
        crash_points=(
            *_LEDGER_POINTS,
            "serve",
            "_rest",
            "_wait",
            "_see_to",
            "_end",
            "_send",
            "wind_up",
            "give",
            "poll",
        ),
        title="Of the schedule",
        promise="No occurrence lost, none decided twice or early, none begun before it was written; tokens rise.",
    ),
    "ttl": Fleet(
        run=run_ttl_seed,
        enough=1000,
        expected=(
            *_ALWAYS,
            *_OF_LEDGERS,
            *(
                f"ttl:{what}"
                for what in (
                    *("inserted", "re-inserted", "refreshed", "refreshed at the last instant", "expired", "decided"),
                    *("landed after its entry was due", "quarantined", "spent", "swaps lost by the cleaner"),
                    *("archived", "in the archive already", "callbacks", "callbacks repeated", "taken over"),
                    *("group entries", "caught up", "cleanups by hand"),
                )
            ),
        ),
        crash_points=(
            *_LEDGER_POINTS,
            *("page", "_ids_of", "at_once", "_delete_spent", "_put", "_clear", "_read", "_remove", "_insist"),
            *("_look_again", "passed", "_call_back", "run_cleanup", "agree"),
        ),
        title="Of records that expire",
        promise="No record gone before its time, none left after it, none that was refreshed or inserted again.",
    ),
    "counters": Fleet(
        run=run_counters_seed,
        enough=1000,
        expected=(
            *_ALWAYS,
            *_OF_LEDGERS,
            *(
                f"counters:{what}"
                for what in (
                    *(f"{verb} {told}" for verb in ("add", "sub", "set") for told in ("done", "refused", "unknown")),
                    *("unknown and counted", "unknown and not counted", "given again", "taken up by another"),
                    *("duplicates", "sync", "sync not answered", "consolidated", "consistent", "looks", "held back"),
                    *("counted in a record", "counted in a tombstone", "kept without a record"),
                    *("deleted when counted", "inserted again when counted", "written past the plugin"),
                    *("sealed", "paged", *(f"merged to {level}" for level in ("hour", "day", "month", "all"))),
                    *("histories", "tops", "recalculated", "overwritten by hand", "removed by hand", "put right"),
                    *("applied", "snapshots", "trimmed", "ghosts", "forgotten"),
                    *(
                        f"{how} when its {what} had landed"
                        for how in ("killed", "stopped", "stopped for long")
                        for what in ("record", "entry", "page")
                    ),
                )
            ),
        ),
        crash_points=(
            *_LEDGER_POINTS,
            *("_round", "written", "fetch", "_unfolded", "consistent_totals", "consolidated", "ask", "flush", "rows"),
            *("cells", "orphans", "_clear_away", "_insist", "_read", "agree"),
        ),
        title="Of counters",
        promise="No amount lost, none counted twice, none out of its writer's order; watermarks rise with totals.",
    ),
    "lock": Fleet(
        run=run_lock_seed,
        enough=100,
        expected=(
            *(f"fault:{kind}" for kind in LockTrouble.kinds),
            *_OF_NETWORK,
            *(
                f"lock:{what}"
                for what in ("granted", "released", "lost", "timeout", "still ours", "not ours", "tried", "store")
            ),
        ),
        crash_points=("look", "take", "renew", "_settle", "release"),
        title="Of the lock",
        promise="never two holders, tokens rise, nothing runs under a lock that was lost, everybody gets it.",
        faults=tuple(LockTrouble.kinds),
        began="times the lock was granted",
        is_elected=False,
    ),
    "children": Fleet(
        run=run_children_seed,
        enough=200,
        expected=(
            *_ALWAYS,
            *_OF_STAGES,
            *(
                f"children:{what}"
                for what in (
                    *("started", "started again", "told to end", "ended", "winding up after a pause"),
                    "candidates stopped",
                )
            ),
        ),
        crash_points=("_check_elections", "__await__", "wait", "stop"),
        title="Of supervised children",
        promise="Each child on one node at most, started and ended in order, and in the end on the leader.",
    ),
    "records": Fleet(
        run=run_records_seed,
        enough=100,
        expected=(
            *(f"fault:{kind}" for kind in RecordsTrouble.kinds),
            *_OF_NETWORK,
            *(
                f"records:{verb} {told}"
                for verb in ("insert", "update", "rewrite", "delete", "delete-version")
                for told in ("done", "no", "unknown")
            ),
            "records:tombstones removed",
        ),
        crash_points=("_send", "_insist", "_read", "_remove", "_look_again"),
        title="Of records",
        promise="no write lost, none made twice, none over what its caller had not seen; versions never repeat.",
        faults=tuple(RecordsTrouble.kinds),
        began="calls were made",
        is_elected=False,
    ),
    "polling": Fleet(
        run=run_polling_seed,
        enough=200,
        expected=(
            *_ALWAYS,
            *_OF_STAGES,
            *(f"polling:{what}" for what in ("jobs", "begun", "completed", "failed", "deleted")),
        ),
        crash_points=("_run", "_consider", "change", "notes", "_register", "_turn_of"),
        title="Of polling",
        promise="Each job ends in one state and is counted once; its check is begun once at most.",
    ),
}
