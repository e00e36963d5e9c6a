"""Where the directory store keeps a key.

    key                      file, below the store's folder
    app/state.json           app@/state.json
    app                      app
    App                      app+1
    App/x                    app+1@/x

Folders end in `@`, so that `a` and `a/b` exist side by side. Capital letters are written small, and which ones they
were follows after `+` as a hexadecimal mask over the letters, so that names that differ only in case stay two files on
a file system that ignores it. Neither mark can occur in a key. Files whose names do not fit are other people's.
"""

from __future__ import annotations

from pathlib import PurePath

from tenure.store.keys import MAX_SEGMENT_BYTES, is_key

LOCKS = "+locks"  # begins with a mark, so no segment is ever written like this
TEMPORARY = "+tmp"


def file_of(key: str) -> PurePath:
    """The path of a (checked) key's file, relative to the store's folder."""
    return PurePath(*folders_of(key), name_of(key))


def folders_of(key: str) -> tuple[str, ...]:
    """The names of the folders that lead to a (checked) key, or to all that is below a prefix."""
    return tuple([fold(folder) + "@" for folder in key.split("/")[:-1]])


def name_of(key: str) -> str:
    """The name of a (checked) key's file in the last of its folders."""
    return fold(key.rpartition("/")[2])


def fold(segment: str) -> str:
    """A segment as a file name in which case does not matter."""
    small = segment.lower()
    if small == segment:
        return segment
    mask = 0
    for position, character in enumerate(character for character in segment if character.isalpha()):
        mask |= character.isupper() << position
    return f"{small}+{mask:x}"


def unfold(name: str) -> str | None:
    """The segment that `fold` wrote as `name`, or None if it did not."""
    small, plus, digits = name.partition("+")
    if not plus:
        return name if name.islower() or name == name.lower() else None
    try:
        mask = int(digits, 16)
    except ValueError:
        return None
    letters = 0
    characters = []
    for character in small:
        if character.isalpha():
            characters.append(character.upper() if mask >> letters & 1 else character)
            letters += 1
        else:
            characters.append(character)
    segment = "".join(characters)
    return segment if fold(segment) == name else None


def segment_of(name: str) -> str | None:
    """The key segment of a file or (without its `@`) folder name; None for what is not ours."""
    segment = unfold(name)
    return segment if segment and len(segment) <= MAX_SEGMENT_BYTES and is_key(segment) else None
