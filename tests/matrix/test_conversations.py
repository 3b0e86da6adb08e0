"""Conversations of people with an agent in rooms of a real homeserver, through a real gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tertulia.agents.base import Delta, Event, Request, Step
from tertulia.core.media import Media
from tertulia.errors import Refused, TooLarge
from tertulia.platforms.base import Outgoing
from tertulia.platforms.matrix import MatrixSettings
from tertulia.platforms.matrix.adapter import ENCRYPTED, MatrixAdapter
from tertulia.platforms.matrix.event_content import MAX_CONTENT_BYTES
from tests.gateway.running_gateway import Echo
from tests.matrix.matrix_gateway import matrix_gateway
from tests.matrix.people import Person, people, wait_for
from tests.servers.http_proxy import HttpProxy
from tests.servers.synapse import MAX_UPLOAD_BYTES, Synapse

pytestmark = pytest.mark.check

ENCRYPTION = {"algorithm": "m.megolm.v1.aes-sha2"}


def where(tmp_path: Path) -> str:
    return str(tmp_path / "talk.db")


class Gate:
    """Answers "re TEXT"; the first message waits until the gate is opened."""

    name = "gate"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.opened = asyncio.Event()

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        self.asked.append(request.text)
        await self.opened.wait()
        yield Step(f"re {request.text}")

    async def close(self) -> None:
        pass


class Slow:
    """Answers in pieces; between them it waits until the test has seen the last one."""

    name = "slow"

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.steps = [asyncio.Event() for _ in pieces]

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        for piece, step in zip(self.pieces, self.steps, strict=True):
            yield Delta(piece)
            await step.wait()
        yield Step("".join(self.pieces))

    async def close(self) -> None:
        pass


def test_invited_agent_answers_what_was_written_before_it_joined(
    synapse: Synapse, tmp_path: Path
) -> None:
    async def run() -> None:
        echo = Echo()
        async with people(synapse, "ana", "agent") as (ana, agent):
            room = await ana.create_room(agent, name="Kitchen", topic="Cooking")
            await ana.send(room, "are you there?")
            async with matrix_gateway(where(tmp_path), synapse.base_url, agent, echo) as node:
                assert await ana.wait_for_texts(room, agent.id, 1) == ["re are you there?"]
                await ana.send(room, "and now?")
                texts = await ana.wait_for_texts(room, agent.id, 2)
                assert texts == ["re are you there?", "re and now?"]
                (session,) = (await node.store.sessions.find()).items
            assert [message["content"] for message in echo.histories[-1]] == [
                "are you there?", "re are you there?", "and now?",
            ]  # fmt: skip
            assert session.origin.chat_type == "dm"
            assert session.origin.chat_name == "Kitchen"
            assert session.origin.chat_topic == "Cooking"
            assert (session.origin.user_id or "") == ana.id
            # Nobody is notified by what an agent writes.
            assert all(m["m.mentions"] == {} for m in await ana.messages(room, agent.id))

    asyncio.run(run())


def test_group_is_answered_when_the_agent_is_addressed(synapse: Synapse, tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            people(synapse, "ana", "ben", "agent") as (ana, ben, agent),
            matrix_gateway(where(tmp_path), synapse.base_url, agent) as node,
        ):
            room = await ana.create_room(ben, agent)
            await ben.join(room)
            await ana.wait_for_member(room, agent.id)
            await ana.send(room, "hello Ben")
            mention = {"m.mentions": {"user_ids": [agent.id]}}
            await ana.send(room, {"msgtype": "m.text", "body": "what is it?", **mention})
            await ana.wait_for_texts(room, agent.id, 1)
            (answer,) = await ana.messages(room, agent.id)
            reply = {"m.relates_to": {"m.in_reply_to": {"event_id": answer["event_id"]}}}
            quoted = f"> <{agent.id}> re what is it?\n\nreally?"
            await ben.send(room, {"msgtype": "m.text", "body": quoted, **reply})
            reply_to_ana = {"m.relates_to": {"m.in_reply_to": {"event_id": "$nobody"}}}
            await ben.send(room, {"msgtype": "m.text", "body": "no", **reply_to_ana})
            await ben.send(room, {"msgtype": "m.notice", "body": f"{agent.id} beep"})
            await ana.send(room, {"msgtype": "m.text", "body": "end", **mention})
            texts = await ana.wait_for_texts(room, agent.id, 3)
            assert texts == ["re what is it?", "re really?", "re end"]
            # Each person has a conversation of their own.
            assert len((await node.store.sessions.find()).items) == 2

    asyncio.run(run())


def test_private_room_becomes_a_group_when_a_third_person_comes(
    synapse: Synapse, tmp_path: Path
) -> None:
    async def run() -> None:
        echo = Echo()
        async with (
            people(synapse, "ana", "ben", "agent") as (ana, ben, agent),
            matrix_gateway(where(tmp_path), synapse.base_url, agent, echo),
        ):
            room = await ana.create_room(agent)
            await ana.wait_for_member(room, agent.id)
            await ana.send(room, "my secret")
            await ana.wait_for_texts(room, agent.id, 1)
            await ana.call("POST", f"/rooms/{room}/invite", {"user_id": ben.id})
            await ben.join(room)
            await ben.send(room, f"{agent.id}: what did she say?")
            await ana.wait_for_texts(room, agent.id, 2)
            assert "my secret" not in str(echo.histories[-1])

    asyncio.run(run())


def test_thread_is_a_conversation_of_its_own(synapse: Synapse, tmp_path: Path) -> None:
    async def run() -> None:
        echo = Echo()
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            matrix_gateway(where(tmp_path), synapse.base_url, agent, echo),
        ):
            room = await ana.create_room(agent)
            await ana.wait_for_member(room, agent.id)
            root = await ana.send(room, "main")
            await ana.wait_for_texts(room, agent.id, 1)
            await ana.send_in_thread(room, root, "aside")
            await ana.wait_for_texts(room, agent.id, 2)
            main, aside = await ana.messages(room, agent.id)
            assert "m.relates_to" not in main
            assert aside["body"] == "re aside"
            assert aside["m.relates_to"]["rel_type"] == "m.thread"
            assert aside["m.relates_to"]["event_id"] == root
            assert [message["content"] for message in echo.histories[-1]] == ["aside"]

    asyncio.run(run())


def test_answer_never_leaves_a_thread_that_is_gone(synapse: Synapse, tmp_path: Path) -> None:
    async def run() -> None:
        async with people(synapse, "ana", "agent") as (ana, agent):
            room = await ana.create_room(agent)
            await agent.join(room)
            adapter = adapter_of(synapse, agent)
            message = Outgoing(delivery="d1", chat_id=room, thread_id="$gone", text="aside")
            with pytest.raises(Refused):
                await adapter.send(message)
            await adapter.close()
            assert await ana.messages(room, agent.id) == []

    asyncio.run(run())


def test_edit_and_redaction_change_messages_that_wait(synapse: Synapse, tmp_path: Path) -> None:
    async def run() -> None:
        gate = Gate()
        async with (
            people(synapse, "ana", "ben", "agent") as (ana, ben, agent),
            matrix_gateway(where(tmp_path), synapse.base_url, agent, gate, groups="always") as node,
        ):
            room = await ana.create_room(agent, ben)
            await ben.join(room)
            await ana.wait_for_member(room, agent.id)
            await ana.send(room, "first")
            await wait_for(lambda: gate.asked == ["first"], "the first message is answered")
            second = await ana.send(room, "second")
            third = await ana.send(room, "third")
            fourth = await ana.send(room, "fourth")
            await ana.edit(room, second, "better second")
            await ana.redact(room, third)
            await ben.edit(room, fourth, "forged")
            await ana.send(room, "last")

            async def is_last_stored() -> bool:
                items = (await node.store.inbox.find(limit=100)).items
                return any(item.text == "last" for item in items)

            await wait_for(is_last_stored, "the last message is stored")
            gate.opened.set()
            texts = await ana.wait_for_texts(room, agent.id, 4)
            assert texts == ["re first", "re better second", "re fourth", "re last"]

    asyncio.run(run())


def test_streamed_answer_is_one_message(synapse: Synapse, tmp_path: Path) -> None:
    async def run() -> None:
        slow = Slow("One. ", "Two. ", "**Three.**")
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            HttpProxy(synapse.base_url) as proxy,
            matrix_gateway(where(tmp_path), proxy.base_url, agent, slow),
        ):
            room = await ana.create_room(agent)
            await ana.wait_for_member(room, agent.id)
            await ana.send(room, "go on")
            slow.steps[0].set()
            assert await ana.wait_for_texts(room, agent.id, 1) == ["One. Two."]
            slow.steps[1].set()

            async def is_edited() -> bool:
                return await ana.texts(room, agent.id) == ["One. Two. Three."]

            await wait_for(is_edited, "the draft has all")
            slow.steps[2].set()

            async def is_final() -> bool:
                edits = [
                    event["content"]["m.new_content"].get("formatted_body")
                    for event in await ana.events(room)
                    if "m.new_content" in event["content"]
                ]
                return len(edits) >= 2

            await wait_for(is_final, "the answer has replaced the draft")
            (message,) = await ana.messages(room, agent.id)
            assert message["formatted_body"] == "One. Two. <strong>Three.</strong>"
            typing = [request.body for request in proxy.sent("/typing/")]
            assert typing[0].startswith(b'{"typing":true')
            await wait_for(
                lambda: b'{"typing":false' in proxy.sent("/typing/")[-1].body, "it stops typing"
            )
            assert proxy.sent("/receipt/m.read/")

    asyncio.run(run())


def test_quick_answer_is_no_draft(synapse: Synapse, tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            matrix_gateway(where(tmp_path), synapse.base_url, agent),
        ):
            room = await ana.create_room(agent)
            await ana.wait_for_member(room, agent.id)
            await ana.send(room, "!help")
            await ana.send(room, "hola")
            help_text, answer = await ana.wait_for_texts(room, agent.id, 2)
            assert "/new" in help_text
            assert answer == "re hola"
            assert not [e for e in await ana.events(room) if "m.new_content" in e["content"]]

    asyncio.run(run())


def test_long_answer_is_split_into_events_that_fit(synapse: Synapse, tmp_path: Path) -> None:
    async def run() -> None:
        paragraph = '**Bold** & <tags> "quoted" 日本語 `code` ' * 20 + "\n\n"
        text = paragraph * (2 * MAX_CONTENT_BYTES // len(paragraph.encode()))
        slow = Slow(text)
        slow.steps[0].set()
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            matrix_gateway(where(tmp_path), synapse.base_url, agent, slow) as node,
        ):
            room = await ana.create_room(agent)
            await ana.wait_for_member(room, agent.id)
            await ana.send(room, "tell me")
            await ana.wait_for_texts(room, agent.id, 3)
            await node.wait_until_quiet()
            texts = await ana.texts(room, agent.id)
            assert "".join("".join(texts).split()) == "".join(
                text.replace("**", "").replace("`", "").split()
            )

    asyncio.run(run())


def test_files_go_both_ways(synapse: Synapse) -> None:
    async def run() -> None:
        content = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 100
        async with people(synapse, "ana", "agent") as (ana, agent):
            adapter = adapter_of(synapse, agent)
            room = await ana.create_room(agent)
            await agent.join(room)
            file = Media(type="image/png", name="cat.png", size=len(content))
            message = Outgoing(
                delivery="d1", chat_id=room, text="a cat", media=file, content=content
            )
            assert await adapter.send(message) == await adapter.send(message)
            (sent,) = await ana.messages(room, agent.id)
            assert (sent["msgtype"], sent["filename"], sent["body"]) == (
                "m.image", "cat.png", "a cat",
            )  # fmt: skip
            assert await ana.download(sent["url"]) == content
            uri = await ana.upload(content, "image/png")
            fetched = [chunk async for chunk in adapter.fetch(Media(source=uri))]
            assert b"".join(fetched) == content
            for source in ("mxc://tertulia.test/gone", "mxc://../..", "https://x/y", None):
                with pytest.raises(Refused):
                    [chunk async for chunk in adapter.fetch(Media(source=source))]
            large = Outgoing(
                delivery="d2", chat_id=room, text="", media=file,
                content=bytes(MAX_UPLOAD_BYTES + 1),
            )  # fmt: skip
            with pytest.raises(TooLarge):
                await adapter.send(large)
            await adapter.close()

    asyncio.run(run())


def test_incoming_file_is_stored_before_the_turn(synapse: Synapse, tmp_path: Path) -> None:
    content = b"milk, bread and honey\n" * 1000

    async def run() -> None:
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            matrix_gateway(where(tmp_path), synapse.base_url, agent, max_file_mb=0.1) as node,
        ):
            room = await ana.create_room(agent)
            await ana.wait_for_member(room, agent.id)
            await node.wait_until_listening()
            uri = await ana.upload(content, "text/plain")
            listed = {"msgtype": "m.file", "body": "look", "filename": "list.txt", "url": uri}
            await ana.send(room, listed)
            assert await ana.wait_for_texts(room, agent.id, 1) == ["re look"]
            (session,) = (await node.store.sessions.find()).items
            (file,) = (await node.store.transcript(session.id).load())[0]["media"]
            assert (file["name"], file["type"]) == ("list.txt", "text/plain")
            assert await node.store.media.get(file["hash"]) == content
            # One that is too large, and one that is gone: the turn says so, and goes on.
            large = await ana.upload(bytes(200_000), "application/octet-stream")
            for name, address in (("big.bin", large), ("gone.bin", f"{uri}gone")):
                await ana.send(room, {"msgtype": "m.file", "body": name, "url": address})
            await node.wait_until_quiet()
            texts = await ana.wait_for_texts(room, agent.id, 5)
            assert any("big.bin" in text and "0.1 MB" in text for text in texts)
            assert any("gone.bin" in text and "no longer there" in text for text in texts)

    asyncio.run(run())


def test_encrypted_room_gets_one_sentence_once(synapse: Synapse, tmp_path: Path) -> None:
    async def run() -> None:
        async with people(synapse, "ana", "agent") as (ana, agent):
            encryption: Any = {"type": "m.room.encryption", "state_key": "", "content": ENCRYPTION}
            room = await ana.create_room(agent, initial_state=[encryption])
            secret = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x", "session_id": "s",
                      "sender_key": "k", "device_id": "d"}  # fmt: skip
            for round_ in range(2):
                async with matrix_gateway(where(tmp_path), synapse.base_url, agent) as node:
                    await ana.wait_for_member(room, agent.id)
                    await node.wait_until_listening()
                    for _ in range(2):
                        await ana.send(room, secret, kind="m.room.encrypted")
                    assert await ana.wait_for_texts(room, agent.id, 1) == [ENCRYPTED]
                    with pytest.raises(Refused, match="encrypted"):
                        await node.adapter.send(
                            Outgoing(delivery=f"d{round_}", chat_id=room, text="leak")
                        )
            adapter = adapter_of(synapse, agent)  # of a node that does not listen
            with pytest.raises(Refused, match="encrypted"):
                await adapter.send(Outgoing(delivery="d9", chat_id=room, text="leak"))
            await adapter.close()
            assert await ana.texts(room, agent.id) == [ENCRYPTED]

    asyncio.run(run())


def test_target_is_a_room_an_alias_or_a_known_person(synapse: Synapse, tmp_path: Path) -> None:
    async def run() -> None:
        async with people(synapse, "ana", "ben", "agent") as (ana, ben, agent):
            local_part = ana.id[1:].partition(":")[0]
            room = await ana.create_room(agent, room_alias_name=f"room-{local_part}")
            async with matrix_gateway(where(tmp_path), synapse.base_url, agent) as node:
                await ana.wait_for_member(room, agent.id)
                alias = f"#room-{local_part}:{ana.id.partition(':')[2]}"

                async def is_direct() -> bool:
                    return ana.id in await node.adapter._direct_rooms()

                await wait_for(is_direct, "the room is noted as direct")
                for number, chat in enumerate((room, alias, ana.id)):
                    message = Outgoing(delivery=f"d{number}", chat_id=chat, text=chat)
                    await node.adapter.send(message)
                for target in (ben.id, "#gone:tertulia.test", "ana", None):
                    with pytest.raises(Refused):
                        await node.adapter.send(Outgoing(delivery="x", chat_id=target, text="x"))
                assert await ana.texts(room, agent.id) == [room, alias, ana.id]

    asyncio.run(run())


def test_strangers_are_paired_in_private_and_ignored_in_groups(
    synapse: Synapse, tmp_path: Path
) -> None:
    async def run() -> None:
        async with (
            people(synapse, "ana", "ben", "agent") as (ana, ben, agent),
            matrix_gateway(where(tmp_path), synapse.base_url, agent, admission="paired") as node,
        ):
            group = await ana.create_room(ben, agent)
            await ben.join(group)
            await ana.wait_for_member(group, agent.id)
            await ana.send(group, f"{agent.id} hello")
            room = await ana.create_room(agent)
            await ana.wait_for_member(room, agent.id)
            await ana.send(room, "hello")
            (text,) = await ana.wait_for_texts(room, agent.id, 1)
            assert "I do not know you yet" in text
            await node.wait_until_quiet()
            assert await ana.texts(group, agent.id) == []

    asyncio.run(run())


def adapter_of(synapse: Synapse, agent: Person) -> MatrixAdapter:
    settings = MatrixSettings(base_url=synapse.base_url, token=agent.token)
    return MatrixAdapter(settings, agent.token)
