"""The WhatsApp on loopback satisfies pywa: a fake proves nothing alone.

pywa calls Meta's own host always, so its HTTP client is led to the server on loopback.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pywa import errors as pywa_errors
from pywa.client import WhatsApp
from pywa.types.base_update import RawUpdate
from pywa.types.callback import Button, CallbackButton
from pywa.types.message import Message
from pywa.types.message_status import MessageStatus, MessageStatusType
from pywa.utils import webhook_updates_validator

from tests.servers.scripted_http import Fault
from tests.servers.whatsapp import (
    ANA,
    ANA_ID,
    APP_SECRET,
    NUMBER_ID,
    TOKEN,
    WhatsAppServer,
    contact,
    notification,
    refusal,
)

ERROR = {"code": 131026, "title": "x", "message": "Message undeliverable"}


class Loopback(httpx.HTTPTransport):
    """Sends what goes to Meta to the server on loopback."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == "graph.facebook.com":
            path = request.url.path.partition("/")[2].partition("/")[2]
            request.url = request.url.copy_with(
                scheme="http", host="127.0.0.1", port=self._port, path=f"/v23.0/{path}"
            )
        return super().handle_request(request)


@pytest.fixture
def server() -> Iterator[WhatsAppServer]:
    with WhatsAppServer() as running:
        yield running


@pytest.fixture
def client(server: WhatsAppServer) -> Iterator[WhatsApp]:
    with httpx.Client(transport=Loopback(server.port)) as session:
        yield WhatsApp(NUMBER_ID, TOKEN, session=session, server=None)


def test_client_sends_texts_and_marks(server: WhatsAppServer, client: WhatsApp) -> None:
    sent = client.send_message(ANA, "hola", tracker="d1")
    assert server.sent[0].message_id == sent.id
    assert (server.sent[0].to, server.sent[0].delivery) == (ANA, "d1")
    client.send_message(ANA_ID, "hola", reply_to_message_id=sent.id)
    assert (server.sent[1].to, server.sent[1].reply_to) == (ANA_ID, sent.id)
    question = server.new_id()
    client.mark_message_as_read(question)
    client.indicate_typing(question)
    assert (server.read, server.typing) == ([question] * 2, [question])
    assert server.violations == []


def test_client_sends_and_gets_files(server: WhatsAppServer, client: WhatsApp) -> None:
    client.send_document(ANA, b"%PDF", filename="a.pdf", caption="see", mime_type="application/pdf")
    (sent,) = server.sent
    assert (sent.kind, sent.text) == ("document", "see")
    assert sent.file is not None
    assert sent.file[2] == b"%PDF"
    file_id = server.add_file(b"\xff\xd8\xff")
    url = client.get_media_url(file_id)
    assert url.mime_type == "image/jpeg"
    assert client.get_media_bytes(url=url.url) == b"\xff\xd8\xff"


def test_client_gets_the_errors_of_whatsapp(server: WhatsAppServer, client: WhatsApp) -> None:
    server.closed.add(ANA)
    with pytest.raises(pywa_errors.ReEngagementMessage):
        client.send_message(ANA, "late")
    server.closed.clear()
    server.spoil("messages", refusal(131056), refusal(131000, status=500), Fault(502, b"<html>"))
    with pytest.raises(pywa_errors.TooManyMessages):
        client.send_message(ANA, "x")
    for _ in range(2):
        with pytest.raises(pywa_errors.WhatsAppError):
            client.send_message(ANA, "x")
    with pytest.raises(pywa_errors.WhatsAppError):
        client.send_message(ANA, "x" * 4097)
    server.spoil("messages", Fault(takes=True, end="cut"))
    with pytest.raises(httpx.HTTPError):
        client.send_message(ANA, "taken all the same")
    assert server.texts == ["taken all the same"]
    server.token = "another"
    with pytest.raises(pywa_errors.WhatsAppError) as refused:
        client.send_message(ANA, "x")
    assert refused.value.code == 190


def test_signature_is_accepted_by_the_validator(server: WhatsAppServer) -> None:
    body = json.dumps(notification(server.value(messages=[server.message(ANA, "ñ")]))).encode()
    signature = server.sign(body)["x-hub-signature-256"]
    assert webhook_updates_validator(APP_SECRET, body, signature)
    assert not webhook_updates_validator(APP_SECRET, body + b" ", signature)
    assert not webhook_updates_validator("another", body, signature)


def raw(payload: dict[str, Any]) -> RawUpdate:
    return RawUpdate(json.dumps(payload).encode(), hmac_header=None, update_hash="")


def test_notifications_are_read_by_the_client(server: WhatsAppServer, client: WhatsApp) -> None:
    message = server.message(ANA, "hola", user_id=ANA_ID, from_user_id=ANA_ID)
    payload = notification(server.value(messages=[message], contacts=[contact(ANA, ANA_ID)]))
    read = Message.from_update(client, raw(payload))
    assert (read.id, read.text) == (message["id"], "hola")
    assert (read.from_user.bsuid, read.from_user.wa_id) == (ANA_ID, ANA)
    client.send_message(ANA, "answer", tracker="d1")
    status = server.status(server.sent[0], "failed", errors=[ERROR])
    contacts = [contact(ANA, ANA_ID)]
    payload = notification(server.value(statuses=[status], contacts=contacts))
    outcome = MessageStatus.from_update(client, raw(payload))
    assert (outcome.id, outcome.tracker) == (server.sent[0].message_id, "d1")
    assert outcome.status == MessageStatusType.FAILED


def test_client_sends_buttons_and_gets_a_press(server: WhatsAppServer, client: WhatsApp) -> None:
    buttons = [Button("Yes", callback_data="once:1"), Button("No", callback_data="no:1")]
    client.send_message(ANA, "May I?", buttons=buttons)
    (sent,) = server.sent
    assert (sent.text, sent.buttons) == ("May I?", (("Yes", "once:1"), ("No", "no:1")))
    press = server.pressed(sent, "once:1")
    payload = notification(server.value(messages=[press], contacts=[contact(ANA, ANA_ID)]))
    read = CallbackButton.from_update(client, raw(payload))
    assert (read.id, read.data) == (press["id"], "once:1")
    assert read.reply_to_message is not None
    assert read.reply_to_message.id == sent.message_id
    assert read.from_user.wa_id == ANA
    too_many = [Button(str(number), callback_data=str(number)) for number in range(4)]
    with pytest.raises(pywa_errors.WhatsAppError):
        client.send_message(ANA, "May I?", buttons=too_many)
    server.groups.add(ANA)  # groups take texts, files and templates alone
    with pytest.raises(pywa_errors.WhatsAppError):
        client.send_message(ANA, "May I?", buttons=buttons)
    assert server.violations == []
