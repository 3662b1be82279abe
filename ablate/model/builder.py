"""Builds the modules of a model from its configuration. Only this file looks variants up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from ablate.config import ModelConfig
from ablate.custom.loading import load_named_class
from ablate.errors import StudyError
from ablate.model.attention import AttentionMechanism, FullAttention
from ablate.model.attention_parts import ExcludeOwnValue, ValueEmbedding, ValueResidual
from ablate.model.embeddings import BigramEmbeddings, Embedding, Smear
from ablate.model.experts import MixtureOfExperts
from ablate.model.feed_forward import Activation, feed_forward
from ablate.model.latent_attention import attention_class
from ablate.model.layers import Dropout, optional, or_identity
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
from ablate.parts.attention import ATTENTIONS
from ablate.parts.feed_forward import ACTIVATIONS
from ablate.parts.initialization import factors
from ablate.parts.mixers import MIXERS
from ablate.parts.norms import NORM_POSITIONS, NORMS
from ablate.parts.positions import POSITIONAL_ENCODINGS
from ablate.parts.residual import HYPER_CONNECTIONS, LAYER_SKIPS
from ablate.parts.variant import Variants

Module = TypeVar("Module", bound=nn.Module)


class ModelBuilder:
    """Builds the modules of a model. Initial weights are drawn in the order of the calls."""

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        init: torch.Generator,
        random: torch.Generator,
        sources: Path | None = None,
    ) -> None:
        """Prepare a builder.

        Args:
            config: fields of the model.
            vocab_size: number of tokens in the vocabulary.
            init: draws initial weights, on the CPU, so that they are the same on every device.
            random: draws dropout masks, on the device of the model.
            sources: folder with the source files of the user's classes.
        """
        self.config = config
        self.vocab_size = vocab_size
        self.init = init
        self.random = random
        self.sources = sources
        # Draws a seed for each user's class, so that draws of the class do not change the weights
        # of other parts.
        self.custom_seeds = torch.Generator().manual_seed(init.initial_seed())
        self.number = 1  # number of the layer in its stack
        self.sublayers = 0  # sub-layers of the layer that have hyper-connections so far

    def layer_builder(self, config: ModelConfig) -> ModelBuilder:
        """A builder for a layer with its configuration, which shares the generators."""
        builder = ModelBuilder(config, self.vocab_size, self.init, self.random, self.sources)
        builder.custom_seeds = self.custom_seeds
        return builder

    def layers(self, depth: int) -> Iterator[ModelBuilder]:
        """A builder for each layer of a stack."""
        for number, layer in enumerate(self.config.layers(depth), 1):
            builder = self.layer_builder(layer)
            builder.number = number
            yield builder

    def embedding(self) -> Embedding:
        """An embedding matrix (V, d_model)."""
        scale = 1.0 if self.config.embedding_scale == 1 else None
        return Embedding(self.vocab_size, self.config.d_model, self.init, scale)

    def token_pairs(self) -> nn.ModuleList:
        """The modules that add information about the previous token to an embedding."""
        modules: list[nn.Module] = []
        c = self.config
        if c.smear:
            modules.append(Smear(c.d_model, self.init))
        if c.bigram_embeddings is not None:
            modules.append(BigramEmbeddings(c.bigram_embeddings, c.d_model, self.init))
        return nn.ModuleList(modules)

    def dropout(self) -> Dropout:
        """Dropout at P_drop."""
        return Dropout(self.config.dropout, self.random)

    def positions(self, causal: bool) -> PositionalEncoding:
        """The positional encoding of a stack; `AlternatingPositions` if its layers have several."""
        depth = self.config.depths[int(causal)]
        encodings = {}
        for layer in self.config.encodings(depth):
            encodings[layer.encoding_key] = self.layer_builder(layer)._encoding(causal)
        if len(encodings) == 1:
            return next(iter(encodings.values()))
        keys = list(encodings)
        indices = [keys.index(layer.encoding_key) for layer in self.config.layers(depth)]
        return AlternatingPositions(
            self.config, causal, self.init, list(encodings.values()), indices
        )

    def _encoding(self, causal: bool) -> PositionalEncoding:
        keywords = {"causal": causal, "init": self.init}
        return self._variant(
            "positional_encoding", POSITIONAL_ENCODINGS, PositionalEncoding, self.config, **keywords
        )

    def token_mixer(self, positions: PositionalEncoding, causal: bool) -> TokenMixer:
        """Self-attention with the positional encoding of its stack, or another mixer."""
        if self.config.has_self_attention:
            return self._self_attention(positions)
        if self.config.mixer not in MIXERS:
            # Draw the weights of attention and drop them, so that later modules start from the same
            # weights as in a model with attention.
            self._full_attention(self.config.n_heads)
            mixer = self._custom("mixer", TokenMixer, self.config)
            self._refuse_without_masks(mixer, "mixer")
            return mixer
        return self._variant("mixer", MIXERS, TokenMixer, self.config, causal, self.init)

    def _self_attention(self, positions: PositionalEncoding) -> MultiHeadAttention:
        mechanism = self._variant("attention", ATTENTIONS, AttentionMechanism, self.config)
        if positions.acts_on_scores and not mechanism.supports_bias:
            raise StudyError(
                f"attention={self.config.attention} adds no bias to its scores "
                f"(supports_bias is False), which positional_encoding="
                f"{self.config.positional_encoding} needs"
            )
        mechanism.reset_parameters(self.init)
        c = self.config
        make = attention_class(c, mechanism, positions)
        attention = make(c, c.n_heads, mechanism, self.init, self.random)
        if c.attention_convolution != "none":
            attention.add_convolution(c, self.init)
        if c.exclude_own_value:
            attention.on_heads = (ExcludeOwnValue(mechanism), *attention.on_heads)
        self._refuse_without_masks(attention, "attention")
        if c.value_embeddings != "none":
            attention.value_parts.append(ValueEmbedding(c, self.vocab_size, self.init))
        if c.value_residual:
            attention.value_parts.append(ValueResidual())
        return attention

    def _refuse_without_masks(self, mixer: TokenMixer, field: str) -> None:
        """Refuse `document_masks` with a mixer that ignores masks.

        Raises:
            StudyError: the mixer does not support query masks.
        """
        if self.config.document_masks and not mixer.supports_query_masks:
            raise StudyError(
                f"{field}={getattr(self.config, field)} cannot tell documents "
                "apart (supports_query_masks is False), which document_masks needs"
            )

    def cross_attention(self) -> MultiHeadAttention:
        """Attention over the source. It is always full attention: the field `attention` is about
        self-attention only.
        """
        return self._full_attention(self.config.cross_heads)

    def _full_attention(self, n_heads: int) -> MultiHeadAttention:
        mechanism = FullAttention(self.config)
        return MultiHeadAttention(self.config, n_heads, mechanism, self.init, self.random)

    def feed_forward(self) -> nn.Module:
        """The feed-forward network of a layer, or its mixture of experts."""
        if self.config.is_mixture:
            return MixtureOfExperts(self.config, self._network, self.init)
        return self._network()

    def _network(self) -> nn.Module:
        network = feed_forward(self.config, self.activation(), self.init, self.random)
        if self.config.feed_forward == "network":
            return network
        # A user's class replaces the network. The weights of the network are drawn even so: later
        # modules then start from the same weights in both models.
        return self._custom("feed_forward", nn.Module, self.config)

    def norm(self) -> nn.Module:
        """A normalization; the identity if the model has none."""
        if self.config.norm_position == "none":
            return nn.Identity()
        fields = {name: getattr(self.config, name) for name in NORMS[self.config.norm].fields}
        return self._variant("norm", NORMS, nn.Module, self.config.d_model, **fields)

    def activation(self) -> Activation:
        """The activation function, without the second projection of a gated activation."""
        return self._variant("activation", ACTIVATIONS, Activation)

    def residual(self, shares_norm: bool = False) -> Residual:
        """The residual connection around a sub-layer.

        Args:
            shares_norm: whether the input of the sub-layer is normalized already, so that it needs
                no norm.
        """
        c = self.config
        norm = or_identity(not shares_norm, self.norm)
        adds_input = c.residual and not c.streams
        arguments = (norm, adds_input, c.dropout, self.random, self._residual_scale(), c)
        residual = self._variant("norm_position", NORM_POSITIONS, Residual, *arguments)
        if isinstance(residual, PreNorm) and c.norm_scale == "depth":
            residual.factor = self.number**-0.5
        if isinstance(residual, SandwichNorm):
            residual.norm_after = self.norm()
        if c.streams:
            index = 2 * (self.number - 1) + self.sublayers
            self.sublayers += 1
            streams: HyperConnections = HYPER_CONNECTIONS[c.hyper_connections].make(
                residual, c.streams, c.d_model, index
            )
            return streams
        return residual

    def _residual_scale(self) -> nn.Parameter | float | None:
        """The factor of a sub-layer's output; None for no factor."""
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
    def has_normed_input(self) -> bool:
        """Whether the norm of embeddings replaces the norm before the layer's first sub-layer."""
        return self.number == 1 and self.config.replaces_first_norm

    def skip(self) -> nn.Module | None:
        """The module that changes the stream before the layer reads it; None for no change."""
        if self.config.stream_scale:
            return StreamScale()
        return optional(self.config.embedding_skip, EmbeddingSkip)

    def layer_skips(self) -> LayerSkips | None:
        """The module that adds states of earlier layers to the stream; None without skips."""
        skip = LAYER_SKIPS[self.config.layer_skips]
        passes = self.config.passes
        return optional(skip.count(passes), LayerSkips, skip, passes)

    def final_norm(self, depth: int) -> nn.Module:
        """The norm at the end of a stack; the identity if `norm_position` needs no norm there."""
        last = self.layer_builder(self.config.last_layer(depth))
        return or_identity(NORM_POSITIONS[last.config.norm_position].ends_with_norm, last.norm)

    def _variant(
        self,
        field: str,
        variants: Variants[Any],
        interface: type[Module],
        *args: Any,
        **keywords: Any,
    ) -> Module:
        """Build the variant that a field names: a built-in class or the user's."""
        value = getattr(self.config, field)
        if value not in variants:
            return self._custom(field, interface, *args, **keywords)
        module: Module = variants[value].make(*args, **keywords)
        return module

    def _custom(self, field: str, interface: type[Module], *args: Any, **keywords: Any) -> Module:
        """Build the user's class that a field names."""
        value = getattr(self.config, field)
        assert self.sources is not None, f"{field}={value} needs its source"
        cls = load_named_class(value, self.sources, interface)
        # A user's class may draw from torch's global generator, so seed this generator by the run.
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(int(torch.randint(2**62, (), generator=self.custom_seeds)))
            return cls(*args, **keywords)
