"""Files and weights that models of Hugging Face's transformers have in common."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from ablate.config import ModelConfig
from ablate.data.corpus import TOKENIZER
from ablate.data.tokenizer import BOS, EOS, PAD, UNK, ByteTokenizer
from ablate.export.trained_model import Affine, TrainedModel
from ablate.model.positions import sinusoids

# Defaults of `generate`, equal to the beam search of this project with alpha = 0. transformers
# divides by the length itself, which is `length_penalty: length`; GNMT's form has no equivalent.
GENERATION = {
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
    "suppress_tokens": [PAD, BOS],
    "num_beams": 4,
    "length_penalty": 0.0,
    "early_stopping": True,
}


def write_generation_and_tokenizer(model: TrainedModel, folder: Path) -> None:
    """Write greedy generation as the default, and the vocabulary."""
    marks = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    limits = {"suppress_tokens": [PAD, UNK, BOS], "max_length": model.config.max_positions}
    write_json(folder / "generation_config.json", {**marks, **limits})
    write_tokenizer(model, folder)


def write_tokenizer(model: TrainedModel, folder: Path, mask: str | None = None) -> None:
    """Write the vocabulary: of bytes for `tokenizers`, or SentencePiece's. `mask` replaces the
    unknown token.
    """
    if not isinstance(model.tokenizer, ByteTokenizer):
        (folder / TOKENIZER).write_bytes(model.tokenizer.model)
        return
    pad, unk, bos, eos = (model.vocabulary()[mark] for mark in (PAD, UNK, BOS, EOS))
    write_json(folder / "tokenizer.json", _byte_level([pad, mask or unk, bos, eos]))
    second = {"unk_token": unk} if mask is None else {"mask_token": mask}
    special = {"pad_token": pad, **second, "bos_token": bos, "eos_token": eos}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.config.max_positions,
    }
    write_json(
        folder / "tokenizer_config.json",
        {**settings, **special, "clean_up_tokenization_spaces": False},
    )


def _byte_level(marks: list[str]) -> dict[str, Any]:
    """Return a tokenizer of single bytes: byte-level BPE without merges.

    The library writes a byte as a printable character: itself where it is one, else the next free
    one from U+0100.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable} | {
        byte: chr(0x100 + n) for n, byte in enumerate(others)
    }
    vocabulary = [*marks, *(characters[byte] for byte in range(256))]
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
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


def output_matrix(model: TrainedModel) -> dict[str, Tensor]:
    """Return the matrix of the logits, if it is stored separately."""
    if is_tied(model.config):
        return {}
    name = "embedding" if model.config.tied_embeddings == "all" else "output"
    return {"lm_head.weight": model.weights[f"{name}.weight"]}


def is_tied(c: ModelConfig) -> bool:
    """Whether embeddings and the matrix of the logits are one; a factor of embeddings goes into the
    former alone.
    """
    return c.tied_embeddings == "all" and c.embedding_scale == 1


def embedding_scale(c: ModelConfig) -> float:
    """Return the factor of embeddings, which other models lack: it goes into the embeddings
    themselves.
    """
    return 1.0 if c.embedding_scale == 1 else math.sqrt(c.d_model)


def position_table(model: TrainedModel) -> Tensor:
    """Return one vector for each position: (max_positions, d_model)."""
    c = model.config
    if c.positional_encoding == "learned":
        return model.weights["positions.weight"]
    if c.positional_encoding == "sinusoidal":
        return sinusoids(c.max_positions, c.d_model)
    return torch.zeros(c.max_positions, c.d_model)


def repeated(heads: Affine, size: int, group: int) -> Affine:
    """Return the projection with each head of keys or values repeated for every head of queries
    that it serves.
    """
    W, b = (x.unflatten(0, (-1, size)).repeat_interleave(group, 0).flatten(0, 1) for x in heads)
    return Affine(W, b)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file with non-ASCII text unescaped."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_weights(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write model.safetensors. Without the format in its metadata, transformers refuses the
    file.
    """
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    # Not save_file, whose error of a full disk is no OSError.
    content = save(contiguous, metadata={"format": "pt"})
    (folder / "model.safetensors").write_bytes(content)
