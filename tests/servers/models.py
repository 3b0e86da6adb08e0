"""A scripted model server on loopback, for the APIs of OpenAI and Anthropic.

It is a real server on a real socket, so that network faults look as in production: a reply may be
cut, reset, delayed for ever or endless.

    with ModelServer() as server:
        server.script(openai.says("Hola"), refuses(429, retry_after="2"), openai.says("Sí"))
        agent = OpenAIAgent(OpenAIOptions(model="test", base_url=server.url))

Each call takes the next reply of the script; `server.seen` lists the calls.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

# How a reply ends: complete; without its last chunk, as when a server dies; with a reset; never,
# with no further byte; never, with the last piece repeated.
End = Literal["well", "cut", "reset", "hang", "endless"]

STREAM = "text/event-stream"
JSON = "application/json"


class Reply(NamedTuple):
    """The reply to one call. Each piece of the body is sent separately."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    kind: str = STREAM
    headers: Mapping[str, str] = {}
    end: End = "well"

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def ending(self, end: End, after: int | None = None) -> Reply:
        """Return the same reply with another end, after some of its pieces."""
        return self._replace(pieces=self.pieces[:after], end=end)

    def split(self, size: int) -> Reply:
        """Return the same bytes in pieces of that size, which split lines and characters."""
        body = self.body
        return self._replace(pieces=[body[at : at + size] for at in range(0, len(body), size)])


class Seen(NamedTuple):
    """One call as the server received it."""

    path: str
    headers: dict[str, str]
    body: Any


class Call(NamedTuple):
    """A tool call of a model; its arguments as the text that the model writes."""

    id: str
    name: str
    arguments: str = "{}"


class ModelServer:
    """A server that answers calls by its script, each connection in a thread of its own."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.arrived = threading.Semaphore(0)
        self._replies: list[Reply] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._server = _Listener(("127.0.0.1", 0), _Connection)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def script(self, *replies: Reply) -> None:
        """Append replies for the next calls to the script."""
        with self._lock:
            self._replies += replies

    @property
    def left(self) -> int:
        """The number of replies that no call has taken yet."""
        return len(self._replies)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        with self._lock:
            for connection in self._open:
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()  # waits for the threads
        self._thread.join()

    def take(self, call: Seen) -> Reply:
        with self._lock:
            self.seen.append(call)
            reply = self._replies.pop(0) if self._replies else OVER
        self.arrived.release()
        return reply

    def enter(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)


class _Listener(socketserver.ThreadingTCPServer):
    request_queue_size = 256
    owner: ModelServer


class _Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        assert isinstance(self.server, _Listener)
        owner = self.server.owner
        owner.enter(self.connection)
        try:
            while (call := self._read()) is not None and self._send(owner.take(call)):
                pass
        except OSError:
            pass  # the client has closed the connection, as in some tests
        finally:
            owner.leave(self.connection)

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()

    def _read(self) -> Seen | None:
        first = self.rfile.readline().decode("latin-1")
        if not first:
            return None
        headers = {}
        while line := self.rfile.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = self.rfile.read(int(headers.get("content-length", "0")))
        is_json = headers.get("content-type", JSON).startswith(JSON)
        content = json.loads(body) if body and is_json else body or None
        return Seen(first.split()[1], headers, content)

    def _send(self, reply: Reply) -> bool:
        """Send a reply; return whether the connection can be used again."""
        if reply.pieces or reply.end == "well":
            lines = [f"HTTP/1.1 {reply.status} Scripted", f"Content-Type: {reply.kind}"]
            lines += [f"{name}: {value}" for name, value in reply.headers.items()]
            lines.append("Transfer-Encoding: chunked")
            head = "\r\n".join([*lines, "", ""]).encode()
            if reply.end == "hang":
                # In one write, so that only the silence after it is long, also on a busy machine.
                self.wfile.write(head + b"".join(map(_chunk, reply.pieces)))
            else:
                self.wfile.write(head)
                for piece in reply.pieces:
                    self._piece(piece)
        if reply.end == "well":
            self.wfile.write(b"0\r\n\r\n")
        elif reply.end == "reset":
            # With a linger time of zero, closing sends a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif reply.end == "hang":
            # Blocks until the client closes the connection, or the test ends.
            self.connection.recv(1)
        elif reply.end == "endless":
            while True:
                self._piece(reply.pieces[-1])
        return reply.end == "well"

    def _piece(self, piece: bytes) -> None:
        if piece:
            self.wfile.write(_chunk(piece))


def _chunk(piece: bytes) -> bytes:
    """Return a piece as an HTTP chunk; an empty chunk would be the end."""
    return b"%x\r\n%s\r\n" % (len(piece), piece) if piece else b""


def refuses(
    status: int,
    message: str = "no",
    *,
    code: str | None = None,
    kind: str | None = None,
    retry_after: str | None = None,
    **headers: str,
) -> Reply:
    """Return an error reply as both providers write it: an object named error, with a message."""
    error = {"type": kind or "some_error", "message": message} | ({"code": code} if code else {})
    retry = {"Retry-After": retry_after} if retry_after is not None else {}
    body = json.dumps({"type": "error", "error": error}).encode()
    return Reply([body], status, JSON, {**retry, **headers})


OVER = refuses(418, "the script is over")


class openai:
    """Replies of the chat completions API."""

    @staticmethod
    def events(*chunks: Mapping[str, Any] | str) -> Reply:
        texts = (chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks)
        return Reply([f"data: {text}\n\n".encode() for text in texts])

    @staticmethod
    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"object": "chat.completion.chunk", "model": "test-1", "choices": [choice]}

    @classmethod
    def says(
        cls,
        text: str = "",
        *calls: Call,
        finish: str | None = None,
        usage: Mapping[str, Any] | None = None,
        reasoning: str = "",
        refusal: str = "",
    ) -> Reply:
        """Return a complete streamed answer; each word and half of a call is a chunk."""
        chunks = [cls.chunk({"role": "assistant", "content": ""})]
        if reasoning:
            chunks.append(cls.chunk({"reasoning_content": reasoning}))
        chunks += [cls.chunk({"content": word}) for word in words(text)]
        if refusal:
            chunks.append(cls.chunk({"refusal": refusal}))
        for at, call in enumerate(calls):
            half = len(call.arguments) // 2
            head = {"name": call.name, "arguments": call.arguments[:half]}
            tail = {"arguments": call.arguments[half:]}
            first = {"index": at, "id": call.id, "type": "function", "function": head}
            chunks.append(cls.chunk({"tool_calls": [first]}))
            chunks.append(cls.chunk({"tool_calls": [{"index": at, "function": tail}]}))
        chunks.append(cls.chunk({}, finish or ("tool_calls" if calls else "stop")))
        totals = usage if usage is not None else {"prompt_tokens": 10, "completion_tokens": 5}
        last: dict[str, Any] = {"object": "chat.completion.chunk", "choices": [], "usage": totals}
        return cls.events(*chunks, *([last] if totals else []), "[DONE]")

    @staticmethod
    def whole(text: str | None, *calls: Call) -> Reply:
        """Return an answer that is not streamed."""
        tool_calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ]
        message = {"role": "assistant", "content": text} | (
            {"tool_calls": tool_calls} if tool_calls else {}
        )
        finish = "tool_calls" if calls else "stop"
        body = {
            "model": "test-1",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        }
        return Reply([json.dumps(body).encode()], kind=JSON)


class anthropic:
    """Replies of the messages API."""

    @staticmethod
    def events(*events: Mapping[str, Any]) -> Reply:
        return Reply(
            [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
        )

    @classmethod
    def says(
        cls,
        text: str = "",
        *calls: Call,
        stop: str | None = None,
        usage: Mapping[str, Any] | None = None,
        thinking: str = "",
    ) -> Reply:
        """Return a complete streamed answer; each word and half of a call is an event."""
        events: list[dict[str, Any]] = [start(usage), {"type": "ping"}]
        blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        if thinking:
            thought = {"type": "thinking", "thinking": "", "signature": ""}
            signed = {"type": "signature_delta", "signature": "c2lnbmVk"}
            blocks.append((thought, [{"type": "thinking_delta", "thinking": thinking}, signed]))
        if text:
            deltas = [{"type": "text_delta", "text": word} for word in words(text)]
            blocks.append(({"type": "text", "text": ""}, deltas))
        for call in calls:
            half = len(call.arguments) // 2
            halves = ("", call.arguments[:half], call.arguments[half:])
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in halves]
            block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            blocks.append((block, deltas))
        for at, (block, deltas) in enumerate(blocks):
            events.append({"type": "content_block_start", "index": at, "content_block": block})
            events += [
                {"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas
            ]
            events.append({"type": "content_block_stop", "index": at})
        reason = stop or ("tool_use" if calls else "end_turn")
        end = {"stop_reason": reason, "stop_sequence": None}
        events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}})
        return cls.events(*events, {"type": "message_stop"})

    @staticmethod
    def whole(text: str, *calls: Call) -> Reply:
        """Return an answer that is not streamed."""
        content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        content += [
            {
                "type": "tool_use",
                "id": call.id,
                "name": call.name,
                "input": json.loads(call.arguments),
            }
            for call in calls
        ]
        body = {
            "type": "message",
            "model": "test-1",
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }
        return Reply([json.dumps(body).encode()], kind=JSON)


def start(usage: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the first event of a message of Anthropic's API."""
    totals = usage if usage is not None else {"input_tokens": 10, "output_tokens": 1}
    message = {"type": "message", "role": "assistant", "model": "test-1", "usage": totals}
    return {"type": "message_start", "message": {**message, "content": []}}


def words(text: str) -> list[str]:
    """Split a text into words; joined, they give the text."""
    parts = text.split(" ")
    return [word if at == 0 else f" {word}" for at, word in enumerate(parts)] if text else []
