"""What an operation's lowering returns: a host function of the kernel library, its static arguments and its operands."""

from __future__ import annotations

from workbench.records import record


@record
class Hook:
    """One function written from an expression; a configuration holds it where the library takes a callable."""

    name: str
    source: str  # `def name(...): ...`, decorators included
    module: str = "workbench.kernels.scalars"  # whose names the source may use
    returns: tuple[str, ...] | None = None  # names of the values where it returns a Many


@record
class Launch:
    """One stage, ready to be written: `entry` is "package.module:function"."""

    entry: str
    static: tuple[tuple[str, object], ...]  # its Static parameters -> values
    operands: tuple[str, ...]  # names of its tensor arguments in order, those of Many parameters in their place
    many: tuple[tuple[str, tuple[str, ...]], ...] = ()  # its Many parameters -> names of their elements
    bound: tuple[tuple[str, str], ...] = ()  # roles that are passed in another form than the binding says -> text
