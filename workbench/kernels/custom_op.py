"""A kernel's module as an operator of `torch.library`: results by the kernel, shapes and gradients by the reference.

`cutegen export --as custom-op` writes this into the exported file. An operator takes what forward takes, then the
parameters and buffers of its module, and the module's handle; it returns a list of tensors.
"""

import copy
import itertools
import threading
import weakref
from collections.abc import Callable

import torch

modules: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # handle -> a module that calls an operator
handle_numbers = itertools.count()
reference_lock = threading.RLock()  # a call of the reference exchanges its parameters


def define_operator(name, schema):
    """Define the operator `name` ("namespace::name"): kernel, shapes without data, and gradients. Return it."""
    operator = torch.library.custom_op(name, run_kernel, mutates_args=(), schema=schema)
    operator.register_fake(make_results)
    operator.register_autograd(differentiate, setup_context=keep_operands)
    return operator


def register_module(module):
    """Return a new handle of the module. Operators take a handle, since they cannot take a module."""
    handle = str(next(handle_numbers))
    modules[handle] = module
    return handle


def make_reference(model, module, arguments, options):
    """Return the reference of a module without data: each call gets the module's parameters and buffers.

    Raises TypeError if it has others than the module.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices):  # what the user draws afterwards does not change
        reference = model(*arguments, **options).to("meta")
    own, wanted = list(list_state(module)), list(list_state(reference))
    if own != wanted:
        raise TypeError(f"the kernel's module has the parameters and buffers {own}; the reference has {wanted}")
    return reference


def list_state(module):
    """Return the parameters and buffers of a module by name."""
    return dict(itertools.chain(module.named_parameters(), module.named_buffers()))


def list_tensors(module):
    """Return the parameters and buffers of a module."""
    parts = [part for one in module.modules() for part in (one._parameters, one._buffers) if part]
    return [tensor for part in parts for tensor in part.values() if tensor is not None]


def needs_only_kernel(operands):
    """Return whether nothing but the kernel has to see a call: no gradient, transformation, trace or mode of torch."""
    tensors = [value for value in operands if isinstance(value, torch.Tensor)]
    return not (
        any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in tensors)
        or (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack() > 0
    )


def as_list(results):
    """Return a tensor, or a tuple of tensors, as a list."""
    found = [results] if isinstance(results, torch.Tensor) else list(results)
    if not all(isinstance(result, torch.Tensor) for result in found):
        raise TypeError(f"forward returned {[type(result).__name__ for result in found]}; an operator returns tensors")
    return found


def run_kernel(*operands):
    """Return the kernel's results: contiguous, in memory of their own."""
    *inputs, state, handle = operands
    module = modules[handle]
    own = list_state(module)
    if all(given.is_set_to(kept) for given, kept in zip(state, own.values(), strict=True)):
        results = as_list(module.run_kernel(*inputs))
    else:  # under torch.func.functional_call, for example
        results = as_list(call_kernel(module, state, inputs))
    return make_own(results, (*inputs, *state))


def make_own(results, operands):
    """Return the results, contiguous and in memory of their own."""
    taken = {value.untyped_storage().data_ptr() for value in operands if isinstance(value, torch.Tensor)}
    for position, result in enumerate(results):
        result = result.contiguous()
        if result.untyped_storage().data_ptr() in taken:
            result = result.clone()
        taken.add(result.untyped_storage().data_ptr())
        results[position] = result
    return results


class KernelCall(torch.nn.Module):
    """Calls the kernel of a module that has no data, for `functional_call`."""

    def __init__(self, module):
        super().__init__()
        self.module = copy.deepcopy(module).to("meta")

    def forward(self, *inputs):
        """Return the kernel's results."""
        return self.module.run_kernel(*inputs)


def call_kernel(module, state, inputs):
    """Return the kernel's results for other parameters and buffers than the module's."""
    named = {f"module.{name}": value for name, value in zip(list_state(module), state, strict=True)}
    return torch.func.functional_call(KernelCall(module), named, tuple(inputs))


def run_reference(module, inputs, state):
    """Return the reference's results. Raises RuntimeError if it changes an operand in place."""
    named = dict(zip(list_state(module), state, strict=True))
    tensors = [value for value in (*inputs, *state) if isinstance(value, torch.Tensor) and not value.is_inference()]
    versions = [tensor._version for tensor in tensors]
    with reference_lock:
        reference = module.reference.train(module.training)
        results = as_list(torch.func.functional_call(reference, named, tuple(inputs)))
    if versions != [tensor._version for tensor in tensors]:
        raise RuntimeError(f"{type(module).__name__}: the reference changes an operand in place; an operator may not")
    return results


def make_results(*operands):
    """Return tensors of the shapes and dtypes of the results, from the reference's own code (sizes may be symbolic)."""
    *inputs, state, handle = operands
    with torch.no_grad():
        results = run_reference(modules[handle], inputs, state)
    return [torch.empty(result.shape, dtype=result.dtype, device=result.device) for result in results]


def keep_operands(ctx, inputs, output):
    """Keep the operands for the backward pass, which computes the reference again."""
    *values, state, handle = inputs
    ctx.module = modules[handle]  # which may end before the backward pass
    ctx.values = [None if isinstance(value, torch.Tensor) else value for value in values]
    ctx.places = [place for place, value in enumerate(values) if isinstance(value, torch.Tensor)]
    ctx.training = ctx.module.training
    ctx.save_for_backward(*(values[place] for place in ctx.places), *state)


def differentiate(ctx, gradients):
    """Return the gradients by torch through the reference. Raises RuntimeError where the reference has none."""
    module, create_graph = ctx.module, torch.is_grad_enabled()
    if module.training != ctx.training:
        raise RuntimeError(f"{type(module).__name__} was in another mode (train or eval) in the forward pass")
    tensors = list(ctx.saved_tensors)
    if module.gradient is not None and not create_graph:
        return differentiate_by_kernels(ctx, gradients[0])
    if not create_graph:
        tensors = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
    inputs, count = list(ctx.values), len(ctx.places)
    for place, tensor in zip(ctx.places, tensors[:count], strict=True):
        inputs[place] = tensor
    with torch.enable_grad():
        results = run_reference(module, inputs, tensors[count:])
    pairs = [
        (result, gradient)
        for result, gradient in zip(results, gradients, strict=True)
        if result.requires_grad and gradient is not None
    ]
    if not pairs:
        raise RuntimeError(f"{type(module).__name__}: the reference is not differentiable")
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    outputs, weights = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outputs, wanted, weights, allow_unused=True, create_graph=create_graph))
    each = [next(found) if tensor.requires_grad else None for tensor in tensors]
    for_inputs: list = [None] * len(inputs)
    for place, gradient in zip(ctx.places, each[:count], strict=True):
        for_inputs[place] = gradient
    return *for_inputs, each[count:], None


def differentiate_by_kernels(ctx, gradient):
    """Return the gradients by the operator `gradient` of the module."""
    module, count = ctx.module, len(ctx.places)
    names = [module.arguments[place] for place in ctx.places] + [f"self.{name}" for name in list_state(module)]
    values = dict(zip(names, ctx.saved_tensors, strict=True))
    roles = {role: name for role, name in module.rows.items() if role in ("x", "weight")}
    operands = [values[module.rows[role]] for role in ("x", "indptr", "indices")]
    weight = values[roles["weight"]] if "weight" in roles else None
    found = dict(zip(roles.values(), module.gradient(gradient, *operands, weight), strict=True))
    each = [found.get(name) if values[name].requires_grad else None for name in names]
    for_inputs: list = [None] * len(ctx.values)
    for place, own in zip(ctx.places, each[:count], strict=True):
        for_inputs[place] = own
    return *for_inputs, each[count:], None


class OperatorModule(torch.nn.Module):
    """The part of `ModelNew` before the kernel's module: its forward calls `operator`, which calls the kernel's.

    `operator`: what `define_operator` returned. `model`: the reference's class. `gradient`: an operator for the
    backward pass, whose operands `rows` has by their roles, as forward's `arguments` or as parameters; None for the
    reference's code.
    """

    operator: Callable
    model: type
    gradient: Callable | None = None
    rows: dict | None = None
    arguments: tuple = ()

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.__dict__["reference"] = make_reference(self.model, self, arguments, options)  # no part of its state
        self.handle = register_module(self)

    def __setstate__(self, state):
        super().__setstate__(state)
        self.handle = register_module(self)

    def run_kernel(self, *inputs):
        """Return the kernel's results."""
        return super().forward(*inputs)

    def apply_operator(self, *inputs):
        """Return the operator's results, a list."""
        operands = (*inputs, *list_tensors(self))
        if needs_only_kernel(operands):  # torch takes longer to call an operator than a kernel
            return make_own(as_list(self.run_kernel(*inputs)), operands)
        return self.operator(*inputs, list(list_state(self).values()), self.handle)
