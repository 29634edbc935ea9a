"""Plans of host functions: a call with operands like those of an earlier one only allocates and launches.

`cutegen export` writes this behind a kernel's text. The first call with operands of their shapes, strides, dtypes,
devices and alignment makes a plan, which holds no tensor and no address. A function that does more than allocate, view,
copy and launch gets none: each of its calls runs it.
"""

import functools
import operator
import threading

import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from torch.utils._python_dispatch import TorchDispatchMode

MOST_PLANS = 1024  # of one function; then all are made anew
UNKNOWN = object()
LEAST_ADDRESS = 1 << 40  # sizes are less
TENSORS = (torch.Tensor, torch.nn.Parameter)  # no subclasses: those may be more than their data
NUMBERS = (int, float, bool, str, type(None))
EMPTY = ("aten::empty", "aten::empty_like", "aten::new_empty", "aten::empty_strided", "aten::new_empty_strided")
ZEROS = ("aten::zeros", "aten::zeros_like", "aten::new_zeros")


class Recording(threading.local):
    """The tape of the call of this thread that is recorded."""

    tape = None


recording = Recording()


def plan_calls(function):
    """Return the host function with plans."""
    plans: dict = {}  # description of the operands -> steps, and what finds the result after them; None for no plan

    @functools.wraps(function)
    def planned(*operands, **named):
        if torch.compiler.is_compiling():
            return call_apart(planned, operands, named)
        if recording.tape is not None or named:
            return function(*operands, **named)
        try:
            key = tuple(map(describe, operands))
        except TypeError:
            return function(*operands)
        plan = plans.get(key, UNKNOWN)
        if plan is None:
            return function(*operands)
        if plan is UNKNOWN:
            result, plan = record_call(function, operands)
            if len(plans) >= MOST_PLANS:
                plans.clear()
            plans[key] = plan
            return result
        steps, find_result = plan
        values = [*operands]
        for step in steps:
            step(values)
        return find_result(values)

    planned.plans = plans
    return planned


@torch._disable_dynamo
def call_apart(function, operands, named):
    """Call a function outside of what torch.compile compiles."""
    return function(*operands, **named)


def describe(operand):
    """Return what a plan depends on; addresses matter up to 16 bytes, the widest access. TypeError for objects."""
    kind = type(operand)
    if kind in TENSORS:
        place = operand.data_ptr() % 16
        return operand.shape, operand.stride(), operand.dtype, operand.device, place, operand.requires_grad
    if kind in NUMBERS:
        return kind, repr(operand)  # -0.0 equals 0.0
    raise TypeError(kind)


def record_call(function, operands):
    """Return the result of a call, and its plan."""
    # tensors of their own: two operands may be one tensor or share memory, and those of the next call not
    own = [x.detach().requires_grad_(x.requires_grad) if type(x) in TENSORS else x for x in operands]
    tape = recording.tape = Tape(own)
    try:
        with tape:
            result = function(*own)
    finally:
        recording.tape = None
    plan = tape.make_plan(result)
    given = {id(x): operand for x, operand in zip(own, operands, strict=True)}
    if type(result) is tuple:
        return tuple(given.get(id(x), x) for x in result), plan
    return given.get(id(result), result), plan


def record_launches(call, compiled, torch_value):
    """Return the kernels' `call` so that a plan repeats its launches."""

    def launch_once(function, key, arguments, constants):
        try:
            call(function, key, arguments, constants)
        except Exception:  # CuTe DSL's message does not say which tensor, and may call it a bug of its own
            for argument in arguments:
                for value in argument if isinstance(argument, tuple) else (argument,):
                    refuse_host_memory(torch_value(value))
            raise

    def recorded(function, key, arguments, constants=()):
        tape = recording.tape
        if tape is None:
            launch_once(function, key, arguments, constants)
            return
        tape.is_paused = True
        launch_once(function, key, arguments, constants)
        tape.is_paused = False
        values = [tuple(map(torch_value, x)) if isinstance(x, tuple) else torch_value(x) for x in arguments]
        launch = compiled[function, key]
        if hasattr(launch, "__tvm_ffi_object__"):  # TVM FFI's own function, without the one in Python around it
            launch = launch.__tvm_ffi_object__()
        tape.steps.append(tape.make_call(values, launch))

    return recorded


def refuse_host_memory(value):
    """Raise ValueError for a tensor that CuTe DSL finds in host memory."""
    if isinstance(value, torch.Tensor) and from_dlpack(value.detach()).memspace != cute.AddressSpace.gmem:
        found = f"one of shape {tuple(value.shape)} is on {str(value.device)!r}"
        raise ValueError(
            f'the kernel takes tensors on "cuda"; {found}: move the module and its inputs to "cuda"'
        ) from None


def record_workspaces(function):
    """Return a function that finds tensors of its own, for the current stream or for sizes: a plan calls it again."""

    @functools.wraps(function)
    def recorded(*arguments):
        tape = recording.tape
        if tape is None:
            return function(*arguments)
        tape.is_paused = True
        found = function(*arguments)
        tape.is_paused = False
        tape.add_tensors(lambda values: values.extend(list_found(function(*arguments))), list_found(found))
        return found

    return recorded


def list_found(found):
    """Return the tensors of one or several, or of an object with `tables`."""
    return [found] if isinstance(found, torch.Tensor) else [*getattr(found, "tables", found)]


class Tape(TorchDispatchMode):
    """Notes allocations, views and launches of a call as steps: functions of a list that begins with the operands."""

    def __init__(self, operands):
        super().__init__()
        self.operands, self.count = operands, len(operands)  # what the list has so far
        self.steps: list = []  # an allocation is its tensor until the end of the call
        self.is_complete, self.is_paused = True, False
        self.origins = {id(x): (place, x) for place, x in enumerate(operands)}  # id of a tensor -> what it is a view of
        self.views: dict = {}  # place of an origin and a layout -> place of the view
        self.kept: list = []  # so that no id is used twice

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else torch loads its compiler

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        options = options or {}
        result = function(*arguments, **options)
        name = function._schema.name
        if self.is_paused or name == "aten::promote_types":  # of dtypes
            return result
        if name in EMPTY and not options.get("pin_memory"):
            self.add_tensors(result, (result,))
        elif name in ZEROS:
            place = self.add_tensors(result, (result,))
            self.steps.append(lambda values: values[place].zero_())
        elif name == "aten::copy_":
            target, source = self.find(arguments[0]), self.find(arguments[1])
            self.steps.append(lambda values: values[target].copy_(values[source]))
        elif name == "aten::clone" or (name == "aten::contiguous" and not has_same_memory(result, arguments[0])):
            source = self.find(arguments[0])
            target = self.add_tensors(result, (result,))
            self.steps.append(lambda values: values[target].copy_(values[source]))
        elif function.is_view and id(arguments[0]) in self.origins:
            views = result if isinstance(result, (tuple, list)) else (result,)
            # in inference mode reshape comes here, and may have copied
            self.is_complete &= all(has_same_memory(view, arguments[0]) for view in views)
            self.origins |= {id(view): self.origins[id(arguments[0])] for view in views}
            self.kept += views
        else:
            self.is_complete = False
        return result

    def add_step(self, step):
        """Note a step that appends to the list. Return the place."""
        self.steps.append(step)
        self.count += 1
        return self.count - 1

    def add_tensors(self, step, tensors):
        """Note a step that appends tensors with memory of their own. Return the place of the first."""
        first = self.add_step(step)
        self.origins |= {id(tensor): (place, tensor) for place, tensor in enumerate(tensors, first)}
        self.kept += tensors
        self.count = first + len(tensors)
        return first

    def find(self, tensor):
        """Return the place of a tensor, of a view that is appended here if need be."""
        place, base = self.origins.get(id(tensor), (0, None))
        if base is None:
            self.is_complete = False
            return 0
        offset = tensor.storage_offset() * tensor.element_size() - base.storage_offset() * base.element_size()
        layout = tensor.shape, tensor.stride(), offset, tensor.dtype
        if layout == (base.shape, base.stride(), 0, base.dtype) and not base.requires_grad:
            return place
        if (place, layout) not in self.views:
            self.views[place, layout] = self.add_step(make_view(place, base, tensor, offset))
        return self.views[place, layout]

    def make_call(self, items, take):
        """Return the step that calls `take` with items of the list and constants; an item may be a tuple of items."""
        places, constants = [], []
        for item in items:
            if isinstance(item, tuple):
                places.append(self.add_step(make_append(self.make_call(item, as_items))))
            elif isinstance(item, torch.Tensor):
                places.append(self.find(item))
            else:
                self.is_complete &= type(item) in NUMBERS and not (isinstance(item, int) and item >= LEAST_ADDRESS)
                constants.insert(0, item)
                places.append(-len(constants))  # behind the list
        if len(places) < 2:
            return lambda values: take(*[(values + constants)[place] for place in places])
        get = operator.itemgetter(*places)
        return lambda values: take(*get(values + constants))

    def make_plan(self, result):
        """Return the steps, and what finds the result after them; None if a plan cannot do what the call did."""
        items = result if type(result) is tuple else (result,)
        given = {id(x): place for place, x in enumerate(self.operands)}
        places = []
        for item in items:
            place, _ = self.origins.get(id(item), (0, None))
            if id(item) not in given and place < len(self.operands):
                return None  # a number, a view of an operand, or a tensor from elsewhere
            places.append(given[id(item)] if id(item) in given else self.find(item))
        if not self.is_complete:
            return None
        steps = [self.make_allocation(step) if isinstance(step, torch.Tensor) else step for step in self.steps]
        get = operator.itemgetter(*places)
        if type(result) is tuple and len(places) == 1:
            return steps, lambda values: (get(values),)
        return steps, get

    def make_allocation(self, tensor):
        """Return the step that appends a tensor like this one."""
        size, stride, dtype, device = tensor.shape, tensor.stride(), tensor.dtype, tensor.device
        for place, x in enumerate(self.operands):  # torch makes a tensor like another one fastest
            is_like = isinstance(x, torch.Tensor) and (x.shape, x.dtype, x.device) == (size, dtype, device)
            if is_like and x.is_contiguous() and x.stride() == stride:
                return lambda values: values.append(torch.empty_like(values[place]))
        return lambda values: values.append(torch.empty_strided(size, stride, dtype=dtype, device=device))


def has_same_memory(first, second):
    """Return whether two tensors are views of one memory."""
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def as_items(*items):
    """Return the items as a tuple."""
    return items


def make_append(pick):
    """Return the step that appends what `pick` takes from the list."""
    return lambda values: values.append(pick(values))


def make_view(place, base, tensor, offset):
    """Return the step that appends a view like `tensor` of a value like `base`, `offset` bytes behind its start."""
    size, stride, dtype, first = tensor.shape, tensor.stride(), tensor.dtype, offset // base.element_size()
    if dtype == base.dtype:
        return lambda values: values.append(view_memory(values[place], size, stride, first))
    span = 1 + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True)) if tensor.numel() else 0
    count = -(-span * tensor.element_size() // base.element_size())

    def view(values):
        memory = view_memory(values[place], (count,), (1,), first).view(dtype)
        values.append(view_memory(memory, size, stride, 0))

    return view


def view_by_stride(tensor, size, stride, offset):
    """Return a view of a tensor's memory without gradients; `offset` is from the tensor's start."""
    return tensor.detach().as_strided(size, stride, tensor.storage_offset() + offset)


# what torch.compile's own code calls; half the time of a view
view_memory = getattr(torch._C._dynamo.guards, "_reinterpret_tensor", view_by_stride)
