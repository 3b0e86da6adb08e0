"""Whole conversations by mail: a real gateway, a real Dovecot, a real SMTP server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from email.policy import SMTP
from pathlib import Path
from typing import Any

import pytest

from tertulia import aio
from tertulia.agents.base import Agent
from tertulia.core.backoff import Backoff
from tertulia.gateway import retries
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Outgoing
from tertulia.platforms.settings import PlatformSettings
from tests.gateway.running_gateway import OPEN, Echo, until
from tests.platforms.email.mail_gateway import mail_gateway, new_adapter
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


def test_quoted_text_is_in_the_transcript_and_not_shown_to_the_model(
    tmp_path: Path, mail: MailServers
) -> None:
    agent = Echo()
    body = "and then?\n\nOn Monday, Agent wrote:\n> an old secret\n"

    async def act(store: aio.Store, address: str) -> None:
        await write(mail, address, "hola")
        (first,) = await sent(mail, 1)
        await write(mail, address, body, replies_to=first)
        await sent(mail, 2)
        (session,) = (await store.sessions.find()).items
        stored = await store.transcript(session.id).load()
        assert "an old secret" in str(stored)

    converse(tmp_path, mail, act, agent)
    assert agent.asked == ["hola", "and then?"]
    assert "an old secret" not in str(agent.histories)


def test_files_come_and_go(tmp_path: Path, mail: MailServers) -> None:
    notes = b"milk, bread and honey\n" * 20_000

    async def act(store: aio.Store, address: str) -> None:
        await write(mail, address, "see", files=(("notes.bin", "a/b", notes),))
        (first,) = await sent(mail, 1)
        (session,) = (await store.sessions.find()).items
        message = (await store.transcript(session.id).load())[0]
        (file,) = message["media"]
        assert (file["name"], file["type"], file["size"]) == ("notes.bin", "text/plain", len(notes))
        assert await store.media.get(file["hash"]) == notes
        media = await store.media.put(b"a report", name="report.txt", type="text/plain")
        thread = first.message["References"].split()[0]
        await store.outbox.put("here", f"email:{ANA}:{thread}", media=media)
        _, second = await sent(mail, 2)
        (attachment,) = second.message.iter_attachments()
        assert attachment.get_filename() == "report.txt"
        assert attachment.get_payload(decode=True) == b"a report"
        assert second.message["Subject"] == "Re: A question"

    converse(tmp_path, mail, act)


def test_file_that_is_too_large_does_not_stop_the_turn(tmp_path: Path, mail: MailServers) -> None:
    small = PlatformSettings(admission="everyone", max_file_mb=0.1)
    rules = GatewaySettings(gather_seconds=0, platforms={"email": small})

    async def act(store: aio.Store, address: str) -> None:
        await write(mail, address, "see", files=(("big.bin", "a/b", bytes(10**6)),))
        texts = [message.text for message in await sent(mail, 2)]
        assert "re see" in texts
        assert any("big.bin" in text and "0.1 MB" in text for text in texts)

    converse(tmp_path, mail, act, settings=rules)


def test_forged_sender_is_not_answered(tmp_path: Path, mail: MailServers) -> None:
    """From says Ana, who is let in; the server says that it was not her."""
    agent = Echo()
    forgeries = (
        None,
        "dkim=fail header.d=example.com; spf=fail smtp.mailfrom=example.com",
        "dkim=pass header.d=evil.example; spf=pass smtp.mailfrom=eve@evil.example",
        "none; Authentication-Results=mx.example.org; dkim=none",
    )

    async def act(store: aio.Store, address: str) -> None:
        for results in forgeries:
            await write(mail, address, "forged", results=results)
        forged = "mx.example.org.evil.example; dmarc=pass header.from=example.com"
        await write(mail, address, "forged", results=None, Authentication_Results=forged)
        await write(mail, address, "true")
        assert [message.text for message in await sent(mail, 1)] == ["re true"]

    converse(tmp_path, mail, act, agent)
    assert agent.asked == ["true"]


def test_everybody_is_believed_only_by_a_setting(tmp_path: Path, mail: MailServers) -> None:
    async def act(store: aio.Store, address: str) -> None:
        await write(mail, address, "hola", results=None)
        assert [message.text for message in await sent(mail, 1)] == ["re hola"]
        (session,) = (await store.sessions.find()).items
        assert "not verified" in str(session.origin.chat_topic)

    converse(tmp_path, mail, act, senders="anyone", auth_server=None)


def test_unverified_sender_is_another_guest_where_everyone_is_answered(
    tmp_path: Path, mail: MailServers
) -> None:
    """A forged mail, even in her thread, gets neither Ana's role nor her conversation."""
    rules = GatewaySettings(
        gather_seconds=0, platforms={"email": PlatformSettings(admission="everyone", owners=(ANA,))}
    )

    async def act(store: aio.Store, address: str) -> None:
        await write(mail, address, "true", subject="Plans")
        (first,) = await sent(mail, 1)
        await write(mail, address, "forged", results=None, replies_to=first, subject="Re: Plans")
        answers = await sent(mail, 2)
        assert [answer.recipients for answer in answers] == [[ANA], [ANA]]
        assert [answer.text for answer in answers] == ["re true", "re forged"]
        sessions = {
            str(session.origin.user_id): session for session in (await store.sessions.find()).items
        }
        assert set(sessions) == {ANA, f"unverified:{ANA}"}
        roles = {user: await store.people.role_of(s.origin) for user, s in sessions.items()}
        assert roles[f"unverified:{ANA}"] == "guest"
        forger = sessions[f"unverified:{ANA}"].origin
        assert not (await store.for_person(forger).search("true")).items

    converse(tmp_path, mail, act, settings=rules, admission="everyone")


def test_unverified_mail_to_several_people_is_ignored(tmp_path: Path, mail: MailServers) -> None:
    async def act(store: aio.Store, address: str) -> None:
        await write(mail, address, "forged", results=None, Cc="bob@example.com")
        await write(mail, address, "true")
        assert [message.text for message in await sent(mail, 1)] == ["re true"]

    converse(tmp_path, mail, act, admission="everyone")


@pytest.mark.parametrize(
    "fields",
    [
        {"Auto_Submitted": "auto-replied"},
        {"List_Id": "<talk.example.com>"},
        {"Precedence": "bulk"},
        {"Return_Path": "<>"},
        {"X_Tertulia_Agent": "1"},
        {"sender": "MAILER-DAEMON@example.com"},
        {"sender": "no-reply@example.com"},
        {"sender": "{address}"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_mails_of_programs_are_never_answered(
    tmp_path: Path, mail: MailServers, fields: dict[str, str]
) -> None:
    async def act(store: aio.Store, address: str) -> None:
        values = {name: value.format(address=address) for name, value in fields.items()}
        await write(mail, address, "automatic", **values)
        await write(mail, address, "by a person")
        assert [message.text for message in await sent(mail, 1)] == ["re by a person"]
        assert await store.sessions.count() == 1

    converse(tmp_path, mail, act)


def test_two_agents_do_not_answer_each_other(tmp_path: Path, mail: MailServers) -> None:
    """What one sends is put into the mailbox of the other, as mail servers do."""
    second = mail.add_mailbox()

    async def act(store: aio.Store, address: str) -> None:
        where = str(tmp_path / "second.db")
        async with mail_gateway(where, mail, second, aliases=()) as other:
            domain = {"results": "dkim=pass header.d=example.org"}
            await write(mail, address, "hola", sender=second, **domain)
            (answer,) = await sent(mail, 1)
            await asyncio.to_thread(mail.deliver, second, answer.message.as_bytes(policy=SMTP))
            await write(mail, second, "last")
            assert [message.text for message in await sent(mail, 2)] == ["re hola", "re last"]
            assert await other.sessions.count() == 1

    converse(tmp_path, mail, act)


def test_mail_to_several_people_is_a_group(tmp_path: Path, mail: MailServers) -> None:
    people = GatewaySettings(gather_seconds=0, platforms={"email": OPEN})

    async def act(store: aio.Store, address: str) -> None:
        ben = "ben@example.net"
        await write(mail, address, "both", Cc=ben)
        (first,) = await sent(mail, 1)
        assert sorted(first.recipients) == [ANA, ben]
        await write(mail, address, "only a copy", To=ben, Cc=address)
        await write(mail, address, "to the agent", To=ben, Cc=address, replies_to=first)
        texts = [message.text for message in await sent(mail, 2)]
        assert texts == ["re both", "re to the agent"]
        (session,) = (await store.sessions.find()).items
        assert (session.origin.chat_type, session.origin.chat_id) == ("group", f"{ANA},{ben}")

    converse(tmp_path, mail, act, settings=people)


def test_reply_goes_to_the_author_and_nowhere_else(tmp_path: Path, mail: MailServers) -> None:
    async def act(store: aio.Store, address: str) -> None:
        await write(mail, address, "hola", Reply_To="eve@evil.example", To="somebody@example.net")
        (answer,) = await sent(mail, 1)
        assert answer.recipients == [ANA]

    converse(tmp_path, mail, act)


def test_bounce_settles_its_delivery(tmp_path: Path, mail: MailServers) -> None:
    async def act(store: aio.Store, address: str) -> None:
        await write(mail, address, "hola")
        (answer,) = await sent(mail, 1)
        await until(lambda: has_state(store, "sent"), "the delivery is sent")
        forged = bounce(address, "<made-up@example.org>")
        await asyncio.to_thread(mail.deliver, address, forged)
        delayed = bounce(address, answer.id, action="delayed")
        await asyncio.to_thread(mail.deliver, address, delayed)
        await write(mail, address, "after the reports")
        await sent(mail, 2)
        assert not await has_state(store, "dead")
        await asyncio.to_thread(mail.deliver, address, bounce(address, answer.id))
        await until(lambda: has_state(store, "dead"), "the delivery is dead")
        (delivery,) = (await store.outbox.find(state="dead")).items
        assert "5.1.1" in str(delivery.problem)
        await write(mail, address, "again")
        assert len(await sent(mail, 3)) == 3

    converse(tmp_path, mail, act)


async def has_state(store: aio.Store, state: Any) -> bool:
    return bool((await store.outbox.find(state=state)).items)


def bounce(address: str, message_id: str, action: str = "failed") -> bytes:
    """Return the report of a server that a mail could not be delivered."""
    lines = f"""From: MAILER-DAEMON@example.com
To: {address}
Subject: Undelivered Mail Returned to Sender
Auto-Submitted: auto-replied
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="b"

--b
Content-Type: text/plain

I am sorry.

--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example.com

Final-Recipient: rfc822; {ANA}
Action: {action}
Status: 5.1.1

--b
Content-Type: text/rfc822-headers

From: {address}
Message-ID: {message_id}

--b--
"""
    return lines.replace("\n", "\r\n").encode()


def test_stranger_gets_a_code_and_a_paired_person_an_answer(
    tmp_path: Path, mail: MailServers
) -> None:
    async def act(store: aio.Store, address: str) -> None:
        await write(mail, address, "hola")
        (first,) = await sent(mail, 1)
        code = first.text.splitlines()[0].rpartition(" ")[2]
        await store.people.approve(code)
        await write(mail, address, "again", replies_to=first)
        assert (await sent(mail, 2))[-1].text == "re again"

    converse(tmp_path, mail, act, settings=GatewaySettings(gather_seconds=0))


def test_thread_is_found_again_by_another_process(tmp_path: Path, mail: MailServers) -> None:
    """The answer has subject and reference of its thread, although this process never saw it."""
    address = mail.add_mailbox()
    first = mail.write(address, "hola", subject="An old matter")
    second = mail.write(address, "more", subject="Re: An old matter", replies_to=first)
    adapter = new_adapter(mail, address)
    thread = str(first["Message-ID"])
    message = Outgoing(delivery="d1", chat_id=ANA, thread_id=thread, text="late")

    asyncio.run(adapter.send(message))
    (answer,) = mail.wait_sent(1)
    assert answer.message["Subject"] == "Re: An old matter"
    assert answer.message["References"].split() == [thread, str(second["Message-ID"])]


def test_mail_that_names_only_its_parent_is_in_its_thread(
    tmp_path: Path, mail: MailServers
) -> None:
    async def act(store: aio.Store, address: str) -> None:
        await write(mail, address, "one")
        (first,) = await sent(mail, 1)
        await write(mail, address, "two", In_Reply_To=first.id)
        await sent(mail, 2)
        assert await store.sessions.count() == 1

    converse(tmp_path, mail, act)


def test_new_mail_without_a_thread_has_a_title(tmp_path: Path, mail: MailServers) -> None:
    async def act(store: aio.Store, address: str) -> None:
        await store.outbox.put("# News\n\nof **today**", f"email:{ANA}")
        (news,) = await sent(mail, 1)
        assert news.message["Subject"] == "News"
        assert news.message["References"] is None
        await write(mail, address, "thanks", replies_to=news, subject="Re: News")
        assert (await sent(mail, 2))[-1].message["References"].split()[0] == news.id

    converse(tmp_path, mail, act)


def test_refused_account_makes_no_dead_letters(
    tmp_path: Path, mail: MailServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "ACCOUNT_BACKOFF", Backoff(first=0.05, longest=0.2))

    async def act(store: aio.Store, address: str) -> None:
        await asyncio.to_thread(mail.revoke, address)
        for number in range(5):
            await store.outbox.put(f"waiting {number}", f"email:p{number % 2}@example.com")

        async def is_tried() -> bool:
            items = (await store.outbox.find()).items
            return any(item.attempts > 1 for item in items)

        await until(is_tried, "a delivery was tried")
        assert not await has_state(store, "dead")
        await asyncio.to_thread(mail.restore, address)
        assert len(await sent(mail, 5)) == 5
        assert not await has_state(store, "dead")

    converse(tmp_path, mail, act)


def test_send_without_a_clear_answer_is_unknown_and_not_repeated(
    tmp_path: Path, mail: MailServers
) -> None:
    async def act(store: aio.Store, address: str) -> None:
        mail.smtp.spoil("DATA", "cut")
        await write(mail, address, "hola")
        await sent(mail, 1)
        await until(lambda: has_state(store, "unknown"), "the delivery is unknown")
        mail.smtp.mend()
        await write(mail, address, "and then")
        assert [message.text for message in await sent(mail, 2)] == ["re hola", "re and then"]
        (unknown,) = (await store.outbox.find(state="unknown")).items
        assert unknown.body["text"] == "re hola"

    converse(tmp_path, mail, act)
