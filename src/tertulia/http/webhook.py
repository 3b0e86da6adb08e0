"""The address to which another program posts its signed messages."""

from __future__ import annotations

import msgspec

from tertulia.errors import NotFound
from tertulia.http.routing import ApiCall, Operation, read_body
from tertulia.platforms.webhook import SIGNATURE, TIMESTAMP, WebhookAdapter, WebhookRequest


class WebhookAccepted(msgspec.Struct, frozen=True):
    """The message is stored; its answer will be posted to the address of the webhook."""

    message_id: str


async def take_webhook(call: ApiCall) -> WebhookAccepted:
    adapter: WebhookAdapter | None = call.api.webhook
    if adapter is None:
        raise NotFound(
            "This gateway has no webhook platform.",
            hint="Add [platforms.webhook], with a secret, to the configuration.",
        )
    body = await read_body(call.request, call.api.settings, None)
    incoming = adapter.read(call.request.headers, body)
    await adapter.accept(incoming)
    return WebhookAccepted(incoming.message_id or "")


TABLE = (
    Operation(
        method="POST", path="/webhook", act=take_webhook, role=None, body=WebhookRequest,
        answer=WebhookAccepted, status=202, headers=(TIMESTAMP, SIGNATURE), is_raw=True,
        summary="Accept a message of another program, authenticated by its signature.",
    ),
)  # fmt: skip
