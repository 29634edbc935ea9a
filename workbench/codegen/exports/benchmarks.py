"""A version as an entry of two public benchmarks: Definition, Solution and Workload as JSON.

Schemas: github.com/flashinfer-ai/flashinfer-bench, flashinfer_bench/data (0.1), and github.com/NVIDIA/SOL-ExecBench,
docs/ and src/sol_execbench/core/data (2026). Both have axes, named tensors and a reference with a function `run`. Here
the module's parameters and buffers are inputs too, and every axis is constant: the problem at its full size.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import uuid

from workbench.codegen.exports.custom_op import refuse
from workbench.codegen.exports.merge import join_modules, keep_needed, split_imports
from workbench.codegen.specialise.file import format_source
from workbench.errors import UserError
from workbench.problems import with_settings
from workbench.records import Facts, Problem, TensorSpec, record

DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "bool")  # of both benchmarks
MAKE_MODULE = """
def make_module(model):
    given = get_init_inputs()  # a list, or a dictionary of __init__'s arguments
    return model(**given) if isinstance(given, dict) else model(*given)

"""
RUN = """
MODULE = make_module({model}).to("meta")


@torch.no_grad()
def run({arguments}):
    state = {{{state}}}
    return torch.func.functional_call(MODULE, state, ({inputs},))
"""
MAKE_INPUTS = """
def make_inputs(axes_and_scalars, device):
    state, inputs = list_state(make_module(Model)), get_inputs()
    inputs = inputs.values() if isinstance(inputs, dict) else inputs
    tensors = [*inputs, *(tensor.detach() for tensor in state.values())]
    return dict(zip({names}, (tensor.to(device) for tensor in tensors)))


def list_state(module):
    return dict([*module.named_parameters(), *module.named_buffers()])
"""
NO_ARGUMENTS = "def get_init_inputs():\n    return []\n"


@record
class Interface:
    """Names of the function `run`: forward's tensors, parameters and buffers, results, each with its full size."""

    inputs: dict[str, TensorSpec]
    state: dict[str, TensorSpec]  # by the name of the argument; the spec has the parameter's own name
    outputs: dict[str, TensorSpec]

    @property
    def arguments(self) -> dict[str, TensorSpec]:
        """What `run` takes, in order."""
        return self.inputs | self.state


def write_benchmark(form: str, source: str, problem: Problem, facts: Facts, device: str) -> dict[str, str]:
    """File name -> text: the solution, the definition, the workload. Raises `UserError` for what has no schema."""
    refuse(problem, facts, f"for {form}")
    is_sol = form == "sol-execbench"
    interface = find_interface(form, problem, facts)
    definition = define(problem, facts, interface, is_sol=is_sol)
    name = str(definition["name"])
    init = problem_text(problem, ["get_init_inputs"])
    main = join_modules(problem.name, source, init, "_of_reference", ["run", "make_module"]) + run_text(
        "ModelNew", interface
    )
    solution = {
        "name": f"{name}_{short_hash(source)}",
        "definition": name,
        "author": "cutegen",
        "spec": {
            **({"languages": ["cute_dsl"]} if is_sol else {"language": "python"}),
            "target_hardware": ["LOCAL" if is_sol else f"NVIDIA_{device}"],
            "entry_point": "main.py::run",
            "dependencies": ["nvidia-cutlass-dsl", "apache-tvm-ffi"],
            "destination_passing_style": False,
        },
        "sources": [{"path": "main.py", "content": format_source(main)}],
    }
    workload = {
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
        "axes": {},
        "inputs": {name: {"type": "custom" if is_sol else "random"} for name in interface.arguments},
    }
    trace = {"definition": name, "workload": workload, "solution": None, "evaluation": None}
    files = ("solution.json", "definition.json", "workload.jsonl")
    if not is_sol:  # the folders of a trace set, which `flashinfer-bench run --local` takes
        files = (f"solutions/{solution['name']}.json", f"definitions/{name}.json", f"workloads/{name}.jsonl")
    texts = (
        json.dumps(solution, indent=1),
        json.dumps(definition, indent=1),
        json.dumps(workload if is_sol else trace),
    )
    return {file: f"{text}\n" for file, text in zip(files, texts, strict=True)}


def find_interface(form: str, problem: Problem, facts: Facts, dtypes: tuple[str, ...] = DTYPES) -> Interface:
    """The tensors of a problem. Raises `UserError` for others than the form has; `()`: any dtype."""
    case = next(case for case in facts.cases if case.name == "full")
    inputs = {spec.name: spec for spec in case.inputs}
    state = {name_input(spec.name, inputs): spec for spec in full_state(problem, facts)}
    outputs = {f"output{place or ''}": spec for place, spec in enumerate(case.outputs)}
    why = ""
    if missing := [name for name in facts.forward_arguments if name not in inputs]:
        why = f"forward's {missing[0]} is no tensor"
    elif dtypes and (
        wrong := [spec.dtype for part in (inputs, state, outputs) for spec in part.values() if spec.dtype not in dtypes]
    ):
        why = f"it has no dtype {wrong[0]}"
    elif form == "flashinfer-bench" and (whole := [name for name in inputs if "float" not in inputs[name].dtype]):
        why = f"it draws any integers for {whole[0]}"
    if why:
        raise UserError(f"{problem.name} cannot be exported for {form}: {why}")
    return Interface(inputs=inputs, state=state, outputs=outputs)


def define(problem: Problem, facts: Facts, interface: Interface, *, is_sol: bool) -> dict[str, object]:
    """The definition."""
    reference = problem_text(problem, ["Model", "get_init_inputs", *(["get_inputs"] if is_sol else [])])
    imports, text = split_imports(reference)
    reference = "\n".join(dict.fromkeys(["import torch", *imports])) + f"\n\n\n{text}"  # `run` needs torch
    reference += run_text("Model", interface) + (MAKE_INPUTS.format(names=[*interface.arguments]) if is_sol else "")
    specs = [*interface.arguments.values(), *interface.outputs.values()]
    return {
        "name": f"{problem.name}_{short_hash(reference)}",
        "op_type": facts.kind,
        "description": f"{problem.name} at its full size",
        "axes": {f"size_{size}": {"type": "const", "value": size} for spec in specs for size in spec.shape},
        "inputs": {name: describe_tensor(spec) for name, spec in interface.arguments.items()},
        "outputs": {name: describe_tensor(spec) for name, spec in interface.outputs.items()},
        "reference": format_source(reference),
        **({"custom_inputs_entrypoint": "make_inputs"} if is_sol else {}),
    }


def short_hash(text: str) -> str:
    """Eight digits that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def full_state(problem: Problem, facts: Facts) -> list[TensorSpec]:
    """Parameters and buffers at the full size, under their own names."""
    known = {spec.name.split(":", 1)[-1]: spec for spec in facts.full if ":" in spec.name}
    if missing := [spec.name for spec in facts.parameters if spec.name not in known]:
        raise UserError(f"{problem.name}: the shape of {missing[0]} at full size is not known; export another form")
    return [dataclasses.replace(known[spec.name], name=spec.name) for spec in facts.parameters]


def problem_text(problem: Problem, wanted: list[str]) -> str:
    """What the problem's text needs for these names, with `get_init_inputs` in any case."""
    text = with_settings(problem.source, problem.settings)
    needed = keep_needed(text, set(wanted))
    return needed if "def get_init_inputs" in needed else f"{needed}\n\n{NO_ARGUMENTS}"


def name_input(name: str, taken: dict[str, TensorSpec]) -> str:
    """`linear_weight` of a parameter `linear.weight`, unless forward has an argument of that name."""
    plain = name.replace(".", "_")
    return f"parameter_{plain}" if plain in taken else plain


def run_text(model: str, interface: Interface) -> str:
    """The function `run` for a module's class."""
    return MAKE_MODULE + RUN.format(
        model=model,
        arguments=", ".join(interface.arguments),
        inputs=", ".join(interface.inputs),
        state=", ".join(f'"{spec.name}": {name}' for name, spec in interface.state.items()),
    )


def describe_tensor(spec: TensorSpec) -> dict[str, object]:
    """A tensor of a definition."""
    return {"shape": [f"size_{size}" for size in spec.shape], "dtype": spec.dtype}
