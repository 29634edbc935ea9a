. .device/setup.sh; export PYTHONPATH=$PYTHONPATH:$PWD
N=$(nvidia-smi -L | wc -l); B="timeout $1 python3 -u -W ignore tests/bench/comm_rand_in_host_memory.py --gpus $N"
timeout 95 python3 -u -W ignore tests/bench/comm_rand_in_host_memory.py --gpus $N --pilot --limit-s 75 --out $OUT/pilot.jsonl > $OUT/pilot.log 2>&1; grep "learning rates" $OUT/pilot.log; tail -2 $OUT/pilot.log | cut -c1-300
R=$(python3 - <<'P'
import re,os
t=open(os.environ["OUT"]+"/pilot.log").read()
m=re.search(r"learning rates: \{'sage': ([\d.e-]+), 'gat': ([\d.e-]+)\}",t)
print(",".join(m.groups()) if m else "")
P
)
[ -n "$R" ] && $B --learning-rates $R --limit-s $2 --out $OUT/rows.jsonl > $OUT/rows.log 2>&1; tail -4 $OUT/rows.log | cut -c1-300
