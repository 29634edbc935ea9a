#!/usr/bin/env bash
# On a machine with a GPU: the planner's loop on all shipped problems, then emulator against GPU. Results go to the folder $1.
set -uo pipefail
out=$1; shift
python3 tests/bench/gpu_loop.py --out "$out/gpu_loop.json" "$@" 2>&1 | tee "$out/gpu_loop.log"
