"""Handlers of the commands about a language model, and the view of its calls."""

from __future__ import annotations

import getpass
import html
from argparse import Namespace
from collections.abc import Mapping

from workbench.errors import UserError
from workbench.proposers.llm.client import ChatClient
from workbench.records import Exchange
from workbench.session import Session
from workbench.session.model_settings import NAMES, why_no_key
from workbench.store import ModelValue
from workbench.views.notebook.protocol import Notebook
from workbench.views.text import tables
from workbench.views.text.mime_bundle import MimeBundle

NO_MODEL = (
    "no model is set yet: %cutegen model --base-url ADDRESS --model NAME for a server of your own (needs no key), or a "
    "key in OPENAI_API_KEY or by --ask-key for a service; one step sends some 10,000 tokens and allows --max-tokens "
    "back (--price-in and --price-out give its cost, --budget-usd a limit)"
)


def read_model_settings(arguments: Namespace) -> dict[str, ModelValue]:
    """The model settings of parsed arguments."""
    return {name: getattr(arguments, name) for name in NAMES if getattr(arguments, name, None) is not None}


def set_model(arguments: Namespace, cell: str | None, state: Notebook) -> MimeBundle:
    """Change the model settings of the session, and show them."""
    session = state.session
    values = session.model(**read_model_settings(arguments))
    if arguments.ask_key:
        address = session.client().endpoint.address
        session.set_key(getpass.getpass(f"API key for {address} (kept in this process only): ").strip())
    client = session.client()
    lines = [] if session.has_model else [NO_MODEL]
    lines += [
        f"model     {client.model_name} at {client.endpoint.address}",
        f"key       {_describe_key(client, values)}",
        f"spent     {client.budget.describe()}",
    ]
    return MimeBundle(
        "\n".join(
            [*lines, *[f"{name:9} {value}" for name, value in values.items() if name not in ("model", "base_url")]]
        )
    )


def _describe_key(client: ChatClient, values: Mapping[str, ModelValue]) -> str:
    if client.key is not None:
        return "set"
    return why_no_key(values) or "none (a server of your own needs none)"


def ask(arguments: Namespace, cell: str | None, state: Notebook) -> MimeBundle:
    """Ask the model about a version. The code is not changed."""
    if not arguments.words:
        raise UserError("ask what? for example: %cutegen ask why is this slower than v2")
    return MimeBundle(state.session.ask(" ".join(arguments.words), arguments.about))


def make_choices(arguments: Namespace, cell: str | None, state: Notebook) -> MimeBundle:
    """Make several versions from the same baseline."""
    state.session.choices(arguments.count, arguments.by, " ".join(arguments.words))
    return tables.history(state.session)


def run_chain(arguments: Namespace, cell: str | None, state: Notebook) -> MimeBundle:
    """Run CuTeGen's loop to the end."""
    options = dict(item.partition("=")[::2] for item in arguments.setting)
    state.session.run_chain(arguments.by, **options)
    return tables.history(state.session)


def repair(arguments: Namespace, cell: str | None, state: Notebook) -> MimeBundle:
    """Repair a failed version in one round."""
    version = state.session.repair(arguments.version, arguments.by)
    if version is None:
        return MimeBundle(state.last_note or "no repair")
    return tables.verdict(version, then=tables.next_step(version, has_model=True))


def play_recording(arguments: Namespace, cell: str | None, state: Notebook) -> MimeBundle:
    """Open a new session and play a recording into it."""
    from workbench.session import recording

    recording.check_trust(arguments.name)
    found = recording.load(arguments.name)
    state.use(Session.create(found.problem, executor=arguments.executor, arch=found.arch, device=found.device))
    differences = state.session.play(arguments.name)
    verdicts = "\n".join(differences) or f"all {len(state.session.versions)} versions came out as recorded"
    history = tables.history(state.session)
    return MimeBundle(f"{found.label}\n\n{history}\n\n{verdicts}")


def search_sources(arguments: Namespace, cell: str | None, state: Notebook) -> MimeBundle:
    """Search CuTe DSL, CUTLASS and our examples, or read lines of one file."""
    from workbench import search
    from workbench.search import corpus

    if arguments.lines:
        first, _, last = arguments.lines.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise UserError(f"--lines {arguments.lines}: a range such as 100-160 is needed")
        return MimeBundle(search.read(" ".join(arguments.words), int(first), int(last) if last else None))
    hits = search.search(" ".join(arguments.words))
    found = "\n\n".join(map(str, hits)) or "nothing found; try other words"
    return MimeBundle("\n\n".join(filter(None, (found, corpus.missing_packages_note()))))


def show_conversation(arguments: Namespace, cell: str | None, state: Notebook) -> MimeBundle:
    """Show every call of the session's model."""
    return render_exchanges(state.session)


def render_exchanges(session: Session) -> MimeBundle:
    """All model calls of a session: purpose, tokens and cost of each, with prompt and reply to unfold."""
    kept = session.exchanges()
    if not kept:
        return MimeBundle("this session has not called a model")
    made = {number: version.number for version in session.versions for number in version.proposal.exchanges}
    text = "\n".join(_summary_line(number, exchange, made.get(number)) for number, exchange in kept.items())
    return MimeBundle(
        text, html="".join(_details_html(number, exchange, made.get(number)) for number, exchange in kept.items())
    )


def _summary_line(number: int, exchange: Exchange, version: int | None) -> str:
    tokens = f"{exchange.tokens_in} + {exchange.tokens_out} tokens{' (upper bounds)' if exchange.estimated else ''}"
    cost = "cost unknown" if exchange.cost_usd is None else f"{exchange.cost_usd:.4f} USD"
    end = (
        f"-> v{version}"
        if version is not None
        else f"not used: {exchange.unusable}"
        if exchange.unusable
        else "-> no version"
    )
    return f"{number:3}  {exchange.purpose:9}  {exchange.model}  {tokens}, {cost}  {end}"


def _details_html(number: int, exchange: Exchange, version: int | None) -> str:
    style = "white-space:pre-wrap;overflow-wrap:anywhere;max-height:30em;overflow:auto;margin:4px 0 8px 16px"
    parts = [
        f"<b>{html.escape(role)}</b><pre style='{style}'>{html.escape(text)}</pre>" for role, text in exchange.messages
    ]
    parts += [
        f"<b>tool {html.escape(name)}({html.escape(arguments)})</b><pre style='{style}'>{html.escape(result)}</pre>"
        for name, arguments, result in exchange.tools
    ]
    parts.append(f"<b>reply</b><pre style='{style}'>{html.escape(exchange.reply)}</pre>")
    summary = (
        f"<summary style='font-family:monospace'>{html.escape(_summary_line(number, exchange, version))}</summary>"
    )
    return f"<details>{summary}{''.join(parts)}</details>"
