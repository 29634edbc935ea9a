"""Time to convergence and accuracy of mini-batch training by policy: uniform, COMM-RAND at several points of its two
knobs, no randomness, LABOR and ClusterGCN, on three generated graphs, with GraphSAGE and GAT.

    python tests/bench/comm_rand_on_gpu.py --device cuda [--out FILE.jsonl] [--limit-s 1500]
    python tests/bench/comm_rand_on_gpu.py --graphs sbm --models sage --seeds 1      (part of the table)
    python tests/bench/comm_rand_on_gpu.py --small --device cpu      (12,000 nodes, GraphSAGE only)
    python tests/bench/comm_rand_on_gpu.py --table FILE.jsonl        (the table of rows that were measured)

Features, labels and edges are on the device. Batches are drawn there by torch, on a CPU by numpy (--sampler chooses),
and the time of that counts. The full size has graphs of at least a million edges and three seeds. Each row says the
GPU, its driver, torch and the date. Training stops when validation accuracy, over all neighbours, has
not risen for `patience` epochs. A file of rows is continued. It goes to --out, or $OUT/comm_rand.jsonl.

The time to convergence of a policy is the time at which it first reaches the accuracy that uniform batches reach at
their own convergence less 0.5 points, with the seconds that find and permute communities (uniform and LABOR need none).
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import get_args

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.executors.gpu.telemetry import driver_version
from workbench.graphs.batches import MiniBatches, Policy
from workbench.graphs.communities import Relabelled, relabel
from workbench.graphs.generators import Nodes, barabasi_albert, rmat, stochastic_block_model
from workbench.graphs.graph import Graph
from workbench.graphs.locality import CacheModel, EpochLocality, measure_batches, summarise
from workbench.graphs.models import MODELS
from workbench.graphs.sweep import BASELINES, describe, list_policies, read_rows, sweep
from workbench.graphs.training import Place, Result, Sampler, Training, train

POINTS = ((0.125, 0.9), (0.125, 1.0), (0.0, 1.0), (0.5, 0.9), (0.125, 0.5))  # (mix, p)
SLACK = 0.005  # of accuracy: what counts as reached
LOOKED_AT = 8  # batches whose rows and hits are counted
GRAPHS = ("sbm", "rmat", "ba")


def make_graph(name: str, small: bool, features: int, spread: float) -> Graph:
    """A block model, a recursive-matrix graph or a preferential-attachment graph."""
    if small:
        given = Nodes(features=features)
        if name == "sbm":
            return stochastic_block_model(12_000, 60, 14, given=given)
        return rmat(13, 16, given=given) if name == "rmat" else barabasi_albert(12_000, 7, given=given)
    given = Nodes(features=features, classes=40, spread=spread)  # so that an epoch does not suffice
    if name == "sbm":
        return stochastic_block_model(500_000, 2500, 18, given=given)
    return rmat(19, 16, given=given) if name == "rmat" else barabasi_albert(500_000, 9, given=given)


def measure_locality(
    prepared: Relabelled, policies: Sequence[Policy], cache: CacheModel
) -> dict[Policy, EpochLocality]:
    """The locality of the first batches of each policy; that of seed 0 stands for all seeds."""
    found: dict[Policy, EpochLocality] = {}
    for policy in policies:
        first = dataclasses.replace(policy, seed=0)
        if first not in found:
            batches = list(itertools.islice(MiniBatches(prepared.graph, first).epoch(0), LOOKED_AT))
            found[first] = summarise(measure_batches(prepared.graph, batches, cache))
        found[policy] = found[first]
    return found


def warm_up(prepared: Relabelled, policy: Policy, training: Training, measured: dict[Policy, EpochLocality]) -> None:
    """An epoch that no row holds: libraries load and kernels are chosen, which the first policy would pay for."""
    train(prepared, policy, dataclasses.replace(training, epochs=1), measured=measured)


def list_versions(device: str) -> list[tuple[str, str]]:
    """The GPU's driver and CUDA; nothing for a CPU."""
    if not device.startswith("cuda"):
        return []
    return [("driver", driver_version()), ("cuda", str(torch.version.cuda))]


def measure(arguments: argparse.Namespace, out: Path) -> None:
    """Train everything that the file does not hold, until the time is up."""
    start = time.monotonic()
    seeds = range(arguments.seeds)
    like = Policy(batch=arguments.batch or (256 if arguments.small else 4096), fanouts=(10, 10))
    policies = [policy for mix, p in POINTS for policy in list_policies((mix,), (p,), seeds, (), like)] + list_policies(
        (), (), seeds, BASELINES, like
    )
    policies.sort(key=lambda policy: (policy.seed, policy.name != "uniform"))
    cache = CacheModel(capacity_bytes=(256 << 10) if arguments.small else (8 << 20))
    machine = list_versions(arguments.device)
    for name in arguments.graphs:
        graph = make_graph(
            name, arguments.small, arguments.features or (32 if arguments.small else 512), arguments.spread
        )
        prepared = relabel(graph, arguments.communities)
        print(
            f"{graph.name}: {graph.edges} edges, {prepared.count} communities, {prepared.prepare_s:.2f} s", flush=True
        )
        measured = measure_locality(prepared, policies, cache)
        for model in arguments.models or (("sage",) if arguments.small else MODELS):
            training = Training(
                model=model,
                hidden=64 if arguments.small else 128,
                epochs=arguments.epochs,
                patience=arguments.patience,
                device=arguments.device,
                sampler=arguments.sampler,
                features=arguments.place,
                learning_rate=0.003,
            )
            warm_up(prepared, policies[0], training, measured)
            for policy in policies:
                if time.monotonic() - start > arguments.limit_s:
                    print("the time is up; the same command continues")
                    return
                found = sweep(prepared, [policy], training, out, cache, machine=machine, measured=measured)[0]
                print(f"  {model} {describe(policy)}: {found.test:.4f}, epoch {found.epoch_s:.3f} s", flush=True)


def tabulate(results: Sequence[Result]) -> str:
    """A Markdown table: by graph and model, each policy against uniform batches; means over seeds.

    Times of a CPU are left out: other programs of the machine disturb them, and it has no cache of a GPU.
    """
    groups: dict[tuple[str, ...], dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        label = describe(dataclasses.replace(result.policy, seed=0)).removesuffix(", seed 0")
        groups[result.graph, f"{result.training.model}, features on {result.training.features}"][label].append(result)
    is_timed = any(result.device != "CPU" for result in results)
    head = ["graph", "model", "policy", "seeds", "unique rows", "hit rate", "label bits", "epochs", "test", "points"]
    head += ["epoch s", "drawing s", "s to accuracy", "speed-up"] if is_timed else []
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (graph, model), by_policy in groups.items():
        stock = by_policy.get("uniform", [])
        if not stock:
            continue
        wanted = {one.policy.seed: max(one.curve) - 0.002 - SLACK for one in stock}
        for label, found in by_policy.items():
            cells = [graph, model, label, str(len(found)), *describe_runs(found, stock, wanted)]
            cells += describe_times(found, stock, wanted) if is_timed else []
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def describe_runs(found: list[Result], stock: list[Result], wanted: dict[int, float]) -> list[str]:
    """Rows, hits, label entropy, epochs to the wanted accuracy, test accuracy, and points against uniform batches."""
    test, base = (fmean(one.test or 0.0 for one in some) for some in (found, stock))
    epochs = fmean(reach(one, wanted)[0] for one in found)
    return [
        f"{fmean(one.locality.unique_rows for one in found):.0f}",
        f"{fmean(one.locality.hit_rate for one in found):.1%}",
        f"{fmean(one.locality.label_bits for one in found):.2f}",
        f"{epochs:.1f}" if math.isfinite(epochs) else "not reached",
        f"{test:.2%}",
        f"{100 * (test - base):+.2f}",
    ]


def describe_times(found: list[Result], stock: list[Result], wanted: dict[int, float]) -> list[str]:
    """Seconds of an epoch, of them drawing, to the wanted accuracy, and how many times faster than uniform batches."""
    to, base = (fmean(reach(one, wanted)[1] for one in some) for some in (found, stock))
    epoch, drawing = (fmean(getattr(one, name) for one in found) for name in ("epoch_s", "sample_s"))
    known = math.isfinite(to)
    return [f"{epoch:.3f}", f"{drawing:.3f}", f"{to:.2f}" if known else "-", f"{base / to:.2f}" if known else "-"]


def reach(result: Result, wanted: dict[int, float]) -> tuple[float, float]:
    """(epoch, seconds) at which a run reached the accuracy of uniform batches with its seed; infinite if never."""
    return result.reached(wanted.get(result.policy.seed, min(wanted.values()))) or (math.inf, math.inf)


def split_names(text: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(text.split(","))


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sampler", default="auto", choices=get_args(Sampler), help="where batches are drawn")
    parser.add_argument("--place", default="device", choices=get_args(Place), help="where features lie")
    parser.add_argument("--spread", type=float, default=24.0, help="of features: noise over the distance of classes")
    parser.add_argument("--graphs", type=split_names, default=GRAPHS, help=f"some of {','.join(GRAPHS)}")
    parser.add_argument("--models", type=split_names, help=f"some of {','.join(MODELS)}")
    parser.add_argument("--features", type=int, help="of a node (default 512, small 32)")
    parser.add_argument("--batch", type=int, help="roots of a batch (default 4096, small 256)")
    parser.add_argument("--communities", default="parallel_louvain", help="how communities are found")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--patience", type=int, default=6)
    parser.add_argument("--limit-s", type=float, default=1500)
    parser.add_argument("--out")
    parser.add_argument("--table", metavar="FILE")
    arguments = parser.parse_args()
    for given, known in ((arguments.graphs, GRAPHS), (arguments.models or (), MODELS)):
        if set(given) - set(known):
            parser.error(f"{','.join(given)}: choose from {','.join(known)}")
    out = Path(arguments.table or arguments.out or Path(os.environ.get("OUT", ".")) / "comm_rand.jsonl")
    if not arguments.table:
        measure(arguments, out)
    print(tabulate([row.result for row in read_rows(out)]))


if __name__ == "__main__":
    main()
