"""Wrong kernels by replacement of text in right ones (tests/corpus/originals), and the problems that they solve."""

from __future__ import annotations

import functools
from pathlib import Path

from test_effects import CACHE, NORM
from test_error_patterns import SOURCE as BIAS_RELU

from workbench import evaluate, executors, problems
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.trials import small_cases
from workbench.records import Candidate, Job, Opened, Trial, record

TESTS = Path(__file__).parent.parent
ORIGINALS, HONEST = TESTS / "corpus" / "originals", TESTS / "corpus" / "honest"
OWN = TESTS / "problems" / "own"


@record
class Subject:
    """A problem: a shipped name, a path or source text, with its precision, sizes and the target of its kernels."""

    spec: str
    precision: str = "declared"
    settings: tuple[tuple[str, int], ...] = ()
    arch: str = "sm_80"


LINEAR = """import torch
import torch.nn as nn

rows = 48
k = 40
n = 56


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(rows, k)]


def get_init_inputs():
    return [k, n]
"""
RELU = Subject(spec="relu", settings=(("batch_size", 31), ("dim", 63)))
ROW_SUM = Subject(spec="row_sum", settings=(("rows", 70), ("columns", 150)))
SUBJECTS = {
    "elementwise": RELU,
    "rows": ROW_SUM,
    "handed": ROW_SUM,
    "softmax": Subject(spec="softmax", settings=(("batch_size", 17), ("dim", 150))),
    "largest": Subject(spec="max_middle_axis"),
    "tiles": Subject(spec="matmul", settings=(("n", 72),), precision="fp16"),
    "bias_relu": Subject(spec=BIAS_RELU),
    "batch_norm": Subject(spec=NORM),
    "cache": Subject(spec=CACHE),
    "rms_norm": Subject(spec=str(OWN / "rms_norm_bf16_3d.py")),
    "mlp": Subject(spec=str(OWN / "mlp_hard_coded.py")),
    "conv": Subject(spec=str(OWN / "depthwise_conv.py")),
    "scan": Subject(spec=str(OWN / "masked_cumsum.py")),
    "hopper_gemm": Subject(spec="matmul", precision="bf16", arch="sm_90a"),
    "staged_gemm": Subject(spec="matmul_bias_gelu", precision="fp16"),
    "linear": Subject(spec=LINEAR),
}
ARRIVE = "        cute.arch.barrier_arrive(barrier_id=1, number_of_threads=64)"
PUT = "        if thread == 32:\n            scratch[0] = total\n"
FENCE = """            if cutlass.const_expr(tma_copy is not None):
                cute.arch.fence_proxy("async.shared", space="cta")
"""
VISIBLE = "        # after the barrier the k tile is visible to all threads, and the stage to be filled next is free\n"
# original -> name -> (a text that occurs once, what replaces it)
MUTANTS: dict[str, dict[str, tuple[str, str]]] = {
    "elementwise": {
        "tail_dropped": ("(count + 127) // 128", "count // 128"),
        "clamped_at_one": (
            "cute.arch.fmax(v, cutlass.Float32(0.0))",
            "cute.arch.fmin(cute.arch.fmax(v, cutlass.Float32(0.0)), cutlass.Float32(1.0))",
        ),
        "out_of_bounds": ("if i < count:", "if i < count + 9:"),
        "wrong_cast": ("r.to(y.element_type)", "r.to(cutlass.Float16).to(y.element_type)"),
    },
    "rows": {
        "barrier_missing": ("    cute.arch.sync_threads()\n", ""),
        "off_by_one": ("range(thread, columns, 64)", "range(thread, columns - 1, 64)"),
        "wrong_stride": ("range(thread, columns, 64)", "range(thread, columns, 32)"),
        "one_row_too_few": ("grid=[rows, 1, 1]", "grid=[rows - 1, 1, 1]"),
    },
    "handed": {
        "arrives_before_it_wrote": (PUT + ARRIVE, ARRIVE + "\n" + PUT.rstrip()),
        "wait_missing": ("        cute.arch.barrier(barrier_id=1, number_of_threads=64)\n", ""),
        "second_warp_lost": ("(total + scratch[0])", "(total + total)"),
        "step_missing": ("range_constexpr(5)", "range_constexpr(4)"),
    },
    "softmax": {
        "no_maximum": (
            "    top = cute.arch.fmax(tops[0], tops[1])\n",
            "    top = cutlass.Float32(0.0) * tops[0] * tops[1]\n",
        ),
        "one_warp": ("1.0 / (sums[0] + sums[1])", "1.0 / (sums[0] + sums[0])"),
        "maximum_of_a_warp": ("top = cute.arch.fmax(tops[0], tops[1])", "top = tops[warp]"),
        "factor_two": ("1.0 / (sums", "2.0 / (sums"),
    },
    "largest": {
        "doubled": ("= top.to(y.element_type)", "= (top + top).to(y.element_type)"),
        "first_row_skipped": ("cutlass.range(rows, unroll=1)", "cutlass.range(1, rows, unroll=1)"),
        "last_tile": ("cute.ceil_div(x.shape[2], 64)", "x.shape[2] // 64"),
        "minimum": ("top = cute.arch.fmax(top,", "top = cute.arch.fmin(top,"),
        "from_zero": ("top = -cutlass.Float32.inf", "top = cutlass.Float32(0.0)"),
    },
    "tiles": {
        "accumulates_in_16_bits": (
            "cutlass.Float16, cutlass.Float32, (16, 8, 16)",
            "cutlass.Float16, cutlass.Float16, (16, 8, 16)",
        ),
        "transposed": ("value_b = b[start + j, block_n * 32 + i]", "value_b = b[block_n * 32 + i, start + j]"),
        "barrier_missing": (
            "        cute.gemm(tiled_mma, totals, part_a, part_b, totals)\n        cute.arch.sync_threads()\n",
            "        cute.gemm(tiled_mma, totals, part_a, part_b, totals)\n",
        ),
        "tail_of_k_dropped": ("range(0, k, 16)", "range(0, k // 16 * 16, 16)"),
    },
    "bias_relu": {
        "bias_missing": ("x[row, c] + b[c]", "x[row, c]"),
        "bias_of_the_row": ("b[c]", "b[row]"),
        "shifted": ("y[row, c] = ", "y[row, (c + 1) % columns] = "),
        "one_row_too_few": ("grid=[x.shape[0], 1, 1]", "grid=[x.shape[0] - 1, 1, 1]"),
    },
    "batch_norm": {
        "state_not_updated": ("        mean[col] = 0.9 * mean[col] + 0.1 * mu\n", ""),
        "alias": ("n.running_mean, n.running_var", "n.bias.detach(), n.weight.detach()"),
        "variance_of_the_population": ("squares / (n - 1)", "squares / n"),
        "counter_not_counted": ("        n.num_batches_tracked += 1\n", ""),
    },
    "cache": {
        "state_replaced": ("total[i] = total[i] + x[i]", "total[i] = x[i]"),
        "state_copied": ("for t in (x.contiguous(), self.total)]", "for t in (x.contiguous(), self.total.clone())]"),
        "input_is_the_output": ("total[i] = total[i] + x[i]", "x[i] = total[i] + x[i]"),
        "added_twice": ("total[i] + x[i]", "total[i] + x[i] + x[i]"),
    },
    "rms_norm": {
        "weight_added": ("return weight * to_bf16(", "return weight + to_bf16("),
        "epsilon_too_large": ("mean_1 + cutlass.Float32(1e-06)", "mean_1 + cutlass.Float32(1e-01)"),
        "one_row_too_few": ("    if row < rows:", "    if row < rows - 1:"),
        "shuffle_missing": ("range_constexpr(5)", "range_constexpr(4)"),
        "weight_missing": (
            "return weight * to_bf16(hidden_states * row_1_1)",
            "return to_bf16(hidden_states * row_1_1)",
        ),
    },
    "mlp": {
        "bias_missing": ("return total + bias[column].to(cutlass.Float32)", "return total"),
        "relu_missing": ("    total = relu(total)\n", ""),
        "tile_rows_dropped": (
            "total = epilogue_2(total, bias, column)\n            mD[batch, row, column]",
            "total = epilogue_2(total, bias, column)\n            mD[batch, tile_m * TILE_M, column]",
        ),
        "result_not_of_this_call": ("        h1 = gemm(x, ", "        h1 = gemm(torch.zeros_like(x), "),
    },
    "conv": {
        "padding_forgotten": ("q * stride[2] - padding[2] + s", "q * stride[2] + s"),
        "border_read": (
            "inside = (d >= 0) & (d < mX.shape[2]) & (h >= 0) & (h < mX.shape[3])",
            "inside = (d >= 0) & (d < mX.shape[2]) & (h >= 0) & (h <= mX.shape[3])",
        ),
        "stride_one": ("p * stride[1] - padding[1]", "p - padding[1]"),
        "channels_of_the_first_group": ("first = k // filters_per_group * mW.shape[1]", "first = 0 * k"),
        "last_block": (
            "blocks = (positions + THREADS - 1) // THREADS",
            "blocks = cutlass.max(positions // THREADS, 1)",
        ),
    },
    "scan": {
        "prefix_lost": ("prefixes[v] = combine(carry, earlier)", "prefixes[v] = earlier"),
        "barrier_missing": ("        cute.arch.sync_threads()\n", ""),
        "mask_ignored": ("return x * mask", "return x"),
        "exclusive": ("        offset = combine(earlier, prefixes[v])\n", "        offset = earlier\n"),
        "carry_lost": ("                earlier = carry\n", "                earlier = cutlass.Float32(IDENTITY)\n"),
    },
    "hopper_gemm": {
        "wait_missing": (
            "    tCrA, tCrB = fragments\n    mainloop_pipeline.consumer_wait(read_state)\n",
            "    tCrA, tCrB = fragments\n",
        ),
        "last_group_in_flight": ("    warpgroup.wait_group(0)\n", ""),
        "bytes_of_one_operand": ("tx_count=(TILE_M + TILE_N) * TILE_K", "tx_count=TILE_M * TILE_K"),
        "fence_missing": (FENCE, ""),
    },
    "staged_gemm": {
        "wait_too_weak": ("cp_async_wait_group(STAGES - 2)", "cp_async_wait_group(STAGES - 1)"),
        "barrier_missing": (VISIBLE + "        cute.arch.sync_threads()\n", ""),
        "column_guard_missing": (
            "            if column < n:\n                total = tCrC[e]",
            "            if column >= 0:\n                total = tCrC[e]",
        ),
        "stage_off_by_one": ("stage = k_tile % STAGES", "stage = (k_tile + 1) % STAGES"),
    },
}


def source_of(original: str, mutant: str = "") -> str:
    """The text of an original, or of one of its mutants."""
    source = (ORIGINALS / f"{original}.py").read_text()
    if not mutant:
        return source
    find, replace = MUTANTS[original][mutant]
    assert source.count(find) == 1, (original, mutant, source.count(find))
    return source.replace(find, replace)


@functools.cache
def open_subject(name: str) -> Opened:
    """The opened problem of an original, or of a name in SUBJECTS."""
    subject = SUBJECTS[name]
    return WorkerInspector().open(problems.load(subject.spec, precision=subject.precision, settings=subject.settings))


def judge(subject: str, source: str) -> Trial:
    """The trial of a candidate on the emulator, as a session runs it."""
    opened = open_subject(subject)
    job = Job(
        problem=opened.problem,
        facts=opened.facts,
        candidate=Candidate(source=source),
        arch=SUBJECTS[subject].arch,
        cases=small_cases(opened.facts),
        full_sample=False,
    )
    return evaluate.evaluate(job, executors.choose("emulator"))


def all_mutants() -> list[tuple[str, str]]:
    """(original, mutant) of each."""
    return [(original, mutant) for original, mutants in MUTANTS.items() for mutant in mutants]


def honest() -> list[tuple[str, Path]]:
    """(subject, file) of each right kernel of odd style; its file's name begins with the subject's."""
    return [(path.stem.split("__")[0], path) for path in sorted(HONEST.glob("*.py"))]
