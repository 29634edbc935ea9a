"""What all ladders share: a rung, and what a ladder is made for."""

from __future__ import annotations

from workbench.language import Call
from workbench.proposers.recognition import Computation
from workbench.records import Facts, record


@record
class Rung:
    """One step of a ladder: settings, a title, why it should help, and which counter shows the need."""

    settings: tuple[Call, ...]
    title: str
    reason: str
    need: str = ""  # sectors, wavefronts, instructions, requests: what the predicted gain comes from
    seconds: float | None = None  # modelled on the whole device, where there is a model of the whole kernel
    risks: tuple[float, float] = (
        1.0,
        1.0,
    )  # that it is hard to get right, and that it is no faster; 1 = none; inferred
    parts: tuple[Rung, ...] = ()  # of a pipeline: the rung of each piece, which say all
    unfused: bool = False  # whether the computation's other form is meant, with a stage for what an epilogue cannot do

    @property
    def calls(self) -> tuple[Call, ...]:
        """The settings, those of all pieces of a pipeline."""
        return (*self.settings, *(call for part in self.parts for call in part.settings))


@record
class Context:
    """The input of a ladder: computation, policy on precision, device, and the problem's facts where they are known."""

    found: Computation
    precision: str
    arch: str = "sm_80"
    device: str = "H200"
    facts: Facts | None = None

    @property
    def wide(self) -> int:
        """Elements in an access of 16 bytes."""
        return 16 // (2 if self.precision in ("fp16", "bf16") else 4)


def put(name: str, *values: object) -> Call:
    """A setting."""
    return Call(name=name, positional=values)
