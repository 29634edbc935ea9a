"""A kernel as operators of nvidia-cutlass-operators, which are found and run as its own are."""

import dataclasses
import typing

import cutlass
import cutlass.operators as ops
import torch
from cutlass.operators.metadata import DenseTensorConstraints, GemmOperandsMetadata, OperandsMetadata, OperatorMetadata


@dataclasses.dataclass
class TensorOperands(OperandsMetadata):
    """The dtype and shape that each operand has; an extent that was tested with several values is None."""

    inputs: dict
    results: dict

    def supports(self, args):
        """Return whether operands have these dtypes and shapes; a result may be left out."""
        for name, (dtype, shape) in (self.inputs | self.results).items():
            tensor = getattr(args, name)
            if tensor is None and name in self.results:
                continue
            if not isinstance(tensor, torch.Tensor):
                return ops.Status.fail(f"{name} is no torch tensor")
            fits = len(tensor.shape) == len(shape) and all(
                wanted in (None, size) for size, wanted in zip(tensor.shape, shape, strict=True)
            )
            if tensor.dtype != dtype or not fits:
                return ops.Status.fail(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not {dtype} {shape}")
        return ops.Status.success()


def launch(function, tensors, stream):
    """Return the results of `function` on a stream: one of torch, of cuda-python, or its number."""
    if not tensors[0].is_cuda:
        return function(*tensors)
    number = getattr(stream, "cuda_stream", stream)
    with torch.cuda.stream(torch.cuda.ExternalStream(int(number), device=tensors[0].device)):
        return function(*tensors)


class RegisteredOperator(ops.Operator):
    """What the operators of this file share. The kernel is compiled at its first run with new dtypes and layouts."""

    operator_name: typing.ClassVar[str]
    function: typing.ClassVar[typing.Callable]
    target: typing.ClassVar[str]
    supported_args_type = ops.RuntimeArguments
    designed_for_min_cc = 80

    @classmethod
    def list_operands(cls):
        """Return what the operator takes."""
        raise NotImplementedError

    @classmethod
    def _generate_operators(cls, metadata_filter, epilogue_args=None, target_sm=None, args=None):
        if epilogue_args is not None:
            return []
        metadata = OperatorMetadata(
            operator_name=cls.operator_name,
            operator_class=cls,
            supported_targets=[ops.TargetSm(cls.target)],
            operands=cls.list_operands(),
        )
        return [cls(metadata)] if metadata_filter is None or metadata_filter(metadata) else []

    def _compile(self, args, target_sm=None):
        return ops.CompiledArtifact(compiled_obj=type(self).function, operator_obj=self, compiled_for=target_sm)


class ModuleOperator(RegisteredOperator):
    """The kernel for operands by name. A result that is left out is put into the arguments, with no copy."""

    supported_args_type = ops.RuntimeArguments
    designed_for_min_cc = 80
    inputs: typing.ClassVar[dict]
    results: typing.ClassVar[dict]

    @classmethod
    def list_operands(cls):
        """Return the dtypes and shapes."""
        return TensorOperands(inputs=cls.inputs, results=cls.results)

    def _run(self, args, compiled_artifact, stream, workspace=None):
        made = launch(compiled_artifact.compiled_obj, [getattr(args, name) for name in self.inputs], stream)
        for name, result in zip(self.results, made if isinstance(made, tuple) else (made,), strict=True):
            if getattr(args, name) is None:
                setattr(args, name, result)
            else:
                launch(getattr(args, name).copy_, [result], stream)


class ProductOperator(RegisteredOperator):
    """The kernel for the registry's own arguments of a product."""

    supported_args_type = ops.GemmArguments
    designed_for_min_cc = 80
    element: typing.ClassVar[torch.dtype]
    axes: typing.ClassVar[int]

    @classmethod
    def list_operands(cls):
        """Return the dtypes; any strides are taken."""
        element = {torch.float32: cutlass.Float32, torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
        any_layout = DenseTensorConstraints(dtype=element[cls.element], stride=None, divisibility=1)
        return GemmOperandsMetadata(A=any_layout, B=any_layout, out=any_layout, accumulator_type=cutlass.Float32)

    def _supports(self, args, target_sm=None):
        if len(args.A.shape) != self.axes:
            return ops.Status.fail(f"A has {len(args.A.shape)} axes, not {self.axes}")
        if not isinstance(args.A.tensor.runtime_tensor, torch.Tensor):
            return ops.Status.fail("the kernel takes torch tensors, which needs apache-tvm-ffi")
        return ops.Status.success()

    def _run(self, args, compiled_artifact, stream, workspace=None):
        a, b, out = (operand.tensor.runtime_tensor for operand in (args.A, args.B, args.out))
        launch(out.copy_, [launch(compiled_artifact.compiled_obj, [a, b], stream)], stream)
