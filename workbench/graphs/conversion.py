"""Makes a `Graph` from edge arrays, PyTorch Geometric's Data or networkx, and makes those from a `Graph`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.errors import Unavailable, UserError
from workbench.graphs.graph import MASKS, UNLABELLED, Bools, Floats, Graph, Ints, Raw

if TYPE_CHECKING:
    import networkx
    from torch_geometric.data import Data

HOW_TO_GET = "pip install 'cutegen-workbench[graphs]'"


def from_edges(
    source: Raw | Ints,
    target: Raw | Ints,
    nodes: int,
    *,
    features: Raw | None = None,
    labels: Raw | None = None,
    split: tuple[Bools, Bools, Bools] | None = None,
    community: Raw | None = None,
    undirected: bool = False,
    name: str = "graph",
) -> Graph:
    """A graph of edges from source[i] to target[i]; target aggregates from source. Doubles and self-loops are dropped.

    `undirected` adds the opposite of each edge. Without features each node has the single feature 1; without labels
    none has one; without a split all three masks are empty. Raises `UserError` with one line.
    """
    source, target = _whole(source, "source", name), _whole(target, "target", name)
    if len(source) != len(target):
        raise UserError(f"graph {name!r}: source has {len(source)} entries and target {len(target)}; an edge has both")
    if len(source) and not 0 <= min(source.min(), target.min()) <= max(source.max(), target.max()) < nodes:
        least, most = min(source.min(), target.min()), max(source.max(), target.max())
        raise UserError(f"graph {name!r}: edges name nodes {least} to {most}, but nodes are numbered 0 to {nodes - 1}")
    if undirected:
        source, target = np.concatenate((source, target)), np.concatenate((target, source))
    indptr, indices = rows_of_edges(source, target, nodes)
    given = np.ones((nodes, 1)) if features is None else np.asarray(features)
    kinds = np.full(nodes, UNLABELLED) if labels is None else _whole(labels, "labels", name)
    masks = tuple(np.asarray(mask, bool) for mask in split) if split else (np.zeros(nodes, bool),) * 3
    return Graph(
        indptr=indptr,
        indices=indices,
        features=np.ascontiguousarray(given, np.float32),
        labels=kinds,
        train=masks[0],
        val=masks[1],
        test=masks[2],
        community=None if community is None else _whole(community, "community", name),
        name=name,
    )


def _whole(array: Raw | Ints, what: str, name: str) -> Ints:
    """The array as int64[...]. Raises `UserError` if it holds anything but whole numbers, or has two dimensions."""
    found: Raw = np.asarray(array)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and len(found)):
        raise UserError(
            f"graph {name!r}: {what} must be a row of whole numbers, not {found.dtype} of shape {found.shape}"
        )
    return found.astype(np.int64)


def rows_of_edges(source: Ints, target: Ints, nodes: int) -> tuple[Ints, Ints]:
    """(indptr, indices) of the edges by target, sorted, without doubles and self-loops."""
    keys = (target * nodes + source)[source != target]
    keys.sort()
    keys = keys[np.flatnonzero(np.diff(keys, prepend=-1))]
    indptr = np.concatenate(([0], np.cumsum(np.bincount(keys // nodes, minlength=nodes)))).astype(np.int64)
    return indptr, (keys % nodes).astype(np.int32 if nodes < 1 << 31 else np.int64)


def edges_of(graph: Graph) -> tuple[Ints, Ints]:
    """(source, target) of all edges, int64[E] each, in the order of the rows."""
    return graph.indices.astype(np.int64), np.repeat(np.arange(graph.nodes, dtype=np.int64), np.diff(graph.indptr))


def from_pyg(data: Data, name: str = "graph") -> Graph:
    """A graph from PyTorch Geometric's Data: `x`, `edge_index`, and `y`, the three masks and `community` if there."""
    if data.edge_index is None:
        raise UserError(f"graph {name!r}: the Data has no edge_index")
    source, target = np.asarray(data.edge_index.cpu())
    masks = [np.asarray(mask.cpu()) for one in MASKS if (mask := data.get(f"{one}_mask")) is not None]
    labels, community = data.get("y"), data.get("community")
    if masks and len(masks) < len(MASKS):
        raise UserError(f"graph {name!r}: the Data has some of train_mask, val_mask and test_mask; give all or none")
    return from_edges(
        source,
        target,
        int(data.num_nodes or 0),
        features=None if data.x is None else np.asarray(data.x.cpu()),
        labels=None if labels is None else np.asarray(labels.cpu()).reshape(-1),
        split=(masks[0], masks[1], masks[2]) if masks else None,
        community=None if community is None else np.asarray(community.cpu()),
        name=name,
    )


def to_pyg(graph: Graph) -> Data:
    """PyTorch Geometric's Data with x, edge_index, y, the three masks, and `community` if the graph has it."""
    import torch

    Data = _import_pyg().data.Data
    found = Data(
        x=torch.from_numpy(graph.features.copy()),
        edge_index=torch.stack([torch.from_numpy(part) for part in edges_of(graph)]),
        y=torch.from_numpy(graph.labels.copy()),
        **{f"{one}_mask": torch.from_numpy(getattr(graph, one).copy()) for one in MASKS},
    )
    if graph.community is not None:
        found.community = torch.from_numpy(graph.community.copy())
    return found


def _import_pyg() -> Any:
    try:
        import torch_geometric
        import torch_geometric.data
    except ImportError as error:
        raise Unavailable(f"PyTorch Geometric cannot be imported ({error}): {HOW_TO_GET}") from None
    return torch_geometric


def from_networkx(found: networkx.Graph, name: str = "graph") -> Graph:
    """A graph from networkx, nodes in its order. Attributes of nodes: `x` (a row of numbers), `y` (a whole number),
    `split` (train, val or test) and `community`; each is read if all nodes have it, `y` and `split` also if some have.
    An undirected graph gives both directions.
    """
    numbers = {node: n for n, node in enumerate(found)}
    pairs = np.array([(numbers[a], numbers[b]) for a, b in found.edges()], np.int64).reshape(-1, 2)
    columns = {key: [found.nodes[node].get(key) for node in found] for key in ("x", "y", "split", "community")}
    full = {key: values if None not in values else None for key, values in columns.items()}
    masks = [np.array([one == mask for one in columns["split"]], bool) for mask in MASKS]
    features: Floats | None = None
    if full["x"]:
        features = np.array([np.atleast_1d(row) for row in full["x"]], np.float32)
    return from_edges(
        pairs[:, 0],
        pairs[:, 1],
        len(numbers),
        features=features,
        labels=np.array([UNLABELLED if one is None else one for one in columns["y"]], np.int64),
        split=(masks[0], masks[1], masks[2]),
        community=np.array(full["community"], np.int64) if full["community"] else None,
        undirected=not found.is_directed(),
        name=name,
    )


def to_networkx(graph: Graph) -> networkx.DiGraph:
    """A directed graph of networkx with the attributes that `from_networkx` reads."""
    import networkx

    found = networkx.DiGraph()
    for node in range(graph.nodes):
        split = next((mask for mask in MASKS if getattr(graph, mask)[node]), None)
        given = {"x": graph.features[node].tolist(), "y": int(graph.labels[node])}
        more = {"split": split, "community": None if graph.community is None else int(graph.community[node])}
        found.add_node(node, **given, **{key: value for key, value in more.items() if value is not None})
    found.add_edges_from(zip(*(part.tolist() for part in edges_of(graph)), strict=True))
    return found
