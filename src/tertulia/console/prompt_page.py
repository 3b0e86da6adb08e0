"""The prompt: what the model gets of a session, and what became of each message on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tertulia.console.asset_files import assets
from tertulia.console.page_definition import CONSOLE, ConsolePage, PageCall
from tertulia.core.text.display_safe import display_json, display_line

_ROWS: Final = 120
FORMATS: Final = ("openai", "anthropic", "responses")
_MAX_WORDS: Final = 160


class FateLine(msgspec.Struct, frozen=True, kw_only=True):
    """A stored message and its fate, in one line."""

    id: int
    role: str
    words: str
    fate: str
    tone: str


async def load_prompt(call: PageCall) -> dict[str, Any]:
    """Load the rows of a transcript with their fates, beside the history that the model gets.

    What the address does not say is as in the settings of the gateway.
    """
    options = call.choose("max_tokens", "max_messages", "format", "upto")
    settings = call.api.gateway.settings
    defaults = {
        "newest": _ROWS,
        "max_messages": settings.history_messages,
        "max_tokens": settings.history_tokens,
        "timestamps": settings.timestamps,
    }
    session = await call.operate("get_session", path=call.path)
    account = await call.operate("account_history", path=call.path, query={**defaults, **options})
    return {
        "prompt_css": f"{CONSOLE}/assets/{assets()['prompt_css'].name}",
        "session": session,
        "account": account,
        "lines": [_line(row) for row in account.rows],
        "messages": history_texts(account.items),
        "options": {
            name: options.get(name, "") for name in ("max_tokens", "max_messages", "format", "upto")
        },
        "defaults": defaults,
        "formats": FORMATS,
        "tab": "prompt",
    }


def history_texts(items: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return role and JSON of each message, exactly as the agent gets it."""
    return [(str(item.get("role", "?")), history_json(item)) for item in items]


def history_json(item: dict[str, Any]) -> str:
    """Return a message of a history as JSON; decoded, it is the message again.

    Characters that could hide something or get lost are escaped.
    """
    return display_json(item, indent=1)


def _line(row: Any) -> FateLine:
    fate, entry = row.fate, row.entry
    labels = {
        "shown": ("shown", "good"), "summed_up": ("summed up", ""), "hidden": ("hidden", ""),
        "cut": ("cut: it did not fit", "bad"), "mended": ("mended", "wait"),
        "shortened": ("shortened", "wait"),
    }  # fmt: skip
    label, tone = labels.get(fate.fate, (fate.fate, ""))
    if fate.characters:
        label += f" by {fate.characters:,} characters"
    if fate.detail:
        label += f": {fate.detail}"
    return FateLine(id=entry.seq, role=entry.role, words=_words(entry.body), fate=label, tone=tone)


def _words(body: dict[str, Any]) -> str:
    content = body.get("content")
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content)
    calls = body.get("tool_calls")
    if not text and isinstance(calls, list):
        names = [
            str(call["function"].get("name"))
            for call in calls
            if isinstance(call, dict) and isinstance(call.get("function"), dict)
        ]
        text = "calls " + ", ".join(names)
    return display_line(text[: _MAX_WORDS * 4], _MAX_WORDS)


PAGES = (
    ConsolePage(
        path="/sessions/{id}/prompt", name="prompt", title="What the model sees",
        section="sessions", load=load_prompt,
    ),
)  # fmt: skip
