"""The Transformer, one mechanism a file.

Letters in shapes: B sentences in the batch, S source tokens, T target tokens, K hypotheses of a
sentence, h heads of queries, g heads of keys and values, d_k and d_v head sizes, V vocabulary. In
attention, T counts queries and S counts keys.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ablate.config import ModelConfig
from ablate.model.builder import ModelBuilder
from ablate.model.decoder_only import DecoderOnly
from ablate.model.decoding_cache import DecodingCache
from ablate.model.encoder_decoder import EncoderDecoder
from ablate.model.encoder_only import EncoderOnly
from ablate.model.initialization import initialize
from ablate.model.transformer import Transformer

__all__ = ["ARCHITECTURES", "DecodingCache", "Transformer", "build"]

ARCHITECTURES: dict[str, type[Transformer]] = {
    "encoder-decoder": EncoderDecoder,
    "decoder-only": DecoderOnly,
    "encoder-only": EncoderOnly,
}


def build(
    config: ModelConfig,
    vocab_size: int,
    seed: int,
    device: torch.device | str = "cpu",
    sources: Path | None = None,
) -> Transformer:
    """Build a model. Only the seed determines its initial weights and its dropout masks.

    Args:
        config: fields of the model.
        vocab_size: number of tokens in the vocabulary.
        seed: seed of all draws.
        device: where the model runs.
        sources: folder with the source files of the user's classes, if the fields name any.

    Raises:
        StudyError: a user's class does not load, or two parts cannot work together.
        StoreError: the source file of a user's class is missing or has changed.
    """
    init = torch.Generator().manual_seed(seed)
    random = torch.Generator(device).manual_seed(seed)
    builder = ModelBuilder(config, vocab_size, init, random, sources)
    model = ARCHITECTURES[config.architecture](builder)
    initialize(model, config, init)
    return model.to(device)
