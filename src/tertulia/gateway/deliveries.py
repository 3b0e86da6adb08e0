"""Deliveries: from the outbox to the platforms, in order for each chat.

The outbox hands out one delivery of a chat at a time. The number of sends in progress is limited
for each platform, so that a platform that hangs does not delay the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from tertulia import aio
from tertulia.core.backoff import JITTER
from tertulia.core.buttons import Button
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.core.text.spans import Span
from tertulia.errors import (
    AccountProblem,
    Error,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    RecipientAway,
    Refused,
    StaleWrite,
    TooLarge,
)
from tertulia.gateway import replies, retries
from tertulia.gateway.account_pauses import AccountPauses
from tertulia.gateway.adapters import Adapters, key_of
from tertulia.gateway.settings import GatewaySettings
from tertulia.gateway.workers import RETRY_SECONDS, WAIT_SECONDS, Worker
from tertulia.platforms.base import Adapter, Outgoing
from tertulia.records.queues.base import MAX_LIMIT
from tertulia.records.queues.outbox import CLOSES, AccountKey, Delivery

log = logging.getLogger("tertulia.gateway")

_MAX_SENDS = 64  # in progress at once, for each platform
_MAX_SETTLED = 32  # in one transaction, which locks the chats of all of them
_AWAY_SECONDS = 86_400.0


class DeliveryWorker(Worker[Delivery]):
    """Sends due deliveries and stores the outcome of each."""

    def __init__(
        self, store: aio.Store, adapters: Adapters, settings: GatewaySettings, pauses: AccountPauses
    ) -> None:
        lease = store.settings.lease_seconds
        super().__init__("outbox", store.outbox, self._send, _MAX_SENDS, lease=lease)
        self._outbox = store.outbox
        self._adapters = adapters
        self._tries = settings.sends
        self._settings = settings
        self._store = store
        self._pauses = pauses
        self._sent = SentDeliveries(store)
        self._sends: Counter[AccountKey] = Counter()  # in progress, by account
        self._idempotent = {
            key: adapter.idempotent_seconds
            for key, adapter in adapters.items()
            if adapter.idempotent_seconds > 0
        }

    async def drain(self, seconds: float) -> int:
        """Send the deliveries that are due now, none that are due later; cancel after `seconds`.

        Return how many sends were cancelled.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while await self._claim_due() or self._in_progress:
            if cancelled := await super().drain(max(0.0, deadline - loop.time())):
                return cancelled
        return 0

    def _room(self) -> dict[AccountKey, int]:
        """Return how many sends each account has room for; a full one is left out."""
        free = {
            key: self._pauses.limit(key, self._limit) - self._sends[key] for key in self._adapters
        }
        return {key: room for key, room in free.items() if room > 0}

    def _key(self, delivery: Delivery) -> AccountKey:
        return key_of(self._adapter(delivery))

    def _adapter(self, delivery: Delivery) -> Adapter:
        adapter = self._adapters.of(delivery.platform, delivery.account)
        assert adapter is not None  # only deliveries of these adapters are claimed
        return adapter

    def _has_capacity(self) -> bool:
        return bool(self._room())

    async def _wait_for_room(self) -> None:
        """Wait until a send ends, or the pause of an account."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pauses.seconds_left(WAIT_SECONDS)):
                await self._has_room.wait()

    async def _wait(self, seconds: float) -> bool:
        return await self._outbox.wait(seconds, accounts=self._room())

    async def _claim_due(self) -> int:
        rooms = self._room()
        if not rooms:
            return 0
        claim = self._outbox.claim(
            min(sum(rooms.values()), MAX_LIMIT),
            lease_seconds=self._lease,
            accounts=rooms,
            idempotent=self._idempotent,
        )
        return await self._start_claimed(claim)

    def _start(self, items: Sequence[Delivery]) -> None:
        self._sends.update(map(self._key, items))
        super()._start(items)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._sends[self._key(self._in_progress[task])] -= 1
        super()._finish(task)

    async def _send(self, delivery: Delivery) -> None:
        problem: PlatformError | None = None
        message_id: str | None = None
        try:
            if CLOSES in delivery.body:
                await self._close_buttons(delivery)
            else:
                message = await self._outgoing(delivery)
                message_id = await self._adapter(delivery).send(message)
        except PlatformError as refusal:
            problem = refusal
        except asyncio.CancelledError:
            kind = PlatformUnavailable if CLOSES in delivery.body else OutcomeUnknown
            stopped = kind("The gateway stopped while this was being sent.")
            await asyncio.shield(self._settle(delivery, stopped))
            raise
        except Exception as bug:
            # The adapter may have sent it before it failed, so it is not sent again.
            log.exception("the adapter of %s has a bug", delivery.platform)
            # Its text may contain an address with a token, so only the log has it.
            problem = OutcomeUnknown(f"The adapter failed: {type(bug).__name__}.")
        await self._settle(delivery, problem, message_id)

    async def _close_buttons(self, delivery: Delivery) -> None:
        """Remove the buttons of a question; ignore it if that is permanently impossible.

        A later press is still answered, with the outcome of the question.
        """
        question = await self._outbox.get(delivery.body[CLOSES])
        if question is None or question.message_id is None:
            return  # it never arrived, or nobody knows as which message
        message = msgspec.structs.replace(_outgoing(delivery), replaces=question.message_id)
        try:
            await self._adapter(delivery).close_buttons(message)
        except (AccountProblem, RateLimited):
            raise
        except PlatformError as problem:
            if isinstance(problem, PlatformUnavailable) and delivery.tries < self._tries:
                raise
            log.info("the buttons of delivery %d stay: %s", question.id, problem)

    async def _outgoing(self, delivery: Delivery) -> Outgoing:
        """Return the message to send, with the bytes of its file; raise `Refused` without them."""
        if "media" not in delivery.body:
            return _outgoing(delivery)
        media = Media.from_dict(delivery.body["media"])
        content = await self._store.media.get(media.hash or "")
        if content is None:
            raise Refused("The file is not stored any more.", hint="Send it again.")
        limit = self._settings.of(delivery.platform, delivery.account).max_file_mb * 1e6
        if len(content) > limit:
            raise TooLarge("The file is larger than max_file_mb.", hint="Raise it, or send less.")
        return _outgoing(delivery, media, content)

    async def _tell_file_problem(self, delivery: Delivery, problem: PlatformError) -> None:
        """Tell the person that a file will not come: its delivery is given up."""
        if isinstance(problem, TooLarge | Refused) and "media" in delivery.body:
            origin = Source(
                delivery.platform, delivery.chat_id or "", account=delivery.account,
                thread_id=delivery.thread_id,
            )  # fmt: skip
            name = delivery.body["media"].get("name")
            await self._outbox.put(
                replies.file_not_sent(name, problem), "origin", origin=origin,
                session_id=delivery.session_id, delivery=f"{delivery.delivery}:problem",
                is_plain=True,
            )  # fmt: skip

    async def _settle(
        self, delivery: Delivery, problem: PlatformError | None, message_id: str | None = None
    ) -> None:
        """Store the outcome of a send; retry while the database is not available."""
        # Its key may contain raw ids, or a pairing code.
        number = delivery.id
        if isinstance(problem, RecipientAway):
            log.info("delivery %d to %s waits: %s", number, delivery.platform, problem)
        elif problem is not None:
            log.warning("delivery %d to %s failed: %s", number, delivery.platform, problem)
        while True:
            try:
                await self._store_outcome(delivery, problem, message_id)
            except StaleWrite as conflict:
                log.warning("delivery %d was settled by another node: %s", number, conflict)
            except Error as failure:
                if failure.retryable:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                log.error("delivery %d could not be settled: %s", number, failure)  # noqa: TRY400
            return

    async def _store_outcome(
        self, delivery: Delivery, problem: PlatformError | None, message_id: str | None
    ) -> None:
        outbox = self._outbox
        if problem is None:
            self._pauses.end(self._key(delivery))
            await self._sent.put(delivery, message_id)
        elif isinstance(problem, AccountProblem):
            # The account's trouble is not the message's: it waits until the account works.
            pause = self._pauses.pause(self._key(delivery), problem)
            await outbox.failed(delivery, problem.message, retry_after=pause, is_waived=True)
        elif isinstance(problem, OutcomeUnknown) and self._adapter(delivery).idempotent_seconds:
            # The claim runs out after a pause. Then the delivery is sent again under the same key,
            # or, if the platform does not remember the key any more, its outcome stays unknown.
            await outbox.renew(delivery, lease_seconds=_delay(delivery))
        elif isinstance(problem, OutcomeUnknown):
            await outbox.failed(delivery, problem.message, outcome="unknown")
        elif isinstance(problem, RecipientAway):
            # Kept for as long as nobody is there; `Outbox.resume` ends the pause.
            await outbox.failed(
                delivery, problem.message, retry_after=_AWAY_SECONDS, is_waived=True
            )
        elif problem.retryable and problem.retry_after is not None:
            # A pause that the platform asks for uses up no tries.
            await outbox.failed(
                delivery, problem.message, retry_after=problem.retry_after, is_waived=True
            )
        elif problem.retryable and delivery.tries < self._tries:
            await outbox.failed(delivery, problem.message, retry_after=_delay(delivery))
        else:
            await self._tell_file_problem(delivery, problem)
            await outbox.failed(delivery, problem.message, outcome="dead")


class SentDeliveries:
    """Settles deliveries that were sent: those that come together in one transaction."""

    def __init__(self, store: aio.Store) -> None:
        self._outbox = store.outbox
        self._waiting: list[tuple[Delivery, str | None, asyncio.Future[None]]] = []
        self._settling: asyncio.Task[None] | None = None

    async def put(self, delivery: Delivery, message_id: str | None) -> None:
        """Settle a delivery; return when that is stored, or raise the error of the store."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((delivery, message_id, stored))
        if self._settling is None:
            self._settling = asyncio.create_task(self._settle_waiting())
        # If this task is cancelled, only `stored` is: the settling goes on.
        await stored

    async def _settle_waiting(self) -> None:
        """Settle the waiting results, and those that are added meanwhile, until none is left."""
        try:
            while self._waiting:
                batch = self._waiting[:_MAX_SETTLED]
                del self._waiting[:_MAX_SETTLED]
                await self._settle(batch)
        finally:
            self._settling = None

    async def _settle(
        self, batch: Sequence[tuple[Delivery, str | None, asyncio.Future[None]]]
    ) -> None:
        outcomes: Sequence[Delivery | Error] = []
        try:
            outcomes = await self._outbox.done_many(
                [(delivery, message_id) for delivery, message_id, _ in batch]
            )
        except Error as failure:
            outcomes = [failure] * len(batch)
        finally:
            for _, _, stored in batch[len(outcomes) :]:
                stored.cancel()  # the gateway stops, or the store is closed
        for (_, _, stored), outcome in zip(batch, outcomes, strict=True):
            if stored.cancelled():
                continue
            if isinstance(outcome, Error):
                stored.set_exception(outcome)
            else:
                stored.set_result(None)


def _outgoing(delivery: Delivery, media: Media | None = None, content: bytes = b"") -> Outgoing:
    body = delivery.body
    return Outgoing(
        delivery=delivery.delivery,
        account=delivery.account,
        chat_id=delivery.chat_id,
        thread_id=delivery.thread_id,
        text=body["text"],
        spans=tuple(Span(*span) for span in body.get("spans", ())),
        reply_to=body.get("reply_to"),
        replaces=body.get("replaces"),
        buttons=tuple(Button(*button) for button in body.get("buttons", ())),
        media=media,
        content=content,
    )


def _delay(delivery: Delivery) -> float:
    """Return the seconds before the next try."""
    return retries.SEND_BACKOFF.delay(max(1, delivery.tries), JITTER.random())
