"""The graph's record refuses what does not fit; conversions and files keep every edge, feature, label and mask."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch

from workbench.errors import UserError
from workbench.graphs import conversion, datasets
from workbench.graphs import graph as graph_module
from workbench.graphs.generators import Nodes, stochastic_block_model
from workbench.graphs.graph import Graph, permute

SOURCE, TARGET = np.array([1, 2, 0, 3, 3]), np.array([0, 0, 1, 2, 0])


@pytest.fixture
def small() -> Graph:
    """Four nodes, five edges: node 0 aggregates from 1, 2 and 3."""
    return conversion.from_edges(
        SOURCE,
        TARGET,
        4,
        features=np.arange(8.0).reshape(4, 2),
        labels=np.array([0, 1, 1, -1]),
        split=(np.array([1, 0, 0, 0], bool), np.array([0, 1, 0, 0], bool), np.array([0, 0, 1, 0], bool)),
        community=np.array([0, 0, 1, 1]),
    )


def assert_same(one: Graph, other: Graph) -> None:
    for name in ("indptr", "indices", "features", "labels", "train", "val", "test", "community"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_rows_hold_the_sources_of_each_target(small: Graph) -> None:
    assert small.indptr.tolist() == [0, 3, 4, 5, 5]
    assert small.indices.tolist() == [1, 2, 3, 0, 3]
    assert (small.nodes, small.edges, small.classes, small.row_bytes) == (4, 5, 2, 8)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"indptr": np.array([0, 3, 2, 5, 5])}, "indptr falls at node 1"),
        ({"indptr": np.array([0, 3, 4, 5, 6])}, "indptr ends with 6, but indices has 5"),
        ({"indptr": np.array([1, 3, 4, 5, 5])}, "indptr must begin with 0"),
        ({"indices": np.array([1, 2, 9, 0, 3])}, r"indices\[2\] is 9, but nodes are numbered 0 to 3"),
        ({"indices": np.array([1.0, 2, 3, 0, 3])}, "indices is float64; it must be a numpy array of int32 or int64"),
        ({"features": np.zeros((3, 2), np.float32)}, "features has 3 rows, but there are 4 nodes"),
        ({"features": np.zeros(4, np.float32)}, "features has 1 dimensions; it must have 2"),
        ({"features": np.full((4, 2), np.nan, np.float32)}, "features of node 0 are not finite"),
        ({"labels": np.array([0, -2, 1, 1])}, "the label of node 1 is -2"),
        ({"train": np.array([0, 0, 0, 1], bool)}, "node 3 is in train but has no label"),
        ({"train": np.array([1, 1, 0, 0], bool)}, "node 1 is in train and in val"),
        ({"community": np.array([0, -1, 0, 0])}, "node 1 has a negative community"),
    ],
)
def test_a_defect_is_one_line(small: Graph, change: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        dataclasses.replace(small, **change)
    assert "\n" not in str(error.value)


def test_edges_are_refused_where_they_do_not_fit() -> None:
    with pytest.raises(UserError, match="nodes are numbered 0 to 2"):
        conversion.from_edges(SOURCE, TARGET, 3)
    with pytest.raises(UserError, match="source has 5 entries and target 4"):
        conversion.from_edges(SOURCE, TARGET[:4], 4)
    with pytest.raises(UserError, match="source must be a row of whole numbers"):
        conversion.from_edges(SOURCE + 0.5, TARGET, 4)


def test_doubles_and_self_loops_are_dropped() -> None:
    made = conversion.from_edges(np.array([1, 1, 2]), np.array([0, 0, 2]), 3, undirected=True)
    assert (made.indptr.tolist(), made.indices.tolist()) == ([0, 1, 2, 2], [1, 0])


def test_pyg_keeps_everything(small: Graph) -> None:
    data = conversion.to_pyg(small)
    assert data.validate() and data.num_nodes == 4
    assert_same(conversion.from_pyg(data), small)
    data.val_mask = None
    with pytest.raises(UserError, match="give all or none"):
        conversion.from_pyg(data)


def test_networkx_keeps_everything(small: Graph) -> None:
    assert_same(conversion.from_networkx(conversion.to_networkx(small)), small)
    club = conversion.from_networkx(networkx.karate_club_graph())
    assert (club.nodes, club.edges) == (34, 2 * 78)


def test_a_permutation_moves_all_arrays_together(small: Graph) -> None:
    order = np.array([2, 0, 3, 1])
    moved = permute(small, order)
    pairs = {(order[s], order[t]) for s, t in zip(*conversion.edges_of(moved), strict=True)}
    assert pairs == set(zip(SOURCE.tolist(), TARGET.tolist(), strict=True))
    np.testing.assert_array_equal(moved.features, small.features[order])
    assert_same(permute(moved, np.argsort(order)), small)
    assert moved.digest() != small.digest() == permute(moved, np.argsort(order)).digest()
    with pytest.raises(UserError, match="each of the 4 nodes once"):
        permute(small, np.array([0, 0, 1, 2]))


# ---- files ----


@pytest.fixture(scope="module")
def plain() -> Graph:
    """A graph without communities, whose edges go both ways, as public sets are read."""
    made = stochastic_block_model(60, 4, 6, seed=3, given=Nodes(features=3, classes=4))
    return dataclasses.replace(made, community=None)


def _write_csv(path: Path, rows: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        np.savetxt(file, rows, delimiter=",", fmt="%d" if rows.dtype.kind == "i" else "%.9g")


def _half(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Each edge in one direction only."""
    source, target = conversion.edges_of(graph)
    return source[source < target], target[source < target]


def _write_splits(folder: Path, graph: Graph) -> None:
    for name, mask in (("train", graph.train), ("valid", graph.val), ("test", graph.test)):
        _write_csv(folder / f"split/time/{name}.csv.gz", np.flatnonzero(mask))


def write_reddit(folder: Path, graph: Graph) -> None:
    source, target = conversion.edges_of(graph)
    links = scipy.sparse.coo_matrix((np.ones(graph.edges), (target, source)), (graph.nodes,) * 2)
    scipy.sparse.save_npz(folder / "reddit_graph.npz", links)
    types = graph.train + 2 * graph.val + 3 * graph.test
    np.savez(folder / "reddit_data.npz", feature=graph.features, label=graph.labels, node_types=types)


def write_saint(folder: Path, graph: Graph) -> None:
    links = scipy.sparse.csr_matrix((np.ones(graph.edges), graph.indices, graph.indptr), (graph.nodes,) * 2)
    scipy.sparse.save_npz(folder / "adj_full.npz", links)
    np.save(folder / "feats.npy", graph.features.astype(np.float64))
    (folder / "class_map.json").write_text(json.dumps(dict(enumerate(graph.labels.tolist()))))
    masks = {"tr": graph.train, "va": graph.val, "te": graph.test}
    (folder / "role.json").write_text(json.dumps({key: np.flatnonzero(mask).tolist() for key, mask in masks.items()}))


def write_ogb(folder: Path, graph: Graph) -> None:
    _write_csv(folder / "raw/edge.csv.gz", np.stack(_half(graph), axis=1))
    _write_csv(folder / "raw/node-feat.csv.gz", graph.features)
    _write_csv(folder / "raw/node-label.csv.gz", graph.labels)
    _write_splits(folder, graph)


def write_ogb_binary(folder: Path, graph: Graph) -> None:
    (folder / "raw").mkdir(parents=True)
    np.savez(folder / "raw/data.npz", edge_index=np.stack(_half(graph)), node_feat=graph.features)
    np.savez(folder / "raw/node-label.npz", node_label=graph.labels[:, None].astype(np.float32))
    _write_splits(folder, graph)


@pytest.mark.parametrize("write", [write_reddit, write_saint, write_ogb, write_ogb_binary])
def test_a_public_set_is_read_as_it_lies_on_disk(write, plain: Graph, tmp_path: Path) -> None:
    write(tmp_path, plain)
    found = datasets.load(tmp_path)
    for name in ("indptr", "indices", "labels", "train", "val", "test"):
        np.testing.assert_array_equal(getattr(found, name), getattr(plain, name), err_msg=name)
    np.testing.assert_allclose(found.features, plain.features, rtol=1e-6)


def test_igb_is_read_with_its_own_split(plain: Graph, tmp_path: Path) -> None:
    for part in ("paper", "paper__cites__paper"):
        (tmp_path / "processed" / part).mkdir(parents=True)
    np.save(tmp_path / "processed/paper/node_feat.npy", plain.features)
    np.save(tmp_path / "processed/paper/node_label_19.npy", plain.labels.astype(np.float32))
    np.save(tmp_path / "processed/paper__cites__paper/edge_index.npy", np.stack(_half(plain), axis=1))
    found = datasets.load(tmp_path)
    np.testing.assert_array_equal(found.indices, plain.indices)
    assert [int(mask.sum()) for mask in (found.train, found.val, found.test)] == [36, 12, 12]
    assert found.train[:36].all() and found.test[48:].all()


def test_our_own_file_keeps_everything(small: Graph, tmp_path: Path) -> None:
    datasets.save(small, tmp_path / "one.npz")
    found = datasets.load(tmp_path / "one.npz")
    assert_same(found, small)
    assert found.name == small.name


def test_bad_files_are_one_line(plain: Graph, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no graph at"):
        datasets.load(tmp_path / "none")
    with pytest.raises(UserError, match="holds none of the known sets; expected one of reddit_graph"):
        datasets.load(tmp_path)
    (tmp_path / "text.npz").write_text("no")
    with pytest.raises(UserError, match="no graph written by"):
        datasets.load(tmp_path / "text.npz")
    write_reddit(tmp_path, plain)
    (tmp_path / "reddit_data.npz").unlink()
    with pytest.raises(UserError, match="reddit_data"):
        datasets.load(tmp_path)
    np.savez(tmp_path / "reddit_data.npz", feature=np.array([{}]), label=plain.labels, node_types=plain.labels)
    with pytest.raises(UserError, match="cannot be read"):  # a pickle is not opened
        datasets.load(tmp_path)


def test_a_graph_of_pyg_gives_a_tensor_of_each_kind(small: Graph) -> None:
    data = conversion.to_pyg(small)
    assert (data.x.dtype, data.edge_index.dtype, data.y.dtype, data.train_mask.dtype) == (
        torch.float32,
        torch.int64,
        torch.int64,
        torch.bool,
    )


def test_rows_are_taken_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "PART_BYTES", 64)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    matrix = np.arange(700.0, dtype=np.float32).reshape(100, 7)
    order = np.random.default_rng(0).permutation(100)
    np.testing.assert_array_equal(graph_module.take_rows(matrix, order), matrix[order])
    assert graph_module.take_rows(matrix[:0], order[:0]).shape == (0, 7)


def test_features_whose_sum_overflows_are_fine(small: Graph) -> None:
    huge = np.full((4, 2), 3e38, np.float32)
    assert dataclasses.replace(small, features=huge).features[3, 1] == np.float32(3e38)
    huge[2, 1] = np.nan
    with pytest.raises(UserError, match="features of node 2 are not finite"):
        dataclasses.replace(small, features=huge)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "5 9\n9 7\n7 7\n"),
        ("a.csv", "source,target,weight\n5,9,0.5\n9,7,2\n"),
        ("snap.txt", "# Nodes: 3\n# From\tTo\n5\t9\n% more\n7\t9\n"),
        ("far.tsv", f"5;{10**15}\n7;{10**15}\n"),
    ],
)
def test_a_list_of_edges_is_read_and_its_nodes_numbered_anew(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    for path in (tmp_path / name, packed):
        found = datasets.load(path)
        centre = 2  # the node of the largest number has both edges
        neighbours = [sorted(found.indices[found.indptr[n] : found.indptr[n + 1]].tolist()) for n in range(3)]
        assert neighbours == [[centre] if n != centre else [0, 1] for n in range(3)]
        assert found.name == path.name


def test_a_matrix_of_scipy_is_read(plain: Graph, tmp_path: Path) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    source, target = _half(plain)
    matrix = sparse.coo_matrix((np.ones(len(source)), (target, source)), shape=(plain.nodes, plain.nodes))
    sparse.save_npz(tmp_path / "m.npz", matrix.tocsr())
    np.testing.assert_array_equal(datasets.load(tmp_path / "m.npz").indices, plain.indices)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.txt", b"", "it has no edges"),
        ("one.txt", b"1\n2\n", "two whole numbers from 0 a line"),
        ("words.txt", b"hello world\nfoo bar\n", "could not convert string 'foo'"),
        ("parts.txt", b"1.5 2\n", "could not convert"),
        ("negative.txt", b"0 1\n1 -2\n", "one is negative"),
        ("wide.txt", f"0 {2**70}\n".encode(), "two whole numbers"),
        ("cut.txt.gz", gzip.compress(b"0 1\n", mtime=0)[:-9], "neither a list of edges"),
        ("bytes.pkl", b"\x80\x05\xff", "neither a list of edges"),
        ("m.mtx", b"%%MatrixMarket matrix coordinate\n", "scipy.io.mmread"),
        ("bad.npz", b"PK nonsense", "no graph written by .* no zip archive"),
    ],
    ids=lambda value: value if isinstance(value, str) else "bytes",
)
def test_files_of_other_forms_are_refused_in_one_line(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=said) as refused:
        datasets.load(tmp_path / name)
    assert "\n" not in str(refused.value)


def test_other_arrays_are_told_what_lacks(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", edge_index=np.zeros((2, 3), int))
    with pytest.raises(UserError, match=r"holds edge_index, and lacks name, indptr.*from_edges"):
        datasets.load(tmp_path / "mine.npz")
