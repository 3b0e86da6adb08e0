"""Check that names and prose are plain: `make names` prints the figures and fails over a limit.

    python scripts/check_names.py              the figures, and what breaks a limit
    python scripts/check_names.py --all PATH   every place counted, for files whose path starts so

The words it refuses and its limits are in `banned_names.toml` beside this file.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tertulia"
RULES: dict[str, Any] = tomllib.loads((ROOT / "scripts/banned_names.toml").read_text("utf-8"))

_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*[-*]\s+")


class Problem(NamedTuple):
    """One place that breaks a rule."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


class Module(NamedTuple):
    """One file of the package, parsed."""

    path: Path
    source: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The first folder below the package, or the module itself at the top."""
        return self.path.relative_to(SOURCE).parts[0].removesuffix(".py")

    @property
    def inner_package(self) -> str:
        """The package whose private names the module may use."""
        return inner_package(self.path.relative_to(SOURCE).with_suffix("").parts)


def inner_package(parts: Sequence[str]) -> str:
    """Return the first folder of a path below the package, and the second where those are apart."""
    is_apart = parts[0] in RULES["private_in_folders"] and SOURCE.joinpath(*parts[:2]).is_dir()
    return ".".join(parts[:2] if is_apart else parts[:1])


Function = ast.FunctionDef | ast.AsyncFunctionDef


def read_modules() -> list[Module]:
    """Return every module of the package, sorted by path."""
    modules = []
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text("utf-8")
        modules.append(Module(path, source, ast.parse(source)))
    return modules


def functions_of(tree: ast.AST) -> Iterator[Function]:
    """Yield every function and method."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def variable_names(function: Function) -> set[str]:
    """Return the names a function binds: parameters, assignments, loop and `with` targets."""
    names = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return names | {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}


def check_variables(modules: list[Module]) -> tuple[float, list[Problem]]:
    """Return the percentage of functions with a banned variable name, and the places."""
    banned = set(RULES["variables"])
    problems, total = [], 0
    for module in modules:
        for function in functions_of(module.tree):
            total += 1
            names = sorted(variable_names(function) & banned)
            if names:
                text = f"{function.name} uses {', '.join(names)}"
                problems.append(Problem(module.path, function.lineno, text))
    return 100 * len(problems) / max(total, 1), problems


def prose_of(module: Module) -> Iterator[tuple[int, str]]:
    """Yield every docstring, and every run of comment lines, with its line number."""
    for node in ast.walk(module.tree):
        if isinstance(node, Function | ast.ClassDef | ast.Module):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring
    yield from comments_of(module.source)


def comments_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield comments; lines that stand directly below each other are one comment."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("# ")
        if text.startswith(("noqa", "fmt:", "type: ignore", "pragma", "!")):
            continue
        line = token.start[0]
        if block and line != last + 1:
            yield first, " ".join(block)
            block = []
        if not block:
            first = line
        block.append(text)
        last = line
    if block:
        yield first, " ".join(block)


def check_openers(modules: list[Module]) -> tuple[float, list[Problem]]:
    """Return how many sentences per 1,000 words open with a banned word, and the places."""
    opener = re.compile(rf"(?:{'|'.join(RULES['openers'])})\b")
    problems: list[Problem] = []
    words = 0
    for module in modules:
        for line, text in prose_of(module):
            words += len(text.split())
            sentences = (" ".join(part.split()) for part in _SENTENCE_END.split(text))
            problems.extend(
                Problem(module.path, line, f"“{sentence[:70]}”")
                for sentence in sentences
                if opener.match(sentence)
            )
    return 1000 * len(problems) / max(words, 1), problems


def has_code(module: Module) -> bool:
    """Return whether a module defines behaviour of its own that a test can call."""
    if module.path.stem in ("__init__", "__main__", "_generated", "version"):
        return False
    return any(True for _ in functions_of(module.tree))


def test_path(module: Module) -> Path:
    """Return the path of the test that mirrors a module."""
    relative = module.path.relative_to(SOURCE)
    return ROOT / "tests" / relative.parent / f"test_{relative.stem.strip('_')}.py"


def check_mirrors(modules: list[Module]) -> tuple[float, list[Problem]]:
    """Return the percentage of modules with a mirrored test, and those without one."""
    with_code = [module for module in modules if has_code(module)]
    problems = [
        Problem(module.path, 1, f"has no {test_path(module).relative_to(ROOT)}")
        for module in with_code
        if not test_path(module).exists()
    ]
    return 100 * (1 - len(problems) / max(len(with_code), 1)), problems


def check_module_names(modules: list[Module]) -> list[Problem]:
    """Return modules and packages with a banned name."""
    banned = set(RULES["modules"])
    allowed = {ROOT / name for name in RULES["modules_allowed"]}
    problems = []
    for module in modules:
        names = {module.path.stem, *module.path.relative_to(SOURCE).parent.parts} & banned
        if names and module.path not in allowed:
            problems.append(Problem(module.path, 1, f"is named {', '.join(sorted(names))}"))
    return problems


def check_file_names(modules: list[Module]) -> list[Problem]:
    """Return file names that stand in several folders and are not listed as shared."""
    by_name: dict[str, list[Path]] = defaultdict(list)
    for module in modules:
        if not module.path.stem.startswith("__"):
            by_name[module.path.stem].append(module.path)
    return [
        Problem(paths[0], 1, f"the file name also stands in {_folders(paths[1:])}")
        for name, paths in sorted(by_name.items())
        if len(paths) > 1 and name not in RULES["shared_file_names"]
    ]


def _folders(paths: list[Path]) -> str:
    return ", ".join(str(path.parent.relative_to(SOURCE)) for path in paths)


def check_class_names(modules: list[Module]) -> list[Problem]:
    """Return class names that several modules define and that are not listed as shared."""
    by_name: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for module in modules:
        if module.path.stem == "_generated":
            continue
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                by_name[node.name].append((module.path, node.lineno))
    return [
        Problem(*places[0], f"class {name} also stands in {_modules(places[1:])}")
        for name, places in sorted(by_name.items())
        if len(places) > 1 and name not in RULES["shared_class_names"]
    ]


def _modules(places: list[tuple[Path, int]]) -> str:
    return ", ".join(str(path.relative_to(SOURCE)) for path, _ in places)


def check_private_access(modules: list[Module]) -> list[Problem]:
    """Return accesses to private names that the own package does not define alone.

    An object is known to be of the own module if it is `self`, `cls`, `super()`, a class of that
    module or a parameter annotated with one. On any other object, a private name must be defined
    in the own package and in no other one; `[private]` in the rules excuses names that no package
    defines.
    """
    owners: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for name in _private_definitions(module.tree):
            owners[name].add(module.inner_package)
    return [problem for module in modules for problem in _private_accesses(module, owners)]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _private_definitions(tree: ast.Module) -> set[str]:
    """Return the private names that a module defines, with the attributes of `self` and `cls`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if ast.unparse(node.value) in ("self", "cls"):
                names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return set(filter(_is_private, names))


def _private_accesses(module: Module, owners: dict[str, set[str]]) -> Iterator[Problem]:
    own_objects = _own_objects(module.tree)
    for node in ast.walk(module.tree):
        for expression, name in _private_uses(node):
            if ast.unparse(expression) in own_objects:
                continue
            owning = owners.get(name, set())
            if owning == {module.inner_package} or (not owning and name in RULES["private"]):
                continue
            text = f"uses the private {ast.unparse(expression)}.{name}"
            yield Problem(module.path, expression.lineno, text)
        yield from _private_imports(module, node)


def _own_objects(tree: ast.Module) -> set[str]:
    """Return the names that stand for an object or a class of this module, wherever they stand.

    A parameter counts if each one of that name is annotated with such a class, and nothing else
    is assigned to the name. In a union one of the classes is enough: `isinstance` tells which.
    """
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    annotations: dict[str, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            text = "" if node.annotation is None else ast.unparse(node.annotation)
            own = classes.intersection(text.split(" | "))
            annotations[node.arg].add(next(iter(own), ""))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            annotations[node.id].add("")
    parameters = {name for name, texts in annotations.items() if texts <= classes}
    return {"self", "cls", "super()", *classes, *parameters}


def _private_uses(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield each private name that an expression reads or writes, and the object it belongs to."""
    if isinstance(node, ast.Attribute) and _is_private(node.attr):
        yield node.value, node.attr
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in _BY_NAME and len(node.args) > 1:
        name = node.args[1]
        if isinstance(name, ast.Constant) and _is_private(str(name.value)):
            yield node.args[0], str(name.value)


_BY_NAME = ("getattr", "setattr", "hasattr", "delattr")


def _private_imports(module: Module, node: ast.AST) -> Iterator[Problem]:
    """Yield imports of private names, and of names of private modules, from another package."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return
    prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    for name in (prefix + alias.name for alias in node.names):
        parts = name.split(".")
        private = next((index for index, part in enumerate(parts) if _is_private(part)), None)
        # The package that a private name belongs to is the one it stands in.
        if private is None or parts[0] != "tertulia":
            continue
        if inner_package(parts[1:private]) != module.inner_package:
            yield Problem(module.path, node.lineno, f"imports {name}")


def check_statement_calls(modules: list[Module]) -> list[Problem]:
    """Return uses of the database outside the packages that may name statements and tables.

    Other packages hand a transaction to functions of `records` and `storage`: they call no
    statement on it, and take no `db` from a store's context.
    """
    problems = []
    for module in modules:
        if module.package in RULES["statement_packages"]:
            continue
        uses = list(_database_uses(module))
        if str(module.path.relative_to(ROOT)) not in RULES["statements"]:
            problems.extend(uses)
        elif not uses:
            problems.append(Problem(module.path, 1, "needs no exception in [statements]"))
    return problems


def _database_uses(module: Module) -> Iterator[Problem]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.expr) and (text := _database_use(node)) is not None:
            yield Problem(module.path, node.lineno, f"uses the database: {text}")


_STATEMENT_CALLS = ("run", "changed", "one", "all", "many")


def _database_use(node: ast.expr) -> str | None:
    """Return the text of a statement call or of an access to a context's database."""
    if isinstance(node, ast.Attribute) and node.attr == "db":
        is_context = ast.unparse(node.value).split(".")[-1].strip("_") == "context"
        return ast.unparse(node) if is_context else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr not in _STATEMENT_CALLS:
        return None
    statement = node.args[0] if node.args else None
    is_named = isinstance(statement, ast.Constant) and statement.value in statement_names()
    return ast.unparse(node.func) if is_named or ast.unparse(node.func.value) == "tx" else None


@cache
def statement_names() -> frozenset[str]:
    """Return the names of all SQL statements."""
    files = SOURCE.glob("storage/sql/*/*.sql")
    texts = [path.read_text("utf-8") for path in files]
    return frozenset(
        name for text in texts for name in re.findall(r"^-- name: (\w+)", text, re.MULTILINE)
    )


def main(arguments: list[str]) -> int:
    """Print the figures; return 1 if a limit is broken."""
    prefix = arguments[arguments.index("--all") + 1] if "--all" in arguments else None
    modules = read_modules()
    is_broken = False
    figures = [
        ("functions with a banned variable name", "%", check_variables, "variables_percent"),
        (
            "sentences with a banned opener per 1,000 words",
            "",
            check_openers,
            "openers_per_1000_words",
        ),
        ("modules with a mirrored test", "%", check_mirrors, "mirrored_percent"),
    ]
    for title, unit, check, limit_name in figures:
        value, problems = check(modules)
        limit = RULES[limit_name]
        is_bad = value < limit if limit_name == "mirrored_percent" else value > limit
        is_broken |= is_bad
        print(f"{value:6.2f}{unit:1} {title} (limit {limit:g}{unit})")
        _print_problems(problems, prefix, is_bad and prefix is None)
    for title, rule in [
        ("banned module names", check_module_names),
        ("file names used for two things", check_file_names),
        ("class names used for two things", check_class_names),
        ("uses of another package's private names", check_private_access),
        ("uses of the database outside records and storage", check_statement_calls),
    ]:
        problems = rule(modules)
        is_broken |= bool(problems)
        print(f"{len(problems):6d}  {title} (limit 0)")
        _print_problems(problems, prefix, prefix is None)
    return int(is_broken)


def _print_problems(problems: list[Problem], prefix: str | None, is_listed: bool) -> None:
    for problem in problems:
        if (
            prefix is not None and str(problem.path.relative_to(ROOT)).startswith(prefix)
        ) or is_listed:
            print(f"        {problem}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
