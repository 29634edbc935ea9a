"""Kernels that are slow in one known way each: the probe that must find it, and the source line it must name.

A planted kernel is a program of settings, or a file of the folder `planted`; in the file the slow line ends with the
comment `# planted`. `line` is a pattern of the slow line in the text that is emitted for a program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import workbench.problems as problems
from workbench.codegen import compile_program
from workbench.proposers.binding import binding_of
from workbench.proposers.recognition import recognise
from workbench.records import Facts, Problem
from workbench.records.problem import Precision

FOLDER = Path(__file__).parent / "planted"
MARK = "# planted"


@dataclass(frozen=True)
class Planted:
    """One planted kernel."""

    name: str  # what is slow; of a file, its name
    probe: str  # that must come first
    problem: str  # a shipped problem, or a file of FOLDER/problems
    program: str = ""  # "" = the file FOLDER/name.py
    line: str = MARK
    precision: Precision = "declared"
    settings: tuple[tuple[str, int], ...] = ()

    def load(self) -> Problem:
        """The problem at full size."""
        own = FOLDER / "problems" / f"{self.problem}.py"
        spec = str(own) if own.is_file() else self.problem
        return problems.load(spec, precision=self.precision, settings=self.settings)

    def source(self, problem: Problem, facts: Facts) -> str:
        """The candidate's text."""
        if not self.program:
            return (FOLDER / f"{self.name}.py").read_text()
        return compile_program(self.program, binding_of(problem, facts, recognise(facts)))

    def lines(self, source: str) -> frozenset[int]:
        """The numbers of the slow lines."""
        pattern = re.escape(MARK) if self.line == MARK else self.line
        return frozenset(at for at, text in enumerate(source.splitlines(), 1) if re.search(pattern, text))


GEMM = "gemm(a, b) .arch(sm_90a)"
ROW_LOAD = r"cute\.autovec_copy\(x\[i, None\]"
BY_FILE = (
    Planted("strided_loads", "coalescing", "doubled"),
    Planted("strided_stores", "coalescing", "transpose"),
    Planted("tile_conflicts", "bank_conflicts", "transpose"),
    Planted("branches_by_lane", "divergence", "doubled"),
    Planted("one_lane_works", "divergence", "row_sum"),
    Planted("barrier_in_loop", "barrier_stalls", "row_sum"),
    Planted("many_launches", "launch_overhead", "doubled"),
    Planted("index_arithmetic", "instruction_mix", "doubled"),
    Planted("shared_memory_held", "occupancy", "doubled"),
    Planted("naive_product", "repeated_reads", "matmul", settings=(("n", 2048),)),
    Planted("rows_read_again", "l2_locality", "softmax"),
)
BY_PROGRAM = (
    Planted(
        "a thread per row",
        "coalescing",
        "softmax",
        "softmax(x) .arch(sm_90a) .threads_per_row(1) .vector(1) .unroll(1)",
        line=ROW_LOAD,
    ),
)
PLANTED = (*BY_FILE, *BY_PROGRAM)
