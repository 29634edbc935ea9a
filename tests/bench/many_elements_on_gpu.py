"""Tensors of more than 2**31 elements on a GPU: the pieces in which they are taken, against torch. No times.

python tests/bench/many_elements_on_gpu.py --out results.json
python tests/bench/many_elements_on_gpu.py --dry-run            a few thousand elements in small pieces on the emulator:
no GPU
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.codegen import compile_program
from workbench.executors.gpu.presence import gpus_to_use
from workbench.language import Binding
from workbench.tuning.files import describe_machine

INIT = "def __init__(self):\n    super().__init__()\n"
ALLOWED = 2e-3  # of the results of float16, which are at most about 5
SMALL = 1000  # elements of a piece in a dry run
Torch = Callable[[torch.Tensor], torch.Tensor]
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], Torch]] = {  # program -> shape, shape of a dry run, torch
    "elementwise(relu(x)) .arch(sm_90a) .vector(8) .unroll(2)": ((2**31 + 8,), (4104,), torch.relu),
    "reduce(x, op=mean, axis=all) .arch(sm_90a) .threads_per_row(256) .vector(8) .parts(4096)": (
        (2**31 + 8,),
        (4104,),
        lambda x: x.mean(dtype=torch.float32).half(),
    ),
    "softmax(x) .arch(sm_90a) .threads_per_row(32) .vector(8)": (
        (2**25 + 1, 64),
        (65, 64),
        lambda x: torch.softmax(x, -1),
    ),
}


def load(program: str, folder: Path) -> tuple[ModuleType, Path]:
    """The candidate of a program, imported."""
    path = folder / f"candidate_{abs(hash(program))}.py"
    path.write_text(compile_program(program, Binding(init_source=INIT, forward_arguments=("x",))))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, path


def compared(program: str, folder: Path, dry: bool) -> dict[str, Any]:
    """The largest difference from torch, a NaN counting as one, and how many launches there were (on the emulator)."""
    shape, small, wanted = CASES[program]
    module, path = load(program, folder)
    if dry:
        from workbench.emulator.hook import emulated

        vars(module)["MOST"] = SMALL
    torch.manual_seed(3)
    x = torch.randn(small if dry else shape, dtype=torch.float16, device="cpu" if dry else "cuda")
    with (
        emulated(arch="sm_90a", source_file=str(path)) if dry else contextlib.nullcontext() as emulation,
        torch.no_grad(),
    ):
        got = module.ModelNew()(x)
    differs = (got - wanted(x)).abs_()
    worst = float(differs.max())
    return {
        "program": program,
        "shape": list(x.shape),
        "worst": worst,
        "right": worst <= ALLOWED,
        "launches": len(emulation.launches) if emulation else None,
    }


def main() -> int:
    """Compare all; 0 when all are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for program in CASES:
            try:
                rows.append(compared(program, Path(folder), arguments.dry_run))
            except Exception as error:
                rows.append(
                    {
                        "program": program,
                        "right": False,
                        "error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
                    }
                )
            print(rows[-1], flush=True)
            if not arguments.dry_run:
                torch.cuda.empty_cache()
    if arguments.out:
        arguments.out.write_text(
            json.dumps(
                {
                    **describe_machine(gpus_to_use()),
                    "sampling": "",
                    "protocol": "float16, normal values, one call, compared with torch on the same device",
                    "rows": rows,
                },
                indent=1,
            )
            + "\n"
        )
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
