"""Attention (section 3.2): its heads, its projections and what later work added to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from ablate.errors import Fault
from ablate.fields import SET, Aliases, Facts, Part, Share, chosen, only
from ablate.parts.cost import BYTES, Cost, Place, Projection, Tensors, projections
from ablate.parts.positions import POSITIONAL_ENCODINGS, Positions, odd_rotation, rotated_entries
from ablate.parts.sizes import SECOND_LAYER, Cap, Heads, Size
from ablate.parts.variant import Variant, VariantName, Variants

LINEAR_CHUNK = 64  # tokens that causal attention=linear processes at once
CONVOLUTION_WIDTH = 4  # tokens of the short convolutions of attention, Mamba 2 and DeltaNet


@dataclass(frozen=True)
class Mechanism(Variant):
    """A kind of self-attention between its projections, whose class is constructed with config.

    forms_scores: whether it computes a score for every pair of tokens.
    parameters: trained parameters beside the projections.
    products: multiplications, by (c, place); None: of scores.
    activations: fp32 numbers per token that the backward pass needs, by (c, causal, length of a
        sentence); None: of scores.
    fault: why a configuration cannot have it, or None.
    """

    forms_scores: bool = True
    parameters: Callable[[Attention], int] = lambda c: 0
    products: Callable[[Attention, Place], int] | None = None
    activations: Callable[[Attention, bool, int], int] | None = None
    fault: Callable[[Attention], Fault | None] = lambda c: None


def _linear_products(c: Attention, place: Place) -> int:
    """phi(K)^T V and phi(Q) times it; if causal, also the scores within a chunk."""
    sums = 2 * c.n_heads * c.d_k * (c.d_v + 1) * place.tokens
    scores = min(place.squares, LINEAR_CHUNK * place.tokens)
    return sums + place.causal * scores * c.n_heads * (c.d_k + c.d_v + 1)


def _unpaired_heads(c: Attention) -> Fault | None:
    if c.n_heads % 2:
        return Fault(
            f"attention=differential takes heads in pairs, and h={c.n_heads} is odd",
            ("attention", "n_heads"),
        )
    if c.positional_encoding == "relative":
        return Fault(
            "attention=differential has the values of two heads in one, which "
            "positional_encoding=relative cannot add to",
            ("attention", "positional_encoding"),
        )
    return None


ATTENTIONS = Variants(
    Mechanism(),
    full=Mechanism("ablate.model.attention:FullAttention"),
    local=Mechanism("ablate.model.attention:LocalAttention"),
    differential=Mechanism(
        "ablate.model.attention:DifferentialAttention",
        fault=_unpaired_heads,
        parameters=lambda c: 4 * c.d_k,
        # Each of two heads has the values of both.
        products=lambda c, place: place.squares * c.n_heads * (c.d_k + 2 * c.d_v),
        activations=lambda c, causal, length: c.n_heads * (2 * c.d_k + 5 * c.d_v + length),
    ),
    linear=Mechanism(
        "ablate.model.attention:LinearAttention",
        forms_scores=False,
        products=_linear_products,
        activations=lambda c, causal, length: (
            c.n_heads * (5 * c.d_k + 2 * c.d_v + causal * min(length, LINEAR_CHUNK))
        ),
    ),
)

ATTENTION = Part("attention", where=lambda c: c.has_attention, by=("mixer", "architecture"))
SELF_ATTENTION = chosen("mixer", "attention")
OVER_SOURCE = Part("attention over the source", {"architecture": ("encoder-decoder",)})
SOFTMAX = Part(
    "the softmax of scores",
    within=(ATTENTION,),
    where=lambda c: c.forms_scores,
    by=("attention", "architecture"),
)
LOCAL = Part("attention=local", {"attention": ("local",)}, (SELF_ATTENTION,))
LATENT = Part("latent attention", {"kv_rank": (SET,)}, (SELF_ATTENTION,))
CAUSAL = Part("causal attention", {"architecture": ("decoder-only",)}, (ATTENTION,))
VALUES = Part(
    "attention of one stack", {"architecture": ("decoder-only", "encoder-only")}, (ATTENTION,)
)
VALUE_EMBEDDINGS = Part("a value embedding", {"value_embeddings": ("added", "gated")}, (VALUES,))
# It is there where both of the parts around it are.
EARLIER_VALUES = Part("values of an earlier layer", within=(SECOND_LAYER, VALUES))
SHARED_KEYS = {"mla": "kv_rank", "gqa": "n_kv_heads", "mqa": "n_kv_heads"}  # by their short names
SELF_ATTENTION_FACTS = Facts(part=SELF_ATTENTION, per_layer=True)
ATTENTION_FACTS = Facts(part=ATTENTION, per_layer=True)
SOFTMAX_FACTS = Facts(part=SOFTMAX, per_layer=True)


class Attention(Positions):
    """Attention of a layer, over its own sequence and over the source."""

    n_kv_heads: Annotated[
        Heads | None,
        Facts(part=ATTENTION, is_exported=True, per_layer=True),
        Aliases("num_key_value_heads", "gqa", "mqa"),
    ] = None
    """number of key and value heads, each shared by a group of query heads (Ainslie et al., 2023);
    1 is multi-query attention (Shazeer, 2019); unset: h"""
    kv_rank: Annotated[Size | None, SELF_ATTENTION_FACTS, Aliases("mla", "kv_lora_rank")] = None
    """entries of the latent vector that keys and values are made from, beside those that `rope`
    rotates, which all heads share (MLA; DeepSeek-V2, 2024); unset: none"""
    query_rank: Annotated[Size | None, Facts(part=LATENT, per_layer=True)] = None
    """entries of the latent vector that queries are made from; unset: none"""
    n_cross_heads: Annotated[
        Heads | None,
        Facts(part=OVER_SOURCE, is_exported=True, per_layer=True),
    ] = None
    """number of heads in cross-attention, with unchanged d_k and d_v; unset: h"""
    attention_dropout: Annotated[Share, Facts(part=SOFTMAX, is_exported=True, per_layer=True)] = 0.0
    """dropout of attention weights"""
    attention: Annotated[
        str, VariantName(tuple(ATTENTIONS), fields=SHARED_KEYS), SELF_ATTENTION_FACTS
    ] = "full"
    """kind of self-attention; cross-attention is always full"""
    attention_window: Annotated[
        Size, Facts(part=LOCAL, per_layer=True), Aliases("sliding_window", "window_size")
    ] = 16
    """number of tokens on either side that `local` attention reaches"""
    attention_scale: Annotated[Literal["1/sqrt(d_k)", 1], only("1/sqrt(d_k)", 1), SOFTMAX_FACTS] = (
        "1/sqrt(d_k)"
    )
    """factor of the attention scores (3.2.1)"""
    attention_bias: Annotated[
        Literal[False, True, "inputs", "output"],
        only(True, False, "inputs", "output"),
        ATTENTION_FACTS,
    ] = False
    """biases in the attention projections; `inputs`: of queries, keys and values only, as in Qwen2;
    `output`: of the output only, as in RecurrentGemma"""
    attention_gate: Annotated[Literal["none", "head", "element"], ATTENTION_FACTS] = "none"
    """sigmoid of a projection of the sub-layer's input, which multiplies what attention puts out:
    one number for each `head`, or one for each `element` (Qiu et al., 2025)"""
    attention_convolution: Annotated[
        Literal["none", "input", "qkv"],
        Facts(part=CAUSAL, per_layer=True),
    ] = "none"
    """a convolution over the last 4 tokens, added to the `input` of attention or to queries, keys
    and values (`qkv`; Canon layers; Allen-Zhu, 2025)"""
    value_embeddings: Annotated[
        Literal["none", "added", "gated"], Facts(part=VALUES, per_layer=True)
    ] = "none"
    """a vector for each token of the vocabulary, `added` to the values of attention
    (modded-nanogpt), or times a gate of each head that depends on x (`gated`; nanochat)"""
    value_embedding_rank: Annotated[
        Size | None,
        Facts(part=VALUE_EMBEDDINGS, per_layer=True),
    ] = None
    """entries of these vectors, which a matrix brings to the width of the values; unset: that
    width, without a matrix"""
    value_residual: Annotated[bool, Facts(part=EARLIER_VALUES, per_layer=True)] = False
    """values of attention that are mixed with those of the first layer that has this, by a trained
    share that begins at 1/2 (ResFormer; Zhou et al., 2024)"""
    exclude_own_value: Annotated[bool, SELF_ATTENTION_FACTS] = False
    """remove from what self-attention puts out its share along the token's own value (exclusive
    self-attention; nanochat)"""
    attention_sinks: Annotated[bool, SOFTMAX_FACTS] = False
    """a learned score for each head in the sum of its softmax, for attention to nothing, as in
    gpt-oss"""
    score_cap: Annotated[Cap | None, SOFTMAX_FACTS, Aliases("attn_logit_softcapping")] = None
    """soft cap of attention scores, which become cap * tanh(score / cap), as in Gemma 2; unset:
    none"""
    qk_norm: Annotated[Literal["none", "head", "width", "unit"], ATTENTION_FACTS] = "none"
    """normalization of queries and keys before their positions: RMSNorm of each `head` with a gain
    for its entries (Qwen3), of the whole `width` of all heads (OLMo 2), or of each head without
    a gain (`unit`)"""

    @property
    def has_plain_keys(self) -> bool:
        """Whether nothing changes keys and values after they are made, but their positions."""
        changes_values = self.value_embeddings != "none" or self.value_residual
        changes_values |= self.exclude_own_value
        return (
            self.attention_convolution == "none" and self.qk_norm == "none" and not changes_values
        )

    def key_heads(self, heads: int) -> int:
        """Number of key and value heads of an attention with so many query heads."""
        return self.n_kv_heads or heads

    @property
    def kv_heads(self) -> int:
        """Number of key and value heads of self-attention."""
        return self.key_heads(self.n_heads)

    @property
    def cross_heads(self) -> int:
        """Number of heads of cross-attention."""
        return self.n_cross_heads or self.n_heads


# Rules


def unset_repetitions(values: dict[str, Any]) -> None:
    """Unset numbers of heads that are h, among the values of all fields."""
    if values["n_cross_heads"] == values["n_heads"]:
        values["n_cross_heads"] = None
    # With other heads in cross-attention, the number of key heads is not that of both attentions.
    if values["n_kv_heads"] == values["n_heads"] and values["n_cross_heads"] is None:
        values["n_kv_heads"] = None


def faults(c: Attention) -> Iterator[Fault]:
    """Yield why a layer cannot have its self-attention."""
    fault = ATTENTIONS[c.attention].fault(c)
    if fault:
        yield fault
    if c.positional_encoding == "rope" and (fault := odd_rotation(c)):
        yield fault
    encoding = POSITIONAL_ENCODINGS[c.positional_encoding]
    if encoding.acts_in_attention and not ATTENTIONS[c.attention].forms_scores:
        yield Fault(
            f"positional_encoding={c.positional_encoding} acts on attention scores, which "
            f"attention={c.attention} does not compute",
            ("positional_encoding", "attention"),
        )
    if c.kv_rank is not None and c.n_kv_heads is not None:
        yield Fault(
            f"kv_rank={c.kv_rank} makes keys and values for all heads, so n_kv_heads must be "
            f"unset; it is {c.n_kv_heads}",
            ("kv_rank", "n_kv_heads"),
        )


def faults_of_groups(c: Attention, heads: Mapping[str, int]) -> Iterator[Fault]:
    """Yield why query heads, by the field that has their number, cannot share those of keys."""
    for name, number in heads.items():
        if c.n_kv_heads is not None and number % c.n_kv_heads:
            shown = "h" if name == "n_heads" else name
            yield Fault(
                f"n_kv_heads={c.n_kv_heads} does not divide {shown}={number}: groups of query "
                "heads must be equal",
                ("n_kv_heads", name),
            )


def faults_of_model(layers: Iterable[Attention]) -> Iterator[Fault]:
    """Yield why layers with self-attention cannot mix their values with those of the first one."""
    widths = {value_width(layer) for layer in layers if layer.value_residual}
    if len(widths) > 1:
        yield Fault(
            "value_residual=true needs values of one width in all layers; it is "
            f"{' and '.join(map(str, sorted(widths)))}",
            ("value_residual", "n_kv_heads", "n_heads", "d_v"),
        )


# Costs


def cost(c: Attention, place: Place, vocab_size: int) -> Cost:
    """The cost of self-attention."""
    mechanism = ATTENTIONS[c.attention]
    layers = [*_value_layers(c), *_output_and_gate(c, c.n_heads)]
    if c.kv_rank is None:
        layers += [_queries(c, c.n_heads), *_keys_and_values(c, c.n_heads)]
    else:
        layers += _latent_projections(c)
    kernels = CONVOLUTION_WIDTH * convolved_width(c)
    others = mechanism.parameters(c) + kernels + value_table(c, vocab_size) + c.value_residual
    others += _latent_gains(c) + _vectors(c, c.n_heads, mechanism.forms_scores)
    if mechanism.products is None:
        factor = POSITIONAL_ENCODINGS[c.positional_encoding].score_factor
        products = factor * _score_products(c, c.n_heads) * place.squares
    else:
        products = mechanism.products(c, place)
    inner = Cost(others=others, products=products + kernels * place.tokens)
    return projections(layers, place.tokens) + inner


def cost_over_source(c: Attention, source: int, target: int, pairs: int) -> Cost:
    """The cost of attention over the source, whose keys and values are projected once, and of all
    its loops.

    Args:
        c: the fields of the layer.
        source: tokens of the source.
        target: tokens of the target.
        pairs: sum of the products of both lengths.
    """
    heads = c.cross_heads
    keys = projections(_keys_and_values(c, heads), source)
    layers = [_queries(c, heads), *_output_and_gate(c, heads)]
    scores = c.loops * _score_products(c, heads) * pairs
    inner = Cost(others=_vectors(c, heads, forms_scores=True), products=scores)
    return keys + projections(layers, c.loops * target) + inner


def _has_input_bias(c: Attention) -> bool:
    return c.attention_bias in (True, "inputs")


def _queries(c: Attention, heads: int) -> Projection:
    return Projection(c.d_model, heads * c.d_k, _has_input_bias(c))


def _keys_and_values(c: Attention, heads: int) -> list[Projection]:
    sizes = [c.key_heads(heads) * size for size in (c.d_k, c.d_v)]
    return [Projection(c.d_model, size, _has_input_bias(c)) for size in sizes]


def _output_and_gate(c: Attention, heads: int) -> list[Projection]:
    output = Projection(heads * c.d_v, c.d_model, c.attention_bias in (True, "output"))
    return [output, Projection(c.d_model, gate_width(c, heads), _has_input_bias(c))]


def _score_products(c: Attention, heads: int) -> int:
    """For one query and one key: d_k for the score and d_v for the weighted value, in each head."""
    return heads * (c.d_k + c.d_v)


def _vectors(c: Attention, heads: int, forms_scores: bool) -> int:
    """The sinks, and the gains of queries and keys."""
    widths = (heads + c.key_heads(heads)) * c.d_k
    gains = {"head": 2 * c.d_k, "width": widths}.get(c.qk_norm, 0)
    return gains + heads * (c.attention_sinks and forms_scores)


def gate_width(c: Attention, heads: int) -> int:
    """Numbers in the gate of one attention's output, for each token."""
    return {"none": 0, "head": heads, "element": heads * c.d_v}[c.attention_gate]


def convolved_width(c: Attention) -> int:
    """Channels of the convolution in self-attention."""
    if c.attention_convolution == "qkv":
        return c.n_heads * c.d_k + c.kv_heads * (c.d_k + c.d_v)
    return (c.attention_convolution == "input") * c.d_model


def activation_bytes(c: Attention, heads: int, tensors: Tensors) -> int:
    """Bytes for a token: the input, Q, K, V, the heads, their gate and the scores."""
    numbers = 2 * heads * (c.d_k + c.d_v)
    if c.attention_convolution != "none":
        numbers += convolved_width(c)
    projected = tensors.operand * c.d_model
    projected += (tensors.operand if tensors.on_gpu else BYTES) * numbers
    normalized = (c.qk_norm != "none") * 2 * heads * c.d_k
    gate = gate_width(c, heads)
    gated = (gate > 0) * (gate + heads * c.d_v)
    are_formed = c.attention_dropout > 0 or c.score_cap is not None or c.attention_sinks
    are_formed |= POSITIONAL_ENCODINGS[c.positional_encoding].adds_to_scores
    are_formed |= c.d_k != c.d_v or (tensors.causal and c.attention == "local")
    # The weights, the cap's tanh, and dropout's mask and result; fused attention has none.
    count = 1 + (c.score_cap is not None) + 2 * (c.attention_dropout > 0)
    scores = are_formed * count * heads * tensors.length
    return projected + BYTES * (normalized + gated + scores)


# Latent attention


def shared_entries(c: Attention) -> int:
    """Entries of a key that all heads share in latent attention: those that are rotated."""
    return (c.positional_encoding == "rope") * rotated_entries(c)


def note_on_shared_keys(layers: Iterable[Attention]) -> str:
    """A note on latent vectors that make values alone, because all of a key is rotated."""
    for layer in layers:
        if layer.kv_rank is not None and shared_entries(layer) == layer.d_k:
            return (
                "rope rotates all entries of a key, which all heads then share, so that the latent "
                "vectors of kv_rank make values alone; a rope_fraction below 1 leaves entries to "
                "them"
            )
    return ""


def _latent_projections(c: Attention) -> list[Projection]:
    """Queries, latent vectors, and the keys and values that are made from them."""
    assert c.kv_rank is not None
    shared, has_bias = shared_entries(c), _has_input_bias(c)
    queries = [_queries(c, c.n_heads)]
    if c.query_rank is not None:
        down = Projection(c.d_model, c.query_rank, has_bias)
        queries = [down, Projection(c.query_rank, c.n_heads * c.d_k)]
    latents = Projection(c.d_model, c.kv_rank + shared, has_bias)
    up = Projection(c.kv_rank, c.n_heads * (c.d_k - shared + c.d_v))
    return [*queries, latents, up]


def _latent_gains(c: Attention) -> int:
    return 0 if c.kv_rank is None else c.kv_rank + (c.query_rank or 0)


# Values


def value_width(c: Attention) -> int:
    """Numbers in the values of one token in self-attention."""
    return c.kv_heads * c.d_v


def value_table(c: Attention, vocab_size: int) -> int:
    """Numbers in the table of value embeddings."""
    entries = c.value_embedding_rank or value_width(c)
    return vocab_size * entries * (c.value_embeddings != "none")


def _value_layers(c: Attention) -> list[Projection]:
    """The matrix behind value embeddings, and their gates."""
    if c.value_embeddings == "none":
        return []
    widen = Projection(c.value_embedding_rank or 0, value_width(c))
    return [widen, Projection(c.d_model, c.kv_heads * (c.value_embeddings == "gated"))]
