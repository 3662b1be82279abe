"""Encoder-decoder and decoder-only models for CTranslate2 (OpenNMT's inference library), written
with its model specifications.

Positional encodings that are added to embeddings are written as a table of vectors.

Why not `TransformersConverter` on the Hugging Face export, which would need less code: with
ctranslate2 4.8 and transformers 5 it refuses a Marian whose padding is not the last token, GPT-NeoX
and Phi; and of a Llama with d_k other than d_model / h it makes a wrong model without an error.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.config import ModelConfig
from ablate.data.corpus import TOKENIZER
from ablate.data.tokenizer import BOS, EOS, UNK
from ablate.export.changes import position_table
from ablate.export.target import (
    ANY,
    Parts,
    Target,
    TrainedModel,
    convert,
    equal_cross_heads,
    equal_head_sizes,
)
from ablate.model.norms import EPS
from ablate.model.positions import T5_DISTANCE
from ablate.parts.positions import POSITIONAL_ENCODINGS

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swiglu": "SWISH"}


def _norm(theirs: str, ours: str) -> Parts:
    return {f"{theirs}gamma": convert(f"{ours}.weight"), f"{theirs}beta": convert(f"{ours}.bias")}


def _attention(theirs: str, ours: str, *inputs: str) -> Parts:
    """The tensors of an attention layer. CTranslate2 has one matrix for each input: `inputs` names
    the projections that are joined in each.
    """
    parts = {}
    for number, letters in enumerate((*inputs, "O")):
        names = [f"{ours}.W_{letter}.*" for letter in letters]
        parts[f"{theirs}/linear_{number}/*"] = convert(*names, biased=True)
    return {**parts, **_norm(f"{theirs}/layer_norm/", f"around_{ours}.norm")}


LAYER: Parts = {
    **_attention("self_attention", "mixer", "QKV"),
    **_attention("attention", "cross_attention", "Q", "KV"),
    "self_attention/relative_position_keys": convert("relative_keys"),
    "self_attention/relative_position_values": convert("relative_values"),
    "self_attention/relative_attention_bias": convert("distances"),
    "ffn/linear_0/*": convert("feed_forward.W_1.*", biased=True),
    "ffn/linear_1/*": convert("feed_forward.W_2.*", biased=True),
    "ffn/linear_0_noact/*": convert("feed_forward.W_3.*", biased=True),
    **_norm("ffn/layer_norm/", "around_feed_forward.norm"),
}
PARTS: Parts = {
    "encoder/embeddings_0/weight": convert("source_embedding.weight"),
    "encoder/position_encodings/encodings": convert("encoder_table"),
    **_norm("encoder/layer_norm/", "encoder_norm"),
    "decoder/embeddings/weight": convert("embedding.weight"),
    "decoder/projection/weight": convert("output.weight"),
    "decoder/position_encodings/encodings": convert("decoder_table"),
    **_norm("decoder/layer_norm/", "decoder_norm"),
}


def write_ctranslate(target: Target, model: TrainedModel, folder: Path) -> None:
    """Write the model, its configuration, its vocabulary and the tokenizer."""
    spec = _specification(model.config, target.settings(model.config), model.vocabulary())
    weights = _add_positions(model)
    embedding = weights["embedding.weight"]
    absent = {"output.weight": embedding}
    if model.config.has_encoder:
        # Used only if source and target share one matrix.
        absent["source_embedding.weight"] = embedding
    for name, tensor in target.tensors(replace(model, weights=weights), absent).items():
        *owners, variable = name.split("/")
        owner = spec
        for part in owners:
            owner = _member(owner, part)
        setattr(owner, variable, tensor)
    # validate() raises an error if a variable has no value, so that no tensor is forgotten.
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    (folder / TOKENIZER).write_bytes(model.tokenizer.model)


def _member(spec: Any, name: str) -> Any:
    """A member of a specification: an attribute, or an entry of a list by a name like `layer_0`."""
    if hasattr(spec, name):
        return getattr(spec, name)
    group, number = name.rsplit("_", 1)
    return getattr(spec, group)[int(number)]


def _specification(c: ModelConfig, options: dict[str, Any], vocabulary: list[str]) -> Any:
    """The specification of an encoder-decoder or a decoder-only model."""
    from ctranslate2.specs import (
        TransformerDecoderModelSpec,
        TransformerDecoderSpec,
        TransformerEncoderSpec,
        TransformerSpec,
    )

    alibi = c.positional_encoding == "alibi"
    decoder = TransformerDecoderSpec(
        c.depths[1], c.n_heads, with_encoder_attention=c.has_encoder, alibi=alibi, **options
    )
    layers = list(decoder.layer)
    if c.has_encoder:
        encoder = TransformerEncoderSpec(c.depths[0], c.n_heads, **options)
        layers += encoder.layer
        spec = TransformerSpec(encoder, decoder)
        spec.register_source_vocabulary(vocabulary)
        spec.register_target_vocabulary(vocabulary)
        spec.config.decoder_start_token = vocabulary[BOS]
        spec.config.add_source_eos = True
    else:
        spec = TransformerDecoderModelSpec(decoder)
        spec.register_vocabulary(vocabulary)
    for layer in layers:
        for attention in (layer.self_attention, getattr(layer, "attention", None)):
            if attention is not None:
                # Always given, because CTranslate2's default is d_k^-0.5.
                attention.queries_scale = 1.0 if c.attention_scale == 1 else c.d_k**-0.5
        if c.positional_encoding == "t5":
            distance = torch.tensor(T5_DISTANCE, dtype=torch.int32)
            layer.self_attention.relative_attention_max_distance = distance
    spec.config.unk_token, spec.config.bos_token = vocabulary[UNK], vocabulary[BOS]
    spec.config.eos_token = vocabulary[EOS]
    spec.config.layer_norm_epsilon = EPS
    return spec


def _options(c: ModelConfig) -> dict[str, Any]:
    """The options of both stacks."""
    from ctranslate2.specs.common_spec import Activation

    return {
        "pre_norm": c.norm_position == "pre",
        "rms_norm": c.norm == "rmsnorm",
        "activation": Activation[ACTIVATIONS[c.activation]],
        "ffn_glu": c.activation == "swiglu",
        "num_heads_kv": c.n_kv_heads,
        "head_dim": c.d_k,
        # 0 means that all entries of a head are rotated.
        "rotary_dim": 0 if c.positional_encoding == "rope" else None,
        "relative_position": c.positional_encoding == "relative",
        "relative_attention_bias": c.positional_encoding == "t5",
    }


def _add_positions(model: TrainedModel) -> dict[str, Tensor]:
    """The weights, with positions in the form of CTranslate2: a table for each stack (zeros if
    there is no positional encoding), or vectors of relative positions for each layer.
    """
    c = model.config
    weights = dict(model.weights)
    for stack, depth in zip(("encoder", "decoder"), c.depths, strict=True):
        if not depth:
            continue
        name = "positions"
        if c.has_encoder:
            name = "source_positions" if stack == "encoder" else "target_positions"
        if not POSITIONAL_ENCODINGS[c.positional_encoding].acts_in_attention:
            weights[f"{stack}_table"] = weights.pop(f"{name}.weight", position_table(c))
        relative = {
            "keys": weights.pop(f"{name}.keys", None),
            "values": weights.pop(f"{name}.of_values", None),
        }
        distances = weights.pop(f"{name}.weight", None)
        for i in range(depth):
            for side, vectors in relative.items():
                if vectors is not None:
                    weights[f"{stack}.{i}.relative_{side}"] = _extend_both_ways(vectors[i], c)
            if distances is not None:
                weights[f"{stack}.{i}.distances"] = distances
    return weights


def _extend_both_ways(vectors: Tensor, c: ModelConfig) -> Tensor:
    """A vector for each distance from -clip to clip; zeros for the future if the model has none."""
    return F.pad(vectors, (0, 0, 0, 2 * c.relative_clip + 1 - len(vectors)))


SUPPORTED = {
    "attention_bias": ANY,
    "feed_forward_bias": ANY,
    "embedding_scale": ("sqrt(d_model)",),
    "attention_scale": ANY,
    "activation": tuple(ACTIVATIONS),
    "norm": ("layernorm", "rmsnorm"),
    "norm_position": ("post", "pre"),
}
ENCODINGS = ("sinusoidal", "learned", "none", "rope", "relative")
TRANSLATOR = Target(
    name="ctranslate2's Translator",
    supported={**SUPPORTED, "positional_encoding": (*ENCODINGS, "t5")},
    rules=(equal_head_sizes, equal_cross_heads),
    settings=_options,
    parts=PARTS,
    layer=LAYER,
    stacks={"encoder": "encoder/layer_{i}/", "decoder": "decoder/layer_{i}/"},
    write=write_ctranslate,
    package="ctranslate2",
)
GENERATOR = replace(
    TRANSLATOR,
    name="ctranslate2's Generator",
    supported={**SUPPORTED, "positional_encoding": (*ENCODINGS, "alibi")},
    rules=(equal_head_sizes,),
)
