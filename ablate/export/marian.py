"""Encoder-decoders for `MarianMTModel` of Hugging Face's transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ablate.config import ModelConfig
from ablate.data.tokenizer import BOS, EOS, PAD
from ablate.export.huggingface import GENERATION, repeated, write_json, write_weights
from ablate.export.trained_model import Affine, TrainedModel, even_then_odd


def write_marian(model: TrainedModel, folder: Path) -> None:
    """Write the files that `MarianMTModel.from_pretrained` and `MarianTokenizer.from_pretrained`
    read.

    Marian's positional encoding has all sines in the first half of a vector and all cosines in the
    second, where the paper's formula interleaves them (section 3.5). The entries of every vector of
    width d_model are reordered accordingly, in embeddings, norms and projections alike. A head of
    keys and values that serves several heads of queries is written once for each of them.

    Deviation: Marian's layer normalization adds 1e-5 to the variance, this project 1e-6
        (norms.EPS), and Marian's
    configuration has no field for it. Variances are near 1, so that the states differ by a few
    parts in a million.
    """
    c, vocabulary = model.config, model.vocabulary()
    limits = {
        "max_length": c.max_positions,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": EOS,
    }
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
        self._from_d_model(repeated(K, self.model.config.d_k, self.group), f"{theirs}.k_proj")
        self._from_d_model(repeated(V, self.model.config.d_v, self.group), f"{theirs}.v_proj")
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
