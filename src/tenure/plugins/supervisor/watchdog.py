"""A process that runs one command, and has ended all of its process tree before an instant that only its parent moves.

    python -I -S watchdog.py CONTROL REPORT PARENT TERMINATE_WITHIN_MS BACKGROUND LC_CTYPE CWD PROGRAM [ARGUMENT ...]

Started by `tenure.plugins.supervisor.command`, whose environment the command inherits. It imports nothing of tenure,
and little else: it starts quickly, stays small, and shares no lock, loop or thread with the program that it outlives.

Over the pipe CONTROL it is told, a line at a time:

    until BOOTTIME UNSLEWED     may run until this instant of both clocks, in nanoseconds; replaces the one before
    until never                 no lease bounds it
    stop BOOTTIME               tell it to end, and kill what is left at this instant
    signal NUMBER               pass this signal on to the command's own process

It answers over the pipe REPORT: `started PID WATCHDOG`, `failed cwd|exec ERRNO`, `late`, `background`, `left PID ...`,
`broken TYPE`, and at last `ended CODE exited|stopped|deadline`, which is said only when nothing of the tree is left,
not even a zombie.

Guarantee (Linux): SIGTERM to the tree some time before the instant, SIGKILL to all of it a margin before, again and
again until it is reaped. The parent may be frozen, dead, or wedged: the instant comes all the same, in time that
counts suspend. If the parent dies, or says what cannot be understood, the tree is ended at once. When the command's
own process ends, what it left behind is ended as well: SIGTERM, then SIGKILL. Where BACKGROUND is `follow`, and its own
process ended with 0, that is taken for a program that moves to the background, and watched until the last of it ends;
its exit code is then that of the last.

It is two processes. The one that was started only stands behind the other, which does all of this: if that one is
stopped, it is told to go on at once; if it is killed, the kernel kills the command's own process with it (PDEATHSIG),
the rest of the tree becomes the first one's, and is killed. If the first one is killed, the other ends the tree. So any
one of parent, first and second may be missing, and parent and one of the others too.

Assumption: not both of them are killed at the same instant. Then the parent looks for the rest, if it lives.

Not guaranteed: what the tree asks *others* to run (a container engine, cron, systemd-run) is not of the tree. A program
that changes its user (sudo) may not be ours to kill, and is reported. A process in an uninterruptible system call dies
when that returns, and is reported until then. A machine that is frozen as a whole runs on from where it was, and the
tree with it, for the few milliseconds until the watchdog has its turn: the command's token fences those.

Other systems have no subreaper, no PDEATHSIG and no /proc: there the command's process group is ended, and a program
that leaves the group escapes. Written for them, and untested there.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # typing itself takes longer to import than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "TENURE_COMMAND_ID"
"""In the environment of the command, and so of whatever it starts, unless that clears it."""

NANO = 1_000_000_000
MAX_LINE = 4096
LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TFD_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
_TFD_TIMER_ABSTIME = 1
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_RAW = getattr(time, "CLOCK_MONOTONIC_RAW", time.CLOCK_MONOTONIC)

_WITHOUT_TIMER = 0.050
_WITHOUT_PIDFD = 1.0
_LONGEST_WAIT = 3600.0
_STOPPING_LOOK = 0.250
_FIRST_KILLS = 0.005
_LATER_KILLS = 0.050
_KILLS_LATER_AFTER = 1.0
_REPORT_LEFT_AFTER = 0.5
_MAX_REPORTED = 32
PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT", "SIGTERM")
)
"""Signals that may be passed on to the command."""
FOLLOW = "follow"
END = "end"


# When to act


def kill_margin(span: float) -> float:
    """Seconds before the deadline at which what is left gets SIGKILL; `span` is the longest that was ever granted.

    A tree of hundreds is reaped within some ten milliseconds; the rest is for a machine under load.
    """
    return min(1.0, max(0.2, span / 10), span / 2)


def notice(span: float, terminate_within: float) -> float:
    """Seconds before the deadline at which the tree gets SIGTERM.

    At most a quarter of the lease, because a leader may renew it until two thirds of it are over.
    """
    margin = kill_margin(span)
    return min(terminate_within + margin, max(margin, span / 4))


def now_ns() -> tuple[int, int]:
    """BOOTTIME, and MONOTONIC_RAW plus what was slept through: NTP may slow the first, and not the second.

    MONOTONIC is read first: a pause between the readings makes it later, which ends a command earlier.
    """
    monotonic = time.clock_gettime_ns(time.CLOCK_MONOTONIC)  # noqa: TID251 - this process has no tenure.clock
    boottime = time.clock_gettime_ns(_BOOTTIME)  # noqa: TID251
    raw = time.clock_gettime_ns(_RAW)  # noqa: TID251
    return boottime, raw + boottime - monotonic


# The process tree, as /proc shows it


class Process:
    """What one line of /proc says of a process."""

    __slots__ = ("group", "has_ended", "parent", "pid", "session")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid = pid
        self.parent, self.group, self.session = (int(field) for field in fields[1:4])
        # A zombie runs nothing any more, unless only its first thread has ended.
        self.has_ended = fields[0] in (b"Z", b"X") and int(fields[17]) <= 1


def look_at(pid: int) -> Process | None:
    """`None`: it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs more than this whole program
            # The name stands in parentheses, and may hold spaces and parentheses of its own.
            return Process(pid, file.read().rpartition(b")")[2].split())
    except (OSError, IndexError, ValueError):
        return None


def shows_us() -> bool:
    """Is this the /proc of our own PID namespace? One of another, or none, would hide the tree."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115
    except OSError:
        return False


def all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return []


def children_of(pid: int) -> list[int]:
    """Those of all of its threads. One that comes or goes meanwhile may be missed: ask again."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += [int(word) for word in file.read().split()]
        except (OSError, ValueError):
            continue
    return found


def descendants(root: int) -> Iterator[int]:
    """All below `root`, parents before their children, found while they are asked for."""
    if os.path.exists(f"/proc/{root}/task/{root}/children"):  # noqa: PTH110
        below = children_of
    else:  # a kernel without CONFIG_PROC_CHILDREN
        table: dict[int, list[int]] = {}
        for pid in all_pids():
            process = look_at(pid)
            if process is not None:
                table.setdefault(process.parent, []).append(pid)

        def below(pid: int) -> list[int]:
            return table.get(pid, [])

    seen = {root}
    level = [root]
    while level:
        following: list[int] = []
        for parent in level:
            for pid in below(parent):
                if pid not in seen:
                    seen.add(pid)
                    following.append(pid)
                    yield pid
        level = following


def kill_each(pids: Iterator[int], spared_sessions: frozenset[int]) -> list[int]:
    """SIGKILL to each, and to the whole group of each at once: nothing that forks slips through in its own group.

    Who shares a group shares a session, and all of a session descend from the process that began it. So a group outside
    `spared_sessions`, those of the callers, holds nobody but the tree. Returns those that had not ended.
    """
    found: list[int] = []
    groups: set[int] = set()
    for pid in pids:
        process = look_at(pid)
        if process is None or process.has_ended:
            continue
        found.append(pid)
        if process.session not in spared_sessions and process.group > 1 and process.group not in groups:
            groups.add(process.group)
            send(-process.group, signal.SIGKILL)
        send(pid, signal.SIGKILL)
    return found


def send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except OSError:  # it is gone, or it is not ours to signal: either shows when we look again
        return False
    return True


# The kernel


class Kernel:
    """The system calls that Python 3.11 has no names for. Each is done without where it is missing."""

    def __init__(self) -> None:
        self._libc = None
        if LINUX:
            try:
                import ctypes

                self._ctypes = ctypes
                self._libc = ctypes.CDLL(None, use_errno=True)
            except (ImportError, OSError):
                pass

    def prctl(self, option: int, value: int) -> bool:
        if self._libc is None:
            return False
        long = self._ctypes.c_ulong
        return bool(self._libc.prctl(option, long(value), long(0), long(0), long(0)) == 0)

    def subreap(self) -> bool:
        """Orphans of this process's descendants become its children."""
        return self.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def timer(self) -> int | None:
        """A descriptor that can be read when its instant of BOOTTIME has come, also if that came in suspend."""
        if self._libc is None or not hasattr(self._libc, "timerfd_create"):
            return None
        descriptor = int(self._libc.timerfd_create(_BOOTTIME, _TFD_FLAGS))
        return descriptor if descriptor >= 0 else None

    def set_timer(self, descriptor: int, instant_ns: int) -> None:
        assert self._libc is not None
        seconds, rest = divmod(max(instant_ns, 1), NANO)
        setting = (self._ctypes.c_long * 4)(0, 0, seconds, rest)
        self._libc.timerfd_settime(descriptor, _TFD_TIMER_ABSTIME, self._ctypes.byref(setting), None)


# The watchdog


class Misunderstood(Exception):
    """The parent said what it never says."""


class Watchdog:
    def __init__(self, control: int, report: int, parent: int, terminate_within: float, follows: bool) -> None:
        self._control = control
        self._report = report
        self._parent = parent
        self._terminate_within = terminate_within
        self._follows = follows
        self._in_background = False
        self._kernel = Kernel()
        self._reaps_tree = False
        self._poll = select.poll()
        self._timer: int | None = None
        self._parent_fd: int | None = None
        self._wakeups = -1
        self._starting: int | None = None

        self._heard = b""
        self._orphaned = False
        self._signalled = False
        self._until: tuple[int, int] | None = None
        self._told_until = False
        self._span = 0.0
        self._behind = os.getppid()

        self._command = 0
        self._code: int | None = None
        self._why: str | None = None
        self._kill_at_ns: int | None = None
        self._killing_since_ns: int | None = None
        self._reported: list[int] = []
        self._terminated: set[int] = set()

    def run(self, argv: list[str], cwd: str, environment: dict[str, str]) -> None:
        if LINUX and not shows_us():
            self._say(f"failed proc {errno.ENOSYS}")
            return
        self._reaps_tree = self._kernel.subreap()
        self._prepare()
        self._listen()
        # Right before the fork: after a stall nothing is started any more.
        if self._orphaned or not self._told_until or self._left() <= self._notice():
            self._say("late")
            return
        self._start(argv, cwd, environment)
        try:
            self._follow()
        except BaseException as error:
            self._say(f"broken {type(error).__name__}")
            self._kill_to_the_last()
            raise
        self._say(f"ended {self._code if self._code is not None else 128 + signal.SIGKILL} {self._why or 'exited'}")

    def _follow(self) -> None:
        while self._reap():
            self._decide()
            self._wait()
            self._listen()

    # Starting

    def _prepare(self) -> None:
        for descriptor in (self._control, self._report):
            os.set_inheritable(descriptor, False)
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._poll.register(self._control, select.POLLIN)
        self._timer = self._kernel.timer()
        if self._timer is not None:
            self._poll.register(self._timer, select.POLLIN)
        if hasattr(os, "pidfd_open"):
            # A sign of the parent's death that no forked copy of its descriptors can hide.
            try:
                self._parent_fd = os.pidfd_open(self._parent)
                self._poll.register(self._parent_fd, select.POLLIN)
            except OSError:
                pass
        if not self._has_parents():
            self._orphaned = True

    def _start(self, argv: list[str], cwd: str, environment: dict[str, str]) -> None:
        self._starting, told = os.pipe()
        myself = os.getpid()
        self._command = os.fork()  # this process has one thread, so its child may do as it likes before exec
        if self._command == 0:
            self._become(argv, cwd, environment, told, myself)
        os.close(told)
        self._poll.register(self._starting, select.POLLIN)
        self._wakeups, wake = os.pipe()
        for descriptor in (self._wakeups, wake):
            os.set_blocking(descriptor, False)
        self._poll.register(self._wakeups, select.POLLIN)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, self._note_signal)
        # The command's output ends when the command does, whoever watches it.
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.close(nothing)
        try:
            os.setpriority(os.PRIO_PROCESS, 0, -20)  # on a machine that is too busy, first of all the kill
        except OSError:
            pass

    def _become(self, argv: list[str], cwd: str, environment: dict[str, str], told: int, watchdog: int) -> None:
        """In the child: be the command, or say why not."""
        stage = "exec"
        try:
            self._kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != watchdog:
                os._exit(127)  # it died before we asked to die with it
            os.setsid()
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            if cwd:
                stage = "cwd"
                os.chdir(cwd)
                stage = "exec"
            os.execvpe(argv[0], argv, environment)  # noqa: S606 - no shell, on purpose
        except OSError as error:
            os.write(told, f"{stage} {error.errno or errno.EIO}".encode())
        except BaseException:
            os.write(told, f"{stage} {errno.EINVAL}".encode())
        finally:
            os._exit(127)

    # Listening

    def _listen(self) -> None:
        try:
            while not self._orphaned:
                try:
                    told = os.read(self._control, 65536)
                except BlockingIOError:
                    break
                if not told:
                    raise Misunderstood("the parent is gone")
                self._heard += told
                *lines, self._heard = self._heard.split(b"\n")
                if len(self._heard) > MAX_LINE:
                    raise Misunderstood("a line has no end")
                for line in lines:
                    self._obey(line)
            if not self._orphaned and not self._has_parents():
                raise Misunderstood("the parent is gone")
        except Misunderstood:
            # One that talks nonsense is as good as gone: nobody moves the deadline any more.
            self._orphaned = True
        if self._orphaned:
            for descriptor in (self._control, self._parent_fd):
                self._unregister(descriptor)
            self._parent_fd = None

    def _has_parents(self) -> bool:
        """Those that are missing without a descriptor telling us."""
        if os.getppid() != self._behind:
            return False
        return self._parent_fd is not None or self._behind == self._parent or send(self._parent, 0)

    def _obey(self, line: bytes) -> None:
        words = line.split(b" ")
        if words == [b"until", b"never"]:
            self._until, self._told_until = None, True
        elif len(words) == 3 and words[0] == b"until":
            self._until, self._told_until = (_instant(words[1]), _instant(words[2])), True
            self._span = max(self._span, self._left())
        elif len(words) == 2 and words[0] == b"stop":
            self._stop("stopped", _instant(words[1]))
        elif len(words) == 2 and words[0] == b"signal" and _instant(words[1]) in PASSED_ON:
            self._pass_on(_instant(words[1]))
        else:
            raise Misunderstood("no such word")

    def _pass_on(self, number: int) -> None:
        """Nobody but us reaps it, so its number is still its own; of what is in the background, the topmost."""
        if self._command and self._code is None:
            send(self._command, number)
        elif self._in_background:
            for pid in children_of(os.getpid()):
                send(pid, number)

    def _note_signal(self, number: int, frame: object) -> None:
        self._signalled = True

    # Deciding

    def _left(self) -> float:
        """Seconds until the deadline, by the clock on which it comes first."""
        if self._until is None:
            return float("inf")
        return min(until - now for until, now in zip(self._until, now_ns(), strict=True)) / NANO

    def _notice(self) -> float:
        return notice(self._span, self._terminate_within)

    def _stop(self, why: str, kill_at_ns: int) -> None:
        """Once it is told to end it stays told, and the kill is only ever put earlier."""
        self._why = self._why or why
        self._kill_at_ns = kill_at_ns if self._kill_at_ns is None else min(self._kill_at_ns, kill_at_ns)

    def _decide(self) -> None:
        gracefully = now_ns()[0] + int(self._terminate_within * NANO)
        if self._orphaned or self._signalled:
            self._stop("stopped", gracefully)
        if self._why is None and self._code is not None and not self._moved_to_background():
            self._stop("exited", gracefully)
        if self._why is None and self._left() <= self._notice():
            self._stop("deadline", gracefully)
        if self._why is None:
            return
        if self._until_kill() > 0:
            self._terminate()
        else:
            self._kill()

    def _moved_to_background(self) -> bool:
        """Its own process has ended, and something of its tree has not."""
        if self._follows and self._code == 0 and not self._in_background:
            self._in_background = True
            self._say("background")
        return self._in_background

    def _until_kill(self) -> float:
        if self._killing_since_ns is not None or self._kill_at_ns is None:
            return 0.0
        return min((self._kill_at_ns - now_ns()[0]) / NANO, self._left() - kill_margin(self._span))

    def _terminate(self) -> None:
        """SIGTERM, once to each. The whole list first: one that ends sends its children up to us, who have looked."""
        fresh = [pid for pid in self._tree() if pid not in self._terminated]
        if LINUX and self._code is None and self._command not in (*fresh, *self._terminated):
            fresh.append(self._command)
        for pid in fresh:
            if send(pid, signal.SIGTERM):
                send(pid, signal.SIGCONT)  # one that is stopped would never hear of it
        self._terminated.update(fresh)

    def _kill(self) -> None:
        now = now_ns()[0]
        if self._killing_since_ns is None:
            self._killing_since_ns = now
        if self._command and self._code is None:  # not reaped, so its number is its own: whatever /proc shows
            send(-self._command, signal.SIGKILL)
            send(self._command, signal.SIGKILL)
        left = kill_each(self._tree(), frozenset({os.getsid(0)})) if LINUX else [self._command]
        if (now - self._killing_since_ns) / NANO > _REPORT_LEFT_AFTER and left and left != self._reported:
            self._reported = left
            self._say("left " + " ".join(str(pid) for pid in left[:_MAX_REPORTED]))

    def _tree(self) -> Iterator[int]:
        return descendants(os.getpid()) if LINUX else iter((-self._command,))

    def _kill_to_the_last(self) -> None:
        """When this program itself is at fault."""
        while self._reap():
            self._kill()
            self._poll_for(_LATER_KILLS)

    # Waiting

    def _reap(self) -> bool:
        """Is anybody left? Orphans of the tree become our children, so without a child there is no tree."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return not self._reaps_tree and self._group_lives()
            if pid == 0:
                return True
            self._terminated.discard(pid)
            if pid == self._command or self._in_background:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code
                self._note_start()

    def _group_lives(self) -> bool:
        try:
            os.killpg(self._command, 0)
        except ProcessLookupError:
            return False
        except OSError:
            pass
        return True

    def _wait(self) -> None:
        if self._killing_since_ns is not None:
            killing_for = (now_ns()[0] - self._killing_since_ns) / NANO
            self._poll_for(_FIRST_KILLS if killing_for < _KILLS_LATER_AFTER else _LATER_KILLS)
        elif self._why is not None:
            self._poll_for(min(self._until_kill(), _STOPPING_LOOK))
        else:
            self._poll_for(self._left() - self._notice())

    def _poll_for(self, seconds: float) -> None:
        # BOOTTIME may be slewed by up to 8 %: most of the way first, and the rest when we see where the others are.
        seconds = min(_LONGEST_WAIT, max(0.0, seconds if seconds < 0.05 else seconds * 0.9))
        if self._parent_fd is None and not self._orphaned:
            seconds = min(seconds, _WITHOUT_PIDFD)
        if self._timer is None:
            seconds = min(seconds, _WITHOUT_TIMER)
        else:
            self._kernel.set_timer(self._timer, now_ns()[0] + int(seconds * NANO))
        ready = self._poll.poll(int(seconds * 1000) + 1)
        for descriptor, _ in ready:
            if descriptor == self._wakeups:
                os.read(self._wakeups, 65536)
            elif descriptor == self._starting:
                self._note_start()
            elif descriptor == self._parent_fd:
                self._orphaned = True

    def _note_start(self) -> None:
        """The child's end of this pipe closes by exec; before that it may hold why there was none."""
        if self._starting is None:
            return
        why = os.read(self._starting, 64)
        self._unregister(self._starting)
        os.close(self._starting)
        self._starting = None
        self._say(f"failed {why.decode()}" if why else f"started {self._command} {os.getpid()}")

    def _unregister(self, descriptor: int | None) -> None:
        if descriptor is not None:
            try:
                self._poll.unregister(descriptor)
            except KeyError:
                pass

    def _say(self, line: str) -> None:
        try:
            os.write(self._report, line.encode() + b"\n")
        except OSError:  # nobody listens any more
            pass


# The one behind


def stand_behind(control: int, report: int) -> None:
    """Returns in a new process, which is to be the watchdog; this one stays behind it until all is over."""
    kernel = Kernel()
    if not kernel.subreap():
        return  # nothing of the tree would become ours
    behind = os.getpid()
    watchdog = os.fork()
    if watchdog == 0:
        kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != behind:
            os._exit(1)
        return
    # Nobody is to wait for an end of these that is only held here.
    os.close(control)
    os.close(report)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    _keep_going(watchdog)
    while _any_left():
        kill_each(descendants(behind), frozenset({os.getsid(0)}))
        select.select((), (), (), _FIRST_KILLS)
    os._exit(1)


def _keep_going(watchdog: int) -> None:
    """Returns when it was killed; ends this process when it has ended as it should."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WUNTRACED)
        except ChildProcessError:
            return
        if pid == watchdog and os.WIFSTOPPED(status):
            send(watchdog, signal.SIGCONT)
        elif pid == watchdog and status == 0:
            os._exit(0)
        elif pid == watchdog:
            return


def _any_left() -> bool:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def _instant(word: bytes) -> int:
    if not word.isdigit() or len(word) > 19:
        raise Misunderstood("not an instant")
    return int(word)


def _wake(number: int, frame: object) -> None:
    """For SIGCHLD: the wakeup descriptor says all. (If it were ignored, the kernel would reap, and keep the codes.)"""


def main(arguments: list[str]) -> None:
    control, report, parent, terminate_within_ms = (int(word) for word in arguments[:4])
    background, locale, cwd, *argv = arguments[4:]
    environment = dict(os.environ)
    # Python sets this one when it starts in the C locale, and the command would inherit it.
    environment.pop("LC_CTYPE", None)
    if locale.startswith("="):
        environment["LC_CTYPE"] = locale[1:]
    # Whoever started us may have ignored it, and then nobody would be told of a child's end.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stand_behind(control, report)
    watchdog = Watchdog(control, report, parent, terminate_within_ms / 1000, background == FOLLOW)
    watchdog.run(argv, cwd, environment)


if __name__ == "__main__":
    status = 1
    try:
        main(sys.argv[1:])
        status = 0
    finally:
        # Nothing here needs taking down, and the parent waits for the end. What went wrong it was told over the pipe.
        os._exit(status)
