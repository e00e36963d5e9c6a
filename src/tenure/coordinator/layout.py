"""Where a namespace's objects lie. See EL-8 in docs/requirements.md."""

from __future__ import annotations

from tenure.election.records import MAX_EPOCH
from tenure.errors import ConfigError, InvalidKey
from tenure.store import Names, Prefixed, Store, encode_name, numbered

STATE = "state.json"
METADATA = "metadata.json"
MEMBERS = "members.json"
TERMS = "terms/"
WORKERS = "workers/"
DAMAGED = "damaged/"
TERM_NAMES = numbered(TERMS)
WORKER_NAMES = Names(WORKERS, f"{WORKERS}worker=", f"{WORKERS}worker>")
RESERVED = "plugin="
"""Keys of a database that begin so are tenure's own."""
MAX_NAMESPACE_CHARACTERS = 64
MAX_WORKER_ID_CHARACTERS = 128
_MAX_SHOWN = 80


def check_name(field: str, name: str, limit: int) -> str:
    if not isinstance(name, str) or not name or len(name) > limit or not name.isprintable():
        raise ConfigError(f"{field} is {_shown(name)}: give 1 to {limit} printable characters")
    return name


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def folder_of(namespace: str) -> str:
    check_name("namespace", namespace, MAX_NAMESPACE_CHARACTERS)
    return f"plugin=coordinator/namespace={encode_name(namespace)}/"


def namespace_store(store: Store, namespace: str) -> Store:
    return Prefixed(store, folder_of(namespace))


def term_key(epoch: int) -> str:
    return f"{TERMS}{epoch:020d}.json"


def epoch_of(key: str) -> int | None:
    """The epoch in the name of a term record; `None` for what is not one."""
    number = key.removeprefix(TERMS).removesuffix(".json")
    if len(number) != 20 or not number.isascii() or not number.isdigit():
        return None
    epoch = int(number)
    return epoch if 1 <= epoch <= MAX_EPOCH and term_key(epoch) == key else None


def worker_key(worker_id: str) -> str:
    return f"{WORKERS}worker={encode_name(worker_id)}.json"


def is_worker_key(key: str) -> bool:
    """Has it the form of a worker record's? What lies beside those was put there by other tools."""
    return key.startswith(f"{WORKERS}worker=") and key.endswith(".json") and "/" not in key[len(WORKERS) :]


def is_key_of(worker_id: str, key: str) -> bool:
    """Ids in a bucket are untrusted: one that no key can hold is nobody's."""
    try:
        return worker_key(worker_id) == key
    except InvalidKey:
        return False
