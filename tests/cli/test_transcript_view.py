"""Messages of any form on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

from rich.console import Console

import tertulia
from tertulia.cli.transcript_view import print_messages
from tertulia.core.message import Message
from tests.cli.conftest import CommandLine, Demo

SetWidth = Callable[[int], None]


class TestPrintMessages:
    def test_wrapped_lines_keep_the_indent(
        self, cli: CommandLine, demo: Demo, set_width: SetWidth
    ) -> None:
        set_width(60)
        lines = cli("sessions", "show", demo.old).stdout.splitlines()
        body = [line for line in lines if "sunny" in line]
        assert len(body) > 5
        assert all(line.startswith("    ") and len(line) <= 60 for line in body)

    def test_markdown_is_rendered_on_a_terminal_and_unchanged_in_a_pipe(self) -> None:
        body = {"role": "assistant", "content": "# Plan\n\n- **two** litres\n- \x1b[31mred"}
        message = Message(1, 1, 1, "assistant", None, 0, None, body)
        terminal, pipe = (
            Console(file=StringIO(), width=60, force_terminal=is_terminal, no_color=False)
            for is_terminal in (True, False)
        )
        for console in (terminal, pipe):
            print_messages(console, [message], whole=False)
        shown = terminal.file.getvalue()  # type: ignore[attr-defined]
        assert "\x1b[1mtwo" in shown
        assert "# Plan" not in shown
        assert "\x1b[31m" not in shown
        assert "    - **two** litres" in pipe.file.getvalue()  # type: ignore[attr-defined]

    def test_messages_of_any_form_are_printed(self, cli: CommandLine, demo: Demo) -> None:
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
        shown = cli("sessions", "show", demo.new, "--newest", "6").stdout
        assert "[image_url: data:AAAA" in shown
        assert "A" * 100 not in shown
        assert '→ None({"a": 1})' in shown
        newest = cli.json("sessions", "show", demo.new)["messages"][-1]
        assert newest["content"] == "half a pair \ud83d"
        assert cli("sessions", "export", demo.new, "--format", "markdown").stdout
