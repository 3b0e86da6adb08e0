"""Files of a message: posted with it, stored, and read back by whoever may read the message."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.settings import PlatformSettings
from tertulia.platforms.web import WebAdapter
from tests.http.served_gateway import eventually, served_gateway

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
DRAWING = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


def message(*files: tuple[str, bytes], text: str = "") -> dict[str, Any]:
    encoded = [{"name": name, "data": base64.b64encode(data).decode()} for name, data in files]
    return {"text": text, "files": encoded}


def test_files_are_stored_and_read_by_whom_they_belong_to(tmp_path: Path) -> None:
    with (
        served_gateway(tmp_path / "talk.db", adapters=[WebAdapter()]) as server,
        server.client("ana") as ana,
        server.client("bob") as bob,
        server.client() as root,
    ):
        body = message(("pixel.png", PIXEL), ("drawing.svg", DRAWING), text="Look")
        assert ana.post("/web/c/messages", json=body).status_code == 202
        with server.store() as store:
            eventually(lambda: store.inbox.find(state="done").items)
            session = store.sessions.find().items[0].id
            entry = store.transcript(session).entries()[0]
        assert [file["name"] for file in entry.body["media"]] == ["pixel.png", "drawing.svg"]
        address = f"/sessions/{session}/messages/{entry.seq}/files"
        for client in (ana, root):
            picture = client.get(f"{address}/0")
            assert (picture.content, picture.headers["content-type"]) == (PIXEL, "image/png")
            assert picture.headers["x-content-type-options"] == "nosniff"
            drawing = client.get(f"{address}/1")
            assert drawing.content == DRAWING
            assert drawing.headers["content-type"] == "application/octet-stream"
            assert drawing.headers["content-disposition"].startswith("attachment")
        assert bob.get(f"{address}/0").status_code == 404
        for wrong in (f"{address}/2", f"{address}/x", address.replace("/1/", "/99/") + "/0"):
            assert ana.get(wrong).status_code == 404, wrong


def test_files_beyond_the_limits_are_refused(tmp_path: Path) -> None:
    rules = GatewaySettings(
        platforms={"web": PlatformSettings(admission="everyone", max_file_mb=0.001)},
        drain_seconds=2,
    )
    with (
        served_gateway(tmp_path / "talk.db", adapters=[WebAdapter()], rules=rules) as server,
        server.client("ana") as client,
    ):
        address = "/web/c/messages"
        assert client.post(address, json={"text": ""}).status_code == 400
        assert client.post(address, json={"files": [{"data": "!"}]}).status_code == 400
        assert client.post(address, json=message(("a.txt", b"x" * 1_001))).status_code == 413
        many = message(*[("a.txt", b"x")] * 11)
        assert client.post(address, json=many).status_code == 400
        with server.store() as store:
            assert store.inbox.find().items == ()
        assert client.post(address, json=message(("a.txt", b"hello"))).status_code == 202
