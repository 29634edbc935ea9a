"""stream-K against the same configuration without it, and against torch.matmul (cuBLAS), on an H200: bfloat16 squares,
and sizes whose last wave is badly filled.

    python tests/bench/streamk_on_gpu.py --out results.json [--limit-s 240] [--rounds 9] [--only 2176x2048x8192]
    python tests/bench/streamk_on_gpu.py --dry-run                              (tiny shapes on the emulator; no GPU, no
    times)

Random normal data, b along k. Each kernel is first compared with a float32 product, and with itself over repeated
launches, bit by bit; then on two streams at once.
Times are CUDA graphs of each side, interleaved A B C A B C, medians; the graphs repeat a call on the same operands, so
that what fits in L2 is warm on all sides.
Written after every case. A kernel that waits for ever ends the process at the limit, with what was measured before.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from hopper_gemm_on_gpu import Case, device, error_of, facts, load, operands, replayer, seconds, settings

from workbench.analysis import devices
from workbench.language import Call, Stage
from workbench.language.operations.gemm.sm90 import config_of
from workbench.proposers.ladders.gemm_hopper_model import busy_share, model_time
from workbench.proposers.ladders.gemm_size import Size

STREAMK = Call(name="streamk", positional=("yes",))
CONFIGURATIONS = (settings((128, 256, 64), (2, 1)), settings((128, 256, 64)), settings((128, 128, 64), (2, 1)))
SIZES = (
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (2176, 2048, 8192),
    (2304, 4096, 4096),
    (4352, 4096, 4096),
    (1536, 1536, 16384),
    (1280, 1280, 16384),
    (3072, 3072, 3072),
    (512, 512, 32768),
)
ALLOWED = 8e-3  # relative error of the whole product, rounding of the result to bfloat16 included
REPEATED = 50  # launches whose results must have the same bits


def quantisation(case: Case, chosen: tuple[Call, ...]) -> dict[str, Any]:
    """Waves of whole tiles, how well they are filled, and the modelled times without and with stream-K (modelled, not
    measured)."""
    found: dict[str, Any] = {}
    for name, extra in (("whole", ()), ("streamk", (STREAMK,))):
        stage = Stage(
            operation=Call(name="gemm", positional=("a", "b")),
            settings=(
                Call(name="arch", positional=("sm_90a",)),
                Call(name="mma", positional=(case.kind,)),
                *chosen,
                *extra,
            ),
        )
        taken, tiles, ctas = model_time(config_of(stage), Size(m=case.m, n=case.n, k=case.k), devices.find("H200"))
        found |= {f"modelled_{name}_us": round(taken * 1e6, 2)} | (
            {"tiles": tiles, "waves": round(tiles / ctas, 3), "filled": round(busy_share(tiles, ctas), 3)}
            if name == "streamk"
            else {}
        )
    return found


def check_repeats(model: Any, tensors: list[torch.Tensor], dry: bool) -> str:
    """What is wrong with repeated launches, and with launches on two streams at once; "" where nothing is."""
    first = model(*tensors)
    for _ in range(1 if dry else REPEATED):
        if not torch.equal(first, model(*tensors)):
            return "another result at a later launch"
    if dry:
        return ""
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    results: list[list[torch.Tensor]] = [[], []]
    for _ in range(8):
        for stream, kept in zip(streams, results, strict=True):
            with torch.cuda.stream(stream):
                kept.append(model(*tensors))
    torch.cuda.synchronize()
    return (
        ""
        if all(torch.equal(first, got) for kept in results for got in kept)
        else "another result when two streams run it"
    )


def compare(sides: dict[str, Callable[[], Any]], flops: float, rounds: int) -> dict[str, Any]:
    """Interleaved medians of all sides, in microseconds, and their spreads."""
    repeats = max(1, min(100, int(2e-3 / (flops / 500e12))))
    graphs = {name: replayer(call, repeats) for name, call in sides.items()}
    for replay in graphs.values():
        seconds(replay, repeats)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, replay in graphs.items():
            times[name].append(seconds(replay, repeats))
    return {f"{name}_us": round(statistics.median(taken) * 1e6, 2) for name, taken in times.items()} | {
        f"{name}_spread": round(max(taken) / min(taken), 3) for name, taken in times.items()
    }


def measured(
    case: Case, chosen: tuple[Call, ...], tensors: list[torch.Tensor], folder: Path, arguments: argparse.Namespace
) -> dict[str, Any]:
    """One configuration at one size: errors, repeats, times."""
    row: dict[str, Any] = {"size": f"{case.m}x{case.n}x{case.k}"}
    models = {}
    for name, extra in (("whole", ()), ("streamk", (STREAMK,))):
        text, models[name] = load(case, (*chosen, *extra), folder)
        row |= {"program": text}
        row[f"{name}_error"] = error_of(case, tensors, models[name](*tensors))
        if not row[f"{name}_error"] < ALLOWED:
            return {**row, "failed": f"wrong result of {name}"}
    wrong = check_repeats(models["streamk"], tensors, arguments.dry_run)
    if wrong:
        return {**row, "failed": wrong}
    row |= quantisation(case, chosen)
    if not arguments.dry_run:
        flops = 2.0 * case.m * case.n * case.k
        row |= compare(
            {
                "whole": lambda: models["whole"](*tensors),
                "streamk": lambda: models["streamk"](*tensors),
                "torch": lambda: torch.matmul(*tensors),
            },
            flops,
            arguments.rounds,
        )
        row |= {
            "gain": round(row["whole_us"] / row["streamk_us"], 4),
            "of_torch": round(row["torch_us"] / row["streamk_us"], 4),
            "tflops": round(flops / row["streamk_us"] / 1e6, 1),
        }
    return row


def run(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """All sizes that fit into the time."""
    rows: list[dict[str, Any]] = []
    head, start = facts(), time.monotonic()
    sizes = ((136, 264, 1032),) if arguments.dry_run else SIZES
    for m, n, k in sizes:
        if arguments.only and f"{m}x{n}x{k}" not in arguments.only.split(","):
            continue
        case = Case("streamk", m, n, k)
        tensors = operands(case)
        for chosen in CONFIGURATIONS[2:] if arguments.dry_run else CONFIGURATIONS:
            if time.monotonic() - start > arguments.limit_s - 30:
                rows.append({"size": f"{m}x{n}x{k}", "skipped": "no time left"})
                continue
            try:
                rows.append(measured(case, chosen, tensors, folder, arguments))
            except Exception as error:
                rows.append(
                    {"size": f"{m}x{n}x{k}", "program": str(chosen), "failed": f"{type(error).__name__}: {error}"[:500]}
                )
            print(json.dumps(rows[-1]), flush=True)
            if arguments.out:
                arguments.out.write_text(
                    json.dumps(
                        {**head, "seconds": round(time.monotonic() - start), "rounds": arguments.rounds, "rows": rows},
                        indent=1,
                    )
                    + "\n"
                )
    return rows


def main() -> int:
    """Measure, print, write; 1 when anything fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="one tiny shape on the emulator")
    parser.add_argument(
        "--limit-s",
        type=float,
        default=240.0,
        help="the process ends after this; no new configuration in the last 30 s",
    )
    parser.add_argument("--only", default="", help="sizes, as 2048x2048x2048, with commas between them")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    faulthandler.dump_traceback_later(arguments.limit_s, exit=True)
    with tempfile.TemporaryDirectory() as folder, device(arguments):
        rows = run(arguments, Path(folder))
    failed = [row for row in rows if "failed" in row]
    gains = [row["gain"] for row in rows if "gain" in row]
    print(
        f"# {len(rows)} rows, {len(failed)} failed"
        + (f", geometric mean of the gains {math.exp(statistics.fmean(map(math.log, gains))):.3f}" if gains else ""),
        flush=True,
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
