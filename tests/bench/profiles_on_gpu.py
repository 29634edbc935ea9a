"""Profiles of some emitted versions on an H200, kept as one file for the tutorials: ncu with stalls by line, timeline,
energy.

    python tests/bench/profiles_on_gpu.py --out profiles.json [--only softmax,attention] [--by ncu+timeline+energy]
    python tests/bench/profiles_on_gpu.py --out profiles.json --by counters            (on the emulator at small sizes;
    no GPU: that the script runs)

Written after every version, so that a run that is cut keeps what it has. Shipped ones lie in
workbench/profilers/recordings/.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
import workbench.problems as problems
from workbench.codegen import compile_program
from workbench.errors import WorkbenchError
from workbench.executors.inspector import WorkerInspector
from workbench.profilers import recorded
from workbench.profilers.counters import CounterProfiler
from workbench.profilers.emulation import run_on_emulator
from workbench.profilers.energy import EnergyProfiler
from workbench.profilers.ncu import NcuProfiler
from workbench.profilers.timeline import TimelineProfiler
from workbench.proposers.binding import binding_of
from workbench.proposers.recognition import recognise
from workbench.records import Candidate, Facts, Job, Outcome, Problem, Profile
from workbench.session import recording

PROFILERS = {"ncu": NcuProfiler, "timeline": TimelineProfiler, "energy": EnergyProfiler}


@dataclass(frozen=True)
class Subject:
    """One version: a shipped problem at its own size, and its program."""

    name: str
    problem: str
    program: str
    precision: str = "fp32"

    def load(self) -> Problem:
        """The problem."""
        if self.problem == "attention":
            return dataclasses.replace(recording.load(self.problem).problem, precision="fp16")
        return problems.load(self.problem, precision=self.precision)  # type: ignore[arg-type]

    def source(self, problem: Problem, facts: Facts) -> str:
        """The candidate's text."""
        return compile_program(self.program, binding_of(problem, facts, recognise(facts)))


GEMM = "gemm(a, b) .arch(sm_90a)"
SUBJECTS = (
    Subject("softmax first", "softmax", "softmax(x) .arch(sm_90a) .threads_per_row(1)"),
    Subject("softmax best", "softmax", "softmax(x) .arch(sm_90a) .threads_per_row(256) .vector(4) .kept()"),
    Subject(
        "layer_norm best",
        "layer_norm",
        "layernorm(x, eps=1e-05) .arch(sm_90a) .threads_per_row(256) .vector(4) .kept()",
    ),
    Subject(
        "matmul cooperative",
        "matmul",
        f"{GEMM} .tile(128, 256, 64) .mma(bf16) .schedule(cooperative) .cluster(2, 1)",
        "bf16",
    ),
    Subject(
        "matmul pingpong", "matmul", f"{GEMM} .tile(128, 128, 64) .mma(bf16) .schedule(pingpong) .cluster(2, 1)", "bf16"
    ),
    Subject(
        "matmul_bias_gelu best",
        "matmul_bias_gelu",
        f"{GEMM} .layout(b=column) .tile(128, 128, 64) .mma(bf16) .schedule(pingpong) .cluster(2, 1) >> "
        "bias() >> gelu_tanh()",
        "bf16",
    ),
    Subject("attention flash", "attention", "attention(q, k, v) .arch(sm_90a) .mma(f16) .schedule(flash)"),
)


def profiled(subject: Subject, by: str) -> recorded.Recorded:
    """One version under every profiler; one that cannot run is a note."""
    problem = subject.load()
    facts = WorkerInspector().inspect(problem)
    job = Job(
        problem=problem,
        facts=facts,
        candidate=Candidate(source=subject.source(problem, facts), program=subject.program),
        arch="sm_90a",
        device="H200",
        cases=("full",),
        trials=1,
        want_sass=True,
        wall_limit_s=300.0,
    )
    found: list[Profile] = []
    if by == "counters":
        found.append(CounterProfiler().profile(dataclasses.replace(job, cases=("shrunk",)), run_on_emulator(job)))
    for name in [] if by == "counters" else by.split("+"):
        start = time.perf_counter()
        profiler = PROFILERS[name]()
        missing = profiler.why_not()
        if missing:
            sys.exit(f"{name} cannot run here: {missing}")
        found.append(profiler.profile(job, Outcome(executor="gpu", arch="sm_90a", device="H200")))
        print(
            f"  {name}, {time.perf_counter() - start:.0f} s: {found[-1].summary}"
            + "".join(f"\n    note: {note}" for note in found[-1].notes)
            + f"\n    protections: {', '.join(found[-1].protections)}",
            flush=True,
        )
    work = next((item for item in facts.work if item.case == "full"), None)
    return recorded.Recorded(
        name=subject.name,
        title=subject.program,
        source=job.candidate.source,
        profile=recorded.compact(recorded.merge_profiles(found)),
        machine=machine(),
        flops=float(work.flops) if work else None,
        least_bytes=float(work.least_bytes) if work else None,
    )


def machine() -> tuple[tuple[str, str], ...]:
    """Where and with what."""
    out = [
        ("date", datetime.now(UTC).isoformat(timespec="seconds")),
        ("torch", version("torch")),
        ("cutlass dsl", version("nvidia-cutlass-dsl")),
    ]
    for name, command in (
        ("gpu", ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]),
        ("ncu", ["ncu", "--version"]),
    ):
        try:
            out.append(
                (
                    name,
                    subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip().splitlines()[-1],
                )
            )
        except (OSError, IndexError, subprocess.TimeoutExpired):
            continue
    return tuple(out)


def main() -> int:
    """Profile, print, write; 1 when a version gave nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", default="", help="words that a version's name must contain one of, separated by commas"
    )
    parser.add_argument("--by", default="ncu+timeline+energy")
    arguments = parser.parse_args()
    rows, failed = [], False
    for subject in SUBJECTS:
        if arguments.by == "counters" and not subject.program:
            continue  # its heads are too narrow for the kernel once they are shrunk
        if arguments.only and not any(word in subject.name for word in arguments.only.split(",")):
            continue
        print(f"--- {subject.name}", flush=True)
        try:
            rows.append(profiled(subject, arguments.by))
        except WorkbenchError as error:
            failed = True
            print(f"  failed: {error}", flush=True)
            continue
        recorded.save(arguments.out, rows)
        made = rows[-1].profile
        failed |= not made.kernels
        print(
            f"  {len(made.kernels)} kernels, {len(made.lines)} lines, stalls on "
            f"{sum(bool(line.stalls) for line in made.lines)}; {arguments.out.stat().st_size} bytes so far",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
