"""The command in this process and in one of its own are the same command."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Run, ok, tenure, tenure_process


@pytest.mark.parametrize("call", [tenure, tenure_process])
class TestBoth:
    def test_code_and_output(self, call: Callable[..., Run], tmp_path: Path) -> None:
        ran = call("status", (tmp_path / "nothing").as_uri(), home=tmp_path)
        assert ran.code != 0
        assert "Traceback" not in ran.err
        assert ran.err
        assert ran.out == ""
        with pytest.raises(AssertionError):
            ok(ran)
        assert "Usage" in ok(call("--help")).out

    def test_input_environment_and_working_directory(
        self, call: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TENURE_URL", "file:///not/for/this/test")
        monkeypatch.setenv("TENURE_NAMESPACE", "not this one either")
        (tmp_path / "tenure.toml").write_text('url = "file:store"\n')
        before = (Path.cwd(), dict(os.environ), list(sys.path), sys.stdin)
        url = (tmp_path / "there").as_uri()
        put = call("queue", "put", "jobs", "-", "--as", "text", given="grüße", home=tmp_path, TENURE_URL=url)
        assert (tmp_path / "there").exists(), put.err
        assert ok(put).out.strip()
        assert (Path.cwd(), dict(os.environ), list(sys.path), sys.stdin) == before


async def test_a_thread_cannot_handle_signals() -> None:
    with pytest.raises(AssertionError, match="use tenure_process"):
        await asyncio.to_thread(tenure, "--version")
    assert "tenure" in ok(await asyncio.to_thread(tenure_process, "--version")).out


def test_a_stack_trace_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(arguments: list[str]) -> int:
        print("Traceback (most recent call last):", file=sys.stderr)
        return 2

    monkeypatch.setattr("tests.support.command.run", fails)
    with pytest.raises(AssertionError, match="Traceback"):
        tenure("status")
    assert tenure("status", "--debug").code == 2
    assert tenure("status", TENURE_DEBUG="1").code == 2


def test_what_is_written_past_the_streams_is_heard_too(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = tenure("run", (tmp_path / "file").as_uri(), "--", "true")
    assert (told.code, told.out) == (125, "")
    assert "is not a directory" in told.err
