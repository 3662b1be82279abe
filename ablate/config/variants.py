"""Tables of the variants of each mechanism: their costs, requirements and export formats.

A new variant is a class in model/ and an entry here; `VARIANTS` lists the tables by the field that
selects a variant. Validation, inactive settings, parameters, FLOPs, memory and export all read
these tables. A custom class (plugins.py) has no entry, and each table gives it the facts of a plain
variant of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

T5_BUCKETS = 32  # of distances, in positional_encoding=t5
LINEAR_CHUNK = 64  # tokens that causal attention=linear processes at once
RECURRENCE_CHUNK = 64  # tokens that a recurrence processes at once
VECTOR_HALVINGS = 4  # of the chunk of one that has a decay for each row of its state
VECTOR_CHUNK = 2**VECTOR_HALVINGS
CONVOLUTION_WIDTH = 4  # tokens of the short convolutions of attention, Mamba 2 and DeltaNet
GATED_CONVOLUTION_WIDTH = 3  # tokens of mixer=short_convolution, as in LFM2
RWKV_EXPANSION = 4  # inner width of mixer=rwkv_channels, as a multiple of d_model
LRU_POWER = 8  # of the decay of mixer=rg_lru, as in Griffin
DECAY_RANK = 16  # of gated linear attention's decay


class _Layer(Protocol):
    """The members of ModelConfig that costs and requirements depend on."""

    @property
    def mixer(self) -> str: ...
    @property
    def d_model(self) -> int: ...
    @property
    def d_k(self) -> int: ...
    @property
    def d_v(self) -> int: ...
    @property
    def n_heads(self) -> int: ...
    @property
    def rope_fraction(self) -> float: ...
    @property
    def max_positions(self) -> int: ...
    @property
    def relative_clip(self) -> int: ...
    @property
    def has_encoder(self) -> bool: ...


Entry = TypeVar("Entry")


class VariantTable(dict[str, Entry]):
    """Facts by name; for the name of a custom class, those of a plain variant."""

    def __init__(self, plain: Entry, **named: Entry) -> None:
        super().__init__(named)
        self.plain = plain

    def __missing__(self, name: str) -> Entry:
        return self.plain


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Facts about any variant.

    error: returns why a configuration cannot have this variant, or None.
    """

    error: Callable[[_Layer], str | None] = lambda c: None


@dataclass(frozen=True, kw_only=True)
class EncodingFacts(Variant):
    """Facts about a positional encoding.

    in_attention: whether it acts inside self-attention; otherwise it is added to the embeddings, or
        absent.
    adds_to_scores: whether it adds to attention scores or outputs, so that attention cannot be one
        fused operation.
    parameters: trained parameters in a stack, by (c, its number of layers, causal).
    score_factor: multiplications per attention score, relative to attention without positions.
    kept: numbers per token, beside scores and weights, that the backward pass of attention needs.
    depends_on: fields of a layer that it reads; layers that differ in them have encodings of their
        own.
    may_alternate: whether some layers of a stack may have one encoding, and others another.
    """

    in_attention: bool = False
    adds_to_scores: bool = False
    parameters: Callable[[_Layer, int, bool], int] = lambda c, depth, causal: 0
    score_factor: int = 1
    kept: Callable[[_Layer], int] = lambda c: 0
    depends_on: tuple[str, ...] = ("n_heads", "d_k", "d_v")
    may_alternate: bool = True


@dataclass(frozen=True, kw_only=True)
class AttentionFacts(Variant):
    """Facts about a kind of self-attention, beside its projections, which cost.py counts.

    forms_scores: whether it computes a score for every pair of tokens.
    parameters: trained parameters beside the projections.
    multiplications: between the projections, by (c, causal, tokens, sum of squared lengths);
        None: of scores.
    kept: fp32 numbers per token, between the projections, that the backward pass needs, by (c,
        causal, length of a sentence); None: of scores.
    """

    forms_scores: bool = True
    parameters: Callable[[_Layer], int] = lambda c: 0
    multiplications: Callable[[_Layer, bool, int, int], int] | None = None
    kept: Callable[[_Layer, bool, int], int] | None = None


@dataclass(frozen=True)
class NormPlaceFacts:
    """Facts about where the norms around a sub-layer stand.

    norms: their number around each sub-layer.
    at_end: whether a stack of such layers ends with one more.
    """

    norms: int = 1
    at_end: bool = True


NORM_POSITIONS = VariantTable(
    NormPlaceFacts(),
    post=NormPlaceFacts(at_end=False),
    pre=NormPlaceFacts(),
    sandwich=NormPlaceFacts(norms=2),
    output=NormPlaceFacts(),
    none=NormPlaceFacts(norms=0, at_end=False),
)


@dataclass(frozen=True, kw_only=True)
class ActivationFacts(Variant):
    """Facts about an activation. `gated`: it multiplies two projections."""

    gated: bool = False


@dataclass(frozen=True, kw_only=True)
class NormFacts(Variant):
    """Facts about a normalization.

    vectors: its trained vectors of d_model entries, such as a gain and a bias.
    numbers: its further trained numbers.
    kept: numbers per token that the backward pass needs, without the output.
    """

    vectors: int = 0
    numbers: int = 0
    kept: Callable[[_Layer], int] = lambda c: c.d_model + 2  # the input, its mean and its deviation


@dataclass(frozen=True, kw_only=True)
class MixerFacts(Variant):
    """Facts about the mixing of tokens within a sequence.

    has_heads: whether it has h heads of the sizes d_k and d_v.
    matrices: trained parameters of one layer in matrices, which Muon trains and which multiply each
        token once, by (c, causal); None: of self-attention.
    vectors: further trained parameters, such as biases and convolutions.
    elementwise: further multiplications per token, such as those with the state.
    kept: fp32 numbers per token that the backward pass needs, by (c, causal); None: of
        self-attention.
    """

    has_heads: bool = False
    matrices: Callable[[_Layer, bool], int] | None = None
    vectors: Callable[[_Layer], int] = lambda c: 0
    elementwise: Callable[[_Layer], int] = lambda c: 0
    kept: Callable[[_Layer, bool], int] | None = None


def _relative_parameters(c: _Layer, depth: int, causal: bool) -> int:
    """A d_k and a d_v for each clipped distance: clip + 1 if causal, else 2 clip + 1."""
    return depth * ((2 - causal) * c.relative_clip + 1) * (c.d_k + c.d_v)


def _linear_multiplications(c: _Layer, causal: bool, tokens: int, squares: int) -> int:
    """phi(K)^T V and phi(Q) times it; if causal, also the scores within a chunk."""
    sums = 2 * c.n_heads * c.d_k * (c.d_v + 1) * tokens
    chunks = min(squares, LINEAR_CHUNK * tokens) * c.n_heads * (c.d_k + c.d_v + 1)
    return sums + causal * chunks


def _linear_kept(c: _Layer, causal: bool, length: int) -> int:
    """Inputs and outputs of phi, V, the sums and divisors; if causal, Q and scores of chunks."""
    chunks, scores = 1, 0
    if causal:
        chunks, scores = -(-length // LINEAR_CHUNK), min(length, LINEAR_CHUNK) + c.d_k
    sums = chunks * c.d_k * (c.d_v + 1) // length
    return c.n_heads * (4 * c.d_k + 2 * (c.d_v + 1) + 1 + scores + sums)


def _recurrent_network(gates: int, kept: int, kept_causal: int) -> MixerFacts:
    """Facts about a recurrent network of torch.

    Args:
        gates: products of the input, each of the network's width; the candidate is one of them.
        kept: multiple of d_model that is kept of a packed batch, of inputs, outputs, gates and
            states.
        kept_causal: of a batch without padding, with the larger workspace of oneDNN, measured at
            d_model 48 to 512.
    """

    def matrices(c: _Layer, causal: bool) -> int:
        # Over input and state: one direction of d_model if causal, else two of half of it.
        width = c.d_model if causal else c.d_model // 2
        return gates * c.d_model * (c.d_model + width)

    return MixerFacts(
        error=_odd_halves,
        matrices=matrices,
        vectors=lambda c: 2 * gates * c.d_model,
        kept=lambda c, causal: (kept_causal if causal else kept) * c.d_model,
    )


def _odd_d_model(c: _Layer) -> str | None:
    if c.d_model % 2:
        return f"d_model={c.d_model} is odd, and sinusoidal positions pair a sine with a cosine"
    return None


def _odd_d_k(c: _Layer) -> str | None:
    rotating = "retention" if c.mixer == "retention" else "rope"
    if c.d_k % 2:
        return f"d_k={c.d_k} is odd, and {rotating} rotates pairs of a head's entries"
    return None


def rotated_entries(c: _Layer) -> int:
    """Entries of a head that rope rotates."""
    return int(c.d_k * c.rope_fraction)


def _odd_rotation(c: _Layer) -> str | None:
    if c.mixer not in ("attention", "retention"):  # no other one rotates anything
        return None
    rotated = rotated_entries(c)
    if c.rope_fraction != 1.0 and (rotated < 2 or rotated % 2):
        return (
            f"rope_fraction={c.rope_fraction} of d_k={c.d_k} is {rotated} of its entries, and "
            "rope rotates pairs"
        )
    return _odd_d_k(c)


def _odd_heads(c: _Layer) -> str | None:
    if c.n_heads % 2:
        return f"attention=differential takes heads in pairs, and h={c.n_heads} is odd"
    return None


def _odd_halves(c: _Layer) -> str | None:
    if c.has_encoder and c.d_model % 2:
        return (
            f"d_model={c.d_model} is odd, and the encoder's mixer={c.mixer} gives half of it to "
            "each direction"
        )
    return None


def _one_causal_stack(c: _Layer) -> str | None:
    if c.has_encoder:
        return f"mixer={c.mixer} reads in one direction, and needs architecture=decoder-only"
    return None


def _unequal_heads(c: _Layer) -> str | None:
    if c.d_k != c.d_v:
        return f"mixer=rg_lru has blocks of one size, so d_k={c.d_k} must equal d_v={c.d_v}"
    return None


def _lru_vectors(c: _Layer) -> int:
    """A convolution, two gates in blocks, the biases of both and of the projections, the decays."""
    return (CONVOLUTION_WIDTH + 2 * c.d_v + 6) * c.n_heads * c.d_v + c.d_model


def _recurrence(
    *,
    gated: bool = False,
    convolved: bool = False,
    shared: bool = False,
    per_head: int = 0,
    rank: int = 0,
    vectors: Callable[[_Layer], int],
    delta: bool = False,
    error: Callable[[_Layer], str | None] = _one_causal_stack,
) -> MixerFacts:
    """Facts about a mixer with a matrix as its state; see ablate/model/recurrent_mixers.py.

    Args:
        gated: whether its output has a gate.
        convolved: whether queries, keys and values pass a short convolution.
        shared: whether all heads share queries and keys.
        per_head: projections to one number for each head.
        rank: of the projection to a decay for each row of the state; 0 for none.
        vectors: parameters outside of its projections and convolutions.
        delta: whether it has the delta rule.
        error: why a configuration cannot have it.
    """

    def key_width(c: _Layer) -> int:
        return c.d_k if shared else c.n_heads * c.d_k

    def matrices(c: _Layer, causal: bool) -> int:
        values = (2 + gated) * c.n_heads * c.d_v
        projections = c.d_model * (2 * key_width(c) + values + per_head * c.n_heads)
        return projections + rank * (c.d_model + key_width(c))

    def convolutions(c: _Layer) -> int:
        channels = 2 * key_width(c) + c.n_heads * c.d_v
        return convolved * CONVOLUTION_WIDTH * channels

    def elementwise(c: _Layer) -> int:
        chunk = VECTOR_CHUNK if rank else RECURRENCE_CHUNK
        products = 2 + 2 * delta  # of a token with the others of its chunk
        state = 2 + delta  # products with the state: read, write, and what it holds
        pairs = chunk * (c.d_k + c.d_v) * products // 2
        return convolutions(c) + c.n_heads * (pairs + state * c.d_k * c.d_v)

    def kept(c: _Layer, causal: bool) -> int:
        # With a decay for each row, both factors of the products of each halving of a chunk.
        chunk = VECTOR_HALVINGS * c.d_k if rank else RECURRENCE_CHUNK
        heads = 12 * c.d_k + (7 + 3 * gated) * c.d_v + (2 + 2 * delta) * chunk
        return 2 * c.d_model + c.n_heads * heads

    return MixerFacts(
        has_heads=True,
        error=error,
        matrices=matrices,
        vectors=lambda c: convolutions(c) + vectors(c),
        elementwise=elementwise,
        kept=kept,
    )


POSITIONAL_ENCODINGS = VariantTable(
    EncodingFacts(),
    sinusoidal=EncodingFacts(error=_odd_d_model, depends_on=(), may_alternate=False),
    learned=EncodingFacts(
        depends_on=(),
        may_alternate=False,
        parameters=lambda c, depth, causal: c.max_positions * c.d_model,
    ),
    none=EncodingFacts(depends_on=()),
    rope=EncodingFacts(
        in_attention=True,
        depends_on=("d_k", "rope_base", "rope_fraction", "rope_scaling", "rope_factor"),
        error=_odd_rotation,
    ),
    relative=EncodingFacts(
        depends_on=("d_k", "d_v", "mixer"),
        may_alternate=False,
        in_attention=True,
        adds_to_scores=True,
        parameters=_relative_parameters,
        score_factor=2,  # its vectors are multiplied as keys and values are
        kept=lambda c: c.n_heads * c.d_k,  # Q in another order
    ),
    t5=EncodingFacts(
        in_attention=True,
        adds_to_scores=True,
        depends_on=("n_heads",),
        parameters=lambda c, depth, causal: T5_BUCKETS * c.n_heads,
    ),
    alibi=EncodingFacts(in_attention=True, adds_to_scores=True, depends_on=("n_heads",)),
)
ATTENTIONS = VariantTable(
    AttentionFacts(),
    full=AttentionFacts(),
    local=AttentionFacts(),
    differential=AttentionFacts(
        error=_odd_heads,
        parameters=lambda c: 4 * c.d_k,
        # Each of two heads has the values of both.
        multiplications=lambda c, causal, tokens, squares: (
            squares * c.n_heads * (c.d_k + 2 * c.d_v)
        ),
        kept=lambda c, causal, length: c.n_heads * (2 * c.d_k + 5 * c.d_v + length),
    ),
    linear=AttentionFacts(
        forms_scores=False, multiplications=_linear_multiplications, kept=_linear_kept
    ),
)
ACTIVATIONS = VariantTable(
    ActivationFacts(),
    **dict.fromkeys(
        ("relu", "gelu", "gelu_tanh", "silu", "relu2", "leaky_relu2"), ActivationFacts()
    ),
    **dict.fromkeys(
        ("swiglu", "swiglu_clamped", "geglu", "geglu_tanh", "reglu"), ActivationFacts(gated=True)
    ),
)
NORMS = VariantTable(
    NormFacts(),
    layernorm=NormFacts(vectors=2),
    layernorm_no_bias=NormFacts(vectors=1),
    rmsnorm=NormFacts(vectors=1, kept=lambda c: c.d_model + 1),
    unit=NormFacts(kept=lambda c: c.d_model + 1),
    dyt=NormFacts(vectors=2, numbers=1, kept=lambda c: 2 * c.d_model),
)
MIXERS = VariantTable(
    MixerFacts(),
    attention=MixerFacts(),
    lstm=_recurrent_network(gates=4, kept=8, kept_causal=19),
    gru=_recurrent_network(gates=3, kept=8, kept_causal=8),
    retention=_recurrence(
        gated=True, vectors=lambda c: c.d_v, error=lambda c: _one_causal_stack(c) or _odd_d_k(c)
    ),
    gated_linear_attention=_recurrence(
        gated=True, rank=DECAY_RANK, vectors=lambda c: c.d_v + c.n_heads * c.d_k
    ),
    mamba2=_recurrence(
        gated=True,
        convolved=True,
        shared=True,
        per_head=1,  # the step
        # The biases of the convolutions, the norm of all heads, and step, rate and skip of each.
        vectors=lambda c: 2 * c.d_k + 2 * c.n_heads * c.d_v + 3 * c.n_heads,
    ),
    deltanet=_recurrence(convolved=True, per_head=1, delta=True, vectors=lambda c: c.d_v),
    gated_deltanet=_recurrence(
        gated=True, convolved=True, per_head=2, delta=True, vectors=lambda c: c.d_v + 2 * c.n_heads
    ),
    short_convolution=MixerFacts(
        error=_one_causal_stack,
        matrices=lambda c, causal: 4 * c.d_model**2,
        vectors=lambda c: GATED_CONVOLUTION_WIDTH * c.d_model,
        elementwise=lambda c: (GATED_CONVOLUTION_WIDTH + 2) * c.d_model,
        kept=lambda c, causal: 7 * c.d_model,
    ),
    rg_lru=MixerFacts(
        has_heads=True,
        error=lambda c: _one_causal_stack(c) or _unequal_heads(c),
        matrices=lambda c, causal: 3 * c.d_model * c.n_heads * c.d_v,
        vectors=_lru_vectors,
        elementwise=lambda c: (2 * c.d_v + CONVOLUTION_WIDTH + 5) * c.n_heads * c.d_v,
        kept=lambda c, causal: c.d_model + 21 * c.n_heads * c.d_v,
    ),
    rwkv=MixerFacts(
        error=_one_causal_stack,
        matrices=lambda c, causal: 4 * c.d_model**2,
        vectors=lambda c: 5 * c.d_model,
        elementwise=lambda c: 16 * c.d_model,
        kept=lambda c, causal: 25 * c.d_model,
    ),
    rwkv_channels=MixerFacts(
        error=_one_causal_stack,
        # Into the inner width and back, and the gate.
        matrices=lambda c, causal: (2 * RWKV_EXPANSION + 1) * c.d_model**2,
        vectors=lambda c: 2 * c.d_model,
        elementwise=lambda c: (RWKV_EXPANSION + 3) * c.d_model,
        kept=lambda c, causal: (6 + 2 * RWKV_EXPANSION) * c.d_model,
    ),
)


@dataclass(frozen=True)
class LayerSkip:
    """How the states of earlier layers are added to the stream again.

    sources: the states that are added after a layer, by (its number, the depth); 0 is that of the
        embeddings, and i + 1 that after layer i.
    initial: what their trained weights begin at.
    """

    sources: Callable[[int, int], Sequence[int]]
    initial: float = 0.0

    def count(self, depth: int) -> int:
        """Number of trained weights in a stack of this depth."""
        return sum(len(self.sources(i, depth)) for i in range(depth))


LAYER_SKIPS = {
    "none": LayerSkip(lambda i, depth: ()),
    # The second half of the layers reads the first half in reverse.
    "unet": LayerSkip(
        lambda i, depth: (depth - 1 - i,) if depth / 2 - 1 <= i < depth - 1 else (), initial=1.0
    ),
    "dense": LayerSkip(lambda i, depth: range(i + 2)),
    "middle": LayerSkip(lambda i, depth: (depth // 2,) if i == depth - 1 else ()),
}
# Field of ModelConfig -> name in a study -> facts.
VARIANTS: Mapping[str, Mapping[str, Variant]] = {
    "positional_encoding": POSITIONAL_ENCODINGS,
    "attention": ATTENTIONS,
    "activation": ACTIVATIONS,
    "norm": NORMS,
    "mixer": MIXERS,
}
