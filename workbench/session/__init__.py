"""A session: select, propose, evaluate, judge, decide, record; yields events."""

from workbench.session.core import DATABASE, Session, default_root

__all__ = ["DATABASE", "Session", "default_root"]
