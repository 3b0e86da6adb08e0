"""Writes `docs/reference.md` from the code. `tests/docs/test_reference.py` compares.

    python scripts/make_reference.py

Settings, values, calls and errors stand there with what their docstrings say. The modules are read
and not imported, so that it needs nothing installed.
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
    ("records.transcript", "Revision"),
    ("core.usage", "Usage"),
    ("records.search", "Hit"),
    ("core.message", "ToolCall"),
    ("records.inbox", "Arrival"),
    ("records.outbox", "Parcel"),
    ("records.schedules", "Schedule"),
    ("records.schedules", "Occurrence"),
)
# The third is how a program comes by one.
CALLS = (
    ("store", "Store", 'tertulia.open("talk.db")'),
    ("records.sessions", "Sessions", "store.sessions"),
    ("records.turns", "Turn", "store.turn(source, text)"),
    ("records.transcript", "Transcript", "store.transcript(session_id)"),
    ("records.usage", "Ledger", "store.usage"),
    ("records.people", "People", "store.people"),
    ("records.inbox", "Inbox", "store.inbox"),
    ("records.outbox", "Outbox", "store.outbox"),
    ("records.schedules", "Schedules", "store.schedules"),
)
# Public only because the async side calls it.
WITHIN = {"abandon", "busy", "give_up", "ignore", "leave", "listen", "pause", "renew"}
WITHIN |= {"try_to_enter"}
# What a setting means, where the docstring of its class has no line for it.
MEANINGS = {
    "Policies.default": "for every chat that no other entry names",
    "Policies.platforms": "by the name of the platform; asked first",
    "Policies.chat_types": "by the type of the chat; asked second",
    "ResetPolicy.mode": "which rules hold: silence (`idle`), the hour (`daily`), `both` or `none`",
    "ResetPolicy.at_hour": "the hour of the daily rule, 0 to 23",
    "ResetPolicy.idle_minutes": "how long a silence the idle rule allows",
    "ResetPolicy.notify": "whether the person should be told that the session ended",
    "Budget.per": "whose usage is added up",
    "Budget.period": "since when; a session's limit holds for its whole life",
    "Budget.usd": "the limit in dollars",
    "Budget.tokens": "the limit in tokens",
    "Budget.only": "the one person, platform or session it is for; None: each of them",
    "HomeChannel.chat_id": "the id of the chat",
    "HomeChannel.name": "how the agent is told of it",
    "HomeChannel.thread_id": "a thread in that chat",
}

HEAD = """# Reference

This page is made from the code: `python scripts/make_reference.py`. The other pages explain; this
one lists. The same calls, to be awaited, are in `tertulia.aio`: see [async](async.md). The commands
are in [the command line](cli.md).
"""
_LISTED = re.compile(r" {0,4}(\w+) {2,}(\S.*)")


class Field(NamedTuple):
    name: str
    type: str
    default: str


def main() -> None:
    TARGET.write_text(written(), encoding="utf-8")


def written() -> str:
    """The page as it should be."""
    parts = (HEAD, *_settings(), *_calls(), *_values(), *_errors())
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _settings() -> Iterator[str]:
    yield "## Settings\n\nAll are frozen values: `tertulia.open(where, settings=Settings(…))`."
    for module, name in SETTINGS:
        told = dict(_listed(module, name))
        fields = _fields(module, name)
        _refuse_strangers(name, {field.name for field in fields})
        lines = [f"### {name}", "", _summary(_class(module, name)), ""]
        lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
        for field in fields:
            cells = (f"`{field.name}`", _code(field.type), _code(field.default))
            lines.append(f"| {' | '.join(cells)} | {_meaning(name, field.name, told)} |")
        yield "\n".join(lines)


def _calls() -> Iterator[str]:
    opening = next(node for node in _functions(_module("store")) if node.name == "open")
    yield f"## Calls\n\n{_call(opening, 'tertulia.')}"
    for module, name, where in CALLS:
        node = _class(module, name)
        lines = [f"### {name}: `{where}`", "", _summary(node), ""]
        calls = (item for item in _functions(node) if name != "Turn" or item.name not in WITHIN)
        yield "\n".join((*lines, *map(_call, calls)))


def _values() -> Iterator[str]:
    yield "## Values\n\nWhat the calls take and give. All are frozen."
    for module, name in VALUES:
        node = _class(module, name)
        lines = [f"### {name}", "", _summary(node), ""]
        for field in _fields(module, name):
            default = f" = {field.default}" if field.default else ""
            lines.append(f"- `{field.name}: {field.type}{default}`")
        calls = (
            _call(item, f"{name}." if _is(item, "classmethod") else "") for item in _functions(node)
        )
        yield "\n".join((*lines, *calls))


def _errors() -> Iterator[str]:
    yield (
        "## Errors\n\nWhatever Tertulia raises is a `tertulia.Error`. Each has a `code`, a `hint` "
        "that tells the\nnext step where there is one, and `retryable`: whether the same call can "
        "succeed later."
    )
    rows = ["| error | under | code | retryable | meaning |", "|---|---|---|---|---|"]
    known: dict[str, tuple[str, bool]] = {}
    for node in _module("errors").body:
        if not isinstance(node, ast.ClassDef):
            continue
        base = ast.unparse(node.bases[0])
        code, is_retryable = known.get(base, ("", False))
        own = {field.name: field.default for field in _assigned(node)}
        code = ast.literal_eval(own["code"]) if "code" in own else code
        if "retryable" in own:
            is_retryable = own["retryable"] == "True"
        known[node.name] = code, is_retryable
        under = f"`{base}`" if base in known else ""
        word = "yes" if is_retryable else "no"
        rows.append(f"| `{node.name}` | {under} | `{code}` | {word} | {_summary(node)} |")
    yield "\n".join(rows)


# -- reading the code


@cache
def _module(name: str) -> ast.Module:
    return ast.parse((SOURCES / f"{name.replace('.', '/')}.py").read_text("utf-8"))


@cache
def _choices() -> dict[str, str]:
    """What is allowed for each name that stands for a few words: `Name = Literal["a", "b"]`."""
    found = {}
    for path in sorted(SOURCES.glob("**/*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
                given = node.value
                if ast.unparse(given.value) == "Literal" and isinstance(given.slice, ast.Tuple):
                    words = " | ".join(ast.unparse(word) for word in given.slice.elts)
                    found[ast.unparse(node.targets[0])] = words
    return found


def _type(node: ast.expr | None) -> str:
    """An annotation, with the words that are allowed instead of the name for them."""
    text = "None" if node is None else ast.unparse(node)
    return re.sub(r"\w+", lambda name: _choices().get(name[0], name[0]), text)


def _class(module: str, name: str) -> ast.ClassDef:
    classes = (node for node in _module(module).body if isinstance(node, ast.ClassDef))
    return next(node for node in classes if node.name == name)


def _fields(module: str, name: str) -> list[Field]:
    """The fields of a value, then those of a base that stands in the same module."""
    node = _class(module, name)
    found = list(_assigned(node))
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id.startswith("_"):
            found += _fields(module, base.id)
    return found


def _assigned(node: ast.ClassDef) -> Iterator[Field]:
    for item in node.body:
        if isinstance(item, ast.AnnAssign):
            default = ast.unparse(item.value) if item.value else ""
            yield Field(ast.unparse(item.target), _type(item.annotation), default)
        elif isinstance(item, ast.Assign):
            yield Field(ast.unparse(item.targets[0]), "", ast.unparse(item.value))


def _functions(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """The public ones."""
    found = (item for item in node.body if isinstance(item, ast.FunctionDef))
    return (item for item in found if not item.name.startswith("_"))


def _is(item: ast.FunctionDef, word: str) -> bool:
    return any(word in ast.unparse(decorator) for decorator in item.decorator_list)


def _call(item: ast.FunctionDef, before: str = "") -> str:
    """One entry: how it is called, and what its docstring begins with."""
    given = "" if _is(item, "property") else f"({', '.join(_parameters(item.args))})"
    arrow = ": " if _is(item, "property") else " -> "
    words = _summary(item)
    shown = f"- `{before}{item.name}{given}{arrow}{_type(item.returns)}`"
    return f"{shown}\n  {words}" if words else shown


def _parameters(given: ast.arguments) -> Iterator[str]:
    """Each parameter with its type and default."""
    required = len(given.args) - len(given.defaults)
    for place, item in enumerate(given.args):
        if item.arg not in ("self", "cls"):
            yield _parameter(item, given.defaults[place - required] if place >= required else None)
    if given.kwonlyargs:
        yield "*"
    for item, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(item, default)
    if given.kwarg:
        yield f"**{_parameter(given.kwarg, None)}"


def _parameter(item: ast.arg, default: ast.expr | None) -> str:
    text = f"{item.arg}: {_type(item.annotation)}"
    return text if default is None else f"{text} = {ast.unparse(default)}"


def _summary(node: ast.ClassDef | ast.FunctionDef) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())


def _listed(module: str, name: str) -> Iterator[tuple[str, str]]:
    """Fields with their meaning, where a docstring lists them as `name    meaning`."""
    for line in (ast.get_docstring(_class(module, name)) or "").splitlines():
        if found := _LISTED.fullmatch(line):
            yield found[1], found[2].strip()


def _meaning(name: str, field: str, told: dict[str, str]) -> str:
    entry = f"{name}.{field}"
    if field in told and entry in MEANINGS:
        raise LookupError(f"{entry} has its meaning in the docstring: remove it from MEANINGS")
    if field not in told and entry not in MEANINGS:
        raise LookupError(f"{entry} needs a line in the docstring of {name}, or in MEANINGS")
    return (told.get(field) or MEANINGS[entry]).replace("|", r"\|")


def _refuse_strangers(name: str, fields: set[str]) -> None:
    for entry in MEANINGS:
        owner, _, field = entry.partition(".")
        if owner == name and field not in fields:
            raise LookupError(f"{entry} is no setting any more: remove it from MEANINGS")


def _code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|") if text else ""


if __name__ == "__main__":
    main()
