"""A session: select, propose, evaluate, judge, decide, record; yields events."""

from workbench.session.base import DATABASE, default_root
from workbench.session.core import Session

__all__ = ["DATABASE", "Session", "default_root"]
