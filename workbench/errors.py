"""Exceptions of the workbench itself; a failing candidate is a value (`records.Failure`), never one of these.

WorkbenchError              anything a person can be told in one line
  UserError                 the person's input cannot be used: says what, where and what to do
    ProblemError            a problem file, cell or expression is not usable
      TooLarge              even the smallest sizes are too much for the emulator (problems.cases)
    ProgramError            a muCUTLASS program was rejected (carries the rejections)
    StaleDecision           an accept or reject names a version that is no longer what was shown
    Refused                 a command line cannot be used
    LlmError                a call of a language model failed for good
    NoUsableReply           a language model answered, but nothing could be made of it
    BudgetExceeded          the next call of a language model could cost more than what is left
  NotEmulated               a call that the emulator does not answer; the text names it
  Unavailable               a plug-in cannot run here; the text says why and how to get it
    Unrecorded              a problem was recorded, but not this program of it
  Stopped                   the person stopped the work; everything finished so far is kept
  WorkerLost                the warm worker server died or answered nonsense
"""

from __future__ import annotations


class WorkbenchError(Exception):
    """Root of the tree; `str(error)` is one clear line."""


class UserError(WorkbenchError):
    """The person's input cannot be used."""


class ProblemError(UserError):
    """A problem file, cell or expression is not usable."""


class GpuMemoryError(ProblemError):
    """A problem's own tensors found too little memory on the GPU."""


class ProgramError(UserError):
    """A muCUTLASS program was rejected; `rejections` lists field, value, reason and legal values."""

    def __init__(self, message: str, rejections: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.rejections = rejections


class StaleDecision(UserError):
    """A decision names a version or source that is no longer the one shown."""


class Refused(UserError):
    """The command line cannot be used."""


class LlmError(UserError):
    """A call of a language model failed for good: one line with what, where and what to do."""


class NoUsableReply(UserError):
    """A language model answered, but nothing could be made of it."""


class BudgetExceeded(UserError):
    """The next call of a language model could cost more than what is left."""


class NotEmulated(WorkbenchError):
    """A program called something that the emulator does not answer."""


class Unavailable(WorkbenchError):
    """A plug-in cannot run here."""


class Unrecorded(Unavailable):
    """A problem was recorded, but not this program of it."""


class Stopped(WorkbenchError):
    """The person stopped the work."""

    def __init__(self, message: str = "stopped; everything finished is kept") -> None:
        super().__init__(message)


class WorkerLost(WorkbenchError):
    """The warm worker server died or answered nonsense."""
