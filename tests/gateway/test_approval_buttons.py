"""Buttons of questions for an approval: a press is a typed answer, and the buttons go away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tertulia.core.backoff import Backoff
from tertulia.errors import Error, OutcomeUnknown, PlatformUnavailable, RateLimited, Refused
from tertulia.gateway import retries
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Outgoing
from tertulia.records.queues.outbox import Delivery
from tests.gateway.running_gateway import (
    ANA,
    ANYBODY,
    BEN,
    CARA,
    App,
    RunningGateway,
    rules,
    running_gateway,
)
from tests.gateway.test_approvals import COMMAND, Shell, agent_calling, calling, on_sqlite


async def ask(node: RunningGateway, text: str = "clean up") -> dict[str, str]:
    """Let Ana ask for something; return the value of each button of the question."""
    await node.say(text)
    return {button.label: button.value for button in node.app.sent[-1].buttons}


def play(
    where: str,
    act: Callable[[RunningGateway, Shell], Awaitable[None]],
    settings: GatewaySettings = ANYBODY,
) -> None:
    shell = Shell()

    async def run() -> None:
        agent = agent_calling(calling("rm -rf build"))
        async with running_gateway(where, agent, tools=[shell.tool], rules=settings) as node:
            await act(node, shell)

    asyncio.run(run())


def test_press_is_a_typed_answer_and_closes_the_question(where: str) -> None:
    async def act(node: RunningGateway, shell: Shell) -> None:
        values = await ask(node)
        question = node.app.sent[-1]
        assert [*values] == ["Approve once", "This session", "Always", "Deny"]
        await node.app.get_press(values["Approve once"], BEN)
        await node.quiet()
        assert "not yours to answer; nothing was changed" in node.app.to(BEN)[-1]
        assert (shell.calls, node.app.closed) == ([], [])
        for _ in range(2):
            await node.app.get_press(values["Approve once"], press_id="p1")
        await node.quiet()
        assert [text.split(" (")[0] for text in node.app.to(ANA)[1:]] == [
            "Approved: terminal",
            "Done: ran rm -rf build",
        ]
        (closing,) = node.app.closed
        assert (closing.replaces, closing.chat_id, closing.buttons) == ("sent-1", "42", ())
        assert closing.text == f"{question.text.split('Yes:')[0]}Answer: approved once."
        await node.app.get_press(values["Deny"])
        await node.quiet()
        assert "was approved and has run already; nothing was changed" in node.app.to(ANA)[-1]
        assert shell.calls == [COMMAND]
        assert len(node.app.closed) == 1

    play(where, act)


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        ("/approve {code} session", "Answer: approved for this session."),
        ("/deny {code} no", "Answer: denied."),
        ("something else", "It did not run: the question is not open any more."),
        ("/new", "It did not run: the question is not open any more."),
    ],
)
@on_sqlite
def test_every_end_of_a_question_takes_its_buttons_away(
    where: str, message: str, outcome: str
) -> None:
    async def act(node: RunningGateway, shell: Shell) -> None:
        code = (await ask(node))["Deny"].partition(":")[2]
        await node.say(message.format(code=code))
        assert [closing.text.rpartition("\n\n")[2] for closing in node.app.closed] == [outcome]

    play(where, act)


@on_sqlite
def test_forged_value_is_no_message(where: str) -> None:
    async def act(node: RunningGateway, shell: Shell) -> None:
        values = await ask(node)
        code = values["Deny"].partition(":")[2]
        for value in (
            "",
            "hola",
            "/forget yes",
            f"maybe:{code}",
            f"once:{code} ",
            f"once:{code}\n",
        ):
            await node.app.get_press(value)
        await node.quiet()
        assert len(node.app.to(ANA)) == 1
        assert len(await node.store.approvals.find()) == 1

    play(where, act)


@on_sqlite
def test_platform_without_buttons_has_the_text_alone(where: str) -> None:
    async def run() -> None:
        agent = agent_calling(calling("rm -rf build"))
        app = App("signal")
        async with running_gateway(where, agent, apps=[app], tools=[Shell().tool]) as node:
            await node.say("clean up", CARA)
            assert app.sent[-1].buttons == ()
            assert "/approve" in app.sent[-1].text
            code = app.sent[-1].text.partition("/approve ")[2].partition(" ")[0]
            await node.say(f"/deny {code}", CARA)
            assert app.closed == []

    asyncio.run(run())


@on_sqlite
def test_long_question_has_its_buttons_under_the_instructions(where: str) -> None:
    async def run() -> None:
        agent = agent_calling(calling("echo " + "x" * 9000))
        async with running_gateway(where, agent, tools=[Shell().tool]) as node:
            values = await ask(node)
            assert len(node.app.sent) == 4
            assert [bool(message.buttons) for message in node.app.sent] == [False] * 3 + [True]
            assert node.app.sent[-1].text.startswith("Yes: /approve")
            assert "Yes:" not in "".join(message.text for message in node.app.sent[:3])
            await node.app.get_press(values["Deny"])
            await node.quiet()
            (closing,) = node.app.closed
            assert (closing.replaces, closing.text) == ("sent-4", "Answer: denied.")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("problems", "tries"),
    [
        ([Refused("The message is gone.")], 1),
        ([OutcomeUnknown("No answer.")], 1),
        ([RateLimited("Too fast.", retry_after=0.01), PlatformUnavailable("Away.")], 3),
        ([PlatformUnavailable("Away.")] * 9, 2),
    ],
)
@on_sqlite
def test_buttons_that_stay_are_no_dead_letter(
    where: str, problems: list[Error], tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither do they keep the answer from being sent."""
    monkeypatch.setattr(retries, "SEND_BACKOFF", Backoff(first=0.01, longest=0.02))
    count = 0

    async def spoil(message: Outgoing) -> None:
        nonlocal count
        count += 1
        if problems:
            raise problems.pop(0)

    async def run() -> None:
        agent, sends = agent_calling(calling("rm -rf build")), rules(sends=2)
        async with running_gateway(where, agent, tools=[Shell().tool], rules=sends) as node:
            node.app.on_close = spoil
            values = await ask(node)
            await node.app.get_press(values["Approve once"])
            await node.quiet()
            assert node.app.to(ANA)[-1] == "Done: ran rm -rf build"
            assert count == tries
            outbox = node.store.outbox
            assert [await outbox.count(state) for state in ("dead", "unknown")] == [0, 0]

    asyncio.run(run())


def test_closing_whose_sender_was_lost_is_sent_again(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking the buttons away twice does no harm; a message is not repeated."""

    monkeypatch.setattr(retries, "SEND_BACKOFF", Backoff(first=0.01, longest=0.02))

    async def act(node: RunningGateway, shell: Shell) -> None:
        values = await ask(node)
        code = values["Deny"].partition(":")[2]
        begun = asyncio.Event()

        async def hang(message: Outgoing) -> None:
            begun.set()
            await asyncio.Event().wait()

        node.app.on_close = hang
        await node.app.get_press(values["Deny"])
        await begun.wait()
        node.gateway.stop()
        await node.running
        closing = await node.store.outbox.get(f"closed:{code}")
        assert closing is not None
        assert closing.state == "waiting"  # stopped, not unknown
        for _ in range(2):  # each time its claim runs out
            claimed: list[Delivery] = []
            while not claimed:
                claimed = await node.store.outbox.claim(
                    1, lease_seconds=0.001, platforms=["telegram"]
                )
            assert [delivery.delivery for delivery in claimed] == [f"closed:{code}"]

    play(where, act, rules(drain_seconds=0.01))
