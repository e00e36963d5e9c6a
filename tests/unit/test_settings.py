"""tenure.toml: what it may hold, and what is said of one that cannot be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest

from tenure.cli import settings
from tenure.cli.durations import between
from tenure.cli.main import cli
from tenure.errors import ConfigError


@click.command()
@click.argument("url", required=False)
@click.option("--namespace", default="default")
@click.option("--restart", type=click.Choice(["never", "always"]))
@click.option("--stop-within", type=between(1, 60))
@click.option("--rounds", type=click.IntRange(1, 10))
@click.option("--share", type=click.FloatRange(0, 1))
@click.option("--set", "pairs", multiple=True)
@click.option("--json", "as_json", is_flag=True)
@click.option("--force", is_flag=True)
def job(**options: Any) -> None: ...


@click.command()
@click.option("--json", "as_json", is_flag=True)
def alone(**options: Any) -> None: ...


COMMANDS = {"job": job, "alone": alone}

WHOLE = """
url = "s3://bucket/app"
namespace = "reports"

[coordinator]
lease = "6s"
heartbeat_interval = "2s"

[coordinator.contention]
enabled = false

[job]
restart = "always"
stop-within = "20s"
rounds = 3
share = 1
set = ["a=1", "b=2"]
json = true
namespace = "mine"
"""


def load(tmp_path: Path, text: str | bytes) -> settings.Settings:
    file = tmp_path / "tenure.toml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return settings.load(file, COMMANDS)


def test_everything_that_a_file_may_hold(tmp_path: Path) -> None:
    found = load(tmp_path, WHOLE)
    assert (found.url, found.namespace) == ("s3://bucket/app", "reports")
    assert found.coordinator == {"lease": "6s", "heartbeat_interval": "2s", "contention": {"enabled": False}}
    own = {
        "restart": "always",
        "stop_within": "20s",
        "rounds": 3,
        "share": 1,
        "pairs": ["a=1", "b=2"],
        "as_json": True,
        "namespace": "mine",
    }
    assert found.commands == {"job": own}
    assert found.default_map(COMMANDS) == {"job": {"url": "s3://bucket/app", **own}}  # its own namespace wins


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, "").default_map(COMMANDS) == {"job": {}}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("urll = 'x'", "the key urll is unknown: did you mean url?"),
        ("colour = 'red'", "the key colour is unknown: it may be one of namespace, url"),
        ("[jobs]\nrounds = 1", r"the table \[jobs\] is unknown: did you mean \[job\]\?"),
        ("[zebra]", r"the table \[zebra\] is unknown: it may be one of \[coordinator\], \[job\]"),
        ("[job]\nstop_within = '1s'", r"the key stop_within in \[job\] is unknown: did you mean stop-within\?"),
        ("[job]\nforce = true", r"force in \[job\] cannot come from a file: give --force each time"),
        ("[job]\nurl = 's3://x'", r"url stands at the top of the file, not in \[job\]"),
        ("[alone]\njson = true", r"the command alone takes nothing from a file: remove the table \[alone\]"),
        ("url = 3", "url is the number 3, and must be text"),
        ("url = ''", "url is empty, and must be text"),
        ("namespace = ['a']", "namespace is a list, and must be text"),
        ("job = 'x'", r"job is text, and must be a table: \[job\]"),
        ("coordinator = 1", r"coordinator is the number 1, and must be a table: \[coordinator\]"),
        ("[coordinator]\nheartbeat_intervall = '2s'", "is unknown: did you mean heartbeat_interval"),
        ("[coordinator]\nlease = 2020-01-01", r"lease in \[coordinator\] is a date or time: give a number"),
        ("[coordinator]\ncontention = 3", r"must be a table: \[coordinator.contention\]"),
        ("[coordinator.contention]\nenable = 3", "did you mean enabled"),
        ("[job]\nstop-within = 20", r'stop-within in \[job\] is the number 20, and must be text, .*"20s"'),
        ("[job]\nrounds = '3'", r"rounds in \[job\] is text, and must be a whole number"),
        ("[job]\nrounds = true", r"rounds in \[job\] is true, and must be a whole number"),
        ("[job]\nshare = '3'", "must be a number"),
        ("[job]\njson = 'yes'", "must be true or false"),
        ("[job]\nset = 'a=1'", "must be a list of texts"),
        ("[job]\nset = [1]", "must be a list of texts"),
        ("url = \n", "line 1, column 7: no TOML"),
        ("\n\n[job\n", "line 3, column"),
        ("a = " + "[" * 30_000, "nested too deeply|no TOML"),
        (b"url = '\xff'", "line 1: not UTF-8"),
        (b"#" * (64 * 1024 + 1), "over 64 KiB"),
        ("[job]\nrounds = " + "9" * 5000, "thousands of digits"),
        ("[job]\nrounds = 0x" + "f" * 5000, "over 64 bits"),
        ("[job]\nset = [1" + "0" * 30 + "]", "over 64 bits"),
    ],
)
def test_what_cannot_be_is_named_with_the_file(tmp_path: Path, text: str | bytes, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as refused:
        load(tmp_path, text)
    assert str(tmp_path / "tenure.toml") in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


def test_a_mark_at_the_beginning_is_no_part_of_it(tmp_path: Path) -> None:
    assert load(tmp_path, b"\xef\xbb\xbfurl = 'file:///x'").url == "file:///x"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="it is no regular file"):
        settings.load(tmp_path / "pipe", COMMANDS)
    assert settings.load(Path(os.devnull), COMMANDS).url is None  # none at all


def test_a_secret_in_a_url_of_the_wrong_type_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, "url = ['s3://b?secret_access_key=hidden']")
    assert "hidden" not in str(refused.value)


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    text = b'url = "file:///x"\n'
    assert load(tmp_path, text + b"#" * (64 * 1024 - len(text))).url == "file:///x"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ConfigError, match="--config or TENURE_CONFIG") as refused:
            settings.load(path, COMMANDS)
        assert str(path) in str(refused.value)


def test_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings.find(None) is None
    (tmp_path / "tenure.toml").mkdir()
    assert settings.find(None) == Path("tenure.toml")  # which is refused: somebody meant something by it
    with pytest.raises(ConfigError, match=r"tenure\.toml cannot be read \(it is a directory\)"):
        settings.load(Path("tenure.toml"), COMMANDS)
    (tmp_path / "tenure.toml").rmdir()
    (tmp_path / "tenure.toml").touch()
    assert settings.find(None) == Path("tenure.toml")
    assert settings.find("other.toml") == Path("other.toml")


def test_which_commands_read_it() -> None:
    reading = {name for name, command in cli.all_commands(click.Context(cli)).items() if settings.uses_file(command)}
    assert reading >= {"status", "watch", "workers", "audit", "step-down", "transfer", "gc", "doctor"}
    assert reading.isdisjoint({"demo", "simulate"})


def test_every_command_is_in_the_help_once() -> None:
    names = cli.list_commands(click.Context(cli))
    assert sorted(names) == sorted(cli.all_commands(click.Context(cli)))


def test_a_broken_file_is_told_when_a_default_is_asked_for() -> None:
    broken = settings.Broken(ConfigError("tenure.toml: no"))
    assert broken  # click asks for a map that is there
    for ask in (lambda: broken.get("url"), lambda: broken["url"], lambda: "url" in broken):
        with pytest.raises(click.UsageError, match=r"tenure\.toml: no"):
            ask()
    assert "help" not in broken  # which is answered beside any file
    assert broken.get("help") is None
