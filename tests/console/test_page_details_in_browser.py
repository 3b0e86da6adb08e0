"""Parts of single pages in a real browser: what-if, forks, older rows, chats, lost pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

import tertulia
from tertulia import Source
from tests.console.page_checks import check_page, find_barriers
from tests.console.served_console import served_console
from tests.console.test_flows_in_browser import put_dead
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


def put_failed(path: Path | str) -> None:
    """Store messages whose answers failed for good."""
    with tertulia.open(path) as store:
        for number in range(3):
            store.inbox.put(ANA, f"hello {number}", message_id=f"{number}")
            for claimed in store.inbox.claim():
                store.inbox.failed(claimed, "the model refused", for_good=True)


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
