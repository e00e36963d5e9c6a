"""What a supervisor runs: an async callable, an object with `start` and `stop`, or an OS command.

Child("mailer", send_mails)                      # async def send_mails(context): ...
Child("api", ApiServer())                        # async def start(context); async def stop()
Child("sync", Command("rsync", "-a", "in/", "out/"))
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from tenure.coordinator.given import check_instance, shown
from tenure.coordinator.lead import Lead
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database import Database
from tenure.errors import ConfigError

if TYPE_CHECKING:
    from tenure.clock import Clock

MAX_NAME = 64
STARTS_PER_TERM = 1 << 20


class Restart(enum.Enum):
    """When a child that has ended is started again."""

    PERMANENT = "permanent"
    """Always: it is meant to run for as long as this process leads."""
    TRANSIENT = "transient"
    """If it failed; one that returned, or exited with 0, has done its work for this term."""
    TEMPORARY = "temporary"
    """Never."""


class ChildState(enum.Enum):
    WAITING = "waiting"
    """Not started yet in this term."""
    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing-off"
    """It failed, and is started again after a pause."""
    COMPLETED = "completed"
    """It returned, and is not started again."""
    FAILED = "failed"
    """It failed more often than its restart intensity allows, and is left alone for this term."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    OVERRAN = "overran"
    """It was told to stop and has not."""


class ChildStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One child, as its supervisor sees it. Readable from any worker."""

    name: str
    state: ChildState
    token: int = 0
    """Of its last start."""
    starts: int = 0
    """In this term."""
    failures: int = 0
    """In this term."""
    last_error: str | None = None
    since: float = 0.0
    """Seconds since 1970 on the leader's wall clock when this state began: for people."""
    pid: int | None = None


class Context:
    """Handed to a child at each start: under which leadership it runs.

    `token` rises with every start of this child, on whichever node: give it to whatever the child writes to, and have
    that refuse a lower one than it has seen.
    """

    def __init__(
        self,
        *,
        name: str,
        token: int,
        node: str,
        database: Database,
        coordinator: GlobalCoordinatorService | None,
        lead: Lead | None,
        clock: Clock,
        statuses: Callable[[], tuple[ChildStatus, ...]] = lambda: (),
    ) -> None:
        self.name = name
        self.token = token
        self.node = node
        """This worker's id."""
        self.database = database
        self.coordinator = coordinator
        """`None` under static assignment, where nobody is elected."""
        self.lead = lead
        """`None` under static assignment."""
        self.clock = clock
        self._statuses = statuses

    @property
    def epoch(self) -> int:
        """0 under static assignment."""
        return self.lead.epoch if self.lead is not None else 0

    def children(self) -> tuple[ChildStatus, ...]:
        """Every child of the supervisor that runs this one, itself included."""
        return self._statuses()

    def remaining(self) -> float:
        """Seconds for which this node leads even if no renewal gets through any more."""
        return self.lead.remaining() if self.lead is not None else float("inf")


@runtime_checkable
class Service(Protocol):
    """A child with a life of its own. `start` returns when it is up, `stop` when it has ended.

    An optional `async def wait(self)` returns, or raises, when it has ended by itself; without it, it is taken to run
    until it is stopped.
    """

    async def start(self, context: Context) -> None: ...

    async def stop(self) -> None: ...


class Command:
    """An OS command. Its whole process tree is ended before the lease can pass to another node.

    It gets `TENURE_EPOCH`, `TENURE_TOKEN`, `TENURE_NAMESPACE` and `TENURE_WORKER_ID` in its environment. It is told to
    end by SIGTERM, and killed when it has not ended `terminate_within` seconds later, or when the lease runs out.
    """

    def __init__(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        terminate_within: float = 5.0,
    ) -> None:
        """`env` is added to this process's environment."""
        if not argv or argv[0] == "":
            raise ConfigError("argv is empty: give the program and its arguments, e.g. Command('sleep', '5')")
        for word in argv:
            if not isinstance(word, str) or "\0" in word:
                raise ConfigError(f"argv has {shown(word)}: every argument is text without NUL")
        if len(argv) == 1 and " " in argv[0] and not Path(argv[0]).exists():
            raise ConfigError(
                f"argv is the single word {argv[0]!r}: give each argument by itself, e.g. Command('sleep', '5'); for a "
                "shell's syntax use Command('sh', '-c', …)"
            )
        if isinstance(terminate_within, bool) or not isinstance(terminate_within, int | float):
            raise ConfigError(f"terminate_within is {terminate_within!r}: give seconds")
        if not 0 < terminate_within <= 3600:
            raise ConfigError(f"terminate_within is {shown(terminate_within)}: give seconds, over 0 and at most 3600")
        if env is not None:
            check_instance("env", env, Mapping)
            for name, value in env.items():
                if not isinstance(name, str) or not isinstance(value, str) or "\0" in name + value or "=" in name:
                    raise ConfigError(  # without the value, which may be a secret
                        f"env has {shown(name)}: names and values are text without NUL, and names without ="
                    )
        if cwd is not None and (not isinstance(cwd, str | Path) or "\0" in str(cwd)):
            raise ConfigError(f"cwd is {shown(cwd)}: give the path of a folder")
        self.argv = argv
        self.env = dict(env) if env is not None else {}
        self.cwd = Path(cwd) if cwd is not None else None
        self.terminate_within = float(terminate_within)

    def __repr__(self) -> str:
        return f"Command({self.argv[0]!r}, …)" if len(self.argv) > 1 else f"Command({self.argv[0]!r})"


AsyncCallable: TypeAlias = Callable[..., Coroutine[Any, Any, object]]
Runnable: TypeAlias = AsyncCallable | Service | type[Service] | Command
"""A class is made anew for each start."""


class Child(msgspec.Struct, frozen=True):
    """One thing to run, and how to treat it."""

    name: str
    runs: Runnable
    restart: Restart | str = Restart.PERMANENT
    stop_within: float = 5.0
    """Seconds that it gets to end, at most; less if the lease leaves less."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= MAX_NAME or not self.name.isprintable():
            raise ConfigError(f"the child's name is {shown(self.name)}: give 1 to {MAX_NAME} printable characters")
        try:
            msgspec.structs.force_setattr(self, "restart", Restart(self.restart))
        except ValueError:
            choices = ", ".join(repr(each.value) for each in Restart)
            raise ConfigError(f"restart of child {self.name!r} is {self.restart!r}: it must be {choices}") from None
        if isinstance(self.stop_within, bool) or not isinstance(self.stop_within, int | float):
            raise ConfigError(f"stop_within of child {self.name!r} is {self.stop_within!r}: give seconds")
        if not 0 < self.stop_within <= 3600:
            raise ConfigError(
                f"stop_within of child {self.name!r} is {shown(self.stop_within)}: over 0 and at most 3600 s"
            )
        if isinstance(self.runs, Command) or all(
            callable(getattr(self.runs, name, None)) for name in ("start", "stop")
        ):
            return
        if isinstance(self.runs, type):
            raise ConfigError(f"child {self.name!r} is the class {self.runs.__name__}, which needs start and stop")
        if not callable(self.runs):
            raise ConfigError(
                f"child {self.name!r} is {self.runs!r}: give an async function, an object with start and stop, or a "
                "Command"
            )
        call = self.runs if inspect.isroutine(self.runs) else getattr(self.runs, "__call__", self.runs)  # noqa: B004
        if not inspect.iscoroutinefunction(inspect.unwrap(call)) and not hasattr(self.runs, "func"):
            raise ConfigError(
                f"child {self.name!r} is a plain function, which could not be stopped: make it `async def`, and use "
                "asyncio.to_thread inside it for what blocks"
            )


def token_of(epoch: int, start: int) -> int:
    """Rises with every start of one child: within a term by its number, between terms by the epoch."""
    if not 0 < start < STARTS_PER_TERM:
        raise ConfigError(f"start number {start} in one term: over {STARTS_PER_TERM - 1} starts are not counted")
    return epoch * STARTS_PER_TERM + start


def takes_context(call: Callable[..., object]) -> bool:
    """Does it want the context? One without parameters is called without."""
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        return True
    return any(
        parameter.default is parameter.empty or parameter.kind is parameter.VAR_POSITIONAL
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.KEYWORD_ONLY and parameter.kind is not parameter.VAR_KEYWORD
    )
