"""Read the configuration, and report every mistake with the line or the variable it is in.

The values are checked against the types of the sections, so that the allowed keys and values are
defined once; a field that is marked `RUNTIME_ONLY` is no key. A key path is a tuple such as
`("store", "policies", "default", "mode")`. Its origin, a line of the file or a variable, is looked
up only to report a mistake.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect
from msgspec.structs import fields, replace

from tertulia.config.schema import Config
from tertulia.errors import ConfigError
from tertulia.platforms.registry import PLATFORMS
from tertulia.platforms.settings import PlatformSection

PREFIX = "TERTULIA_"
HIDDEN = "(hidden)"

KeyPath = tuple[str | int, ...]

_MAX_PROBLEMS = 50

_ACCOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_TYPE_NAMES: dict[type, str] = {
    inspect.StrType: "a text",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.BoolType: "true or false",
}


class HiddenValue(str):
    """A secret text that its repr does not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN


class LoadedConfig(NamedTuple):
    """A configuration, the file it was read from, and the variables that override the file."""

    config: Config
    path: str | None
    variables: tuple[str, ...] = ()


def load_config(path: str | None, environ: Mapping[str, str]) -> LoadedConfig:
    """Return the configuration in a file (None: the defaults) and in environment variables.

    Raises `ConfigError` if the file cannot be read or anything in it is wrong.
    """
    values, origin = _read_file(path) if path is not None else ({}, Origin("", {}))
    names = _apply_variables(values, environ, origin)
    return LoadedConfig(ConfigReader(origin).config(values), path, names)


def read_values(values: dict[str, Any], environ: Mapping[str, str]) -> Config:
    """Return the configuration of values that are not in a file, and of environment variables."""
    origin = Origin("", {})
    _apply_variables(values, environ, origin)
    return ConfigReader(origin).config(values)


def find_problems(path: str | None, environ: Mapping[str, str]) -> list[ConfigError]:
    """Return every mistake in a file and in variables, in the order in which they are detected.

    After a mistake its key is removed and the rest is read again, so that one run reports them all.
    """
    try:
        values, origin = _read_file(path) if path is not None else ({}, Origin("", {}))
        _apply_variables(values, environ, origin)
    except ConfigError as problem:
        return [problem]
    problems: list[ConfigError] = []
    while len(problems) < _MAX_PROBLEMS:
        try:
            ConfigReader(origin).config(values)
        except ConfigError as problem:
            problems.append(problem)
            if not _remove_key(values, problem.field or ""):
                break
        else:
            break
    return problems


def _remove_key(values: dict[str, Any], field: str) -> bool:
    """Remove a key, or the nearest table around it that exists; return False if there is none.

    A list is removed as a whole: without one item the others would be reported with wrong lines.
    """
    parts = field.partition("[")[0].split(".")
    while parts:
        table: Any = values
        for part in parts[:-1]:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict) and parts[-1] in table:
            del table[parts[-1]]
            return True
        parts.pop()
    return False


class Origin:
    """The line of the file, or the variable, that each key was set by."""

    def __init__(self, path: str, lines: Mapping[KeyPath, int]) -> None:
        self.path = path
        self._lines = lines
        self._variables: dict[KeyPath, str] = {}

    def note_variable(self, key_path: KeyPath, name: str) -> None:
        """Record that a variable set this key."""
        self._variables[key_path] = name

    def resolve_path(self, key_path: KeyPath, path: str) -> str:
        """Return a path in the file relative to its folder; any other path or URL unchanged."""
        if not self.path or not path or "://" in path or key_path in self._variables:
            return path
        folder = os.path.dirname(os.path.abspath(self.path))
        return os.path.join(folder, os.path.expanduser(path))

    def describe(self, key_path: KeyPath) -> str:
        """Return the variable, or the file and its line, with the key, for an error message."""
        key = dotted(key_path)
        while key_path:
            if key_path in self._variables:
                return f"{self._variables[key_path]} ({key})"
            if key_path in self._lines:
                return f"{self.path}, line {self._lines[key_path]}: {key}"
            key_path = key_path[:-1]
        return f"{self.path}: {key}" if self.path else key


class ConfigReader:
    """Converts plain values into the sections, following their types."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def config(self, values: Mapping[str, Any]) -> Config:
        """Return the configuration; raise `ConfigError` for the first mistake."""
        types = {field.name: inspect.type_info(field.type) for field in fields(Config)}
        self._require_allowed(values, types, ())
        read_sections = {
            name: self.value(types[name], value, (name,))
            for name, value in values.items()
            if name != "platforms"
        }
        platforms = self._platforms(values.get("platforms", {}))
        try:
            return Config(**read_sections, platforms=platforms)
        except ConfigError as problem:
            key_path = _parse_path(problem.field or "")
            message = f"{self._origin.describe(key_path)}: {problem.message}"
            raise ConfigError(message, hint=problem.hint, field=problem.field) from problem

    def value(self, kind: inspect.Type, value: Any, key_path: KeyPath) -> Any:  # noqa: PLR0911
        """Return a value converted to a type; raise a `ConfigError` that names its key."""
        if isinstance(kind, inspect.Metadata):
            extra = kind.extra or {}
            if extra.get("may_be_text") and isinstance(value, str):
                value = [value]  # a list of one item
            inner = self.value(kind.type, value, key_path)
            if extra.get("is_path"):
                return self._origin.resolve_path(key_path, inner)
            return HiddenValue(inner) if extra.get("is_secret") else inner
        if isinstance(kind, inspect.UnionType) and len(struct_types(kind)) > 1:
            return self._tagged(kind, value, key_path)
        if isinstance(kind, inspect.UnionType):
            return self.value(_without_none(kind), value, key_path)
        if isinstance(kind, inspect.StructType):
            return self._struct(kind, value, key_path)
        if isinstance(kind, inspect.DictType):
            table = self._table(value, key_path)
            return {
                name: self.value(kind.value_type, item, (*key_path, name))
                for name, item in table.items()
            }
        if isinstance(kind, inspect.VarTupleType):
            if not isinstance(value, list):
                raise self._invalid(key_path, f"is {_safe_repr(value)}", "Give a list: [ … ].")
            return tuple(
                self.value(kind.item_type, item, (*key_path, index))
                for index, item in enumerate(value)
            )
        if isinstance(kind, inspect.LiteralType):
            return self._choice(kind.values, value, key_path)
        return self._plain(kind, value, key_path)

    def _platforms(self, value: Any) -> dict[str, Any]:
        platforms = {}
        for name, section in self._table(value, ("platforms",)).items():
            self._require_allowed([name], PLATFORMS, ("platforms",))
            platforms[name] = self._platform(name, section)
        return platforms

    def _platform(self, name: str, value: Any) -> PlatformSection:
        """Return the section of a platform with those of its further accounts.

        A section that has only `accounts` configures no account of its own.
        """
        key_path: KeyPath = ("platforms", name)
        table = dict(self._table(value, key_path))
        tables = self._table(table.pop("accounts", {}), (*key_path, "accounts"))
        accounts = {
            account: self._struct(
                _platform_type(name), inner, (*key_path, "accounts", self._account_name(account))
            )
            for account, inner in tables.items()
        }
        if accounts and not table:
            return PlatformSection(enabled=False, accounts=accounts)
        section: PlatformSection = self._struct(_platform_type(name), table, key_path)
        return replace(section, accounts=accounts)

    def _account_name(self, account: str) -> str:
        if not _ACCOUNT.fullmatch(account):
            raise ConfigError(
                f"{account!r} cannot be the name of an account.",
                hint="Use up to 64 letters, digits, '-', '_' and '.'.",
                field="platforms",
            )
        return account

    def _tagged(self, kind: inspect.UnionType, value: Any, key_path: KeyPath) -> Any:
        """Return the struct whose tag the table names; without a tag, the first one."""
        table = self._table(value, key_path)
        by_tag = {str(struct.tag): struct for struct in struct_types(kind)}
        first, *_ = by_tag.values()
        tag_key = str(first.tag_field)
        tag = self._choice(sorted(by_tag), table.get(tag_key, str(first.tag)), (*key_path, tag_key))
        struct = by_tag[tag]
        all_keys = {key: None for other in by_tag.values() for key in settable_fields(other)}
        self._require_allowed(table, [tag_key, *all_keys], key_path)
        names = settable_fields(struct)
        for name in table:
            if name != tag_key and name not in names:
                problem = f"is no key of the {tag_key} {tag!r}"
                raise self._invalid(
                    (*key_path, name), problem, f"It takes: {', '.join(sorted(names))}."
                )
        for name, field in names.items():
            if field.required and not table.get(name):
                problem = f"is {tag!r}, which needs {name}"
                raise self._invalid((*key_path, tag_key), problem, f"Set {name}.")
        keys = {name: item for name, item in table.items() if name != tag_key}
        return self._struct(struct, keys, key_path)

    def _struct(self, kind: inspect.StructType, value: Any, key_path: KeyPath) -> Any:
        table = self._table(value, key_path)
        names = settable_fields(kind)
        self._require_allowed(table, names, key_path)
        values = {
            field.name: self.value(field.type, table[name], (*key_path, name))
            for name, field in names.items()
            if name in table
        }
        for name, field in names.items():
            if field.required and name not in table:
                raise self._invalid(key_path, f"has no {name}", f"Add: {name} = …")
        try:
            return kind.cls(**values)
        except ConfigError as problem:
            at = (*key_path, problem.field) if problem.field in names else key_path
            message = f"{self._origin.describe(at)}: {problem.message}"
            raise ConfigError(message, hint=problem.hint, field=dotted(at)) from problem

    def _table(self, value: Any, key_path: KeyPath) -> dict[str, Any]:
        if not isinstance(value, dict):
            hint = f"Give a table: [{dotted(key_path)}]"
            raise self._invalid(key_path, f"is {_safe_repr(value)}", hint)
        return value

    def _choice(self, allowed: Iterable[Any], value: Any, key_path: KeyPath) -> Any:
        names = [str(choice) for choice in allowed]
        if value not in names:
            hint = _allowed_hint(str(value), names)
            raise self._invalid(key_path, f"is {_safe_repr(value)}", hint)
        return value

    def _plain(self, kind: inspect.Type, value: Any, key_path: KeyPath) -> Any:
        if isinstance(kind, inspect.AnyType):
            return value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        has_type = {
            inspect.StrType: isinstance(value, str),
            inspect.BoolType: isinstance(value, bool),
            inspect.IntType: is_number and isinstance(value, int),
            inspect.FloatType: is_number,
        }[type(kind)]
        if not has_type:
            hint = f"Give {_TYPE_NAMES[type(kind)]}."
            raise self._invalid(key_path, f"is {_safe_repr(value)}", hint)
        for limit, word, is_met in _limits(kind, value):
            if not is_met:
                raise self._invalid(key_path, f"is {value}", f"Give a number {word} {limit}.")
        return value

    def _require_allowed(
        self, names: Iterable[str], allowed: Iterable[str], key_path: KeyPath
    ) -> None:
        for name in names:
            if name not in allowed:
                at = (*key_path, name)
                is_platform = key_path == ("platforms",)
                noun = "platform" if is_platform else "key" if key_path else "section"
                raise ConfigError(
                    f"{self._origin.describe(at)}: there is no such {noun}.",
                    hint=_allowed_hint(name, list(allowed)),
                    field=dotted(at),
                )

    def _invalid(self, key_path: KeyPath, problem: str, hint: str) -> ConfigError:
        origin = self._origin.describe(key_path)
        return ConfigError(f"{origin} {problem}.", hint=hint, field=dotted(key_path))


def dotted(key_path: KeyPath) -> str:
    """Return a key path as text: `store.budgets[0].usd`."""
    text = ""
    for part in key_path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _parse_path(text: str) -> KeyPath:
    """Reverse `dotted`."""
    parts = re.findall(r"[^.\[\]]+", text)
    return tuple(int(part) if part.isdecimal() else part for part in parts)


# -- the file

_MAX_CHARACTERS = 1_000_000  # a device such as /dev/zero never ends


def _read_file(path: str) -> tuple[dict[str, Any], Origin]:
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read(_MAX_CHARACTERS + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"There is no configuration at {path}.",
            hint=f"Create it with: tertulia config init --config {shlex.quote(path)}",
            field="config",
        ) from None
    except (OSError, UnicodeError) as problem:
        raise ConfigError(
            f"The configuration {path} cannot be read: {problem}.",
            hint="It must be a UTF-8 text file that this user may read.",
            field="config",
        ) from problem
    if len(text) > _MAX_CHARACTERS:
        raise ConfigError(
            f"The configuration {path} has more than {_MAX_CHARACTERS:,} characters.",
            hint="Check the path: a configuration is a short TOML file.",
            field="config",
        )
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise ConfigError(
            f"{path} is not TOML: {problem}.", hint="Correct that line.", field="config"
        ) from problem
    # The first line of a key wins: a later header repeats its parents.
    return values, Origin(path, dict(reversed([*_key_lines(text)])))


def _key_lines(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Yield every key path in a TOML text with its line number; a header has all its parents.

    A statement is the shortest run of lines that is valid TOML by itself.
    """
    header: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    statement, first = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        statement, first = (f"{statement}\n{line}", first) if statement else (line, number)
        try:
            values = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if re.match(r"\s*\[", statement):
            header = _header_path(values, counts)
            for length in range(1, len(header) + 1):
                yield header[:length], first
        else:
            for key_path in _key_paths(values):
                yield (*header, *key_path), first
        statement = ""


def _header_path(value: Any, counts: dict[KeyPath, int]) -> KeyPath:
    """Return the key path that a `[table]` or the next item of `[[tables]]` begins.

    `counts` has the index of the newest item of each list of tables, and is updated.
    """
    key_path: KeyPath = ()
    while value:
        if isinstance(value, list):
            counts[key_path] = counts.get(key_path, -1) + 1
            key_path, value = (*key_path, counts[key_path]), value[0]
        else:
            name, value = next(iter(value.items()))
            key_path = (*key_path, name)
            if key_path in counts and not isinstance(value, list):
                key_path = (*key_path, counts[key_path])
    return key_path


def _key_paths(value: Any, key_path: KeyPath = ()) -> Iterator[KeyPath]:
    if key_path:
        yield key_path
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for name, item in items:
        yield from _key_paths(item, (*key_path, name))


# -- environment variables


def _apply_variables(
    values: dict[str, Any], environ: Mapping[str, str], origin: Origin
) -> tuple[str, ...]:
    """Override the values of the file with those of variables; return the names that were used.

    Raise `ConfigError` for a variable whose name is almost that of a setting.
    """
    key_paths = variables()
    names = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or not environ[name]:
            continue
        key_path = key_paths.get(name) or _platform_key_path(name)
        if key_path is None:
            _refuse_misspelt(name, key_paths)
            continue
        kind = _type_at(key_path)
        origin.note_variable(key_path, name)
        _put(values, key_path, _from_text(kind, environ[name], name))
        names.append(name)
    return tuple(names)


def variables() -> dict[str, KeyPath]:
    """Return the key path that each variable sets: TERTULIA_AGENT_MODEL sets agent.model."""
    key_paths: dict[str, KeyPath] = {f"{PREFIX}STORE": ("store", "where")}
    for section in fields(Config):
        kind = inspect.type_info(section.type)
        for key_path in _leaf_paths(kind, (section.name,)):
            key_paths[PREFIX + "_".join(map(str, key_path)).upper()] = key_path
    return key_paths


def _leaf_paths(kind: inspect.Type, key_path: KeyPath) -> Iterator[KeyPath]:
    structs = _section_types(kind)
    for struct in structs:
        if struct.tag_field is not None:
            yield (*key_path, struct.tag_field)
        for name, field in settable_fields(struct).items():
            yield from _leaf_paths(field.type, (*key_path, name))
    if not structs and not _is_table(kind):
        yield key_path


def _section_types(kind: inspect.Type) -> list[inspect.StructType]:
    """Return the structs of a section that is always there; an optional table has no variables."""
    has_none = isinstance(kind, inspect.UnionType) and kind.includes_none
    return [] if has_none else struct_types(kind)


def _is_table(kind: inspect.Type) -> bool:
    items = kind.item_type if isinstance(kind, inspect.VarTupleType) else kind
    return isinstance(items, inspect.DictType | inspect.StructType)


def _platform_key_path(name: str) -> KeyPath | None:
    """Return the key path of a platform's variable, or None if the name is not one.

    TERTULIA_PLATFORMS_TELEGRAM_ADMISSION sets platforms.telegram.admission.
    """
    rest = name.removeprefix(f"{PREFIX}PLATFORMS_").lower()
    if rest == name.removeprefix(PREFIX).lower():
        return None
    for platform in PLATFORMS:
        prefix = platform.replace("-", "_") + "_"
        if rest.startswith(prefix):  # before the platform is loaded
            key = rest.removeprefix(prefix)
            if key in settable_fields(_platform_type(platform)):
                return ("platforms", platform, key)
    return None


def _refuse_misspelt(name: str, key_paths: Mapping[str, KeyPath]) -> None:
    """Raise `ConfigError` if a name starts like a section; other variables are not ours."""
    prefixes = {f"{PREFIX}{field.name.upper()}_" for field in fields(Config)}
    if any(name.startswith(prefix) for prefix in prefixes):
        raise ConfigError(
            f"Unknown setting in environment variable {name}.",
            hint=_allowed_hint(name, list(key_paths)),
            field=name,
        )


def _type_at(key_path: KeyPath) -> inspect.Type:
    kind: inspect.Type = inspect.type_info(Config)
    if key_path[0] == "platforms":
        kind, key_path = _platform_type(str(key_path[1])), key_path[2:]
    for name in key_path:
        types = {
            key: field.type
            for struct in struct_types(kind)
            for key, field in settable_fields(struct).items()
        }
        kind = types.get(str(name), inspect.StrType())  # the key of a tag is a text
    return kind


def _from_text(kind: inspect.Type, text: str, name: str) -> Any:
    """Return the value of a variable: a text unchanged, any other type parsed as TOML."""
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        kind = kind.type if isinstance(kind, inspect.Metadata) else _without_none(kind)
    if isinstance(kind, inspect.StrType | inspect.LiteralType):
        return text
    try:
        return tomllib.loads(f"it = {text}")["it"]
    except tomllib.TOMLDecodeError:
        if isinstance(kind, inspect.VarTupleType):
            raise ConfigError(
                f"{name} is {text!r}.", hint='Give a list, such as ["a", "b"].', field=name
            ) from None
        return text  # ConfigReader reports the type it should have


def _put(values: dict[str, Any], key_path: KeyPath, value: Any) -> None:
    table = values
    for name in key_path[:-1]:
        inner = table.setdefault(str(name), {})
        if not isinstance(inner, dict):
            return  # ConfigReader reports that it is not a table
        table = inner
    table[str(key_path[-1])] = value


# -- output without secrets


def to_redacted_dict(config: Config) -> dict[str, Any]:
    """Return the configuration as plain values, with its secrets replaced."""
    sections: dict[str, Any] = {
        "platforms": {name: _plain_section(item) for name, item in config.platforms.items()},
        "agents": {name: _plain_struct(options) for name, options in config.agents.items()},
        "routes": [_plain_struct(route) for route in config.routes],
    }
    names = [field.name for field in fields(Config)]
    return {
        name: sections[name] if name in sections else _plain_struct(getattr(config, name))
        for name in names
    }


def _plain_section(section: PlatformSection) -> dict[str, Any]:
    accounts = {name: _plain_struct(inner) for name, inner in section.accounts.items()}
    return _plain_struct(section) | ({"accounts": accounts} if accounts else {})


def _plain_struct(value: msgspec.Struct) -> dict[str, Any]:
    kind = _struct_type(type(value))
    tag = {} if kind.tag_field is None else {kind.tag_field: kind.tag}
    return tag | {
        name: _plain_value(field.type, getattr(value, field.name))
        for name, field in settable_fields(kind).items()
    }


def _plain_value(kind: inspect.Type, value: Any) -> Any:  # noqa: PLR0911
    if value is None:
        return None
    if isinstance(kind, inspect.Metadata):
        extra = kind.extra or {}
        if extra.get("is_secret"):
            return HIDDEN
        if extra.get("is_command"):
            return [*value[:1], *(HIDDEN for _ in value[1:])]
        if extra.get("is_address"):
            return _without_password(value)
        return _plain_value(kind.type, value)
    if isinstance(kind, inspect.UnionType):
        return _plain_value(_without_none(kind), value)
    if isinstance(kind, inspect.StructType):
        return _plain_struct(value)
    if isinstance(kind, inspect.DictType):
        return {name: _plain_value(kind.value_type, item) for name, item in value.items()}
    if isinstance(kind, inspect.VarTupleType):
        return [_plain_value(kind.item_type, item) for item in value]
    return value


def _without_password(address: str) -> str:
    from tertulia.storage.connect import public_name

    name = public_name(address)
    name = re.sub(r"(?<=://)[^/@\s]*@", f"{HIDDEN}@", name)
    parameter = r"(?i)([?&][^=&]*(?:key|token|secret|password)[^=&]*=)[^&]*"
    return re.sub(parameter, rf"\1{HIDDEN}", name)


# -- types and hints


def struct_types(kind: inspect.Type) -> list[inspect.StructType]:
    """Return the structs that a value of this type may be: none, one, or one for each tag."""
    types = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return [item for item in types if isinstance(item, inspect.StructType)]


def settable_fields(kind: inspect.StructType) -> dict[str, inspect.Field]:
    """Return the fields that the configuration can set, by their keys."""
    return {
        field.encode_name: field
        for field in kind.fields
        if not (
            isinstance(field.type, inspect.Metadata)
            and (field.type.extra or {}).get("is_runtime_only")
        )
    }


def _struct_type(struct: type[msgspec.Struct]) -> inspect.StructType:
    kind = inspect.type_info(struct)
    assert isinstance(kind, inspect.StructType)
    return kind


def _platform_type(name: str) -> inspect.StructType:
    return _struct_type(PLATFORMS[name].settings)


def _without_none(kind: inspect.UnionType) -> inspect.Type:
    return next(item for item in kind.types if not isinstance(item, inspect.NoneType))


def _limits(kind: inspect.Type, value: Any) -> Iterator[tuple[Any, str, bool]]:
    """Yield each limit of a number type, its word, and whether the value meets it."""
    words = {"gt": "above", "ge": "from", "lt": "below", "le": "up to"}
    for name, word in words.items():
        limit = getattr(kind, name, None)
        if limit is not None:
            is_met = {"gt": value > limit, "ge": value >= limit, "lt": value < limit,
                      "le": value <= limit}[name]  # fmt: skip
            yield limit, word, is_met


def _allowed_hint(text: str, names: list[str]) -> str:
    """Return a hint with the closest name, or with all names if none is close."""
    closest = difflib.get_close_matches(text, names, n=1, cutoff=0.6)
    if closest:
        return f"Did you mean {closest[0]}?"
    return f"Allowed: {', '.join(names)}." if len(names) < 40 else "See docs/config.md."


def _safe_repr(value: Any) -> str:
    """Return a short description of a value; a long text could be a secret and is not shown."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return repr(value) if not isinstance(value, str) or len(value) <= 40 else "a long text"
