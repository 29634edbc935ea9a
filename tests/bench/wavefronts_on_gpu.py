"""How many wavefronts a warp's shared-memory access takes on a GPU, for many address patterns, against the emulator's
rule.

python tests/bench/wavefronts_on_gpu.py --out results.json        (on a machine with an NVIDIA GPU and ncu)
python tests/bench/wavefronts_on_gpu.py --check results.json      anywhere: the rule against what was measured
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.emulator.execution.counters import count_wavefronts

METRICS = {
    "load": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "store": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}
WIDTHS = {4: ("b32", "%r2"), 8: ("v2.b32", "{%r2, %r3}"), 16: ("v4.b32", "{%r2, %r3, %r4, %r5}")}
SHARED = 40_960
TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k_WIDTH(.param .u64 data)
{
 .reg .b32 %r<12>; .reg .b64 %rd<8>; .shared .align 16 .b8 memory[SHARED];
 ld.param.u64 %rd1, [data]; cvta.to.global.u64 %rd1, %rd1;
 mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;
 ld.global.b32 %r6, [%rd2]; mov.u32 %r7, memory; add.u32 %r7, %r7, %r6;
 mov.u32 %r2, %r1; mov.u32 %r3, %r1; mov.u32 %r4, %r1; mov.u32 %r5, %r1;
 st.shared.TYPE [%r7], VALUE;
 bar.sync 0;
 ld.shared.TYPE VALUE, [%r7];
 MORE
 st.global.b32 [%rd2], %r2;
 ret;
}
"""


def patterns() -> dict[str, np.ndarray]:
    """Lane -> number of the unit that it accesses."""
    lane = np.arange(32)
    made = {
        "own": lane,
        "one": lane * 0,
        "reverse": 31 - lane,
        "pairs swapped": lane ^ 1,
        "halves swapped": lane ^ 16,
        "half own, half one": np.where(lane < 16, lane, 0),
        "quarter own, rest one": np.where(lane < 8, lane, 0),
    }
    made.update({f"lane / {n}": lane // n for n in (2, 4, 8, 16)})
    made.update({f"lane % {n}": lane % n for n in (2, 4, 8, 16)})
    made.update({f"{n} lane": n * lane for n in (2, 3, 4, 5, 8, 9, 16, 32, 33)})
    made.update({f"lane / {n}, far apart": lane // n * 32 for n in (2, 4, 8, 16)})
    made.update({f"lane % {n}, far apart": lane % n * 32 for n in (2, 4, 8, 16)})
    for span in (8, 16, 32, 64, 256, 1024):
        for seed in range(4):
            made[f"random below {span}, {seed}"] = np.random.default_rng(seed).integers(0, span, 32)
    return made


def kernel(width: int) -> str:
    """PTX of a kernel whose lanes store and load `width` bytes at the offsets that they are given."""
    kind, value = WIDTHS[width]
    more = "" if width == 4 else " ".join(f"add.u32 %r2, %r2, %r{n};" for n in range(3, 2 + width // 4))
    return (
        TEXT.replace("WIDTH", str(width))
        .replace("SHARED", str(SHARED))
        .replace("TYPE", kind)
        .replace("VALUE", value)
        .replace("MORE", more)
    )


def predicted(pattern: np.ndarray, width: int, write: bool) -> int:
    """The emulator's count."""
    return count_wavefronts(np.zeros(32, dtype=np.int64), pattern.astype(np.int64) * width, width, write)[0]


def launch_all() -> None:
    """What ncu watches: one warp for each pattern and width."""
    import torch

    driver = ctypes.CDLL("libcuda.so.1")
    torch.zeros(1, device="cuda")
    for width in WIDTHS:
        text = kernel(width)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        if status := driver.cuModuleLoadData(ctypes.byref(module), text.encode()):
            sys.exit(f"the driver refuses the kernel: {status}")
        driver.cuModuleGetFunction(ctypes.byref(function), module, f"k_{width}".encode())
        for name, pattern in patterns().items():
            if int(pattern.max()) * width + width > SHARED:
                continue
            data = torch.tensor((pattern * width).tolist(), dtype=torch.int32, device="cuda")
            address = ctypes.c_uint64(data.data_ptr())
            params = (ctypes.c_void_p * 1)(ctypes.addressof(address))
            print(f"CASE {width} {name}", flush=True)
            driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, params, None)
            torch.cuda.synchronize()


def measure(out: Path) -> None:
    """Run `launch_all` under ncu."""
    command = [
        "ncu",
        "--clock-control",
        "none",
        "-k",
        "regex:^k_",
        "--metrics",
        ",".join(METRICS.values()),
        "--page",
        "raw",
        "--csv",
        "--print-units",
        "base",
        sys.executable,
        __file__,
        "--launch",
    ]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    labels = [line[5:].split(" ", 1) for line in lines if line.startswith("CASE ")]
    at = next(n for n, line in enumerate(lines) if line.startswith('"ID"'))
    table = list(csv.DictReader(line for line in lines[at:] if line.startswith('"')))[1:]
    found = [
        {"width": int(width), "pattern": name, **{what: int(float(row[metric])) for what, metric in METRICS.items()}}
        for (width, name), row in zip(labels, table, strict=True)
    ]
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip()
    out.write_text(
        json.dumps({"date": datetime.now(UTC).isoformat(timespec="seconds"), "gpu": gpu, "cases": found}, indent=0)
        + "\n"
    )


def check(path: Path) -> int:
    """Print where the rule differs; the number of differences."""
    made, wrong = patterns(), 0
    cases = json.loads(path.read_text())["cases"]
    for case in cases:
        for write, what in ((False, "load"), (True, "store")):
            guess = predicted(made[case["pattern"]], case["width"], write)
            if guess != case[what]:
                wrong += 1
                print(
                    f"{what} of {case['width']:2d} bytes, {case['pattern']:24s} rule {guess:2d}, measured "
                    f"{case[what]:2d}"
                )
    print(f"{2 * len(cases) - wrong} of {2 * len(cases)} as predicted")
    return wrong


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--launch", action="store_true")
    arguments = parser.parse_args()
    if arguments.launch:
        launch_all()
    elif arguments.check:
        check(arguments.check)
    elif arguments.out:
        measure(arguments.out)


if __name__ == "__main__":
    main()
