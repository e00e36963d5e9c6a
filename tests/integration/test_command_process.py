"""Nothing of a command's process tree runs when its lease may be another's: judged by what the tree itself noted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from lab.stubborn import boottime_ns
from tenure.errors import CommandStillRunning, ConfigError, LeadershipLost
from tenure.plugins.supervisor import command as command_module
from tenure.plugins.supervisor import watchdog
from tenure.plugins.supervisor.child import Command
from tenure.plugins.supervisor.command import CommandProcess, End
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only a process group is ended")

ROOT = Path(__file__).resolve().parents[2]
STUBBORN = ROOT / "lab" / "stubborn.py"
FOREVER = float("inf")


def stubborn(log: Path, *words: str, **settings: Any) -> Command:
    return Command(sys.executable, "-I", "-S", str(STUBBORN), str(log), *words, **settings)


class Until:
    """A lease that nobody renews."""

    def __init__(self, seconds: float) -> None:
        self.instant_ns = boottime_ns() + int(seconds * 1e9)

    def __call__(self) -> float:
        return (self.instant_ns - boottime_ns()) / 1e9


# The judge


def notes(log: Path) -> dict[int, int]:
    """By process: the last instant at which it ran."""
    last: dict[int, int] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        words = line.split()
        if len(words) == 2:
            last[int(words[0])] = int(words[1])
    return last


def living(pids: object) -> list[int]:
    return [pid for pid in pids if (process := watchdog.look_at(pid)) and not process.has_ended]  # type: ignore[attr-defined]


def check_ended_before(instant_ns: int, log: Path) -> None:
    """Call it after that instant. What the tree noted itself is later than nothing it did."""
    last = notes(log)
    assert last, "it never ran"
    late = {pid: (at - instant_ns) / 1e9 for pid, at in last.items() if at >= instant_ns}
    assert not late, f"ran on after the deadline, by seconds: {late}"
    assert living(last) == []


async def until_instant(instant_ns: int) -> None:
    while boottime_ns() <= instant_ns:
        await asyncio.sleep(0.02)


def processes(log: Path, number: int) -> Callable[[], bool]:
    return lambda: len(notes(log)) >= number


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """No thread, no descriptor, no process, not even a zombie."""
    descriptors = set(os.listdir("/proc/self/fd"))
    children = set(watchdog.children_of(os.getpid()))
    yield
    for _ in range(250):  # the thread goes a moment after the last command
        threads = [thread.name for thread in threading.enumerate() if thread.name == "tenure-commands"]
        if not threads:
            break
        time.sleep(0.02)
    assert threads == []
    assert set(watchdog.children_of(os.getpid())) <= children
    assert set(os.listdir("/proc/self/fd")) <= descriptors


# Codes, environment, streams


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("kill $$", 143)])
async def test_exit_codes_are_those_of_a_shell(script: str, code: int) -> None:
    with nothing_left():
        process = CommandProcess()
        assert process.pid is None
        await process.start(Command("sh", "-c", script), env={}, deadline=lambda: FOREVER)
        assert await process.wait() == code
        assert process.end is End.EXITED
        await process.stop(1.0)  # there is nothing to stop any more
        assert await process.wait() == code


async def test_the_command_gets_its_environment_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)  # where Python would set LC_CTYPE for itself, and for its children
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    with (tmp_path / "out").open("wb") as out:
        process = CommandProcess()
        await process.start(
            Command("env", "-0", env={"A": "command", "B": "command"}),
            env={"B": "caller", "NOT_UTF8": os.fsdecode(b"\xff")},
            deadline=lambda: 5.0,
            stdout=out.fileno(),
        )
        assert await process.wait() == 0
    got = dict(entry.split(b"=", 1) for entry in (tmp_path / "out").read_bytes().split(b"\0") if entry)
    assert len(got.pop(b"TENURE_COMMAND_ID")) == 32
    assert got == {**os.environb, b"A": b"command", b"B": b"caller", b"NOT_UTF8": b"\xff"}


async def test_no_descriptor_or_signal_setting_reaches_the_command(tmp_path: Path) -> None:
    script = "ls /proc/self/fd; readlink /proc/self/fd/0; grep -E 'Sig(Blk|Ign)' /proc/self/status; pwd"
    with (tmp_path / "out").open("wb") as out:
        os.set_inheritable(out.fileno(), True)
        process = CommandProcess()
        await process.start(
            Command("sh", "-c", script, cwd=tmp_path), env={}, deadline=lambda: 5.0, stdout=out.fileno()
        )
        assert await process.wait() == 0
    *descriptors, stdin, blocked, ignored, folder = (tmp_path / "out").read_text().split("\n")[:-1]
    assert descriptors == ["0", "1", "2", "3"], "the last is what ls reads the folder with"
    assert (stdin, folder) == ("/dev/null", str(tmp_path))
    # As for any child of this process: what it ignores itself (nohup: SIGHUP) its children ignore too.
    plain = subprocess.run(
        ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"], capture_output=True, text=True, check=True
    )
    assert [blocked, ignored] == plain.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("argv", "settings", "says"),
    [
        (("no-such-program",), {}, "'no-such-program' was not found"),
        (("./not-executable",), {}, "'./not-executable' may not be executed"),
        (("./not-a-program",), {}, "'./not-a-program' is not a program for this machine"),
        (("true",), {"cwd": "/no/such/folder"}, "cwd of 'true' cannot be entered: No such file"),
    ],
)
async def test_a_program_that_cannot_be_run_is_named(
    argv: tuple[str, ...], settings: Any, says: str, tmp_path: Path
) -> None:
    for name, mode in (("not-executable", 0o644), ("not-a-program", 0o755)):
        (tmp_path / name).write_text("no #! line")
        (tmp_path / name).chmod(mode)
    settings = {"cwd": tmp_path, **settings}
    with nothing_left():
        with pytest.raises(ConfigError, match=says):
            await CommandProcess().start(Command(*argv, "secret", **settings), env={}, deadline=lambda: 5.0)
        with pytest.raises(ConfigError, match="env has 'A=B'") as refused:
            await CommandProcess().start(Command("true"), env={"A=B": "secret"}, deadline=lambda: 5.0)
        assert "secret" not in str(refused.value)


@pytest.mark.req("CP-7")
@pytest.mark.parametrize("left", [0.0, -1.0, float("nan"), 0.0001])
async def test_nothing_is_started_when_the_lease_is_over(left: float, tmp_path: Path) -> None:
    with nothing_left():
        with pytest.raises(LeadershipLost, match="'touch' was not started"):
            await CommandProcess().start(Command("touch", str(tmp_path / "ran")), env={}, deadline=lambda: left)
        assert not (tmp_path / "ran").exists()


# Stopping


async def test_it_is_told_to_end_and_does(tmp_path: Path) -> None:
    with nothing_left():
        process = CommandProcess()
        await process.start(stubborn(tmp_path / "log", "daemon"), env={}, deadline=lambda: 30.0)
        await eventually(processes(tmp_path / "log", 2))
        asked = boottime_ns()
        await process.stop(20.0)
        assert boottime_ns() - asked < 10e9
        assert (await process.wait(), process.end) == (143, End.STOPPED)
        check_ended_before(boottime_ns(), tmp_path / "log")


@pytest.mark.req("SV-2")
async def test_what_ignores_being_told_is_killed(tmp_path: Path) -> None:
    with nothing_left():
        process = CommandProcess()
        words = ("ignore-term", "daemon", "clear", "children=10")
        await process.start(stubborn(tmp_path / "log", *words), env={}, deadline=lambda: 30.0)
        await eventually(processes(tmp_path / "log", 13))
        await process.stop(0.5)
        check_ended_before(boottime_ns(), tmp_path / "log")
        assert (await process.wait(), process.end) == (137, End.STOPPED)


async def test_a_tree_that_is_stopped_hears_of_its_end(tmp_path: Path) -> None:
    process = CommandProcess()
    await process.start(stubborn(tmp_path / "log"), env={}, deadline=lambda: 30.0)
    assert process.pid is not None
    await eventually(processes(tmp_path / "log", 1))
    os.kill(process.pid, signal.SIGSTOP)
    await process.stop(20.0)
    assert await process.wait() == 143


@pytest.mark.req("SV-2")
async def test_what_a_command_leaves_behind_is_ended_with_it(tmp_path: Path) -> None:
    with nothing_left():
        process = CommandProcess()
        command = stubborn(tmp_path / "log", "ignore-term", "daemon", "clear", "leave", terminate_within=0.3)
        await process.start(command, env={}, deadline=lambda: 30.0)
        assert await process.wait() == 0
        assert process.end is End.EXITED
        assert len(notes(tmp_path / "log")) == 2
        check_ended_before(boottime_ns(), tmp_path / "log")


async def test_one_that_hops_from_process_to_process_is_caught(tmp_path: Path) -> None:
    with nothing_left():
        process = CommandProcess()
        await process.start(stubborn(tmp_path / "log", "ignore-term", "hop"), env={}, deadline=lambda: 30.0)
        await eventually(processes(tmp_path / "log", 20))
        await process.stop(0.1)
        check_ended_before(boottime_ns(), tmp_path / "log")


async def test_one_that_looks_like_a_zombie_and_runs_on_is_killed(tmp_path: Path) -> None:
    with nothing_left():
        process = CommandProcess()
        await process.start(stubborn(tmp_path / "log", "ignore-term", "headless"), env={}, deadline=lambda: 30.0)
        await eventually(processes(tmp_path / "log", 2))
        headless = next(pid for pid in notes(tmp_path / "log") if pid != process.pid)
        await eventually(lambda: Path(f"/proc/{headless}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        assert living([headless]) == [headless]
        await process.stop(0.1)
        check_ended_before(boottime_ns(), tmp_path / "log")


async def test_a_kernel_that_does_not_list_children_shows_the_same_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = CommandProcess()
    await process.start(stubborn(tmp_path / "log", "daemon", "children=20"), env={}, deadline=lambda: 30.0)
    await eventually(processes(tmp_path / "log", 22))
    _, root = guards_of(os.getpid())
    listed = set(watchdog.descendants(root))
    with monkeypatch.context() as older:
        older.setattr(os.path, "exists", lambda path: False)
        assert set(watchdog.descendants(root)) == listed == set(notes(tmp_path / "log"))
    await process.stop(5.0)


async def test_a_start_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    with nothing_left():
        process = CommandProcess()
        starting = asyncio.create_task(process.start(stubborn(tmp_path / "log"), env={}, deadline=lambda: FOREVER))
        await asyncio.sleep(0.005)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await process.wait()
        assert living(notes(tmp_path / "log")) == []


@pytest.mark.slow
@pytest.mark.req("CP-7")
async def test_twenty_at_once(tmp_path: Path) -> None:
    logs = [tmp_path / str(number) for number in range(20)]
    with nothing_left():
        lease = Until(8.0)  # starting twenty interpreters twice takes a busy machine some time
        running = [CommandProcess() for _ in logs]
        await asyncio.gather(
            *(
                process.start(stubborn(log, "ignore-term", "daemon"), env={}, deadline=lease)
                for process, log in zip(running, logs, strict=True)
            )
        )
        assert len({process.pid for process in running}) == 20
        await asyncio.gather(*(eventually(processes(log, 2)) for log in logs))
        await asyncio.gather(*(process.stop(0.2) for process in running[:5]))
        assert [await process.wait() for process in running] == [137] * 20
        assert [process.end for process in running] == [End.STOPPED] * 5 + [End.DEADLINE] * 15
        await until_instant(lease.instant_ns)
        for log in logs:
            check_ended_before(lease.instant_ns, log)


# Deadlines


@pytest.mark.req("CP-7", "SV-2")
async def test_a_deadline_that_nobody_moves_ends_a_whole_tree_in_time(tmp_path: Path) -> None:
    with nothing_left():
        lease = Until(3.0)
        process = CommandProcess()
        command = stubborn(tmp_path / "log", "ignore-term", "daemon", "clear", "children=50")
        await process.start(command, env={}, deadline=lease)
        await eventually(processes(tmp_path / "log", 53))
        assert (await process.wait(), process.end) == (137, End.DEADLINE)
        await until_instant(lease.instant_ns)
        check_ended_before(lease.instant_ns, tmp_path / "log")


async def test_it_is_told_before_it_is_killed() -> None:
    lease = Until(2.0)
    process = CommandProcess()
    await process.start(Command("sh", "-c", "trap 'exit 5' TERM; sleep 60 & wait"), env={}, deadline=lease)
    assert (await process.wait(), process.end) == (5, End.DEADLINE)
    assert lease() > 0


async def test_a_deadline_may_come_nearer(tmp_path: Path) -> None:
    lease = Until(60.0)
    process = CommandProcess()
    command = stubborn(tmp_path / "log", terminate_within=0.5)
    await process.start(command, env={}, deadline=lambda: lease())
    await eventually(processes(tmp_path / "log", 1))
    lease = Until(3.0)
    assert (await process.wait(), process.end) == (143, End.DEADLINE)
    await until_instant(lease.instant_ns)
    check_ended_before(lease.instant_ns, tmp_path / "log")


@pytest.mark.req("CP-7")
async def test_a_deadline_that_is_not_known_any_more_stays_where_it_was(tmp_path: Path) -> None:
    lease = Until(2.5)
    asked = []

    def deadline() -> float:
        asked.append(boottime_ns())
        if len(asked) > 3:
            raise RuntimeError("secret")
        return lease()

    process = CommandProcess()
    await process.start(stubborn(tmp_path / "log", "ignore-term"), env={}, deadline=deadline)
    assert await process.wait() == 137
    await until_instant(lease.instant_ns)
    check_ended_before(lease.instant_ns, tmp_path / "log")


@pytest.mark.req("CP-7")
@pytest.mark.slow
async def test_a_blocked_loop_costs_no_command_its_life_while_the_lease_is_renewed(tmp_path: Path) -> None:
    with nothing_left():
        process = CommandProcess()
        await process.start(stubborn(tmp_path / "log"), env={}, deadline=lambda: 2.0)
        await eventually(processes(tmp_path / "log", 1))
        time.sleep(4.0)
        woke = boottime_ns()
        await eventually(lambda: all(at > woke for at in notes(tmp_path / "log").values()))
        assert process.end is None
        await process.stop(5.0)


@pytest.mark.req("CP-7")
async def test_a_blocked_loop_prolongs_no_command(tmp_path: Path) -> None:
    lease = Until(2.0)
    process = CommandProcess()
    await process.start(stubborn(tmp_path / "log", "ignore-term", "daemon"), env={}, deadline=lease)
    time.sleep(max(0.0, lease()) + 0.2)
    check_ended_before(lease.instant_ns, tmp_path / "log")
    assert await process.wait() == 137


# The watchdog is harmed


def guards_of(parent: int, besides: frozenset[int] = frozenset()) -> tuple[int, int]:
    """The one child that runs watchdog.py, which stands behind, and its own child, the watchdog itself."""
    found = [
        pid
        for pid in watchdog.children_of(parent)
        if pid not in besides and b"watchdog.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert len(found) == 1, found
    (guard,) = watchdog.children_of(found[0])
    return found[0], guard


def harm(which: str, number: int) -> None:
    behind, guard = guards_of(os.getpid())
    for pid in {"behind": (behind,), "watchdog": (guard,), "both": (behind, guard)}[which]:
        os.kill(pid, number)


@pytest.mark.req("CP-7")
@pytest.mark.parametrize("which", ["behind", "watchdog", "both"])
async def test_without_its_watchdog_a_command_is_killed_with_its_daemons(which: str, tmp_path: Path) -> None:
    with nothing_left():
        process = CommandProcess()
        command = stubborn(tmp_path / "log", "ignore-term", "daemon", "children=10")
        await process.start(command, env={}, deadline=lambda: FOREVER)
        await eventually(processes(tmp_path / "log", 12))
        harm(which, signal.SIGKILL)
        assert (await process.wait(), process.end) == (137, End.UNWATCHED)
        check_ended_before(boottime_ns(), tmp_path / "log")


@pytest.mark.req("CP-7")
@pytest.mark.parametrize("which", ["behind", "watchdog", "both"])
@pytest.mark.slow
async def test_a_watchdog_that_is_stopped_ends_its_command_in_time_all_the_same(which: str, tmp_path: Path) -> None:
    with nothing_left():
        lease = Until(3.0)
        process = CommandProcess()
        await process.start(stubborn(tmp_path / "log", "ignore-term", "daemon"), env={}, deadline=lease)
        await eventually(processes(tmp_path / "log", 2))
        harm(which, signal.SIGSTOP)
        await process.wait()
        await until_instant(lease.instant_ns)
        check_ended_before(lease.instant_ns, tmp_path / "log")


async def test_what_cannot_be_killed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "CONFIRM_WITHIN_SECONDS", 2.0)
    process = CommandProcess()
    await process.start(Command("sleep", "60"), env={}, deadline=lambda: FOREVER)
    with monkeypatch.context() as helpless:
        helpless.setattr(command_module._Watched, "_help", lambda watched: setattr(watched, "left", (process.pid,)))
        harm("both", signal.SIGSTOP)
        with pytest.raises(
            CommandStillRunning, match=f"'sleep' was killed and has not ended .pids {process.pid}"
        ) as stuck:
            await process.stop(0.1)
        assert stuck.value.pids == (process.pid,)
    monkeypatch.setattr(command_module, "CONFIRM_WITHIN_SECONDS", 10.0)
    await process.stop(0.0)
    assert await process.wait() in {137, 143}


async def test_what_a_lost_watchdog_leaves_and_cannot_be_killed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with nothing_left():
        process = CommandProcess()
        await process.start(Command("sleep", "60"), env={}, deadline=lambda: FOREVER)
        monkeypatch.setattr(watchdog, "kill_each", lambda pids, spared: [4711])
        harm("both", signal.SIGSTOP)  # or one of them may end the command before it is killed itself
        harm("both", signal.SIGKILL)
        with pytest.raises(CommandStillRunning) as stuck:
            await process.wait()
        assert stuck.value.pids == (4711,)


@pytest.mark.parametrize(
    "nonsense",
    [
        *(b"until\n", b"until 1\n", b"until -1 5\n", b"until 1e9 1e9\n", b"until " + b"9" * 30 + b" 1\n"),
        *(b"until \xd9\xa1 1\n", b"stop\n", b"stop never\n", b"\n", b"go on\n", b"x" * 5000),
    ],
)
def test_a_parent_that_talks_nonsense_is_as_good_as_gone(nonsense: bytes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with bare_watchdog(b"until never\n", log, watchdog.__file__) as (reports, controls):
        while not notes(log):
            time.sleep(0.01)
        controls.write(nonsense)
        assert reports.read() == b"ended 137 stopped\n"
    assert living(notes(log)) == []


@pytest.mark.req("CP-7")
@pytest.mark.parametrize("missing", ["Kernel.timer = lambda self: None", "os.__dict__.pop('pidfd_open', None)"])
def test_an_older_kernel_ends_it_in_time_too(missing: str, tmp_path: Path) -> None:
    source = Path(watchdog.__file__).read_text()
    (tmp_path / "older.py").write_text(source.replace("if __name__ ==", f"{missing}\nif __name__ =="))
    log = tmp_path / "log"
    lease = Until(2.5)
    unslewed = watchdog.now_ns()[1] - watchdog.now_ns()[0] + lease.instant_ns
    until_line = f"until {lease.instant_ns} {unslewed}\n".encode()
    with bare_watchdog(until_line, log, str(tmp_path / "older.py")) as (reports, _):
        assert reports.read() == b"ended 137 deadline\n"
        assert lease() > 0
    time.sleep(max(0.0, lease()) + 0.01)
    check_ended_before(lease.instant_ns, log)


@pytest.mark.req("CP-7")
def test_the_clock_that_comes_first_counts(tmp_path: Path) -> None:
    """NTP slows BOOTTIME down: by the other clock the lease is over long before."""
    log = tmp_path / "log"
    lease = Until(3.0)
    unslewed = watchdog.now_ns()[1] - watchdog.now_ns()[0] + lease.instant_ns
    until_line = f"until {lease.instant_ns + 60_000_000_000} {unslewed}\n".encode()
    with bare_watchdog(until_line, log, watchdog.__file__) as (reports, _):
        assert reports.read() == b"ended 137 deadline\n"
    time.sleep(max(0.0, lease()) + 0.01)
    check_ended_before(lease.instant_ns, log)


@contextlib.contextmanager
def bare_watchdog(first: bytes, log: Path, program: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """A watchdog whose parent speaks for itself."""
    heard, control = os.pipe()
    report, told = os.pipe()
    arguments = [str(heard), str(told), str(os.getpid()), "200", "end", "-", "", *stubborn(log, "ignore-term").argv]
    os.write(control, first)
    guard = subprocess.Popen([sys.executable, "-I", "-S", program, *arguments], pass_fds=(heard, told))
    os.close(heard)
    os.close(told)
    with os.fdopen(report, "rb") as reports, os.fdopen(control, "wb", buffering=0) as controls:
        assert reports.readline().startswith(b"started ")
        yield reports, controls
    assert guard.wait(10) == 0


# The parent is frozen or killed


@contextlib.contextmanager
def holder(grants: Path, lease: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.holder", str(grants), lease, *words], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"started\n"
        yield process
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def last_grant(grants: Path) -> int:
    return max(int(line) for line in grants.read_text().split())


async def freeze_and_judge(tmp_path: Path, *options: str) -> None:
    log, grants = tmp_path / "log", tmp_path / "grants"
    words = ("ignore-term", "daemon", "clear", "children=10")
    with holder(grants, "3", *options, "--", *stubborn(log, *words).argv) as process:
        try:
            await eventually(processes(log, 13))
            await asyncio.sleep(1.0)  # some renewals
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.05)
            deadline = last_grant(grants)
            assert boottime_ns() < deadline
            assert len(living(notes(log))) == 13, "it runs while the lease is held"
            await until_instant(deadline + 500_000_000)
            check_ended_before(deadline, log)
        finally:
            for pid in living(notes(log)):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.req("CP-7", "SV-2", "OP-2")
async def test_a_frozen_parent_prolongs_nothing(tmp_path: Path) -> None:
    await freeze_and_judge(tmp_path)


@pytest.mark.slow
async def test_a_parent_that_does_it_alone_is_caught(tmp_path: Path) -> None:
    """The broken variant: no watchdog, and a parent that would kill it in time, if it ran."""
    with pytest.raises(AssertionError, match="ran on after the deadline"):
        await freeze_and_judge(tmp_path, "parent-only")


@pytest.mark.slow
@pytest.mark.req("CP-7", "OP-2")
@pytest.mark.parametrize("lease", ["3", "never"])
@pytest.mark.parametrize("options", [(), ("fork",)])
async def test_a_parent_that_is_killed_takes_all_with_it(lease: str, options: tuple[str, ...], tmp_path: Path) -> None:
    log, grants = tmp_path / "log", tmp_path / "grants"
    command = stubborn(log, "daemon", "clear", "children=10")
    with holder(grants, lease, *options, "--", *command.argv) as process:
        await eventually(processes(log, 13))
        forked = 0
        if options:
            assert process.stdout is not None
            forked = int(process.stdout.readline().split()[1])
        process.kill()
        killed = boottime_ns()
        deadline = last_grant(grants) if lease != "never" else killed + 20_000_000_000
        try:
            # `clear` ignores SIGTERM; without a lease it has the five seconds of terminate_within.
            await eventually(lambda: not living(notes(log)))
            await until_instant(deadline if lease != "never" else 0)
            check_ended_before(deadline, log)
        finally:
            if forked:
                os.kill(forked, signal.SIGKILL)


@pytest.mark.slow
async def test_a_parent_that_ends_politely_takes_all_with_it_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with holder(tmp_path / "grants", "60", "--", *stubborn(log, "daemon").argv) as process:
        await eventually(processes(log, 2))
        process.terminate()
        terminated = boottime_ns()
        await eventually(lambda: not living(notes(log)))
        check_ended_before(terminated + 20_000_000_000, log)
