"""Takeovers and double leaders, beside what others use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench import plot
from bench.failover.figures import overlap_of, rows_of, samples_of, summary
from bench.failover.plan import KINDS
from bench.failover.table import failed, shown
from bench.pages import Page, limits, table

_ORDER = ("tenure", "tenure-directory", "s3db", "etcd", "zookeeper", "redis")
"""Each keeps its colour in all pictures."""


def page(result: Mapping[str, Any]) -> Page:
    subjects = result["subjects"]
    leases = sorted({contest["asked_lease"] for subject in subjects for contest in subject["contests"]})
    parts = [_METHOD, _beliefs(subjects)]
    pictures = {}
    for lease in leases:
        name = f"failover-{lease:g}"
        pictures[name] = _picture(subjects, lease)
        parts += [f"### Lease of {lease:g} s", _counts(subjects, lease), _table(subjects, lease), "{{" + name + "}}"]
    lacking = sum(failed(contest) for subject in subjects for contest in subject["contests"])
    if lacking:
        parts.append(f"{lacking} trials have no figure: the file of results says why.")
    parts += [_asked(subjects), "Bars:\n\n" + limits(result)]
    return Page("Failover", "\n\n".join(part for part in parts if part), pictures)


_METHOD = """\
Three processes of each system stand for election, all systems side by side, each with a server of its own (etcd,
ZooKeeper and Redis as one node, which is the quickest that they can be). The leader is killed (**crash**: SIGKILL),
asked to end (**stop**: SIGTERM, handled as that system's documentation says) or frozen for three leases and continued
(**freeze**: SIGSTOP, SIGCONT), at instants drawn from a seed, after two to three leases in which one led alone and all
three ran: whoever died before is forgotten by then. Every process notes a hundred times a second, on a clock
that all of them share, whether it believes that it leads. A takeover lasts from the signal to the first such note of
another process. **Two led** is the time for which the notes of two processes prove that both ran and both believed it;
while a process is frozen, its belief counts for nothing. With few trials, p99 is the greatest of them. s3db.js takes no
lease under 5 s, and stands in the first table with that."""


def _beliefs(subjects: list[Mapping[str, Any]]) -> str:
    """What ran, how it was set, and what believing means there."""
    lines = []
    for subject in subjects:
        lines.append(f"- **{subject['label']}** ({subject['version']}) believes while: {subject['belief']}.")
        lines += [f"  - Lease {each['lease']:g} s: {each['settings']}." for each in subject["contests"]]
    return "\n".join(lines)


def _counts(subjects: list[Mapping[str, Any]], lease: float) -> str:
    counted = {kind: {len(samples_of(contest, kind)) for _, contest in rows_of(subjects, lease)} for kind in KINDS}
    shown = (
        f"{'–'.join(str(count) for count in sorted({min(each), max(each)}))} of {kind}"
        for kind, each in counted.items()
    )
    return f"Trials of each system: {', '.join(shown)}."


def _table(subjects: list[Mapping[str, Any]], lease: float) -> str:
    head = ["seconds", *(f"{kind} {what}" for kind in KINDS for what in ("p50", "p99", "mean")), "two led", "times"]
    rows = []
    for subject, contest in rows_of(subjects, lease):
        cells: list[str] = []
        for kind in KINDS:
            figures = summary(samples_of(contest, kind))
            cells += [f"{figures[name]:.2f}" if figures else "" for name in ("p50", "p99", "mean")]
        rows.append([shown(subject, contest), *cells, _seconds(contest["overlap_seconds"]), contest["overlaps"]])
    text = table(head, rows)
    where = [
        f"{subject['label']}: " + ", ".join(f"{kind} {_seconds(overlap_of(contest, kind))} s" for kind in KINDS)
        for subject, contest in rows_of(subjects, lease)
        if contest["overlaps"]
    ]
    return f"{text}\n\nTwo led, by kind of trial: {'; '.join(where)}." if where else text


def _picture(subjects: list[Mapping[str, Any]], lease: float) -> str:
    rows, colours = {}, {}
    for kind in KINDS:
        for subject, contest in rows_of(subjects, lease):
            label = f"{kind}: {subject['label']}"
            rows[label] = samples_of(contest, kind)
            colours[label] = _ORDER.index(subject["system"])
    note = "Seconds from the signal to the next leader: every trial is a dot, the line is the median."
    different = [shown(subject, contest) for subject, contest in rows_of(subjects, lease)]
    note += "".join(f" {label.replace(' (', ': ').rstrip(')')}." for label in different if "(lease" in label)
    return plot.strips(f"Takeover with a lease of {lease:g} s", rows, unit="s", note=note, colours=colours)


def _asked(subjects: list[Mapping[str, Any]]) -> str:
    for subject in subjects:
        if subject["system"] == "redis":
            asked = sum(contest["overlap_seconds_if_asked"] for contest in subject["contests"])
            known = sum(contest["overlap_seconds"] for contest in subject["contests"])
            return (
                f"A holder of the Redis lock that asks the server each time (`lock.owned()`) overlapped for "
                f"{_seconds(asked)} s in all, and one that trusts its last extension for {_seconds(known)} s."
            )
    return ""


def _seconds(value: float) -> str:
    return "0" if not value else f"{value:.3f}" if value >= 0.0005 else "under 0.001"
