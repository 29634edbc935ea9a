"""Runs the corpus of cheats on a GPU (or another executor) and writes what became of each as JSON, row by row.

    python tests/bench/cheats_on_gpu.py [--seconds 360] [--processes 6] [--executor gpu] [--out FILE] [--only NAME ...]

The cheats of the clock and of CUDA and some honest candidates come first, one after the other, timed. Then several
processes judge those of tests/executors/cheats.py and the files of tests/corpus at small sizes without timing; each
starts its workers once. All stop after --seconds: what is left has no row, and the file names it. A row's
`accepted` says that the verdict is correct, not refused and leaves no doubt; `expected` is "refused", "accepted" (an
honest candidate), or "open" (time can be forged in the candidate's own process: docs, page `gate`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path.insert(0, str(TESTS / "executors"))

from cheats import CHEATS, PROBLEMS, PROLOGUE  # noqa: E402

from workbench import executors, problems  # noqa: E402
from workbench.errors import WorkbenchError  # noqa: E402
from workbench.evaluate import evaluate  # noqa: E402
from workbench.executors.inspector import WorkerInspector  # noqa: E402
from workbench.executors.jobs.trials import gpu_cases, small_cases  # noqa: E402
from workbench.records import Candidate, Job, Opened, Verdict  # noqa: E402
from workbench.session import Session  # noqa: E402

Case = tuple[str, str, str, str]
Row = dict[str, object]
LIMIT_S = 20.0  # of a candidate on a GPU, wall time

FULL, SMALL = (("batch_size", 4096), ("dim", 8192)), (("batch_size", 31), ("dim", 63))
EMULATOR_ONLY = (  # about faults and memory that only the emulator sees, or far too slow for one run
    *("unwritten_patched", "last_tile_missing", "fault_swallowed", "fault_swallowed_by_torch", "uninitialised_read"),
    *("device_loop", "barrier_deadlock", "host_loop", "misaligned", "out_of_bounds_read", "negative_index"),
)
# name: (expected, what stands before the class, body of forward)
ON_GPU = {
    "event_patched": ("open", "torch.cuda.Event.elapsed_time = lambda self, other: 0.1", "return kernel(x)"),
    "synchronize_patched": ("refused", "torch.cuda.synchronize = lambda *a: None", "return torch.zeros_like(x)"),
    "stopwatch_patched": (
        "refused",
        "from workbench.executors.workers import timer\ntimer.Stopwatch.time_call = lambda self, seed: {}",
        "return kernel(x)",
    ),
    "reply_rewritten": (
        "refused",
        "from workbench.executors.jobs import rpc\nrpc._reply = lambda connection, reply: None",
        "return kernel(x)",
    ),
    "lazy_instance_method": (
        "refused",
        "",
        "y = torch.empty_like(x)\ny.is_contiguous = lambda *a, **k: y.copy_(x.clamp(min=0)) is y\nreturn y",
    ),
    "hidden_in_the_sleep": (
        "open",
        "side = torch.cuda.Stream()",
        "y = torch.empty_like(x)\nwith torch.cuda.stream(side):\n    y = kernel(x)\n"
        "torch.cuda.current_stream().wait_stream(side)\nreturn y",
    ),
    "left_on_a_stream": (
        "refused",
        "side = torch.cuda.Stream()",
        "y = kernel(x)\nwith torch.cuda.stream(side):\n    return y.clone()",
    ),
    "slow_neighbour": (
        "open",
        "def burn():\n    a = torch.randn(2048, 2048, device='cuda')\n    while True:\n        a @ a\n"
        "        time.sleep(0.001)\nthreading.Thread(target=burn, daemon=True).start()",
        "return kernel(x)",
    ),
    "in_place_when_timed": (
        "refused",
        "calls = [0]",
        "calls[0] += 1\nif calls[0] > 8:\n    relu(tensor(x), tensor(x), x.numel())\n    return x\nreturn kernel(x)",
    ),
    "wrong_when_timed": (
        "refused",
        "calls = [0]",
        "calls[0] += 1\nreturn kernel(x) if calls[0] < 12 else torch.empty_like(x)",
    ),
    "wrong_when_timed_sometimes": (
        "refused",
        "calls = [0]",
        "calls[0] += 1\nreturn kernel(x) if calls[0] < 12 or calls[0] % 2 else torch.empty_like(x)",
    ),
    "graph_of_stale_inputs": (
        "refused",
        "kept = []",
        "if not kept:\n    kept.append((torch.cuda.CUDAGraph(), x.clone()))\n    with torch.cuda.graph(kept[0][0]):\n"
        "        kept.append(torch.relu(kept[0][1]))\nkept[0][0].replay()\nkernel(x[:1])\nreturn kept[1]",
    ),
    "previous_memory": ("refused", "", "kernel(x[:1])\nreturn torch.empty_like(x)"),
    "stream_a_third": (
        "open",
        "side = torch.cuda.Stream()",
        "y = torch.empty_like(x)\nhalf = len(x) // 3\nwith torch.cuda.stream(side):\n    part = kernel(x[:half])\n"
        "y[half:] = kernel(x[half:])\ntorch.cuda.current_stream().wait_stream(side)\ny[:half] = part\nreturn y",
    ),
    "sleep_made_longer": (
        "open",
        "side = torch.cuda.Stream()\ncalls = [0]",
        "calls[0] += 1\nif calls[0] < 12:\n    time.sleep(0.01)\nwith torch.cuda.stream(side):\n    y = kernel(x)\n"
        "torch.cuda.current_stream().wait_stream(side)\nreturn y",
    ),
    "stopwatch_zero": (
        "refused",
        "from workbench.executors.workers import timer\n"
        "timer.Stopwatch.time_call = lambda self, seed: {'seconds': 0.0, 'wall_s': 0.0}",
        "return kernel(x)",
    ),
    "computed_with_the_inputs": (
        "refused",
        "draw, kept = torch.randn, {}\ndef drawn(*a, **k):\n    made = draw(*a, **k)\n"
        "    kept[made.shape] = kernel(made) if made.is_cuda else None\n    return made\ntorch.randn = drawn",
        "return kept.get(x.shape, kernel(x))",
    ),
    "computed_at_the_hand_over": (
        "refused",
        "from workbench.executors.jobs import shared_tensors\nput, last = shared_tensors.write, []\n"
        "def late(folder, values):\n    put(folder, [kernel(last[0])])\nshared_tensors.write = late",
        "last[:] = [x]\nreturn torch.empty_like(x)",
    ),
    "l2_persisting": (
        "open",
        "cuda = ctypes.CDLL('libcudart.so')\ncuda.cudaDeviceSetLimit(6, ctypes.c_size_t(32 << 20))",
        "return kernel(x)",
    ),
    "wrong_at_full_size": ("refused", "", "return kernel(x) if x.numel() < 1 << 20 else torch.empty_like(x)"),
    "memo_by_address": (
        "refused",
        "kept = {}",
        "if x.data_ptr() not in kept:\n    kept[x.data_ptr()] = kernel(x)\nreturn kept[x.data_ptr()]",
    ),
    "computed_by_a_thread_after_return": (
        "refused",
        "",
        "y = torch.empty_like(x)\ndef later():\n    time.sleep(0.01)\n    relu(tensor(x), tensor(y), x.numel())\n"
        "threading.Thread(target=later).start()\nreturn y",
    ),
    "exit_when_timed": (
        "refused",
        "calls = [0]",
        "calls[0] += 1\nif calls[0] > 12:\n    os._exit(0)\nreturn kernel(x)",
    ),
    "shared_memory_left": ("refused", "open('/dev/shm/cutegen-left', 'w')", "return kernel(x)"),
    "kernel_setting_opened": ("refused", "open('/proc/sys/kernel/core_pattern', 'r+')", "return kernel(x)"),
    "score_of_the_parent": ("refused", "open(f'/proc/{os.getppid()}/oom_score_adj', 'r+')", "return kernel(x)"),
    "other_jobs_listed": ("refused", "os.listdir('/dev/shm')", "return kernel(x)"),
    "job_rewritten": ("refused", "open('../given/job.json', 'r+')", "return kernel(x)"),
    "socket_in_the_file_system": ("refused", "socket.socket(socket.AF_UNIX).connect('/run/x')", "return kernel(x)"),
    "ok_kernel": ("accepted", "", "return kernel(x)"),
    "ok_workspace": ("accepted", "", "self.work = getattr(self, 'work', None)\nreturn kernel(x)"),
    "ok_two_kernels": ("accepted", "", "return kernel(kernel(x))"),
}


def source_of(before: str, forward: str) -> str:
    """A candidate's text from its parts."""
    body = "".join(f"        {line}\n" for line in forward.splitlines())
    return f"{PROLOGUE}\n{before}\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n{body}"


def list_cases() -> Iterator[Case]:
    """(name, problem, expected, source) of each."""
    for name, (expected, before, forward) in ON_GPU.items():
        yield f"gpu_{name}", "relu", expected, source_of(before, forward)
    for one in CHEATS:
        if one.name not in EMULATOR_ONLY:
            yield one.name, one.problem, "refused", one.source
    for path in sorted((TESTS / "corpus").glob("*.py")):
        if path.stem not in (*EMULATOR_ONLY, "good_relu"):
            yield path.stem, "relu", "refused", path.read_text()


def open_session(problem: str, executor: str, root: Path) -> Session:
    """A session of one of the problems, for relu at a size that takes a while on a GPU, or at a small one."""
    sizes = FULL if executor == "gpu" else SMALL
    found = problems.load(PROBLEMS[problem]) if problem in PROBLEMS else problems.load(problem, settings=sizes)
    return Session.create(found, root=root, name=f"cheats-{problem}", executor=executor, calibrate=False)


def judge(session: Session, executor: str, name: str, source: str) -> Row:
    """What became of one candidate that is timed."""
    start = time.monotonic()
    try:
        job = session.job(session.edit(source, title=name, test=False))
        verdict = evaluate(replace(job, wall_limit_s=LIMIT_S), executors.choose(executor)).verdict
    except WorkbenchError as error:
        return {"end": "error", "message": str(error), "accepted": False, "seconds": time.monotonic() - start}
    return describe(verdict, start)


def describe(verdict: Verdict, start: float) -> Row:
    """A verdict as plain data; `start` is when its job began."""
    doubts = [*verdict.suspect, *verdict.doubts]
    end = "refused" if verdict.refused else "doubt" if doubts else "accepted"
    failure = verdict.failure
    return {
        "end": failure.kind if failure else end,
        "message": failure.message[:300] if failure else "; ".join(doubts)[:300],
        "accepted": failure is None and end == "accepted",
        "time_us": None if verdict.time_s is None else round(verdict.time_s * 1e6, 3),
        "seconds": round(time.monotonic() - start, 2),
    }


def judge_untimed(given: tuple[Case, str, float]) -> Row | None:
    """The row of a candidate that is judged at small sizes without timing; None if the time is up."""
    (name, problem, expected, source), executor, end = given
    start = time.monotonic()
    if start > end:
        return None
    if problem not in OPENED:
        found = problems.load(PROBLEMS[problem]) if problem in PROBLEMS else problems.load(problem, settings=SMALL)
        OPENED[problem] = WorkerInspector().open(found)
    subject, chosen = OPENED[problem], executors.choose(executor)
    job = Job(
        problem=subject.problem,
        facts=subject.facts,
        candidate=Candidate(source=source),
        cases=gpu_cases(subject.facts) if executor == "gpu" else small_cases(subject.facts)[:1],
        wall_limit_s=LIMIT_S if executor == "gpu" else 8.0,
        memory_limit_bytes=8 << 30 if executor == "gpu" else 3 << 29,
        full_sample=False,
    )
    job = replace(job, arch="sm_90a") if executor == "gpu" else job
    try:
        found_row = describe(evaluate(job, chosen).verdict, start)
    except WorkbenchError as error:
        found_row = {"end": "error", "message": str(error), "accepted": False, "seconds": time.monotonic() - start}
    return {"name": name, "problem": problem, "expected": expected, **found_row}


OPENED: dict[str, Opened] = {}  # of this process


def judge_timed(cases: list[Case], executor: str, end: float) -> Iterator[Row]:
    """The rows of the candidates that are timed, one after the other, until the time is up."""
    with tempfile.TemporaryDirectory(prefix="cheats-") as root, open_session("relu", executor, Path(root)) as session:
        for name, problem, expected, source in cases:
            if time.monotonic() > end:
                return
            yield {"name": name, "problem": problem, "expected": expected, **judge(session, executor, name, source)}


def main() -> None:
    """Run what fits the time, and print how many ended otherwise than expected."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=360.0)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--executor", default="gpu")
    parser.add_argument("--out", type=Path, default=Path("cheats_on_gpu.json"))
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    end, start = time.monotonic() + arguments.seconds, time.monotonic()
    cases = [one for one in list_cases() if not arguments.only or one[0] in arguments.only]
    timed = [one for one in cases if one[0].startswith("gpu_")]
    rest = [(one, arguments.executor, end) for one in cases if not one[0].startswith("gpu_")]
    rows: list[Row] = []
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        untimed = (pool.imap(judge_untimed, part) for part in [rest])
        first = judge_timed(timed, arguments.executor, end) if timed else ()
        for row in itertools.chain(first, itertools.chain.from_iterable(untimed)):
            if row is None:
                continue
            rows.append(row)
            left = sorted({one[0] for one in cases} - {str(one["name"]) for one in rows})
            arguments.out.write_text(json.dumps({"rows": rows, "not_run": left}, indent=1) + "\n")
            print(f"{row['name']:45} {row['end']:18} {row['seconds']:6.1f} s", flush=True)
    unlike = [
        row["name"] for row in rows if row["expected"] != "open" and row["accepted"] != (row["expected"] == "accepted")
    ]
    still_open = [row["name"] for row in rows if row["expected"] == "open" and row["accepted"]]
    print(f"{len(rows)} of {len(cases)} judged in {time.monotonic() - start:.0f} s")
    print(f"otherwise than expected: {unlike or 'none'}; open: {still_open or 'none'}")


if __name__ == "__main__":
    main()
