"""Names of resources, ids of records, and the keys that they make.

    resource={name}/data/id={id}.json

An id that tenure drew begins with `auto-`, and no other may: so it is never inserted a second time, and its tombstone
may be removed as soon as it is written.
"""

from __future__ import annotations

from tenure.entropy import NewId
from tenure.errors import ConfigError, InvalidKey
from tenure.store import decode_name, encode_name

MAX_NAME_CHARACTERS = 64
MAX_ID_CHARACTERS = 128
MAX_ENCODED_NAME_BYTES = 190
MAX_ENCODED_ID_BYTES = 190
"""A segment of a key has room for 200 bytes, and `resource=`, and `id=` and `.json`, take some."""
DRAWN = "auto-"
RESOURCES = "resource="
"""Keys that begin so belong to resources."""


def check_name(name: str) -> str:
    """Give back a resource's name if it can be one."""
    if not isinstance(name, str) or not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        raise ConfigError(f"resource name is {_shown(name)}: give 1 to {MAX_NAME_CHARACTERS} printable characters")
    try:
        encoded = encode_name(name)
    except InvalidKey as error:
        raise ConfigError(f"resource name is {_shown(name)}: {error}") from None
    if len(encoded) > MAX_ENCODED_NAME_BYTES:
        raise ConfigError(
            f"resource name {_shown(name)} takes {len(encoded)} bytes when encoded, and the limit is "
            f"{MAX_ENCODED_NAME_BYTES}: shorten it (a character outside A-Z a-z 0-9 - _ . takes 3 bytes or more)"
        )
    return name


def check_id(id: str) -> str:
    """Give back a record's id if it can be one."""
    if not isinstance(id, str) or not id or len(id) > MAX_ID_CHARACTERS:
        raise ConfigError(f"record id is {_shown(id)}: give 1 to {MAX_ID_CHARACTERS} characters")
    try:
        encoded = encode_name(id)
    except InvalidKey as error:
        raise ConfigError(f"record id is {_shown(id)}: {error}") from None
    if len(encoded) > MAX_ENCODED_ID_BYTES:
        raise ConfigError(
            f"record id {_shown(id)} takes {len(encoded)} bytes when encoded, and the limit is {MAX_ENCODED_ID_BYTES}: "
            "shorten it (a character outside A-Z a-z 0-9 - _ . takes 3 bytes or more)"
        )
    return id


def check_given_id(id: str) -> str:
    """An id that a user chose for a new record."""
    if check_id(id).startswith(DRAWN):
        raise ConfigError(
            f"record id {_shown(id)} begins with {DRAWN!r}, as only ids that tenure draws do: choose another, or "
            "insert without an id"
        )
    return id


def draw(draw_id: NewId) -> str:
    """A fresh id for a record."""
    return DRAWN + draw_id()


def is_drawn(id: str) -> bool:
    return id.startswith(DRAWN)


def folder_of(name: str) -> str:
    return f"{RESOURCES}{encode_name(name)}/data/"


def key_of(name: str, id: str) -> str:
    return f"{folder_of(name)}id={encode_name(id)}.json"


def parse_key(key: str) -> tuple[str, str] | None:
    """The resource and the id in a key; `None` if it is none of ours."""
    parts = key.split("/")
    if len(parts) != 3 or parts[1] != "data" or not parts[0].startswith(RESOURCES):
        return None
    if not (parts[2].startswith("id=") and parts[2].endswith(".json")):
        return None
    try:
        # Checked as well: an id that no call takes could not be read, and a listing could not go on after it.
        return check_name(decode_name(parts[0].removeprefix(RESOURCES))), check_id(decode_name(parts[2][3:-5]))
    except ConfigError:
        return None


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 60 else text[:60] + "…"
