"""A folder of pages with a table of contents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest
from markdown_it import MarkdownIt

from tertulia import Store
from tertulia.transfer.exporters.export import export_to
from tests.transfer.exporters.html_reader import Reader
from tests.transfer.filled_stores import ANA, GROUP, talk


class TestContents:
    @pytest.mark.parametrize("form", ["markdown", "html"])
    def test_folder_has_a_table_of_contents(self, store: Store, tmp_path: Path, form: str) -> None:
        ending = {"markdown": "md", "html": "html"}[form]
        names = [talk(store, source, "hi") for source in (ANA, GROUP)]
        store.sessions.rename(names[0], "[x](javascript:alert(1)) <b>")
        export_to(store, form, tmp_path / "out")
        assert set(os.listdir(tmp_path / "out")) == {
            f"index.{ending}",
            *(f"{n}.{ending}" for n in names),
        }
        index = (tmp_path / "out" / f"index.{ending}").read_text("utf-8")
        if form == "html":
            reader = Reader()
            reader.feed(index)
            links = [value for _, name, value in reader.attributes if name == "href"]
        else:
            tokens = cast(Any, MarkdownIt("commonmark").parse(index))
            children = [child for token in tokens for child in token.children or ()]
            links = [child.attrGet("href") for child in children if child.type == "link_open"]
        assert links == [f"{name}.{ending}" for name in names]
