"""The space of what a proposer writes: each child of a node is one proposal, made from the node's version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbench.errors import NoUsableReply
from workbench.landscapes.keys import format_settings
from workbench.policies.search import SearchNode, SearchTree, describe_memory
from workbench.policies.search.protocols import ShouldStop
from workbench.protocols import Options
from workbench.records import Event, Version
from workbench.records.search import CandidateKind, SearchCandidate
from workbench.session.parts import Parts
from workbench.session.searching.candidates import key_of, write_candidate

REPLIES = 2  # of a model in a row that are unusable or nothing new, after which nothing is expected of a node


class ModelSpace:
    """A language model, or another proposer, as the expander of a search. A failed node's children are repairs.

    A proposal becomes a version of the session at once, which is tested when the search tries it. A proposal that was
    written just before a kill is taken up again, so that no call of a model is paid twice.
    """

    writes = True

    def __init__(self, parts: Parts, by: str, options: Options, bound_s: float | None) -> None:
        self._log, self._proposing = parts.log, parts.proposing
        self._by, self._options, self._bound_s = by, options, bound_s

    def roots(self) -> Sequence[SearchCandidate]:
        """Nothing is known beforehand."""
        return ()

    def children(self, node: SearchNode, tree: SearchTree) -> Sequence[SearchCandidate]:
        """Nothing is known beforehand."""
        return ()

    def expand(self, node: SearchNode, tree: SearchTree, should_stop: ShouldStop) -> Sequence[SearchCandidate]:
        """One proposal, () if the proposer has no further idea for the node."""
        instruction, base = "", node
        if node.candidate is not None and node.candidate.in_words:
            instruction, base = node.candidate.text, tree.node(node.parent or 0)
        of = self._log.version(base.result.version) if base.result is not None and base.result.version else None
        is_repair = base.result is not None and not base.passed
        kind: CandidateKind = "repair" if is_repair else "idea"
        for _ in range(REPLIES):
            made = self._find_left_over(of, is_repair, tree) or self._propose(of, is_repair, instruction, tree)
            if made is None:
                break
            candidate = write_candidate(made.proposal.candidate, made.proposal.title, kind=kind)
            if candidate.key not in tree.keys:
                return (candidate,)
            self._log.reject(made.number, f"the same code as node {tree.keys[candidate.key]} of the search")
        return ()

    def _find_left_over(self, of: Version | None, is_repair: bool, tree: SearchTree) -> Version | None:
        """A version that was written for this node and that the tree does not have, since the search was killed."""
        wanted = of.number if of is not None else None
        for version in self._log.versions:
            proposal = version.proposal
            parent = proposal.repairs if is_repair else proposal.parent
            if version.trials or proposal.by != self._by or (of is not None and parent != wanted):
                continue
            if version.decision is None and key_of(proposal.candidate) not in tree.keys:
                return version
        return None

    def _propose(self, of: Version | None, is_repair: bool, instruction: str, tree: SearchTree) -> Version | None:
        for _ in range(REPLIES):
            try:
                if is_repair and of is not None:
                    return self._proposing.repair(of.number, self._by, self._options, test=False)
                start = of.number if of is not None else None
                return self._proposing.generate(
                    self._by, instruction, self._options, test=False, start=start, learnt=describe_memory(tree, self)
                )
            except NoUsableReply as reason:
                self._log.add_event(Event(kind="note", message=str(reason)))
        return None

    def bound_s(self, candidate: SearchCandidate) -> float | None:
        """The problem's speed of light at the most permissive rates."""
        return self._bound_s

    def settings(self, candidate: SearchCandidate) -> Mapping[str, str]:
        """Its settings, where the model wrote a program."""
        return {} if candidate.in_words or "class ModelNew" in candidate.text else format_settings(candidate.text)
