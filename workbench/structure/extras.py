"""The packages of the extra `structure`, and the one line that a person sees without them."""

from __future__ import annotations

import importlib

from workbench.errors import Unavailable


def require(*packages: str) -> None:
    """Raises `Unavailable` where one of the packages is not installed."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError:
            raise Unavailable(
                f"rules on graphs need {package}, which is not installed: pip install 'cutegen-workbench[structure]'"
            ) from None
