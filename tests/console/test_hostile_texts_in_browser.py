"""Hostile texts in every field that a stranger fills, on every page, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tertulia.console.app import PAGES
from tests.console.hostile_store import MARKUP, fill
from tests.console.page_checks import check_page
from tests.console.served_console import served_console
from tests.servers.browser import WatchedContext

pytestmark = pytest.mark.check

# What none of the texts may have become. The pages themselves use `hx-` on forms and one element.
_FOREIGN = """() => [...document.querySelectorAll(
  "[onerror], [onclick], [onload], [onmouseover], iframe, img, object, embed, script:not([src])," +
  "a[href^='javascript:'], a[href^='data:'], [hx-ignore] [hx-get], [hx-ignore] [data-hx-get]," +
  "[hx-ignore] form, [hx-ignore] style, [style]"
)].map((element) => element.outerHTML.slice(0, 200))"""


def test_texts_of_strangers_stay_texts(
    tmp_path: Path, profile: Callable[..., WatchedContext]
) -> None:
    path = tmp_path / "talk.db"
    session = fill(path)
    with served_console(path) as console:
        with console.gateway.store() as store:
            number = str(store.inbox.find().items[0].id)
        agent = profile(console.url, user_agent=MARKUP[:250])
        page = console.sign_in(agent)
        ids = {"sessions": session, "messages": number, "processes": "none"}
        for each in PAGES:
            address = each.path.replace("{id}", ids.get(each.path.split("/")[1], "1"))
            page.goto(f"/console{address}")
            _check(agent, page)
        for address in (
            "/search?q=alert", f"/sessions/{session}?full=1", "/sessions?text=%22%3E%3Cimg+src%3E",
            f"/sessions/{session}/revisions?n=1", "/policies?platform=%22%3E&updated_at=%3Cb%3E",
            "/usage?since=%3Cscript%3E", "/enter?to=javascript:alert(1)", "/%22%3E%3Cscript%3E",
            "/sessions/%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E", "/?note=%3Cscript%3E",
        ):  # fmt: skip
            page.goto(f"/console{address}")
            _check(agent, page)


def _check(profile: WatchedContext, page: Page) -> None:
    assert page.evaluate(_FOREIGN) == [], page.url
    check_page(profile, page)
