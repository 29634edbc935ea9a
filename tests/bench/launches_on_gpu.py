"""Where the time of an epoch goes with features on the device: kernels and their time beside the whole, by policy, with
batches drawn one by one and ahead of the step.

    python tests/bench/launches_on_gpu.py --out FILE.json [--small]      (a minute; --small: on a CPU, without kernels)

A block model of nine million edges, 512 features, batches of 4,096 roots. Each row has the median epoch of `ROUNDS`
after one that warms up, and the parts of that epoch; then one more epoch under torch's profiler, whose kernels and
copies are counted and their durations added: work of two streams at a time counts twice.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from datetime import UTC, datetime
from pathlib import Path

import comm_rand_on_gpu
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.graphs.batches import MiniBatches, Policy
from workbench.graphs.communities import Relabelled, relabel
from workbench.graphs.device.batches import DeviceMiniBatches
from workbench.graphs.models import MODELS
from workbench.graphs.sweep import describe
from workbench.graphs.training import Run, Training

POINTS = (("uniform", 1.0, 0.5), ("comm-rand", 0.125, 1.0), ("comm-rand", 0.0, 1.0))
ROUNDS = 3
Row = dict[str, object]


def count_kernels(run: Run, number: int) -> tuple[int, float]:
    """(kernels and copies of an epoch, the sum of their durations in seconds)."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run.run_epoch(number)
    on_device = [
        one for one in profile.key_averages() if one.device_type == torch.autograd.DeviceType.CUDA and one.count
    ]
    return sum(one.count for one in on_device), sum(one.self_device_time_total for one in on_device) / 1e6


def measure(prepared: Relabelled, policy: Policy, training: Training) -> Row:
    """A row for a policy and a model."""
    device = torch.device(training.device)
    run = Run(DeviceMiniBatches(MiniBatches(prepared.graph, policy), device), training, device)
    run.run_epoch(0)
    epochs = [run.run_epoch(number) for number in range(1, 1 + ROUNDS)]
    middle = sorted(epochs, key=lambda one: one[0])[ROUNDS // 2]
    batches = sum(1 for _ in run.batches.epoch(0))
    row: Row = {
        "model": training.model,
        "policy": describe(policy).removesuffix(", seed 0"),
        "ahead": training.prefetch,
        "batches": batches,
        "epoch_s": statistics.median(total for total, _ in epochs),
        "parts": dataclasses.asdict(middle[1]),
    }
    if device.type == "cuda":
        row["kernels"], row["busy_s"] = count_kernels(run, 1 + ROUNDS)
    return row


def main() -> None:
    """Measure and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    device = "cpu" if arguments.small else "cuda"
    graph = comm_rand_on_gpu.make_graph("sbm", arguments.small, 32 if arguments.small else 512, 24.0)
    prepared = relabel(graph, "parallel_louvain")
    rows = []
    for model in MODELS:
        for name, mix, p in POINTS:
            for ahead in (0, 2):
                policy = Policy(name=name, mix=mix, p=p, batch=256 if arguments.small else 4096)
                training = Training(model=model, hidden=128, device=device, sampler="device", prefetch=ahead)
                rows.append(measure(prepared, policy, training))
                print(rows[-1], flush=True)
    machine = dict(comm_rand_on_gpu.list_versions(device))
    if device == "cuda":
        machine["gpu"] = torch.cuda.get_device_name()
    machine |= {"torch": str(torch.__version__), "date": datetime.now(UTC).isoformat(timespec="seconds")}
    found = {"machine": machine, "graph": graph.name, "rounds": ROUNDS, "rows": rows}
    Path(arguments.out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
