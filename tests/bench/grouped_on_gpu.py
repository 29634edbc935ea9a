"""muCUTLASS's ggemm against torch._grouped_mm, and a loop of torch.mm, on an H200: groups of even and of random sizes.

    python tests/bench/grouped_on_gpu.py --out $OUT/grouped.json [--rounds 7]
    python tests/bench/grouped_on_gpu.py --dry-run                                (tiny shapes on the emulator; no GPU,
    no times)

Random normal data in bfloat16. Each configuration is first compared with float32 products. Times are CUDA graphs on
both sides, interleaved, medians.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from hopper_gemm_on_gpu import INIT, compare, facts

from workbench.codegen import compile_program
from workbench.language import Binding

CASES = [
    (8, 8192, 4096, 4096),
    (64, 16384, 2048, 4096),
    (8, 1024, 4096, 4096),
    (128, 8192, 1536, 4096),
    (16, 65536, 2048, 2048),
]  # groups, rows of all, n, k
HOWS = [
    ".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1) .launch(early)",
    ".tile(128, 256, 64) .schedule(cooperative) .launch(early)",
    ".tile(128, 256, 64) .schedule(cooperative) .cluster(1, 2) .launch(early)",
    ".tile(128, 128, 64) .schedule(cooperative) .cluster(1, 2) .launch(early)",
    ".tile(128, 128, 64) .schedule(cooperative) .launch(early)",
    ".tile(64, 256, 64) .schedule(cooperative) .launch(early)",
    ".tile(64, 128, 128) .schedule(cooperative) .launch(early)",
]


def load(how: str, folder: Path) -> Any:
    """The candidate, imported."""
    path = folder / f"candidate_{abs(hash(how))}.py"
    path.write_text(
        compile_program(
            f"ggemm(a, b, offsets) .arch(sm_90a) .mma(bf16) {how}",
            Binding(init_source=INIT, forward_arguments=("a", "b", "offsets")),
        )
    )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew()


def operands(groups: int, rows: int, n: int, k: int, even: bool) -> list[torch.Tensor]:
    """a (rows, k), b (groups, k, n) along k, offsets (groups)."""
    generator = torch.Generator().manual_seed(1)
    ends = (
        torch.arange(1, groups + 1) * (rows // groups)
        if even
        else torch.cat(
            [torch.randint(0, rows + 1, (groups - 1,), generator=generator).sort().values, torch.tensor([rows])]
        )
    )
    a = torch.randn(rows, k, device="cuda").bfloat16()
    b = torch.randn(groups, n, k, device="cuda").bfloat16().transpose(1, 2)
    return [a, b, ends.to(torch.int32).to("cuda")]


def wanted(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Group by group in float32."""
    ends = offsets.tolist()
    return torch.cat(
        [
            a[start:end].float() @ b[group].float()
            for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
        ]
    )


def run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Every case with every configuration."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        models = {how: load(how, Path(folder)) for how in (HOWS[::3] if arguments.dry_run else HOWS)}
        for groups, count, n, k in [(4, 200, 136, 72)] if arguments.dry_run else CASES:
            for even in (True, False):
                tensors = operands(groups, count, n, k, even)
                want = wanted(*tensors)
                for how, model in models.items():
                    row: dict[str, Any] = {
                        "case": f"{groups} groups, {count}x{n}x{k}, {'even' if even else 'random'}",
                        "program": how,
                    }
                    try:
                        got = model(*tensors)
                        row["error"] = float(((got.float() - want)[: int(tensors[2][-1])].norm() / want.norm()).item())
                        if not row["error"] < 8e-3:
                            row["failed"] = "wrong result"
                        elif not arguments.dry_run:
                            row |= compare(
                                lambda model=model, tensors=tensors: model(*tensors),
                                lambda tensors=tensors: torch._grouped_mm(tensors[0], tensors[1], offs=tensors[2]),
                                2.0 * count * n * k,
                                arguments.rounds,
                            )
                    except Exception as error:
                        row["failed"] = f"{type(error).__name__}: {error}"[:400]
                    rows.append(row)
                    print(json.dumps(row), flush=True)
                    if arguments.out:
                        arguments.out.write_text(json.dumps({**facts(), "rows": rows}, indent=1) + "\n")
    return rows


def main() -> int:
    """Measure, print, write; 1 when any configuration fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes on the emulator")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    if arguments.dry_run:
        import workbench

        with workbench.emulated(device="H200"):
            rows = run(arguments)
    else:
        rows = run(arguments)
    for name in dict.fromkeys(row["case"] for row in rows):
        best = max(
            (row for row in rows if row["case"] == name and "ratio" in row), key=lambda row: row["ratio"], default=None
        )
        print(
            f"# {name}: {best['ratio']}x torch._grouped_mm, {best['us']} us, {best['tflops']} TFLOP/s, "
            f"{best['program']}"
            if best
            else f"# {name}: nothing timed"
        )
    return 1 if any("failed" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
