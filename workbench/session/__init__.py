"""Sessions: the loop that proposes, tests, judges and decides, and stores everything.

`Session` is the public class. It consists of parts; each part gets the parts that it uses:

    SessionLog      holds the stored records and notifies the subscribers of events
    WorkThread      runs all work of a session on one thread
    ModelSettings   holds the settings of the language model, its client and its cost
    Testing         builds, runs, checks and times versions
    Profiling       profiles versions
    Proposing       makes versions by proposers and from the user's text
    Deciding        accepts, rejects and merges versions
    loops, chain    run many steps by a policy
    searching       searches among versions by a strategy, which a person may steer
    recording       saves a session as a file and plays it back
"""

from workbench.session.log import DATABASE
from workbench.session.session import Session

__all__ = ["DATABASE", "Session"]
