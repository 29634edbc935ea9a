"""Runs a case's reference in a child process first: a kernel of torch may read beyond a tensor without elements, and
end the process with it.

Used in workers only: it imports torch.
"""

from __future__ import annotations

import os
import signal

import torch

from workbench.problems import loading
from workbench.problems.reference import run_reference
from workbench.problems.settings import spread_ties
from workbench.records import Case, Problem

LIMIT_S = 20
SEED = 0


def can_expect(problem: Problem, case: Case) -> bool:
    """Whether the reference has expected values at a case: in float64 and in its own precision, it raises nothing and
    does not end its process.
    """
    child = os.fork()
    if not child:
        _answer(problem, case)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _answer(problem: Problem, case: Case) -> None:
    """Run the reference in this process and end it, with 0 if that went well."""
    code = 1
    try:
        for signum in (signal.SIGSEGV, signal.SIGALRM):
            signal.signal(signum, signal.SIG_DFL)
        signal.alarm(LIMIT_S)
        torch.set_num_threads(1)  # the threads of the parent are not here
        module = loading.load_module(problem, spread_ties(problem, case.settings))
        loading.seed_generators(SEED)
        model = loading.build_model(module, "Model", problem)
        run_reference(model, loading.make_inputs(module, problem, SEED), problem.precision, seed=SEED)
        code = 0
    finally:
        os._exit(code)
