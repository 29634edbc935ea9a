"""The built-in planner. It is deterministic and needs no LLM; it writes muCUTLASS and explains each step.

Each computation has a ladder of rungs (settings). A step takes the first rung that was not tried from this baseline.
The reason of a rung names the emulator's counts on the baseline (sectors and wavefronts against the ideal) and the
bound. Predicted gains come from the baseline's terms in the time model: they rank rungs and are not exact. After the
last rung, steps follow the probes' advice on the baseline (advised.py).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

from workbench.analysis import devices
from workbench.analysis.time_model import predict_gain
from workbench.codegen import compile_program
from workbench.errors import ProgramError, UserError
from workbench.language import Call, Program, format_program
from workbench.proposers.advised import follow_advice, list_followed, propose_advised
from workbench.proposers.binding import binding_of
from workbench.proposers.exceeded_limits import StageSources, climb_exceeded
from workbench.proposers.ladders import Context, Rung, explain_no_rung, fuse_stages, ladder, put
from workbench.proposers.obstacles import recognise_whole
from workbench.proposers.pipeline_baseline import continue_from_baseline
from workbench.proposers.program_settings import find_earlier_changes, settings_of
from workbench.proposers.recognition import Computation, Unrecognised
from workbench.proposers.recognition.arguments import name_inputs
from workbench.proposers.recognition.patterns.attention import find_unequal_heads
from workbench.proposers.rung_programs import list_program_stages, write_program
from workbench.protocols import PLAIN, Proposer, RunContext
from workbench.records import Ask, Candidate, Event, LineCounts, Proposal, Version
from workbench.records.proposal import HUMAN
from workbench.structure.kernels.equality import TriedPrograms

RANKS = ("ladder", "roi", "advice")
NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8, "sixteen": 16}
BANS = {"no tensor core": "mma", "no vector": "vector"}  # words of a pinned instruction -> the setting they forbid
IDEAS: dict[str, tuple[str, ...]] = {  # words -> the settings of the idea that they name
    r"vector(?:s|i[sz]e)?\b|wide(?:r)? (?:loads?|access)|128.bit": ("vector",),
    r"tensor.?cores?|\bmma\b": ("mma",),
    r"cp\.async|pipelin|stages": ("stages",),
    r"\btil(?:e|es|ing)\b|shared memory": ("tile",),
    r"unroll": ("unroll",),
    r"\bcluster": ("cluster",),
    r"split.?k\b": ("splitk",),
    r"registers?\b|keep (?:the )?rows?": ("kept", "thread_tile"),
}


def _find_total(ask: Ask) -> LineCounts | None:
    launches = ask.baseline.trials[-1].outcome.launches if ask.baseline and ask.baseline.trials else ()
    return max((launch.total for launch in launches), key=lambda total: total.instructions, default=None)


def _evidence(rung: Rung, total: LineCounts | None) -> tuple[str, dict[str, float]]:
    """(the counts of the baseline that speak for the rung, by which factor it changes the seconds of each resource).

    Factors without a count are inferred.
    """
    if rung.need == "sectors" and total is not None and total.global_ideal_sectors:
        ratio = max(total.global_sectors / total.global_ideal_sectors, 1.0)
        least = f" where {total.global_ideal_sectors} would do" if ratio > 1 else ""
        return f"; counted: {total.global_sectors} sectors{least}", dict.fromkeys(("L1", "L2"), 1 / ratio)
    if rung.need == "requests" and total is not None and total.global_requests:
        per = (total.global_read_bytes + total.global_write_bytes) / total.global_requests
        fewer = max(min(per / 512, 1.0), 0.25)
        return (
            f"; counted: {per:.0f} bytes per request of at most 512",
            dict.fromkeys(("issue", "L1", "latency"), fewer),
        )
    if rung.need == "wavefronts" and total is not None and total.shared_wavefronts and total.flops:
        return (
            f"; counted: {total.flops / total.shared_wavefronts:.0f} FLOPs per shared-memory wavefront",
            dict.fromkeys(("issue", "shared memory", "latency"), 0.5),
        )
    if rung.need == "passes" and total is not None and total.global_read_bytes:
        return f"; counted: {total.global_read_bytes} bytes read", dict.fromkeys(("L1", "L2", "DRAM"), 3 / 4)
    if rung.need == "tensor":
        return "", dict.fromkeys(("issue", "fp32", "shared memory", "latency"), 1 / 8)
    if rung.need == "parallel":
        return "", {"latency": 1 / 1.5}
    return "", {}


def _counted_gain(ask: Ask, factors: dict[str, float]) -> float | None:
    """The gain over the baseline if its resources were busy `factors` times as long; None if that is unknown."""
    outcome = ask.baseline.trials[-1].outcome if ask.baseline is not None and ask.baseline.trials else None
    work = next((item for item in ask.facts.work if item.case == "full"), None)
    if not factors or outcome is None or work is None or not outcome.full_launches:
        return None
    return predict_gain(outcome.full_launches, outcome.full_builds, devices.find(outcome.device), work, factors)


def _modelled_gain(ask: Ask, found: Computation, rung: Rung, rungs: tuple[Rung, ...]) -> float | None:
    """Modelled time of the baseline over that of the rung; None unless the baseline is a rung with a modelled time."""
    program = ask.baseline.proposal.candidate.program if ask.baseline else None
    before = next(
        (
            other.seconds
            for other in rungs
            if other.seconds is not None and write_program(found, other, ask.arch) == program
        ),
        None,
    )
    return before / rung.seconds if before is not None and rung.seconds else None


def _source_alone(ask: Ask, found: Computation, place: int, part: Rung) -> str:
    """The source of one piece of a pipeline, compiled alone."""
    piece = found.pieces[place]
    program = format_program(Program(stages=list_program_stages(piece.alone, part, ask.arch)))
    return compile_program(program, binding_of(ask.problem, piece.facts, piece.alone))


def _normalise(words: str) -> str:
    """Words in lower case, small numbers as figures, and "tile 128" as "tile 128x128"."""
    text = words.lower()
    for word, digit in NUMBERS.items():
        text = re.sub(rf"\b{word}\b", str(digit), text)
    return re.sub(r"tiles?\s+(?:of\s+)?(\d+)(?!\d|\s*[x,])", r"tile \1x\1", text)


def _read_settings(text: str, depth: int) -> list[Call]:
    """The settings of any ladder that a text names; `depth` is a tile's extent in k where it names none."""
    settings: list[Call] = []
    if match := re.search(r"(\d+)\s+threads?\s+per\s+row", text):
        settings.append(put("threads_per_row", int(match[1])))
    elif match := re.search(r"(\d+)\s+threads", text):
        settings.append(put("threads", int(match[1])))
    if match := re.search(r"tiles?\s+(?:of\s+)?(\d+)\s*[x,]\s*(\d+)(?:\s*[x,]\s*(\d+))?", text):
        settings.append(put("tile", int(match[1]), int(match[2]), int(match[3] or depth)))
    if match := re.search(r"vector\s+(?:of\s+|width\s+)?(\d+)", text):
        settings.append(put("vector", int(match[1])))
    if match := re.search(r"(\d+)\s+stages", text):
        settings.append(put("stages", int(match[1])))
    return settings


def _read_hopper_settings(text: str) -> list[Call]:
    """The settings of Hopper's products that a text names."""
    settings: list[Call] = []
    if match := re.search(r"clusters?\s+(?:of\s+)?(\d)\s*[x,]\s*(\d)", text):
        settings.append(put("cluster", int(match[1]), int(match[2])))
    if match := re.search(r"cooperative|ping-?pong", text):
        settings.append(put("schedule", match[0].replace("-", "")))
    return settings


def read_settings(words: str, for_hopper: bool) -> list[Call]:
    """The settings that a person's words name."""
    text = _normalise(words)
    if not for_hopper:
        return _read_settings(text, 16)
    return [*_read_settings(text, 64), *_read_hopper_settings(text)]


def read_words(words: str, rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
    """The rung that the person's words describe, if they name a setting.

    Examples: "128 threads", "tile 64x64x16", "vector 4", "32 threads per row"; on Hopper also "cluster 2x1",
    "4 stages", "pingpong".
    """
    text = _normalise(words)
    if any(rung.parts for rung in rungs):  # a setting does not say of which part it is
        return _rungs_named(text, rungs)
    hopper = next((rung for rung in rungs if any(call.name == "schedule" for call in rung.settings)), None)
    settings = read_settings(words, hopper is not None)
    if not settings:
        return _rungs_named(text, rungs)
    names = {call.name for call in settings}
    base = hopper or next((rung for rung in reversed(rungs) if names & {call.name for call in rung.settings}), rungs[0])
    kept = tuple(call for call in base.settings if call.name not in names)
    return (Rung(settings=(*settings, *kept), title=f"as asked: {words.strip()}", reason="the person asked for it"),)


def _rungs_named(text: str, rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
    """The rungs whose idea the words name: "vector loads", "tensor cores", "shared memory", "registers"."""
    ideas = next((names for words, names in IDEAS.items() if re.search(words, text)), ())
    return tuple(rung for rung in rungs if {call.name for call in rung.calls} & {*ideas})


def return_on_investment(gain: float, gap: float, risks: tuple[float, float] = (1.0, 1.0)) -> float:
    """Worth of a change: gain ** (1 + max(0, log10(gap / 5))) / product of the risks.

    This is the triage formula of muCUTLASS. A large gap to the bound favours changes with a large gain.
    """
    return float(gain ** (1 + max(0.0, math.log10(gap / 5)))) / (risks[0] * risks[1])


def _gap(ask: Ask) -> float:
    """Time of the baseline over the bound; 1 if either is unknown."""
    verdict = ask.baseline.trials[-1].verdict if ask.baseline is not None and ask.baseline.trials else None
    return 1 / verdict.fraction_of_bound if verdict is not None and verdict.fraction_of_bound else 1.0


def _gain(ask: Ask, found: Computation, rung: Rung, rungs: tuple[Rung, ...], total: LineCounts | None) -> float | None:
    if rung.seconds is None:
        return _counted_gain(ask, _evidence(rung, total)[1])
    return _modelled_gain(ask, found, rung, rungs)


def list_rungs(ask: Ask) -> tuple[Computation, tuple[Rung, ...]]:
    """What the problem computes, and the rungs of its ladder, of which there is at least one.

    Raises `Unrecognised`, which says what the planner cannot write.
    """
    facts = name_inputs(ask.facts)
    found = recognise_whole(facts)
    if (reason := find_unequal_heads(facts)) is not None:
        raise Unrecognised(reason)
    context = Context(found=found, precision=ask.problem.precision, arch=ask.arch, device=ask.device, facts=facts)
    found = fuse_stages(context)
    context = dataclasses.replace(context, found=found)
    rungs = ladder(context)
    if not rungs:
        raise Unrecognised(explain_no_rung(context))
    return found, rungs


class Planner(Proposer):
    """Proposes one change a step from a ladder; deterministic, needs no model and no GPU.

    The option `rank` is "ladder" (rungs in the ladder's order, simplest first), "roi" (the rung of the largest worth
    first, by predicted gain, gap and risks) or "advice" (what the probes advise first, then the ladder). A loop that
    may stop at any step uses "roi". After the ladder the probes' advice is followed. The option `advice` names the
    only advice to follow, by its probe or its number from 1.
    """

    name = "planner"
    option_names = ("rank", "advice")

    def why_not(self) -> str | None:
        """Always available."""
        return None

    def propose(self, ask: Ask, context: RunContext = PLAIN, /) -> Iterator[Event | Proposal]:
        """Yield the next rung that was not tried from this baseline.

        Yields a note instead if there is none, or if the graph is not recognised.
        """
        rank = context.options.get("rank", "roi" if context.largest_gain_first else "ladder")
        if rank not in RANKS:
            raise UserError(f"rank is {rank!r}; it must be {', '.join(RANKS[:-1])} or {RANKS[-1]}")
        banned = banned_settings(ask.constraints)
        if "advice" in context.options:
            yield from follow_advice(ask, context.options["advice"], banned)
            return
        try:
            found, rungs = list_rungs(ask)
        except Unrecognised as reason:
            yield Event(kind="note", message=str(reason))
            return
        texts = StageSources(
            program=lambda rung: write_program(found, rung, ask.arch),
            alone=lambda place, part: _source_alone(ask, found, place, part),
        )
        whole = climb_exceeded(ask, found, rungs, texts)
        rungs = continue_from_baseline(ask, found, whole)
        asked = read_words(ask.instruction, rungs) if ask.instruction else ()
        if ask.instruction and not asked:
            yield Event(
                kind="note",
                message=(
                    "the planner does not read this text: it knows settings (128 threads, tile 64x64, 3 stages, "
                    "vector 4) and the ideas of its ladder (vector loads, tensor cores); "
                    "it goes on with its own next step"
                ),
            )
        advised = propose_advised(ask, list_followed(ask.diagnosis), banned)
        if rank == "advice" and not asked and (proposal := next(advised, None)) is not None:
            yield proposal
            return
        for item in self._climb(ask, found, rungs, (*asked, *_rank_rungs(ask, found, rungs, by_worth=rank == "roi"))):
            yield item
            if isinstance(item, Proposal):
                return
        yield from _leave_ladder(ask, found, whole, advised)

    def _climb(
        self, ask: Ask, found: Computation, rungs: tuple[Rung, ...], ordered: tuple[Rung, ...]
    ) -> Iterator[Event | Proposal]:
        """Proposals of the rungs that were not tried, in order; a note for one that cannot be compiled."""
        tried = TriedPrograms(version.proposal.candidate.program for version in ask.history)
        banned = banned_settings(ask.constraints)
        for rung in ordered:
            program = write_program(found, rung, ask.arch)
            if program in tried or any(call.name in banned for call in rung.calls):
                continue
            try:
                yield self._proposal(ask, found, rung, program, rungs)
            except ProgramError as error:
                yield Event(kind="note", message=f"{rung.title}: {error}")

    @staticmethod
    def _proposal(ask: Ask, found: Computation, rung: Rung, program: str, rungs: tuple[Rung, ...]) -> Proposal:
        source = compile_program(program, binding_of(ask.problem, ask.facts, found))
        total = _find_total(ask)
        evidence = _evidence(rung, total)[0] if rung.seconds is None else ""
        mine = ask.baseline.proposal.candidate.program if ask.baseline else None
        earlier = find_earlier_changes(mine, rung, rungs) if ask.baseline and not found.pieces else ()
        # the counts of the baseline tell of the last change alone
        gain = _gain(ask, found, rung, rungs, total) if rung.seconds is not None or not earlier else None
        with_them = f"; it has also what the baseline has not: {', '.join(earlier)}" if earlier else ""
        return Proposal(
            candidate=Candidate(source=source, program=program),
            title=", ".join((*earlier, rung.title)),
            reason=rung.reason + evidence + with_them,
            by="planner",
            parent=ask.baseline.number if ask.baseline else None,
            instruction=ask.instruction,
            predicted_gain=gain if ask.baseline else None,
        )


def _leave_ladder(
    ask: Ask, found: Computation, rungs: tuple[Rung, ...], advised: Iterator[Proposal]
) -> Iterator[Event | Proposal]:
    """After the last rung: the next advised proposal, else notes. A better version without a decision comes first."""
    if (better := _find_better_pending(ask)) is not None:
        yield Event(
            kind="note",
            message=f"v{better.number} is correct and faster than the baseline by the model, and is not decided: "
            "accept it, then the planner goes on from it",
        )
    elif (proposal := next(advised, None)) is not None:
        yield proposal
        return
    ideas = f"all its {len(rungs)} ideas" if len(rungs) > 1 else "its one idea"
    subject = f"the {len(found.pieces)} stages of this problem" if len(found.pieces) > 1 else found.kind
    yield Event(
        kind="note",
        message=f"the planner has tried {ideas} for {subject}; refine by hand: %%cutegen edit in a notebook, "
        "or a file and cutegen test",
    )


def _find_better_pending(ask: Ask) -> Version | None:
    """The fastest version without a decision that is correct and faster than the baseline."""
    times = {
        version.number: version.trials[-1].verdict.time_s
        for version in ask.history
        if version.trials and version.trials[-1].verdict.correct and version.trials[-1].verdict.time_s is not None
    }
    least = times.get(ask.baseline.number) if ask.baseline is not None else None
    pending = [
        (seconds, version)
        for version in ask.history
        if version.decision is None
        and (seconds := times.get(version.number)) is not None
        and (least is None or seconds < least)
    ]
    return min(pending, key=lambda item: item[0])[1] if pending else None


def _rank_rungs(ask: Ask, found: Computation, rungs: tuple[Rung, ...], *, by_worth: bool) -> tuple[Rung, ...]:
    """The rungs in the order in which they are tried. Rungs of equal worth keep the ladder's order."""
    rungs = _start_near_baseline(ask, found, rungs)
    if not by_worth or ask.baseline is None:
        return rungs
    total, gap = _find_total(ask), _gap(ask)
    return tuple(
        sorted(
            rungs, key=lambda rung: -return_on_investment(_gain(ask, found, rung, rungs, total) or 1.0, gap, rung.risks)
        )
    )


def _start_near_baseline(ask: Ask, found: Computation, rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
    """The rungs, starting at the one nearest to a program that a person wrote; those before it come last.

    The nearest rung has most of the program's settings and the fewest others.
    """
    own = (
        ask.baseline.proposal.candidate.program
        if ask.baseline is not None and ask.baseline.proposal.by == HUMAN
        else None
    )
    if not own or not rungs:
        return rungs
    mine, theirs = settings_of(own), [settings_of(write_program(found, rung, ask.arch)) for rung in rungs]
    near = max(range(len(rungs)), key=lambda number: (len(mine & theirs[number]), -len(theirs[number] - mine)))
    return (*rungs[near:], *rungs[:near])


def banned_settings(constraints: tuple[str, ...]) -> frozenset[str]:
    words = " ".join(constraints).lower()
    return frozenset(setting for phrase, setting in BANS.items() if phrase in words)
