"""Loading SQL statements by name from the `.sql` files under `sql/`.

A file holds statements, each under a line `-- name: …`. The statements in `common/` are the same
for every database; those of one dialect are in its own folder. A statement whose name begins with
`part_` is a fragment of other statements, which include it by its name in braces. A name with
`{queue}` in it is a template: it is followed by the tables in brackets for which it is made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import NamedTuple

_SQL_FOLDER = os.path.join(os.path.dirname(__file__), "sql")
_PART = re.compile(r"\{(part_\w+)\}")
_COMMENT = re.compile(r"--[^\n]*")
_PARAMETER = re.compile(r"(?<![:\w]):(\w+)")
_POSITION = re.compile(r"\?")
_NAME = re.compile(r"^-- name: ([\w{}]+)(?: \((.+)\))?$", re.MULTILINE)


@cache
def load(dialect: str) -> dict[str, str]:
    """Return every statement of a dialect by its name, with parameters written as `:name`.

    The files are read once per process, because parsing them takes longer than opening a small
    store; do not change the result. Raise ValueError if two statements have the same name.
    """
    raw: dict[str, str] = {}
    for folder in ("common", dialect):
        for path in _list_files(os.path.join(_SQL_FOLDER, folder)):
            for name, sql in _split_statements(_read(path)):
                if name in raw:
                    raise ValueError(f"two statements are named {name}; the second is in {path}")
                raw[name] = sql
    return {name: _expand(sql, raw) for name, sql in raw.items()}


def _expand(sql: str, raw: dict[str, str]) -> str:
    """Return a statement with its fragments inserted, which may include fragments themselves."""
    return _PART.sub(lambda part: _expand(raw[part[1]], raw), sql)


@cache
def migrations(dialect: str) -> tuple[tuple[str, str], ...]:
    """Return the migrations of a dialect in order, as (name, script).

    They are read once per process: every open of a store compares their names.
    """
    paths = _list_files(os.path.join(_SQL_FOLDER, dialect, "migrations"))
    return tuple((os.path.basename(path).removesuffix(".sql"), _read(path)) for path in paths)


def _list_files(folder: str) -> list[str]:
    names = [name for name in os.listdir(folder) if name.endswith(".sql")]
    return sorted(os.path.join(folder, name) for name in names)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _split_statements(text: str) -> Iterator[tuple[str, str]]:
    """Yield each statement with its name, and a template once for each of its tables."""
    parts = _NAME.split(text)
    for name, tables, sql in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        statement = sql.strip().rstrip(";")
        if tables is None:
            yield name, statement
        else:
            for table in tables.split(", "):
                yield name.replace("{queue}", table), statement.replace("{queue}", table)


class Query(NamedTuple):
    """A statement for PostgreSQL: its parameters are numbered, and `names` has them in order.

    Without names the values are given in the order of the numbers.
    """

    text: bytes
    names: tuple[str, ...] = ()


@cache
def load_numbered(dialect: str) -> dict[str, Query]:
    """Return the statements with the parameters of PostgreSQL, `$1`."""
    return {name: number_parameters(sql) for name, sql in load(dialect).items()}


def number_parameters(sql: str) -> Query:
    """Return a statement whose parameters are written as `:name`, or all of them as `?`."""
    text, names = replace_names(sql, "$")
    positions = count(1)
    text = _POSITION.sub(lambda _: f"${next(positions)}", text)
    return Query(text.encode(), names)


def replace_names(sql: str, mark: str, *, last: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Return a statement with numbered parameters, such as `$1`, and their names in order.

    They are numbered as they appear, but for the one named `last`. Comments and line ends are left
    out: a database looks up the text of each statement it runs.
    """
    text = " ".join(_COMMENT.sub("", sql).split())
    names = sorted(dict.fromkeys(_PARAMETER.findall(text)), key=lambda name: name == last)
    numbers = {name: number for number, name in enumerate(names, 1)}
    return _PARAMETER.sub(lambda name: f"{mark}{numbers[name[1]]}", text), tuple(names)
