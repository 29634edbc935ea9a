"""The emulator's counters against Nsight Compute's, kernel by kernel, at the same sizes.

    python tests/bench/counters_vs_ncu.py emulate --out counted.json                       anywhere
    python tests/bench/counters_vs_ncu.py profile --out profiled.json                      on a GPU: runs itself under
    ncu
    python tests/bench/counters_vs_ncu.py compare counted.json profiled.json --out results/...

Exact are requests and sectors of global memory. Wavefronts of shared memory are up to 4 % more on the GPU (8 % in the
smallest kernel), where loads and stores of different warps meet in the same
cycle; alone, patterns are exact (wavefronts_on_gpu.py). Instructions and FLOPs are counted on PTX: ptxas unrolls,
folds, and makes several of one tanh, ex2 or division. L1 misses are of CTAs by
themselves: data that CTA after CTA reads on an SM (a norm's weights) is missed more often in the model.
DRAM bytes are those of the time model (terms.py): what the problem must move, times the passes that the
share of L2 does not hold.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
import workbench.problems as problems
from workbench.codegen import compile_program
from workbench.problems import inspection, loading
from workbench.profilers import ncu_metrics, ncu_pages
from workbench.proposers.binding import binding_of
from workbench.proposers.recognition import recognise
from workbench.records import Problem

METRICS = {
    **{
        ours: ncu_metrics.METRICS[theirs]
        for ours, theirs in (
            ("warp_instructions", "warp_instructions"),
            ("global_load_requests", "l1_load_requests"),
            ("global_store_requests", "l1_store_requests"),
            ("global_load_sectors", "l1_load_sectors"),
            ("global_store_sectors", "l1_store_sectors"),
            ("shared_load_wavefronts", "shared_load_wavefronts"),
            ("shared_store_wavefronts", "shared_store_wavefronts"),
            ("shared_wavefronts", "shared_wavefronts"),
            ("fadd", "fadd"),
            ("fmul", "fmul"),
            ("ffma", "ffma"),
            ("tensor_instructions", "tensor"),
            ("l2_read_sectors", "l2_read_sectors"),
            ("l2_write_sectors", "l2_write_sectors"),
            ("dram_read_bytes", "dram_read"),
            ("dram_write_bytes", "dram_write"),
            ("ns", "duration"),
        )
    },
    "global_load_hits": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
    "copy_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "shared_load_instructions": "smsp__inst_executed_op_shared_ld.sum",
    "shared_store_instructions": "smsp__inst_executed_op_shared_st.sum",
}


@dataclass(frozen=True)
class Case:
    """One version of a shipped problem, at sizes that both sides can run."""

    problem: str
    program: str
    settings: tuple[tuple[str, int], ...]
    precision: str = "fp32"

    @property
    def label(self) -> str:
        """What the case is called."""
        return f"{self.program} {dict(self.settings)} {self.precision}"

    def load(self) -> Problem:
        """The problem at these sizes."""
        settings = dict(self.settings)
        return problems.load(self.problem, settings=settings, precision=self.precision)  # type: ignore[arg-type]


def rows(name: str, *programs: str, **sizes: int) -> tuple[Case, ...]:
    """Cases of one problem in fp32."""
    return tuple(Case(name, program, tuple(sizes.items())) for program in programs)


GEMM = ".tile(128, 128, 32) .mma(bf16) .stages(3)"
CASES = (
    *rows(
        "relu",
        "elementwise(relu(x)) .arch(sm_90a) .threads(256)",
        "elementwise(relu(x)) .arch(sm_90a) .threads(256) .vector(4)",
        batch_size=4096,
        dim=16384,
    ),
    *rows("gelu_tanh", "elementwise(gelu_tanh(x)) .arch(sm_90a) .threads(128) .vector(4)", batch_size=4096, dim=16384),
    *rows(
        "softmax",
        "softmax(x) .arch(sm_90a) .threads_per_row(32)",
        "softmax(x) .arch(sm_90a) .threads_per_row(256) .vector(4)",
        "softmax(x) .arch(sm_90a) .threads_per_row(256) .vector(4) .kept()",
        batch_size=4096,
        dim=16384,
    ),
    *rows(
        "layer_norm",
        "layernorm(x, eps=1e-05) .arch(sm_90a) .threads_per_row(32) .vector(4)",
        "layernorm(x, eps=1e-05) .arch(sm_90a) .threads_per_row(256) .vector(4) .kept()",
        rows=8192,
        features=8192,
    ),
    *rows(
        "rms_norm",
        "rmsnorm(x, eps=1e-05) .arch(sm_90a) .threads_per_row(1024) .vector(4) .kept()",
        rows=8192,
        features=8192,
    ),
    *rows(
        "row_sum",
        "reduce(x, op=sum, axis=last) .arch(sm_90a) .threads_per_row(1)",
        "reduce(x, op=sum, axis=last) .arch(sm_90a) .threads_per_row(256) .vector(4)",
        rows=8192,
        columns=8192,
    ),
    *rows(
        "sum_middle_axis",
        "reduce(x, op=sum, axis=middle) .arch(sm_90a) .split(8)",
        batch_size=32,
        rows=2048,
        columns=1024,
    ),
    *rows("matvec", "matvec(x, vector, keepdim=1) .arch(sm_90a) .threads_per_row(256) .vector(4)", m=4096, k=16384),
    *rows(
        "matmul",
        "gemm(a, b) .arch(sm_90a)",
        "gemm(a, b) .arch(sm_90a) .tile(32, 32, 16) .thread_tile(2, 2)",
        "gemm(a, b) .arch(sm_90a) .tile(64, 64, 16) .thread_tile(4, 4)",
        "gemm(a, b) .arch(sm_90a) .tile(128, 128, 8) .thread_tile(8, 8)",
        n=1024,
    ),
    Case("matmul", f"gemm(a, b) .arch(sm_90a) {GEMM}", (("n", 1024),), "bf16"),
    Case(
        "matmul_bias_gelu",
        f"gemm(a, b) .arch(sm_90a) .layout(b=column) {GEMM} >> bias() >> gelu_tanh()",
        (("rows", 2048), ("features_in", 1024), ("features_out", 1024)),
        "bf16",
    ),
)


def candidate(case: Case, folder: Path) -> tuple[Problem, Any]:
    """The problem and the imported candidate."""
    problem = case.load()
    facts = inspection.inspect(problems.load(case.problem, precision=case.precision))  # type: ignore[arg-type]
    binding = binding_of(problem, facts, recognise(facts))
    path = folder / f"candidate_{abs(hash(case.label))}.py"
    path.write_text(compile_program(case.program, binding))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return problem, module


def call(case: Case, folder: Path, device: str) -> Any:
    """One call of the candidate, as a function."""
    problem, module = candidate(case, folder)
    reference = loading.load_module(problem)
    model = loading.build_model(module, "ModelNew", problem, device, init_from=reference).requires_grad_(False)
    inputs = loading.make_inputs(reference, problem, 1, device)
    return lambda: model(*inputs)


def emulate(arguments: argparse.Namespace) -> None:
    """Count every case in full on the emulator."""
    from full_size import Measured, full_work, sampled

    from workbench.emulator.hook import emulated
    from workbench.wire import to_plain

    found = []
    for case in CASES:
        start = time.perf_counter()
        with (
            tempfile.TemporaryDirectory() as name,
            emulated(arch="sm_90a", device="H200") as emulation,
            torch.no_grad(),
        ):
            run = call(case, Path(name), "cpu")
            run()
            text = next(Path(name).glob("candidate_*.py")).read_text()
        followed, _ = sampled(Measured(case.label, case.load(), text, 0.0), sample=4, limit_s=120)
        launches = [
            {**to_plain(launch), "paced": to_plain(other.paced), "lines": [], "findings": []}
            for launch, other in zip(emulation.launches, followed, strict=True)
        ]
        found.append({"label": case.label, "work": to_plain(full_work(case.load())), "launches": launches})
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{case.label}: {time.perf_counter() - start:.1f} s", flush=True)


def launch_all(_: argparse.Namespace) -> None:
    """What ncu watches: every case, once."""
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        for case in CASES:
            run = call(case, Path(name), "cuda")
            torch.cuda.synchronize()
            print("CASE", case.label, flush=True)
            run()
            torch.cuda.synchronize()


def profile(arguments: argparse.Namespace) -> None:
    """Run `launch_all` under ncu; caches are flushed before every pass, clocks left alone."""
    command = [
        "ncu",
        "--clock-control",
        "none",
        "--cache-control",
        "all",
        "-k",
        "regex:kernel_cutlass",
        "--metrics",
        ",".join(METRICS.values()),
        "--page",
        "raw",
        "--csv",
        "--print-units",
        "base",
        sys.executable,
        __file__,
        "launch",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    table = [row for row, _ in ncu_pages.rows(done.stdout)]
    if not table:
        sys.exit(f"ncu said nothing that can be read: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    labels = [line[5:] for line in done.stdout.splitlines() if line.startswith("CASE ")]
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    machine = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": subprocess.run(query, capture_output=True, text=True).stdout.strip(),
        "torch": torch.__version__,
        "ncu": subprocess.run(["ncu", "--version"], capture_output=True, text=True).stdout.splitlines()[-1],
    }
    kernels = [
        {
            "kernel": row["Kernel Name"],
            "id": row["ID"],
            **{name: ncu_pages.number(row.get(metric)) for name, metric in METRICS.items()},
        }
        for row in table
    ]
    arguments.out.write_text(json.dumps({"machine": machine, "labels": labels, "kernels": kernels}, indent=1) + "\n")
    print(f"{len(labels)} cases, {len(kernels)} kernels")


def compare(arguments: argparse.Namespace) -> None:
    """Both sides beside each other, kernel by kernel; what is exact, and how far off the rest is."""
    from workbench.analysis import devices
    from workbench.analysis.time_model import terms
    from workbench.records import Launch, Work
    from workbench.wire import from_plain

    counted, measured = (json.loads(path.read_text()) for path in arguments.files)
    rows = []
    for ours, theirs in zip(counted, measured["kernels"], strict=True):
        (plain,) = ours["launches"]
        launch, work = from_plain(plain, Launch), from_plain(ours["work"], Work)
        ncu = {name: value or 0.0 for name, value in theirs.items() if isinstance(value, (int, float)) or value is None}
        total, paced = launch.total, launch.paced
        assert paced is not None
        ctas = launch.grid[0] * launch.grid[1] * launch.grid[2] / paced.ctas
        copied = (
            total.global_sectors - (paced.l1_sectors + paced.written) * ctas
            # by cp.async: ncu takes them for loads that miss, and leaves out what they write to shared memory,
            # 128 bytes a wavefront
        )
        pairs = {
            "global requests": (total.global_requests, ncu["global_load_requests"] + ncu["global_store_requests"]),
            "global sectors": (
                total.global_sectors,
                ncu["global_load_sectors"] + ncu["global_store_sectors"] + ncu["copy_sectors"],
            ),
            "shared wavefronts": (
                total.shared_wavefronts - copied / 4,
                ncu["shared_load_wavefronts"] + ncu["shared_store_wavefronts"],
            ),
            "warp instructions": (total.instructions / 32, ncu["warp_instructions"]),
            "issue slots": (paced.issue * paced.ctas * ctas, ncu["warp_instructions"]),
            "FLOPs": (total.flops, ncu["fadd"] + ncu["fmul"] + 2 * ncu["ffma"]),
            "L1 misses": (paced.l1_missed * ctas + copied, ncu["global_load_sectors"] - ncu["global_load_hits"]),
            "DRAM bytes": (
                sum(terms.find_dram_bytes(launch, work, 1.0, devices.find("H200"))),
                ncu["dram_read_bytes"] + ncu["dram_write_bytes"],
            ),
        }
        rows.append(
            {
                "label": ours["label"],
                "ns": ncu["ns"],
                **{name: {"ours": round(a), "ncu": round(b)} for name, (a, b) in pairs.items()},
            }
        )
        print(ours["label"])
        print(
            "   "
            + ", ".join(
                f"{name} {a:.4g}/{b:.4g}" + (f" ({a / b:.3f})" if b and abs(a / b - 1) > 1e-9 else "")
                for name, (a, b) in pairs.items()
            )
        )
    for name in (
        "global requests",
        "global sectors",
        "shared wavefronts",
        "warp instructions",
        "issue slots",
        "FLOPs",
        "L1 misses",
        "DRAM bytes",
    ):
        off = sorted(abs(row[name]["ours"] / row[name]["ncu"] - 1) for row in rows if row[name]["ncu"])
        exact = sum(row[name]["ours"] == row[name]["ncu"] for row in rows)
        print(
            f"{name}: {exact} of {len(rows)} equal; of {len(off)} with any: median "
            f"{100 * off[len(off) // 2]:.2f} % off, at most {100 * off[-1]:.1f} %"
        )
    arguments.out.write_text(json.dumps({"machine": measured["machine"], "rows": rows}, indent=1) + "\n")


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function in (("emulate", emulate), ("profile", profile), ("launch", launch_all), ("compare", compare)):
        sub = commands.add_parser(name)
        sub.add_argument("--out", type=Path, default=Path(f"{name}.json"))
        sub.set_defaults(function=function)
        if function is compare:
            sub.add_argument("files", type=Path, nargs=2, help="what emulate and profile wrote")
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
