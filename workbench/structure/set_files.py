"""Reads public sets of graphs that the user has: the text files of TUDataset, and CSV files of molecules.

    read_tu("data/MUTAG")              NAME_A.txt, NAME_graph_indicator.txt, ... of MUTAG, Mutagenicity, PROTEINS, NCI1
    read_molecules("data/BBBP.csv")    a column of SMILES and one of labels

Nothing is downloaded.
"""

from __future__ import annotations

import csv
import itertools
import warnings
from pathlib import Path

import numpy
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UserError
from workbench.structure.datasets import GraphSet
from workbench.structure.graph import Graph
from workbench.structure.smiles import parse_smiles


def read_tu(folder: str | Path) -> GraphSet:
    """The set in a folder of TUDataset's text files.

    `node_labels` and `edge_labels` become the attribute `label`, `node_attributes` numbers `attribute 0`, ... Raises
    `UserError` where a file is missing or damaged.
    """
    folder = Path(folder)
    found = sorted(folder.glob("*_A.txt"))
    if len(found) != 1:
        raise UserError(f"{folder} has {len(found)} files NAME_A.txt; unpack one set of TUDataset there")
    name = found[0].name.removesuffix("_A.txt")
    pairs = _read_whole(folder, name, "A", 2) - 1
    owners = _read_whole(folder, name, "graph_indicator", 1)[:, 0] - 1
    raw = _read_whole(folder, name, "graph_labels", 1)[:, 0]
    if owners.min(initial=0) < 0 or owners.max(initial=-1) >= len(raw) or (numpy.diff(owners) < 0).any():
        raise UserError(f"{name}_graph_indicator.txt does not name graphs 1 to {len(raw)} in ascending order")
    if pairs.min(initial=0) < 0 or pairs.max(initial=-1) >= len(owners):
        raise UserError(f"{name}_A.txt names a node that {name}_graph_indicator.txt does not have")
    apart = owners[pairs[:, 0]] != owners[pairs[:, 1]]
    if apart.any():
        raise UserError(f"{name}_A.txt, line {int(apart.argmax()) + 1}: an edge joins nodes of two graphs")
    nodes = _columns(folder, name, "node", len(owners))
    edges = _columns(folder, name, "edge", len(pairs))
    return _split(pairs, owners, nodes, edges, numpy.unique(raw, return_inverse=True)[1])


def _read(folder: Path, name: str, part: str, width: int) -> NDArray[numpy.float64]:
    """The numbers of one file, [lines, values]."""
    path = folder / f"{name}_{part}.txt"
    try:
        with warnings.catch_warnings(action="ignore"):  # an empty file: a set may have no edge
            values = numpy.loadtxt(path, delimiter=",", ndmin=2)
    except OSError:
        raise UserError(f"{path} is missing; it belongs to the set") from None
    except ValueError as error:
        raise UserError(f"{path} is not a table of numbers: {error}") from None
    if not values.size:
        return numpy.zeros((0, max(width, 1)))
    if width and values.shape[1] != width:
        raise UserError(f"{path} has {values.shape[1]} values in a line, not {width}")
    return values


def _read_whole(folder: Path, name: str, part: str, width: int) -> NDArray[numpy.int64]:
    """The whole numbers of one file, [lines, values]."""
    values = _read(folder, name, part, width)
    wrong = values[values != numpy.floor(values)]  # NaN is not equal to itself
    if wrong.size or numpy.isinf(values).any():
        found = wrong[0] if wrong.size else numpy.inf
        raise UserError(f"{folder / f'{name}_{part}.txt'} has {found:g}, which is no whole number")
    return values.astype(numpy.int64)


def _columns(folder: Path, name: str, what: str, length: int) -> dict[str, ArrayLike]:
    """Labels as text and attributes as numbers, of nodes or edges, where there are files of them."""
    found: dict[str, ArrayLike] = {}
    if (folder / f"{name}_{what}_labels.txt").exists():
        labels = _read(folder, name, f"{what}_labels", 0)
        found["label"] = numpy.array([str(int(value)) for value in labels[:, 0]])
    if (folder / f"{name}_{what}_attributes.txt").exists():
        attributes = _read(folder, name, f"{what}_attributes", 0)
        found |= {f"attribute {i}": attributes[:, i] for i in range(attributes.shape[1])}
    for column in found.values():
        if len(numpy.asarray(column)) != length:
            raise UserError(
                f"a file {name}_{what}_....txt has another number of lines than there are {what}s, {length}"
            )
    return found


def _split(
    pairs: NDArray[numpy.int64],
    owners: NDArray[numpy.int64],
    nodes: dict[str, ArrayLike],
    edges: dict[str, ArrayLike],
    labels: NDArray[numpy.int64],
) -> GraphSet:
    """One graph for each label; an edge that stands there in both directions, or in one, is one edge."""
    pairs = numpy.sort(pairs, axis=1)
    once = numpy.zeros(len(pairs), bool)
    once[numpy.unique(pairs, axis=0, return_index=True)[1]] = True
    starts = numpy.searchsorted(owners, numpy.arange(len(labels) + 1))
    owner_of_edge = owners[pairs[:, 0]]
    graphs = []
    for number, (first, last) in enumerate(itertools.pairwise(starts)):
        own = once & (owner_of_edge == number)
        graphs.append(
            Graph.of(
                pairs[own] - first,
                size=int(last - first),
                node_columns={name: numpy.asarray(column)[first:last] for name, column in nodes.items()},
                edge_columns={name: numpy.asarray(column)[own] for name, column in edges.items()},
            )
        )
    return GraphSet(graphs=tuple(graphs), labels=labels.astype(numpy.int64), planted=())


def read_molecules(path: str | Path, label: str = "p_np", smiles: str = "smiles") -> tuple[GraphSet, tuple[str, ...]]:
    """The molecules of a CSV file with columns of labels (0 or 1) and SMILES; and why lines were left out.

    Atoms are nodes with the attributes `atom`, `charge` and `hydrogens` (those written in brackets), bonds are edges
    with the attribute `bond`. A line whose SMILES or label cannot be read is left out. Raises `UserError` where the
    file is none of CSV or lacks a column.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            lines = csv.DictReader(file)
            rows, known = list(lines), lines.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as a CSV file: {error}") from None
    if label not in known or smiles not in known:
        raise UserError(f"{path} has no columns {label} and {smiles}; it has {', '.join(known) or 'no line'}")
    graphs, labels, left = [], [], []
    for number, row in enumerate(rows, 2):
        try:
            graph, value = parse_smiles(row[smiles] or ""), _read_label(row[label] or "")
        except UserError as error:
            left.append(f"line {number}: {error}")
        else:
            graphs.append(graph)
            labels.append(value)
    return GraphSet(graphs=tuple(graphs), labels=numpy.array(labels, dtype=numpy.int64), planted=()), tuple(left)


def _read_label(text: str) -> int:
    """A class as a number. Raises `UserError` where there is none."""
    try:
        return int(text)
    except ValueError:
        raise UserError(f"the label {text!r} is no whole number" if text else "there is no label") from None
