"""SQL has names and a home: the `.sql` files under `sql/`.

A file holds statements, each under a line `-- name: …`. `common/` is the same for every database;
what only one of them understands stands in its own folder. A statement whose name begins with
`part_` is a piece of others, which name it in braces.
"""

from __future__ import annotations

import os
import re

_HOME = os.path.join(os.path.dirname(__file__), "sql")
_PART = re.compile(r"\{(part_\w+)\}")
_PARAMETER = re.compile(r"(?<![:\w]):(\w+)")
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load(dialect: str) -> dict[str, str]:
    """Every statement of a dialect by its name, its parameters written as `:name`."""
    found: dict[str, str] = {}
    for folder in ("common", dialect):
        for path in _files(os.path.join(_HOME, folder)):
            for name, sql in _statements(_text(path)):
                if name in found:
                    raise ValueError(f"two statements are called {name}; the second is in {path}")
                found[name] = sql
    return {name: _whole(sql, found) for name, sql in found.items()}


def _whole(sql: str, found: dict[str, str]) -> str:
    """A statement with its parts in place, which may have parts themselves."""
    return _PART.sub(lambda part: _whole(found[part[1]], found), sql)


def migrations(dialect: str) -> list[tuple[str, str]]:
    """The migrations of a dialect in order, as (name, script)."""
    paths = _files(os.path.join(_HOME, dialect, "migrations"))
    return [(os.path.basename(path).removesuffix(".sql"), _text(path)) for path in paths]


def _files(folder: str) -> list[str]:
    return sorted(os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".sql"))


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _statements(text: str) -> list[tuple[str, str]]:
    parts = _NAME.split(text)
    return [
        (name, sql.strip().rstrip(";")) for name, sql in zip(parts[1::2], parts[2::2], strict=True)
    ]


def with_percents(statements: dict[str, str]) -> dict[str, str]:
    """The same statements with parameters as psycopg takes them, `%(name)s` and `%s`."""
    return {
        name: _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%")).replace("?", "%s")
        for name, sql in statements.items()
    }
