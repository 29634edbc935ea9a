"""The client over a real socket: streaming cut at awkward places, tools, retries, faults, cancelling, budget, and the
key that shows nowhere."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import socket
import time
import traceback
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import (
    Choice,
    ChoiceDelta,
    ChoiceDeltaToolCall,
    ChoiceDeltaToolCallFunction,
)

from workbench.errors import BudgetExceeded, LlmError
from workbench.executors.jobs.sandbox import drop_environment
from workbench.proposers.llm import request
from workbench.proposers.llm.budget import Budget, Prices
from workbench.proposers.llm.client import ChatClient
from workbench.proposers.llm.replies import ReplyParts
from workbench.proposers.llm.request import Request
from workbench.proposers.llm.settings import Key, Settings, key_from_environment
from workbench.records import Reply

KEY = "sk-planted-9f8e7d6c5b4a"
ASK = [{"role": "user", "content": "write a kernel"}]


def client_for(server: Any, budget: Budget | None = None, **settings: Any) -> ChatClient:
    return ChatClient(
        Settings(**{"base_url": server.base, "model": "scripted", "max_tokens": 1000, "silence_s": 5.0, **settings}),
        Key(KEY),
        budget,
    )


def complete(client: ChatClient, **options: Any) -> tuple[Reply, str]:
    """The reply, and the text as it was streamed."""
    stream, seen = client.stream(ASK, **options), []
    while True:
        try:
            seen.append(next(stream) or "")
        except StopIteration as end:
            return end.value, "".join(seen)


@pytest.mark.parametrize("cut", [[1], [3, 1, 7], [4096], [5, 2]])
def test_streams_cut_anywhere(server: Any, cut: list[int]) -> None:
    text = "Größe µs 漢字 🙂\n```python\nx = 1\n```\n"
    server.play({"text": text, "cut": cut})
    reply, seen = complete(client_for(server))
    assert reply.text == seen == text and reply.finish == "stop"
    assert (reply.tokens_in, reply.tokens_out, reply.estimated, reply.cost_usd) == (100, 50, False, None)
    assert server.requests[0]["authorization"] == f"Bearer {KEY}"


def test_tool_calls_arrive_in_pieces(server: Any) -> None:
    server.play(
        {
            "tool_calls": [
                {"name": "search", "arguments": '{"query": "TMA"}'},
                {"name": "read", "arguments": '{"path": "a.py"}'},
            ]
        }
    )
    reply, _ = complete(
        client_for(server), tools=[{"type": "function", "function": {"name": "search", "parameters": {}}}]
    )
    assert [(call.name, json.loads(call.arguments)) for call in reply.tool_calls] == [
        ("search", {"query": "TMA"}),
        ("read", {"path": "a.py"}),
    ]


def test_a_server_without_tools_is_asked_without_them(server: Any) -> None:
    server.play({"status": 400, "error": "tools are not supported"}, "fine")
    client = client_for(server)
    reply, _ = complete(client, tools=[{"type": "function", "function": {"name": "search", "parameters": {}}}])
    assert reply.text == "fine" and client.tools_refused
    assert "tools" in server.requests[0]["body"] and "tools" not in server.requests[1]["body"]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "fault",
    [
        {"status": 429, "headers": {"Retry-After": "0.3"}},
        {"status": 500},
        {"status": 503},
        {"drop_after": 0},
        {"text": "half a reply", "drop_after": 300},
    ],
)
def test_passing_faults_are_tried_again(server: Any, fault: dict[str, Any]) -> None:
    server.play(fault, "fine")
    start = time.monotonic()
    reply, seen = complete(client_for(server))
    assert reply.text == "fine" and reply.retries == 1 and "asking again" in seen
    if fault.get("status") == 429:
        assert time.monotonic() - start >= 0.3


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"status": 401}, "refuses the key"),
        ({"status": 404}, "knows no model 'scripted'"),
        ({"status": 429, "headers": {"Retry-After": "0"}}, "limits the rate after 3 tries"),
        ({"status": 500}, "failed after 3 tries"),
        ({"status": 400, "error": "context length exceeded"}, "context length exceeded"),
        ({"drop_after": 0}, "was lost after 3 tries"),
    ],
)
def test_faults_that_stay_are_one_line(server: Any, fault: dict[str, Any], said: str) -> None:
    server.play(fault)
    with pytest.raises(LlmError, match=said) as caught:
        complete(client_for(server, retries=2))
    assert "\n" not in str(caught.value) and server.base in str(caught.value)
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_a_server_that_echoes_the_key_does_not_give_it_away(server: Any) -> None:
    for before in ("bad request with ", "x" * 290, "y" * 280):
        server.play({"status": 400, "error": f"{before}{KEY} in it"})
        with pytest.raises(LlmError) as caught:
            complete(client_for(server))
        assert KEY[:8] not in "".join(traceback.format_exception(caught.value)) and "***" in str(caught.value)


def test_nobody_there(server: Any) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start = time.monotonic()
    with pytest.raises(LlmError, match="nothing answers at"):
        complete(ChatClient(Settings(base_url=f"http://127.0.0.1:{port}/v1", model="m"), Key(KEY)))
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(
    "address",
    [
        "localhost:8000/v1",
        "http://",
        "ftp://host/v1",
        "http://h:99999/v1",
        "http://user:secretpass@host/v1",
        "http://host/v1?key=secretpass",
    ],
)
def test_an_address_that_cannot_be_used_is_refused(address: str) -> None:
    with pytest.raises(LlmError, match="address") as caught:
        ChatClient(Settings(base_url=address))
    assert "secretpass" not in str(caught.value)


def test_a_silent_server_times_out(server: Any) -> None:
    server.play({"delay": 5})
    with pytest.raises(LlmError, match=r"said nothing for 0\.5 s"):
        complete(client_for(server, first_s=0.5))
    server.play({"text": "a few words " * 50, "drop_after": 900, "silence": 5})
    with pytest.raises(LlmError, match=r"said nothing for 0\.5 s"):
        complete(client_for(server, silence_s=0.5))


@pytest.mark.parametrize(
    "step", [{"text": "word " * 400, "cut": [150], "pace": 0.05}, {"thinking": 400, "cut": [150], "pace": 0.05}]
)
def test_a_whole_reply_has_a_time_limit_while_pieces_flow(server: Any, step: dict[str, Any]) -> None:
    server.play(step)
    start = time.monotonic()
    with pytest.raises(LlmError, match=r"no complete reply from .* within 1 s"):
        complete(client_for(server, total_s=1.0))
    assert time.monotonic() - start < 10  # the whole reply takes longer


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "step",
    [
        {"delay": 20},
        {"text": "a few words " * 50, "drop_after": 900, "silence": 20},
        {"thinking": 2000, "cut": [200], "pace": 0.05},
    ],
)
def test_cancel_does_not_wait_for_the_reply(server: Any, step: dict[str, Any]) -> None:
    server.play(step)
    client = client_for(server, Budget())
    stream = client.stream(ASK)
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        next(stream)
    start = time.monotonic()
    stream.close()  # type: ignore[attr-defined]
    assert time.monotonic() - start < 10  # the reply would take 20 s and more
    server.play("fine")
    assert complete(client)[0].text == "fine"
    if "text" in step:
        assert (
            client.budget.estimated and client.budget.tokens_out >= 1000
        )  # what was cut off is counted at its upper bound


def test_odd_replies(server: Any) -> None:
    client = client_for(server)
    server.play({"text": ""})
    assert complete(client)[0].text == ""
    server.play({"text": "x" * 1_000_000})
    start = time.monotonic()
    assert len(complete(client)[0].text) == 1_000_000 and time.monotonic() - start < 60
    server.play({"text": "abc", "finish": "length"})
    assert complete(client)[0].finish == "length"
    server.play({"text": "no usage", "usage": None})
    reply, _ = complete(client)
    assert reply.estimated and reply.tokens_out == 1000 and reply.tokens_in >= len("write a kernel")
    broken = (
        b'data: {"id":"c","object":"chat.completion.chunk","created":0,"model":"m","choices":'
        b'[{"index":0,"delta":{"content":"caf\xe9"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    server.play({"bytes": broken.hex()})
    assert complete(client)[0].text == "caf\ufffd"
    for step, said in (
        ({"bytes": b"<html>hello</html>".hex(), "kind": "text/html"}, "usually ends in /v1"),
        ({"bytes": b"data: {not json\n\n".hex()}, "not the OpenAI protocol"),
        (
            {"bytes": b'data: {"error": {"message": "out of memory"}}\n\n'.hex()},
            "reports an error in its reply: out of memory",
        ),
    ):
        server.play(step)
        with pytest.raises(LlmError, match=said) as caught:
            complete(client)
        assert "\n" not in str(caught.value)
    server.play({"refusal": "I will not write that."})
    assert complete(client)[0].text == "I will not write that."
    server.play(
        {
            "escaped": True,
            "text": "half \ud83d of a character",
            "tool_calls": [{"name": "search", "arguments": '{"query": "\udc00"}'}],
        }
    )
    reply, seen = complete(client)
    assert reply.text.encode() and seen.encode() and reply.tool_calls[0].arguments.encode()


@pytest.mark.parametrize(
    ("step", "left", "taken"),
    [
        (
            {
                "status": 400,
                "error": "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
            },
            "max_tokens",
            "max_completion_tokens",
        ),
        (
            {"status": 400, "error": "Unrecognized request argument supplied: stream_options"},
            "stream_options",
            "max_tokens",
        ),
        ({"status": 400, "error": "response_format json_schema is not supported"}, "response_format", "tools"),
        ({"status": 500, "error": "this model does not support tools"}, "tools", "response_format"),
    ],
)
def test_what_a_server_refuses_by_name_is_left_out_from_then_on(
    server: Any, step: dict[str, Any], left: str, taken: str
) -> None:
    server.play(step, "fine")
    client = client_for(server)
    for _ in range(2):
        reply, _text = complete(
            client,
            tools=[{"type": "function", "function": {"name": "search", "parameters": {}}}],
            schema={"type": "object"},
        )
        assert reply.text == "fine" and reply.retries == 0
    first, *others = [request["body"] for request in server.requests]
    assert left in first and len(others) == 2 and all(left not in body and taken in body for body in others)


def test_the_default_endpoint_gets_the_newer_name_of_the_limit() -> None:
    assert (
        ChatClient(Settings()).limit_name == "max_completion_tokens"
        and ChatClient(Settings(base_url="http://localhost:1/v1")).limit_name == "max_tokens"
    )


def test_a_dead_budget_stops_a_retry(server: Any) -> None:
    server.play({"text": "half a reply", "drop_after": 300})
    budget = Budget(tokens=2500)  # one call of at most 1000 and its prompt; what broke off is counted at that
    with pytest.raises(BudgetExceeded, match="are left"):
        complete(client_for(server, budget, max_tokens=1500))
    assert len(server.requests) == 1 and budget.tokens_out == 1500


def test_tools_count_in_the_bound(server: Any) -> None:
    server.play("fine")
    tools = [{"type": "function", "function": {"name": "search", "description": "x" * 4000, "parameters": {}}}]
    with pytest.raises(BudgetExceeded):
        complete(client_for(server, Budget(tokens=4000)), tools=tools)
    assert server.requests == []


@pytest.mark.slow
def test_a_slow_model_is_waited_for(server: Any) -> None:
    server.play({"text": "slowly " * 20, "cut": [200], "pace": 0.1})
    assert complete(client_for(server))[0].text == "slowly " * 20


def test_the_budget_is_never_exceeded(server: Any) -> None:
    server.play({"text": "fine", "usage": {"prompt_tokens": 20, "completion_tokens": 100, "total_tokens": 120}})
    budget = Budget(tokens=2500)
    client = client_for(server, budget)
    with pytest.raises(BudgetExceeded, match="of 2500 are left"):
        while True:
            complete(client)
    assert budget.tokens_in + budget.tokens_out <= 2500 and len(server.requests) == 11
    priced = Budget(usd=0.01, prices=Prices(input_usd=1.0, output_usd=10.0))
    with pytest.raises(BudgetExceeded, match="USD"):
        complete(client_for(server, priced, max_tokens=5000))
    with pytest.raises(BudgetExceeded, match="needs the model's prices"):
        complete(client_for(server, Budget(usd=1.0)))
    assert len(server.requests) == 11 and "cost unknown" in budget.describe()


def test_the_key_shows_nowhere() -> None:
    key = key_from_environment()
    assert key is not None and key.reveal() == KEY
    settings = Settings()
    client = ChatClient(settings, key)
    for text in (
        repr(key),
        str(key),
        f"{key}",
        f"{key!r:>40}",
        repr(settings),
        repr(client),
        str(vars(client)),
        json.dumps([str(key)]),
    ):
        assert KEY not in text
    for attempt in (pickle.dumps, copy.deepcopy, copy.copy):
        with pytest.raises(TypeError, match="not written down"):
            attempt(key)
    assert KEY not in str(drop_environment())


@pytest.mark.parametrize("piece", [b"data: " + b"a" * (1 << 20), b"data: {}\n" * (1 << 17)])
def test_a_response_without_end_is_left(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line without end, and lines without end: what reads them would keep them."""
    monkeypatch.setattr(request, "MOST_BYTES", 1 << 26)  # as many lines as a gigabyte holds take seconds to read
    read = 0
    with pytest.raises(LlmError, match="does not end its reply"):
        for part in Request().listen(itertools.repeat(piece)):
            read += len(part)
    assert read <= 1 << 26


def test_a_line_as_long_as_a_reply_may_be_is_read() -> None:
    pieces = [b"a" * (1 << 20)] * 16 + [b"\n"]
    assert b"".join(Request().listen(pieces * 3)) == b"".join(pieces * 3)


def test_arguments_of_a_tool_count_to_the_length_of_a_reply() -> None:
    call = ChoiceDeltaToolCall(index=0, id="a", function=ChoiceDeltaToolCallFunction(name="f", arguments="x" * 1000))
    choice = Choice(index=0, delta=ChoiceDelta(tool_calls=[call]))
    parts = ReplyParts()
    for _ in range(3):
        parts.add(ChatCompletionChunk(id="", choices=[choice], created=0, model="m", object="chat.completion.chunk"))
    assert parts.length == 3000
