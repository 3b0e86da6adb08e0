"""The fake Telegram server satisfies another project's client: python-telegram-bot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
import telegram
from telegram import error
from telegram.request import HTTPXRequest

from tests.servers.scripted_http import Fault
from tests.servers.telegram import TOKEN, TelegramServer, rate_limit


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[TelegramServer]:
    monkeypatch.setenv("PTB_TIMEDELTA", "1")  # or the client warns about its own future
    with TelegramServer() as running:
        yield running


@asynccontextmanager
async def client(server: TelegramServer, token: str = TOKEN) -> AsyncIterator[telegram.Bot]:
    request, polls = (HTTPXRequest(read_timeout=60, connect_timeout=60) for _ in range(2))
    bot = telegram.Bot(
        token,
        base_url=f"{server.url}/bot",
        base_file_url=f"{server.url}/file/bot",
        request=request,
        get_updates_request=polls,
    )
    try:
        yield bot
    finally:
        await bot.shutdown()
        await request.shutdown()
        await polls.shutdown()


def play(server: TelegramServer, act: Callable[[telegram.Bot], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), client(server) as bot:
            await bot.initialize()
            await act(bot)

    asyncio.run(run())


def test_client_receives_and_forgets_updates(server: TelegramServer) -> None:
    async def act(bot: telegram.Bot) -> None:
        server.write(42, "hola 👋", mentions=["hola"])
        server.write(-100, "in a topic", thread=7)
        updates = await bot.get_updates(allowed_updates=["message"])
        assert [update.message.text for update in updates if update.message] == [
            "hola 👋",
            "in a topic",
        ]
        first, second = updates
        assert first.effective_user is not None
        assert first.effective_user.full_name == "Ana Díaz"
        assert second.message is not None
        assert (second.message.message_thread_id, second.message.is_topic_message) == (7, True)
        # The same again, until the offset is above it.
        again = await bot.get_updates(allowed_updates=["message"])
        assert [update.update_id for update in again] == [u.update_id for u in updates]
        rest = await bot.get_updates(offset=second.update_id, allowed_updates=["message"])
        assert [update.update_id for update in rest] == [second.update_id]
        assert await bot.get_updates(offset=second.update_id + 1, allowed_updates=["message"]) == ()
        assert server.pending == []

    play(server, act)


def test_poll_waits_for_an_update(server: TelegramServer) -> None:
    async def act(bot: telegram.Bot) -> None:
        poll = asyncio.create_task(bot.get_updates(timeout=30, allowed_updates=["message"]))
        await asyncio.to_thread(server.wait, lambda: server.count("getUpdates") == 1)
        server.write(42, "late")
        assert len(await poll) == 1

    play(server, act)


def test_second_poll_ends_the_first_with_a_conflict(server: TelegramServer) -> None:
    async def act(bot: telegram.Bot) -> None:
        first = asyncio.create_task(bot.get_updates(timeout=30, allowed_updates=["message"]))
        await asyncio.to_thread(server.wait, lambda: server.count("getUpdates") == 1)
        async with client(server) as other:
            second = asyncio.create_task(other.get_updates(timeout=30, allowed_updates=["message"]))
            with pytest.raises(error.Conflict, match="terminated by other getUpdates"):
                await first
            server.write(42, "hola")
            assert len(await second) == 1

    play(server, act)


def test_client_sends_text_entities_replies_and_files(server: TelegramServer) -> None:
    async def act(bot: telegram.Bot) -> None:
        question = server.write(42, "hola")
        entity = telegram.MessageEntity("bold", offset=3, length=4)
        sent = await bot.send_message(
            42, "👋 bold", entities=[entity], reply_to_message_id=question["message_id"]
        )
        assert sent.parse_entities() == {entity: "bold"}
        photo = await bot.send_photo(42, b"\x89PNG", caption="a picture", filename="a.png")
        assert photo.caption == "a picture"
        await bot.send_chat_action(42, "typing")
        await bot.set_my_commands([("new", "Begin anew")])
        text, picture = server.sent
        assert (text.text, text.reply_to) == ("👋 bold", question["message_id"])
        assert picture.file == ("a.png", b"\x89PNG")
        assert server.actions == [(42, None, "typing")]
        assert server.commands[0]["command"] == "new"
        edited = await bot.edit_message_text("other", 42, sent.message_id)
        assert isinstance(edited, telegram.Message)
        assert edited.text == "other"

    play(server, act)
    assert server.violations == []


def test_client_sends_buttons_and_answers_a_press(server: TelegramServer) -> None:
    async def act(bot: telegram.Bot) -> None:
        server.write(42, "hola")
        keys = [telegram.InlineKeyboardButton("Yes", callback_data="yes:1")]
        sent = await bot.send_message(
            42, "may I?", reply_markup=telegram.InlineKeyboardMarkup([keys])
        )
        message = 42, sent.message_id
        assert server.buttons(message) == [("Yes", "yes:1")]
        press_id = server.press(message, "Yes")
        server.press(message, "Yes", is_inaccessible=True)
        _, update, late = await bot.get_updates(allowed_updates=["message", "callback_query"])
        query = update.callback_query
        assert query is not None
        assert (query.id, query.data, query.from_user.id) == (press_id, "yes:1", 42)
        assert late.callback_query is not None
        assert late.callback_query.message is not None
        assert not late.callback_query.message.date.timestamp()
        assert await bot.answer_callback_query(query.id)
        assert server.presses[press_id]
        with pytest.raises(error.BadRequest, match="too old"):
            await bot.answer_callback_query(query.id)
        await bot.edit_message_text("yes", 42, sent.message_id)
        assert server.buttons(message) == []
        keys = [telegram.InlineKeyboardButton("Yes", callback_data="y" * 65)]
        with pytest.raises(error.BadRequest, match=r"(?i)button_data_invalid"):
            await bot.send_message(42, "?", reply_markup=telegram.InlineKeyboardMarkup([keys]))

    play(server, act)


def test_client_downloads_a_file_until_its_link_expires(server: TelegramServer) -> None:
    async def act(bot: telegram.Bot) -> None:
        file_id = server.add_file(b"content")
        file = await bot.get_file(file_id)
        assert await file.download_as_bytearray() == b"content"
        server.expired.add(file_id)
        with pytest.raises(error.TelegramError):
            await file.download_as_bytearray()
        with pytest.raises(error.BadRequest, match="too big"):
            await bot.get_file(server.add_file(b"x" * 20_000_001))

    play(server, act)


def test_client_understands_every_refusal(server: TelegramServer) -> None:
    async def act(bot: telegram.Bot) -> None:
        server.forum(-100, 7)
        server.write(42, "hola")
        server.migrated[-5] = -1005
        server.blocked.add(43)
        server.chats[43] = {"id": 43, "type": "private"}
        with pytest.raises(error.BadRequest, match="hat not found"):
            await bot.send_message(99, "hola")
        with pytest.raises(error.Forbidden, match="blocked"):
            await bot.send_message(43, "hola")
        with pytest.raises(error.ChatMigrated) as moved:
            await bot.send_message(-5, "hola")
        assert moved.value.new_chat_id == -1005
        for thread in (1, 8):
            with pytest.raises(error.BadRequest, match="thread not found"):
                await bot.send_message(-100, "hola", message_thread_id=thread)
        assert (await bot.send_message(-100, "hola", message_thread_id=7)).is_topic_message
        with pytest.raises(error.BadRequest, match="too long"):
            await bot.send_message(42, "x" * 4097)
        with pytest.raises(error.BadRequest, match="replied not found"):
            await bot.send_message(42, "hola", reply_to_message_id=999)
        server.spoil("sendMessage", rate_limit(17), Fault(502, b"<html>", "text/html"))
        with pytest.raises(error.RetryAfter) as limited:
            await bot.send_message(42, "hola")
        assert "17" in str(limited.value)
        with pytest.raises(error.NetworkError):
            await bot.send_message(42, "hola")
        server.revoke()
        with pytest.raises(error.InvalidToken):
            await bot.send_message(42, "hola")

    play(server, act)


@pytest.mark.parametrize(
    ("fault", "is_taken"),
    [
        (Fault(end="cut"), False),
        (Fault(takes=True, end="cut"), True),
        (Fault(takes=True, end="half"), True),
        (Fault(takes=True, status=500, body=b""), True),
        (Fault(status=200, body=b'{"ok":tr'), False),
    ],
)
def test_spoiled_request_is_carried_out_or_not(
    server: TelegramServer, fault: Fault, is_taken: bool
) -> None:
    async def act(bot: telegram.Bot) -> None:
        server.write(42, "hola")
        server.spoil("sendMessage", fault)
        with pytest.raises(error.TelegramError):
            await bot.send_message(42, "hola")
        assert len(server.sent) == is_taken
        await bot.send_message(42, "again")

    play(server, act)


def test_name_that_pings_and_wrong_entities_are_noted(server: TelegramServer) -> None:
    async def act(bot: telegram.Bot) -> None:
        server.write(42, "hola")
        await bot.send_message(42, "ask @someone")
        code = telegram.MessageEntity("code", offset=0, length=8)
        bold = telegram.MessageEntity("bold", offset=0, length=3)
        await bot.send_message(42, "@another", entities=[code, bold])
        assert server.pings == ["someone"]
        assert server.violations == ["bold and code overlap"]
        with pytest.raises(error.BadRequest, match="parse entities"):
            await bot.send_message(42, "x", entities=[code])

    play(server, act)
