"""The proposer `llm`: the first version as a whole file, then one change a step as line patches, repairs in two calls.

It follows CuTeGen, sections 3 and 4. It only writes; the session compiles, checks and decides.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator
from pathlib import Path

from workbench.errors import NoUsableReply, UserError
from workbench.proposers.llm import catalogue, languages, patches, prompts
from workbench.proposers.llm.conversation import Conversation, Purpose
from workbench.proposers.llm.replies import Unusable, extract_code, extract_json, strip_thinking
from workbench.protocols import Proposer, RunContext
from workbench.records import Ask, Candidate, Event, Exchange, Proposal, Reply

Steps = Iterator[Event | Exchange | Proposal]


class Llm(Proposer):
    """Proposes through the language model of the session. Tools are offered if the server supports them."""

    name = "llm"
    needs_model = True

    def why_not(self) -> str | None:
        """Needs nothing but a model."""
        return None

    def propose(self, ask: Ask, context: RunContext, /) -> Steps:
        """One version (or, for a question, only the answer). Raises `NoUsableReply`, `LlmError` or `BudgetExceeded`."""
        if context.model is None:
            raise UserError("no model is set for this session; use %cutegen model")
        talk, templates = Conversation(context.model), context.model.templates
        if ask.question:
            return _answer(ask, talk, templates)
        if context.model.language == "mucutlass":
            return _write_program(ask, talk, templates)
        if ask.repair is not None:
            return _repair(ask, talk, templates)
        return _synthesise(ask, talk, templates) if ask.baseline is None else _optimise(ask, talk, templates)


def _answer(ask: Ask, talk: Conversation, templates: Path | None) -> Steps:
    reply = yield from talk.ask("ask", prompts.messages("ask", ask, templates, question=ask.question))
    yield Event(kind="note", message=strip_thinking(reply.text).strip() or "the model gave no answer")


def _synthesise(ask: Ask, talk: Conversation, templates: Path | None) -> Steps:
    reply = yield from talk.ask("synthesis", prompts.messages("synthesis", ask, templates))
    try:
        source = extract_code(reply.text, reply.finish)
    except Unusable as reason:
        raise NoUsableReply(
            f"the model's answer could not be used: {reason}; ask again, or raise max_tokens if it was cut off"
        ) from None
    words = _first_words(reply.text, "written from the reference")
    yield _proposal(ask, talk, source, title="first version", reason=words, parent=None)


def _optimise(ask: Ask, talk: Conversation, templates: Path | None) -> Steps:
    assert ask.baseline is not None
    menu = "\n".join(f"- {item}" for item in prompts.menu(ask.facts.kind, templates))
    messages = prompts.messages("optimise", ask, templates, menu=menu)
    patch = _PatchReader(ask, ask.baseline.proposal.candidate.source)
    source, words = yield from talk.ask_until_usable("optimise", messages, patch, schema=patches.SCHEMA)
    yield _proposal(ask, talk, source, title=_title(words), reason=words, parent=ask.baseline.number)


def _repair(ask: Ask, talk: Conversation, templates: Path | None) -> Steps:
    broken = ask.repair
    assert broken is not None and broken.trials
    trial, base = broken.trials[-1], broken.proposal.candidate.source
    failure = trial.verdict.failure or trial.outcome.failure
    assert failure is not None
    early = failure.stage in ("source", "import", "compile")
    shown: dict[str, object] = {
        "stage": "compile" if early else "check" if failure.stage == "check" else "run",
        "failure": failure,
        "error": prompts.error_text(trial),
        "numbered": patches.number_lines(base),
        "guides": catalogue.select(failure, base, arch=ask.arch, folder=templates),
    }
    reply = yield from talk.ask("diagnosis", prompts.messages("diagnosis", ask, templates, **shown))
    diagnosis = strip_thinking(reply.text).strip()
    messages = prompts.messages("patch", ask, templates, **shown, diagnosis=diagnosis)
    patch = _PatchReader(ask, base)
    source, words = yield from talk.ask_until_usable("patch", messages, patch, schema=patches.SCHEMA)
    title = f"repair of v{broken.number}: {_title(words)}"
    yield _proposal(ask, talk, source, title=title, reason=diagnosis[:2000], parent=broken.number)


def _write_program(ask: Ask, talk: Conversation, templates: Path | None) -> Steps:
    """Ask for a muCUTLASS program and compile it. The model gets the checks' rejections."""
    purpose: Purpose = "synthesis" if ask.baseline is None else "optimise"
    messages, binding = languages.make_prompt(ask, templates)

    def read(reply: Reply) -> tuple[str, str, str]:
        return *languages.compile_reply(reply.text, binding), _first_words(reply.text, "a program")

    program, source, words = yield from talk.ask_until_usable(purpose, messages, read, what="program")
    parent = ask.baseline.number if ask.baseline else None
    made = _proposal(ask, talk, source, title=_title(words), reason=words, parent=parent)
    yield dataclasses.replace(made, candidate=Candidate(source=source, program=program))


class _PatchReader:
    """Reads a reply as patches of `base`: (new source, the model's words)."""

    def __init__(self, ask: Ask, base: str) -> None:
        self.base = base
        self.tried = {version.proposal.candidate.source for version in ask.history}

    def __call__(self, reply: Reply) -> tuple[str, str]:
        value = extract_json(reply.text, reply.finish)
        source = patches.apply_patches(self.base, patches.parse_patches(value))
        if source in self.tried:
            raise Unusable("that is a version that was tried before; make another change")
        return source, _change_words(value) or _first_words(reply.text, "a change")


def _proposal(ask: Ask, talk: Conversation, source: str, *, title: str, reason: str, parent: int | None) -> Proposal:
    costs = [exchange.cost_usd for exchange in talk.exchanges]
    return Proposal(
        candidate=Candidate(source=source),
        title=title,
        reason=reason,
        by=Llm.name,
        parent=parent,
        instruction=ask.instruction,
        depth=ask.depth,
        repairs=ask.repair.number if ask.repair else None,
        tokens_in=sum(exchange.tokens_in for exchange in talk.exchanges),
        tokens_out=sum(exchange.tokens_out for exchange in talk.exchanges),
        cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
    )


def _change_words(value: object) -> str:
    """The change and its reason from a JSON answer, as one line."""
    parts = [value.get(name) for name in ("change", "why")] if isinstance(value, dict) else []
    return " ".join(part.strip().rstrip(".") + "." for part in parts if isinstance(part, str) and part.strip())[:600]


def _first_words(text: str, otherwise: str) -> str:
    """The prose before the first code block, as one line."""
    prose = " ".join(strip_thinking(text).split("```")[0].split())
    return prose[:600] or otherwise


def _title(words: str) -> str:
    """The first sentence, short enough for a tree."""
    first = words.split(". ")[0].rstrip(".:")
    return textwrap.shorten(first, 72, placeholder=" ...")
