"""The documentation is complete: every page is reached, and everything there is has an entry."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import click
import msgspec
import pytest

from tertulia.cli.cli_reference import iterate_commands
from tertulia.cli.config_reference import EXAMPLE
from tertulia.cli.entry_point import main
from tertulia.cli.options import NAME
from tertulia.config.load import load_config
from tertulia.gateway import commands
from tests.docs.markdown import ROOT, blocks, pages, prose

DOCS = ROOT / "docs"
SITE = (ROOT / "mkdocs.yml").read_text("utf-8")
NAVIGATION = re.findall(r"^ +- [^\n]*?: ([\w-]+\.md)$", SITE, re.MULTILINE)

# What the example names, as the environment has it.
VARIABLES = {"OPENAI_API_KEY": "k", "TELEGRAM_TOKEN": "t", "SHOP_TOKEN": "0123456789abcdef"}


@pytest.fixture(scope="module")
def make_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_pages", ROOT / "scripts/make_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation_once() -> None:
    names = sorted(path.name for path in DOCS.glob("*.md"))
    missing = [name for name in names if NAVIGATION.count(name) != 1]
    assert not missing, f"add to the navigation in mkdocs.yml: {missing}"


def test_every_entry_of_the_navigation_exists() -> None:
    """The generator says nothing of an entry that leads nowhere."""
    assert [name for name in NAVIGATION if not (DOCS / name).is_file()] == []


def test_no_link_leaves_the_folder_of_the_documentation() -> None:
    """On the site such a link would lead nowhere: name the file in code instead."""
    wrong = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in DOCS.rglob("*.md")
        for link in re.findall(r"\]\(([^)#\s]+)", prose(page.read_text("utf-8")))
        if "://" not in link and not (page.parent / link).resolve().is_relative_to(DOCS)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_page_that_the_code_names_exists() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("src", "deploy", "examples", "scripts")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sql", ".service") or path.name == "Containerfile"
        for name in re.findall(r"\bdocs/([\w./-]+\.md)\b", path.read_text("utf-8"))
        if not (DOCS / name).exists()
    ]  # fmt: skip
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["commands.md", "errors.md", "http-reference.md"])
def test_page_is_what_the_script_writes(make_pages: ModuleType, name: str) -> None:
    written = make_pages.PAGES[name]()
    assert (DOCS / name).read_text("utf-8") == written, "run: python scripts/make_pages.py"


def test_every_error_has_a_next_step(make_pages: ModuleType) -> None:
    codes = {kind.code for kind in make_pages.error_classes()}
    assert codes == set(make_pages.WHAT_TO_DO)


def test_every_slash_command_has_an_entry() -> None:
    page = (DOCS / "commands.md").read_text("utf-8")
    for command in commands.TABLE:
        assert f"| `/{command.name}" in page
        for alias in command.aliases:
            assert f"`/{alias}`" in page


def test_every_command_has_an_entry_and_every_command_that_is_named_exists() -> None:
    reference = (DOCS / "cli.md").read_text("utf-8")
    with click.Context(main, info_name=NAME) as ctx:
        paths = [inner.command_path for _, inner in iterate_commands(main, ctx)]
    for path in paths:
        assert f"## {path}\n" in reference
    groups = {path.split()[1] for path in paths if len(path.split()) > 2}
    wrong = []
    for page in [*pages(), ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]:
        for line in re.findall(r"tertulia ((?:[a-z]+)(?: [a-z]+)?)(?= |`|$)", _code(page), re.M):
            words = line.split()
            name = " ".join(words[:2] if words[0] in groups else words[:1])
            if f"tertulia {name}" not in paths and name not in groups:
                wrong.append(f"{page.name}: tertulia {line}")
    assert not wrong, "\n".join(wrong)


def _code(page: Path) -> str:
    """Return what a page shows as code: blocks of a console, and spans that are commands."""
    text = page.read_text("utf-8")
    shown = [
        line[2:]
        for block in blocks(text)
        if block.language == "console"
        for line in block.text.splitlines()
        if line.startswith("$ tertulia ")
    ]
    return "\n".join([*shown, *re.findall(r"`(tertulia [^`\n]+)`", text)])


def test_complete_example_of_the_configuration_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "example.toml"
    path.write_text(EXAMPLE, "utf-8")
    assert EXAMPLE.strip() in (DOCS / "config.md").read_text("utf-8")
    config = load_config(str(path), VARIABLES).config
    assert msgspec.structs.asdict(config)["agent"].kind == "openai"


def test_toml_blocks_are_valid_configurations(tmp_path: Path) -> None:
    """A block that shows a part of a configuration loads as it is."""
    for page in pages():
        for block in blocks(page.read_text("utf-8")):
            is_shown = block.language == "toml" and not block.not_run
            # The page on extending has files of another package, and a platform of its own.
            if is_shown and page.name != "extending.md":
                path = tmp_path / "block.toml"
                path.write_text(block.text, "utf-8")
                load_config(str(path), VARIABLES)


def test_tables_have_no_empty_cells() -> None:
    for page in (*DOCS.glob("*.md"), ROOT / "README.md"):
        lines = page.read_text("utf-8").splitlines()
        empty = [line for line in lines if line.startswith("|") and re.search(r"\| +\|", line)]
        assert not empty, f"{page.name}\n" + "\n".join(empty)


def test_every_row_belongs_to_a_table_with_a_head() -> None:
    """A row after an empty line is shown as text with bars."""
    for page in (*DOCS.glob("*.md"), ROOT / "README.md"):
        lines = ["", *prose(page.read_text("utf-8")).splitlines(), ""]
        starts = [
            (line, after)
            for before, line, after in zip(lines, lines[1:], lines[2:], strict=False)
            if line.startswith("|") and not before.startswith("|")
        ]
        loose = [line for line, after in starts if not re.match(r"\| ?:?--", after)]
        assert not loose, f"{page.name}\n" + "\n".join(loose)


def test_every_page_begins_with_an_example() -> None:
    """It stands before the second heading; a tutorial begins with its first step."""
    for page in DOCS.glob("*.md"):
        beginning = "".join(page.read_text("utf-8").split("\n## ")[:2])
        has_example = re.search(r"```|<picture>|<img |!\[", beginning) is not None
        assert has_example or page.name == "telegram-bot.md", page.name


def test_every_page_begins_with_a_title_and_its_purpose() -> None:
    for page in DOCS.glob("*.md"):
        title, blank, purpose, *_ = page.read_text("utf-8").split("\n")
        assert title.startswith("# ")
        assert blank == ""
        assert purpose
        assert not purpose.startswith(("#", "|", "```")), page.name
