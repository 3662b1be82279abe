"""Makes the parts of a model from its configuration: every variant is looked up here, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from ablate.config import ModelConfig
from ablate.errors import StudyError
from ablate.model.attention import AttentionMechanism, FullAttention
from ablate.model.attention_parts import without_own_value
from ablate.model.experts import MixtureOfExperts
from ablate.model.feed_forward import Activation, feed_forward
from ablate.model.latent_attention import AbsorbedLatentAttention, LatentAttention, is_absorbed
from ablate.model.layers import Dropout, Embedding, optional, or_identity
from ablate.model.multi_head import MultiHeadAttention
from ablate.model.positions import AlternatingPositions, PositionalEncoding
from ablate.model.residual import (
    EmbeddingSkip,
    HyperConnections,
    LayerSkips,
    PreNorm,
    Residual,
    SandwichNorm,
    StreamScale,
)
from ablate.model.token_mixer import TokenMixer
from ablate.model.token_pairs import BigramEmbeddings, Smear
from ablate.model.values import ValueEmbedding, ValueResidual
from ablate.own.loading import load_class
from ablate.own.reference import parse_reference, without_digest
from ablate.parts.attention import ATTENTIONS
from ablate.parts.feed_forward import ACTIVATIONS
from ablate.parts.initialization import factors
from ablate.parts.mixers import MIXERS
from ablate.parts.norms import NORM_POSITIONS, NORMS
from ablate.parts.positions import POSITIONAL_ENCODINGS
from ablate.parts.residual import HYPER_CONNECTIONS, LAYER_SKIPS
from ablate.parts.variant import Variant, Variants

Module = TypeVar("Module", bound=nn.Module)


class ModelBuilder:
    """Makes the parts of one model. Their initial weights are drawn in the order of the calls."""

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        init: torch.Generator,
        random: torch.Generator,
        sources: Path | None = None,
    ) -> None:
        """Keep what all parts have in common.

        `init` draws initial weights on the CPU, so that every device starts from the same ones;
        `random` draws dropout masks on the device that the model will run on.
        """
        self.config = config
        self.vocab_size = vocab_size
        self.init = init
        self.random = random
        self.sources = sources
        # Seeds for classes of a user's own, so that all other parts keep their initial weights.
        self.own_seeds = torch.Generator().manual_seed(init.initial_seed())
        self.number = 1  # of the layer in its stack
        self.sublayers = 0  # of the layer that have a residual stream already

    def of_layer(self, config: ModelConfig) -> ModelBuilder:
        """A builder of parts by a layer's own configuration, which draws after this one."""
        builder = ModelBuilder(config, self.vocab_size, self.init, self.random, self.sources)
        builder.own_seeds = self.own_seeds
        return builder

    def layers(self, depth: int) -> Iterator[ModelBuilder]:
        """A builder for each layer of a stack."""
        for number, layer in enumerate(self.config.layers(depth), 1):
            builder = self.of_layer(layer)
            builder.number = number
            yield builder

    def embedding(self) -> Embedding:
        """A matrix (V, d_model)."""
        scale = 1.0 if self.config.embedding_scale == 1 else None
        return Embedding(self.vocab_size, self.config.d_model, self.init, scale)

    def token_pairs(self) -> nn.ModuleList:
        """What embeddings take from the token before."""
        parts: list[nn.Module] = []
        c = self.config
        if c.smear:
            parts.append(Smear(c.d_model, self.init))
        if c.bigram_embeddings is not None:
            parts.append(BigramEmbeddings(c.bigram_embeddings, c.d_model, self.init))
        return nn.ModuleList(parts)

    def dropout(self) -> Dropout:
        """Dropout at P_drop."""
        return Dropout(self.config.dropout, self.random)

    def positions(self, causal: bool) -> PositionalEncoding:
        """The positional encoding of a stack, or those that its layers have in turn."""
        depth = self.config.depths[int(causal)]
        encodings = {}
        for layer in self.config.encodings(depth):
            encodings[layer.encoding_key] = self.of_layer(layer)._encoding(causal)
        if len(encodings) == 1:
            return next(iter(encodings.values()))
        keys = list(encodings)
        turns = [keys.index(layer.encoding_key) for layer in self.config.layers(depth)]
        return AlternatingPositions(self.config, causal, self.init, list(encodings.values()), turns)

    def _encoding(self, causal: bool) -> PositionalEncoding:
        keywords = {"causal": causal, "init": self.init}
        return self._variant(
            "positional_encoding", POSITIONAL_ENCODINGS, PositionalEncoding, self.config, **keywords
        )

    def token_mixer(self, positions: PositionalEncoding, causal: bool) -> TokenMixer:
        """Self-attention with the positional encoding of its stack, or the mixer in its place."""
        if self.config.has_self_attention:
            return self._self_attention(positions)
        if parse_reference(self.config.mixer):
            self._full_attention(self.config.n_heads)  # draws, so that later parts are as beside it
            mixer = self._variant("mixer", MIXERS, TokenMixer, self.config)
            self._refuse_without_masks(mixer, "mixer")
            return mixer
        return self._variant("mixer", MIXERS, TokenMixer, self.config, causal, self.init)

    def _self_attention(self, positions: PositionalEncoding) -> MultiHeadAttention:
        mechanism = self._variant("attention", ATTENTIONS, AttentionMechanism, self.config)
        if positions.acts_on_scores and not mechanism.supports_bias:
            raise StudyError(
                f"attention={without_digest(self.config.attention)} adds no bias to its scores "
                f"(supports_bias is False), which positional_encoding="
                f"{without_digest(self.config.positional_encoding)} needs"
            )
        mechanism.reset_parameters(self.init)
        c = self.config
        kind = MultiHeadAttention
        if c.kv_rank is not None:
            absorbed = is_absorbed(c, mechanism, positions)
            kind = AbsorbedLatentAttention if absorbed else LatentAttention
        attention = kind(c, c.n_heads, mechanism, self.init, self.random)
        if c.attention_convolution != "none":
            attention.add_convolution(c, self.init)
        if c.exclude_own_value:
            attention.on_heads = (without_own_value, *attention.on_heads)
        self._refuse_without_masks(attention, "attention")
        if self.config.value_embeddings != "none":
            values = ValueEmbedding(self.config, self.vocab_size, self.init)
            attention.value_parts.append(values)
        if self.config.value_residual:
            attention.value_parts.append(ValueResidual())
        return attention

    def _refuse_without_masks(self, mixer: TokenMixer, field: str) -> None:
        """Refuse a mixer that cannot tell documents apart where they have masks."""
        if self.config.document_masks and not mixer.supports_query_masks:
            raise StudyError(
                f"{field}={without_digest(getattr(self.config, field))} cannot tell documents "
                "apart (supports_query_masks is False), which document_masks needs"
            )

    def cross_attention(self) -> MultiHeadAttention:
        """Attention over the source."""
        # Always that of the paper: the field `attention` is for self-attention.
        return self._full_attention(self.config.cross_heads)

    def _full_attention(self, n_heads: int) -> MultiHeadAttention:
        mechanism = FullAttention(self.config)
        return MultiHeadAttention(self.config, n_heads, mechanism, self.init, self.random)

    def feed_forward(self) -> nn.Module:
        """The feed-forward network of a layer, or its mixture of experts."""
        if self.config.n_experts is None:
            return self._network()
        return MixtureOfExperts(self.config, self._network, self.init)

    def _network(self) -> nn.Module:
        network = feed_forward(self.config, self.activation(), self.init, self.random)
        if self.config.feed_forward == "network":
            return network
        # The network has drawn, so that later parts are as beside it.
        return self._variant("feed_forward", Variants(Variant()), nn.Module, self.config)

    def norm(self) -> nn.Module:
        """A normalization; the identity where the model has none."""
        if self.config.norm_position == "none":
            return nn.Identity()
        fields = {name: getattr(self.config, name) for name in NORMS[self.config.norm].fields}
        return self._variant("norm", NORMS, nn.Module, self.config.d_model, **fields)

    def activation(self) -> Activation:
        """The activation function, without the gate of a gated one."""
        return self._variant("activation", ACTIVATIONS, Activation)

    def residual(self, shares_norm: bool = False) -> Residual:
        """The residual stream around a sub-layer, which may share the norm of another one."""
        c = self.config
        norm = or_identity(not shares_norm, self.norm)
        adds = c.residual and not c.streams
        parts = (norm, adds, c.dropout, self.random, self._residual_scale(), c)
        residual = self._variant("norm_position", NORM_POSITIONS, Residual, *parts)
        if isinstance(residual, PreNorm) and c.norm_scale == "depth":
            residual.factor = self.number**-0.5
        if isinstance(residual, SandwichNorm):
            residual.norm_after = self.norm()
        if c.streams:
            place = 2 * (self.number - 1) + self.sublayers
            self.sublayers += 1
            streams: HyperConnections = HYPER_CONNECTIONS[c.hyper_connections].make(
                residual, c.streams, c.d_model, place
            )
            return streams
        return residual

    def _residual_scale(self) -> nn.Parameter | float | None:
        """The factor of what a sub-layer adds to the stream; None for none."""
        c = self.config
        if c.residual and c.residual_scale == "depth":
            return float((2 * c.passes) ** -0.5)
        if c.residual and c.parametrization == "completep":
            return factors(c).residual
        initial = {"scalar": (1, 1.0), "rezero": (1, 0.0), "layerscale": (c.d_model, 0.1)}
        if not c.residual or c.residual_scale not in initial:
            return None
        size, value = initial[c.residual_scale]
        return nn.Parameter(torch.full((size,), value))

    @property
    def has_norm_of_embeddings(self) -> bool:
        """Whether the norm of embeddings is that before the first sub-layer of this layer."""
        return self.number == 1 and self.config.embedding_norm == "first"

    def skip(self) -> nn.Module | None:
        """What a layer does to the stream before it reads it."""
        if self.config.stream_scale:
            return StreamScale()
        return optional(self.config.embedding_skip, EmbeddingSkip)

    def layer_skips(self) -> LayerSkips | None:
        """The states of earlier layers that the stream takes up again."""
        skip = LAYER_SKIPS[self.config.layer_skips]
        passes = self.config.passes
        return optional(skip.count(passes), LayerSkips, skip, passes)

    def final_norm(self, depth: int) -> nn.Module:
        """The norm at the end of a stack, where its last layer needs one; else the identity."""
        last = self.of_layer(self.config.last_layer(depth))
        return or_identity(NORM_POSITIONS[last.config.norm_position].at_end, last.norm)

    def _variant(
        self,
        field: str,
        variants: Variants[Any],
        interface: type[Module],
        *args: Any,
        **keywords: Any,
    ) -> Module:
        """The variant that a field names, or a class of the user's, called with these arguments."""
        value = getattr(self.config, field)
        plugin = parse_reference(value)
        if plugin is None:
            made: Module = variants[value].make(*args, **keywords)
            return made
        assert self.sources is not None, f"{field}={value} needs its source"
        cls = load_class(plugin, self.sources, interface)
        # A plug-in may draw from torch's generator, which must follow from the run's seed.
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(int(torch.randint(2**62, (), generator=self.own_seeds)))
            return cls(*args, **keywords)
