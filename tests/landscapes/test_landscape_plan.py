"""What the measuring script would measure, and its whole line on the emulator at reduced sizes (no times)."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
sys.path.insert(0, str(BENCH))
from landscape_problems import places  # noqa: E402

from workbench.tuning import compiled_store, compiler  # noqa: E402
from workbench.tuning import plan as tuning_plan  # noqa: E402

pytestmark = pytest.mark.timeout(400)  # hundreds of files are written


def test_places_have_names_of_their_own_and_are_at_least_twenty() -> None:
    names = [place.name for place in places()]
    assert len(names) == len(set(names)) >= 20


@pytest.fixture(scope="module")
def plans() -> list[tuning_plan.TuningPlan]:
    wanted = ("row_sum", "matmul_bf16_4096", "matmul_bf16_8192")
    chosen = [dataclasses.replace(place, most=48) for place in places() if place.name in wanted]
    found = [tuning_plan.plan_problem(place) for place in chosen]
    assert all(isinstance(plan, tuning_plan.TuningPlan) for plan in found)
    return found  # type: ignore[return-value]


def test_a_plan_has_every_rung_first_and_programs_of_different_code_only(plans: list[tuning_plan.TuningPlan]) -> None:
    for plan in plans:
        assert len(plan.programs) == len(set(plan.programs)) <= plan.place.most
        codes = {source.split('"""', 2)[2] for source in plan.sources[:30]}
        assert len(codes) == len(plan.programs[:30])
    small, large = plans[0], plans[1]
    assert (
        "schedule" in small.programs[0]
        and ".splitk(4)" in "".join(small.programs)
        and ".cluster(2, 2)" in "".join(large.programs)
    )


def test_sizes_share_the_files_that_are_compiled_and_what_is_done_is_left_out(
    plans: list[tuning_plan.TuningPlan],
) -> None:
    todo = tuning_plan.list_tasks(plans, set())
    assert sum(len(task.targets) for task in todo) == sum(len(plan.programs) + 1 for plan in plans)
    assert len(todo) < 0.75 * sum(len(plan.programs) + 1 for plan in plans)
    first = {number for task in todo[:12] for number, _ in task.targets}
    assert first == set(range(len(plans)))  # a run that is cut short has something of each
    done = {(plans[0].key, program) for program in ("", *plans[0].programs)}
    assert all(number != 0 for task in tuning_plan.list_tasks(plans, done) for number, _ in task.targets)


@pytest.mark.slow
def test_measurers_load_what_compilers_kept(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(BENCH / "landscape_on_gpu.py"),
        "--dry-run",
        "--most",
        "2",
        "--only",
        "row_sum,matvec_04",
        "--workers",
        "2",
        "--measurers",
        "1",
        "--seconds",
        "100",
        "--kept",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" ok ") == 6 and "failures: {}" in done.stdout and "best" not in done.stdout, done.stdout
    assert (
        "'loaded': 4" in done.stdout and "'measured as kept': 4" in done.stdout and "'compiled': " not in done.stdout
    ), done.stdout
    assert len(list(tmp_path.rglob("*.pickle"))) == 4


def test_a_kept_function_is_launched_without_compiling_and_one_for_other_arguments_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cutlass.cute as cute
    import torch

    from workbench.codegen import compile_program
    from workbench.emulator.hook import emulated
    from workbench.language import Binding

    source = compile_program(
        "reduce(x, op=sum, axis=last) .vector(4)",
        Binding(init_source="def __init__(self):\n    super().__init__()", forward_arguments=("x",)),
    )

    def run(x: torch.Tensor, *paths: Path) -> tuple[torch.Tensor, compiled_store.Compiler]:
        with emulated(arch="sm_90a", device="H200"), monkeypatch.context() as patch:
            store = compiled_store.Compiler(cute.compile)
            store.begin(keep=tmp_path / "kept")
            store.loaded = {path.stem: compiled_store.load_function(compiled_store.read(path)) for path in paths}
            patch.setattr(cute, "compile", store)
            module = compiler.load_candidate(source, tmp_path)
            result = module.ModelNew()(x)
            compiler.unload(module)
        return result, store

    x = torch.randn(8, 64)
    _, store = run(x)
    (path,) = (tmp_path / "kept").iterdir()
    assert store.counts == {"compiled": 1} and path.stem == store.keys[0]
    result, store = run(x + 1, path)
    assert store.counts == {"loaded": 1}
    torch.testing.assert_close(result, (x + 1).sum(-1), rtol=1e-5, atol=1e-5)
    odd = torch.randn(8, 63)  # one element at a time, not four
    result, store = run(odd, path)
    assert store.counts == {"compiled": 1}
    torch.testing.assert_close(result, odd.sum(-1), rtol=1e-5, atol=1e-5)
    path.write_bytes(b"not an entry")
    assert run(x)[1].counts == {"compiled": 1} and compiled_store.read(path).name
