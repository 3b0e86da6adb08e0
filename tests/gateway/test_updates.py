"""Updates beside messages: edits, deletions, late outcomes, albums, bots, and several accounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tertulia import AccountProblem, Media, OutcomeUnknown, Source
from tertulia.agents.base import Event, Request, Step
from tertulia.core.backoff import Backoff
from tertulia.gateway import retries
from tertulia.platforms.base import Changed, Outgoing, Settled, Update
from tertulia.platforms.settings import PlatformSettings
from tests.gateway.running_gateway import (
    ANA,
    BEN,
    App,
    Echo,
    Scripted,
    rules,
    running_gateway,
)

GROUP = Source("telegram", "-100", chat_type="group", user_id="7", user_name="Bot")


async def hand_over(app: App, update: Update) -> None:
    assert app._receive is not None
    await app._receive(update)


def waiting_agent(goes_on: asyncio.Event) -> Scripted:
    async def script(request: Request) -> AsyncIterator[Event]:
        if request.text == "first":
            await goes_on.wait()
        yield Step(f"re {request.text}")

    return Scripted(script)


def test_edit_changes_a_message_that_still_waits_and_no_other(where: str) -> None:
    async def play() -> None:
        goes_on = asyncio.Event()
        agent = waiting_agent(goes_on)
        async with running_gateway(where, agent) as node:
            await node.app.get("first", message_id="1")
            await node.until(lambda: agent.requests, "the first is being answered")
            await node.app.get("secnod", message_id="2")
            for who, message_id, text in (
                (ANA, "1", "too late"),
                (ANA, "2", "second"),
                (BEN, "2", "not his"),
                (ANA, "99", "no such message"),
            ):
                source = Source("telegram", "42", user_id=who.user_id)
                await hand_over(
                    node.app,
                    Changed(kind="edited", source=source, message_id=message_id, text=text),
                )
            await hand_over(
                node.app, Changed(kind="reacted", source=ANA, message_id="2", text="👍")
            )
            goes_on.set()
            await node.quiet()
            assert node.app.to(ANA) == ["re first", "re second"]

    asyncio.run(play())


def test_deleted_message_is_not_answered(where: str) -> None:
    async def play() -> None:
        goes_on = asyncio.Event()
        agent = waiting_agent(goes_on)
        async with running_gateway(where, agent) as node:
            await node.app.get("first", message_id="1")
            await node.until(lambda: agent.requests, "the first is being answered")
            for number, text in (("2", "second"), ("3", "third")):
                await node.app.get(text, message_id=number)
            await hand_over(node.app, Changed(kind="deleted", source=ANA, message_id="2"))
            goes_on.set()
            await node.quiet()
            assert node.app.to(ANA) == ["re first", "re third"]

    asyncio.run(play())


@pytest.mark.parametrize(("is_sent", "state"), [(True, "sent"), (False, "dead")])
def test_late_outcome_settles_what_was_unknown(where: str, is_sent: bool, state: str) -> None:
    async def play() -> None:
        async def vanish(message: Outgoing) -> None:
            raise OutcomeUnknown("No answer.")

        async with running_gateway(where, Echo()) as node:
            node.app.on_send = vanish
            await node.say("one")
            (delivery,) = (await node.store.outbox.find(state="unknown")).items
            outcome = Settled(delivery=delivery.delivery, is_sent=is_sent, message_id="p1")
            await hand_over(node.app, outcome)
            await hand_over(node.app, outcome)
            await hand_over(node.app, Settled(delivery="no such key", is_sent=True))
            (settled,) = (await node.store.outbox.find()).items
            assert (settled.state, settled.message_id) == (state, "p1")

    asyncio.run(play())


def test_sent_message_may_turn_out_to_have_failed(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            await node.say("one")
            (delivery,) = (await node.store.outbox.find()).items
            assert delivery.message_id == "sent-1"
            failure = Settled(delivery=delivery.delivery, is_sent=False, problem="It is too late.")
            await hand_over(node.app, failure)
            (settled,) = (await node.store.outbox.find()).items
            assert (settled.state, settled.problem) == ("dead", "It is too late.")

    asyncio.run(play())


def test_album_is_one_message_and_a_message_meanwhile_is_another(where: str) -> None:
    async def play() -> None:
        agent = Echo()
        async with running_gateway(where, agent) as node:
            for number in range(5):
                photo = Media(type="image/jpeg", source=f"file-{number}")
                await node.app.get(
                    "Look!" if number == 0 else None, message_id=f"a{number}", group="album-1",
                    media=(photo,),
                )  # fmt: skip
            await node.app.get("Nice?", message_id="b")
            await node.quiet()
            assert agent.asked == ["Look!", "Nice?"]
            first = (await node.store.inbox.find()).items[0]
            assert len(first.media) == 5

    asyncio.run(play())


def test_bots_are_ignored_unless_listed_and_then_limited(where: str) -> None:
    async def play() -> None:
        listed = PlatformSettings(admission="everyone", groups="always", allow=("7",))
        settings = rules(platforms={"telegram": listed})
        agent = Echo()
        async with running_gateway(where, agent, rules=settings) as node:
            other = Source("telegram", "-100", chat_type="group", user_id="8")
            await node.app.get("an unlisted bot", other, is_bot=True)
            for number in range(25):
                await node.app.get(f"bot {number}", GROUP, is_bot=True, message_id=f"m{number}")
            await node.app.get("/stop", ANA)
            await node.app.get("a person", other)
            await node.quiet()
            bots = [text for text in agent.asked if text.startswith("bot")]
            assert len(bots) == 20
            assert "an unlisted bot" not in agent.asked
            assert "a person" in agent.asked

    asyncio.run(play())


def test_revoked_token_keeps_deliveries_waiting_until_it_works_again(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "ACCOUNT_BACKOFF", Backoff(first=0.01, longest=0.05))

    async def play() -> None:
        tries = 0

        async def refuse(message: Outgoing) -> None:
            nonlocal tries
            tries += 1
            raise AccountProblem("The token was revoked.")

        async with running_gateway(where, Echo(), rules=rules(sends=2)) as node:
            node.app.on_send = refuse
            for number in range(30):
                await node.store.outbox.put(f"text {number}", f"telegram:{number}")
            await node.until(lambda: tries > 40, "it was tried more often than messages are")
            assert not (await node.store.outbox.find(state="dead")).items
            await node.gateway.pipeline.reporter.report()
            (connection,) = await node.store.listeners.connections()
            assert connection.problem == "The token was revoked."
            node.app.on_send = None
            await node.quiet()
            assert len(node.app.sent) == 30
            assert len((await node.store.outbox.find(state="sent", limit=100)).items) == 30

    asyncio.run(play())


def test_two_accounts_of_a_platform_run_in_one_gateway(where: str) -> None:
    class Second(App):
        account = "work"

    async def play() -> None:
        first, second = App(), Second()
        nobody = PlatformSettings(admission="nobody")
        everyone = PlatformSettings(admission="everyone")
        settings = rules(platforms={("telegram", ""): nobody, ("telegram", "work"): everyone})
        async with running_gateway(where, Echo(), apps=[first, second], rules=settings) as node:
            at_work = Source("telegram", "42", account="work", user_id="42")
            await second.get("one", at_work)
            await first.get("two", ANA)
            await node.until(lambda: second.sent, "the second account answers")
            await node.quiet()
            assert second.to(at_work) == ["re one"]
            assert first.sent == []  # its settings let nobody in

    asyncio.run(play())
