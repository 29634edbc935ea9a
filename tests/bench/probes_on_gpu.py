"""Do the emulator and Nsight Compute lead to the same advice? Kernels profiled by both, and the probes on each profile.

    python tests/bench/probes_on_gpu.py take --out profiles.jsonl [--seconds 500] [--only softmax]      on a GPU
    python tests/bench/probes_on_gpu.py take --out profiles.jsonl --without-gpu             that the script runs
    python tests/bench/probes_on_gpu.py planted tests/probes/profiles.jsonl.gz --out results/planted_kernels.json
    python tests/bench/probes_on_gpu.py compare profiles.jsonl [--out results/h200_probe_agreement.json]

`take` writes a line for each kernel: the problem's work, the candidate's text, the profile that the emulator counts at
full size, and the one of `ncu+sass`. It goes on where the file ends. `compare` asks every probe about both. A probe
decides for a kernel if its advice is of medium or high severity. Agreement is the share of equal decisions of all
probes on all kernels; that of the two sets by kernel (Jaccard) and the first advice are printed beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "probes"))
from planted_kernels import PLANTED

from workbench.analysis import devices, speed_of_light
from workbench.codegen import compile_program
from workbench.errors import WorkbenchError
from workbench.executors.full_size import FullSizeRun
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.client import server
from workbench.landscapes import landscapes
from workbench.probes import diagnose, load_probes
from workbench.profilers import sass
from workbench.profilers.counters import profile_full_size
from workbench.profilers.ncu import PROBLEM_FLOPS, NcuProfiler, credit_flops
from workbench.proposers.binding import binding_of
from workbench.proposers.recognition import recognise
from workbench.records import Candidate, Diagnosis, Facts, Job, Outcome, Problem, Profile, Work
from workbench.wire import from_plain, to_plain

DECIDES = ("medium", "high")


@dataclass(frozen=True)
class Subject:
    """A program of a landscape's problem."""

    place: str
    program: str

    @property
    def name(self) -> str:
        """What the kernel is called in files."""
        return f"{self.place}: {self.program}"

    def load(self) -> Problem:
        """The landscape's problem."""
        return landscapes()[self.place].problem()

    def source(self, problem: Problem, facts: Facts) -> str:
        """The candidate's text."""
        return compile_program(self.program, binding_of(problem, facts, recognise(facts)))


GEMM = "gemm(a, b) .arch(sm_90a)"
SUBJECTS = (
    Subject("softmax", "softmax(x) .arch(sm_90a) .threads_per_row(1) .unroll(8)"),
    Subject("softmax", "softmax(x) .arch(sm_90a) .kept() .threads_per_row(1024) .unroll(8) .vector(4)"),
    Subject("layer_norm", "layernorm(x, eps=1e-05) .arch(sm_90a) .kept() .threads_per_row(512) .vector(4)"),
    Subject("layer_norm", "layernorm(x, eps=1e-05) .arch(sm_90a) .kept() .threads_per_row(64) .vector(4)"),
    Subject("layer_norm", "layernorm(x, eps=1e-05) .arch(sm_90a) .threads_per_row(32)"),
    Subject("relu", "elementwise(relu(x)) .arch(sm_90a) .threads(128) .unroll(1)"),
    Subject("relu", "elementwise(relu(x)) .arch(sm_90a) .unroll(1) .vector(4)"),
    Subject("row_sum", "reduce(x, op=sum, axis=last) .arch(sm_90a) .parts(512) .vector(2)"),
    Subject("sum_middle_axis", "reduce(x, op=sum, axis=middle) .arch(sm_90a) .split(16) .vector(2)"),
    Subject("matvec", "matvec(x, vector, keepdim=1) .arch(sm_90a) .threads_per_row(32)"),
    Subject("cross_entropy", "crossentropy(x, target) .arch(sm_90a) .threads_per_row(32)"),
    Subject("matmul_fp32_4096", f"{GEMM} .thread_tile(8, 8) .tile(64, 64, 32)"),
    Subject("matmul_bf16_4096", f"{GEMM} .mma(bf16) .schedule(cooperative) .stages(2) .tile(128, 128, 64)"),
    Subject("matmul_bf16_4096", f"{GEMM} .cluster(2, 1) .mma(bf16) .schedule(cooperative) .tile(128, 32, 128)"),
    Subject("matmul_bf16_4096", f"{GEMM} .mma(bf16) .schedule(cooperative) .tile(128, 192, 64)"),
    Subject("matmul_bf16_4096", f"{GEMM} .cluster(2, 1) .mma(bf16) .schedule(cooperative) .store(tma, 4)"),
    Subject("matmul_bf16_4096", f"{GEMM} .mma(bf16) .stages(3) .tile(128, 128, 32)"),
    Subject("deep_bf16", f"{GEMM} .cluster(2, 1) .mma(bf16) .schedule(cooperative)"),
    Subject("attention_97", "attention(q, k, v) .arch(sm_90a) .mma(tf32) .schedule(stages)"),
    Subject("conv2d_depthwise_82", "conv(x, w, groups=channels) .arch(sm_90a) .threads(32)"),
)


def profile_both(subject: Any, *, on_gpu: bool) -> dict[str, Any]:
    """One kernel's profiles, as plain data."""
    problem = subject.load()
    facts = WorkerInspector().inspect(problem)
    work = next(item for item in facts.work if item.case == "full")
    job = Job(
        problem=problem,
        facts=facts,
        candidate=Candidate(source=subject.source(problem, facts), program=getattr(subject, "program", "")),
        arch="sm_90a",
        device="H200",
        cases=("full",),
        trials=1,
        want_sass=True,
        wall_limit_s=300.0,
        memory_limit_bytes=16 << 30,
    )
    emulated = emulate(job)
    measured = measure(job) if on_gpu else None
    return {
        "kernel": subject.name,
        "work": to_plain(work),
        "source": job.candidate.source,
        "emulated": to_plain(strip(emulated)),
        "measured": to_plain(strip(measured)) if measured is not None else None,
    }


def emulate(job: Job) -> Profile:
    """The profile from a few CTAs of each launch at full size."""
    with FullSizeRun(job, server()) as full:
        outcome = full.add_to(Outcome(executor="emulator", arch=job.arch, device=job.device), None)
    found = profile_full_size(job.facts, job.candidate.source, outcome)
    if found is None:
        raise WorkbenchError(f"not counted: {outcome.failure.message if outcome.failure else outcome.full_note}")
    return found


def measure(job: Job) -> Profile:
    """The profile of `ncu+sass`: ncu's run keeps the machine code, so it places instructions on lines too."""
    profiler = NcuProfiler()
    missing = profiler.why_not()
    if missing:
        raise WorkbenchError(f"ncu cannot run here: {missing}")
    found = profiler.profile(job, Outcome(executor="gpu", arch=job.arch, device=job.device))
    if not found.lines:
        found = dataclasses.replace(found, lines=sass.source_lines(found.builds, job.candidate.source))
    return found


def strip(profile: Profile) -> Profile:
    """A profile without launches, binaries and lines on which nothing was seen."""
    lines = tuple(line for line in profile.lines if line.stalls or line.executed or line.sectors or line.wavefronts)
    return dataclasses.replace(profile, launches=(), builds=(), lines=lines)


def take(out: Path, seconds: float, only: str, *, on_gpu: bool, planted: bool = False) -> int:
    """Profile what the file does not have yet, `planted` kernels only or all; 1 if a kernel could not be profiled."""
    done = {row["kernel"] for row in map(json.loads, out.read_text().splitlines())} if out.exists() else set()
    deadline, failed = time.monotonic() + seconds, 0
    words = only.split(",")
    with out.open("a") as file:
        for subject in (*(() if planted else SUBJECTS), *PLANTED):
            if subject.name in done or not any(word in subject.name for word in words):
                continue
            if time.monotonic() > deadline:
                print("out of time; run again to go on", flush=True)
                break
            start = time.monotonic()
            try:
                row = profile_both(subject, on_gpu=on_gpu)
            except Exception as error:  # one kernel does not stop the others
                failed += 1
                print(f"{subject.name}: {type(error).__name__}: {error}"[:300], flush=True)
                continue
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            file.flush()
            notes = "; ".join(row["measured"]["notes"]) if row["measured"] else ""
            print(f"{subject.name}: {time.monotonic() - start:.1f} s {notes}", flush=True)
    return int(failed > 0)


def diagnose_plain(row: dict[str, Any], which: str) -> Diagnosis:
    """The diagnosis from one of a kernel's two profiles, all probes asked."""
    profile, work = from_plain(row[which], Profile), from_plain(row["work"], Work)
    if which == "measured" and PROBLEM_FLOPS in profile.notes:  # as the profiler reads it now
        profile = dataclasses.replace(profile, kernels=(credit_flops(profile.kernels[0], work),))
    bound = speed_of_light.bound(work, devices.find(profile.device))
    found = diagnose(profile, bound, row["source"], probes=load_probes())
    if found is None:
        raise WorkbenchError(f"{row['kernel']}: no time in the profile of {which}")
    return found


def compare(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Agreement over all kernels, by probe and by kernel; the differences are printed."""
    names = [probe.name for probe in load_probes()]
    same: dict[str, list[bool]] = {name: [] for name in names}
    kernels, first = {}, []
    for row in rows:
        both = [diagnose_plain(row, which) for which in ("emulated", "measured")]
        decided = [{item.probe for item in found.advice if item.severity in DECIDES} for found in both]
        for name in names:
            same[name].append((name in decided[0]) == (name in decided[1]))
        union = decided[0] | decided[1]
        top = [found.advice[0].probe if found.advice else "" for found in both]
        first.append(top[0] == top[1])
        kernels[row["kernel"]] = {
            "jaccard": round(len(decided[0] & decided[1]) / len(union), 3) if union else 1.0,
            "emulated": sorted(decided[0]),
            "measured": sorted(decided[1]),
            "first": top,
        }
        print(f"{row['kernel']}\n  first {' | '.join(top)}")
        print("".join(f"  {text}\n" for text in describe_differences(row, both, decided)), end="")
    everything = [value for values in same.values() for value in values]
    return {
        "kernels": kernels,
        "agreement": round(statistics.fmean(everything), 4),
        "by_probe": {name: round(statistics.fmean(values), 3) for name, values in same.items()},
        "first_equal": round(statistics.fmean(first), 3),
    }


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file that `take` wrote, gzipped or not."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return [json.loads(line) for line in text.splitlines()]


def find_planted(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each planted kernel whether the right probe is first, and whether it names the slow line."""
    by_name = {row["kernel"]: row for row in rows}
    found = []
    for planted in PLANTED:
        row = by_name[planted.name]
        profile = from_plain(row["emulated"], Profile)
        bound = speed_of_light.bound(from_plain(row["work"], Work), devices.find(profile.device))
        diagnosis = diagnose(profile, bound, row["source"])
        top = diagnosis.advice[0] if diagnosis is not None and diagnosis.advice else None
        first = top is not None and top.probe == planted.probe
        line = first and top is not None and top.line in planted.lines(row["source"])
        found.append({"kernel": planted.name, "probe": planted.probe, "first": first, "line": line})
    return found


def describe_differences(row: dict[str, Any], both: Sequence[Diagnosis], decided: Sequence[set[str]]) -> Iterator[str]:
    """For each probe that decides differently: what it saw in each profile."""
    for name in sorted(decided[0] ^ decided[1]):
        said = []
        for which, found in zip(("emulated", "measured"), both, strict=True):
            advice = next((item for item in found.advice if item.probe == name), None)
            if advice is None:
                said.append(f"{which}: silent")
                continue
            seen = ", ".join(f"{item.name} {item.value:.3g}/{item.limit or 0:.3g}" for item in advice.evidence)
            said.append(f"{which}: gain {advice.gain:.2f} ({seen})")
        yield f"{name}: {' | '.join(said)}"
    if decided[0] ^ decided[1]:
        for which in ("emulated", "measured"):
            yield f"  {which}: {describe_shares(from_plain(row[which], Profile))}"


def describe_shares(profile: Profile) -> str:
    """The shares of the longest kernel's time, and its stalls."""
    from workbench.probes.signals import read_signals

    longest = max(read_signals(profile), key=lambda kernel: kernel.seconds)
    shares = ", ".join(f"{name} {part:.2f}" for name, part in longest.busy.items() if part >= 0.05)
    whole = sum(part for _, part in longest.metrics.stalls) or 1.0
    stalls = ", ".join(f"{name} {part / whole:.2f}" for name, part in longest.metrics.stalls[:4])
    return f"{longest.seconds * 1e6:.1f} us; {shares}; stalls {stalls}"


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    taking = modes.add_parser("take")
    taking.add_argument("--out", type=Path, required=True)
    taking.add_argument("--seconds", type=float, default=500.0)
    taking.add_argument("--only", default="", help="parts of kernels' names, separated by commas")
    taking.add_argument("--without-gpu", action="store_true", help="the emulator's profile only")
    taking.add_argument("--only-planted", action="store_true", help="the kernels of tests/probes only")
    comparing = modes.add_parser("compare")
    comparing.add_argument("profiles", type=Path)
    comparing.add_argument("--out", type=Path)
    finding = modes.add_parser("planted", help="are planted kernels found? From their emulated profiles")
    finding.add_argument("profiles", type=Path)
    finding.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.mode == "planted":
        found = find_planted(read_rows(arguments.profiles))
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
        print(f"first {sum(row['first'] for row in found)}, line {sum(row['line'] for row in found)} of {len(found)}")
        return 0
    if arguments.mode == "take":
        return take(
            arguments.out,
            arguments.seconds,
            arguments.only,
            on_gpu=not arguments.without_gpu,
            planted=arguments.only_planted,
        )
    rows = [row for row in read_rows(arguments.profiles) if row["measured"]]
    result = compare(rows)
    print(f"agreement {result['agreement']:.3f} of {len(rows)} kernels; first advice equal {result['first_equal']:.2f}")
    print("  " + ", ".join(f"{name} {value:.2f}" for name, value in result["by_probe"].items() if value < 1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
