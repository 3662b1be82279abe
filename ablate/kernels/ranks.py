"""Ranks: the processes that train one run together, and the operations between them.

A process that trains alone is the only rank, and every operation returns its argument.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

# A rank may wait while the first rank scores predictions. The death of a rank is noticed at once by
# other means.
TIMEOUT = timedelta(hours=12)
HOST = "127.0.0.1"


class Ranks:
    """The only rank of a group of one process. Base class of `DistributedRanks`.

    Attributes:
        index: index of this process, from 0.
        size: number of processes.
    """

    index = 0
    size = 1

    @property
    def is_first(self) -> bool:
        """Whether this rank holds the lease, and writes the files of the run."""
        return self.index == 0

    def vote(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag, whether it is set on any rank."""
        return list(flags)

    def sum_in_tree(self, values: Tensor) -> None:
        """Add up the values of all ranks in place, in a binary tree over neighbors: (0 + 1) + (2 +
        3).

        Every element is summed in this order, so the result has the same bits on every rank.
        `values` is contiguous, has one axis, and `size` divides its length.
        """

    def all_gather_objects(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank. A value must be representable in JSON."""
        return [value]


ONLY_RANK = Ranks()


class DistributedRanks(Ranks):
    """The ranks of torch's default process group: messages by gloo, tensors on a GPU by NCCL."""

    def __init__(self) -> None:
        self.index = dist.get_rank()
        self.size = dist.get_world_size()

    def vote(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag, whether it is set on any rank: one MAX reduction."""
        votes = torch.tensor([int(flag) for flag in flags], dtype=torch.int32)
        # The maximum of 0 and 1 is a logical or. The tensor is on the CPU, so that gloo transfers
        # it and no rank waits for a GPU.
        dist.all_reduce(votes, op=dist.ReduceOp.MAX)
        return [bool(vote) for vote in votes.tolist()]

    def sum_in_tree(self, values: Tensor) -> None:
        """Add up the values of all ranks in place; see `Ranks.sum_in_tree`.

        Each rank receives a share of the vectors of all ranks, sums it, and sends the sums to all
        ranks. The traffic is that of a ring all-reduce, but the order of summation does not depend
        on the number of ranks.
        """
        shares = torch.empty_like(values)
        dist.all_to_all_single(shares, values)
        terms = list(shares.view(self.size, -1))
        while len(terms) > 1:
            # Neighbors first. `GradientTree.add` has summed the lower levels of the tree.
            terms = [left + right for left, right in zip(terms[::2], terms[1::2], strict=True)]
        _gather(values, terms[0])

    def all_gather_objects(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank."""
        message = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        # all_gather needs tensors of one size, so the lengths are exchanged first and the messages
        # padded.
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor([len(message)]))
        longest = int(max(lengths))
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(message)] = message
        messages = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(messages, padded)
        values = []
        for content, length in zip(messages, lengths, strict=True):
            values.append(json.loads(content[: int(length)].numpy().tobytes()))
        return values


def _gather(out: Tensor, part: Tensor) -> None:
    """Concatenate the parts of all ranks in `out`."""
    # Renamed in torch 2.13.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(out, part)


def open_store(port: int = 0) -> TCPStore:
    """The key-value store through which ranks on this host find each other. The first rank opens it
    without a port, and all others with the port of its store.
    """
    # Port 0: the system chooses a free port, so that several runs on a host do not collide.
    return TCPStore(HOST, port, is_master=not port, wait_for_workers=False, timeout=TIMEOUT)


def join(store: TCPStore, index: int, size: int, device: torch.device) -> DistributedRanks:
    """Join a group as one of its ranks, and wait until all ranks have joined."""
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=index, world_size=size, timeout=TIMEOUT)
    return DistributedRanks()


def leave() -> None:
    """Leave the group, if this process has joined one."""
    if dist.is_initialized():
        dist.destroy_process_group()


_RANKS: ContextVar[Ranks] = ContextVar("ranks", default=ONLY_RANK)


def current_ranks() -> Ranks:
    """The ranks with which this process shares evaluation and decoding in this context."""
    return _RANKS.get()


@contextmanager
def use_ranks(ranks: Ranks) -> Iterator[Ranks]:
    """Share evaluation and decoding in this context with these ranks, which must all do so."""
    token = _RANKS.set(ranks)
    try:
        yield ranks
    finally:
        _RANKS.reset(token)


def all_items(mine: Sequence[tuple[int, Any]]) -> list[Any]:
    """The values of all items in the order of their numbers, collected from the ranks.

    Args:
        mine: number and value of each item that this rank has computed.
    """
    numbered: dict[int, Any] = {}
    for items in current_ranks().all_gather_objects(list(mine)):
        numbered.update(items)
    return [numbered[number] for number in sorted(numbered)]
