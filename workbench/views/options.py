"""What fills the parsers of the sub-commands of %cutegen, one function each."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser

from workbench.views import profiling
from workbench.views.arguments import explain_arguments, indices, problem_arguments


def version(p: ArgumentParser, default: str = "latest") -> None:
    """Which version is meant."""
    p.add_argument("version", nargs="?", default=default, help=f"v1, v2, ..., latest, best, baseline or pending (default {default})")


def nothing(p: ArgumentParser) -> None:
    """A command without arguments."""


def problem(p: ArgumentParser) -> None:
    """What a session is opened on."""
    p.add_argument("spec", nargs="?", default="", help="a shipped name, a file, an expression (with --inputs), or the name of the cell's problem")
    p.add_argument("--session", default=None, help="name of the session")
    problem_arguments(p)


def generate(p: ArgumentParser) -> None:
    """Who writes, from where."""
    p.add_argument("--by", default="planner", help="planner (built in), llm, or another proposer")
    p.add_argument("--from", dest="start", default=None, help="branch from this version instead of the baseline")
    p.add_argument("words", nargs="*", help="your words for the next step")


def test(p: ArgumentParser) -> None:
    """Which version, and with which L2."""
    version(p)
    p.add_argument("--l2", choices=["cold", "warm"], default=None, help="what timed calls on a GPU find in L2, from now on in this session")


def refine(p: ArgumentParser) -> None:
    """One change, or several by a rule."""
    p.add_argument("--until", metavar="sol|N", default=None, help="sol: until the best version beats torch and is near the bound, or nothing helps any more; N: that many refinements")
    p.add_argument("--epsilon", type=float, default=None, help="with --until sol: how far above the bound is near enough (default 0.25)")
    p.add_argument("--patience", type=int, default=None, help="with --until sol: attempts in a row without a gain (default 4)")
    generate(p)


def accept(p: ArgumentParser) -> None:
    """Which version, or which hunks of it."""
    version(p, "pending")
    p.add_argument("--hunks", type=indices, help="only these changes to the parent: 1,3 or 2-4; they become a new version, which is tested first")
    p.add_argument("--force", action="store_true", help="even though it is not correct, or faster than the device can be")
    p.add_argument("--reason", nargs="*", default=[], help="why")


def run(p: ArgumentParser) -> None:
    """How many steps, by whom."""
    p.add_argument("--steps", type=int, default=3, help="how many refinements")
    p.add_argument("--by", default="planner")


def export(p: ArgumentParser) -> None:
    """What is written where."""
    p.add_argument("path", help="where to write it")
    p.add_argument("--version", default="best")


def diff(p: ArgumentParser) -> None:
    """Two versions."""
    p.add_argument("old", nargs="?", default="")
    p.add_argument("new", nargs="?", default="")


def panel(p: ArgumentParser) -> None:
    """Who writes."""
    p.add_argument("--by", default="planner", help="who writes when you press Generate, Refine or Run: planner, llm, ...")


def profile(p: ArgumentParser) -> None:
    """Which version, by which profilers."""
    version(p)
    profiling.profile_arguments(p)


def words(p: ArgumentParser) -> None:
    """Free text."""
    p.add_argument("words", nargs="*")


def explain(p: ArgumentParser) -> None:
    """A program or a name, and for which device."""
    p.add_argument("words", nargs="*", help="a muCUTLASS program, or an operation's name for its settings (default: the latest version's program)")
    p.add_argument("--list", action="store_true", help="all operations of the language")
    explain_arguments(p)


def program(p: ArgumentParser) -> None:
    """A program, as it stands."""
    p.add_argument("words", nargs=REMAINDER, metavar="PROGRAM", help="softmax(x) .threads_per_row(32); may stand in the cell below %%%%cutegen program (default: show the latest version's, or the problem's without settings)")


def title(p: ArgumentParser) -> None:
    """A title in words."""
    p.add_argument("title", nargs="*")


def named(p: ArgumentParser) -> None:
    """The name of a session."""
    p.add_argument("name")


def landscape(p: ArgumentParser) -> None:
    """The two settings of a heat map."""
    p.add_argument("x", nargs="?", default="", help="a setting (default tile)")
    p.add_argument("y", nargs="?", default="", help="another (default cluster)")
    p.add_argument("--where", action="append", default=[], metavar="SETTING=VALUE", help="only configurations that have it: schedule=pingpong, tile=128x256x64; schedule= where it was not set")
