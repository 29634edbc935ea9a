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
    """The key of a file: a hash of what it says without comments and docstrings, whatever it calls its own things."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return content_hash(source)[:DIGITS]
    return content_hash(ast.unparse(_Plain().visit(tree)))[:DIGITS]


class _Plain(ast.NodeTransformer):
    """Takes docstrings away and numbers the names of functions, arguments and variables in the order of the file."""

    def __init__(self) -> None:
        self.numbers: dict[str, str] = {}

    def visit_Module(self, node: ast.Module) -> ast.AST:
        """Find the names that the file gives."""
        given = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        given |= {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
        given |= {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        named = {one.arg for one in ast.walk(node) if isinstance(one, ast.keyword)}
        for one in ast.walk(node):
            name = getattr(one, "id", None) or getattr(one, "arg", None) or getattr(one, "name", None)
            if name in given - named:
                self.numbers.setdefault(name, f"name_{len(self.numbers)}")
        return self._without_docstring(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Number a variable."""
        node.id = self.numbers.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Number an argument."""
        node.arg = self.numbers.get(node.arg, node.arg)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Number a function of the file; methods keep their names."""
        node.name = self.numbers.get(node.name, node.name)
        return self._without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Classes keep their names."""
        return self._without_docstring(node)

    def _without_docstring(self, node: ast.Module | ast.FunctionDef | ast.ClassDef) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)


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
