"""The chat when something fails or comes late: nothing typed is lost, nothing stands twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

import pytest
from playwright.sync_api import APIResponse, Page, Route, expect

from tertulia.agents import Delta, ParrotAgent
from tertulia.agents.base import Event, Request
from tests.console.served_console import ServedConsole, served_console
from tests.console.test_live_in_browser import set_hidden
from tests.http.agents import HeldAgent
from tests.servers.browser import WatchedContext, hold_first

pytestmark = pytest.mark.check

Profile = Callable[..., WatchedContext]
SAY = "**/console/do/say"


class FailingAgent(ParrotAgent):
    """An agent that begins to answer, and fails."""

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        yield Delta("well, ")
        raise ConnectionError("the model is gone")


def open_chat(console: ServedConsole, browser: WatchedContext) -> Page:
    """Open the chat in a new tab, and wait until it is live."""
    page = browser.page() if browser.context.pages else console.sign_in(browser)
    page.goto("/console/chat")
    expect(page.locator("#liveness")).to_have_text("Live.")
    return page


def send(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def user_messages(console: ServedConsole) -> list[str]:
    with console.gateway.store() as store:
        (session,) = store.sessions.find().items
        messages = store.transcript(session.id).load()
    return [each["content"] for each in messages if each["role"] == "user"]


def test_what_is_typed_while_a_message_is_on_its_way_is_the_next_one(
    where: str, profile: Profile
) -> None:
    held: list[Route] = []
    with served_console(where) as console:
        page = open_chat(console, profile(console.url))
        page.route(SAY, hold_first(held))
        send(page, "first")
        expect(page.locator("#say")).to_have_value("")
        page.keyboard.type("second")
        page.keyboard.press("Enter")
        page.keyboard.type("third")
        page.keyboard.press("Enter")
        page.keyboard.type("fourth")
        expect(page.locator("#draft .entry.person")).to_have_count(3)
        held[0].continue_()
        expect(page.locator("#live_chat .entry.agent")).to_have_count(3)
        expect(page.locator("#draft .entry")).to_have_count(0)
        expect(page.get_by_label("Message", exact=True)).to_have_value("fourth")
        assert user_messages(console) == ["first", "second", "third"]


def test_message_that_is_changed_after_a_lost_response_is_another_one(
    where: str, profile: Profile
) -> None:
    def lose(route: Route) -> None:
        route.fetch()  # the server has stored it
        route.abort()

    with served_console(where) as console:
        page = open_chat(console, profile(console.url))
        page.route(SAY, lose)
        send(page, "Hello")
        expect(page.locator("#notice")).to_contain_text("did not answer")
        expect(page.get_by_label("Message", exact=True)).to_have_value("Hello")
        page.keyboard.press("Enter")  # the same one again
        expect(page.get_by_label("Message", exact=True)).to_have_value("Hello")
        page.unroute(SAY)
        send(page, "Hello again")
        expect(page.locator("#live_chat .entry.agent")).to_have_count(2)
        assert user_messages(console) == ["Hello", "Hello again"]


def test_tab_that_was_in_the_background_shows_an_answer_once(where: str, profile: Profile) -> None:
    agent = HeldAgent()
    with served_console(where, agent=agent) as console:
        browser = profile(console.url)
        page, other = open_chat(console, browser), open_chat(console, browser)
        send(page, "hello")
        expect(page.locator("#draft .entry.agent")).to_contain_text("well, ")
        set_hidden(page, is_hidden=True)
        agent.may_go_on.set()
        expect(other.locator("#live_chat .entry.agent")).to_contain_text("well, hello")
        set_hidden(page, is_hidden=False)
        expect(page.locator("#live_chat .entry")).to_have_count(2)
        expect(page.locator("#draft .entry")).to_have_count(0)


def test_command_leaves_the_answer_that_is_being_written_in_view(
    where: str, profile: Profile
) -> None:
    agent = HeldAgent()
    with served_console(where, agent=agent) as console:
        page = open_chat(console, profile(console.url))
        send(page, "hello")
        answer = page.locator("#draft .entry.agent")
        expect(answer).to_contain_text("well, ")
        send(page, "/queue")
        expect(page.locator("#live_chat .entry.note")).to_contain_text("Nothing is waiting")
        expect(answer).to_contain_text("well, ")
        agent.may_go_on.set()
        expect(page.locator("#live_chat .entry.agent")).to_contain_text("well, hello")
        expect(answer).to_have_count(0)


def test_text_that_a_program_delivers_stands_once_between_the_messages(
    where: str, profile: Profile
) -> None:
    """It is in no transcript; a tab that is opened later shows it too."""
    with served_console(where) as console:
        browser = profile(console.url)
        page = open_chat(console, browser)
        entries = page.locator("#live_chat .entry")
        send(page, "first")
        expect(entries).to_have_count(2)
        with console.gateway.client() as client:
            delivery = {"text": "The **backup** is done.", "to": "web:console"}
            assert client.post("/deliveries", json=delivery).status_code == 200
        expect(page.locator("#live_chat .entry.note strong")).to_have_text("backup")
        send(page, "second")
        texts = ["first", "first", "The backup is done.", "second", "second"]
        for tab in (page, open_chat(console, browser)):
            expect(tab.locator("#live_chat .entry .words")).to_contain_text(texts)
            expect(tab.locator("#draft .entry")).to_have_count(0)


def test_reply_to_a_command_that_came_to_a_hidden_tab_is_shown_once(
    where: str, profile: Profile
) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    with served_console(where) as console:
        browser = profile(console.url)
        page, other = open_chat(console, browser), open_chat(console, browser)
        page.route(SAY, hold)
        send(page, "/queue")
        expect(page.locator("#draft .entry.person")).to_have_text("You/queue")
        while not held:
            let_page_run(page)
        set_hidden(page, is_hidden=True)
        held[0].continue_()
        expect(other.locator("#chat .entry.note")).to_contain_text("Nothing is waiting")
        set_hidden(page, is_hidden=False)
        for _ in range(2):
            expect(page.locator("#live_chat .entry.note")).to_contain_text("Nothing is waiting")
            expect(page.locator("#draft .entry")).to_have_count(0)
            page.reload()


def test_rest_of_a_long_message_is_shown(where: str, profile: Profile) -> None:
    """The chat itself is loaded again with each event, so the link leads to the transcript."""
    with served_console(where) as console:
        page = open_chat(console, profile(console.url))
        send(page, f"{'x ' * 3000} the end")
        expect(page.locator("#live_chat .entry.agent")).to_have_count(1)
        page.locator("#live_chat .entry.person .more a").click()
        expect(page.locator(".entry.person .words")).to_contain_text("the end")
        expect(page.locator(".entry.person .more")).to_have_count(0)


def test_person_is_told_that_the_agent_failed(where: str, profile: Profile) -> None:
    with served_console(where, agent=FailingAgent()) as console:
        page = open_chat(console, profile(console.url))
        send(page, "hello")
        expect(page.locator("#live_chat .entry.note")).to_contain_text("I could not answer")
        expect(page.locator("#live_chat .entry")).to_have_count(2)
        expect(page.locator("#draft .entry")).to_have_count(0)


def test_answer_after_a_command_that_was_not_sent_is_shown_once(
    where: str, profile: Profile
) -> None:
    with served_console(where) as console:
        page = open_chat(console, profile(console.url))
        page.route(SAY, lambda route: route.abort())
        send(page, "/help")
        expect(page.locator("#notice")).to_contain_text("did not answer")
        page.unroute(SAY)
        send(page, "some **bold** words")
        expect(page.locator("#live_chat .entry.agent strong")).to_have_text("bold")
        expect(page.locator("#draft .entry")).to_have_count(0)


def test_thing_to_try_works_in_the_next_conversation_too(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        page = open_chat(console, profile(console.url))
        send(page, "/new")
        expect(page.locator("#live_chat .entry.note")).to_have_count(1)
        page.reload()
        send(page, "hello")
        expect(page.locator("#live_chat .entry.agent")).to_have_count(1)
        with console.gateway.store() as store:
            (session,) = store.sessions.find(state="current").items
            store.transcript(session.id).undo()
        for is_hidden in (True, False):  # nothing is there any more, without a reload
            set_hidden(page, is_hidden)
        page.get_by_role("button", name="/help").click()
        expect(page.locator("#live_chat .entry.note").last).to_contain_text("/resume")


def test_each_loss_of_the_stream_has_its_own_time(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        page = open_chat(console, profile(console.url))
        since = []
        for minute in (1, 2):
            page.clock.set_fixed_time(f"2026-05-01T10:0{minute}:00")
            page.route("**/chat/events", lambda route: route.abort())
            for is_hidden in (True, False):
                set_hidden(page, is_hidden)
            expect(page.locator("#liveness")).to_contain_text("Not live since")
            since.append(page.locator("#liveness").inner_text())
            page.unroute("**/chat/events")
            for is_hidden in (True, False):
                set_hidden(page, is_hidden)
            expect(page.locator("#liveness")).to_have_text("Live.")
        assert ":01" in since[0]
        assert ":02" in since[1]


def test_message_that_is_answered_while_the_transcript_loads_stands_once(
    where: str, profile: Profile
) -> None:
    """The load was under way when the message was stored, so it has to be followed by another."""
    held: list[tuple[Route, APIResponse]] = []

    def hold_response(route: Route) -> None:
        if route.request.method in [each.request.method for each, _ in held]:
            route.continue_()
        else:
            held.append((route, route.fetch()))

    with served_console(where) as console:
        page = open_chat(console, profile(console.url))
        send(page, "first")
        expect(page.locator("#live_chat .entry.agent")).to_have_count(1)
        expect(page.locator("#draft .entry")).to_have_count(0)
        page.route("**/console/chat?part=chat", hold_response)
        page.route(SAY, hold_response)
        set_hidden(page, True)
        set_hidden(page, False)  # the stream opens again, and the transcript is loaded
        while not held:
            let_page_run(page)
        send(page, "second")
        while len(user_messages(console)) < 2 or len(held) < 2:
            let_page_run(page)
        for route, response in reversed(held):
            let_page_run(page)
            route.fulfill(response=response)
        expect(page.locator("#live_chat .entry.agent")).to_have_count(2)
        expect(page.locator("#draft .entry")).to_have_count(0)


def let_page_run(page: Page) -> None:
    """Return when the page has done what it had put off, such as loading the transcript."""
    page.evaluate("new Promise((done) => setTimeout(done, 200))")
