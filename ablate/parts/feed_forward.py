"""The feed-forward sub-layer (section 3.3): a network, gated or not, or a mixture of experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ablate.errors import Fault
from ablate.fields import PER_LAYER, SET, Aliases, Facts, Part, Share
from ablate.parts.cost import BYTES, Cost, Place, Tensors
from ablate.parts.sizes import NETWORK, Sizes
from ablate.parts.variant import Variant, VariantName, Variants


@dataclass(frozen=True)
class Activation(Variant):
    """An activation, whose class takes no arguments. `gated`: it multiplies two projections."""

    gated: bool = False


def _activation(name: str, gated: bool = False) -> Activation:
    return Activation(f"ablate.model.feed_forward:{name}", gated)


ACTIVATIONS = Variants(
    Activation(),
    relu=_activation("ReLU"),
    gelu=_activation("GELU"),
    gelu_tanh=_activation("tanh_gelu"),
    silu=_activation("silu"),
    relu2=_activation("squared_relu"),
    leaky_relu2=_activation("squared_leaky_relu"),
    swiglu=_activation("SwiGLU", gated=True),
    swiglu_clamped=_activation("ClampedSwiGLU", gated=True),
    geglu=_activation("geglu", gated=True),
    geglu_tanh=_activation("tanh_geglu", gated=True),
    reglu=_activation("reglu", gated=True),
)

MIXTURE = Part("a mixture of experts", {"n_experts": (SET,)}, (NETWORK,))
NETWORK_FACTS = Facts(part=NETWORK, per_layer=True)
MIXTURE_FACTS = Facts(part=MIXTURE, per_layer=True)


class FeedForward(Sizes):
    """The feed-forward sub-layer of a layer."""

    feed_forward: Annotated[str, VariantName(("network", "none")), PER_LAYER] = "network"
    """feed-forward sub-layer: a network of two linear layers (3.3), gated or a mixture of experts
    by the fields below, or none, as in Mamba 2"""
    activation: Annotated[
        str, VariantName(tuple(ACTIVATIONS)), NETWORK_FACTS, Aliases("hidden_act")
    ] = "relu"
    """activation of the feed-forward network; a gated one uses an inner size of 2/3 d_ff"""
    activation_dropout: Annotated[Share, Facts(part=NETWORK, is_exported=True, per_layer=True)] = (
        0.0
    )
    """dropout after the feed-forward activation"""
    feed_forward_bias: Annotated[bool, NETWORK_FACTS] = True
    """biases in the feed-forward network (3.3, eq. 2)"""
    n_experts: Annotated[
        int | None,
        NETWORK_FACTS,
        Aliases("num_experts", "num_local_experts", "n_routed_experts", "moe"),
    ] = Field(None, ge=2, le=1024)
    """experts of a mixture, each a feed-forward network of d_ff, in the place of one network
    (Shazeer et al., 2017); unset: none"""
    experts_per_token: Annotated[int, MIXTURE_FACTS, Aliases("num_experts_per_tok")] = Field(
        2, ge=1, le=1024
    )
    """experts that each token is sent to"""
    shared_experts: Annotated[int, MIXTURE_FACTS] = Field(0, ge=0, le=64)
    """further experts that every token passes (DeepSeek-V3)"""
    shared_expert_gate: Annotated[bool, MIXTURE_FACTS] = False
    """a sigmoid of x as the factor of shared experts, as in Qwen3-Next"""
    expert_weights: Annotated[Literal["softmax", "softmax_of_chosen", "sigmoid"], MIXTURE_FACTS] = (
        "softmax_of_chosen"
    )
    """weights of a token's experts: their share of the softmax over all (OLMoE), the softmax over
    the chosen ones (Mixtral), or sigmoids that are scaled to a sum of 1 (DeepSeek-V3)"""
    expert_scale: Annotated[float, MIXTURE_FACTS] = Field(1.0, gt=0.0, le=1000.0)
    """factor of the weights of a token's experts (DeepSeek-V3)"""
    router_bias: Annotated[bool, MIXTURE_FACTS] = False
    """bias of the scores of experts, as in gpt-oss"""
    expert_balance_by: Annotated[Literal["loss", "bias"], MIXTURE_FACTS] = "loss"
    """whether uneven experts are part of the training loss, or a bias of each, which acts on the
    choice alone, is trained against them (DeepSeek-V3)"""
    expert_balance: Annotated[float, MIXTURE_FACTS] = Field(0.01, ge=0.0, le=10.0)
    """weight in the training loss of how unevenly tokens are sent to experts (Switch Transformer;
    Fedus et al., 2022)"""

    @property
    def is_mixture(self) -> bool:
        """Whether the network is a mixture of experts."""
        return self.n_experts is not None

    def inner_width(self, gated: bool) -> int:
        """Inner width of the feed-forward network: d_ff, or 2/3 of it if gated.

        A gated network has three matrices instead of two, and so keeps the number of weights
        (Shazeer, 2020).
        """
        return max(1, round(2 * self.d_ff / 3)) if gated else self.d_ff


def faults(c: FeedForward) -> Iterator[Fault]:
    """Yield why a layer cannot have its experts."""
    if c.n_experts is not None and c.experts_per_token > c.n_experts:
        yield Fault(
            f"experts_per_token={c.experts_per_token} is more than n_experts={c.n_experts}",
            ("experts_per_token", "n_experts"),
        )


def largest_balance(c: FeedForward) -> float:
    """The balance of a layer's experts in the loss if each token is sent to the same ones."""
    return c.expert_balance * (c.n_experts or 0)


def inner_width(c: FeedForward) -> int:
    """Width between the layers of the feed-forward network, with its activation."""
    return c.inner_width(ACTIVATIONS[c.activation].gated)


def cost(c: FeedForward, place: Place) -> Cost:
    """The cost of the network of a layer, or of its mixture of experts."""
    if c.feed_forward == "none":
        return Cost()
    projections = 1 + ACTIVATIONS[c.activation].gated  # into the inner width
    weights = (projections + 1) * c.d_model * inner_width(c)
    biases = c.feed_forward_bias * (projections * inner_width(c) + c.d_model)
    if c.n_experts is None:
        return Cost(matrices=weights, others=biases, products=weights * place.tokens)
    networks, met = c.n_experts + c.shared_experts, c.experts_per_token + c.shared_experts
    router = c.d_model * (c.n_experts + (c.shared_experts > 0) * c.shared_expert_gate)
    # Of the scores of experts, and of the choice of them.
    router_biases = c.n_experts * (c.router_bias + (c.expert_balance_by == "bias"))
    return Cost(
        matrices=networks * weights + router,
        others=networks * biases + router_biases,
        idle=(networks - met) * (weights + biases),
        products=(met * weights + router) * place.tokens,
    )


def activation_bytes(c: FeedForward, tensors: Tensors) -> int:
    """Bytes for a token of the network: the input and each inner vector."""
    inner_vectors = 1 + (c.activation != "relu") + (c.activation_dropout > 0)
    if ACTIVATIONS[c.activation].gated:
        inner_vectors += 2
    network = tensors.operand * (c.d_model + inner_vectors * inner_width(c))
    if c.n_experts is None:
        return network
    networks = c.experts_per_token + c.shared_experts
    return networks * (network + 2 * BYTES * c.d_model)
