"""A version as a folder whose kernels are compiled ahead of time: a library for Python and C++.

The files beside this one go into the folder as they are. `build.py` makes the library: it runs the version's code,
which the workbench itself does nowhere but in its confined children.
"""

from __future__ import annotations

from importlib import resources

from workbench.codegen.exports.benchmarks import problem_text
from workbench.errors import UserError
from workbench.records import Problem

FILES = ("build.py", "load.py", "load.cpp")


def write_ahead(source: str, problem: Problem) -> dict[str, str]:
    """File name -> text. Raises `UserError` for a version that does not launch as the planner's do."""
    if any(f"\ndef {name}(" not in source for name in ("call", "compile_launch")):
        raise UserError(
            "this version launches its kernels in a way of its own: ahead-of-time is for versions with the planner's "
            "`call`; export another form"
        )
    own = resources.files(__name__)
    return {
        "kernel.py": source,
        "problem.py": problem_text(problem, ["get_inputs", "get_init_inputs"]),
        **{name: own.joinpath(name).read_text(encoding="utf-8") for name in FILES},
    }
