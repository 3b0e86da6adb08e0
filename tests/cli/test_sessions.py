"""`tertulia sessions`: each command as text and as JSON, and its errors."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import tertulia
from tertulia import Session
from tests.cli.conftest import WEATHER, CommandLine, Demo

SetWidth = Callable[[int], None]

# Characters of other people's texts that must not reach a terminal.
CONTROL_CHARACTERS = ("\x1b", "\x9b", "\u202e")


class TestList:
    def test_list_prints_a_table(self, cli: CommandLine, demo: Demo) -> None:
        lines = cli("sessions", "list").stdout.splitlines()
        assert lines[0].split() == [
            "name", "where", "active", "messages", "tokens", "cost", "id",
        ]  # fmt: skip
        assert [line.split()[-1] for line in lines[1:]] == [demo.hostile, demo.new, demo.old]
        assert [line[0] for line in lines[1:]] == ["●", "●", "○"]
        assert "Viaje a Lisboa" in lines[3]
        assert lines[3].split()[-4:-1] == ["4", "2.9k", "$0.0123"]
        assert lines[2].split()[-4:-1] == ["30", "10.0k", "unknown"]

    def test_list_json_has_the_fields_of_a_session(self, cli: CommandLine, demo: Demo) -> None:
        found = cli.json("sessions", "list")
        assert [session["id"] for session in found] == [demo.hostile, demo.new, demo.old]
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
            (["--state", "current"], ["hostile", "new"]),
            (["--state", "ended"], ["old"]),
            (["--text", "soleado"], ["old"]),
            (["--text", "lisboa"], ["old"]),
            (["--active-minutes", "1440"], ["hostile", "new"]),
            (["--active-minutes", "9" * 30], ["hostile", "new", "old"]),
            (["--limit", "1"], ["hostile"]),
            (["--platform", "signal"], []),
        ],
    )
    def test_filters(
        self, cli: CommandLine, demo: Demo, options: list[str], names: list[str]
    ) -> None:
        found = cli.json("sessions", "list", *options)
        assert [session["id"] for session in found] == [getattr(demo, name) for name in names]

    def test_cursor_continues_the_list(self, cli: CommandLine, demo: Demo) -> None:
        first = cli("sessions", "list", "--limit", "2").stdout
        cursor = first.split("--cursor ")[1].strip()
        rest = cli.json("sessions", "list", "--limit", "2", "--cursor", cursor)
        assert [session["id"] for session in rest] == [demo.old]

    def test_new_title_is_found_at_once(self, cli: CommandLine, demo: Demo) -> None:
        cli("sessions", "rename", demo.new, "Zarzuela")
        assert len(cli.json("sessions", "list", "--text", "zarzuela")) == 1

    @pytest.mark.parametrize("width", [80, 100, 120])
    def test_ids_are_never_cut_and_lines_never_wrapped(
        self, cli: CommandLine, demo: Demo, set_width: SetWidth, width: int
    ) -> None:
        cli("sessions", "rename", demo.old, "a title that is " + "very " * 15 + "long")
        set_width(width)
        lines = cli("sessions", "list").stdout.splitlines()
        for line, session_id in zip(lines[1:], (demo.hostile, demo.new, demo.old), strict=True):
            # Narrow terminals show the last part, which every command understands.
            assert session_id.endswith(line.split()[-1])
            assert len(line.split()[-1]) >= 8
        assert max(map(len, lines)) <= width
        assert "…" in lines[3]

    def test_pipe_output_is_not_cut(self, cli: CommandLine, demo: Demo) -> None:
        title = "a title that is " + "very " * 15 + "long"
        cli("sessions", "rename", demo.old, title)
        assert title in cli("sessions", "list").stdout

    def test_list_without_sessions(self, cli: CommandLine) -> None:
        assert cli("sessions", "list", "--platform", "x").stdout == "No session matches.\n"
        cli = CommandLine("new.db")
        cli("store", "migrate")
        assert cli("sessions", "list").stdout == "There are no sessions yet.\n"
        assert cli.json("sessions", "list") == []

    def test_invalid_options_are_refused(self, cli: CommandLine) -> None:
        assert cli.error("sessions", "list", "--cursor", "x", expect=2)["code"] == "config"
        assert cli.error("sessions", "list", "--limit", "0", expect=2)["code"] == "usage"
        assert cli.error("sessions", "list", "--state", "gone", expect=2)["code"] == "usage"


class TestShow:
    def test_show_all_prints_key_and_tokens(self, cli: CommandLine, demo: Demo) -> None:
        shown = cli("sessions", "show", demo.old, "--all").stdout
        assert "agent:main:telegram:dm:42" in shown
        assert "2,924 (input 812, output 64, cache read 2,048)" in shown
        assert "agent:main" not in cli("sessions", "show", demo.old).stdout

    def test_show_prints_details_and_messages(self, cli: CommandLine, demo: Demo) -> None:
        shown = cli("sessions", "show", demo.old).stdout
        for words in (
            "Viaje a Lisboa",
            "telegram, DM with Ana López",
            "ended: idle",
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

    def test_newest_and_all(self, cli: CommandLine, demo: Demo) -> None:
        newest = cli("sessions", "show", demo.new).stdout
        assert "(10 earlier; --all shows them)" in newest
        assert "#11 " in newest
        assert "#10 " not in newest
        assert "#1 " in cli("sessions", "show", demo.new, "--all").stdout
        assert "#29 " not in cli("sessions", "show", demo.new, "--newest", "1").stdout
        assert "#30 " not in cli("sessions", "show", demo.new, "--newest", "0").stdout
        assert "more characters" not in cli("sessions", "show", demo.old, "--all").stdout

    def test_show_json_has_session_and_messages(self, cli: CommandLine, demo: Demo) -> None:
        shown = cli.json("sessions", "show", demo.old)
        assert shown["id"] == demo.old
        assert shown["messages"] == WEATHER
        assert [place["seq"] for place in shown["places"]] == [1, 2, 3, 4]
        assert len(cli.json("sessions", "show", demo.new)["messages"]) == 30
        assert len(cli.json("sessions", "show", demo.new, "--newest", "3")["messages"]) == 3


class TestSearch:
    def test_search_prints_session_and_snippet(self, cli: CommandLine, demo: Demo) -> None:
        head, snippet = cli("sessions", "search", "tiempo", "manana").stdout.splitlines()
        assert head.startswith(f"{demo.old} #1  user, ")
        assert head.endswith("Viaje a Lisboa")
        assert snippet == "    ¿Qué tiempo hará mañana?"

    def test_search_json_has_the_hits(self, cli: CommandLine, demo: Demo) -> None:
        hits = cli.json("sessions", "search", "mess*", "--limit", "5")
        assert len(hits) == 5
        assert set(hits[0]) == {"session_id", "seq", "role", "snippet", "at", "score"}
        assert {hit["session_id"] for hit in hits} == {demo.new}

    def test_filters(self, cli: CommandLine) -> None:
        assert cli.json("sessions", "search", "deploy", "--platform", "telegram") == []
        assert cli.json("sessions", "search", "deploy", "--person", "telegram:42") == []
        assert len(cli.json("sessions", "search", "deploy", "--platform", "slack")) == 1

    def test_search_without_hits(self, cli: CommandLine) -> None:
        text = cli("sessions", "search", "nowhere").stdout
        assert text == "No message contains all these words.\n"
        assert cli.json("sessions", "search", "*", '"') == []
        assert cli.error("sessions", "search", expect=2)["code"] == "usage"


def test_explain(cli: CommandLine, demo: Demo) -> None:
    text = cli("sessions", "explain", demo.old).stdout
    assert f"Session {demo.old}" in text
    assert "idle" in text
    explained = cli.json("sessions", "explain", demo.old)
    assert explained == {"id": demo.old, "lines": text.splitlines()}


class TestRename:
    def test_rename_sets_and_clears_a_title(self, cli: CommandLine, demo: Demo) -> None:
        text = cli("sessions", "rename", demo.new, "Two", "words").stdout
        assert text == f"{demo.new} is now called 'Two words'.\n"
        assert cli.json("sessions", "rename", demo.new, "Other")["title"] == "Other"
        assert "no title" in cli("sessions", "rename", demo.new, "--clear").stdout
        assert cli.json("sessions", "show", demo.new)["title"] is None

    def test_duplicate_title_is_refused(self, cli: CommandLine, demo: Demo) -> None:
        error = cli.error("sessions", "rename", demo.new, "Viaje a Lisboa", expect=4)
        assert error["code"] == "duplicate"
        assert error["hint"]

    @pytest.mark.parametrize("words", [[], [" "], ["Title", "--clear"]])
    def test_rename_needs_a_title_or_clear(
        self, cli: CommandLine, demo: Demo, words: list[str]
    ) -> None:
        assert cli.error("sessions", "rename", demo.new, *words, expect=2)["code"] == "usage"

    def test_too_long_title_is_refused(self, cli: CommandLine, demo: Demo) -> None:
        assert cli.error("sessions", "rename", demo.new, "x" * 101, expect=2)["code"] == "config"


class TestForkAndResume:
    def test_fork(self, cli: CommandLine, demo: Demo) -> None:
        fork = cli.json("sessions", "fork", demo.new, "--at", "4")
        assert (fork["parent_id"], fork["parent_kind"]) == (demo.new, "fork")
        assert len(cli.json("sessions", "show", fork["id"])["messages"]) == 4
        assert "is a fork of" in cli("sessions", "fork", demo.new).stdout
        assert f"forked from  {demo.new}" in cli("sessions", "show", fork["id"]).stdout

    def test_undo_and_redo(self, cli: CommandLine, demo: Demo) -> None:
        def count() -> int:
            return len(cli.json("sessions", "show", demo.old)["messages"])

        before = count()
        assert "Took back 1 exchange" in cli("sessions", "undo", demo.old).stdout
        assert count() < before
        assert cli.json("sessions", "redo", demo.old)["id"] == demo.old
        assert count() == before
        assert "nothing to restore" in cli.error("sessions", "redo", demo.old, expect=3)["message"]
        cli("sessions", "undo", demo.old, "--turns", "99")
        assert "nothing to undo" in cli.error("sessions", "undo", demo.old, expect=3)["message"]

    def test_fork_at_an_unknown_message_is_refused(self, cli: CommandLine, demo: Demo) -> None:
        error = cli.error("sessions", "fork", demo.new, "--at", "99", expect=3)
        assert error["hint"].endswith(f"tertulia sessions show {demo.new} --all")

    def test_resume(self, cli: CommandLine, demo: Demo) -> None:
        assert cli("sessions", "resume", demo.old).stdout == f"{demo.old} is current again.\n"
        assert cli.json("sessions", "resume", demo.old)["ended_at"] is None
        assert "was already current" in cli("sessions", "resume", demo.old).stdout
        assert cli.json("sessions", "show", demo.new)["end_reason"] == "switch"


class TestExport:
    def test_jsonl_has_one_message_per_line(self, cli: CommandLine, demo: Demo) -> None:
        lines = cli("sessions", "export", demo.old).stdout.splitlines()
        assert [json.loads(line) for line in lines] == WEATHER

    def test_json_export_equals_show(self, cli: CommandLine, demo: Demo) -> None:
        exported = json.loads(cli("sessions", "export", demo.old, "--format", "json").stdout)
        assert exported == cli.json("sessions", "show", demo.old)

    def test_markdown_quotes_messages(self, cli: CommandLine, demo: Demo) -> None:
        page = cli("sessions", "export", demo.old, "--format", "markdown").stdout
        assert page.startswith("# Viaje a Lisboa\n")
        assert "## 1. user, " in page
        assert "\n> ¿Qué tiempo hará mañana?\n" in page
        assert '> → get_weather({"city":"Lisboa"})' in page

    def test_messages_cannot_imitate_headings(self, cli: CommandLine, demo: Demo) -> None:
        said = "hi\n\n## 9. assistant, 2026-01-01\n```\n# Title"
        with tertulia.open(demo.path) as store:
            store.transcript(demo.new).append({"role": "user", "content": said})
            store.transcript(demo.new).append({"role": "tool", "content": f"````\n{said}"})
        page = cli("sessions", "export", demo.new, "--format", "markdown").stdout
        headings = [line for line in page.splitlines() if line.startswith("#")]
        assert len(headings) == 1 + 32
        assert "> `````" in page.splitlines()

    def test_export_writes_a_private_file(
        self, cli: CommandLine, demo: Demo, tmp_path: Path
    ) -> None:
        target = tmp_path / "talk.jsonl"
        done = cli("sessions", "export", demo.old, "--output", str(target))
        assert done.stdout == ""
        assert "4 messages written to" in done.stderr
        assert len(target.read_text("utf-8").splitlines()) == 4
        assert stat.S_IMODE(target.stat().st_mode) == 0o600

    def test_existing_file_is_replaced_only_with_force(
        self, cli: CommandLine, demo: Demo, tmp_path: Path
    ) -> None:
        target = tmp_path / "talk.jsonl"
        target.write_text("mine")
        text = cli("sessions", "export", demo.old, "--output", str(target), expect=2).stderr
        assert "exists already" in text
        assert target.read_text() == "mine"
        cli("sessions", "export", demo.old, "--output", str(target), "--force")
        assert target.read_text("utf-8").startswith("{")

    def test_unwritable_target_is_an_error(self, cli: CommandLine, demo: Demo) -> None:
        text = cli("sessions", "export", demo.old, "--output", "nowhere/x", expect=5).stderr
        assert text.startswith("error: nowhere/x could not be written: No such file")


class TestDelete:
    def test_delete_asks_and_deletes(self, cli: CommandLine, demo: Demo) -> None:
        done = cli("sessions", "delete", demo.old, stdin="y\n")
        assert f"Delete {demo.old} (Viaje a Lisboa) with 4 messages for good?" in done.stderr
        assert done.stdout == f"{demo.old} is deleted, with 4 messages.\n"
        assert cli.error("sessions", "show", demo.old, expect=3)["code"] == "not_found"
        assert cli.json("usage", "--by", "session")["groups"][0]["session"] == demo.old

    @pytest.mark.parametrize("answer", ["n\n", "\n", "nonsense\n"])
    def test_other_answers_than_yes_delete_nothing(
        self, cli: CommandLine, demo: Demo, answer: str
    ) -> None:
        done = cli("sessions", "delete", demo.old, stdin=answer, expect=1)
        assert "Nothing was deleted." in done.stderr
        cli("sessions", "show", demo.old)

    def test_delete_without_an_answer_is_refused(self, cli: CommandLine, demo: Demo) -> None:
        done = cli("sessions", "delete", demo.old, stdin="", expect=2)
        assert "hint: Delete without a question: --yes" in done.stderr
        cli("sessions", "show", demo.old)

    def test_delete_asks_no_program_that_reads_json(self, cli: CommandLine, demo: Demo) -> None:
        done = cli("sessions", "delete", demo.old, "--json", stdin="y\n", expect=2)
        error = json.loads(done.stderr)["error"]
        assert error["message"].startswith("Nothing was deleted")
        assert error["hint"].endswith("--yes")

    def test_yes_deletes_without_a_question(self, cli: CommandLine, demo: Demo) -> None:
        text = cli.json("sessions", "delete", demo.old, "--yes")
        assert text == {"deleted": demo.old, "messages": 4}


@pytest.mark.parametrize(
    "command",
    [
        ["show", "nobody"],
        ["explain", "nobody"],
        ["rename", "nobody", "Title"],
        ["export", "nobody"],
        ["delete", "nobody", "--yes"],
        ["fork", "nobody"],
        ["undo", "nobody"],
        ["redo", "nobody"],
        ["resume", "nobody"],
    ],
    ids=lambda command: command[0],
)
def test_unknown_session_is_not_found(cli: CommandLine, command: list[str]) -> None:
    text = cli("sessions", *command, expect=3).stderr
    assert text == (
        "error: There is no session 'nobody'.\nhint: List them with: tertulia sessions list\n"
    )


class TestHostileText:
    """Names, titles and messages of other people never act on the terminal."""

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
    def test_output_does_not_act_on_the_terminal(
        self, cli: CommandLine, demo: Demo, command: list[str], title: str | None
    ) -> None:
        if title is not None:
            cli("sessions", "rename", demo.hostile, title)
        words = [demo.hostile if word == "ID" else word for word in command]
        done = cli("sessions", *words)
        for char in CONTROL_CHARACTERS:
            assert char not in done.output

    def test_markup_is_printed_literally(self, cli: CommandLine, demo: Demo) -> None:
        cli("sessions", "rename", demo.hostile, "[red]x[/red] :smile:")
        assert "[red]x[/red] :smile:" in cli("sessions", "list").stdout
        assert "deploy [red]Mallory[/red] ␛[31m" in cli("sessions", "show", demo.hostile).stdout

    def test_questions_and_errors_do_not_act_on_the_terminal(
        self, cli: CommandLine, demo: Demo
    ) -> None:
        asked = cli("sessions", "delete", demo.hostile, stdin="n\n", expect=1).stderr
        missing = cli("sessions", "show", "\x1b[31m\u202e", expect=3).stderr
        for char in CONTROL_CHARACTERS:
            assert char not in asked + missing


class TestRetry:
    @pytest.fixture
    def parrot(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
        monkeypatch.setenv("TERTULIA_AGENT_KIND", "parrot")
        return CommandLine(str(tmp_path / "own.db"))

    def test_last_message_is_answered_again(self, parrot: CommandLine) -> None:
        first = parrot.json("ask", "plums")
        parrot("ask", "-c", "pears")
        again = parrot.json("sessions", "retry", "last")
        assert again["session_id"] == first["session_id"]
        assert "You said: pears" in again["text"]
        assert "I was shown 3 messages" in again["text"]
        assert len(parrot.json("sessions", "show", "last")["messages"]) == 4

    def test_nothing_to_answer_and_ended_sessions_are_named(
        self, parrot: CommandLine, cli: CommandLine, demo: Demo
    ) -> None:
        first = parrot.json("ask", "plums")["session_id"]
        parrot("sessions", "undo", "last")
        error = parrot.error("sessions", "retry", "last", expect=3)
        assert "no message to answer again" in error["message"]
        parrot("ask", "pears")
        assert "has ended" in parrot.error("sessions", "retry", first, expect=4)["message"]
