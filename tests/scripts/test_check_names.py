"""The check of names and prose finds what it is made to find, and nothing else."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from scripts import check_names
from scripts.check_names import SOURCE, Module

STORE = """
class Store:
    def __init__(self):
        self._rows = 1
"""


def module(source: str, path: str = "core/example.py") -> Module:
    text = dedent(source)
    return Module(SOURCE / path, text, ast.parse(text))


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    found = 1\n",
        "def f(given): ...\n",
        "def f():\n    for one in (): ...\n",
        "async def f():\n    async with g() as told: ...\n",
        "def f():\n    return [said for said in ()]\n",
    ],
)
def test_banned_variable_is_found_wherever_it_is_bound(source: str) -> None:
    share, problems = check_names.check_variables([module(source)])
    assert (share, len(problems)) == (100.0, 1)


def test_share_counts_functions_and_reading_a_name_is_no_binding() -> None:
    clean = module("def f(row):\n    return row.found + told\n\ndef g(seen): ...\n")
    share, problems = check_names.check_variables([clean])
    assert share == 50.0
    assert [problem.line for problem in problems] == [4]


def test_openers_are_counted_in_docstrings_and_comments_per_sentence() -> None:
    text = '''
    def f():
        """Return a row. Whoever waits is told.

        Where it stands.
        """
        # A reason,
        # What follows is one sentence with it. Who asks gets it.
    '''
    figure, problems = check_names.check_openers([module(text)])
    assert len(problems) == 3
    assert figure == pytest.approx(1000 * 3 / 23)


def test_opener_within_a_sentence_is_fine() -> None:
    text = '"""Return what is there and tell who asks, whether or not it is new."""\n'
    assert check_names.check_openers([module(text)])[1] == []


def test_module_without_functions_needs_no_test() -> None:
    values = module("class Row:\n    x: int = 1\n")
    assert check_names.check_mirrors([values]) == (100.0, [])


def test_missing_mirror_is_named_by_its_path() -> None:
    code = module("def f(): ...\n", "core/there_is_no_such_module.py")
    share, (problem,) = check_names.check_mirrors([code])
    assert share == 0
    assert problem.text == "has no tests/core/test_there_is_no_such_module.py"


def test_same_file_name_in_two_folders_is_reported_once() -> None:
    modules = [module("", "a/example.py"), module("", "b/example.py"), module("", "b/base.py")]
    (problem,) = check_names.check_file_names(modules)
    assert "also stands in b" in problem.text


def test_same_class_name_in_two_modules_is_reported_once() -> None:
    modules = [module("class Example: ...", "a/x.py"), module("class Example: ...", "b/y.py")]
    (problem,) = check_names.check_class_names(modules)
    assert "Example" in problem.text


OWNER = module(STORE, "records/s.py")


@pytest.mark.parametrize(
    "source",
    [
        "def f(store):\n    return store._rows\n",
        "def f(store: Store):\n    store._rows = 2\n",
        "def f(handle):\n    return handle.store()._rows\n",
        'def f(store):\n    return getattr(store, "_rows")\n',
        "from tertulia.records.s import _helper\n",
        "from tertulia.records._inner import helper\n",
        "import tertulia.records._inner\n",
        # Its own class has an attribute of that name; the object may be of either.
        "class A:\n    def __init__(self, store):\n        self._rows = store._rows\n",
        # A name that no module of the package defines belongs to a third party.
        "def f(response):\n    return response._connection\n",
    ],
)
@pytest.mark.parametrize("path", ["http/u.py", "records/queues/u.py"])
def test_private_name_of_another_package_is_reported(source: str, path: str) -> None:
    (problem,) = check_names.check_private_access([OWNER, module(source, path)])
    assert problem.path == SOURCE / path


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("def f(store):\n    return store._rows\n", "records/u.py"),
        ("from tertulia.records.s import _helper\n", "records/u.py"),
        ("class A:\n    _rows = 1\n    def f(self, other: A): return other._rows\n", "http/u.py"),
        ("class A:\n    _rows = 1\n    def f(self): return self._rows, A._rows\n", "http/u.py"),
        ("class A:\n    _rows = 1\ndef f(a: A | B): return a._rows\n", "http/u.py"),
        ("def f(row):\n    return row._replace(x=1)\n", "http/u.py"),
        ("from httpx._client import Client\n", "http/u.py"),
    ],
)
def test_private_name_of_an_own_object_is_fine(source: str, path: str) -> None:
    assert check_names.check_private_access([OWNER, module(source, path)]) == []


def test_excused_name_is_reported_once_a_package_defines_it() -> None:
    owner = module("class A:\n    def _replace(self): ...\n", "records/s.py")
    user = module("def f(row):\n    return row._replace()\n", "http/u.py")
    assert len(check_names.check_private_access([owner, user])) == 1


@pytest.mark.parametrize(
    "source",
    [
        'def f(tx):\n    return tx.one("anything")\n',
        'def f(tx):\n    tx.many(f"copy_{name}_put", rows)\n',
        'def f(transaction):\n    transaction.run("installation_set", {})\n',
        "def f(store):\n    store.context.db.write(work)\n",
        "class A:\n    def f(self):\n        return self._context.db\n",
    ],
)
def test_use_of_the_database_outside_records_is_reported(source: str) -> None:
    (problem,) = check_names.check_statement_calls([module(source, "integrations/u.py")])
    assert "uses the database" in problem.text
    for path in ("records/u.py", "storage/sqlite/u.py"):
        assert check_names.check_statement_calls([module(source, path)]) == []


def test_other_calls_of_those_names_are_fine() -> None:
    source = 'asyncio.run(main())\nsubprocess.run("ls")\nexecutor.run(call, 1)\nself.db.close()\n'
    assert check_names.check_statement_calls([module(source, "cli/u.py")]) == []


def test_exception_without_need_is_reported() -> None:
    (problem,) = check_names.check_statement_calls([module("", "testing/fault_points.py")])
    assert "needs no exception" in problem.text


def test_banned_module_name_is_reported() -> None:
    (problem,) = check_names.check_module_names([module("", "core/utils.py")])
    assert "utils" in problem.text
