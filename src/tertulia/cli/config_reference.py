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
from tertulia.config.load import settable_fields, struct_types
from tertulia.config.schema import Config
from tertulia.core.agent_route import AgentRoute
from tertulia.platforms.registry import PLATFORMS, built_in_names
from tertulia.platforms.settings import PlatformSettings

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

## A complete example

A bot on Telegram with a model, a person and a group, a limit on what it costs, the HTTP API for one
program, and logs for machines. Every line may be left out.

```toml
{example}
```

`tertulia config check` reads a file without starting anything and names everything that is wrong.

## Secrets

Keep keys and tokens in environment variables, and write the names of the variables into
`api_key_env` and `token_env`. `tertulia config show` hides the values of keys, tokens, headers, a
program's arguments and variables, and passwords in addresses; logs contain none of them.
"""


EXAMPLE = """
[store]
where = "talk.db"                       # or "postgresql://tertulia@db.example/talk"
zone = "Europe/Madrid"                  # for daily resets and the days of usage

[store.policies.default]
mode = "both"                           # a new session after a silence or each day
at_hour = 4
idle_minutes = 1440

[store.policies.chat_types.group]
mode = "idle"
idle_minutes = 120

[[store.budgets]]
per = "person"
period = "day"
usd = 0.50

[store.retention]
settled_days = 30

[agent]
kind = "openai"                         # also: anthropic, command, http, parrot
model = "gpt-5-mini"
api_key_env = "OPENAI_API_KEY"
instructions = "You are the assistant of a small shop. Be brief."

[agent.retry]
tries = 4

[gateway]
meanwhile = "queue"                     # what a message does that comes during an answer
drain_seconds = 30

[platforms.telegram]
token_env = "TELEGRAM_TOKEN"
owners = ["42"]                         # your own id: `/whoami` tells it
admission = "paired"                    # strangers get a code for the owner
groups = "mention"                      # in groups, answer only what is addressed to the bot

[platforms.local]
plain = false                           # true: for screen readers

[http]
enabled = true
port = 8460

[[http.tokens]]
name = "shop"
role = "member"
token_env = "SHOP_TOKEN"

[log]
level = "info"
format = "json"
"""

_AGENTS = "Further agents by name. Each has the keys of [`[agent]`](#agent)."


def reference() -> str:
    """Return the whole page."""
    lines = [_HEAD.replace("{example}", EXAMPLE.strip()).rstrip()]
    for field in msgspec.structs.fields(Config):
        structs = struct_types(inspect.type_info(field.type))
        if field.name == "platforms":
            lines += _section(_struct_type(PlatformSettings), "platforms.NAME")
            for name in sorted(built_in_names()):
                if PLATFORMS[name].settings is not PlatformSettings:
                    lines += _section(_struct_type(PLATFORMS[name].settings), f"platforms.{name}")
        elif field.name == "agents":
            lines += ["", "## [agents.NAME]", "", _AGENTS]
        elif field.name == "routes":
            lines += _section(_struct_type(AgentRoute), "routes", is_list=True)
        elif len(structs) > 1:
            lines += _tagged_section(structs, field.name)
        else:
            lines += _section(structs[0], field.name)
    return "\n".join(lines) + "\n"


def _tagged_section(structs: list[inspect.StructType], path: str) -> Iterator[str]:
    """Yield a section whose keys depend on the value of one key, the tag."""
    key, default = structs[0].tag_field, structs[0].tag
    yield from ("", f"## [{path}]", "", f"The keys depend on `{key}`; default: `{default}`.")
    inner_sections: dict[str, list[str]] = {}
    for struct in structs:
        summary, _ = _parse_docstring(struct.cls)
        yield from ("", f'### {key} = "{struct.tag}"', "", summary, "")
        yield from _table(struct)
        inner_sections |= {name: [*lines] for name, lines in _inner_sections(struct, path)}
    for lines in inner_sections.values():
        yield from lines


def _section(struct: inspect.StructType, path: str, *, is_list: bool = False) -> Iterator[str]:
    """Yield a section with its keys, followed by the sections of its inner tables."""
    summary, _ = _parse_docstring(struct.cls)
    yield from ("", f"## {f'[[{path}]]' if is_list else f'[{path}]'}", "", summary, "")
    yield from _table(struct)
    for _, lines in _inner_sections(struct, path):
        yield from lines


def _table(struct: inspect.StructType) -> Iterator[str]:
    """Yield the table of the keys; required ones first, inherited ones last."""
    yield from ("| key | values | default | meaning |", "|---|---|---|---|")
    _, descriptions = _parse_docstring(struct.cls)

    def rank(field: inspect.Field) -> tuple[bool, bool, int]:
        classes = [
            kind for kind in struct.cls.__mro__ if field.name in source.get_annotations(kind)
        ]
        return not field.required, field.name != "enabled", -len(classes[-1].__mro__)

    fields = settable_fields(struct).items()
    for key, field in sorted(fields, key=lambda item: rank(item[1])):
        description = descriptions.get(field.name, "")
        yield f"| `{key}` | {_values(field.type)} | {_default(field)} | {description} |"


def _inner_sections(struct: inspect.StructType, path: str) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield the path and the lines of each table inside a section."""
    for key, field in settable_fields(struct).items():
        inner = _inner_table(field.type)
        if inner is not None:
            is_table = isinstance(_unwrap(field.type), inspect.DictType)
            is_list = isinstance(_unwrap(field.type), inspect.VarTupleType)
            name = f"{path}.{key}.NAME" if is_table else f"{path}.{key}"
            yield name, _section(inner, name, is_list=is_list)


def _struct_type(kind: type) -> inspect.StructType:
    struct = inspect.type_info(kind)
    assert isinstance(struct, inspect.StructType)
    return struct


def _parse_docstring(kind: type) -> tuple[str, dict[str, str]]:
    """Return the summary of a class and the descriptions of its keys, own and inherited."""
    descriptions: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct):
            descriptions |= _parse_keys(source.cleandoc(base.__doc__ or ""))
    text = source.cleandoc(kind.__doc__ or "")
    summary = text if not _parse_keys(text) else text.partition("\n\n")[0]
    return " ".join(summary.split()), descriptions


def _parse_keys(text: str) -> dict[str, str]:
    descriptions: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        match = re.match(r"(\w+) {2,}(\S.*)", line)
        if match:
            name, descriptions[match[1]] = match[1], match[2].replace("|", "\\|")
        elif name and line.startswith("  "):
            descriptions[name] += f" {line.strip()}".replace("|", "\\|")
    return descriptions


def _unwrap(kind: inspect.Type) -> inspect.Type:
    """Return a type without its metadata, and without None as an alternative."""
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        types = [] if isinstance(kind, inspect.Metadata) else kind.types
        required = [item for item in types if not isinstance(item, inspect.NoneType)]
        kind = kind.type if isinstance(kind, inspect.Metadata) else required[0]
    return kind


def _inner_table(kind: inspect.Type) -> inspect.StructType | None:
    """Return the type of the tables that a key contains, or None if it contains none."""
    kind = _unwrap(kind)
    if isinstance(kind, inspect.VarTupleType):
        kind = _unwrap(kind.item_type)
    elif isinstance(kind, inspect.DictType):
        kind = _unwrap(kind.value_type)
    return kind if isinstance(kind, inspect.StructType) else None


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
        return "none" if not value else f"`{display_json(value, indent=None)}`"
    if field.default is NODEFAULT:
        return "must be given"
    if isinstance(field.default, msgspec.Struct):
        return "see below"
    if field.default is None or field.default in ((), ""):
        return "none"
    return f"`{display_json(field.default, indent=None)}`"


if __name__ == "__main__":
    click.echo(reference(), nl=False)
