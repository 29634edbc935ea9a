"""conv(x, w) and convtranspose(x, w): their settings, arguments and checks."""

from __future__ import annotations

from workbench.language.operations.conv.operation import OPERATIONS

__all__ = ["OPERATIONS"]
