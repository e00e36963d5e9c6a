"""`tenure plan` as people run it, and what docs/cost.md says of it."""

from __future__ import annotations

import io
import re
import socket
from pathlib import Path

import pytest
from rich.console import Console

from tenure.cli.plan import show
from tenure.coordinator.config import CoordinatorConfig
from tenure.plan import Circumstances, make_plan
from tests.support.command import tenure

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.req("OP-4")
def test_it_says_what_a_fleet_costs_and_how_soon_it_has_a_leader_again() -> None:
    run = tenure("plan", "--workers", "5", TENURE_URL="", COLUMNS="100")
    assert run.code == 0
    assert run.err == ""
    for name in ("Amazon S3", "Google", "Azure", "directory"):
        assert name in run.out
    assert re.search(r"a crash, best +9\.1 ", run.out)
    assert re.search(r"a crash, worst +79\.8 ", run.out)
    assert "requests an hour" in run.out
    assert "\x1b" not in run.out  # no colours where there is no terminal
    lines = run.out.strip().splitlines()
    assert lines[-1].startswith("To pay less, --no-membership")
    assert lines[-1].endswith(".")


@pytest.mark.req("OP-4")
def test_as_json_it_gives_every_figure() -> None:
    found = tenure("plan", "--workers", "5", "--json", "--latency", "20ms", TENURE_URL="").json()
    plan = make_plan(CoordinatorConfig(), Circumstances(workers=5, latency=0.02))
    assert found["requests_per_hour"] == pytest.approx(plan.requests_per_hour)
    assert set(found["requests_per_hour_by_verb"]) == {"get", "put", "list"}
    assert sum(found["requests_per_hour_by_verb"].values()) == pytest.approx(found["requests_per_hour"])
    assert found["usd_per_month"] == plan.usd_per_month
    failover = found["failover_seconds"]
    assert failover["best"] < failover["expected"] < failover["worst_without_outage"] < failover["worst"]
    assert found["graceful_failover_seconds"] < failover["best"]
    assert found["config"]["lease_timeout"] == 15
    assert {"setting", "from", "to", "effect"} <= set(found["knobs"][0])


@pytest.mark.req("OP-4")
def test_timings_may_be_given_as_for_the_other_commands() -> None:
    six = tenure("plan", "--lease", "6s", "--provider", "s3", "--json", TENURE_URL="").json()
    assert six["config"]["lease_timeout"] == 6
    assert six["config"]["heartbeat_interval"] == 1.5
    slower = tenure(
        *("plan", "--preset", "economical", "--set", "heartbeat_interval=40s", "--no-membership", "--json"),
        TENURE_URL="",
    ).json()
    assert slower["config"]["heartbeat_interval"] == 40
    assert slower["config"]["membership"] is False
    assert slower["requests_per_hour_by_verb"]["list"] == 0


def test_a_url_names_the_provider_and_is_never_opened() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        url = f"s3://bucket/app?endpoint={address}&access_key_id=AKIA123&secret_access_key=geheim"
        run = tenure("plan", url, "--json")
        with pytest.raises(TimeoutError):
            server.accept()
    assert set(run.json()["usd_per_month"]) == {"s3"}
    assert "geheim" not in run.out + run.err
    assert set(tenure("plan", "--json", TENURE_URL="file:///nowhere/at/all").json()["usd_per_month"]) == {"file"}
    both = tenure("plan", "file:///nowhere/at/all", "--provider", "az", "--json").json()
    assert set(both["usd_per_month"]) == {"az"}


@pytest.mark.req("OP-4")
def test_keys_and_versions_cost_extra() -> None:
    plain = tenure("plan", "--provider", "s3", "--json", TENURE_URL="").json()
    keys = tenure("plan", "--provider", "s3", "--kms", "--json", TENURE_URL="").json()
    versions = tenure("plan", "--provider", "s3", "--versioned", "30", "--json", TENURE_URL="").json()
    assert keys["usd_per_month"]["s3"] > 1.5 * plain["usd_per_month"]["s3"]
    assert versions["usd_per_month"]["s3"] > plain["usd_per_month"]["s3"]
    assert any("bucket keys" in note for note in keys["notes"])
    assert any("NoncurrentVersionExpiration" in note for note in versions["notes"])
    shown = tenure("plan", "--kms", "--versioned", "30", TENURE_URL="", COLUMNS="100").out
    assert "KMS" in shown
    assert "old versions" in shown


def test_a_narrow_terminal_has_every_column() -> None:
    console = Console(width=40, file=io.StringIO(), force_terminal=True, color_system=None)
    show(make_plan(CoordinatorConfig(), Circumstances(workers=5)), console)
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue()
    assert "…" not in told
    first = "".join(line[1:7].strip() for line in told.partition("What changes it most")[2].splitlines())
    assert "heartbeat_interval" in first


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--workers", "0"), "--workers"),
        (("--latency", "50"), "500ms, 30s or 2m"),
        (("--latency", "40s"), "must be under request_timeout, here 3.75 s"),
        (("--latency", "3750ms"), "must be under request_timeout, here 3.75 s"),
        (("--versioned", "0"), "--versioned"),
        (("--provider", "ibm"), "--provider"),
        (("--preset", "fast", "--lease", "3s"), "--preset and --lease"),
        (("--preset", "fast", "--provider", "gs"), "at least 2 s on gs://"),
        (("--set", "heartbeat_intervall=2s"), "did you mean heartbeat_interval"),
        (("--set", "heartbeat_interval=20s"), "renew_deadline is 10 s"),
        (("http://bucket",), "does not begin with one of"),
    ],
)
def test_what_was_asked_wrongly_is_refused_in_a_sentence(arguments: tuple[str, ...], says: str) -> None:
    run = tenure("plan", *arguments, TENURE_URL="")
    assert run.code == 2
    assert says in run.err
    assert run.out == ""


@pytest.mark.req("OP-4")
def test_the_page_on_cost_has_the_figures_that_the_command_gives() -> None:
    """Each row: preset and size, requests, USD, and failover: best, mean, at most, worst."""
    rows = re.findall(
        r"^\| `(\w+)\(\)`(, election only)?, (\d+) workers \|(.+)\|$", (DOCS / "cost.md").read_text(), re.MULTILINE
    )
    assert len(rows) == 8
    for preset, election_only, workers, rest in rows:
        config = getattr(CoordinatorConfig, preset)(membership=not election_only)
        plan = make_plan(config, Circumstances(workers=int(workers)), ("s3",))
        failover = plan.failover_seconds
        told = [float(cell.strip().replace(",", "")) for cell in rest.split("|")]
        assert told[0] == pytest.approx(plan.requests_per_hour, rel=0.02)
        assert told[1:] == pytest.approx(
            [plan.usd_per_month["s3"], failover.best, failover.expected, failover.worst_without_outage, failover.worst],
            rel=0.03,
        )
