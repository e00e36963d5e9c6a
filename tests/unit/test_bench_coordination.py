"""`make bench-coordination` is run by hand: what it counts, and what follows from that, is tested here."""

from __future__ import annotations

import copy
import io
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.coordination.__main__ import merged
from bench.coordination.figures import HOURS_PER_MONTH, limits, plugin_changes, row_of, unrest, usd_per_month, whole
from bench.coordination.fleet import Fleets
from bench.coordination.plan import Cell, Plan
from bench.coordination.proxy import CountingProxy, verb_of
from bench.coordination.subjects import Tenure
from bench.coordination.table import show
from bench.pages.coordination import page
from bench.report import _spoken
from lab.background import BackgroundServer
from lab.buckets import make_bucket
from lab.http1 import Request, Response, serve_connection
from lab.ministack import Ministack
from tenure import CoordinatorConfig

SECONDS = 120.0


def request(method: str, target: str, *headers: str) -> Request:
    return Request(method, target, tuple((name, "x") for name in headers))


@pytest.mark.parametrize(
    ("given", "verb"),
    [
        (request("PUT", "/bucket/key"), "put"),
        (request("PUT", "/bucket/key", "If-Match"), "conditional put"),
        (request("PUT", "/bucket/key", "if-none-match"), "conditional put"),
        (request("GET", "/bucket/key"), "get"),
        (request("GET", "/bucket/key?x-id=GetObject", "If-None-Match"), "get"),
        (request("GET", "/bucket?list-type=2&prefix=a%2Fb"), "list"),
        (request("GET", "/bucket/?list-type=2"), "list"),
        (request("GET", "/bucket"), "list"),
        (request("HEAD", "/bucket/key"), "head"),
        (request("DELETE", "/bucket/key"), "delete"),
        (request("POST", "/bucket?delete="), "delete many"),
        (request("POST", "/bucket/?delete"), "delete many"),
        (request("POST", "/bucket/key?uploads"), "post"),
    ],
)
def test_a_request_is_what_s3_would_call_it(given: Request, verb: str) -> None:
    assert verb_of(given) == verb


@pytest.fixture
def proxy() -> Iterator[tuple[CountingProxy, str]]:
    """In front of a server that knows one key, and says what it was sent."""

    async def answer(request: Request) -> Response:
        return Response(200, request.body or b"found") if request.path == "/bucket/key" else Response(404, b"")

    server = BackgroundServer(lambda reader, writer: serve_connection(reader, writer, answer))
    made = CountingProxy(server.start())
    yield made, made.start()
    made.stop()
    server.stop()


def test_the_proxy_passes_everything_on_and_counts_it_by_bucket(proxy: tuple[CountingProxy, str]) -> None:
    counter, url = proxy

    def put(_: int) -> bytes:
        sent = urllib.request.Request(f"{url}/bucket/key", b"body", {"If-Match": "x"}, method="PUT")
        with urllib.request.urlopen(sent, timeout=30) as answer:
            return bytes(answer.read())

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(put, range(200))) == [b"body"] * 200
    with urllib.request.urlopen(f"{url}/bucket/key", timeout=30) as answer:
        assert answer.read() == b"found"
    with pytest.raises(urllib.error.HTTPError) as missing:
        urllib.request.urlopen(f"{url}/other/key", timeout=30)
    missing.value.close()
    assert missing.value.code == 404
    assert counter.counts("bucket") == {"conditional put": 200, "get": 1}
    assert counter.counts("other") == {"get": 1}  # also one that was answered by 404
    assert counter.counts("third") == {}
    load = counter.load()
    assert load["requests"] == 202
    assert 1 < load["most_under_way"] <= 16
    assert counter.load() == {"requests": 0}


def test_usd_are_those_of_the_price_list() -> None:
    minutes = HOURS_PER_MONTH * 60
    writes = {"put": 3, "conditional put": 2, "list": 1}
    assert usd_per_month(writes, 60) == pytest.approx(6 * 0.005 / 1000 * minutes)
    reads = {"get": 10, "head": 5, "delete": 7, "delete many": 1}
    assert usd_per_month(reads, 30) == pytest.approx(15 * 0.0004 / 1000 * minutes * 2)
    assert usd_per_month({"post": 1}, 60) == pytest.approx(0.005 / 1000 * minutes)


def row(subject: str, workers: int, plugins: int, mode: str = "", *, put: int = 0, get: int = 0) -> dict[str, Any]:
    borne = {"requests": 100, "per_second": 12.0, "p99_ms": 3.0}
    more = {"processes": min(workers, 10), "leaders": 1, "epochs": 0, "proxy": borne}
    return row_of(Cell(subject, workers, plugins, mode), {"put": put, "get": get}, SECONDS, **more)


def good() -> dict[str, Any]:
    rows = [
        row("tenure", 10, 1, put=260, get=290),
        row("tenure", 10, 10, put=262, get=290),
        row("tenure", 10, 1, "election only", put=22, get=196),
        row("tenure", 100, 1, put=2200, get=2200),
        row("tenure", 100, 10, put=2200, get=2210),
        row("s3db", 10, 1, put=660, get=430),
        row("s3db", 10, 1, "no retries", put=650, get=420),
        row("s3db", 3, 4, "parallel", put=1000, get=400),
    ]
    firsts = {
        "tenure": [{"connect": 0.2, "lead": lead} for lead in (1.0, 1.1, 5.0)],
        "s3db": [{"connect": 14.0, "lead": 21.0}],
        "s3db no retries": [{"connect": 0.3, "lead": 0.1}],
    }
    plan = {"seconds": SECONDS, "warm_up": 45.0, "most_processes": 10, "workers_in_a_process": 25}
    return {"rows": rows, "first_leader": firsts, "plan": plan}


def test_bars_take_our_dearest_fleet_and_the_cheapest_of_the_peer() -> None:
    found = limits(good())
    assert all(limit.met for limit in found)
    small, large, requests, usd, election_only, first = (limit.value for limit in found)
    assert small == pytest.approx(2 / 550, abs=1e-4)
    assert large == pytest.approx(10 / 4400, abs=1e-4)
    assert requests == pytest.approx(552 / 1070, rel=1e-3)
    assert usd == pytest.approx((262 * 5 + 290 * 0.4) / (650 * 5 + 420 * 0.4), rel=1e-3)
    assert election_only == pytest.approx((22 * 5 + 196 * 0.4) / (650 * 5 + 420 * 0.4), rel=1e-2)
    assert first == pytest.approx(1.3 / 35)


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        (row("tenure", 10, 10, put=280, get=290), "requests of 10 workers: 10 plugins"),
        (row("tenure", 10, 10, put=240, get=290), "requests of 10 workers: 10 plugins"),
        (row("tenure", 10, 1, put=280, get=350), "requests per minute"),
        (row("tenure", 10, 1, put=350, get=200), "USD per month, 10 workers, as"),
        (row("tenure", 10, 1, "election only", put=50, get=250), "election only"),
    ],
)
def test_a_bar_that_is_missed_is_told(spoiled: dict[str, Any], said: str) -> None:
    found = good()
    same = ("subject", "workers", "plugins", "mode")
    rows = found["rows"]
    found["rows"] = [spoiled if all(row[key] == spoiled[key] for key in same) else row for row in rows]
    assert any(said in limit.what for limit in limits(found) if not limit.met)


def test_a_slow_first_leader_is_told_and_what_was_not_measured_is_not_judged() -> None:
    found = good()
    for trial in found["first_leader"]["tenure"]:
        trial["lead"] += 6.0
    assert whole(found["first_leader"]["tenure"]) == pytest.approx(7.3)
    assert [limit.what for limit in limits(found) if not limit.met] == [
        "time to the first leader on an empty bucket, as a share of s3db.js's"
    ]
    assert limits({"rows": [], "first_leader": {}}) == []
    assert plugin_changes([row("tenure", 10, 1, put=1)]) == []
    alone = copy.deepcopy(good())
    alone["rows"] = [row for row in alone["rows"] if row["subject"] == "tenure"]
    alone["first_leader"]["s3db"] = []
    assert len(limits(alone)) == 2


def test_every_fleet_has_a_bucket_of_its_own_and_ours_is_as_it_comes() -> None:
    plan = Plan()
    cells = [cell for cells in (*plan.rounds_of_ours(), *plan.rounds_of_s3db()) for cell in cells]
    assert len({cell.bucket for cell in cells}) == len(cells) == 12 + 4 + 9 + 2
    assert {cell.workers for cell in cells if cell.subject == "s3db"} == {1, 3, 10}
    assert [plan.seconds_of(cells) for cells in plan.rounds_of_ours()] == [120.0] + [60.0] * 4
    assert CoordinatorConfig().heartbeat_interval == 5.0


def test_a_fleet_that_was_not_at_rest_is_no_figure() -> None:
    calm = {**row("tenure", 10, 1, put=260, get=290), "sent_by_their_own_count": 545}
    assert unrest(calm) is None
    for change, said in (
        ({"leaders": 0}, "no leader"),
        ({"leaders": 2}, "2 leaders"),
        ({"epochs": 1}, "rose by 1"),
        ({"sent_by_their_own_count": 400}, "saw 550 requests and the workers sent 400"),
    ):
        assert said in str(unrest({**calm, **change}))
    peer = {**row("s3db", 10, 1, put=660, get=430), "epochs": 8, "leaders": 2}
    assert unrest(peer) is None
    assert unrest({**peer, "leaders": 0}) == "it has no leader"


def test_table_and_page_show_what_was_found() -> None:
    found = {**good(), "limits": []}
    output = io.StringIO()
    show(found, Console(file=output, width=200))
    assert "tenure, election only" in output.getvalue()
    assert "s3db.js, no retries" in output.getvalue()
    made = page(found)
    assert "| tenure | 10 | 1 | 130 | 145 | 275 |" in made.text
    assert "| tenure | 1.30 | 1.20 | 5.20 | 3 |" in made.text
    assert "A fleet of 100 is 10 processes" in made.text
    assert "`executorPool: {retries: 0}`" in made.text
    for name, svg in made.pictures.items():
        assert f"{{{{{name}}}}}" in made.text
        assert _spoken(svg)


def test_parts_that_were_not_measured_again_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("bench.coordination.__main__.RESULTS", tmp_path)
    fresh = {"rows": [row("tenure", 10, 1, put=1)], "first_leader": {"tenure": []}}
    assert merged(fresh) is fresh
    (tmp_path / "coordination.json").write_text(json.dumps(good()))
    both = merged(fresh)
    assert len(both["rows"]) == len(good()["rows"])
    assert [row for row in both["rows"] if row["counts"]["put"] == 1] == fresh["rows"]
    assert both["first_leader"] == {**good()["first_leader"], "tenure": []}


@pytest.mark.slow
def test_a_fleet_of_ours_is_counted_and_a_first_leader_timed(tmp_path: Path) -> None:
    server = Ministack(tmp_path / "server")
    endpoint = server.start()
    proxy = CountingProxy(endpoint.url)
    try:
        plan = Plan(workers=(1,), plugins=(2,), warm_up=0.0, seconds=0.2)
        ours = Tenure(endpoint, proxy.start(), plan)
        fleets = Fleets(endpoint, proxy, tmp_path, plan, lambda _: None)
        ((_, alone),) = plan.rounds_of_ours()
        (counted,) = fleets.count(ours, [alone])
        assert fleets.failed == []
        assert (counted["mode"], counted["processes"], counted["leaders"]) == ("election only", 1, 1)
        assert proxy.counts(alone.bucket)["conditional put"] >= 2  # a lease and a term, at least
        make_bucket(endpoint, "first")
        trial = ours.first("first", tmp_path)
        assert trial["lead"] > 0
        assert proxy.counts("first")["conditional put"] >= 3
    finally:
        proxy.stop()
        server.stop()
