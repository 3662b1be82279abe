"""Fields that several parts read: the stacks, their depths and widths, and the heads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ablate.fields import EXPORTED, Aliases, Facts, Part, Section, Share

MAX_SIZE = 65_536
Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]
Depth = Annotated[int, Field(ge=1, le=256)]
Heads = Annotated[int, Field(ge=1, le=1024)]
Cap = Annotated[float, Field(gt=0.0, le=1e6)]


ENCODER = Part("the encoder", {"architecture": ("encoder-decoder", "encoder-only")})
DECODER = Part("the decoder", {"architecture": ("encoder-decoder", "decoder-only")})
DECODER_ONLY = Part("a decoder-only model", {"architecture": ("decoder-only",)})
ENCODER_ONLY = Part("an encoder-only model", {"architecture": ("encoder-only",)})
ONE_STACK = Part("a model of one stack", {"architecture": ("decoder-only", "encoder-only")})
OPEN_DEPTH = Part(
    "stacks of N layers",
    condition=lambda c: c.has_open_depth,
    condition_fields=("architecture", "encoder_layers", "decoder_layers"),
    absent="but there are none",
)
SECOND_LAYER = Part(
    "a second layer",
    condition=lambda c: c.passes > 1 or c.future_tokens > 0,
    condition_fields=("n_layers", "encoder_layers", "decoder_layers", "loops"),
    absent="which is not there",
)
NETWORK = Part("the feed-forward network", {"feed_forward": ("network",)})
HEADS = Part(
    "a mixer with heads",
    condition=lambda c: c.has_heads,
    condition_fields=("mixer", "architecture"),
)


class Sizes(Section):
    """Fields of the stacks, of their depths and widths, and of the heads of mixers."""

    architecture: Annotated[
        Literal["encoder-decoder", "decoder-only", "encoder-only"], EXPORTED
    ] = "encoder-decoder"
    """stacks of the model: encoder and decoder (3.1); one causal stack, which reads source and
    target as one sequence; or only an encoder"""
    n_layers: Annotated[
        Depth,
        Facts(symbol="N", column=1, part=OPEN_DEPTH, is_exported=True, is_reset=False),
        Aliases("num_hidden_layers", "depth"),
    ] = 6
    """N: number of layers in the encoder and in the decoder"""
    encoder_layers: Annotated[
        Depth | None,
        Facts(part=ENCODER, is_exported=True),
    ] = None
    """number of encoder layers; unset: N"""
    decoder_layers: Annotated[
        Depth | None,
        Facts(part=DECODER, is_exported=True),
    ] = None
    """number of decoder layers; unset: N"""
    loops: int = Field(1, ge=1, le=64)
    """number of times that the layers of a stack are applied, with the same weights (Dehghani et
    al., 2019)"""
    d_model: Annotated[
        int,
        Facts(column=2, is_exported=True),
        Aliases("hidden", "hidden_size", "hidden_dim", "embed_dim", "n_embd", "dim", "width"),
    ] = Field(512, ge=2, le=MAX_SIZE)
    """size of embeddings and of sub-layer outputs (3.1)"""
    d_ff: Annotated[
        Size,
        Facts(column=3, part=NETWORK, is_exported=True, per_layer=True),
        Aliases("dim_feedforward", "ffn_dim", "intermediate_size"),
    ] = 2048
    """inner size of the feed-forward network (3.3)"""
    n_heads: Annotated[
        Heads,
        Facts(
            symbol="h",
            column=4,
            part=HEADS,
            is_exported=True,
            is_reset=False,
            per_layer=True,
        ),
        Aliases("head", "nhead", "num_attention_heads"),
    ] = 8
    """h: number of attention heads (3.2.2)"""
    d_k: Annotated[
        Size,
        Facts(column=5, part=HEADS, is_exported=True, per_layer=True),
        Aliases("head_dim", "d_head", "d_state", "state_size"),
    ]
    """query and key size of a head; unset: d_model / h"""
    d_v: Annotated[Size, Facts(column=6, part=HEADS, is_exported=True, per_layer=True)]
    """value size of a head; unset: d_model / h"""
    dropout: Annotated[Share, Facts(symbol="P_drop", column=7, is_exported=True)] = 0.1
    """P_drop: dropout of sub-layer outputs and of embedding sums (5.4)"""

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

    @property
    def depths(self) -> tuple[int, int]:
        """Number of layers of the encoder and of the decoder; 0 without the stack."""
        encoder = (self.encoder_layers or self.n_layers) if self.has_encoder else 0
        decoder = (self.decoder_layers or self.n_layers) if self.has_decoder else 0
        return encoder, decoder

    @property
    def passes(self) -> int:
        """Number of layers that the deepest stack applies one after another, loops included."""
        return max(self.depths) * self.loops

    @property
    def has_open_depth(self) -> bool:
        """Whether n_layers is the depth of a stack."""
        is_open = self.has_encoder and self.encoder_layers is None
        return is_open or (self.has_decoder and self.decoder_layers is None)
