"""Masked language models for `BertForMaskedLM` of Hugging Face's transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ablate.config import ModelConfig
from ablate.data.tokenizer import PAD
from ablate.decoding.fill import MASK_TEXT
from ablate.export.huggingface import (
    embedding_scale,
    is_tied,
    output_matrix,
    position_table,
    repeated,
    write_json,
    write_tokenizer,
    write_weights,
)
from ablate.export.trained_model import Affine, TrainedModel
from ablate.model.norms import EPS


def write_bert(model: TrainedModel, folder: Path) -> None:
    """Write a masked language model for `BertForMaskedLM.from_pretrained`, with its tokenizer.

    Token types, the bias of the logits and the biases of the projections are zeros where this model
    has none. As for GPT-2, a factor of the embeddings goes into them, other positions become a
    table, and shared heads of keys and values are repeated. The mask has the id of `<unk>`, which
    no text contains.
    """
    write_json(folder / "config.json", bert_configuration(model.config, model.tokenizer.vocab_size))
    write_tokenizer(model, folder, mask=MASK_TEXT)
    write_weights(folder, _bert_tensors(model))


def bert_configuration(c: ModelConfig, vocab_size: int) -> dict[str, Any]:
    """Return the content of config.json."""
    return {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "dtype": "float32",
        "vocab_size": vocab_size,
        "hidden_size": c.d_model,
        "num_hidden_layers": c.depths[0],
        "num_attention_heads": c.n_heads,
        "intermediate_size": c.d_ff,
        "hidden_act": c.activation,
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "max_position_embeddings": c.max_positions,
        "type_vocab_size": max(1, c.token_types),
        "layer_norm_eps": EPS,
        "tie_word_embeddings": is_tied(c),
        "pad_token_id": PAD,
    }


def _bert_tensors(model: TrainedModel) -> dict[str, Tensor]:
    """Return the weights under BERT's names."""
    weights, c = model.weights, model.config
    zeros = torch.zeros(1, c.d_model)
    tensors = {
        "bert.embeddings.word_embeddings.weight": weights["embedding.weight"] * embedding_scale(c),
        "bert.embeddings.position_embeddings.weight": position_table(model),
        "bert.embeddings.token_type_embeddings.weight": weights.get("token_types.weight", zeros),
        **_bert_head(model),
    }
    norms = {"embedding_norm": "bert.embeddings.LayerNorm"}
    projections: dict[str, Affine] = {}
    group = c.n_heads // (c.n_kv_heads or c.n_heads)
    for i in range(c.depths[0]):
        ours, theirs = f"encoder.{i}", f"bert.encoder.layer.{i}"
        Q, K, V, output = model.attention(f"{ours}.mixer")
        projections |= {
            f"{theirs}.attention.self.query": Q,
            f"{theirs}.attention.self.key": repeated(K, c.d_k, group),
            f"{theirs}.attention.self.value": repeated(V, c.d_v, group),
            f"{theirs}.attention.output.dense": output,
            f"{theirs}.intermediate.dense": model.affine(f"{ours}.feed_forward.W_1"),
            f"{theirs}.output.dense": model.affine(f"{ours}.feed_forward.W_2"),
        }
        norms |= {
            f"{ours}.around_mixer.norm": f"{theirs}.attention.output.LayerNorm",
            f"{ours}.around_feed_forward.norm": f"{theirs}.output.LayerNorm",
        }
    for name, (W, b) in projections.items():
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = W, b
    for ours, theirs in norms.items():
        for part in ("weight", "bias"):
            tensors[f"{theirs}.{part}"] = weights[f"{ours}.{part}"]
    return tensors


def _bert_head(model: TrainedModel) -> dict[str, Tensor]:
    """Return the weights between the last layer and the logits."""
    dense, theirs = model.affine("output_transform.linear"), "cls.predictions"
    bias = model.weights.get("output_bias", torch.zeros(model.tokenizer.vocab_size))
    separate = {f"{theirs}.decoder.weight": matrix for matrix in output_matrix(model).values()}
    return {
        f"{theirs}.transform.dense.weight": dense.W,
        f"{theirs}.transform.dense.bias": dense.b,
        f"{theirs}.transform.LayerNorm.weight": model.weights["output_transform.norm.weight"],
        f"{theirs}.transform.LayerNorm.bias": model.weights["output_transform.norm.bias"],
        f"{theirs}.bias": bias,
        **separate,
        **(
            {f"{theirs}.decoder.bias": bias.clone()} if separate else {}
        ),  # a file holds no tensor twice
    }
