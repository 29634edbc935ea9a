"""The parser of `cutegen`; imports no session, so that --help is quick."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from workbench.cli import loop, sessions, tools
from workbench.cli.output import as_json, say
from workbench.views import options, profiling
from workbench.views.arguments import explain_arguments, model_arguments, problem_arguments, sizes_arguments

Add = Callable[[str, Callable[[argparse.Namespace], int], str, str], argparse.ArgumentParser]


def parser() -> argparse.ArgumentParser:
    """All sub-commands, each with the function that carries it out."""
    made = argparse.ArgumentParser(prog="cutegen", description="Step a generate-test-refine loop for CuTe DSL kernels, with or without a GPU.",
                                     epilog="exit status: 0 fine, 1 not correct, 2 usage or unavailable, 130 stopped")  # fmt: skip
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, function: Callable[[argparse.Namespace], int], said: str, example: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=said, description=said, epilog=f"example: {example}")
        one.add_argument("--json", action="store_true", help="one JSON document on standard output, everything else on standard error")
        one.set_defaults(function=function)
        return one

    for fill in (_starting, _running, _emulating, _kept):
        fill(add)
    profiling.add(add, problem_arguments, say, as_json)
    _telling(add)
    return made


def _starting(add: Add) -> None:
    """What to begin with."""
    one = add("demo", loop.demo, "the loop on a shipped problem; leaves a report and a notebook", "cutegen demo")
    one.add_argument("spec", nargs="?", default="softmax", help="a shipped problem or a file")
    one.add_argument("--steps", type=_steps, default=3, help="refinements after the first version (default 3)")
    one.add_argument("--out", default="cutegen-demo", help="folder for what is left behind")
    problem_arguments(one)
    one = add("lab", tools.lab, "JupyterLab on the first tutorial", "cutegen lab -- --no-browser")
    one.add_argument("--folder", default="cutegen-tutorials", help="where the tutorials are copied to")
    one.add_argument("rest", nargs="*", help="options for JupyterLab, after --")


def _running(add: Add) -> None:
    """The loop, and one verdict."""
    one = add("run", loop.run, "the planner's loop on a problem", "cutegen run softmax --steps 3 --set dim=4096")
    one.add_argument("spec", nargs="?", default="", help="a shipped problem, a file, or an expression of PyTorch (with --inputs)")
    one.add_argument("--program", metavar="TEXT|FILE", help="the first version: a muCUTLASS program, or a file with one or with class ModelNew; refinements begin there")
    one.add_argument("--by", default="planner", help="planner (built in), llm (CuTeGen's chain; see --model), or replay (see --recording)")
    one.add_argument("--recording", metavar="NAME", help="with --by replay: a recorded session, by name or file")
    one.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="of the chain: depth, repair_rounds, regenerate, timeouts, profile, accept, continue_from")
    model_arguments(one.add_argument_group("language model"))
    one.add_argument("--steps", type=_steps, default=3, help="refinements after the first version (default 3)")
    one.add_argument("--until", metavar="sol|N", help="sol: until the best version beats torch and is near the bound, or nothing helps any more; N: that many refinements")
    one.add_argument("--epsilon", type=float, help="with --until sol: how far above the bound is near enough (default 0.25)")
    one.add_argument("--patience", type=int, help="with --until sol: attempts in a row without a gain (default 4)")
    one.add_argument("--resume", metavar="SESSION", help="go on with a stored session")
    problem_arguments(one)
    one = add("test", sessions.test, "one verdict; exit status 0 only if correct", "cutegen test softmax best.py")
    one.add_argument("spec", help="a shipped problem or a file")
    one.add_argument("candidate", help="a file with class ModelNew, or a muCUTLASS program")
    problem_arguments(one)


def _emulating(add: Add) -> None:
    """A program with no GPU."""
    one = add("emulate", tools.emulate, "an unmodified CuTe DSL script or notebook, with no GPU; exit status 0 only if nothing was found", "cutegen emulate --device A100 --sanitize my_gemm.py --m 512")
    one.add_argument("--device", default="H200", help="the GPU that the program finds: A100, H100, H200, RTX4090 (default H200)")
    one.add_argument("--arch", help="what CuTe DSL compiles for, sm_80 to sm_90a (default: the device's own)")
    one.add_argument("--sanitize", action="store_true", help="report advice too (uncoalesced access, bank conflicts), and take a read of unwritten shared memory for an error; other errors are always reported")
    one.add_argument("--follow", action="store_true", help="follow the first CTAs of each launch in time: cycles, the lines at which warps wait, cache hits, and a better modelled time")
    one.add_argument("--counters", metavar="FILE", help="write everything counted and found to a JSON file")
    one.add_argument("program", help="a .py or .ipynb file; options of ours come before it")
    one.add_argument("rest", nargs=argparse.REMAINDER, help="arguments of the program")


def _kept(add: Add) -> None:
    """What a session has kept."""
    for name, function, said, example in (("diff", sessions.diff, "two versions of a session, or two files", "cutegen diff v1 v2"), ("export", sessions.export, "a version as a file for KernelBench", "cutegen export best.py"),
                                          ("history", sessions.history, "the version tree, or the sessions there are", "cutegen history")):  # fmt: skip
        one = add(name, function, said, example)
        one.add_argument("--session", help="name of the session (needed when there are several)")
        if name == "diff":
            one.add_argument("old")
            one.add_argument("new")
        if name == "export":
            one.add_argument("path")
            one.add_argument("--version", default="best")


def _telling(add: Add) -> None:
    """The language, what was recorded, and what there is."""
    one = add("landscape", tools.landscape, "what was recorded on a GPU for every configuration of a problem, over two settings; without a problem: where all stand", "cutegen landscape matmul tile schedule --precision bf16")
    one.add_argument("spec", nargs="?", default="", metavar="PROBLEM", help="a problem, or the name of what was recorded")
    options.landscape(one)
    one.add_argument("--svg", metavar="FILE", help="write the picture too")
    sizes_arguments(one)
    one = add("explain", tools.explain, "what each setting of a muCUTLASS program means and costs; without a program: all operations", 'cutegen explain "gemm(a, b) .arch(sm_90a) .mma(bf16) .schedule(cooperative)" --size 4096,4096,4096')
    one.add_argument("program", nargs="?", default="", help="the program's text, or an operation's name for its settings (default: all operations)")
    explain_arguments(one)
    one = add("format", tools.format_text, "the canonical text of a muCUTLASS program", 'cutegen format "gemm(a,b).tile(64,64,16)"')
    one.add_argument("program", help="the program's text")
    add("doctor", tools.doctor, "what is available here, why not, and how to get it", "cutegen doctor")


def _steps(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps (0, 1, 2, ...)")
    return int(text)
