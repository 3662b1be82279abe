"""Trace code on `cuda` without a GPU: shapes, types, devices and operators are torch's own; nothing
is computed.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class _Indexing(TorchFunctionMode):
    """`x[...]` by named operators: torch's own indexing asks for a CUDA driver before it
    dispatches.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.__getitem__ and args[0].device.type == "cuda":
            return _indexed(*args)
        if function is torch.Tensor.__setitem__ and args[0].device.type == "cuda":
            part, value = _indexed(*args[:2]), args[2]
            return part.copy_(value) if isinstance(value, torch.Tensor) else part.fill_(value)
        if function is torch.Tensor.__invert__ and args[0].device.type == "cuda":
            return torch.logical_not(*args)
        return function(*args, **(kwargs or {}))


def _indexed(x, key):
    key = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in [each for each in key if not isinstance(each, torch.Tensor)]:
        at = next(i for i, each in enumerate(key) if each is Ellipsis)
        named = sum(each is not None and each is not Ellipsis for each in key)
        key[at : at + 1] = [slice(None)] * (x.dim() - named)
    axis, tensors = 0, {}
    for each in key:
        if each is None:
            x = x.unsqueeze(axis)
        elif isinstance(each, slice):
            x = torch.ops.aten.slice.Tensor(x, axis, *each.indices(x.shape[axis]))
        elif isinstance(each, int):
            x = x.select(axis, each)
            continue
        else:
            tensors[axis] = each
        axis += 1
    if tensors:
        indices = [tensors.get(i) for i in range(max(tensors) + 1)]
        x = torch.ops.aten.index.Tensor(x, indices)
    return x


class Operators(TorchDispatchMode):
    """Counts the operators that run, by name, and keeps the results of those in `watched`."""

    def __init__(self, *watched):
        super().__init__()
        self.counts, self.watched, self.results = Counter(), watched, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out, name = function(*args, **(kwargs or {})), function.overloadpacket.__name__
        self.counts[name] += 1
        if name in self.watched:
            self.results.append(out)
        return out


@contextmanager
def fake_cuda(bf16=False):
    """Tensors made in this context on `cuda` have no content. Reading one on the host raises, as a
    check for syncs.
    """
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", bf16)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), _Indexing():
            yield
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])
        torch.clear_autocast_cache()


def on_fake_cuda(model: nn.Module) -> nn.Module:
    """Replace the weights of a model by fake ones on `cuda`; call it inside of `fake_cuda`."""
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                module._parameters[name] = nn.Parameter(
                    torch.empty(parameter.shape, device="cuda"), requires_grad=False
                )
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device="cuda")
    return model
