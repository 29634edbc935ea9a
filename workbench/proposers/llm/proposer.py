"""The proposer `llm`: first version as a whole file, then one change a step as line patches, repairs in two calls (CuTeGen, sections 3 and 4).

It writes; the session compiles, checks and decides. Every call is yielded as an `Exchange`, verbatim, before what it led to, so that nothing
that was paid for is lost when a later call fails.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from workbench.errors import UserError
from workbench.proposers.llm import catalogue, languages, patches, prompts
from workbench.proposers.llm.client import ChatClient, Reply, ToolCall, key_from_environment
from workbench.proposers.llm.replies import Unusable, answer, code, json_value
from workbench.records import Ask, Candidate, Event, Exchange, Proposal

TRIES = 2  # answers per patch call: the first, and one more after an unusable one, with the reason
TOOL_ROUNDS = 6
Purpose = Literal["synthesis", "optimise", "diagnosis", "patch", "ask"]
Tool = Callable[[str, str], str]  # (name, arguments as JSON) -> text; never raises


class NoUsableReply(UserError):
    """The model answered, but nothing could be made of it."""


class Llm:
    """Proposes through a language model. `client` and `templates` are set with `configure`; tools are offered where the server takes them."""

    name = "llm"

    def __init__(self) -> None:
        self.client: ChatClient | None = None
        self.templates: Path | None = None
        self.tools: list[dict[str, Any]] = []
        self.call_tool: Tool | None = None
        self.language = "cute"
        self._served: tuple[tuple[str, str, str], ...] = ()

    def why_not(self) -> str | None:
        """Needs an endpoint: a key in the environment, or an address (a session gives its own)."""
        import os

        if key_from_environment() is None and not os.environ.get("OPENAI_BASE_URL"):
            return "no model is set: %cutegen model --base-url ADDRESS --model NAME, or set OPENAI_BASE_URL or OPENAI_API_KEY"
        return None

    def configure(self, *, client: ChatClient, templates: Path | None = None, tools: list[dict[str, Any]] | None = None, call_tool: Tool | None = None, language: str = "cute") -> Llm:
        """Use this client, this folder of overriding templates and these tools; `language` is what is written: cute or mucutlass."""
        self.client, self.templates, self.tools, self.call_tool, self.language = client, templates, tools or [], call_tool, language
        return self

    def propose(self, ask: Ask, /) -> Iterator[Event | Exchange | Proposal]:
        """One version (or, for a question, only the answer). Raises `NoUsableReply`, `LlmError` or `BudgetExceeded`."""
        if ask.question:
            yield from self._answer(ask)
        elif self.language == "mucutlass":
            yield from self._program(ask)
        elif ask.repair is not None:
            yield from self._repair(ask)
        elif ask.baseline is None:
            yield from self._synthesise(ask)
        else:
            yield from self._optimise(ask)

    # ---- the four kinds of step -------------------------------------------------------------------------------------

    def _synthesise(self, ask: Ask) -> Iterator[Event | Exchange | Proposal]:
        spent: list[Exchange] = []
        messages = prompts.messages("synthesis", ask, self.templates)
        reply = yield from self._call("synthesis", messages, spent)
        try:
            source = code(reply.text, reply.finish)
        except Unusable as reason:
            raise NoUsableReply(f"the model's answer could not be used: {reason}; ask again, or raise max_tokens if it was cut off") from None
        yield self._proposal(ask, source, "first version", _first_words(reply.text, "written from the reference"), None, spent)

    def _optimise(self, ask: Ask) -> Iterator[Event | Exchange | Proposal]:
        assert ask.baseline is not None
        spent: list[Exchange] = []
        listed = "\n".join(f"- {item}" for item in prompts.menu(ask.facts.kind, self.templates))
        messages = prompts.messages("optimise", ask, self.templates, menu=listed)
        base = ask.baseline.proposal.candidate.source
        source, said = yield from self._patched(ask, "optimise", messages, base, spent)
        yield self._proposal(ask, source, _title(said), said, ask.baseline.number, spent)

    def _repair(self, ask: Ask) -> Iterator[Event | Exchange | Proposal]:
        broken = ask.repair
        assert broken is not None and broken.trials
        trial, base = broken.trials[-1], broken.proposal.candidate.source
        failure = trial.verdict.failure or trial.outcome.failure
        assert failure is not None
        spent: list[Exchange] = []
        stage = "compile" if failure.stage in ("source", "import", "compile") else "check" if failure.stage == "check" else "run"
        shown = {"stage": stage, "failure": failure, "error": prompts.error_text(trial), "numbered": patches.numbered(base), "guides": catalogue.select(failure, base, arch=ask.arch, folder=self.templates)}
        diagnosis = yield from self._call("diagnosis", prompts.messages("diagnosis", ask, self.templates, **shown), spent)
        messages = prompts.messages("patch", ask, self.templates, **shown, diagnosis=answer(diagnosis.text).strip())
        source, said = yield from self._patched(ask, "patch", messages, base, spent)
        yield self._proposal(ask, source, f"repair of v{broken.number}: {_title(said)}", answer(diagnosis.text).strip()[:2000], broken.number, spent)

    def _program(self, ask: Ask) -> Iterator[Event | Exchange | Proposal]:
        """A muCUTLASS program, compiled here; what the checks refuse is told to the model once."""
        spent: list[Exchange] = []
        purpose: Purpose = "synthesis" if ask.baseline is None else "optimise"
        messages, binding = languages.asked(ask, self.templates)
        for left in reversed(range(TRIES)):
            reply = yield from self._call(purpose, messages, spent, keep=False)
            try:
                program, source = languages.compiled(reply.text, binding)
            except Unusable as reason:
                yield self._kept(purpose, messages, reply, spent, str(reason))
                if not left:
                    raise NoUsableReply(f"the model's program could not be used: {reason}; ask again, or edit by hand") from None
                yield Event(kind="note", message=f"the program could not be used ({reason}); the model is told and asked again")
                messages = [*messages, {"role": "assistant", "content": reply.text}, {"role": "user", "content": f"That program could not be used: {reason}. Answer again in the form that was asked for."}]
                continue
            yield self._kept(purpose, messages, reply, spent)
            said = _first_words(reply.text, "a program")
            made = self._proposal(ask, source, _title(said), said, ask.baseline.number if ask.baseline else None, spent)
            yield dataclasses.replace(made, candidate=Candidate(source=source, program=program))
            return

    def _answer(self, ask: Ask) -> Iterator[Event | Exchange | Proposal]:
        spent: list[Exchange] = []
        reply = yield from self._call("ask", prompts.messages("ask", ask, self.templates, question=ask.question), spent)
        yield Event(kind="note", message=answer(reply.text).strip() or "the model gave no answer")

    # ---- calls ------------------------------------------------------------------------------------------------------

    def _patched(self, ask: Ask, purpose: Purpose, messages: list[dict[str, Any]], base: str, spent: list[Exchange]) -> Any:
        """(new source, the model's words): an unusable answer is told to the model once, then to the person."""
        for left in reversed(range(TRIES)):
            reply = yield from self._call(purpose, messages, spent, keep=False, schema=patches.SCHEMA)
            try:
                value = json_value(reply.text, reply.finish)
                source = patches.apply(base, patches.read(value))
                if any(version.proposal.candidate.source == source for version in ask.history):
                    raise Unusable("that is a version that was tried before; make another change")
            except Unusable as reason:
                yield self._kept(purpose, messages, reply, spent, str(reason))
                if not left:
                    raise NoUsableReply(f"the model's answer could not be used: {reason}; ask again, or edit by hand") from None
                yield Event(kind="note", message=f"the answer could not be used ({reason}); the model is told and asked again")
                messages = [*messages, {"role": "assistant", "content": reply.text}, {"role": "user", "content": f"That answer could not be used: {reason}. Answer again in the form that was asked for."}]
                continue
            yield self._kept(purpose, messages, reply, spent)
            return source, _words_of(value) or _first_words(reply.text, "a change")
        raise AssertionError("unreachable")

    def _call(self, purpose: Purpose, messages: list[dict[str, Any]], spent: list[Exchange], *, keep: bool = True, schema: dict[str, Any] | None = None) -> Any:
        """One answer (in the form of `schema` where the endpoint takes one), tool calls served in between; text is streamed as `token` events."""
        if self.client is None:
            raise UserError("no model is set for this session; use %cutegen model")
        yield Event(kind="note", message=f"{purpose}: asking {self.client.settings.model}")
        talk, served = list(messages), []
        for turn in range(TOOL_ROUNDS + 1):
            stream = self.client.stream(talk, tools=self.tools if self.call_tool is not None and turn < TOOL_ROUNDS else None, schema=schema)
            reply = yield from _tokens(stream)
            if not reply.tool_calls or self.call_tool is None:
                break
            talk.append(_as_message(reply))
            for call in reply.tool_calls:
                result = self.call_tool(call.name, call.arguments)
                served.append((call.name, call.arguments, result))
                yield Event(kind="note", message=f"{call.name} {_short(call)}")
                talk.append({"role": "tool", "tool_call_id": call.id, "content": result})
        self._served = tuple(served)
        if keep:
            yield self._kept(purpose, messages, reply, spent)
        return reply

    def _kept(self, purpose: Purpose, messages: list[dict[str, Any]], reply: Reply, spent: list[Exchange], unusable: str = "") -> Exchange:
        assert self.client is not None
        exchange = Exchange(
            purpose=purpose, model=self.client.settings.model, messages=tuple((str(m["role"]), str(m["content"])) for m in messages), reply=reply.text, finish=reply.finish, tools=self._served,
            tokens_in=reply.tokens_in, tokens_out=reply.tokens_out, estimated=reply.estimated, cost_usd=reply.cost_usd, seconds=reply.seconds, unusable=unusable,
        )  # fmt: skip
        spent.append(exchange)
        return exchange

    def _proposal(self, ask: Ask, source: str, title: str, reason: str, parent: int | None, spent: list[Exchange]) -> Proposal:
        costs = [exchange.cost_usd for exchange in spent]
        return Proposal(
            candidate=Candidate(source=source), title=title, reason=reason, by=self.name, parent=parent, instruction=ask.instruction, depth=ask.depth, repairs=ask.repair.number if ask.repair else None,
            tokens_in=sum(e.tokens_in for e in spent), tokens_out=sum(e.tokens_out for e in spent), cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
        )  # fmt: skip


def _tokens(stream: Iterator[str | None]) -> Any:
    """The stream's text as events (an empty one while it is silent, so that the session can stop); returns its reply."""
    try:
        while True:
            piece = next(stream)
            yield Event(kind="token", message=piece or "")
    except StopIteration as end:
        return end.value
    finally:
        stream.close()  # type: ignore[attr-defined]


def _as_message(reply: Reply) -> dict[str, Any]:
    calls = [{"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in reply.tool_calls]
    return {"role": "assistant", "content": reply.text or None, "tool_calls": calls}


def _short(call: ToolCall) -> str:
    try:
        values = json.loads(call.arguments)
        return " ".join(str(value) for value in values.values())[:120] if isinstance(values, dict) else call.arguments[:120]
    except ValueError:
        return call.arguments[:120]


def _words_of(value: object) -> str:
    """What a JSON answer says of its change, as one line."""
    said = [value.get(name) for name in ("change", "why")] if isinstance(value, dict) else []
    return " ".join(part.strip().rstrip(".") + "." for part in said if isinstance(part, str) and part.strip())[:600]


def _first_words(text: str, otherwise: str) -> str:
    """The prose before the first code block, as one line."""
    prose = " ".join(answer(text).split("```")[0].split())
    return prose[:600] or otherwise


def _title(said: str) -> str:
    """The first sentence, short enough for a tree."""
    first = said.split(". ")[0].rstrip(".:")
    return first if len(first) <= 72 else first[:69].rstrip() + "..."
