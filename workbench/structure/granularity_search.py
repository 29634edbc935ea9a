"""A genetic search for the granularity of each structure: how many leaves of its master tree are predicates.

Structures that tell much of the labels have a gene each, the others share one by radius and order of magnitude of
their support. A gene is
0 (the structures are left out), or a number of leaves. The fitness is the accuracy of a decision tree on graphs that
were kept apart, minus a price for each predicate. Master trees are never grown again (see `RowCounts`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from workbench.structure.global_tree import LEAST_IN_RULE, grow_tree, one_hot
from workbench.structure.vocabulary import Counts, KnownStructure

Genes = tuple[int, ...]
OWN_GENES = 24  # structures that tell most of the labels have their own
NEAR = 4  # predicates that it is not worth to go on searching to save
LEVELS = (0, 1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The size of the search. `price` is the accuracy that one predicate must bring;
    in each of the `turns` another
    quarter of the rows is kept apart. The search ends early where `patience` generations bring nothing better, or
    where nothing can be much better."""

    population: int = 12
    generations: int = 8
    price: float = 1e-4
    turns: int = 2
    patience: int = 2
    most_leaves: int = 16


@dataclass(frozen=True, kw_only=True)
class Individual:
    """Genes, the fitness, the accuracy on the graphs kept apart, and the number of predicates.

    `first` is the fitness by the first turn alone. Who is worse there than all that stay has no further turn, and a
    fitness of minus infinity.
    """

    genes: Genes
    fitness: float
    first: float
    accuracy: float
    predicates: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Bags:
    """What judges an individual: counts of rows at given granularities, labels, which rows are kept apart, and how many
    rows each of these rows stands for.
    """

    matrix: Callable[[Sequence[int]], Counts]
    labels: NDArray[numpy.int64]
    apart: NDArray[numpy.bool_]
    weights: NDArray[numpy.float64]


def group_structures(structures: Sequence[KnownStructure], gains: NDArray[numpy.float64]) -> tuple[int, ...]:
    """The gene of each structure; `gains` says how much each tells of the labels."""
    found = numpy.empty(len(structures), numpy.int64)
    order = numpy.argsort(-gains, kind="stable")
    own = order[:OWN_GENES]
    found[own] = numpy.arange(len(own))
    shared: dict[tuple[int, int], int] = {}
    for i in order[OWN_GENES:]:
        key = (structures[i].radius, structures[i].support.bit_length())
        found[i] = shared.setdefault(key, len(own) + len(shared))
    return tuple(found.tolist())


def information_gains(
    counts: Counts, labels: NDArray[numpy.int64], weights: NDArray[numpy.float64]
) -> NDArray[numpy.float64]:
    """[columns]: the mutual information, in nats, of whether a count is positive and the label."""
    parts = weights / weights.sum()
    present = counts > 0
    share = parts @ present
    gains = numpy.zeros(counts.shape[1])
    for label in numpy.unique(labels):
        own = numpy.where(labels == label, parts, 0.0)
        there = own @ present
        for joint, part in ((there, share), (own.sum() - there, 1 - share)):
            known = (joint > 1e-12) & (part > 1e-12)
            gains[known] += joint[known] * numpy.log(joint[known] / (part[known] * own.sum()))
    return gains


def search_granularities(
    structures: Sequence[KnownStructure], bags: Sequence[Bags], settings: SearchSettings, seed: int
) -> tuple[tuple[int, ...], tuple[Individual, ...]]:
    """The best granularity of each structure, and the best individual of each generation."""
    if not structures:
        return (), ()
    ones = bags[0].matrix([1] * len(structures))
    gains = (
        information_gains(ones, bags[0].labels, bags[0].weights).reshape(-1, len(structures)).max(axis=0)
    )  # of any place it is in
    groups = group_structures(structures, gains)
    radius_of = {gene: structures[i].radius for i, gene in reversed(list(enumerate(groups)))}
    drawn = numpy.random.default_rng(seed)
    levels = [level for level in LEVELS if level <= settings.most_leaves]
    known: dict[Genes, Individual] = {}

    def judge(genes: Genes, least: float = -math.inf) -> Individual:
        if genes not in known:
            known[genes] = _judge(genes, groups, bags, settings.price, seed, least)
        return known[genes]

    people = [judge(genes) for genes in _first_genes(radius_of, levels, settings.population, drawn)]
    history = []
    for _ in range(settings.generations):
        people = sorted(people, key=_rank)[: settings.population]
        history.append(people[0])
        stuck = len(history) > settings.patience and history[-1 - settings.patience].genes == people[0].genes
        if stuck or people[0].fitness >= 1 - NEAR * settings.price:
            break
        children = [_make_child(people, levels, drawn) for _ in range(settings.population)]
        least = min(one.first for one in people)
        people = [*people, *(judge(genes, least) for genes in children)]
        people = list({one.genes: one for one in people}.values())
    best = min(people, key=_rank)
    return tuple(best.genes[gene] for gene in groups), (*history, best)


def _rank(one: Individual) -> tuple[float, int, Genes]:
    return (-one.fitness, one.predicates, one.genes)


def _first_genes(
    radius_of: dict[int, int], levels: Sequence[int], size: int, drawn: numpy.random.Generator
) -> list[Genes]:
    """Each level for all structures; the first few structures, or those of one radius, alone; the rest at random."""
    genes = range(len(radius_of))
    found = [tuple(level for _ in genes) for level in levels]
    found += [tuple(int(gene < most) for gene in genes) for most in (2, 4, 8, 12, 16, OWN_GENES)]
    found += [tuple(int(radius_of[gene] == radius) for gene in genes) for radius in sorted(set(radius_of.values()))]
    while len(found) < size:
        found.append(tuple(int(drawn.choice(levels)) for _ in genes))
    return list(dict.fromkeys(found))


def _make_child(people: Sequence[Individual], levels: Sequence[int], drawn: numpy.random.Generator) -> Genes:
    """Genes of two parents, each the better of two drawn ones, crossed, and changed in two places on average."""
    pairs = drawn.integers(len(people), size=(2, 2))
    one, other = (people[min(pair)].genes for pair in pairs)  # sorted: a lower number is better
    crossed = [a if keep else b for a, b, keep in zip(one, other, drawn.random(len(one)) < 0.5, strict=True)]
    changed = drawn.random(len(crossed)) < 2 / len(crossed)
    return tuple(int(drawn.choice(levels)) if new else old for old, new in zip(crossed, changed, strict=True))


def _judge(
    genes: Genes, groups: Sequence[int], bags: Sequence[Bags], price: float, seed: int, least: float
) -> Individual:
    """An individual with its fitness: the mean over the rows that are kept apart in turn. `least`: the fitness by the
    first turn with which it has further turns.
    """
    accuracies, predicates, first = [], 0, 0.0
    for one in bags:
        accuracy, number = _measure(one.matrix([genes[gene] for gene in groups]), one, seed)
        accuracies.append(accuracy)
        predicates = max(predicates, number)
        first = first if len(accuracies) > 1 else accuracy - price * number
        if first < least:
            break
    accuracy = float(numpy.mean(accuracies))
    fitness = accuracy - price * predicates if len(accuracies) == len(bags) else -math.inf
    return Individual(genes=genes, fitness=fitness, first=first, accuracy=accuracy, predicates=predicates)


def _measure(counts: Counts, bags: Bags, seed: int) -> tuple[float, int]:
    """The accuracy of a tree on the rows kept apart, and the number of predicates."""
    labels, apart, weights = bags.labels, bags.apart, bags.weights
    if not counts.shape[1]:
        found = numpy.bincount(labels[~apart], weights[~apart]).argmax()
    else:
        targets = one_hot(labels[~apart], int(labels.max()) + 1)
        tree = grow_tree(counts[~apart], targets, least=LEAST_IN_RULE, seed=seed, weights=weights[~apart])
        found = tree.value[:, :, 0].argmax(axis=1)[tree.apply(counts[apart])]
    return float(numpy.average(found == labels[apart], weights=weights[apart])), counts.shape[1]
