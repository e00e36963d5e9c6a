"""`tenure run`: the real command, with real programs, on a directory."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.process import Child
from tenure.plugins.supervisor.watchdog import children_of
from tests.support.command import tenure_process
from tests.support.waiting import eventually_here

PATIENCE = 30.0
IGNORES_TERM = "trap '' TERM; echo up; while :; do sleep 0.05; done"
WAITS = "echo up; exec sleep 60"


class Session(Child):
    """One `tenure run` in the background."""

    def __init__(self, folder: Path, url: str, *words: str, stdin: Any = subprocess.DEVNULL, **env: str) -> None:
        command = [sys.executable, "-m", "tenure", "run", url, "--lease", "3s", "--json", *words]
        super().__init__(command, folder, env={**os.environ, **env}, stdin=stdin)

    def until(self, condition: Callable[[], object]) -> None:
        eventually_here(condition, self.report)

    def until_event(self, name: str, count: int = 1) -> dict[str, Any]:
        self.until(lambda: len(self.named(name)) >= count)
        return self.named(name)[count - 1]

    def until_up(self, count: int = 1) -> None:
        self.until(lambda: self.out.split().count("up") >= count)


Start = Callable[..., Session]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start("--option", "--", "sh", "-c", ...)`"""
    url = (tmp_path / "store").as_uri()
    sessions: list[Session] = []

    def begin(*words: str, **settings: Any) -> Session:
        sessions.append(Session(tmp_path, settings.pop("url", url), *words, **settings))
        return sessions[-1]

    yield begin
    for session in sessions:
        if session.runs:
            session.send(signal.SIGCONT)
            session.send(signal.SIGTERM)
    for session in sessions:
        try:
            session.process.wait(1.1)
        except subprocess.TimeoutExpired:
            session.send(signal.SIGTERM)  # the second one kills, if it is none of the first
            session.process.wait(PATIENCE)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def sh(script: str) -> tuple[str, str, str, str]:
    return ("--", "sh", "-c", script)


# Ends, codes


@pytest.mark.req("OP-2")
def test_its_exit_code_is_ours_and_the_lease_is_given_back(start: Start) -> None:
    first = start(*sh("echo epoch=$TENURE_EPOCH; exit 3"))
    assert first.wait() == 3
    began = time.monotonic()
    second = start(*sh("echo epoch=$TENURE_EPOCH; exit 0"))
    assert second.wait() == 0
    assert (first.out, second.out) == ("epoch=1\n", "epoch=2\n")
    # The lease was released, so nobody waited for it to lapse; start-up and jitter are most of this.
    assert [event["event"] for event in first.events] == ["joined", "started", "exited"]
    assert second.events[-1]["code"] == 0
    assert time.monotonic() - began < PATIENCE


def test_a_program_that_a_signal_ends_gives_128_and_its_number(start: Start) -> None:
    assert start(*sh("kill -9 $$")).wait() == 137


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--", "no-such-program-here"), 127, "was not found"),
        ((), 125, "there is no CMD"),
        (("--lease", "3", "--", "true"), 125, "is no duration"),
        (("--lease", "3s", "--preset", "fast", "--", "true"), 125, "give one of them"),
        (("--set", "hearbeat_interval=1s", "--", "true"), 125, "did you mean heartbeat_interval"),
        (("--priority", "3", "--", "true"), 125, "--membership"),
        (("--namespace", "", "--", "true"), 125, "namespace"),
        (("--health-cmd", " ", "--", "true"), 125, "--health-cmd"),
        (("--health-cmd", "true", "--health-timeout", "5s", "--", "true"), 125, "--health-timeout"),
        (("sleep", "1"), 125, "give it after --"),
        (("--ready-file", "/no/such/folder/ready", "--", "true"), 125, "ready file"),
        (("--no-such-option", "--", "true"), 125, "No such option"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(
    words: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    run = tenure_process("run", store.as_uri(), *words)
    assert run.code == code, run.err
    assert says in run.err
    assert not store.exists() or not any(store.rglob("state.json"))


def test_what_is_no_program_is_126(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("neither a program nor a script")
    run = tenure_process("run", tmp_path.as_uri(), "--", str(tmp_path / "data"))
    assert (run.code, "may not be executed" in run.err) == (126, True)
    (tmp_path / "data").chmod(0o755)
    run = tenure_process("run", tmp_path.as_uri(), "--lease", "3s", "--", str(tmp_path / "data"))
    assert (run.code, "needs a #! line" in run.err) == (126, True)


def test_a_store_that_cannot_be_opened_is_125(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = tenure_process("run", (tmp_path / "file").as_uri(), "--", "true")
    assert run.code == 125
    assert "is not a directory" in run.err
    assert len(run.err.strip().splitlines()) == 1


def tenure_with_trace(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tenure", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


@pytest.mark.parametrize("asked", ["in the environment", "first", "last"])
def test_whoever_asks_for_the_stack_trace_is_told_the_same(asked: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = ["run", (tmp_path / "file").as_uri(), "--json", "--", "true"]
    if asked != "in the environment":
        words.insert(0 if asked == "first" else 2, "--debug")
    said = tenure_with_trace(*words, TENURE_DEBUG="1" if asked == "in the environment" else "")
    assert said.returncode == 125
    assert "Traceback" in said.stderr
    told = json.loads(said.stderr.splitlines()[-1])
    assert told["event"] == "failed"
    assert "is not a directory" in told["message"]


def test_the_url_may_come_from_the_environment(tmp_path: Path) -> None:
    place = {"TENURE_URL": (tmp_path / "store").as_uri(), "TENURE_NAMESPACE": "jobs"}
    run = tenure_process("run", "--lease", "3s", *sh("echo $TENURE_NAMESPACE; exit 4"), **place)
    assert (run.code, run.out) == (4, "jobs\n")


def test_what_comes_after_the_dashes_is_the_programs_own(tmp_path: Path) -> None:
    run = tenure_process("run", tmp_path.as_uri(), "--lease", "3s", "--", "echo", "--lease", "--", "-x", "--help")
    assert (run.code, run.out) == (0, "--lease -- -x --help\n")


def test_quiet_is_quiet(tmp_path: Path) -> None:
    run = tenure_process("run", tmp_path.as_uri(), "--lease", "3s", "--quiet", "--", "echo", "hello")
    assert (run.code, run.out, run.err) == (0, "hello\n", "")


def test_its_input_is_ours(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tenure", "run", tmp_path.as_uri(), "--lease", "3s", "--quiet", "--", "cat"],
        input=b"one\ntwo\n",
        capture_output=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n")


# One of several


@pytest.mark.req("OP-2")
@pytest.mark.slow
def test_one_runs_and_another_takes_over_when_it_is_killed(start: Start) -> None:
    leader = start(*sh(WAITS))
    leader.until_up()
    standby = start(*sh(WAITS))
    standby.until_event("joined")
    pid = leader.until_event("started")["pid"]
    time.sleep(1.0)
    assert standby.out == ""
    leader.process.kill()
    standby.until_up()
    assert not alive(pid)
    assert standby.until_event("started")["epoch"] == 2


@pytest.mark.req("OP-2", "EL-17")
@pytest.mark.slow
def test_after_a_step_down_it_stands_by_again(start: Start, tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    first = start(*sh(WAITS))
    first.until_up()
    second = start(*sh(WAITS))
    second.until_event("joined")
    assert tenure_process("step-down", url, "--force").code == 0
    second.until_up()
    lost = first.until_event("lost")
    assert lost["epoch"] == 1
    assert "standing by" in lost["message"]
    assert not alive(first.named("started")[0]["pid"])
    assert first.runs
    second.process.kill()
    first.until_up(2)


def test_a_name_that_nobody_can_vouch_for_needs_force(start: Start, tmp_path: Path) -> None:
    """By default a fleet of `tenure run` keeps no records: a slip of the pen must not move the program."""
    url = (tmp_path / "store").as_uri()
    session = start("--worker-id", "ada", *sh(WAITS))
    session.until_up()
    refused = tenure_process("transfer", url, "--to", "nobody")
    assert refused.code == 1
    assert "no record of 'nobody'" in refused.err
    time.sleep(1.5)
    assert session.named("lost") == []
    seen = tenure_process("workers", url, "--json")
    assert (seen.code, seen.json()["membership"], seen.json()["leader"]) == (0, False, "ada")


@pytest.mark.slow
def test_one_that_is_to_exit_when_it_lost_does(start: Start, tmp_path: Path) -> None:
    first = start("--on-lost", "exit", *sh(WAITS))
    first.until_up()
    second = start(*sh(WAITS))
    second.until_event("joined")
    assert tenure_process("step-down", (tmp_path / "store").as_uri(), "--force").code == 0
    assert first.wait() == 75


@pytest.mark.slow
def test_with_membership_the_machines_are_seen(start: Start, tmp_path: Path) -> None:
    one = start("--membership", "--worker-id", "one", "--priority", "5", *sh(WAITS))
    one.until_up()
    two = start("--membership", "--worker-id", "two", *sh(WAITS))
    two.until_event("joined")

    def seen() -> set[str]:
        run = tenure_process("status", (tmp_path / "store").as_uri(), "--no-wait", "--json")
        return {worker["worker_id"] for worker in run.json()["workers"]}

    two.until(lambda: seen() == {"one", "two"})


# Signals


@pytest.mark.req("OP-2")
def test_sigterm_ends_the_program_and_then_us(start: Start) -> None:
    session = start(*sh("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done"))
    session.until_up()
    session.send(signal.SIGTERM)
    assert session.wait() == 7
    assert session.out.endswith("bye\n")
    assert session.named("stopping")[0]["signal"] == "SIGTERM"


def test_sigint_is_passed_on_as_such(start: Start) -> None:
    session = start(*sh("trap 'echo interrupted; exit 9' INT; echo up; while :; do sleep 0.05; done"))
    session.until_up()
    session.send(signal.SIGINT)
    assert session.wait() == 9
    assert session.out.endswith("interrupted\n")


@pytest.mark.parametrize(
    "number",
    [
        *(signal.SIGHUP, signal.SIGUSR1),
        *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGUSR2, signal.SIGWINCH)),
    ],
)
def test_other_signals_are_passed_on(number: signal.Signals, start: Start) -> None:
    session = start(*sh(f"trap 'echo got' {number.name[3:]}; echo up; while :; do sleep 0.05; done"))
    session.until_up()
    session.send(number)
    session.until(lambda: "got" in session.out)
    assert session.runs


def test_one_that_does_not_heed_sigterm_is_killed_in_time(start: Start) -> None:
    session = start("--stop-within", "500ms", *sh(IGNORES_TERM))
    session.until_up()
    session.send(signal.SIGTERM)
    assert session.wait() == 137


def test_a_second_sigterm_kills_at_once(start: Start) -> None:
    session = start("--stop-within", "10m", *sh(IGNORES_TERM))
    session.until_up()
    session.send(signal.SIGTERM)
    session.until_event("stopping")
    time.sleep(1.1)
    session.send(signal.SIGTERM)
    assert session.wait() == 137


def test_a_signal_that_is_sent_twice_within_moments_is_one(start: Start) -> None:
    """GNU timeout sends its own to the process and to its group."""
    session = start(*sh("trap 'sleep 0.5; echo clean; exit 7' TERM; echo up; while :; do sleep 0.05; done"))
    session.until_up()
    session.send(signal.SIGTERM)
    session.until_event("stopping")  # else the kernel may make one of them
    session.send(signal.SIGTERM)
    assert session.wait() == 7
    assert session.out.endswith("clean\n")
    assert len(session.named("stopping")) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_one_that_stands_by_leaves_when_it_is_told_to(number: int, code: int, start: Start) -> None:
    leader = start(*sh(WAITS))
    leader.until_up()
    standby = start(*sh(WAITS))
    standby.until_event("joined")
    standby.send(signal.SIGHUP)  # for the program, which does not run here
    standby.send(signal.SIGUSR1)
    time.sleep(0.3)
    assert standby.runs
    standby.send(number)
    assert standby.wait() == code
    assert leader.runs


def test_all_that_it_started_is_ended(start: Start) -> None:
    session = start(*sh("setsid sleep 60 & setsid sh -c 'sleep 61 & sleep 62' & echo up; wait"))
    session.until_up()
    time.sleep(0.3)
    session.send(signal.SIGTERM)
    session.wait()
    left = [
        words
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and (words := _words(entry)) and words[:1] == ["sleep"] and _cousin(entry, session)
    ]
    assert left == []


def _words(entry: Path) -> list[str]:
    try:
        return (entry / "cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def _cousin(entry: Path, session: Session) -> bool:
    """Its output goes to the session's."""
    try:
        return (entry / "fd" / "1").resolve() == session.out_path.resolve()
    except OSError:
        return False


# Starting again


def test_one_that_fails_is_started_again_with_a_higher_token(start: Start, tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f'echo $TENURE_TOKEN; echo x >> {count}; test "$(wc -l < {count})" -ge 3'
    session = start("--restart", "on-failure", *sh(script))
    assert session.wait() == 0
    tokens = [int(line) for line in session.out.split()]
    assert len(tokens) == 3
    assert tokens == sorted(set(tokens))
    assert [event["code"] for event in session.named("exited")] == [1, 1, 0]


def test_one_that_fails_too_often_is_left_to_another_machine(start: Start) -> None:
    session = start("--restart", "always", "--max-restarts", "1", *sh("exit 5"))
    assert session.wait() == 5
    assert len(session.named("started")) == 2
    assert "too often" in session.named("exited")[-1]["message"]


def test_one_that_ends_well_is_started_again_if_it_always_is(start: Start) -> None:
    session = start("--restart", "always", *sh("echo up"))
    session.until_up(2)


@pytest.mark.slow
def test_being_told_to_end_between_two_starts_ends_it(start: Start) -> None:
    session = start("--restart", "always", "--max-restarts", "1000", *sh("exit 1"))
    session.until_event("exited", 4)
    session.send(signal.SIGTERM)
    assert session.wait() in (0, 1, 143)
    assert session.process.returncode is not None


# In the background


@pytest.mark.req("OP-2")
def test_one_that_moves_to_the_background_is_followed(start: Start) -> None:
    daemon = "import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); time.sleep(1); "
    session = start("--", sys.executable, "-S", "-c", daemon + "print('done', flush=True); os._exit(6)")
    session.until_event("background")
    assert session.runs
    assert session.wait() == 6
    assert session.out == "done\n"


def test_or_ended_if_that_is_asked_for(start: Start) -> None:
    session = start("--background", "end", *sh("setsid sh -c 'sleep 30; echo late' & exit 0"))
    assert session.wait() == 0
    assert session.named("background") == []
    assert session.out == ""


def test_a_signal_reaches_what_is_in_the_background(start: Start) -> None:
    session = start(*sh("setsid sh -c 'trap \"echo got\" HUP; echo up; while :; do sleep 0.05; done' & exit 0"))
    session.until_event("background")
    session.until_up()
    session.send(signal.SIGHUP)
    session.until(lambda: "got" in session.out)
    session.send(signal.SIGTERM)
    session.wait()


# Health, readiness


@pytest.mark.req("OP-2")
@pytest.mark.slow
def test_a_machine_that_is_not_well_does_not_lead(start: Start, tmp_path: Path) -> None:
    well = tmp_path / "well"
    well.touch()
    health = ("--health-cmd", f"test -e {well}", "--health-interval", "2s", "--health-timeout", "1900ms")
    first = start(*health, *sh(WAITS))
    first.until_up()
    second = start(*sh(WAITS))
    second.until_event("joined")
    well.unlink()
    second.until_up()
    assert "exited with 1" in first.until_event("unhealthy")["message"]
    first.until_event("lost")


@pytest.mark.slow
def test_a_health_command_that_hangs_counts_as_failed_and_is_ended(start: Start, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    health = ("--health-cmd", f"sleep 60 & echo $! >> {pids}; wait", "--health-timeout", "300ms")
    session = start(*health, "--health-interval", "2s", *sh(WAITS))
    assert "after 0.3 s" in session.until_event("unhealthy")["message"]
    # On a busy machine a shell may be ended before it has written anything.
    session.until(lambda: pids.exists() and len(pids.read_text().split()) >= 2)
    first = int(pids.read_text().split()[0])
    session.until(lambda: not alive(first))


@pytest.mark.req("OP-2")
def test_the_ready_file_is_there_while_it_runs(start: Start, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    ready.write_text("left by an earlier process")
    leader = start(*sh(WAITS))
    leader.until_up()
    session = start("--ready-file", str(ready), *sh(WAITS))
    session.until_event("joined")
    assert not ready.exists()
    leader.send(signal.SIGTERM)
    session.until_up()
    session.until(ready.exists)
    told = json.loads(ready.read_text())
    assert told["epoch"] == 2
    assert alive(told["pid"])
    session.send(signal.SIGTERM)
    session.wait()
    assert not ready.exists()


def test_systemd_is_told(start: Start, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE)
        session = start(
            *sh("echo socket=$NOTIFY_SOCKET usec=$WATCHDOG_USEC; echo up; exec sleep 60"),
            NOTIFY_SOCKET=str(tmp_path / "notify"),
            WATCHDOG_USEC="1000000",
        )
        session.until_up()
        session.send(signal.SIGTERM)
        session.wait()
        systemd.setblocking(False)
        told: list[str] = []
        while True:
            try:
                told += systemd.recv(4096).decode().split("\n")
            except BlockingIOError:
                break
    assert "READY=1" in told
    assert "WATCHDOG=1" in told
    assert "STOPPING=1" in told
    assert any(line.startswith("STATUS=standing by") for line in told)
    assert any(line.startswith("STATUS=leading 'default', epoch 1: sh runs") for line in told)
    assert session.out.startswith("socket= usec=\n")  # it would talk to systemd in our name


# What guards it is harmed; odd beginnings


def watchdogs_below(parent: int) -> list[int]:
    return [pid for pid in children_of(parent) if "watchdog.py" in " ".join(_words(Path(f"/proc/{pid}")))]


def guards(session: Session) -> tuple[int, int]:
    """The process that stands behind the watchdog, and the watchdog."""
    for behind in watchdogs_below(session.process.pid):
        for guard in watchdogs_below(behind):
            return behind, guard
    raise AssertionError("it has no watchdog")


@pytest.mark.req("OP-2")
@pytest.mark.parametrize(
    ("which", "number"),
    [
        ("behind", signal.SIGKILL),
        ("watchdog", signal.SIGKILL),
        pytest.param("both", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("behind", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("watchdog", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("both", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_program_whose_guard_was_harmed_is_started_again_by_its_policy(
    which: str, number: signal.Signals, start: Start
) -> None:
    """And never is there a leader without a program."""
    session = start("--restart", "on-failure", *sh(WAITS))
    session.until_up()
    first = session.until_event("started")
    behind, guard = guards(session)
    for pid in {"behind": (behind,), "watchdog": (guard,), "both": (behind, guard)}[which]:
        os.kill(pid, number)
    if (which, number) == ("behind", signal.SIGTERM):  # it heeds nobody, and waits for the watchdog
        time.sleep(0.5)
        assert alive(first["pid"])
        return
    session.until_up(2)
    assert not alive(first["pid"])
    assert session.until_event("started", 2)["epoch"] == 1
    session.send(signal.SIGTERM)
    assert session.wait() == 143


@pytest.mark.req("OP-2")
def test_who_ignores_the_end_of_children_is_guarded_as_well(tmp_path: Path) -> None:
    """SIGCHLD that is ignored is ignored after exec too."""
    notes = tmp_path / "notes"
    notes.mkdir()
    ticker = Path(__file__).parents[2] / "lab" / "ticker.py"
    command = [sys.executable, "-m", "tenure", "run", (tmp_path / "store").as_uri(), "--lease", "3s", "--json", "--"]
    command += [sys.executable, "-S", str(ticker), str(notes), "--daemon", "--bare", "--stubborn"]
    run = subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    try:
        deadline = time.monotonic() + PATIENCE
        while not any(notes.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        (note,) = notes.iterdir()
        daemon = int(note.name.rpartition("-")[2])
        (behind,) = watchdogs_below(run.pid)
        (guard,) = watchdogs_below(behind)
        run.send_signal(signal.SIGSTOP)
        os.kill(guard, signal.SIGKILL)
        while alive(daemon):
            assert time.monotonic() < deadline, "nobody stood behind the watchdog"
            time.sleep(0.02)
    finally:
        run.kill()
        run.wait()


def test_somebody_who_does_not_read_what_we_say_does_not_stop_us(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    out = tmp_path / "out"
    with out.open("wb") as output:
        run = subprocess.Popen(
            [sys.executable, "-m", "tenure", "run", tmp_path.as_uri(), "--lease", "3s", *sh(WAITS)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=write,
        )
    os.close(write)
    try:
        deadline = time.monotonic() + PATIENCE
        while "up" not in out.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        run.terminate()
        assert run.wait(PATIENCE) == 143
    finally:
        run.kill()
        os.close(read)


@pytest.mark.parametrize(
    "closed", [(2,), (0, 1, 2), *(pytest.param(each, marks=pytest.mark.slow) for each in ((0,), (1,)))]
)
def test_closed_descriptors_are_survived(closed: tuple[int, ...], tmp_path: Path) -> None:
    redirections = " ".join({0: "<&-", 1: ">&-", 2: "2>&-"}[each] for each in closed)
    command = f'exec "{sys.executable}" -m tenure run "{tmp_path.as_uri()}" --lease 3s -- sh -c "cat; exit 4"'
    done = subprocess.run(["sh", "-c", f"{command} {redirections}"], stdin=subprocess.DEVNULL, timeout=PATIENCE)
    assert done.returncode == 4


def test_a_url_too_many_is_not_shown_with_its_secret(tmp_path: Path) -> None:
    run = tenure_process(
        "run", tmp_path.as_uri(), "s3://b/p?access_key_id=AKIA&secret_access_key=hush-hush", "--", "true"
    )
    assert run.code == 125
    assert "unexpected extra argument" in run.err
    assert "hush" not in run.err


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("unshare") is None, reason="needs a PID namespace of its own")
def test_the_first_process_of_a_container(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tenure", "run", tmp_path.as_uri(), "--lease", "3s", *sh("exit 5")]
    inside = subprocess.run(["unshare", "-pf", "--mount-proc", *command], capture_output=True, timeout=PATIENCE)
    assert inside.returncode == 5, inside.stderr
    blind = subprocess.run(["unshare", "-pf", *command], capture_output=True, text=True, timeout=PATIENCE)
    assert blind.returncode == 126
    assert "/proc is not mounted, or belongs to another PID namespace" in blind.stderr
