"""The page docs/config.md, made from the types themselves:

python -m tertulia.cli.config_reference > docs/config.md
"""

from __future__ import annotations

import inspect as source
import re
from collections.abc import Iterator
from typing import Any

import click
import msgspec
from msgspec import NODEFAULT, inspect

from tertulia.cli.output import to_json
from tertulia.config.schema import (
    PLATFORM_SECTIONS,
    Config,
    PlatformConfig,
)

_HEAD = """\
# The configuration

Nothing has to be configured: a store, its settings and `tertulia chat` work without a file. This
page is made from the code: `python -m tertulia.cli.config_reference > docs/config.md`.

There is one TOML file: the one that `--config` names, else the one in the variable
`TERTULIA_CONFIG`, else `config.toml` in the platform's config folder (on Linux
`~/.config/tertulia`, on macOS `~/Library/Application Support/tertulia`, on Windows
`%LOCALAPPDATA%\\tertulia`). Paths in it are seen from its own folder.

```console
$ tertulia config init --agent openai --model gpt-5-mini --key-env OPENAI_API_KEY
$ tertulia config show
$ tertulia config show --json
```

Environment variables go over the file: `TERTULIA_AGENT_MODEL` is `agent.model`,
`TERTULIA_STORE_POLICIES_DEFAULT_MODE` is `store.policies.default.mode`, and
`TERTULIA_PLATFORMS_TELEGRAM_ADMISSION` is `platforms.telegram.admission`; `TERTULIA_STORE` is short
for `store.where`. Texts are written as they are, all else as in TOML. Options such as `--store` go
over both.

What is wrong is told with its place and the nearest right name, and nothing is started:

```text
error: config.toml, line 3: agent.modle: there is no such key.
hint: Did you mean model?
```

Keys and tokens are best kept in variables, whose names stand in `api_key_env` and `token_env`.
`tertulia config show` hides the values of keys, tokens, headers, a program's arguments and
variables, and passwords in addresses; logs hold none of them.
"""


def reference() -> str:
    """The whole page."""
    lines = [_HEAD.rstrip()]
    for field in msgspec.structs.fields(Config):
        if field.name == "platforms":
            lines += _struct(PlatformConfig, "platforms.NAME")
            for name, kind in PLATFORM_SECTIONS.items():
                lines += _struct(kind, f"platforms.{name}")
        else:
            lines += _struct(field.type, field.name)
    return "\n".join(lines) + "\n"


def _struct(kind: type, place: str, *, is_list: bool = False) -> Iterator[str]:
    """A section with its keys, and the tables within it after it."""
    about, words = _told(kind)
    yield from ("", f"## {f'[[{place}]]' if is_list else f'[{place}]'}", "", about, "")
    yield from ("| key | values | default | |", "|---|---|---|---|")
    within: list[Iterator[str]] = []
    for field in msgspec.structs.fields(kind):
        allowed = inspect.type_info(field.type)
        inner = _inner(allowed)
        if inner is not None:
            name = f"{place}.{field.name}"
            is_table = isinstance(_bare(allowed), inspect.DictType)
            is_many = isinstance(_bare(allowed), inspect.VarTupleType)
            within.append(_struct(inner, f"{name}.NAME" if is_table else name, is_list=is_many))
        told = words.get(field.name, "")
        yield f"| `{field.name}` | {_values(allowed)} | {_default(field)} | {told} |"
    for section in within:
        yield from section


def _told(kind: type) -> tuple[str, dict[str, str]]:
    """What a docstring says: the section in a sentence, and each key in a line or more."""
    text = source.cleandoc(kind.__doc__ or "")
    about, _, table = text.partition("\n\n")
    words: dict[str, str] = {}
    name = ""
    for line in table.splitlines():
        found = re.match(r"(\w+) {2,}(\S.*)", line)
        if found:
            name, words[found[1]] = found[1], found[2]
        elif name and line.startswith("  "):
            words[name] += f" {line.strip()}"
    if not words and table:
        about = " ".join(text.split())
    return " ".join(about.split()), {name: said.replace("|", "\\|") for name, said in words.items()}


def _bare(kind: inspect.Type) -> inspect.Type:
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        types = [] if isinstance(kind, inspect.Metadata) else kind.types
        known = [one for one in types if not isinstance(one, inspect.NoneType)]
        kind = kind.type if isinstance(kind, inspect.Metadata) else known[0]
    return kind


def _inner(kind: inspect.Type) -> type | None:
    kind = _bare(kind)
    if isinstance(kind, inspect.VarTupleType):
        kind = _bare(kind.item_type)
    elif isinstance(kind, inspect.DictType):
        kind = _bare(kind.value_type)
    return kind.cls if isinstance(kind, inspect.StructType) else None


def _values(kind: inspect.Type) -> str:
    kind = _bare(kind)
    names: dict[type, str] = {
        inspect.StrType: "text",
        inspect.BoolType: "true, false",
        inspect.AnyType: "anything",
        inspect.StructType: "a table, see below",
    }
    if isinstance(kind, inspect.LiteralType):
        return ", ".join(f'"{value}"' for value in kind.values)
    if isinstance(kind, inspect.VarTupleType):
        return "tables, see below" if _inner(kind) else f"a list of {_values(kind.item_type)}"
    if isinstance(kind, inspect.DictType):
        return "tables by name, see below" if _inner(kind) else "a table"
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        noun = "whole number" if isinstance(kind, inspect.IntType) else "number"
        words = (("ge", "from"), ("gt", "above"), ("le", "to"), ("lt", "below"))
        limits = [f"{word} {getattr(kind, name):,}" for name, word in words
                  if getattr(kind, name) is not None]  # fmt: skip
        return " ".join([noun, *limits])
    return names[type(kind)]


def _default(field: Any) -> str:
    if field.default_factory is not NODEFAULT:
        value = field.default_factory()
        return "" if not value else f"`{to_json(value, indent=None)}`"
    if field.default is NODEFAULT:
        return "must be given"
    if field.default is None or isinstance(field.default, msgspec.Struct) or field.default == ():
        return ""
    return f"`{to_json(field.default, indent=None)}`"


if __name__ == "__main__":
    click.echo(reference(), nl=False)
