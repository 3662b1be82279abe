"""Fields of the model: the Transformer (section 3 of the paper) and later variants.

A field of a layer (`Facts.per_layer`) may hold a pattern in place of a value: a tuple, repeated
over the layers of each stack. The types below are those of a layer's own configuration, in which no
field is a pattern; `ModelConfig.layers` gives it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_validator,
)

from ablate.config.language_data import CausalSettings
from ablate.config.variants import (
    ACTIVATIONS,
    ATTENTIONS,
    MIXERS,
    NORM_POSITIONS,
    NORMS,
    POSITIONAL_ENCODINGS,
    VARIANTS,
)
from ablate.fields import (
    EXPORTED,
    PER_LAYER,
    SET,
    Facts,
    PositiveShare,
    Share,
    facts_of,
    only,
)
from ablate.formatting import plural, setting_text
from ablate.plugins import VariantName, without_digest

MAX_SIZE = 65_536
Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]
Depth = Annotated[int, Field(ge=1, le=256)]
Heads = Annotated[int, Field(ge=1, le=1024)]
Cap = Annotated[float, Field(gt=0.0, le=1e6)]

ROPE = Facts(needs={"positional_encoding": ("rope",)}, per_layer=True)
OF_NETWORK = {"feed_forward": ("network",)}
EXPERTS = Facts(needs={"n_experts": (SET,), **OF_NETWORK}, per_layer=True)
OF_ONE_STACK = {"architecture": ("decoder-only", "encoder-only")}
OF_MIXER = Facts(needs={"mixer": ("attention",)}, per_layer=True)
OF_ATTENTION = Facts(acts_in="attention", per_layer=True)
OF_SCORES = Facts(acts_in="attention scores", per_layer=True)
OF_VALUES = Facts(needs=OF_ONE_STACK, acts_in="attention", per_layer=True)


class ModelConfig(CausalSettings):
    """Sizes of the model and variants of its parts. Defaults are the paper's base model.

    Read a field of a layer from the configuration of a layer; here it may be a pattern.
    """

    architecture: Annotated[
        Literal["encoder-decoder", "decoder-only", "encoder-only"], EXPORTED
    ] = "encoder-decoder"
    """encoder and decoder (3.1); one causal stack, over source and target as one sequence; or the
    encoder alone"""
    n_layers: Annotated[
        Depth, Facts(symbol="N", column=1, latex="$N$", is_exported=True, is_reset=False)
    ] = 6
    """N: number of layers in the encoder and in the decoder"""
    encoder_layers: Annotated[
        Depth | None,
        Facts(needs={"architecture": ("encoder-decoder", "encoder-only")}, is_exported=True),
    ] = None
    """number of encoder layers; unset: N"""
    decoder_layers: Annotated[
        Depth | None,
        Facts(needs={"architecture": ("encoder-decoder", "decoder-only")}, is_exported=True),
    ] = None
    """number of decoder layers; unset: N"""
    loops: int = Field(1, ge=1, le=64)
    """how often the layers of a stack are passed, with the same weights (Dehghani et al., 2019)"""
    d_model: Annotated[int, Facts(column=2, latex=r"$d_{\mathrm{model}}$", is_exported=True)] = (
        Field(512, ge=2, le=MAX_SIZE)
    )
    """size of embeddings and of sub-layer outputs (3.1)"""
    d_ff: Annotated[
        Size,
        Facts(
            column=3, latex=r"$d_{\mathrm{ff}}$", is_exported=True, per_layer=True, needs=OF_NETWORK
        ),
    ] = 2048
    """inner size of the feed-forward network (3.3)"""
    n_heads: Annotated[
        Heads,
        Facts(
            symbol="h",
            column=4,
            latex="$h$",
            acts_in="heads",
            is_exported=True,
            is_reset=False,
            per_layer=True,
        ),
    ] = 8
    """h: number of attention heads (3.2.2)"""
    n_kv_heads: Annotated[
        Heads | None, Facts(acts_in="attention", is_exported=True, per_layer=True)
    ] = None
    """number of key and value heads, each shared by a group of query heads (Ainslie et al., 2023);
    1 is multi-query attention (Shazeer, 2019); unset: h"""
    kv_rank: Annotated[Size | None, OF_MIXER] = None
    """entries of the latent vector that keys and values are made from, beside those that `rope`
    rotates, which all heads share (MLA; DeepSeek-V2, 2024); unset: none"""
    query_rank: Annotated[
        Size | None, Facts(needs={"mixer": ("attention",), "kv_rank": (SET,)}, per_layer=True)
    ] = None
    """entries of the latent vector that queries are made from; unset: none"""
    n_cross_heads: Annotated[
        Heads | None,
        Facts(needs={"architecture": ("encoder-decoder",)}, is_exported=True, per_layer=True),
    ] = None
    """number of heads in cross-attention, with unchanged d_k and d_v; unset: h"""
    d_k: Annotated[
        Size, Facts(column=5, latex="$d_k$", acts_in="heads", is_exported=True, per_layer=True)
    ]
    """query and key size of a head; unset: d_model / h"""
    d_v: Annotated[
        Size, Facts(column=6, latex="$d_v$", acts_in="heads", is_exported=True, per_layer=True)
    ]
    """value size of a head; unset: d_model / h"""
    dropout: Annotated[
        Share, Facts(symbol="P_drop", column=7, latex="$P_{drop}$", is_exported=True)
    ] = 0.1
    """P_drop: dropout of sub-layer outputs and of embedding sums (5.4)"""
    attention_dropout: Annotated[
        Share, Facts(acts_in="attention scores", is_exported=True, per_layer=True)
    ] = 0.0
    """dropout of attention weights"""
    activation_dropout: Annotated[
        Share, Facts(needs=OF_NETWORK, is_exported=True, per_layer=True)
    ] = 0.0
    """dropout after the feed-forward activation"""
    positional_encoding: Annotated[str, VariantName(tuple(POSITIONAL_ENCODINGS)), PER_LAYER] = (
        "sinusoidal"
    )
    """positional encoding (3.5; row E of Table 3)"""
    relative_clip: Annotated[
        Size, Facts(needs={"positional_encoding": ("relative",)}, is_exported=True)
    ] = 16
    """distance at which `relative` positions are clipped (Shaw et al., 2018)"""
    rope_base: Annotated[float, ROPE] = Field(10_000.0, gt=1.0, le=1e12)
    """base of the wavelengths of `rope`: larger ones reach further"""
    rope_fraction: Annotated[PositiveShare, ROPE] = 1.0
    """share of a head's entries that `rope` rotates, the first ones, as in GPT-NeoX"""
    rope_scaling: Annotated[Literal["none", "linear", "yarn"], ROPE] = "none"
    """how `rope` is stretched by `rope_factor` beyond the lengths that it was made for: all
    positions (`linear`; Chen et al., 2023), or long wavelengths alone (`yarn`; Peng et al.,
    2024)"""
    rope_factor: Annotated[
        float,
        Facts(
            needs={"positional_encoding": ("rope",), "rope_scaling": ("linear", "yarn")},
            per_layer=True,
        ),
    ] = Field(2.0, gt=1.0, le=1024.0)
    """max_positions, divided by the length that the unscaled `rope` was made for"""
    max_positions: Annotated[int, EXPORTED] = Field(1024, ge=8, le=MAX_SIZE)
    """maximum sequence length in tokens; unset with `learned` positions: as many as the texts of
    training have, so that each of them is read"""
    mixer: Annotated[str, VariantName(tuple(MIXERS)), PER_LAYER] = "attention"
    """self-attention, or in its place an LSTM or a GRU, a recurrence with a matrix as its state, or
    a convolution"""
    attention: Annotated[str, VariantName(tuple(ATTENTIONS)), OF_MIXER] = "full"
    """kind of self-attention; cross-attention is always full"""
    attention_window: Annotated[
        Size, Facts(needs={"attention": ("local",), "mixer": ("attention",)}, per_layer=True)
    ] = 16
    """number of tokens on either side that `local` attention reaches"""
    attention_scale: Annotated[Literal["1/sqrt(d_k)", 1], only("1/sqrt(d_k)", 1), OF_SCORES] = (
        "1/sqrt(d_k)"
    )
    """factor of the attention scores (3.2.1)"""
    attention_bias: Annotated[
        Literal[False, True, "inputs", "output"],
        only(True, False, "inputs", "output"),
        OF_ATTENTION,
    ] = False
    """biases in the attention projections; `inputs`: of queries, keys and values only, as in Qwen2;
    `output`: of the output only, as in RecurrentGemma"""
    attention_gate: Annotated[Literal["none", "head", "element"], OF_ATTENTION] = "none"
    """sigmoid of a projection of the sub-layer's input, which multiplies what attention puts out:
    one number for each `head`, or one for each `element` (Qiu et al., 2025)"""
    attention_convolution: Annotated[
        Literal["none", "input", "qkv"],
        Facts(needs={"architecture": ("decoder-only",)}, acts_in="attention", per_layer=True),
    ] = "none"
    """a convolution over the last 4 tokens, added to the `input` of attention or to queries, keys
    and values (`qkv`; Canon layers; Allen-Zhu, 2025)"""
    value_embeddings: Annotated[Literal["none", "added", "gated"], OF_VALUES] = "none"
    """a vector for each token of the vocabulary, `added` to the values of attention
    (modded-nanogpt), or times a gate of each head that depends on x (`gated`; nanochat)"""
    value_embedding_rank: Annotated[
        Size | None,
        Facts(
            needs={"value_embeddings": ("added", "gated"), **OF_ONE_STACK},
            acts_in="attention",
            per_layer=True,
        ),
    ] = None
    """entries of these vectors, which a matrix brings to the width of the values; unset: that
    width, without a matrix"""
    value_residual: Annotated[bool, OF_VALUES] = False
    """values of attention that are mixed with those of the first layer that has this, by a trained
    share that begins at 1/2 (ResFormer; Zhou et al., 2024)"""
    exclude_own_value: Annotated[bool, OF_MIXER] = False
    """remove from what self-attention puts out its share along the token's own value (exclusive
    self-attention; nanochat)"""
    attention_sinks: Annotated[bool, OF_SCORES] = False
    """a learned score for each head in the sum of its softmax, for attention to nothing, as in
    gpt-oss"""
    score_cap: Annotated[Cap | None, OF_SCORES] = None
    """soft cap of attention scores, which become cap * tanh(score / cap), as in Gemma 2; unset:
    none"""
    qk_norm: Annotated[Literal["none", "head", "width", "unit"], OF_ATTENTION] = "none"
    """normalization of queries and keys before their positions: RMSNorm of each `head` with a gain
    for its entries (Qwen3), of the whole `width` of all heads (OLMo 2), or of each head without
    a gain (`unit`)"""
    feed_forward: Annotated[str, VariantName(("network", "none")), PER_LAYER] = "network"
    """feed-forward sub-layer: a network of two linear layers (3.3), gated or a mixture of experts
    by the fields below, or none, as in Mamba 2"""
    activation: Annotated[
        str, VariantName(tuple(ACTIVATIONS)), Facts(needs=OF_NETWORK, per_layer=True)
    ] = "relu"
    """activation of the feed-forward network; a gated one uses an inner size of 2/3 d_ff"""
    n_experts: Annotated[int | None, Facts(needs=OF_NETWORK, per_layer=True)] = Field(
        None, ge=2, le=1024
    )
    """experts of a mixture, each a feed-forward network of d_ff, in the place of one network
    (Shazeer et al., 2017); unset: none"""
    experts_per_token: Annotated[int, EXPERTS] = Field(2, ge=1, le=1024)
    """experts that each token is sent to"""
    shared_experts: Annotated[int, EXPERTS] = Field(0, ge=0, le=64)
    """further experts that every token passes (DeepSeek-V3)"""
    shared_expert_gate: Annotated[bool, EXPERTS] = False
    """a sigmoid of x as the factor of shared experts, as in Qwen3-Next"""
    expert_weights: Annotated[Literal["softmax", "softmax_of_chosen", "sigmoid"], EXPERTS] = (
        "softmax_of_chosen"
    )
    """weights of a token's experts: their share of the softmax over all (OLMoE), the softmax over
    the chosen ones (Mixtral), or sigmoids that are scaled to a sum of 1 (DeepSeek-V3)"""
    expert_scale: Annotated[float, EXPERTS] = Field(1.0, gt=0.0, le=1000.0)
    """factor of the weights of a token's experts (DeepSeek-V3)"""
    router_bias: Annotated[bool, EXPERTS] = False
    """bias of the scores of experts, as in gpt-oss"""
    expert_balance_by: Annotated[Literal["loss", "bias"], EXPERTS] = "loss"
    """whether uneven experts are part of the training loss, or a bias of each, which acts on the
    choice alone, is trained against them (DeepSeek-V3)"""
    expert_balance: Annotated[float, EXPERTS] = Field(0.01, ge=0.0, le=10.0)
    """weight in the training loss of how unevenly tokens are sent to experts (Switch Transformer;
    Fedus et al., 2022)"""
    feed_forward_bias: Annotated[bool, Facts(needs=OF_NETWORK, per_layer=True)] = True
    """biases in the feed-forward network (3.3, eq. 2)"""
    norm: Annotated[
        str,
        VariantName(tuple(NORMS)),
        Facts(needs={"norm_position": ("post", "pre", "sandwich", "output")}, per_layer=True),
    ] = "layernorm"
    """normalization (Ba et al., 2016; Zhang and Sennrich, 2019); `unit` is RMSNorm without a gain,
    and `dyt` a scaled tanh (Zhu et al., 2025)"""
    norm_position: Annotated[str, VariantName(tuple(NORM_POSITIONS)), PER_LAYER] = "post"
    """normalization after the residual sum (3.1), before the sub-layer, before and after it
    (`sandwich`, Gemma 2), of its output (OLMo 2), or none"""
    norm_scale: Annotated[
        Literal["none", "depth"],
        Facts(needs={"norm_position": ("pre", "sandwich")}, per_layer=True),
    ] = "none"
    """factor of the norm before a sub-layer: 1 / sqrt(i) in layer i by `depth` (LayerNorm Scaling;
    Sun et al., 2025)"""
    sublayers: Annotated[
        Literal["sequential", "parallel", "parallel_shared_norm"],
        Facts(needs=OF_ONE_STACK, per_layer=True),
    ] = "sequential"
    """whether the feed-forward network reads what attention has added, or both read the same
    stream, each with its norm (GPT-NeoX) or with a shared one (GPT-J)"""
    residual: Annotated[bool, PER_LAYER] = True
    """residual connections around sub-layers (3.1)"""
    residual_scale: Annotated[
        Literal["none", "depth", "scalar", "rezero", "layerscale"],
        Facts(needs={"residual": (True,)}, per_layer=True),
    ] = "none"
    """factor of what a sub-layer adds: 1 / sqrt(2 N) by `depth`, a trained number that begins at 1
    (`scalar`) or at 0 (ReZero; Bachlechner et al., 2021), or a trained vector that begins at 0.1
    (LayerScale; Touvron et al., 2021)"""
    stream_scale: Annotated[bool, Facts(needs=OF_ONE_STACK, per_layer=True)] = False
    """a trained number that begins at 1, which multiplies the residual stream before the layer
    (nanochat)"""
    layer_skips: Annotated[
        Literal["none", "unet", "dense", "middle"], Facts(needs=OF_ONE_STACK)
    ] = "none"
    """states of earlier layers, added to the stream by trained weights: in the second half of the
    layers those of the first half in reverse (`unet`, from 1), after each layer all before it
    (`dense`; DenseFormer; Pagliardini et al., 2024), or after the last layer the middle one
    (nanochat's backout)"""
    hyper_connections: Annotated[
        Literal["none", "static", "dynamic"], Facts(needs=OF_ONE_STACK)
    ] = "none"
    """several residual streams in the place of one, which each sub-layer reads, mixes and adds to
    by trained weights (`static`), or by weights that also depend on the streams (`dynamic`; Zhu
    et al., 2024)"""
    expansion_rate: Annotated[
        int, Facts(needs={"hyper_connections": ("static", "dynamic"), **OF_ONE_STACK})
    ] = Field(4, ge=1, le=64)
    """number of residual streams of hyper-connections"""
    embedding_skip: Annotated[bool, Facts(needs=OF_ONE_STACK, per_layer=True)] = False
    """the embeddings, added again before the layer: x becomes a x + b x0, with two trained numbers
    that begin at 1 and 0 (modded-nanogpt, nanochat)"""
    embedding_scale: Annotated[Literal["sqrt(d_model)", 1], only("sqrt(d_model)", 1), EXPORTED] = (
        "sqrt(d_model)"
    )
    """factor of looked-up embeddings (3.4); GPT-2 and Llama have none, which is 1"""
    tied_embeddings: Annotated[Literal["all", "decoder", "none"], EXPORTED] = "all"
    """shared weights: source, target and output embedding (3.4), target and output only, or none"""
    embedding_norm: Annotated[
        Literal[False, True, "first"],
        only(True, False, "first"),
        Facts(
            needs={
                "architecture": ("decoder-only", "encoder-only"),
                "norm_position": ("post", "pre", "sandwich", "output"),
            }
        ),
    ] = False
    """normalization of the sum of embeddings and positions in a model of one stack (Devlin et al.,
    2019; nanochat); `first`: in the place of the norm before the first sub-layer, as in
    ModernBERT"""
    smear: Annotated[bool, Facts(needs=OF_ONE_STACK)] = False
    """the embedding of the token before, added to each embedding by a gate and a trained number
    that begins at 0 (modded-nanogpt, nanochat)"""
    bigram_embeddings: Annotated[int | None, Facts(needs=OF_ONE_STACK)] = Field(
        None, ge=2, le=100_000_000
    )
    """rows of a second table of embeddings, which a hash of each token and the one before selects
    (modded-nanogpt, nanochat); unset: none"""
    initialization: Annotated[Literal["xavier", "normal", "orthogonal"], EXPORTED] = "xavier"
    """initial weights of matrices: uniform by their sizes (Glorot and Bengio, 2010) with embeddings
    from N(0, 1/d_model), all from one normal distribution, as in GPT-2, or orthogonal (Saxe et
    al., 2014), with embeddings as in `xavier`"""
    initialization_std: Annotated[
        float, Facts(needs={"initialization": ("normal",)}, is_exported=True)
    ] = Field(0.02, gt=0.0, le=10.0)
    """deviation of normal initial weights"""
    output_initialization: Annotated[Literal["same", "depth", "zero"], EXPORTED] = "same"
    """initial weights of the projections that add to the residual stream: as all others, divided by
    sqrt(2 N) (GPT-2), or zero"""
    parametrization: Literal["standard", "mup", "completep"] = "standard"
    """how initial weights, rates and logits follow the width: not at all, by muP (Yang et al.,
    2021), or with the depth by CompleteP (Dey et al., 2025), so that the best rate stays"""
    base_width: Annotated[Size, Facts(needs={"parametrization": ("mup", "completep")})] = 128
    """width at which muP is the standard parametrization"""
    base_depth: Annotated[Depth, Facts(needs={"parametrization": ("completep",)})] = 2
    """depth at which CompleteP is muP"""
    token_types: Annotated[
        int, Facts(needs={"architecture": ("encoder-only",)}, is_exported=True)
    ] = Field(0, ge=0, le=16)
    """number of token types of `encoder-only`; the vector of the first one is added to every
    embedding, as in BERT for a single text"""
    output_transform: Annotated[
        Literal[False, True, "without_bias"],
        only(True, False, "without_bias"),
        Facts(needs={"architecture": ("encoder-only",)}),
    ] = False
    """linear layer, activation and norm before the output matrix of `encoder-only`, as in BERT;
    `without_bias`: of the linear layer, as in ModernBERT"""
    output_bias: bool = False
    """bias of the logits, as in BERT, GPT-J and Phi"""
    logit_cap: Cap | None = None
    """soft cap of the logits, which become cap * tanh(logit / cap), as in Gemma 2; unset: none"""
    z_loss: Annotated[float, EXPORTED] = Field(0.0, ge=0.0, le=1.0)
    """weight in the training loss of the squared logarithm of the softmax's sum, which keeps logits
    small (PaLM; Chowdhery et al., 2022)"""

    @field_validator("*", mode="wrap")
    @classmethod
    def _pattern(cls, value: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        is_pattern = facts_of(cls)[str(info.field_name)].per_layer
        if not is_pattern or not isinstance(value, (list, tuple)):
            return check(value)
        if not value:
            raise ValueError("[] is not allowed: a pattern needs a value for each layer")
        return shortest_pattern(tuple(check(entry) for entry in value))

    @field_serializer("*", mode="wrap")
    def _written_pattern(self, value: Any, write: SerializerFunctionWrapHandler) -> Any:
        return value if value.__class__ is tuple else write(value)

    @model_validator(mode="after")
    def _check_compatible(self) -> ModelConfig:
        errors = list(_bad_patterns(self))
        for number, layer in enumerate(self.all_layers, 1):
            if errors:
                break  # further layers mostly repeat them
            place = f"layer {number}: " if self.patterns else ""
            errors += [place + error for error in _incompatible(layer)]
        errors += _without_attention(self)
        errors += _without_first_norm(self)
        errors += _unequal_values(self)
        if errors:
            raise ValueError("; ".join(errors))
        return self

    @property
    def patterns(self) -> dict[str, tuple[Any, ...]]:
        """The fields that alternate over the layers, and their values in turn."""
        # Values are read directly: plans of a thousand rows ask for this fifty times a row.
        return {
            name: value
            for name, value in self.__dict__.items()
            if value.__class__ is tuple and name in LAYER_FIELDS
        }

    def layers(self, depth: int) -> Iterator[Self]:
        """The configuration of each layer of a stack of this depth; no field of it is a pattern."""
        patterns = self.patterns
        period = min(depth, math.lcm(*map(len, patterns.values())))
        turns: list[Self] = []
        for i in range(period):
            own = {name: values[i % len(values)] for name, values in patterns.items()}
            turns.append(self.model_copy(update=own) if own else self)
        for i in range(depth):
            yield turns[i % period]

    @property
    def all_layers(self) -> list[Self]:
        """The configuration of each layer of the deepest stack; others have the first of them."""
        return list(self.layers(max(self.depths)))

    def trained_layers(self) -> Iterator[tuple[Self, bool, int]]:
        """The configuration of each layer with weights of its own, whether it is causal, and how
        often it is applied. Heads of future tokens are further layers like the last one.
        """
        for depth, causal in zip(self.depths, (False, True), strict=True):
            for layer in self.layers(depth):
                yield layer, causal, self.loops
        for _ in range(self.future_tokens):
            yield self.last_layer(self.depths[1]), True, 1

    def with_one_layer(self, **values: Any) -> Self:
        """The same with one layer in each stack, and these values, none of which is checked."""
        depths = {"n_layers": 1, "encoder_layers": None, "decoder_layers": None}
        return self.model_copy(update={**depths, **values})

    def last_layer(self, depth: int) -> Self:
        """The configuration of the last layer of a stack of this depth."""
        *_, last = self.layers(depth)
        return last

    def has_derived_heads(self, name: str) -> bool:
        """Whether d_k or d_v, given by its name, is d_model / h in every layer."""
        return all(
            getattr(layer, name) * layer.n_heads == self.d_model for layer in self.all_layers
        )

    @property
    def encoding_key(self) -> tuple[Any, ...]:
        """In the configuration of a layer: equal in layers that share a positional encoding."""
        names = POSITIONAL_ENCODINGS[self.positional_encoding].depends_on
        return (self.positional_encoding, *(getattr(self, name) for name in names))

    def encodings(self, depth: int) -> list[Self]:
        """The first layer of a stack with each positional encoding."""
        first: dict[tuple[Any, ...], Self] = {}
        for layer in self.layers(depth):
            first.setdefault(layer.encoding_key, layer)
        return list(first.values())

    @property
    def depths(self) -> tuple[int, int]:
        """Number of layers of the encoder and of the decoder; 0 for the one that is not there."""
        encoder = self.has_encoder * (self.encoder_layers or self.n_layers)
        return encoder, self.has_decoder * (self.decoder_layers or self.n_layers)

    @property
    def passes(self) -> int:
        """How many layers the deepest stack applies, one after another."""
        return max(self.depths) * self.loops

    @property
    def has_balanced_experts(self) -> bool:
        """Whether training evens out how often experts are chosen."""
        return self.largest_balance > 0

    @property
    def largest_balance(self) -> float:
        """The balance of experts in the loss if each token is sent to the same ones."""
        layers = self.trained_layers()
        return sum(passes * c.expert_balance * (c.n_experts or 0) for c, _, passes in layers)

    @property
    def has_encoder(self) -> bool:
        """Whether the model has a stack that is not causal."""
        return self.architecture != "decoder-only"

    @property
    def has_decoder(self) -> bool:
        """Whether the model has a causal stack."""
        return self.architecture != "encoder-only"

    @property
    def has_both_stacks(self) -> bool:
        """Whether the model has an encoder, and a decoder with attention over it."""
        return self.architecture == "encoder-decoder"

    def positions_needed(self, source: int, target: int) -> int:
        """Positions of a pair, with BOS and EOS: the longer side, or both as one sequence.

        A model without a decoder reads the source alone, without marks.
        """
        if not self.has_decoder:
            return source
        return max(source, target) + 1 if self.has_encoder else source + target + 2

    def inner_width(self, gated: bool) -> int:
        """Inner width of the feed-forward network: d_ff, or 2/3 of it if gated.

        A gated network has three matrices instead of two, and so keeps the number of weights
        (Shazeer, 2020).
        """
        return max(1, round(2 * self.d_ff / 3)) if gated else self.d_ff

    @property
    def streams(self) -> int:
        """Number of residual streams of hyper-connections; 0 without them."""
        has_many = self.hyper_connections != "none" and not self.has_both_stacks
        return has_many * self.expansion_rate

    @property
    def has_dynamic_streams(self) -> bool:
        """Whether the weights of hyper-connections depend on the streams."""
        return self.streams > 0 and self.hyper_connections == "dynamic"

    @property
    def kv_heads(self) -> int:
        """Number of key and value heads of self-attention."""
        return self.n_kv_heads or self.n_heads

    @property
    def cross_heads(self) -> int:
        """Number of heads of cross-attention."""
        return self.n_cross_heads or self.n_heads


LAYER_FIELDS = tuple(name for name, facts in facts_of(ModelConfig).items() if facts.per_layer)


def shortest_pattern(values: tuple[Any, ...]) -> Any:
    """The shortest pattern that repeats to these values; a single value where all are equal."""
    if values.count(values[0]) == len(values):
        return values[0]
    for length in range(2, len(values)):
        if len(values) % length == 0 and values == values[:length] * (len(values) // length):
            return values[:length]
    return values


def _bad_patterns(c: ModelConfig) -> Iterator[str]:
    """Yield the reasons why fields cannot alternate over these layers."""
    for name, values in c.patterns.items():
        if len(values) > max(c.depths):
            yield (
                f"{name}={setting_text(values)} has {len(values)} values for "
                f"{plural(max(c.depths), 'layer')}; to compare values, write them under `each` in "
                "a group of rows"
            )
    encodings = c.encodings(max(c.depths))
    for layer in encodings:
        name = layer.positional_encoding
        if len(encodings) > 1 and not POSITIONAL_ENCODINGS[name].may_alternate:
            yield (
                f"positional_encoding={name} is one for all layers of a stack: nothing that it "
                "depends on can alternate"
            )


def _unequal_values(c: ModelConfig) -> Iterator[str]:
    """Yield why layers cannot mix their values with those of the first one."""
    widths = set()
    for layer in c.all_layers:
        if layer.value_residual and layer.mixer == "attention":
            widths.add(layer.kv_heads * layer.d_v)
    if len(widths) > 1:
        yield (
            "value_residual=true needs values of one width in all layers; it is "
            f"{' and '.join(map(str, sorted(widths)))}"
        )


def _without_first_norm(c: ModelConfig) -> Iterator[str]:
    """Yield why the norm of embeddings cannot replace the one before the first sub-layer."""
    position = c.all_layers[0].norm_position
    if c.embedding_norm == "first" and position not in ("pre", "sandwich"):
        yield (
            "embedding_norm=first is in the place of the norm before the first sub-layer, which "
            f"needs norm_position=pre or sandwich there; it is {position}"
        )


def _without_attention(c: ModelConfig) -> Iterator[str]:
    """Yield positional encodings that act inside self-attention, where no layer has attention."""
    mixers: dict[str, set[str]] = {}
    for layer in c.all_layers:
        mixers.setdefault(layer.positional_encoding, set()).add(layer.mixer)
    for name, beside in mixers.items():
        encoding = POSITIONAL_ENCODINGS[name]
        if encoding.in_attention and "attention" not in beside and beside <= MIXERS.keys():
            yield (
                f"positional_encoding={name} acts inside self-attention, which "
                f"mixer={'/'.join(sorted(beside))} replaces"
            )


def _incompatible(c: ModelConfig) -> Iterator[str]:
    """Yield the reasons why settings of a layer cannot be combined."""
    for field, variants in VARIANTS.items():
        variant = variants.get(getattr(c, field))
        # A custom class, which is no entry, checks its requirements itself.
        if variant and (error := variant.error(c)):
            yield error
    uses_all_heads = c.mixer == "attention" or (c.has_both_stacks and c.n_cross_heads is None)
    if c.n_kv_heads is not None and uses_all_heads and c.n_heads % c.n_kv_heads:
        yield (
            f"n_kv_heads={c.n_kv_heads} does not divide h={c.n_heads}: groups of query heads must "
            f"be equal"
        )
    has_own_cross_heads = c.n_cross_heads is not None and c.has_both_stacks
    if c.n_kv_heads is not None and has_own_cross_heads and c.cross_heads % c.n_kv_heads:
        cross = f"n_cross_heads={c.n_cross_heads}"
        yield f"n_kv_heads={c.n_kv_heads} does not divide {cross}: groups of heads must be equal"
    if c.kv_rank is not None and c.n_kv_heads is not None and c.mixer == "attention":
        yield (
            f"kv_rank={c.kv_rank} makes keys and values for all heads, so n_kv_heads must be "
            f"unset; it is {c.n_kv_heads}"
        )
    if c.attention == "differential" and c.positional_encoding == "relative":
        yield (
            "attention=differential has the values of two heads in one, which "
            "positional_encoding=relative cannot add to"
        )
    if c.embedding_skip and c.stream_scale and not c.has_both_stacks:
        yield "stream_scale=true is part of embedding_skip=true: it has a number for the stream"
    if c.n_experts is not None and c.experts_per_token > c.n_experts:
        yield f"experts_per_token={c.experts_per_token} is more than n_experts={c.n_experts}"
    is_parallel = c.sublayers != "sequential" and not c.has_both_stacks
    if is_parallel and c.feed_forward == "none":
        yield f"sublayers={c.sublayers} needs a network, which feed_forward=none leaves out"
    if is_parallel and not c.residual:
        yield f"sublayers={c.sublayers} adds to one stream, which residual=false does not keep"
    if is_parallel and c.norm_position == "post":
        yield (
            f"sublayers={c.sublayers} has no place for norm_position=post, which norms the sum of "
            "one sub-layer"
        )
    shares_norm = is_parallel and c.sublayers == "parallel_shared_norm"
    if shares_norm and c.norm_position not in ("pre", "none"):
        yield (
            f"sublayers={c.sublayers} shares the norm before the sub-layers, so norm_position must "
            f"be pre; it is {c.norm_position}"
        )
    has_place = c.norm_position in ("pre", "sandwich", "output", "none")
    if c.streams and (is_parallel or not c.residual or not has_place):
        given = f"norm_position={without_digest(c.norm_position)}"
        if is_parallel:
            given = f"sublayers={c.sublayers}"
        elif not c.residual:
            given = "residual=false"
        yield (
            f"hyper_connections={c.hyper_connections} adds to several streams, one sub-layer after "
            f"another, and norms none of them; {given} does not fit"
        )
    if c.parametrization != "standard" and c.mixer != "attention":
        yield f"parametrization={c.parametrization} has no rules for mixer={c.mixer}"
    if c.parametrization == "completep" and c.residual_scale != "none":
        yield (
            f"parametrization=completep scales the branches by depth; residual_scale="
            f"{c.residual_scale} does so, too"
        )
    encoding = POSITIONAL_ENCODINGS[c.positional_encoding]
    forms_scores = ATTENTIONS[c.attention].forms_scores
    if encoding.in_attention and not forms_scores and c.mixer == "attention":
        yield (
            f"positional_encoding={c.positional_encoding} acts on attention scores, which "
            f"attention={c.attention} does not compute"
        )
    if c.tied_embeddings == "decoder" and not c.has_both_stacks:
        missing = "a decoder" if c.has_encoder else "an encoder"
        yield (
            f"tied_embeddings=decoder does not work without {missing}: there is one embedding; "
            f"use all or none"
        )
