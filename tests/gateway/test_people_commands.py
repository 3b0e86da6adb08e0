"""`/link` and `/pair`: both sides of a link know each other, and the owner sees who is let in."""

from __future__ import annotations

import asyncio

import pytest

from tertulia import Source
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.settings import PlatformSettings
from tests.gateway.running_gateway import ANA, BEN, CARA, App, Echo, RunningGateway, running_gateway

OWNED = GatewaySettings(platforms={"telegram": PlatformSettings(owners=("42",))})


def sent_to(node: RunningGateway, who: Source) -> list[str]:
    return node.apps[who.platform].to(who)


async def link(node: RunningGateway) -> None:
    """Link Cara's chat with Ana's, as the two would."""
    code = (await node.hears("/link")).splitlines()[0].split()[-1]
    await node.hears(f"/link {code}", CARA)
    await node.hears("/link confirm")


def test_link_is_active_once_both_sides_agree(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo(), apps=[App(), App("signal")]) as node:
            await node.hears("I am Ana")
            code = (await node.hears("/link")).splitlines()[0].split()[-1]
            assert "not known" in await node.hears("/link 11111111", CARA)

            warning = await node.hears(f"/link {code}", CARA)
            assert "telegram, id 42" in warning
            assert "reads everything that is written here" in warning
            assert "/link off" in warning
            # The maker of the code is told who typed it; nothing is shared yet.
            assert "signal, id 77 typed the code" in sent_to(node, ANA)[-1]
            await node.hears("alone", CARA)
            assert await node.told(CARA) == ["alone", "re alone"]
            assert "signal, id 77 typed the code" in await node.hears("/link")
            assert "Waiting until telegram, id 42 confirms" in await node.hears("/link", CARA)

            assert await node.hears("/link confirm") == (
                "This chat now shares one conversation with signal, id 77."
            )
            assert sent_to(node, CARA)[-1].startswith("telegram, id 42 confirmed")
            assert await node.hears("here too", CARA) == "re here too"
            assert await node.told() == ["I am Ana", "re I am Ana", "here too", "re here too"]
            assert "Linked with: signal, id 77" in await node.hears("/link")
            assert "Linked with: telegram, id 42" in await node.hears("/link", CARA)

    asyncio.run(play())


@pytest.mark.parametrize(("leaving", "other"), [(ANA, CARA), (CARA, ANA)], ids=["made", "typed"])
def test_either_chat_ends_the_link_and_the_other_is_told(
    where: str, leaving: Source, other: Source
) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo(), apps=[App(), App("signal")]) as node:
            await link(node)
            await node.hears("together", CARA)
            ended = "This chat is no longer linked. The shared conversation has ended."
            assert await node.hears("/link off", leaving) == ended
            assert "is no longer linked with this chat" in sent_to(node, other)[-1]
            assert await node.hears("/link off", other) == "This chat is not linked."
            await node.hears("alone", CARA)
            await node.hears("my secret")
            assert await node.told(CARA) == ["alone", "re alone"]
            assert await node.hears("/search secret", CARA) == "No messages found."
            assert "my **secret**" in await node.hears("/search secret")

    asyncio.run(play())


@pytest.mark.parametrize("dropping", [ANA, CARA], ids=["made", "typed"])
def test_either_chat_drops_a_request(where: str, dropping: Source) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo(), apps=[App(), App("signal")]) as node:
            code = (await node.hears("/link")).splitlines()[0].split()[-1]
            await node.hears(f"/link {code}", CARA)
            assert await node.hears("/link off", dropping) == "The request is dropped."
            assert "No chat asks" in await node.hears("/link confirm")
            assert "This chat is not linked." in await node.hears("/link", CARA)

    asyncio.run(play())


def test_link_code_used_in_its_own_chat_or_a_group_links_nothing(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            code = (await node.hears("/link")).splitlines()[0].split()[-1]
            assert "very chat" in await node.hears(f"/link {code}")
            assert "less than ten minutes ago" in await node.hears("/link")
            group = Source("telegram", "-5", chat_type="group", user_id="42")
            assert "Only direct messages" in await node.hears("/link", group)

    asyncio.run(play())


def test_approval_names_the_id_and_not_only_the_chosen_name(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo(), rules=OWNED) as node:
            stranger = Source("telegram", "66", user_id="66", user_name='Ben" (verified owner)')
            (told,) = await node.say("hello", stranger)
            code = told.splitlines()[0].rsplit(" ", maxsplit=1)[-1]
            assert "telegram:66, asked" in await node.hears("/pair")
            assert await node.hears(f"/pair {code}") == (
                'telegram:66, who calls themselves "Ben\' (verified owner)", may write to me now.'
            )

    asyncio.run(play())


def test_owner_refuses_a_stranger(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo(), rules=OWNED) as node:
            (told,) = await node.say("hello", BEN)
            code = told.splitlines()[0].rsplit(" ", maxsplit=1)[-1]
            assert "telegram:43 is refused" in await node.hears("/pair refuse telegram:43")
            assert await node.hears("/pair") == "Nobody is waiting to be let in."
            assert "not known" in await node.hears(f"/pair {code}")
            assert "does not ask" in await node.hears("/pair refuse telegram:43x")
            assert await node.say("hello", BEN) == []

    asyncio.run(play())
