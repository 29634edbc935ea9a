"""Shrinking, odd sizes, counting and degeneracy on awkward problems in KernelBench's form."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from workbench import problems
from workbench.errors import ProblemError
from workbench.executors.emulator import EmulatorExecutor
from workbench.problems import cases, inspection, variants
from workbench.problems.counting import FlopCount
from workbench.problems.reference.probe import can_expect
from workbench.proposers.recognition import recognise
from workbench.records import Facts, Problem, Settings


def problem(
    sizes: str,
    forward: str,
    inputs: str,
    *,
    init: str = "pass",
    arguments: str = "",
    given: str = "",
    precision: str = "fp32",
) -> Problem:
    source = f"""import torch
import torch.nn as nn
{sizes}
class Model(nn.Module):
    def __init__(self{", " + arguments if arguments else ""}):
        super().__init__()
        {init}
    def forward(self, x):
        return {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return [{given}]
"""
    return problems.load(source, precision=precision)  # type: ignore[arg-type]


def settings(facts: Facts, name: str) -> dict[str, object]:
    return dict(next(case.settings for case in facts.cases if case.name == name))


def test_sizes_written_as_products_are_shrunk() -> None:
    facts = inspection.inspect(problem("M = 1024 * 8\nN = 2048 * 2", "torch.relu(x)", "torch.rand(M, N)"))
    assert settings(facts, "shrunk") == {"M": 256, "N": 256}
    assert next(case for case in facts.cases if case.name == "full").inputs[0].shape == (8192, 4096)


def test_sizes_in_a_tuple_are_shrunk() -> None:
    facts = inspection.inspect(
        problem("batch = 32768\nshape = (4096,)", "torch.cumsum(x, 1)", "torch.rand(batch, *shape)")
    )
    assert settings(facts, "shrunk") == {"batch": 256, "shape[0]": 256}


def test_groups_are_left_alone_and_channels_are_an_odd_multiple_of_them() -> None:
    facts = inspection.inspect(
        problem(
            "batch = 64\nfeatures = 512\ngroups = 32\nside = 256",
            "self.norm(x)",
            "torch.rand(batch, features, side, side)",
            init="self.norm = nn.GroupNorm(g, c)",
            arguments="c, g",
            given="features, groups",
        )
    )
    shrunk, odd = settings(facts, "shrunk"), settings(facts, "odd")
    assert int(str(shrunk["features"])) % 32 == 0 and int(str(odd["features"])) % 64 == 32
    assert not {"groups"} & {*shrunk, *odd}
    assert int(str(odd["batch"])) % 2 == 1 and int(str(odd["side"])) % 2 == 1
    assert facts.kind == "norm"


def test_a_three_dimensional_convolution_fits_by_going_below_the_first_floor() -> None:
    facts = inspection.inspect(
        problem(
            "batch = 16\nc_in = 32\nc_out = 64\nk = 3\nside = 64",
            "self.conv(x)",
            "torch.rand(batch, c_in, side, side, side)",
            init="self.conv = nn.Conv3d(a, b, k)",
            arguments="a, b, k",
            given="c_in, c_out, k",
        )
    )
    work = {item.case: item for item in facts.work}
    assert facts.kind == "convolution" and work["full"].tensor_cores
    assert work["shrunk"].flops <= inspection.FLOP_BUDGET * cases.TOLERATED
    assert work["full"].flops == 2 * 16 * 64 * 62**3 * 32 * 27 + 16 * 64 * 62**3


def test_the_odd_case_of_small_sizes_keeps_to_the_budget_and_its_last_sizes_apart() -> None:
    transposed = problem(
        "B = 32\nC = 32\nD = 16\nH = 32\nW = 32\nN = 64",
        "self.n(self.c(x))",
        "torch.rand(B, C, D, H, W)",
        init="self.c = nn.ConvTranspose3d(C, N, 4, 2, 1); self.n = nn.LayerNorm(N)",
    )
    shrunk: Settings = tuple({"B": 2, "C": 2, "D": 2, "H": 2, "W": 32, "N": 64}.items())
    case, notes = variants.odd_case(transposed, shrunk)
    assert case is not None and case.inputs[0].shape == (3, 3, 3, 5, 32)
    assert cases.budget_ratio(cases.measure(transposed, "odd", case.settings), 1 << 17, 5 << 20) < variants.ODD_TIMES
    assert notes == ("the odd case keeps W=32, N=64: the reference does not run at an odd size there",)
    small = problem("M = 512\nN = 512", "torch.relu(x)", "torch.rand(M, N)")
    found, _ = variants.odd_case(small, (("M", 256), ("N", 256)))
    assert found is not None and found.inputs[0].shape == (165, 179)


def test_a_size_that_is_used_as_an_axis_length_elsewhere_is_pinned_with_a_note() -> None:
    facts = inspection.inspect(
        problem("rows = 4096\nwidth = 64", "x.view(rows, 8, 8).sum(1)", "torch.rand(rows, width)")
    )
    assert settings(facts, "shrunk")["width"] == 64 and settings(facts, "odd")["width"] == 64
    assert int(str(settings(facts, "odd")["rows"])) % 2


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: problem("n = 64", "torch.rand(3) @ x", "torch.rand(n, n)"), "cell:9: the reference does not run"),
        (
            lambda: problem("n = 64", "undefined(x)", "torch.rand(n, n)"),
            "cell:9: the reference does not run: NameError",
        ),
    ],
)
def test_what_cannot_be_used_is_one_line_with_its_place(made: Callable[[], Problem], said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        inspection.inspect(made())
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_problem_that_the_emulator_cannot_take_has_its_full_case() -> None:
    facts = inspection.inspect(problem("n = 64", "torch.relu(x).sum(-1)", "torch.rand(int(9e3), int(9e3))"))
    assert [case.name for case in facts.cases] == ["full"] and facts.cases[0].inputs[0].shape == (9000, 9000)
    assert [op.target for op in facts.graph] == [
        "aten.relu.default",
        "aten.sum.dim_IntList",
        "output",
    ]
    assert "cannot be shrunk for the emulator" in facts.notes[0] and "nobody looked" in facts.notes[1]
    with pytest.raises(ProblemError, match="run it on a GPU") as caught:
        EmulatorExecutor().admit(problem("n = 64", "x", "x"), facts, "H200")
    assert "\n" not in str(caught.value)
    assert recognise(facts).kind == "reduce"


@pytest.mark.slow
def test_trivial_results_are_looked_for_at_the_smallest_sizes_of_a_large_problem() -> None:
    """A convolution with sizes in its text: two images are too much for the emulator, but not for the CPU."""
    facts = inspection.inspect(
        problem(
            "batch = 64",
            "torch.conv2d(x.view(-1, 3, 224, 224), torch.zeros(96, 3, 11, 11), stride=4)",
            "torch.rand(batch, 3, 224, 224)",
        )
    )
    assert [case.name for case in facts.cases] == ["full"] and facts.cases[0].inputs[0].shape[0] == 64
    assert [found.kind for found in facts.degeneracies] == ["zero", "ignores_inputs"]


@pytest.mark.slow
def test_no_sizes_are_looked_for_where_that_would_take_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = problem("n = 4096", "functools.reduce(lambda x, _: x + 1, range(20), x)", "torch.rand(n, n)")
    deep = dataclasses.replace(deep, source="import functools\n" + deep.source)
    assert [case.name for case in inspection.inspect(deep).cases] == ["shrunk", "odd", "tiny", "over", "empty", "full"]
    monkeypatch.setattr(cases, "SEARCHED_CALLS", 75)
    facts = inspection.inspect(deep)
    assert [case.name for case in facts.cases] == ["full"] and "it has 21 operations" in facts.notes[0]


def test_sizes_of_a_deep_model_are_halved_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "MANY_CALLS", 5)
    search = cases.Search(10)
    made = problem("n = 1024\nm = 1024\nk = 1024", "x + 1", "torch.rand(n, m, k)")
    settings, _ = cases.shrink(made, cases.measure(made, "full"), search)
    assert dict(settings) == {"n": 32, "m": 32, "k": 32} and search.left == 600 - 6


AXIS = "n = 64\nk = 3\naxis = 1\npart = 8"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            (("n", -4),),
            "setting n=-4: no size that this problem can have; legal: whole numbers from 1 on (n=64 in the problem)",
        ),
        ((("axis", -1), ("k", -2), ("n", -4)), "settings k=-2, n=-4: no size that this problem can have"),
        (
            (("k", 3), ("n", 0)),
            "setting n=0: the result has no elements, so there is nothing to compute; legal: whole numbers "
            "from 1 on (n=64 in the problem)",
        ),
        ((("k", 3), ("part", 5)), "setting part=5: cell:12: the reference does not run: RuntimeError: "),
    ],
)
def test_a_setting_that_the_reference_cannot_run_with_is_named(given: Settings, said: str) -> None:
    made = dataclasses.replace(
        problem(AXIS, "torch.softmax(x.unflatten(1, (part, -1)).flatten(1), axis)", "torch.rand(k, n)"), settings=given
    )
    with pytest.raises(ProblemError) as caught:
        inspection.inspect(made)
    assert str(caught.value).startswith(said) and "\n" not in str(caught.value)


def test_an_axis_may_be_negative_and_a_padding_nothing() -> None:
    given: Settings = (("axis", -1), ("k", 3))
    facts = inspection.inspect(
        dataclasses.replace(problem(AXIS, "torch.softmax(x, axis)", "torch.rand(k, n)"), settings=given)
    )
    assert next(case for case in facts.cases if case.name == "full").outputs[0].shape == (3, 64)
    padded = inspection.inspect(
        dataclasses.replace(
            problem("n = 8\npad = 1", "nn.functional.pad(x, (pad, pad))", "torch.rand(n)"), settings=(("pad", 0),)
        )
    )
    assert padded.cases[-1].outputs[0].shape == (8,)


@pytest.mark.slow
def test_a_long_softmax_in_16_bits_is_passed_by_zeros() -> None:
    kinds = {item.kind for item in inspection.inspect(problems.load("softmax", precision="fp16")).degeneracies}
    assert {"zero", "replay"} <= kinds
    assert not inspection.inspect(problems.load("matmul")).degeneracies


def test_a_reference_that_gives_nan_is_said() -> None:
    facts = inspection.inspect(problem("n = 256", "torch.log(x - 2)", "torch.rand(n, n)"))
    assert {item.kind for item in facts.degeneracies} == {"not_finite"}


def test_partial_reads_are_noted() -> None:
    facts = inspection.inspect(problem("n = 512", "x[:, :8] * 2", "torch.rand(n, n)"))
    assert any("parts of its inputs" in note for note in facts.notes)


def test_expanded_inputs_count_what_they_hold() -> None:
    facts = inspection.inspect(problem("n = 1024", "x * 2", "torch.rand(n, 1).expand(n, n)"))
    assert next(item for item in facts.work if item.case == "full").least_bytes == 4 * (1024 + 1024 * 1024)


def test_fixed_sizes_stay() -> None:
    facts = inspection.inspect(problems.load("softmax", settings=(("dim", 1000),)))
    assert "dim" not in settings(facts, "shrunk") and all(case.inputs[0].shape[1] == 1000 for case in facts.cases)


def test_fixed_sizes_are_shrunk_where_the_emulator_cannot_take_them() -> None:
    facts = inspection.inspect(problems.load("matmul", settings=(("n", 8192),)))
    assert [
        int(settings(facts, "shrunk")["n"]) < 512,
        next(case for case in facts.cases if case.name == "full").inputs[0].shape,
    ] == [True, (8192, 8192)]
    assert any("n is 8192 at full size" in note for note in facts.notes)


def flops(call: Callable[..., object], *shapes: tuple[int, ...]) -> int:
    with FakeTensorMode(), torch.no_grad():
        values = [torch.empty(shape) for shape in shapes]
        with FlopCount() as counted:
            call(*values)
    return counted.total


size = st.integers(1, 40)


@given(size, size, size)
def test_products_are_counted_exactly(m: int, n: int, k: int) -> None:
    assert flops(lambda a, b: a @ b, (m, k), (k, n)) == 2 * m * n * k
    assert flops(lambda a, b: a @ b, (m, k), (k,)) == 2 * m * k
    assert flops(lambda a, w, b: F.linear(a, w, b), (m, k), (n, k), (n,)) == 2 * m * n * k + m * n
    assert flops(lambda a, b: torch.bmm(a, b), (3, m, k), (3, k, n)) == 6 * m * n * k


@given(size, size)
def test_the_rest_is_counted_per_element(m: int, n: int) -> None:
    assert flops(lambda x: (x + 1).relu_(), (m, n)) == 2 * m * n
    assert flops(lambda x: x.sum(0), (m, n)) == m * n
    assert flops(lambda x: torch.softmax(x, -1), (m, n)) == 5 * m * n
    assert flops(lambda x: x.t().contiguous().view(-1)[:1].clone(), (m, n)) == 0
    assert flops(lambda x: F.gelu(x, approximate="tanh"), (m, n)) == 9 * m * n
    assert flops(lambda x, b: x + b, (m, n), (n,)) == m * n


def test_attention_on_the_cpu_has_the_usual_count() -> None:
    assert flops(lambda q: F.scaled_dot_product_attention(q, q, q), (2, 4, 16, 8)) == 4 * 2 * 4 * 16 * 16 * 8


def test_random_numbers_that_no_candidate_can_draw_are_refused_by_name() -> None:
    with pytest.raises(ProblemError, match=r"draws random numbers with aten.rrelu_with_noise: "):
        inspection.inspect(problem("n = 64", "torch.rrelu(x, 0.1, 0.3, True)", "torch.rand(n, n)"))


@pytest.mark.parametrize("forward", ["torch.dropout(x, 0.5, True)", "x + torch.randn_like(x)", "torch.bernoulli(x)"])
def test_random_numbers_that_torch_draws_open_with_a_note(forward: str) -> None:
    facts = inspection.inspect(problem("n = 64", forward, "torch.rand(n, n)"))
    assert [item.kind for item in facts.degeneracies] == ["random"]
    assert "same calls of torch" in facts.degeneracies[0].message


def test_the_empty_case_has_no_results_that_only_torch_leaves_out() -> None:
    """Without input channels torch's convolution has no output channels; a kernel may return the bias then."""
    text = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv1d(channels, filters, 1)

    def forward(self, x):
        return self.conv(x)


batch, channels, filters, size = 2, 16, 32, 16


def get_inputs():
    return [torch.randn(batch, channels, size)]


def get_init_inputs():
    return [channels, filters]
"""
    empty = next(case for case in inspection.inspect(problems.load(text)).cases if case.name == "empty")
    assert empty.inputs[0].shape == (0, 16, 16) and empty.outputs[0].shape == (0, 32, 16)


BAGS = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(1000, 32, mode="mean")

    def forward(self, idx, offsets):
        return self.bag(idx, offsets)


def get_inputs():
    return [torch.randint(0, 1000, (4096,)), torch.arange(0, 4096, 16)]
"""


def test_a_case_that_ends_the_process_of_the_reference_is_none() -> None:
    """Torch reads beyond the offsets if there are none, so this is tried in a process of its own."""
    bags = problems.load(BAGS)
    found = {case.name: case for case in inspection.inspect(bags).cases}
    assert {"shrunk", "odd", "tiny"} <= {*found} and "empty" not in found
    assert can_expect(bags, found["odd"])
    assert not can_expect(bags, dataclasses.replace(found["odd"], settings=(("offsets_1", 0),)))


def test_a_layer_that_only_some_sizes_have_is_no_error() -> None:
    source = """import torch
import torch.nn as nn

inside = 16
outside = 32


class Model(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.layer = nn.Linear(inside, outside)
        self.norm = nn.BatchNorm1d(outside) if outside == 2 * inside else nn.Identity()  # it counts its batches

    def forward(self, x):
        return self.norm(self.layer(x))


def get_inputs():
    return [torch.rand(8, inside)]


def get_init_inputs():
    return [inside, outside]
"""
    opened = inspection.open_problem(problems.load(source))
    assert {"inside", "outside"} <= {size.name for size in opened.facts.sizes}
