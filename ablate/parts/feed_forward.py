"""The feed-forward sub-layer (section 3.3), a network or a mixture of experts: its fields, the
rules for them, and its cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ablate.errors import Fault
from ablate.fields import PER_LAYER, SET, Aliases, Facts, Part, Share
from ablate.parts.cost import BYTES, Cost, Tensors, Workload
from ablate.parts.sizes import NETWORK, Sizes
from ablate.parts.variant import Variant, VariantName, Variants


@dataclass(frozen=True)
class Activation(Variant):
    """Facts about an activation, whose class takes no arguments.

    gated: whether the result is multiplied by a second projection of the input.
    """

    gated: bool = False


def _activation(name: str, gated: bool = False) -> Activation:
    return Activation(f"ablate.model.feed_forward:{name}", gated)


ACTIVATIONS = Variants(
    custom=Activation(),
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
SHARED_EXPERT = Part("a shared expert", {"shared_experts": (SET,)}, (MIXTURE,))
# If every token is sent to all experts, the balance loss is a constant.
CHOICE_OF_EXPERTS = Part(
    "a choice among experts",
    parents=(MIXTURE,),
    condition=lambda c: c.experts_per_token < c.n_experts,
    condition_fields=("experts_per_token", "n_experts"),
    absent="which is not there, because every token is sent to all experts",
)
BALANCE = Part(
    "a balance of experts",
    parents=(CHOICE_OF_EXPERTS,),
    condition=lambda c: c.expert_balance > 0,
    condition_fields=("expert_balance", "n_experts"),
    absent="whose weight is 0",
)


class FeedForward(Sizes):
    """Fields of the feed-forward sub-layer."""

    feed_forward: Annotated[str, VariantName(("network", "none")), PER_LAYER] = "network"
    """feed-forward sub-layer: a network of two linear layers (3.3), which the fields below may gate
    or replace by a mixture of experts; or none, as in Mamba 2"""
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
    """number of experts of a mixture, each a feed-forward network of d_ff, instead of one network
    (Shazeer et al., 2017); unset: one network"""
    experts_per_token: Annotated[int, MIXTURE_FACTS, Aliases("num_experts_per_tok")] = Field(
        2, ge=1, le=1024
    )
    """number of experts that each token is sent to"""
    shared_experts: Annotated[int, MIXTURE_FACTS] = Field(0, ge=0, le=64)
    """number of further experts that process every token (DeepSeek-V3)"""
    shared_expert_gate: Annotated[bool, Facts(part=SHARED_EXPERT, per_layer=True)] = False
    """multiply the output of shared experts by a sigmoid gate of each token, as in Qwen3-Next"""
    expert_weights: Annotated[Literal["softmax", "softmax_of_chosen", "sigmoid"], MIXTURE_FACTS] = (
        "softmax_of_chosen"
    )
    """weights of a token's experts: the softmax over all experts (OLMoE), the softmax over the
    chosen experts only (Mixtral), or sigmoids that are scaled to a sum of 1 (DeepSeek-V3)"""
    expert_scale: Annotated[float, MIXTURE_FACTS] = Field(1.0, gt=0.0, le=1000.0)
    """factor of the weights of a token's experts (DeepSeek-V3)"""
    router_bias: Annotated[bool, MIXTURE_FACTS] = False
    """bias of the scores of experts, as in gpt-oss"""
    expert_balance_by: Annotated[Literal["loss", "bias"], Facts(part=BALANCE, per_layer=True)] = (
        "loss"
    )
    """how tokens are spread evenly over experts: by a term of the training loss, or by a trained
    bias of each expert that changes only which experts are chosen (DeepSeek-V3)"""
    expert_balance: Annotated[float, Facts(part=CHOICE_OF_EXPERTS, per_layer=True)] = Field(
        0.01, ge=0.0, le=10.0
    )
    """weight of the term of the training loss that grows with the uneven use of experts (Switch
    Transformer; Fedus et al., 2022)"""

    @property
    def is_mixture(self) -> bool:
        """Whether the network is a mixture of experts."""
        return self.n_experts is not None

    def inner_width(self, gated: bool) -> int:
        """Inner width of the feed-forward network: d_ff, or 2/3 of it if gated.

        A gated network has three matrices instead of two, so that the number of weights is the same
        (Shazeer, 2020).
        """
        return max(1, round(2 * self.d_ff / 3)) if gated else self.d_ff


def faults(c: FeedForward) -> Iterator[Fault]:
    """Yield the faults of the mixture of experts of a layer."""
    if c.n_experts is not None and c.experts_per_token > c.n_experts:
        yield Fault(
            f"experts_per_token={c.experts_per_token} is more than n_experts={c.n_experts}",
            ("experts_per_token", "n_experts"),
        )


def remarks(c: FeedForward) -> Iterator[str]:
    """Yield a remark on a router that the cross-entropy does not train."""
    has_router = c.feed_forward != "none" and c.is_mixture
    if has_router and c.experts_per_token == 1 and c.expert_weights != "softmax":
        yield (
            f"experts_per_token=1 with expert_weights={c.expert_weights} gives the expert of a "
            "token the weight 1, so that cross-entropy does not train the router; "
            "expert_weights=softmax, as in Switch Transformer, trains it"
        )


def largest_balance(c: FeedForward) -> float:
    """Balance term of a layer in the training loss if all tokens are sent to the same experts."""
    return c.expert_balance * (c.n_experts or 0)


def inner_width(c: FeedForward) -> int:
    """Inner width of the feed-forward network with its activation."""
    return c.inner_width(ACTIVATIONS[c.activation].gated)


def cost(c: FeedForward, work: Workload) -> Cost:
    """Cost of the feed-forward network, or of the mixture of experts."""
    if c.feed_forward == "none":
        return Cost()
    projections = 2 if ACTIVATIONS[c.activation].gated else 1  # to the inner width
    weights = (projections + 1) * c.d_model * inner_width(c)
    biases = projections * inner_width(c) + c.d_model if c.feed_forward_bias else 0
    if c.n_experts is None:
        return Cost(weights, biases, multiplications=weights * work.tokens)
    networks = c.n_experts + c.shared_experts
    used = c.experts_per_token + c.shared_experts  # by a token
    router = c.d_model * c.n_experts
    if c.shared_experts and c.shared_expert_gate:
        router += c.d_model
    router_biases = c.n_experts if c.router_bias else 0
    if c.expert_balance_by == "bias":
        router_biases += c.n_experts
    return Cost(
        matrix_parameters=networks * weights + router,
        other_parameters=networks * biases + router_biases,
        idle_parameters=(networks - used) * (weights + biases),
        multiplications=(used * weights + router) * work.tokens,
    )


def activation_bytes(c: FeedForward, tensors: Tensors) -> int:
    """Bytes per token that the backward pass of the network needs: its input and inner vectors."""
    inner_vectors = 1 + (c.activation != "relu") + (c.activation_dropout > 0)
    if ACTIVATIONS[c.activation].gated:
        inner_vectors += 2
    network = tensors.operand_bytes * (c.d_model + inner_vectors * inner_width(c))
    if c.n_experts is None:
        return network
    networks = c.experts_per_token + c.shared_experts
    return networks * (network + 2 * BYTES * c.d_model)
