"""How long SymGraph takes to learn from large graphs on the processor, and how much memory.

    python tests/bench/structure_scale.py [--edges 1000000] [--only NAME] [--out results/structure_scale.json]

The published sets with planted motifs at about so many edges: BA2Motifs (many small graphs, one label each), Tree-Grid
and BA-Shapes (one graph, a label for each node; the latter has hubs). Each runs in a process of its own. Seconds are of
the wall, of one fit with ego graphs of one and two hops; memory is the largest resident size. Nine nodes or graphs in
ten are learnt from, the accuracy is that on the others.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy

sys.path.insert(0, str(Path(__file__).parents[2]))

from workbench.structure import datasets
from workbench.structure.estimators import SymGraphClassifier, SymGraphNodeClassifier, nodes_of

NAMES = ("BA2Motifs", "Tree-Grid", "BA-Shapes")
HERE = Path(__file__).resolve()


def make(name: str, edges: int) -> datasets.GraphSet | datasets.NodeSet:
    """A set of about so many edges."""
    if name == "BA2Motifs":
        return datasets.ba_2motifs(round(edges / 25.5))
    if name == "Tree-Grid":  # with a random edge for ten others, as published
        height = max(3, round(math.log2(edges * 0.9 * 0.3)) - 1)
        return datasets.tree_grid(height=height, grids=round((edges / 1.1 - 2 ** (height + 1)) / 13))
    base = round(edges / 1.01 / (5 + 7 * 80 / 300))
    return datasets.ba_shapes(base=base, houses=round(base * 80 / 300))


def measure(name: str, edges: int) -> dict[str, Any]:
    """One fit."""
    data = make(name, edges)
    graphs = [data.graph] if isinstance(data, datasets.NodeSet) else list(data.graphs)
    items: list[Any] = nodes_of(data.graph) if isinstance(data, datasets.NodeSet) else list(data.graphs)
    kind = SymGraphNodeClassifier if isinstance(data, datasets.NodeSet) else SymGraphClassifier
    order = numpy.random.default_rng(0).permutation(len(items))
    train, test = order[len(order) // 10 :], order[: len(order) // 10]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start, cpu = time.perf_counter(), time.process_time()
    model = kind().fit([items[i] for i in train], data.labels[train])
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found = model.predict([items[i] for i in test])
    return {
        "graphs": len(graphs),
        "nodes": sum(graph.size for graph in graphs),
        "edges": sum(len(graph.edges) for graph in graphs),
        "fit_s": round(seconds, 1),
        "fit_cpu_s": round(cpu, 1),
        "made_gib": round(before, 2),
        "peak_gib": round(peak, 2),
        "accuracy": round(float((found == data.labels[test]).mean()), 4),
        "rules": int(model.model_.tree.get_n_leaves()),
    }


def main() -> None:
    """Measure each set in a process of its own, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--here", action="store_true", help="in this process; prints the row")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "structure_scale.json")
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(measure(arguments.only, arguments.edges)))
        return
    found = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"sets": {}}
    found["machine"] = f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}, {platform.system()}"
    for name in [arguments.only] if arguments.only else NAMES:
        command = [sys.executable, str(HERE), "--here", "--only", name, "--edges", str(arguments.edges)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(name, done.stderr[-1000:], flush=True)
            continue
        found["sets"][name] = json.loads(done.stdout)
        print(name, found["sets"][name], flush=True)
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
