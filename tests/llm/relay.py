"""An endpoint whose model is whoever answers in a folder: python tests/llm/relay.py FOLDER PORTFILE

Each request is written to FOLDER/N.prompt.md exactly as it was sent, with the tools that it offers; the reply is
FOLDER/N.reply.md, once it is there. A reply of lines "CALL NAME {JSON}" alone calls tools. This is how the shipped
recordings were made: a language model was given each prompt, and its answer was written down verbatim.
"""

from __future__ import annotations

import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
WAIT_S = 3600.0


class Handler(BaseHTTPRequestHandler):
    """One request, answered from a file."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Write the prompt down, wait for the reply, stream it."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = len(list(FOLDER.glob("*.prompt.md"))) + 1
        (FOLDER / f"{number}.prompt.md").write_text(write_prompt(body))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        reply, deadline = FOLDER / f"{number}.reply.md", time.monotonic() + WAIT_S
        while not reply.exists():
            if time.monotonic() > deadline:
                return
            self._send(
                {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": None}]}
            )  # keeps the connection awake
            time.sleep(0.5)
        delta, finish = read_reply(reply.read_text())
        self._send({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, value: dict[str, object]) -> None:
        whole = {"id": "r", "object": "chat.completion.chunk", "created": 0, "model": "relay", **value}
        self.wfile.write(f"data: {json.dumps(whole)}\n\n".encode())
        self.wfile.flush()


def write_prompt(body: dict[str, Any]) -> str:
    """The messages of a request, then the tools that it offers."""
    parts = []
    for message in body["messages"]:
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        called = "".join(f"\nCALL {call['name']} {call['arguments']}" for call in calls)
        parts.append(f"=== {message['role']} ===\n{message.get('content') or ''}{called}")
    if body.get("tools"):
        parts.append("=== tools ===\n" + "\n".join(json.dumps(tool["function"]) for tool in body["tools"]))
    return "\n\n".join(parts)


def read_reply(text: str) -> tuple[dict[str, Any], str]:
    """(delta of a chunk, reason of its end) of a reply."""
    lines = [line for line in text.splitlines() if line.strip()]
    found = [re.fullmatch(r"CALL (\w+) (\{.*\})", line.strip()) for line in lines]
    if not lines or not all(found):
        return {"content": text}, "stop"
    calls = [
        {"index": n, "id": f"call{n}", "type": "function", "function": {"name": one[1], "arguments": one[2]}}
        for n, one in enumerate(found)
        if one is not None
    ]
    return {"tool_calls": calls}, "tool_calls"


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Path(sys.argv[2]).write_text(str(server.server_address[1]))
    server.serve_forever()
