"""Convert weights from our names and layouts to those of other libraries."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ablate.model import Transformer

Weights = dict[str, Tensor]


def weights_of(model: Transformer) -> Weights:
    """Our weights by name."""
    return dict(model.state_dict())


def renamed(weights: Mapping[str, Tensor], names: Mapping[str, str]) -> Weights:
    """Weights under another library's names. `names` maps phrases; # is a layer's number; the
    longest phrase wins.
    """
    phrases = (
        phrase.replace(".", r"\.").replace("#", "[0-9]+")
        for phrase in sorted(names, key=len, reverse=True)
    )
    pattern = re.compile(rf"\b(?:{'|'.join(phrases)})\b")

    def theirs(found: re.Match[str]) -> str:
        number = re.search(r"\b[0-9]+\b", found[0])
        return (
            names[found[0].replace(number[0], "#")].replace("#", number[0])
            if number
            else names[found[0]]
        )

    return {pattern.sub(theirs, name): weight for name, weight in weights.items()}


def load(theirs: nn.Module, weights: Weights) -> nn.Module:
    """Load these weights, in their precision, into another library's model; they must be exactly
    its parameters.
    """
    learned = {name for name, parameter in theirs.named_parameters() if parameter.requires_grad}
    assert learned == set(weights)
    theirs.to(next(iter(weights.values())).dtype).load_state_dict(weights, strict=False)
    return theirs.eval()


def with_attention_biases(weights: Weights) -> Weights:
    """Add biases of zero to attention projections without a bias."""
    projections = (
        name.removesuffix("weight") for name in weights if re.search(r"\bW_[QKVO]\.weight$", name)
    )
    zeros = {f"{name}bias": torch.zeros(len(weights[f"{name}weight"])) for name in projections}
    return {**zeros, **weights}


def without_biases(model: Transformer) -> Weights:
    """For implementations without biases: set ours to zero and leave them out."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
    return {name: weight for name, weight in weights_of(model).items() if not name.endswith("bias")}
