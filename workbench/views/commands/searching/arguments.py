"""The arguments of a search, and the command `search-tree`."""

from __future__ import annotations

import argparse
import dataclasses

from workbench.plugins import DEFAULTS
from workbench.views.commands.table import Argument, Command

ACTIONS = ("show", "start", "stop", "open", "pin", "unpin", "prune", "revive", "expand", "budget", "take", "idea")
GROUP = "search"


def parse_count(text: str) -> int:
    """Parse a whole number over 0."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number over 0")
    return int(text)


def parse_amount(text: str) -> float:
    """Parse a number over 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number over 0")
    return value


NAME = Argument(
    flags=("--search",),
    metavar="NAME",
    group=GROUP,
    about="search by a strategy instead of refining: tree (Monte Carlo tree search), random, greedy, hill-climb, "
    "annealing and others, see cutegen docs search-tree",
)
TRIALS = Argument(
    flags=("--trials",),
    parse=parse_count,
    metavar="N",
    group=GROUP,
    about="results at most, without what was screened out (default 20)",
)
BUDGET = (
    TRIALS,
    Argument(flags=("--seconds",), parse=parse_amount, group=GROUP, about="seconds of judging at most"),
    Argument(flags=("--tokens",), parse=parse_count, group=GROUP, about="tokens of a language model at most"),
    Argument(flags=("--usd",), parse=parse_amount, group=GROUP, about="dollars for a language model at most"),
    Argument(flags=("--joules",), parse=parse_amount, group=GROUP, about="joules of the GPU at most"),
)
SEED = Argument(
    flags=("--seed",),
    parse=int,
    group=GROUP,
    about="of the search's random numbers (default: those of the last search of this strategy, which goes on, else 0)",
)
NO_PRIORS = Argument(
    flags=("--no-priors",),
    action="store_true",
    default=False,
    group=GROUP,
    about="do without what the time model, advice and the planner's order lead to expect",
)
PRIORS = Argument(flags=("--priors",), action="store_true", default=False, group=GROUP, about="use them (the default)")
AIM = Argument(
    flags=("--aim",),
    choices=("time", "energy"),
    default="time",
    group=GROUP,
    about="energy: the fewest joules at a time that is not worse than the best by more than its interval",
)
FRESH = Argument(
    flags=("--fresh",),
    action="store_true",
    default=False,
    group=GROUP,
    about="begin anew, also where the session has a search that began in the same way and could go on",
)
SCREEN = Argument(
    flags=("--screen",),
    choices=("priors", "emulator"),
    default="priors",
    group=GROUP,
    about="on a GPU, by what candidates are screened out untried: by what is expected of them and by the bound (the "
    "default), or on the emulator, which may take longer than a trial",
)
HOW = (SEED, PRIORS, NO_PRIORS, AIM, SCREEN, FRESH)
SEARCH = (NAME, *BUDGET, *HOW)
TUNE = (
    NAME,
    TRIALS,
    dataclasses.replace(SEED, default=0, about="of the search's random numbers (default 0)"),
    PRIORS,
    NO_PRIORS,
    Argument(
        flags=("--recorded",),
        action="store_true",
        default=False,
        group=GROUP,
        about="with --search: on the recorded times of the problem's landscape, with no GPU",
    ),
)
START = (
    Argument(
        flags=("--strategy",),
        metavar="NAME",
        about="with start: tree, random, greedy, hill-climb, annealing, ... (default: the last search's, or tree)",
    ),
    Argument(
        flags=("--by",), default=DEFAULTS.proposer, kind="proposer", about="with start: who writes the candidates"
    ),
)
SEARCH_TREE = Command(
    name="search-tree",
    about="search among versions by a strategy, look at the tree, and steer it while it runs",
    takes_words=True,
    group="the loop",
    arguments=(
        Argument(
            flags=("action",),
            nargs="?",
            default="show",
            choices=ACTIONS,
            about="show the tree (the default); start a search in the background, or go on with the last one, which "
            "start without options of its own but a budget does; "
            "stop it; open a node (all that is known of it); pin, unpin, prune, revive or expand one; replace the "
            "budget; take a node's version as the baseline; add an idea in words",
        ),
        Argument(
            flags=("words",),
            nargs="*",
            default=(),
            about="the number of a node, then for prune the reason, for idea the words (without a number: at the root)",
        ),
        *START,
        *BUDGET,
        *HOW,
    ),
)
