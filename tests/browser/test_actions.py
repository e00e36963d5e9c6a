"""Nothing can be done without the token; with it, what was asked for really happens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE, TOKEN, Dashboard, Fleet, leader_on, sign_in
from tests.support.command import tenure_process

pytestmark = [pytest.mark.servers, pytest.mark.req("OP-5")]

ASK = """async ([path, body]) => {
  const headers = {"Content-Type": "application/json"};
  const answer = await fetch(`api/actions/${path}`, {method: "POST", headers, body});
  return answer.status;
}"""


def test_actions_are_refused_without_the_token(
    fleet: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page]
) -> None:
    fleet.start("ada", "ben", queues=("emails",))
    tenure_process("queue", "put", fleet.url, "emails", "1")
    page = look(serve(fleet.url).url)
    leader = leader_on(page)
    expect(page.locator("#queues-panel tbody tr")).to_have_count(1, timeout=PATIENCE)
    expect(page.locator("#sign-in")).to_be_visible()
    expect(page.locator("#leader-actions")).to_be_hidden()
    expect(page.locator("#queues-panel tbody button")).to_have_count(0)
    # Not shown is not yet refused: the server itself is asked.
    assert page.evaluate(ASK, ["step-down", "{}"]) == 401
    assert page.evaluate(ASK, ["queue-pause", '{"queue": "emails"}']) == 401
    page.click("#sign-in")
    page.fill("#token", "not-the-token-at-all")
    page.keyboard.press("Enter")
    expect(page.locator("#sign-in-error")).to_contain_text("That is not the token.")
    expect(page.locator("#token")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#sign-in")).to_be_focused()
    assert leader_on(page) == leader
    assert tenure_process("queue", "stats", fleet.url, "emails", "--json").json()["paused"] is False


def test_without_a_configured_token_nobody_can_sign_in(
    fleet: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page]
) -> None:
    fleet.start("ada")
    page = look(serve(fleet.url, token=None).url)
    leader_on(page)
    expect(page.locator("#foot")).to_contain_text("read-only: start it with --token-file FILE to allow actions")
    expect(page.locator("#sign-in")).to_be_hidden()
    assert page.evaluate(ASK, ["step-down", "{}"]) == 403


def test_with_the_token_the_leader_steps_down_and_hands_over(
    fleet: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page]
) -> None:
    fleet.start("ada", "ben", "cleo", lease=10)  # long enough for a named successor to be in time on a busy machine
    page = look(serve(fleet.url).url)
    first = leader_on(page)
    sign_in(page)
    page.click("#step-down")
    expect(page.locator("#confirm-says")).to_contain_text(f"{first} (epoch 1)")
    page.check("#confirm-force")
    page.click("#confirm-go")
    expect(page.locator("#confirm")).to_be_hidden(timeout=PATIENCE)
    expect(page.locator("#toasts .toast.ok")).to_have_count(1)
    second = leader_on(page, other_than=first)
    assert tenure_process("status", fleet.url, "--json").json()["leader"] == second

    third = next(name for name in fleet.processes if name not in (first, second))
    page.click("#transfer")
    page.fill("#confirm-filter", third)
    expect(page.locator("#confirm-workers label")).to_have_count(1)
    page.get_by_label(third).check()
    page.check("#confirm-force")
    page.click("#confirm-go")
    expect(page.locator("#confirm")).to_be_hidden(timeout=PATIENCE)
    expect(page.locator("#leader-name")).to_have_text(third, timeout=PATIENCE)

    # Who has signed out cannot go on.
    page.click("#sign-out")
    expect(page.locator("#leader-actions")).to_be_hidden()
    assert page.evaluate(ASK, ["step-down", "{}"]) == 401


def test_at_an_address_that_others_can_reach_nothing_is_shown_without_the_token(
    fleet: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page]
) -> None:
    fleet.start("ada")
    port = serve(fleet.url, host="0.0.0.0").port
    page = look(f"http://127.0.0.1:{port}/")
    expect(page.locator("#sign-in-dialog")).to_be_visible()
    expect(page.locator("#token")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#sign-in-dialog")).to_be_visible()
    assert "ada" not in page.content()
    expect(page.locator("main")).to_be_hidden()
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    assert leader_on(page) == "ada"
    page.click("#sign-out")
    expect(page.locator("#sign-in-dialog")).to_be_visible()
    expect(page.locator("main")).to_be_hidden()


def test_a_dashboard_that_was_started_anew_knows_nobody(
    fleet: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page]
) -> None:
    fleet.start("ada")
    dashboard = serve(fleet.url)
    page = look(dashboard.url)
    leader_on(page)
    sign_in(page)
    expect(page.locator("#leader-actions")).to_be_visible()
    dashboard.kill()
    expect(page.locator("#lost")).to_be_visible(timeout=PATIENCE)
    serve(fleet.url, port=dashboard.port)
    expect(page.locator("#sign-in")).to_be_visible(timeout=PATIENCE)
    expect(page.locator("#leader-actions")).to_be_hidden()


def test_by_keyboard_alone(fleet: Fleet, serve: Callable[..., Dashboard], look: Callable[..., Page]) -> None:
    """Sign in, pause a queue, resume it: without a mouse, and with the focus where it belongs after each step."""
    fleet.start("ada", queues=("emails", "webhooks"))
    for queue in ("emails", "webhooks"):
        tenure_process("queue", "put", fleet.url, queue, "1")
    page = look(serve(fleet.url).url)
    leader_on(page)
    expect(page.locator("#queues-panel tbody tr")).to_have_count(2, timeout=PATIENCE)

    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the leader"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()

    page.evaluate("document.activeElement.blur()")
    tab_to(page, "Sign in")
    page.keyboard.press("Enter")
    expect(page.locator("#token")).to_be_focused()
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#sign-in-dialog")).to_be_hidden()
    expect(page.locator("#sign-out")).to_be_focused()

    page.keyboard.press("q")
    assert page.evaluate("document.activeElement.id") == "queues"
    tab_to(page, "Pause emails")
    page.keyboard.press("Enter")
    expect(page.locator("#confirm-title")).to_have_text("Pause the queue emails?")
    page.keyboard.press("Escape")
    expect(page.locator("#confirm")).to_be_hidden()
    assert focused(page) == "Pause emails"
    assert tenure_process("queue", "stats", fleet.url, "emails", "--json").json()["paused"] is False

    page.keyboard.press("Enter")
    expect(page.locator("#confirm-go")).to_be_focused()
    # A dialog keeps the focus: however often one tabs, nothing behind it is reached.
    for _ in range(4):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    page.locator("#confirm-go").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#confirm")).to_be_hidden(timeout=PATIENCE)
    expect(page.locator("#toasts")).to_contain_text("emails: it is paused")
    assert tenure_process("queue", "stats", fleet.url, "emails", "--json").json()["paused"] is True
    assert tenure_process("queue", "stats", fleet.url, "webhooks", "--json").json()["paused"] is False
    expect(page.get_by_role("button", name="Resume emails")).to_be_focused(timeout=PATIENCE)

    page.keyboard.press("Enter")
    expect(page.locator("#confirm-title")).to_have_text("Resume the queue emails?")
    page.keyboard.press("Enter")
    expect(page.locator("#confirm")).to_be_hidden(timeout=PATIENCE)
    assert tenure_process("queue", "stats", fleet.url, "emails", "--json").json()["paused"] is False

    # Charts are walked by arrow keys, tables sorted by Enter.
    page.locator("#terms-chart svg").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#tip")).to_contain_text("Epoch 1: ada")
    page.keyboard.press("Tab")
    expect(page.locator("#tip")).to_be_hidden()
    page.locator("#queues-panel thead button", has_text="Dead").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#queues-panel th", has_text="Dead")).to_have_attribute("aria-sort", "descending")


def focused(page: Page) -> str:
    return str(
        page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent.trim()")
    )


def tab_to(page: Page, name: str) -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        if focused(page) == name:
            return
    raise AssertionError(f"{name!r} cannot be reached with Tab")
