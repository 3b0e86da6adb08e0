"""The README: what it says works, in the order in which a newcomer needs it."""

from __future__ import annotations

import re

import pytest

from tertulia.platforms import registry
from tests.docs.markdown import ROOT

README = (ROOT / "README.md").read_text("utf-8")
FIRST_SCREEN = README.split("\n## ")[0]


def test_first_screen_has_a_name_a_sentence_a_picture_and_three_promises() -> None:
    assert README.startswith("# Tertulia\n\n")
    assert FIRST_SCREEN.count("<picture>") == 1
    assert len(re.findall(r"^- \*\*", FIRST_SCREEN, re.MULTILINE)) == 3
    assert len(FIRST_SCREEN.splitlines()) < 20


def test_a_newcomer_tries_it_first_and_reads_the_proof_later() -> None:
    headings = re.findall(r"^## (.+)$", README, re.MULTILINE)
    assert headings[:3] == ["Try it", "A Telegram bot in five minutes", "As a library"]
    assert headings[-1] == "Guarantees and performance"
    assert len(README.splitlines()) <= 140


@pytest.mark.parametrize("name", ["telegram", "slack", "matrix"])
def test_chat_apps_of_the_first_sentence_have_an_adapter(name: str) -> None:
    assert name in FIRST_SCREEN.lower()
    assert registry.PLATFORMS[name].build is not None


def test_every_chat_app_is_in_the_table_with_its_state() -> None:
    table = README.partition("| people write from | state |")[2].partition("\n\n")[0]
    pages = {"local": "run", "api": "http", "web": "http", "webhook": "http"}
    for name in registry.built_in_names():
        (row,) = [line for line in table.splitlines() if f"docs/{pages.get(name, name)}.md" in line]
        assert re.search(r"tested", row), name


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)\b", README))
    assert named
    assert named <= targets
