"""The result of lowering a stage: a host function of the kernel library, its static arguments and its operands."""

from __future__ import annotations

from workbench.records import record


@record
class Hook:
    """A function written from an expression; a configuration holds it where the library takes a callable."""

    name: str
    source: str  # `def name(...): ...`, decorators included
    module: str = "workbench.kernels.scalars"  # the module whose names the source may use
    returns: tuple[str, ...] | None = None  # names of the returned values if it returns a Many


@record
class Launch:
    """One lowered stage; `entry` is "package.module:function"."""

    entry: str
    static: tuple[tuple[str, object], ...]  # its Static parameters -> values
    operands: tuple[str, ...]  # names of its tensor arguments in order; Many parameters are expanded in place
    many: tuple[tuple[str, tuple[str, ...]], ...] = ()  # its Many parameters -> names of their elements
    bound: tuple[tuple[str, str], ...] = ()  # role -> argument text, where it differs from the binding
