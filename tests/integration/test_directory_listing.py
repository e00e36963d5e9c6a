"""How long a listing of a large directory takes, and how much memory: bounds that a host can be held to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from lab.lister import Listing
from tenure.store.directory.layout import file_of

ROOT = Path(__file__).resolve().parents[2]
SECONDS, MEGABYTES = 60, 200
NAMES_PER_FILE = 50_000  # ext4 stops at 65,000


def fill(root: Path, keys: Iterable[str]) -> None:
    """Make the files where the store would, but not durably: a million fsyncs prove nothing about listings.

    Most are further names of one file, which a file system makes much faster than files.
    """
    known: set[str] = set()
    file = ""
    for number, key in enumerate(keys):
        path = f"{root}/{file_of(key)}"
        folder = os.path.dirname(path)
        if folder not in known:
            os.makedirs(folder)
            known.add(folder)
        if number % NAMES_PER_FILE:
            os.link(file, path)
        else:
            file = path
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def listing_of(root: Path, prefix: str = "") -> Listing:
    done = subprocess.run(
        [sys.executable, "-m", "lab.lister", root.as_uri(), prefix],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    listing = msgspec.json.decode(done.stdout, type=Listing)
    print(
        f"\n{listing.keys:,} keys in {listing.seconds:.1f} s (first after {listing.first_seconds:.2f} s), "
        f"{listing.megabytes:.0f} MB at most"
    )
    return listing


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    # pytest keeps the folders of the last runs, and nobody wants to keep a million files.
    subprocess.run(["rm", "-rf", str(tmp_path)], check=True)


def test_twenty_thousand_keys(root: Path) -> None:
    _check(root, 2, 10_000)


@pytest.mark.trials
@pytest.mark.parametrize(("folders", "each"), [(1, 1_000_000), (1_000, 1_000)], ids=["one-folder", "many-folders"])
def test_a_million_keys(folders: int, each: int, root: Path) -> None:
    _check(root, folders, each)


def _check(root: Path, folders: int, each: int) -> None:
    fill(root, (f"f{folder:04d}/worker={number:07d}.json" for folder in range(folders) for number in range(each)))
    listing = listing_of(root)
    assert listing.keys == folders * each
    assert listing.in_order
    assert listing.seconds < SECONDS
    assert listing.megabytes < MEGABYTES
    one = listing_of(root, f"f{folders - 1:04d}/")
    assert one.keys == each
