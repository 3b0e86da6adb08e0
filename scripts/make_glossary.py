"""Write the class table of `docs/glossary.md` from the docstrings. A test compares them.

    python scripts/make_glossary.py

The table lists every public class that another module imports, so that a reader finds each name of
the code on one page. The words above the table are written by hand.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tertulia"
TARGET = ROOT / "docs/glossary.md"
MARK = "<!-- written by scripts/make_glossary.py -->"


def find_classes() -> dict[str, list[tuple[Path, str]]]:
    """Return the public classes by name, each with its module and the first line of its docstring.

    Errors have a table in the reference, and contract suites are named after what they test.
    """
    classes: dict[str, list[tuple[Path, str]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        relative = path.relative_to(SOURCE)
        if relative.name in ("_generated.py", "errors.py") or relative.parts[0] == "testing":
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                summary = (ast.get_docstring(node) or "").split("\n\n")[0]
                classes.setdefault(node.name, []).append((relative, " ".join(summary.split())))
    return classes


def find_imported_names() -> set[tuple[str, str]]:
    """Return the module and the name of everything one module imports from another."""
    names: set[tuple[str, str]] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names.update((node.module, alias.name) for alias in node.names)
    return names


def generate() -> str:
    """Return the class table as it should be."""
    imported = find_imported_names()
    rows = []
    for name, places in sorted(find_classes().items(), key=lambda item: item[0].lower()):
        for relative, summary in places:
            module = ".".join(("tertulia", *relative.with_suffix("").parts))
            if (module, name) in imported:
                text = summary.replace("|", "\\|")
                rows.append(f"| `{name}` | `{relative.as_posix()}` | {text} |")
    return "\n".join(["| class | file | meaning |", "|---|---|---|", *rows]) + "\n"


def main() -> None:
    """Replace everything after the mark in the glossary."""
    head = TARGET.read_text("utf-8").partition(MARK)[0]
    TARGET.write_text(f"{head}{MARK}\n\n{generate()}", encoding="utf-8")


if __name__ == "__main__":
    main()
