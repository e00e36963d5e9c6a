"""The options by which a command is told how a coordinator keeps time: a preset, a lease, and single settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import click
import msgspec

from tenure.cli.durations import between, parse_duration
from tenure.cli.settings import COORDINATOR_TABLE, FILE, FILE_READ
from tenure.coordinator.config import CoordinatorConfig, MandateEnd
from tenure.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

SHORTEST_LEASE = 1.0
LONGEST_LEASE = 600.0
_PRESETS = {
    "fast": CoordinatorConfig.fast,
    "standard": CoordinatorConfig.standard,
    "economical": CoordinatorConfig.economical,
}
_NOT_HERE = {
    "membership": "--membership or --no-membership",
    "worker_id": "--worker-id",
    "lease_timeout": "--lease",
    "health_check": "--health-cmd",
    "hosting": "nothing: the command chooses",
    "contention": "contention.enabled, contention.threshold or contention.rate_limit",
    "circuit_breaker": "circuit_breaker.failure_threshold, .reset_timeout or .half_open_max_attempts",
}
_IN_A_FILE = {
    "membership": "membership in [run] or [plan]",
    "worker_id": "worker-id in [run]",
    "lease_timeout": "lease in [coordinator]",
    "health_check": "health-cmd in [run]",
}
_NESTED = ("contention", "circuit_breaker")
_MAX_SHOWN = 60


def timed(command: F) -> F:
    """Gives a command `preset`, `lease` and `settings`, for `config_from`."""
    for option in (
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="NAME=VALUE",
            help="Any other setting of CoordinatorConfig, e.g. heartbeat_interval=2s; may be repeated.",
        ),
        click.option(
            "--lease",
            type=between(SHORTEST_LEASE, LONGEST_LEASE),
            metavar="DURATION",
            help="How long a renewal lasts, e.g. 3s; every other interval follows in proportion.",
        ),
        click.option(
            "--preset",
            type=click.Choice(list(_PRESETS)),
            help="Timing: fast (lease 3s), standard (15s) or economical (90s).  [default: standard]",
        ),
    ):
        command = option(command)
    return command


def config_from(
    preset: str | None, lease: float | None, settings: tuple[str, ...] | list[str], **changes: Any
) -> CoordinatorConfig:
    """The config that these options, and the table `[coordinator]` of tenure.toml below them, ask for."""
    context = click.get_current_context(silent=True)
    table: dict[str, Any] = dict(context.meta.get(COORDINATOR_TABLE, {})) if context is not None else {}
    file = str(context.meta.get(FILE_READ, FILE)) if context is not None else FILE
    in_file = (table.pop("preset", None), table.pop("lease", None))
    if preset is None and lease is None:
        preset, lease = _preset_of(in_file[0], file), _lease_of(in_file[1], file)
        if preset is not None and lease is not None:
            raise ConfigError(f"{file}: [coordinator] has both preset and lease: keep one of them")
    if preset is not None and lease is not None:
        raise ConfigError("--preset and --lease: give one of them; --set changes single settings of a preset")
    try:
        from_file = _typed(table, in_file=True)
    except ConfigError as error:
        raise ConfigError(f"{file}, [coordinator]: {error}") from None
    named = _typed(_pairs(settings))
    seconds = lease
    make = _PRESETS[preset or "standard"]
    if seconds is not None:
        make = lambda **all_of: CoordinatorConfig.for_lease(seconds, **all_of)  # noqa: E731
    try:
        return _built(make, from_file | named | changes)
    except ConfigError as error:
        kept = {name.rpartition(".")[2] for name in from_file.keys() - named.keys() - changes.keys()}
        raise ConfigError(str(error) + _origin(str(error), kept, file)) from None


def _pairs(settings: Iterable[str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for pair in settings:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set is {_shown(pair)}: give NAME=VALUE, such as heartbeat_interval=2s")
        chosen[name.strip()] = value.strip()
    return chosen


def _origin(complaint: str, names: Iterable[str], file: str) -> str:
    """Which of the settings that a complaint is about nobody typed."""
    of_file = [name for name in sorted(names) if re.search(rf"\b{re.escape(name)}\b", complaint)]
    return f" ({' and '.join(of_file)}: from [coordinator] of {file})" if of_file else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _built(make: Callable[..., CoordinatorConfig], named: dict[str, Any]) -> CoordinatorConfig:
    """Nested settings change what the preset has in them."""
    flat = {name: value for name, value in named.items() if "." not in name}
    inner = {name: value for name, value in named.items() if "." in name}
    config = make(**flat)
    for name, value in inner.items():
        outer, _, field = name.partition(".")
        config = config.replace(**{outer: msgspec.structs.replace(getattr(config, outer), **{field: value})})
    return config


def _preset_of(value: Any, file: str) -> str | None:
    if value is not None and (not isinstance(value, str) or value not in _PRESETS):
        raise ConfigError(f"preset is {_shown(value)} in {file}: it must be one of {', '.join(_PRESETS)}")
    return value


def _lease_of(value: Any, file: str) -> float | None:
    if value is None:
        return None
    seconds = parse_duration(value) if isinstance(value, str) else None
    if seconds is None or not SHORTEST_LEASE <= seconds <= LONGEST_LEASE:
        raise ConfigError(
            f"lease is {_shown(value)} in {file}: give a duration from {SHORTEST_LEASE:g}s to {LONGEST_LEASE:g}s, "
            'such as "3s"'
        )
    return seconds


def _typed(chosen: Mapping[str, Any], *, in_file: bool = False) -> dict[str, Any]:
    """Text becomes what the setting wants; what is no text (from TOML) is checked by the config itself."""
    flat: dict[str, Any] = {}
    for name, value in chosen.items():
        if name in _NESTED and isinstance(value, Mapping):
            flat |= {f"{name}.{field}": inner for field, inner in value.items()}
        else:
            flat[name] = value
    return {name: _value(name, value, in_file) for name, value in flat.items()}


def _value(name: str, value: Any, in_file: bool) -> Any:
    if name in _NOT_HERE:
        instead = _IN_A_FILE.get(name, _NOT_HERE[name]) if in_file else _NOT_HERE[name]
        raise ConfigError(f"{name} is not set in this way: use {instead}")
    types = _types()
    if name not in types:
        from tenure.plugins.queue import QueueSettings  # which `run` and `plan` have no use for

        if name in QueueSettings.__struct_fields__:
            raise ConfigError(f"{name} is a setting of the queue, and not of its election: `tenure queue create --set`")
        close = _nearest(name, types)
        raise ConfigError(
            f"{name[:_MAX_SHOWN]} is no setting of CoordinatorConfig{f': did you mean {close}?' if close else ''}"
        )
    if not isinstance(value, str):
        return value
    return _parsed(name, value, types[name])


def _parsed(name: str, text: str, kind: str) -> Any:
    if kind == "duration":
        seconds = parse_duration(text)
        if seconds is None:
            raise ConfigError(f"{name} is {_shown(text)}: give a number and its unit, such as 500ms, 30s or 2m")
        return seconds
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name} is {_shown(text)}: give true or false")
        return text.lower() == "true"
    if kind == "mandate":
        try:
            return MandateEnd(text)
        except ValueError:
            choices = ", ".join(each.value for each in MandateEnd)
            raise ConfigError(f"{name} is {_shown(text)}: give one of {choices}") from None
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        raise ConfigError(f"{name} is {_shown(text)}: give a {'whole ' if kind == 'int' else ''}number") from None


def _types() -> dict[str, str]:
    found: dict[str, str] = {}
    structs: dict[str, type[msgspec.Struct]] = {"": CoordinatorConfig}
    structs |= {f"{name}.": _nested_type(name) for name in _NESTED}
    for prefix, struct in structs.items():
        for field in msgspec.structs.fields(struct):
            name = prefix + field.encode_name
            if name in _NOT_HERE:
                continue
            if name in _RATIOS:
                found[name] = "float"
            elif field.type is MandateEnd:
                found[name] = "mandate"
            elif field.type is bool:
                found[name] = "bool"
            elif field.type is int:
                found[name] = "int"
            else:
                found[name] = "duration"
    return found


_RATIOS = frozenset({"drift", "contention.threshold"})


def _nested_type(name: str) -> type[msgspec.Struct]:
    return type(getattr(CoordinatorConfig(), name))


def _nearest(name: str, known: Mapping[str, str]) -> str | None:
    return next(iter(get_close_matches(name, known, n=1)), None)
