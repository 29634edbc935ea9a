"""Candidates of a search and versions of a session: which belongs to which, by the key of their code."""

from __future__ import annotations

import ast
import functools

from workbench.codegen.canonical import canonical, code
from workbench.errors import ProgramError
from workbench.proposers.binding import candidate_of
from workbench.records import Candidate, Version
from workbench.records.search import CandidateKind, Prior, SearchCandidate
from workbench.session.log import SessionLog
from workbench.wire import content_hash

DIGITS = 16  # of a key


@functools.lru_cache(maxsize=1 << 14)
def key_of_program(program: str) -> str:
    """The key of a program: a hash of the code that it compiles to. Raises `ProgramError` for one that is not legal."""
    return content_hash(code(canonical(program)))[:DIGITS]


@functools.lru_cache(maxsize=1 << 10)
def key_of_source(source: str) -> str:
    """The key of a file: a hash of what it says without comments and its head."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return content_hash(source)[:DIGITS]
    if tree.body and isinstance(tree.body[0], ast.Expr) and isinstance(tree.body[0].value, ast.Constant):
        del tree.body[0]
    return content_hash(ast.unparse(tree))[:DIGITS]


def key_of(candidate: Candidate) -> str:
    """The key of a version's candidate."""
    if candidate.program is not None:
        try:
            return key_of_program(candidate.program)
        except ProgramError:  # a check was added since
            pass
    return key_of_source(candidate.source)


def write_candidate(
    made: Candidate, title: str, prior: Prior | None = None, kind: CandidateKind = "idea"
) -> SearchCandidate:
    """What a search calls this candidate."""
    return SearchCandidate(key=key_of(made), text=made.program or made.source, title=title, prior=prior, kind=kind)


def read_candidate(log: SessionLog, candidate: SearchCandidate) -> Candidate:
    """The file of a search's candidate. Raises `ProgramError` for a program that cannot be compiled."""
    if "class ModelNew" in candidate.text:
        return Candidate(source=candidate.text)
    return candidate_of(log.problem, log.facts, log.arch, candidate.text)


def find_version(log: SessionLog, key: str) -> Version | None:
    """The first version of the session with this code."""
    return next((version for version in log.versions if key_of(version.proposal.candidate) == key), None)
