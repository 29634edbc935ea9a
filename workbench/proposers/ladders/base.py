"""The types that all ladders share: a rung, and the input of a ladder."""

from __future__ import annotations

from workbench.language import Call
from workbench.proposers.recognition import Computation
from workbench.records import Facts, record


@record
class Rung:
    """One step of a ladder: settings, a title, the reason why it should help, and the counter that shows the need."""

    settings: tuple[Call, ...]
    title: str
    reason: str
    need: str = ""  # sectors, wavefronts, instructions or requests: the count from which the gain is predicted
    seconds: float | None = None  # modelled time on the whole device; None without a model of the whole kernel
    risks: tuple[float, float] = (1.0, 1.0)  # of being hard to get right, and of being no faster; 1 is none; inferred
    parts: tuple[Rung, ...] = ()  # in a pipeline: the rung of each piece, which hold all settings
    changes: tuple[int, ...] = ()  # in a pipeline: places of the parts that the step changes
    unfused: bool = False  # use the computation's unfused form, with a stage for what an epilogue cannot do

    @property
    def calls(self) -> tuple[Call, ...]:
        """The settings, including those of all pieces of a pipeline."""
        return (*self.settings, *(call for part in self.parts for call in part.settings))


@record
class Context:
    """The input of a ladder: computation, precision, architecture, device, and the problem's facts if known."""

    found: Computation
    precision: str
    arch: str = "sm_80"
    device: str = "H200"
    facts: Facts | None = None

    @property
    def wide(self) -> int:
        """Elements of a 16-byte access."""
        return 16 // (2 if self.precision in ("fp16", "bf16") else 4)


def put(name: str, *values: object) -> Call:
    """A setting as a call: put("tile", 64, 64) is .tile(64, 64)."""
    return Call(name=name, positional=values)
