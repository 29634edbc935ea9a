"""Parses the CSV pages that ncu prints: the raw page (a row per launch) and the source page (a row per instruction).

Columns are found by name. A column that is missing, or says n/a, is None. Units come from the row under the head ("ns",
"Mbyte", "%", ...), so `--print-units` does not matter. Thousands separators are removed.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from workbench.profilers.ncu_metrics import METRICS, OF_LINES, TENSOR_DTYPES, TENSOR_OPS
from workbench.profilers.sass import Instruction
from workbench.records import KernelMetrics, LineProfile
from workbench.toolchain.sass_listing import parse_opcode

LIMITS = {
    "CTAs": "limit_blocks",
    "registers": "limit_registers",
    "shared memory": "limit_shared",
    "threads": "limit_warps",
    "barriers": "limit_barriers",
}
SECTOR, WAVEFRONT = 32, 128
PIPES = {"shared": "fp64+tensor"}  # Nsight Compute's name for the pipe `shared`, which is not about shared memory
PIPE = re.compile(r"sm__(?:inst_executed_)?pipe_(\w+?)(?:_cycles_active)?\.avg\.pct_of_peak_sustained_active")
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
SAMPLED = re.compile(r"smsp__pcsamp_warps_issue_stalled_(\w+?)(_not_issued)?(?:\.sum)?")
_SCALES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNIT = re.compile(r"([numKkMGT]?)(?:byte|second|sec|s|hz)", re.IGNORECASE)
_TIME = re.compile(r"[num]?(?:second|sec|s)")
SHORT = {
    "long_sb": "long_scoreboard",
    "short_sb": "short_scoreboard",
    "math": "math_pipe_throttle",
    "mio": "mio_throttle",
    "lg": "lg_throttle",
    "tex": "tex_throttle",
    "imc": "imc_miss",
    "branch_resolve": "branch_resolving",
    "no_inst": "no_instructions",
    "no_inst.": "no_instructions",
    "no_instruction": "no_instructions",
    "sleep": "sleeping",
    "misc.": "misc",
    "disp": "dispatch_stall",
    "dispatch": "dispatch_stall",
}
SELECTED = ("selected",)  # reasons of a warp that issues and so does not wait


def number(text: str | None) -> float | None:
    """A finite number from a cell of ncu's tables; None if the cell holds none."""
    try:
        found = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def scale(unit: str) -> float:
    """The factor from `unit` to bytes, seconds, per second, or a fraction for "%"; 1 for a plain count."""
    if unit == "%":
        return 0.01
    top, _, bottom = unit.partition("/")
    return _prefix(top) / (_prefix(bottom) if _TIME.fullmatch(bottom) else 1.0)


def _prefix(unit: str) -> float:
    match = _UNIT.fullmatch(unit)
    return _SCALES[match[1]] if match else 1.0


def rows(text: str) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """(values, units) of each launch on the raw page. Other output of ncu and of the program is skipped."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return
    units: dict[str, str] = {}
    for row in csv.DictReader(line for line in lines[start:] if line.startswith('"')):
        if not row.get("ID"):
            units = {name: value or "" for name, value in row.items() if name}
        elif row["ID"].isdigit():
            yield {name: value or "" for name, value in row.items() if name}, units


def value(row: dict[str, str], units: dict[str, str], column: str) -> float | None:
    """One counter of a row in base units; None if it is missing."""
    found = number(row.get(column))
    return None if found is None else found * scale(units.get(column, ""))


def triple(text: str) -> tuple[int, int, int]:
    """Three integers from text such as `(128, 1, 1)`."""
    found = [int(part) for part in re.findall(r"\d+", text)]
    return (found[0], found[1], found[2]) if len(found) == 3 else (0, 0, 0)


def kernels(text: str) -> tuple[KernelMetrics, ...]:
    """Metrics of the launches on a raw page."""
    return tuple(_metrics(row, units) for row, units in rows(text))


def _metrics(row: dict[str, str], units: dict[str, str]) -> KernelMetrics:
    def get(name: str) -> float | None:
        return value(row, units, METRICS[name])

    def total(*names: str, times: float = 1.0) -> float | None:
        known = [found for name in names if (found := get(name)) is not None]
        return sum(known) * times if known else None

    limits = tuple((said, found) for said, name in LIMITS.items() if (found := get(name)) is not None)
    registers = get("registers")
    return KernelMetrics(
        kernel=row.get("Kernel Name", ""),
        grid=triple(row.get("Grid Size", "")),
        block=triple(row.get("Block Size", "")),
        duration_s=get("duration"),
        flops=_flops(row, units),
        dram_read_bytes=get("dram_read"),
        dram_write_bytes=get("dram_write"),
        l2_bytes=_first(total("l2_sectors", times=SECTOR), total("l2_read_sectors", "l2_write_sectors", times=SECTOR)),
        l2_hit_rate=get("l2_hit"),
        l1_bytes=total("l1_load_sectors", "l1_store_sectors", times=SECTOR),
        l1_hit_rate=get("l1_hit"),
        shared_bytes=_first(
            total("shared_load_wavefronts", "shared_store_wavefronts", times=WAVEFRONT),
            total("shared_wavefronts", times=WAVEFRONT),
        ),
        shared_wavefronts=_first(total("shared_load_wavefronts", "shared_store_wavefronts"), get("shared_wavefronts")),
        shared_bank_conflicts=get("bank_conflicts"),
        warp_instructions=get("warp_instructions"),
        sm_throughput=get("sm_throughput"),
        memory_throughput=get("memory_throughput"),
        sm_clock_hz=get("sm_clock"),
        achieved_occupancy=get("achieved"),
        theoretical_occupancy=get("theoretical"),
        limits=limits,
        limiter=min(limits, key=lambda item: item[1])[0] if limits else "",
        registers=None if registers is None else int(registers),
        static_shared_bytes=get("static_shared"),
        dynamic_shared_bytes=get("dynamic_shared"),
        waves=get("waves"),
        pipes=_pipes(row, units),
        stalls=_stalls(row),
        l1_requests=total("l1_load_requests", "l1_store_requests"),
        l1_ideal_bytes=_ideal_bytes(row, units, total("l1_load_sectors", "l1_store_sectors", times=SECTOR)),
        shared_ideal_wavefronts=value(row, units, OF_LINES["ideal_wavefronts"]),
        local_requests=total("local_loads", "local_stores"),
        active_threads=get("active_threads"),
        tensor_flops=_tensor_flops(row, units),
        cluster=None if (cluster := get("cluster")) is None else max(int(cluster), 1),
    )


def _ideal_bytes(row: dict[str, str], units: dict[str, str], used: float | None) -> float | None:
    """The bytes of the sectors that the accesses need: the requested ones less the excess that source lines show."""
    sectors, ideal = (value(row, units, OF_LINES[name]) for name in ("sectors", "ideal_sectors"))
    return used * ideal / sectors if used is not None and sectors and ideal is not None else None


def _tensor_flops(row: dict[str, str], units: dict[str, str]) -> tuple[tuple[str, float], ...]:
    """FLOPs on tensor cores by the operands' dtype, largest first."""
    found: dict[str, float] = {}
    for column, dtype in zip(TENSOR_OPS, TENSOR_DTYPES, strict=True):
        if count := value(row, units, column):
            found[dtype] = found.get(dtype, 0.0) + count
    return tuple(sorted(found.items(), key=lambda item: -item[1]))


def _first(*found: float | None) -> float | None:
    return next((item for item in found if item is not None), None)


def _flops(row: dict[str, str], units: dict[str, str]) -> float | None:
    """Executed FLOPs in fp32 (an FMA is two) and on tensor cores; None if ncu does not count the latter."""
    single = [value(row, units, METRICS[name]) for name in ("fadd", "fmul", "ffma")]
    on_tensor = [found for column in TENSOR_OPS if (found := value(row, units, column)) is not None]
    if (number(row.get(METRICS["tensor"])) or 0.0) > 0 and not sum(on_tensor):
        return None
    if None in single and not on_tensor:
        return None
    fadd, fmul, ffma = (item or 0.0 for item in single)
    return fadd + fmul + 2 * ffma + sum(on_tensor)


def _pipes(row: dict[str, str], units: dict[str, str]) -> tuple[tuple[str, float], ...]:
    """Each pipe's share of its peak while SMs are active: the larger of the counts by instructions and by cycles."""
    found: dict[str, float] = {}
    for column in row:
        if match := PIPE.fullmatch(column):
            share = value(row, {**units, column: units.get(column) or "%"}, column)
            if share is not None:
                name = PIPES.get(match[1], match[1])
                found[name] = max(share, found.get(name, 0.0))
    return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _stalls(row: dict[str, str]) -> tuple[tuple[str, float], ...]:
    """Warp cycles per issued instruction by reason. If ncu only took samples, each reason's share of them."""
    found = {
        match[1]: amount
        for column, text in row.items()
        if (match := STALL.fullmatch(column)) and (amount := number(text)) is not None
    }
    if not found:
        sampled = {
            match[1]: amount
            for column, text in row.items()
            if (match := SAMPLED.fullmatch(column)) and not match[2] and (amount := number(text)) is not None
        }
        whole = sum(sampled.values())
        found = {name: amount / whole for name, amount in sampled.items()} if whole else {}
    return tuple(
        sorted(
            ((name, amount) for name, amount in found.items() if amount and name not in SELECTED),
            key=lambda item: (-item[1], item[0]),
        )
    )


def source_tables(text: str) -> list[tuple[str, list[dict[str, str]]]]:
    """(kernel, rows) of each table on the source page. A row is a machine instruction: column -> cell."""
    found: list[tuple[str, list[dict[str, str]]]] = []
    head: list[str] = []
    name = ""
    for row in csv.reader(line for line in text.splitlines() if line.startswith('"')):
        if row[0] == "Kernel Name":
            name = row[1] if len(row) > 1 else ""
            head = []
        elif "Source" in row and ("Address" in row or "#" in row):
            head = row
            found.append((name, []))
        elif head and len(row) >= head.index("Source") + 1 and row[head.index("Source")].strip():
            first: dict[str, str] = {}
            for column, cell in zip(head, row, strict=False):
                # a column may come twice: first with all samples, then with those of cycles without an issue
                first.setdefault(column, cell)
            found[-1][1].append(first)
    return found


def parse_stalls(row: dict[str, str]) -> dict[str, float]:
    """Samples of one instruction by reason, without samples of warps that were issuing."""
    out: dict[str, float] = {}
    for column, text in row.items():
        if column.startswith("stall_") and not column.endswith(("not_issued", "(Not Issued)", "_ni")):
            reason = SHORT.get(column[6:], column[6:])
            amount = number(text)
            if amount and not reason.startswith("selected"):
                out[reason] = out.get(reason, 0.0) + amount
    return out


def samples_by_line(
    text: str, listings: Mapping[str, Sequence[Instruction]], lines: Iterable[LineProfile]
) -> tuple[tuple[LineProfile, ...], float]:
    """(`lines` with the samples of a source page, share of all samples that are on a line).

    The instruction's place in its kernel joins a sample with its line.
    """
    samples, executed, share = _sum_samples(text, listings)
    made = tuple(
        replace(
            item,
            stalls=tuple(sorted(samples.get(item.line, {}).items(), key=lambda pair: (-pair[1], pair[0]))),
            executed=float(executed[item.line]) if item.line in executed else None,
        )
        for item in lines
    )
    return made, share


def _sum_samples(
    text: str, listings: Mapping[str, Sequence[Instruction]]
) -> tuple[dict[int, dict[str, float]], Counter[int], float]:
    """(line -> reason -> samples, line -> executed instructions, share of all samples that are on a line)."""
    samples: dict[int, dict[str, float]] = {}
    executed: Counter[int] = Counter()
    whole = placed = 0.0
    for name, table in source_tables(text):
        listing = _listing(name, table, listings)
        places = _places(table, listing)
        for place, row in zip(places, table, strict=True):
            stalls = parse_stalls(row)
            whole += sum(stalls.values())
            line = None if place is None else listing[place].line
            if line is not None:
                placed += sum(stalls.values())
                here = samples.setdefault(line, {})
                for reason, count in stalls.items():
                    here[reason] = here.get(reason, 0.0) + count
                executed[line] += int(number(row.get("Instructions Executed")) or 0)
    return samples, executed, placed / whole if whole else 0.0


def _address(row: dict[str, str]) -> int | None:
    text = row.get("Address", "").strip()
    try:
        return int(text, 16 if text.startswith("0x") or re.search("[a-fA-F]", text) else 10)
    except ValueError:
        return None


def _listing(
    name: str, table: Sequence[dict[str, str]], listings: Mapping[str, Sequence[Instruction]]
) -> Sequence[Instruction]:
    """The kernel's instructions, found by its name or, if ncu cut or demangled the name, by its opcodes."""
    if name in listings:
        return listings[name]
    opcodes = [parse_opcode(row["Source"]) for row in table]
    near = [found for found in listings.values() if [item.opcode for item in found] == opcodes[: len(found)]]
    return near[0] if len(near) == 1 else ()


def _places(table: Sequence[dict[str, str]], listing: Sequence[Instruction]) -> list[int | None]:
    """Index in the listing for each row; None if the row has no instruction there.

    Rows are matched by position if all opcodes agree, else by the offset from the first row's address.
    """
    opcodes = [parse_opcode(row["Source"]) for row in table]
    if len(table) >= len(listing) > 0 and all(
        item.opcode == opcode for item, opcode in zip(listing, opcodes, strict=False)
    ):
        return [position if position < len(listing) else None for position in range(len(table))]
    known = {item.offset: number for number, item in enumerate(listing)}
    base = _address(table[0]) if table else None
    found = [
        known.get(address - base) if base is not None and (address := _address(row)) is not None else None
        for row in table
    ]
    return [
        place if place is not None and listing[place].opcode == opcode else None
        for place, opcode in zip(found, opcodes, strict=True)
    ]
