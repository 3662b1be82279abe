"""Batches for sequence-to-sequence models: encoder input, decoder input and decoder output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.data.batches import pad_sequences
from ablate.data.corpus import Split
from ablate.data.tokenizer import BOS, EOS


@dataclass(frozen=True)
class Batch:
    """Padded token ids of sentence pairs, and the positions of the target tokens that count.

    source: (B, S), each sentence followed by EOS.
    target_in: (B, T), each sentence preceded by BOS; target_out: (B, T), each followed by EOS; both padded with 0.
    positions: (n), indices of the n target tokens that are not padding, into target_out flattened to (B * T).
    """

    source: Tensor
    target_in: Tensor
    target_out: Tensor
    positions: Tensor

    @property
    def tokens(self) -> int:
        """Number of target tokens that are not padding."""
        return len(self.positions)

    @property
    def targets(self) -> Tensor:
        """The target tokens that are not padding, (n)."""
        return self.at_targets(self.target_out)

    def at_targets(self, x: Tensor) -> Tensor:
        """Select the values at target tokens that are not padding: (B, T, ...) -> (n, ...)."""
        # By index and not by mask: a GPU has to stop to count a mask's elements.
        return x.flatten(0, 1).index_select(0, self.positions)

    def to(self, device: torch.device) -> Batch:
        """Copy to a device."""
        tensors = (self.source, self.target_in, self.target_out, self.positions)
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in tensors))


def collate(split: Split, records: Sequence[int] | NDArray[np.int64], source: str, target: str) -> Batch:
    """Make the padded batch of some records.

    Args:
        split: of the corpus.
        records: their indices.
        source: the text field that the encoder reads.
        target: the text field that the decoder predicts.
    """
    encoder_input = pad_sequences(split[source], records, end=EOS)
    target_in = pad_sequences(split[target], records, start=BOS)
    target_out = pad_sequences(split[target], records, end=EOS)
    return Batch(encoder_input, target_in, target_out, target_out.flatten().nonzero()[:, 0])
