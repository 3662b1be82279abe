"""Models for Hugging Face's transformers: MarianMTModel, LlamaForCausalLM, GPT2LMHeadModel and BertForMaskedLM.

The first two order the entries of some vectors in another way than the paper. The rows and columns of the weights are
reordered accordingly; the function that the model computes stays the same.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ablate.config import ModelConfig
from ablate.data.corpus import TOKENIZER
from ablate.data.tokenizer import BOS, EOS, PAD, UNK, ByteTokenizer
from ablate.decoding.fill import MASK_TEXT
from ablate.export.trained_model import Affine, TrainedModel, even_then_odd
from ablate.model.norms import EPS
from ablate.model.positions import sinusoids

ROPE_BASE = 10_000.0

# Defaults of `generate`, equal to this project's beam search with alpha = 0. The length penalty of transformers divides
# by another power of the length, so that no other alpha has an equivalent.
GENERATION = {
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
    "suppress_tokens": [PAD, BOS],
    "num_beams": 4,
    "length_penalty": 0.0,
    "early_stopping": True,
}


def write_marian(model: TrainedModel, folder: Path) -> None:
    """Write the files that `MarianMTModel.from_pretrained` and `MarianTokenizer.from_pretrained` read.

    Marian's positional encoding has all sines in the first half of a vector and all cosines in the second, where the
    paper's formula interleaves them (section 3.5). The entries of every vector of width d_model are reordered
    accordingly, in embeddings, norms and projections alike. A head of keys and values that serves several heads of
    queries is written once for each of them.

    Deviation: Marian's layer normalization adds 1e-5 to the variance, this project 1e-6 (norms.EPS), and Marian's
    configuration has no field for it. Variances are near 1, so that the states differ by a few parts in a million.
    """
    c, vocabulary = model.config, model.vocabulary()
    limits = {"max_length": c.max_positions, "decoder_start_token_id": BOS, "forced_eos_token_id": EOS}
    write_json(folder / "config.json", marian_configuration(c, len(vocabulary)))
    write_json(folder / "generation_config.json", {**GENERATION, **limits})
    write_json(folder / "vocab.json", {piece: id for id, piece in enumerate(vocabulary)})
    write_json(folder / "tokenizer_config.json", _marian_tokenizer(model, vocabulary))
    # MarianTokenizer reads one model for each side; here both sides share one.
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(model.tokenizer.model)
    write_weights(folder, _MarianTensors(model).tensors)


def marian_configuration(c: ModelConfig, vocab_size: int) -> dict[str, Any]:
    """Return the content of config.json."""
    encoder, decoder = c.depths
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "dtype": "float32",
        "vocab_size": vocab_size,
        "decoder_vocab_size": vocab_size,
        "d_model": c.d_model,
        "encoder_layers": encoder,
        "decoder_layers": decoder,
        "encoder_attention_heads": c.n_heads,
        "decoder_attention_heads": c.n_heads,
        "encoder_ffn_dim": c.d_ff,
        "decoder_ffn_dim": c.d_ff,
        "activation_function": c.activation,
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "activation_dropout": c.activation_dropout,
        "max_position_embeddings": c.max_positions,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": c.tied_embeddings == "all",
        "tie_word_embeddings": c.tied_embeddings != "none",
        "is_encoder_decoder": True,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "forced_eos_token_id": EOS,
        "pad_token_id": PAD,
        "decoder_start_token_id": BOS,
    }


def _marian_tokenizer(model: TrainedModel, vocabulary: list[str]) -> dict[str, Any]:
    _, unk, _, eos = vocabulary[:4]
    return {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": model.languages[0],
        "target_lang": model.languages[1],
        "unk_token": unk,
        "eos_token": eos,
        "pad_token": vocabulary[PAD],
        "model_max_length": model.config.max_positions,
        "separate_vocabs": False,
        "clean_up_tokenization_spaces": False,
    }


class _MarianTensors:
    """The weights under Marian's names and in Marian's order."""

    def __init__(self, model: TrainedModel) -> None:
        self.model, self.order = model, even_then_odd(model.config.d_model)
        self.group = model.config.n_heads // (model.config.n_kv_heads or model.config.n_heads)
        self.tensors: dict[str, Tensor] = {}
        self._embeddings()
        for stack, depth in zip(("encoder", "decoder"), model.config.depths, strict=True):
            for i in range(depth):
                self._layer(f"{stack}.{i}", f"model.{stack}.layers.{i}", stack == "decoder")

    def _embeddings(self) -> None:
        tied = self.model.config.tied_embeddings
        names = {"embedding": "model.shared" if tied == "all" else "model.decoder.embed_tokens"}
        if tied != "all":
            names["source_embedding"] = "model.encoder.embed_tokens"
        if tied == "none":
            names["output"] = "lm_head"
        for ours, theirs in names.items():
            self.tensors[f"{theirs}.weight"] = self.model.weights[f"{ours}.weight"][:, self.order]
        # Marian adds a bias to the logits; this project has none.
        self.tensors["final_logits_bias"] = torch.zeros(1, self.model.tokenizer.vocab_size)

    def _layer(self, ours: str, theirs: str, is_decoder: bool) -> None:
        self._attention(f"{ours}.mixer", f"{theirs}.self_attn")
        self._norm(f"{ours}.around_mixer.norm", f"{theirs}.self_attn_layer_norm")
        if is_decoder:
            self._attention(f"{ours}.cross_attention", f"{theirs}.encoder_attn")
            self._norm(f"{ours}.around_cross_attention.norm", f"{theirs}.encoder_attn_layer_norm")
        self._from_d_model(self.model.affine(f"{ours}.feed_forward.W_1"), f"{theirs}.fc1")
        self._to_d_model(self.model.affine(f"{ours}.feed_forward.W_2"), f"{theirs}.fc2")
        self._norm(f"{ours}.around_feed_forward.norm", f"{theirs}.final_layer_norm")

    def _attention(self, ours: str, theirs: str) -> None:
        Q, K, V, output = self.model.attention(ours)
        self._from_d_model(Q, f"{theirs}.q_proj")
        self._from_d_model(_repeated(K, self.model.config.d_k, self.group), f"{theirs}.k_proj")
        self._from_d_model(_repeated(V, self.model.config.d_v, self.group), f"{theirs}.v_proj")
        self._to_d_model(output, f"{theirs}.out_proj")

    def _norm(self, ours: str, theirs: str) -> None:
        for part in ("weight", "bias"):
            self.tensors[f"{theirs}.{part}"] = self.model.weights[f"{ours}.{part}"][self.order]

    def _from_d_model(self, projection: Affine, theirs: str) -> None:
        """Add a projection whose input has width d_model."""
        self.tensors[f"{theirs}.weight"] = projection.W[:, self.order]
        self.tensors[f"{theirs}.bias"] = projection.b

    def _to_d_model(self, projection: Affine, theirs: str) -> None:
        """Add a projection whose output has width d_model."""
        self.tensors[f"{theirs}.weight"] = projection.W[self.order]
        self.tensors[f"{theirs}.bias"] = projection.b[self.order]


def write_llama(model: TrainedModel, folder: Path) -> None:
    """Write the files that `LlamaForCausalLM.from_pretrained` reads, and the unchanged SentencePiece model.

    Llama rotates entry i of a head together with entry i + d_k/2, where the RoPE paper rotates neighbors. The rows of
    W^Q and W^K are reordered accordingly; attention scores stay the same. Llama does not scale its embeddings, so that
    a factor of sqrt(d_model) goes into them, and they are then written separately from the matrix of the logits.
    """
    c = model.config
    write_json(folder / "config.json", llama_configuration(c, model.tokenizer.vocab_size))
    write_json(folder / "generation_config.json", {**GENERATION, "max_length": c.max_positions})
    (folder / TOKENIZER).write_bytes(model.tokenizer.model)
    write_weights(folder, _llama_tensors(model))


def write_llama_language_model(model: TrainedModel, folder: Path) -> None:
    """Write a language model for `LlamaForCausalLM.from_pretrained`, with its tokenizer."""
    write_json(folder / "config.json", llama_configuration(model.config, model.tokenizer.vocab_size))
    _write_generation_and_tokenizer(model, folder)
    write_weights(folder, _llama_tensors(model))


def write_gpt2(model: TrainedModel, folder: Path) -> None:
    """Write a language model for `GPT2LMHeadModel.from_pretrained`, with its tokenizer.

    GPT-2 has a table of positions, which holds sinusoidal ones too, and biases everywhere, which are zeros where this
    model has none. It does not scale its embeddings, so that the factor sqrt(d_model) goes into them, and they are
    written separately from the matrix of the logits. A head of keys and values that serves several heads of queries is
    written once for each of them.
    """
    write_json(folder / "config.json", gpt2_configuration(model.config, model.tokenizer.vocab_size))
    _write_generation_and_tokenizer(model, folder)
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
        "tie_word_embeddings": _is_tied(c),
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    }


def _gpt2_tensors(model: TrainedModel) -> dict[str, Tensor]:
    """Return the weights under GPT-2's names; its projections are stored as (d_in, d_out)."""
    weights, c = model.weights, model.config
    tensors = {
        "transformer.wte.weight": weights["embedding.weight"] * _embedding_scale(c),
        "transformer.wpe.weight": _position_table(model),
        "transformer.ln_f.weight": weights["decoder_norm.weight"],
        "transformer.ln_f.bias": weights["decoder_norm.bias"],
        **_output_matrix(model),
    }
    group = c.n_heads // (c.n_kv_heads or c.n_heads)
    for i in range(c.depths[1]):
        ours, theirs = f"decoder.{i}", f"transformer.h.{i}"
        Q, K, V, output = model.attention(f"{ours}.mixer")
        heads = (Q, _repeated(K, c.d_k, group), _repeated(V, c.d_v, group))
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


def _output_matrix(model: TrainedModel) -> dict[str, Tensor]:
    """Return the matrix of the logits, if it is stored separately."""
    if _is_tied(model.config):
        return {}
    name = "embedding" if model.config.tied_embeddings == "all" else "output"
    return {"lm_head.weight": model.weights[f"{name}.weight"]}


def _is_tied(c: ModelConfig) -> bool:
    """Whether embeddings and the matrix of the logits are one; a factor of embeddings goes into the former alone."""
    return c.tied_embeddings == "all" and c.embedding_scale == 1


def _embedding_scale(c: ModelConfig) -> float:
    return 1.0 if c.embedding_scale == 1 else math.sqrt(c.d_model)


def _position_table(model: TrainedModel) -> Tensor:
    """Return one vector for each position: (max_positions, d_model)."""
    c = model.config
    if c.positional_encoding == "learned":
        return model.weights["positions.weight"]
    if c.positional_encoding == "sinusoidal":
        return sinusoids(c.max_positions, c.d_model)
    return torch.zeros(c.max_positions, c.d_model)


def write_bert(model: TrainedModel, folder: Path) -> None:
    """Write a masked language model for `BertForMaskedLM.from_pretrained`, with its tokenizer.

    Token types, the bias of the logits and the biases of the projections are zeros where this model has none. As for
    GPT-2, a factor of the embeddings goes into them, other positions become a table, and shared heads of keys and
    values are repeated. The mask has the id of `<unk>`, which no text contains.
    """
    write_json(folder / "config.json", bert_configuration(model.config, model.tokenizer.vocab_size))
    _write_tokenizer(model, folder, mask=MASK_TEXT)
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
        "tie_word_embeddings": _is_tied(c),
        "pad_token_id": PAD,
    }


def _bert_tensors(model: TrainedModel) -> dict[str, Tensor]:
    """Return the weights under BERT's names."""
    weights, c = model.weights, model.config
    zeros = torch.zeros(1, c.d_model)
    tensors = {
        "bert.embeddings.word_embeddings.weight": weights["embedding.weight"] * _embedding_scale(c),
        "bert.embeddings.position_embeddings.weight": _position_table(model),
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
            f"{theirs}.attention.self.key": _repeated(K, c.d_k, group),
            f"{theirs}.attention.self.value": _repeated(V, c.d_v, group),
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
    separate = {f"{theirs}.decoder.weight": matrix for matrix in _output_matrix(model).values()}
    return {
        f"{theirs}.transform.dense.weight": dense.W,
        f"{theirs}.transform.dense.bias": dense.b,
        f"{theirs}.transform.LayerNorm.weight": model.weights["output_transform.norm.weight"],
        f"{theirs}.transform.LayerNorm.bias": model.weights["output_transform.norm.bias"],
        f"{theirs}.bias": bias,
        **separate,
        **({f"{theirs}.decoder.bias": bias.clone()} if separate else {}),  # a file holds no tensor twice
    }


def _write_generation_and_tokenizer(model: TrainedModel, folder: Path) -> None:
    """Write greedy generation as the default, and the vocabulary."""
    marks = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    limits = {"suppress_tokens": [PAD, UNK, BOS], "max_length": model.config.max_positions}
    write_json(folder / "generation_config.json", {**marks, **limits})
    _write_tokenizer(model, folder)


def _write_tokenizer(model: TrainedModel, folder: Path, mask: str | None = None) -> None:
    """Write the vocabulary: of bytes for `tokenizers`, or SentencePiece's. `mask` replaces the unknown token."""
    if not isinstance(model.tokenizer, ByteTokenizer):
        (folder / TOKENIZER).write_bytes(model.tokenizer.model)
        return
    pad, unk, bos, eos = (model.vocabulary()[mark] for mark in (PAD, UNK, BOS, EOS))
    write_json(folder / "tokenizer.json", _byte_level([pad, mask or unk, bos, eos]))
    second = {"unk_token": unk} if mask is None else {"mask_token": mask}
    special = {"pad_token": pad, **second, "bos_token": bos, "eos_token": eos}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model.config.max_positions}
    write_json(folder / "tokenizer_config.json", {**settings, **special, "clean_up_tokenization_spaces": False})


def _byte_level(marks: list[str]) -> dict[str, Any]:
    """Return a tokenizer of single bytes: byte-level BPE without merges.

    The library writes a byte as a printable character: itself where it is one, else the next free one from U+0100.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + n) for n, byte in enumerate(others)}
    vocabulary = [*marks, *(characters[byte] for byte in range(256))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": id, "content": mark, **flags} for id, mark in enumerate(marks)],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {
            "type": "BPE",
            "vocab": {entry: id for id, entry in enumerate(vocabulary)},
            "merges": [],
        },
    }


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
        "tie_word_embeddings": _is_tied(c),
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    }


def _llama_tensors(model: TrainedModel) -> dict[str, Tensor]:
    """Return the weights under Llama's names."""
    weights, c = model.weights, model.config
    tensors = {
        "model.embed_tokens.weight": weights["embedding.weight"] * _embedding_scale(c),
        **_output_matrix(model),
        "model.norm.weight": weights["decoder_norm.weight"],
    }
    for i in range(c.depths[1]):
        layer = _llama_layer(model, f"decoder.{i}")
        tensors.update({f"model.layers.{i}.{name}": tensor for name, tensor in layer.items()})
    return tensors


def _llama_layer(model: TrainedModel, ours: str) -> dict[str, Tensor]:
    Q, K, V, output = model.attention(f"{ours}.mixer")
    size, feed_forward = model.config.d_k, f"{ours}.feed_forward"
    attention = {"q_proj": _reordered(Q, size), "k_proj": _reordered(K, size), "v_proj": V, "o_proj": output}
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


def _repeated(heads: Affine, size: int, group: int) -> Affine:
    """Return the projection with each head of keys or values repeated for every head of queries that it serves."""
    W, b = (x.unflatten(0, (-1, size)).repeat_interleave(group, 0).flatten(0, 1) for x in heads)
    return Affine(W, b)


def _reordered(heads: Affine, size: int) -> Affine:
    """Return the projection with the first entries of all pairs, then the second ones, in every head."""
    W, b = (x.unflatten(0, (-1, size))[:, even_then_odd(size)].flatten(0, 1) for x in heads)
    return Affine(W, b)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file with non-ASCII text unescaped."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_weights(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write model.safetensors. Without the format in its metadata, transformers refuses the file."""
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
