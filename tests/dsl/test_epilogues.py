"""Epilogue chains of products, on the emulator: tensors of every extent, reductions, casts; rejections.

Every way of computing a tile is covered. Operands are small integers, so results are exact.
"""

from __future__ import annotations

import pytest
import running
import torch

from workbench.emulator.hook import Emulation
from workbench.language import check, configurations, format_program, parse
from workbench.language.ir import Program
from workbench.language.operations.epilogue import chain_of

HOPPER = "gemm(a, b) .arch(sm_90a) "
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "": torch.float32}


def whole(rows: int, columns: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return a tensor of small integers."""
    return torch.randint(-3, 4, (rows, columns), generator=torch.Generator().manual_seed(seed)).to(dtype)


def launched(text: str, tensors: dict[str, torch.Tensor], resident: int = 3) -> tuple[torch.Tensor, Emulation]:
    """Return the program's result on a device that runs `resident` clusters at once."""
    return running.launched(text, tuple(tensors.values()), tuple(tensors), resident=resident)


def wanted(text: str, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """Compute the reference in float64 with torch, call by call."""
    x = tensors["a"].double() @ tensors["b"].double()
    stage = parse(text).stages[0]
    combine = {
        "bias": torch.add,
        "residual": torch.add,
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "max": torch.maximum,
        "min": torch.minimum,
    }
    for call in stage.epilogues:
        given = call.positional[0] if call.positional else call.name
        along = dict(call.named).get("along", "n" if call.name == "bias" else "both")
        if call.name in combine:
            other = (
                tensors[str(given)].double()
                if isinstance(given, str)
                else torch.tensor(float(str(given)), dtype=torch.float64)
            )
            x = combine[call.name](x, other[:, None] if along == "m" else other)
        elif call.name == "scale":
            x = x * float(str(given))
        elif call.name == "clamp":
            x = x.clamp(*(float(str(value)) for value in call.positional))
        elif call.name == "relu":
            x = x.relu()
        elif call.name != "cast":
            reduce = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}[call.name[3:]]
            x = reduce(x, -1 if call.name.startswith("row") else -2, keepdim=chain_of(stage).keepdim)
    return x


def tensors_of(text: str, kind: str, shape: tuple[int, int, int]) -> dict[str, torch.Tensor]:
    """Return a, b and the tensors that the epilogues read, by their names in the program."""
    m, n, k = shape
    tensors = {"a": whole(m, k, DTYPES[kind], 1), "b": whole(n, k, DTYPES[kind], 2).t()}
    for seed, call in enumerate(parse(text).stages[0].epilogues, 3):
        name = call.positional[0] if call.positional else call.name
        if call.name in ("bias", "residual") or (
            isinstance(name, str) and call.name in ("add", "sub", "mul", "max", "min")
        ):
            along = dict(call.named).get("along", "n" if call.name == "bias" else "both")
            tensors[str(name)] = (
                whole(m, n, DTYPES[kind], seed)
                if along == "both"
                else whole(1, n if along == "n" else m, DTYPES[kind], seed)[0]
            )
    return tensors


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "settings", "epilogues", "shape"),
    [
        (
            "f16",
            ".tile(128, 128, 64) .schedule(pingpong) .cluster(2, 1)",
            ">> bias() >> scale(0.5) >> residual() >> clamp(-6, 6) >> mul(t)",
            (200, 136, 72),
        ),
        (
            "f16",
            ".tile(128, 64, 64) .schedule(cooperative)",
            ">> residual(r) >> bias(c, along=m) >> sub(t, along=n) >> max(0.5)",
            (136, 69, 72),
        ),
        (
            "tf32",
            ".tile(64, 64, 32) .schedule(cooperative) .launch(early)",
            ">> residual() >> cast(bf16)",
            (72, 72, 72),
        ),
        (
            "bf16",
            ".tile(64, 64, 64) .schedule(cooperative) .swap()",
            ">> bias() >> relu() >> residual()",
            (16, 136, 136),
        ),
        (
            "bf16",
            ".tile(128, 16, 64) .schedule(cooperative) .swap() .splitk(4, cluster) .launch(early)",
            ">> bias() >> residual() >> mul(s, along=m) >> relu()",
            (16, 264, 300),
        ),
        ("f16", ".tile(128, 64, 64) .schedule(cooperative) .splitk(2, cluster)", ">> bias()", (130, 100, 328)),
        ("f16", ".tile(64, 64, 64) .schedule(cooperative) .splitk(2)", ">> bias() >> residual()", (40, 136, 172)),
    ],
)
def test_hopper_chains_are_exact(kind: str, settings: str, epilogues: str, shape: tuple[int, int, int]) -> None:
    text = f"{HOPPER} .mma({kind}) {settings} {epilogues}"
    tensors = tensors_of(text, kind, shape)
    got, emulation = launched(text, tensors)
    assert torch.equal(got, wanted(text, tensors).to(got.dtype)) and got.dtype == (
        torch.bfloat16 if "cast" in text else DTYPES[kind]
    )
    assert not [finding for finding in emulation.findings if finding.severity == "error"]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "settings", "epilogues", "shape"),
    [
        ("bf16", ".tile(64, 64, 64) .schedule(cooperative)", ">> bias() >> rowsum() >> cast(f32)", (72, 136, 72)),
        (
            "bf16",
            ".tile(128, 128, 64) .schedule(pingpong) .cluster(2, 1)",
            ">> residual() >> rowmax(keepdim=1)",
            (264, 136, 72),
        ),
        (
            "f16",
            ".tile(128, 64, 64) .schedule(cooperative)",
            ">> scale(0.5) >> colsum() >> scale(2.0) >> cast(f32)",
            (200, 131, 72),
        ),
        (
            "f16",
            ".tile(256, 64, 64) .schedule(cooperative) .cluster(1, 2)",
            ">> residual() >> colmin(keepdim=1)",
            (270, 136, 72),
        ),
        (
            "tf32",
            ".tile(64, 64, 32) .schedule(cooperative) .swap()",
            ">> bias() >> rowmean() >> max(0.0)",
            (40, 136, 72),
        ),
    ],
)
def test_reductions_close_a_chain_and_the_product_is_not_stored(
    kind: str, settings: str, epilogues: str, shape: tuple[int, int, int]
) -> None:
    text = f"{HOPPER} .mma({kind}) {settings} {epilogues}"
    tensors = tensors_of(text, kind, shape)
    got, emulation = launched(text, tensors)
    want = wanted(text, tensors)
    assert got.shape == want.shape
    torch.testing.assert_close(got.double(), want, rtol=1e-6 if got.dtype == torch.float32 else 1e-2, atol=1e-6)
    product = next(launch for launch in emulation.launches if "gemm_kernel" in launch.kernel)
    assert (
        "finish_kernel" in emulation.launches[-1].kernel
        and product.total.global_write_bytes < shape[0] * shape[1] * DTYPES[kind].itemsize
    )
    if "colsum" in epilogues:  # several rows of tiles: how many CTAs take them does not matter
        again, _ = launched(text, tensors, resident=1)
        assert torch.equal(got, again)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "how",
    [
        "",
        ".tile(32, 32, 16) .thread_tile(2, 2)",
        ".tile(64, 64, 32) .mma(tf32)",
        ".tile(64, 64, 32) .mma(tf32) .stages(2)",
    ],
)
def test_chains_of_other_kernels(how: str) -> None:
    text = (
        f"gemm(a, b) {how} >> bias(c, along=m) >> residual(r) >> mul(t) >> min(u, along=n) >> clamp(-8, 8) >> cast(f16)"
    )
    tensors = tensors_of(text, "", (37, 51, 24))
    tensors["r"] = whole(51, 37, torch.float32, 9).t()
    got, _ = launched(text, tensors)
    assert torch.equal(got, wanted(text, tensors).half())


@pytest.mark.parametrize(
    ("text", "field", "legal"),
    [
        ("gemm(a, b) >> bias(c, along=k)", "bias", "along=m"),
        ("gemm(a, b) >> residual(r, along=m)", "residual", "bias"),
        ("gemm(a, b) >> clamp(2, 1)", "clamp", "smaller one first"),
        ("gemm(a, b) >> cast(f16) >> relu()", "cast", "last"),
        ("gemm(a, b) >> cast(int8)", "cast", "f16, bf16, f32"),
        ("gemm(a, b) >> scale(x)", "scale", "one number"),
        ("gemm(a, b) >> mul()", "mul", "tensor's name"),
        ("gemm(a, b) >> relu(2)", "relu", "no argument"),
        ("gemm(a, b) >> rowsum()", "epilogue", "reduce(h, ...)"),
        (HOPPER + ".mma(f16) .schedule(cooperative) >> rowsum() >> residual()", "residual", "elementwise"),
        (HOPPER + ".mma(f16) .schedule(cooperative) >> rowsum() >> colmax()", "colmax", "only one"),
        (HOPPER + ".mma(f16) .schedule(cooperative) .splitk(2) >> rowsum()", "splitk", "leave it out"),
        (HOPPER + ".mma(f16) .schedule(cooperative) .swap() .splitk(2)", "splitk", "cluster"),
        (HOPPER + ".mma(f16) .schedule(cooperative) .splitk(3, cluster)", "splitk", "(2, cluster)"),
        (HOPPER + ".mma(f16) .schedule(cooperative) .cluster(2, 1) .splitk(2, cluster)", "splitk", "leave cluster out"),
        ("gemm(a, b) .swap()", "swap", "schedule"),
        (HOPPER + ".mma(f16) .schedule(cooperative) .launch(late)", "launch", "early"),
    ],
)
def test_rejections_name_field_and_legal_values(text: str, field: str, legal: str) -> None:
    found = check(parse(text))
    assert [item.field for item in found] == [field] and legal in found[0].legal and found[0].reason


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_configurations_of_a_chain_compute_it() -> None:
    """Samples thirty legal configurations of a product with a chain."""
    text = HOPPER + ".mma(f16) .schedule(cooperative) .launch(early) >> bias() >> residual() >> relu()"
    found = list(configurations(parse(text).stages[0], only=("tile", "splitk", "swap")))
    assert len(found) > 300
    for stage in found[:: len(found) // 30]:
        written = format_program(Program(stages=(stage,)))
        assert parse(written).stages[0] == stage
        tensors = tensors_of(written, "f16", (72, 136, 200))
        got, _ = launched(written, tensors)
        assert torch.equal(got, wanted(written, tensors).half()), written
