"""The CuTeGen workbench: step a generate-test-refine loop for CuTe DSL kernels, with or without a GPU."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["Problem", "Session", "emulated", "load_ipython_extension", "unload_ipython_extension"]


def __getattr__(name: str) -> Any:
    """Load the public names on first use, so that `import workbench` stays light."""
    if name == "Session":
        from workbench.session import Session

        return Session
    if name == "Problem":
        from workbench.records import Problem

        return Problem
    if name == "emulated":
        from workbench.emulator.run_script import emulated

        return emulated
    raise AttributeError(f"module 'workbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext workbench`: register the `%cutegen` and `%%cutegen` magics."""
    from workbench.views.notebook import magics

    magics.load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """`%unload_ext workbench`: take magics, completers and tasks away again."""
    from workbench.views.notebook import magics

    magics.unload(ipython)
