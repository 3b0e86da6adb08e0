"""One session as a file: for people as Markdown or HTML, for programs as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
from starlette.responses import Response, StreamingResponse

from tertulia.http.routing import ApiCall, Operation
from tertulia.transfer.exporters import export
from tertulia.transfer.exporters.export import ENDINGS, Document, Form


class ExportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The format, and whether ids and phone numbers are left out; by default as the store says."""

    format: Form = "markdown"
    redact: bool | None = None


async def export_session(call: ApiCall) -> Response:
    session = await call.session()
    query: ExportQuery = call.query
    document = await asyncio.to_thread(
        export.document, call.api.store.sync, session.id, query.format, redact=query.redact
    )
    return StreamingResponse(
        _lines(document),
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f'attachment; filename="{session.id}.{ENDINGS[query.format]}"',
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; sandbox",
        },
    )


def _lines(document: Document) -> Iterator[bytes]:
    """Yield the lines of a document; they are read while they are sent."""
    for line in document:
        yield f"{line}\n".encode("utf-8", "replace")


TABLE = (
    Operation(
        method="GET", path="/sessions/{id}/export", act=export_session, query=ExportQuery,
        kind="application/octet-stream",
        summary="Write a session as a file: markdown, html, json, jsonl or nanobot.",
    ),
)  # fmt: skip
