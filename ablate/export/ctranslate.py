"""Both architectures for CTranslate2 (OpenNMT's inference library), through its model
specifications.

Positional encodings that are added to embeddings are written as a table of vectors.
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
from ablate.export.trained_model import Affine, TrainedModel
from ablate.model.norms import EPS
from ablate.model.positions import T5_DISTANCE, sinusoids

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swiglu": "SWISH"}


def write(model: TrainedModel, folder: Path) -> None:
    """Write the model, its configuration, its vocabulary and the tokenizer."""
    spec = _translator(model) if model.config.has_encoder else _generator(model)
    marks = model.vocabulary()
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (
        marks[UNK],
        marks[BOS],
        marks[EOS],
    )
    spec.config.layer_norm_epsilon = EPS
    # validate() fails on a variable without a value, so that no part of the model is forgotten.
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    (folder / TOKENIZER).write_bytes(model.tokenizer.model)


def _translator(model: TrainedModel) -> Any:
    """Return the specification of an encoder-decoder."""
    from ctranslate2.specs import TransformerEncoderSpec, TransformerSpec

    c, vocabulary = model.config, model.vocabulary()
    encoder = TransformerEncoderSpec(c.depths[0], c.n_heads, **_parts(c))
    # Tied with the output alone (`decoder`), the source has a matrix of its own.
    embedding = "embedding" if c.tied_embeddings == "all" else "source_embedding"
    encoder.embeddings[0].weight = model.weights[f"{embedding}.weight"]
    _stack(encoder, model, "encoder", "source_positions")
    spec = TransformerSpec(encoder, _decoder(model, "target_positions"))
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.decoder_start_token = vocabulary[BOS]
    spec.config.add_source_eos = True
    return spec


def _generator(model: TrainedModel) -> Any:
    """Return the specification of a decoder-only model."""
    from ctranslate2.specs import TransformerDecoderModelSpec

    spec = TransformerDecoderModelSpec(_decoder(model, "positions"))
    spec.register_vocabulary(model.vocabulary())
    return spec


def _decoder(model: TrainedModel, positions: str) -> Any:
    """Return the specification of the decoder and the output projection."""
    from ctranslate2.specs import TransformerDecoderSpec

    c, weights = model.config, model.weights
    alibi = c.positional_encoding == "alibi"
    spec = TransformerDecoderSpec(
        c.depths[1], c.n_heads, with_encoder_attention=c.has_encoder, alibi=alibi, **_parts(c)
    )
    spec.embeddings.weight = weights["embedding.weight"]
    spec.projection.weight = weights[
        "output.weight" if c.tied_embeddings == "none" else "embedding.weight"
    ]
    _stack(spec, model, "decoder", positions)
    return spec


def _parts(c: ModelConfig) -> dict[str, Any]:
    """Return the options that both stacks have."""
    from ctranslate2.specs.common_spec import Activation

    return {
        "pre_norm": c.norm_position == "pre",
        "rms_norm": c.norm == "rmsnorm",
        "activation": Activation[ACTIVATIONS[c.activation]],
        "ffn_glu": c.activation == "swiglu",
        "num_heads_kv": c.n_kv_heads,
        "head_dim": c.d_k,
        "rotary_dim": 0
        if c.positional_encoding == "rope"
        else None,  # 0: all entries of a head are rotated
        "relative_position": c.positional_encoding == "relative",
        "relative_attention_bias": c.positional_encoding == "t5",
    }


def _stack(spec: Any, model: TrainedModel, stack: str, positions: str) -> None:
    """Fill in the layers of a stack and its positional encoding."""
    if not POSITIONAL_ENCODINGS[model.config.positional_encoding].in_attention:
        spec.position_encodings.encodings = _table(model, positions)
    for i, layer in enumerate(spec.layer):
        ours = f"{stack}.{i}"
        _attention(layer.self_attention, model, f"{ours}.mixer")
        _positions(layer.self_attention, model, positions, i)
        _norm(layer.self_attention.layer_norm, model, f"{ours}.around_mixer.norm")
        # Cross-attention, which a decoder-only model lacks.
        if hasattr(layer, "attention"):
            _attention(layer.attention, model, f"{ours}.cross_attention")
            _norm(layer.attention.layer_norm, model, f"{ours}.around_cross_attention.norm")
        _feed_forward(layer.ffn, model, f"{ours}.feed_forward")
        _norm(layer.ffn.layer_norm, model, f"{ours}.around_feed_forward.norm")
    if model.config.norm_position == "pre":
        _norm(spec.layer_norm, model, f"{stack}_norm")


def _table(model: TrainedModel, positions: str) -> Tensor:
    """Return one vector per position: (max_positions, d_model)."""
    c = model.config
    if c.positional_encoding == "learned":
        return model.weights[f"{positions}.weight"]
    if c.positional_encoding == "sinusoidal":
        return sinusoids(c.max_positions, c.d_model)
    # Without an encoding the specification still wants a table; zeros leave the embeddings as they
    # are.
    return torch.zeros(c.max_positions, c.d_model)


def _positions(spec: Any, model: TrainedModel, positions: str, layer: int) -> None:
    """Fill in the encoding of distances within self-attention."""
    if model.config.positional_encoding == "relative":
        spec.relative_position_keys = _both_ways(
            model.weights[f"{positions}.keys"][layer], model.config
        )
        spec.relative_position_values = _both_ways(
            model.weights[f"{positions}.of_values"][layer], model.config
        )
    if model.config.positional_encoding == "t5":
        spec.relative_attention_bias = model.weights[f"{positions}.weight"]
        spec.relative_attention_max_distance = torch.tensor(T5_DISTANCE, dtype=torch.int32)


def _both_ways(vectors: Tensor, c: ModelConfig) -> Tensor:
    """Return a vector for each distance from -clip to clip; zeros for the future, which a causal
    stack never sees.
    """
    return F.pad(vectors, (0, 0, 0, 2 * c.relative_clip + 1 - len(vectors)))


def _attention(spec: Any, model: TrainedModel, ours: str) -> None:
    """Fill in an attention layer. Self-attention has one product for Q, K and V; cross-attention
    one for K and V.
    """
    Q, K, V, output = model.attention(ours)
    joined = ([Q, K, V],) if len(spec.linear) == 2 else ([Q], [K, V])
    # CTranslate2 multiplies one joined matrix instead of three small ones.
    for linear, projections in zip(spec.linear, joined, strict=False):
        _affine(linear, *projections)
    _affine(spec.linear[-1], output)
    # Always set: without a value CTranslate2 scales by d_k^-0.5, also for a row without the scale.
    spec.queries_scale = 1.0 if model.config.attention_scale == 1 else model.config.d_k**-0.5


def _feed_forward(spec: Any, model: TrainedModel, ours: str) -> None:
    _affine(spec.linear_0, model.affine(f"{ours}.W_1"))
    _affine(spec.linear_1, model.affine(f"{ours}.W_2"))
    # The second projection of a gated network.
    if hasattr(spec, "linear_0_noact"):
        _affine(spec.linear_0_noact, model.affine(f"{ours}.W_3"))


def _norm(spec: Any, model: TrainedModel, ours: str) -> None:
    spec.gamma = model.weights[f"{ours}.weight"]
    # RMSNorm has no bias.
    if hasattr(spec, "beta"):
        spec.beta = model.weights[f"{ours}.bias"]


def _affine(spec: Any, *projections: Affine) -> None:
    """Fill in a projection, or several of the same input as one."""
    spec.weight, spec.bias = (torch.cat(parts) for parts in zip(*projections, strict=True))
