"""Files of public sets: small ones of the same form, and what is said of damaged ones."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy
import pytest

from workbench.errors import UserError
from workbench.structure.estimators import SymGraphClassifier
from workbench.structure.set_files import read_molecules, read_tu
from workbench.structure.smiles import parse_smiles


@pytest.fixture
def tu(tmp_path: Path) -> Path:
    """A triangle of label 1 and a path of label -1 with an isolated node, in the form of TUDataset."""
    files = {
        "A": "1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n3, 1\n4, 5\n5, 4\n",
        "graph_indicator": "1\n1\n1\n2\n2\n2\n",
        "graph_labels": "1\n-1\n",
        "node_labels": "0\n0\n1\n2\n2\n0\n",
        "edge_labels": "0\n0\n1\n1\n0\n0\n2\n2\n",
        "node_attributes": "0.5, 1\n0.5, 2\n0.5, 3\n0.5, 4\n0.5, 5\n0.5, 6\n",
    }
    for name, text in files.items():
        (tmp_path / f"TINY_{name}.txt").write_text(text)
    return tmp_path


def test_a_set_of_tudataset_is_read(tu: Path) -> None:
    found = read_tu(tu)
    assert found.labels.tolist() == [1, 0]
    one, other = found.graphs
    assert sorted(map(tuple, one.edges.tolist())) == [(0, 1), (0, 2), (1, 2)]
    assert other.size == 3 and other.edges.tolist() == [[0, 1]]
    assert one.node_columns["label"].tolist() == ["0", "0", "1"]
    assert other.node_columns["attribute 1"].tolist() == [4, 5, 6]
    assert other.edge_columns["label"].tolist() == ["2"]


@pytest.mark.parametrize(("text", "edges"), [("", []), ("2, 1\n1, 3\n", [(0, 1), (0, 2)])])
def test_a_set_without_edges_or_with_one_direction_of_them_is_read(
    tu: Path, text: str, edges: list[tuple[int, int]]
) -> None:
    (tu / "TINY_edge_labels.txt").unlink()
    (tu / "TINY_A.txt").write_text(text)
    assert sorted(map(tuple, read_tu(tu).graphs[0].edges.tolist())) == edges


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("A", "1, 9\n9, 1\n", "names a node"),
        ("A", "1, x\n", "not a table of numbers"),
        ("A", "1.5, 2\n", "has 1.5, which is no whole number"),
        ("A", "1, 2\n4, 3\n", "line 2: an edge joins nodes of two graphs"),
        ("graph_labels", "0.2\n0.7\n", "has 0.2, which is no whole number"),
        ("graph_labels", "nan\n1\n", "has nan, which is no whole number"),
        ("graph_indicator", "1\n1\n1\n3\n3\n3\n", "does not name graphs 1 to 2"),
        ("node_labels", "0\n", "another number of lines"),
        ("graph_labels", None, "is missing"),
    ],
)
def test_a_damaged_set_is_refused_in_one_line(tu: Path, name: str, text: str | None, said: str) -> None:
    path = tu / f"TINY_{name}.txt"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(UserError, match=said) as error:
        read_tu(tu)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="has 0 files"):
        read_tu(tu / "nothing")


def ring_sizes(smiles: str) -> list[int]:
    graph = nx.Graph(parse_smiles(smiles).edges.tolist())
    return sorted(len(ring) for ring in nx.minimum_cycle_basis(graph))


def test_molecules_are_read() -> None:
    nitrobenzene = parse_smiles("c1ccccc1[N+](=O)[O-]")
    assert nitrobenzene.node_columns["atom"].tolist() == ["c"] * 6 + ["N", "O", "O"]
    assert nitrobenzene.node_columns["charge"].tolist() == [0] * 6 + [1, 0, -1]
    bonds = nitrobenzene.edge_columns["bond"].tolist()
    assert (bonds.count("aromatic"), bonds.count("double"), bonds.count("single")) == (6, 1, 2)
    assert ring_sizes("C1CCC2CCCCC2C1") == [6, 6]  # decalin
    assert ring_sizes("C1CCCC1C1CCCC1") == [5, 5]  # bicyclopentyl
    assert ring_sizes("C%12CC%12") == [3]
    assert parse_smiles("[Na+].[Cl-]").edges.shape == (0, 2)
    assert parse_smiles("C[C@@H](N)C(=O)O").node_columns["hydrogens"].tolist() == [0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("smiles", ["", "C1CC", "C(C", "C)C", "C?", "1CC", "[]"])
def test_what_is_no_molecule_is_refused(smiles: str) -> None:
    with pytest.raises(UserError, match="SMILES"):
        parse_smiles(smiles)


def test_a_table_of_molecules_is_read_and_a_nitro_group_is_found(tmp_path: Path) -> None:
    """On its own ground: molecules with a nitro group have the label 1, and the rule names it."""
    bases = ["c1ccccc1", "CCCC", "C1CCCCC1", "CC(C)C", "c1ccncc1", "CCO", "CCN", "CCCl"]
    lines = [
        f"{number},name,{int(nitro)},{base}{'[N+](=O)[O-]' if nitro else 'C(=O)O'}"
        for number, (base, nitro) in enumerate((base, nitro) for base in bases * 2 for nitro in (False, True))
    ]
    path = tmp_path / "BBBP.csv"
    path.write_text("\n".join(["num,name,p_np,smiles", *lines, "99,bad,1,C(("]) + "\n")
    found, left = read_molecules(path)
    assert len(found.graphs) == 32 and left[0].startswith("line 34: SMILES")
    model = SymGraphClassifier(radii=(1,)).fit(found.graphs, found.labels)
    assert (model.predict(found.graphs) == found.labels).all()
    with pytest.raises(UserError, match="no columns y and smiles"):
        read_molecules(path, label="y")
    assert numpy.bincount(found.labels).tolist() == [16, 16]


def test_each_molecule_keeps_its_own_label(tmp_path: Path) -> None:
    """Lines with no label, or with too few values, are left out with their molecule. The file begins with a mark."""
    path = tmp_path / "set.csv"
    lines = ["smiles,p_np", "CCO,", "C,1", "CC,0.5", "CCCC", ",1", "CCC,0"]
    path.write_text("\n".join(lines), encoding="utf-8-sig")
    found, left = read_molecules(path)
    assert [(graph.size, label) for graph, label in zip(found.graphs, found.labels, strict=True)] == [(1, 1), (3, 0)]
    assert left[:3] == (
        "line 2: there is no label",
        "line 4: the label '0.5' is no whole number",
        "line 5: there is no label",
    )
    assert left[3].startswith("line 6: ")


def test_what_is_no_table_of_molecules_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(bytes(range(128, 250)))
    for name in ("binary.csv", "missing.csv", "."):
        with pytest.raises(UserError, match="cannot be read as a CSV file"):
            read_molecules(tmp_path / name)
