"""Generate docs/config.md from the configuration classes.

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

from tertulia.cli.output import display_json
from tertulia.config.schema import PLATFORM_SECTIONS, Config, PlatformConfig

_HEAD = """\
# The configuration

No setting is required: a store and `tertulia chat` work without a configuration file. This page is
generated from the code: `python -m tertulia.cli.config_reference > docs/config.md`.

The configuration is one TOML file: the one that `--config` names, else the one in the variable
`TERTULIA_CONFIG`, else `config.toml` in the platform's config folder (on Linux
`~/.config/tertulia`, on macOS `~/Library/Application Support/tertulia`, on Windows
`%LOCALAPPDATA%\\tertulia`). Paths in it are relative to its folder.

```console
$ tertulia config init --agent openai --model gpt-5-mini --key-env OPENAI_API_KEY
$ tertulia config show
$ tertulia config show --json
```

Environment variables override the file: `TERTULIA_AGENT_MODEL` is `agent.model`,
`TERTULIA_STORE_POLICIES_DEFAULT_MODE` is `store.policies.default.mode`, and
`TERTULIA_PLATFORMS_TELEGRAM_ADMISSION` is `platforms.telegram.admission`; `TERTULIA_STORE` is short
for `store.where`. Text is written without quotes, every other value as in TOML. Options such as
`--store` override both.

An error names the line and the key, and suggests the nearest valid name; nothing is started:

```text
error: config.toml, line 3: agent.modle: there is no such key.
hint: Did you mean model?
```

Keep keys and tokens in environment variables, and write the names of the variables into
`api_key_env` and `token_env`. `tertulia config show` hides the values of keys, tokens, headers, a
program's arguments and variables, and passwords in addresses; logs contain none of them.
"""


def reference() -> str:
    """Return the whole page."""
    lines = [_HEAD.rstrip()]
    for field in msgspec.structs.fields(Config):
        if field.name == "platforms":
            lines += _section(PlatformConfig, "platforms.NAME")
            for name, kind in PLATFORM_SECTIONS.items():
                lines += _section(kind, f"platforms.{name}")
        else:
            lines += _section(field.type, field.name)
    return "\n".join(lines) + "\n"


def _section(kind: type, path: str, *, is_list: bool = False) -> Iterator[str]:
    """Yield a section with its keys, followed by the sections of its inner tables."""
    summary, descriptions = _parse_docstring(kind)
    yield from ("", f"## {f'[[{path}]]' if is_list else f'[{path}]'}", "", summary, "")
    yield from ("| key | values | default | |", "|---|---|---|---|")
    inner_sections: list[Iterator[str]] = []
    for field in msgspec.structs.fields(kind):
        allowed = inspect.type_info(field.type)
        inner = _inner_table(allowed)
        if inner is not None:
            name = f"{path}.{field.name}"
            is_table = isinstance(_unwrap(allowed), inspect.DictType)
            is_many = isinstance(_unwrap(allowed), inspect.VarTupleType)
            inner_sections.append(
                _section(inner, f"{name}.NAME" if is_table else name, is_list=is_many)
            )
        description = descriptions.get(field.name, "")
        yield f"| `{field.name}` | {_values(allowed)} | {_default(field)} | {description} |"
    for section in inner_sections:
        yield from section


def _parse_docstring(kind: type) -> tuple[str, dict[str, str]]:
    """Return the summary of a class and the descriptions of its keys, both from its docstring."""
    text = source.cleandoc(kind.__doc__ or "")
    summary, _, table = text.partition("\n\n")
    descriptions: dict[str, str] = {}
    name = ""
    for line in table.splitlines():
        match = re.match(r"(\w+) {2,}(\S.*)", line)
        if match:
            name, descriptions[match[1]] = match[1], match[2]
        elif name and line.startswith("  "):
            descriptions[name] += f" {line.strip()}"
    if not descriptions and table:
        summary = " ".join(text.split())
    escaped = {name: text.replace("|", "\\|") for name, text in descriptions.items()}
    return " ".join(summary.split()), escaped


def _unwrap(kind: inspect.Type) -> inspect.Type:
    """Return a type without its metadata, and without None as an alternative."""
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        types = [] if isinstance(kind, inspect.Metadata) else kind.types
        required = [item for item in types if not isinstance(item, inspect.NoneType)]
        kind = kind.type if isinstance(kind, inspect.Metadata) else required[0]
    return kind


def _inner_table(kind: inspect.Type) -> type | None:
    """Return the class of the tables that a key contains, or None if it contains none."""
    kind = _unwrap(kind)
    if isinstance(kind, inspect.VarTupleType):
        kind = _unwrap(kind.item_type)
    elif isinstance(kind, inspect.DictType):
        kind = _unwrap(kind.value_type)
    return kind.cls if isinstance(kind, inspect.StructType) else None


def _values(kind: inspect.Type) -> str:
    """Describe the values that a key may have."""
    kind = _unwrap(kind)
    names: dict[type, str] = {
        inspect.StrType: "text",
        inspect.BoolType: "true, false",
        inspect.AnyType: "anything",
        inspect.StructType: "a table, see below",
    }
    if isinstance(kind, inspect.LiteralType):
        return ", ".join(f'"{value}"' for value in kind.values)
    if isinstance(kind, inspect.VarTupleType):
        return "tables, see below" if _inner_table(kind) else f"a list of {_values(kind.item_type)}"
    if isinstance(kind, inspect.DictType):
        return "tables by name, see below" if _inner_table(kind) else "a table"
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
        return "" if not value else f"`{display_json(value, indent=None)}`"
    if field.default is NODEFAULT:
        return "must be given"
    if field.default is None or isinstance(field.default, msgspec.Struct) or field.default == ():
        return ""
    return f"`{display_json(field.default, indent=None)}`"


if __name__ == "__main__":
    click.echo(reference(), nl=False)
