"""A model from its configuration and a seed."""

from __future__ import annotations

from pathlib import Path

import torch

from ablate.config import ModelConfig
from ablate.model.decoder_only import DecoderOnly
from ablate.model.encoder_decoder import EncoderDecoder
from ablate.model.parts import ModelBuilder
from ablate.model.transformer import Transformer

ARCHITECTURES: dict[str, type[Transformer]] = {"encoder-decoder": EncoderDecoder, "decoder-only": DecoderOnly}


def build(
    config: ModelConfig,
    vocab_size: int,
    seed: int,
    device: torch.device | str = "cpu",
    sources: Path | None = None,
) -> Transformer:
    """A model whose initial weights and dropout follow from the seed alone.

    Args:
        config: the shape.
        vocab_size: V.
        seed: of both.
        device: where it will run.
        sources: where the run keeps the sources of the user's own variants, if it has any.
    """
    init = torch.Generator().manual_seed(seed)
    random = torch.Generator(device).manual_seed(seed)
    parts = ModelBuilder(config, vocab_size, init, random, sources)
    return ARCHITECTURES[config.architecture](parts).to(device)
