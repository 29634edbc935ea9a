"""A session: select, propose, evaluate, judge, decide, record; says events.

`Session` is what users hold. It is put together from parts, each of which is given the parts that it uses:

    SessionLog      what is stored, and who is told of events
    WorkThread      the one thread on which a session works
    ModelSettings   which language model is asked, and what it has cost
    Testing         versions are built, run, checked and timed
    Profiling       a closer look at one version
    Proposing       versions come about
    Deciding        versions are accepted, rejected or merged
    loops, chain    many steps by rule
    recording       a session as a file, and played back
"""

from workbench.session.log import DATABASE
from workbench.session.session import Session, default_root

__all__ = ["DATABASE", "Session", "default_root"]
