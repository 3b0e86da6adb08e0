"""Every promise of an adapter as a test (`platforms/base.py` numbers them).

An adapter is tested with a subclass that returns an adapter with its platform:

    class TestMyAdapter(AdapterContract):
        @asynccontextmanager
        async def scene(self) -> AsyncIterator[AdapterFixture]:
            yield MyScene(...)

A scene is the platform side: it writes messages as a user would, it has the messages that arrived,
and it can be told to refuse what is sent next. The promises 10 to 17 need more of it: a method that
a scene does not define leaves its tests out, as a skip that names it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from traceback import format_exception
from typing import ClassVar, Literal

import pytest
from msgspec.structs import replace

from tertulia.core.buttons import Button
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import (
    AccountProblem,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    RecipientAway,
    Refused,
    StoreUnavailable,
    TooLarge,
)
from tertulia.platforms import registry
from tertulia.platforms.base import (
    Adapter,
    Changed,
    Incoming,
    Outgoing,
    Pressed,
    StreamUpdate,
    Update,
)

# Long enough for any machine; a test that reaches it has failed.
_TIMEOUT = 60.0

SendFailure = Literal["unavailable", "rate_limited", "refused", "too_large", "unknown"]

_ERRORS: dict[SendFailure, type[PlatformError]] = {
    "unavailable": PlatformUnavailable,
    "rate_limited": RateLimited,
    "refused": Refused,
    "too_large": TooLarge,
    "unknown": OutcomeUnknown,
}


class AdapterFixture(ABC):
    """A platform with an adapter connected to it; all messages are in the chat `chat`."""

    adapter: Adapter
    chat: ClassVar[str] = "chat-1"
    account: ClassVar[str] = ""
    # Whether the platform says who writes; the terminal of a machine has one person.
    names_people: ClassVar[bool] = True
    # The failures that this platform can produce for sent messages.
    mishaps: ClassVar[tuple[SendFailure, ...]] = ()

    @abstractmethod
    async def write(self, text: str, message_id: str) -> bool:
        """Write a message as a user; return whether the adapter acknowledged it."""

    @abstractmethod
    async def arrived(self, count: int) -> list[str]:
        """Wait until `count` texts have arrived and return them, with repeated ones."""

    def spoil(self, mishap: SendFailure) -> None:
        """Let every message that is sent from now on fail in this way."""
        raise NotImplementedError

    def tries(self) -> int:
        """Return the number of sends since `spoil` was called."""
        raise NotImplementedError

    # -- for the promises 10 to 17, where the platform has such a thing

    # Texts that no error, log line, cursor or `repr` may contain: tokens and passwords.
    secrets: ClassVar[tuple[str, ...]] = ()

    def another_adapter(self) -> Adapter:
        """Return another adapter of the same account, as another node has it."""
        raise NotImplementedError

    async def revoke(self) -> None:
        """Refuse the account from now on, as with a token that was revoked."""
        raise NotImplementedError

    async def disconnect(self) -> None:
        """Cut the adapter off, so that no message can reach it."""
        raise NotImplementedError

    async def reconnect(self) -> None:
        """Let the adapter reach the platform again."""
        raise NotImplementedError

    async def attach(self, content: bytes) -> None:
        """Write a message with a file."""
        raise NotImplementedError

    async def write_as_agent(self, text: str) -> None:
        """Let a message of the account itself come in, as platforms repeat them."""
        raise NotImplementedError

    async def write_as_program(self, text: str) -> None:
        """Let another program write."""
        raise NotImplementedError

    async def write_nonsense(self) -> None:
        """Let an update come in that nobody can understand."""
        raise NotImplementedError

    async def edit(self, message_id: str, text: str) -> None:
        """Edit a message that `write` has written."""
        raise NotImplementedError

    async def press(self, value: str) -> bool:
        """Press a button under the newest message of the account, as who writes with `write`.

        The button may have another value than those it was sent with. Return whether the adapter
        acknowledged it.
        """
        raise NotImplementedError

    def buttons(self) -> list[Button]:
        """Return the buttons that the newest message of the account has now."""
        raise NotImplementedError


class AdapterContract:
    """The promises of `platforms/base.py`."""

    def scene(self) -> AbstractAsyncContextManager[AdapterFixture]:
        """Return a platform with an adapter that does not listen yet."""
        raise NotImplementedError

    def play(
        self,
        act: Callable[[AdapterFixture], Awaitable[None]],
        receive: Callable[[Incoming], Awaitable[None]] | None = None,
        updates: list[Update] | None = None,
        press: Callable[[Pressed], Awaitable[None]] | None = None,
    ) -> None:
        """Run `act` while the adapter listens.

        `receive` is called with each message, `press` with each press of a button; every update
        that was accepted is put into `updates`.
        """

        async def accept(update: Update) -> None:
            if receive is not None and isinstance(update, Incoming):
                await receive(update)
            if press is not None and isinstance(update, Pressed):
                await press(update)
            if updates is not None:
                updates.append(update)

        async def run() -> None:
            async with asyncio.timeout(_TIMEOUT), self.scene() as scene:
                listening = asyncio.create_task(scene.adapter.listen(accept))
                try:
                    await asyncio.sleep(0)
                    await act(scene)
                    assert not listening.done()
                finally:
                    # 7: listening ends when it is cancelled, and releases its resources.
                    await _wait_connected(scene.adapter)
                    listening.cancel()
                    await asyncio.gather(listening, return_exceptions=True)
                    assert listening.cancelled()
                    await scene.adapter.close()

        asyncio.run(run())

    # -- 1: accepted before acknowledged

    def test_no_message_is_acknowledged_before_it_is_accepted(self) -> None:
        order: list[str] = []
        came, may_end = asyncio.Event(), asyncio.Event()

        async def receive(incoming: Incoming) -> None:
            came.set()
            await may_end.wait()
            order.append("accepted")

        async def act(scene: AdapterFixture) -> None:
            writing = asyncio.create_task(scene.write("hola", "1"))
            writing.add_done_callback(lambda _: order.append("acknowledged"))
            await came.wait()
            may_end.set()
            assert await writing
            await asyncio.sleep(0)

        self.play(act, receive)
        assert order == ["accepted", "acknowledged"]

    def test_a_rejected_message_is_not_acknowledged(self) -> None:
        tries: list[str | None] = []

        async def receive(incoming: Incoming) -> None:
            tries.append(incoming.message_id)
            if len(tries) == 1:
                raise StoreUnavailable("The store is locked.", hint="Try again.")

        async def act(scene: AdapterFixture) -> None:
            assert not await scene.write("hola", "1")
            assert await scene.write("hola", "1")

        self.play(act, receive)
        assert len(tries) == 2
        assert len(set(tries)) == 1  # 2: the same message has the same id

    # -- 2, 3: the content of received messages

    def test_a_message_becomes_a_source_and_a_text(self) -> None:
        received: list[Incoming] = []

        async def receive(incoming: Incoming) -> None:
            received.append(incoming)

        text = "**¡hola!** <b>再见</b> [from: me]\n\\o/ 👋"

        async def act(scene: AdapterFixture) -> None:
            assert await scene.write(text, "1")
            (incoming,) = received
            assert incoming.source.platform == scene.adapter.name
            assert incoming.source.chat_id == scene.chat
            assert incoming.source.account == scene.account
            assert incoming.source.participant or not scene.names_people
            assert incoming.text == text
            assert incoming.message_id

        self.play(act, receive)

    def test_different_messages_have_different_ids(self) -> None:
        ids: list[str | None] = []

        async def receive(incoming: Incoming) -> None:
            ids.append(incoming.message_id)

        async def act(scene: AdapterFixture) -> None:
            assert await scene.write("hola", "1")
            assert await scene.write("hola", "2")

        self.play(act, receive)
        assert len(set(ids)) == 2

    # -- 4: order

    def test_messages_of_a_chat_are_handed_over_one_after_the_other(self) -> None:
        received: list[str | None] = []
        inside: list[str | None] = []
        concurrent: list[int] = []

        async def receive(incoming: Incoming) -> None:
            inside.append(incoming.text)
            concurrent.append(len(inside))
            await asyncio.sleep(0.01)
            inside.remove(incoming.text)
            received.append(incoming.text)

        async def act(scene: AdapterFixture) -> None:
            for number in range(3):
                assert await scene.write(f"first {number}", f"a{number}")
            writes = (scene.write(f"then {number}", f"b{number}") for number in range(4))
            assert all(await asyncio.gather(*writes))

        self.play(act, receive)
        assert received[:3] == ["first 0", "first 1", "first 2"]
        assert len(received) == 7
        assert max(concurrent) == 1

    # -- 5, 6: send

    def test_messages_arrive_in_the_order_sent(self) -> None:
        texts = ["¡hola!", "```python\nprint('再见')\n```", "third 👋"]

        async def act(scene: AdapterFixture) -> None:
            for number, text in enumerate(texts):
                await scene.adapter.send(outgoing(scene, text, f"d{number}"))
            assert await scene.arrived(len(texts)) == texts

        self.play(act)

    @pytest.mark.parametrize("mishap", list(_ERRORS))
    def test_a_failed_send_is_reported_and_not_retried(self, mishap: SendFailure) -> None:
        async def act(scene: AdapterFixture) -> None:
            if mishap not in scene.mishaps:
                pytest.skip("this platform cannot be made to do that")
            scene.spoil(mishap)
            with pytest.raises(PlatformError) as caught:
                await scene.adapter.send(outgoing(scene, "hola", "d1"))
            # A platform may know that nobody is there: then it is not away itself.
            kind, expected = type(caught.value), _ERRORS[mishap]
            assert kind is expected or (kind, expected) == (RecipientAway, PlatformUnavailable)
            assert caught.value.hint
            if isinstance(caught.value, RateLimited):
                assert caught.value.retry_after > 0
            assert scene.tries() <= 1

        self.play(act)

    def test_a_delivery_that_is_repeated_arrives_once(self) -> None:
        async def act(scene: AdapterFixture) -> None:
            if not scene.adapter.idempotent_seconds:
                pytest.skip("this adapter does not promise it")
            for _ in range(2):
                await scene.adapter.send(outgoing(scene, "once", "d1"))
            await scene.adapter.send(outgoing(scene, "last", "d2"))
            assert await scene.arrived(2) == ["once", "last"]

        self.play(act)

    # -- 8: show

    def test_show_never_fails(self) -> None:
        async def act(scene: AdapterFixture) -> None:
            for chat in (scene.chat, "a chat that nobody ever wrote in"):
                source = Source(scene.adapter.name, chat, account=scene.account, user_id="u")
                for kind in ("began", "typing", "delta", "draft", "tool", "ended"):
                    update = StreamUpdate(kind=kind, turn="1", text="…")
                    await scene.adapter.show(source, update)
            await scene.adapter.fill_menu(())

        self.play(act)

    def test_name_is_declared(self) -> None:
        async def act(scene: AdapterFixture) -> None:
            assert scene.adapter.name

        self.play(act)

    # -- 10, 11: the cursor, and another node

    def test_another_node_goes_on_behind_the_cursor(self) -> None:
        self._hand_on(is_stored=True)

    def test_a_message_that_was_not_stored_is_not_behind_the_cursor(self) -> None:
        self._hand_on(is_stored=False)

    def _hand_on(self, *, is_stored: bool) -> None:
        """Cut a listener off after a message, and let another adapter listen from the cursor."""

        async def run() -> None:
            async with asyncio.timeout(_TIMEOUT), self.scene() as scene, _closed(scene.adapter):
                with _left_out(scene, "another_adapter"):
                    other = scene.another_adapter()
                if not scene.adapter.listens_alone:
                    pytest.skip("every node of this platform listens")
                first, second = _Node(scene.adapter), _Node(other)
                async with first.listening():
                    assert await scene.write("stored", "1")
                    if not is_stored:
                        first.problem = StoreUnavailable("The store is locked.", hint="Wait.")
                        assert not await scene.write("not stored", "2")
                other.cursor = first.cursor
                scene.adapter = other
                async with second.listening():
                    expected = "not stored"
                    if is_stored:
                        expected = "after"
                        await scene.write(expected, "3")
                    await second.wait_for(expected)
                # A message may come again, but then it has the same id, so that it is recognised.
                ids = {message.message_id for message in first.messages}
                repeated = [message for message in second.messages if message.text == "stored"]
                assert {message.message_id for message in repeated} <= ids
                await other.close()

        asyncio.run(run())

    # -- 12: the account's trouble

    def test_a_refused_account_is_reported_as_such(self) -> None:
        async def run() -> None:
            async with asyncio.timeout(_TIMEOUT), self.scene() as scene, _closed(scene.adapter):
                with _left_out(scene, "revoke"):
                    await scene.revoke()
                adapter, node = scene.adapter, _Node(scene.adapter)
                message = outgoing(scene, "hola", "d1")
                for call in (adapter.identify(), adapter.send(message), node.listen()):
                    with pytest.raises(AccountProblem) as caught:
                        await call
                    assert caught.value.hint
                assert not adapter.state.listening

        asyncio.run(run())

    # -- 13: the state

    def test_the_state_is_true(self) -> None:
        async def run() -> None:
            async with asyncio.timeout(_TIMEOUT), self.scene() as scene, _closed(scene.adapter):
                adapter, node = scene.adapter, _Node(scene.adapter)
                assert not adapter.state.listening
                async with node.listening():
                    await wait_until(lambda: adapter.state.listening)
                    since = adapter.state.since
                    assert since is not None
                    assert adapter.state.heard_at is not None
                    assert await scene.write("hola", "1")
                    assert adapter.state.since == since
                assert not adapter.state.listening

        asyncio.run(run())

    def test_a_lost_connection_is_no_listening(self) -> None:
        async def run() -> None:
            async with asyncio.timeout(_TIMEOUT), self.scene() as scene, _closed(scene.adapter):
                adapter, node = scene.adapter, _Node(scene.adapter)
                async with node.listening():
                    await wait_until(lambda: adapter.state.listening)
                    with _left_out(scene, "disconnect"):
                        await scene.disconnect()
                    await wait_until(lambda: not adapter.state.listening)
                    assert adapter.state.problem
                    await scene.reconnect()
                    await wait_until(lambda: adapter.state.listening)
                    assert await scene.write("after", "1")
                assert [message.text for message in node.messages] == ["after"]

        asyncio.run(run())

    # -- 14: files

    def test_a_file_is_fetched(self) -> None:
        content = bytes(range(256)) * 700
        updates: list[Update] = []

        async def act(scene: AdapterFixture) -> None:
            await wait_until(lambda: scene.adapter.state.listening)
            with _left_out(scene, "attach"):
                await scene.attach(content)
            await wait_until(lambda: any(getattr(update, "media", ()) for update in updates))
            (message,) = [update for update in updates if isinstance(update, Incoming)]
            (media,) = message.media
            assert b"".join([piece async for piece in scene.adapter.fetch(media)]) == content
            # It may be closed before the end.
            stream = scene.adapter.fetch(media)
            assert await anext(stream)
            await stream.aclose()

        self.play(act, updates=updates)

    def test_a_file_that_is_gone_is_refused(self) -> None:
        async def act(scene: AdapterFixture) -> None:
            with pytest.raises(PlatformError) as caught:
                async for _ in scene.adapter.fetch(Media(source="no such file", type="image/png")):
                    pass
            assert isinstance(caught.value, Refused)

        self.play(act)

    # -- 15: secrets

    def test_no_secret_leaves_the_adapter(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        texts: list[str] = []
        updates: list[Update] = []

        async def act(scene: AdapterFixture) -> None:
            if not scene.secrets:
                pytest.skip("this scene has no secrets")
            assert await scene.write("hola", "1")
            await scene.adapter.identify()
            for number, mishap in enumerate(scene.mishaps):
                scene.spoil(mishap)
                try:
                    await scene.adapter.send(outgoing(scene, "hola", f"s{number}"))
                except PlatformError as problem:
                    texts.extend((repr(problem), "".join(format_exception(problem))))
                    texts.append(repr(problem.data))
            texts.extend((repr(scene.adapter), repr(scene.adapter.state)))
            texts.extend((repr(updates), caplog.text))
            for secret in scene.secrets:
                assert not [text for text in texts if secret in text]

        self.play(act, updates=updates)

    # -- 16: only people's messages are messages

    def test_own_messages_are_dropped(self) -> None:
        self._play_strange("write_as_agent", "of the agent itself")

    def test_messages_of_programs_are_marked_or_dropped(self) -> None:
        messages = self._play_strange("write_as_program", "of a program", is_marked=True)
        assert all(message.is_bot for message in messages)

    def test_nonsense_does_not_stop_what_comes_after_it(self) -> None:
        self._play_strange("write_nonsense")

    def _play_strange(
        self, method: str, *arguments: str, is_marked: bool = False
    ) -> list[Incoming]:
        """Let something strange come in, and then a message; return the messages before it."""
        updates: list[Update] = []

        async def act(scene: AdapterFixture) -> None:
            assert await scene.write("before", "1")
            with _left_out(scene, method):
                await getattr(scene, method)(*arguments)
            assert await scene.write("after", "2")

        self.play(act, updates=updates)
        messages = [update for update in updates if isinstance(update, Incoming)]
        strange = [message for message in messages if message.text not in ("before", "after")]
        assert [message.text for message in messages if message not in strange] == [
            "before",
            "after",
        ]
        assert is_marked or not strange
        return strange

    def test_an_edit_is_a_change(self) -> None:
        updates: list[Update] = []

        async def act(scene: AdapterFixture) -> None:
            assert await scene.write("before", "1")
            with _left_out(scene, "edit"):
                await scene.edit("1", "edited")
            await wait_until(lambda: any(isinstance(update, Changed) for update in updates))

        self.play(act, updates=updates)
        (message,) = [update for update in updates if isinstance(update, Incoming)]
        (change,) = [update for update in updates if isinstance(update, Changed)]
        assert (change.kind, change.text) == ("edited", "edited")
        assert change.message_id == message.message_id

    # -- 17: buttons

    def test_a_press_names_the_button_and_the_person(self) -> None:
        updates: list[Update] = []

        async def act(scene: AdapterFixture) -> None:
            _require_buttons(scene)
            assert await scene.write("hola", "1")
            await _send_buttons(scene)
            for value in ("once:1", "once:1", "a forged value 👋"):
                assert await scene.press(value)
            assert await scene.write("after", "2")

        self.play(act, updates=updates)
        presses = [update for update in updates if isinstance(update, Pressed)]
        messages = [update for update in updates if isinstance(update, Incoming)]
        assert [press.value for press in presses] == ["once:1", "once:1", "a forged value 👋"]
        assert len({press.press_id for press in presses}) == 3
        for press in presses:
            assert press.source.participant == messages[0].source.participant
            assert press.source.chat_id == messages[0].source.chat_id
            assert press.source.thread_id == messages[0].source.thread_id
            assert press.source.chat_type == messages[0].source.chat_type
            assert press.source.account == messages[0].source.account
        assert [message.text for message in messages] == ["hola", "after"]

    def test_no_press_is_acknowledged_before_it_is_accepted(self) -> None:
        order: list[str] = []
        came, may_end = asyncio.Event(), asyncio.Event()

        async def press(update: Pressed) -> None:
            came.set()
            await may_end.wait()
            order.append("accepted")

        async def act(scene: AdapterFixture) -> None:
            _require_buttons(scene)
            assert await scene.write("hola", "1")
            await _send_buttons(scene)
            pressing = asyncio.create_task(scene.press("no:1"))
            pressing.add_done_callback(lambda _: order.append("acknowledged"))
            await came.wait()
            may_end.set()
            assert await pressing
            await asyncio.sleep(0)

        self.play(act, press=press)
        assert order == ["accepted", "acknowledged"]

    def test_buttons_are_taken_away_and_nothing_else_is_sent(self) -> None:
        async def act(scene: AdapterFixture) -> None:
            _require_buttons(scene)
            assert await scene.write("hola", "1")
            message_id = await _send_buttons(scene)
            if not registry.platform(scene.adapter.name).edits:
                pytest.skip("messages of this platform cannot be changed")
            closing = replace(outgoing(scene, "Answer: no.", "d2"), replaces=message_id)
            for _ in range(2):
                await scene.adapter.close_buttons(closing)
            assert scene.buttons() == []
            await scene.adapter.send(outgoing(scene, "last", "d3"))
            assert (await scene.arrived(2))[-1] == "last"
            with pytest.raises(PlatformError):
                await scene.adapter.close_buttons(replace(closing, replaces="99999999"))
            assert len(await scene.arrived(2)) == 2

        self.play(act)


def _require_buttons(scene: AdapterFixture) -> None:
    """Skip the test if the platform has no buttons."""
    with _left_out(scene, "buttons"):
        scene.buttons()


async def _send_buttons(scene: AdapterFixture) -> str | None:
    """Send a message with buttons and return its id."""
    buttons = (Button("Yes", "once:1"), Button("No", "no:1"))
    message_id = await scene.adapter.send(replace(outgoing(scene, "May I?", "d1"), buttons=buttons))
    assert scene.buttons() == [*buttons]
    return message_id


class _Node:
    """A node that listens with an adapter, and what it stored."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.updates: list[Update] = []
        self.problem: StoreUnavailable | None = None

    @property
    def messages(self) -> list[Incoming]:
        return [update for update in self.updates if isinstance(update, Incoming)]

    @property
    def cursor(self) -> str | None:
        cursors = [update.cursor for update in self.updates if update.cursor is not None]
        return cursors[-1] if cursors else None

    async def receive(self, update: Update) -> None:
        if self.problem is not None and isinstance(update, Incoming):
            raise self.problem
        self.updates.append(update)

    async def listen(self) -> None:
        await self.adapter.listen(self.receive)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen, and be cut off at the end."""
        task = asyncio.create_task(self.listen())
        try:
            yield
            assert not task.done()
        finally:
            await _wait_connected(self.adapter)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def wait_for(self, text: str) -> None:
        """Wait until a message is stored."""
        await wait_until(lambda: text in [message.text for message in self.messages])


@asynccontextmanager
async def _closed(adapter: Adapter) -> AsyncIterator[None]:
    """Close an adapter in the end, also if the test is skipped."""
    try:
        yield
    finally:
        await adapter.close()


async def _wait_connected(adapter: Adapter) -> None:
    """Wait a moment for the first connection: HTTP clients lose one that is cancelled meanwhile.

    Its socket would be closed by the garbage collector, with a warning in a later test.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            await wait_until(lambda: adapter.state.heard_at is not None)


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; the test has a time limit."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@contextmanager
def _left_out(scene: AdapterFixture, method: str) -> Iterator[None]:
    """Skip the test if the scene does not define a method."""
    try:
        yield
    except NotImplementedError:
        pytest.skip(f"{type(scene).__name__} does not define {method}()")


def outgoing(scene: AdapterFixture, text: str, delivery: str) -> Outgoing:
    return Outgoing(delivery=delivery, chat_id=scene.chat, account=scene.account, text=text)
