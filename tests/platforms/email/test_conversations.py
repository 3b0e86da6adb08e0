"""Whole conversations by mail: a real gateway, a real Dovecot, a real SMTP server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tertulia import aio
from tertulia.agents.base import Agent
from tests.gateway.running_gateway import Echo
from tests.platforms.email.mail_gateway import mail_gateway
from tests.servers.mail import ANA, MailServers, SentMail

pytestmark = pytest.mark.check


def converse(
    folder: Path,
    mail: MailServers,
    act: Callable[[aio.Store, str], Awaitable[None]],
    agent: Agent | None = None,
    **options: Any,
) -> None:
    """Run `act` with the address of a new mailbox that a gateway answers."""
    address = mail.add_mailbox()

    async def run() -> None:
        async with mail_gateway(str(folder / "talk.db"), mail, address, agent, **options) as store:
            await act(store, address)

    asyncio.run(run())


async def write(mail: MailServers, *args: Any, **options: Any) -> None:
    await asyncio.to_thread(lambda: mail.write(*args, **options))


async def sent(mail: MailServers, count: int) -> list[SentMail]:
    return await asyncio.to_thread(mail.wait_sent, count)


def test_answer_comes_in_the_same_thread(tmp_path: Path, mail: MailServers) -> None:
    agent = Echo()

    async def act(store: aio.Store, address: str) -> None:
        await write(mail, address, "hola", subject="A question")
        (first,) = await sent(mail, 1)
        assert first.recipients == [ANA]
        assert (first.text, first.message["Subject"]) == ("re hola", "Re: A question")
        quote = "On Monday, Agent wrote:\n> re hola\n"
        await write(
            mail, address, f"and then?\n\n{quote}", replies_to=first, subject="Re: A question"
        )
        _, second = await sent(mail, 2)
        assert second.text == "re and then?"
        assert second.message["References"].split()[0] == first.message["References"].split()[0]
        await write(mail, address, "something else", subject="Another matter")
        await sent(mail, 3)
        assert await store.sessions.count() == 2

    converse(tmp_path, mail, act, agent)
    assert [len(history) for history in agent.histories] == [1, 3, 1]
