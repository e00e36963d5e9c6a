"""Log records as JSON, one object a line.

    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(worker=db.worker_id))
    logging.basicConfig(level=logging.INFO, handlers=[handler])

Guarantee: `format` never raises, gives one line of valid JSON whatever it is handed, and takes out what may be a secret
(as `tenure.store.url.redact` does) of the message, the error and every field.

tenure sets up no logging by itself. Its loggers are listed in docs/telemetry.md.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tenure.store.url import HIDDEN, is_secret_name, redact

__all__ = ["LOGGERS", "JsonFormatter"]

MAX_TEXT = 16_000
"""Characters of a message, of an error, and of a field."""
MAX_FIELDS = 50

LOGGERS = (
    *("tenure.asgi", "tenure.blocking", "tenure.candidate", "tenure.command", "tenure.coordinator"),
    *("tenure.counters", "tenure.dashboard", "tenure.database", "tenure.health", "tenure.ledger"),
    *("tenure.lock", "tenure.plugin", "tenure.poll", "tenure.queue", "tenure.resource", "tenure.schedule"),
    *("tenure.scheduler", "tenure.store", "tenure.supervisor", "tenure.telemetry", "tenure.ttl"),
)
"""Every logger of the library; all are below `tenure`."""

_KNOWN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}
_OURS = frozenset({"time", "level", "logger", "message", "error"})


class JsonFormatter(logging.Formatter):
    """`time`, `level`, `logger`, `message`, `error` where there is one, and every field that came as `extra`:
    `event`, `namespace`, `worker` and `epoch`, if tenure knows them.

    `fields` are added to each line (`worker=db.worker_id`, `service="mailer"`); what a record says itself comes first.
    """

    def __init__(self, **fields: str) -> None:
        super().__init__()
        self._fields = {name: _plain(str(value), name) for name, value in fields.items() if name not in _OURS}

    def format(self, record: logging.LogRecord) -> str:
        try:
            return _line(self._told(record))
        except Exception as error:
            # A record that cannot be told must not cost the program anything, nor go unseen.
            name, kind = getattr(record, "name", "?"), type(error).__name__
            return _line({"level": "ERROR", "logger": str(name), "message": f"a log record could not be told: {kind}"})

    def _told(self, record: logging.LogRecord) -> dict[str, Any]:
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        given = {name: value for name, value in vars(record).items() if name not in _KNOWN and name not in _OURS}
        told |= self._fields
        for name, value in list(given.items())[:MAX_FIELDS]:
            told[str(name)[:100]] = _plain(value, str(name))
        if record.stack_info:
            told["stack"] = redact(str(record.stack_info))[-MAX_TEXT:]
        if record.exc_info:
            told["error"] = redact("".join(traceback.format_exception(*record.exc_info)))[-MAX_TEXT:].rstrip()
        return told


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:  # arguments that do not fit, or cannot be told
        text = f"{record.msg!s:.1000} (its arguments do not fit)"
    return redact(text)[:MAX_TEXT]


def _plain(value: object, name: str = "") -> Any:
    """Numbers and the like stay; everything else is a text. `name` may say that it is a secret, and then all of it is
    hidden, whatever it looks like; but a token that is a number is a fencing token."""
    plain = value is None or isinstance(value, bool | int | float)
    if is_secret_name(name) and not (plain and (value is None or name.lower().endswith("token"))):
        return HIDDEN
    if plain:
        return value
    if isinstance(value, Mapping):
        return {str(name)[:100]: _plain(each, str(name)) for name, each in list(value.items())[:MAX_FIELDS]}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in list(value)[:MAX_FIELDS]]
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:
        text = f"(a {type(value).__name__} that cannot be told)"
    return redact(text[:MAX_TEXT])[:MAX_TEXT]


def _line(told: dict[str, Any]) -> str:
    """Numbers that JSON does not have become null; half characters are escaped, so that any encoding can write them."""
    try:
        return json.dumps(told, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(told), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not abs(value) <= 1.8e308 else value
