"""Initial weights by other rules than Xavier's, drawn or scaled after the model is built."""

from __future__ import annotations

import torch
from torch import nn

from ablate.config import ModelConfig
from ablate.model.embeddings import Embedding, TokenTypes
from ablate.model.layers import Linear
from ablate.model.positions import LearnedPositions
from ablate.parts.initialization import Factors, factors

# Names of the projections whose outputs are added to the residual stream
OUTPUTS = ("W_O", "W_2", "output")


@torch.no_grad()
def initialize(model: nn.Module, config: ModelConfig, init: torch.Generator) -> None:
    """Initialize linear layers and embeddings by the configuration, in the order of the modules.

    All other parameters keep their initial values: biases, gains, positional encodings, LSTMs,
    users' classes and the vectors of recurrent mixers.
    """
    for name, module in model.named_modules():
        if not isinstance(module, (Linear, Embedding)):
            continue
        if config.initialization == "normal":
            nn.init.normal_(module.weight, std=config.initialization_std, generator=init)
        elif config.initialization == "orthogonal" and isinstance(module, Linear):
            nn.init.orthogonal_(module.weight, generator=init)
        if isinstance(module, Linear) and name.rpartition(".")[2] in OUTPUTS:
            if config.output_initialization == "zero":
                module.weight.zero_()
            elif config.output_initialization == "depth":
                module.weight.div_((2 * config.passes) ** 0.5)
    if config.parametrization != "standard":
        _scale_initial_weights(model, factors(config))


def _scale_initial_weights(model: nn.Module, scale: Factors) -> None:
    for name, module in model.named_modules():
        if isinstance(module, Linear):
            module.weight.mul_(scale.matrix_init)
        elif isinstance(module, Embedding) and (name == "output" or module.scale == 1.0):
            module.weight.mul_(scale.output_init)
        elif isinstance(module, Embedding):
            module.weight.mul_(scale.embedding_init)
        elif isinstance(module, (LearnedPositions, TokenTypes)):
            module.weight.mul_(scale.position_init)
