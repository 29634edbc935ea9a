"""What the rewriting of one function needs of the file in the making."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import libcst as cst

from workbench.codegen.launch import Hook
from workbench.codegen.specialise.library import Module
from workbench.codegen.specialise.scope import Scope
from workbench.codegen.specialise.values import Symbol


class WrittenFunction(Protocol):
    """A function as it is written."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Its parameters in order, those that are left out among them."""

    @property
    def unused(self) -> frozenset[str]:
        """Parameters that are left out, because the function does not read them."""

    @property
    def returns(self) -> tuple[str, ...] | None:
        """Names of the values where it returns a Many."""


class FileBuilder(Protocol):
    """Where definitions, constants and imports are collected."""

    def require(self, module: Module, name: str) -> str:
        """The name in the file of something that a module defines or imports."""

    def constant(self, name: str, scope: Scope, node: cst.BaseExpression, comment: str) -> str:
        """The name of a constant with the value that an expression has in a scope."""

    def hook(self, hook: Hook, *, whole: bool = False) -> WrittenFunction:
        """A hook's function; `whole`: with parameters that it does not read."""

    def function(
        self,
        module: Module,
        name: str,
        *,
        static: Mapping[str, object],
        many: Mapping[str, tuple[Symbol, ...]],
        nodes: Mapping[str, cst.BaseExpression],
        whole: bool = False,
    ) -> WrittenFunction:
        """A variant of a library function; `whole`: with parameters that it does not read.

        `nodes`: expressions of static arguments that read static arguments of the caller alone.
        """
