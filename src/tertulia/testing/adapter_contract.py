"""Every promise of an adapter as a test (`platforms/base.py` numbers them).

An adapter is tested with a subclass that returns an adapter with its platform:

    class TestMyAdapter(AdapterContract):
        @asynccontextmanager
        async def scene(self) -> AsyncIterator[AdapterFixture]:
            yield MyScene(...)

A scene is the platform side: it writes messages as a user would, it has the messages that arrived,
and it can be told to refuse what is sent next.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Literal

import pytest

from tertulia.core.source import Source
from tertulia.errors import (
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    RecipientAway,
    Refused,
    StoreUnavailable,
    TooLarge,
)
from tertulia.platforms.base import Adapter, Incoming, Outgoing, StreamUpdate, Update

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
    ) -> None:
        """Run `act` while the adapter listens.

        `receive` is called with each message; every update that was accepted is put into `updates`.
        """

        async def accept(update: Update) -> None:
            if receive is not None and isinstance(update, Incoming):
                await receive(update)
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
            assert incoming.source.participant
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
        most: list[int] = []

        async def receive(incoming: Incoming) -> None:
            inside.append(incoming.text)
            most.append(len(inside))
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
        assert max(most) == 1

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


def outgoing(scene: AdapterFixture, text: str, delivery: str) -> Outgoing:
    return Outgoing(delivery=delivery, chat_id=scene.chat, account=scene.account, text=text)
