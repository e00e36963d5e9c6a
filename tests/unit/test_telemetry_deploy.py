"""The alerts and the dashboard in deploy/ ask for metrics and labels that there are, and say what to do."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tenure.telemetry.catalogue import CATALOGUE
from tenure.telemetry.prometheus import serve
from tests.unit.telemetry_rig import process, scraped

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "tenure-alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "tenure.json"
GUIDE = ROOT / "docs" / "telemetry.md"
NAME = re.compile(r"\btenure_[a-z_]+")
BY = re.compile(r"\b(?:by|on)\s*\(([a-z_, ]+)\)")
SELECTOR = re.compile(r"(tenure_[a-z_]+)\{([^}]*)\}")
TARGET = {"job", "instance", "le"}


def rules() -> list[dict[str, Any]]:
    found = yaml.safe_load(ALERTS.read_text())
    return [rule for group in found["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def dashboard_queries() -> Iterator[str]:
    found = dashboard()
    for panel in found["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for annotation in found["annotations"]["list"]:
        yield annotation["expr"]


def queries() -> list[str]:
    return [*(rule["expr"] for rule in rules()), *dashboard_queries()]


def labels_in_scrape() -> dict[str, dict[str, set[str]]]:
    """By name of the series, then by label: the values that a scrape has."""
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(scraped()[0]):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, text in sample.labels.items():
                labels.setdefault(label, set()).add(text)
    return found


@pytest.mark.req("MT-6")
def test_every_metric_and_label_that_is_asked_for_is_in_a_scrape() -> None:
    known = labels_in_scrape()
    variables = [variable.get("definition", "") for variable in dashboard()["templating"]["list"]]
    asked = 0
    for query in [*queries(), *variables]:
        for name in NAME.findall(query):
            asked += 1
            assert name in known, f"{name} in {query}"
        for name, selector in SELECTOR.findall(query):
            for label, operator, text in re.findall(r'(\w+)\s*(=~|!=|=)\s*"([^"]*)"', selector):
                assert label in TARGET or label in known[name], f"{label} in {query}"
                if "$" in text or label == "job":
                    continue
                values = text.split("|") if operator == "=~" else [text]
                # Outcomes of requests are there once they happened; every other list is complete from the start.
                possible = known[name][label] | ({"error", "unknown"} if label == "outcome" else set())
                assert set(values) <= possible, f"{values} in {query}"
        for wanted in BY.findall(query):
            labels = {label.strip() for label in wanted.split(",")}
            of_query = set().union(*(known[name] for name in NAME.findall(query))) | TARGET
            assert labels <= of_query, f"{labels - of_query} in {query}"
    assert asked > 60


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    guide = GUIDE.read_text()
    found = rules()
    names = [rule["alert"] for rule in found]
    assert len(names) == len(set(names)) >= 12
    for rule in found:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert ROOT / page == GUIDE
        assert anchor == rule["alert"].lower()
        heading = f"### {rule['alert']}\n"
        assert heading in guide, rule["alert"]
        advice = guide.split(heading)[1].split("\n#")[0]
        assert len(advice) > 100, rule["alert"]
    assert set(re.findall(r"^### (Tenure\w+)$", guide, re.MULTILINE)) == set(names)


def test_the_dashboard_can_be_imported_anywhere() -> None:
    found = dashboard()
    assert [variable["name"] for variable in found["templating"]["list"]] == ["datasource", "job", "namespace"]
    ids = [panel["id"] for panel in found["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        squares = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not squares & taken, panel["title"]
        taken |= squares
        if panel["type"] == "row":
            continue
        assert panel["description"]
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert 'job=~"$job"' in target["expr"], panel["title"]
            per_namespace = [
                name
                for name in NAME.findall(target["expr"])
                if "namespace" in next((f.labels for f in CATALOGUE if f.name == name), ())
            ]
            assert target["expr"].count('namespace=~"$namespace"') >= len(per_namespace), panel["title"]
    rows = [panel["title"] for panel in found["panels"] if panel["type"] == "row"]
    assert rows == ["Leader", "Store", "Queues", "Schedules, counters, TTL, children", "Processes"]


# With Prometheus itself

SERIES: dict[str, tuple[list[tuple[str, str]], str]] = {
    # alert: (series and values, a minute apart), when it must have fired
    "TenureNoLeader": ([('tenure_is_leader{job="a",instance="1",namespace="n"}', "0x20")], "5m"),
    "TenureTwoLeaders": (
        [(f'tenure_is_leader{{job="a",instance="{each}",namespace="n"}}', "1x20") for each in (1, 2)],
        "5m",
    ),
    "TenureFrequentLeaderChanges": (
        [('tenure_leader_changes_total{job="a",instance="1",namespace="n"}', "0+1x30")],
        "20m",
    ),
    "TenureHeartbeatSlow": (
        [
            ('tenure_heartbeat_duration_seconds_bucket{job="a",instance="1",namespace="n",le="2.5"}', "0x40"),
            ('tenure_heartbeat_duration_seconds_bucket{job="a",instance="1",namespace="n",le="5.0"}', "0+12x40"),
            ('tenure_heartbeat_duration_seconds_bucket{job="a",instance="1",namespace="n",le="+Inf"}', "0+12x40"),
        ],
        "20m",
    ),
    "TenureHeartbeatMissing": (
        [
            ('tenure_last_heartbeat_timestamp_seconds{job="a",instance="1",namespace="n"}', "0x20"),
            ('tenure_coordinator_running{job="a",instance="1",namespace="n"}', "1x20"),
        ],
        "10m",
    ),
    "TenureCircuitBreakerOpen": (
        [('tenure_circuit_breaker_state{job="a",instance="1",namespace="n",state="open"}', "1x20")],
        "5m",
    ),
    "TenureStoreErrors": (
        [
            ('tenure_store_requests_total{job="a",instance="1",verb="get",outcome="ok"}', "0+90x30"),
            ('tenure_store_requests_total{job="a",instance="1",verb="get",outcome="error"}', "0+10x30"),
        ],
        "15m",
    ),
    "TenureStoreSilent": (
        [('tenure_coordinator_store_errors_total{job="a",instance="1",namespace="n"}', "0+12x30")],
        "15m",
    ),
    "TenureStoreExpensive": ([('tenure_store_cost_usd_total{job="a",instance="1"}', "0+0.01x150")], "140m"),
    "TenureLedgerNotLed": (
        [('tenure_ledger_leading{job="a",instance="1",namespace="n",plugin="ttl",name="x"}', "0x20")],
        "5m",
    ),
    "TenureLedgerHalted": (
        [('tenure_ledger_halted{job="a",instance="1",namespace="n",plugin="ttl",name="x"}', "1x20")],
        "5m",
    ),
    "TenureQueueStuck": (
        [
            ('tenure_queue_oldest_message_age_seconds{job="a",instance="1",namespace="n",queue="q"}', "0+60x30"),
            ('tenure_queue_paused{job="a",instance="1",namespace="n",queue="q"}', "0x30"),
        ],
        "15m",
    ),
    "TenureQueueDeadLetters": (
        [('tenure_queue_messages{job="a",instance="1",namespace="n",queue="q",state="dead"}', "1x20")],
        "5m",
    ),
    "TenureScheduleMissed": (
        [('tenure_schedule_overdue_seconds{job="a",instance="1",namespace="n",schedule="s"}', "90x20")],
        "5m",
    ),
    "TenureScheduledRunsFail": (
        [
            (
                'tenure_schedule_ended_total{job="a",instance="1",namespace="n",schedule="s",outcome="failed"}',
                "0 0 0 1x20",
            )
        ],
        "10m",
    ),
    "TenureCountersLag": (
        [('tenure_counters_lag_seconds{job="a",instance="1",namespace="n",resource="r"}', "0+60x20")],
        "15m",
    ),
    "TenureChildFailed": (
        [('tenure_supervisor_children{job="a",instance="1",namespace="n",supervisor="s",state="failed"}', "1x20")],
        "5m",
    ),
    "TenureLoopStalled": ([('tenure_plugins_read_age_seconds{job="a",instance="1"}', "0+60x20")], "5m"),
}

WELL = [
    ('tenure_is_leader{job="a",instance="1",namespace="n"}', "1x60"),
    ('tenure_is_leader{job="a",instance="2",namespace="n"}', "0x60"),
    ('tenure_leader_changes_total{job="a",instance="1",namespace="n"}', "1x60"),
    ('tenure_last_heartbeat_timestamp_seconds{job="a",instance="1",namespace="n"}', "0+60x60"),
    ('tenure_coordinator_running{job="a",instance="1",namespace="n"}', "1x60"),
    ('tenure_heartbeat_duration_seconds_bucket{job="a",instance="1",namespace="n",le="0.1"}', "0+12x60"),
    ('tenure_heartbeat_duration_seconds_bucket{job="a",instance="1",namespace="n",le="+Inf"}', "0+12x60"),
    ('tenure_circuit_breaker_state{job="a",instance="1",namespace="n",state="open"}', "0x60"),
    ('tenure_store_requests_total{job="a",instance="1",verb="get",outcome="ok"}', "0+90x60"),
    ('tenure_coordinator_store_errors_total{job="a",instance="1",namespace="n"}', "3x60"),
    ('tenure_store_cost_usd_total{job="a",instance="1"}', "0+0.0001x60"),
    ('tenure_ledger_leading{job="a",instance="1",namespace="n",plugin="ttl",name="x"}', "1x60"),
    ('tenure_ledger_leading{job="a",instance="2",namespace="n",plugin="ttl",name="x"}', "0x60"),
    ('tenure_ledger_halted{job="a",instance="1",namespace="n",plugin="ttl",name="x"}', "0x60"),
    ('tenure_queue_oldest_message_age_seconds{job="a",instance="1",namespace="n",queue="paused"}', "0+60x60"),
    ('tenure_queue_paused{job="a",instance="1",namespace="n",queue="paused"}', "1x60"),
    ('tenure_queue_messages{job="a",instance="1",namespace="n",queue="q",state="dead"}', "0x60"),
    ('tenure_schedule_overdue_seconds{job="a",instance="1",namespace="n",schedule="s"}', "0x60"),
    ('tenure_schedule_ended_total{job="a",instance="1",namespace="n",schedule="s",outcome="failed"}', "5x60"),
    ('tenure_counters_lag_seconds{job="a",instance="1",namespace="n",resource="r"}', "5x60"),
    ('tenure_supervisor_children{job="a",instance="1",namespace="n",supervisor="s",state="failed"}', "0x60"),
    ('tenure_plugins_read_age_seconds{job="a",instance="1"}', "0x60"),
]
"""A fleet in which everything is as it should be, though one queue is paused."""


def promtool(*arguments: str) -> str:
    tool = shutil.which("promtool")
    assert tool is not None, "promtool is missing: tools/install-servers installs it"
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.servers
def test_prometheus_accepts_every_rule_and_every_query_of_the_dashboard(tmp_path: Path) -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(ALERTS))
    given = {"$__rate_interval": "5m", "$__interval": "30s", "$__range": "3h", "$job": ".*", "$namespace": ".*"}
    recorded = []
    for number, query in enumerate(dashboard_queries()):
        for variable, value in given.items():
            query = query.replace(variable, value)
        recorded.append({"record": f"query_{number}", "expr": query})
    path = tmp_path / "dashboard.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    assert f"{len(recorded)} rules found" in promtool("check", "rules", str(path))


@pytest.mark.servers
def test_each_alert_fires_when_it_should_and_none_when_all_is_well(tmp_path: Path) -> None:
    assert set(SERIES) == {rule["alert"] for rule in rules()}
    tests = []
    for alert, (series, at) in SERIES.items():
        # promtool tells what fires by its labels and annotations; asked by a query, by its name alone.
        firing = {"expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})', "eval_time": at}
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series],
                "promql_expr_test": [{**firing, "exp_samples": [{"value": 1}]}],
            }
        )
    tests.append(
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in WELL],
            "promql_expr_test": [
                {"expr": "count(ALERTS)", "eval_time": f"{minute}m", "exp_samples": []} for minute in (1, 20, 50)
            ],
        }
    )
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    assert "SUCCESS" in promtool("test", "rules", str(path))


@pytest.mark.servers
@pytest.mark.req("MT-6")
async def test_a_real_prometheus_scrapes_a_process_and_evaluates_the_rules(tmp_path: Path) -> None:
    server_program = shutil.which("prometheus")
    assert server_program is not None, "prometheus is missing: tools/install-servers installs it"
    async with process() as it:
        with serve(it.db, 0) as server:
            config = {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(ALERTS)],
                "scrape_configs": [
                    {"job_name": "mailer", "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}]}
                ],
            }
            path = tmp_path / "prometheus.yaml"
            path.write_text(yaml.safe_dump(config))
            port = _free_port()
            with (tmp_path / "log").open("w") as log:
                running = subprocess.Popen(
                    [
                        server_program,
                        f"--config.file={path}",
                        f"--storage.tsdb.path={tmp_path / 'data'}",
                        f"--web.listen-address=127.0.0.1:{port}",
                    ],
                    stdout=log,
                    stderr=log,
                )
            try:

                def ask(query: str) -> list[Any]:
                    place = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(query)}"
                    try:
                        with urllib.request.urlopen(place, timeout=5) as answer:
                            return list(json.load(answer)["data"]["result"])
                    except OSError:
                        return []

                leads: list[Any] = []
                async with asyncio.timeout(60):
                    while not leads:
                        await asyncio.sleep(0.2)
                        leads = await asyncio.to_thread(ask, 'tenure_is_leader{job="mailer"} == 1')
                assert leads[0]["metric"]["namespace"] == "default"
                assert len(await asyncio.to_thread(ask, "tenure_queue_messages")) == 4
                place = f"http://127.0.0.1:{port}/api/v1/rules"

                def health() -> set[str]:
                    with urllib.request.urlopen(place, timeout=5) as answer:
                        groups = json.load(answer)["data"]["groups"]
                    return {rule["health"] for group in groups for rule in group["rules"]}

                async with asyncio.timeout(60):
                    while (found := await asyncio.to_thread(health)) != {"ok"}:
                        assert "err" not in found
                        await asyncio.sleep(0.2)
            finally:
                running.terminate()
                await asyncio.to_thread(running.wait, 30)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
