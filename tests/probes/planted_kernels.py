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
    program: str = ""  # "" = a file of FOLDER
    line: str = MARK
    precision: Precision = "declared"
    settings: tuple[tuple[str, int], ...] = ()
    file: str = ""  # of FOLDER, where its name is another
    edit: tuple[str, str] = ("", "")  # of the emitted text: what is replaced, and by what

    def load(self) -> Problem:
        """The problem at full size."""
        own = FOLDER / "problems" / f"{self.problem}.py"
        spec = str(own) if own.is_file() else self.problem
        return problems.load(spec, precision=self.precision, settings=self.settings)

    def source(self, problem: Problem, facts: Facts) -> str:
        """The candidate's text."""
        if not self.program:
            return (FOLDER / f"{self.file or self.name}.py").read_text()
        source = compile_program(self.program, binding_of(problem, facts, recognise(facts)))
        old, new = self.edit
        if old not in source:
            raise ValueError(f"{self.name}: {old!r} is not in the emitted text")
        return source.replace(old, new) if old else source

    def lines(self, source: str) -> frozenset[int]:
        """The numbers of the slow lines."""
        pattern = re.escape(MARK) if self.line == MARK else self.line
        return frozenset(at for at, text in enumerate(source.splitlines(), 1) if re.search(pattern, text))


GEMM = "gemm(a, b) .arch(sm_90a)"
ROW_LOAD = r"cute\.autovec_copy\(x\[i, None\]"
MAIN_LOOP = r"cute\.gemm|wait_group|consumer_wait"  # of a product on Hopper
BY_FILE = (
    Planted("strided_loads", "coalescing", "doubled"),
    Planted("strided_stores", "coalescing", "transpose"),
    Planted("lone_lanes", "coalescing", "row_sum"),
    Planted("tile_conflicts", "bank_conflicts", "transpose"),
    Planted("lane_runs", "bank_conflicts", "doubled"),
    Planted("branches_by_lane", "divergence", "doubled"),
    Planted("one_lane_works", "divergence", "row_sum"),
    Planted("turn_for_each_lane", "redundant_work", "polynomial"),
    Planted("barrier_in_loop", "barrier_stalls", "row_sum"),
    Planted(
        "a barrier a step, short rows",
        "barrier_stalls",
        "row_sum",
        settings=(("rows", 65536), ("columns", 4096)),
        file="barrier_in_loop",
    ),
    Planted("many_launches", "launch_overhead", "doubled", settings=(("rows", 1024), ("columns", 1024))),
    Planted(
        "a launch for every 256 KB",
        "launch_overhead",
        "doubled",
        settings=(("rows", 2048), ("columns", 2048)),
        file="many_launches",
    ),
    Planted("index_arithmetic", "instruction_mix", "doubled"),
    Planted("shared_memory_held", "occupancy", "doubled"),
    Planted(
        "short rows in much shared memory",
        "occupancy",
        "doubled",
        settings=(("rows", 16384), ("columns", 4096)),
        file="shared_memory_held",
    ),
    Planted("naive_product", "repeated_reads", "matmul", settings=(("n", 2048),)),
    Planted("sum_stored_first", "repeated_reads", "softmax", settings=(("batch_size", 4096), ("dim", 8192))),
    Planted("rows_read_again", "l2_locality", "softmax"),
    Planted("through_dram", "l2_locality", "doubled"),
    Planted("one_load_in_flight", "memory_latency", "doubled"),
)
BY_PROGRAM = (
    Planted(
        "softmax, a thread per row",
        "coalescing",
        "softmax",
        "softmax(x) .arch(sm_90a) .threads_per_row(1) .vector(1) .unroll(1)",
        line=ROW_LOAD + r"|y\[find_vector",
    ),
    Planted(
        "row sums, a thread per row",
        "coalescing",
        "row_sum",
        "reduce(x, op=sum, axis=last) .arch(sm_90a) .threads_per_row(1) .vector(1) .unroll(1)",
        line=ROW_LOAD,
    ),
    Planted(
        "relu, scalars",
        "access_width",
        "relu",
        "elementwise(relu(x)) .arch(sm_90a) .vector(1)",
        line=r"\(x\[i\]",
    ),
    Planted(
        "relu, CTAs of a warp",
        "launch_overhead",
        "relu",
        "elementwise(relu(x)) .arch(sm_90a) .threads(32) .unroll(1) .vector(4)",
        line=r"grid=\[",
    ),
    Planted(
        "row sums of bf16, scalars",
        "access_width",
        "row_sum",
        "reduce(x, op=sum, axis=last) .arch(sm_90a) .threads_per_row(256) .vector(1)",
        line=ROW_LOAD,
        precision="bf16",
    ),
    Planted(
        "gelu of bf16, scalars",
        "access_width",
        "gelu_tanh",
        "elementwise(gelu_tanh(x)) .arch(sm_90a) .vector(1)",
        line=r"\(x\[i\]",
        precision="bf16",
    ),
    Planted(
        "layer norm, a row in a warp's registers",
        "register_spills",
        "layer_norm",
        "layernorm(x, eps=1e-05) .arch(sm_90a) .kept() .unroll(2) .vector(2)",
        line=r"kept|x_fragment|autovec_copy",
    ),
    Planted(
        "a product with tiles beyond the registers",
        "register_spills",
        "matmul",
        f"{GEMM} .mma(bf16) .tile(256, 96, 64)",
        line=r"cute\.gemm|ldmatrix|tCrA|tCrB|sA\[|sB\[",
        precision="bf16",
    ),
    Planted(
        "layer norm, a row in 64 threads' registers",
        "register_pressure",
        "layer_norm",
        "layernorm(x, eps=1e-05) .arch(sm_90a) .kept() .threads_per_row(64) .vector(4)",
        line=r"kept|x_fragment|autovec_copy|exp\(|fmax",
    ),
    Planted(
        "few long rows",
        "underfilled",
        "wide_softmax",
        "softmax(x) .arch(sm_90a) .threads_per_row(1024) .vector(4)",
        line=r"grid=\[",
    ),
    Planted(
        "a small product without split-k",
        "underfilled",
        "matmul",
        f"{GEMM} .mma(bf16) .schedule(cooperative) .tile(128, 128, 64)",
        precision="bf16",
        settings=(("n", 512),),
        line=r"grid=\[.*clusters",
    ),
    Planted(
        "rows of a wave and a little",
        "wave_tail",
        "softmax",
        "softmax(x) .arch(sm_90a) .threads_per_row(1024) .kept() .vector(4)",
        settings=(("batch_size", 290), ("dim", 32768)),
        line=r"grid=\[",
    ),
    Planted(
        "tiles of a wave and a little",
        "wave_tail",
        "matmul",
        f"{GEMM} .thread_tile(8, 8) .tile(128, 128, 16)",
        settings=(("n", 2304),),
        line=r"grid=\[",
    ),
    Planted(
        "a product without tensor cores",
        "tensor_cores",
        "matmul",
        f"{GEMM} .thread_tile(8, 8) .tile(128, 128, 16)",
        precision="bf16",
        line=r"tCrC\[p, q\] \+=",
    ),
    Planted(
        "mma.sync on Hopper",
        "tensor_cores",
        "matmul",
        f"{GEMM} .mma(bf16) .stages(4) .tile(128, 128, 32)",
        precision="bf16",
        line=r"cute\.gemm",
    ),
    Planted(
        "two stages",
        "pipeline_depth",
        "matmul",
        f"{GEMM} .cluster(2, 1) .mma(bf16) .schedule(cooperative) .stages(2) .tile(128, 256, 64)",
        precision="bf16",
        line=MAIN_LOOP,
    ),
    Planted(
        "two stages of tf32",
        "pipeline_depth",
        "matmul",
        f"{GEMM} .cluster(2, 1) .mma(tf32) .schedule(cooperative) .stages(2) .tile(128, 128, 32)",
        precision="tf32",
        line=MAIN_LOOP,
    ),
    Planted(
        "small tiles",
        "tensor_feed",
        "matmul",
        f"{GEMM} .cluster(2, 1) .mma(bf16) .schedule(cooperative) .tile(128, 32, 64)",
        precision="bf16",
        line=MAIN_LOOP,
    ),
    Planted(
        "narrow tiles",
        "tensor_feed",
        "matmul",
        f"{GEMM} .cluster(2, 1) .mma(f16) .schedule(cooperative) .tile(64, 64, 64)",
        precision="fp16",
        line=MAIN_LOOP,
    ),
    Planted(
        "no cluster",
        "tma_clusters",
        "matmul",
        f"{GEMM} .mma(bf16) .schedule(cooperative) .tile(128, 128, 64)",
        precision="bf16",
        settings=(("n", 8192),),
        line=r"cute\.copy\(",
    ),
    Planted(
        "results stored one by one",
        "epilogue",
        "matmul_transposed",
        f"{GEMM} .cluster(2, 1) .mma(bf16) .schedule(cooperative) .tile(128, 256, 64)",
        precision="bf16",
        settings=(("m", 8192), ("n", 8192), ("k", 512)),
        line=r"mD\[row \+ i|sD\[i, j|for e in cutlass.range\(lane|i, j = e",
        edit=("tma_copy is not None", "False"),
    ),
    Planted(
        "results of tf32 stored one by one",
        "epilogue",
        "matmul_transposed",
        f"{GEMM} .cluster(2, 1) .mma(tf32) .schedule(cooperative) .tile(128, 128, 32)",
        precision="tf32",
        settings=(("m", 4096), ("n", 8192), ("k", 256)),
        line=r"mD\[row \+ i|sD\[i, j|for e in cutlass.range\(lane|i, j = e",
        edit=("tma_copy is not None", "False"),
    ),
    Planted(
        "a product with small thread tiles",
        "repeated_reads",
        "matmul",
        f"{GEMM} .thread_tile(2, 2) .tile(32, 32, 32)",
        line=r"sA\[|sB\[",
    ),
)
PLANTED = (*BY_FILE, *BY_PROGRAM)
