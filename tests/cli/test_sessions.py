"""`tertulia sessions`: each command for people and for programs, and where it says no."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import tertulia
from tertulia import Session
from tests.cli.conftest import WEATHER, Demo, Typed

Width = Callable[[int], None]

# What a stranger's text must not bring to a terminal.
ALIVE = ("\x1b", "\x9b", "\u202e")


class TestList:
    def test_people_see_what_matters(self, typed: Typed, demo: Demo) -> None:
        lines = typed("sessions", "list").stdout.splitlines()
        assert lines[0].split() == [
            "id", "name", "platform", "state", "active", "messages", "tokens", "cost",
        ]  # fmt: skip
        assert [line.split()[0] for line in lines[1:]] == [demo.strange, demo.new, demo.old]
        assert "Viaje a Lisboa" in lines[3]
        assert "ended: idle" in lines[3]
        assert lines[3].split()[-3:] == ["4", "2.9k", "$0.0123"]
        assert lines[2].split()[-3:] == ["30", "10.0k", "unknown"]

    def test_programs_get_the_fields_of_the_library(self, typed: Typed, demo: Demo) -> None:
        found = typed.json("sessions", "list")
        assert [session["id"] for session in found] == [demo.strange, demo.new, demo.old]
        assert set(found[0]) == set(Session.__struct_fields__)
        old = found[2]
        assert old["origin"]["user_name"] == "Ana López"
        assert old["title"] == "Viaje a Lisboa"
        assert old["end_reason"] == "idle"
        assert old["usage"]["total"] == 812 + 64 + 2048
        assert old["cost_usd"] == 0.0123
        assert old["created_at"].endswith("Z")

    @pytest.mark.parametrize(
        ("options", "names"),
        [
            (["--platform", "telegram"], ["new", "old"]),
            (["--key", "agent:main:telegram:dm:42"], ["new", "old"]),
            (["--person", "telegram:42"], ["new", "old"]),
            (["--person", "42"], ["new", "old"]),
            (["--state", "current"], ["strange", "new"]),
            (["--state", "ended"], ["old"]),
            (["--text", "soleado"], ["old"]),
            (["--text", "lisboa"], ["old"]),
            (["--active-minutes", "1440"], ["strange", "new"]),
            (["--active-minutes", "9" * 30], ["strange", "new", "old"]),
            (["--limit", "1"], ["strange"]),
            (["--platform", "signal"], []),
        ],
    )
    def test_filters(self, typed: Typed, demo: Demo, options: list[str], names: list[str]) -> None:
        found = typed.json("sessions", "list", *options)
        assert [session["id"] for session in found] == [getattr(demo, name) for name in names]

    def test_pages(self, typed: Typed, demo: Demo) -> None:
        first = typed("sessions", "list", "--limit", "2").stdout
        cursor = first.split("--cursor ")[1].strip()
        rest = typed.json("sessions", "list", "--limit", "2", "--cursor", cursor)
        assert [session["id"] for session in rest] == [demo.old]

    def test_a_title_given_a_moment_ago_is_found(self, typed: Typed, demo: Demo) -> None:
        typed("sessions", "rename", demo.new, "Zarzuela")
        assert len(typed.json("sessions", "list", "--text", "zarzuela")) == 1

    @pytest.mark.parametrize("width", [80, 100, 120])
    def test_an_id_is_never_cut_and_a_line_never_broken(
        self, typed: Typed, demo: Demo, at_terminal: Width, width: int
    ) -> None:
        typed("sessions", "rename", demo.old, "a title that is " + "very " * 15 + "long")
        at_terminal(width)
        lines = typed("sessions", "list").stdout.splitlines()
        assert [line.split()[0] for line in lines[1:]] == [demo.strange, demo.new, demo.old]
        assert max(map(len, lines)) <= width
        assert "…" in lines[3]

    def test_a_pipe_cuts_nothing(self, typed: Typed, demo: Demo) -> None:
        title = "a title that is " + "very " * 15 + "long"
        typed("sessions", "rename", demo.old, title)
        assert title in typed("sessions", "list").stdout

    def test_nothing_to_list(self, typed: Typed) -> None:
        assert typed("sessions", "list", "--platform", "x").stdout == "No session is like that.\n"
        typed = Typed("new.db")
        typed("store", "migrate")
        assert typed("sessions", "list").stdout == "There are no sessions yet.\n"
        assert typed.json("sessions", "list") == []

    def test_what_is_not_allowed(self, typed: Typed) -> None:
        assert typed.error("sessions", "list", "--cursor", "x", expect=2)["code"] == "config"
        assert typed.error("sessions", "list", "--limit", "0", expect=2)["code"] == "usage"
        assert typed.error("sessions", "list", "--state", "gone", expect=2)["code"] == "usage"


class TestShow:
    def test_people_read_facts_and_messages(self, typed: Typed, demo: Demo) -> None:
        shown = typed("sessions", "show", demo.old).stdout
        for words in (
            "Viaje a Lisboa",
            "telegram, DM with Ana López",
            "agent:main:telegram:dm:42",
            "ended: idle",
            "2,924 (input 812, output 64, cache read 2,048)",
            "$0.0123",
            "#1 user",
            "¿Qué tiempo hará mañana?",
            "(thought) Ask the tool.",
            '→ get_weather({"city":"Lisboa"})',
            "#3 tool get_weather",
            "600 more characters; see --all",
            "    Soleado, 24 °C ☀️\n\n    - sin viento",
        ):
            assert words in shown

    def test_the_newest_and_all(self, typed: Typed, demo: Demo) -> None:
        newest = typed("sessions", "show", demo.new).stdout
        assert "(10 earlier; --all shows them)" in newest
        assert "#11 " in newest
        assert "#10 " not in newest
        assert "#1 " in typed("sessions", "show", demo.new, "--all").stdout
        assert "#29 " not in typed("sessions", "show", demo.new, "--newest", "1").stdout
        assert "#30 " not in typed("sessions", "show", demo.new, "--newest", "0").stdout
        assert "more characters" not in typed("sessions", "show", demo.old, "--all").stdout

    def test_programs_get_the_session_with_its_messages(self, typed: Typed, demo: Demo) -> None:
        shown = typed.json("sessions", "show", demo.old)
        assert shown["id"] == demo.old
        assert shown["messages"] == WEATHER
        assert [place["seq"] for place in shown["places"]] == [1, 2, 3, 4]
        assert len(typed.json("sessions", "show", demo.new)["messages"]) == 30
        assert len(typed.json("sessions", "show", demo.new, "--newest", "3")["messages"]) == 3

    def test_long_lines_are_broken_with_their_indent(
        self, typed: Typed, demo: Demo, at_terminal: Width
    ) -> None:
        at_terminal(60)
        lines = typed("sessions", "show", demo.old).stdout.splitlines()
        body = [line for line in lines if "sunny" in line]
        assert len(body) > 5
        assert all(line.startswith("    ") and len(line) <= 60 for line in body)

    def test_whatever_was_stored_is_shown(self, typed: Typed, demo: Demo) -> None:
        with tertulia.open(demo.path) as store:
            store.transcript(demo.new).extend(
                [
                    {"role": "user", "content": [{"type": "text", "text": "look"}]},
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "image_url": {"url": "data:" + "A" * 500}},
                            {"type": ["odd"]},
                            7,
                        ],
                    },
                    {"role": "assistant", "content": {"not": "a list"}, "tool_calls": ["odd", {}]},
                    {"role": "strange", "content": 3.5, "name": 7},
                    {"role": "assistant", "tool_calls": [{"function": {"arguments": {"a": 1}}}]},
                    {"role": "user", "content": "half a pair \ud83d"},
                ]
            )
        shown = typed("sessions", "show", demo.new, "--newest", "6").stdout
        assert "[image_url: data:AAAA" in shown
        assert "A" * 100 not in shown
        assert '→ None({"a": 1})' in shown
        newest = typed.json("sessions", "show", demo.new)["messages"][-1]
        assert newest["content"] == "half a pair \ud83d"
        assert typed("sessions", "export", demo.new, "--format", "markdown").stdout


class TestSearch:
    def test_people_see_where_and_what(self, typed: Typed, demo: Demo) -> None:
        head, snippet = typed("sessions", "search", "tiempo", "manana").stdout.splitlines()
        assert head.startswith(f"{demo.old} #1  user, ")
        assert head.endswith("Viaje a Lisboa")
        assert snippet == "    ¿Qué tiempo hará mañana?"

    def test_programs_get_the_hits(self, typed: Typed, demo: Demo) -> None:
        hits = typed.json("sessions", "search", "mess*", "--limit", "5")
        assert len(hits) == 5
        assert set(hits[0]) == {"session_id", "seq", "role", "snippet", "at", "score"}
        assert {hit["session_id"] for hit in hits} == {demo.new}

    def test_filters(self, typed: Typed) -> None:
        assert typed.json("sessions", "search", "deploy", "--platform", "telegram") == []
        assert typed.json("sessions", "search", "deploy", "--person", "telegram:42") == []
        assert len(typed.json("sessions", "search", "deploy", "--platform", "slack")) == 1

    def test_nothing_found(self, typed: Typed) -> None:
        told = typed("sessions", "search", "nowhere").stdout
        assert told == "No message has all these words.\n"
        assert typed.json("sessions", "search", "*", '"') == []
        assert typed.error("sessions", "search", expect=2)["code"] == "usage"


def test_explain(typed: Typed, demo: Demo) -> None:
    told = typed("sessions", "explain", demo.old).stdout
    assert f"Session {demo.old}" in told
    assert "idle" in told
    explained = typed.json("sessions", "explain", demo.old)
    assert explained == {"id": demo.old, "lines": told.splitlines()}


class TestRename:
    def test_a_title_and_none(self, typed: Typed, demo: Demo) -> None:
        told = typed("sessions", "rename", demo.new, "Two", "words").stdout
        assert told == f"{demo.new} is called 'Two words' now.\n"
        assert typed.json("sessions", "rename", demo.new, "Other")["title"] == "Other"
        assert "no title" in typed("sessions", "rename", demo.new, "--clear").stdout
        assert typed.json("sessions", "show", demo.new)["title"] is None

    def test_a_title_is_taken_once(self, typed: Typed, demo: Demo) -> None:
        error = typed.error("sessions", "rename", demo.new, "Viaje a Lisboa", expect=4)
        assert error["code"] == "duplicate"
        assert error["hint"]

    @pytest.mark.parametrize("words", [[], [" "], ["Title", "--clear"]])
    def test_either_a_title_or_none(self, typed: Typed, demo: Demo, words: list[str]) -> None:
        assert typed.error("sessions", "rename", demo.new, *words, expect=2)["code"] == "usage"

    def test_a_title_that_is_too_long(self, typed: Typed, demo: Demo) -> None:
        assert typed.error("sessions", "rename", demo.new, "x" * 101, expect=2)["code"] == "config"


class TestForkAndResume:
    def test_fork(self, typed: Typed, demo: Demo) -> None:
        fork = typed.json("sessions", "fork", demo.new, "--at", "4")
        assert (fork["parent_id"], fork["parent_kind"]) == (demo.new, "fork")
        assert len(typed.json("sessions", "show", fork["id"])["messages"]) == 4
        assert "is a fork of" in typed("sessions", "fork", demo.new).stdout
        assert f"forked from  {demo.new}" in typed("sessions", "show", fork["id"]).stdout

    def test_fork_at_a_message_that_is_not_there(self, typed: Typed, demo: Demo) -> None:
        error = typed.error("sessions", "fork", demo.new, "--at", "99", expect=3)
        assert error["hint"].endswith(f"tertulia sessions show {demo.new} --all")

    def test_resume(self, typed: Typed, demo: Demo) -> None:
        assert typed("sessions", "resume", demo.old).stdout == f"{demo.old} is current again.\n"
        assert typed.json("sessions", "resume", demo.old)["ended_at"] is None
        assert "was current already" in typed("sessions", "resume", demo.old).stdout
        assert typed.json("sessions", "show", demo.new)["end_reason"] == "switch"


class TestExport:
    def test_a_message_a_line(self, typed: Typed, demo: Demo) -> None:
        lines = typed("sessions", "export", demo.old).stdout.splitlines()
        assert [json.loads(line) for line in lines] == WEATHER

    def test_json_is_what_show_gives(self, typed: Typed, demo: Demo) -> None:
        exported = json.loads(typed("sessions", "export", demo.old, "--format", "json").stdout)
        assert exported == typed.json("sessions", "show", demo.old)

    def test_markdown(self, typed: Typed, demo: Demo) -> None:
        page = typed("sessions", "export", demo.old, "--format", "markdown").stdout
        assert page.startswith("# Viaje a Lisboa\n")
        assert "## 1. user, " in page
        assert "\n> ¿Qué tiempo hará mañana?\n" in page
        assert '> → get_weather({"city":"Lisboa"})' in page

    def test_nothing_said_passes_for_a_part_of_the_page(self, typed: Typed, demo: Demo) -> None:
        said = "hi\n\n## 9. assistant, 2026-01-01\n```\n# Title"
        with tertulia.open(demo.path) as store:
            store.transcript(demo.new).append({"role": "user", "content": said})
            store.transcript(demo.new).append({"role": "tool", "content": f"````\n{said}"})
        page = typed("sessions", "export", demo.new, "--format", "markdown").stdout
        headings = [line for line in page.splitlines() if line.startswith("#")]
        assert len(headings) == 1 + 32
        assert "> `````" in page.splitlines()

    def test_to_a_file_for_this_user_only(self, typed: Typed, demo: Demo, tmp_path: Path) -> None:
        target = tmp_path / "talk.jsonl"
        done = typed("sessions", "export", demo.old, "--output", str(target))
        assert done.stdout == ""
        assert "4 messages written to" in done.stderr
        assert len(target.read_text("utf-8").splitlines()) == 4
        assert stat.S_IMODE(target.stat().st_mode) == 0o600

    def test_no_file_is_replaced_unasked(self, typed: Typed, demo: Demo, tmp_path: Path) -> None:
        target = tmp_path / "talk.jsonl"
        target.write_text("mine")
        told = typed("sessions", "export", demo.old, "--output", str(target), expect=2).stderr
        assert "exists already" in told
        assert target.read_text() == "mine"
        typed("sessions", "export", demo.old, "--output", str(target), "--force")
        assert target.read_text("utf-8").startswith("{")

    def test_where_nothing_can_be_written(self, typed: Typed, demo: Demo) -> None:
        told = typed("sessions", "export", demo.old, "--output", "nowhere/x", expect=5).stderr
        assert told.startswith("error: nowhere/x could not be written: No such file")


class TestDelete:
    def test_asks_and_deletes(self, typed: Typed, demo: Demo) -> None:
        done = typed("sessions", "delete", demo.old, stdin="y\n")
        assert f"Delete {demo.old} (Viaje a Lisboa) with 4 messages for good?" in done.stderr
        assert done.stdout == f"{demo.old} is deleted, with 4 messages.\n"
        assert typed.error("sessions", "show", demo.old, expect=3)["code"] == "not_found"
        assert typed.json("usage", "--by", "session")["groups"][0]["session"] == demo.old

    @pytest.mark.parametrize("answer", ["n\n", "\n", "nonsense\n"])
    def test_anything_but_yes_is_no(self, typed: Typed, demo: Demo, answer: str) -> None:
        done = typed("sessions", "delete", demo.old, stdin=answer, expect=1)
        assert "Nothing was deleted." in done.stderr
        typed("sessions", "show", demo.old)

    def test_nobody_answers(self, typed: Typed, demo: Demo) -> None:
        done = typed("sessions", "delete", demo.old, stdin="", expect=2)
        assert "hint: Say it at once with: --yes" in done.stderr
        typed("sessions", "show", demo.old)

    def test_without_a_question(self, typed: Typed, demo: Demo) -> None:
        told = typed.json("sessions", "delete", demo.old, "--yes")
        assert told == {"deleted": demo.old, "messages": 4}


@pytest.mark.parametrize(
    "command",
    [
        ["show", "nobody"],
        ["explain", "nobody"],
        ["rename", "nobody", "Title"],
        ["export", "nobody"],
        ["delete", "nobody", "--yes"],
        ["fork", "nobody"],
        ["resume", "nobody"],
    ],
    ids=lambda command: command[0],
)
def test_a_session_that_is_not_there(typed: Typed, command: list[str]) -> None:
    told = typed("sessions", *command, expect=3).stderr
    assert told == (
        "error: There is no session 'nobody'.\nhint: List them with: tertulia sessions list\n"
    )


class TestStrangers:
    """Names, titles and messages are data on every screen."""

    TITLE = "[bold red]Owned[/] \x1b[31mred\u202e"

    @pytest.mark.parametrize(
        "command",
        [
            ["list"],
            ["show", "ID"],
            ["show", "ID", "--json"],
            ["list", "--json"],
            ["search", "deploy"],
            ["search", "deploy", "--json"],
            ["explain", "ID"],
            ["export", "ID"],
            ["export", "ID", "--format", "json"],
            ["export", "ID", "--format", "markdown"],
            ["delete", "ID", "--yes"],
        ],
        ids=" ".join,
    )
    @pytest.mark.parametrize("title", [None, TITLE])
    def test_nothing_in_them_acts(
        self, typed: Typed, demo: Demo, command: list[str], title: str | None
    ) -> None:
        if title is not None:
            typed("sessions", "rename", demo.strange, title)
        words = [demo.strange if word == "ID" else word for word in command]
        done = typed("sessions", *words)
        for char in ALIVE:
            assert char not in done.output

    def test_markup_is_shown_as_it_was_written(self, typed: Typed, demo: Demo) -> None:
        typed("sessions", "rename", demo.strange, "[red]x[/red] :smile:")
        assert "[red]x[/red] :smile:" in typed("sessions", "list").stdout
        assert "deploy [red]Mallory[/red] ␛[31m" in typed("sessions", "show", demo.strange).stdout

    def test_nor_in_a_question_or_an_error(self, typed: Typed, demo: Demo) -> None:
        asked = typed("sessions", "delete", demo.strange, stdin="n\n", expect=1).stderr
        missing = typed("sessions", "show", "\x1b[31m\u202e", expect=3).stderr
        for char in ALIVE:
            assert char not in asked + missing
