"""Replies of chat commands: the help table, search results, parts of titles."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import msgspec
import pytest

from tertulia import Budget, ResetPolicy, Source
from tertulia import open as open_store
from tertulia.core.message import Message
from tertulia.core.policy import PolicyForecast
from tertulia.gateway import command_replies, commands
from tertulia.platforms.terminal.markdown_rows import render
from tertulia.platforms.terminal.wrap import row_text
from tests.gateway.running_gateway import FAST, Echo, running_gateway


def test_every_command_is_in_one_group() -> None:
    names = [name for group in command_replies.GROUPS.values() for name in group]
    assert len(names) == len(set(names))
    assert {command.name for command in commands.TABLE} == set(names)


def test_help_is_grouped_and_complete() -> None:
    rows = [(command.name, command.usage, command.description) for command in commands.TABLE]
    text = command_replies.help_text(rows, is_terminal=True)
    for command in commands.TABLE:
        assert f"| `/{command.name}" in text
        assert f"` | {command.description} |" in text
    assert text.index("| Conversations |") < text.index("**Messages**") < text.index("**State**")
    assert "/quit" in text
    # One table: its columns are aligned over all groups, and fit on a usual screen.
    rendered = [row_text(row) for row in render(text, 90)]
    table = rendered[: rendered.index("")]
    assert len({row.index("│") for row in table if "│" in row}) == 1
    assert len(table) == len(commands.TABLE) + len(command_replies.GROUPS) + 1 + 3 + 12
    elsewhere = command_replies.help_text(rows, is_terminal=False)
    assert "/quit" not in elsewhere
    assert "|---|" not in elsewhere
    assert "**Messages**\n/retry: answer the last message again\n" in elsewhere


def test_recalled_exchange_is_short_and_has_no_formatting_of_others() -> None:
    def message(seq: int, role: str, content: str) -> Message:
        return Message(1, seq, 1, role, None, 0, None, {"role": role, "content": content})

    messages = [
        message(1, "user", "old"),
        message(2, "assistant", "old answer"),
        message(3, "user", "**water**\nthe beans?"),
        message(4, "assistant", "I look."),
        message(5, "tool", "dry"),
        message(6, "assistant", "word " * 100),
    ]
    question, answer, *_ = command_replies.recall_text(messages).strip().splitlines()
    assert question == r"> You: \*\*water\*\* the beans?"
    assert answer.startswith("> Agent: word word")
    assert len(answer) < 220
    assert command_replies.recall_text([]) == ""
    unanswered = command_replies.recall_text(messages[2:3]).strip().splitlines()
    assert len([line for line in unanswered if line.startswith(">")]) == 1


def test_help_shows_all_of_one_command(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            for name in ("link", "/link"):
                reply = await node.hears(f"/help {name}")
                assert reply == (
                    "/link [CODE|confirm|off]: share one conversation between two chats."
                )
            assert await node.hears("/help nothing") == await node.hears("/help")

    asyncio.run(play())


def test_search_says_who_when_and_where_and_marks_the_word(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            await node.hears("water the *tomatoes*")
            await node.hears("/title Garden")
            lines = (await node.hears("/search tomatoes")).splitlines()
            assert len(lines) == 2
            assert all('in "Garden":' in line for line in lines)
            assert all("**tomatoes**" in line for line in lines)
            assert {"you" if ", you," in line else "agent" for line in lines} == {"you", "agent"}
            # What people wrote is no formatting.
            assert r"\*" in lines[0]

    asyncio.run(play())


def test_resume_takes_a_unique_part_of_a_title(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            for title in ("花园 🌻", "Winter garden", "Summer garden"):
                await node.hears(f"about {title}")
                await node.hears(f"/title {title}")
                await node.hears("/new")
            await node.hears("about bees")
            await node.hears("/title Bees")
            assert await node.hears("/resume bee") == (
                'You are in "Bees" already. /sessions lists others.'
            )
            await node.hears("/new")
            reply = await node.hears("/resume garden")
            assert "2 conversations" in reply
            assert '"Winter garden"' in reply
            assert '"Summer garden"' in reply
            assert await node.hears("/resume 花园") == 'Continuing with "花园 🌻".'
            assert await node.hears("/resume WINTER") == 'Continuing with "Winter garden".'
            assert "There is no conversation" in await node.hears("/resume spring")

    asyncio.run(play())


def test_usage_says_how_much_of_a_budget_is_left(where: str) -> None:
    budgets = (
        Budget(per="person", period="day", tokens=100),
        Budget(per="everyone", period="month", usd=0.0005),
    )
    settings = msgspec.structs.replace(FAST, budgets=budgets)

    async def play() -> None:
        async with running_gateway(where, Echo(), settings=settings) as node:
            await node.hears("one")
            reply = await node.hears("/usage")
            assert "Budget for this person, this day: 88 of 100 tokens left." in reply
            assert "Budget for everyone together, this month: $0.0005 of $0.0005 left." in reply

    asyncio.run(play())


def test_budget_under_a_cent_is_named_exactly() -> None:
    limit = Budget(per="session", usd=0.0005).reached_limit(0, 0.00052)
    assert limit == "$0.00052 of $0.0005"
    assert Budget(per="session", usd=12.5).reached_limit(0, 13) == "$13.00 of $12.50"


def test_budgets_of_a_session_are_told_to_a_library_user(where: str) -> None:
    settings = msgspec.structs.replace(FAST, budgets=(Budget(per="session", tokens=10),))
    with open_store(where, settings=settings) as store:
        session = store.sessions.open(Source("telegram", "1", user_id="1"))
        assert store.usage.budgets_left(session.id) == ["this session: 10 of 10 tokens left"]


def test_last_shows_the_last_question_and_its_whole_answer(where: str) -> None:
    table = "| plant | water |\n|---|---|\n| beans | no |"

    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            assert await node.hears("/last") == (
                "There is no conversation now. Write a message to begin one."
            )
            await node.hears("tomatoes")
            transcript = node.store.transcript((await node.session()).id)
            await transcript.append({"role": "user", "content": "and the beans?"})
            assert (await node.hears("/last")).endswith(
                ": and the beans?\n\n(There is no answer yet.)"
            )
            await transcript.append({"role": "assistant", "content": "Let me see."})
            await transcript.append({"role": "assistant", "content": table})
            reply = await node.hears("/last")
            assert reply.startswith("**You**, ")
            # The answer is what it was: a table stays one.
            assert reply.endswith(f": and the beans?\n\nLet me see.\n\n{table}")
            assert "tomatoes" not in reply

    asyncio.run(play())


@pytest.mark.parametrize(
    ("policy", "rule", "end"),
    [
        (
            ResetPolicy("idle", idle_minutes=90),
            "when nobody has written for 90 minutes",
            "17 13:30",
        ),
        (
            ResetPolicy("both", idle_minutes=2880, at_hour=4),
            "when nobody has written for 2 days and every day at 4:00",
            "18 04:00",
        ),
    ],
    ids=["idle", "both"],
)
def test_policy_is_said_in_a_sentence(policy: ResetPolicy, rule: str, end: str) -> None:
    now = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
    ends_at, _ = policy.next_end(SimpleNamespace(updated_at=now, ended_at=None)) or (None, None)
    forecast = PolicyForecast(
        policy=policy, setting="default", zone="UTC", ends_at=ends_at, reason=policy.mode
    )
    assert command_replies.policy_text(forecast, now).startswith(
        f"This conversation ends {rule}: at 2026-11-{end} (UTC), if nobody writes before."
    )
    later = command_replies.policy_text(forecast, now + timedelta(days=3))
    assert later.startswith("It has ended:")


def test_conversation_without_a_policy_does_not_end() -> None:
    forecast = PolicyForecast(
        policy=ResetPolicy("none"), setting="default", zone="UTC", ends_at=None, reason=None
    )
    text = command_replies.policy_text(forecast, datetime.now(UTC))
    assert text == "This conversation does not end by itself."
