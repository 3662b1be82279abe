"""Any model that CTranslate2 (OpenNMT's inference library) can hold, through its own specifications.

Positions that are added to embeddings are written as a table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.config import ModelConfig
from ablate.config.variants import POSITIONAL_ENCODINGS
from ablate.data.corpus import TOKENIZER
from ablate.data.tokenizer import BOS, EOS, UNK
from ablate.export.source import Affine, Source
from ablate.model.norms import EPS
from ablate.model.positions import T5_DISTANCE, sinusoids

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swiglu": "SWISH"}


def write(source: Source, folder: Path) -> None:
    """Write the model, its configuration, its vocabulary and the tokenizer."""
    spec = _translator(source) if source.config.has_encoder else _generator(source)
    marks = source.vocabulary()
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = marks[UNK], marks[BOS], marks[EOS]
    spec.config.layer_norm_epsilon = EPS
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    (folder / TOKENIZER).write_bytes(source.tokenizer.model)


def _translator(source: Source) -> Any:
    """An encoder-decoder."""
    from ctranslate2.specs import TransformerEncoderSpec, TransformerSpec

    c, vocabulary = source.config, source.vocabulary()
    encoder = TransformerEncoderSpec(c.depths[0], c.n_heads, **_parts(c))
    of_source = "embedding" if c.tied_embeddings == "all" else "source_embedding"
    encoder.embeddings[0].weight = source.weights[f"{of_source}.weight"]
    _stack(encoder, source, "encoder", "source_positions")
    spec = TransformerSpec(encoder, _decoder(source, "target_positions"))
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.decoder_start_token = vocabulary[BOS]
    spec.config.add_source_eos = True
    return spec


def _generator(source: Source) -> Any:
    """A decoder-only model."""
    from ctranslate2.specs import TransformerDecoderModelSpec

    spec = TransformerDecoderModelSpec(_decoder(source, "positions"))
    spec.register_vocabulary(source.vocabulary())
    return spec


def _decoder(source: Source, positions: str) -> Any:
    """The decoder's stack and the product with the vocabulary."""
    from ctranslate2.specs import TransformerDecoderSpec

    c, weights = source.config, source.weights
    alibi = c.positional_encoding == "alibi"
    spec = TransformerDecoderSpec(
        c.depths[1], c.n_heads, with_encoder_attention=c.has_encoder, alibi=alibi, **_parts(c)
    )
    spec.embeddings.weight = weights["embedding.weight"]
    spec.projection.weight = weights["output.weight" if c.tied_embeddings == "none" else "embedding.weight"]
    _stack(spec, source, "decoder", positions)
    return spec


def _parts(c: ModelConfig) -> dict[str, Any]:
    """What both stacks are made of."""
    from ctranslate2.specs.common_spec import Activation

    return {
        "pre_norm": c.norm_position == "pre",
        "rms_norm": c.norm == "rmsnorm",
        "activation": Activation[ACTIVATIONS[c.activation]],
        "ffn_glu": c.activation == "swiglu",
        "num_heads_kv": c.n_kv_heads,
        "head_dim": c.d_k,
        "rotary_dim": 0 if c.positional_encoding == "rope" else None,  # 0: every entry of a head is turned
        "relative_position": c.positional_encoding == "relative",
        "relative_attention_bias": c.positional_encoding == "t5",
    }


def _stack(spec: Any, source: Source, stack: str, positions: str) -> None:
    """Fill in the layers of a stack, and what it knows of order."""
    if not POSITIONAL_ENCODINGS[source.config.positional_encoding].in_attention:
        spec.position_encodings.encodings = _table(source, positions)
    for i, layer in enumerate(spec.layer):
        ours = f"{stack}.{i}"
        _attention(layer.self_attention, source, f"{ours}.mixer")
        _positions(layer.self_attention, source, positions, i)
        _norm(layer.self_attention.layer_norm, source, f"{ours}.around_mixer.norm")
        if hasattr(layer, "attention"):
            _attention(layer.attention, source, f"{ours}.cross_attention")
            _norm(layer.attention.layer_norm, source, f"{ours}.around_cross_attention.norm")
        _feed_forward(layer.ffn, source, f"{ours}.feed_forward")
        _norm(layer.ffn.layer_norm, source, f"{ours}.around_feed_forward.norm")
    if source.config.norm_position == "pre":
        _norm(spec.layer_norm, source, f"{stack}_norm")


def _table(source: Source, positions: str) -> Tensor:
    """A vector a position: (max_positions, d_model)."""
    c = source.config
    if c.positional_encoding == "learned":
        return source.weights[f"{positions}.weight"]
    if c.positional_encoding == "sinusoidal":
        return sinusoids(c.max_positions, c.d_model)
    return torch.zeros(c.max_positions, c.d_model)


def _positions(spec: Any, source: Source, positions: str, layer: int) -> None:
    """What a stack's self-attention knows of distances."""
    if source.config.positional_encoding == "relative":
        spec.relative_position_keys = _both_ways(source.weights[f"{positions}.keys"][layer], source.config)
        spec.relative_position_values = _both_ways(source.weights[f"{positions}.of_values"][layer], source.config)
    if source.config.positional_encoding == "t5":
        spec.relative_attention_bias = source.weights[f"{positions}.weight"]
        spec.relative_attention_max_distance = torch.tensor(T5_DISTANCE, dtype=torch.int32)


def _both_ways(vectors: Tensor, c: ModelConfig) -> Tensor:
    """A vector for each distance from -clip to clip; a causal stack, which sees nothing ahead, gets zeros there."""
    return F.pad(vectors, (0, 0, 0, 2 * c.relative_clip + 1 - len(vectors)))


def _attention(spec: Any, source: Source, ours: str) -> None:
    """Queries, keys and values of self-attention are one product; over the source, keys and values are."""
    Q, K, V, after = source.attention(ours)
    for of, together in zip(spec.linear, ([Q, K, V],) if len(spec.linear) == 2 else ([Q], [K, V]), strict=False):
        _affine(of, *together)
    _affine(spec.linear[-1], after)
    spec.queries_scale = 1.0 if source.config.attention_scale == 1 else source.config.d_k**-0.5


def _feed_forward(spec: Any, source: Source, ours: str) -> None:
    _affine(spec.linear_0, source.affine(f"{ours}.W_1"))
    _affine(spec.linear_1, source.affine(f"{ours}.W_2"))
    if hasattr(spec, "linear_0_noact"):
        _affine(spec.linear_0_noact, source.affine(f"{ours}.W_3"))


def _norm(spec: Any, source: Source, ours: str) -> None:
    spec.gamma = source.weights[f"{ours}.weight"]
    if hasattr(spec, "beta"):
        spec.beta = source.weights[f"{ours}.bias"]


def _affine(spec: Any, *together: Affine) -> None:
    """One projection, or several of the same input as one."""
    spec.weight, spec.bias = (torch.cat(parts) for parts in zip(*together, strict=True))
