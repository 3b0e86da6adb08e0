"""Messages with buttons as blocks of Slack, and presses of them."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.core.buttons import Button
from tertulia.platforms.slack.adapter import SlackAdapter
from tertulia.platforms.slack.block_kit import question_blocks, read_press, with_installation
from tests.platforms.slack.slack_scene import call, outgoing
from tests.servers.slack import SlackServer, check_blocks, refusal

BUTTONS = (Button("Yes", "once:1"), Button("More", "always:1"), Button("No", "no:1"))


@pytest.mark.parametrize("text", ["hola <!channel> & more", "<&>\n" * 900, "&" * 4000, "x" * 3999])
def test_blocks_say_what_the_text_says(text: str) -> None:
    blocks = question_blocks(text, BUTTONS)
    shown = "".join(block["text"]["text"] for block in blocks[:-1]).replace("\u2060", "")
    plain = shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert plain == text
    assert "<" not in shown
    check_blocks(blocks, "".join(block["text"]["text"] for block in blocks[:-1]).replace(
        "&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))  # fmt: skip
    assert [item.get("style") for item in blocks[-1]["elements"]] == ["primary", None, "danger"]


def test_refused_blocks_are_sent_as_text() -> None:
    with SlackServer() as server:
        server.spoil("chat.postMessage", refusal("invalid_blocks"))
        call(server, lambda adapter: adapter.send(outgoing("May I?", buttons=BUTTONS)))
        assert [(sent.text, sent.has_buttons) for sent in server.sent] == [("May I?", False)]
        assert server.violations == []


def test_text_of_a_closed_question_pings_nobody() -> None:
    async def act(adapter: SlackAdapter) -> None:
        ts = await adapter.send(outgoing("May I?", buttons=BUTTONS))
        await adapter.close_buttons(outgoing("<!channel> & done", replaces=ts))

    with SlackServer() as server:
        call(server, act)
        assert [text for _, _, text in server.edits] == ["<!channel> & done"]
        assert server.pings == []


def test_press_in_a_thread_of_a_workspace() -> None:
    payload = _payload(message={"ts": "1.2", "thread_ts": "1.0"})
    press = read_press(payload, "work")
    assert press is not None
    assert (press.source.chat_id, press.source.thread_id) == ("C1", "1.0")
    assert (press.source.user_id, press.source.account) == ("UANA", "work")
    assert press.press_id == "1.2-UANA-9.9"
    installed = with_installation(payload)
    assert (installed["team_id"], installed["event"]) == ("T1", {"channel": "C1"})


def test_other_actions_are_no_press() -> None:
    assert read_press(_payload(actions=[{"type": "static_select"}]), "") is None
    assert read_press(_payload(message=None), "") is None
    malformed: list[dict[str, Any]] = [
        {"actions": []},
        {"user": None},
        {"actions": [{"type": "button"}]},
    ]
    for broken in malformed:
        with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
            read_press(_payload(**broken), "")


def _payload(**fields: Any) -> dict[str, Any]:
    action = {"type": "button", "value": "no:1", "action_ts": "9.9"}
    return {
        "type": "block_actions", "team": {"id": "T1"}, "enterprise": None, "user": {"id": "UANA"},
        "channel": {"id": "C1"}, "message": {"ts": "1.2"}, "actions": [action], **fields,
    }  # fmt: skip
