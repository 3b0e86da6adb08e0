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
from collections.abc import Iterator
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
    """Return accesses to private names that another package defines, beyond those listed."""
    own: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        own[module.package] |= _private_definitions(module.tree)
    everywhere = set().union(*own.values())
    allowed: dict[str, int] = RULES["private"]
    problems = []
    for module in modules:
        foreign = everywhere - own[module.package]
        accesses = list(_private_accesses(module, foreign))
        if len(accesses) > allowed.get(str(module.path.relative_to(ROOT)), 0):
            problems.extend(accesses)
    return problems


def _private_definitions(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def _private_accesses(module: Module, foreign: set[str]) -> Iterator[Problem]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and node.attr in foreign:
            yield Problem(module.path, node.lineno, f"uses {ast.unparse(node)} of another package")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tertulia."):
            package = (node.module or "").split(".")[1]
            for alias in node.names:
                if re.match("_(?!_)", alias.name) and package != module.package:
                    text = f"imports {node.module}.{alias.name}"
                    yield Problem(module.path, node.lineno, text)


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
