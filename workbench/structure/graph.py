"""Graphs with attributes, as the methods of this package read them, and how other libraries' graphs become one.

    Graph.of(edges, ...)           from arrays: an edge index, columns of attributes
    read_graph(anything)           from a `Graph`, a networkx graph, PyTorch Geometric's `Data`, or an edge index

A column of attributes holds numbers (aggregated by their mean) or texts (categories, aggregated by their frequencies).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UserError

if TYPE_CHECKING:
    import networkx

Column = NDArray[numpy.float64] | NDArray[numpy.str_]
Columns = Mapping[str, Column]


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """A graph. `edges` has shape (E, 2), int64: source and target; an undirected edge stands there once.

    `node_columns` and `edge_columns` map the name of an attribute to its N or E values: float64 with NaN where a node
    has no such attribute, or text. `names` are what nodes are called in rules; by default their numbers.
    """

    size: int
    edges: NDArray[numpy.int64]
    directed: bool = False
    node_columns: Columns = field(default_factory=dict)
    edge_columns: Columns = field(default_factory=dict)
    names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        edges: ArrayLike,
        *,
        size: int | None = None,
        directed: bool = False,
        node_columns: Mapping[str, ArrayLike] | None = None,
        edge_columns: Mapping[str, ArrayLike] | None = None,
        names: Sequence[str] = (),
    ) -> Graph:
        """A graph of arrays. `edges` has the shape (E, 2) or (2, E); (2, 2) is read as two rows of source and target.

        `size` is the number of nodes, by default the largest node of `edges` plus one. Raises `UserError` where a node
        is out of range or a column has the wrong length.
        """
        pairs = as_numbers_of_nodes(edges)
        pairs = pairs.reshape(0, 2) if pairs.size == 0 else pairs
        if pairs.ndim != 2 or 2 not in pairs.shape:
            raise UserError(f"edges have the shape {pairs.shape}; give (E, 2): source and target of each edge")
        pairs = pairs if pairs.shape[1] == 2 else pairs.T
        least = int(pairs.max()) + 1 if len(pairs) else 0
        size = least if size is None else size
        if len(pairs) and (least > size or int(pairs.min()) < 0):
            wrong = int(pairs.min()) if int(pairs.min()) < 0 else least - 1
            known = f"nodes are 0 to {size - 1}" if size > 0 else "there are no nodes"
            raise UserError(f"an edge names node {wrong}, but {known}")
        return cls(
            size=size,
            edges=numpy.ascontiguousarray(pairs),
            directed=directed,
            node_columns={name: as_column(name, values, size) for name, values in (node_columns or {}).items()},
            edge_columns={name: as_column(name, values, len(pairs)) for name, values in (edge_columns or {}).items()},
            names=tuple(names),
        )

    def renumber(self, order: ArrayLike) -> Graph:
        """The same graph with node i called order[i]; `order` is a permutation of the N numbers."""
        to = numpy.asarray(order, dtype=numpy.int64)
        back = numpy.argsort(to)
        return Graph(
            size=self.size,
            edges=to[self.edges],
            directed=self.directed,
            node_columns={name: values[back] for name, values in self.node_columns.items()},
            edge_columns=self.edge_columns,
            names=tuple(self.names[i] for i in back) if self.names else (),
        )

    def node_name(self, node: int) -> str:
        """What a node is called."""
        return self.names[node] if self.names else str(node)


class _GeometricData(Protocol):
    """What is read of PyTorch Geometric's `Data`."""

    @property
    def edge_index(self) -> object: ...
    @property
    def num_nodes(self) -> object: ...


def as_column(name: str, values: ArrayLike, length: int) -> Column:
    """Values of an attribute as a column: numbers as float64, anything else as text. Raises `UserError`."""
    column = numpy.asarray(values)
    if column.shape != (length,):
        raise UserError(f"attribute {name} has the shape {column.shape}; give {length} values, one for each")
    return check_finite(name, column) if column.dtype.kind in "iufb" else column.astype(numpy.str_)


def check_finite(name: str, values: NDArray[numpy.generic]) -> NDArray[numpy.float64]:
    """Numbers as float64. Raises `UserError` where one is infinite: no mean of such numbers tells anything."""
    numbers = values.astype(numpy.float64)
    if numpy.isinf(numbers).any():
        raise UserError(f"attribute {name} has an infinite value; give NaN where there is none")
    return numbers


def as_numbers_of_nodes(edges: object) -> NDArray[numpy.int64]:
    """The ends of edges as int64. Raises `UserError` where one is no whole number."""
    given = numpy.asarray(edges)
    if given.size and (given.dtype.kind not in "iuf" or (given != numpy.floor(given)).any()):
        raise UserError("an edge names a node that is no whole number; nodes are numbered from 0")
    return given.astype(numpy.int64)


def read_graph(given: object) -> Graph:
    """A graph of this package, of networkx, of PyTorch Geometric, or an edge index of shape (E, 2) or (2, E)."""
    if isinstance(given, Graph):
        return given
    if hasattr(given, "edge_index") and hasattr(given, "num_nodes"):
        return from_geometric(given)
    if hasattr(given, "adj") and hasattr(given, "nodes"):
        return from_networkx(given)
    if isinstance(given, (list, tuple, numpy.ndarray)):
        return Graph.of(given)
    raise UserError(
        f"a {type(given).__name__} is no graph; give a Graph, a networkx graph, PyTorch Geometric data or edges"
    )


def from_networkx(graph: networkx.Graph) -> Graph:
    """A networkx graph with its attributes. Numbers stay numbers, vectors of numbers become a column for each place,
    other values become text; absent is NaN or "".
    """
    numbers = {node: number for number, node in enumerate(graph.nodes)}
    pairs = [(numbers[one], numbers[other]) for one, other in graph.edges()]
    return Graph(
        size=len(numbers),
        edges=numpy.asarray(pairs, dtype=numpy.int64).reshape(-1, 2),
        directed=graph.is_directed(),
        node_columns=collect_columns([attributes for _, attributes in graph.nodes(data=True)]),
        edge_columns=collect_columns([attributes for _, _, attributes in graph.edges(data=True)]),
        names=tuple(map(str, numbers)),
    )


def collect_columns(rows: Sequence[Mapping[str, object]]) -> dict[str, Column]:
    """Columns of rows that each name their attributes. A column is text if any of its values is not a number.

    Vectors of numbers, all of one length, are columns name0, name1, ... as those of PyTorch Geometric.
    """
    found: dict[str, Column] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        matrix = _stack_vectors(values)
        if matrix is not None:
            found |= _split_matrix(matrix, name, len(rows))
        elif all(value is None or isinstance(value, (int, float, numpy.number)) for value in values):
            numbers = [numpy.nan if value is None else float(value) for value in values]  # type: ignore[arg-type]
            found[name] = check_finite(name, numpy.array(numbers, dtype=numpy.float64))
        else:
            found[name] = numpy.array(["" if value is None else str(value) for value in values], dtype=numpy.str_)
    return found


def _stack_vectors(values: Sequence[object]) -> NDArray[numpy.float64] | None:
    """Vectors of numbers that an attribute has, as rows, NaN where it is absent; None if any is not such a vector."""
    given = {place: value for place, value in enumerate(values) if value is not None}
    if not all(isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) == 1 for value in given.values()):
        return None
    vectors = {place: numpy.atleast_1d(numpy.array(value, dtype=object)) for place, value in given.items()}
    lengths = {vector.shape for vector in vectors.values()}
    if len(lengths) != 1 or len(shape := lengths.pop()) != 1:
        return None
    if not all(isinstance(one, (int, float, numpy.number)) for vector in vectors.values() for one in vector):
        return None
    matrix = numpy.full((len(values), *shape), numpy.nan)
    for place, vector in vectors.items():
        matrix[place] = vector.astype(numpy.float64)
    return matrix


def from_geometric(data: _GeometricData) -> Graph:
    """PyTorch Geometric's `Data`: `x` and `edge_attr` become columns x0, x1, ... of numbers.

    Pairs that stand in both directions with the same attributes are one undirected edge; if any does not, the graph is
    directed.
    """
    ends = as_numbers_of_nodes(data.edge_index)
    if ends.ndim != 2 or len(ends) != 2:
        raise UserError(f"edge_index has the shape {ends.shape}; give (2, E): source and target of each edge")
    pairs = ends.T
    least = int(pairs.max()) + 1 if len(pairs) else 0
    size = least if data.num_nodes is None else int(str(data.num_nodes))
    if least > size or (len(pairs) and int(pairs.min()) < 0):
        raise UserError(f"edge_index names a node that is not among the {size} nodes")
    edge_columns = _split_matrix(getattr(data, "edge_attr", None), "edge_attr", len(pairs))
    matrix = numpy.zeros((len(pairs), 0))
    for column in edge_columns.values():
        matrix = numpy.hstack([matrix, numpy.nan_to_num(column.astype(numpy.float64), nan=numpy.inf)[:, None]])
    directed = not _is_symmetric(pairs, matrix)
    if not directed:
        kept = _first_of_each(pairs, size)
        pairs, edge_columns = pairs[kept], {name: values[kept] for name, values in edge_columns.items()}
    return Graph(
        size=size,
        edges=numpy.ascontiguousarray(pairs),
        directed=directed,
        node_columns=_split_matrix(getattr(data, "x", None), "x", size),
        edge_columns=edge_columns,
    )


def _split_matrix(matrix: object, name: str, length: int) -> dict[str, Column]:
    """The columns of a tensor or array of shape (length, F) or (length,), as name0, name1, ...; {} for None."""
    if matrix is None:
        return {}
    values = check_finite(name, numpy.asarray(matrix))
    if not values.ndim or len(values) != length:
        raise UserError(f"{name} has the shape {values.shape}; give {length} rows, one for each")
    values = values.reshape(length, values.size // length if length else 0)
    return {f"{name}{i}": numpy.ascontiguousarray(values[:, i]) for i in range(values.shape[1])}


def _is_symmetric(pairs: NDArray[numpy.int64], matrix: NDArray[numpy.float64]) -> bool:
    """Whether each edge stands there in both directions, with equal attributes."""
    forward = sorted(zip(map(tuple, pairs.tolist()), map(tuple, matrix.tolist()), strict=True))
    backward = sorted(zip(map(tuple, pairs[:, ::-1].tolist()), map(tuple, matrix.tolist()), strict=True))
    return forward == backward


def _first_of_each(pairs: NDArray[numpy.int64], size: int) -> NDArray[numpy.int64]:
    """Indices of the first occurrence of each undirected pair."""
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    _, first = numpy.unique(low * size + high, return_index=True)
    return numpy.sort(first)


def check_graphs(given: Iterable[object]) -> list[Graph]:
    """All given graphs. Raises `UserError` that names the first that is none, or if there are none."""
    graphs = []
    for number, one in enumerate(given):
        try:
            graphs.append(read_graph(one))
        except UserError as error:
            raise UserError(f"graph {number}: {error}") from None
    if not graphs:
        raise UserError("there are no graphs; give at least one")
    return graphs
