"""The command `/export`: show a conversation, or, at the terminal, write it into a file."""

from __future__ import annotations

import os

from tertulia.core.session import Session
from tertulia.core.source import Source
from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.errors import IllegalMove
from tertulia.store import Store
from tertulia.transfer.exporters.export import Form, document

_FORMS: dict[str, Form] = {".html": "html", ".json": "json", ".jsonl": "jsonl"}


def run_export(store: Store, source: Source, session: Session, argument: str) -> str:
    """Return the conversation as Markdown, or where it was written; raise `IllegalMove`.

    The name of the file tells the format. A file that exists is never overwritten, and a new one is
    readable by this user only.
    """
    if not argument:
        return "\n".join(document(store, session.id, "markdown"))
    if not source.is_terminal:
        raise IllegalMove("Only the terminal can write a file.", hint="Send /export alone.")
    path = os.path.abspath(os.path.expanduser(argument))
    form = _FORMS.get(os.path.splitext(path)[1].lower(), "markdown")
    try:
        number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as problem:
        raise IllegalMove(
            f"{clean_for_prompt(path, 200)} cannot be written: {problem.strerror}.",
            hint="Name another file, such as /export talk.md.",
        ) from problem
    with open(number, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in document(store, session.id, form))
    return f"Written to `{clean_for_prompt(path, 400)}`."
