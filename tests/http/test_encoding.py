"""JSON encoding: lone surrogates are sent escaped."""

from __future__ import annotations

from pathlib import Path

from tertulia import Source
from tertulia.core.usage import Usage
from tertulia.http.encoding import encode_json
from tests.http.served_gateway import served_gateway


def test_lone_surrogate_is_escaped() -> None:
    assert encode_json({"text": "half \ud83d"}) == b'{"text": "half \\ud83d"}'


def test_structs_are_encoded_either_way() -> None:
    assert b'"input":1' in encode_json(Usage(1))
    assert b'"input": 1' in encode_json([Usage(1), "\ud83d"])


def test_stored_lone_surrogate_can_be_read(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server:
        with server.store() as store:
            session = store.sessions.open(Source("telegram", "1", user_id="1"))
            store.transcript(session.id).append({"role": "user", "content": "half \ud83d"})
        with server.client() as client:
            for name in ("transcript", "history"):
                response = client.get(f"/sessions/{session.id}/{name}")
                assert response.status_code == 200
                assert "half" in response.text
            assert client.get("/search", params={"q": "half"}).status_code == 200
