"""Host time of a call on a GPU: what an export of the planner's first version costs beside torch eager, in one run.

    python tests/bench/host_time_on_gpu.py [PROBLEM ...] [--form version kernelbench custom-op] [--out FILE.json]

Forms: those of `cutegen export`; `version` is the version's own text, as a session runs it. Small sizes, so that the
host is what is waited for. A sample is the wall time of CALLS calls without a synchronisation between them, divided by
CALLS; torch and the forms take turns; the row has medians over SAMPLES samples, in us, and the time of one call from an
idle GPU to its end (`alone_us`), host included. Needs a GPU; `host_time.py` beside this file needs none.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version as version_of
from pathlib import Path
from types import ModuleType

import torch

from workbench import problems
from workbench.problems import with_settings
from workbench.session import Session

CALLS, SAMPLES = 100, 21
OWN = Path(__file__).parents[1] / "problems" / "own"
# of one to five launches, with what ships
PROBLEMS = (
    *problems.shipped(),
    *(
        str(OWN / f"{name}.py")
        for name in (
            "mlp_bf16",
            "swiglu_fused",
            "rms_norm_bf16_3d",
            "layer_norm_residual",
            "mixed_norm",
            "top_k",
            "group_norm_silu",
        )
    ),
)


def load_module(path: Path, name: str) -> ModuleType:
    """A Python file as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def small_source(name: str) -> str:
    """The problem's text with sizes for which the host is what is waited for: those of its shrunk case."""
    session = Session.create(name, root=Path(tempfile.mkdtemp()), executor="gpu")
    with session:
        case = next((case for case in session.facts.cases if case.name == "shrunk"), session.facts.cases[0])
        return with_settings(session.problem.source, case.settings)


def time_calls(call: object, inputs: list[object]) -> float:
    """Host microseconds of one of CALLS calls."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call(*inputs)  # type: ignore[operator]
    spent = time.perf_counter() - start
    torch.cuda.synchronize()
    return spent / CALLS * 1e6


def time_alone(call: object, inputs: list[object]) -> float:
    """Microseconds from an idle GPU to the end of one call."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call(*inputs)  # type: ignore[operator]
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6


def measure(name: str, forms: list[str], folder: Path) -> dict[str, object]:
    """The row of one problem."""
    label = Path(name).stem
    problem_path = folder / f"{label}.py"
    problem_path.write_text(small_source(name))
    with Session.create(problem_path.as_posix(), root=folder / "sessions", executor="gpu") as session:
        version = session.generate(test=False)
        assert version is not None
        title, source = version.proposal.title, version.proposal.candidate.source
        texts = {form: source if form == "version" else session.export(version.number, form=form) for form in forms}
    problem, modules = load_module(problem_path, label), {}
    for form, text in texts.items():
        path = folder / f"{label}_{form.replace('-', '_')}.py"
        path.write_text(text)
        modules[form] = load_module(path, path.stem)
    with torch.no_grad():
        inputs = [v.cuda() if isinstance(v, torch.Tensor) else v for v in problem.get_inputs()]
        init = problem.get_init_inputs() if hasattr(problem, "get_init_inputs") else []
        models = {}
        for key, model in {"torch": problem.Model, **{form: one.ModelNew for form, one in modules.items()}}.items():
            torch.manual_seed(0)
            models[key] = model(*init).cuda()
            for _ in range(5):
                models[key](*inputs)
        samples: dict[str, list[float]] = {f"{key}_{kind}": [] for key in models for kind in ("host_us", "alone_us")}
        for _ in range(SAMPLES):
            for key, model in models.items():
                samples[f"{key}_host_us"].append(time_calls(model, inputs))
                samples[f"{key}_alone_us"].append(time_alone(model, inputs))
        launches = count_launches(models[forms[0]], inputs)
    return {
        "problem": label,
        "title": title,
        "launches": launches,
        **{key: round(statistics.median(values), 2) for key, values in samples.items()},
        "samples": {key: [round(value, 2) for value in values] for key, values in samples.items()},
    }


def count_launches(model: torch.nn.Module, inputs: list[object]) -> int:
    """Kernels that one call launches."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        model(*inputs)
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())


def main() -> None:
    """Measure and print each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=[*PROBLEMS])
    parser.add_argument("--form", nargs="+", default=["kernelbench"])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    head = {
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "versions": {name: version_of(name) for name in ("torch", "nvidia-cutlass-dsl", "apache-tvm-ffi")},
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.problems:
            try:
                row = measure(name, arguments.form, Path(folder))
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                continue
            rows.append(row)
            if arguments.out:
                arguments.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")
            times = "  ".join(
                f"{key} {row[f'{key}_host_us']:6.1f} (alone {row[f'{key}_alone_us']:6.1f})"
                for key in ("torch", *arguments.form)
            )
            print(f"{row['problem']:22} {row['launches']} launches  {times}", flush=True)
    for form in arguments.form:
        over = [row[f"{form}_host_us"] - row["torch_host_us"] for row in rows]
        few = sum(us <= 4 for us in over)
        print(f"{form}: {few} of {len(over)} within 4 us of torch; the most over it is {max(over, default=0):.1f} us")


if __name__ == "__main__":
    main()
