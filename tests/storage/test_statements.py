"""Every statement in the `.sql` files is used, is valid, and every name in the code exists.

Both dialects have the same statements, the same migrations and the same tables.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import psycopg
import pytest

import tertulia
from tertulia.storage import statements
from tertulia.storage.base import Row
from tertulia.storage.postgres import migrate as postgres_migrate
from tertulia.storage.sqlite import migrate as sqlite_migrate
from tests.servers.postgres import Server

ROOT = Path(tertulia.__file__).parent


SQL = statements.load(sqlite_migrate.DIALECT)


POSTGRES = statements.load(postgres_migrate.DIALECT)


CALLS = {"run", "one", "all", "many", "changed"}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        # The package for tests uses the store like its users.
        if "testing" not in path.parts:
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def patterns_of(argument: ast.expr, texts: dict[str, set[str]]) -> set[str]:
    """Return the statement names that an argument can have, as patterns."""
    match argument:
        case ast.Constant(value=str(text)):
            return {re.escape(text)}
        case ast.JoinedStr(values=values):
            texts_of = [str(v.value) if isinstance(v, ast.Constant) else None for v in values]
            return {"".join(r"\w+" if text is None else re.escape(text) for text in texts_of)}
        case ast.IfExp(body=body, orelse=orelse):
            return patterns_of(body, texts) | patterns_of(orelse, texts)
        case ast.Name(id=name):
            return {re.escape(text) for text in texts.get(name, set())}
    return set()


def text_variables(tree: ast.AST) -> dict[str, set[str]]:
    """Return variables with their texts: `for statement in ("a", "b")`, `statement = "c"`."""
    texts_of: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=elements)):
                texts = {e.value for e in elements if isinstance(e, ast.Constant)}
                texts_of.setdefault(name, set()).update(map(str, texts))
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                texts_of.setdefault(name, set()).add(text)
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.IfExp(
                    body=ast.Constant(value=str(text)), orelse=ast.Constant(value=str(other))
                ),
            ):
                texts_of.setdefault(name, set()).update({text, other})
    return texts_of


def uses() -> Iterator[tuple[str, str]]:
    """Yield (location, pattern) of every statement that is run by name."""
    for path, tree in modules():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                for line, pattern in uses_in(function):
                    yield f"{path.relative_to(ROOT)}:{line}", pattern


def uses_in(function: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    texts = text_variables(function)
    for node in ast.walk(function):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="tx"), attr=attr), args=[first, *_]
            ) if attr in CALLS:
                for pattern in patterns_of(first, texts):
                    yield node.lineno, pattern
            case ast.Call(func=ast.Attribute(attr="query"), args=[first, _]):
                for pattern in patterns_of(first, texts):
                    yield node.lineno, pattern
            case ast.Tuple(elts=[ast.JoinedStr(values=[ast.FormattedValue(), *_]) as first, _]):
                # A step: a statement and its parameters.
                for pattern in patterns_of(first, texts):
                    if re.fullmatch(r"\\w\+\w+", pattern):
                        yield node.lineno, pattern
            case ast.Subscript(value=ast.Name(id="sql"), slice=ast.Constant(value=str(text))):
                yield node.lineno, re.escape(text)


def strings() -> set[str]:
    """Return every text in the code: a name that is passed on is one of them."""
    return {
        node.value
        for _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


@pytest.mark.check
def test_every_name_in_the_code_exists() -> None:
    all_uses = list(uses())
    assert len(all_uses) > 80
    missing = [
        (location, pattern)
        for location, pattern in all_uses
        if not any(re.fullmatch(pattern, name) for name in SQL)
    ]
    assert missing == []


@pytest.mark.check
def test_every_statement_is_used() -> None:
    patterns = {re.compile(pattern) for _, pattern in uses()}
    texts = strings()
    sql = "".join(path.read_text() for path in (ROOT / "storage" / "sql").rglob("*.sql"))
    parts = "".join(sql.replace("{queue}", name) for name in ("inbox", "outbox", "occurrences"))
    unused = [
        name
        for name in SQL
        if not any(pattern.fullmatch(name) for pattern in patterns)
        and name not in texts
        and not name.startswith("check_")
        and f"{{{name}}}" not in parts
    ]
    assert unused == []


@pytest.mark.parametrize("name", sorted(name for name in SQL if not name.startswith("part_")))
def test_every_statement_is_valid(name: str, database: apsw.Connection) -> None:
    for statement in filter(None, map(str.strip, without_comments(SQL[name]).split(";"))):
        names = dict.fromkeys(re.findall(r":(\w+)", statement))
        values = (None,) * statement.count("?")
        database.execute(f"explain {statement}", names or values).fetchall()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path = tmp_path_factory.mktemp("schema") / "talk.db"
    tertulia.open(path).close()
    connection = apsw.Connection(str(path))
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def server_database(postgres: Server) -> Iterator[psycopg.Connection[Row]]:
    address = postgres.database(postgres.template)
    with psycopg.connect(address, autocommit=True) as connection:
        # A plan for any values, not only for the nulls below.
        connection.execute("set plan_cache_mode = force_generic_plan")
        yield connection
    postgres.drop(address)


# These have no plan, so they are run and rolled back.
UNPLANNED = {"lock_sessions_table", "lock_other_tables", "move_rename_sessions"}


@pytest.mark.parametrize("name", sorted(UNPLANNED))
def test_statement_without_a_plan_runs_in_postgres(
    name: str, server_database: psycopg.Connection[Row]
) -> None:
    with server_database.transaction(force_rollback=True):
        server_database.execute(POSTGRES[name])


@pytest.mark.parametrize(
    "name", sorted(n for n in POSTGRES if not n.startswith("part_") and n not in UNPLANNED)
)
def test_every_statement_is_valid_in_postgres(
    name: str, server_database: psycopg.Connection[Row]
) -> None:
    sql, count = with_numbers(without_comments(POSTGRES[name]))
    server_database.execute(f"prepare {name} as {sql}")
    values = f"({', '.join(['null'] * count)})" if count else ""
    assert server_database.execute(f"explain execute {name}{values}").fetchall()


def with_numbers(sql: str) -> tuple[str, int]:
    """Return a statement with parameters in the style of the server ($1), and their number."""
    names = list(dict.fromkeys(re.findall(r"(?<![:\w]):(\w+)", sql)))
    for number, name in enumerate(names, 1):
        sql = re.sub(rf"(?<![:\w]):{name}\b", f"${number}", sql)
    positional = sql.count("?")
    for number in range(len(names) + 1, len(names) + positional + 1):
        sql = sql.replace("?", f"${number}", 1)
    return sql, len(names) + positional


def test_both_dialects_have_the_same_statements() -> None:
    names, others = (
        {name for name in dialect if not name.startswith("part_")} for dialect in (SQL, POSTGRES)
    )
    # SQLite has no round trips that answering in one statement would save.
    assert others - names == {
        "turn_answer",
        "turn_answer_with_usage",
        "turn_answer_queued",
        "turn_answer_queued_with_usage",
    }
    assert names - others == set()


def test_parameters_are_numbered_by_name_or_by_position() -> None:
    by_name = statements.number_parameters("select :a, :b, :a::text -- of :c\n from x")
    assert by_name == (b"select $1, $2, $1::text from x", ("a", "b"))
    assert statements.number_parameters("values (?, ?)") == (b"values ($1, $2)", ())


def test_both_dialects_have_the_same_migrations() -> None:
    names = [
        [name for name, _ in statements.migrations(dialect)] for dialect in ("sqlite", "postgres")
    ]
    assert names[0] == names[1]


def test_both_databases_have_the_same_tables_and_columns(
    database: apsw.Connection, server_database: psycopg.Connection[Row]
) -> None:
    sqlite = {
        (str(table), str(column))
        for table, column in database.execute(
            "select t.name, c.name from pragma_table_list t join pragma_table_xinfo(t.name) c"
            " where t.schema = 'main' and t.type in ('table', 'virtual', 'view')"
            " and t.name not like 'sqlite_%'"
        )
    }
    postgres = {
        (str(table), str(column))
        for table, column in server_database.execute(
            "select table_name, column_name from information_schema.columns"
            " where table_schema = 'public'"
        ).fetchall()
    }
    # The two tables of the search index have different columns in each database.
    index = ("words", "cards")
    assert {table for table, _ in sqlite} == {table for table, _ in postgres}
    assert {pair for pair in sqlite if pair[0] not in index} == {
        pair for pair in postgres if pair[0] not in index
    }


def without_comments(sql: str) -> str:
    return re.sub(r"--[^\n]*", "", sql)


def test_template_is_made_for_each_of_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("common", "sqlite"):
        (tmp_path / folder).mkdir()
    (tmp_path / "common" / "x.sql").write_text(
        "-- name: {queue}_get (inbox, outbox)\nselect {part_{queue}_columns} from {queue}\n"
        "-- name: part_inbox_columns\nid, key\n\n-- name: part_outbox_columns\nid\n"
    )
    monkeypatch.setattr(statements, "_SQL_FOLDER", str(tmp_path))
    sql = statements.load.__wrapped__("sqlite")
    assert (sql["inbox_get"], sql["outbox_get"]) == (
        "select id, key from inbox",
        "select id from outbox",
    )


def test_duplicate_statement_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("common", "sqlite"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.sql").write_text("-- name: twice\nselect 1\n")
    monkeypatch.setattr(statements, "_SQL_FOLDER", str(tmp_path))
    with pytest.raises(ValueError, match="twice"):
        statements.load.__wrapped__("sqlite")  # past the cache


def test_one_parameter_can_be_numbered_last() -> None:
    sql = "select :now, :a where b = :b and c < :now"
    in_order = ("select ?1, ?2 where b = ?3 and c < ?1", ("now", "a", "b"))
    now_last = ("select ?3, ?1 where b = ?2 and c < ?3", ("a", "b", "now"))
    assert statements.replace_names(sql, "?") == in_order
    assert statements.replace_names(sql, "?", last="now") == now_last
    assert statements.replace_names(sql, "?", last="absent") == in_order
