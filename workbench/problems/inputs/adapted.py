"""Makes a model take a call's inputs as a flat list, and return what it changes if its forward returns nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from workbench.problems.inputs.arguments import Call

State = Mapping[str, torch.Tensor]


class AdaptedForward:
    """Stands for a model's `forward`: makes its arguments from the inputs of a call.

    If forward returns None, the result is what it changed in place, by name: the inputs and buffers `changed`, or, if
    these are not known, those that torch has written to.
    """

    def __init__(self, model: torch.nn.Module, call: Call, changed: tuple[str, ...] | None) -> None:
        self.forward = model.forward  # bound to the model, or to its copy where that is copied
        self.call, self.changed = call, changed

    def __call__(self, *inputs: object) -> object:
        args, kwargs = self.call.restore(inputs)
        if self.changed is not None:
            result = self.forward(*args, **kwargs)
            if result is None and self.changed:
                now = self._tensors(inputs)
                result = {name: now[name] for name in self.changed if name in now}
            return result
        before = {name: (value, value._version) for name, value in self._tensors(inputs).items()}
        result = self.forward(*args, **kwargs)
        if result is not None:
            return result
        now = self._tensors(inputs)
        return {name: value for name, value in now.items() if _is_changed(value, before.get(name))} or None

    def _tensors(self, inputs: Sequence[object]) -> dict[str, torch.Tensor]:
        """Inputs and buffers by name."""
        named = zip(self.call.names, inputs, strict=True)
        given = {name: value for name, value in named if isinstance(value, torch.Tensor)}
        return {**dict(self.forward.__self__.named_buffers()), **given}


def _is_changed(value: torch.Tensor, before: tuple[torch.Tensor, int] | None) -> bool:
    return before is None or before[0] is not value or before[1] != value._version


def adapt(
    model: torch.nn.Module, call: Call, *, returns_nothing: bool, changed: tuple[str, ...] | None = None
) -> torch.nn.Module:
    """The model, which from now on takes the inputs of `call` as they are listed."""
    if returns_nothing or not call.is_flat:
        model.forward = AdaptedForward(model, call, changed if returns_nothing else ())
    return model
