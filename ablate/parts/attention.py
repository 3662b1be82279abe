"""Attention (section 3.2 of the paper): its fields, the rules for them, and its cost (parameters,
multiplications, memory). The computation itself is in ablate/model/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from ablate.errors import Fault
from ablate.fields import SET, Aliases, Facts, Part, Share, choice, only
from ablate.parts.cost import BYTES, Cost, Projection, Tensors, Workload, linear_cost
from ablate.parts.positions import POSITIONAL_ENCODINGS, Positions, rotated_entries, rotation_fault
from ablate.parts.sizes import SECOND_LAYER, Cap, Heads, Size
from ablate.parts.variant import Variant, VariantName, Variants

LINEAR_CHUNK = 64  # tokens in a chunk of causal attention=linear
CONVOLUTION_WIDTH = 4  # tokens under the short convolutions of attention, Mamba 2 and DeltaNet


@dataclass(frozen=True)
class AttentionVariant(Variant):
    """Facts about an attention mechanism: what self-attention computes after projecting to queries,
    keys and values, and before the output projection. The class that implements the mechanism takes
    the configuration as its only argument.

    Functions of facts take `c`, the configuration of the layer.

    forms_scores: whether the mechanism computes a score for every pair of tokens.
    parameters: number of trained parameters outside of the projections.
    multiplications: number of multiplications in a forward pass, as a function of (c, work); None
        for a mechanism that needs the same number as full attention.
    activations: number of fp32 values per token that the backward pass needs, as a function of (c,
        causal, length of a sentence); None for a mechanism that needs the same number as full
        attention.
    fault: returns why a configuration cannot use the mechanism; None if it can.
    """

    forms_scores: bool = True
    parameters: Callable[[AttentionFields], int] = lambda c: 0
    multiplications: Callable[[AttentionFields, Workload], int] | None = None
    activations: Callable[[AttentionFields, bool, int], int] | None = None
    fault: Callable[[AttentionFields], Fault | None] = lambda c: None


def _linear_multiplications(c: AttentionFields, work: Workload) -> int:
    """Multiplications of phi(K)^T V and phi(Q) (phi(K)^T V); in a causal stack, also of the scores
    inside each chunk and the weighting of V by these scores.
    """
    columns = c.d_v + 1  # V, and a column of ones that gives the sum of the weights
    without_scores = 2 * c.n_heads * c.d_k * columns * work.tokens
    if not work.causal:
        return without_scores
    scores = min(work.scores, LINEAR_CHUNK * work.tokens)
    return without_scores + scores * c.n_heads * (c.d_k + columns)


def _linear_activations(c: AttentionFields, causal: bool, length: int) -> int:
    """In each head, queries before and after phi (2 d_k), keys before phi, after phi and after
    masking (3 d_k), values and weighted sums of values (2 d_v); in a causal stack, also the scores
    inside the chunk.
    """
    scores = min(length, LINEAR_CHUNK) if causal else 0
    return c.n_heads * (5 * c.d_k + 2 * c.d_v + scores)


def _differential_fault(c: AttentionFields) -> Fault | None:
    if c.n_heads % 2:
        return Fault(
            f"attention=differential takes heads in pairs, and h={c.n_heads} is odd",
            ("attention", "n_heads"),
        )
    if c.positional_encoding == "relative":
        return Fault(
            "attention=differential concatenates the values of two heads, so "
            "positional_encoding=relative, which adds to the values of each head, does not fit",
            ("attention", "positional_encoding"),
        )
    return None


ATTENTIONS = Variants(
    custom=AttentionVariant(),  # facts that are assumed about a user's class
    full=AttentionVariant("ablate.model.attention:FullAttention"),
    local=AttentionVariant("ablate.model.attention:LocalAttention"),
    differential=AttentionVariant(
        "ablate.model.attention:DifferentialAttention",
        fault=_differential_fault,
        parameters=lambda c: 4 * c.d_k,  # lambda_q1, lambda_k1, lambda_q2, lambda_k2
        # Each head attends to the values of both heads of its pair, with 2 d_v entries.
        multiplications=lambda c, work: work.scores * c.n_heads * (c.d_k + 2 * c.d_v),
        # Q and K; the values of both heads and the output, 2 d_v each, and the normalized
        # difference, d_v; the weights.
        activations=lambda c, causal, length: c.n_heads * (2 * c.d_k + 5 * c.d_v + length),
    ),
    linear=AttentionVariant(
        "ablate.model.attention:LinearAttention",
        forms_scores=False,
        multiplications=_linear_multiplications,
        activations=_linear_activations,
    ),
)

ATTENTION = Part(
    "attention",
    condition=lambda c: c.has_attention,
    condition_fields=("mixer", "architecture"),
)
SELF_ATTENTION = choice("mixer", "attention")
OVER_SOURCE = Part("attention over the source", {"architecture": ("encoder-decoder",)})
SOFTMAX = Part(
    "the softmax of scores",
    parents=(ATTENTION,),
    condition=lambda c: c.forms_scores,
    condition_fields=("attention", "architecture"),
)
LOCAL = Part("attention=local", {"attention": ("local",)}, (SELF_ATTENTION,))
LATENT = Part("latent attention", {"kv_rank": (SET,)}, (SELF_ATTENTION,))
CAUSAL = Part("causal attention", {"architecture": ("decoder-only",)}, (ATTENTION,))
ONE_STACK_ATTENTION = Part(
    "attention of one stack", {"architecture": ("decoder-only", "encoder-only")}, (ATTENTION,)
)
VALUE_EMBEDDINGS = Part(
    "a value embedding", {"value_embeddings": ("added", "gated")}, (ONE_STACK_ATTENTION,)
)
# Layer 2 or later of a model with one stack, with attention.
EARLIER_VALUES = Part("values of an earlier layer", parents=(SECOND_LAYER, ONE_STACK_ATTENTION))
# Variants that users may give as the value of `attention` or `mixer`, but which another field sets:
# name of the variant -> name of that field.
SHARED_KEYS = {"mla": "kv_rank", "gqa": "n_kv_heads", "mqa": "n_kv_heads"}
SELF_ATTENTION_FACTS = Facts(part=SELF_ATTENTION, per_layer=True)
ATTENTION_FACTS = Facts(part=ATTENTION, per_layer=True)
SOFTMAX_FACTS = Facts(part=SOFTMAX, per_layer=True)


class AttentionFields(Positions):
    """Fields of attention: self-attention, and cross-attention over the source."""

    n_kv_heads: Annotated[
        Heads | None,
        Facts(part=ATTENTION, is_exported=True, per_layer=True),
        Aliases("num_key_value_heads", "gqa", "mqa"),
    ] = None
    """number of key and value heads, each shared by a group of query heads (Ainslie et al., 2023);
    1 is multi-query attention (Shazeer, 2019); unset: h"""
    kv_rank: Annotated[Size | None, SELF_ATTENTION_FACTS, Aliases("mla", "kv_lora_rank")] = None
    """size of the latent vector from which keys and values are projected (MLA; DeepSeek-V2, 2024);
    the entries of keys that `rope` rotates are projected from x and shared by all heads; unset: no
    latent vector"""
    query_rank: Annotated[Size | None, Facts(part=LATENT, per_layer=True)] = None
    """size of the latent vector from which queries are projected; unset: no latent vector"""
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
    """largest distance in tokens, to either side, that `local` attention reaches"""
    attention_scale: Annotated[Literal["1/sqrt(d_k)", 1], only("1/sqrt(d_k)", 1), SOFTMAX_FACTS] = (
        "1/sqrt(d_k)"
    )
    """factor of the attention scores (section 3.2.1 of the paper)"""
    attention_bias: Annotated[
        Literal[False, True, "inputs", "output"],
        only(True, False, "inputs", "output"),
        ATTENTION_FACTS,
    ] = False
    """biases in the attention projections; `inputs`: of queries, keys and values only, as in Qwen2;
    `output`: of the output only, as in RecurrentGemma"""
    attention_gate: Annotated[Literal["none", "head", "element"], ATTENTION_FACTS] = "none"
    """sigmoid gate of the attention output, projected from the sub-layer's input: one number for
    each `head`, or one for each `element` (Qiu et al., 2025)"""
    attention_convolution: Annotated[
        Literal["none", "input", "qkv"],
        Facts(part=CAUSAL, per_layer=True),
    ] = "none"
    """convolution over the last 4 tokens, added to the `input` of attention or to queries, keys and
    values (`qkv`; Canon layers; Allen-Zhu, 2025)"""
    value_embeddings: Annotated[
        Literal["none", "added", "gated"], Facts(part=ONE_STACK_ATTENTION, per_layer=True)
    ] = "none"
    """learned vector for each token of the vocabulary, added to the values of attention: unchanged
    (`added`; modded-nanogpt), or times a gate of each head that is computed from x (`gated`;
    nanochat)"""
    value_embedding_rank: Annotated[
        Size | None,
        Facts(part=VALUE_EMBEDDINGS, per_layer=True),
    ] = None
    """size of value embeddings, which a matrix then brings to the width of the values; unset: the
    width of the values, without a matrix"""
    value_residual: Annotated[bool, Facts(part=EARLIER_VALUES, per_layer=True)] = False
    """mix the values with the values of the first layer that sets value_residual; the share is
    trained and begins at 1/2 (ResFormer; Zhou et al., 2024)"""
    exclude_own_value: Annotated[bool, SELF_ATTENTION_FACTS] = False
    """subtract from each head of self-attention its projection onto the value of the same token
    (exclusive self-attention; nanochat)"""
    attention_sinks: Annotated[bool, SOFTMAX_FACTS] = False
    """learned score of each head in the denominator of the softmax, so that a head can attend to
    nothing, as in gpt-oss"""
    score_cap: Annotated[Cap | None, SOFTMAX_FACTS, Aliases("attn_logit_softcapping")] = None
    """soft cap of attention scores, which become cap * tanh(score / cap), as in Gemma 2; unset:
    none"""
    qk_norm: Annotated[Literal["none", "head", "width", "unit"], ATTENTION_FACTS] = "none"
    """normalization of queries and keys before their positions: RMSNorm of each `head` with a gain
    for its entries (Qwen3), of the whole `width` of all heads (OLMo 2), or of each head without
    a gain (`unit`)"""

    @property
    def has_plain_keys_and_values(self) -> bool:
        """Whether keys and values are used as they are projected, apart from positions."""
        return (
            self.attention_convolution == "none"
            and self.qk_norm == "none"
            and self.value_embeddings == "none"
            and not self.value_residual
            and not self.exclude_own_value
        )

    def key_heads(self, heads: int) -> int:
        """Number of key and value heads of an attention with this number of query heads."""
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


def unset_equal_heads(values: dict[str, Any]) -> None:
    """Unset n_cross_heads and n_kv_heads where they equal n_heads, so that one model has one id.

    Args:
        values: the value of each field; changed in place.
    """
    if values["n_cross_heads"] == values["n_heads"]:
        values["n_cross_heads"] = None
    # An unset n_kv_heads means "equal to the number of query heads", which is another number in
    # cross-attention if n_cross_heads is set.
    if values["n_kv_heads"] == values["n_heads"] and values["n_cross_heads"] is None:
        values["n_kv_heads"] = None


def faults(c: AttentionFields) -> Iterator[Fault]:
    """Yield the faults of the self-attention of a layer."""
    fault = ATTENTIONS[c.attention].fault(c)
    if fault:
        yield fault
    if c.positional_encoding == "rope" and (fault := rotation_fault(c)):
        yield fault
    encoding = POSITIONAL_ENCODINGS[c.positional_encoding]
    if encoding.acts_in_attention and not ATTENTIONS[c.attention].forms_scores:
        yield Fault(
            f"positional_encoding={c.positional_encoding} acts inside of attention with scores, "
            f"and attention={c.attention} computes none",
            ("positional_encoding", "attention"),
        )
    if c.kv_rank is not None and c.n_kv_heads is not None:
        yield Fault(
            f"kv_rank={c.kv_rank} makes keys and values for all heads, so n_kv_heads must be "
            f"unset; it is {c.n_kv_heads}",
            ("kv_rank", "n_kv_heads"),
        )


def group_faults(c: AttentionFields, heads: Mapping[str, int]) -> Iterator[Fault]:
    """Yield a fault for each number of query heads that n_kv_heads does not divide.

    Args:
        c: the fields of the layer.
        heads: numbers of query heads, by the field that has them.
    """
    for name, number in heads.items():
        if c.n_kv_heads is not None and number % c.n_kv_heads:
            shown = "h" if name == "n_heads" else name
            yield Fault(
                f"n_kv_heads={c.n_kv_heads} does not divide {shown}={number}: groups of query "
                "heads must be equal",
                ("n_kv_heads", name),
            )


def layer_faults(layers: Iterable[AttentionFields]) -> Iterator[Fault]:
    """Yield the faults of layers with self-attention that do not fit each other."""
    widths = {value_width(layer) for layer in layers if layer.value_residual}
    if len(widths) > 1:
        yield Fault(
            "value_residual=true needs values of one width in all layers that set it; widths are "
            f"{' and '.join(map(str, sorted(widths)))}",
            ("value_residual", "n_kv_heads", "n_heads", "d_v"),
        )


# Costs


def cost(c: AttentionFields, work: Workload, vocab_size: int) -> Cost:
    """Cost of self-attention."""
    mechanism = ATTENTIONS[c.attention]
    layers = [*_value_layers(c), *_output_and_gate(c, c.n_heads)]
    if c.kv_rank is None:
        layers += [_queries(c, c.n_heads), *_keys_and_values(c, c.n_heads)]
    else:
        layers += _latent_projections(c)
    kernels = CONVOLUTION_WIDTH * convolved_width(c)
    others = mechanism.parameters(c) + kernels + value_table(c, vocab_size)
    others += int(c.value_residual)  # the trained share of the first layer's values
    others += _latent_gains(c) + _sinks_and_gains(c, c.n_heads, mechanism.forms_scores)
    if mechanism.multiplications is None:
        factor = POSITIONAL_ENCODINGS[c.positional_encoding].score_factor
        multiplications = factor * _multiplications_per_score(c, c.n_heads) * work.scores
    else:
        multiplications = mechanism.multiplications(c, work)
    multiplications += kernels * work.tokens
    inner = Cost(other_parameters=others, multiplications=multiplications)
    return linear_cost(layers, work.tokens) + inner


def cost_over_source(c: AttentionFields, source: int, target: int, scores: int) -> Cost:
    """Cost of cross-attention. Keys and values are projected once; queries, scores and output are
    computed each time that the layer is applied (`loops` times).

    Args:
        c: the fields of the layer.
        source: number of source tokens.
        target: number of target tokens.
        scores: number of scores of one head: the sum over sentence pairs of (length of the source)
            x (length of the target).
    """
    heads = c.cross_heads
    keys = linear_cost(_keys_and_values(c, heads), source)
    layers = [_queries(c, heads), *_output_and_gate(c, heads)]
    inner = Cost(
        other_parameters=_sinks_and_gains(c, heads, forms_scores=True),
        multiplications=c.loops * _multiplications_per_score(c, heads) * scores,
    )
    return keys + linear_cost(layers, c.loops * target) + inner


def _has_input_bias(c: AttentionFields) -> bool:
    return c.attention_bias in (True, "inputs")


def _queries(c: AttentionFields, heads: int) -> Projection:
    return Projection(c.d_model, heads * c.d_k, _has_input_bias(c))


def _keys_and_values(c: AttentionFields, heads: int) -> list[Projection]:
    sizes = [c.key_heads(heads) * size for size in (c.d_k, c.d_v)]
    return [Projection(c.d_model, size, _has_input_bias(c)) for size in sizes]


def _output_and_gate(c: AttentionFields, heads: int) -> list[Projection]:
    layers = [Projection(heads * c.d_v, c.d_model, c.attention_bias in (True, "output"))]
    if c.attention_gate != "none":
        layers.append(Projection(c.d_model, gate_width(c, heads), _has_input_bias(c)))
    return layers


def _multiplications_per_score(c: AttentionFields, heads: int) -> int:
    """Multiplications for one query and one key: in each head, d_k for the score and d_v for the
    weighted value.
    """
    return heads * (c.d_k + c.d_v)


def _sinks_and_gains(c: AttentionFields, heads: int, forms_scores: bool) -> int:
    """Number of sinks, plus number of gains in the normalization of queries and keys (qk_norm)."""
    widths = (heads + c.key_heads(heads)) * c.d_k
    gains = {"head": 2 * c.d_k, "width": widths}.get(c.qk_norm, 0)
    sinks = heads if c.attention_sinks and forms_scores else 0
    return sinks + gains


def gate_width(c: AttentionFields, heads: int) -> int:
    """Number of gates of the attention output for each token."""
    return {"none": 0, "head": heads, "element": heads * c.d_v}[c.attention_gate]


def convolved_width(c: AttentionFields) -> int:
    """Number of channels of the convolution in self-attention."""
    if c.attention_convolution == "qkv":
        return c.n_heads * c.d_k + c.kv_heads * (c.d_k + c.d_v)
    return c.d_model if c.attention_convolution == "input" else 0


def activation_bytes(c: AttentionFields, heads: int, tensors: Tensors) -> int:
    """Bytes per token that the backward pass of one attention sub-layer needs: the input, Q, K, V,
    the output of each head, the gates, and the scores if they are stored.
    """
    # Q, K, V and output. Attention repeats shared keys and values for each head.
    numbers = 2 * heads * (c.d_k + c.d_v)
    if c.attention_convolution != "none":
        numbers += convolved_width(c)
    total = tensors.operand_bytes * c.d_model
    total += (tensors.operand_bytes if tensors.on_gpu else BYTES) * numbers
    if c.qk_norm != "none":
        total += BYTES * 2 * heads * c.d_k
    if c.attention_gate != "none":
        total += BYTES * (gate_width(c, heads) + heads * c.d_v)
    if _stores_scores(c, tensors):
        # For each score its weight; with a cap also the tanh; with dropout the mask and the result.
        count = 1 + (c.score_cap is not None) + 2 * (c.attention_dropout > 0)
        total += BYTES * count * heads * tensors.length
    return total


def _stores_scores(c: AttentionFields, tensors: Tensors) -> bool:
    """Whether attention stores its scores as a tensor, which torch's fused attention avoids."""
    changes_scores = c.attention_dropout > 0 or c.score_cap is not None or c.attention_sinks
    changes_scores |= POSITIONAL_ENCODINGS[c.positional_encoding].adds_to_scores
    has_causal_window = tensors.causal and c.attention == "local"
    return changes_scores or c.d_k != c.d_v or has_causal_window


# Latent attention


def shared_entries(c: AttentionFields) -> int:
    """Number of rotated entries of a key, which all heads share in latent attention."""
    return rotated_entries(c) if c.positional_encoding == "rope" else 0


def note_on_shared_keys(layers: Iterable[AttentionFields]) -> str:
    """Note on latent attention whose keys are not projected from latent vectors, because `rope`
    rotates all their entries; empty if no layer is concerned.
    """
    for layer in layers:
        if layer.kv_rank is not None and shared_entries(layer) == layer.d_k:
            return (
                "rope rotates all entries of a key, and all heads share rotated entries, so only "
                "values are projected from the latent vectors of kv_rank; with a rope_fraction "
                "below 1, the entries of keys that are not rotated are also projected from them"
            )
    return ""


def _latent_projections(c: AttentionFields) -> list[Projection]:
    """The projections to queries and latent vectors, and from latent vectors to keys and values."""
    assert c.kv_rank is not None
    shared, has_bias = shared_entries(c), _has_input_bias(c)
    queries = [_queries(c, c.n_heads)]
    if c.query_rank is not None:
        down = Projection(c.d_model, c.query_rank, has_bias)
        queries = [down, Projection(c.query_rank, c.n_heads * c.d_k)]
    latents = Projection(c.d_model, c.kv_rank + shared, has_bias)
    up = Projection(c.kv_rank, c.n_heads * (c.d_k - shared + c.d_v))
    return [*queries, latents, up]


def _latent_gains(c: AttentionFields) -> int:
    return 0 if c.kv_rank is None else c.kv_rank + (c.query_rank or 0)


# Values


def value_width(c: AttentionFields) -> int:
    """Number of entries in the values of one token in self-attention."""
    return c.kv_heads * c.d_v


def value_table(c: AttentionFields, vocab_size: int) -> int:
    """Number of entries in the table of value embeddings."""
    if c.value_embeddings == "none":
        return 0
    return vocab_size * (c.value_embedding_rank or value_width(c))


def _value_layers(c: AttentionFields) -> list[Projection]:
    """The projection of value embeddings to the width of the values, and the projection of x to the
    gates of the value embeddings.
    """
    layers = []
    if c.value_embeddings != "none" and c.value_embedding_rank is not None:
        layers.append(Projection(c.value_embedding_rank, value_width(c)))
    if c.value_embeddings == "gated":
        layers.append(Projection(c.d_model, c.kv_heads))
    return layers
