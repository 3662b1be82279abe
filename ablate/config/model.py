"""Fields of the model: the Transformer (section 3 of the paper) and later variants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ablate.config.fields import EXPORTED, Facts, Section
from ablate.config.plugins import VariantName
from ablate.config.variants import (
    ACTIVATIONS,
    ATTENTIONS,
    NORMS,
    POSITIONAL_ENCODINGS,
    VARIANTS,
    Attention,
    PositionalEncoding,
)

# Upper bound of sizes, so that a typing mistake is an error here and does not exhaust the memory.
MAX_SIZE = 65_536


class ModelConfig(Section):
    """Sizes of the model and variants of its parts. Defaults are the paper's base model."""

    architecture: Annotated[
        Literal["encoder-decoder", "decoder-only", "encoder-only"], EXPORTED
    ] = Field(
        "encoder-decoder",
        description="encoder and decoder (3.1); one causal stack, over source and target as one "
        "sequence; or the encoder alone",
    )
    n_layers: Annotated[
        int, Facts(symbol="N", column=1, latex="$N$", is_exported=True, is_reset=False)
    ] = Field(6, ge=1, le=256, description="N: number of layers in the encoder and in the decoder")
    encoder_layers: Annotated[
        int | None,
        Facts(needs={"architecture": ("encoder-decoder", "encoder-only")}, is_exported=True),
    ] = Field(None, ge=1, le=256, description="number of encoder layers; unset: N")
    decoder_layers: Annotated[
        int | None,
        Facts(needs={"architecture": ("encoder-decoder", "decoder-only")}, is_exported=True),
    ] = Field(None, ge=1, le=256, description="number of decoder layers; unset: N")
    d_model: Annotated[int, Facts(column=2, latex=r"$d_{\mathrm{model}}$", is_exported=True)] = (
        Field(
            512, ge=2, le=MAX_SIZE, description="size of embeddings and of sub-layer outputs (3.1)"
        )
    )
    d_ff: Annotated[int, Facts(column=3, latex=r"$d_{\mathrm{ff}}$", is_exported=True)] = Field(
        2048, ge=1, le=MAX_SIZE, description="inner size of the feed-forward network (3.3)"
    )
    n_heads: Annotated[
        int,
        Facts(symbol="h", column=4, latex="$h$", acts_in="heads", is_exported=True, is_reset=False),
    ] = Field(8, ge=1, le=1024, description="h: number of attention heads (3.2.2)")
    n_kv_heads: Annotated[int | None, Facts(acts_in="attention", is_exported=True)] = Field(
        None,
        ge=1,
        le=1024,
        description="number of key and value heads, each shared by a group of query heads "
        "(Ainslie et al., 2023); 1 is multi-query attention (Shazeer, 2019); unset: h",
    )
    n_cross_heads: Annotated[
        int | None, Facts(needs={"architecture": ("encoder-decoder",)}, is_exported=True)
    ] = Field(
        None,
        ge=1,
        le=1024,
        description="number of heads in cross-attention, with unchanged d_k and d_v; unset: h",
    )
    d_k: Annotated[
        int,
        Facts(column=5, latex="$d_k$", acts_in="heads", is_exported=True),
    ] = Field(ge=1, le=MAX_SIZE, description="query and key size of a head; unset: d_model / h")
    d_v: Annotated[
        int,
        Facts(column=6, latex="$d_v$", acts_in="heads", is_exported=True),
    ] = Field(ge=1, le=MAX_SIZE, description="value size of a head; unset: d_model / h")
    dropout: Annotated[
        float, Facts(symbol="P_drop", column=7, latex="$P_{drop}$", is_exported=True)
    ] = Field(
        0.1,
        ge=0.0,
        lt=1.0,
        description="P_drop: dropout of sub-layer outputs and of embedding sums (5.4)",
    )
    attention_dropout: Annotated[float, Facts(acts_in="attention scores", is_exported=True)] = (
        Field(0.0, ge=0.0, lt=1.0, description="dropout of attention weights")
    )
    activation_dropout: Annotated[float, EXPORTED] = Field(
        0.0, ge=0.0, lt=1.0, description="dropout after the feed-forward activation"
    )
    positional_encoding: Annotated[str, VariantName(tuple(POSITIONAL_ENCODINGS))] = Field(
        "sinusoidal", description="positional encoding (3.5; row E of Table 3)"
    )
    relative_clip: Annotated[
        int, Facts(needs={"positional_encoding": ("relative",)}, is_exported=True)
    ] = Field(
        16,
        ge=1,
        le=MAX_SIZE,
        description="distance at which `relative` positions are clipped (Shaw et al., 2018)",
    )
    max_positions: Annotated[int, EXPORTED] = Field(
        1024,
        ge=8,
        le=MAX_SIZE,
        description="maximum sequence length in tokens; size of a learned position table",
    )
    mixer: Literal[
        "attention",
        "lstm",
        "retention",
        "gated_linear_attention",
        "mamba2",
        "deltanet",
        "gated_deltanet",
        "short_convolution",
    ] = Field(
        "attention",
        description="self-attention, or in its place an LSTM, a recurrence with a matrix as its "
        "state, or a convolution",
    )
    attention: Annotated[
        str, VariantName(tuple(ATTENTIONS)), Facts(needs={"mixer": ("attention",)})
    ] = Field("full", description="kind of self-attention; cross-attention is always full")
    attention_window: Annotated[
        int, Facts(needs={"attention": ("local",), "mixer": ("attention",)})
    ] = Field(
        16,
        ge=1,
        le=MAX_SIZE,
        description="number of tokens on either side that `local` attention reaches",
    )
    attention_scale: Annotated[Literal["1/sqrt(d_k)", 1], Facts(acts_in="attention scores")] = (
        Field("1/sqrt(d_k)", description="factor of the attention scores (3.2.1)")
    )
    attention_bias: Annotated[bool, Facts(acts_in="attention", is_exported=True)] = Field(
        False, description="biases in the attention projections"
    )
    activation: Annotated[str, VariantName(tuple(ACTIVATIONS))] = Field(
        "relu",
        description="activation of the feed-forward network; a gated one uses an inner size of 2/3 "
        "d_ff",
    )
    feed_forward_bias: Annotated[bool, EXPORTED] = Field(
        True, description="biases in the feed-forward network (3.3, eq. 2)"
    )
    norm: Annotated[
        str, VariantName(tuple(NORMS)), Facts(needs={"norm_position": ("post", "pre")})
    ] = Field("layernorm", description="normalization (Ba et al., 2016; Zhang and Sennrich, 2019)")
    norm_position: Literal["post", "pre", "none"] = Field(
        "post",
        description="normalization after the residual sum (3.1), before the sub-layer, or none",
    )
    residual: bool = Field(True, description="residual connections around sub-layers (3.1)")
    embedding_scale: Annotated[Literal["sqrt(d_model)", 1], EXPORTED] = Field(
        "sqrt(d_model)",
        description="factor of looked-up embeddings (3.4); GPT-2 and Llama have none, which is 1",
    )
    tied_embeddings: Annotated[Literal["all", "decoder", "none"], EXPORTED] = Field(
        "all",
        description="shared weights: source, target and output embedding (3.4), target and output "
        "only, or none",
    )
    embedding_norm: Annotated[
        bool, Facts(needs={"architecture": ("encoder-only",)}, is_exported=True)
    ] = Field(
        False,
        description="normalization of the sum of embeddings and positions, in `encoder-only` "
        "(Devlin et al., 2019)",
    )
    token_types: Annotated[
        int, Facts(needs={"architecture": ("encoder-only",)}, is_exported=True)
    ] = Field(
        0,
        ge=0,
        le=16,
        description="number of token types of `encoder-only`; the vector of the first one is added "
        "to every embedding, as in BERT for a single text",
    )
    output_transform: Annotated[
        bool, Facts(needs={"architecture": ("encoder-only",)}, is_exported=True)
    ] = Field(
        False,
        description="linear layer, activation and norm before the output matrix of `encoder-only`, "
        "as in BERT",
    )
    output_bias: Annotated[
        bool, Facts(needs={"architecture": ("encoder-only",)}, is_exported=True)
    ] = Field(False, description="bias of the logits of `encoder-only`, as in BERT")

    @field_validator("attention_scale", "embedding_scale", mode="before")
    @classmethod
    def _not_true(cls, value: Any, info: ValidationInfo) -> Any:
        if value is True:  # True == 1 in Python, so Literal accepts it
            default = cls.model_fields[str(info.field_name)].default
            raise ValueError(f"true is not allowed: must be {default} or 1")
        return value

    @model_validator(mode="after")
    def _check_compatible(self) -> ModelConfig:
        errors = list(_incompatible(self))
        if errors:
            raise ValueError("; ".join(errors))
        return self

    @property
    def depths(self) -> tuple[int, int]:
        """Number of layers of the encoder (0 in a decoder-only model) and of the decoder (0 in an
        encoder-only one).
        """
        encoder, decoder = (
            self.encoder_layers or self.n_layers,
            self.decoder_layers or self.n_layers,
        )
        return (encoder if self.has_encoder else 0), (decoder if self.has_decoder else 0)

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
        """Positions that a pair of these lengths needs, with BOS and EOS: the longer side, or both
        as one sequence.

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
    def cross_heads(self) -> int:
        """Number of heads of cross-attention."""
        return self.n_cross_heads or self.n_heads


def _incompatible(c: ModelConfig) -> Iterator[str]:
    """Yield the reasons why settings cannot be combined."""
    for field, variants in VARIANTS.items():
        variant = variants.get(
            getattr(c, field)
        )  # None for a custom class, which checks its requirements itself
        error = variant.error(c) if variant else None
        if error:
            yield error
    uses_all_heads = c.mixer == "attention" or c.n_cross_heads is None
    if c.n_kv_heads is not None and uses_all_heads and c.n_heads % c.n_kv_heads:
        yield (
            f"n_kv_heads={c.n_kv_heads} does not divide h={c.n_heads}: groups of query heads must "
            f"be equal"
        )
    if (
        c.n_kv_heads is not None
        and c.n_cross_heads is not None
        and c.has_both_stacks
        and c.n_cross_heads % c.n_kv_heads
    ):
        cross = f"n_cross_heads={c.n_cross_heads}"
        yield f"n_kv_heads={c.n_kv_heads} does not divide {cross}: groups of heads must be equal"
    if POSITIONAL_ENCODINGS.get(c.positional_encoding, PositionalEncoding()).in_attention:
        positions = f"positional_encoding={c.positional_encoding}"
        if c.mixer != "attention":
            yield f"{positions} acts inside self-attention, which mixer={c.mixer} replaces"
        if not ATTENTIONS.get(c.attention, Attention()).forms_scores:
            yield (
                f"{positions} acts on attention scores, which attention={c.attention} does not "
                f"compute"
            )
    if c.tied_embeddings == "decoder" and not c.has_both_stacks:
        missing = "a decoder" if c.has_encoder else "an encoder"
        yield (
            f"tied_embeddings=decoder does not work without {missing}: there is one embedding; "
            f"use all or none"
        )
