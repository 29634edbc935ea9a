"""Search strategies by name: those of the workbench, and those of other packages by entry point."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from workbench.errors import Unavailable, UserError, WorkbenchError
from workbench.policies.search.protocols import Strategy
from workbench.records.base import Scalar

GROUP = "workbench.search_strategies"
OWN = {
    "random": "strategies.walks:RandomSearch",
    "greedy": "strategies.walks:GreedySearch",
    "hill-climb": "strategies.walks:HillClimb",
    "annealing": "strategies.walks:Annealing",
    "halving": "strategies.halving:SuccessiveHalving",
    "tpe": "strategies.optuna_samplers:Tpe",
    "bayes": "strategies.optuna_samplers:Bayes",
    "tree": "strategies.mcts:TreeSearch",
}


def strategy_names() -> tuple[str, ...]:
    """The names of all strategies, sorted."""
    return tuple(sorted({*OWN, *(point.name for point in entry_points(group=GROUP))}))


def load_strategy(name: str, **constants: Scalar) -> Strategy:
    """A strategy with these constants, which are the arguments of its class; `priors=True` lets it use priors.

    Raises `UserError` for an unknown name or constant, `Unavailable` if it cannot be loaded here.
    """
    made = _find(name)
    try:
        strategy = made(**constants)
    except TypeError as error:
        known = ", ".join(sorted(made().constants)) or "none"
        raise UserError(f"the search {name} does not take {error}; its constants are: {known}") from None
    if not isinstance(strategy, Strategy):
        raise WorkbenchError(f"{made} is no search strategy: it needs name, constants and choose")
    return strategy


def _find(name: str) -> type[Strategy]:
    if name in OWN:
        module, _, kind = OWN[name].partition(":")
        return getattr(import_module(f"workbench.policies.search.{module}"), kind)  # type: ignore[no-any-return]
    for point in entry_points(group=GROUP, name=name):
        try:
            return point.load()  # type: ignore[no-any-return]
        except Exception as error:
            raise Unavailable(f"the search {name!r} ({point.value}) cannot be loaded: {error}") from error
    raise UserError(f"no search is called {name!r}; there are: {', '.join(strategy_names())}")
