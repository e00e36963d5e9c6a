"""What a job does when it fires: call a function on the leader, put a message on a queue, or run an OS command.

All of it lies in the bucket, readable by whoever may read it: a payload, a message's body and a command's arguments are
no place for a secret. A command finds its secrets in the environment of the process that leads, or in a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from tenure.coordinator.layout import check_name
from tenure.errors import ConfigError
from tenure.plugins.queue.outgoing import options_from
from tenure.plugins.queue.wire import MAX_ATTEMPTS, MAX_DELAY_MS, MAX_HEADERS, MAX_PRIORITY, Headers, Key, Milliseconds
from tenure.plugins.supervisor.child import Command

MAX_FUNCTION_CHARACTERS = 128
MAX_QUEUE_CHARACTERS = 64
MAX_OWN_HEADERS = MAX_HEADERS - 3
"""The others are those that a run adds: its job, its instant, its token."""
MAX_ARGUMENTS = 1000
MAX_CWD_CHARACTERS = 4096
LONGEST_TERMINATE_MS = 3_600_000


class FunctionTarget(msgspec.Struct, frozen=True, gc=False, tag="function", tag_field="kind", omit_defaults=True):
    """A function that is registered under this name in the process that leads."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_FUNCTION_CHARACTERS)]
    payload: Any = None


class QueueTarget(msgspec.Struct, frozen=True, tag="queue", tag_field="kind", omit_defaults=True, rename="camel"):
    """A message on a queue, with the options of `enqueue`."""

    queue: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_QUEUE_CHARACTERS)]
    body: Any = None
    priority: Annotated[int, msgspec.Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0
    ordering_key: Key = ""
    """Empty: none."""
    delay_ms: Milliseconds = 0
    max_attempts: Annotated[int, msgspec.Meta(ge=0, le=MAX_ATTEMPTS)] = 0
    """0: as the queue says."""
    visibility_ms: Milliseconds = 0
    """0: as the queue says."""
    headers: Headers = {}


class CommandTarget(msgspec.Struct, frozen=True, tag="command", tag_field="kind", omit_defaults=True, rename="camel"):
    """An OS command, run where the leader is, with the environment of that process."""

    argv: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=MAX_ARGUMENTS)]
    cwd: Annotated[str, msgspec.Meta(max_length=MAX_CWD_CHARACTERS)] = ""
    """Empty: where the process that leads runs."""
    terminate_ms: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_TERMINATE_MS)] = 5000
    """From SIGTERM to SIGKILL."""


Target: TypeAlias = FunctionTarget | QueueTarget | CommandTarget

OF_FUNCTION = ("function", "payload")
OF_QUEUE = (
    "queue", "body", "priority", "ordering_key", "delay", "max_attempts", "visibility_timeout", "headers",
)  # fmt: skip
OF_COMMAND = ("command", "cwd", "terminate_within")
TARGET_OPTIONS = (*OF_FUNCTION, *OF_QUEUE, *OF_COMMAND)


def target_from(options: Mapping[str, Any]) -> Target:
    """The one thing that the options `TARGET_OPTIONS` name; refuses none, several, and what does not go with it."""
    kinds = {"function": OF_FUNCTION, "queue": OF_QUEUE, "command": OF_COMMAND}
    named = [kind for kind in kinds if options.get(kind) is not None]
    if len(named) != 1:
        raise ConfigError(
            f"a job has one target, and {' and '.join(named) if named else 'none'} of function=, queue= and command= "
            "is given: give exactly one"
        )
    for option in options:
        if option in TARGET_OPTIONS and option not in kinds[named[0]]:
            belongs = next(kind for kind, theirs in kinds.items() if option in theirs)
            raise ConfigError(f"{option} goes with {belongs}=, and this job has {named[0]}=: leave one of them out")
    if named == ["function"]:
        return check_target(FunctionTarget(options["function"], _json("payload", options.get("payload"))))
    if named == ["queue"]:
        return check_target(_queue_target(options))
    return check_target(_command_target(options))


def change_target(target: Target, options: Mapping[str, Any]) -> Target:
    """With some of its options changed; a new one, if another kind of target is named."""
    before = _options_of(target)
    kind = next(iter(before))
    others = {"function", "queue", "command"} - {kind}
    if any(options.get(other) is not None for other in others):
        return target_from(options)
    return target_from({**before, **options})


def _options_of(target: Target) -> dict[str, Any]:
    match target:
        case FunctionTarget():
            return {"function": target.name, "payload": target.payload}
        case QueueTarget():
            return {
                "queue": target.queue,
                "body": target.body,
                "priority": target.priority,
                "ordering_key": target.ordering_key or None,
                "delay": target.delay_ms / 1000,
                "max_attempts": target.max_attempts or None,
                "visibility_timeout": target.visibility_ms / 1000 or None,
                "headers": target.headers,
            }
        case CommandTarget():
            return {"command": target.argv, "cwd": target.cwd, "terminate_within": target.terminate_ms / 1000}


def _queue_target(options: Mapping[str, Any]) -> QueueTarget:
    chosen = options_from(
        delay=options.get("delay", 0.0),
        priority=options.get("priority", 0),
        ordering_key=options.get("ordering_key"),
        max_attempts=options.get("max_attempts"),
        visibility_timeout=options.get("visibility_timeout"),
        headers=options.get("headers"),
    )
    return QueueTarget(
        options["queue"],
        _json("body", options.get("body")),
        priority=chosen.priority,
        ordering_key=chosen.key,
        delay_ms=chosen.delay_ms,
        max_attempts=chosen.max_attempts,
        visibility_ms=chosen.visibility_ms,
        headers=chosen.headers,
    )


def _command_target(options: Mapping[str, Any]) -> CommandTarget:
    argv = options["command"]
    if isinstance(argv, str | bytes) or not isinstance(argv, list | tuple):
        raise ConfigError(
            f"command is {argv!r:.80}: give the program and its arguments, such as ('pg_dump', 'db'); for a shell's "
            "syntax ('sh', '-c', '…')"
        )
    cwd = options.get("cwd")
    if cwd is not None and not isinstance(cwd, str | Path):
        raise ConfigError(f"cwd is {cwd!r:.80}: give a folder")
    within = options.get("terminate_within", 5.0)
    number = within.total_seconds() if isinstance(within, timedelta) else within
    command = Command(*argv, terminate_within=number)  # refuses what cannot be, naming it
    return CommandTarget(tuple(argv), str(cwd) if cwd else "", max(1, round(command.terminate_within * 1000)))


def check_target(target: Target) -> Target:
    """Give back one that can be used; otherwise say what is wrong with it."""
    match target:
        case FunctionTarget():
            check_name("function", target.name, MAX_FUNCTION_CHARACTERS)
        case QueueTarget():
            check_name("queue", target.queue, MAX_QUEUE_CHARACTERS)
            if target.delay_ms > MAX_DELAY_MS:
                raise ConfigError(f"delay is {target.delay_ms / 1000:g} s: give at most {MAX_DELAY_MS // 1000:,}")
            if len(target.headers) > MAX_OWN_HEADERS:
                raise ConfigError(
                    f"headers has {len(target.headers)} entries: give at most {MAX_OWN_HEADERS}, for the schedule adds "
                    "three of its own"
                )
        case CommandTarget():
            if not target.argv or not target.argv[0]:
                raise ConfigError("command is empty: give the program and its arguments, such as ('pg_dump', 'db')")
            if len(target.argv) > MAX_ARGUMENTS:
                raise ConfigError(f"command has {len(target.argv):,} words: give at most {MAX_ARGUMENTS:,}")
            for word in (*target.argv, target.cwd):
                if not isinstance(word, str) or "\0" in word:
                    raise ConfigError(f"command has {word!r:.80}: every argument is text without NUL")
            if len(target.cwd) > MAX_CWD_CHARACTERS:
                raise ConfigError(f"cwd is {target.cwd!r:.80}…: give at most {MAX_CWD_CHARACTERS:,} characters")
        case _:
            raise ConfigError(f"target is {target!r:.80}: give function=, queue= or command=")
    return target


def _json(field: str, value: Any) -> Any:
    """As it comes back from the bucket: two definitions must not differ because one of them has been there."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise ConfigError(f"{field} is bytes: give text, numbers, lists, dicts, dataclasses or msgspec structs")
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{field} is a {type(value).__name__} that cannot be written as JSON ({error}): give text, numbers, lists, "
            "dicts, dataclasses or msgspec structs"
        ) from None
