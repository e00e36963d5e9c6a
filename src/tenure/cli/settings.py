"""`tenure.toml`: what a command is told by a file, below the command line and the environment.

Guarantee: every key of the file is known and of the right type, or the commands that read it refuse to start. Commands
that take nothing from it (`demo`, `simulate`) and every `--help` work beside a broken one.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec
from click.core import ParameterSource

from tenure.coordinator.config import CoordinatorConfig
from tenure.errors import ConfigError

FILE = "tenure.toml"
MAX_FILE_BYTES = 64 * 1024
COORDINATOR_TABLE = "tenure.coordinator"
"""Where the table `[coordinator]` lies in `click.Context.meta`."""
FILE_READ = "tenure.settings.file"
"""Where the name of the file that was read lies in `click.Context.meta`."""

_AT_THE_TOP = ("url", "namespace")
_COORDINATOR = "coordinator"
_NESTED = ("contention", "circuit_breaker")
_GIVEN_EACH_TIME = ("yes", "force")
"""The answer to a question, and what overrides a leader's no: a file that gives them would be forgotten."""
_NEVER_HERE = ("help", "debug", "config", "version")
_MAX_SHOWN = 60


class Refusal(click.UsageError):
    """Asked wrongly, and the sentence says all there is to say: no look at the help is needed."""


def one_of(*given: str) -> str | None:
    """The option that was given, of some that exclude each other. Refuses two of them, by name."""
    if len(given) > 1:
        raise Refusal(f"{' and '.join(f'--{name}' for name in given)}: give one of them")
    return next(iter(given), None)


class Settings(msgspec.Struct, frozen=True):
    """A file that was checked. `commands`: by the command's name, then by the parameter's name in Python."""

    file: str
    url: str | None = None
    namespace: str | None = None
    coordinator: dict[str, Any] = {}
    commands: dict[str, dict[str, Any]] = {}

    def default_map(self, commands: Mapping[str, click.Command]) -> dict[str, dict[str, Any]]:
        """For `click.Context.default_map` of the group: a command's own table wins over the top of the file."""
        shared = {name: value for name in _AT_THE_TOP if (value := getattr(self, name)) is not None}
        return _defaults(commands, self.commands, shared)


def _defaults(
    commands: Mapping[str, click.Command], own: Mapping[str, Any], shared: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, command in commands.items():
        if isinstance(command, click.Group):
            found[name] = _defaults(command.commands, own.get(name, {}), shared)
        elif uses_file(command):
            taken = {key: value for key, value in shared.items() if key in _parameters(command)}
            found[name] = taken | own.get(name, {})
    return found


def uses_file(command: click.Command) -> bool:
    """What is about a store, or about timing; or has a command in it that is."""
    if isinstance(command, click.Group):
        return any(uses_file(each) for each in command.commands.values())
    return not _parameters(command).keys().isdisjoint(("url", "preset"))


def find(named: str | None) -> Path | None:
    """The file to read: the one that was named, or the one in the working directory if there is one."""
    if named is not None:
        return Path(named)
    return Path(FILE) if os.path.lexists(FILE) else None


def load(path: Path, commands: Mapping[str, click.Command]) -> Settings:
    """Read and check the file. Raises `ConfigError` with one sentence that names it."""
    try:
        raw = _read(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror or error}): give an existing file by --config or TENURE_CONFIG, "
            f"or none to use {FILE} of the working directory"
        ) from None
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is over {MAX_FILE_BYTES // 1024} KiB, and no settings are: name another file")
    try:
        document = tomllib.loads(raw.decode("utf-8-sig"))  # Windows' editors begin a file with a mark
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}, line {line}: not UTF-8, which TOML must be") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax(path, str(error))) from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply: it has tables of plain values alone") from None
    except ValueError:  # a number of more digits than Python reads
        raise ConfigError(f"{path} has a number with thousands of digits: no setting takes one") from None
    _check_numbers(path, document)
    return _checked(str(path), document, commands)


def _read(path: Path) -> bytes:
    """Of a file alone: a pipe would be waited for, for ever. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise OSError("it is a directory")
        if not stat.S_ISREG(found.st_mode) and not os.path.samestat(found, Path(os.devnull).stat()):
            raise OSError("it is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)


def _check_numbers(path: Path, value: Any) -> None:
    """TOML's are of 64 bits. A larger one could not even be shown."""
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ConfigError(f"{path} has a number that is over 64 bits: no setting takes one")
    if isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            _check_numbers(path, each)


class Broken(dict[str, Any]):
    """A default map that raises as soon as a default is looked up, except for what no file can say, and for help."""

    def __init__(self, error: ConfigError, command: click.Command | None = None) -> None:
        super().__init__(broken=True)
        self._sentence = str(error)
        inner = command.commands if isinstance(command, click.Group) else {}
        self._inner = {name: Broken(error, each) for name, each in inner.items()}

    def get(self, key: str, default: Any = None) -> Any:
        if key in self._inner:
            return self._inner[key]
        self._refuse(key)
        return default

    def __getitem__(self, key: str) -> Any:
        self._refuse(key)
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        self._refuse(key)
        return False

    def _refuse(self, key: object) -> None:
        if self._inner:
            return  # a group of commands takes nothing from a file itself
        context = click.get_current_context(silent=True)
        # So click marks that it only asks for the defaults to show in a help text.
        if key not in _NEVER_HERE and not (context is not None and context.resilient_parsing):
            raise Refusal(self._sentence)


def where_from(context: click.Context | None, parameter: click.Parameter | None) -> str:
    """What to add to a complaint about a value that nobody typed; empty if somebody did."""
    if context is None or parameter is None or parameter.name is None:
        return ""
    source = context.get_parameter_source(parameter.name)
    if source is ParameterSource.DEFAULT_MAP:
        return f"it comes from {context.meta.get(FILE_READ, FILE)}"
    if source is ParameterSource.ENVIRONMENT and parameter.envvar:
        names = [parameter.envvar] if isinstance(parameter.envvar, str) else list(parameter.envvar)
        return f"it comes from the environment variable {' or '.join(names)}"
    return ""


def _checked(file: str, document: Mapping[str, Any], commands: Mapping[str, click.Command]) -> Settings:
    with_tables = {name: command for name, command in commands.items() if uses_file(command)}
    top: dict[str, str] = {}
    coordinator: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    for key, value in document.items():
        if key in _AT_THE_TOP:
            if not isinstance(value, str) or not value:
                raise ConfigError(f"{file}: {key} is {_kind(value)}, and must be text")  # a URL may hold secrets
            top[key] = value
        elif key == _COORDINATOR:
            coordinator = _coordinator(file, value)
        elif key in with_tables:
            tables[key] = _table(file, key, value, with_tables[key])
        elif key in commands:
            raise ConfigError(f"{file}: the command {key} takes nothing from a file: remove the table [{key}]")
        elif isinstance(value, Mapping):
            _unknown(file, f"the table [{key}]", key, (_COORDINATOR, *with_tables), as_table=True)
        else:
            _unknown(file, f"the key {key}", key, _AT_THE_TOP)
    return Settings(file=file, coordinator=coordinator, commands=tables, **top)


def _coordinator(file: str, table: Any) -> dict[str, Any]:
    """Names alone: whether the values fit each other depends on what the command line says as well."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{file}: {_COORDINATOR} is {_kind(table)}, and must be a table: [{_COORDINATOR}]")
    config = CoordinatorConfig()
    known = {field.encode_name for field in msgspec.structs.fields(config)} | {"preset", "lease"}
    for key, value in table.items():
        if key not in known:
            _unknown(file, f"the key {key} in [{_COORDINATOR}]", key, known)
        if key in _NESTED:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{file}: {key} is {_kind(value)}, and must be a table: [{_COORDINATOR}.{key}]")
            inner = {field.encode_name for field in msgspec.structs.fields(getattr(config, key))}
            for name, setting in value.items():
                if name not in inner:
                    _unknown(file, f"the key {name} in [{_COORDINATOR}.{key}]", name, inner)
                _plain(file, f"{name} in [{_COORDINATOR}.{key}]", setting)
        else:
            _plain(file, f"{key} in [{_COORDINATOR}]", value)
    return dict(table)


def _plain(file: str, what: str, value: Any) -> None:
    if not isinstance(value, str | bool | int | float):
        raise ConfigError(f'{file}: {what} is {_kind(value)}: give a number, true or false, or text such as "2s"')


def _table(file: str, name: str, table: Any, command: click.Command) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{file}: {name} is {_kind(table)}, and must be a table: [{name}]")
    found: dict[str, Any] = {}
    if isinstance(command, click.Group):
        for key, value in table.items():
            if key not in command.commands:
                if not isinstance(value, Mapping):
                    table_of = next(iter(command.commands))
                    raise ConfigError(
                        f"{file}: the key {key[:_MAX_SHOWN]} in [{name}] is unknown: options stand in the table of a "
                        f"command, such as [{name}.{table_of}]"
                    )
                known = [f"{name}.{each}" for each in command.commands]
                _unknown(file, f"{name}.{key}", f"{name}.{key}", known, as_table=True)
            found[key] = _table(file, f"{name}.{key}", value, command.commands[key])
        return found
    options = _long_names(command)
    for key, value in table.items():
        if key == "url":
            raise ConfigError(f"{file}: url stands at the top of the file, not in [{name}]")
        if key in _GIVEN_EACH_TIME:
            raise ConfigError(f"{file}: {key} in [{name}] cannot come from a file: give --{key} each time")
        option = options.get(key)
        if option is None:
            _unknown(file, f"the key {key} in [{name}]", key, options)
        assert option.name is not None
        found[option.name] = _value(file, f"{key} in [{name}]", value, option)
    return found


def _value(file: str, what: str, value: Any, option: click.Option) -> Any:
    if option.multiple:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ConfigError(f'{file}: {what} is {_kind(value)}, and must be a list of texts: ["…", "…"]')
        return value
    if option.is_flag:
        fits, wanted = isinstance(value, bool), "true or false"
    elif option.type.name.startswith("integer"):
        fits, wanted = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    elif option.type.name.startswith("float"):
        fits, wanted = isinstance(value, int | float) and not isinstance(value, bool), "a number"
    else:
        fits, wanted = isinstance(value, str), 'text, in quotes (a duration: "20s")'
    if not fits:
        raise ConfigError(f"{file}: {what} is {_kind(value)}, and must be {wanted}")
    return value


def _long_names(command: click.Command) -> dict[str, click.Option]:
    return {
        name[2:]: option
        for option in command.params
        if isinstance(option, click.Option) and option.name not in _NEVER_HERE
        for name in option.opts
        if name.startswith("--")
    }


def _parameters(command: click.Command) -> dict[str, click.Parameter]:
    return {parameter.name: parameter for parameter in command.params if parameter.name is not None}


def _unknown(file: str, what: str, key: str, known: Iterable[str], *, as_table: bool = False) -> NoReturn:
    names = sorted(set(known) - set(_GIVEN_EACH_TIME))
    close = next(iter(get_close_matches(key, names, n=1)), None)
    shown = [f"[{name}]" if as_table else name for name in ([close] if close else names)]
    hint = f"did you mean {shown[0]}?" if close else f"it may be one of {', '.join(shown)}"
    raise ConfigError(f"{file}: {what[:_MAX_SHOWN]} is unknown: {hint}")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {str(value)[:_MAX_SHOWN]}"
    if isinstance(value, str):
        return "text" if value else "empty"
    if isinstance(value, Mapping):
        return "a table"
    return "a list" if isinstance(value, list) else "a date or time"


def _syntax(path: Path, message: str) -> str:
    found = re.search(r" \(at (line \d+, column \d+)\)$", message)
    if found is None:  # the end of the document
        return f"{path} is no TOML: {message[:200]}"
    return f"{path}, {found[1]}: no TOML: {message[: found.start()][:200]}"
