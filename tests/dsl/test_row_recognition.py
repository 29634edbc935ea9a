"""Modules of elementwise calls, reductions, norms and losses: the planner's program, and its result against torch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from running import imported

from workbench.codegen import compile_program
from workbench.emulator import emulated
from workbench.language import check, format_program, parse
from workbench.problems import loading
from workbench.problems.inspection import inspect
from workbench.problems.results import tensors_of
from workbench.proposers.binding import binding_of
from workbench.proposers.ladders import Context, ladder
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.proposers.rung_programs import write_program
from workbench.records import Problem

ONE, TWO, THREE, IMAGE = (
    ("torch.randn(n, d)",),
    ("torch.randn(n, d)",) * 2,
    ("torch.randn(n, d)",) * 3,
    ("torch.randn(2, n, 6, d)",),
)
SHARES = ("torch.rand(n, d).softmax(-1)",) * 2


PROPOSED = (
    (
        "0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))",
        ONE,
        "pass",
        "elementwise(mul(mul(x, 0.5), add(tanh(",
    ),
    ("self.m(x)", IMAGE, "self.m = nn.LayerNorm((n, 6, d))", "rowwise("),
    ("self.m(x)", IMAGE, "self.m = nn.BatchNorm2d(n)", "batchnorm("),
    ("self.m(x)", ONE, "self.m = nn.BatchNorm1d(d)", "batchnorm(x, eps=1e-05, running=1, momentum=0.1, axis=first)"),
    ("self.m(x)", IMAGE, "self.m = nn.InstanceNorm2d(n, affine=True)", "instancenorm("),
    (
        "x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)",
        IMAGE,
        "pass",
        "rowwise(div(x, sqrt(add(mean(mul(x, x)), 1e-05))), axis=1)",
    ),
    ("F.triplet_margin_loss(x, y, z)", THREE, "pass", "h1 = rowwise(max("),
    (
        "F.kl_div(torch.log(x), y, reduction='batchmean')",
        SHARES,
        "pass",
        "h1 = reduce(sub(xlogy(y, y), mul(y, log(x))), op=sum, axis=last)",
    ),
    ("torch.mean(1 - F.cosine_similarity(x, y, dim=1))", TWO, "pass", "h1 = rowwise("),
)
SLOW = (
    (
        "torch.clamp(torch.selu(x), -0.5, 0.7) + self.b",
        ONE,
        "self.b = nn.Parameter(torch.randn(d))",
        "elementwise(add(min(max(",
    ),
    (
        "torch.where(x > 0, x, F.logsigmoid(y) * 0.1)",
        TWO,
        "pass",
        "elementwise(where(gt(x, 0), x, mul(logsigmoid(y), 0.1)))",
    ),
    ("self.m(x)", IMAGE, "self.m = nn.GroupNorm(4, n)", "groupnorm("),
    ("F.relu(F.layer_norm(x + y, (d,))) * 2", TWO, "pass", "rowwise(mul(relu("),
    ("torch.min(x, dim=2, keepdim=True)[0]", IMAGE, "pass", "reduce(x, op=min, axis=2, keepdim=1)"),
    ("F.huber_loss(x, y, delta=0.7)", TWO, "pass", "reduce(where("),
    (
        "(x - x.mean(0, keepdim=True)) / (x.norm(dim=1, keepdim=True) + 1)",
        ONE,
        "pass",
        "h1 = reduce(x, op=mean, axis=0, keepdim=1)",
    ),
    ("torch.sum(x.softmax(-1) * y, dim=0)", TWO, "pass", "h1 = rowwise("),
    ("x / torch.norm(x, p='fro')", IMAGE, "pass", "rowwise(div(x, sqrt(sum(mul(x, x)))), axis=all)"),
)


def problem(
    forward: str, inputs: tuple[str, ...] = ONE, init: str = "pass", sizes: tuple[int, int] = (12, 20)
) -> Problem:
    names = ", ".join(("x", "y", "z")[: len(inputs)])
    source = (
        "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\nn = "
        f"{sizes[0]}\nd = {sizes[1]}\n\n\nclass Model(nn.Module):\n    def __init__(self, n, d):\n        "
        f"super().__init__()\n        {init}\n\n"
        f"    def forward(self, {names}):\n        return {forward}\n\n\ndef get_inputs():\n    return "
        f"[{', '.join(inputs)}]\n\n\ndef get_init_inputs():\n    return [n, d]\n"
    )
    return Problem(name="case", source=source)


def proposed(given: Problem, arch: str = "sm_90a", place: int = 0) -> tuple[str, Any]:
    """Return (the planner's program, the problem's facts)."""
    facts = inspect(given)
    found = recognise(facts)
    rungs = ladder(Context(found=found, precision="fp32", arch=arch, device="H200", facts=facts))
    texts = [write_program(found, rung, arch) for rung in rungs]
    assert all(not check(parse(text)) for text in texts) and all(format_program(parse(text)) == text for text in texts)
    return texts[place], facts


def computes(given: Problem, arch: str = "sm_90a", place: int = 0) -> str:
    """Compare the program's result and updated buffers with torch at all small sizes; return the program."""
    text, facts = proposed(given, arch, place)
    module, path = imported(compile_program(text, binding_of(given, facts, recognise(facts))))
    for case in facts.cases[:-1]:
        if case.name == "empty":  # which a kernel may refuse
            continue
        torch.manual_seed(0)
        source = loading.load_module(given, case.settings)
        reference = loading.build_model(source, "Model", given)
        inputs = loading.make_inputs(source, given, 1)
        model = module.ModelNew(*source.get_init_inputs())
        model.load_state_dict(reference.state_dict())
        exact = copy.deepcopy(reference).double()
        with torch.no_grad():
            torch.manual_seed(2)
            wanted = exact(*[item.double() if item.is_floating_point() else item for item in inputs])
            torch.manual_seed(2)
            with emulated(source_file=str(path), arch=arch, device="H200"):
                got = model(*inputs)
        assert type(got) is type(wanted) or not isinstance(wanted, torch.Tensor | dict)
        for mine, right in zip(tensors_of(got), tensors_of(wanted), strict=True):
            assert mine.shape == right.shape
            torch.testing.assert_close(mine.to(right.dtype), right, rtol=2e-5, atol=2e-5)
        for mine, own in zip(model.state_dict().values(), exact.state_dict().values(), strict=True):
            torch.testing.assert_close(mine.to(own.dtype), own, rtol=1e-5, atol=1e-6)
    return text


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("forward", "inputs", "init", "starts"),
    [*PROPOSED, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_what_is_proposed_first_on_hopper_computes_the_module(
    forward: str, inputs: tuple[str, ...], init: str, starts: str
) -> None:
    assert computes(problem(forward, inputs, init)).startswith(starts)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("forward", "inputs", "starts"),
    [
        ("x.std((2, 3))", IMAGE, "rowwise(sqrt(var1(x)), axis=last(2))"),
        ("x.var((0, 2, 3), keepdim=True, correction=0)", IMAGE, "reduce(x, op=var, axis=but(1), keepdim=1)"),
        ("x.amax((1, 2))", IMAGE, "reduce(x, op=max, axis=over(1, 2))"),
        ("F.mse_loss(x, y, reduction='sum')", TWO, "reduce(mul(sub(x, y), sub(x, y)), op=sum, axis=all)"),
        ("F.l1_loss(x, y)", TWO, "reduce(abs(sub(x, y)), op=mean, axis=all)"),
        ("F.log_softmax(x, 0)", ONE, "rowwise("),
        ("torch.logsumexp(x, 1)", ONE, "rowwise("),
        ("F.leaky_relu(x, 0.2).sum(-1)", ONE, "reduce(leaky_relu(x, 0.2), op=sum, axis=last)"),
        ("torch.norm(x, p=1, dim=1)", ONE, "reduce(abs(x), op=sum, axis=last)"),
        ("x.argmax(0)", ONE, "reduce(x, op=argmax, axis=0)"),
        ("x.max(1)[1]", IMAGE, "reduce(x, op=argmax, axis=1)"),
        ("F.binary_cross_entropy_with_logits(x, y)", TWO, "reduce("),
        ("1 / (2 - x)", ONE, "elementwise("),
        ("torch.add(x, y, alpha=3)", TWO, "elementwise(add(x, mul(y, 3)))"),
        ("F.elu(x, 0.5)", ONE, "elementwise(elu(x, 0.5))"),
        ("F.softplus(x, threshold=5)", ONE, "elementwise(where(gt(x, 5.0), x, softplus(x)))"),
        ("torch.rsub(x, y, alpha=2)", TWO, "elementwise(sub(y, mul(x, 2)))"),
        ("F.logsigmoid(x) * y", TWO, "elementwise(mul(logsigmoid(x), y))"),
        ("torch.minimum(x, torch.tensor(0.5))", ONE, "elementwise(min(x, 0.5))"),
        ("x.sum(1, keepdim=True).logsumexp(1, keepdim=True).amax(1, keepdim=True)", ONE, "reduce(x, op=sum, axis=last"),
        ("(x.mean(-1, keepdim=True) * 2).max(-1, keepdim=True)[0]", ONE, "rowwise(mul(mean(x), 2), axis=last"),
    ],
)
def test_other_arguments_are_read(forward: str, inputs: tuple[str, ...], starts: str) -> None:
    assert proposed(problem(forward, inputs))[0].startswith(starts)
    assert proposed(problem(forward, inputs), "sm_80")[0].startswith(starts)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("x.sum() / n", ONE),
        ("x.sum(0) * d", ONE),
        ("x.median(1)[0]", ONE),
        ("x.sum(-1, dtype=torch.float64)", ONE),
        ("x > 0", ONE),
        ("torch.norm(x, p=3)", ONE),
        ("x.sum((0, 2))", IMAGE),
        ("F.huber_loss(x, y).double()", TWO),
        ("x.clamp(min=float('nan'))", ONE),
        ("F.cross_entropy(x, torch.softmax(y, 1), label_smoothing=0.1)", TWO),
        ("x.view(d, n) * 2", ONE),
        ("torch.std(x, 1, correction=2)", ONE),
    ],
)
def test_what_is_not_understood_is_left(forward: str, inputs: tuple[str, ...]) -> None:
    with pytest.raises(Unrecognised, match="no kernel"):
        recognise(
            inspect(
                problem(
                    forward.replace("n)", "int(x.shape[0]))")
                    if "view" in forward
                    else forward.replace("/ n", "/ x.shape[0]").replace("* d", "* x.shape[1]"),
                    inputs,
                )
            )
        )


def test_the_simplest_comes_first_where_there_is_no_hopper() -> None:
    assert proposed(problem("F.softmax(x, 1)", IMAGE), "sm_80")[0].endswith(".arch(sm_80) .threads(128)")
    assert proposed(problem("x.mean()", IMAGE), "sm_80")[0].endswith(".threads_per_row(1024) .vector(4)")
    assert proposed(problem("x.mean(-1)", IMAGE), "sm_80")[0].endswith(".threads_per_row(1)")
    assert proposed(problem("x.sum()", sizes=(4096, 4096)), "sm_80")[0].endswith(
        ".threads_per_row(256) .vector(4) .unroll(1) .parts(4096)"
    )


@pytest.mark.parametrize(
    ("forward", "sizes", "settings"),
    [
        ("F.softmax(x, 1)", (4096, 393216), "kept() .cluster(8)"),
        ("F.softmax(x, 1)", (32768, 8192), ".threads_per_row(512) .vector(4) .kept()"),
        ("x.sum()", (32768, 32768), ".parts(16384)"),
        ("x.sum(0)", (262144, 1024), ".parts("),
        ("x.sum(1)", (32768, 8192), ".threads_per_row(256) .vector(4) .unroll(4)"),
        ("torch.tanh(x)", (4096, 8192), ".vector(4) .unroll(1)"),
    ],
)
def test_settings_follow_the_full_size(forward: str, sizes: tuple[int, int], settings: str) -> None:
    given = problem(forward)
    facts = inspect(given)
    full = tuple(
        type(case)(
            name=case.name,
            settings=case.settings,
            outputs=case.outputs,
            inputs=tuple(
                type(spec)(name=spec.name, shape=sizes, dtype=spec.dtype, strides=(sizes[1], 1)) for spec in case.inputs
            ),
        )
        for case in facts.cases[-1:]
    )
    found = recognise(facts)
    facts = type(facts)(
        **{name: getattr(facts, name) for name in facts.__slots__ if name != "cases"}, cases=(*facts.cases[:-1], *full)
    )
    assert settings in write_program(
        found, ladder(Context(found=found, precision="fp32", arch="sm_90a", device="H200", facts=facts))[0], "sm_90a"
    )
