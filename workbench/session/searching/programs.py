"""The space of a problem's programs in muCUTLASS: the planner's ladder, and all legal changes of one setting."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping, Sequence

from workbench.codegen.canonical import canonical
from workbench.errors import ProgramError, Stopped, UserError
from workbench.landscapes.keys import format_settings
from workbench.language import OPERATIONS, parse
from workbench.language.limits import check_limits
from workbench.policies.search import ROOT, SearchNode, SearchTree
from workbench.policies.search.protocols import ShouldStop
from workbench.probes.moving import write_moved
from workbench.proposers.binding import binding_of
from workbench.proposers.ladders.pipelines import group_pieces
from workbench.proposers.planner import banned_settings, list_rungs, read_settings, read_words
from workbench.proposers.recognition import Unrecognised
from workbench.proposers.rung_programs import list_program_stages, write_program
from workbench.records import Ask, Move
from workbench.records.search import Prior, SearchCandidate
from workbench.session.searching.candidates import key_of_program
from workbench.session.searching.priors import SessionPriors
from workbench.session.searching.words import write_as_asked


class ProgramSpace:
    """Roots are the program that the search started from and the rungs of the planner's ladder, in its order. Children
    differ from their parent in one setting; those that its diagnosis advises come first, then the nearest values.
    Stages of one operation change together, and so do those of them that are interchangeable.

    Nothing is compiled or run. `answers` says whether the session's executor can run a program. Raises `UserError` for
    a problem that the planner does not recognise.
    """

    writes = False

    def __init__(
        self,
        ask: Ask,
        priors: SessionPriors,
        start: tuple[str, float | None] | None,
        least_s: float | None,
        answers: Callable[[str], bool],
        should_stop: ShouldStop = lambda: False,
    ) -> None:
        """`start`: (program, time in seconds) of the version that the search starts from. `least_s` is the time that no
        kernel for the problem can beat. `should_stop` is asked between the changes of a program, which take seconds
        where it has many stages.
        """
        self._should_stop = should_stop
        self._least_s = least_s
        try:
            self._found, self._rungs = list_rungs(ask)
        except Unrecognised as reason:
            raise UserError(
                f"the planner has no programs to search among ({reason}); let a model write them: --by llm"
            ) from None
        self._ask, self._priors, self._answers = ask, priors, answers
        self._binding = binding_of(ask.problem, ask.facts, self._found)
        self._banned = banned_settings(ask.constraints)
        self._labels = self._label_stages()
        self._changed: dict[str, tuple[tuple[str, SearchCandidate], ...]] = {}
        self._roots = self._list_roots(start)

    def _label_stages(self) -> list[tuple[int, int]]:
        """For each stage of the first rung's program (the group of its piece, its place in the piece)."""
        pieces = self._found.pieces
        labels: dict[int, int] = {}
        for number, places in enumerate(group_pieces(pieces, [()] * len(pieces))):
            labels |= dict.fromkeys(places, number)
        return [
            (labels[place], at)
            for place, piece in enumerate(pieces)
            for at in range(len(list_program_stages(piece.named, self._rungs[0].parts[place], self._ask.arch)))
        ]

    def _list_roots(self, start: tuple[str, float | None] | None) -> tuple[SearchCandidate, ...]:
        found: dict[str, SearchCandidate] = {}
        if start is not None:
            prior = self._priors.of_time(canonical(start[0]), start[1])
            self._add(found, start[0], "the version that the search started from", prior)
        climbs = self._ask.arch != "sm_90a"  # a ladder begins with its simplest rung; for Hopper with its choice
        for place, rung in enumerate(self._rungs):
            if not any(call.name in self._banned for call in rung.calls):
                rank = len(self._rungs) - 1 - place if climbs else place
                program = write_program(self._found, rung, self._ask.arch)
                self._add(found, program, rung.title, self._priors.of_rung(canonical(program), rung, rank))
        return tuple(found.values())

    def _add(self, found: dict[str, SearchCandidate], program: str, title: str, prior: Prior | None) -> None:
        """Add a program under its key if it is legal, fits the problem's sizes and is not there yet."""
        with contextlib.suppress(ProgramError):
            text = canonical(program)
            key = key_of_program(text)
            if key not in found and not check_limits(parse(text), self._binding) and self._answers(text):
                found[key] = SearchCandidate(key=key, text=text, title=title, prior=prior)

    def roots(self) -> Sequence[SearchCandidate]:
        """The first programs."""
        return self._roots

    def children(self, node: SearchNode, tree: SearchTree) -> Sequence[SearchCandidate]:
        """The programs that differ from the node's in one setting. Raises `Stopped` if that should stop."""
        if node.candidate is None or node.candidate.in_words or "class ModelNew" in node.candidate.text:
            return ()
        changes = self._changes(node.candidate.text)
        return self._priors.rank_changes(node, changes)

    def _changes(self, program: str) -> tuple[tuple[str, SearchCandidate], ...]:
        """(setting, program with another value of it, or without it), nearest values first."""
        if program not in self._changed:
            found: dict[str, SearchCandidate] = {}
            names: dict[str, str] = {}
            stages = parse(program).stages
            groups = group_stages([stage.operation.name for stage in stages], self._labels)
            settings = [item.name for stage in stages for item in OPERATIONS[stage.operation.name].settings]
            for name in dict.fromkeys(settings):
                if self._should_stop():
                    raise Stopped
                if name == "arch" or name in self._banned:
                    continue
                for _, written in write_moved(program, [Move(setting=name, direction="other")], groups):
                    self._add(found, canonical(written), describe_change(program, written), None)
                names |= {key: name for key in found if key not in names}
            own = key_of_program(program)
            self._changed[program] = tuple((names[key], one) for key, one in found.items() if key != own)
        return self._changed[program]

    def expand(self, node: SearchNode, tree: SearchTree, should_stop: ShouldStop) -> Sequence[SearchCandidate]:
        """For a node in words the program above it with the settings that they name; without such a program, or where
        it cannot have them, what the planner reads out of the words. Else the children.
        """
        if node.candidate is None or not node.candidate.in_words:
            made = self._roots if node.number == ROOT else self.children(node, tree)
            return tuple(one for one in made if one.key not in tree.keys)
        words, found = node.candidate.text, dict[str, SearchCandidate]()
        above = tree.node(node.parent).candidate
        if above is not None and not above.in_words and "class ModelNew" not in above.text:
            asked = write_as_asked(above.text, read_settings(words, self._ask.arch == "sm_90a"), words)
            if asked is not None:
                self._add(found, asked, f"as asked: {describe_change(above.text, asked)}", None)
        if found:
            return tuple(found.values())
        for rung in read_words(words, self._rungs):
            self._add(found, write_program(self._found, rung, self._ask.arch), rung.title, None)
        return tuple(found.values())

    def bound_s(self, candidate: SearchCandidate) -> float | None:
        """The problem's speed of light at the most permissive rates: of a program alone no bound is known."""
        return self._least_s

    def settings(self, candidate: SearchCandidate) -> Mapping[str, str]:
        """Its settings as people write them."""
        return {} if candidate.in_words or "class ModelNew" in candidate.text else format_settings(candidate.text)


def group_stages(operations: Sequence[str], labels: Sequence[Hashable]) -> tuple[tuple[int, ...], ...]:
    """The numbers of stages that change together: those of one operation, then those of one label, if all have one."""
    found = [[number for number, one in enumerate(operations) if one == name] for name in dict.fromkeys(operations)]
    if len(labels) == len(operations):
        found += [[number for number, one in enumerate(labels) if one == label] for label in dict.fromkeys(labels)]
    return tuple(dict.fromkeys(map(tuple, found)))


def describe_change(before: str, after: str) -> str:
    """The settings in which two programs differ: "threads_per_row 256 instead of 128", "tile 64x64x32 in stage 2
    instead of 64x32x32", "unroll 4 in 7 stages".
    """
    old, new = format_settings(before), format_settings(after)
    changes: dict[tuple[str, str | None], list[str]] = {}  # (setting, new value) -> as which it is named in its stages
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            changes.setdefault((name.partition(" ")[0], new.get(name)), []).append(name)
    return ", ".join(
        _say_change(setting, value, names, {old.get(name) for name in names})
        for (setting, value), names in changes.items()
    )


def _say_change(setting: str, value: str | None, names: Sequence[str], before: set[str | None]) -> str:
    stage = names[0].partition(" ")[2]  # "" of the first one
    where = f" in {len(names)} stages" if len(names) > 1 else f" in stage {stage}" if stage else ""
    if value is None:
        return f"without {setting}{where}"
    replaced = next(iter(before)) if len(before) == 1 else None
    return f"{setting} {value}{where}" + (f" instead of {replaced}" if replaced is not None else "")
