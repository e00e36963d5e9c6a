"""A folder that is open, and a name in it: the two words in which everything below a store's root is spoken of.

Who can write below the root may put a symbolic link where tenure keeps a folder or a file, at any moment: also between
a look and a step that trusts it. So nothing there is reached by a path, of which the kernel would follow every part.
A folder is opened in its parent, which is open already; what is done, is done to a name in an open folder; and neither
follows a link.
"""

from __future__ import annotations

import os
import stat

import msgspec

from tenure.errors import StoreUnfit

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
    stat.S_IFREG: "a plain file",
}


class Folder:
    """A folder that is open. What is done through it is done in it, whatever its name leads to by now."""

    __slots__ = ("descriptor", "path")

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self.path = path
        """Where it was found, for people to read: nothing is opened by it."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def __truediv__(self, name: str) -> Place:
        return Place(self, name)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1  # the number is soon another file's
        os.close(descriptor)


class Place(msgspec.Struct, frozen=True):
    """A name in an open folder, whether or not anything is there."""

    folder: Folder
    name: str

    @property
    def path(self) -> str:
        """For people to read: nothing is opened by it."""
        return f"{self.folder.path}/{self.name}"


def stranger(place: Place, mode: int) -> StoreUnfit:
    """What to say of something that tenure did not put there, and that is in its way."""
    kind = _KINDS.get(stat.S_IFMT(mode), "no file")
    return StoreUnfit(place.path, [f"it is {kind}, and tenure puts none there: remove it, or move it away"])
