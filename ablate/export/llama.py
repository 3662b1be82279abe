"""A decoder-only model as Hugging Face's LlamaForCausalLM, with the SentencePiece model as it is.

Llama turns entry i of a head with entry i + d_k/2, where the paper of RoPE pairs neighbours: the rows
of W_Q and W_K change their order, and scores stay the same. Llama does not scale its embeddings: the
factor sqrt(d_model) goes into them, so they are no longer the matrix that gives the logits.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from torch import Tensor

from ablate.config import ModelConfig
from ablate.data.corpus import TOKENIZER
from ablate.data.tokenizer import BOS, EOS, PAD
from ablate.export.huggingface import GENERATION, write_json, write_weights
from ablate.export.source import Affine, Source, halves
from ablate.model.norms import EPS

ROPE_BASE = 10_000.0


def write(source: Source, folder: Path) -> None:
    """Write what `LlamaForCausalLM.from_pretrained` reads, and the tokenizer."""
    c = source.config
    write_json(folder / "config.json", configuration(c, source.tokenizer.vocab_size))
    write_json(folder / "generation_config.json", {**GENERATION, "max_length": c.max_positions})
    (folder / TOKENIZER).write_bytes(source.tokenizer.model)
    write_weights(folder, _tensors(source))


def configuration(c: ModelConfig, vocab_size: int) -> dict[str, Any]:
    """The content of config.json."""
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
        "mlp_bias": True,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    }


def _tensors(source: Source) -> dict[str, Tensor]:
    """The weights under Llama's names."""
    weights, c = source.weights, source.config
    tensors = {
        "model.embed_tokens.weight": weights["embedding.weight"] * math.sqrt(c.d_model),
        "lm_head.weight": weights["embedding.weight" if c.tied_embeddings == "all" else "output.weight"],
        "model.norm.weight": weights["decoder_norm.weight"],
    }
    for i in range(c.depths[1]):
        tensors.update({f"model.layers.{i}.{name}": tensor for name, tensor in _layer(source, f"decoder.{i}").items()})
    return tensors


def _layer(source: Source, ours: str) -> dict[str, Tensor]:
    Q, K, V, after = source.attention(f"{ours}.mixer")
    size, feed_forward = source.config.d_k, f"{ours}.feed_forward"
    attention = {"q_proj": _turned(Q, size), "k_proj": _turned(K, size), "v_proj": V, "o_proj": after}
    mlp = {"gate_proj": "W_1", "up_proj": "W_3", "down_proj": "W_2"}
    layer = {
        "input_layernorm.weight": source.weights[f"{ours}.around_mixer.norm.weight"],
        "post_attention_layernorm.weight": source.weights[f"{ours}.around_feed_forward.norm.weight"],
    }
    for name, of in attention.items():
        layer[f"self_attn.{name}.weight"] = of.W
        if source.config.attention_bias:
            layer[f"self_attn.{name}.bias"] = of.b
    for name, letter in mlp.items():
        layer[f"mlp.{name}.weight"], layer[f"mlp.{name}.bias"] = source.affine(f"{feed_forward}.{letter}")
    return layer


def _turned(heads: Affine, size: int) -> Affine:
    """In every head, the first entries of all pairs, then the second ones."""
    W, b = (x.unflatten(0, (-1, size))[:, halves(size)].flatten(0, 1) for x in heads)
    return Affine(W, b)
