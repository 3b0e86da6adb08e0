"""`tertulia ask`: one question, one answer."""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import click

from tertulia.cli import locations, output
from tertulia.cli.options import TEXT, CliCommand, CommandOptions, json_option
from tertulia.core.source import LOCAL, Source
from tertulia.errors import ConfigError, IllegalMove
from tertulia.records.turns.user_message import UserMessage

if TYPE_CHECKING:
    from tertulia import aio
    from tertulia.agents.base import Event
    from tertulia.core.session import Session
    from tertulia.gateway.request_reply import AgentReply
    from tertulia.platforms.terminal.wrap import Row

Question = Callable[["aio.Store"], Awaitable[UserMessage]]

_SOURCE = Source(LOCAL, "ask", chat_name="tertulia ask")
_MAX_BYTES = 1_000_000  # of all attached texts


@click.command(cls=CliCommand)
@click.argument("words", nargs=-1, metavar="TEXT", type=TEXT)
@click.option("-c", "--continue", "continues", is_flag=True, help="Continue the last question.")
@click.option("-s", "--session", "ref", type=TEXT, help="Ask in a session: id, title or `last`.")
@click.option(
    "-f", "--file", "files", multiple=True, type=click.Path(exists=True, dir_okay=False),
    help="Attach a text file; may be repeated.",
)  # fmt: skip
@json_option
@click.pass_obj
def ask(
    options: CommandOptions,
    words: tuple[str, ...],
    continues: bool,
    ref: str | None,
    files: tuple[str, ...],
) -> None:
    """Ask the agent one question and print the answer.

    Each question begins a new conversation, unless -c or -s is given. Text from a pipe is attached:
    git diff | tertulia ask "What changed?". The exit code is 0 only if the question was answered.
    """
    import asyncio

    if continues and ref is not None:
        raise click.UsageError("Give either -c or -s, not both.")
    text = _question(" ".join(words).strip(), files)

    async def choose_conversation(store: aio.Store) -> UserMessage:
        source = await _conversation(store, continues=continues, ref=ref)
        return UserMessage(source, text, uuid.uuid4().hex, ())

    asyncio.run(print_answer(options, choose_conversation))


def _question(text: str, files: Sequence[str]) -> str:
    """Return the text with the attached files and the piped text below it."""
    attachments = [(path, _read(path)) for path in files]
    if not sys.stdin.isatty():
        piped = sys.stdin.read()
        if piped.strip() and not text and not attachments:
            return piped.strip()
        if piped.strip():
            attachments.append(("standard input", piped))
    if sum(len(content.encode("utf-8", "replace")) for _, content in attachments) > _MAX_BYTES:
        raise ConfigError(
            f"The attached text is larger than {_MAX_BYTES:,} bytes.", hint="Attach less of it."
        )
    parts = [text, *(f"[{name}]\n{content.rstrip()}" for name, content in attachments)]
    question = "\n\n".join(part for part in parts if part)
    if not question:
        raise click.UsageError('Give a question: tertulia ask "What is …?"')
    return question.encode("utf-8", "replace").decode()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(_MAX_BYTES + 1)
    except UnicodeDecodeError as problem:
        raise ConfigError(
            f"{output.display_line(path)} is not a text file.", hint="Attach UTF-8 text."
        ) from problem


async def print_answer(options: CommandOptions, question: Question) -> None:
    """Let the agent answer the message that `question` returns, and print the answer."""
    from tertulia.cli import serve
    from tertulia.config.build import build_agents
    from tertulia.gateway.app import Gateway
    from tertulia.gateway.request_reply import AgentRequest, Responder

    config = locations.load_config(options).config
    agents = build_agents(config, locations.data_folder())
    async with serve.open_store(options, config) as store:
        message = await question(store)
        gateway = Gateway(
            store, agents.main.agent, [], settings=config.gateway_settings, agents=agents
        )
        printer = _Printer(is_json=options.json)
        request = AgentRequest(
            source=message.source,
            text=message.text,
            message_id=message.message_id or uuid.uuid4().hex,
            media=tuple(message.media),
        )
        try:
            reply = await Responder(gateway.pipeline).answer(request, printer.observe)
        finally:
            printer.finish()
            await gateway.pipeline.media_preparer.close()
            await agents.close()
    printer.print_reply(reply)


async def _conversation(store: aio.Store, *, continues: bool, ref: str | None) -> Source:
    """Return the source to ask from, with the session to ask in made current."""
    import asyncio

    from tertulia.cli.session_ref import resolve

    if ref is not None:
        session = await asyncio.to_thread(resolve, store.sync, ref)
        require_current(session)
        return session.origin
    source = await store.agent_choices.resolve(_SOURCE)
    if not continues:
        await store.sessions.reset(await store.sessions.conversation(source))
    return source


def require_current(session: Session) -> None:
    """Raise IllegalMove if the session has ended: nothing is asked in it any more."""
    if session.ended_at is not None:
        raise IllegalMove(
            f"The session {session.id} has ended.",
            hint=f"Make it current again with: tertulia sessions resume {session.id}",
        )


class _Printer:
    """Prints the answer: formatted row by row on a terminal, else as it is."""

    def __init__(self, *, is_json: bool) -> None:
        from tertulia.platforms.terminal.markdown_rows import Stream, row_width
        from tertulia.platforms.terminal.theme import terminal_theme

        self._is_json = is_json
        self._is_terminal = sys.stdout.isatty() and not is_json
        self._theme = terminal_theme()
        self._stream = Stream(row_width(shutil.get_terminal_size().columns))
        self._has_streamed = False

    async def observe(self, event: Event) -> None:
        """Print a piece of the answer, on a terminal."""
        from tertulia.agents.base import Delta, Step

        if not self._is_terminal:
            return
        if isinstance(event, Delta):
            self._has_streamed = True
            self._print(self._stream.feed(event.text))
        elif isinstance(event, Step):
            self.finish()

    def finish(self) -> None:
        """Print the rest of what was streamed."""
        if self._is_terminal:
            self._print(self._stream.finish())

    def print_reply(self, reply: AgentReply) -> None:
        """Print the answer, unless it was streamed."""
        if self._is_json:
            usage = reply.usage
            output.print_json(
                {
                    "session_id": reply.session_id,
                    "text": reply.text,
                    "input_tokens": usage.input,
                    "output_tokens": usage.output,
                }
            )
        elif not self._is_terminal:
            click.echo((reply.text or "").rstrip())
        elif not self._has_streamed:
            self._print([*self._stream.feed(reply.text or ""), *self._stream.finish()])

    def _print(self, rows: Sequence[Row]) -> None:
        for row in rows:
            sys.stdout.write(f"{self._theme.escape(row)}\n")
        sys.stdout.flush()
