"""Decoder-only models for `LlamaForCausalLM` of Hugging Face's transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from ablate.config import ModelConfig
from ablate.data.corpus import TOKENIZER
from ablate.data.tokenizer import BOS, EOS, PAD
from ablate.export.huggingface import (
    GENERATION,
    embedding_scale,
    is_tied,
    output_matrix,
    write_generation_and_tokenizer,
    write_json,
    write_weights,
)
from ablate.export.trained_model import Affine, TrainedModel, even_then_odd
from ablate.model.norms import EPS

ROPE_BASE = 10_000.0


def write_llama(model: TrainedModel, folder: Path) -> None:
    """Write the files that `LlamaForCausalLM.from_pretrained` reads, and the unchanged
    SentencePiece model.

    Llama rotates entry i of a head together with entry i + d_k/2, where the RoPE paper rotates
    neighbors. The rows of W^Q and W^K are reordered accordingly; attention scores stay the same.
    Llama does not scale its embeddings, so that a factor of sqrt(d_model) goes into them, and they
    are then written separately from the matrix of the logits.
    """
    c = model.config
    write_json(folder / "config.json", llama_configuration(c, model.tokenizer.vocab_size))
    write_json(folder / "generation_config.json", {**GENERATION, "max_length": c.max_positions})
    (folder / TOKENIZER).write_bytes(model.tokenizer.model)
    write_weights(folder, _llama_tensors(model))


def write_llama_language_model(model: TrainedModel, folder: Path) -> None:
    """Write a language model for `LlamaForCausalLM.from_pretrained`, with its tokenizer."""
    write_json(
        folder / "config.json", llama_configuration(model.config, model.tokenizer.vocab_size)
    )
    write_generation_and_tokenizer(model, folder)
    write_weights(folder, _llama_tensors(model))


def llama_configuration(c: ModelConfig, vocab_size: int) -> dict[str, Any]:
    """Return the content of config.json."""
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "dtype": "float32",
        "vocab_size": vocab_size,
        "hidden_size": c.d_model,
        "intermediate_size": c.inner_width(gated=True),
        "num_hidden_layers": c.depths[1],
        "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.n_kv_heads or c.n_heads,
        "head_dim": c.d_k,
        "hidden_act": "silu",
        "max_position_embeddings": c.max_positions,
        "rms_norm_eps": EPS,
        "rope_theta": ROPE_BASE,
        "attention_bias": c.attention_bias,
        "attention_dropout": c.attention_dropout,
        # Llama as published has no biases; the configuration allows them.
        "mlp_bias": c.feed_forward_bias,
        "tie_word_embeddings": is_tied(c),
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    }


def _llama_tensors(model: TrainedModel) -> dict[str, Tensor]:
    """Return the weights under Llama's names."""
    weights, c = model.weights, model.config
    tensors = {
        "model.embed_tokens.weight": weights["embedding.weight"] * embedding_scale(c),
        **output_matrix(model),
        "model.norm.weight": weights["decoder_norm.weight"],
    }
    for i in range(c.depths[1]):
        layer = _llama_layer(model, f"decoder.{i}")
        tensors.update({f"model.layers.{i}.{name}": tensor for name, tensor in layer.items()})
    return tensors


def _llama_layer(model: TrainedModel, ours: str) -> dict[str, Tensor]:
    Q, K, V, output = model.attention(f"{ours}.mixer")
    size, feed_forward = model.config.d_k, f"{ours}.feed_forward"
    attention = {
        "q_proj": _reordered(Q, size),
        "k_proj": _reordered(K, size),
        "v_proj": V,
        "o_proj": output,
    }
    mlp = {"gate_proj": "W_1", "up_proj": "W_3", "down_proj": "W_2"}
    layer = {
        "input_layernorm.weight": model.weights[f"{ours}.around_mixer.norm.weight"],
        "post_attention_layernorm.weight": model.weights[f"{ours}.around_feed_forward.norm.weight"],
    }
    for name, projection in attention.items():
        layer[f"self_attn.{name}.weight"] = projection.W
        if model.config.attention_bias:  # Llama has either all biases of attention or none
            layer[f"self_attn.{name}.bias"] = projection.b
    for name, letter in mlp.items():
        layer[f"mlp.{name}.weight"], bias = model.affine(f"{feed_forward}.{letter}")
        if model.config.feed_forward_bias:
            layer[f"mlp.{name}.bias"] = bias
    return layer


def _reordered(heads: Affine, size: int) -> Affine:
    """Return the projection with the first entries of all pairs, then the second ones, in every
    head.
    """
    W, b = (x.unflatten(0, (-1, size))[:, even_then_odd(size)].flatten(0, 1) for x in heads)
    return Affine(W, b)
