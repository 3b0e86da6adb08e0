"""The reference is made from the code, and what the guarantees name is there."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, prose

DOCS = ROOT / "docs"
GUARANTEES = DOCS / "guarantees.md"

NAMED = re.compile(r"`((?:tests|src/tertulia/testing)/[\w/]+\.py)((?:::\w+)*)`")
ANCHOR = re.compile(r"\]\(([\w./-]*)#([\w-]+)\)")
CHOICES = re.compile(r"((?:'\w+' \| )+(?:'\w+'|None)) = '(\w+)'")
LAW = re.compile(r"^## (\d+)\. ", re.MULTILINE)


def test_is_what_the_script_writes() -> None:
    spec = importlib.util.spec_from_file_location(
        "make_reference", ROOT / "scripts/make_reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    make_reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_reference)
    is_now = (DOCS / "reference.md").read_text("utf-8")
    assert is_now == make_reference.written(), "run: python scripts/make_reference.py"


def test_a_default_is_one_of_the_allowed_words() -> None:
    text = (DOCS / "reference.md").read_text("utf-8")
    wrong = [
        match[0] for match in CHOICES.finditer(text) if f"'{match[2]}'" not in match[1].split(" | ")
    ]
    assert not wrong, "the words of another type with the same name"


def test_meaning_of_a_setting_is_whole() -> None:
    text = (DOCS / "reference.md").read_text("utf-8")
    assert "by day; default: that of the machine |" in text


@pytest.mark.check
def test_glossary_lists_the_classes_of_the_code() -> None:
    from scripts import make_glossary

    glossary = (DOCS / "glossary.md").read_text("utf-8")
    _, mark, table = glossary.partition(make_glossary.MARK)
    assert mark
    expected = make_glossary.generate()
    assert table.strip() == expected.strip(), "run: python scripts/make_glossary.py"
    assert re.search(r"\| +\|$", table, re.MULTILINE) is None, "a class without a docstring"


def test_every_decision_is_named_in_the_code_it_explains() -> None:
    code = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    code += (ROOT / "mkdocs.yml").read_text("utf-8")
    numbers = {path.name[:4] for path in (DOCS / "decisions").glob("*.md")}
    assert {number for number in numbers if f"decision {number}" not in code} == set()


def test_the_index_leads_to_every_page() -> None:
    index = (DOCS / "index.md").read_text("utf-8")
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert {name for name in pages if f"]({name})" not in index} == set()


def test_links_lead_to_headings_that_exist() -> None:
    wrong = []
    for page in sorted(DOCS.glob("*.md")):
        for target, heading in ANCHOR.findall(prose(page.read_text("utf-8"))):
            found = page.parent / target if target else page
            if found.exists() and heading not in _headings(found):
                wrong.append(f"{page.name}: {target}#{heading}")
    assert not wrong, "\n".join(wrong)


def _headings(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    found = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in found}


class TestGuarantees:
    text = GUARANTEES.read_text("utf-8")

    def test_every_law_has_its_section(self) -> None:
        assert LAW.findall(self.text) == [str(number) for number in range(1, 13)]

    def test_every_law_names_tests_or_says_that_it_is_not_kept_yet(self) -> None:
        for section in LAW.split(self.text)[2::2]:
            assert NAMED.search(section) or "Not yet" in section, section.splitlines()[0]

    @pytest.mark.parametrize(("path", "names"), sorted(set(NAMED.findall(text))))
    def test_every_test_that_is_named_exists(self, path: str, names: str) -> None:
        assert (ROOT / path).is_file(), f"{path} does not exist"
        wanted = [name for name in names.split("::") if name]
        assert _stands_in(ROOT / path, wanted), f"{path} has no {'::'.join(wanted)}"


def _stands_in(path: Path, names: list[str]) -> bool:
    """Whether classes and a function of these names stand one inside the other."""
    body: list[ast.stmt] = ast.parse(path.read_text("utf-8")).body
    for name in names:
        found = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name
        ]
        if not found:
            return False
        body = found[-1].body
    return not names or re.match(r"[Tt]est|\w+Promises$", names[-1]) is not None


class TestTheLookUp:
    """A look-up that finds everything would be content with everything."""

    def test_this_test_is_found(self) -> None:
        here = Path(__file__)
        assert _stands_in(here, ["TestTheLookUp", "test_this_test_is_found"])
        assert _stands_in(here, ["test_is_what_the_script_writes"])
        assert _stands_in(here, [])

    def test_what_is_not_there_is_not_found(self) -> None:
        here = Path(__file__)
        assert not _stands_in(here, ["test_this_test_is_found"])
        assert not _stands_in(here, ["TestTheLookUp", "test_nothing"])
        assert not _stands_in(here, ["_stands_in"])
