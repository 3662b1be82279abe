"""Fields of the Transformer itself (section 3 of the paper), and of what came after it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from ablate.config.fields import Section
from ablate.config.plugins import VariantName

# Sizes are bounded so that a typing error is refused here and not by the machine's memory.
MAX_SIZE = 65_536

# What tells the order of tokens: added to the embeddings, or at work inside self-attention.
ADDED_POSITIONS = ("sinusoidal", "learned", "none")
ATTENDED_POSITIONS = ("rope", "relative", "t5", "alibi")

T5_BUCKETS = 32  # of distances, in positional_encoding=t5
LINEAR_CHUNK = 64  # tokens of a causal sequence that attention=linear takes at once


class ModelConfig(Section):
    """The shape of the model and the parts it is made of. Defaults are the paper's base model."""

    architecture: Literal["encoder-decoder", "decoder-only"] = Field(
        "encoder-decoder",
        description="encoder and decoder (3.1), or one causal stack over source and target as one sequence",
    )
    n_layers: int = Field(6, ge=1, le=256, description="N: number of layers in the encoder and in the decoder")
    encoder_layers: int | None = Field(None, ge=1, le=256, description="number of encoder layers; unset: N")
    decoder_layers: int | None = Field(None, ge=1, le=256, description="number of decoder layers; unset: N")
    d_model: int = Field(512, ge=2, le=MAX_SIZE, description="size of embeddings and of sub-layer outputs (3.1)")
    d_ff: int = Field(2048, ge=1, le=MAX_SIZE, description="inner size of the feed-forward network (3.3)")
    n_heads: int = Field(8, ge=1, le=1024, description="h: number of attention heads (3.2.2)")
    n_kv_heads: int | None = Field(
        None, ge=1, le=1024, description="number of key and value heads, each shared by a group of query heads "
        "(Ainslie et al., 2023); 1 is multi-query attention (Shazeer, 2019); unset: h"
    )  # fmt: skip
    n_cross_heads: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="number of heads in cross-attention, with unchanged d_k and d_v; unset: h",
    )
    d_k: int = Field(ge=1, le=MAX_SIZE, description="query and key size of a head; unset: d_model / h")
    d_v: int = Field(ge=1, le=MAX_SIZE, description="value size of a head; unset: d_model / h")
    dropout: float = Field(
        0.1, ge=0.0, lt=1.0, description="P_drop: dropout of sub-layer outputs and of embedding sums (5.4)"
    )
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="dropout of attention weights")
    activation_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="dropout after the feed-forward activation")
    positional_encoding: Annotated[str, VariantName(ADDED_POSITIONS + ATTENDED_POSITIONS)] = Field(
        "sinusoidal", description="positional encoding (3.5; row E of Table 3)"
    )
    relative_clip: int = Field(
        16, ge=1, le=MAX_SIZE, description="distance at which `relative` positions are clipped (Shaw et al., 2018)"
    )
    max_positions: int = Field(
        1024, ge=8, le=MAX_SIZE, description="maximum sequence length in tokens; size of a learned position table"
    )
    mixer: Literal["attention", "lstm"] = Field("attention", description="self-attention, or an LSTM in its place")
    attention: Annotated[str, VariantName(("full", "local", "linear"))] = Field(
        "full", description="kind of self-attention; cross-attention is always full"
    )
    attention_window: int = Field(
        16, ge=1, le=MAX_SIZE, description="number of tokens on either side that `local` attention reaches"
    )
    attention_scale: Literal["1/sqrt(d_k)", 1] = Field(
        "1/sqrt(d_k)", description="factor of the attention scores (3.2.1)"
    )
    attention_bias: bool = Field(False, description="biases in the attention projections")
    activation: Annotated[str, VariantName(("relu", "gelu", "swiglu"))] = Field(
        "relu",
        description="activation of the feed-forward network; a gated one uses an inner size of 2/3 d_ff",
    )
    norm: Annotated[str, VariantName(("layernorm", "rmsnorm"))] = Field(
        "layernorm", description="normalization (Ba et al., 2016; Zhang and Sennrich, 2019)"
    )
    norm_position: Literal["post", "pre", "none"] = Field(
        "post", description="normalization after the residual sum (3.1), before the sub-layer, or none"
    )
    residual: bool = Field(True, description="residual connections around sub-layers (3.1)")
    tied_embeddings: Literal["all", "decoder", "none"] = Field(
        "all", description="sharing of weights: source, target and output embedding (3.4), only the latter two, or none"
    )

    @field_validator("attention_scale", mode="before")
    @classmethod
    def _not_true(cls, value: Any) -> Any:
        if value is True:  # which Python holds to be 1
            raise ValueError("true is not allowed: must be 1/sqrt(d_k) or 1")
        return value

    @model_validator(mode="after")
    def _possible(self) -> ModelConfig:
        faults = [reason for holds, reason in _impossible(self) if holds]
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def depths(self) -> tuple[int, int]:
        """Layers of the encoder and of the decoder; a decoder-only model has no encoder."""
        decoder = self.decoder_layers or self.n_layers
        return (self.encoder_layers or self.n_layers if self.has_encoder else 0), decoder

    @property
    def has_encoder(self) -> bool:
        """Whether there are two stacks."""
        return self.architecture == "encoder-decoder"

    def places(self, source: int, target: int) -> int:
        """Positions that a pair of so many tokens takes with its marks: its sides stand side by side, or in a row."""
        return max(source, target) + 1 if self.has_encoder else source + target + 2

    def inner_width(self, gated: bool) -> int:
        """Inner width of the feed-forward network: 2/3 of d_ff where three matrices share what two have otherwise."""
        return max(1, round(2 * self.d_ff / 3)) if gated else self.d_ff

    @property
    def cross_heads(self) -> int:
        """Heads of attention over the source."""
        return self.n_cross_heads or self.n_heads


def _impossible(c: ModelConfig) -> list[tuple[bool, str]]:
    """What cannot work together, and why."""
    positions = f"positional_encoding={c.positional_encoding}"
    attended = c.positional_encoding in ATTENDED_POSITIONS
    return [
        (c.positional_encoding == "sinusoidal" and c.d_model % 2 == 1,
         f"d_model={c.d_model} is odd, and sinusoidal positions pair a sine with a cosine"),
        (c.positional_encoding == "rope" and c.d_k % 2 == 1,
         f"d_k={c.d_k} is odd, and rope rotates pairs of a head's entries"),
        (c.n_kv_heads is not None and (c.mixer == "attention" or c.n_cross_heads is None)
         and c.n_heads % c.n_kv_heads != 0,
         f"n_kv_heads={c.n_kv_heads} does not divide h={c.n_heads}: groups of query heads must be equal"),
        (c.n_kv_heads is not None and c.n_cross_heads is not None and c.has_encoder
         and c.n_cross_heads % c.n_kv_heads != 0,
         f"n_kv_heads={c.n_kv_heads} does not divide n_cross_heads={c.n_cross_heads}: groups of heads must be equal"),
        (attended and c.mixer == "lstm",
         f"{positions} acts inside self-attention, which mixer=lstm replaces"),
        (attended and c.attention == "linear",
         f"{positions} acts on scores between two tokens, which attention=linear never forms"),
        (c.mixer == "lstm" and c.has_encoder and c.d_model % 2 == 1,
         f"d_model={c.d_model} is odd, and the encoder's mixer=lstm gives half of it to each direction"),
        (c.tied_embeddings == "decoder" and not c.has_encoder,
         "tied_embeddings=decoder means all in a decoder-only model, which has no source embedding: all or none"),
    ]  # fmt: skip
