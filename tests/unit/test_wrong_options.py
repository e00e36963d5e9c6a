"""Every option of every command, given what it cannot be: one sentence, the exit code as documented, nothing written.

The commands are walked, so that an option that is new cannot be left out: one that takes text needs a row in `WRONG`,
or a place among those that take any text at all.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tenure.cli.main import cli, run

LONG = "x" * 5000
SECONDS = 10
"""No command that is asked wrongly takes as long."""

ARGUMENTS = {
    "body": "{}",
    "name": "emails",
    "ref": "1",
    "resource": "pages",
    "id": "home",
    "field": "views",
    "job": "nightly",
    "handler": "json:loads",
    "words": "home",
}
"""What stands in the place of an argument that has to be given."""
REQUIRED_OPTIONS = {"--to": "ada"}

NAMES = ["", LONG, "a\nb", "a\x1b[31mb", "\udcff"]
SETTINGS = ["x", "=", "colour=red", "heartbeat_interval=5", "lease_timeout=1s", LONG]
WRONG: dict[tuple[str, str], list[str]] = {
    ("*", "url"): [
        "nonsense",
        "ftp://bucket/app",
        "s3://",
        "s3://bucket/../other",
        "s3://bucket/%2e%2e/other",
        "s3://bucket?colour=red",
        "file://relative/path",
        "file:///",
        "s3://" + LONG,
    ],
    ("*", "--namespace"): NAMES,
    ("*", "name"): NAMES,
    ("*", "--name"): NAMES,
    ("*", "resource"): NAMES,
    ("*", "id"): ["", LONG, "\udcff"],
    ("*", "field"): ["", LONG, "a..b", "a\nb"],
    ("counter top", "field"): ["", LONG, "a..b", "a\nb"],
    ("counter history", "words"): ["", LONG],
    ("*", "--worker-id"): NAMES,
    ("*", "--to"): NAMES,
    ("plan", "--set"): SETTINGS,
    ("run", "--set"): SETTINGS,
    ("queue work", "--set"): SETTINGS,
    ("queue create", "--set"): ["x", "=", "colour=red", "max_attempts=many", "visibility_timeout=5", LONG],
    ("demo", "--store"): ["nonsense", "ftp://x", "s3://", LONG],
    ("simulate", "--faults"): ["odd", ",", "all,odd", LONG],
    ("dashboard", "--host"): ["not a host", "256.1.1.1", LONG, "10.255.255.1"],
    ("dashboard", "--token-file"): ["", "/nonexistent/token", "/", "/dev/null", LONG],
    ("dashboard", "--allow-host"): ["", "http://x", "x:80", "a b", LONG],
    ("run", "--health-cmd"): ["", "#", "'", "   "],
    ("run", "--ready-file"): ["/", "/nonexistent/folder/ready"],
    ("queue put", "body"): ["{", "nonsense", "[1,", "\udcff"],
    ("queue put", "--dedup-key"): ["", LONG],
    ("queue put", "--ordering-key"): ["", LONG],
    ("queue put", "--header"): ["x", "=v", LONG],
    ("queue work", "handler"): [
        "",
        "x",
        "json",
        "json:",
        "json:nothing",
        "no_such_module:f",
        ":",
        "json:loads:x",
        LONG,
    ],
    ("schedule next", "--cron"): ["", "x", "* * *", "61 * * * *", "* * * * * * * *", LONG],
    ("schedule next", "--after"): ["", "x", "2026-13-01", LONG],
    ("schedule next", "--timezone"): ["", "Mars/Base", "../../etc/passwd", "/etc/localtime", LONG],
    ("counter add", "amount"): ["", "x", "nan", "1e", "1_0", "9" * 400],
    ("counter add", "--op-id"): ["", LONG],
    ("counter add", "--timezone"): ["", "Mars/Base", "../../etc/passwd", "/etc/localtime", LONG],
}
"""By command and parameter: text that it cannot take. `*` is every command that has it."""

ANY_TEXT = {
    ("schedule next", "job"),
    ("schedule history", "job"),
    ("schedule run", "job"),
    ("schedule pause", "job"),
    ("schedule resume", "job"),
    ("queue dead show", "ref"),
    ("queue dead redrive", "refs"),
    ("queue dead purge", "refs"),
    ("counter top", "--at"),
}
"""Looked up in the store: see `test_what_is_looked_up`."""

TOGETHER = {
    ("run", "--priority"): ["--membership"],
    ("run", "--health-timeout"): ["--health-cmd=true"],
    ("run", "--health-interval"): ["--health-cmd=true"],
    ("schedule next", "--after"): ["--cron=* * * * *"],
    ("schedule next", "--timezone"): ["--cron=* * * * *"],
    ("schedule next", "--dst"): ["--cron=* * * * *"],
    ("counter add", "amount"): ["--new"],
    ("counter add", "--op-id"): ["--new"],
    ("counter add", "field"): ["--new"],
    ("counter add", "--kind"): ["--new"],
    ("queue stats", "--interval"): ["--watch"],
    ("queue stats", "--for"): ["--watch"],
    ("counter top", "--interval"): ["--watch"],
    ("counter top", "--for"): ["--watch"],
}
"""Without these it is refused for another reason."""


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands(cli))


def label(parameter: click.Parameter) -> str:
    return parameter.opts[-1] if isinstance(parameter, click.Option) else str(parameter.name)


def is_flag(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.is_flag


def wrong_values(command: str, parameter: click.Parameter) -> list[str]:
    kind = parameter.type
    if is_flag(parameter):
        return []
    if isinstance(kind, click.IntRange):
        assert kind.min is not None and kind.max is not None, f"{command} {label(parameter)} has no bound"
        return ["x", "1.5", "", "nan", str(kind.min - 1), str(kind.max + 1), "9" * 5000]
    if isinstance(kind, click.FloatRange):
        assert kind.min is not None and kind.max is not None, f"{command} {label(parameter)} has no bound"
        return ["x", "", "nan", "inf", "-inf", str(kind.min - 1), str(kind.max * 2)]
    if isinstance(kind, click.Choice):
        return ["odd", "", LONG]
    if isinstance(kind, click.types.FuncParamType):
        return ["x", "5", "", "-1s", "nans", "1e3s", "999999h", "5 s", "٣s", LONG]
    key = (command, label(parameter))
    return WRONG.get(key) or WRONG.get(("*", key[1])) or []


def words_for(command: str, url: str, replaced: click.Parameter | None = None, value: str = "") -> list[str]:
    """As it would be right, but for one parameter."""
    options: list[str] = []
    arguments: list[str] = []
    for parameter in COMMANDS[command].params:
        if isinstance(parameter, click.Argument):
            if parameter is replaced:
                arguments.append(value)
            elif parameter.name == "url" and (command, replaced and label(replaced)) not in NO_URL:
                arguments.append(url)
            elif parameter.required or (command, parameter.name) == ("queue put", "body"):
                arguments.append(ARGUMENTS[str(parameter.name)])
        elif parameter is replaced:
            options += (
                [f"{label(parameter)}={value}"] if label(parameter).startswith("--") else [label(parameter), value]
            )
        elif parameter.required:
            options += [parameter.opts[0], REQUIRED_OPTIONS[parameter.opts[0]]]
    if replaced is not None:
        options += TOGETHER.get((command, label(replaced)), [])
    program = ["--", "true"] if command == "run" else []
    return [*command.split(), *options, *arguments, *program]


NO_URL = {("schedule next", name) for name in ("--cron", "--after", "--timezone", "--dst", "--count")}

CASES = [
    pytest.param(
        command,
        parameter,
        value,
        id=f"{command} {label(parameter)} {value[:20]!r}".encode("ascii", "backslashreplace").decode(),
    )
    for command, found in COMMANDS.items()
    for parameter in found.params
    for value in wrong_values(command, parameter)
]


def test_no_option_is_left_out() -> None:
    left_out = [
        f"{command} {label(parameter)}"
        for command, found in COMMANDS.items()
        for parameter in found.params
        if not is_flag(parameter)
        and not wrong_values(command, parameter)
        and (command, label(parameter)) not in ANY_TEXT
    ]
    assert left_out == []


def test_what_is_named_here_is_there() -> None:
    there = {(command, label(parameter)) for command, found in COMMANDS.items() for parameter in found.params}
    there |= {("*", name) for _, name in there}
    assert set(WRONG) | ANY_TEXT | set(TOGETHER) <= there


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """A command that was not refused would go on."""

    def late(number: int, frame: Any) -> None:
        raise AssertionError(f"it was still at work after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    for name in [name for name in os.environ if name.startswith("TENURE_")]:
        monkeypatch.delenv(name)


def said(words: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with bounded():
        code = run(words)
    out, err = capfd.readouterr()
    return code, out, err


@pytest.mark.parametrize(("command", "parameter", "value"), CASES)
def test_a_value_that_cannot_be(
    command: str, parameter: click.Parameter, value: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "store"
    code, out, err = said(words_for(command, place.as_uri(), parameter, value), capfd)
    assert code == (125 if command == "run" else 2), err
    assert out == ""
    sentence, *hint = err.rstrip("\n").split("\n")
    assert sentence.startswith(("tenure: ", "tenure run: "))
    assert hint == [] or (len(hint) == 1 and hint[0].startswith("Try 'tenure "))
    assert "defect" not in sentence
    assert "Traceback" not in err
    assert len(sentence) < 1500, "what was given is not repeated without end"
    assert sentence.isprintable()
    assert mentions(sentence, parameter), f"which one is meant? {sentence}"
    assert not place.exists(), "something was written"
    assert list((tmp_path / "home").iterdir()) == []


def mentions(sentence: str, parameter: click.Parameter) -> bool:
    name = label(parameter).lstrip("-").lower()
    words = {name, name.replace("-", "_"), name.replace("-", " "), *ALIASES.get(name, ())}
    return any(word in sentence.lower() for word in words)


ALIASES = {
    "url": ("store url",),
    "ref": ("dead letter",),
    "refs": ("dead letter",),
    "id": ("record id",),
    "words": ("id", "record"),
    "handler": ("module", "function"),
    "store": ("store url",),
    "set": ("setting", "heartbeat_interval", "lease_timeout", "max_attempts", "visibility_timeout"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_flag_takes_no_value_and_an_option_that_is_none_is_refused(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "store"
    flags = [label(each) for each in COMMANDS[command].params if is_flag(each)]
    assert flags
    for word in [f"{flag}=yes" for flag in flags] + ["--colour", "--colour=red", "-Z"]:
        words = words_for(command, place.as_uri())
        words.insert(len(command.split()), word)
        code, out, err = said(words, capfd)
        assert code == (125 if command == "run" else 2), word
        assert out == ""
        assert err.startswith("tenure: ")
        assert word.partition("=")[0] in err
        assert err.count("\n") <= 2
        assert not place.exists()


@pytest.mark.parametrize(
    "command", [name for name, found in COMMANDS.items() if any(each.name == "url" for each in found.params)]
)
def test_no_url_and_too_many_words(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if command not in ("plan", "schedule next"):
        words = [word for word in words_for(command, "URL") if word != "URL"]
        code, out, err = said(words, capfd)
        assert (code, out) == (125 if command == "run" else 2, "")
        assert "TENURE_URL" in err or "Missing argument" in err
    takes_any = any(isinstance(each, click.Argument) and each.nargs == -1 for each in COMMANDS[command].params)
    if not takes_any:
        words = words_for(command, (tmp_path / "store").as_uri())
        at = words.index("--") if "--" in words else len(words)
        code, out, err = said([*words[:at], "a", "b", "c", "d", *words[at:]], capfd)
        assert (code, out) == (125 if command == "run" else 2, "")
        assert err.startswith("tenure: ")
    assert not (tmp_path / "store").exists()


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("value", ["x", "", LONG, "a\nb", "../..", "99999999999999999999999", "\udcff"])
def test_what_is_looked_up(value: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A store with a queue and a counter, and nothing in it that is called so."""
    place = (tmp_path / "store").as_uri()
    assert said(["queue", "create", place, "emails"], capfd)[0] == 0
    assert said(["counter", "add", place, "pages", "home", "views", "--new"], capfd)[0] == 0
    before = files_below(tmp_path / "store")
    for command, name in sorted(ANY_TEXT):
        (parameter,) = [each for each in COMMANDS[command].params if label(each) == name]
        words = words_for(command, place, parameter, value)
        words += ["--yes"] if command.endswith("purge") else ["--period=day"] if name == "--at" else []
        code, out, err = said(words, capfd)
        assert code == (2 if name == "--at" else 1), (words, err)
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith("tenure: ")
        assert len(err) < 500
        assert "defect" not in err
        assert files_below(tmp_path / "store") == before
