"""What people do with the console, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tertulia import Source, Store
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.settings import PlatformSettings
from tests.console.served_console import served_console
from tests.gateway.running_gateway import App
from tests.http.agents import HeldAgent
from tests.http.served_gateway import eventually, run_in
from tests.http.test_session_files import PIXEL
from tests.servers.browser import WatchedContext

pytestmark = pytest.mark.check

Profile = Callable[..., WatchedContext]
ANA = Source("telegram", "42", user_id="42", user_name="Ana")
# Strangers get a code, which the owner has to approve.
ASKING = GatewaySettings(platforms={"telegram": PlatformSettings(admission="paired")})


def test_a_link_signs_in_and_signing_out_elsewhere_ends_the_stream(
    where: str, profile: Profile
) -> None:
    with served_console(where) as console:
        browser = profile(console.url)
        page = browser.page()
        with console.gateway.store() as store:
            code = store.browsers.request_code("root")
            store.sessions.open(ANA)
        page.goto(f"/console/enter#{code}")
        page.wait_for_url("**/console/")
        assert code not in page.content()
        expect(page.locator("#liveness")).to_have_text("Live.")
        with console.gateway.store() as store:
            store.browsers.sign_out_all()
        expect(page.locator("#liveness")).to_contain_text("Signed out")
        browser.check(page)


def test_settle_an_unknown_delivery(where: str, profile: Profile) -> None:
    with served_console(where, is_demo=True) as console:
        page = console.sign_in(profile(console.url))
        page.goto("/console/")
        card = page.locator(".card", has_text="Did this arrive?")
        expect(card).to_have_count(1)
        card.get_by_role("button", name="It arrived").click()
        expect(card).to_have_count(0)
        expect(page.locator("#notice")).to_contain_text("Noted: it arrived.")
        with console.gateway.store() as store:
            assert store.outbox.find(state="unknown").items == ()


def test_end_and_take_it_back_by_keyboard(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            session = store.sessions.open(ANA)
        page = console.sign_in(profile(console.url))
        page.goto(f"/console/sessions/{session.id}")
        page.get_by_role("button", name="End", exact=True).press("Enter")
        expect(page.locator("#notice")).to_contain_text("The session has ended.")
        with console.gateway.store() as store:
            assert store.sessions.require(session.id).ended_at is not None
        page.keyboard.press("u")
        expect(page.locator("#notice")).to_contain_text("current one again")
        with console.gateway.store() as store:
            assert store.sessions.require(session.id).ended_at is None


def test_rows_change_in_place_and_new_ones_wait_behind_a_link(where: str, profile: Profile) -> None:
    with served_console(where, is_demo=True) as console:
        page = console.sign_in(profile(console.url))
        page.goto("/console/sessions")
        first = page.locator(".rows > li").first
        before = first.get_attribute("id")
        with console.gateway.store() as store:
            oldest = store.sessions.find().items[-1]
            store.sessions.rename(oldest.id, "Renamed meanwhile")
            store.sessions.open(Source("web", "brand-new", user_id="9"))
        expect(page.locator(f"#row-{oldest.id}")).to_contain_text("Renamed meanwhile")
        expect(page.locator("#live_newer")).to_contain_text("1 newer")
        assert page.locator(".rows > li").first.get_attribute("id") == before
        page.get_by_text("1 newer").click()
        expect(page.locator(".rows > li").first).not_to_have_id(str(before))


def test_the_navigation_counts_what_waits_and_rows_tell_whose_it_is(
    where: str, profile: Profile
) -> None:
    with served_console(where, is_demo=True) as console:
        page = console.sign_in(profile(console.url))
        page.goto("/console/sessions")
        counts = page.locator("#count_deliveries"), page.locator("#count_people")
        expect(counts[0]).to_have_text("4 wait for you")
        expect(counts[1]).to_have_text("1 waits for you")
        with console.gateway.store() as store:
            (unknown,) = store.outbox.find(state="unknown").items
            store.queues.settle_delivery(unknown.id, "sent")
            store.people.refuse(store.people.pending_pairings()[0].person)
        expect(counts[0]).to_have_text("3 wait for you")
        expect(counts[1]).to_have_text("")
        page.goto("/console/usage")  # it has no stream
        expect(counts[0]).to_have_text("3 wait for you")
        page.goto("/console/deliveries")
        row = page.locator(".rows > li", has_text="Deine Erinnerung")
        expect(row.locator(".place")).to_contain_text("Telegram, DM with Jonas Weber")


def test_the_time_zone_of_a_person_is_set_and_taken_back(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store, store.turn(ANA, "hello", message_id="1") as turn:
            turn.add_assistant("hi")
        page = console.sign_in(profile(console.url))
        page.goto("/console/people")
        field = page.get_by_label("Time zone of Ana")
        page.locator("td summary").click()
        field.fill("Mars/Olympus")
        page.keyboard.press("Enter")
        expect(page.locator("#notice")).to_contain_text("Mars/Olympus")
        expect(field).to_have_value("Mars/Olympus")  # what was typed is kept
        field.fill("Asia/Tokyo")
        page.keyboard.press("Enter")
        expect(page.locator("td summary")).to_contain_text("Asia/Tokyo")
        page.locator("#notice").get_by_role("button", name="Undo").click()
        expect(page.locator("td summary")).to_contain_text("as the server")
        page.goto("/console/people/decisions")
        expect(page.locator(".events li").first).to_contain_text("Ana is in the time zone of the")
        with console.gateway.store() as store:
            assert store.people.find()[0].zone is None


def test_a_chat_streams_and_shows_markdown(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        page = console.sign_in(profile(console.url))
        page.goto("/console/chat")
        expect(page.locator("#liveness")).to_have_text("Live.")
        page.get_by_label("Message").fill("Hello **you** <img src=x onerror=alert(1)>")
        page.keyboard.press("Enter")
        answer = page.locator("#live_chat .entry.agent")
        expect(answer).to_have_count(1)
        expect(answer.locator("strong")).to_have_text("you")
        expect(page.locator("#live_chat .entry.person")).to_have_count(1)
        expect(page.locator("#draft .entry")).to_have_count(0)
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#live_chat .entry.note")).to_contain_text("nothing to stop")
        page.get_by_role("button", name="Answer again").click()
        with console.gateway.store() as store:
            transcript = store.transcript(store.sessions.find().items[0].id)
            eventually(lambda: len(transcript.revisions()) > 1 and transcript.count() == 2)
        expect(answer).to_have_count(1)
        expect(page.locator("#draft .entry.agent")).to_have_count(0)
        page.get_by_label("Message").type("/he")
        expect(page.locator("#commands")).to_contain_text("/help")
        page.keyboard.press("Tab")
        expect(page.get_by_label("Message")).to_have_value("/help ")
        page.keyboard.press("Enter")
        reply = page.locator("#live_chat .entry.note").last
        expect(reply).to_contain_text("/resume")
        expect(reply.locator("strong").first).to_have_text("Conversations")  # not **…**
        expect(page.locator("#live_chat .entry.person .name")).to_have_text("You")


def test_files_are_attached_and_shown(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        browser = profile(console.url)
        page = console.sign_in(browser)
        page.goto("/console/chat")
        expect(page.locator("#liveness")).to_have_text("Live.")
        files = [
            {"name": "pixel.png", "mimeType": "image/png", "buffer": PIXEL},
            {"name": "<b>.txt", "mimeType": "text/plain", "buffer": b"hello"},
            {"name": "gone.txt", "mimeType": "text/plain", "buffer": b"hello"},
        ]
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="Attach").press("Enter")
        chooser.value.set_files(files)  # type: ignore[arg-type]
        expect(page.locator("#picked li")).to_have_count(3)
        page.get_by_role("button", name="Remove gone.txt").click()
        expect(page.locator("#picked li")).to_have_count(2)
        page.get_by_label("Message", exact=True).press("Enter")
        said = page.locator("#live_chat .entry.person")
        expect(said.locator(".file a")).to_have_count(2)
        expect(page.locator("#picked li")).to_have_count(0)
        expect(said.locator("img")).to_have_js_property("naturalWidth", 1)
        browser.check(page)
        too_much = {"name": "big.bin", "mimeType": "", "buffer": b"x" * 7_000_000}
        page.locator("#pick").set_input_files([too_much])  # type: ignore[arg-type]
        expect(page.locator("#notice")).to_contain_text("fit into a message")
        expect(page.locator("#picked li")).to_have_count(0)


def test_an_answer_is_stopped_and_repeated_in_its_transcript(where: str, profile: Profile) -> None:
    agent = HeldAgent()
    with served_console(where, agent=agent) as console:
        page = console.sign_in(profile(console.url))
        with console.gateway.store() as store:
            store.inbox.put(
                Source("web", "c", account="ana", user_id="ana"), "hello", message_id="1"
            )
            assert agent.began.acquire(timeout=60)
            session = store.sessions.find().items[0].id
        page.goto(f"/console/sessions/{session}")
        notice = page.locator("#live_head .notice")
        expect(notice).to_contain_text("step 1")
        expect(notice).to_contain_text(console.gateway.gateway.pipeline.node)
        notice.get_by_role("button", name="Stop").click()
        expect(notice).to_have_count(0)
        assert agent.ends == ["stopped"]
        agent.may_go_on.set()
        page.get_by_role("button", name="Answer again").click()
        expect(page.locator(".entry.agent")).to_contain_text("well, hello")
        page.goto(f"/console/sessions/{session}/why")
        expect(page.locator(".events")).to_contain_text("to be stopped by token:root")


def test_a_guest_only_chats(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        page = console.sign_in(profile(console.url), "eve")
        page.goto("/console/")
        expect(page).to_have_url(re.compile("/console/chat$"))
        page.get_by_label("Message").fill("Hello parrot")
        page.keyboard.press("Enter")
        expect(page.locator("#draft .entry.agent")).to_contain_text("Hello parrot")
        with console.gateway.store() as store:
            assert eventually(lambda: store.sessions.find().items)


def test_many_deliveries_are_settled_while_some_change(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            session = store.sessions.open(ANA)
            store.in_one_commit(lambda: put_dead(store, session.id, 500))
        page = console.sign_in(profile(console.url))
        page.goto("/console/deliveries")
        button = page.get_by_role("button", name="Send all again")
        group = page.locator(".card", has=button)
        expect(group).to_contain_text("500 deliveries")
        with console.gateway.store() as store:
            for delivery in store.outbox.find(state="dead", limit=2).items:
                store.queues.settle_delivery(delivery.id, "retry")
        button.click()
        expect(page.locator("#notice")).to_contain_text("498 settled.")
        with console.gateway.store() as store:
            assert store.outbox.find(state="dead").items == ()
            assert len(store.outbox.find(state="waiting", limit=1000).items) == 500


def put_dead(store: Store, session: str, count: int) -> None:
    """Store deliveries to as many chats, all of which failed for good."""
    for number in range(count):
        source = Source("telegram", f"c{number}", user_id=f"{number}")
        store.outbox.put("Hello", "origin", origin=source, session_id=session)
    while deliveries := store.outbox.claim(limit=100, platforms=["telegram"]):
        for delivery in deliveries:
            store.outbox.failed(delivery, "403: blocked", outcome="dead")


def test_undo_restore_and_fork(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            for number in range(3):
                with store.turn(ANA, f"Question {number}", message_id=f"{number}") as turn:
                    turn.add_assistant(f"Answer {number}")
            session = turn.session.id
        page = console.sign_in(profile(console.url))
        page.goto(f"/console/sessions/{session}")
        redo = page.get_by_role("button", name="Redo")
        expect(redo).to_have_count(0)  # nothing can be redone
        page.get_by_role("button", name="Undo last exchange").dblclick()
        expect(page.locator("#notice")).to_contain_text("taken back")
        expect(page.locator(".entry")).to_have_count(4)  # once: it was a double click
        expect(redo).to_have_count(1)
        page.locator("#notice").get_by_role("button", name="Undo").click()
        expect(page.locator(".entry")).to_have_count(6)
        expect(redo).to_have_count(0)
        page.goto(f"/console/sessions/{session}/revisions")
        page.locator(".slider a").nth(1).click()
        expect(page.locator(".entry")).to_have_count(4)
        page.get_by_role("button", name="Restore").click()
        expect(page.locator("#notice")).to_contain_text("restored")
        page.goto(f"/console/sessions/{session}")
        expect(page.locator(".entry")).to_have_count(4)
        page.locator(".entry .menu summary").first.click()
        page.get_by_role("button", name="Fork here").first.click()
        page.wait_for_url(re.compile(f"/console/sessions/(?!{session})"))
        expect(page.locator(".entry")).to_have_count(1)


def test_approve_a_stranger_by_code_who_is_answered_then(where: str, profile: Profile) -> None:
    marta = Source("telegram", "5", user_id="5", user_name="Marta")
    app = App()
    with served_console(where, adapters=(app,), rules=ASKING) as console:
        loop = console.gateway.loop
        run_in(loop, app.get("hello", marta))
        eventually(lambda: app.to(marta))
        with console.gateway.store() as store:
            assert store.sessions.find().items == ()
        (code,) = re.findall(r"[A-Z0-9]{8,}", app.to(marta)[0])
        page = console.sign_in(profile(console.url))
        page.goto("/console/")
        expect(page.locator(".card")).to_contain_text("Marta asks to be let in")
        page.locator(".card").get_by_role("link", name="Look").click()
        card = page.locator(".card", has_text="Marta")
        card.get_by_label("Their code").fill(code)
        card.get_by_role("button", name="Let them in").first.click()
        expect(page.locator("#notice")).to_contain_text("They may write now.")
        expect(page.locator(".card")).to_have_count(0)
        run_in(loop, app.get("hello again", marta))
        eventually(lambda: [text for text in app.to(marta) if "hello again" in text])


def test_approve_a_stranger_by_identity(where: str, profile: Profile) -> None:
    jan = Source("telegram", "6", user_id="6", user_name="Jan")
    with served_console(where) as console:
        with console.gateway.store() as store:
            store.people.request_pairing(jan)
        page = console.sign_in(profile(console.url))
        page.goto("/console/people")
        page.locator(".card summary").click()
        page.get_by_role("button", name="Let them in by their id").click()
        expect(page.locator(".card")).to_have_count(0)
        with console.gateway.store() as store:
            assert store.people.role_of(jan) == "member"


def test_a_typed_code_signs_in_and_five_wrong_ones_lock_out(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        browser = profile(console.url)
        page = browser.page()
        with console.gateway.store() as store:
            code = store.browsers.request_code("root")
        page.goto("/console/enter")
        page.get_by_label("Code").fill(code)
        page.keyboard.press("Enter")
        page.wait_for_url("**/console/")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/console/enter")
        with console.gateway.store() as store:
            code = store.browsers.request_code("root")
        for number in range(5):
            page.get_by_label("Code").fill(f"WRONG{number}")
            page.keyboard.press("Enter")
            expect(page.get_by_label("Code")).to_have_value("")  # that of the next page
            expect(page.locator(".notice.bad")).to_contain_text("new one")
        page.get_by_label("Code").fill(code)  # a right one does not help any more
        page.keyboard.press("Enter")
        expect(page.locator(".notice.bad")).not_to_contain_text("new one")
        expect(page).to_have_url(f"{console.url}/console/enter")
        browser.check(page)


def test_the_prompt_is_copied_as_json(where: str, profile: Profile) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            with store.turn(ANA, "One <b>", message_id="1") as turn:
                turn.add_assistant("Two")
            expected = store.transcript(turn.session.id).history(timestamps="local")
        browser = profile(console.url, permissions=["clipboard-read", "clipboard-write"])
        page = console.sign_in(browser)
        page.goto(f"/console/sessions/{turn.session.id}/prompt")
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_role("button", name="Copied")).to_have_count(1)
        assert json.loads(page.evaluate("navigator.clipboard.readText()")) == expected
