"""`/approvals`: list what waits, and answer for it, with the rights of the token."""

from __future__ import annotations

from pathlib import Path

from tertulia import Source, ToolCall
from tertulia.records.approval_questions import AskedCall
from tertulia.records.turns.turn import control_of
from tertulia.records.turns.waiting import Suspension
from tests.http.served_gateway import ServedGateway, served_gateway


def wait_for(served: ServedGateway, code: str, person: str) -> None:
    """Let a turn of somebody wait for an approval."""
    call = ToolCall("c1", "terminal", {"command": "ls"})
    source = Source("api", code, account="ana", user_id="ana")
    with served.store() as store, store.turn(source, "look", message_id=code) as turn:
        turn.add_assistant(None, tool_calls=[call])
        asked = AskedCall(code=code, call=call, question="May I?")
        control_of(turn).suspend(
            Suspension(requests=(asked,), seconds=600, requester=person, target=None)
        )


def test_owner_sees_all_and_others_their_own(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as served:
        wait_for(served, "AAAA2222", "api:~ana:ana")
        wait_for(served, "BBBB3333", "telegram:42")
        with served.client("root") as client:
            codes = [item["code"] for item in client.get("/approvals").json()["items"]]
            assert sorted(codes) == ["AAAA2222", "BBBB3333"]
        with served.client("ana") as client:
            (item,) = client.get("/approvals").json()["items"]
            assert (item["code"], item["tool"]) == ("AAAA2222", "terminal")
            refused = client.post("/approvals/BBBB3333", json={"answer": "approve"})
            assert refused.status_code == 403
            denied = client.post("/approvals/AAAA2222", json={"answer": "deny", "reason": "no"})
            assert denied.json()["state"] == "declined"
            late = client.post("/approvals/AAAA2222", json={"answer": "approve"})
            assert late.status_code == 400
        with served.client("bob") as client:
            assert client.get("/approvals").json() == {"items": []}
        with served.client("root") as client:
            approved = client.post("/approvals/BBBB3333", json={"answer": "approve"})
            assert approved.json()["state"] in ("approved", "used")
