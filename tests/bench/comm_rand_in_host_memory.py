"""Time to convergence of mini-batch training by policy where features lie in the host's memory, as those of a graph that
a GPU cannot hold: three block models of different size, density and strength, GraphSAGE and GAT, three seeds.

    python tests/bench/comm_rand_in_host_memory.py --gpus 2 [--out FILE.jsonl] [--limit-s 470]
    python tests/bench/comm_rand_in_host_memory.py --small       (a tenth of the size, on a CPU, GraphSAGE, one seed)
    python tests/bench/comm_rand_in_host_memory.py --table FILE.jsonl        (the tables of rows that were measured)

A process on each GPU, with its share of the cores, takes the next training from one list, ordered by seed, so that a
file that was stopped has whole seeds. A file of rows is continued. Batches are drawn on the GPU; rows are gathered by
threads in pinned memory and copied on a stream of their own; both run ahead of the step, for all policies alike.

Features have 1,024 columns, as those of IGB (Khatua and others 2023), and unit variance. A class has three centres.
Their noise, the learning rate and the number of centres were chosen by pilots on a CPU, on a block model of 30,000
nodes and 400 communities with generator seed 100 and training seed 0, which is none of the graphs here, so that uniform
batches need about ten epochs; no policy has a setting of its own. Libraries are loaded before anything is timed.

The time to convergence of a policy is the time at which it first reaches the accuracy that uniform batches reach at
their own convergence less 0.5 points, with the seconds that find and permute communities (uniform and LABOR need none).
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import itertools
import math
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

import comm_rand_on_gpu
import torch
from page_parts import table

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.graphs.batches import MiniBatches, Policy
from workbench.graphs.communities import Relabelled, relabel
from workbench.graphs.device.batches import DeviceMiniBatches
from workbench.graphs.generators import Nodes, stochastic_block_model
from workbench.graphs.graph import Graph
from workbench.graphs.locality import CacheModel, EpochLocality, measure_batches, summarise
from workbench.graphs.models import MODELS, ModelName
from workbench.graphs.sweep import describe, list_policies, read_rows, sweep
from workbench.graphs.training import Result, Training, train

POINTS = ((0.125, 0.9), (0.125, 1.0), (0.0, 1.0))  # (mix, p); the first is the recommended one
BASELINES = ("uniform", "labor", "cluster-gcn")
BLOCKS = {  # nodes, communities, degree, share of edges inside
    "middle": (300_000, 3000, 16.0, 0.9),
    "dense": (240_000, 800, 30.0, 0.8),
    "sparse": (400_000, 2000, 10.0, 0.95),
}
GIVEN = Nodes(features=1024, classes=10, modes=3, spread=24.0, scaled=True, train=0.5)
LEARNING_RATE = 0.001
CACHE = CacheModel(capacity_bytes=32 << 20)
LOOKED_AT = 2  # batches whose rows and hits are counted
PAPER = {"mean": 1.8, "best": 2.76, "points lost": 0.42, "most points lost": 1.79}  # arXiv 2504.18082, abstract


@dataclasses.dataclass(frozen=True)
class Job:
    """A training that is to be done."""

    graph: str
    model: ModelName
    policy: Policy


def make_graph(name: str, small: bool, seed: int = 0) -> Graph:
    """A block model at full size, or at a tenth of it with fewer features."""
    nodes, communities, degree, inside = BLOCKS[name]
    if small:
        given = dataclasses.replace(GIVEN, features=64, spread=6.0)
        return stochastic_block_model(nodes // 10, communities // 10, degree, inside, seed=seed, given=given)
    return stochastic_block_model(nodes, communities, degree, inside, seed=seed, given=GIVEN)


def list_jobs(graphs: Sequence[str], models: Sequence[ModelName], seeds: int, small: bool) -> list[Job]:
    """All trainings, seed by seed, uniform batches first."""
    like = Policy(batch=819 if small else 8192, fanouts=(10, 10))
    jobs = []
    for seed, graph, model in itertools.product(range(seeds), graphs, models):
        policies = list_policies((), (), (seed,), BASELINES[:1], like)
        policies += [one for mix, p in POINTS for one in list_policies((mix,), (p,), (seed,), (), like)]
        policies += list_policies((), (), (seed,), BASELINES[1:], like)
        jobs += [Job(graph, model, policy) for policy in policies]
    return jobs


def measure_locality(prepared: Relabelled, policy: Policy, device: torch.device) -> EpochLocality:
    """Rows, bytes and hits of the first batches with seed 0, which stand for all seeds."""
    drawn = DeviceMiniBatches(MiniBatches(prepared.graph, dataclasses.replace(policy, seed=0)), device).epoch(0)
    return summarise(
        measure_batches(prepared.graph, [one.to_host() for one in itertools.islice(drawn, LOOKED_AT)], CACHE)
    )


class Worker:
    """Trains on one device; communities of each graph are found when it is first needed."""

    def __init__(self, arguments: argparse.Namespace, graphs: dict[str, Graph]) -> None:
        self.arguments, self.graphs = arguments, graphs
        self.device = torch.device(arguments.device)
        self.prepared: dict[str, Relabelled] = {}
        self.measured: dict[str, dict[Policy, EpochLocality]] = defaultdict(dict)
        self.machine = comm_rand_on_gpu.list_versions(arguments.device)
        relabel(make_graph("sparse", True), "parallel_louvain")  # libraries load, which the first graph would pay for

    def prepare(self, name: str) -> Relabelled:
        """The graph with its communities, found once."""
        if name not in self.prepared:
            found = self.prepared[name] = relabel(self.graphs[name], "parallel_louvain")
            print(
                f"{found.graph.name}: {found.graph.edges} edges, {found.count} communities of modularity "
                f"{found.modularity:.3f} in {found.detect_s:.2f} s, permuted in {found.permute_s:.2f} s",
                flush=True,
            )
        return self.prepared[name]

    def plan(self, model: ModelName) -> Training:
        """How a model is trained, whatever the policy."""
        return Training(
            model=model,
            hidden=128,
            epochs=self.arguments.epochs,
            patience=self.arguments.patience,
            device=self.arguments.device,
            sampler="device",
            features="host",
            prefetch=2,
            learning_rate=LEARNING_RATE,
        )

    def warm_up(self, job: Job) -> None:
        """An epoch of each model that no row holds: kernels are chosen and pinned memory is got."""
        for model in MODELS:
            self.train(dataclasses.replace(job, model=model), once=True)

    def train(self, job: Job, once: bool = False) -> Result:
        """Train, unless the file has it."""
        prepared, measured = self.prepare(job.graph), self.measured[job.graph]
        if job.policy not in measured:
            first = dataclasses.replace(job.policy, seed=0)
            if first not in measured:
                measured[first] = measure_locality(prepared, first, self.device)
            measured[job.policy] = measured[first]
        plan = self.plan(job.model)
        if once:
            return train(prepared, job.policy, dataclasses.replace(plan, epochs=1), CACHE, measured=measured)
        out = Path(self.arguments.out)
        return sweep(prepared, [job.policy], plan, out, CACHE, machine=self.machine, measured=measured)[0]


def work(number: int, workers: int, jobs: Sequence[Job], taken: Any, graphs: dict[str, Graph], arguments: Any) -> None:
    """Take one job after the other until there is none or the time is up."""
    if arguments.device.startswith("cuda"):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(str(one) for one in range(workers))
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[number]
    cores = sorted(os.sched_getaffinity(0))
    mine = cores[len(cores) * number // workers : len(cores) * (number + 1) // workers]
    os.sched_setaffinity(0, mine)
    torch.set_num_threads(max(1, len(mine) - 2))  # two are left for the threads that draw and step
    worker = Worker(arguments, graphs)
    worker.warm_up(jobs[0])
    while time.monotonic() - arguments.begun < arguments.limit_s:
        with taken.get_lock():
            at, taken.value = taken.value, taken.value + 1
        if at >= len(jobs):
            return
        job = jobs[at]
        found = worker.train(job)
        gc.collect()
        print(
            f"{time.monotonic() - arguments.begun:.0f} s, {at + 1} of {len(jobs)}: {job.graph} {job.model} "
            f"{describe(job.policy)}: {found.test:.4f}, {len(found.curve)} epochs of {found.epoch_s:.3f} s, "
            f"{found.parts}, {' '.join(f'{100 * one:.1f}' for one in found.curve)}",
            flush=True,
        )
    print("the time is up; the same command continues", flush=True)


def measure(arguments: argparse.Namespace) -> None:
    """Make the graphs, then share the trainings out."""
    with ThreadPoolExecutor() as pool:  # numpy only, so that the processes may be forked
        made = pool.map(lambda name: make_graph(name, arguments.small), arguments.graphs)
        graphs = dict(zip(arguments.graphs, made, strict=True))
        list(pool.map(Graph.digest, graphs.values()))
    print(f"{time.monotonic() - arguments.begun:.0f} s: graphs are made", flush=True)
    jobs = list_jobs(arguments.graphs, arguments.models, arguments.seeds, arguments.small)
    forking = multiprocessing.get_context("fork")
    taken = forking.Value("i", 0)
    workers = max(1, arguments.gpus)
    started = [
        forking.Process(target=work, args=(number, workers, jobs, taken, graphs, arguments))
        for number in range(workers)
    ]
    for one in started:
        one.start()
    for one in started:
        one.join()
    if any(one.exitcode for one in started):
        raise SystemExit("a process failed")


@dataclasses.dataclass(frozen=True)
class Line:
    """A policy on one graph with one model, against uniform batches; means over seeds."""

    graph: str
    model: str
    policy: str
    results: list[Result]
    stock: list[Result]

    @property
    def wanted(self) -> dict[int, float]:
        """The accuracy that counts as convergence, by seed."""
        return {one.policy.seed: max(one.curve) - 0.002 - comm_rand_on_gpu.SLACK for one in self.stock}

    @property
    def speedup(self) -> float:
        """Times faster to convergence, of the means over seeds; 0 if a seed never converged."""
        to, base = (
            fmean(comm_rand_on_gpu.reach(one, self.wanted)[1] for one in some) for some in (self.results, self.stock)
        )
        return base / to

    @property
    def epoch_speedup(self) -> float:
        """Times faster an epoch, preprocessing aside."""
        mine, base = (fmean(one.epoch_s or math.nan for one in some) for some in (self.results, self.stock))
        return base / mine

    @property
    def points(self) -> float:
        """Points of test accuracy above uniform batches."""
        mine, base = (fmean(one.test or math.nan for one in some) for some in (self.results, self.stock))
        return 100 * (mine - base)


def compare(results: Sequence[Result]) -> list[Line]:
    """A line for each graph, model and policy; seeds that uniform batches were not trained with are left out."""
    groups: dict[tuple[str, str], dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for one in results:
        label = describe(dataclasses.replace(one.policy, seed=0)).removesuffix(", seed 0")
        groups[one.graph, one.training.model][label].append(one)
    lines = []
    for (graph, model), by_policy in groups.items():
        stock = by_policy["uniform"]
        seeds = {one.policy.seed for one in stock}
        for label, found in by_policy.items():
            kept = [one for one in found if one.policy.seed in seeds]
            if kept:
                some = {one.policy.seed for one in kept}
                lines.append(Line(graph, model, label, kept, [one for one in stock if one.policy.seed in some]))
    return lines


def summarise_policies(lines: Sequence[Line]) -> str:
    """A table with a row for each policy over all graphs and models, and the paper's row."""
    head = ["policy", "to convergence, mean", "best", "least", "an epoch, mean", "best", "points lost, mean", "worst"]
    rows = []
    for label in dict.fromkeys(line.policy for line in lines):
        mine = [line for line in lines if line.policy == label]
        to, epoch = ([getattr(line, name) for line in mine] for name in ("speedup", "epoch_speedup"))
        lost = [-line.points for line in mine]
        rows.append(
            [label, f"{fmean(to):.2f}", f"{max(to):.2f}", f"{min(to):.2f}" if min(to) else "not reached",
             f"{fmean(epoch):.2f}", f"{max(epoch):.2f}", f"{fmean(lost):.2f}", f"{max(lost):.2f}"]
        )  # fmt: skip
    paper = (PAPER["mean"], PAPER["best"], PAPER["points lost"], PAPER["most points lost"])
    rows.append(["COMM-RAND in its paper", f"{paper[0]:.2f}", f"{paper[1]:.2f}", *["-"] * 3, *map(str, paper[2:])])
    return table(head, rows)


def tabulate(lines: Sequence[Line]) -> str:
    """A table with a row for each graph, model and policy, and where its time goes."""
    head = ["graph", "model", "policy", "seeds", "unique rows", "GB an epoch", "epochs", "test", "points", "epoch s"]
    head += ["drawing", "gathering", "copying", "steps", "preparing s", "s to accuracy", "speed-up"]
    rows = []
    for line in lines:
        found = line.results
        epochs, seconds = (fmean(comm_rand_on_gpu.reach(one, line.wanted)[at] for one in found) for at in (0, 1))
        parts = [one.parts for one in found if one.parts is not None]
        row_bytes = found[0].locality.feature_bytes / found[0].locality.unique_rows
        rows.append(
            [line.graph, line.model, line.policy, f"{len(found)}",
             f"{fmean(one.locality.unique_rows for one in found):.0f}",
             f"{fmean(one.rows for one in parts) * row_bytes / 1e9:.1f}",
             f"{epochs:.1f}" if math.isfinite(epochs) else "not reached",
             f"{fmean(one.test or math.nan for one in found):.2%}", f"{line.points:+.2f}",
             f"{fmean(one.epoch_s or math.nan for one in found):.3f}",
             *(f"{fmean(getattr(one, name) for one in parts):.3f}" for name in ("draw_s", "gather_s", "copy_s", "step_s")),
             f"{fmean(one.prepare_s for one in found):.2f}",
             *((f"{seconds:.2f}", f"{line.speedup:.2f}") if math.isfinite(seconds) else ("-", "-"))]
        )  # fmt: skip
    return table(head, rows)


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gpus", type=int, default=1, help="processes, each on a GPU of its own")
    parser.add_argument("--small", action="store_true", help="on a CPU")
    parser.add_argument("--graphs", type=comm_rand_on_gpu.split_names, default=tuple(BLOCKS))
    parser.add_argument("--models", type=comm_rand_on_gpu.split_names)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--patience", type=int, default=4)
    parser.add_argument("--limit-s", type=float, default=470)
    parser.add_argument("--out", default=str(Path(os.environ.get("OUT", ".")) / "comm_rand_host.jsonl"))
    parser.add_argument("--table", metavar="FILE")
    arguments = parser.parse_args()
    arguments.begun = time.monotonic()
    arguments.device = "cpu" if arguments.small else "cuda"
    arguments.models = arguments.models or (("sage",) if arguments.small else MODELS)
    arguments.seeds = arguments.seeds or (1 if arguments.small else 3)
    if set(arguments.graphs) - set(BLOCKS):
        parser.error(f"{','.join(arguments.graphs)}: choose from {','.join(BLOCKS)}")
    if not arguments.table:
        measure(arguments)
    lines = compare([row.result for row in read_rows(Path(arguments.table or arguments.out))])
    print(summarise_policies(lines), tabulate(lines), sep="\n\n")


if __name__ == "__main__":
    main()
