"""A small server that speaks the OpenAI protocol over a real socket, in a process of its own: python server.py PORTFILE

POST /script takes a list of steps; each call of /v1/chat/completions plays the next one (the last repeats). GET
/requests gives what was sent.
A step: {"text", "finish", "thinking" (a number of chunks without text that come first), "refusal", "kind" (content
type), "escaped" (ASCII only), "usage", "tool_calls", "status", "headers", "error", "delay", "silence", "drop_after",
"bytes" (hex, sent as they
are), "cut": sizes of the pieces in which the stream is written}. Keys that are missing mean the usual.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

STATE: dict[str, Any] = {"steps": [], "requests": [], "at": 0}
LOCK = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _json(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """What was asked so far."""
        self._json(200, STATE["requests"])

    def do_POST(self) -> None:
        """A new script, or a completion."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/script":
            STATE.update(steps=body, requests=[], at=0)
            self._json(200, {})
            return
        with LOCK:
            step = STATE["steps"][min(STATE["at"], len(STATE["steps"]) - 1)]
            STATE["at"] += 1
            STATE["requests"].append(
                {"path": self.path, "authorization": self.headers.get("Authorization"), "body": body}
            )
        time.sleep(step.get("delay", 0))
        if step.get("status", 200) != 200:
            self._json(
                step["status"],
                {"error": {"message": step.get("error", "scripted"), "type": "scripted"}},
                step.get("headers"),
            )
            return
        self._stream(step)

    def _stream(self, step: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", step.get("kind", "text/event-stream"))
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        data = bytes.fromhex(step["bytes"]) if "bytes" in step else events(step)
        cuts, at, sent = step.get("cut", [4096]), 0, 0
        limit = step.get("drop_after", len(data))
        try:
            while sent < min(len(data), limit):
                size = cuts[at % len(cuts)]
                self.wfile.write(data[sent : min(sent + size, limit)])
                self.wfile.flush()
                sent, at = sent + size, at + 1
                time.sleep(step.get("pace", 0))
            time.sleep(step.get("silence", 0))
        except (BrokenPipeError, ConnectionResetError):
            STATE["requests"][-1]["cancelled"] = True


def events(step: dict[str, Any]) -> bytes:
    """The server-sent events of a step."""
    text, out = step.get("text", ""), []

    def chunk(delta: dict[str, Any], finish: str | None = None) -> None:
        value = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "scripted",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
        out.append(f"data: {json.dumps(value, ensure_ascii=step.get('escaped', False))}\n\n")

    chunk({"role": "assistant", "content": ""})
    for _ in range(step.get("thinking", 0)):
        chunk({"reasoning_content": "hm "})
    if "refusal" in step:
        chunk({"refusal": step["refusal"]})
    size = max(1, len(text) // 40)
    for start in range(0, len(text), size):
        chunk({"content": text[start : start + size]})
    for index, call in enumerate(step.get("tool_calls", [])):
        chunk(
            {
                "tool_calls": [
                    {
                        "index": index,
                        "id": f"call{index}",
                        "type": "function",
                        "function": {"name": call["name"], "arguments": ""},
                    }
                ]
            }
        )
        half = len(call["arguments"]) // 2
        for part in (call["arguments"][:half], call["arguments"][half:]):
            chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    chunk({}, step.get("finish", "tool_calls" if step.get("tool_calls") else "stop"))
    usage = step.get("usage", {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150})
    if usage is not None:
        last = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "scripted", "choices": []}
        out.append(f"data: {json.dumps({**last, 'usage': usage})}\n\n")
    return ("".join(out) + "data: [DONE]\n\n").encode()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Path(sys.argv[1]).write_text(str(server.server_address[1]))
    server.serve_forever()
