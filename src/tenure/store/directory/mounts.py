"""What kind of file system a folder is on: locks and renames of a network file system may not mean what they say."""

from __future__ import annotations

from pathlib import Path

MOUNT_TABLE = Path("/proc/self/mountinfo")
_NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"}
    | {"orangefs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs"}
)


def filesystem_of(folder: Path, mount_table: Path = MOUNT_TABLE) -> str | None:
    """The type of file system that holds `folder`, or None where the system does not say."""
    try:
        lines = mount_table.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    target = folder.resolve()
    best: tuple[int, str] | None = None
    for line in lines:
        fields, separator, rest = line.partition(" - ")
        columns = fields.split()
        if not separator or len(columns) < 5 or not rest:
            continue
        mount_point = Path(_unescape(columns[4]))
        # The last of equally long matches wins: a later mount covers an earlier one.
        if target.is_relative_to(mount_point) and (best is None or len(mount_point.parts) >= best[0]):
            best = (len(mount_point.parts), rest.split()[0])
    return best[1] if best else None


def is_network(filesystem: str) -> bool:
    """Could another machine be using the same folder? FUSE hides what is behind it, except on a block device."""
    return filesystem in _NETWORK or (filesystem.startswith("fuse") and filesystem != "fuseblk")


def _unescape(mount_point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        mount_point = mount_point.replace(code, character)
    return mount_point
