"""Reading the configuration, and saying of everything wrong in it where it stands.

The values are read along the types in `config.py`, so that what is allowed is written down once.
A place is a path such as `("store", "policies", "default", "mode")`; where it came from (a line of
the file, a variable) is looked up only when something there is wrong.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from tertulia.config import schema as sections
from tertulia.config.schema import (
    Config,
    PlatformConfig,
)
from tertulia.errors import ConfigError
from tertulia.platforms.registry import PLATFORMS

PREFIX = "TERTULIA_"
HIDDEN = "(hidden)"

Place = tuple[str | int, ...]

_KINDS: dict[type, str] = {
    inspect.StrType: "a text",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.BoolType: "true or false",
}


class HiddenValue(str):
    """A secret: it can be used, and is not shown by a repr."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN


class LoadedConfig(NamedTuple):
    """A configuration, the file it was read from, and the variables that were set over it."""

    config: Config
    path: str | None
    variables: tuple[str, ...] = ()


def read(path: str | None, environ: Mapping[str, str]) -> LoadedConfig:
    """The configuration of a file, or the defaults where there is none, and of variables."""
    given, origin = _file(path) if path is not None else ({}, Origin("", {}))
    names = tuple(_set_variables(given, environ, origin))
    return LoadedConfig(Reader(origin).config(given), path, names)


class Origin:
    """Where each place of the configuration was written."""

    def __init__(self, path: str, lines: Mapping[Place, int]) -> None:
        self.path = path
        self._lines = lines
        self._variables: dict[Place, str] = {}

    def note_variable(self, place: Place, name: str) -> None:
        self._variables[place] = name

    def of(self, place: Place) -> str:
        """The place in words: the variable, or the file and the line, and the key."""
        key = dotted(place)
        while place:
            if place in self._variables:
                return f"{self._variables[place]} ({key})"
            if place in self._lines:
                return f"{self.path}, line {self._lines[place]}: {key}"
            place = place[:-1]
        return f"{self.path}: {key}" if self.path else key


class Reader:
    """Turns plain values into the sections, along their types."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def config(self, given: Mapping[str, Any]) -> Config:
        plain = {name: value for name, value in given.items() if name != "platforms"}
        known = [field.name for field in msgspec.structs.fields(Config)]
        self._require_known(plain, known, ())
        types = {field.name: field.type for field in msgspec.structs.fields(Config)}
        made = {
            name: self.value(inspect.type_info(types[name]), value, (name,))
            for name, value in plain.items()
        }
        return Config(**made, platforms=self._platforms(given.get("platforms", {})))

    def value(self, kind: inspect.Type, value: Any, place: Place) -> Any:  # noqa: PLR0911
        """A value of a type, or an error that names its place."""
        if isinstance(kind, inspect.Metadata):
            read = self.value(kind.type, value, place)
            return HiddenValue(read) if (kind.extra or {}).get("is_secret") else read
        if isinstance(kind, inspect.UnionType):
            return self.value(_without_none(kind), value, place)
        if isinstance(kind, inspect.StructType):
            return self._struct(kind.cls, value, place)
        if isinstance(kind, inspect.DictType):
            table = self._table(value, place)
            items = table.items()
            return {name: self.value(kind.value_type, one, (*place, name)) for name, one in items}
        if isinstance(kind, inspect.VarTupleType):
            if not isinstance(value, list):
                raise self._wrong(place, f"is {_shown(value)}", "Give a list: [ … ].")
            numbered = enumerate(value)
            return tuple(self.value(kind.item_type, one, (*place, at)) for at, one in numbered)
        if isinstance(kind, inspect.LiteralType):
            return self._chosen(kind.values, value, place)
        return self._plain(kind, value, place)

    def _platforms(self, given: Any) -> dict[str, Any]:
        found = {}
        for name, section in self._table(given, ("platforms",)).items():
            self._require_known([name], PLATFORMS, ("platforms",))
            kind = sections.PLATFORM_SECTIONS.get(name, PlatformConfig)
            found[name] = self._struct(kind, section, ("platforms", name))
        return found

    def _struct(self, kind: type, value: Any, place: Place) -> Any:
        table = self._table(value, place)
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        self._require_known(table, fields, place)
        made = {
            field.name: self.value(inspect.type_info(field.type), table[name], (*place, name))
            for name, field in fields.items()
            if name in table
        }
        for name, field in fields.items():
            if field.required and name not in table:
                raise self._wrong(place, f"has no {name}", f"Add: {name} = …")
        try:
            return kind(**made)
        except ConfigError as problem:
            field_name = problem.data.get("field")
            at = (*place, field_name) if field_name in fields else place
            where = self._origin.of(at)
            raise ConfigError(f"{where}: {problem.message}", hint=problem.hint, field=dotted(at)) \
                from problem  # fmt: skip

    def _table(self, value: Any, place: Place) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(place, f"is {_shown(value)}", f"Give a table: [{dotted(place)}]")
        return value

    def _chosen(self, allowed: Iterable[Any], value: Any, place: Place) -> Any:
        names = [str(one) for one in allowed]
        if value not in names:
            raise self._wrong(place, f"is {_shown(value)}", _allowed(str(value), names))
        return value

    def _plain(self, kind: inspect.Type, value: Any, place: Place) -> Any:
        if isinstance(kind, inspect.AnyType):
            return value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = {
            inspect.StrType: isinstance(value, str),
            inspect.BoolType: isinstance(value, bool),
            inspect.IntType: is_number and isinstance(value, int),
            inspect.FloatType: is_number,
        }[type(kind)]
        if not fits:
            raise self._wrong(place, f"is {_shown(value)}", f"Give {_KINDS[type(kind)]}.")
        for limit, word, is_kept in _limits(kind, value):
            if not is_kept:
                raise self._wrong(place, f"is {value}", f"Give a number {word} {limit}.")
        return value

    def _require_known(self, given: Iterable[str], known: Iterable[str], place: Place) -> None:
        for name in given:
            if name not in known:
                where = self._origin.of((*place, name))
                what = "platform" if place == ("platforms",) else "key" if place else "section"
                raise ConfigError(
                    f"{where}: there is no such {what}.",
                    hint=_allowed(name, list(known)),
                    field=dotted((*place, name)),
                )

    def _wrong(self, place: Place, what: str, hint: str) -> ConfigError:
        return ConfigError(f"{self._origin.of(place)} {what}.", hint=hint, field=dotted(place))


def dotted(place: Place) -> str:
    """`store.budgets[0].usd`"""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


# -- the file


def _file(path: str) -> tuple[dict[str, Any], Origin]:
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except FileNotFoundError:
        raise ConfigError(
            f"There is no configuration at {path}.",
            hint=f"Make it with: tertulia config init --config {path}",
            field="config",
        ) from None
    except (OSError, UnicodeError) as problem:
        raise ConfigError(
            f"The configuration {path} cannot be read: {problem}.",
            hint="It has to be a text in UTF-8 that this user may read.",
            field="config",
        ) from problem
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(
            f"{path} is not TOML: {problem}.", hint="Mend that line.", field="config"
        ) from problem
    _see_from(os.path.dirname(os.path.abspath(path)), given)
    return given, Origin(path, dict(_lines(text)))


_PATHS = (
    ("store", "where"),
    ("log", "file"),
    ("agent", "folder"),
    ("processes", "folder"),
    ("processes", "ssh", "identity"),
    ("processes", "ssh", "known_hosts"),
)


def _see_from(folder: str, given: dict[str, Any]) -> None:
    """Paths in the file are seen from the folder it is in."""
    for *within, name in _PATHS:
        table: Any = given
        for section in within:
            table = table.get(section) if isinstance(table, dict) else None
        if not isinstance(table, dict):
            continue
        found = table.get(name)
        if isinstance(found, str) and found and "://" not in found:
            table[name] = os.path.join(folder, os.path.expanduser(found))


def _lines(text: str) -> Iterator[tuple[Place, int]]:
    """The line of every key in a text that is TOML.

    A statement is as many lines as it takes until they are TOML by themselves.
    """
    header: Place = ()
    counts: dict[Place, int] = {}
    statement, first = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        statement, first = (f"{statement}\n{line}", first) if statement else (line, number)
        try:
            found = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if re.match(r"\s*\[", statement):
            header = _header(found, counts)
            yield header, first
        else:
            for place in _places(found):
                yield (*header, *place), first
        statement = ""


def _header(found: Any, counts: dict[Place, int]) -> Place:
    """The place that a `[table]` or an entry of `[[tables]]` opens."""
    place: Place = ()
    while found:
        if isinstance(found, list):
            counts[place] = counts.get(place, -1) + 1
            place, found = (*place, counts[place]), found[0]
        else:
            name, found = next(iter(found.items()))
            place = (*place, name)
            if place in counts and not isinstance(found, list):
                place = (*place, counts[place])
    return place


def _places(found: Any, place: Place = ()) -> Iterator[Place]:
    if place:
        yield place
    inside: Iterable[tuple[str | int, Any]] = ()
    if isinstance(found, dict):
        inside = found.items()
    elif isinstance(found, list):
        inside = enumerate(found)
    for name, value in inside:
        yield from _places(value, (*place, name))


# -- variables


def _set_variables(
    given: dict[str, Any], environ: Mapping[str, str], origin: Origin
) -> Iterator[str]:
    """Put what variables say over what the file said; the names of those that were taken."""
    known = variables()
    for name in sorted(environ):
        if not name.startswith(PREFIX) or not environ[name]:
            continue
        place = known.get(name) or _platform_place(name)
        if place is None:
            _refuse_misspelt(name, known)
            continue
        kind = _kind_at(place)
        origin.note_variable(place, name)
        _put(given, place, _from_text(kind, environ[name], name))
        yield name


def variables() -> dict[str, Place]:
    """The variable of every key that has one: TERTULIA_AGENT_MODEL is agent.model."""
    found: dict[str, Place] = {f"{PREFIX}STORE": ("store", "where")}
    for section in msgspec.structs.fields(Config):
        kind = inspect.type_info(section.type)
        for place in _leaves(kind, (section.name,)):
            found[PREFIX + "_".join(map(str, place)).upper()] = place
    return found


def _leaves(kind: inspect.Type, place: Place) -> Iterator[Place]:
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from _leaves(field.type, (*place, field.name))
    elif not _is_table(kind):
        yield place


def _is_table(kind: inspect.Type) -> bool:
    items = kind.item_type if isinstance(kind, inspect.VarTupleType) else kind
    return isinstance(items, inspect.DictType | inspect.StructType)


def _platform_place(name: str) -> Place | None:
    """TERTULIA_PLATFORMS_TELEGRAM_ADMISSION is platforms.telegram.admission."""
    rest = name.removeprefix(f"{PREFIX}PLATFORMS_").lower()
    if rest == name.removeprefix(PREFIX).lower():
        return None
    for platform in PLATFORMS:
        kind = sections.PLATFORM_SECTIONS.get(platform, PlatformConfig)
        for field in msgspec.structs.fields(kind):
            if rest == f"{platform}_{field.name}".replace("-", "_"):
                return ("platforms", platform, field.name)
    return None


def _refuse_misspelt(name: str, known: Mapping[str, Place]) -> None:
    """A variable of one of the sections has to be one that there is; others are not ours."""
    opening = {f"{PREFIX}{field.name.upper()}_" for field in msgspec.structs.fields(Config)}
    if any(name.startswith(one) for one in opening):
        raise ConfigError(
            f"The variable {name} sets nothing.", hint=_allowed(name, list(known)), field=name
        )


def _kind_at(place: Place) -> inspect.Type:
    kind: inspect.Type = inspect.type_info(Config)
    if place[0] == "platforms":
        section = sections.PLATFORM_SECTIONS.get(str(place[1]), PlatformConfig)
        kind, place = inspect.type_info(section), place[2:]
    for name in place:
        assert isinstance(kind, inspect.StructType)
        kind = next(field.type for field in kind.fields if field.name == name)
    return kind


def _from_text(kind: inspect.Type, text: str, name: str) -> Any:
    """Texts as they are; all else as it would stand in the file."""
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
        return text  # the reader says what it should be


def _put(given: dict[str, Any], place: Place, value: Any) -> None:
    table = given
    for name in place[:-1]:
        inner = table.setdefault(str(name), {})
        if not isinstance(inner, dict):
            return  # the reader says what is wrong with it
        table = inner
    table[str(place[-1])] = value


# -- showing


def shown(config: Config) -> dict[str, Any]:
    """The configuration as plain values, without its secrets."""
    told = {
        field.name: _plain_value(inspect.type_info(field.type), getattr(config, field.name))
        for field in msgspec.structs.fields(Config)
        if field.name != "platforms"
    }
    told["platforms"] = {
        name: _plain_value(inspect.type_info(type(section)), section)
        for name, section in config.platforms.items()
    }
    return told


def _plain_value(kind: inspect.Type, value: Any) -> Any:  # noqa: PLR0911
    if value is None:
        return None
    if isinstance(kind, inspect.Metadata):
        extra = kind.extra or {}
        if extra.get("is_secret"):
            return HIDDEN
        if extra.get("is_command"):
            return [*value[:1], *(HIDDEN for _ in value[1:])]
        return _without_password(value) if extra.get("is_address") else value
    if isinstance(kind, inspect.UnionType):
        return _plain_value(_without_none(kind), value)
    if isinstance(kind, inspect.StructType):
        return {
            field.name: _plain_value(field.type, getattr(value, field.name))
            for field in kind.fields
        }
    if isinstance(kind, inspect.DictType):
        return {name: _plain_value(kind.value_type, one) for name, one in value.items()}
    if isinstance(kind, inspect.VarTupleType):
        return [_plain_value(kind.item_type, one) for one in value]
    return value


def _without_password(address: str) -> str:
    from tertulia.storage.connect import public_name

    name = public_name(address)
    name = re.sub(r"(?<=://)[^/@\s]*@", f"{HIDDEN}@", name)
    given = r"(?i)([?&][^=&]*(?:key|token|secret|password)[^=&]*=)[^&]*"
    return re.sub(given, rf"\1{HIDDEN}", name)


# -- words


def _without_none(kind: inspect.UnionType) -> inspect.Type:
    return next(one for one in kind.types if not isinstance(one, inspect.NoneType))


def _limits(kind: inspect.Type, value: Any) -> Iterator[tuple[Any, str, bool]]:
    words = {"gt": "above", "ge": "from", "lt": "below", "le": "up to"}
    for name, word in words.items():
        limit = getattr(kind, name, None)
        if limit is not None:
            is_kept = {"gt": value > limit, "ge": value >= limit, "lt": value < limit,
                       "le": value <= limit}[name]  # fmt: skip
            yield limit, word, is_kept


def _allowed(given: str, names: list[str]) -> str:
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.6)
    listed = f"Allowed: {', '.join(names)}."
    return f"Did you mean {near[0]}?" if near else listed if len(names) < 40 else "See docs."


def _shown(value: Any) -> str:
    """What was given, without what could be a secret."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return repr(value) if not isinstance(value, str) or len(value) <= 40 else "a long text"
