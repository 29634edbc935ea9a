"""Reads graphs from files that the user has: our own .npz, edge lists, and the public sets as they are unpacked.

    FILE.npz                                    written by `save`, or a matrix by scipy.sparse.save_npz
    any other file, also .gz                    a list of edges: two whole numbers a line
    reddit_graph.npz, reddit_data.npz           Reddit, as DGL and PyTorch Geometric unpack it
    adj_full.npz, feats.npy, class_map.json, role.json       GraphSAINT's sets: Flickr, Yelp, Amazon, Reddit
    raw/edge.csv.gz, raw/node-feat.csv.gz, ..., split/*/      OGB node property sets: ogbn-arxiv, ogbn-products
    raw/data.npz, raw/node-label.npz, split/*/                OGB's large set: ogbn-papers100M
    processed/paper/node_feat.npy, processed/paper__cites__paper/edge_index.npy      IGB: igb-tiny, igb-small, ...

Nothing is downloaded and no pickle is read. Edges of all but our own form count in both directions, as training with
public sets does.
"""

from __future__ import annotations

import gzip
import io
import json
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from workbench.errors import UserError
from workbench.graphs.conversion import from_edges
from workbench.graphs.graph import MASKS, UNLABELLED, Bools, Graph, Raw

if TYPE_CHECKING:
    import scipy.sparse

REDDIT_TYPES = (1, 2, 3)  # train, val, test in node_types of reddit_data.npz
SAINT_ROLES = ("tr", "va", "te")
OGB_SPLITS = ("train", "valid", "test")
IGB_SHARES = (0.6, 0.2)  # of train and val in order, as IGB's own loader for DGL cuts them


def save(graph: Graph, path: str | Path) -> None:
    """Write the graph's arrays to an .npz file."""
    names = ("indptr", "indices", "features", "labels", *MASKS)
    arrays = {name: getattr(graph, name) for name in names}
    if graph.community is not None:
        arrays["community"] = graph.community
    np.savez_compressed(path, name=np.array(graph.name), **arrays)


def load(path: str | Path) -> Graph:
    """The graph of a file or a folder in one of the forms above. Raises `UserError` with one line."""
    place = Path(path)
    if not place.exists():
        raise UserError(
            f"no graph at {place}: name a file written by workbench.graphs.datasets.save, or a set's folder"
        )
    if place.is_file():
        return _load_arrays(place) if zipfile.is_zipfile(place) or place.suffix == ".npz" else _load_edges(place)
    for mark, reader in READERS.items():
        if (place / mark).is_file():
            try:
                return reader(place)
            except (OSError, KeyError, ValueError, IndexError) as error:
                kind = type(error).__name__
                raise UserError(f"{place}: the files beside {mark} cannot be read ({kind}: {error})") from error
    raise UserError(f"{place} holds none of the known sets; expected one of {', '.join(READERS)} in it")


def _load_arrays(path: Path) -> Graph:
    """The graph of an .npz file, our own or a matrix of scipy's without features."""
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no zip archive")
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        if {"indptr", "indices", "shape", "format"} <= set(arrays):
            matrix = _read_adjacency(path)
            return from_edges(matrix.col, matrix.row, max(matrix.shape), undirected=True, name=path.name)
        if missing := [
            name for name in ("name", "indptr", "indices", "features", "labels", *MASKS) if name not in arrays
        ]:
            raise UserError(
                f"{path} holds {', '.join(arrays) or 'nothing'}, and lacks {', '.join(missing)}: give your arrays to "
                "workbench.graphs.conversion.from_edges, and write its graph with workbench.graphs.datasets.save"
            )
        name = str(arrays.pop("name"))
        return Graph(name=name, **arrays)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is no graph written by workbench.graphs.datasets.save ({error})") from error


def _load_edges(path: Path) -> Graph:
    """The graph of a list of edges, its nodes numbered anew in the order of their numbers, without features.

    Columns stand apart by spaces, tabs, commas or semicolons; those after the second are ignored, as are lines that
    begin with # or %, and a first line of words.
    """
    form = "a list of edges has two whole numbers from 0 a line, its source and its target"
    try:
        text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is neither a list of edges nor an .npz file ({type(error).__name__})") from error
    if text.startswith("%%MatrixMarket"):
        raise UserError(f"{path} is a matrix: read it with scipy.io.mmread, write it with scipy.sparse.save_npz (.npz)")
    text = text.translate(str.maketrans(",;", "  ")).lstrip()
    while text[:1] in ("#", "%"):
        text = text.partition("\n")[2].lstrip()
    if not text[:1].isdigit() and text[:1] not in ("-", ""):  # the names of the columns
        text = text.partition("\n")[2]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an empty list
            edges = np.loadtxt(io.StringIO(text), np.int64, comments=("#", "%"), usecols=(0, 1), ndmin=2)
    except (ValueError, OverflowError) as error:
        raise UserError(f"{path}: {form} ({error})") from error
    if not len(edges) or edges.min() < 0:
        raise UserError(f"{path}: {form}; {'one is negative' if len(edges) else 'it has no edges'}")
    numbers, ends = np.unique(edges, return_inverse=True)
    source, target = ends.reshape(edges.shape).T
    return from_edges(source, target, len(numbers), undirected=True, name=path.name)


def _read_adjacency(path: Path) -> scipy.sparse.coo_matrix:
    """A matrix as scipy.sparse.save_npz writes it, in coordinates."""
    import scipy.sparse

    return scipy.sparse.load_npz(path).tocoo()


def _load_reddit(folder: Path) -> Graph:
    edges = _read_adjacency(folder / "reddit_graph.npz")
    with np.load(folder / "reddit_data.npz", allow_pickle=False) as stored:
        features, labels, types = stored["feature"], stored["label"], stored["node_types"]
    return _make(folder, edges.col, edges.row, features, labels, tuple(types == one for one in REDDIT_TYPES))


def _load_saint(folder: Path) -> Graph:
    edges = _read_adjacency(folder / "adj_full.npz")
    features = np.load(folder / "feats.npy", allow_pickle=False)
    classes = json.loads((folder / "class_map.json").read_text())
    roles = json.loads((folder / "role.json").read_text())
    labels = np.full(len(features), UNLABELLED, np.int64)
    for node, label in classes.items():
        if isinstance(label, list):
            raise UserError(f"{folder}: nodes have several labels at once (Yelp, Amazon); only one is supported")
        labels[int(node)] = label
    masks = tuple(_mask(len(features), np.array(roles[role], np.int64)) for role in SAINT_ROLES)
    return _make(folder, edges.col, edges.row, features, labels, masks)


def _load_ogb(folder: Path) -> Graph:
    import pandas as pd

    def table(name: str) -> Raw:
        return np.asarray(pd.read_csv(folder / name, header=None).to_numpy())

    edges = table("raw/edge.csv.gz").astype(np.int64)
    features = table("raw/node-feat.csv.gz")
    labels = _labels(table("raw/node-label.csv.gz"))
    return _make(folder, edges[:, 0], edges[:, 1], features, labels, _ogb_masks(folder, len(features)))


def _load_ogb_binary(folder: Path) -> Graph:
    with np.load(folder / "raw/data.npz", allow_pickle=False) as stored:
        edges, features = stored["edge_index"], stored["node_feat"]
    with np.load(folder / "raw/node-label.npz", allow_pickle=False) as stored:
        labels = _labels(stored["node_label"])
    return _make(folder, edges[0], edges[1], features, labels, _ogb_masks(folder, len(features)))


def _ogb_masks(folder: Path, nodes: int) -> tuple[Bools, ...]:
    """The masks of the only split that OGB ships with a set (time, sales_ranking)."""
    import pandas as pd

    splits = sorted(path.parent for path in folder.glob("split/*/train.csv.gz"))
    if len(splits) != 1:
        raise UserError(f"{folder}: split/ holds {len(splits)} folders with train.csv.gz; an OGB set has one")
    read = (pd.read_csv(splits[0] / f"{name}.csv.gz", header=None).to_numpy().reshape(-1) for name in OGB_SPLITS)
    return tuple(_mask(nodes, np.asarray(rows, np.int64)) for rows in read)


def _load_igb(folder: Path) -> Graph:
    paper = folder / "processed/paper"
    features = np.load(paper / "node_feat.npy", allow_pickle=False)
    labels = _labels(np.load(paper / "node_label_19.npy", allow_pickle=False))
    edges = np.load(folder / "processed/paper__cites__paper/edge_index.npy", allow_pickle=False)
    first, second = (int(share * len(features)) for share in (IGB_SHARES[0], sum(IGB_SHARES)))
    place = np.arange(len(features))
    masks = (place < first, (place >= first) & (place < second), place >= second)
    return _make(folder, edges[:, 0], edges[:, 1], features, labels, masks)


def _labels(given: Raw) -> Raw:
    """Labels of one column, with NaN (papers100M has most nodes without a label) as -1: int64[N]."""
    column = given.reshape(len(given), -1)
    if column.shape[1] != 1:
        raise UserError(f"nodes have {column.shape[1]} labels each; only sets with one label are supported")
    plain = column[:, 0].astype(np.float64)
    return np.where(np.isnan(plain), UNLABELLED, plain).astype(np.int64)


def _mask(nodes: int, rows: Raw) -> Bools:
    found = np.zeros(nodes, bool)
    found[rows] = True
    return found


def _make(folder: Path, source: Raw, target: Raw, features: Raw, labels: Raw, masks: tuple[Bools, ...]) -> Graph:
    return from_edges(
        np.asarray(source),
        np.asarray(target),
        len(features),
        features=features,
        labels=np.asarray(labels),
        split=(masks[0], masks[1], masks[2]),
        undirected=True,
        name=folder.name,
    )


READERS: Mapping[str, Callable[[Path], Graph]] = {  # a file that tells the form -> what reads the folder
    "reddit_graph.npz": _load_reddit,
    "adj_full.npz": _load_saint,
    "raw/edge.csv.gz": _load_ogb,
    "raw/data.npz": _load_ogb_binary,
    "processed/paper/node_feat.npy": _load_igb,
}
