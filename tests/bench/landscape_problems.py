"""The problems whose landscapes the package ships: what landscape_on_gpu.py measures."""

from __future__ import annotations

from pathlib import Path

from workbench.tuning.plan import MOST_OTHERS, MOST_ROWS, TuningProblem

NINETEEN = Path(__file__).parent / "problems"
HEAVY = {
    "relu": 60,
    "gelu_tanh": 60,
    "sigmoid_21": 24,
    "tanh_22": 24,
    "batch_norm_33": 40,
    "attention_97": 40,
}  # many gigabytes, or much time a call


def square(precision: str, n: int) -> TuningProblem:
    """A product of two square matrices."""
    return TuningProblem(f"matmul_{precision}_{n}", "matmul", precision, () if n == 4096 else (("n", n),))


def product(name: str, m: int, n: int, k: int) -> TuningProblem:
    """A product in bf16 whose operands are stored as (k, m) and (n, k)."""
    return TuningProblem(name, "matmul_transposed", "bf16", (("m", m), ("k", k), ("n", n)))


def places() -> tuple[TuningProblem, ...]:
    """All problems, the most important first."""
    rows = (
        "softmax",
        "layer_norm",
        "rms_norm",
        "row_sum",
        "sum_middle_axis",
        "max_middle_axis",
        "matvec",
        "cross_entropy",
        "relu",
        "gelu_tanh",
    )
    named = {
        f"{path.stem[3:]}_{path.stem[:2]}": str(path.relative_to(Path(__file__).parents[2]))
        for path in sorted(NINETEEN.glob("[0-9]*.py"))
    }
    others = tuple(TuningProblem(name, path, "tf32", (), HEAVY.get(name, MOST_OTHERS)) for name, path in named.items())
    return (
        square("bf16", 4096),
        square("bf16", 8192),
        square("bf16", 2048),
        *(TuningProblem(name, name, most=HEAVY.get(name, MOST_ROWS)) for name in rows),
        square("tf32", 4096),
        square("fp16", 4096),
        product("skinny_bf16_16", 16, 4096, 4096),
        product("skinny_bf16_128", 128, 4096, 4096),
        product("deep_bf16", 512, 512, 32768),
        TuningProblem("matmul_transposed_bf16", "matmul_transposed", "bf16"),
        TuningProblem("batched_matmul_bf16", "batched_matmul", "bf16"),
        TuningProblem("matmul_bias_gelu_bf16", "matmul_bias_gelu", "bf16"),
        square("fp16", 8192),
        square("tf32", 8192),
        square("tf32", 2048),
        TuningProblem("matmul_fp32_4096", "matmul", "fp32", (), MOST_OTHERS),
        TuningProblem("softmax_bf16", "softmax", "bf16", (), MOST_OTHERS),
        TuningProblem("layer_norm_bf16", "layer_norm", "bf16", (), MOST_OTHERS),
        *others,
    )
