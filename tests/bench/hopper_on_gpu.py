"""The Hopper kernels of the tests on a real GPU: the same exact results as on the emulator (small integers, so every
sum is exact).

python tests/bench/hopper_on_gpu.py --out results.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from cutlass.cute.runtime import from_dlpack

sys.path.insert(0, str(Path(__file__).parents[1] / "emulator/hopper"))
from configurations import BOXES, GEMMS, matrix
from gemm import Gemm
from tensor_copy import TensorCopy


def gemm(dtype: torch.dtype, tile: Any, cluster: int, shape: Any, majors: Any) -> bool:
    """Whether the product is exact."""
    m, n, k = shape
    a, b = matrix(m, k, dtype, majors[0], 1), matrix(n, k, dtype, majors[1], 2)
    d = torch.empty((m, n), dtype=torch.int32 if dtype == torch.int8 else torch.float32, device="cuda")
    there = [t.cuda() if t.is_contiguous() else t.t().cuda().t() for t in (a, b)]
    views = [
        from_dlpack(t, assumed_align=16).mark_layout_dynamic(leading_dim=major)
        for t, major in zip((*there, d), (*majors, 1), strict=True)
    ]
    Gemm(tile, cluster)(*views)
    torch.cuda.synchronize()
    return torch.equal(d.cpu().double(), a.double() @ b.double().t())


def copied(shape: Any, box: Any, dtype: torch.dtype, add: bool) -> bool:
    """Whether every element arrived, once."""
    x = (torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape).to(dtype) % 500).cuda()
    y = torch.ones(shape, dtype=dtype, device="cuda") if add else torch.empty(shape, dtype=dtype, device="cuda")
    TensorCopy(box, add)(
        *(
            from_dlpack(t.permute(*reversed(range(len(shape)))), assumed_align=16).mark_layout_dynamic(leading_dim=0)
            for t in (x, y)
        )
    )
    torch.cuda.synchronize()
    return torch.equal(y, x + 1 if add else x)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    runs = [(f"gemm {one}", lambda one=one: gemm(*one)) for one in GEMMS]
    runs += [
        (
            f"copy {shape} {box} {dtype} add={add}",
            lambda shape=shape, box=box, dtype=dtype, add=add: copied(shape, box, dtype, add),
        )
        for shape, box in BOXES
        for dtype, add in ((torch.float16, False), (torch.float32, True))
    ]
    rows = []
    for name, run in runs:
        try:
            rows.append({"name": name, "exact": run()})
        except Exception as error:
            rows.append({"name": name, "error": f"{type(error).__name__}: {error}"[:300]})
        print(rows[-1], flush=True)
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip()
    arguments.out.write_text(
        json.dumps(
            {
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "gpu": gpu,
                "torch": torch.__version__,
                "rows": rows,
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
