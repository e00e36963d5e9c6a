"""Where a command gets its settings from: the command line, the environment, tenure.toml; and what it says if it
cannot use them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.fleet import fleet, leader_of
from tests.support import command
from tests.support.command import Run, tenure_process

Tenure = Callable[..., Run]


@pytest.fixture
def tenure(tmp_path: Path) -> Tenure:
    return functools.partial(command.tenure, home=tmp_path)


@pytest.mark.slow
@pytest.mark.req("OP-1")
async def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    stores = {name: tmp_path / name for name in ("line", "environment", "file")}
    urls = {name: folder.as_uri() for name, folder in stores.items()}
    for name, url in urls.items():
        async with fleet(url, f"ada-{name}") as coordinators:
            await leader_of(coordinators)
    home = tmp_path / "home"
    home.mkdir()
    (home / "tenure.toml").write_text(f'url = "{urls["file"]}"\n[audit]\njson = true\n')

    def audited(*arguments: str, **environment: str) -> str:
        run = tenure_process("audit", *arguments, **environment, home=home)
        assert run.code == 0, run.err
        return str(run.json()["timeline"][0]["leader"])  # --json comes from the file

    assert audited() == "ada-file"
    assert audited(TENURE_URL=urls["environment"]) == "ada-environment"
    assert audited(urls["line"], TENURE_URL=urls["environment"]) == "ada-line"

    other = tmp_path / "other.toml"
    other.write_text(f'url = "{urls["line"]}"\nnamespace = "none"\n')
    named = tenure_process("--config", str(other), "audit", home=home)
    assert named.code == 2
    assert "no namespace 'none'" in named.err
    assert tenure_process("audit", "--namespace", "default", TENURE_CONFIG=str(other), home=home).code == 0
    assert tenure_process("audit", TENURE_CONFIG=str(other), TENURE_NAMESPACE="default", home=home).code == 0


def test_without_a_url_the_ways_to_give_one_are_told(tmp_path: Path, tenure: Tenure) -> None:
    for name in ("status", "watch", "workers", "audit", "doctor", "gc", "step-down"):
        told = tenure(name)
        assert told.code == 2
        assert told.out == ""
        for way in ("argument URL", "TENURE_URL", "tenure.toml"):
            assert way in told.err
        assert len(told.err.splitlines()) == 1


def test_a_broken_file_stops_what_reads_it_and_nothing_else(tmp_path: Path, tenure: Tenure) -> None:
    (tmp_path / "tenure.toml").write_text("url = \n")
    store = (tmp_path / "store").as_uri()
    for arguments in (["status", store], ["audit", store], ["gc", store, "--dry-run"]):
        told = tenure(*arguments)
        assert (told.code, told.out) == (2, "")
        assert told.err.startswith("tenure: tenure.toml, line 1, column 7: no TOML"), told.err
    for arguments in (["--help"], ["--version"], ["status", "--help"], ["watch", "-h"], ["gc", "--help"]):
        assert tenure(*arguments).code == 0
    assert tenure("simulate", "--seeds", "1", "--minutes", "0.5").code == 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[watch]\ninterval = '5'", "tenure: Invalid value for '--interval': '5' is no duration"),
        (
            "[doctor]\nrounds = 0",
            "tenure: Invalid value for '--rounds': give a whole number from 1 to 1000",
        ),
        ("url = 'http://x'", "tenure: store URL 'http://x' does not begin with one of"),
        ('namespace = "a\\nb"', r"tenure: namespace is 'a\nb': give 1 to 64 printable characters"),
    ],
)
def test_a_value_that_is_refused_says_that_it_came_from_the_file(
    tmp_path: Path, tenure: Tenure, text: str, complaint: str
) -> None:
    (tmp_path / "tenure.toml").write_text(text)
    name = "doctor" if "doctor" in text else "watch"
    given = [] if text.startswith("url") else [(tmp_path / "store").as_uri()]
    told = tenure(name, *given)
    assert told.code == 2
    assert told.err.startswith(complaint), told.err
    assert "it comes from tenure.toml" in told.err
    assert not (tmp_path / "store").exists()


def test_a_value_from_the_environment_says_so_and_shows_no_secret(tmp_path: Path, tenure: Tenure) -> None:
    told = tenure("status", TENURE_URL="http://me:hidden@x/?secret_access_key=hidden")
    assert told.code == 2
    assert "it comes from the environment variable TENURE_URL" in told.err
    assert "hidden" not in told.err


def test_a_file_that_is_named_must_be_there(tmp_path: Path, tenure: Tenure) -> None:
    told = tenure("--config", "none.toml", "status", "file:///nothing")
    assert told.code == 2
    assert "none.toml cannot be read (No such file or directory)" in told.err


def test_timing_comes_from_the_file(tmp_path: Path, tenure: Tenure) -> None:
    (tmp_path / "tenure.toml").write_text('[coordinator]\nlease = "6s"\n\n[plan]\njson = true\nworkers = 7\n')
    from_file = tenure("plan", "--provider", "s3")
    assert from_file.code == 0, from_file.err
    line = tenure("--config", os.devnull, "plan", "--provider", "s3", "--lease", "6s", "--workers", "7", "--json")
    assert from_file.json() == line.json()
    assert from_file.json() != tenure("--config", os.devnull, "plan", "--provider", "s3", "--json").json()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('preset = "fast"\nlease = "3s"', "tenure.toml: [coordinator] has both preset and lease: keep one of them"),
        ('lease = "3"', "lease is '3' in tenure.toml: give a duration"),
        ('preset = "x"', "preset is 'x' in tenure.toml: it must be one of fast"),
        ('heartbeat_interval = "x"', "tenure.toml, [coordinator]: heartbeat_interval is 'x': give a number and its"),
        ('heartbeat_interval = "20s"', "(heartbeat_interval: from [coordinator] of tenure.toml)"),
        ("membership = false", "membership is not set in this way: use membership in [run] or [plan]"),
        (f'heartbeat_interval = "{"x" * 5000}"', "heartbeat_interval is 'xxx"),
    ],
)
def test_timing_that_cannot_be_says_that_it_is_the_file_s(
    tmp_path: Path, tenure: Tenure, text: str, complaint: str
) -> None:
    (tmp_path / "tenure.toml").write_text(f"[coordinator]\n{text}\n")
    told = tenure("plan")
    assert (told.code, told.out) == (2, "")
    assert complaint in told.err
    assert len(told.err) < 500


def test_what_the_command_line_says_is_not_put_on_the_file(tmp_path: Path, tenure: Tenure) -> None:
    (tmp_path / "tenure.toml").write_text('[coordinator]\nlease = "6s"\nheartbeat_interval = "2s"\n')
    told = tenure("plan", "--set", "heartbeat_interval=20s")
    assert told.code == 2
    assert "tenure.toml" not in told.err
    (tmp_path / "tenure.toml").write_text("[plan]\nmembership = false\njson = true\n")
    assert tenure("plan").json()["config"]["membership"] is False


# Errors


@pytest.mark.parametrize(("name", "code"), [("status", 2), ("audit", 2), ("doctor", 1), ("run", 125)])
def test_a_file_where_a_directory_should_be(tmp_path: Path, tenure: Tenure, name: str, code: int) -> None:
    (tmp_path / "file").touch()
    told = tenure(name, (tmp_path / "file").as_uri(), *(["--", "true"] if name == "run" else []))
    assert told.code == code
    assert "is not a directory" in told.out + told.err


def test_a_demo_where_nothing_can_be_written_says_what_to_do(tenure: Tenure) -> None:
    told = tenure("demo", "--store", "file:///proc/x")
    assert told.code == 2
    assert "cannot play below /proc/x" in told.err
    assert "no --store" in told.err


def test_a_stack_trace_only_if_it_is_asked_for(tmp_path: Path, tenure: Tenure) -> None:
    missing = (tmp_path / "nothing").as_uri()
    plain = tenure("status", missing)
    assert plain.code == 2
    assert len(plain.err.splitlines()) == 1
    for arguments, environment in (
        (["--debug", "status", missing], {}),
        (["status", missing, "--debug"], {}),
        (["status", missing], {"TENURE_DEBUG": "1"}),
    ):
        told = tenure(*arguments, **environment)
        assert told.code == 2
        assert "Traceback" in told.err
        assert told.err.splitlines()[-1] == plain.err.strip()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["statsu"], "there is no command 'statsu': did you mean status?"),
        (["zzz"], "there is no command 'zzz': there are demo, doctor"),
        (["status", "--jsno", "file:///x"], "--jsno"),
        (["watch", "--interval", "1"], "500ms, 30s or 2m"),
        (["watch", "--for", "0s", "file:///x"], "between"),
        (["audit", "file:///x", "extra"], "extra"),
    ],
)
def test_what_is_asked_wrongly_is_one_sentence(tenure: Tenure, arguments: list[str], complaint: str) -> None:
    told = tenure(*arguments)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("tenure: ")
    assert complaint in told.err
    assert len(told.err.splitlines()) <= 2  # and where to find more


def test_the_help_fits_80_columns_and_has_every_exit_code(tmp_path: Path, tenure: Tenure) -> None:
    told = tenure("--help")
    assert max(map(len, told.out.splitlines())) <= 80
    for title in ("Try:", "Look:", "Act:", "Exit codes:", "Environment"):
        assert title in told.out
    order = [line.split()[0] for line in told.out.splitlines() if line.startswith("  ") and "  " in line.strip()]
    assert order.index("demo") < order.index("status") < order.index("step-down")
