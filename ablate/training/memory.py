"""Running out of memory: what it looks like."""

from __future__ import annotations

import torch

# What the C++ side says where Python has no type for it.
_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "bad_alloc", "failed to allocate")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, a GPU's or the host's, did not suffice."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _WORDS)


def release(device: torch.device) -> None:
    """Give back what the allocator keeps for itself, so that smaller pieces find room."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
