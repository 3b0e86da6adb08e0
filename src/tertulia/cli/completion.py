"""Completion in the shell, made by click."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from tertulia.cli.options import Command, Request
from tertulia.errors import Error

_OFFERED = 30


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and session ids in a shell.

    \b
    bash   eval "$(tertulia completion bash)"       in ~/.bashrc
    zsh    eval "$(tertulia completion zsh)"        in ~/.zshrc
    fish   tertulia completion fish | source        in config.fish
    """
    made_by = get_completion_class(shell)
    assert made_by is not None, "click knows every shell that is offered"
    root = click.get_current_context().find_root()
    maker = made_by(root.command, {}, "tertulia", "_TERTULIA_COMPLETE")
    # Not `source()`: that one runs bash to look at its version.
    click.echo(maker.source_template % maker.source_vars())


def session_ids(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """The newest sessions, for whoever presses tab where an id belongs."""
    from tertulia.cli.format import name_of
    from tertulia.cli.locations import existing
    from tertulia.cli.output import one_line

    try:
        with existing(ctx.find_object(Request) or Request()) as store:
            found = store.sessions.find(limit=200).items
    except Error:
        return []
    fitting = [session for session in found if session.id.startswith(incomplete)]
    return [CompletionItem(one.id, help=one_line(name_of(one))) for one in fitting[:_OFFERED]]
