"""Problems by someone who had not seen this package: opened as they stand, as their author meant them."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from expected import Expected, check_opened, check_planned

from workbench import problems
from workbench.problems import inspection
from workbench.proposers.binding import binding_of
from workbench.proposers.coverage import find_coverage
from workbench.proposers.planner import list_rungs
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.proposers.recognition.graph import list_torch_names
from workbench.records import Ask, Opened
from workbench.views.text.operations import AxisNames

OUTSIDER = Path(__file__).parent / "outsider"
NO_PROBLEMS = {"_layers"}  # imported by another
UNWRITTEN = ("kv_cache_write",)


B16, F16, I64 = "bfloat16", "float16", "int64"
EXPECTED = {
    "add_norm_both": Expected(
        sizes="x_0=16 x_1=1024 x_2=768",
        precision="bf16",
        ties=(
            "x_1=residual_1",
            "x_2=residual_2=ln_n0",
            "x_0=residual_0",
        ),
        inputs=(B16, B16),
        outputs=(B16, B16),
    ),
    "batch_norm_train": Expected(sizes="x_0=32 x_1=64 x_2=56 x_3=56", ties=("x_1=channels",)),
    "causal_self_attention": Expected(
        sizes="q_0=4 q_1=12 q_2=1024 q_3=64", precision="mixed", kept=("q_3",), inputs=(F16,) * 3, outputs=(F16,)
    ),
    "clip_similarity": Expected(
        sizes="image_0=512 image_1=768 text_0=384", ties=("image_1=text_1",), inputs=("float32",) * 2
    ),
    "dict_results": Expected(sizes="x_0=1024 x_1=4096", outputs=("float32",) * 3),
    "exclusive_reverse_cumsum": Expected(sizes="rewards_0=512 rewards_1=2000"),
    "ffn_tail_bf16": Expected(
        sizes="batch=4 seq=512 d_model=1024 d_ff=4096", precision="bf16", inputs=(B16,) * 4, outputs=(B16,)
    ),
    "fused_qkv_split": Expected(
        sizes="x_0=8 x_1=197 x_2=768", precision="fp16", kept=("x_2",), inputs=(F16,), outputs=(F16,) * 3
    ),
    "int8_weight_linear": Expected(
        sizes="x_1=32 x_2=2048 out_features=4096",
        precision="bf16",
        ties=("x_2=in_features",),
        inputs=(B16,),
        outputs=(B16,),
    ),
    "kv_cache_write": Expected(
        sizes="k_val_0=4 k_val_1=8 k_val_2=16 k_val_3=128 v_val_2=16 max_seq_length=2048 input_pos_1=116",
        precision="bf16",
        ties=("k_val_0=v_val_0=max_batch_size", "k_val_1=v_val_1=n_heads", "k_val_3=v_val_3=head_dim"),
        kept=("input_pos_1", "k_val_2", "v_val_2"),
        inputs=(I64, B16, B16),
        outputs=(B16, B16),
    ),
    "layer_scale": Expected(
        sizes="dim=384 x_0=64 x_1=197",
        ties=("dim=x_2=branch_2", "x_0=branch_0", "x_1=branch_1"),
        inputs=("float32",) * 2,
    ),
    "llama_norm_fp16": Expected(
        sizes="x_0=4 x_1=2048 x_2=4096",
        precision="fp16",
        inputs=(F16,),
        outputs=(F16,),
        ties=("x_2=norm_n0",),
    ),
    "lm_loss": Expected(
        sizes="labels_0=4 labels_1=512 logits_2=32000",
        precision="bf16",
        ties=("labels_0=logits_0", "labels_1=logits_1", "logits_2=labels_n0"),
        kept=("logits_2",),
        inputs=(B16, I64),
    ),
    "masked_temperature_softmax": Expected(
        sizes="keep_0=8 scores_1=12 scores_2=1024 keep_3=1024",
        precision="fp16",
        ties=("keep_0=scores_0", "keep_3=scores_3"),
        inputs=(F16, "bool"),
        outputs=(F16,),
    ),
    "mlp_sequential": Expected(sizes="x_0=128 x_1=784 hidden=512 out_features=10", ties=("x_1=in_features",)),
    "prime_rows_log_softmax": Expected(sizes="x_1=7 x_2=8191"),
    "rope_interleaved": Expected(
        sizes="position_0=2048 inv_freq_1=64 q_0=2 q_2=16 k_0=2 k_2=16",
        ties=(
            "position_0=q_1=k_1",
            "inv_freq_1=q_3=k_3",
        ),
        inputs=("float32",) * 4,
        outputs=("float32",) * 2,
    ),
    "strided_conv_bias_relu": Expected(
        sizes="mel_0=8 mel_1=80 mel_2=3000 conv_n1=384",
        precision="fp16",
        inputs=(F16,),
        outputs=(F16,),
        ties=("mel_1=conv_n0",),
    ),
    "swiglu_mlp_bf16": Expected(
        sizes="x_0=2 x_1=2048 x_2=1024 intermediate_size=2816",
        precision="bf16",
        ties=("x_2=hidden_size",),
        inputs=(B16,),
        outputs=(B16,),
    ),
    "token_and_position": Expected(
        sizes="idx_0=8 idx_1=1024 vocab_size=50257 block_size=1024 n_embd=768",
        ties=("vocab_size=idx_n0",),
        inputs=(I64,),
    ),
}


@functools.cache
def load(name: str) -> Opened:
    return inspection.open_problem(problems.load(str(OUTSIDER / f"{name}.py")))


def test_every_file_is_expected() -> None:
    assert {path.stem for path in OUTSIDER.glob("*.py")} - NO_PROBLEMS == {*EXPECTED}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", EXPECTED)
def test_it_opens_as_its_author_meant_it(name: str) -> None:
    check_opened(load(name), EXPECTED[name])


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in UNWRITTEN])
def test_the_planner_has_a_program_for_it(name: str) -> None:
    check_planned(load(name))


@pytest.mark.slow
def test_heads_that_are_split_by_numbers_are_views() -> None:
    opened = load("fused_qkv_split")
    program = find_coverage(opened.problem, opened.facts, arch="sm_80", device="H200").program
    assert "view(h2, unflatten=0, like=x, axes=(0, 1))" in program
    assert "view(h3, unflatten=(2, 3, 12, 64))" in program


def test_operations_have_the_names_that_the_author_of_a_problem_knows() -> None:
    known = ["view", "transpose", "linear", "view", "permute", "index [i]", "contiguous"]
    assert list_torch_names(load("fused_qkv_split").facts.graph) == known


def test_a_stage_without_legal_settings_is_named_with_what_was_tried() -> None:
    opened = load("mlp_sequential")
    with pytest.raises(Unrecognised) as refused:
        list_rungs(Ask(problem=opened.problem, facts=opened.facts, arch="sm_75", device="H200"))
    assert "stage 1 of 2, gemm (h1), has no legal settings; tried " in str(refused.value)
    assert "arch=sm_75" in str(refused.value) and "%%cutegen edit" in str(refused.value)


def test_complex_numbers_are_named(tmp_path: Path) -> None:
    path = tmp_path / "spectrum.py"
    path.write_text(
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x * x\n\n\n"
        "def get_inputs():\n    return [torch.randn(64, 128, dtype=torch.complex64)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    with pytest.raises(Unrecognised, match="no kernel for mul of complex numbers"):
        recognise(inspection.inspect(problems.load(str(path))))


@pytest.mark.slow
def test_a_long_row_of_logits_does_not_begin_with_one_thread() -> None:
    opened = load("lm_loss")
    _, rungs = list_rungs(Ask(problem=opened.problem, facts=opened.facts, arch="sm_80", device="H200"))
    assert "crossentropy: one warp per row" in rungs[0].title


@pytest.mark.slow
def test_a_batch_norm_before_another_stage_is_reduced_in_parts() -> None:
    opened = load("batch_norm_train")
    assert find_coverage(opened.problem, opened.facts, arch="sm_80", device="H200").program.startswith(
        "h1 = batch_norm_stats"
    )


def open_with_a_sum() -> Opened:
    """Llama's norm with the length of its weight as a sum, which is no number that could become an argument."""
    text = (OUTSIDER / "llama_norm_fp16.py").read_text().replace("LlamaRMSNorm(4096)", "LlamaRMSNorm(sum([2048] * 2))")
    return inspection.open_problem(problems.load(text))


def test_a_size_that_would_only_be_broadcast_is_in_no_case_one() -> None:
    opened = open_with_a_sum()
    assert [size.name for size in opened.facts.sizes if not size.varied] == ["x_2"]
    assert len({spec.shape[-1] for case in opened.facts.cases for spec in case.inputs}) == 1


def test_a_result_without_numbers_is_no_case() -> None:
    """The first 16 labels are ignored, so 2 columns would give the mean over no rows."""
    shrunk = load("lm_loss").facts.cases[0]
    assert shrunk.inputs[1].shape[1] > 16


def test_indices_stay_inside_the_axis_that_they_index() -> None:
    assert all(spec.shape[2] > 115 for case in load("kv_cache_write").facts.cases for spec in case.outputs)


def test_classes_of_the_file_that_init_needs_are_in_the_kernels_file() -> None:
    opened = load("llama_norm_fp16")
    binding = binding_of(opened.problem, opened.facts, recognise(opened.facts))
    assert "class LlamaRMSNorm" in binding.module_names
    assert "class Model" not in binding.module_names
    assert "get_inputs" not in binding.module_names


@pytest.mark.slow
def test_rows_as_many_as_an_input_has_are_a_slice_in_forward() -> None:
    operands = dict(recognise(load("token_and_position").facts).operands)
    assert operands["wpe_weight_0_idx_1"] == "self.wpe.weight[:idx.shape[1]].contiguous()"
    operands = dict(recognise(load("causal_self_attention").facts).operands)
    assert "self.bias[:, :, :" in next(text for name, text in operands.items() if name.startswith("bias"))


def test_parameters_have_numbers_where_no_size_decides_them() -> None:
    for facts, name in ((load("llama_norm_fp16").facts, "x_2"), (open_with_a_sum().facts, "4096")):
        assert AxisNames(facts).of_state(facts.parameters[0], "param") == (name,)
