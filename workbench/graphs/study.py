"""A study of one graph: prepare it, then measure all pairs of the two knobs and the baselines. Used by the command."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import Unavailable, UserError
from workbench.graphs import datasets
from workbench.graphs.batches import Policy, PolicyName
from workbench.graphs.communities import METHODS, Relabelled, louvain, relabel
from workbench.graphs.conversion import HOW_TO_GET
from workbench.graphs.generators import COMMUNITY_NODES, GENERATORS, Nodes, add_nodes
from workbench.graphs.graph import UNLABELLED, Graph
from workbench.graphs.locality import CacheModel
from workbench.records import record

if TYPE_CHECKING:
    from workbench.graphs.models import ModelName
    from workbench.graphs.training import Place, Result

AHEAD = 2  # batches that are made ready before their step, where that takes long
RECORDED = Path(__file__).with_name("recorded.jsonl")  # rows of a sweep, which come with the package


@record
class Study:
    """What is measured. `graph` is sbm, rmat or ba (with `nodes` and `degree`), or a graph's file or folder."""

    graph: str = "sbm"
    nodes: int = 12_000
    degree: float = 14.0
    features: int = 64
    spread: float = Nodes().spread
    communities: str = "louvain"
    mix: tuple[float, ...] = (0.0, 0.125, 0.5, 1.0)
    p: tuple[float, ...] = (0.5, 0.9, 1.0)
    baselines: tuple[PolicyName, ...] = ()
    seeds: int = 1
    model: ModelName = "sage"
    epochs: int = 3
    patience: int = 0
    batch: int = 512
    fanouts: tuple[int, ...] = (10, 10)
    cache_kib: int = 256
    device: str = "cpu"
    place: Place = "device"  # of the features; those in the host's memory are fetched ahead

    def make_graph(self) -> Graph:
        """The graph, read or generated. Raises `UserError`."""
        if self.graph not in GENERATORS:
            if Path(self.graph).exists():
                found = datasets.load(self.graph)
                bare = found.features.shape[1] == 1 and (found.labels == UNLABELLED).all()
                return self.draw_nodes(found) if bare else found
            names = ", ".join(GENERATORS)
            raise UserError(f"no graph {self.graph!r}: name a generator ({names}), or a graph's file or folder")
        if self.nodes < 2 or self.degree <= 0:
            raise UserError(
                f"{self.nodes} nodes of degree {self.degree:g}: two nodes and a degree above 0 are the least"
            )
        given = self.describe_nodes()
        if self.graph == "rmat":
            return GENERATORS["rmat"](scale=round(math.log2(self.nodes)), degree=self.degree, given=given)
        if self.graph == "ba":
            return GENERATORS["ba"](nodes=self.nodes, each=max(1, round(self.degree / 2)), given=given)
        planted = max(1, self.nodes // COMMUNITY_NODES)
        return GENERATORS["sbm"](nodes=self.nodes, communities=planted, degree=self.degree, given=given)

    def describe_nodes(self) -> Nodes:
        """What features and labels are drawn."""
        return Nodes(features=self.features, spread=self.spread)

    def draw_nodes(self, graph: Graph) -> Graph:
        """A bare graph with features and labels by its communities, as generated ones have; its name says so."""
        if graph.community is None:
            graph = dataclasses.replace(graph, community=louvain(graph))
        graph = dataclasses.replace(graph, name=f"{graph.name} with drawn features")
        return add_nodes(graph, self.describe_nodes())


@record
class Studied:
    """The results of a study, those of the pairs first, and the file that keeps them.

    `recorded` says when a recording was made; it is empty for what was measured here.
    """

    study: Study
    results: tuple[Result, ...]
    path: Path
    recorded: str = ""


def make_study(options: Mapping[str, object]) -> Study:
    """The study of a command's options; others are ignored, and None means the default."""
    names = {one.name for one in dataclasses.fields(Study)}
    given = {name: value for name, value in options.items() if name in names and value not in (None, "")}
    return Study(**given)  # type: ignore[arg-type]


def run_study(study: Study, path: Path, report: Callable[[str], None] | None = None) -> Studied:
    """Measure what `path` does not hold yet. Raises `UserError`, and `Unavailable` if a package is missing."""
    try:
        from workbench.graphs.sweep import list_policies, sweep
        from workbench.graphs.training import Training
    except ImportError as error:  # torch
        raise Unavailable(f"mini-batches need {error.name}: {HOW_TO_GET}") from None
    if study.communities not in METHODS:
        raise UserError(f"no method {study.communities!r} finds communities; there are: {', '.join(METHODS)}")
    if study.seeds < 1:
        raise UserError(f"--seeds {study.seeds}: one seed is the least")
    training = Training(
        model=study.model,
        epochs=study.epochs,
        patience=study.patience,
        device=study.device,
        features=study.place,
        prefetch=AHEAD if study.place == "host" else 0,
    )
    training.check()
    like = Policy(batch=study.batch, fanouts=study.fanouts)
    policies = list_policies(study.mix, study.p, range(study.seeds), study.baselines, like)
    cache = CacheModel(capacity_bytes=study.cache_kib << 10)
    prepared = prepare(study)
    if report is not None:
        graph = prepared.graph
        report(
            f"{graph.name}: {graph.nodes} nodes, {graph.edges} edges, {prepared.count} communities"
            f" of modularity {prepared.modularity:.3f} in {prepared.prepare_s:.1f} s"
        )
    found = sweep(prepared, policies, training, path, cache, report)
    return Studied(study=study, results=tuple(found), path=path)


def read_recorded() -> Studied:
    """The study that was recorded and comes with the package. Raises `Unavailable` if a package is missing."""
    try:
        from workbench.graphs.sweep import read_rows
    except ImportError as error:  # torch
        raise Unavailable(f"mini-batches need {error.name}: {HOW_TO_GET}") from None
    rows = list(read_rows(RECORDED))
    versions = dict(rows[0].versions)
    study = Study(cache_kib=rows[0].cache.capacity_bytes >> 10 if rows[0].cache else Study().cache_kib)
    recorded = f"recorded on {versions['date'][:10]}"
    return Studied(study=study, results=tuple(row.result for row in rows), path=RECORDED, recorded=recorded)


def prepare(study: Study) -> Relabelled:
    """The graph with its communities found and contiguous."""
    return relabel(study.make_graph(), study.communities)
