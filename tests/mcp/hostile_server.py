"""An MCP server that misbehaves, as its argument says: `python hostile_server.py MODE [FILE]`.

good            two tools; `echo` answers
dies            ends in the middle of a call
hangs           never answers a call
floods          sends notifications and noise for ever, and answers in between
huge            answers a call with 50 MB
noise           prints lines that are no messages, and one that is half a message
bad_schema      one tool has an impossible schema, one has no name
changing        its tools are the lines of FILE, read at each listing
grandchildren   starts processes that leave its group and ignore SIGTERM; their pids go to FILE
never_starts    ends at once
asks            asks for input instead of answering (revision 2026-07-28)
silent          answers nothing at all
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODE = sys.argv[1]
FILE = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(os.devnull)
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def tools() -> list[Any]:
    if MODE == "bad_schema":
        return [
            {"name": "broken", "inputSchema": {"type": "object", "properties": 7}},
            {"name": "list", "inputSchema": {"type": "array"}},
            {"inputSchema": SCHEMA},
            {"name": "echo", "description": "Echo.", "inputSchema": SCHEMA},
        ]
    if MODE == "changing":
        return [
            {"name": name, "description": text, "inputSchema": SCHEMA}
            for name, _, text in (line.partition(" ") for line in FILE.read_text().splitlines())
        ]
    return [
        {"name": "echo", "description": "Echo.", "inputSchema": SCHEMA},
        {"name": "look", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
    ]


def call(params: dict[str, Any]) -> dict[str, Any] | None:
    FILE.open("a").write("called\n")
    if MODE == "dies":
        os._exit(3)
    if MODE == "hangs":
        return None
    if MODE == "huge":
        return {"content": [{"type": "text", "text": "x" * 50_000_000}]}
    if MODE == "asks":
        return {"resultType": "input_required", "inputRequests": {}}
    if MODE == "grandchildren":
        start_grandchildren()
    text = params.get("arguments", {}).get("text")
    return {"content": [{"type": "text", "text": f"echo {text}"}]}


def start_grandchildren() -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    pids = [
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True).pid for _ in range(2)
    ]
    FILE.write_text(json.dumps(pids))


def answer(request: dict[str, Any]) -> None:
    method, number = request.get("method"), request.get("id")
    if number is None:
        return
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": number}
    if method == "server/discover" and MODE == "asks":
        send({**reply, "result": {"supportedVersions": ["2026-07-28"], "capabilities": {}}})
    elif method == "initialize":
        info = {"name": "hostile\x1b[31m", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}
        send({**reply, "result": result})
    elif method == "tools/list":
        send({**reply, "result": {"tools": tools()}})
    elif method == "tools/call":
        if (outcome := call(request["params"])) is not None:
            send({**reply, "result": outcome})
    else:
        send({**reply, "error": {"code": -32601, "message": "unknown"}})


def main() -> None:
    if MODE == "never_starts":
        sys.exit(1)
    if MODE == "grandchildren":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "noise":
        print(
            "Welcome to the server!",
            "\x1b[31m{",
            '{"jsonrpc": "2.0", "id": 1',
            sep="\n",
            flush=True,
        )
    for line in sys.stdin:
        if MODE == "silent":
            continue
        if MODE == "floods":
            for number in range(20_000):
                send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"n": number}})
        answer(json.loads(line))
    while MODE == "grandchildren":
        time.sleep(1)


if __name__ == "__main__":
    main()
