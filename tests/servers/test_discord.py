"""The fake Discord satisfies another project's client: discord.py, over REST and gateway."""

from __future__ import annotations

import asyncio
import io
import warnings
from collections.abc import Awaitable, Callable, Iterator

import pytest
from yarl import URL

from tests.servers.discord import (
    BOT,
    DM,
    GENERAL,
    THREAD,
    TOKEN,
    DiscordServer,
    rate_limit,
    refusal,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports audioop, for voice
    import discord
    from discord import app_commands

pytestmark = pytest.mark.check


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[DiscordServer]:
    with DiscordServer() as running:
        gateway = URL(running.gateway_url)
        monkeypatch.setattr(discord.http.Route, "BASE", running.base_url)
        monkeypatch.setattr(discord.gateway.DiscordWebSocket, "DEFAULT_GATEWAY", gateway)
        yield running
    assert running.violations == []


class Client(discord.Client):
    """A bot that notes what it is told."""

    def __init__(self) -> None:
        intents = discord.Intents.none()
        intents.guilds = intents.guild_messages = intents.dm_messages = True
        intents.message_content = True
        super().__init__(intents=intents)
        self.received: asyncio.Queue[discord.Message] = asyncio.Queue()
        self.edited: asyncio.Queue[discord.Message] = asyncio.Queue()
        self.resumed = asyncio.Event()
        self.tree = app_commands.CommandTree(self)

    async def on_message(self, message: discord.Message) -> None:
        await self.received.put(message)

    async def on_message_edit(self, _: discord.Message, after: discord.Message) -> None:
        await self.edited.put(after)

    async def on_resumed(self) -> None:
        self.resumed.set()


def play(act: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), Client() as client:
            running = asyncio.create_task(client.start(TOKEN))
            await client.wait_until_ready()
            acting = asyncio.ensure_future(act(client))
            await asyncio.wait([acting, running], return_when=asyncio.FIRST_COMPLETED)
            if not acting.done():
                acting.cancel()
                await running  # it tells why it ended
            await acting
            await client.close()
            await running

    asyncio.run(run())


def test_client_receives_messages_of_all_chats(server: DiscordServer) -> None:
    async def act(client: Client) -> None:
        assert client.user is not None
        assert client.user.id == int(BOT["id"])  # type: ignore[call-overload]
        server.write(DM, "hola 👋")
        server.write(GENERAL, "<@900> in a channel", mentions_bot=True)
        server.write(THREAD, "in a thread", attachments=[server.attach(b"content")])
        private, channel, thread = [await client.received.get() for _ in range(3)]
        assert (private.content, private.guild, private.author.id) == ("hola 👋", None, 42)
        assert channel.guild is not None
        assert [person.id for person in channel.mentions] == [900]
        assert isinstance(thread.channel, discord.Thread)
        assert thread.channel.parent_id == int(GENERAL)
        assert await thread.attachments[0].read() == b"content"
        message = server.write(DM, "before")
        await client.received.get()
        server.edit(message, "after")
        assert (await client.edited.get()).content == "after"

    play(act)


def test_client_resumes_its_session(server: DiscordServer) -> None:
    async def act(client: Client) -> None:
        server.write(DM, "before")
        await client.received.get()
        server.order(7)
        server.write(DM, "meanwhile")
        assert (await client.received.get()).content == "meanwhile"
        await client.resumed.wait()
        assert (server.identifies, len(server.resumes)) == (1, 1)

    play(act)


def test_client_sends_edits_replies_and_files(server: DiscordServer) -> None:
    async def act(client: Client) -> None:
        question = server.write(GENERAL, "hola")
        message = await client.received.get()
        answer = await message.reply(
            "**hi**", allowed_mentions=discord.AllowedMentions.none(), nonce="n1"
        )
        assert answer.reference is not None
        assert answer.reference.message_id == int(question["id"])
        await answer.edit(content="edited", allowed_mentions=discord.AllowedMentions.none())
        file = discord.File(io.BytesIO(b"\x89PNG"), "a.png")
        await message.channel.send("a picture", file=file)
        await message.channel.typing()
        data = await client.http.start_private_message(42)
        await client.get_partial_messageable(int(data["id"])).send("in private")
        server.spoil("create", refusal(403, 50013, "Missing Permissions"))
        with pytest.raises(discord.Forbidden):
            await message.channel.send("no")
        with pytest.raises(discord.HTTPException) as caught:
            await message.channel.send("x" * 2001)
        assert caught.value.code == 50035
        server.spoil("create", rate_limit(0.05))
        await message.channel.send("after a pause")
        history = [item.content async for item in message.channel.history(oldest_first=True)]
        assert history == ["hola", "edited", "a picture", "after a pause"]

    play(act)
    assert [sent.content for sent in server.sent] == [
        "**hi**", "a picture", "in private", "after a pause",
    ]  # fmt: skip
    assert server.sent[1].file == ("a.png", b"\x89PNG")
    assert server.typing == [GENERAL]


def test_client_answers_a_command_of_the_menu(server: DiscordServer) -> None:
    async def act(client: Client) -> None:
        @client.tree.command(name="status", description="Say how it is")
        async def status(interaction: discord.Interaction, text: str | None = None) -> None:
            await interaction.response.defer()
            await interaction.edit_original_response(content=f"fine, {text}")

        await client.tree.sync()
        assert [command["name"] for command in server.commands] == ["status"]
        server.choose("status", "thanks", channel=GENERAL)
        await asyncio.to_thread(server.wait_sent, 1)

    play(act)
    assert [sent.content for sent in server.sent] == ["fine, thanks"]


def test_client_sends_buttons_gets_a_press_and_takes_them_away(server: DiscordServer) -> None:
    async def act(client: Client) -> None:
        pressed: asyncio.Queue[discord.Interaction] = asyncio.Queue()

        class Question(discord.ui.View):
            async def interaction_check(self, interaction: discord.Interaction) -> bool:
                await pressed.put(interaction)
                return False

        view = Question()
        view.add_item(discord.ui.Button(label="Yes", custom_id="once:1", row=0))
        view.add_item(discord.ui.Button(label="No", custom_id="no:1", row=0))
        server.write(DM, "hola")
        question = await (await client.received.get()).channel.send("May I?", view=view)
        number = str(question.id)
        assert server.buttons(number) == [("Yes", "once:1"), ("No", "no:1")]
        server.press(number, "once:1")
        interaction = await pressed.get()
        assert interaction.type is discord.InteractionType.component
        assert (interaction.user.id, interaction.data) == (
            42, {"component_type": 2, "custom_id": "once:1", "id": 2},
        )  # fmt: skip
        assert interaction.message is not None
        assert interaction.message.id == question.id
        await interaction.response.defer()
        await question.edit(content="May I? Asked.")
        assert len(server.buttons(number)) == 2  # they stay if they are not named
        await question.edit(content="May I? Yes.", view=None)
        assert server.buttons(number) == []

    play(act)
    assert [item["state"] for item in server.interactions.values()] == ["acknowledged"]


def test_client_reports_a_wrong_token_and_a_missing_intent(server: DiscordServer) -> None:
    async def start() -> None:
        async with Client() as client:
            await client.start(TOKEN)

    server.flags = 0
    with pytest.raises(discord.PrivilegedIntentsRequired):
        asyncio.run(start())
    server.token = "another"
    with pytest.raises(discord.LoginFailure):
        asyncio.run(start())
