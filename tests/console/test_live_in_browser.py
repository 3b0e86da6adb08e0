"""Open pages stay right: many tabs, a laptop that slept, another node, without a reload."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import APIResponse, Page, Route, expect

import tertulia
from tertulia import Source
from tests.console.console_process import console_process
from tests.console.served_console import ServedConsole, served_console
from tests.http.served_gateway import SECRETS
from tests.records.store_inspection import execute
from tests.servers.browser import WatchedContext
from tests.servers.cut_proxy import cut_proxy
from tests.servers.ports import free_port

pytestmark = pytest.mark.check

Profile = Callable[..., WatchedContext]
ANA = Source("telegram", "42", user_id="42", user_name="Ana")


def exchange(store: tertulia.Store, number: int) -> str:
    """Say something and answer it; return the id of the session."""
    with store.turn(ANA, f"question {number}", message_id=f"{number}") as turn:
        turn.add_assistant(f"answer {number}")
    return turn.session.id


def sign_in(page: Page) -> None:
    """Sign in with the owner's token, on the page itself."""
    page.goto("/console/enter")
    page.get_by_text("I have a token").click()
    page.get_by_label("Token").fill(SECRETS["root"])
    page.get_by_role("button", name="Sign in with the token").click()
    page.wait_for_url("**/console/")


def set_hidden(page: Page, is_hidden: bool) -> None:
    """Let a page believe that its tab was put into the background, or brought to the front."""
    page.evaluate(
        """(isHidden) => {
          Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


# Notes each text that the sign of the connection shows from now on.
WATCH_LIVENESS = """() => {
  const element = document.querySelector("#liveness");
  window.shownLiveness = [];
  new MutationObserver(() => window.shownLiveness.push(element.textContent))
    .observe(element, { childList: true, characterData: true, subtree: true });
}"""

# Notes each number of entries that the page shows from now on.
WATCH_ENTRIES = """() => {
  window.entryWatch?.disconnect();
  const count = () => document.querySelectorAll(".entry").length;
  window.shownCounts = [count()];
  window.entryWatch = new MutationObserver(() => window.shownCounts.push(count()));
  window.entryWatch.observe(document.body, { childList: true, subtree: true });
}"""


def is_live(page: Page) -> None:
    expect(page.locator("#liveness")).to_have_text("Live.")


def test_tabs_on_one_session_seven_of_them_and_one_is_looked_at(
    where: str, profile: Profile
) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            session = exchange(store, 1)
        browser = profile(console.url)
        tabs = [_tab(console, browser, f"/console/sessions/{session}") for _ in range(2)]
        # Two tabs on one session: what one does, the other shows.
        tabs[0].get_by_role("button", name="Undo last exchange").click()
        for tab in tabs:
            expect(tab.locator(".entry")).to_have_count(0)
        tabs[1].get_by_role("button", name="Redo").click()
        for tab in tabs:
            expect(tab.locator(".entry")).to_have_count(2)
        # Six connections are all that a browser has for a host: tabs in the background hold none.
        addresses = ["/console/", "/console/sessions", "/console/deliveries", "/console/chat"]
        for address in addresses:
            set_hidden(tabs[-1], is_hidden=True)
            tabs.append(_tab(console, browser, address))
        set_hidden(tabs[0], is_hidden=True)
        set_hidden(tabs[-1], is_hidden=True)
        seventh = _tab(console, browser, f"/console/sessions/{session}")
        with console.gateway.store() as store:
            exchange(store, 2)
        expect(seventh.locator(".entry")).to_have_count(4)
        set_hidden(seventh, is_hidden=True)
        expect(tabs[0].locator(".entry")).to_have_count(2)  # nobody looks at it, for an hour
        tabs[0].clock.set_system_time(datetime.now(UTC) + timedelta(hours=1))
        set_hidden(tabs[0], is_hidden=False)
        expect(tabs[0].locator(".entry")).to_have_count(4)
        is_live(tabs[0])


def test_page_is_right_after_the_late_response_of_a_button(where: str, profile: Profile) -> None:
    held: list[tuple[Route, APIResponse]] = []
    with served_console(where) as console:
        with console.gateway.store() as store:
            exchange(store, 1)
            session = exchange(store, 2)
        page = _tab(console, profile(console.url), f"/console/sessions/{session}")
        page.route("**/do/undo", lambda route: held.append((route, route.fetch())))
        page.get_by_role("button", name="Undo last exchange").click()
        expect(page.locator(".entry")).to_have_count(2)
        with console.gateway.store() as store:
            exchange(store, 3)
        expect(page.locator(".entry")).to_have_count(4)  # the stream is quicker than the response
        ((route, response),) = held
        route.fulfill(response=response)
        expect(page.locator("#notice")).to_contain_text("taken back")
        expect(page.locator(".entry")).to_have_count(4)
        is_live(page)


def test_stream_without_a_sign_of_life_is_opened_again_for_what_the_page_has(
    where: str, profile: Profile
) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            session = exchange(store, 1)
        page = console.sign_in(profile(console.url))
        page.clock.install()
        page.goto(f"/console/sessions/{session}")
        is_live(page)
        address = page.locator("#live").get_attribute("hx-sse:connect") or ""
        with console.gateway.store() as store:
            exchange(store, 2)
        expect(page.locator(".entry")).to_have_count(4)
        with page.expect_request("**/console/live?*") as request:
            page.clock.fast_forward(36_000)
        assert _since(request.value.url) != _since(address)
        is_live(page)


def _since(address: str) -> str:
    """Return the state of a page that its stream begins with."""
    return parse_qs(urlsplit(address).query)["since"][0]


def _tab(console: ServedConsole, browser: WatchedContext, address: str) -> Page:
    """Open a tab, and wait until it is live."""
    page = browser.page() if browser.context.pages else console.sign_in(browser)
    page.goto(address)
    is_live(page)
    return page


def test_a_laptop_that_slept_an_hour_is_right_without_a_reload(
    where: str, profile: Profile
) -> None:
    with served_console(where) as console, cut_proxy(int(console.url.rpartition(":")[2])) as proxy:
        with console.gateway.store() as store:
            session = exchange(store, 1)
        page = profile(proxy.url).page()
        sign_in(page)
        page.goto(f"/console/sessions/{session}")
        is_live(page)
        page.evaluate("window.isSame = true")
        proxy.cut()
        with console.gateway.store() as store:
            for number in range(2, 6):
                exchange(store, number)
        expect(page.locator("#liveness")).to_contain_text("Not live since")
        page.clock.set_system_time(datetime.now(UTC) + timedelta(hours=1))
        expect(page.locator(".entry")).to_have_count(2)  # the old content stays
        proxy.resume()
        expect(page.locator(".entry")).to_have_count(10)
        is_live(page)
        texts = page.locator(".entry .words").all_inner_texts()
        assert texts == [f"{what} {n}" for n in range(1, 6) for what in ("question", "answer")]
        assert page.evaluate("window.isSame") is True


def test_page_without_a_connection_does_not_call_itself_live_when_it_is_looked_at(
    where: str, profile: Profile
) -> None:
    with served_console(where) as console, cut_proxy(int(console.url.rpartition(":")[2])) as proxy:
        page = profile(proxy.url).page()
        sign_in(page)
        is_live(page)
        proxy.cut()
        expect(page.locator("#liveness")).to_contain_text("Not live since")
        page.evaluate(WATCH_LIVENESS)
        set_hidden(page, is_hidden=True)
        set_hidden(page, is_hidden=False)
        assert page.evaluate("window.shownLiveness.includes('Live.')") is False
        proxy.resume()
        is_live(page)


def test_tab_does_not_go_back_to_what_another_tab_has_loaded(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            session = exchange(store, 1)
        browser = profile(console.url)
        tabs = [_tab(console, browser, f"/console/sessions/{session}") for _ in range(2)]
        for button, count in [("Undo last exchange", 0), ("Redo", 2)] * 3:
            tabs[0].evaluate(WATCH_ENTRIES)
            tabs[0].get_by_role("button", name=button).click()
            for tab in tabs:
                expect(tab.locator(".entry")).to_have_count(count)
            counts = tabs[0].evaluate("window.shownCounts")
            assert counts == sorted(counts, reverse=count == 0)


def test_a_cookie_that_expires_under_a_live_page_leads_to_sign_in_and_back(
    where: str, profile: Profile
) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            session = exchange(store, 1)
        browser = profile(console.url)
        page = _tab(console, browser, f"/console/sessions/{session}")
        chat = _tab(console, browser, "/console/chat")
        with console.gateway.store() as store:
            execute(store, f"update browsers set seen_at = seen_at - {8 * 86_400_000_000}")
            exchange(store, 2)
        expect(page.locator("#liveness")).to_have_text("Signed out.")
        expect(page.locator(".entry")).to_have_count(2)  # the old content stays
        for is_hidden in (True, False):
            set_hidden(chat, is_hidden)
        expect(chat.locator("#notice")).to_contain_text("You are signed out")
        page.get_by_role("link", name="Sign in again").click()
        page.get_by_text("I have a token").click()
        page.get_by_label("Token").fill(SECRETS["root"])
        page.get_by_role("button", name="Sign in with the token").click()
        page.wait_for_url(f"**/console/sessions/{session}")
        expect(page.locator(".entry")).to_have_count(4)
        is_live(page)
        # A refused stream is an error in the log of a browser; here it is what is tested.
        browser.problems[:] = [each for each in browser.problems if "401" not in each]


def test_another_node_goes_on_with_the_page_when_its_node_dies(
    where: str, profile: Profile
) -> None:
    with tertulia.open(where) as store:
        session = exchange(store, 1)
    with (
        console_process(where, free_port()) as first,
        console_process(where, free_port()) as second,
        cut_proxy(int(first.url.rpartition(":")[2])) as proxy,
    ):
        page = profile(proxy.url).page()
        sign_in(page)
        page.goto(f"/console/sessions/{session}")
        is_live(page)
        page.evaluate("window.isSame = true")
        first.kill()
        proxy.resume(int(second.url.rpartition(":")[2]))
        with tertulia.open(where) as store:
            exchange(store, 2)
        expect(page.locator(".entry")).to_have_count(4)
        is_live(page)
        page.get_by_role("button", name="Undo last exchange").click()
        expect(page.locator(".entry")).to_have_count(2)
        assert page.evaluate("window.isSame") is True
