"""PTX on the emulator against a real GPU, bit by bit: every instruction form of tests/emulator/sequences.py alone,
random sequences, whole kernels.

    python tests/bench/ptx_vs_gpu.py --out results.json        (on a machine with an NVIDIA GPU; sm_90a)

Each kernel runs on the emulator and on the GPU from the same bits; the result says how many of its words are equal and,
for floats that are
not, how far apart they are in units of the last place (NaN equals NaN).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "emulator"))
from engines import HEAD, START, aligned
from sequences import BODIES, FLOAT, INTEGER, sequence, values

from workbench.emulator.execution.launch import DeviceLimits, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine

SEQUENCES = 60
UNSPECIFIED = (
    "special registers",
    "a register that nothing wrote",
    "shuffle that reads a lane which is not there",
)  # PTX leaves open what comes out
DRIVER = ctypes.CDLL("libcuda.so.1")


def kernels() -> list[tuple[str, str, str, np.ndarray, int]]:
    """(name, kind, body, data, threads in a CTA) of every kernel."""
    made = []
    for kind, templates, prefix in (("integer", INTEGER, "r"), ("float", FLOAT, "f")):
        for number, template in enumerate(templates):
            made.append(
                (
                    " ; ".join(template.split("\n"))[:80],
                    kind,
                    sequence([(template, (0, 1, 2, 3))], prefix, 10),
                    values(number),
                    64,
                )
            )
        for seed in range(SEQUENCES):
            draw = random.Random(seed)
            chosen = [
                (draw.choice(templates), (draw.randrange(8), draw.randrange(8), draw.randrange(8), draw.randrange(8)))
                for _ in range(draw.randint(2, 12))
            ]
            made.append(
                (f"{kind} sequence {seed}", f"{kind} sequence", sequence(chosen, prefix, 10), values(1000 + seed), 64)
            )
    for name, body in BODIES.items():
        if name in UNSPECIFIED:
            continue
        data = aligned(4096)
        data[:] = np.arange(len(data)) * 2654435761 % 2**32 if "float" not in name else 0
        made.append((name, "kernel", body, data, 64))
    return made


def on_emulator(text: str, data: np.ndarray, threads: int) -> np.ndarray:
    """The data after the kernel."""
    memory = GlobalMemory()
    mine = aligned(len(data))
    mine[:] = data
    memory.register(mine.ctypes.data, mine.nbytes, "data")
    request = GridRequest(
        entry="k",
        grid=(1, 1, 1),
        block=(threads, 1, 1),
        params=(mine.ctypes.data.to_bytes(8, "little"), (0).to_bytes(4, "little")),
        counters=False,
    )
    Machine(text, DeviceLimits(), engine="numpy").run(request, memory)
    return mine.copy()


def on_gpu(text: str, data: np.ndarray, threads: int) -> np.ndarray | str:
    """The data after the kernel, or why the driver refuses it."""
    log = ctypes.create_string_buffer(4096)
    options, answers = (
        (ctypes.c_int * 2)(5, 6),
        (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p).value, 4096),
    )  # CU_JIT_ERROR_LOG_BUFFER and its size
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    if DRIVER.cuModuleLoadDataEx(ctypes.byref(module), text.encode(), 2, options, answers):
        return "refused: " + " ".join(log.value.decode(errors="replace").split())[:200]
    DRIVER.cuModuleGetFunction(ctypes.byref(function), module, b"k")
    there = torch.from_numpy(data.view(np.int32).copy()).cuda()
    address, value = ctypes.c_uint64(there.data_ptr()), ctypes.c_uint32(0)
    params = (ctypes.c_void_p * 2)(ctypes.addressof(address), ctypes.addressof(value))
    status = DRIVER.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, None, params, None)
    torch.cuda.synchronize()
    DRIVER.cuModuleUnload(module)
    return f"launch failed: {status}" if status else there.cpu().numpy().view(np.uint32)


def compare(kind: str, emulated: np.ndarray, real: np.ndarray) -> dict[str, Any]:
    """Equal words, and for floats the largest distance in units of the last place."""
    same = emulated == real
    if kind.startswith("float"):
        a, b = emulated.view(np.float32), real.view(np.float32)
        same |= np.isnan(a) & np.isnan(b)
    found: dict[str, Any] = {"words": len(real), "different": int((~same).sum())}
    if found["different"] and kind.startswith("float"):
        order = [
            np.where(part >> 31, -(part & 0x7FFFFFFF).astype(np.int64), part.astype(np.int64))
            for part in (emulated[~same], real[~same])
        ]
        found["ulp"] = int(np.abs(order[0] - order[1]).max())
        at = int(np.argmax(~same))
        found["first"] = [float(emulated.view(np.float32)[at]), float(real.view(np.float32)[at])]
    elif found["different"]:
        at = int(np.argmax(~same))
        found["first"] = [hex(int(emulated[at])), hex(int(real[at]))]
    return found


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.zeros(1).cuda()
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip()
    rows = []
    for name, kind, body, data, threads in kernels():
        text = HEAD + START + body + "\nret;\n}\n"
        real = on_gpu(text, data, threads)
        mine = on_emulator(text, data, threads) if not isinstance(real, str) else data
        row = {"name": name, "kind": kind} | ({"gpu": real} if isinstance(real, str) else compare(kind, mine, real))
        if name.startswith(("sin", "cos")) and not isinstance(
            real, str
        ):  # PTX bounds the absolute error, and only from -pi to pi
            rows_of = [part.view(np.float32).reshape(-1, 8).astype(np.float64) for part in (data, mine, real)]
            near = np.abs(rows_of[0][:, 1]) <= np.pi
            row["within_pi"] = {
                "values": int(near.sum()),
                "largest_difference": float(np.abs(rows_of[1][near, 0] - rows_of[2][near, 0]).max()),
            }
        rows.append(row)
        if row.get("different") or "gpu" in row:
            print(row, flush=True)
    equal = {
        kind: [
            sum(row["kind"] == kind and row.get("different") == 0 for row in rows),
            sum(row["kind"] == kind and "gpu" not in row for row in rows),
        ]
        for kind in dict.fromkeys(row["kind"] for row in rows)
    }
    print("bit-equal of those that ran:", equal)
    arguments.out.write_text(
        json.dumps(
            {
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "gpu": gpu,
                "torch": torch.__version__,
                "equal": equal,
                "rows": rows,
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
