"""The handlers of the commands of %cutegen.

A handler gets the parsed arguments, the text of the cell and the state of the notebook. It returns an object to show,
or None.
"""

from __future__ import annotations

import html
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench import docs, plugins, stored_sessions, trust
from workbench.codegen.exports import describe_export
from workbench.errors import ProblemError, UserError, WorkbenchError
from workbench.executors.jobs import client
from workbench.folders import sessions_root
from workbench.records import Version
from workbench.session import Session, recording
from workbench.session.creating import find_folder
from workbench.session.verifying import verify_log
from workbench.views.commands import conversation
from workbench.views.commands.problems import choose_rule, choose_testing, load_problem
from workbench.views.commands.searching import handlers as searching
from workbench.views.notebook import model_choice
from workbench.views.notebook.protocol import Notebook
from workbench.views.plots import energy, roofline
from workbench.views.text import diff as diff_view
from workbench.views.text import lessons_page, tables
from workbench.views.text.card_page import explain_no_version, show_card
from workbench.views.text.diagnosis import diagnosis_report, notebook_way
from workbench.views.text.mime_bundle import MimeBundle
from workbench.views.text.problem_card import describe_problem
from workbench.views.text.profile_report import profile_plot, profile_report
from workbench.views.text.rules_page import program_rules, with_rules
from workbench.views.text.sessions_page import list_sessions

if TYPE_CHECKING:
    from workbench.graphs.study import Studied

Handler = Callable[[Namespace, str | None, Notebook], object]


def open_problem(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    problem = load_problem(arguments, cell)
    try:
        session = Session.create(
            problem,
            executor=arguments.executor,
            arch=arguments.arch,
            device=arguments.device,
            name=arguments.session,
            calibrate=not arguments.no_calibrate,
            progress=lambda event: print(event.message) if event.kind in ("note", "waiting") else None,
        )
    except WorkbenchError as error:  # the commands that follow are for this problem, not for the one before it
        if isinstance(error, ProblemError) or not isinstance(error, UserError):  # else an option has a wrong value
            state.drop_session()
        raise
    choose_testing(session, arguments)
    choose_rule(session, arguments)
    state.use(session)
    client.prepare("candidate")  # while the person reads the card
    return show_card(describe_problem(session), session.name)


def show_verdict(state: Notebook, version: Version, note: str = "") -> MimeBundle:
    """The verdict on a version, a note of who wrote it, and the next step."""
    return tables.verdict(version, note=note, then=tables.next_step(version, has_model=state.session.has_model))


def generate(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    state.last_note = ""
    version = state.session.generate(arguments.by, " ".join(arguments.words), start=arguments.start)
    if version is None:
        return MimeBundle(state.last_note or "no further idea")
    # a model's notes are about its calls; the planner's says that it does not read the words
    is_unread = arguments.words and not model_choice.needs_model(arguments.by)
    return show_verdict(state, version, state.last_note if is_unread else "")


def refine(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    if arguments.until is None:
        return generate(arguments, cell, state)
    if arguments.words or arguments.start:
        raise UserError("--until runs several steps: leave out words and --from")
    return _run_until(arguments, state)


def _run_until(arguments: Namespace, state: Notebook) -> MimeBundle:
    """Run steps until the goal of --until is reached."""
    before, state.last_note = state.session.versions, ""
    state.session.run_until(arguments.until, arguments.by, epsilon=arguments.epsilon, patience=arguments.patience)
    shown = str(tables.history(state.session, before))
    return MimeBundle(shown if state.last_note in shown else f"{shown}\n{state.last_note}")


def edit(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    if not cell or not cell.strip():
        raise UserError("write the whole kernel file in the cell below %%cutegen edit (start from %cutegen show)")
    version = state.session.edit(cell if cell.endswith("\n") else cell + "\n", title=" ".join(arguments.title))
    return show_verdict(state, version)


def write_program(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    session, text = state.session, "\n".join((" ".join(arguments.words), cell or "")).strip()
    if text:
        return show_verdict(state, session.program(text))
    return MimeBundle(show_program(session))


def show_program(session: Session) -> str:
    """The program of the latest version; if it has none, that of the nearest version that it was made from, else the
    problem's without settings. A comment says so, which a program may have.
    """
    from workbench.proposers.binding import plain_program, recognise_problem

    latest = version = session.versions[-1] if session.versions else None
    while version is not None and not version.proposal.candidate.program:
        version = session.version(version.parent) if version.parent is not None else None
    text = version.proposal.candidate.program if version is not None else None
    if latest is None or version is latest:
        return text or plain_program(recognise_problem(session.facts))
    if version is not None:
        whose = f"that of v{version.number}, the nearest it was made from"
    else:
        whose, text = "the problem without settings", plain_program(recognise_problem(session.facts))
    return f"# v{latest.number} has no program; this is {whose}\n{text}"


def test(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    choose_testing(state.session, arguments)
    state.session.test(arguments.version)
    return show_verdict(state, state.session.version(arguments.version))


def profile(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    version = state.session.version(arguments.version)
    options = {"sections": arguments.sections, "case": arguments.case}
    found = state.session.profile(version.number, arguments.by, again=arguments.again, **options)
    return profile_plot(version, found, arguments.plot) if arguments.plot else profile_report(version, found)


def diagnose(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    session = state.session
    number = session.version(arguments.version).number
    if arguments.apply is not None:
        made = session.apply_advice(number, arguments.apply, by=arguments.by, again=arguments.again)
        return show_verdict(state, made) if made is not None else MimeBundle(state.last_note)
    found = session.diagnose(number, arguments.by, again=arguments.again)
    version = session.version(number)
    way = notebook_way(version, session.versions, has_model=session.has_model, problem=session.problem)
    return diagnosis_report(version, found, way, program_rules(version, session.problem), session.versions)


def show_diff(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    session = state.session
    new = session.version(arguments.new or (arguments.old if arguments.old and not arguments.new else "latest"))
    if arguments.old and arguments.new:
        old = session.version(arguments.old)
    elif new.parent is not None:
        old = session.version(new.parent)
    else:
        raise UserError(f"v{new.number} has no parent to compare with; name two versions: %cutegen diff v1 v2")
    sources = (old.proposal.candidate.source, new.proposal.candidate.source)
    return diff_view.render(*sources, old_name=f"v{old.number}", new_name=f"v{new.number}", note=new.proposal.title)


def accept(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    session = state.session
    shown = {version.number for version in session.versions if version.trials}
    version = session.accept(
        arguments.version, hunks=arguments.hunks, reason=" ".join(arguments.reason), force=arguments.force
    )
    said = tables.decision_line(session, version)
    return said if version.number in shown else tables.verdict(version)  # a verdict that nobody saw is shown


def reject(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    words = list(arguments.words)
    version = "pending"
    if words and (
        words[0] in ("latest", "pending") or (words[0].removeprefix("v").isdigit() and words[0].startswith("v"))
    ):
        version = words.pop(0)
    return tables.decision_line(state.session, state.session.reject(version, " ".join(words)))


def undo(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    undone = state.session.undo()
    return MimeBundle(undone.taken_back)


def run_steps(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    searching.check_search(arguments)
    if arguments.search:
        return searching.run_in_notebook(arguments, state)
    choose_rule(state.session, arguments)
    choose_testing(state.session, arguments)
    if arguments.until is not None:
        return _run_until(arguments, state)
    before = state.session.versions
    state.session.run(arguments.steps, arguments.by)
    if not state.session.versions:
        return MimeBundle("\n".join(explain_no_version(state.session, state.last_note)))
    return tables.history(state.session, before)


def show_landscape(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    from workbench import landscapes
    from workbench.views.plots.heat_map import heat_map, parse_where

    place = landscapes.find_near(state.session.problem, state.session.device)
    if place is None:
        raise UserError(landscapes.not_recorded(state.session.problem))
    shown = heat_map(place, arguments.x, arguments.y, parse_where(arguments.where))
    return shown if arguments.where else with_rules(shown, place)  # rules are on all rows


def find_alike(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    """Kernels that are like a version in structure."""
    from workbench.views.text.alike_page import alike_page, sketch_version

    return alike_page(sketch_version(state.session.version(arguments.version)), state.session.versions)


def show_source(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    version = state.session.version(arguments.version)
    return Source(version.proposal.candidate.source)


def show_history(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    if not arguments.html:
        return tables.history(state.session)
    from workbench.views.text.report import write_page

    return MimeBundle(write_page(state.session, Path(arguments.html)))


def export(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    version = state.session.version(arguments.version)
    state.session.export(version.number, arguments.path, arguments.form)
    chosen = tables.describe_choice(state.session, version, arguments.version)
    return MimeBundle("; ".join(filter(None, (describe_export(version, arguments.path), chosen))))


def open_panel(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    from workbench.views.notebook.panel import Panel

    plugins.load("proposer", arguments.by, check=False)  # refuses an unknown name
    return Panel(state.session, by=arguments.by)


def open_session(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    state.use(Session.open(arguments.name))
    shown, refusal = tables.status(state.session), state.session.refusal
    return MimeBundle(f"{refusal}\n\n{shown}", parts=(MimeBundle(refusal), shown)) if refusal else shown


def trust_path(path: str) -> str:
    """Trust a session, by folder or name, or the file of a recording or a problem. Returns a line that says what it is.

    Raises `UserError` for anything else, and if the trust cannot be kept for later processes.
    """
    if Path(path).is_file():
        what = f"the problem {path}" if Path(path).suffix == ".py" else recording.describe_recording(path)
        kept = trust.trust(Path(path), trust.hash_file(Path(path)))
    else:
        folder = find_folder(path, None)
        what, kept = stored_sessions.describe(folder), stored_sessions.trust_session(folder)
    if not kept:
        raise UserError(f"{what}; it is trusted until this process ends: {trust.cannot_store()}")
    return f"trusted: {what}"


def trust_named(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    """Trust a session, a recording or a problem's file. A session that is open has to be opened anew."""
    return MimeBundle(trust_path(arguments.path))


def show_lessons(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    done = lessons_page.change_lessons(arguments)
    return MimeBundle(done or lessons_page.format_lessons(lessons_page.select_lessons(arguments.kind)))


def run_minibatches(arguments: Namespace, report: Callable[[str], None] | None = None) -> tuple[MimeBundle, Studied]:
    """Measure a study of mini-batches, or take the recorded one: (its heat maps, its results)."""
    from workbench.graphs.study import make_study, read_recorded, run_study
    from workbench.views.plots.knob_map import draw_knobs

    if arguments.recorded:
        recorded = read_recorded()
        return draw_knobs(recorded), recorded
    study = make_study(vars(arguments))
    beside = sessions_root() / "minibatch" / f"{Path(study.graph).name}.jsonl"
    studied = run_study(study, Path(arguments.rows) if arguments.rows else beside, report)
    return draw_knobs(studied), studied


def show_minibatches(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    return run_minibatches(arguments)[0]


def explain(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    from workbench.views.commands import explanation

    text, session = " ".join(arguments.words), None if arguments.list else state.current
    if not text and session is not None and session.versions:
        text = session.version("latest").proposal.candidate.program or ""
        if not text:
            raise UserError(
                "this version was not written in muCUTLASS; give a program: "
                "%cutegen explain softmax(x) .threads_per_row(32)"
            )
    device, arch = (session.device, session.arch) if session is not None else ("", "")
    return explanation.explain_text(text, arguments, device=device, arch=arch)


def pin(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    pins = state.session.pin(" ".join(arguments.words)) if arguments.words else state.session.constraints
    return MimeBundle("pinned: " + ("; ".join(pins) or "nothing"))


def unpin(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    return MimeBundle("pinned: " + ("; ".join(state.session.unpin(" ".join(arguments.words))) or "nothing"))


class Source(MimeBundle):
    """The source of a version, as HTML in a notebook and as text in a terminal."""

    def __init__(self, text: str) -> None:
        super().__init__(text, html=f'<pre style="line-height:1.35">{html.escape(text)}</pre>')


def show_page(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    """Show a page of the documentation, or the list of pages."""
    if not arguments.page:
        return MimeBundle(docs.overview("%cutegen docs"))
    text = docs.read(arguments.page)
    return MimeBundle(text, markdown=text)


def show_sessions(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    """List the stored sessions."""
    return list_sessions(sessions_root())


def verify(arguments: Namespace, cell: str | None, state: Notebook) -> object:
    """Verify the log of the session."""
    return tables.log_check(verify_log(state.session, head=arguments.head, run=arguments.run))


HANDLERS: Mapping[str, Handler] = {
    "problem": open_problem,
    "generate": generate,
    "refine": refine,
    "edit": edit,
    "program": write_program,
    "test": test,
    "accept": accept,
    "reject": reject,
    "undo": undo,
    "run": run_steps,
    "show": show_source,
    "profile": profile,
    "diagnose": diagnose,
    "diff": show_diff,
    "landscape": show_landscape,
    "alike": find_alike,
    "roofline": lambda arguments, cell, state: roofline.roofline(state.session),
    "energy": lambda arguments, cell, state: energy.plot_energy(state.session),
    "history": show_history,
    "verify": verify,
    "compare": lambda arguments, cell, state: tables.version_frame(state.session),
    "status": lambda arguments, cell, state: tables.status(state.session),
    "panel": open_panel,
    "export": export,
    "model": conversation.set_model,
    "ask": conversation.ask,
    "choices": conversation.make_choices,
    "chain": conversation.run_chain,
    "repair": conversation.repair,
    "conversation": conversation.show_conversation,
    "pin": pin,
    "unpin": unpin,
    "replay": conversation.play_recording,
    "docs": show_page,
    "explain": explain,
    "minibatch": show_minibatches,
    "search": conversation.search_sources,
    "search-tree": searching.search_tree,
    "open": open_session,
    "sessions": show_sessions,
    "lessons": show_lessons,
    "trust": trust_named,
}
