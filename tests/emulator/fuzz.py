"""Fuzzes the emulator: python tests/emulator/fuzz.py [--cases 10000] [--seed 0]

Each case changes the text of a kernel (a token dropped, doubled, swapped, a number changed) or its launch (grid, block,
shared memory, parameters), and runs it with a small limit of instructions. It must end in a result or in an
`EmulationFault`: no other exception, no crash, no hang. What does not is printed with its seed, which alone makes the
case again.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from engines import HEAD, START, aligned
from sequences import BODIES

from workbench.emulator.execution.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine

STEPS = 20_000
TEXTS = [HEAD + START + body + "\nret;\n}\n" for body in BODIES.values()]
TOKEN = re.compile(r"[\w.%$]+|\S")
NUMBERS = ("0", "1", "-1", "3", "4095", "65536", "0x7FFFFFFF", "0xFFFFFFFF", "99999999999999999999")


def mutated(draw: random.Random, text: str) -> str:
    """The kernel with one to three changes behind its head."""
    head, body = text[: len(HEAD)], text[len(HEAD) :]
    for _ in range(draw.randint(1, 3)):
        tokens = list(TOKEN.finditer(body))
        at, other = draw.choice(tokens), draw.choice(tokens)
        new = draw.choice(
            ["", at[0] + " " + at[0], other[0], draw.choice(NUMBERS), at[0][::-1], at[0] + draw.choice(".;,{}[]%@!")]
        )
        body = body[: at.start()] + new + body[at.end() :]
    return head + body


def case(seed: int) -> str:
    """What came of one case; raises whatever is no `EmulationFault`."""
    draw = random.Random(seed)
    text = draw.choice(TEXTS)
    if draw.random() < 0.8:
        text = mutated(draw, text)
    data = aligned(1024)
    memory = GlobalMemory()
    memory.register(data.ctypes.data, data.nbytes, "data")
    grid, block = (1, 1, 1), (64, 1, 1)
    dynamic, params = 0, (data.ctypes.data.to_bytes(8, "little"), (7).to_bytes(4, "little"))
    if draw.random() < 0.3:
        grid = tuple(draw.choice((0, 1, 2, 5)) for _ in range(3))  # type: ignore[assignment]
        block = tuple(draw.choice((0, 1, 3, 33, 64, 1025)) for _ in range(3))  # type: ignore[assignment]
        dynamic = draw.choice((0, 1, 16, 48_000, 300_000))
        params = (draw.choice((params[0], bytes(8), b"\xff" * 8)), params[1])
    try:
        machine = Machine(
            text, DeviceLimits(), engine=draw.choice(("numpy", "auto", "compiled")) if seed % 20 == 0 else "numpy"
        )
        machine.run(
            GridRequest(
                entry="k", grid=grid, block=block, params=params, dynamic_shared_bytes=dynamic, step_limit=STEPS
            ),
            memory,
        )
    except EmulationFault as fault:
        return fault.failure.kind
    return "ended"


def main() -> int:
    """Run the cases; 1 when one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    kinds: dict[str, int] = {}
    slowest = (0.0, 0)
    for seed in range(arguments.seed, arguments.seed + arguments.cases):
        start = time.perf_counter()
        try:
            kind = case(seed)
        except Exception as error:
            kind = f"FAILED {type(error).__name__}"
            print(f"seed {seed}: {type(error).__name__}: {error}"[:200])
        kinds[kind] = kinds.get(kind, 0) + 1
        slowest = max(slowest, (time.perf_counter() - start, seed))
    print(dict(sorted(kinds.items(), key=lambda item: -item[1])), f"slowest {slowest[0]:.2f} s (seed {slowest[1]})")
    return int(any(kind.startswith("FAILED") for kind in kinds))


if __name__ == "__main__":
    sys.exit(main())
