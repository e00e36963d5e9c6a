"""The pictures of the dashboard in the README, of real processes after a failover and a handover.

`make screenshots` puts them into docs/pictures; otherwise they are made and thrown away.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE, Dashboard, Fleet, leader_on
from tests.support.command import tenure_process

pytestmark = pytest.mark.servers

NAMES = ("ada", "ben", "cleo", "dora")
QUEUES = ("emails", "invoices", "thumbnails", "webhooks")


@pytest.fixture
def shop() -> Iterator[Fleet]:
    """At a place whose name may be in a picture."""
    home = Path(tempfile.gettempdir(), f"tenure-{os.getpid()}")
    home.mkdir()
    fleet = Fleet(home, "shop")
    try:
        yield fleet
    finally:
        fleet.stop()
        shutil.rmtree(home)


def test_pictures_for_the_readme(
    shop: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page], tmp_path: Path
) -> None:
    folder = Path(os.environ.get("TENURE_SCREENSHOTS") or tmp_path)
    shop.start(*NAMES, queues=QUEUES, does=("--work",), lease=4)
    page = look(serve(shop.url).url, color_scheme="light")
    first = leader_on(page)
    assert tenure_process("queue", "pause", shop.url, "invoices").code == 0
    for at, queue in enumerate(QUEUES):
        for number in range(3 + 5 * at):
            body = '{"poison": true}' if number == 1 and at % 2 == 0 else '{"order": 7}'
            tenure_process("queue", "put", shop.url, queue, body, *(["--delay", "10m"] if number > 4 else []))
    page.wait_for_timeout(12_000)
    shop.kill(first)
    second = leader_on(page, other_than=first)
    shop.start(first, queues=QUEUES, does=("--work",), lease=4)
    page.wait_for_timeout(20_000)
    assert tenure_process("step-down", shop.url, "--force").code == 0
    leader_on(page, other_than=second)
    page.wait_for_timeout(25_000)
    expect(page.locator("#terms-chart [data-epoch]")).to_have_count(3, timeout=PATIENCE)
    expect(page.locator("#workers-panel tbody tr")).to_have_count(4, timeout=PATIENCE)
    expect(page.locator("#latency-legend .p95 b")).not_to_have_text("–", timeout=PATIENCE)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.mouse.move(0, 0)
        page.wait_for_timeout(500)
        picture = folder / f"dashboard-{scheme}.png"
        queues = page.locator("#queues").bounding_box()
        assert queues is not None
        height = queues["y"] + queues["height"] + 16
        page.screenshot(path=picture, full_page=True, clip={"x": 0, "y": 0, "width": 1440, "height": height})
        assert picture.stat().st_size > 20_000
