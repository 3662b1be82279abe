"""Mixers, the sub-layers that mix the tokens of a sequence: self-attention, recurrences and
convolutions. Fields, rules and cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from ablate.errors import Fault
from ablate.fields import PER_LAYER
from ablate.own.reference import is_own
from ablate.parts import attention
from ablate.parts.attention import ATTENTIONS, CONVOLUTION_WIDTH, SHARED_KEYS, Attention
from ablate.parts.cost import BYTES, Cost, Tensors, Workload, matrix_cost
from ablate.parts.positions import POSITIONAL_ENCODINGS, rotation_fault
from ablate.parts.sizes import Sizes
from ablate.parts.variant import Variant, VariantName, Variants

RECURRENCE_CHUNK = 64  # tokens in a chunk of a recurrence with one decay for each head
# The chunk of a recurrence with a decay for each row of its state, which is halved this often.
VECTOR_HALVINGS = 4
VECTOR_CHUNK = 2**VECTOR_HALVINGS
GATED_CONVOLUTION_WIDTH = 3  # tokens under mixer=short_convolution, as in LFM2
RWKV_EXPANSION = 4  # inner width of mixer=rwkv_channels, as a multiple of d_model
LRU_POWER = 8  # exponent of the decay of mixer=rg_lru, as in Griffin
DECAY_RANK = 16  # rank of the projection to the decay of gated linear attention


@dataclass(frozen=True)
class Mixer(Variant):
    """Facts about a mixer, whose class is constructed with config, causal and init.

    reads_both_ways: whether it works in an encoder.
    has_heads: whether it has h heads of the sizes d_k and d_v.
    matrices: number of trained parameters in matrices, which Muon updates and which multiply each
        token once, as a function of (c, causal); None: as in self-attention, which is also assumed
        of a user's class.
    vectors: number of other trained parameters, such as biases and convolutions.
    elementwise: number of other multiplications per token, such as products with the state.
    activations: number of fp32 values per token that the backward pass needs, as a function of (c,
        causal); None: as in self-attention.
    fault: the fault of a configuration that cannot have it, or None.
    """

    reads_both_ways: bool = False
    has_heads: bool = False
    matrices: Callable[[Sizes, bool], int] | None = None
    vectors: Callable[[Sizes], int] = lambda c: 0
    elementwise: Callable[[Sizes], int] = lambda c: 0
    activations: Callable[[Sizes, bool], int] | None = None
    fault: Callable[[Mixers], Fault | None] = lambda c: None


def _network(build: str, gates: int, stored: int, stored_causal: int) -> Mixer:
    """Facts about a recurrent network of torch.

    Args:
        build: its class.
        gates: number of gates, the candidate state included; each has the width of the network.
        stored: fp32 values per token that the backward pass needs, as a multiple of d_model, in an
            encoder, whose batches are packed: inputs, outputs, gates and states.
        stored_causal: the same in a causal stack, where oneDNN needs a larger workspace; measured
            at d_model 48 to 512.
    """

    def weights(c: Sizes, causal: bool) -> int:
        # Over input and state: one direction of d_model if causal, else two of half of it.
        width = c.d_model if causal else c.d_model // 2
        return gates * c.d_model * (c.d_model + width)

    return Mixer(
        build,
        reads_both_ways=True,
        fault=_odd_halves,
        matrices=weights,
        vectors=lambda c: 2 * gates * c.d_model,
        activations=lambda c, causal: (stored_causal if causal else stored) * c.d_model,
    )


def _odd_halves(c: Mixers) -> Fault | None:
    if c.has_encoder and c.d_model % 2:
        return Fault(
            f"d_model={c.d_model} is odd, and in the encoder each direction of mixer={c.mixer} has "
            "half of d_model",
            ("d_model", "mixer"),
        )
    return None


def _retention_fault(c: Mixers) -> Fault | None:
    if c.d_k % 2:
        return Fault(
            f"d_k={c.d_k} is odd, and retention rotates pairs of a head's entries",
            ("d_k", "n_heads", "d_model", "mixer"),
        )
    return rotation_fault(c) if c.positional_encoding == "rope" else None


def _unequal_heads(c: Mixers) -> Fault | None:
    if c.d_k != c.d_v:
        return Fault(
            f"mixer=rg_lru has square blocks, so d_k={c.d_k} must equal d_v={c.d_v}",
            ("mixer", "d_k", "d_v"),
        )
    return None


def _lru_vectors(c: Sizes) -> int:
    """Kernel of the convolution, blocks of the two gates, decays, and all biases."""
    return (CONVOLUTION_WIDTH + 2 * c.d_v + 6) * c.n_heads * c.d_v + c.d_model


def _recurrence(
    build: str,
    *,
    gated: bool = False,
    convolved: bool = False,
    shared: bool = False,
    per_head: int = 0,
    rank: int = 0,
    vectors: Callable[[Sizes], int],
    delta: bool = False,
    fault: Callable[[Mixers], Fault | None] = lambda c: None,
) -> Mixer:
    """Facts about a mixer with a matrix as its state; see ablate/model/recurrent_mixers.py.

    Args:
        build: its class.
        gated: whether its output has a gate.
        convolved: whether queries, keys and values pass through a short convolution.
        shared: whether all heads share queries and keys.
        per_head: number of projections to one number for each head.
        rank: rank of the projection to a decay for each row of the state; 0: no such projection.
        vectors: number of parameters outside of its projections and convolutions.
        delta: whether it uses the delta rule.
        fault: the fault of a configuration that cannot have it, or None.
    """

    def key_width(c: Sizes) -> int:
        return c.d_k if shared else c.n_heads * c.d_k

    def weights(c: Sizes, causal: bool) -> int:
        values = (3 if gated else 2) * c.n_heads * c.d_v  # values, output, gate
        projections = c.d_model * (2 * key_width(c) + values + per_head * c.n_heads)
        return projections + rank * (c.d_model + key_width(c))

    def convolutions(c: Sizes) -> int:
        channels = 2 * key_width(c) + c.n_heads * c.d_v
        return CONVOLUTION_WIDTH * channels if convolved else 0

    def elementwise(c: Sizes) -> int:
        chunk = VECTOR_CHUNK if rank else RECURRENCE_CHUNK
        products = 4 if delta else 2  # of a token with the other tokens of its chunk
        state = 3 if delta else 2  # products with the state: read, write, and the old value
        pairs = chunk * (c.d_k + c.d_v) * products // 2
        return convolutions(c) + c.n_heads * (pairs + state * c.d_k * c.d_v)

    def activations(c: Sizes, causal: bool) -> int:
        # With a decay for each row: both factors of the products, for each halving of a chunk.
        chunk = VECTOR_HALVINGS * c.d_k if rank else RECURRENCE_CHUNK
        values = 10 if gated else 7
        products = 4 if delta else 2
        heads = 12 * c.d_k + values * c.d_v + products * chunk
        return 2 * c.d_model + c.n_heads * heads

    return Mixer(
        build,
        has_heads=True,
        fault=fault,
        matrices=weights,
        vectors=lambda c: convolutions(c) + vectors(c),
        elementwise=elementwise,
        activations=activations,
    )


MIXERS = Variants(
    custom=Mixer(reads_both_ways=True),
    attention=Mixer(reads_both_ways=True),  # parts/attention.py has its cost and rules
    lstm=_network("ablate.model.token_mixer:LSTM", gates=4, stored=8, stored_causal=19),
    gru=_network("ablate.model.token_mixer:GRU", gates=3, stored=8, stored_causal=8),
    retention=_recurrence(
        "ablate.model.recurrent_mixers:Retention",
        gated=True,
        vectors=lambda c: c.d_v,
        fault=_retention_fault,
    ),
    gated_linear_attention=_recurrence(
        "ablate.model.recurrent_mixers:GatedLinearAttention",
        gated=True,
        rank=DECAY_RANK,
        vectors=lambda c: c.d_v + c.n_heads * c.d_k,
    ),
    mamba2=_recurrence(
        "ablate.model.recurrent_mixers:Mamba2",
        gated=True,
        convolved=True,
        shared=True,
        per_head=1,  # step of each token
        # Biases of the convolutions, norm of all heads; step, rate and skip of each head.
        vectors=lambda c: 2 * c.d_k + 2 * c.n_heads * c.d_v + 3 * c.n_heads,
    ),
    deltanet=_recurrence(
        "ablate.model.recurrent_mixers:DeltaNet",
        convolved=True,
        per_head=1,
        delta=True,
        vectors=lambda c: c.d_v,
    ),
    gated_deltanet=_recurrence(
        "ablate.model.recurrent_mixers:GatedDeltaNet",
        gated=True,
        convolved=True,
        per_head=2,
        delta=True,
        vectors=lambda c: c.d_v + 2 * c.n_heads,
    ),
    short_convolution=Mixer(
        "ablate.model.recurrent_mixers:GatedConvolution",
        matrices=lambda c, causal: 4 * c.d_model**2,
        vectors=lambda c: GATED_CONVOLUTION_WIDTH * c.d_model,
        elementwise=lambda c: (GATED_CONVOLUTION_WIDTH + 2) * c.d_model,
        activations=lambda c, causal: 7 * c.d_model,
    ),
    rg_lru=Mixer(
        "ablate.model.recurrent_mixers:RGLRU",
        has_heads=True,
        fault=_unequal_heads,
        matrices=lambda c, causal: 3 * c.d_model * c.n_heads * c.d_v,
        vectors=_lru_vectors,
        elementwise=lambda c: (2 * c.d_v + CONVOLUTION_WIDTH + 5) * c.n_heads * c.d_v,
        activations=lambda c, causal: c.d_model + 21 * c.n_heads * c.d_v,
    ),
    rwkv=Mixer(
        "ablate.model.recurrent_mixers:RWKV",
        matrices=lambda c, causal: 4 * c.d_model**2,
        vectors=lambda c: 5 * c.d_model,
        elementwise=lambda c: 16 * c.d_model,
        activations=lambda c, causal: 25 * c.d_model,
    ),
    rwkv_channels=Mixer(
        "ablate.model.recurrent_mixers:RWKVChannels",
        # Into the inner width and back, and the gate.
        matrices=lambda c, causal: (2 * RWKV_EXPANSION + 1) * c.d_model**2,
        vectors=lambda c: 2 * c.d_model,
        elementwise=lambda c: (RWKV_EXPANSION + 3) * c.d_model,
        activations=lambda c, causal: (6 + 2 * RWKV_EXPANSION) * c.d_model,
    ),
)


class Mixers(Attention):
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
        """Whether some part may read the fields of attention, which a user's class may."""
        return self.has_self_attention or self.has_both_stacks or is_own(self.mixer)

    @property
    def has_heads(self) -> bool:
        """Whether some part has h heads of the sizes d_k and d_v."""
        return self.has_attention or MIXERS[self.mixer].has_heads

    @property
    def forms_scores(self) -> bool:
        """Whether some attention has a softmax of scores: cross-attention and a user's class do."""
        has_scores = self.has_both_stacks or is_own(self.mixer)
        return has_scores or ATTENTIONS[self.attention].forms_scores


def faults(c: Mixers) -> Iterator[Fault]:
    """Yield the faults of the mixer of a layer."""
    mixer = MIXERS[c.mixer]
    if c.has_encoder and not mixer.reads_both_ways:
        yield Fault(
            f"mixer={c.mixer} reads in one direction, and needs architecture=decoder-only",
            ("mixer", "architecture"),
        )
    elif fault := mixer.fault(c):
        yield fault
    heads = {}
    if c.has_self_attention:
        yield from attention.faults(c)
        heads["n_heads"] = c.n_heads
    if c.has_both_stacks:
        heads["n_heads" if c.n_cross_heads is None else "n_cross_heads"] = c.cross_heads
    yield from attention.group_faults(c, heads)


def layer_faults(layers: Iterable[Mixers]) -> Iterator[Fault]:
    """Yield a fault for each positional encoding that acts inside self-attention but stands only in
    layers without it; and the faults of layers with self-attention that do not fit each other.
    """
    mixers_by_encoding: dict[str, set[str]] = {}
    for layer in layers:
        mixers_by_encoding.setdefault(layer.positional_encoding, set()).add(layer.mixer)
    for name, mixers in mixers_by_encoding.items():
        encoding = POSITIONAL_ENCODINGS[name]
        if encoding.acts_in_attention and "attention" not in mixers and mixers <= MIXERS.keys():
            yield Fault(
                f"positional_encoding={name} acts inside self-attention, which "
                f"mixer={'/'.join(sorted(mixers))} replaces",
                ("positional_encoding", "mixer"),
            )
    yield from attention.layer_faults(layer for layer in layers if layer.has_self_attention)


def cost(c: Mixers, work: Workload, vocab_size: int) -> Cost:
    """Cost of the mixer of a layer."""
    mixer = MIXERS[c.mixer]
    if mixer.matrices is None:
        return attention.cost(c, work, vocab_size)
    inner = Cost(
        other_parameters=mixer.vectors(c), multiplications=mixer.elementwise(c) * work.tokens
    )
    return matrix_cost(mixer.matrices(c, work.causal), work) + inner


def activation_bytes(c: Mixers, tensors: Tensors) -> int:
    """Bytes per token that the backward pass of the mixer of a layer needs."""
    mixer, mechanism = MIXERS[c.mixer], ATTENTIONS[c.attention]
    if mixer.activations:
        return BYTES * mixer.activations(c, tensors.causal)
    if mechanism.activations:
        numbers = mechanism.activations(c, tensors.causal, tensors.length)
        return tensors.operand_bytes * c.d_model + BYTES * numbers
    return attention.activation_bytes(c, c.n_heads, tensors)
