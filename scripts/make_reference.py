"""Generate `docs/reference.md` from the code.

    python scripts/make_reference.py

It lists settings, values, calls and errors with their docstrings. The modules are parsed and not
imported, so nothing has to be installed. `tests/docs/test_reference.py` compares the page with the
output of this script.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src/tertulia"
TARGET = ROOT / "docs/reference.md"

# Module and class, in the order they are written.
SETTINGS = (
    ("core.settings", "Settings"),
    ("core.policy", "Policies"),
    ("core.policy", "ResetPolicy"),
    ("core.target", "HomeChannel"),
    ("core.budget", "Budget"),
)
VALUES = (
    ("core.source", "Source"),
    ("core.session", "Session"),
    ("core.session", "Notice"),
    ("core.session", "Page"),
    ("core.message", "Message"),
    ("records.transcript.revisions", "Revision"),
    ("core.usage", "Usage"),
    ("records.search", "Hit"),
    ("core.message", "ToolCall"),
    ("records.queues.inbox", "InboxItem"),
    ("records.queues.outbox", "Delivery"),
    ("records.schedules", "Schedule"),
    ("records.schedules", "ScheduleRun"),
)
# Module, class, and the expression that returns one.
CALLS = (
    ("store", "Store", 'tertulia.open("talk.db")'),
    ("records.sessions.sessions", "Sessions", "store.sessions"),
    ("records.turns.turn", "Turn", "store.turn(source, text)"),
    ("records.transcript.transcript", "Transcript", "store.transcript(session_id)"),
    ("records.usage", "UsageLedger", "store.usage"),
    ("records.people", "People", "store.people"),
    ("records.queues.inbox", "Inbox", "store.inbox"),
    ("records.queues.outbox", "Outbox", "store.outbox"),
    ("records.schedules", "Schedules", "store.schedules"),
    ("records.memories", "Memories", "store.memories"),
)
# The meaning of settings for which the docstring of the class has no line.
MEANINGS: dict[str, str] = {}

HEAD = """# Python reference

This page is generated from the code: `python scripts/make_reference.py`. It lists; the other pages
explain. `tertulia.aio` has the same calls with `await`: see [async](async.md). The commands are in
[the command line](cli.md). A program that uses the calls that most programs need:

```python
import tertulia
from tertulia import Source

ana = Source("telegram", "42", user_id="42", user_name="Ana")
with tertulia.open("talk.db") as store:
    with store.turn(ana, text="Will it rain?", message_id="1001") as turn:
        if not turn.duplicate:
            turn.add_assistant(f"I was given {len(turn.history())} message.")
    for session in store.sessions.find(platform="telegram").items:
        print(session.id, store.transcript(session.id).count(), store.search("rain").items)
```
"""
_LISTED = re.compile(r" {0,4}(\w+) {2,}(\S.*)")
_CONTINUED = re.compile(r"\n {8,}(?=\S)")  # the next line of a meaning


class Field(NamedTuple):
    name: str
    type: str
    default: str


def main() -> None:
    TARGET.write_text(written(), encoding="utf-8")


def written() -> str:
    """Return the text of the page."""
    parts = (HEAD, *_settings(), *_calls(), *_values(), *_errors())
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _settings() -> Iterator[str]:
    yield "## Settings\n\nAll are frozen values: `tertulia.open(where, settings=Settings(…))`."
    for module, name in SETTINGS:
        meanings = dict(_listed_meanings(module, name))
        fields = _fields(module, name)
        _refuse_unknown_meanings(name, {field.name for field in fields})
        lines = [f"### {name}", "", _summary(_class(module, name)), ""]
        lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
        for field in fields:
            cells = (f"`{field.name}`", _code(field.type), _code(field.default) or "required")
            lines.append(f"| {' | '.join(cells)} | {_meaning(name, field.name, meanings)} |")
        yield "\n".join(lines)


def _calls() -> Iterator[str]:
    opening = next(node for node in _functions(_module("store")) if node.name == "open")
    yield f"## Calls\n\n{_call(opening, 'tertulia.')}"
    for module, name, expression in CALLS:
        node = _class(module, name)
        lines = [f"### {name}: `{expression}`", "", _summary(node), ""]
        yield "\n".join((*lines, *map(_call, _methods(module, name))))


def _values() -> Iterator[str]:
    yield "## Values\n\nArguments and results of the calls. All are frozen."
    for module, name in VALUES:
        node = _class(module, name)
        lines = [f"### {name}", "", _summary(node), ""]
        for field in _fields(module, name):
            default = f" = {field.default}" if field.default else ""
            lines.append(f"- `{field.name}: {field.type}{default}`")
        calls = (
            _call(item, f"{name}." if _has_decorator(item, "classmethod") else "")
            for item in _functions(node)
        )
        yield "\n".join((*lines, *calls))


def _errors() -> Iterator[str]:
    yield (
        "## Errors\n\nEvery error that Tertulia raises is a `tertulia.Error`. Each has a `code`, a "
        "`hint` with the next\nstep if there is one, and `retryable`: whether the same call can "
        "succeed later."
    )
    rows = ["| error | under | code | retryable | meaning |", "|---|---|---|---|---|"]
    classes: dict[str, tuple[str, bool]] = {}
    for node in _module("errors").body:
        if not isinstance(node, ast.ClassDef):
            continue
        base = ast.unparse(node.bases[0])
        code, is_retryable = classes.get(base, ("", False))
        own = {field.name: field.default for field in _assigned(node)}
        code = ast.literal_eval(own["code"]) if "code" in own else code
        if "retryable" in own:
            is_retryable = own["retryable"] == "True"
        classes[node.name] = code, is_retryable
        under = f"`{base}`" if base in classes else "–"
        word = "yes" if is_retryable else "no"
        rows.append(f"| `{node.name}` | {under} | `{code}` | {word} | {_summary(node)} |")
    yield "\n".join(rows)


# -- parsing


@cache
def _module(name: str) -> ast.Module:
    """Return the tree of a module, with the allowed words in place of each type alias of them."""
    tree = _parsed(name)
    choices = {**_imported_choices(tree), **_choices(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = choices.get(node.id, node.id)
    return tree


def _parsed(name: str) -> ast.Module:
    return ast.parse((SOURCES / f"{name.replace('.', '/')}.py").read_text("utf-8"))


def _choices(tree: ast.Module) -> dict[str, str]:
    """Return the allowed words of every type alias of the form `Name = Literal["a", "b"]`."""
    choices = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            alias = node.value
            if ast.unparse(alias.value) == "Literal" and isinstance(alias.slice, ast.Tuple):
                words = " | ".join(ast.unparse(word) for word in alias.slice.elts)
                choices[ast.unparse(node.targets[0])] = words
    return choices


def _imported_choices(tree: ast.Module) -> dict[str, str]:
    """Return the allowed words of the type aliases that a module imports: names are not unique."""
    choices: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tertulia."):
            module = (node.module or "").removeprefix("tertulia.")
            if (SOURCES / f"{module.replace('.', '/')}.py").is_file():
                words = _choices(_parsed(module))
                names = {alias.asname or alias.name: alias.name for alias in node.names}
                choices |= {ours: words[name] for ours, name in names.items() if name in words}
    return choices


def _type(node: ast.expr | None) -> str:
    """Return the text of an annotation."""
    return "None" if node is None else ast.unparse(node)


def _class(module: str, name: str) -> ast.ClassDef:
    classes = (node for node in _module(module).body if isinstance(node, ast.ClassDef))
    return next(node for node in classes if node.name == name)


def _fields(module: str, name: str) -> list[Field]:
    """Return the fields of a value, then those of its private bases in the same module."""
    node = _class(module, name)
    fields = list(_assigned(node))
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id.startswith("_"):
            fields += _fields(module, base.id)
    return fields


def _assigned(node: ast.ClassDef) -> Iterator[Field]:
    for item in node.body:
        if isinstance(item, ast.AnnAssign):
            default = ast.unparse(item.value) if item.value else ""
            yield Field(ast.unparse(item.target), _type(item.annotation), default)
        elif isinstance(item, ast.Assign):
            yield Field(ast.unparse(item.targets[0]), "", ast.unparse(item.value))


def _functions(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Return the public functions or methods."""
    functions = (item for item in node.body if isinstance(item, ast.FunctionDef))
    return (item for item in functions if not item.name.startswith("_"))


def _methods(module: str, name: str) -> Iterator[ast.FunctionDef]:
    """Return the public methods of a class, after those of its bases in the same module."""
    node = _class(module, name)
    classes = {item.name for item in _module(module).body if isinstance(item, ast.ClassDef)}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            yield from _methods(module, base.id)
    yield from _functions(node)


def _has_decorator(item: ast.FunctionDef, word: str) -> bool:
    return any(word in ast.unparse(decorator) for decorator in item.decorator_list)


def _call(item: ast.FunctionDef, before: str = "") -> str:
    """Return one entry: the signature, and the first paragraph of the docstring."""
    parameters = (
        "" if _has_decorator(item, "property") else f"({', '.join(_parameters(item.args))})"
    )
    arrow = ": " if _has_decorator(item, "property") else " -> "
    summary = _summary(item)
    signature = f"- `{before}{item.name}{parameters}{arrow}{_type(item.returns)}`"
    return f"{signature}\n  {summary}" if summary else signature


def _parameters(args: ast.arguments) -> Iterator[str]:
    """Yield each parameter with its type and default."""
    required = len(args.args) - len(args.defaults)
    for index, item in enumerate(args.args):
        if item.arg not in ("self", "cls"):
            yield _parameter(item, args.defaults[index - required] if index >= required else None)
    if args.kwonlyargs:
        yield "*"
    for item, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield _parameter(item, default)
    if args.kwarg:
        yield f"**{_parameter(args.kwarg, None)}"


def _parameter(item: ast.arg, default: ast.expr | None) -> str:
    text = f"{item.arg}: {_type(item.annotation)}"
    return text if default is None else f"{text} = {ast.unparse(default)}"


def _summary(node: ast.ClassDef | ast.FunctionDef) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())


def _listed_meanings(module: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield fields with the meaning that a class docstring lists for them: `name    meaning`."""
    text = ast.get_docstring(_class(module, name)) or ""
    for line in _CONTINUED.sub(" ", text).splitlines():
        if match := _LISTED.fullmatch(line):
            yield match[1], match[2].strip()


def _meaning(name: str, field: str, listed: dict[str, str]) -> str:
    entry = f"{name}.{field}"
    if field in listed and entry in MEANINGS:
        raise LookupError(f"{entry} has its meaning in the docstring: remove it from MEANINGS")
    if field not in listed and entry not in MEANINGS:
        raise LookupError(f"{entry} needs a line in the docstring of {name}, or in MEANINGS")
    return (listed.get(field) or MEANINGS[entry]).replace("|", r"\|")


def _refuse_unknown_meanings(name: str, fields: set[str]) -> None:
    for entry in MEANINGS:
        owner, _, field = entry.partition(".")
        if owner == name and field not in fields:
            raise LookupError(f"{entry} is not a setting any more: remove it from MEANINGS")


def _code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|") if text else ""


if __name__ == "__main__":
    main()
