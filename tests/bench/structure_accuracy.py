"""SymGraph, its ablations, a GIN and a self-explaining network on generated sets: accuracy and seconds of training.

python tests/bench/structure_accuracy.py --out tests/bench/results/structure_accuracy.json

Ten folds, stratified; one row for each set, method and fold, written as it is done; rows that are there are not done
again. Networks train for a fixed number of epochs (100 on graphs, 500 on nodes). Seconds are those of the processor, on
one thread for all methods, so that other work on the machine does not count; a network could use a second core, and
would then take half as long at best. No GPU.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from graph_networks import Gin, SelfExplaining, predict, train_on_graphs, train_on_nodes

from workbench.structure import datasets
from workbench.structure.estimators import SymGraphClassifier, SymGraphNodeClassifier, nodes_of

SETS: dict[str, Callable[[], Any]] = {
    "BA2Motifs": datasets.ba_2motifs,
    "BAMultiShapes": datasets.ba_multi_shapes,
    "BA-Shapes": datasets.ba_shapes,
    "Tree-Cycles": datasets.tree_cycles,
    "Tree-Grid": datasets.tree_grid,
}
RADII = {"Tree-Cycles": (1, 2, 3)}  # a ring of six is seen within three hops
SYMBOLIC = {
    "rules": {},
    "forest": {"final": "forest"},
    "no orbits": {"use_orbits": False},
    "no hash": {"use_hash": False},
    "no search": {"use_search": False},
}
NETWORKS = {"GIN": (Gin, 1), "self-explaining": (SelfExplaining, 1), "GIN, 5 times the epochs": (Gin, 5)}
EPOCHS = {"graphs": 100, "nodes": 500}
FOLDS = 10


def measure(name: str, method: str, fold: int) -> dict[str, Any]:
    """One fold."""
    data = SETS[name]()
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(data.labels, data.labels)
    train, test = list(folds)[fold]
    of_nodes = isinstance(data, datasets.NodeSet)
    if method in NETWORKS:
        return _measure_network(*NETWORKS[method], data, train, test)
    kind = SymGraphNodeClassifier if of_nodes else SymGraphClassifier
    items = nodes_of(data.graph) if of_nodes else data.graphs
    model = kind(radii=RADII.get(name, (1, 2)), **SYMBOLIC[method])
    start = time.process_time()
    model.fit([items[i] for i in train], data.labels[train])
    seconds = time.process_time() - start
    right = model.predict([items[i] for i in test]) == data.labels[test]
    return {
        "accuracy": round(float(right.mean()), 5),
        "seconds": round(seconds, 3),
        "predicates": len(model.model_.columns),
        "rules": int(model.model_.tree.get_n_leaves()),
    }


def _measure_network(kind: type[Gin], times: int, data: Any, train: np.ndarray, test: np.ndarray) -> dict[str, Any]:
    if isinstance(data, datasets.NodeSet):
        model, seconds = train_on_nodes(kind, data.graph, data.labels, train, times * EPOCHS["nodes"], 0)
        found = predict(model, [data.graph])[test]
    else:
        graphs = [data.graphs[i] for i in train]
        model, seconds = train_on_graphs(kind, graphs, data.labels[train], times * EPOCHS["graphs"], 0)
        found = predict(model, [data.graphs[i] for i in test])
    return {"accuracy": round(float((found == data.labels[test]).mean()), 5), "seconds": round(seconds, 3)}


def summarise(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Set -> method -> mean and deviation of the accuracy, median of the seconds, folds."""
    found: dict[str, dict[str, Any]] = {}
    for name in SETS:
        for method in (*SYMBOLIC, *NETWORKS):
            mine = [row for row in rows if row["set"] == name and row["method"] == method]
            if mine:
                accuracies = [row["accuracy"] for row in mine]
                found.setdefault(name, {})[method] = {
                    "folds": len(mine),
                    "accuracy": round(float(np.mean(accuracies)), 4),
                    "deviation": round(float(np.std(accuracies)), 4),
                    "seconds": round(float(np.median([row["seconds"] for row in mine])), 2),
                }
    return found


def main() -> None:
    """Write the rows that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folds", type=int, default=FOLDS, help="the first folds only")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--methods", nargs="*", default=[*SYMBOLIC, *NETWORKS])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"rows": []}
    known = {(row["set"], row["method"], row["fold"]) for row in found["rows"]}
    for fold in range(arguments.folds):
        for method in arguments.methods:
            for name in arguments.sets:
                if (name, method, fold) in known:
                    continue
                row = {"set": name, "method": method, "fold": fold, **measure(name, method, fold)}
                print(row, flush=True)
                found["rows"].append(row)
                found |= {"summary": summarise(found["rows"]), "machine": f"{platform.machine()}, one thread"}
                arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
