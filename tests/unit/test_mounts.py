"""Which file system a folder is on, and whether another machine could be using it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.errors import StoreUnfit
from tenure.store import open_store, opening
from tenure.store.directory.mounts import filesystem_of, is_network
from tenure.store.races import RaceKind, RaceReport
from tenure.store.url import StoreUrl

# As recorded from /proc/self/mountinfo of several machines; two lines are damaged.
TABLE = r"""
22 1 0:21 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/var/lib/docker/l/ABC,upperdir=/x - y,workdir=/w
23 22 0:22 / /proc rw,nosuid,nodev,noexec,relatime shared:13 - proc proc rw
61 22 254:1 / /srv/disk rw,relatime shared:29 - ext4 /dev/vda1 rw,discard,errors=remount-ro
62 61 0:52 / /srv/disk/nfs rw,relatime shared:30 master:4 - nfs4 10.0.0.5:/export rw,vers=4.2,hard,proto=tcp
63 61 0:53 / /srv/disk/with\040space\011tab\134slash rw,relatime - cifs //nas/share rw,vers=3.1.1
64 22 0:54 / /home/me/ssh rw,nosuid,nodev,relatime - fuse.sshfs me@host:/ rw,user_id=1000
65 22 8:17 / /media/usb rw,relatime - fuseblk /dev/sdb1 rw,user_id=0
66 22 254:2 / /covered rw,relatime - ext4 /dev/vdb rw
67 22 0:55 / /covered rw,relatime - nfs 10.0.0.5:/c rw
68 22 0:56 / /uncovered rw,relatime - nfs 10.0.0.5:/c rw
69 22 254:3 / /uncovered rw,relatime - ext4 /dev/vdc rw
a damaged line
70 22 0:57 /
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize(
    ("folder", "filesystem", "network"),
    [
        ("/", "overlay", False),
        ("/var/lib/app", "overlay", False),
        ("/srv/disk", "ext4", False),
        ("/srv/disk/app", "ext4", False),
        ("/srv/disk/nfs", "nfs4", True),
        ("/srv/disk/nfs/deep/er", "nfs4", True),
        ("/srv/disk/nfs2", "ext4", False),
        ("/srv/disk/with space\ttab\\slash/x", "cifs", True),
        ("/home/me/ssh/x", "fuse.sshfs", True),
        ("/media/usb/x", "fuseblk", False),
        ("/covered/x", "nfs", True),
        ("/uncovered/x", "ext4", False),
    ],
)
def test_the_nearest_mount_counts(table: Path, folder: str, filesystem: str, network: bool) -> None:
    assert filesystem_of(Path(folder), table) == filesystem
    assert is_network(filesystem) == network


@pytest.mark.parametrize(
    "name", ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre", "virtiofs", "fuse"]
)
def test_network_file_systems(name: str) -> None:
    assert is_network(name)


@pytest.mark.parametrize("name", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "f2fs", "fuseblk"])
def test_local_file_systems(name: str) -> None:
    assert not is_network(name)


def test_a_link_is_followed(table: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/srv/disk/nfs")
    assert filesystem_of(tmp_path / "link" / "app", table) == "nfs4"


def test_without_a_table_nothing_is_said(tmp_path: Path) -> None:
    assert filesystem_of(Path("/"), tmp_path / "missing") is None
    (tmp_path / "empty").touch()
    assert filesystem_of(Path("/"), tmp_path / "empty") is None


def test_this_machine_can_be_asked(tmp_path: Path) -> None:
    if Path("/proc/self/mountinfo").exists():
        assert filesystem_of(tmp_path)


# On opening.


def mounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, filesystem: str) -> str:
    """Make this folder look as if it were on `filesystem`; gives its URL."""
    table = tmp_path / "mountinfo"
    table.write_text(f"22 1 0:21 / / rw - ext4 /dev/vda rw\n62 22 0:52 / {tmp_path} rw - {filesystem} server:/x rw\n")
    monkeypatch.setattr(opening, "MOUNT_TABLE", table)
    return (tmp_path / "store").as_uri()


@pytest.mark.parametrize("filesystem", ["nfs4", "cifs", "fuse.sshfs"])
async def test_a_network_file_system_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, filesystem: str
) -> None:
    url = mounted(monkeypatch, tmp_path, filesystem)
    with pytest.raises(
        StoreUnfit, match=f"on a {filesystem} file system.*use a bucket or a local disk.*shared=1"
    ) as caught:
        await open_store(url)
    assert caught.value.reasons


async def test_a_local_file_system_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with open_store(mounted(monkeypatch, tmp_path, "xfs")) as store:
        await store.put("k", b"")


def raced(violations: tuple[str, ...] = (), undecided: int = 0) -> tuple[list[RaceKind], Callable[..., object]]:
    ran: list[RaceKind] = []

    async def race(url: StoreUrl, kind: RaceKind, **options: object) -> RaceReport:
        assert url.flag("shared")
        ran.append(kind)
        return RaceReport(kind.value, 10, 8, 2, 10 - len(violations), 0, undecided, violations)

    return ran, race


async def test_a_shared_folder_is_tried_by_races(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran, race = raced()
    monkeypatch.setattr("tenure.store.races.race", race)
    async with open_store(mounted(monkeypatch, tmp_path, "nfs4") + "?shared=1") as store:
        await store.put("k", b"")
    assert ran == [RaceKind.CREATE, RaceKind.REPLACE]


async def test_a_shared_folder_that_loses_a_race_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, race = raced(("create race 3: 2 of 8 writers were told that they won",))
    monkeypatch.setattr("tenure.store.races.race", race)
    with pytest.raises(StoreUnfit, match="create race 3: 2 of 8 writers were told that they won"):
        await open_store(mounted(monkeypatch, tmp_path, "nfs4") + "?shared=1")


async def test_a_shared_folder_without_clear_winners_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, race = raced(undecided=2)
    monkeypatch.setattr("tenure.store.races.race", race)
    with pytest.raises(StoreUnfit, match="2 create races had no clear winner; 2 replace races"):
        await open_store(mounted(monkeypatch, tmp_path, "nfs4") + "?shared=1")


async def test_real_races_on_a_folder_that_is_sound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with open_store(mounted(monkeypatch, tmp_path, "nfs4") + "?shared=1") as store:
        assert [entry async for entry in store.list()] == []  # the races have cleaned up
