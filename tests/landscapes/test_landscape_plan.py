"""What the measuring script would measure, and its whole line on the emulator at reduced sizes (no times)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
sys.path.insert(0, str(BENCH))
import landscape_plan  # noqa: E402


def test_places_have_names_of_their_own_and_are_at_least_twenty() -> None:
    names = [place.name for place in landscape_plan.places()]
    assert len(names) == len(set(names)) >= 20


@pytest.fixture(scope="module")
def plans() -> list[landscape_plan.Mapped]:
    wanted = ("row_sum", "matmul_bf16_4096", "matmul_bf16_8192")
    found = [landscape_plan.mapped(place) for place in landscape_plan.places() if place.name in wanted]
    assert all(isinstance(plan, landscape_plan.Mapped) for plan in found)
    return found  # type: ignore[return-value]


def test_a_plan_has_every_rung_first_and_programs_of_different_code_only(plans: list[landscape_plan.Mapped]) -> None:
    for plan in plans:
        assert len(plan.programs) == len(set(plan.programs)) <= plan.place.most
        codes = {source.split('"""', 2)[2] for source in plan.sources[:60]}
        assert len(codes) == len(plan.programs[:60])
    small, large = plans[0], plans[1]
    assert "schedule" in small.programs[0] and ".splitk(4)" in "".join(small.programs) and ".cluster(2, 2)" in "".join(large.programs)


def test_sizes_share_the_files_that_are_compiled_and_what_is_done_is_left_out(plans: list[landscape_plan.Mapped]) -> None:
    todo = landscape_plan.tasks(plans, set())
    assert sum(len(task.targets) for task in todo) == sum(len(plan.programs) + 1 for plan in plans)
    assert len(todo) < 0.75 * sum(len(plan.programs) + 1 for plan in plans)
    first = {number for task in todo[:12] for number, _ in task.targets}
    assert first == set(range(len(plans)))  # a run that is cut short has something of each
    done = {(plans[0].key, program) for program in ("", *plans[0].programs)}
    assert all(number != 0 for task in landscape_plan.tasks(plans, done) for number, _ in task.targets)


def test_measurers_load_what_compilers_kept(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH / "landscape_on_gpu.py"), "--dry-run", "--most", "2", "--only", "row_sum,matvec_04", "--workers", "2", "--measurers", "1", "--seconds", "100", "--kept", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" ok ") == 6 and "failures: {}" in done.stdout and "best" not in done.stdout, done.stdout
    assert "'loaded': 4" in done.stdout and "'measured as kept': 4" in done.stdout and "'compiled': " not in done.stdout, done.stdout
    assert len(list(tmp_path.rglob("*.pickle"))) == 4


def test_a_kept_function_is_launched_without_compiling_and_one_for_other_arguments_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import cutlass.cute as cute
    import landscape_compiler
    import landscape_kept
    import torch

    from workbench.dsl import Binding, compile_program
    from workbench.emulator.hook import emulated

    source = compile_program("reduce(x, op=sum, axis=last) .vector(4)", Binding(init_source="def __init__(self):\n    super().__init__()", forward_arguments=("x",)))

    def run(x: torch.Tensor, *paths: Path) -> tuple[torch.Tensor, landscape_kept.Compiler]:
        with emulated(arch="sm_90a", device="H200"), monkeypatch.context() as patch:
            compiler = landscape_kept.Compiler(cute.compile)
            compiler.begin(keep=tmp_path / "kept")
            compiler.loaded = {path.stem: landscape_kept.callable_of(landscape_kept.read(path)) for path in paths}
            patch.setattr(cute, "compile", compiler)
            module = landscape_compiler.load(source, tmp_path)
            result = module.ModelNew()(x)
            landscape_compiler.forget(module)
        return result, compiler

    x = torch.randn(8, 64)
    _, compiler = run(x)
    (path,) = (tmp_path / "kept").iterdir()
    assert compiler.counts == {"compiled": 1} and path.stem == compiler.keys[0]
    result, compiler = run(x + 1, path)
    assert compiler.counts == {"loaded": 1}
    torch.testing.assert_close(result, (x + 1).sum(-1), rtol=1e-5, atol=1e-5)
    odd = torch.randn(8, 63)  # one element at a time, not four
    result, compiler = run(odd, path)
    assert compiler.counts == {"compiled": 1}
    torch.testing.assert_close(result, odd.sum(-1), rtol=1e-5, atol=1e-5)
    path.write_bytes(b"not an entry")
    assert run(x)[1].counts == {"compiled": 1} and landscape_kept.read(path).name
