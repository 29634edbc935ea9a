"""The 19 KernelBench problems of tests/bench/problems: they load, trace, shrink, have a bound and agree with their own
reference at shrunk sizes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from workbench import problems
from workbench.analysis import devices, speed_of_light
from workbench.problems import inspection, loading

FILES = sorted((Path(__file__).parents[1] / "bench" / "problems").glob("*.py"))
# counted by hand from the shapes: (FLOPs of the products, or 0 where there are none; bytes read and written once, in
# float32)
BY_HAND = {
    1: (2 * 4096**3, 3 * 4096**2 * 4),
    4: (2 * 2048 * 1048576, (2048 * 1048576 + 1048576 + 2048) * 4),
    9: (2 * 32768 * 32768 * 32, (2 * 32768 * 32 + 32768**2) * 4),
    22: (0, 2 * 4096 * 393216 * 4),
    49: (0, (128 * 4096 * 4095 + 128 * 4095) * 4),
    55: (2 * 8 * 128 * 510 * 1022 * 64 * 9, (8 * 64 * 512 * 1024 + 128 * 64 * 9 + 8 * 128 * 510 * 1022) * 4),
    61: (2 * 8 * 48 * 48 * 27 * 64**3, (8 * 48 * 64**3 + 48 * 48 * 27 + 8 * 48 * 66**3) * 4),
    97: (4 * 32 * 32 * 512 * 512 * 1024, 4 * 32 * 32 * 512 * 1024 * 4),
    99: (0, 3 * 32768 * 8192 * 4 + 4),
}


def test_there_are_nineteen_and_each_names_its_origin() -> None:
    assert len(FILES) == 19
    for path in FILES:
        said = ast.get_docstring(ast.parse(path.read_text()))
        assert (
            said is not None
            and "\n" not in said
            and said.endswith(f"KernelBench level 1, problem {int(path.name[:2])}.")
        )


@pytest.mark.few(6)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_shrinks_to_sizes_at_which_it_runs_and_has_a_bound(path: Path) -> None:
    problem = problems.load(str(path), precision="tf32")
    facts = inspection.inspect(problem)
    assert {case.name for case in facts.cases} >= {"full", "shrunk", "odd", "tiny"} and not [
        item for item in facts.degeneracies if item.kind in ("random", "not_finite")
    ]
    for name in ("shrunk", "odd"):
        case = next(case for case in facts.cases if case.name == name)
        module = loading.load_module(problem, case.settings)
        model = loading.build_model(module, "Model", problem)
        with torch.no_grad():
            inputs = loading.make_inputs(module, problem, 1)
            first = model(*inputs)
            exact = model.double()(*[value.double() for value in inputs])
        assert tuple(first.shape) == case.outputs[0].shape and torch.allclose(
            first.double(), exact, rtol=1e-3, atol=1e-3
        )
    work = next(work for work in facts.work if work.case == "full")
    bound = speed_of_light.bound(work, devices.find("H200"))
    assert bound.bound_s > 1e-5
    products, size = BY_HAND.get(int(path.name[:2]), (None, None))
    if size is not None:
        assert work.least_bytes == size
    if products:
        assert work.flops == pytest.approx(products, rel=0.01)
