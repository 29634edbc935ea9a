#!/usr/bin/env bash
# On a machine with a GPU: emulator against GPU on recorded sources (folder $2), then the planner's loop. Results go to the folder $1.
set -uo pipefail
out=$1 sources=$2
timeout 160 python3 tests/bench/emulator_vs_gpu.py run --sources "$sources" --out "$out/emulator_vs_gpu.json" >"$out/emulator_vs_gpu.log" 2>&1
tail -n 45 "$out/emulator_vs_gpu.log" | cut -c1-240
timeout 400 python3 tests/bench/gpu_loop.py --out "$out/gpu_loop.json" --steps "${STEPS:-3}" ${PROBLEMS:+--problems "$PROBLEMS"} 2>&1 | tee "$out/gpu_loop.log"
