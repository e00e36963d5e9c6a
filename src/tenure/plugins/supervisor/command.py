"""An OS command that runs for as long as its caller may run it, and not an instant longer.

    process = CommandProcess()
    await process.start(Command("rsync", "-a", "in/", "out/"), env={...}, deadline=lead.time_to_wind_up)
    code = await process.wait()

Guarantee (Linux): nothing of the command's process tree runs at the end of the last deadline that was granted, also if
this process is frozen or killed, or its event loop is blocked: a watchdog process of its own, which needs nothing of
this one, has killed and reaped it by then. `wait()` and `stop()` return only when that is confirmed.

If the watchdog itself is killed, another process that stands behind it ends the tree, with or without this one. If both
are killed, the kernel kills the command's own process, and this process looks for the rest: what shares its session,
what carries its `TENURE_COMMAND_ID` in the environment, and, after `adopt_orphans()`, whatever else they left. If they
are stopped (SIGSTOP) they are told to go on, and the tree is killed from here.

Not guaranteed: what escapes is a process that left the command's session *and* cleared its environment, if both of
those were killed by SIGKILL and orphans are not adopted; one that left the session, if this process was killed or
stopped as well; and what `tenure.plugins.supervisor.watchdog` names. A deadline, once granted, is granted: whoever
shortens a lease waits for `stop()` first.

Other systems than Linux: see the watchdog. Written for, untested.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import logging
import math
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.clock import SYSTEM_CLOCK
from tenure.entropy import new_id
from tenure.errors import CommandStillRunning, ConfigError, ForkedProcess, LeadershipLost
from tenure.plugins.supervisor import watchdog

if TYPE_CHECKING:
    from tenure.plugins.supervisor.child import Command

__all__ = ["Background", "CommandProcess", "End", "adopt_orphans"]

_log = logging.getLogger("tenure.command")

_LINUX = watchdog.LINUX
_NS = watchdog.NANO
START_WITHIN_SECONDS = 30.0
CONFIRM_WITHIN_SECONDS = 3.0
"""After the last kill was due, at most, until `stop()` says that something is left."""
_FEED_SECONDS = 1.0
_FEEDS_PER_SPAN = 10
_SHORTEST_WAIT = 0.02
_SWEEP_SECONDS = 0.02
_MAX_REPORT = 1 << 16
_WATCHDOG_OVERDUE = 0.3
_MAX_LEFT = 32
_LONGEST_SECONDS = 1e8
_CANNOT_RUN = {
    errno.ENOENT: "was not found",
    errno.ENOTDIR: "was not found",
    errno.EACCES: "may not be executed",
    errno.EPERM: "may not be executed",
    errno.ENOEXEC: "is not a program for this machine (a script needs a #! line)",
    errno.EISDIR: "is a folder",
    errno.ELOOP: "is a link to itself",
    errno.ENAMETOOLONG: "has too long a name",
    errno.EINVAL: "cannot be executed with these arguments",
}


class End(enum.Enum):
    """Why a command ended."""

    EXITED = "exited"
    """By itself."""
    STOPPED = "stopped"
    """It was told to."""
    DEADLINE = "deadline"
    """Its deadline was near, and nobody had moved it."""
    UNWATCHED = "unwatched"
    """Its watchdog was killed, so it was killed too."""


class Background(enum.Enum):
    """What happens to what a command has left running when its own process ends."""

    END = "end"
    """It is ended, and only then is the run over."""
    FOLLOW = "follow"
    """If the command's own process exited with 0, it has moved to the background: the run goes on until the last
    process of its tree has ended, and that one's code is the run's."""


class CommandProcess:
    """One run of one command. Start it once; make another for another run."""

    def __init__(self) -> None:
        self._watched: _Watched | None = None

    @property
    def pid(self) -> int | None:
        """Of the command's own process, which leads its session and process group; `None` before it was started."""
        return self._watched.command if self._watched is not None else None

    @property
    def end(self) -> End | None:
        """Why it is over; `None` while it is not."""
        return self._watched.end if self._watched is not None else None

    @property
    def in_background(self) -> bool:
        """Its own process has exited, and what it started is followed."""
        return self._watched is not None and self._watched.moved.done()

    async def moved_to_background(self) -> None:
        """Returns when its own process has exited and what it started is followed; maybe never."""
        await asyncio.wrap_future(self._running().moved)

    def signal(self, number: int) -> None:
        """Pass a signal on to the command's own process, if it runs. Any but SIGKILL and SIGSTOP and what is for
        errors of programs: see `watchdog.PASSED_ON`."""
        if number not in watchdog.PASSED_ON:
            names = ", ".join(signal.Signals(each).name for each in watchdog.PASSED_ON)
            raise ConfigError(f"signal {number!r} is not passed on: it must be one of {names}")
        if self._watched is not None:
            self._running().pass_on(number)

    async def start(
        self,
        command: Command,
        *,
        env: Mapping[str, str],
        deadline: Callable[[], float],
        background: Background = Background.END,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        """Return when the program runs.

        `env` is added to this process's environment and the command's own. `deadline` says for how many seconds from
        now it may run even if nobody is asked any more (`inf`: nothing bounds it). It is called from another thread,
        about ten times per lease; if it raises, the deadline stays where it was. The streams are as in
        `subprocess.Popen`, without PIPE.

        Raises `ConfigError` if the program cannot be run, `LeadershipLost` if too little time is left to start it, and
        `OSError` if the machine has no room for another process. Nothing runs then.
        """
        if self._watched is not None:
            raise ConfigError(f"{command!r} was started before: make a new CommandProcess for each run")
        if subprocess.PIPE in (stdin, stdout, stderr):
            raise ConfigError(
                "stdin, stdout and stderr take a file descriptor, DEVNULL or None; for a pipe use os.pipe()"
            )
        with _KEEPER.births:
            watched = self._watched = _spawn(command, env, deadline, background, (stdin, stdout, stderr))
            _KEEPER.add(watched)
        try:
            async with asyncio.timeout(START_WITHIN_SECONDS):
                await asyncio.wrap_future(watched.started)
        except TimeoutError:
            watched.ask_to_stop(0.0)
            raise OSError(errno.ETIMEDOUT, "the watchdog did not start", command.argv[0]) from None
        except asyncio.CancelledError:
            watched.ask_to_stop(0.0)
            raise
        except BaseException:
            await asyncio.wrap_future(watched.over)  # nothing is left behind, not even a zombie
            raise

    async def wait(self) -> int:
        """Its exit code, when all of its tree has ended; 128 + n if signal n ended it, as in a shell.

        Raises `CommandStillRunning` if its watchdog was killed and something of the tree could not be.
        """
        return await asyncio.wrap_future(self._running().over)

    async def stop(self, within: float) -> None:
        """SIGTERM to its tree; SIGKILL to what is left after `within` seconds, or when the deadline is near.

        Returns when all of it has ended and was reaped. Raises `CommandStillRunning` if that could not be confirmed
        some seconds later: it hangs in a system call, or runs as another user. It is killed again and again until it
        is gone, and another `stop()` says whether it is.
        """
        if self._watched is None:
            return
        watched = self._running()
        within = min(max(0.0, within), _LONGEST_SECONDS)
        watched.ask_to_stop(within)
        try:
            async with asyncio.timeout(within + CONFIRM_WITHIN_SECONDS):
                await asyncio.wrap_future(watched.over)
        except TimeoutError:
            raise CommandStillRunning(watched.program, watched.left) from None

    def _running(self) -> _Watched:
        if self._watched is None:
            raise ConfigError("it was not started: await start() first")
        if self._watched.owner != os.getpid():
            raise ForkedProcess("a command belongs to the process that started it, and not to a forked child")
        return self._watched


# One command, on the keeper's thread


class _Watched:
    def __init__(
        self,
        *,
        program: str,
        mark: str,
        process: subprocess.Popen[bytes],
        control: int,
        report: int,
        deadline: Callable[[], float],
        span: float,
    ) -> None:
        self.owner = os.getpid()
        self.program = program
        self.command: int | None = None
        self.end: End | None = None
        self.left: tuple[int, ...] = ()
        self.started: Future[None] = _pending()
        self.over: Future[int] = _pending()
        self.moved: Future[None] = _pending()
        self.report = report
        self._control = control
        self._mark = mark
        self._process = process
        self._deadline = deadline
        self._span = span
        self._heard = b""
        self._code: int | None = None
        self._guard: int | None = None
        """The watchdog itself; `_process` stands behind it."""
        self._is_told = False
        self._lock = threading.Lock()
        self._is_closed = False
        self._not_started: Exception | None = None
        self._kill_at_ns: int | None = None
        self._lost_since_ns: int | None = None
        self._silent = False
        self._warned = False

    @property
    def is_over(self) -> bool:
        return self.over.done()

    @property
    def is_silent(self) -> bool:
        """The watchdog says nothing more."""
        return self._silent

    # From any thread

    def ask_to_stop(self, within: float) -> None:
        """An instant, so that the way there does not count as grace."""
        kill_at = SYSTEM_CLOCK.read().boottime_ns + int(within * _NS)
        self._kill_at_ns = kill_at if self._kill_at_ns is None else min(kill_at, self._kill_at_ns)
        self._tell(f"stop {kill_at}")
        _KEEPER.wake()

    def pass_on(self, number: int) -> None:
        self._tell(f"signal {int(number)}")

    @property
    def watchdog_pid(self) -> int:
        return self._process.pid

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._is_closed:  # and its number may be another file's by now
                return
            try:
                os.write(self._control, line.encode() + b"\n")  # short, so there whole or not at all
            except OSError:  # full: it is stopped, and becomes overdue; broken: it is dead, and falls silent
                pass

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            os.close(self.report)
            os.close(self._control)

    # On the keeper's thread

    def tend(self) -> float:
        """Move the deadline as far as it may be moved. Returns in how many seconds to come again."""
        if not self._silent:
            self._listen()
        if self._silent:
            return self._finish()
        instants, left = _instants(self._deadline)
        if instants is not None:
            self._tell(instants)
            self._span = max(self._span, left if math.isfinite(left) else 0.0)
        if self._is_overdue(left):
            self._help()
            return _SWEEP_SECONDS
        wait = min(_FEED_SECONDS, max(_SHORTEST_WAIT, left / _FEEDS_PER_SPAN))
        if self._kill_at_ns is not None:
            wait = min(wait, 0.1)
        return wait

    def _is_overdue(self, left: float) -> bool:
        """Should the watchdog have killed it by now?"""
        if left < watchdog.kill_margin(self._span) / 2:
            return True
        kill_at = self._kill_at_ns
        return kill_at is not None and SYSTEM_CLOCK.read().boottime_ns - kill_at > _WATCHDOG_OVERDUE * _NS

    def _help(self) -> None:
        """The watchdog is late: it was stopped, or what it kills does not die. It alone can reap, so it is spared."""
        for pid in (self._process.pid, self._guard):
            if pid is not None:
                watchdog.send(pid, signal.SIGCONT)
        if self.command is None and not self.started.done():
            self._not_started = LeadershipLost(f"{self.program!r} was not started: too little of the lease is left")
            self._process.kill()
            return
        if self.command is not None and not _LINUX:
            watchdog.send(-self.command, signal.SIGKILL)
        spared = frozenset({os.getsid(0), self._process.pid})
        tree = (pid for pid in watchdog.descendants(self._process.pid) if pid != self._guard)
        self.left = tuple(watchdog.kill_each(tree, spared)[:_MAX_LEFT])

    def _listen(self) -> None:
        # A forked copy of the pipe's other end would hide that it died. Asked first: what it said can still be read.
        has_ended = self._process.poll() is not None
        while True:
            try:
                told = os.read(self.report, 65536)
            except BlockingIOError:
                if not has_ended:
                    return
                told = b""
            if not told or len(self._heard) > _MAX_REPORT:
                self._silent = True
                return
            *lines, self._heard = (self._heard + told).split(b"\n")
            for line in lines:
                self._note(line.decode("ascii", "replace").split(" "))

    def _note(self, words: list[str]) -> None:
        match words:
            case ["started", pid, guard] if pid.isdecimal() and guard.isdecimal():
                self.command, self._guard = int(pid), int(guard)
                _settle(self.started, None)
            case ["failed", stage, number] if number.isdecimal():
                self._not_started = _why_not(self.program, stage, int(number))
            case ["background"]:
                _settle(self.moved, None)
            case ["late"]:
                self._is_told = True
                self._not_started = LeadershipLost(f"{self.program!r} was not started: too little of the lease is left")
            case ["left", *pids] if all(pid.isdecimal() for pid in pids):
                self.left = tuple(int(pid) for pid in pids[:_MAX_LEFT])
            case ["ended", code, why] if code.isdecimal() and why in {end.value for end in End}:
                self._is_told = True
                self._code, self.end = int(code), End(why)
            case _:
                _log.error("the watchdog of %r says %.40r", self.program, words[0])

    def _finish(self) -> float:
        """The watchdog has nothing more to say: reap it, and if it was cut off, end what it would have ended."""
        now = SYSTEM_CLOCK.read().boottime_ns
        if self._lost_since_ns is None:
            self._lost_since_ns = now
        for_seconds = (now - self._lost_since_ns) / _NS
        if self._process.poll() is None:
            # The one behind ends what a killed watchdog has left.
            if for_seconds > CONFIRM_WITHIN_SECONDS / 3:
                self._process.kill()
            return _SWEEP_SECONDS
        if not self._is_told and not self._sweep(for_seconds):
            return _SWEEP_SECONDS
        self._conclude()
        return 0.0

    def _sweep(self, for_seconds: float) -> bool:
        """One pass over what a dead watchdog left. True: there is nothing, or nothing more to be done."""
        if not self._warned:
            self._warned = True
            _log.error("the watchdog of %r (pid %s) was killed; ending what it ran", self.program, self.command)
        self.left = tuple(watchdog.kill_each(self._marked(), frozenset({os.getsid(0)}))[:_MAX_LEFT])
        _KEEPER.reap_orphans()
        if self.command is not None and not _LINUX:
            watchdog.send(-self.command, signal.SIGKILL)
        return not self.left or for_seconds > CONFIRM_WITHIN_SECONDS * 2 / 3

    def _marked(self) -> Iterator[int]:
        """What shares the command's session or carries its mark, and all below."""
        mark = f"{watchdog.MARK}={self._mark}".encode()
        for pid in watchdog.all_pids():
            process = watchdog.look_at(pid)
            if process is None or process.has_ended or pid == self.owner:
                continue
            if (self.command is not None and process.session == self.command) or _carries(pid, mark):
                # The list first: the children of one that is killed go elsewhere.
                yield from [pid, *watchdog.descendants(pid)]
        for pid in _KEEPER.orphans():
            yield from [pid, *watchdog.descendants(pid)]

    def _conclude(self) -> None:
        self._close()
        _KEEPER.reap_orphans()
        if not self._is_told:
            self.end = End.UNWATCHED
        if self._not_started is not None:
            _settle(self.started, self._not_started)
        if not self.started.done():
            _settle(self.started, OSError(errno.ECHILD, "the watchdog was killed while it started", self.program))
        if self.end is End.DEADLINE:
            _log.warning("%r (pid %s) was ended: its lease ran out", self.program, self.command)
        if not self._is_told and self.left:
            _settle(self.over, CommandStillRunning(self.program, self.left))
        else:
            _settle(self.over, self._code if self._code is not None else 128 + signal.SIGKILL)

    def abandon(self) -> None:
        """In a forked child: the descriptors are copies, and would hide this end's death from the watchdog."""
        if not self._is_closed:
            os.close(self.report)
            os.close(self._control)
        self._process.returncode = 0  # not this process's child


# The keeper: one thread for all commands of this process


class _Keeper:
    """Tends every command from one thread, which lives while there are any.

    Nothing here needs an event loop: a blocked one costs no command its life, and prolongs none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: list[_Watched] = []
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] | None = None
        self._knows_forks = False
        self._adopts_in: int | None = None
        self.births = threading.Lock()
        """Held while a watchdog is started, which is nobody's orphan."""

    def adopt(self) -> None:
        self._adopts_in = os.getpid()

    def orphans(self) -> list[int]:
        """What a watchdog that died has left to this process."""
        if self._adopts_in != os.getpid():
            return []
        with self.births:
            ours = {watched.watchdog_pid for watched in self._watched}
            return [pid for pid in watchdog.children_of(os.getpid()) if pid not in ours]

    def reap_orphans(self) -> None:
        for pid in self.orphans():
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # reaped already
                pass

    def add(self, watched: _Watched) -> None:
        with self._lock:
            self._watched.append(watched)
            if not self._knows_forks:
                os.register_at_fork(after_in_child=self._forget)
                self._knows_forks = True
            if self._thread is None:
                self._wake = os.pipe()
                for descriptor in self._wake:
                    os.set_blocking(descriptor, False)
                self._thread = threading.Thread(target=self._run, name="tenure-commands", daemon=True)
                self._thread.start()
        self.wake()

    def wake(self) -> None:
        with self._lock:
            if self._wake is not None:
                try:
                    os.write(self._wake[1], b"!")
                except BlockingIOError:  # it is being woken already
                    pass

    def _run(self) -> None:
        while True:
            with self._lock:
                self._watched = [watched for watched in self._watched if not watched.is_over]
                tended = list(self._watched)
                assert self._wake is not None
                if not tended:
                    for descriptor in self._wake:
                        os.close(descriptor)
                    self._thread = self._wake = None
                    return
                woken = self._wake[0]
            wait = min(self._tend(watched) for watched in tended)
            poll = select.poll()
            poll.register(woken, select.POLLIN)
            for watched in tended:
                if not watched.is_silent:
                    poll.register(watched.report, select.POLLIN)
            if (woken, select.POLLIN) in poll.poll(math.ceil(wait * 1000)):
                os.read(woken, 4096)

    @staticmethod
    def _tend(watched: _Watched) -> float:
        try:
            return watched.tend()
        except Exception:
            # Not fed, it ends in time; and the others are fed all the same.
            _log.exception("could not tend %r", watched.program)
            return _FEED_SECONDS

    def _forget(self) -> None:
        self._lock, self.births = threading.Lock(), threading.Lock()
        for watched in self._watched:
            watched.abandon()
        if self._wake is not None:
            for descriptor in self._wake:
                os.close(descriptor)
        self._watched, self._thread, self._wake = [], None, None


_KEEPER = _Keeper()


def adopt_orphans() -> bool:
    """For a process that starts no children but by this module: what a killed watchdog leaves behind becomes a child of
    this process, whatever it did to its session and its environment, and is ended. False: this system cannot."""
    if not watchdog.Kernel().subreap():
        return False
    _KEEPER.adopt()
    return True


# Parts


def _spawn(
    command: Command,
    env: Mapping[str, str],
    deadline: Callable[[], float],
    background: Background,
    streams: tuple[int | None, int | None, int | None],
) -> _Watched:
    program = command.argv[0]
    if not sys.executable:
        raise ConfigError(f"{program!r} needs a Python interpreter to watch it, and sys.executable is not set")
    if _LINUX and not watchdog.shows_us():
        raise ConfigError(
            f"{program!r} cannot be watched: /proc is not mounted, or belongs to another PID namespace; mount it "
            "(`unshare` does so with --mount-proc)"
        )
    mark = new_id()
    environment = {**os.environ, **command.env, **env, watchdog.MARK: mark}
    for name, value in environment.items():
        if not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
            raise ConfigError(f"env has {name!r}: a name is text without '=', its value is text, and neither has a NUL")
    first, left = _instants(deadline)
    if first is None:
        raise LeadershipLost(f"{program!r} was not started: its deadline is not known")
    locale = environment.get("LC_CTYPE")
    heard, control = os.pipe()
    report, told = os.pipe()
    try:
        os.write(control, first.encode() + b"\n")  # before it starts, so that it never runs without one
        arguments = [
            *(str(heard), str(told), str(os.getpid()), str(math.ceil(command.terminate_within * 1000))),
            background.value,
            "-" if locale is None else f"={locale}",
            str(command.cwd) if command.cwd is not None else "",
            *command.argv,
        ]
        process = subprocess.Popen(  # noqa: S603 - running what the user names is what this is for
            # -I and -S: nothing of the environment or of site-packages gets into the watchdog.
            [sys.executable, "-I", "-S", str(Path(watchdog.__file__).resolve()), *arguments],
            env=environment,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            pass_fds=(heard, told),
            start_new_session=True,  # what the terminal sends to this process's group is not for the watchdog
        )
    except BaseException:
        os.close(control)
        os.close(report)
        raise
    finally:
        os.close(heard)
        os.close(told)
    for descriptor in (control, report):
        os.set_blocking(descriptor, False)
    return _Watched(
        program=program,
        mark=mark,
        process=process,
        control=control,
        report=report,
        deadline=deadline,
        span=left if math.isfinite(left) else 0.0,
    )


def _instants(deadline: Callable[[], float]) -> tuple[str | None, float]:
    """The message that moves the deadline, and the seconds it grants; no message if `deadline` does not say.

    The clocks are read first: a pause before `deadline` answers makes the instant earlier than it might be, not later.
    """
    now = SYSTEM_CLOCK.read()
    try:
        left = float(deadline())
    except Exception as error:
        _log.error("a command's deadline is not known: %s", type(error).__name__)  # not its text: it may hold a secret
        return None, math.inf
    if left == math.inf:
        return "until never", left
    left = min(max(0.0, left), _LONGEST_SECONDS) if math.isfinite(left) else 0.0
    unslewed = now.raw_ns + now.boottime_ns - now.monotonic_ns
    return f"until {now.boottime_ns + int(left * _NS)} {unslewed + int(left * _NS)}", left


def _why_not(program: str, stage: str, number: int) -> Exception:
    if stage == "proc":
        return ConfigError(f"{program!r} cannot be watched: /proc does not show this process; mount it")
    if stage == "cwd":
        return ConfigError(f"cwd of {program!r} cannot be entered: {os.strerror(number)}")
    if number in _CANNOT_RUN:
        return ConfigError(f"the program {program!r} {_CANNOT_RUN[number]}: give its full path, or check PATH")
    return OSError(number, os.strerror(number), program)


def _carries(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, or another user's
        return False


def _pending() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # who waits for it may be cancelled, and it goes on
    return future


def _settle(future: Future[Any], result: object) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
