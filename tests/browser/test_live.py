"""The page follows what real processes do, without being loaded again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE, Dashboard, Fleet, leader_on

pytestmark = [pytest.mark.servers, pytest.mark.req("OP-5")]


def test_a_failover_is_seen_as_it_happens(
    fleet: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page]
) -> None:
    fleet.start("ada", "ben", "cleo")
    page = look(serve(fleet.url).url)
    first = leader_on(page)
    assert first in fleet.processes
    expect(page.locator("#terms-chart [data-epoch]")).to_have_count(1, timeout=PATIENCE)
    expect(page.locator("#workers-panel tbody tr")).to_have_count(3, timeout=PATIENCE)
    page.evaluate("window.sameDocument = true")

    fleet.kill(first)
    second = leader_on(page, other_than=first)
    assert second in fleet.processes
    assert second != first
    # The term that began has a bar, and the one that ended still has its own.
    expect(page.locator('#terms-chart [data-epoch="2"]')).to_have_count(1, timeout=PATIENCE)
    expect(page.locator('#terms-chart [data-epoch="1"]')).to_have_count(1)
    expect(page.locator("#announce")).to_have_text(f"{second} leads now, epoch 2")
    expect(page).to_have_title(f"{second} leads · default")
    expect(page.locator("#changes-log .badge", has_text="elected")).not_to_have_count(0)
    # The same is in the table, for those who do not see bars.
    page.click("#terms-details summary")
    assert page.locator("#terms-table tbody tr").first.inner_text().split("\t")[:2] == ["2", second]
    expect(page.locator("#workers-panel .badge.bad", has_text="silent")).to_have_count(1, timeout=PATIENCE)
    assert page.evaluate("window.sameDocument") is True


def test_that_nobody_leads_is_said_in_plain_words(
    fleet: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page]
) -> None:
    fleet.start("ada")
    page = look(serve(fleet.url).url)
    leader_on(page)
    fleet.kill("ada")
    expect(page.locator("#leader-name")).to_have_text("Nobody leads", timeout=PATIENCE)
    expect(page.locator("#leader-says")).to_contain_text("the lease of ada (epoch 1) ran out without a renewal")
    expect(page.locator("#leader")).to_have_attribute("data-tone", "bad")
    expect(page.locator("#lease")).to_be_hidden()
    expect(page).to_have_title("✕ Nobody leads · default")


def test_a_dashboard_that_ends_is_missed_and_found_again(
    fleet: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page]
) -> None:
    fleet.start("ada")
    dashboard = serve(fleet.url)
    page = look(dashboard.url)
    leader_on(page)
    dashboard.kill()
    expect(page.locator("#lost")).to_contain_text("No connection to the dashboard since", timeout=PATIENCE)
    expect(page.locator("#link-text")).to_have_text("Disconnected")
    expect(page.locator("#leader-title")).to_have_text("Leader when last seen")
    expect(page.locator("#lease")).to_be_hidden()
    expect(page.locator("body")).to_have_attribute("data-stale", "")
    serve(fleet.url, port=dashboard.port)
    expect(page.locator("#lost")).to_be_hidden(timeout=PATIENCE)
    expect(page.locator("#link-text")).to_have_text("Live")
    expect(page.locator("body")).not_to_have_attribute("data-stale", "")
    assert leader_on(page) == "ada"


def test_a_store_that_does_not_answer_is_said_and_recovers(
    fleet: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page], tmp_path: Path
) -> None:
    fleet.start("ada")
    page = look(serve(fleet.url).url)
    leader_on(page)
    bucket, aside = tmp_path / "bucket", tmp_path / "aside"
    # Nobody, not even root, finds the end of a link to itself.
    bucket.rename(aside)
    bucket.symlink_to(bucket)
    expect(page.locator("#store-problem")).to_contain_text("The store does not answer since", timeout=PATIENCE)
    expect(page.locator("#link-text")).to_have_text("Store silent")
    expect(page.locator("body")).to_have_attribute("data-stale", "")
    bucket.unlink()
    shutil.move(aside, bucket)
    expect(page.locator("#store-problem")).to_be_hidden(timeout=PATIENCE)
    expect(page.locator("#link-text")).to_have_text("Live")


def test_an_empty_bucket_says_what_to_do(
    serve: Callable[..., Dashboard], look: Callable[..., Page], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    page = look(serve((tmp_path / "empty").as_uri()).url)
    expect(page.locator("#leader-name")).to_have_text("Nobody has led yet", timeout=PATIENCE)
    expect(page.locator("#queues-panel pre")).to_contain_text("tenure queue put file:///", timeout=PATIENCE)
    expect(page.locator("#schedules-panel pre")).to_contain_text("SchedulerPlugin")
    expect(page.locator("#workers-panel pre")).to_contain_text("--membership")
    expect(page.locator("#terms-chart")).to_contain_text("No term has begun here yet")
    # Nothing was written by looking.
    assert list((tmp_path / "empty").rglob("*")) == []
