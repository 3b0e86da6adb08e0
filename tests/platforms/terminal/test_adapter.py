"""The terminal adapter: lines from a pipe, keys from a terminal, each thing printed once."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from tertulia.core.source import Source
from tertulia.errors import Error, StoreUnavailable
from tertulia.gateway import commands
from tertulia.platforms.base import FAILURE_KEY, Incoming, Outgoing, StreamUpdate, Update
from tertulia.platforms.terminal.adapter import TerminalAdapter
from tertulia.platforms.terminal.live import LiveView

# So long a test may take, however busy the machine.
PATIENCE = 60


class Screen(DummyOutput):
    """Keeps what the adapter itself prints, not what prompt_toolkit draws."""

    def __init__(self) -> None:
        self.printed = ""

    def write_raw(self, data: str) -> None:
        self.printed += data


class Received:
    """Takes what an adapter hands over."""

    def __init__(self) -> None:
        self.messages: list[Incoming] = []
        self.problem: Error | None = None

    async def __call__(self, incoming: Update) -> None:
        assert isinstance(incoming, Incoming)
        if self.problem is not None:
            raise self.problem
        self.messages.append(incoming)

    @property
    def texts(self) -> list[str | None]:
        return [message.text for message in self.messages]


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        await asyncio.wait_for(test(), PATIENCE)

    asyncio.run(timed())


def piped(text: str, **more: Any) -> tuple[TerminalAdapter, io.StringIO]:
    out = io.StringIO()
    return TerminalAdapter(stdin=io.StringIO(text), stdout=out, **more), out


def said(text: str, delivery: str = "d") -> Outgoing:
    return Outgoing(delivery=delivery, chat_id="cli", text=text)


class TestPipe:
    def test_each_line_is_a_message_with_its_own_id(self) -> None:
        async def test() -> None:
            adapter, _ = piped("one\n\n  \none\r\nlast without end")
            heard = Received()
            await adapter.listen(heard)
            assert heard.texts == ["one", "one", "last without end"]
            assert len({message.message_id for message in heard.messages}) == 3
            assert {message.source for message in heard.messages} == {Source.local()}
            assert adapter.finished.is_set()

        run(test)

    def test_backslash_continues_the_line(self) -> None:
        async def test() -> None:
            adapter, _ = piped("one\\\ntwo\nthree\\")
            heard = Received()
            await adapter.listen(heard)
            assert heard.texts == ["one\ntwo", "three\\"]

        run(test)

    def test_next_line_waits_for_the_answer(self) -> None:
        async def test() -> None:
            order: list[str | None] = []

            async def settled(message_id: str | None) -> None:
                order.append("settled")

            async def receive(incoming: Update) -> None:
                assert isinstance(incoming, Incoming)
                order.append(incoming.text)

            adapter, _ = piped("one\ntwo\n", settled=settled)
            await adapter.listen(receive)
            assert order == ["one", "settled", "two", "settled", "settled"]

        run(test)

    def test_answer_shown_by_another_program_is_printed(self) -> None:
        async def test() -> None:
            async def settled(message_id: str | None) -> str | None:
                return message_id and f"answer to {message_id}"

            adapter, out = piped("one\ntwo\nthree\n", settled=settled)
            ids = []

            async def receive(incoming: Update) -> None:
                assert isinstance(incoming, Incoming)
                ids.append(incoming.message_id)
                if incoming.text == "two":
                    await adapter.send(said("an answer to the other program", "a"))
                if incoming.text == "three":
                    await adapter.send(said(f"answer to {incoming.message_id}", "b"))

            await adapter.listen(receive)
            assert out.getvalue().split("\n\n") == [
                f"answer to {ids[0]}",
                "an answer to the other program",
                f"answer to {ids[1]}",
                f"answer to {ids[2]}",
                "",
            ]

        run(test)

    def test_nothing_is_read_after_quit(self) -> None:
        async def test() -> None:
            adapter, _ = piped("one\n/quit\ntwo\n")
            heard = Received()
            await adapter.listen(heard)
            assert heard.texts == ["one"]

        run(test)

    def test_store_error_ends_listening_with_the_problem(self) -> None:
        async def test() -> None:
            adapter, _ = piped("one\ntwo\n")
            heard = Received()
            heard.problem = StoreUnavailable("The store is away.")
            with pytest.raises(StoreUnavailable):
                await adapter.listen(heard)
            assert adapter.problem is heard.problem
            assert adapter.finished.is_set()

        run(test)

    def test_invalid_utf8_is_replaced(self) -> None:
        async def test() -> None:
            adapter, _ = piped("caf\udce9\n")
            heard = Received()
            await adapter.listen(heard)
            assert heard.texts == ["caf?"]

        run(test)


class TestPrinting:
    def test_repeated_delivery_is_printed_once(self) -> None:
        async def test() -> None:
            adapter, out = piped("")
            await adapter.send(said("hello"))
            await adapter.send(said("hello"))
            await adapter.send(said("hello", "another"))
            assert out.getvalue() == "hello\n\nhello\n\n"

        run(test)

    def test_pipe_gets_whole_answers(self) -> None:
        async def test() -> None:
            adapter, out = piped("")
            await stream(adapter, "Hel", "lo\nyo", "u")
            assert out.getvalue() == ""
            await adapter.send(said("Hello\nyou"))
            await show(adapter, "ended")
            assert out.getvalue() == "Hello\nyou\n\n"

        run(test)

    def test_tools_do_not_stand_among_the_answers(self, capsys: pytest.CaptureFixture[str]) -> None:
        async def test() -> None:
            adapter, out = piped("")
            await show(adapter, "tool", "weather")
            await show(adapter, "result", "weather")
            await adapter.send(said("Sunny."))
            assert out.getvalue() == "Sunny.\n\n"
            assert capsys.readouterr().err == "▸ weather\n"

        run(test)

    def test_control_sequences_are_removed(self) -> None:
        async def test() -> None:
            adapter, out = piped("")
            await adapter.send(said("a\x1b[31mb"))
            await adapter.send(said("c\x1b]0;title\x07\n", "another"))
            assert "\x1b" not in out.getvalue()
            assert "\x07" not in out.getvalue()

        run(test)


class TestKeys:
    def test_enter_sends_and_alt_enter_adds_a_line(self) -> None:
        async def test() -> None:
            async with typing() as (adapter, keys, heard, _):
                keys.send_text("one\r")
                await until(lambda: heard.texts == ["one"])
                keys.send_text("two\x1b\rthree\r")
                await until(lambda: heard.texts == ["one", "two\nthree"])
                assert not adapter.finished.is_set()

        run(test)

    def test_ctrl_d_and_quit_leave(self) -> None:
        async def test() -> None:
            for leave in ("\x04", "/quit\r"):
                async with typing() as (adapter, keys, heard, _):
                    keys.send_text(leave)
                    await adapter.finished.wait()
                    assert heard.texts == []

        run(test)

    def test_ctrl_c_stops_the_answer(self) -> None:
        async def test() -> None:
            async with typing() as (adapter, keys, heard, _):
                await show(adapter, "began")
                keys.send_text("unsent\x03")
                await until(lambda: heard.texts == ["/stop"])
                await show(adapter, "ended")
                keys.send_text(" text\r")
                await until(lambda: heard.texts == ["/stop", "unsent text"])

        run(test)

    def test_unsent_text_is_offered_again(self) -> None:
        async def test() -> None:
            async with typing() as (_, keys, heard, screen):
                heard.problem = StoreUnavailable("The store is away.")
                keys.send_text("dear words\r")
                await until(lambda: "✗ Not stored: The store is away." in screen.printed)
                heard.problem = None
                keys.send_text("\r")
                await until(lambda: heard.texts == ["dear words"])

        run(test)

    def test_ctrl_c_without_an_answer_clears_the_line(self) -> None:
        async def test() -> None:
            async with typing() as (_, keys, heard, _):
                keys.send_text("unsent\x03sent\r")
                await until(lambda: heard.texts == ["sent"])

        run(test)

    def test_tab_completes_commands(self) -> None:
        async def test() -> None:
            async with typing() as (adapter, keys, heard, _):
                await adapter.fill_menu(commands.menu())
                buffer = _buffer(adapter)
                keys.send_text("/expo")
                await until(lambda: has_completions(buffer))
                keys.send_text("\t")
                await until(lambda: buffer.text == "/export")
                keys.send_text("\r\r")  # takes the choice, and sends
                await until(lambda: heard.texts == ["/export"])

        run(test)

    def test_pasted_path_of_a_file_is_offered_as_an_attachment(self, tmp_path: Any) -> None:
        async def test() -> None:
            path = tmp_path / "plan.txt"
            path.write_text("x")
            async with typing() as (adapter, keys, _, _):
                buffer = _buffer(adapter)
                keys.send_text(f"\x1b[200~{path}\x1b[201~")
                await until(lambda: has_completions(buffer))
                assert buffer.text == str(path)  # only offered: Enter would send it as it is
                keys.send_text("\t")
                await until(lambda: buffer.text == f"@{path} ")

        run(test)

    def test_input_is_stored_in_the_history_file(self, tmp_path: Any) -> None:
        async def test() -> None:
            path = tmp_path / "history"
            async with typing(history=str(path)) as (_, keys, heard, _):
                keys.send_text("remember me\r")
                await until(lambda: heard.texts == ["remember me"])
            async with typing(history=str(path)) as (adapter, keys, heard, _):
                buffer = _buffer(adapter)
                # The file is read by a thread; then there is a line above the one that is typed.
                await until(lambda: len(buffer._working_lines) > 1)
                keys.send_text("\x1b[A\r")
                await until(lambda: heard.texts == ["remember me"])

        run(test)

    def test_messages_are_printed_above_the_input_line(self) -> None:
        async def test() -> None:
            async with typing() as (adapter, keys, heard, screen):
                keys.send_text("half")
                await adapter.send(said("news"))
                assert "news" in screen.printed
                keys.send_text(" done\r")
                await until(lambda: heard.texts == ["half done"])

        run(test)


class TestLive:
    """Answers above the input line, while they are written."""

    @pytest.mark.parametrize("is_late", [False, True])
    @pytest.mark.parametrize("end", ["", "\n", "\n\n"])
    def test_streamed_answer_is_printed_once(self, end: str, is_late: bool) -> None:
        async def test() -> None:
            async with typing() as (adapter, _, _, screen):
                await stream(adapter, "Hel", "lo\nyo", f"u{end}")
                acts = [adapter.send(said(f"Hello\nyou{end}")), show(adapter, "ended")]
                for act in reversed(acts) if is_late else acts:
                    await act
                assert screen.printed == "Hello\r\nyou\r\n\r\n"
                await adapter.send(said("Hello\nyou", "said again"))
                assert screen.printed == "Hello\r\nyou\r\n\r\n" * 2

        run(test)

    def test_rows_are_printed_as_they_fill(self) -> None:
        async def test() -> None:
            async with typing() as (adapter, _, _, screen):
                await stream(adapter, "word " * 30)
                assert screen.printed.count("word") > 10
                assert "word" in "".join(
                    segment.text for segment in _live(adapter)._screen.tail[-1]
                )

        run(test)

    def test_message_during_an_answer_does_not_break_it(self) -> None:
        async def test() -> None:
            async with typing() as (adapter, _, _, screen):
                await stream(adapter, "one ")
                await adapter.send(said("status", "other"))
                await show(adapter, "delta", "two")
                await adapter.send(said("one two"))
                await show(adapter, "ended")
                assert screen.printed == "one\r\n\r\nstatus\r\n\r\ntwo\r\n\r\n"

        run(test)

    def test_text_before_a_tool_call_is_not_the_answer(self) -> None:
        async def test() -> None:
            async with typing() as (adapter, _, _, screen):
                await stream(adapter, "Let me look.")
                await show(adapter, "tool", "weather")
                await show(adapter, "result", "weather() · 0.1 s")
                await stream(adapter, "Sunny.")
                await adapter.send(said("Sunny."))
                await show(adapter, "ended")
                plain = screen.printed.replace("\x1b[34m", "").replace("\x1b[0m", "")
                assert plain == "Let me look.\r\n\r\n▸ weather() · 0.1 s\r\nSunny.\r\n\r\n"

        run(test)

    def test_notice_comes_before_the_answer_and_once(self) -> None:
        async def test() -> None:
            async with typing() as (adapter, _, _, screen):
                await show(adapter, "notice", "A new day has begun.")
                await stream(adapter, "Hello.")
                await adapter.send(said("A new day has begun.", "notice"))
                await adapter.send(said("Hello."))
                await show(adapter, "ended")
                assert screen.printed.count("A new day has begun.") == 1
                assert screen.printed.index("new day") < screen.printed.index("Hello.")

        run(test)

    @pytest.mark.parametrize("is_on", [False, True])
    def test_reasoning_is_shown_on_request_and_is_no_part_of_the_answer(self, is_on: bool) -> None:
        async def test() -> None:
            async with typing() as (adapter, keys, _, screen):
                assert not adapter.shows_thoughts
                if is_on:
                    keys.send_text("/thinking on\r")
                    while not adapter.shows_thoughts:  # noqa: ASYNC110  a screen has no event
                        await asyncio.sleep(0.001)
                before = len(screen.printed)
                await show(adapter, "began")
                await show(adapter, "thought", "The person wants ")
                await show(adapter, "thought", "rain.")
                await stream(adapter, "No rain.")
                await adapter.send(said("No rain."))
                await show(adapter, "ended")
                printed = screen.printed[before:]
                assert ("The person wants rain." in printed) == is_on
                assert printed.count("No rain.") == 1
                assert "rain.No rain" not in printed

        run(test)

    def test_status_says_what_is_done(self) -> None:
        async def test() -> None:
            async with typing() as (adapter, _, _, _):
                screen = _live(adapter)._screen
                await show(adapter, "began")
                assert "thinking · 0 s · ctrl-C stops" in screen.status
                await show(adapter, "delta", "Hel")
                assert "writing" in screen.status
                await show(adapter, "tool", "weather")
                assert "weather" in screen.status
                await show(adapter, "ended")
                assert screen.status == ""

        run(test)

    def test_markdown_is_rendered(self) -> None:
        async def test() -> None:
            async with typing() as (adapter, _, _, screen):
                await adapter.send(said("# Title\n\n**bold**"))
                assert screen.printed == "\x1b[1;35mTitle\x1b[0m\r\n\r\n\x1b[1mbold\x1b[0m\r\n\r\n"

        run(test)


class TestPlain:
    def test_reasoning_has_a_word_before_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def test() -> None:
            stdin, out = io.StringIO("/thinking\nhello\n/thinking off\n"), io.StringIO()
            for stream_ in (stdin, out):
                monkeypatch.setattr(stream_, "isatty", lambda: True)
            adapter = TerminalAdapter(stdin=stdin, stdout=out, is_plain=True)

            async def receive(incoming: Any) -> None:
                assert adapter.shows_thoughts
                await show(adapter, "thought", "**Well** ")
                await show(adapter, "thought", "then.")
                await show(adapter, "ended")
                await adapter.send(said("Sunny."))

            await adapter.listen(receive)
            assert "Thinking: Well then.\nAgent: Sunny.\n" in out.getvalue()
            assert not adapter.shows_thoughts

        run(test)

    def test_words_say_who_speaks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def test() -> None:
            answer = (
                "# Plan\n\n**Sunny**, see [guide](https://example.org).\n\n> Wait.\n\n---\n\n"
                "| day | rain |\n|---|---|\n| Monday | none |"
            )
            stdin, out = io.StringIO("hello\n"), io.StringIO()
            for stream_ in (stdin, out):
                monkeypatch.setattr(stream_, "isatty", lambda: True)
            adapter = TerminalAdapter(stdin=stdin, stdout=out, is_plain=True)

            async def receive(incoming: Any) -> None:
                await show(adapter, "result", "weather")
                await adapter.send(said(answer))
                await adapter.send(
                    Outgoing(delivery=f"{FAILURE_KEY}1", chat_id="cli", text="✗ No.")
                )

            await adapter.listen(receive)
            assert out.getvalue() == (
                "You: Tool weather\n"
                "Agent: Plan\n\nSunny, see guide (https://example.org).\n\n"
                "> Wait.\n\nday: Monday\nrain: none\n\n"
                "Error: No.\n\n"
                "Waiting for the answer.\nYou: \n"
            )
            assert not set(map(chr, range(32))) & set(out.getvalue()) - {"\n"}

        run(test)


def _live(adapter: TerminalAdapter) -> LiveView:
    assert isinstance(adapter._view, LiveView)
    return adapter._view


def _buffer(adapter: TerminalAdapter) -> Buffer:
    return _live(adapter)._screen._buffer


def has_completions(buffer: Buffer) -> bool:
    """Return whether completions are offered: their list is there before them, and empty."""
    return buffer.complete_state is not None and bool(buffer.complete_state.completions)


async def show(adapter: TerminalAdapter, kind: Any, text: str = "") -> None:
    await adapter.show(Source.local(), StreamUpdate(kind=kind, turn="1", text=text))


async def stream(adapter: TerminalAdapter, *pieces: str) -> None:
    await show(adapter, "began")
    for piece in pieces:
        await show(adapter, "delta", piece)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110  what is waited for has no event
        await asyncio.sleep(0.01)


@asynccontextmanager
async def typing(
    **more: Any,
) -> AsyncIterator[tuple[TerminalAdapter, PipeInput, Received, Screen]]:
    """An adapter that listens to keys; it is cancelled and closed at the end."""
    heard, screen = Received(), Screen()
    with create_pipe_input() as keys:
        adapter = TerminalAdapter(terminal=(keys, screen), **more)
        listening = asyncio.create_task(adapter.listen(heard))
        await asyncio.sleep(0.05)
        try:
            yield adapter, keys, heard, screen
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await adapter.close()
