"""Host time of a call without its launches, on a machine without a GPU: what Python and torch do around them.

    python tests/bench/host_time.py [PROBLEM ...] [--arch sm_80] [--form version kernelbench custom-op]

Tensors lie in host memory. Each compiled kernel is replaced by a function that CuTe DSL compiles for TVM FFI with the
same arguments and an empty body, so a call checks, prepares, allocates and passes its arguments as on a GPU. What asks
the GPU is answered from constants. Columns: us of one call by the version's file, by each exported form, and by the
reference on the same tensors, whose operations compute. The least of SAMPLES samples: other processes only add.
"""

from __future__ import annotations

import argparse
import importlib.util
import linecache
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from cutlass import cute
from host_time_on_gpu import OWN, load_module

from workbench.problems import with_settings
from workbench.session import Session

CALLS, SAMPLES = 500, 21
PROBLEMS = ("relu", "softmax", "layer_norm", "matmul_bias_gelu", "row_sum", "matmul", "cross_entropy")
STAGES = ("layer_norm_residual", "pairwise", "rotary")  # of several host functions
SMS = 132
ZEROS = torch.zeros(1 << 16, dtype=torch.int32)


def make_empty(count: int) -> Callable[..., None]:
    """A jit function of `count` arguments that launches nothing."""
    name = f"<empty launch of {count}>"
    text = f"def launch({', '.join(f'a{n}' for n in range(count))}):\n    pass\n"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict[str, Any] = {}
    exec(compile(text, name, "exec"), names)  # CuTe DSL reads a function's text
    empty: Callable[..., None] = cute.jit(names["launch"])
    return empty


def without_launches(module: ModuleType) -> ModuleType:
    """The module with kernels that launch nothing, on tensors in host memory."""

    def compile_launch(function: object, arguments: tuple[object, ...], constants: tuple[object, ...] = ()) -> object:
        values = module.each_value(module.cute_value, arguments)
        return cute.compile(make_empty(len(values)), *values, options="--enable-tvm-ffi")

    stand_ins: dict[str, Callable[..., object]] = {
        "compile_launch": compile_launch,
        "expect_on_device": lambda *tensors: None,
        "device_key": lambda: (9, 0),
        "count_sms": lambda *device: SMS,
        "max_active_clusters": lambda *sizes: SMS // 4,
        "zero_counters": lambda device, count: ZEROS,
    }
    for name in vars(module).copy():  # a second one of a name has a number behind it
        if function := stand_ins.get(re.sub(r"_\d+$", "", name)):
            setattr(module, name, function)
    return module


def time_call(call: Callable[..., object], inputs: list[object]) -> float:
    """The least host microseconds of a call."""
    for _ in range(3):
        call(*inputs)
    samples = []
    for _ in range(SAMPLES):
        start = time.thread_time()
        for _ in range(CALLS):
            call(*inputs)
        samples.append((time.thread_time() - start) / CALLS * 1e6)
    return min(samples)


def measure(name: str, arch: str, forms: list[str], folder: Path) -> dict[str, float]:
    """The row of one problem: form -> microseconds, and `torch`."""
    label = Path(name).stem
    with Session.create(name, root=folder / "sessions", executor="emulator", arch=arch) as session:
        version = session.generate(test=False)
        assert version is not None
        texts = {"version": version.proposal.candidate.source}
        texts |= {form: session.export(version.number, form=form) for form in forms if form != "version"}
        case = next(case for case in session.facts.cases if case.name == "shrunk")
        reference = with_settings(session.problem.source, case.settings)
    row = {}
    paths = {form: folder / f"{label}_{arch}_{form.replace('-', '_')}.py" for form in ("torch", *texts)}
    for form, text in (("torch", reference), *texts.items()):
        paths[form].write_text(text)
    problem = load_module(paths["torch"], paths["torch"].stem)
    with torch.no_grad():
        inputs, init = problem.get_inputs(), getattr(problem, "get_init_inputs", list)()
        models = {form: without_launches(load_module(paths[form], paths[form].stem)).ModelNew for form in texts}
        models["torch"] = problem.Model
        for form, model in models.items():
            row[form] = time_call(model(*init), inputs)
    return row


def main() -> None:
    """Measure and print each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=[*PROBLEMS, *(str(OWN / f"{name}.py") for name in STAGES)])
    parser.add_argument("--arch", default="sm_80")
    parser.add_argument("--form", nargs="+", default=["version", "kernelbench", "custom-op"])
    arguments = parser.parse_args()
    if importlib.util.find_spec("tvm_ffi") is None:
        sys.exit("apache-tvm-ffi is not installed")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.problems:
            row = measure(name, arguments.arch, arguments.form, Path(folder))
            print(f"{Path(name).stem:24}", *(f"{form} {us:6.2f}" for form, us in row.items()), sep="  ", flush=True)


if __name__ == "__main__":
    main()
