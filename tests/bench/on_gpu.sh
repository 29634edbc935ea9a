#!/bin/sh
# The measurements of README's "Measured" section on one GPU, in parts of under ten minutes each:
#
#     tests/bench/on_gpu.sh PART OUT         PART: problems, landscape, trust or turnaround; OUT: a folder for results and one log for each part
#
# `landscape` goes on where OUT/landscape.csv or workbench/landscapes/h200.csv.gz end, so it is run until nothing is left;
# plans and compiled kernels stay in KEPT (/tmp/cutegen-landscape) for the next run. Each script says in its head how its numbers are made.
set -eu
part=$1 out=$2
cd "$(dirname "$0")/../.."
mkdir -p "$out"
export OUT="$out" PYTHONUNBUFFERED=1
measured() {  # seconds, then what python is to run; what fails or takes too long does not keep the others from running
    limit=$1; shift
    echo "== $*"
    timeout -s INT -k 15 "$limit" python "$@" || echo "== $1 ended with $?"
}
{
    case $part in
        problems)
            measured 370 tests/bench/nineteen_on_gpu.py --out "$out/nineteen.json" --precisions tf32,fp32 --steps 3 --seconds 350
            measured 120 tests/bench/hopper_sweep_on_gpu.py --out "$out/squares_sustained.json" --only square --most 3 --busy-ms 50 --limit-s 100
            measured 80 tests/bench/conv_on_gpu.py --rounds 5 --workers 12
            ;;
        landscape)
            measured 580 tests/bench/landscape_on_gpu.py --out "$out/landscape.csv" --seconds 560 --done workbench/landscapes/h200.csv.gz --kept "${KEPT:-/tmp/cutegen-landscape}"
            ;;
        trust)
            measured 150 tests/bench/profiles_on_gpu.py --out "$out/profiles.json"
            measured 140 -m workbench calibrate --out "$out/calibration.json"
            measured 150 tests/bench/timing_trust.py --out "$out"
            measured 100 tests/bench/grouped_on_gpu.py --out "$out/grouped.json"
            measured 40 tests/bench/many_elements_on_gpu.py --out "$out/many_elements.json"
            ;;
        turnaround)
            measured 200 tests/bench/turnaround_on_gpu.py --out "$out" --steps 2
            measured 260 tests/bench/rows_on_gpu.py --out "$out/rows.json" --limit-s 230
            measured 130 tests/bench/streamk_on_gpu.py --out "$out/streamk.json" --limit-s 110
            ;;
        *) echo "PART is problems, landscape, trust or turnaround, not $part" >&2; exit 2 ;;
    esac
} > "$out/$part.log" 2>&1
tail -n 60 "$out/$part.log"
