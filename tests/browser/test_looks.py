"""What the page is to those who see it on something small, in the dark, enlarged, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE, Dashboard, Fleet, leader_on, sign_in
from tests.support.command import tenure_process

pytestmark = pytest.mark.servers

HOSTILE = '<img src=x onerror="document.title=`owned`;window.owned=1">'
SCRIPT = "</script><script>window.owned=1</script>"
WIDER = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return ["the page", ...[...document.querySelectorAll("body *")]
    .filter((each) => !each.closest(".scroll") && each.getBoundingClientRect().right > width + 0.5)
    .map((each) => `${each.tagName} ${each.id} ${each.getAttribute("class")}`)];
}"""
"""What sticks out to the right of a page that scrolls sideways; tables may do so in a frame of their own."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible_in_light_and_dark(
    fleet: Fleet,
    serve: Callable[..., Dashboard],
    look: Callable[..., Page],
    axe: Callable[[Page], list[str]],
    scheme: Any,
) -> None:
    fleet.start("ada", "ben", queues=("emails",), does=("--work",))
    for _ in range(2):
        tenure_process("queue", "put", fleet.url, "emails", '{"poison": true}')
    page = look(serve(fleet.url).url, color_scheme=scheme, bypass_csp=True)
    leader_on(page)
    expect(page.locator("#children-panel tbody tr")).to_have_count(2, timeout=PATIENCE)
    expect(page.locator("#workers-panel tbody tr")).to_have_count(2, timeout=PATIENCE)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    lightness = sum(int(part) for part in background.removeprefix("rgb(").removesuffix(")").split(","))
    assert (lightness > 600) == (scheme == "light"), background
    assert axe(page) == []
    sign_in(page)
    assert axe(page) == []
    page.click("#transfer")
    expect(page.locator("#confirm-workers label")).to_have_count(1)
    assert axe(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert axe(page) == []
    page.keyboard.press("Escape")
    page.click("#terms-details summary")
    assert axe(page) == []


def test_the_theme_is_remembered(fleet: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page]) -> None:
    fleet.start("ada")
    page = look(serve(fleet.url).url, color_scheme="light")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.click("#theme")
    expect(page.locator("#theme")).to_have_attribute("aria-label", "Theme: light")
    page.click("#theme")
    expect(page.locator("#theme")).to_have_attribute("aria-label", "Theme: dark")
    dark = page.evaluate(colour)
    assert dark != light
    page.reload()
    assert page.evaluate(colour) == dark
    page.click("#theme")
    assert page.evaluate(colour) == light


@pytest.mark.parametrize(("width", "scale"), [(360, 1), (720, 2)], ids=["phone", "zoomed to 200 %"])
def test_never_scrolls_sideways(
    fleet: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page], width: int, scale: float
) -> None:
    long = "a-host-with-a-very-long-name.eu-central-1.compute.internal"
    fleet.start(long, queues=("emails",), does=("--work",))
    page = look(serve(fleet.url).url, width=width, height=740, device_scale_factor=scale)
    leader_on(page)
    expect(page.locator("#schedules-panel tbody tr")).to_have_count(3, timeout=PATIENCE)
    assert page.evaluate(WIDER) == []
    sign_in(page)
    assert page.evaluate(WIDER) == []
    page.click("#step-down")
    assert page.evaluate(WIDER) == []
    box = page.locator("#confirm").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


def test_hostile_names_are_only_text(fleet: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page]) -> None:
    fleet.start(HOSTILE, queues=(HOSTILE, SCRIPT))
    for queue in (HOSTILE, SCRIPT):
        tenure_process("queue", "put", fleet.url, queue, "1")
    page = look(serve(fleet.url).url)
    assert leader_on(page) == HOSTILE
    expect(page.locator("#queues-panel tbody tr")).to_have_count(2, timeout=PATIENCE)
    expect(page.locator("#queues-panel tbody th .id").filter(has_text="<img")).to_have_text(HOSTILE)
    expect(page.locator("#workers-panel tbody th .id")).to_have_text(HOSTILE)
    page.locator("#terms-chart svg").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#tip")).to_contain_text(HOSTILE)
    sign_in(page)
    page.get_by_role("button", name=f"Pause {HOSTILE}").click()
    expect(page.locator("#confirm-title")).to_contain_text(HOSTILE)
    page.click("#confirm-go")
    expect(page.locator("#confirm")).to_be_hidden(timeout=PATIENCE)
    expect(page.locator("#toasts")).to_contain_text("<img src=x")
    assert page.evaluate("window.owned") is None
    assert page.locator("img").count() == 1, "the mark in the header, and no other picture"
