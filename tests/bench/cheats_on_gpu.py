"""Runs the corpus of cheats on a GPU (or another executor) and writes what became of each as JSON, row by row.

    python tests/bench/cheats_on_gpu.py [--seconds 900] [--executor gpu] [--out FILE] [--only NAME ...]

The cheats of the clock and of CUDA come first, then honest candidates, then those of tests/executors/cheats.py and the
files of tests/corpus. It stops by itself after --seconds: what is left has no row, and the file names it. A row's
`accepted` says that the verdict is correct, not refused and leaves no doubt; `expected` is "refused", "accepted" (an
honest candidate), or "open" (time can be forged in the candidate's own process: docs, page `gate`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path.insert(0, str(TESTS / "executors"))

from cheats import CHEATS, PROBLEMS, PROLOGUE  # noqa: E402

from workbench import problems  # noqa: E402
from workbench.errors import WorkbenchError  # noqa: E402
from workbench.session import Session  # noqa: E402

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
        "with torch.cuda.stream(side):\n    y = kernel(x)\nreturn y",
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


def list_cases() -> Iterator[tuple[str, str, str, str]]:
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


def judge(session: Session, name: str, source: str) -> dict[str, object]:
    """What became of one candidate."""
    start = time.monotonic()
    try:
        verdict = session.edit(source, title=name).trials[-1].verdict
    except WorkbenchError as error:
        return {"end": "error", "message": str(error), "accepted": False, "seconds": time.monotonic() - start}
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


def main() -> None:
    """Run what fits the time, and print how many ended otherwise than expected."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--executor", default="gpu")
    parser.add_argument("--out", type=Path, default=Path("cheats_on_gpu.json"))
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    cases = [one for one in list_cases() if not arguments.only or one[0] in arguments.only]
    rows: list[dict[str, object]] = []
    sessions: dict[str, Session] = {}
    with tempfile.TemporaryDirectory(prefix="cheats-") as root:
        for name, problem, expected, source in cases:
            if time.monotonic() > end:
                break
            if problem not in sessions:
                sessions[problem] = open_session(problem, arguments.executor, Path(root))
            rows.append(
                {"name": name, "problem": problem, "expected": expected, **judge(sessions[problem], name, source)}
            )
            left = [one[0] for one in cases[len(rows) :]]
            arguments.out.write_text(json.dumps({"rows": rows, "not_run": left}, indent=1) + "\n")
            print(f"{name:40} {rows[-1]['end']:18} {rows[-1]['seconds']:6.1f} s", flush=True)
        for session in sessions.values():
            session.close()
    unlike = [
        row["name"] for row in rows if row["expected"] != "open" and row["accepted"] != (row["expected"] == "accepted")
    ]
    still_open = [row["name"] for row in rows if row["expected"] == "open" and row["accepted"]]
    print(
        f"{len(rows)} of {len(cases)} judged; otherwise than expected: {unlike or 'none'}; open: {still_open or 'none'}"
    )


if __name__ == "__main__":
    main()
