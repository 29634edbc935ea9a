#!/usr/bin/env bash
# On a machine with a GPU. $1: folder for results. COMPARE=DIR: emulator against GPU on recorded sources. PROBLEMS=a,b STEPS=n PRECISION=p: the planner's loop.
set -uo pipefail
out=$1
if [ -n "${COMPARE:-}" ]; then
  python3 tests/bench/emulator_vs_gpu.py run --sources "$COMPARE" --out "$out/emulator_vs_gpu.json" 2>&1 | tee "$out/emulator_vs_gpu.log"
else
  python3 tests/bench/gpu_loop.py --precision "${PRECISION:-fp32}" --out "$out/gpu_loop${PRECISION:+_$PRECISION}.json" --steps "${STEPS:-3}" ${PROBLEMS:+--problems "$PROBLEMS"} 2>&1 | tee "$out/gpu_loop.log"
fi
