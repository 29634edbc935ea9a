#!/usr/bin/env bash
# On a machine with a GPU: the planner's loop on all shipped problems, and emulator against GPU. Results go to the folder $1.
set -uo pipefail
out=$1
sources=$(mktemp -d)
timeout 420 python3 tests/bench/emulator_vs_gpu.py record --sources "$sources" >"$out/record.log" 2>&1 &
timeout 440 python3 tests/bench/gpu_loop.py --out "$out/gpu_loop.json" --steps "${STEPS:-3}" ${PROBLEMS:+--problems "$PROBLEMS"} 2>&1 | tee "$out/gpu_loop.log"
wait
timeout 130 python3 tests/bench/emulator_vs_gpu.py run --sources "$sources" --out "$out/emulator_vs_gpu.json" 2>&1 | tee "$out/emulator_vs_gpu.log" | tail -n 60
