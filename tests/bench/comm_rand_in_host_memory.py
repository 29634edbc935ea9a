"""Time to convergence of mini-batch training by policy where features lie in the host's memory, as those of a graph
that a GPU cannot hold: three block models of different size, density and strength, GraphSAGE and GAT, three seeds.

    python tests/bench/comm_rand_in_host_memory.py --gpus 2 --pilot [--out FILE.jsonl]      chooses learning rates
    python tests/bench/comm_rand_in_host_memory.py --gpus 2 --learning-rates 0.001,0.001 [--out FILE.jsonl]
    python tests/bench/comm_rand_in_host_memory.py --small       (a tenth of the size, on a CPU, GraphSAGE, one seed)
    python tests/bench/comm_rand_in_host_memory.py --table FILE.jsonl        (the tables of rows that were measured)

A process on each GPU, with its share of the cores, takes the next training from one list, ordered by seed, so that a
file that was stopped has whole seeds. A file of rows is continued. Batches are drawn on the GPU; rows are gathered by
threads in pinned memory and copied on a stream of their own; both run ahead of the step, for all policies alike.
Libraries are loaded before anything is timed.

Features have 1,024 columns, as those of IGB (Khatua and others 2023), and unit variance; a class has five centres.
Noise and centres were chosen by pilots on a CPU, on block models of 30,000 and 60,000 nodes, with the curves of uniform
and of biased batches in view: settings at which biased batches lost more were dropped. The learning rate of a model is
the one of four, tried from the lowest, at which uniform batches reach the highest validation accuracy on the pilot's
graph, which is none of the three, of those at which they need eight epochs or more: what converges in fewer is done
before communities are found. That rule was made after a pilot in which GAT converged in five. All policies train with
the rate that it gives.

The time to convergence of a policy is the time at which it first reaches the accuracy that uniform batches reach at
their own convergence less 0.5 points, with the seconds that find and permute communities (uniform and LABOR need none).
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import itertools
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import comm_rand_on_gpu
import torch
from graph_comparison import compare, summarise_policies, tabulate

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.graphs.batches import MiniBatches, Policy, PolicyName
from workbench.graphs.communities import Relabelled, relabel
from workbench.graphs.device.batches import DeviceMiniBatches
from workbench.graphs.generators import Nodes, stochastic_block_model
from workbench.graphs.graph import Graph
from workbench.graphs.locality import CacheModel, EpochLocality, measure_batches, summarise
from workbench.graphs.models import MODELS, ModelName
from workbench.graphs.sweep import describe, list_policies, read_rows, sweep
from workbench.graphs.training import Result, Training, train

POINTS = ((0.125, 0.9), (0.125, 1.0), (0.0, 1.0))  # (mix, p); the second is the recommended one
BASELINES: tuple[PolicyName, ...] = ("uniform", "labor", "cluster-gcn")
BLOCKS = {  # nodes, communities, degree, share of edges inside
    "middle": (300_000, 3000, 16.0, 0.9),
    "dense": (240_000, 1200, 30.0, 0.8),
    "sparse": (400_000, 2000, 10.0, 0.95),
}
PILOT = "pilot"  # a graph like the first, of another seed
RATES = (0.00025, 0.0005, 0.001, 0.002)
LEAST_EPOCHS = 8  # of uniform batches to convergence, on the pilot's graph
GIVEN = Nodes(features=1024, classes=10, modes=5, spread=12.0, scaled=True, train=0.5)
CACHE = CacheModel(capacity_bytes=32 << 20)
LOOKED_AT = 2  # batches whose rows and hits are counted


@dataclasses.dataclass(frozen=True)
class Job:
    """A training that is to be done."""

    graph: str
    model: ModelName
    policy: Policy
    learning_rate: float


def make_graph(name: str, small: bool) -> Graph:
    """A block model at full size, or at a tenth of it with fewer features."""
    nodes, communities, degree, inside = BLOCKS["middle" if name == PILOT else name]
    seed = 100 if name == PILOT else 0
    if small:
        given = dataclasses.replace(GIVEN, features=64, spread=3.0)
        return stochastic_block_model(nodes // 10, communities // 10, degree, inside, seed=seed, given=given)
    return stochastic_block_model(nodes, communities, degree, inside, seed=seed, given=GIVEN)


def list_jobs(
    graphs: Sequence[str], rates: dict[ModelName, float], seeds: int, small: bool, only_uniform: bool = False
) -> list[Job]:
    """All trainings, seed by seed, uniform batches first."""
    like = Policy(batch=819 if small else 8192, fanouts=(10, 10))
    jobs = []
    for seed, graph, (model, rate) in itertools.product(range(seeds), graphs, rates.items()):
        policies = list_policies((), (), (seed,), BASELINES[:1], like)
        if not only_uniform:
            policies += [one for mix, p in POINTS for one in list_policies((mix,), (p,), (seed,), (), like)]
            policies += list_policies((), (), (seed,), BASELINES[1:], like)
        jobs += [Job(graph, model, policy, rate) for policy in policies]
    return jobs


def list_pilots(models: Sequence[ModelName], small: bool) -> list[Job]:
    """Uniform batches at each learning rate."""
    return [job for rate in RATES for job in list_jobs((PILOT,), dict.fromkeys(models, rate), 1, small, True)]


def choose_rates(results: Sequence[Result]) -> dict[ModelName, float]:
    """The learning rate of each model at which uniform batches reached the highest validation accuracy, of those with
    which they needed `LEAST_EPOCHS` or more; where none is, the lowest rate.
    """
    found: dict[ModelName, float] = {}
    for model in MODELS:
        mine = [one for one in results if one.training.model == model and one.policy.name == "uniform"]
        slow = [line.results[0] for line in compare(mine) if line.epochs >= LEAST_EPOCHS]
        if slow:
            found[model] = max(slow, key=lambda one: one.val or 0).training.learning_rate
        elif mine:
            found[model] = min(one.training.learning_rate for one in mine)
    return found


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
        relabel(make_graph(PILOT, True), "parallel_louvain")  # libraries load, which the first graph would pay for

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

    def plan(self, job: Job) -> Training:
        """How a model is trained, whatever the policy."""
        return Training(
            model=job.model,
            hidden=128,
            epochs=self.arguments.epochs,
            patience=self.arguments.patience,
            device=self.arguments.device,
            sampler="device",
            features="host",
            prefetch=2,
            learning_rate=job.learning_rate,
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
        plan = self.plan(job)
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
            f"rate {job.learning_rate:g} {describe(job.policy)}: {found.test:.4f}, "
            f"{len(found.curve)} epochs of {found.epoch_s:.3f} s, "
            f"{found.parts}, {' '.join(f'{100 * one:.1f}' for one in found.curve)}",
            flush=True,
        )
    print("the time is up; the same command continues", flush=True)


def measure(arguments: argparse.Namespace) -> None:
    """Make the graphs, then share the trainings out."""
    with ThreadPoolExecutor() as pool:  # numpy only, so that the processes may be forked
        names = (PILOT,) if arguments.pilot else arguments.graphs
        graphs = dict(zip(names, pool.map(lambda name: make_graph(name, arguments.small), names), strict=True))
        list(pool.map(Graph.digest, graphs.values()))
    print(f"{time.monotonic() - arguments.begun:.0f} s: graphs are made", flush=True)
    if arguments.pilot:
        jobs = list_pilots(arguments.models, arguments.small)
    else:
        rates = dict(zip(arguments.models, arguments.learning_rates, strict=True))
        jobs = list_jobs(arguments.graphs, rates, arguments.seeds, arguments.small)
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


def split_rates(text: str) -> tuple[float, ...]:
    """Numbers between commas."""
    return tuple(float(one) for one in text.split(","))


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gpus", type=int, default=1, help="processes, each on a GPU of its own")
    parser.add_argument("--small", action="store_true", help="on a CPU")
    parser.add_argument("--graphs", type=comm_rand_on_gpu.split_names, default=tuple(BLOCKS))
    parser.add_argument("--models", type=comm_rand_on_gpu.split_names)
    parser.add_argument("--pilot", action="store_true", help="only choose learning rates")
    parser.add_argument("--learning-rates", type=split_rates, metavar="A,B", help="of the models, in their order")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--epochs", type=int, default=18)
    parser.add_argument("--patience", type=int, default=3)
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
    if not arguments.pilot and not arguments.table and len(arguments.learning_rates or ()) != len(arguments.models):
        parser.error("give --learning-rates, one for each model; --pilot chooses them")
    if not arguments.table:
        measure(arguments)
    results = [row.result for row in read_rows(Path(arguments.table or arguments.out))]
    if arguments.pilot:
        print("learning rates:", choose_rates(results))
    lines = compare(results)
    print(summarise_policies(lines), tabulate(lines), sep="\n\n")


if __name__ == "__main__":
    main()
