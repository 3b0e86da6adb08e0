"""Sends and files of the Slack adapter, and what each answer of Slack means."""

from __future__ import annotations

import pytest

from tertulia.core.media import Media
from tertulia.errors import (
    AccountProblem,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    TooLarge,
)
from tertulia.platforms.slack.adapter import SlackAdapter
from tests.platforms.slack.slack_scene import (
    call,
    formatted,
    outgoing,
    read_all,
)
from tests.servers.scripted_http import Fault
from tests.servers.slack import (
    SlackServer,
    rate_limit,
    refusal,
)

# -- sending


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (refusal("channel_not_found"), Refused),
        (refusal("not_in_channel"), Refused),
        (refusal("is_archived"), Refused),
        (refusal("restricted_action_thread_only_channel"), Refused),
        (refusal("no_text"), Refused),
        (refusal("an_error_of_next_year"), Refused),
        (refusal("msg_too_long"), TooLarge),
        (refusal("markdown_text_too_long"), TooLarge),
        (refusal("invalid_auth"), AccountProblem),
        (refusal("token_revoked"), AccountProblem),
        (refusal("account_inactive"), AccountProblem),
        (refusal("missing_scope"), AccountProblem),
        (refusal("ratelimited"), RateLimited),
        (rate_limit(30), RateLimited),
        (rate_limit(None), RateLimited),
        (Fault(429, b"<html>", "text/html"), RateLimited),
        (refusal("internal_error"), OutcomeUnknown),
        (refusal("fatal_error"), OutcomeUnknown),
        (Fault(500, b'{"ok":false,"error":"x"}'), OutcomeUnknown),
        (Fault(503, b""), OutcomeUnknown),
        (Fault(503, b'{"ok":true,"ts":"1.2"}'), OutcomeUnknown),
        (Fault(404, b'{"ok":true,"ts":"1.2"}'), PlatformUnavailable),
        (Fault(200, b"<html>", "text/html"), OutcomeUnknown),
        (Fault(200, b""), OutcomeUnknown),
        (Fault(takes=True, end="half"), OutcomeUnknown),
        (Fault(takes=True, end="cut"), OutcomeUnknown),
        (Fault(413, b"too large"), TooLarge),
        (Fault(302, b""), PlatformUnavailable),
        (refusal("team_added_to_org"), PlatformUnavailable),
    ],
)
def test_outcome_of_a_send(server: SlackServer, fault: Fault, kind: type[PlatformError]) -> None:
    server.spoil("chat.postMessage", fault)
    with pytest.raises(PlatformError) as caught:
        call(server, lambda adapter: adapter.send(outgoing()))
    assert type(caught.value) is kind
    assert caught.value.hint
    assert server.count("chat.postMessage") == 1


@pytest.mark.parametrize("seconds", [2, 1800])
def test_pause_that_slack_asks_for_is_reported(server: SlackServer, seconds: int) -> None:
    server.spoil("chat.postMessage", rate_limit(seconds))
    with pytest.raises(RateLimited) as caught:
        call(server, lambda adapter: adapter.send(outgoing()))
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("soon", 3.0), ("nan", 3.0), ("inf", 3600.0), ("1e9", 3600.0), ("0", 0.1), ("-5", 0.1)],
)
def test_pause_is_neither_endless_nor_none(
    server: SlackServer, header: str, seconds: float
) -> None:
    server.spoil("chat.postMessage", Fault(429, b"", headers={"Retry-After": header}))
    with pytest.raises(RateLimited) as caught:
        call(server, lambda adapter: adapter.send(outgoing()))
    assert caught.value.retry_after == seconds


def test_reason_that_is_no_code_is_not_repeated(server: SlackServer) -> None:
    """It is shown and logged: it may hold an address with a token."""
    server.spoil("chat.postMessage", refusal("see https://a.example/?token=secret"))
    with pytest.raises(PlatformError) as caught:
        call(server, lambda adapter: adapter.send(outgoing()))
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_answer_in_a_thread_stays_there(server: SlackServer) -> None:
    parent = server.message("C1", "UANA", "parent")["ts"]

    async def act(adapter: SlackAdapter) -> None:
        await adapter.send(outgoing("in it", chat_id="C1", thread_id=parent))
        await adapter.send(outgoing("beside it", chat_id="C1"))
        with pytest.raises(Refused):
            await adapter.send(outgoing("lost", chat_id="C1", thread_id="1.2"))

    call(server, act)
    assert [(sent.text, sent.thread) for sent in server.sent] == [
        ("in it", parent),
        ("beside it", None),
    ]


@pytest.mark.parametrize("person", ["UBEN", "WBEN"])
def test_message_to_a_person_goes_to_the_chat_with_that_person(
    server: SlackServer, person: str
) -> None:
    """ "Sent" to a person's id where a channel's was needed."""
    call(server, lambda adapter: adapter.send(outgoing(chat_id=person)))
    assert [sent.channel for sent in server.sent] == ["DBEN"]


@pytest.mark.parametrize("channel", ["null", "{}", '{"id":5}'])
def test_message_to_a_person_without_a_chat_is_refused(server: SlackServer, channel: str) -> None:
    answer = f'{{"ok":true,"channel":{channel}}}'.encode()
    server.spoil("conversations.open", Fault(200, answer))
    with pytest.raises(Refused, match="no chat with this person"):
        call(server, lambda adapter: adapter.send(outgoing(chat_id="UBEN")))
    assert server.sent == []


def test_nothing_that_the_agent_writes_pings_anybody(server: SlackServer) -> None:
    text = "<!channel> <!here> <@UANA> <#C1> @here @channel `<!everyone>` <!subteam^S1>"

    async def act(adapter: SlackAdapter) -> None:
        await adapter.send(formatted(f"**bold** {text}\n\n```\n{text}\n```"))
        await adapter.send(outgoing(text))
        file = Media(name="a.txt", type="text/plain")
        await adapter.send(outgoing(text, media=file, content=b"x"))

    call(server, act)
    assert [sent.is_markdown for sent in server.sent] == [True, False, False]
    assert server.sent[1].text == text
    assert "\u2060" in server.sent[0].text


def test_formatting_that_is_refused_is_left_out(server: SlackServer) -> None:
    """Unparsable formatting was retried until given up."""
    server.spoil("chat.postMessage", refusal("invalid_blocks"))

    async def act(adapter: SlackAdapter) -> None:
        await adapter.send(formatted("**bold** & [link](https://example.org)"))
        await adapter.send(formatted("**bold**"))

    call(server, act)
    assert [(sent.text, sent.is_markdown) for sent in server.sent] == [
        ("bold & link (https://example.org)", False),
        ("**bold**", True),
    ]


def test_server_without_markdown_gets_plain_texts(server: SlackServer) -> None:
    """Every send was refused, because the server was older than the message form."""
    server.has_markdown = False

    async def act(adapter: SlackAdapter) -> None:
        for _ in range(3):
            await adapter.send(formatted("**bold**"))

    call(server, act)
    assert server.texts == ["bold"] * 3
    assert server.count("chat.postMessage") == 4


def test_long_plain_text_is_sent_whole(server: SlackServer) -> None:
    call(server, lambda adapter: adapter.send(outgoing("<&>" * 1300)))
    (message,) = server.sent
    assert message.is_markdown
    assert len(message.text) < 12_000


def test_lone_surrogate_is_sent(server: SlackServer) -> None:
    call(server, lambda adapter: adapter.send(outgoing("\ud83d lone")))
    assert server.texts == ["? lone"]


def test_file_is_uploaded_and_shared_once(server: SlackServer) -> None:
    parent = server.message("C1", "UANA", "parent")["ts"]
    file = Media(name="plan.pdf", type="application/pdf")
    message = outgoing("see <this>", media=file, content=b"%PDF-1", chat_id="C1", thread_id=parent)
    ts = call(server, lambda adapter: adapter.send(message))
    (sent,) = server.sent
    assert sent.file == ("plan.pdf", b"%PDF-1")
    assert (sent.channel, sent.thread, sent.text, sent.ts) == ("C1", parent, "see <this>", ts)


@pytest.mark.parametrize(
    ("operation", "fault", "kind", "is_sent"),
    [
        ("files.getUploadURLExternal", Fault(takes=True, end="cut"), PlatformUnavailable, False),
        ("files.getUploadURLExternal", refusal("missing_scope"), Refused, False),
        ("files.getUploadURLExternal", Fault(200, b'{"ok":true}'), PlatformUnavailable, False),
        ("upload", Fault(takes=True, end="cut"), PlatformUnavailable, False),
        ("upload", Fault(500, b""), PlatformUnavailable, False),
        ("upload", Fault(413, b""), TooLarge, False),
        ("files.completeUploadExternal", Fault(takes=True, end="cut"), OutcomeUnknown, True),
        ("files.completeUploadExternal", refusal("not_in_channel"), Refused, False),
        ("files.completeUploadExternal", refusal("invalid_arguments"), Refused, False),
    ],
)
def test_outcome_of_a_file(
    server: SlackServer, operation: str, fault: Fault, kind: type[PlatformError], is_sent: bool
) -> None:
    server.spoil(operation, fault)
    file = outgoing("", media=Media(name="a.bin"), content=b"x")
    with pytest.raises(PlatformError) as caught:
        call(server, lambda adapter: adapter.send(file))
    assert type(caught.value) is kind
    assert bool(server.sent) is is_sent


# -- files that people sent


def test_file_is_fetched_by_its_address_or_its_id(server: SlackServer) -> None:
    file = server.add_file(b"\x89PNG...")
    by_address = Media(source=file["url_private_download"], type="image/png")
    by_id = Media(source=file["id"])
    assert call(server, lambda adapter: read_all(adapter, by_address)) == b"\x89PNG..."
    assert call(server, lambda adapter: read_all(adapter, by_id)) == b"\x89PNG..."


def test_login_page_is_no_file(server: SlackServer) -> None:
    file = server.add_file(b"\x89PNG...")
    server.expired.add(file["id"])
    media = Media(source=file["url_private_download"], type="image/png")
    with pytest.raises(Refused):
        call(server, lambda adapter: read_all(adapter, media))


@pytest.mark.parametrize(
    ("media_type", "headers", "is_file"),
    [
        ("text/html", {"Content-Disposition": "attachment"}, True),
        ("text/html", {}, False),
        ("image/png", {"Content-Disposition": "attachment"}, False),
    ],
)
def test_page_that_a_person_sent_is_a_file(
    server: SlackServer, media_type: str, headers: dict[str, str], is_file: bool
) -> None:
    server.spoil("files-pri", Fault(200, b"<p>", "text/html", headers=headers))
    media = Media(source=server.add_file(b"")["url_private"], type=media_type)
    if is_file:
        assert call(server, lambda adapter: read_all(adapter, media)) == b"<p>"
    else:
        with pytest.raises(Refused):
            call(server, lambda adapter: read_all(adapter, media))


@pytest.mark.parametrize("file", ["null", "{}", '{"url_private":5}'])
def test_file_without_an_address_is_refused(server: SlackServer, file: str) -> None:
    server.spoil("files.info", Fault(200, f'{{"ok":true,"file":{file}}}'.encode()))
    with pytest.raises(Refused, match="no address"):
        call(server, lambda adapter: read_all(adapter, Media(source="F1")))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(404, b""), Refused),
        (Fault(302, b"", headers={"Location": "https://evil.example"}), Refused),
        (Fault(500, b""), PlatformUnavailable),
        (Fault(429, b""), PlatformUnavailable),
        (Fault(end="cut"), PlatformUnavailable),
        (Fault(end="half"), PlatformUnavailable),
    ],
)
def test_file_that_cannot_be_fetched(
    server: SlackServer, fault: Fault, kind: type[PlatformError]
) -> None:
    file = server.add_file(b"x" * 1000)
    server.spoil("files-pri", fault)
    with pytest.raises(kind):
        call(server, lambda adapter: read_all(adapter, Media(source=file["url_private"])))


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/files-pri/F1",
        "https://slack.com.evil.example/F1",
        "http://files.slack.com/F1",
        "https://evilslack.com/F1",
        "http://[",
    ],
)
def test_token_goes_to_slack_only(server: SlackServer, url: str) -> None:
    with pytest.raises(Refused, match="not kept by Slack"):
        call(server, lambda adapter: read_all(adapter, Media(source=url)))


def test_file_without_end_may_be_closed(server: SlackServer) -> None:
    file = server.add_file(None)

    async def act(adapter: SlackAdapter) -> None:
        stream = adapter.fetch(Media(source=file["url_private"]))
        assert await anext(stream)
        await stream.aclose()

    call(server, act)
