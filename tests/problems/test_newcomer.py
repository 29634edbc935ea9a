"""Twenty problems by someone new to the package, as they stand: what they are, and right kernels for them."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from expected import Expected, check_opened, check_planned

from workbench import Session, problems
from workbench.problems import inspection
from workbench.records import Opened

NEWCOMER = Path(__file__).parent / "newcomer"
UNWRITTEN = ("masked_cumsum",)  # a running sum of int64
QUICK = ("qkv_split",)


B16, F16, F32, I64 = "bfloat16", "float16", "float32", "int64"
EXPECTED = {
    "add_layernorm": Expected(
        sizes="x_0=16 x_1=257 x_2=1280",
        ties=(
            "x_2=residual_2=ln_n0",
            "x_1=residual_1",
            "x_0=residual_0",
        ),
        inputs=(
            F32,
            F32,
        ),
        outputs=(
            F32,
            F32,
        ),
    ),
    "batchnorm_train": Expected(
        sizes="x_0=32 x_1=96 x_2=501",
        ties=("x_1=bn_n0",),
    ),
    "contrastive": Expected(
        sizes="image_features_0=1024 image_features_1=512 text_features_0=1536",
        ties=("image_features_1=text_features_1",),
        inputs=(
            F32,
            F32,
        ),
        outputs=(
            F32,
            F32,
        ),
    ),
    "cross_entropy": Expected(
        sizes="logits_0=2 logits_1=513 logits_2=32000",
        precision="bf16",
        ties=("logits_2=labels_n0", "logits_1=labels_1", "logits_0=labels_0"),
        inputs=(
            B16,
            I64,
        ),
    ),
    "depthwise": Expected(
        sizes="x_0=16 x_1=144 x_2=56 x_3=56 pw_n1=32",
        ties=("x_1=dw_n0=dw_n1=dw_n4=bn_n0=pw_n0",),
    ),
    "dict_outputs": Expected(
        sizes="hidden_states_0=32 hidden_states_1=128 hidden_states_2=768 num_labels=9",
        ties=("hidden_states_2=hidden", "hidden_states_1=attention_mask_1", "hidden_states_0=attention_mask_0"),
        inputs=(
            F32,
            I64,
        ),
        outputs=(
            F32,
            F32,
        ),
    ),
    "ema_codebook": Expected(
        sizes="x_0=5000 x_1=200",
        ties=("x_1=dim",),
    ),
    "ffn_residual": Expected(
        sizes="x_0=4 x_1=384 x_2=768 w_1=3072",
        precision="bf16",
        ties=("w_1=b_0=r_2", "x_2=w_0", "x_1=r_1", "x_0=r_0"),
        inputs=(
            B16,
            B16,
            B16,
            B16,
        ),
        outputs=(B16,),
    ),
    "geglu": Expected(
        sizes="hidden_0=2 hidden_1=4096 hidden_2=320 ff_n1=1280",
        precision="fp16",
        inputs=(F16,),
        outputs=(F16,),
        ties=("hidden_2=ff_n0",),
    ),
    "gqa": Expected(
        sizes="q_1=32 q_2=1024 q_3=128 k_1=8 k_2=1024",
        precision="bf16",
        ties=("k_2=v_2", "q_1=n_heads", "k_1=v_1=n_kv", "q_3=k_3=v_3"),
        inputs=(
            B16,
            B16,
            B16,
        ),
        outputs=(B16,),
    ),
    "helper_package": Expected(
        sizes="x_0=1000 x_1=640 up_n1=1600",
        ties=("x_1=up_n0",),
    ),
    "int8_linear": Expected(
        sizes="x_0=3 x_1=333 x_2=2048 lin_n1=1536",
        precision="bf16",
        inputs=(B16,),
        outputs=(B16,),
        ties=("x_2=lin_n0",),
    ),
    "masked_cumsum": Expected(
        sizes="attention_mask_0=128 attention_mask_1=3000",
        ties=("attention_mask_1=rewards_1", "attention_mask_0=rewards_0"),
        inputs=(
            "int32",
            F32,
        ),
        outputs=(
            I64,
            F32,
        ),
    ),
    "masked_softmax": Expected(
        sizes="scores_0=8 scores_1=12 scores_2=197 scores_3=197",
        precision="bf16",
        ties=("scores_3=key_padding_mask_1", "scores_0=key_padding_mask_0"),
        inputs=(
            B16,
            "bool",
        ),
        outputs=(B16,),
    ),
    "mlp": Expected(
        sizes="in_dim=60 hidden=256 x_0=16384",
        ties=("in_dim=x_1",),
    ),
    "odd": Expected(
        sizes="x_1=7 x_2=8191",
        ties=("x_2=y_2", "x_1=y_1"),
        inputs=(
            F32,
            F32,
        ),
        outputs=(
            F32,
            F32,
        ),
    ),
    "qkv_split": Expected(
        sizes="x_0=8 x_1=196 x_2=384",
        ties=("x_2=dim",),
        outputs=(
            F32,
            F32,
            F32,
        ),
    ),
    "rmsnorm": Expected(
        sizes="dim=2304 x_0=2 x_1=4096",
        precision="mixed",
        ties=("dim=x_2",),
        inputs=(B16,),
        outputs=(B16,),
    ),
    "rope": Expected(
        sizes="q_0=2 q_1=16 q_2=1024 q_3=64 k_0=2 k_1=4 max_len=2048",
        precision="mixed",
        ties=("q_2=k_2", "q_3=k_3=head_dim"),
        inputs=(
            F16,
            F16,
        ),
        outputs=(
            F16,
            F16,
        ),
    ),
    "router_top_k": Expected(
        sizes="x_0=4096 x_1=1024 n_experts=64",
        ties=("x_1=hidden",),
        outputs=(
            F32,
            I64,
        ),
    ),
}


@functools.cache
def load(name: str) -> Opened:
    return inspection.open_problem(problems.load(str(NEWCOMER / f"{name}.py")))


def test_every_file_is_expected() -> None:
    assert {path.stem for path in NEWCOMER.glob("*.py")} == {*EXPECTED}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", EXPECTED)
def test_it_opens_as_its_author_meant_it(name: str) -> None:
    check_opened(load(name), EXPECTED[name])


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in UNWRITTEN])
def test_the_planner_has_a_program_for_it(name: str) -> None:
    check_planned(load(name))


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in EXPECTED
        if name not in UNWRITTEN
    ],
)
def test_the_first_kernel_is_right_at_every_case(name: str, tmp_path: Path) -> None:
    with Session.create(str(NEWCOMER / f"{name}.py"), root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        verdict = version.trials[-1].verdict
        assert verdict.correct, verdict
