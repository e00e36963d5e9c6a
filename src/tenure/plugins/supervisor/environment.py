"""What the environment says of a candidate: `COORDINATOR_ELIGIBLE` and two times in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.errors import ConfigError

ELIGIBLE = "COORDINATOR_ELIGIBLE"
ELECTION_INTERVAL = "COORDINATOR_ELECTION_INTERVAL"
TAKEOVER_DELAY = "COORDINATOR_TAKEOVER_DELAY"

_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")
_LONGEST_MS = 3_600_000


def flag(environment: Mapping[str, str], name: str, default: bool) -> bool:
    text = environment.get(name, "").strip().lower()
    if not text:
        return default
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ConfigError(f"{name} is {environment[name]!r}: it must be true or false")


def milliseconds(environment: Mapping[str, str], name: str, default: float, *, zero: bool = False) -> float:
    """Seconds, from a variable that holds milliseconds."""
    text = environment.get(name, "").strip()
    if not text:
        return default
    least = 0 if zero else 1
    if not text.isascii() or not text.isdigit() or len(text) > 10 or not least <= int(text) <= _LONGEST_MS:
        raise ConfigError(
            f"{name} is {environment[name]!r}: it must be a whole number of milliseconds, from {least} to "
            f"{_LONGEST_MS}, such as 5000"
        )
    return int(text) / 1000
