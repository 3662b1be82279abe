"""Mixers, the sub-layers that mix the tokens of a sequence: self-attention, recurrences and
convolutions. Variants, fields, rules and cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from ablate.errors import Fault, listed
from ablate.fields import PER_LAYER
from ablate.parts import attention
from ablate.parts.attention import ATTENTIONS, SHARED_KEYS, AttentionFields
from ablate.parts.cost import Cost, Tensors, Workload
from ablate.parts.mixer_variants import (
    RGLRU,
    ChannelMixer,
    LinearRecurrence,
    MixerVariant,
    Retention,
    TorchRnn,
)
from ablate.parts.positions import POSITIONAL_ENCODINGS
from ablate.parts.variant import VariantName, Variants

GATED_CONVOLUTION_WIDTH = 3  # tokens under mixer=short_convolution, as in LFM2
RWKV_EXPANSION = 4  # inner width of mixer=rwkv_channels, as a multiple of d_model
LRU_POWER = 8  # exponent of the decay of mixer=rg_lru, as in Griffin
DECAY_RANK = 16  # rank of the projection to the decay of gated linear attention


MIXERS: Variants[MixerVariant] = Variants(
    custom=MixerVariant(reads_both_ways=True),
    attention=MixerVariant(reads_both_ways=True),
    lstm=TorchRnn("ablate.model.token_mixer:LSTM", gates=4, stored=8, stored_causal=19),
    gru=TorchRnn("ablate.model.token_mixer:GRU", gates=3, stored=8, stored_causal=8),
    retention=Retention(
        "ablate.model.recurrent_mixers:Retention", is_gated=True, other_vectors=lambda c: c.d_v
    ),
    gated_linear_attention=LinearRecurrence(
        "ablate.model.recurrent_mixers:GatedLinearAttention",
        is_gated=True,
        decay_rank=DECAY_RANK,
        other_vectors=lambda c: c.d_v + c.n_heads * c.d_k,
    ),
    mamba2=LinearRecurrence(
        "ablate.model.recurrent_mixers:Mamba2",
        is_gated=True,
        has_convolutions=True,
        shares_keys=True,
        head_scalars=1,  # step of each token
        # Biases of the convolutions, norm of all heads; step, rate and skip of each head.
        other_vectors=lambda c: 2 * c.d_k + 2 * c.n_heads * c.d_v + 3 * c.n_heads,
    ),
    deltanet=LinearRecurrence(
        "ablate.model.recurrent_mixers:DeltaNet",
        has_convolutions=True,
        head_scalars=1,
        uses_delta_rule=True,
        other_vectors=lambda c: c.d_v,
    ),
    gated_deltanet=LinearRecurrence(
        "ablate.model.recurrent_mixers:GatedDeltaNet",
        is_gated=True,
        has_convolutions=True,
        head_scalars=2,
        uses_delta_rule=True,
        other_vectors=lambda c: c.d_v + 2 * c.n_heads,
    ),
    short_convolution=ChannelMixer(
        "ablate.model.recurrent_mixers:GatedConvolution",
        n_matrices=4,
        n_vectors=GATED_CONVOLUTION_WIDTH,
        n_multiplications=GATED_CONVOLUTION_WIDTH + 2,
        n_activations=7,
    ),
    rg_lru=RGLRU("ablate.model.recurrent_mixers:RGLRU"),
    rwkv=ChannelMixer(
        "ablate.model.recurrent_mixers:RWKV",
        n_matrices=4,
        n_vectors=5,
        n_multiplications=16,
        n_activations=25,
    ),
    rwkv_channels=ChannelMixer(
        "ablate.model.recurrent_mixers:RWKVChannels",
        n_matrices=2 * RWKV_EXPANSION + 1,  # into the inner width and back, and the gate
        n_vectors=2,
        n_multiplications=RWKV_EXPANSION + 3,
        n_activations=6 + 2 * RWKV_EXPANSION,
    ),
)


class MixerFields(AttentionFields):
    """Fields of the mixer of a layer."""

    mixer: Annotated[str, VariantName(tuple(MIXERS), fields=SHARED_KEYS), PER_LAYER] = "attention"
    """mixer of the tokens: self-attention, or instead an LSTM, a GRU, a recurrence with a matrix as
    its state, or a convolution"""

    @property
    def has_self_attention(self) -> bool:
        """Whether self-attention mixes the tokens."""
        return self.mixer == "attention"

    @property
    def has_attention(self) -> bool:
        """Whether some part may read the fields of attention."""
        return self.has_both_stacks or MIXERS[self.mixer].may_attend

    @property
    def has_heads(self) -> bool:
        """Whether some part has h heads of the sizes d_k and d_v."""
        return self.has_attention or MIXERS[self.mixer].has_heads

    @property
    def forms_scores(self) -> bool:
        """Whether some attention has a softmax of scores. Cross-attention has one, and another
        mixer that attends may have one.
        """
        if self.has_both_stacks or ATTENTIONS[self.attention].forms_scores:
            return True
        return MIXERS[self.mixer].may_attend and not self.has_self_attention


def document_mask_faults(c: MixerFields) -> Iterator[Fault]:
    """Yield a fault for each part of a layer that carries tokens over the ends of documents,
    because it has no scores that a mask could exclude.
    """
    if not MIXERS[c.mixer].may_attend:
        allowed = [name for name, mixer in MIXERS.items() if mixer.may_attend]
        yield _document_mask_fault("mixer", c.mixer, allowed)
    if not ATTENTIONS[c.attention].forms_scores:
        allowed = [name for name, variant in ATTENTIONS.items() if variant.forms_scores]
        yield _document_mask_fault("attention", c.attention, allowed)
    if c.attention_convolution != "none":
        yield _document_mask_fault("attention_convolution", c.attention_convolution, ["none"])


def _document_mask_fault(field: str, value: str, allowed: Sequence[str]) -> Fault:
    problem = (
        f"document_masks has no effect on {field}={value}, which carries tokens over the ends of "
        "documents"
    )
    return Fault(problem, ("document_masks", field), remedy=f"use {listed(allowed)}")


def faults(c: MixerFields) -> Iterator[Fault]:
    """Yield the faults of the mixer of a layer."""
    mixer = MIXERS[c.mixer]
    if c.has_encoder and not mixer.reads_both_ways:
        yield Fault(
            f"mixer={c.mixer} reads in one direction, and needs architecture=decoder-only",
            ("mixer", "architecture"),
        )
    elif fault := mixer.fault(c, c.mixer):
        yield fault
    heads = {}  # number of query heads, by the field that has it
    if c.has_self_attention:
        yield from attention.faults(c)
        heads["n_heads"] = c.n_heads
    if c.has_both_stacks:
        if c.n_cross_heads is None:
            heads["n_heads"] = c.n_heads
        else:
            heads["n_cross_heads"] = c.n_cross_heads
    yield from attention.group_faults(c, heads)


def layer_faults(layers: Iterable[MixerFields]) -> Iterator[Fault]:
    """Yield a fault for each positional encoding that acts inside self-attention but stands only in
    layers without it; and the faults of layers with self-attention that do not fit each other.
    """
    mixers_by_encoding: dict[str, set[str]] = {}
    for layer in layers:
        mixers_by_encoding.setdefault(layer.positional_encoding, set()).add(layer.mixer)
    for name, mixers in mixers_by_encoding.items():
        may_attend = any(MIXERS[mixer].may_attend for mixer in mixers)
        if POSITIONAL_ENCODINGS[name].acts_in_attention and not may_attend:
            yield Fault(
                f"positional_encoding={name} acts inside self-attention, which "
                f"mixer={'/'.join(sorted(mixers))} replaces",
                ("positional_encoding", "mixer"),
            )
    yield from attention.layer_faults(layer for layer in layers if layer.has_self_attention)


def cost(c: MixerFields, work: Workload, vocab_size: int) -> Cost:
    """Cost of the mixer of a layer."""
    return MIXERS[c.mixer].cost(c, work, vocab_size)


def activation_bytes(c: MixerFields, tensors: Tensors) -> int:
    """Bytes per token that the backward pass of the mixer of a layer needs."""
    return MIXERS[c.mixer].activation_bytes(c, tensors)
