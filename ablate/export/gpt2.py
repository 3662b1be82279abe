"""Language models for `GPT2LMHeadModel` of Hugging Face's transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ablate.config import ModelConfig
from ablate.data.tokenizer import BOS, EOS, PAD
from ablate.export.huggingface import (
    embedding_scale,
    is_tied,
    output_matrix,
    position_table,
    repeated,
    write_generation_and_tokenizer,
    write_json,
    write_weights,
)
from ablate.export.trained_model import Affine, TrainedModel
from ablate.model.norms import EPS


def write_gpt2(model: TrainedModel, folder: Path) -> None:
    """Write a language model for `GPT2LMHeadModel.from_pretrained`, with its tokenizer.

    GPT-2 has a table of positions, which holds sinusoidal ones too, and biases everywhere, which
    are zeros where this model has none. It does not scale its embeddings, so that the factor
    sqrt(d_model) goes into them, and they are written separately from the matrix of the logits. A
    head of keys and values that serves several heads of queries is written once for each of them.
    """
    write_json(folder / "config.json", gpt2_configuration(model.config, model.tokenizer.vocab_size))
    write_generation_and_tokenizer(model, folder)
    write_weights(folder, _gpt2_tensors(model))


def gpt2_configuration(c: ModelConfig, vocab_size: int) -> dict[str, Any]:
    """Return the content of config.json."""
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "dtype": "float32",
        "vocab_size": vocab_size,
        "n_positions": c.max_positions,
        "n_embd": c.d_model,
        "n_layer": c.depths[1],
        "n_head": c.n_heads,
        "n_inner": c.d_ff,
        "activation_function": c.activation,
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.attention_dropout,
        "layer_norm_epsilon": EPS,
        "tie_word_embeddings": is_tied(c),
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    }


def _gpt2_tensors(model: TrainedModel) -> dict[str, Tensor]:
    """Return the weights under GPT-2's names; its projections are stored as (d_in, d_out)."""
    weights, c = model.weights, model.config
    tensors = {
        "transformer.wte.weight": weights["embedding.weight"] * embedding_scale(c),
        "transformer.wpe.weight": position_table(model),
        "transformer.ln_f.weight": weights["decoder_norm.weight"],
        "transformer.ln_f.bias": weights["decoder_norm.bias"],
        **output_matrix(model),
    }
    group = c.n_heads // (c.n_kv_heads or c.n_heads)
    for i in range(c.depths[1]):
        ours, theirs = f"decoder.{i}", f"transformer.h.{i}"
        Q, K, V, output = model.attention(f"{ours}.mixer")
        heads = (Q, repeated(K, c.d_k, group), repeated(V, c.d_v, group))
        projections = {
            "attn.c_attn": Affine(*(torch.cat(parts) for parts in zip(*heads, strict=True))),
            "attn.c_proj": output,
            "mlp.c_fc": model.affine(f"{ours}.feed_forward.W_1"),
            "mlp.c_proj": model.affine(f"{ours}.feed_forward.W_2"),
        }
        for name, (W, b) in projections.items():
            tensors[f"{theirs}.{name}.weight"], tensors[f"{theirs}.{name}.bias"] = W.T, b
        for name, norm in (("ln_1", "around_mixer.norm"), ("ln_2", "around_feed_forward.norm")):
            for part in ("weight", "bias"):
                tensors[f"{theirs}.{name}.{part}"] = weights[f"{ours}.{norm}.{part}"]
    return tensors
