"""Precision and memory of the device that trains."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

# Messages of C++ exceptions for which torch has no type of its own in Python.
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "bad_alloc", "failed to allocate")


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Compute matrix products in bf16 if `precision` is `bf16`; weights stay in fp32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the memory of a GPU or of the host is exhausted."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def release_cached_memory(device: torch.device) -> None:
    """Return the allocator's unused blocks, so that smaller tensors can be allocated elsewhere."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
