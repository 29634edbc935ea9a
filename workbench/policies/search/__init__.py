"""One search for all: a strategy chooses in a space of candidates, an evaluator judges, a log keeps every event.

    run_search(space, evaluator, strategy, log)   runs or resumes a search (engine)
    SearchTree.replay(events)                     the state after some events (tree)
    load_strategy(name, **constants)              random, greedy, hill-climb, annealing, ... (registry)
    search_landscape(place, strategy)             a search on recorded times (landscape_space)

Records are in workbench/records/search.py.
"""

from workbench.policies.search.curves import median_curve, regret, share_of_best
from workbench.policies.search.discoveries import describe_memory
from workbench.policies.search.engine import Given, run_search, why_spent
from workbench.policies.search.landscape_space import (
    LandscapeEvaluator,
    LandscapeSpace,
    neighbours,
    planner_order,
    search_landscape,
    walk_landscape,
)
from workbench.policies.search.logs import FileLog, MemoryLog
from workbench.policies.search.protocols import Evaluator, Expand, Prune, SearchLog, Space, Stop, Strategy, Try
from workbench.policies.search.registry import load_strategy, strategy_names
from workbench.policies.search.screening import Screen
from workbench.policies.search.strategies.mcts import TreeSearch
from workbench.policies.search.strategies.walks import Annealing, GreedySearch, HillClimb, RandomSearch
from workbench.policies.search.tree import ROOT, SearchNode, SearchTree

__all__ = [
    "ROOT",
    "Annealing",
    "Evaluator",
    "Expand",
    "FileLog",
    "Given",
    "GreedySearch",
    "HillClimb",
    "LandscapeEvaluator",
    "LandscapeSpace",
    "MemoryLog",
    "Prune",
    "RandomSearch",
    "Screen",
    "SearchLog",
    "SearchNode",
    "SearchTree",
    "Space",
    "Stop",
    "Strategy",
    "TreeSearch",
    "Try",
    "describe_memory",
    "load_strategy",
    "median_curve",
    "neighbours",
    "planner_order",
    "regret",
    "run_search",
    "search_landscape",
    "share_of_best",
    "strategy_names",
    "walk_landscape",
    "why_spent",
]
