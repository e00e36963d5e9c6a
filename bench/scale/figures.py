"""What follows from what was measured: whether it is flat, and where it ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from bench.form import Limit
from bench.scale.plan import MOST_CHANGE, SETTLED_FROM
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.membership import MAX_BODIES_PER_SURVEY
from tenure.election.records import MAX_MEMBERS_BYTES
from tenure.plan.cost import Circumstances
from tenure.plan.failover import failover
from tenure.store.providers import KEYS_PER_LISTING

S3_WRITES_PER_SECOND = 3_500
S3_READS_PER_SECOND = 5_500
"""Per prefix, as AWS says."""
GCS_WRITES_PER_KEY = 1.0
"""A second, as Google says."""
KEYS_PER_PAGE = KEYS_PER_LISTING["s3"]
SLOW_PAGE_SECONDS = 0.1
"""Of a listing, on a store that is slower than the simulated one: an assumption."""

Rows = Sequence[Mapping[str, Any]]


def growth(rows: Rows, figure: str) -> float:
    """By which share the most of any size is above the smallest fleet's."""
    first = float(rows[0]["steady"][figure])
    return max(float(row["steady"][figure]) for row in rows) / first - 1


def spread(rows: Rows, figure: str) -> float:
    """By which share the most is above the least, of fleets that are not small."""
    values = [float(row["steady"][figure]) for row in rows if row["workers"] >= SETTLED_FROM]
    return max(values) / min(values) - 1 if values else 0.0


def longest_failover(rows: Rows, slowest_request: float) -> float:
    """Of any crash, as a share of the longest that `tenure plan` foresees for a fleet of that size."""
    config = CoordinatorConfig()
    shares = [0.0]
    for row in rows:
        foreseen = failover(config, Circumstances(workers=row["workers"], latency=slowest_request))
        shares += [each["seconds"] / foreseen.worst_without_outage for each in row["failovers"]]
    return max(shares)


def limits(rows: Rows, slowest_request: float) -> list[Limit]:
    if len(rows) < 2:
        return []
    least, most = rows[0]["workers"], rows[-1]["workers"]
    found = []
    for figure, what in (("requests_each", "requests"), ("bytes_each", "bytes")):
        text = f"{what} a worker and heartbeat: growth over {least:,} workers in any fleet up to {most:,}"
        found.append(Limit(text, round(growth(rows, figure), 4), MOST_CHANGE))
        if most > SETTLED_FROM:
            text = f"{what} a worker and heartbeat: most over least, from {SETTLED_FROM:,} workers to {most:,}"
            found.append(Limit(text, round(spread(rows, figure), 4), MOST_CHANGE))
    text = "longest failover, as a share of the longest that `tenure plan` foresees while the store is well"
    found.append(Limit(text, round(longest_failover(rows, slowest_request), 4), 1.0))
    return found


def crossing(points: Sequence[tuple[int, float]], limit: float) -> float | None:
    """Where a figure that grows with the fleet passes `limit`: a straight line on logarithmic paper between the two
    measured sizes around it. `None`: at no size that was measured."""
    for (fewer, below), (more, above) in pairwise(points):
        if below <= limit < above:
            share = math.log(limit / below) / math.log(above / below)
            return fewer * float((more / fewer) ** share)
    return None


def bursts(rows: Rows) -> list[tuple[int, float]]:
    """By size: requests in the busiest second after a crash."""
    return [
        (row["workers"], float(max(each["peak_requests_per_second"] for each in row["failovers"])))
        for row in rows
        if row["failovers"]
    ]


def ends(rows: Rows, leaders: Rows, page_seconds: float) -> list[dict[str, Any]]:
    """Where it stops, on paper: from the figures of the largest fleet and the limits of stores.

    `workers` is how many; `None`: there is no such number, or none within what was measured.
    """
    steady, config = rows[-1]["steady"], CoordinatorConfig()
    beat, verbs = steady["seconds_per_heartbeat"], steady["requests_each_by_verb"]
    writes = sum(verbs.get(verb, 0.0) for verb in ("put", "create", "replace"))
    reads = verbs.get("get", 0.0)
    largest = leaders[-1]
    longest_list = MAX_MEMBERS_BYTES / (largest["members_bytes"] / largest["workers"])
    cpu = largest["cpu_us_per_worker"] / 1e6

    def listed_in(seconds: float, page: float) -> int:
        """Workers whose pages, one after the other, are listed within that time."""
        return int(seconds / page + 1e-9) * KEYS_PER_PAGE

    slow = f"{SLOW_PAGE_SECONDS * 1000:.0f} ms a page"
    found: dict[str, float | None] = {
        "S3: writes a second in one prefix": S3_WRITES_PER_SECOND / (writes / beat),
        "S3: reads a second in one prefix, fleet unchanged": S3_READS_PER_SECOND / (reads / beat),
        "S3: the same while the fleet changes in every heartbeat": S3_READS_PER_SECOND / ((reads + 1) / beat),
        "S3: reads in the busiest second after the leader crashed": crossing(bursts(rows), S3_READS_PER_SECOND),
        f"the leader's LIST takes a heartbeat, {page_seconds * 1000:.0f} ms a page": listed_in(
            config.heartbeat_interval, page_seconds
        ),
        f"the leader's LIST takes a heartbeat, {slow}": listed_in(config.heartbeat_interval, SLOW_PAGE_SECONDS),
        f"the leader's LIST takes a lease, and is given up, {slow}": listed_in(config.lease_timeout, SLOW_PAGE_SECONDS),
        "the leader's CPU for one heartbeat takes a heartbeat": config.heartbeat_interval / cpu,
        f"the list of members is longer than the {MAX_MEMBERS_BYTES // 2**20} MiB that are read": longest_list,
    }
    if steady["busiest_key_writes_per_second"] <= GCS_WRITES_PER_KEY:
        found["GCS: one write a second of one key"] = None  # the leader's own, however many there are
    return [{"what": what, "workers": None if count is None else round(count)} for what, count in found.items()]


def known_after(workers: int, seconds_per_heartbeat: float) -> float:
    """Seconds until a leader has read the records of so many new workers."""
    return -(-workers // MAX_BODIES_PER_SURVEY) * seconds_per_heartbeat
