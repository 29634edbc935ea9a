"""`workbench.emulated()`: what torch and CUDA's Python bindings say on a machine that only seems to have a GPU."""

from __future__ import annotations

import copy

import cuda.bindings.driver as cuda_driver
import cuda.bindings.runtime as cuda_runtime
import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

import workbench
from workbench.emulator import EmulationFault
from workbench.errors import NotEmulated, UserError

GPU = torch.device("cuda", 0)


@cute.kernel
def add_kernel(x: cute.Tensor, y: cute.Tensor) -> None:
    """y += x, one element a thread."""
    i = cute.arch.block_idx()[0] * 64 + cute.arch.thread_idx()[0]
    if i < cute.size(y):
        y[i] = x[i] + y[i]


@cute.jit
def add(x: cute.Tensor, y: cute.Tensor) -> None:
    """Launch add_kernel."""
    add_kernel(x, y).launch(grid=((cute.size(y) + 63) // 64, 1, 1), block=(64, 1, 1))


def test_tensors_say_where_they_are() -> None:
    with workbench.emulated():
        made = {
            "randn": torch.randn(4, device="cuda"),
            "cuda()": torch.ones(4).cuda(),
            "to": torch.ones(4).to("cuda:0"),
            "to with a dtype": torch.ones(4).to("cuda", torch.float16),
            "tensor": torch.tensor([1.0, 2.0], device=GPU),
            "as_tensor": torch.as_tensor(np.ones(4), device="cuda"),
            "an index": torch.zeros(4, device=0),
            "arange": torch.arange(4, device="cuda"),
        }
        made["like"] = torch.empty_like(made["randn"])
        made["like one on the CPU"] = torch.zeros_like(torch.ones(4), device="cuda")
        made["new"] = made["randn"].new_zeros(3)
        made["view"] = made["randn"].view(2, 2).t()[0]
        made["sum"] = made["randn"].sum()
        made["other"] = torch.ones(2).to(made["sum"])
        made["clone"] = made["randn"].clone().detach()
        with torch.device("cuda"):
            made["context"] = torch.zeros(3)
        for name, tensor in made.items():
            assert (tensor.device, tensor.is_cuda, tensor.is_cpu, tensor.get_device(), type(tensor)) == (
                GPU,
                True,
                False,
                0,
                torch.Tensor,
            ), name
        assert (
            made["to with a dtype"].dtype is torch.float16
            and repr(made["arange"]) == "tensor([0, 1, 2, 3], device='cuda:0')"
        )
        for tensor in (
            made["randn"].cpu(),
            made["randn"].to("cpu"),
            torch.zeros_like(made["randn"], device="cpu"),
            torch.ones(3),
            torch.as_tensor(made["randn"], device="cpu"),
        ):
            assert tensor.device.type == "cpu" and not tensor.is_cuda
        kept = made["randn"].cuda()
        assert (
            kept is made["randn"]
            and kept.to("cuda").data_ptr() == kept.data_ptr()
            and kept.to("cuda", copy=True).data_ptr() != kept.data_ptr()
        )
    assert torch.ones(1).device.type == "cpu" and "device" not in torch.Tensor.__dict__


def test_a_default_device_is_honoured() -> None:
    with workbench.emulated():
        torch.set_default_device("cuda")
        try:
            assert torch.zeros(2).is_cuda and torch.tensor([1]).is_cuda and not torch.zeros(2, device="cpu").is_cuda
        finally:
            torch.set_default_device(None)


def test_mixing_devices_and_touching_device_memory_are_errors() -> None:
    with workbench.emulated():
        x = torch.ones(3, device="cuda")
        with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cpu"):
            x + torch.ones(3)
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
            np.asarray(x)
        with pytest.raises(RuntimeError, match="invalid device ordinal 1"):
            x.to("cuda:1")
        assert (x + 1.0 + torch.tensor(2.0)).is_cuda  # a CPU scalar may come along
        host = torch.zeros(3)
        host.copy_(x)
        assert host.is_cpu and host.numpy().tolist() == [1, 1, 1]
        assert host.pin_memory().is_pinned() and not host.is_pinned() and torch.empty(3, pin_memory=True).is_pinned()


def test_modules_and_gradients_live_on_the_device() -> None:
    with workbench.emulated():
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to("cuda")
        loss = model(torch.ones(2, 4, device="cuda")).pow(2).mean()
        loss.backward()
        assert loss.is_cuda and all(p.is_cuda and p.grad is not None and p.grad.is_cuda for p in model.parameters())
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        assert next(model.parameters()).is_cuda and model.cpu()[0].weight.is_cpu


def test_a_copy_of_a_module_is_where_the_module_is() -> None:
    with workbench.emulated():
        model = torch.nn.BatchNorm1d(4).to("cuda")
        copied, state = copy.deepcopy(model), copy.deepcopy(model.state_dict())
        for value in (*copied.parameters(), *copied.buffers(), *state.values()):
            assert value.device == GPU
        assert copied(torch.ones(3, 4, device="cuda")).device == GPU
        assert copy.deepcopy(torch.ones(3)).device.type == "cpu"
    assert copy.deepcopy(torch.nn.BatchNorm1d(4)).running_mean.device.type == "cpu"


def test_gradients_go_back_to_where_a_tensor_came_from() -> None:
    with workbench.emulated():
        x = torch.randn(4, 3, requires_grad=True)
        w = torch.randn(3, 2, device="cuda", requires_grad=True)
        loss = (x.to("cuda").double() @ w.to("cuda", torch.float64)).cpu()
        (loss * torch.arange(2)).sum().backward()
        assert x.grad is not None and w.grad is not None
        assert (x.grad.device, w.grad.device) == (torch.device("cpu"), torch.device("cuda", 0))
        assert torch.allclose(x.grad, w.detach().cpu()[:, 1].expand(4, 3))


def test_a_backward_function_of_the_programs_own_sees_the_device() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(context: object, x: torch.Tensor) -> torch.Tensor:
            return x * torch.tensor(2.0, device="cuda")

        @staticmethod
        def backward(context: object, gradient: torch.Tensor) -> torch.Tensor:
            two = torch.full((3,), 2.0).cuda()
            assert two.is_cuda and gradient.device == GPU
            return gradient * two

    with workbench.emulated():
        x = torch.ones(3, device="cuda", requires_grad=True)
        Double.apply(x).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [2.0, 2.0, 2.0] and x.grad.is_cuda


def test_torch_cuda_answers() -> None:
    with workbench.emulated(device="A100") as emulation:
        assert (
            torch.cuda.is_available()
            and torch.cuda.device_count() == 1
            and torch.cuda.get_device_capability() == (8, 0)
        )
        properties = torch.cuda.get_device_properties(0)
        assert (properties.multi_processor_count, properties.total_memory, properties.major) == (108, 80 * 10**9, 8)
        before = torch.cuda.memory_allocated()
        held = torch.zeros(1000, device="cuda")
        assert torch.cuda.memory_allocated() - before == 4000
        del held
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            assert torch.cuda.current_stream() == stream
        assert (
            torch.cuda.current_stream() == torch.cuda.default_stream() and torch.cuda.current_stream().cuda_stream == 0
        )
        generator = torch.Generator(device="cuda").manual_seed(1)
        assert torch.rand(2, generator=generator, device="cuda").is_cuda
        assert emulation.arch == "sm_80"


def test_launches_reach_tensors_and_modelled_events() -> None:
    with workbench.emulated() as emulation:
        x, y = torch.arange(100.0, device="cuda"), torch.ones(100, device="cuda")
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        add(from_dlpack(x), from_dlpack(y))
        end.record()
        assert (
            torch.equal(y, x + 1)
            and start.elapsed_time(end) == pytest.approx(emulation.gpu.clock_s * 1e3)
            and emulation.gpu.clock_s > 0
        )
        with pytest.raises(EmulationFault, match="host memory"):
            add(from_dlpack(torch.ones(100)), from_dlpack(y))
        with pytest.raises(EmulationFault, match="nothing wrote"):
            add(from_dlpack(torch.empty(100, device="cuda")), from_dlpack(y))
        pinned = torch.ones(100).pin_memory()
        add(from_dlpack(pinned), from_dlpack(y))
        assert torch.equal(y, x + 2)
        assert [fault.failure.kind for fault in emulation.faults] == ["host_memory", "uninitialised"] and len(
            emulation.launches
        ) == 2


def test_a_tensor_that_died_is_named() -> None:
    @cute.jit
    def on_pointer(pointer: cute.Pointer, y: cute.Tensor) -> None:
        add_kernel(cute.make_tensor(pointer, 64), y).launch(grid=(1, 1, 1), block=(64, 1, 1))

    with workbench.emulated():
        y = torch.ones(64, device="cuda")
        x = torch.ones(64, device="cuda")
        pointer = cute.runtime.make_ptr(cutlass.Float32, x.data_ptr(), cute.AddressSpace.gmem)
        on_pointer(pointer, from_dlpack(y))
        assert torch.equal(y, torch.full((64,), 2.0, device="cuda"))
        del x
        with pytest.raises(EmulationFault, match=r"memory that was freed: tensor\[64\] float32 is gone"):
            on_pointer(pointer, from_dlpack(y))


def test_graphs_replay_launches_and_refuse_torch_operations() -> None:
    with workbench.emulated() as emulation:
        x, y = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")

        @cute.jit
        def on_stream(x: cute.Tensor, y: cute.Tensor, stream: cuda_driver.CUstream) -> None:
            add_kernel(x, y).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)

        graph = torch.cuda.CUDAGraph()
        compiled = cute.compile(on_stream, from_dlpack(x), from_dlpack(y), cuda_driver.CUstream(0))
        with torch.cuda.graph(graph):
            compiled(from_dlpack(x), from_dlpack(y), cuda_driver.CUstream(torch.cuda.current_stream().cuda_stream))
        assert y.sum() == 0 and not emulation.launches
        graph.replay()
        graph.replay()
        assert torch.equal(y, torch.full((64,), 2.0, device="cuda"))
        with pytest.raises(NotEmulated, match="inside a CUDA graph capture"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            x + y


def test_bindings_answer_or_refuse_by_name() -> None:
    success, good = cuda_driver.CUresult.CUDA_SUCCESS, cuda_runtime.cudaError_t.cudaSuccess
    with workbench.emulated():
        assert (
            cuda_driver.cuInit(0) == (success,)
            and cuda_driver.cuDeviceGetCount() == (success, 1)
            and cuda_runtime.cudaGetDeviceCount() == (good, 1)
        )
        attribute = cuda_driver.CUdevice_attribute
        assert cuda_driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0) == (
            success,
            232_448,
        )
        with pytest.raises(NotEmulated, match="CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH"):
            cuda_driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 0)
        with pytest.raises(NotEmulated, match=r"cuda.bindings.driver.cuModuleLoad is not emulated"):
            cuda_driver.cuModuleLoad(b"x.cubin")
        error, address = cuda_runtime.cudaMalloc(64)
        assert error == good and address % 256 == 0
        cuda_runtime.cudaMemset(address, 7, 64)
        back = np.zeros(64, np.uint8)
        cuda_runtime.cudaMemcpy(back.ctypes.data, address, 64, cuda_runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost)
        assert (back == 7).all()
        assert cuda_runtime.cudaFree(address) == (good,) and cuda_runtime.cudaFree(address) == (
            cuda_runtime.cudaError_t.cudaErrorInvalidValue,
        )
        _, stream = cuda_driver.cuStreamCreate(0)
        assert int(stream) and cuda_driver.cuStreamSynchronize(stream) == (success,)
        found = cutlass.utils.HardwareInfo()
        assert (found.get_device_multiprocessor_count(), found.get_max_active_clusters(4)) == (132, 33)


def test_wrong_names_are_one_line() -> None:
    with pytest.raises(UserError, match="no device is called 'V100'"), workbench.emulated(device="V100"):
        pass
    with pytest.raises(UserError, match="no architecture is called 'sm_42'"), workbench.emulated(arch="sm_42"):
        pass


def test_a_custom_operator_for_cuda_runs_here_and_may_allocate() -> None:
    with workbench.emulated():

        @torch.library.custom_op("cutegen_test::plus_ones", mutates_args=(), device_types="cuda")
        def plus_ones(x: torch.Tensor) -> torch.Tensor:
            """x + 1 through a kernel, with memory of its own."""
            y = torch.ones(x.shape, device="cuda")
            add(from_dlpack(x), from_dlpack(y))
            return y

        x = torch.arange(70.0, device="cuda")
        made = plus_ones(x)
        assert made.is_cuda and torch.equal(made, x + 1)


@cute.kernel
def sticking_out_kernel(y: cute.Tensor) -> None:
    """Thread 0 writes shared memory, all read it, only what was written is used."""
    i = cute.arch.thread_idx()[0]
    shared = cute.make_tensor(cute.arch.alloc_smem(cutlass.Float32, 32), 32)
    if i == 0:
        shared[0] = 5.0
    cute.arch.sync_threads()
    y[i] = cutlass.select_(i == 0, shared[i], cutlass.Float32(0.0))


@cute.jit
def sticking_out(y: cute.Tensor) -> None:
    """Launch sticking_out_kernel."""
    sticking_out_kernel(y).launch(grid=(1, 1, 1), block=(32, 1, 1), smem=256)


def test_unwritten_shared_memory_is_advice_unless_sanitized() -> None:
    with workbench.emulated() as emulation:
        y = torch.ones(32, device="cuda")
        sticking_out(from_dlpack(y))
        assert y.tolist() == [5.0] + [0.0] * 31 and [
            (finding.kind, finding.severity) for finding in emulation.findings
        ] == [("uninitialised", "advice")]
    with workbench.emulated(sanitize=True), pytest.raises(EmulationFault, match="shared memory that nothing wrote"):
        sticking_out(from_dlpack(torch.zeros(32, device="cuda")))


def test_other_devices_are_refused_and_profiler_marks_ignored() -> None:
    with workbench.emulated():
        torch.cuda.set_device(0)
        with torch.cuda.nvtx.range("a mark"), pytest.raises(Exception, match="1"):
            torch.cuda.set_device(1)
