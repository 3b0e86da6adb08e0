"""`tertulia completion`: shell completion of commands, options and session ids, made by click."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from tertulia.cli.options import CliCommand, CommandOptions
from tertulia.errors import Error

_MAX_ITEMS = 30


@click.command(cls=CliCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and session ids in a shell.

    \b
    bash   eval "$(tertulia completion bash)"       in ~/.bashrc
    zsh    eval "$(tertulia completion zsh)"        in ~/.zshrc
    fish   tertulia completion fish | source        in config.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None, "click supports every shell that is offered"
    root = click.get_current_context().find_root()
    completer = completion_class(root.command, {}, "tertulia", "_TERTULIA_COMPLETE")
    # Not `source()`: it runs bash to find its version.
    script = completer.source_template % completer.source_vars()
    # click's script for fish cuts a description at its first comma.
    click.echo(script.replace('string split "," $completion', 'string split -m1 "," $completion'))


def session_ids(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Return the newest sessions whose ids begin with `incomplete`; none without a store."""
    from tertulia.cli.format import session_name
    from tertulia.cli.locations import open_existing_store
    from tertulia.cli.output import display_line

    try:
        with open_existing_store(ctx.find_object(CommandOptions) or CommandOptions()) as store:
            sessions = store.sessions.find(limit=200).items
    except Error:
        return []
    matching = [session for session in sessions if session.id.startswith(incomplete)]
    return [
        CompletionItem(session.id, help=display_line(session_name(session)))
        for session in matching[:_MAX_ITEMS]
    ]
