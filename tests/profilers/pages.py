"""ncu's pages as text, in the format that ncu 2023 to 2025 print, from counters that an H200 gave
(tests/bench/results/h200_profiled_by_ncu.json)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.profilers.ncu_metrics import METRICS
from workbench.profilers.sass import Instruction

RECORDED = Path(__file__).parent.parent / "bench" / "results" / "h200_profiled_by_ncu.json"
NAMES = {
    "ns": "duration",
    "dram_read_bytes": "dram_read",
    "dram_write_bytes": "dram_write",
    "l2_read_sectors": "l2_read_sectors",
    "l2_write_sectors": "l2_write_sectors",
    "global_load_requests": "l1_load_requests",
    "global_store_requests": "l1_store_requests",
    "global_load_sectors": "l1_load_sectors",
    "global_store_sectors": "l1_store_sectors",
    "shared_load_wavefronts": "shared_load_wavefronts",
    "shared_store_wavefronts": "shared_store_wavefronts",
    "shared_wavefronts": "shared_wavefronts",
    "warp_instructions": "warp_instructions",
    "fadd": "fadd",
    "fmul": "fmul",
    "ffma": "ffma",
    "tensor_instructions": "tensor",
}
UNITS = {
    "duration": "ns",
    "dram_read": "byte",
    "dram_write": "byte",
    "l2_read_sectors": "sector",
    "l2_write_sectors": "sector",
}
MORE = {  # what the recording has not: a launch's own numbers, and shares
    METRICS["achieved"]: ("%", "93.17"),
    METRICS["theoretical"]: ("%", "100"),
    METRICS["registers"]: ("register/thread", "30"),
    METRICS["static_shared"]: ("byte/block", "0"),
    METRICS["dynamic_shared"]: ("byte/block", "1,024"),
    METRICS["waves"]: ("", "7.76"),
    METRICS["limit_blocks"]: ("block", "32"),
    METRICS["limit_registers"]: ("block", "16"),
    METRICS["limit_shared"]: ("block", "24"),
    METRICS["limit_warps"]: ("block", "8"),
    METRICS["limit_barriers"]: ("block", "n/a"),
    METRICS["l2_hit"]: ("%", "50.12"),
    METRICS["l1_hit"]: ("%", "0"),
    METRICS["sm_throughput"]: ("%", "31.02"),
    METRICS["memory_throughput"]: ("%", "82.40"),
    METRICS["sm_clock"]: ("hz", "1,754,386,000"),
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active": ("%", "22.41"),
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active": ("%", "9.80"),
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": ("%", "12.66"),
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active": ("%", "n/a"),
    METRICS["tensor_cycles"]: ("%", "0"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("inst", "41.87"),
    "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio": ("inst", "3.02"),
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": ("inst", "1.75"),
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio": ("inst", "1"),
    "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio": ("inst", "0"),
}


def recorded() -> list[dict[str, Any]]:
    """Counters of 19 launches as ncu gave them, None for n/a."""
    found: list[dict[str, Any]] = json.loads(RECORDED.read_text())["kernels"]
    return found


def quoted(cells: Sequence[str]) -> str:
    """A row of ncu's CSV."""
    return ",".join(f'"{cell}"' for cell in cells)


def raw_page(launches: Sequence[Mapping[str, Any]], *, units: Mapping[str, tuple[str, float]] | None = None) -> str:
    """The raw page; `units` are (unit, factor) by our name of a counter, for another `--print-units` than base."""
    chosen = {**{name: (unit, 1.0) for name, unit in UNITS.items()}, **(units or {})}
    fixed = [
        "ID",
        "Process ID",
        "Process Name",
        "Host Name",
        "Kernel Name",
        "Context",
        "Stream",
        "Block Size",
        "Grid Size",
        "Device",
        "CC",
    ]
    head = [*fixed, *(METRICS[name] for name in NAMES.values()), *MORE]
    lines = [
        "==PROF== Connected to process 4711 (/usr/bin/python3.12)",
        '==PROF== Profiling "kernel_cutlass_x" - 0: 0%....50%....100% - 34 passes',
        "what the candidate prints",
        quoted(head),
    ]
    lines.append(
        quoted(
            [
                "",
                *[""] * (len(fixed) - 1),
                *(chosen.get(name, ("", 1.0))[0] for name in NAMES.values()),
                *(unit for unit, _ in MORE.values()),
            ]
        )
    )
    for number, launch in enumerate(launches):
        counters = [
            "n/a" if launch.get(theirs) is None else f"{launch[theirs] * chosen.get(ours, ('', 1.0))[1]:,.10g}"
            for theirs, ours in NAMES.items()
        ]
        lines.append(
            quoted(
                [
                    str(number),
                    "4711",
                    "python3.12",
                    "127.0.0.1",
                    launch["kernel"],
                    "1",
                    "7",
                    "(256, 1, 1)",
                    "(65536, 1, 1)",
                    "0",
                    "9.0",
                    *counters,
                    *(text for _, text in MORE.values()),
                ]
            )
        )
    return "\n".join([*lines, "==PROF== Disconnected from process 4711"]) + "\n"


def source_page(
    kernel: str,
    listing: Sequence[Instruction],
    samples: Mapping[int, Mapping[str, int]],
    *,
    base: int = 0x7F3A5E00,
    numbered: bool = False,
) -> str:
    """The source page of one launch; `samples` by position of the instruction and by ncu's short name of the reason."""
    reasons = sorted({reason for found in samples.values() for reason in found} | {"stall_selected"})
    head = [
        "Address",
        "Source",
        "Warp Stall Sampling (All Samples)",
        "Warp Stall Sampling (Not-issued Samples)",
        "# Samples",
        "Instructions Executed",
        *reasons,
        *reasons,
    ]
    rows = [quoted(["Kernel Name", kernel])] if not numbered else []
    rows.append(quoted((["#"] if numbered else []) + head))
    for position, item in enumerate(listing):
        found = samples.get(position, {})
        whole = f"{sum(found.values()):,}"
        cells = [
            f"0x{base + item.offset:x}",
            "      " + item.text,
            whole,
            "0",
            whole,
            "1,024",
            *(f"{found.get(reason, 0):,}" for reason in reasons),
            *("0" for _ in reasons),
        ]
        rows.append(quoted(([str(position + 1)] if numbered else []) + cells))
    return "\n".join(rows) + "\n"
