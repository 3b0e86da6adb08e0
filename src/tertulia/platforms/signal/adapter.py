"""The adapter of a Signal account, through the daemon of signal-cli (decision 0025).

Signal gives a message once: the daemon forgets it when it has written it to its listeners. So a
message is handed over until it is stored, and nothing more is read meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from tertulia.core.backoff import JITTER, Backoff
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import (
    AccountProblem,
    Error,
    OutcomeUnknown,
    PlatformError,
    Refused,
)
from tertulia.platforms.base import MALFORMED, Adapter, Outgoing, Receive, StreamUpdate, Update
from tertulia.platforms.signal.daemon_client import DaemonClient
from tertulia.platforms.signal.envelopes import OwnAccount, is_person, read_envelope
from tertulia.platforms.signal.text_styles import styles_of
from tertulia.platforms.typing_tasks import TypingTasks

log = logging.getLogger("tertulia.platforms")

_RECONNECT = Backoff(first=1, longest=30)
_STORE = Backoff(first=0.5, longest=10)
_SHOW_SECONDS: Final = 5.0
# Turns that end sooner show no typing.
_TYPING_DELAY_SECONDS: Final = 0.5
_MAX_REMEMBERED: Final = 1000


class SignalAdapter(Adapter):
    """The adapter of one account. Every node listens: each gets every message."""

    name = "signal"
    typing_seconds = 10.0  # Signal shows it for 15 seconds

    def __init__(
        self, number: str, *, account: str = "", base_url: str = "http://127.0.0.1:8080"
    ) -> None:
        self.account = account
        self._daemon = DaemonClient(number, base_url)
        self._own = OwnAccount(number=number, account=account)
        self._sent: OrderedDict[str, bool] = OrderedDict()
        self._typing = TypingTasks()
        self._shown: set[str] = set()  # the turns whose chats show it

    # -- listen

    async def listen(self, receive: Receive) -> None:
        """Hand over every message until cancelled; raise `AccountProblem` for a wrong number."""
        attempts = 0
        try:
            while True:
                try:
                    await self._learn_own_id()
                    events = self._daemon.events()
                    try:
                        async for event in events:
                            attempts = 0
                            self.mark_listening()
                            if event is not None:
                                await self._hand_over_event(event, receive)
                    finally:
                        await events.aclose()
                except AccountProblem:
                    raise
                except PlatformError as problem:
                    attempts += 1
                    self.mark_problem(problem.message)
                    seconds = _RECONNECT.delay(attempts, JITTER.random())
                    log.warning("signal: %s Trying again in %.1f s.", problem.message, seconds)
                    await asyncio.sleep(seconds)
        finally:
            self.mark_problem(self.state.problem)

    async def _learn_own_id(self) -> None:
        """Ask for the UUID of the account, by which people mention it."""
        if self._own.uuid is not None:
            return
        try:
            parameters = {"recipient": [self._own.number]}
            for person in await self._daemon.ask("getUserStatus", parameters):
                if isinstance(person.get("uuid"), str):
                    self._own.uuid = person["uuid"]
        except AccountProblem:
            raise
        except (PlatformError, TypeError, AttributeError) as problem:
            # Mentions by number still work, and the next connection asks again.
            log.warning("signal: the id of the account is not known: %s", type(problem).__name__)

    async def _hand_over_event(self, event: Mapping[str, Any], receive: Receive) -> None:
        try:
            update = read_envelope(event["envelope"], self._own, self._sent)
        except MALFORMED as problem:
            kinds = sorted(str(kind)[:40] for kind in event)
            log.warning(
                "signal: a message was not understood and is skipped (%s in %s)",
                type(problem).__name__, kinds,
            )  # fmt: skip
            return
        if update is not None:
            await self._hand_over(update, receive)

    async def _hand_over(self, update: Update, receive: Receive) -> None:
        """Hand an update over until it is stored: the daemon does not have it any more."""
        attempts = 0
        while True:
            try:
                await receive(update)
            except Error as problem:
                attempts += 1
                seconds = _STORE.delay(attempts, JITTER.random())
                log.warning(
                    "signal: a message could not be stored, trying again in %.1f s: %s",
                    seconds, problem,
                )  # fmt: skip
                await asyncio.sleep(seconds)
            else:
                return

    # -- send

    async def send(self, message: Outgoing) -> str | None:
        """Send one message and return its id; raise a `PlatformError` if it was not accepted."""
        parameters: dict[str, Any] = {**_address(message.chat_id), "message": message.text}
        styles = styles_of(message.text, message.spans)
        if styles:
            parameters["textStyle"] = styles
        author, _, time = (message.reply_to or "").rpartition(":")
        if author and time.isdecimal():
            parameters |= {"quoteAuthor": author, "quoteTimestamp": int(time), "quoteMessage": ""}
        if message.replaces is not None:
            parameters["editTimestamp"] = int(message.replaces.rpartition(":")[2])
        if message.media is not None:
            parameters["attachments"] = [_data_uri(message.media, message.content)]
        answer = await self._daemon.send("send", parameters)
        stamp = answer.get("timestamp") if isinstance(answer, dict) else None
        if not isinstance(stamp, int):
            raise OutcomeUnknown(
                "signal-cli gave the message no time.", hint="Look into the chat for it."
            )
        self._sent[str(stamp)] = True
        while len(self._sent) > _MAX_REMEMBERED:
            self._sent.popitem(last=False)
        return f"{self._own.uuid or self._own.number}:{stamp}"

    # -- show

    async def show(self, source: Source, update: StreamUpdate) -> str | None:
        """Show that the account is typing, and that it does not any more."""
        if update.kind in ("began", "typing", "tool"):
            delay = _TYPING_DELAY_SECONDS if update.kind == "began" else 0.0
            self._typing.start(update.turn, lambda: self._type(source, update.turn, delay))
        elif update.kind == "ended":
            self._typing.stop(update.turn)
            if update.turn in self._shown:
                # A turn may end without an answer: then Signal would show it for 15 seconds.
                self._shown.discard(update.turn)
                # Under a key of its own: another "ended" must not cancel it.
                ending = f"{update.turn} ended"
                self._typing.start(ending, lambda: self._send_typing(source, {"stop": True}))
        return None

    async def _type(self, source: Source, turn: str, delay: float) -> None:
        await asyncio.sleep(delay)
        self._shown.add(turn)
        await self._send_typing(source, {})

    async def _send_typing(self, source: Source, options: Mapping[str, Any]) -> None:
        parameters = {**_address(source.chat_id), **options}
        try:
            await self._daemon.ask("sendTyping", parameters, seconds=_SHOW_SECONDS)
        except PlatformError as problem:
            log.debug("signal: typing could not be shown: %s", type(problem).__name__)

    # -- the rest

    async def fetch(self, media: Media) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file, which the daemon has on its disk."""
        chat_id, _, file_id = (media.source or "").partition("#")
        if not file_id:
            raise Refused("This is no file of Signal.", hint="It may be gone.")
        address = _address(chat_id)
        if "recipient" in address:
            address = {"recipient": address["recipient"][0]}
        pieces = self._daemon.download({"id": file_id, **address})
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()

    async def identify(self) -> str:
        """Ask the daemon whether it has this account."""
        version = await self._daemon.ask("version")
        name = version.get("version") if isinstance(version, dict) else None
        name = name if isinstance(name, str) else "of an unknown version"
        try:
            accounts = await self._daemon.ask("listAccounts")
        except AccountProblem:
            raise
        except Refused:
            accounts = None  # a daemon of one account does not list it
        if isinstance(accounts, list):
            numbers = [item.get("number") for item in accounts if isinstance(item, dict)]
            if self._own.number not in numbers:
                raise AccountProblem(
                    f"signal-cli has no account {self._own.number}.",
                    hint="Register or link it: signal-cli link -n tertulia",
                )
        return f"{self._own.number} (signal-cli {name})"

    async def close(self) -> None:
        """Close the connections."""
        await self._typing.close()
        await self._daemon.close()


def _address(chat_id: str | None) -> dict[str, Any]:
    """Return the parameters that say where a message goes: to a person or to a group."""
    if not chat_id:
        raise Refused("The message has no chat.", hint="Name one: signal:+15550100.")
    return {"recipient": [chat_id]} if is_person(chat_id) else {"groupId": chat_id}


def _data_uri(media: Media, content: bytes) -> str:
    media_type = media.type or "application/octet-stream"
    name = "".join(letter for letter in media.name or "" if letter.isalnum() or letter in "._-")
    filename = f";filename={name}" if name else ""
    return f"data:{media_type}{filename};base64,{base64.b64encode(content).decode()}"
