"""A page: its address, the role it needs, what it loads, and the template that shows it.

The parts of a page that change by themselves are blocks of its template whose names begin with
`live_`; each stands in an element with that id. A list keeps its order while somebody reads it: its
rows change in place, and new ones are announced.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup, escape
from starlette.requests import Request

from tertulia.console.environment import load_macro, render_block, render_template
from tertulia.core.session import Session
from tertulia.core.source import Source
from tertulia.http.app import Api
from tertulia.http.auth import Caller
from tertulia.http.operations import call_operation
from tertulia.records.people import Role

CONSOLE = "/console"
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_DIGEST_LENGTH = 8
# Between the ids of rows in an address: one that need not be escaped there, nor is part of an id.
ROW_SEPARATOR = "."


class PageCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a page by a signed-in person. `path` and `query` are those of the page.

    `sessions` are those that were read for it already.
    """

    api: Api
    caller: Caller
    request: Request
    path: dict[str, str]
    query: dict[str, str]
    sessions: dict[str, Session] = msgspec.field(default_factory=dict)

    async def operate(
        self,
        operation: str,
        *,
        path: Mapping[str, str] = _NOTHING,
        query: Mapping[str, Any] = _NOTHING,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation of the HTTP API for this person, and return its value."""
        values = {name: value for name, value in query.items() if value not in (None, "")}
        return await call_operation(
            self.api, operation, self.caller, self.request, path=path, query=values, body=body,
            sessions=self.sessions,
        )  # fmt: skip

    def choose(self, *names: str) -> dict[str, str]:
        """Return the parameters of the address that have these names, if they are set."""
        return {name: self.query[name] for name in names if self.query.get(name)}

    def own_source(self, platform: str, chat: str) -> Source:
        """Return the source of this person's messages in one of their chats."""
        return self.caller.source(platform, chat)


Load = Callable[[PageCall], Awaitable[dict[str, Any]]]


class ConsolePage(msgspec.Struct, frozen=True, kw_only=True):
    """One page. `section` is its entry in the navigation.

    `live` are the blocks that are sent again when they change. `rows` names the list in the loaded
    values whose items are rows; each has an `id` and is shown by the macro of `row_template`.
    `part` names a block that the page can be asked for alone, by `?part=`. What a page shows may
    change without a change of the store, such as a node that becomes silent: it is loaded again
    after `ages` seconds.
    """

    path: str
    name: str
    title: str
    section: str
    load: Load
    role: Role = "member"
    live: tuple[str, ...] = ()
    rows: str | None = None
    row_template: str = ""
    part: str = ""
    ages: float = 60.0

    @property
    def template(self) -> str:
        return f"{self.name}.html"

    @property
    def is_live(self) -> bool:
        return bool(self.live or self.rows)


class LoadedPage:
    """A page with the values it has loaded."""

    def __init__(self, page: ConsolePage, call: PageCall, values: dict[str, Any]) -> None:
        self.page = page
        self.call = call
        self.values = values
        self._fragments: dict[tuple[str, ...], dict[str, str]] = {}

    @property
    def address(self) -> str:
        """The address of the page without its host, as links use it."""
        path = CONSOLE + self.page.path
        for name, value in self.call.path.items():
            path = path.replace("{" + name + "}", value)
        query = urlencode(self.call.query)
        return f"{path}?{query}" if query else path

    @property
    def row_ids(self) -> list[str]:
        """The ids of the rows of the list, in the order of the page."""
        rows: Sequence[Any] = self.values[self.page.rows] if self.page.rows else ()
        return [str(row.id) for row in rows]

    def live_address(self, shared: Mapping[str, Any]) -> str:
        """Return the address of the stream that keeps this page up to date."""
        rows = self.row_ids
        parts = self.fragments(rows, shared)
        fields = {"at": self.address, "since": digest_of(parts)}
        if rows:
            fields["rows"] = ROW_SEPARATOR.join(rows)
        return f"{CONSOLE}/live?{urlencode(fields)}"

    def fragments(self, rows: Sequence[str], shared: Mapping[str, Any]) -> dict[str, str]:
        """Return the HTML of every part that may change, by the id of its element.

        Of a list these are the rows in `rows`, and `live_newer`, which tells how many others there
        are. A row that is not in the list any more has the empty text: the page keeps what it has.
        Open pages with the same rows share them.
        """
        key = tuple(rows)
        if key not in self._fragments:
            self._fragments[key] = self._render_fragments(rows, shared)
        return self._fragments[key]

    def _render_fragments(self, rows: Sequence[str], shared: Mapping[str, Any]) -> dict[str, str]:
        context = {**shared, **self.values, "address": self.address}
        parts = {}
        if self.page.rows is not None:
            items = {str(item.id): item for item in self.values[self.page.rows]}
            render_row = load_macro(self.page.row_template, "row_html")
            for number in rows:
                item = items.get(number)
                parts[f"row-{number}"] = "" if item is None else render_row(item, context)
            added, gone = len(items.keys() - set(rows)), len(set(rows) - items.keys())
            newer = {**context, "added": added, "gone": gone}
            parts["live_newer"] = render_template("_newer.html", newer)
        for name in self.page.live:
            parts[name] = render_block(self.page.template, name, context)
        return parts

    def _rows_html(self, shared: Mapping[str, Any]) -> Markup:
        """Return the rows of the list, as the templates have written and escaped them."""
        parts = self.fragments(self.row_ids, shared)
        rows = [f'<li id="row-{escape(id)}">{parts[f"row-{id}"]}</li>' for id in self.row_ids]
        return Markup("\n".join(rows))  # noqa: S704

    def regions(self, shared: Mapping[str, Any]) -> dict[str, str]:
        """Return the HTML of every changing part as after a reload: lists in their new order."""
        context = {**shared, **self.values, "added": 0, "gone": 0, "address": self.address}
        context["rows_html"] = self._rows_html(shared)
        names = [*self.page.live, *(["live_list"] if self.page.rows else [])]
        names += [f"live_{self.page.part}"] if self.page.part else []
        parts = {name: render_block(self.page.template, name, context) for name in names}
        if self.page.rows:
            parts["live_newer"] = ""
        return parts

    def render(self, shared: Mapping[str, Any]) -> str:
        """Return the whole page."""
        context = {
            **shared,
            **self.values,
            "page": self.page,
            "rows_html": self._rows_html(shared),
            "address": self.address,
            "live_address": self.live_address(shared) if self.page.is_live else None,
            "added": 0,
            "gone": 0,
        }
        return render_template(self.page.template, context)


def digest_of(parts: Mapping[str, str]) -> str:
    """Return one short digest for each part, joined; the id of an event."""
    return "".join(
        hashlib.blake2b(html.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        for html in parts.values()
    )


def changed_parts(parts: Mapping[str, str], since: str) -> dict[str, str]:
    """Return the parts that differ from those whose digests are in `since`; all if it fits not."""
    digests = [since[i : i + _DIGEST_LENGTH] for i in range(0, len(since), _DIGEST_LENGTH)]
    if len(digests) != len(parts):
        return dict(parts)
    current = digest_of(parts)
    return {
        name: html
        for index, (name, html) in enumerate(parts.items())
        if current[index * _DIGEST_LENGTH : (index + 1) * _DIGEST_LENGTH] != digests[index]
    }


def partials(parts: Mapping[str, str], *, swap: str = "innerMorph") -> str:
    """Return parts as one text that the script puts into their elements; empty ones stay as is."""
    return "".join(
        f'<hx-partial hx-target="#{name}" hx-swap="{swap}">{html}</hx-partial>'
        for name, html in parts.items()
        if html or not name.startswith("row-")
    )


async def load_page(page: ConsolePage, call: PageCall) -> LoadedPage:
    """Check the role of the caller, and load the values of a page."""
    call.caller.require_role(page.role)
    call = msgspec.structs.replace(call, sessions={})  # an action may have changed one
    return LoadedPage(page, call, await page.load(call))


async def gather_values(**loads: Awaitable[Any]) -> dict[str, Any]:
    """Return the results of several loads by name, run side by side."""
    results = await asyncio.gather(*loads.values())
    return dict(zip(loads, results, strict=True))
