"""Operations over compressed rows of indices (CSR): the neighbours of nodes of a graph, bags of words."""

from __future__ import annotations

from workbench.language.operations.graphs import aggregate, attention

OPERATIONS = (*aggregate.OPERATIONS, *attention.OPERATIONS)
