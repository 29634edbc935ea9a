"""The planner's kernels take the numbers that forward is given, or are refused by the name of the argument."""

from __future__ import annotations

import pytest
import torch

from workbench import problems
from workbench.emulator import emulated
from workbench.problems import inspection
from workbench.proposers.binding import candidate_of, plain_program
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.records import Opened

ONE, TWO = "torch.randn(96, 72)", "torch.randn(96, 72), torch.randn(72, 40)"


def opened(forward: str, inputs: str, keep: tuple[str, ...] = (), init: str = "") -> Opened:
    arguments, result = forward.split(" -> ")
    text = (
        "import torch\nimport torch.nn.functional as F\n\n\nclass Model(torch.nn.Module):\n"
        f"{init}    def forward(self, {arguments}):\n        return {result}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n"
    )
    return inspection.open_problem(problems.load(text, keep=keep))


def run(found: Opened, *numbers: object) -> tuple[torch.Tensor, torch.Tensor]:
    """(what the planner's plain program gives for other numbers, what the reference gives)."""
    from workbench.problems import loading

    source = candidate_of(found.problem, found.facts, "sm_80", plain_program(recognise(found.facts))).source
    module = loading.load_module(found.problem)
    tensors = [value for value in loading.make_inputs(module, found.problem, 1) if isinstance(value, torch.Tensor)]
    names: dict[str, object] = {}
    with emulated(arch="sm_80", device="H100"), torch.no_grad():
        path = _write(source)
        exec(compile(source, path, "exec"), names)
        made = names["ModelNew"]()(*tensors, *numbers)  # type: ignore[operator]
        return made, loading.build_model(module, "Model", found.problem)(*tensors, *numbers)


def _write(source: str) -> str:
    import linecache

    path = f"<candidate {hash(source)}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    return path


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("forward", "inputs", "numbers"),
    [
        ("x, a -> F.leaky_relu(x, a)", f"{ONE}, 0.1", (-0.75,)),
        ("x, a -> F.elu(x, a)", f"{ONE}, 0.5", (2.5,)),
        ("x, lo, hi -> torch.clamp(x, lo, hi)", f"{ONE}, -0.5, 0.75", (-2.0, 0.1)),
        ("x, a -> torch.where(x > 0.5, x, a)", f"{ONE}, 0.25", (-3.0,)),
        ("x, s, pos -> (x + pos) * (1 - s * pos) / s", f"{ONE}, 0.25, 100", (0.5, 7)),
        ("x, y, a -> torch.add(x, y, alpha=a)", f"{ONE}, {ONE}, 0.5", (-2.0,)),
        ("x, t -> torch.softmax(x / t, -1)", f"{ONE}, 2.0", (0.5,)),
        ("x, y, a -> torch.relu(x @ y * a)", f"{TWO}, 0.5", (-2.0,)),
        ("x, a -> (x.half() * a).relu()", f"{ONE}, 0.5", (1.5,)),
        ("x, n -> x.sum(0) / n", f"{ONE}, 96", (7,)),
    ],
)
def test_the_program_takes_other_numbers(forward: str, inputs: str, numbers: tuple[float, ...]) -> None:
    found = opened(forward, inputs)
    made, wanted = run(found, *numbers)
    assert made.dtype == wanted.dtype
    torch.testing.assert_close(made, wanted, rtol=2e-3, atol=2e-3)


def test_a_number_of_rows_stays_an_expression() -> None:
    forward = "src, idx, nodes -> src.new_zeros(nodes, src.shape[1]).scatter_add(0, idx[:, None].expand_as(src), src)"
    found = opened(forward, "torch.randn(500, 64), torch.randint(0, 100, (500,)), 100")
    source = candidate_of(found.problem, found.facts, "sm_80", plain_program(recognise(found.facts))).source
    assert "torch.zeros(nodes, src.shape[1]," in source
    made, wanted = run(found, 131)
    torch.testing.assert_close(made, wanted)


@pytest.mark.parametrize(
    ("forward", "inputs", "said"),
    [
        ("x, n -> torch.relu(x[:, n:n + 4])", f"{ONE}, 20", "forward's argument n is an argument of slice"),
        (
            "x, twice -> x * 2 if twice else torch.relu(x)",
            f"{ONE}, True",
            "argument twice decides which calls there are",
        ),
        ("x, n -> F.softplus(x, beta=n)", f"{ONE}, 2.0", "forward's argument n is an argument of softplus"),
    ],
)
def test_other_uses_are_refused_by_name(forward: str, inputs: str, said: str) -> None:
    found = opened(forward, inputs)
    with pytest.raises(Unrecognised, match=said.replace("[", r"\[")) as error:
        recognise(found.facts)
    assert f"with --keep {found.facts.given[0].name} it may write" in str(error.value)


@pytest.mark.parametrize(
    ("forward", "inputs", "keep", "call", "said"),
    [
        ("x, a -> x * a", f"{ONE}, 0.5", ("a",), (0.75,), "a has to be 0.5, which these kernels have written in"),
        ("x, twice=True -> x * 2 if twice else torch.relu(x)", ONE, (), (False,), "twice has to be True"),
        ("x, way='a' -> x * 2 if way == 'a' else x", ONE, (), ("b",), "way has to be 'a'"),
    ],
)
def test_a_number_that_is_written_in_is_checked(
    forward: str, inputs: str, keep: tuple[str, ...], call: tuple[object, ...], said: str
) -> None:
    found = opened(forward, inputs, keep)
    with pytest.raises(ValueError, match=said):
        run(found, *call)
