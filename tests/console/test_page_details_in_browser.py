"""Parts of single pages in a real browser: what-if, forks, older rows, chats, lost pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from tertulia import Source, Store
from tests.console.page_checks import check_page, find_barriers
from tests.console.served_console import served_console
from tests.console.test_app import addresses
from tests.console.test_flows_in_browser import put_dead
from tests.console.test_form_actions import put_failed
from tests.console.test_touch_in_browser import PHONE
from tests.http.agents import HeldAgent
from tests.http.served_gateway import eventually
from tests.servers.browser import WatchedContext

pytestmark = pytest.mark.check

Profile = Callable[..., WatchedContext]
ANA = Source("telegram", "42", user_id="42", user_name="Ana")


def test_the_what_if_of_policies_takes_the_time_of_its_field(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        page = console.sign_in(profile(console.url))
        page.goto("/console/policies")
        page.get_by_label("Platform").select_option("telegram")
        page.get_by_label("Zone").fill("Asia/Tokyo")
        page.get_by_label("Last activity").fill("2026-03-04T20:00")
        page.get_by_role("button", name="Tell me").click()
        # A day after 20:00 in Tokyo, in the zone of the page, which a time tells by itself.
        verdict = page.locator(".card")
        expect(verdict).to_contain_text("because nobody wrote for a while")
        assert verdict.locator("time").get_attribute("datetime") == "2026-03-05T11:00:00Z"
        expect(page.get_by_label("Last activity")).to_have_value("2026-03-04T20:00")
        page.get_by_label("Zone").fill("Mars/Olympus")
        page.get_by_role("button", name="Tell me").click()
        expect(page.locator(".notice.bad")).to_contain_text("There is no time zone")
        expect(page.get_by_label("Zone")).to_have_value("Mars/Olympus")


def test_a_past_revision_is_forked(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            for number in range(2):
                with store.turn(ANA, f"Question {number}", message_id=f"{number}") as turn:
                    turn.add_assistant(f"Answer {number}")
            session = turn.session.id
            store.transcript(session).undo()
        page = console.sign_in(profile(console.url))
        page.goto(f"/console/sessions/{session}/revisions?n=1")
        expect(page.locator(".entry")).to_have_count(4)
        page.get_by_role("button", name="Fork").click()
        page.wait_for_url(re.compile(f"/console/sessions/(?!{session})"))
        expect(page.locator(".entry")).to_have_count(4)  # what was undone is in the fork
        with console.gateway.store() as store:
            assert store.transcript(session).count() == 2


def test_a_lost_page_keeps_the_frame(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        owner, stranger = profile(console.url), profile(console.url)
        page = console.sign_in(owner)
        for address in ("/console/nowhere", "/console/sessions/nothing", "/console/a/b/c"):
            response = page.goto(address)
            assert response is not None
            assert response.status == 404
            expect(page.locator("h1")).to_have_text("Not found")
            expect(page.locator("nav").first).to_be_visible()
            check_page(owner, page)
            assert find_barriers(page) == []
        page.get_by_role("link", name="Now").last.click()
        expect(page).to_have_url(f"{console.url}/console/")
        bare = stranger.page()
        response = bare.goto("/console/nowhere")
        assert response is not None
        assert response.status == 404
        expect(bare.locator("nav")).to_have_count(0)


def test_older_deliveries_are_reached(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            session = store.sessions.open(ANA)
            store.in_one_commit(lambda: put_dead(store, session.id, 120))
        page = console.sign_in(profile(console.url))
        page.goto("/console/deliveries?state=dead")
        seen: set[str | None] = set()
        for count in (50, 50, 20):
            rows = page.locator(".rows > li")
            expect(rows).to_have_count(count)
            seen |= {row.get_attribute("id") for row in rows.all()}
            if count == 50:
                page.get_by_role("link", name="Older ones").click()
                page.wait_for_url("**cursor=*")
                expect(rows.first).not_to_have_id(str(sorted(map(str, seen))[-1]))
        assert len(seen) == 120


def test_the_way_of_a_message_tells_who_let_it_in_and_settles_its_deliveries(
    where: str, profile: Profile
) -> None:
    agent = HeldAgent()
    source = Source("web", "c", account="ana", user_id="ana", user_name="Ana")
    with served_console(where, agent=agent) as console:
        page = console.sign_in(profile(console.url))
        with console.gateway.store() as store:
            number = store.inbox.put(source, "hello", message_id="1").id
            assert agent.began.acquire(timeout=60)
            session = store.sessions.find().items[0].id
            store.outbox.put("A part of the answer", "telegram:42", session_id=session)
            for delivery in store.outbox.claim(platforms=["telegram"]):
                store.outbox.failed(delivery, "the connection was lost", outcome="unknown")
            agent.may_go_on.set()
            eventually(lambda: store.inbox.find(state="done").items)
        page.goto(f"/console/messages/{number}")
        way = page.locator(".events")
        expect(way).to_contain_text("Admitted, because Ana is a guest")
        expect(way).to_contain_text(f"on node {console.gateway.gateway.pipeline.node}")
        part = way.locator("li", has_text="A part of the answer")
        expect(part).to_contain_text("Perhaps delivered")
        part.get_by_role("button", name="It arrived").click()
        expect(part).to_contain_text("Delivered")
        expect(part.get_by_role("button")).to_have_count(0)


def test_groups_of_messages_are_settled_without_answers(where: str, profile: Profile) -> None:
    with served_console(where, prepare=put_failed) as console:
        page = console.sign_in(profile(console.url))
        page.goto("/console/deliveries")
        page.get_by_role("button", name="No answers needed").click()
        expect(page.locator("#notice")).to_contain_text("3 settled.")
        with console.gateway.store() as store:
            assert store.inbox.find(state="dead").items == ()


def test_the_field_of_a_chat_stands_at_the_end_of_a_phone(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        page = console.sign_in(profile(console.url, **PHONE))
        page.goto("/console/chat")
        expect(page.locator("#liveness")).to_have_text("Live.")
        expect(page.locator("h1")).to_be_in_viewport()
        expect(page.get_by_label("Message")).to_be_in_viewport(ratio=1)
        page.get_by_role("button", name="Tell me a short story.").tap()
        expect(page.locator("#live_chat .entry.agent")).to_contain_text("Tell me a short story.")
        expect(page.locator("#tries")).to_have_count(0)
        for number in range(3):
            page.get_by_label("Message").fill(f"Line\nline\nline\nline {number}")
            page.keyboard.press("Enter")
            expect(page.locator("#live_chat .entry.agent")).to_have_count(2 + number)
            expect(page.locator("#live_chat .entry").last).to_be_in_viewport()
            expect(page.get_by_label("Message")).to_be_in_viewport(ratio=1)


def test_days_without_a_known_cost_are_drawn_by_tokens(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            for day in (1, 2):
                with store.turn(ANA, "hello", message_id=f"{day}") as turn:
                    turn.add_assistant("hi", usage=None)
            store.inbox.put(
                Source("web", "c", account="ana", user_id="ana"), "hello", message_id="3"
            )
            eventually(lambda: store.inbox.find(state="done").items)
            today = store.now()
        page = console.sign_in(profile(console.url))
        since = today - timedelta(days=3)
        page.goto(f"/console/usage?since={since:%Y-%m-%d}")
        chart = page.get_by_role("group", name="Tokens by day")
        expect(chart.locator(".bar")).to_have_count(1)
        expect(page.locator(".most")).to_contain_text("tokens on the busiest day")


def test_a_guest_is_greeted_and_has_a_name(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        page = console.sign_in(profile(console.url), "eve")
        page.goto("/console/chat")
        page.get_by_label("Message").fill("Hello")
        page.keyboard.press("Enter")
        expect(page.locator("#draft .entry.agent")).to_contain_text("Hello")
        owner = console.sign_in(profile(console.url))
        owner.goto("/console/sessions")
        expect(owner.locator(".open")).to_contain_text(re.compile(r"DM with visitor [0-9a-f]{6}$"))


def put_unknown(store: Store, number: int, platform: str = "telegram") -> None:
    """Store a delivery whose outcome nobody knows."""
    source = Source(platform, f"{number}", user_id=f"{number}", user_name=f"Person {number}")
    store.outbox.put(f"Text {number}", "origin", origin=source)
    for delivery in store.outbox.claim(platforms=[platform]):
        store.outbox.failed(delivery, f"lost, case {number}", outcome="unknown")


def test_nothing_moves_under_the_pointer_when_more_waits(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            put_unknown(store, 1)
        page = console.sign_in(profile(console.url))
        page.goto("/console/")
        expect(page.locator("#liveness")).to_have_text("Live.")
        card = page.locator(".card", has_text="Text 1")
        button = card.get_by_role("button", name="Give up")
        button.hover()
        button.focus()
        before = button.bounding_box()
        with console.gateway.store() as store:
            for number in (2, 3):
                put_unknown(store, number, "discord")
            store.people.request_pairing(Source("telegram", "5", user_id="5", user_name="Marta"))
        expect(page.locator(".card")).to_have_count(4)
        expect(page.locator("h1")).to_have_text("4 things wait for you")
        assert before is not None
        # The page scrolls right after its rows have changed, before the next frame is drawn.
        page.wait_for_function(
            "([button, y]) => Math.abs(button.getBoundingClientRect().y - y) < 2",
            arg=[button.element_handle(), before["y"]],
        )
        expect(button).to_be_focused()
        page.keyboard.press("Enter")  # it is still the button of the same delivery
        expect(card.locator(".word", has_text="unknown")).to_have_count(0)
        with console.gateway.store() as store:
            texts = [each.body["text"] for each in store.outbox.find(state="dead").items]
            assert texts == ["Text 1"]


def test_markdown_is_shown_as_written_by_one_switch(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store, store.turn(ANA, "hello", message_id="1") as turn:
            turn.add_assistant("A **bold** word")
        page = console.sign_in(profile(console.url))
        page.goto(f"/console/sessions/{turn.session.id}")
        expect(page.locator(".entry.agent strong")).to_have_text("bold")
        page.get_by_role("link", name="Show as written").click()
        expect(page.locator(".entry.agent")).to_contain_text("A **bold** word")
        page.get_by_role("link", name="Show it formatted").click()
        expect(page.locator(".entry.agent strong")).to_have_text("bold")


def test_times_have_a_zone_and_tell_utc(where: str, profile: Profile) -> None:
    with served_console(where, is_demo=True) as console:
        page = console.sign_in(profile(console.url))
        for address in ("/console/", "/console/sessions", "/console/usage", "/console/people"):
            page.goto(address)
            expect(page.locator(".foot")).to_contain_text("Times are in ")
            titles = page.evaluate(
                "[...document.querySelectorAll('main time')].map((e) => e.title)"
            )
            assert titles
            for title in titles:
                assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", title)


def test_colours_are_chosen_and_keys_switched_off(where: str, profile: Profile) -> None:
    with served_console(where, is_demo=True) as console:
        page = console.sign_in(profile(console.url, color_scheme="light"))
        page.goto("/console/")
        colour = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(colour)
        page.get_by_label("Colours").select_option("dark")
        dark = page.evaluate(colour)
        assert dark != light
        for key, address in (("s", "sessions"), ("b", "deliveries"), ("p", "people"), ("n", "")):
            page.keyboard.press("g")
            page.keyboard.press(key)
            page.wait_for_url(f"**/console/{address}")
            assert page.evaluate(colour) == dark  # it is kept
        page.keyboard.press("?")
        page.get_by_label("Use these keys").uncheck()
        page.keyboard.press("Escape")
        page.reload()  # that is kept, too
        for key in ("g", "s", "/", "?"):
            page.keyboard.press(key)
        expect(page.locator("#help")).to_be_hidden()
        expect(page).to_have_url(f"{console.url}/console/")


def test_keys_lead_to_older_and_newer_messages(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            transcript = store.transcript(store.sessions.open(ANA).id)
            transcript.extend([{"role": "user", "content": f"word {n}"} for n in range(150)])
        page = console.sign_in(profile(console.url))
        page.goto(f"/console/sessions/{transcript.session_id}")
        expect(page.locator(".entry")).to_have_count(60)
        expect(page.get_by_text("60 of 150 messages")).to_have_count(1)
        page.keyboard.press("[")
        page.wait_for_url("**before=*")
        expect(page.locator(".entry").last).to_contain_text("word 89")
        page.keyboard.press("]")
        page.wait_for_url("**after=*")
        expect(page.locator(".entry").first).to_contain_text("word 90")


def test_what_is_typed_survives_an_update(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store, store.turn(ANA, "Hello", message_id="1") as turn:
            turn.add_assistant("Hi")
        page = console.sign_in(profile(console.url))
        page.goto(f"/console/sessions/{turn.session.id}")
        expect(page.locator("#liveness")).to_have_text("Live.")
        page.locator(".entry .menu summary").first.click()
        field = page.get_by_label("What was said").first
        field.fill("Hello, dear")
        with console.gateway.store() as store, store.turn(ANA, "More", message_id="2") as turn:
            turn.add_assistant("Words")
        expect(page.locator(".entry")).to_have_count(4)
        expect(field).to_be_focused()
        expect(field).to_have_value("Hello, dear")
        page.get_by_role("button", name="Change it").first.click()
        expect(page.locator(".entry.person .words").first).to_have_text("Hello, dear")


def test_no_field_hides_the_id_of_its_form(where: str, profile: Profile) -> None:
    with served_console(where, is_demo=True) as console:
        page = console.sign_in(profile(console.url))
        for address in addresses(where).values():
            page.goto(address)
            hidden = page.evaluate("[...document.forms].filter((form) => form.elements.id).length")
            assert hidden == 0, address


def test_a_session_is_exported(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store, store.turn(ANA, "Hello <b>", message_id="1") as turn:
            turn.add_assistant("Hi **there**")
        page = console.sign_in(profile(console.url))
        page.goto(f"/console/sessions/{turn.session.id}")
        page.get_by_text("Fork, sum up, rename, export, erase").click()
        for label, ending in (("Markdown", "md"), ("HTML", "html"), ("JSON", "json")):
            with page.expect_download() as download:
                page.get_by_role("link", name=label, exact=True).click()
            assert download.value.suggested_filename == f"{turn.session.id}.{ending}"
            text = download.value.path().read_text("utf-8")
            assert "Hello" in text
            assert "there" in text
            if ending == "json":
                assert json.loads(text)["messages"][0]["content"] == "Hello <b>"
        with console.gateway.client("root") as program:
            reply = program.get(f"/sessions/{turn.session.id}/export", params={"format": "jsonl"})
            assert reply.status_code == 200
            assert len(reply.text.splitlines()) == 2
            wrong = program.get(f"/sessions/{turn.session.id}/export", params={"format": "exe"})
            assert wrong.status_code == 400
        with console.gateway.client("bob") as other:
            assert other.get(f"/sessions/{turn.session.id}/export").status_code == 404
