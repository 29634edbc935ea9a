"""Problems in plain PyTorch style, sizes as literals and dtypes as in their models: opened as they stand."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest
import torch

from workbench import problems
from workbench.errors import ProblemError
from workbench.problems import inspection, loading
from workbench.problems.reference import run_reference
from workbench.records import Opened, record

OWN = Path(__file__).parent / "own"
LIMIT_S = 10.0


@record
class Expected:
    """What must be understood of a problem: precision, ties, sizes that no case varies, values of sizes."""

    precision: str = "fp32"
    ties: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("float32",)
    dtype: str = "float32"  # of the work


B16, F16 = ("bfloat16",), ("float16",)
EXPECTED = {
    "attention_gqa": Expected(
        precision="fp16",
        ties=("k_2=v_2", "q_0=k_0=v_0", "q_3=k_3=v_3"),
        kept=("k_1", "q_1", "v_1"),  # four times as many heads: none can change alone
        outputs=F16,
        dtype="float16",
    ),
    "cross_entropy_bf16": Expected(
        precision="bf16", ties=("labels_0=logits_0", "logits_1=labels_n0"), dtype="bfloat16"
    ),
    "depthwise_conv": Expected(ties=("x_1=channels",), kept=("kernel_size",)),
    "embedding": Expected(ties=("vocab=ids_n0",)),
    "ffn_fp16": Expected(precision="fp16", ties=("w_1=b_0=r_1", "x_0=r_0", "x_1=w_0"), outputs=F16, dtype="float16"),
    "group_norm_silu": Expected(ties=("x_1=channels",)),
    "keyword_arguments": Expected(ties=("x_1=bias_0",)),
    "layer_norm_residual": Expected(
        ties=("x_0=residual_0", "x_1=residual_1", "x_2=residual_2=dim"), outputs=("float32", "float32")
    ),
    "masked_cumsum": Expected(),
    "masked_softmax": Expected(ties=("scores_2=mask_0", "scores_3=mask_1")),
    "mixed_autocast": Expected(ties=("x_1=d",), outputs=B16),
    "mixed_norm": Expected(precision="mixed", ties=("x_1=weight_size",), outputs=B16),
    "mlp_bf16": Expected(precision="bf16", ties=("x_1=d_in",), outputs=B16, dtype="bfloat16"),
    "mlp_hard_coded": Expected(
        ties=(
            "x_1=fc1_n0",
            "fc1_n1=fc2_n0",
        ),
    ),
    "odd_sizes_transposed": Expected(ties=("x_n0=y_0", "x_n2=y_1")),
    "pairwise": Expected(ties=("a_1=b_1",)),
    "quantise_int8": Expected(precision="bf16", outputs=B16, dtype="bfloat16"),
    "rms_norm_bf16_3d": Expected(
        precision="bf16", ties=("hidden_states_2=hidden_size",), outputs=B16, dtype="bfloat16"
    ),
    "rotary": Expected(
        precision="bf16",
        ties=("q_2=k_2=cos_0=sin_0", "q_3=k_3=cos_1=sin_1"),
        outputs=B16 * 2,
        dtype="bfloat16",
    ),
    "softmax_middle_fp16": Expected(precision="fp16", outputs=F16, dtype="float16"),
    "swiglu_fused": Expected(precision="fp16", ties=("x_2=dim",), outputs=F16, dtype="float16"),
    "top_k": Expected(outputs=("float32", "int64")),
    "uses_helper": Expected(),
}


def load(name: str) -> Opened:
    return inspection.open_problem(problems.load(str(OWN / f"{name}.py")))


def test_every_file_is_expected() -> None:
    assert {path.stem for path in OWN.glob("*.py")} - {"activations"} == {*EXPECTED}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", EXPECTED)
def test_it_opens_in_its_dtypes_with_its_sizes(name: str) -> None:
    inspection.open_problem(problems.load("relu"))  # what torch imports once
    start = time.process_time()
    opened, wanted = load(name), EXPECTED[name]
    assert time.process_time() - start < LIMIT_S
    facts = opened.facts
    full = next(case for case in facts.cases if case.name == "full")
    assert opened.problem.precision == wanted.precision
    assert sorted("=".join(group) for group in opened.problem.tie) == sorted(wanted.ties)
    assert sorted(size.name for size in facts.sizes if not size.varied) == sorted(wanted.kept)
    assert all(size.extents and (size.varied or size.why) for size in facts.sizes)
    assert tuple(spec.dtype for spec in full.outputs) == wanted.outputs
    assert next(work for work in facts.work if work.case == "full").dtype == wanted.dtype
    assert {case.name for case in facts.cases} >= {"shrunk", "odd", "tiny", "full"}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", EXPECTED)
def test_the_exact_reference_runs_and_agrees_with_eager(name: str) -> None:
    opened = load(name)
    problem, case = opened.problem, next(case for case in opened.facts.cases if case.name == "odd")
    module = loading.load_module(problem, case.settings)
    torch.manual_seed(1)
    model, inputs = loading.build_model(module, "Model", problem), loading.make_inputs(module, problem, 2)
    found = run_reference(model, inputs, problem.precision, seed=3)
    assert found.eager is not None
    for exact, eager, spec in zip(found.exact, found.eager, case.outputs, strict=True):
        assert str(eager.dtype) == f"torch.{spec.dtype}"
        assert exact.dtype == (torch.float64 if eager.is_floating_point() else eager.dtype)
        if eager.is_floating_point():
            torch.testing.assert_close(eager.double(), exact, rtol=0.05, atol=0.05, equal_nan=True)


RELU_BIAS = "torch.relu(x + b)", "x: f32[4096, 8192], b: f32[8192]"


def test_a_size_that_is_set_takes_those_tied_to_it_along() -> None:
    opened = inspection.open_problem(problems.from_expression(*RELU_BIAS))
    assert opened.problem.tie == (("x_1", "b_0"),)
    source = problems.from_expression(*RELU_BIAS).source
    made = inspection.open_problem(problems.load(source, settings=(("b_0", 4096),)))
    full = next(case for case in made.facts.cases if case.name == "full")
    assert [spec.shape for spec in full.inputs] == [(4096, 4096), (4096,)]
    assert inspection.open_problem(made.problem) == made
    with pytest.raises(ProblemError, match="are equal; set one of them"):
        inspection.open_problem(problems.load(source, settings=(("b_0", 4096), ("x_1", 64))))


def test_a_size_that_is_kept_stays_and_one_that_varies_is_tied_to_none() -> None:
    kept = inspection.open_problem(problems.from_expression(*RELU_BIAS, keep=("b_0",))).facts
    size = next(size for size in kept.sizes if size.name == "x_1")
    assert not size.varied and size.why == "it is kept" and size.tied == ("b_0",)
    assert {case.inputs[0].shape[1] for case in kept.cases} == {8192}
    alone = inspection.open_problem(problems.from_expression("x.sum() + b.sum()", RELU_BIAS[1], tie=(("x_1", "b_0"),)))
    assert alone.facts.size_values("shrunk")["x_1"] < 8192 and alone.problem.tie == (("x_1", "b_0"),)


def test_a_precision_that_casts_says_what() -> None:
    made = problems.load(str(OWN / "mixed_norm.py"), precision="fp16")
    opened = inspection.open_problem(made)
    assert "--precision fp16 casts x from bfloat16, weight from float32 to float16" in opened.facts.notes
    assert {spec.dtype for case in opened.facts.cases for spec in case.inputs} == {"float16"}


def test_an_expression_in_16_bits_counts_16_bits() -> None:
    opened = inspection.open_problem(problems.from_expression("torch.softmax(x, 1)", "x: f16[64,512,1024]"))
    work = next(work for work in opened.facts.work if work.case == "full")
    assert (opened.problem.precision, work.least_bytes) == ("fp16", 134217728)


def test_modules_beside_a_problem_come_with_it() -> None:
    made = problems.load(str(OWN / "uses_helper.py"))
    assert [name for name, _ in made.modules] == ["activations"] and "squared_relu" in made.modules[0][1]
    other = dataclasses.replace(made, modules=(("activations", "def squared_relu(x):\n    return x + 1\n"),))
    values = [loading.load_module(one).Model()(torch.tensor(-3.0)).item() for one in (made, other, made)]
    assert values == [0.0, -2.0, 0.0]
