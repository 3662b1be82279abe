"""Devices: choice of kernels, settings of torch for a GPU, precision, and memory.

Code that has one kernel for CPUs and another for GPUs asks `on_gpu`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from ablate.config.training import resolve_precision
from ablate.formatting import first_line
from ablate.kernels.torch_internals import has_bf16_matmul

P = ParamSpec("P")
R = TypeVar("R")

# Messages about memory in C++ exceptions that have no special type in Python. cuBLAS and cuDNN
# allocate workspaces without torch, and report a full GPU by a status.
_OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "failed to allocate",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "cusolver_status_alloc_failed",
)


def on_gpu(where: Tensor | torch.device) -> bool:
    """Whether a tensor is on a GPU, or a device is one."""
    device = where if isinstance(where, torch.device) else where.device
    return device.type == "cuda"


def visible_device(devices: Sequence[str], rank: int = 0) -> torch.device:
    """The device of this process.

    The index in a name such as `cuda:3` counts the GPUs that the launcher sees. A process that sees
    only the GPUs of its job gets the GPU at the position `rank`.

    Args:
        devices: names of the devices of the job, one for each rank.
        rank: rank of this process.
    """
    device = torch.device(devices[rank])
    if on_gpu(device) and torch.cuda.device_count() == len(devices):
        return torch.device("cuda", rank)
    return device


def prepare(device: torch.device, deterministic: bool = False) -> None:
    """Set torch up for a GPU, before the first tensor is made on it. Does nothing for a CPU.

    cuDNN's attention is switched off: it builds a plan for each new shape, which takes far longer
    than the attention of a batch of sentences, and batches hardly ever have the same shape.

    Args:
        device: device that becomes torch's current device, so that nothing is allocated on the
            first GPU by accident.
        deterministic: sum in a fixed order, so that equal inputs give equal bits. An operator
            without a fixed order raises RuntimeError. cuBLAS also needs an environment variable,
            which `set_default_environment` and `worker_environment` set.
    """
    if not on_gpu(device):
        return
    if device.index is not None:
        torch.cuda.set_device(device)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.deterministic = deterministic
    # Benchmarking would choose a kernel by time for each new shape: this is slow for batches that
    # hardly ever repeat a shape, and the choice may differ between runs.
    torch.backends.cudnn.benchmark = False
    settings: Any = torch.utils.deterministic
    settings.fill_uninitialized_memory = False  # for debugging only; a pass over each new tensor


def precision_on(device: torch.device, setting: str | None) -> str:
    """The precision that the field `precision` gives on a device; see `resolve_precision`."""
    return resolve_precision(setting, device.type, has_bf16(device))


@contextmanager
def matmul_precision(device: torch.device, precision: str) -> Iterator[None]:
    """Make matrix products in `fp32`, `tf32` or `bf16` in this context; weights stay in fp32.

    On a GPU, `bf16` also rounds the operands of products that stay in fp32, such as products in
    attention with a bias, to TF32, which has more digits than bf16.
    """
    with _fp32_products("ieee" if precision == "fp32" else "tf32", enabled=on_gpu(device)):
        yield


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Context that converts the operands of matrix products to bf16 if `precision` is `bf16`."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


@contextmanager
def _fp32_products(precision: str, enabled: bool) -> Iterator[None]:
    """Set the rounding of fp32 operands in cuBLAS and in cuDNN's recurrent networks."""
    if not enabled:
        yield
        return
    settings: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn.rnn)
    previous = [library.fp32_precision for library in settings]
    for library in settings:
        library.fp32_precision = precision
    try:
        yield
    finally:
        for library, value in zip(settings, previous, strict=True):
            library.fp32_precision = value


def has_bf16(device: torch.device) -> bool:
    """Whether a device has instructions for bf16 products; other devices emulate them slowly."""
    if on_gpu(device):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return has_bf16_matmul()


def fused_on_gpu(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a pure function of tensors into few kernels if its first argument is on a GPU; on a
    CPU call it unchanged.

    The uncompiled function is the reference, and is called, with a warning, where torch cannot
    compile. Random numbers must be arguments, so that both functions get the same. Shapes are
    dynamic: the function is compiled once for each width and type, not for each batch.
    """
    compiled: list[Callable[P, R]] = []
    chosen: dict[Hashable, Callable[P, R]] = {}  # by the properties that a graph depends on

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        first = args[0]
        if not (isinstance(first, Tensor) and on_gpu(first) and _can_compile()):
            return function(*args, **kwargs)
        key = torch.is_grad_enabled(), *map(_graph_key, args)
        if key not in chosen:
            if not compiled:
                compiled.append(_compiled(function))
            works = _compile_on_fixed_shapes(compiled[0], args)
            chosen[key] = compiled[0] if works else function
        return chosen[key](*args, **kwargs)

    return call


# Sizes of the leading axes at which a function is compiled, by the number of axes. They differ, so
# that no graph assumes equal sizes; and with 1,024 rows or more, torch gives each row a block.
_FIXED_SIZES = {2: (1024,), 3: (63, 65)}
_MAX_GRAPHS = 64  # of a function, because a worker may train models of many widths; torch has 8


def _compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function with lazy compilation. Importing torch's compiler takes seconds, so it is done
    only here, for a GPU.
    """
    import torch._dynamo

    dynamo: Any = torch._dynamo
    dynamo.config.recompile_limit = _MAX_GRAPHS
    return torch.compile(function, dynamic=True, fullgraph=True)


def _graph_key(arg: object) -> Hashable:
    """The properties of an argument on which a graph depends: type, width and axes of size 1 of a
    tensor; the value of any other argument.
    """
    if not isinstance(arg, Tensor):
        return arg
    ones = tuple(size == 1 for size in arg.shape[:-1])
    width = arg.shape[-1] if arg.dim() != 1 or isinstance(arg, nn.Parameter) else None
    return type(arg), arg.dtype, arg.device, arg.requires_grad, width, ones


def _compile_on_fixed_shapes(compiled: Callable[..., Any], args: Sequence[object]) -> bool:
    """Compile a function, forward and backward, for arguments like these but of fixed shapes.
    Return whether torch can compile it.

    Torch splits sums by the shapes of the first call in a process. With fixed shapes, a resumed
    run, whose first batch has another shape, sums in the same order.
    """
    first = args[0]
    assert isinstance(first, Tensor)
    rows = []
    for size, fixed in zip(first.shape[:-1], _FIXED_SIZES[first.dim()], strict=True):
        rows.append(1 if size == 1 else fixed)
    try:
        inputs = [_like(arg, rows) for arg in args]
        outputs = compiled(*inputs)
        differentiable = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        if isinstance(outputs, Tensor) and outputs.requires_grad:
            torch.autograd.grad(outputs.sum(), differentiable)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        # There is no C compiler, as in python:3.11-slim, or no Python.h, or a cache that cannot be
        # written, or there are too many graphs. A fault of the arguments shows in the function
        # itself.
        warnings.warn(
            f"torch cannot compile for this GPU, so that steps are slower: {first_line(error)}",
            stacklevel=1,
        )
        return False
    return True


def _like(arg: object, rows: Sequence[int]) -> object:
    """Zeros like a tensor, but with these leading axes; any other argument unchanged."""
    if not isinstance(arg, Tensor):
        return arg
    if isinstance(arg, nn.Parameter):
        return nn.Parameter(torch.zeros_like(arg), requires_grad=arg.requires_grad)
    shape = rows if arg.dim() == len(rows) else (*rows, arg.shape[-1])  # targets, or vectors
    zeros = torch.zeros(shape, dtype=arg.dtype, device=arg.device)
    return zeros.requires_grad_(arg.requires_grad)


@functools.cache
def _can_compile() -> bool:
    """Whether torch's compiler for GPUs is installed, and there is a GPU to compile for."""
    from importlib.util import find_spec

    return torch.cuda.is_available() and find_spec("triton") is not None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the memory of a GPU or of the host is exhausted."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(
        words in str(error).lower() for words in _OUT_OF_MEMORY
    )


def release_cached_memory(device: torch.device) -> None:
    """Return the allocator's unused blocks of a GPU to the driver."""
    if on_gpu(device):
        torch.cuda.empty_cache()
