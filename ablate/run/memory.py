"""What a worker holds of its device's memory, for people who watch."""

from __future__ import annotations

import psutil
import torch


def memory_of(device: torch.device) -> dict[str, int]:
    """Bytes: on a CPU `held` by this process, on a GPU by all that work there; `total` that there are."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return {"held": total - free, "total": total}
    return {"held": int(psutil.Process().memory_info().rss), "total": int(psutil.virtual_memory().total)}
