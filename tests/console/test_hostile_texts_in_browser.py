"""Hostile texts in every field that a stranger fills, on every page, in a real browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tertulia.console.app import PAGES
from tests.console.hostile_store import MARKUP, fill
from tests.console.page_checks import check_page
from tests.console.served_console import served_console
from tests.console.test_live_in_browser import sign_in
from tests.servers.browser import WatchedContext

pytestmark = pytest.mark.check

# What none of the texts may have become. The pages themselves use `hx-` on forms and one element.
_FOREIGN = """() => [...document.querySelectorAll(
  "[onerror], [onclick], [onload], [onmouseover], iframe, img, object, embed, script:not([src])," +
  "a[href^='javascript:'], a[href^='data:'], [hx-ignore] [hx-get], [hx-ignore] [data-hx-get]," +
  "[hx-ignore] form, [hx-ignore] style, [style]"
)].map((element) => element.outerHTML.slice(0, 200))"""


# A part of a hostile text that stands on a page; "" where strangers fill no field.
_ESCAPED = "&lt;script&gt;"
_SHOWN = {page.name: _ESCAPED for page in PAGES} | dict.fromkeys(("search", "policies", "chat"), "")


def test_texts_of_strangers_stay_texts(where: str, profile: Callable[..., WatchedContext]) -> None:
    hostile = fill(where)
    session = hostile.session
    with served_console(where) as console:
        with console.gateway.store() as store:
            number = str(store.inbox.find().items[0].id)
        agent = profile(console.url, user_agent=MARKUP[:250])
        page = agent.page()
        sign_in(page)  # in this browser, whose name is kept
        ids = {"sessions": session, "messages": number, "processes": hostile.process}
        for each in PAGES:
            address = each.path.replace("{id}", ids.get(each.path.split("/")[1], "1"))
            response = page.goto(f"/console{address}")
            assert response is not None
            assert response.status == 200, address
            assert _SHOWN[each.name] in page.content(), address  # it does show a stranger's text
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
