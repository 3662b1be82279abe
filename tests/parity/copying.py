"""Weights from our names and layouts into another library's."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ablate.model import Transformer

Weights = dict[str, Tensor]


def weights_of(model: Transformer) -> Weights:
    """Ours, by name."""
    return dict(model.state_dict())


def renamed(weights: Mapping[str, Tensor], names: Mapping[str, str]) -> Weights:
    """Weights under names in which these phrases are another's. # is a layer's number; a longer phrase goes first."""
    phrases = (phrase.replace(".", r"\.").replace("#", "[0-9]+") for phrase in sorted(names, key=len, reverse=True))
    pattern = re.compile(rf"\b(?:{'|'.join(phrases)})\b")

    def theirs(found: re.Match[str]) -> str:
        number = re.search(r"\b[0-9]+\b", found[0])
        return names[found[0].replace(number[0], "#")].replace("#", number[0]) if number else names[found[0]]

    return {pattern.sub(theirs, name): weight for name, weight in weights.items()}


def load(theirs: nn.Module, weights: Weights) -> nn.Module:
    """Another's model with these weights and their precision; they are all that it learns, shared ones named once."""
    learned = {name for name, parameter in theirs.named_parameters() if parameter.requires_grad}
    assert learned == set(weights)
    theirs.to(next(iter(weights.values())).dtype).load_state_dict(weights, strict=False)
    return theirs.eval()


def with_attention_biases(weights: Weights) -> Weights:
    """With biases of zero in projections of attention that have none."""
    projections = (name.removesuffix("weight") for name in weights if re.search(r"\bW_[QKVO]\.weight$", name))
    zeros = {f"{name}bias": torch.zeros(len(weights[f"{name}weight"])) for name in projections}
    return {**zeros, **weights}


def without_biases(model: Transformer) -> Weights:
    """For implementations that have no biases: ours are set to zero and left out."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
    return {name: weight for name, weight in weights_of(model).items() if not name.endswith("bias")}


def fused(weights: Weights) -> Weights:
    """With queries, keys and values of a self-attention or cross-attention projected by one matrix, W_QKV."""
    found = {}
    for name, weight in weights.items():
        if "W_Q." in name:
            three = [weights[name.replace("W_Q.", part)] for part in ("W_Q.", "W_K.", "W_V.")]
            found[name.replace("W_Q.", "W_QKV.")] = torch.cat(three)
        elif not re.search(r"W_[KV]\.", name):
            found[name] = weight
    return found


def unscaled(weights: Weights, d_model: int) -> Weights:
    """For implementations that look embeddings up as they are: sqrt(d_model) times ours.

    Where the same matrix gives the logits, the last norm takes the factor away again.
    """
    root, tied = d_model**0.5, "output.weight" not in weights
    scaled = {"embedding.weight": weights["embedding.weight"] * root}
    if tied:
        scaled |= {name: weight / root for name, weight in weights.items() if name.startswith("decoder_norm.")}
    return {**weights, **scaled}
