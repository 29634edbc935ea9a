"""Square products of ours and of cuBLAS for a second each, with the clock and the power that NVML reports meanwhile:
what bounds the sustained rate.

    python tests/bench/power_on_gpu.py --out FILE [--seconds 1.0]
    python tests/bench/power_on_gpu.py --dry-run                       tiny shapes on the emulator; no times

Random normal operands, then zeros: of zeros hardly a bit changes, so the power limit is not felt and the clock stays
up; the ratio there is that of the kernels' issue, the ratio of normal numbers also that
of their energy. `tflops_per_ghz` is the rate over the median clock: of H200's tensor cores at most 132 SMs x 4096 =
540.7 (fp16, bf16).
`power_w` is NVML's running mean over the last second or so: what ran before, and the pause in which a kernel was
compiled, are still in it, so that only the last of four (torch's) has settled.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from hopper_gemm_on_gpu import facts, replayer
from hopper_sweep_on_gpu import Case, Loaded, by_torch, operands, program

from workbench.executors.gpu.telemetry import observer

SETTINGS = {
    "128x256": ".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1)",
    "128x256 early": ".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1) .launch(early)",
    "256x128 early": ".tile(256, 128, 64) .schedule(cooperative) .cluster(1, 2) .launch(early)",
}


def sustained(call: Callable[[], Any], flops: float, seconds: float) -> dict[str, Any]:
    """Rate over `seconds` of calls without a pause; clock and power are sampled in its second half."""
    repeats = max(1, int(0.1 * 600e12 / flops))
    graph = replayer(call, repeats)
    look, looks, over = observer(lambda: (), lambda: 0), [], threading.Event()
    torch.cuda.synchronize()

    def watch() -> None:
        time.sleep(seconds / 2)
        while not over.wait(0.02):
            looks.append(look())

    watcher = threading.Thread(target=watch)
    watcher.start()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(int(seconds / 0.1) + 1)]
    events[0].record()
    for event in events[1:]:
        graph()
        event.record()
    events[-1].synchronize()
    over.set()
    watcher.join()
    half = len(events) // 2
    taken = events[half].elapsed_time(events[-1]) * 1e-3 / (len(events) - 1 - half) / repeats
    seen = [one for one in looks if one is not None]
    clock, power = (
        statistics.median([getattr(one, name) for one in seen]) if seen else None
        for name in ("sm_clock_mhz", "power_w")
    )
    rate = flops / taken / 1e12
    return {
        "us": round(taken * 1e6, 2),
        "tflops": round(rate, 1),
        "sm_clock_mhz": clock,
        "power_w": round(power, 1) if power else None,
        "tflops_per_ghz": round(rate / clock * 1e3, 1) if clock else None,
        "throttled": sorted({name for one in seen for name in one.throttled}),
    }


def measured(case: Case, zeros: bool, seconds: float, dry: bool) -> list[dict[str, Any]]:
    """One row for each configuration and one for torch.matmul."""
    tensors = [tensor.zero_() if zeros else tensor for tensor in operands(case, "cuda")]
    calls: dict[str, Callable[[], Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in SETTINGS.items():
            loaded = Loaded(case, program(case, settings), Path(folder))
            calls[name] = lambda loaded=loaded: loaded.model(*tensors)
        calls["torch.matmul"] = lambda: by_torch(case)(*tensors)
        rows = []
        for name, call in calls.items():
            error = float((call().float() - by_torch(case)(*tensors).float()).abs().max())
            rows.append(
                {
                    "case": case.name,
                    "operands": "zeros" if zeros else "normal",
                    "what": name,
                    "largest_difference": error,
                }
                | ({} if dry else sustained(call, 2.0 * case.m * case.n * case.k, seconds))
            )
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    if arguments.dry_run:
        import workbench

        with workbench.emulated(device="H200"):
            measured(Case("square", 256, 512, 128), False, 0, True)
        return 0
    cases = [Case("square", n, n, n, kind=kind) for n in (8192, 4096) for kind in ("bf16", "f16")]
    head, rows = facts(), []
    for case in cases:
        for zeros in (False, True):
            rows += measured(case, zeros, arguments.seconds, False)
            if arguments.out:
                arguments.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
