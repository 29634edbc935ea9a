"""What the planner recognises around a product: pointwise chains, tensors, reductions, softmax.

Other arguments are computed correctly or stay unrecognised.
"""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import torch
from running import imported

from workbench import problems
from workbench.codegen import compile_program
from workbench.emulator import emulated
from workbench.executors.inspector import WorkerInspector
from workbench.language import Call, Program, Stage, format_program
from workbench.proposers.binding import binding_of
from workbench.proposers.ladders import Context, ladder
from workbench.proposers.ladders.gemm_size import Size, size_of
from workbench.proposers.recognition import Computation, Unrecognised, recognise, renaming
from workbench.records import Ask, Facts, Problem

SOURCE = """import torch
import torch.nn as nn
import torch.nn.functional as F
rows = 48
features_in = 24
features_out = 40
class Model(nn.Module):
    def __init__(self, rows, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        self.plain = nn.Linear(features_in, features_out, bias=False)
        self.c = nn.Parameter(torch.randn(features_out))
        self.column = nn.Parameter(torch.randn(rows, 1))
        self.s = nn.Parameter(torch.randn(()))
    def forward(self, x, y):
        return {body}
def get_inputs():
    return [torch.randn(rows, features_in), torch.randn(rows, features_out)]
def get_init_inputs():
    return [rows, features_in, features_out]
"""


def problem(body: str) -> Problem:
    return problems.load(SOURCE.format(body=body))


@cache
def facts(body: str) -> Facts:
    return WorkerInspector().inspect(problem(body))


def text(found: Computation, settings: tuple[Call, ...] = ()) -> str:
    if found.pieces:
        return format_program(
            Program(stages=tuple(stage for piece in found.pieces for stage in renaming.list_stages(piece.named)))
        )
    return format_program(
        Program(
            stages=(
                *found.before,
                Stage(operation=found.operation, settings=settings, epilogues=found.epilogues, result=found.result),
                *found.after,
            )
        )
    )


def check(body: str, found: Computation) -> None:
    """Compare the candidate on the emulator with the module itself."""
    asked = Ask(problem=problem(body), facts=facts(body))
    module, path = imported(compile_program(text(found), binding_of(asked.problem, asked.facts, found)))
    names: dict[str, object] = {}
    exec(problem(body).source, names)
    model, ours = names["Model"](48, 24, 40), module.ModelNew(48, 24, 40)  # type: ignore[operator]
    ours.load_state_dict(model.state_dict())
    inputs = names["get_inputs"]()  # type: ignore[operator]
    with torch.no_grad(), emulated(source_file=str(path)):
        torch.testing.assert_close(ours(*inputs), model(*inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "epilogues"),
    [
        ("torch.relu(self.plain(x) + self.c)", ">> bias() >> relu()"),
        ("F.gelu(self.linear(x)) + y", ">> bias() >> gelu() >> residual()"),
        ("y * (2.0 + self.linear(x))", ">> bias() >> add(2.0) >> mul(t1)"),
        (
            "F.hardtanh(torch.tanh(F.silu(self.linear(x)) / 2.0), -0.5, 0.25)",
            ">> bias() >> silu() >> scale(0.5) >> tanh() >> clamp(-0.5, 0.25)",
        ),
        ("torch.clamp(self.linear(x), min=0.1) - self.column", ">> bias() >> max(0.1) >> sub(t1, along=m)"),
        ("torch.min(self.linear(x), self.s)", ">> bias() >> min(t1)"),
        ("(self.linear(x) + self.c) - 1.5", ">> bias(bias0) >> bias() >> sub(1.5)"),
        ("F.softsign(F.logsigmoid(self.linear(x)))", ">> bias() >> logsigmoid() >> softsign()"),
    ],
)
def test_chains_are_fused(body: str, epilogues: str) -> None:
    found = recognise(facts(body))
    assert text(found).endswith(epilogues)
    check(body, found)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "fused", "stages"),
    [
        (
            "torch.sum(self.linear(x) / 2, dim=1, keepdim=True) * 1.5",
            ">> scale(0.5) >> rowsum(keepdim=1) >> scale(1.5)",
            "|> elementwise(mul(g, 1.5))",
        ),
        (
            "torch.max(self.linear(x) + y, dim=-1).values",
            ">> residual() >> rowmax()",
            "|> reduce(h, op=max, axis=last)",
        ),
        ("torch.relu(self.linear(x)).mean(1)", ">> relu() >> rowmean()", "|> reduce(h, op=mean, axis=last)"),
        ("self.linear(x).amin(0)", ">> colmin()", ""),
    ],
)
def test_reductions_are_fused_or_a_stage(body: str, fused: str, stages: str) -> None:
    found = recognise(facts(body))
    assert text(found).endswith(fused)
    if stages:
        assert found.unfused is not None and stages.split(" .")[0] in text(found.unfused)
        check(body, found.unfused)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "program"),
    [
        ("F.leaky_relu(torch.logsumexp(self.linear(x), dim=1, keepdim=True), 0.02)", "|> g = rowwise("),
        ("F.relu6(F.mish(F.leaky_relu(self.linear(x), 0.02)))", ">> leaky_relu(0.02) >> mish() >> clamp(0.0, 6.0)"),
    ],
)
def test_functions_with_numbers_and_logsumexp(body: str, program: str) -> None:
    found = recognise(facts(body))
    assert program in text(found)
    check(body, found)


def test_softmax_of_a_product_is_a_stage() -> None:
    body = "torch.softmax(F.gelu(self.linear(x)), dim=1)"
    found = recognise(facts(body))
    assert "h = gemm(a, b) >> bias() >> gelu() |> softmax(h)" in text(found)
    check(body, found)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "body",
    [
        "torch.addmm(self.c, x, self.plain.weight.t(), beta=0.5)",
        "(self.linear(x) + y).sum(1) + self.column[:, 0]",
        "torch.sum(self.linear(x), 1, dtype=torch.float64)",
        "torch.div(self.linear(x), 2.0, rounding_mode='floor')",
        "torch.linalg.inv(self.linear(x)[:24, :24])",
    ],
)
def test_other_arguments_are_unrecognised(body: str) -> None:
    with pytest.raises(Unrecognised):
        recognise(facts(body))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "program"),
    [
        ("self.linear(x).sum()", "|> reduce(h1, op=sum, axis=all)"),
        ("torch.softmax(self.linear(x), dim=0)", "|> rowwise("),
        (
            "torch.relu(self.linear(x)) + self.linear(x)",
            "h1 = gemm(x, b) .layout(b=column) >> bias() >> relu() |> gemm(x, b) .layout(b=column) >> bias() "
            ">> residual(h1)",
        ),
        ("F.relu6(F.mish(self.linear(x))) - F.elu(self.c)", "|> elementwise(sub(h1, elu(spread(c), 1.0)))"),
        ("self.plain(torch.relu(x + 1)) * torch.tanh(y)", ">> map(mul(value(), tanh(y)))"),
    ],
)
def test_what_one_kernel_cannot_do_is_a_pipeline(body: str, program: str) -> None:
    found = recognise(facts(body))
    assert found.kind == "pipeline" and program in text(found)
    check(body, found)


def test_size_of_a_product_under_a_reduction_is_the_products() -> None:
    assert size_of(facts("torch.sum(self.linear(x), 1)")) == Size(m=48, n=40, k=24)


def test_fused_rungs_come_first_on_hopper_and_stages_elsewhere() -> None:
    body = "torch.sum(self.linear(x), 1)"
    found = recognise(facts(body))
    context = Context(found=found, precision="bf16", arch="sm_90a", facts=facts(body))
    rungs = ladder(context)
    assert (
        not rungs[0].unfused
        and rungs[-1].unfused
        and all(any(call.name == "schedule" for call in rung.settings) for rung in rungs if not rung.unfused)
    )
    assert all(rung.unfused for rung in ladder(dataclasses.replace(context, arch="sm_80")))


GROUPED = """import torch
import torch.nn as nn
rows, groups, k, n = 64, 4, 32, 48
class Model(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x, w, ends):
        return torch.relu(torch._grouped_mm(x, w.transpose(-2, -1), ends))
def get_inputs():
    ends = torch.tensor([rows // 4, rows // 4, rows // 2, rows], dtype=torch.int32)
    return [torch.randn(rows, k), torch.randn(groups, n, k), ends]
def get_init_inputs():
    return []
"""


def test_grouped_products_are_recognised_where_hopper_has_a_kernel() -> None:
    given = dataclasses.replace(problems.load(GROUPED), precision="bf16")
    seen = WorkerInspector().inspect(given)
    found = recognise(seen)
    assert text(found) == "ggemm(a, b, offsets) >> relu()" and dict(found.operands) == {
        "a": "x",
        "b": "w.transpose(-2, -1)",
        "offsets": "ends",
    }
    context = Context(found=found, precision="bf16", arch="sm_90a", facts=seen)
    rungs = ladder(context)
    assert rungs and all(
        compile_program(
            text(found, (Call(name="arch", positional=("sm_90a",)), *rung.settings)), binding_of(given, seen, found)
        )
        for rung in rungs
    )
    assert not ladder(dataclasses.replace(context, arch="sm_80"))
