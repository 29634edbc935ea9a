"""The emulator's L2 against Nsight Compute's, on six settings of the aggregation over (mix, p).

    python tests/bench/l2_on_gpu.py emulate --out emulated.json [--tiny]     anywhere; minutes without --tiny
    python tests/bench/l2_on_gpu.py profile --out profiled.json              on a GPU: runs itself under ncu
    python tests/bench/l2_on_gpu.py compare emulated.json profiled.json

A generated graph with planted communities, a batch of roots with fan-outs (10, 10); rows of x are those of the whole
graph, wider than L2. ncu empties caches before the kernel, and the emulator's L2 starts empty. Compared are the shares
of sectors that hit: all (`lts__t_sector_hit_rate`) and those of loads; a difference of 5 points is the aim.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.codegen import compile_program
from workbench.emulator import emulated
from workbench.graphs.batches import MiniBatches, Policy
from workbench.graphs.generators import Nodes, stochastic_block_model
from workbench.language import Binding
from workbench.profilers import ncu_metrics, ncu_pages

KNOBS = ((1.0, 0.5), (1.0, 1.0), (0.125, 0.5), (0.125, 1.0), (0.0, 0.5), (0.0, 1.0))
NAMES = ("x", "indptr", "indices")
PROGRAM = "aggregate(x, indptr, indices) .arch(sm_90a) .rows(8) .threads_per_row(32) .vector(4) .unroll(4)"
INIT = "def __init__(self):\n    super().__init__()\n"
METRICS = {
    "all": ncu_metrics.METRICS["l2_hit"],
    "loads_hit": "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
    "loads": "lts__t_sectors_srcunit_tex_op_read.sum",
}
AIM = 0.05
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def make_inputs(tiny: bool, device: str) -> dict[str, Callable[[], Tensors]]:
    """What makes (x, indptr, indices) of each setting."""
    nodes, columns, roots = (2048, 32, 64) if tiny else (60_000, 512, 512)
    graph = stochastic_block_model(nodes, max(nodes // 200, 8), given=Nodes(features=columns))
    x = torch.from_numpy(graph.features).to(device)

    def make(mix: float, p: float) -> Tensors:
        batch = next(iter(MiniBatches(graph, Policy(mix=mix, p=p, batch=roots, fanouts=(10, 10))).epoch(0)))
        return x, torch.from_numpy(batch.indptr).to(device), torch.from_numpy(batch.reads()).to(device)

    return {f"mix {mix:g}, p {p:g}": lambda mix=mix, p=p: make(mix, p) for mix, p in KNOBS}


def load(folder: str) -> tuple[Any, Path]:
    """The program's module and its path."""
    path = Path(folder) / "candidate.py"
    path.write_text(compile_program(PROGRAM, Binding(init_source=INIT, forward_arguments=NAMES)))
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew(), path


def emulate(options: argparse.Namespace) -> None:
    """Follow all CTAs of every setting in the device's L2."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        model, path = load(folder)
        for label, make in make_inputs(options.tiny, "cpu").items():
            start, tensors = time.perf_counter(), make()
            with emulated(arch="sm_90a", device=options.device, source_file=str(path), l2_share=1.0) as emulation:
                model(*tensors)
            l2 = emulation.launches[0].l2
            if l2 is None:
                sys.exit(f"{label}: too many requests for the emulator's L2; use fewer roots")
            loads = 1 - l2.missed / l2.loaded
            found[label] = {"all": l2.hit_rate, "loads": loads, "sectors": l2.loaded, "capacity": l2.capacity}
            options.out.write_text(json.dumps(found, indent=1) + "\n")
            print(
                f"{label}: {loads:.1%} of {l2.loaded} loaded sectors hit, {l2.hit_rate:.1%} of all; "
                f"{time.perf_counter() - start:.0f} s",
                flush=True,
            )


def launch(options: argparse.Namespace) -> None:
    """What ncu watches: every setting, once."""
    with tempfile.TemporaryDirectory() as folder:
        model, _ = load(folder)
        for label, make in make_inputs(options.tiny, "cuda").items():
            tensors = make()
            torch.cuda.synchronize()
            print("CASE", label, flush=True)
            model(*tensors)
            torch.cuda.synchronize()


def profile(options: argparse.Namespace) -> None:
    """Run `launch` under ncu."""
    flags = ["--clock-control", "none", "--cache-control", "all", "-k", "regex:aggregate", "--page", "raw", "--csv"]
    metrics = ["--print-units", "base", "--metrics", ",".join(METRICS.values())]
    tiny = ["--tiny"] if options.tiny else []
    command = ["ncu", *flags, *metrics, sys.executable, __file__, "launch", *tiny]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    table = [row for row, _ in ncu_pages.rows(done.stdout)]
    labels = [line[5:] for line in done.stdout.splitlines() if line.startswith("CASE ")]
    if not table or len(table) != len(labels):
        sys.exit(f"ncu said nothing that can be read: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    found = {}
    for label, row in zip(labels, table, strict=True):
        values = {name: ncu_pages.number(row.get(metric)) or 0.0 for name, metric in METRICS.items()}
        loads = values["loads_hit"] / values["loads"] if values["loads"] else None
        found[label] = {"all": values["all"] / 100, "loads": loads, "sectors": values["loads"]}
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    options.out.write_text(json.dumps({"machine": machine, "settings": found}, indent=1) + "\n")


def compare(options: argparse.Namespace) -> int:
    """Both sides beside each other; 1 if a setting is further off than AIM."""
    ours, theirs = (json.loads(path.read_text()) for path in options.files)
    worst = 0.0
    for label, mine in ours.items():
        other = theirs["settings"][label]
        worst = max(worst, abs(mine["all"] - other["all"]))
        print(
            f"{label}: all {mine['all']:.1%} / {other['all']:.1%}, loads {mine['loads']:.1%} / {other['loads']:.1%}, "
            f"sectors {mine['sectors']} / {other['sectors']:.0f}"
        )
    print(f"at worst {100 * worst:.1f} points off; the aim is {100 * AIM:.0f}")
    return 1 if worst > AIM else 0


def main() -> int:
    """One of the three parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("part", choices=("emulate", "profile", "launch", "compare"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, default=Path("l2.json"))
    parser.add_argument("--device", default="H200")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    if options.part == "compare":
        return compare(options)
    {"emulate": emulate, "profile": profile, "launch": launch}[options.part](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
