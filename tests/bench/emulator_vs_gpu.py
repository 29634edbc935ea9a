"""Each shipped kernel on the emulator and on a GPU, on the same inputs: are the results the same?

    python tests/bench/emulator_vs_gpu.py record --sources DIR            no GPU needed: the planner's last version of
    each problem, as files
    python tests/bench/emulator_vs_gpu.py side --sources DIR --out DIR --device cpu      each file on the emulator,
    outputs as .npz
    python tests/bench/emulator_vs_gpu.py run --sources DIR --out FILE    on a machine with a GPU: each file there,
    beside the emulator's outputs in DIR

`run` writes one row per kernel, shape and output: whether bits are equal, and otherwise the largest distance in units
in the last place
(ULP, of the output's dtype) and the share of elements that differ. Inputs are drawn on the CPU from a fixed seed and
handed to both.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy

import workbench.problems as problems
from workbench.records import Precision

SEED = 20261120
TENSOR_CORES: tuple[tuple[str, Precision], ...] = tuple(
    (name, precision) for name in ("matmul", "matmul_transposed") for precision in ("tf32", "fp16", "bf16")
)
KERNELS = Path(__file__).parent / "kernels"  # hand-written candidates beside their problems
INTEGER_VIEW = {"float32": numpy.int32, "float16": numpy.int16, "float64": numpy.int64}


def record(sources: Path) -> None:
    """Write one candidate file per shipped problem and version, with the cases to run it at."""
    from workbench.session import Session

    sources.mkdir(parents=True, exist_ok=True)
    for path in sorted(KERNELS.glob("*_problem.py")):
        name = path.stem.removesuffix("_problem")
        (sources / f"{name}.py").write_text((KERNELS / f"{name}.py").read_text())
        cases = {"shrunk": {"N": 4096}, "odd": {"N": 1031}}
        (sources / f"{name}.json").write_text(
            json.dumps({"problem": str(path.relative_to(Path.cwd())), "precision": "fp32", "cases": cases})
        )
    wanted: list[tuple[str, Precision]] = [*((name, "fp32") for name in problems.shipped()), *TENSOR_CORES]
    with tempfile.TemporaryDirectory() as folder:
        for name, precision in wanted:
            with Session.create(
                problems.load(name, precision=precision), root=folder, executor="emulator", arch="sm_80"
            ) as session:
                versions = session.run(steps=6)
                for version in versions:
                    if not version.trials or not version.trials[-1].verdict.correct:
                        continue
                    stem = f"{name}-{precision}-v{version.number}"
                    (sources / f"{stem}.py").write_text(version.proposal.candidate.source)
                    cases_of = [case for case in session.facts.cases if case.name in ("shrunk", "odd")]
                    meta = {
                        "problem": name,
                        "precision": precision,
                        "cases": {case.name: dict(case.settings) for case in cases_of},
                    }
                    (sources / f"{stem}.json").write_text(json.dumps(meta))
                    print(stem, flush=True)


def outputs(source: Path, device: str) -> dict[str, numpy.ndarray]:
    """Run one candidate file at its cases on `device` ("cuda", or "cpu" for the emulator)."""
    import importlib.util

    import torch

    from workbench.emulator import emulated
    from workbench.problems import loading

    meta = json.loads(source.with_suffix(".json").read_text())
    problem = problems.load(meta["problem"], precision=meta["precision"])
    spec = importlib.util.spec_from_file_location(source.stem.replace("-", "_"), source)
    assert spec and spec.loader
    candidate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(candidate)
    found = {}
    for case, settings in meta["cases"].items():
        module = loading.load_module(problem, tuple(settings.items()))
        inputs = loading.make_inputs(module, problem, SEED, "cpu")
        torch.manual_seed(SEED)
        reference = loading.build_model(module, "Model", problem, "cpu")
        torch.manual_seed(SEED)
        model = loading.build_model(candidate, "ModelNew", problem, "cpu", init_from=module)
        loading.copy_parameters(reference, model)
        if device == "cuda":
            moved = [value.cuda() if isinstance(value, torch.Tensor) else value for value in inputs]
            result = model.cuda()(*moved)
            torch.cuda.synchronize()
        else:
            with emulated(arch="sm_80", device="H200", counters=False):
                result = model(*inputs)
        found[case] = plain(result)
        found[f"inputs {case}"] = numpy.int64(
            sum(zlib.crc32(plain(value).tobytes()) for value in inputs if isinstance(value, torch.Tensor))
        )
    return found


def plain(value: Any) -> numpy.ndarray:
    """A tensor as numpy; bfloat16, which numpy lacks, as the upper half of float32 (exact)."""
    value = value.detach().cpu().contiguous()
    return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()


def compare(name: str, case: str, here: numpy.ndarray, there: numpy.ndarray) -> dict[str, object]:
    """One row: bits equal, or the distance in units in the last place."""
    row: dict[str, object] = {
        "kernel": name,
        "case": case,
        "shape": here.shape,
        "dtype": str(here.dtype),
        "bits_equal": here.tobytes() == there.tobytes(),
    }
    view = INTEGER_VIEW.get(str(here.dtype))
    if not row["bits_equal"] and view is not None:
        ordered = [
            numpy.where(a.view(view) < 0, numpy.int64(numpy.iinfo(view).min) - a.view(view), a.view(view)).astype(
                numpy.int64
            )
            for a in (here, there)
        ]
        distance = numpy.abs(ordered[0] - ordered[1]) // (
            65_536 if "-bf16-" in name else 1
        )  # bfloat16 is the upper half of float32
        scale = float(numpy.abs(there.astype(numpy.float64)).max()) or 1.0
        gap = float(numpy.abs(here.astype(numpy.float64) - there.astype(numpy.float64)).max())
        row |= {
            "max_ulp": int(distance.max()),
            "share_differing": float((distance > 0).mean()),
            "max_gap_over_max_value": gap / scale,
        }
    return row


def run(sources: Path, out: Path) -> None:
    """Both sides of every file, then the table."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, __file__, "side", "--sources", str(sources), "--out", folder, "--device", "cuda"],
            check=True,
        )
        for source in sorted(sources.glob("*.py")):
            sides = [sources / f"{source.stem}.cpu.npz", Path(folder) / f"{source.stem}.cuda.npz"]
            if not all(side.exists() for side in sides):
                rows.append(
                    {
                        "kernel": source.stem,
                        "error": "did not run on "
                        + " and ".join(side.suffixes[-2][1:] for side in sides if not side.exists()),
                    }
                )
                continue
            ours, theirs = (numpy.load(side) for side in sides)
            rows += [
                compare(source.stem, case, ours[case], theirs[case])
                for case in ours.files
                if not case.startswith("inputs")
            ]
            rows[-1]["same_inputs"] = all(
                int(ours[name]) == int(theirs[name]) for name in ours.files if name.startswith("inputs")
            )
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip()
    out.write_text(
        json.dumps({"date": datetime.now(UTC).isoformat(timespec="seconds"), "gpu": gpu, "rows": rows}, indent=1) + "\n"
    )
    equal = sum(bool(row.get("bits_equal")) for row in rows)
    print(f"{len(rows)} results, {equal} bit-equal, {sum('error' in row for row in rows)} did not run")
    for row in rows:
        if not row.get("bits_equal"):
            print(row)


def side(sources: Path, out: Path, device: str) -> None:
    """One side: every file on one device; a file that fails is said and left out."""
    for source in sorted(sources.glob("*.py")):
        try:
            numpy.savez(out / f"{source.stem}.{device}.npz", **outputs(source, device))
        except Exception as error:  # a broken kernel must not hide the others
            print(f"{source.stem} on {device}: {type(error).__name__}: {str(error)[:300]}", flush=True)


def main() -> None:
    """Dispatch on the sub-command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "run", "side"])
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    if arguments.what == "record":
        record(arguments.sources)
    elif arguments.what == "side":
        side(arguments.sources, arguments.out, arguments.device)
    else:
        run(arguments.sources, arguments.out)


if __name__ == "__main__":
    main()
