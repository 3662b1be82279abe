"""The files of a model of Hugging Face's transformers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from ablate.config import DecodingConfig, ModelConfig
from ablate.data.corpus import TOKENIZER
from ablate.data.tokenizer import BOS, EOS, PAD, UNK, ByteTokenizer
from ablate.decoding.fill import MASK_TEXT
from ablate.export.changes import absent_weights, is_tied
from ablate.export.target import Target, TrainedModel, derived_head_sizes
from ablate.parts.feed_forward import ACTIVATIONS

MARKS = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
SUPPRESSED = {"sequence-to-sequence": [PAD, BOS], "causal": [PAD, UNK, BOS]}
SEARCHES = ("sequence-to-sequence",)  # kinds of models that are decoded by beam search
# Name of an activation (for a gated network, of its gate) -> name in transformers.
ACTIVATION_NAMES = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "silu": "silu",
    "relu2": "relu2",
    "swiglu": "silu",
    "geglu": "gelu",
    "geglu_tanh": "gelu_pytorch_tanh",
    "reglu": "relu",
}
GATED = tuple(name for name in ACTIVATION_NAMES if ACTIVATIONS[name].gated)
UNGATED = tuple(name for name in ACTIVATION_NAMES if not ACTIVATIONS[name].gated)


def transformers_model(
    kind: str, name: str, settings: Callable[[ModelConfig], dict[str, Any]], **facts: Any
) -> Target:
    """A target of transformers. `kind` is its `model_type`, `name` its class, and `facts` are
    fields of `Target`.
    """
    return Target(
        name=name,
        settings=lambda c: {"model_type": kind, **settings(c)},
        write=write_transformers,
        **{"rules": (derived_head_sizes,), **facts},
    )


def sizes(c: ModelConfig) -> dict[str, Any]:
    """Settings that have the same names in every model with one stack."""
    return {
        "hidden_size": c.d_model,
        "intermediate_size": c.inner_width(gated=c.activation in GATED),
        "num_hidden_layers": len(c.all_layers),
        "num_attention_heads": c.n_heads,
        "max_position_embeddings": c.max_positions,
        "tie_word_embeddings": is_tied(c),
    }


def windows(c: ModelConfig) -> dict[str, Any]:
    """The window of local attention, and the kind of attention of each layer, for one stack."""
    kinds = {"local": "sliding_attention", "full": "full_attention"}
    return {
        # transformers also counts the token itself.
        "sliding_window": c.attention_window + 1,
        "layer_types": [kinds[layer.attention] for layer in c.all_layers],
    }


def rope_bases(c: ModelConfig) -> dict[str, set[float]]:
    """The bases of rotary positions in the layers with each kind of attention."""
    bases: dict[str, set[float]] = defaultdict(set)
    for layer in c.all_layers:
        bases[layer.attention].add(layer.rope_base)
    return bases


def single_rope_bases(c: ModelConfig, name: str) -> str:
    """A rule: layers with the same kind of attention have the same base of rotary positions."""
    several = "/".join(kind for kind, bases in rope_bases(c).items() if len(bases) > 1)
    if not several:
        return ""
    return f"several rope_base in layers of attention={several}, but {name} has one for each"


def write_transformers(target: Target, model: TrainedModel, folder: Path) -> None:
    """Write the files that `from_pretrained` of the model and its tokenizer read."""
    settings = {
        "architectures": [target.name],
        "dtype": "float32",
        "vocab_size": model.tokenizer.vocab_size,
        **MARKS,
        **target.settings(model.config),
    }
    write_plain_json(folder / "config.json", settings)
    generation: dict[str, Any] = {**MARKS, "max_length": model.config.max_positions}
    if model.kind in SEARCHES:
        generation |= _search(model.config)
    if settings["model_type"] == "marian":
        _write_marian_tokenizer(model, folder)
        generation |= {"decoder_start_token_id": BOS, "forced_eos_token_id": EOS}
    else:
        write_tokenizer(model, folder, MASK_TEXT if model.kind == "masked" else None)
    if model.kind in SUPPRESSED:
        generation["suppress_tokens"] = SUPPRESSED[model.kind]
        write_plain_json(folder / "generation_config.json", generation)
    tensors: dict[str, Tensor] = {}
    for name, tensor in target.tensors(model, absent_weights(model)).items():
        # safetensors refuses tensors that share memory.
        tensors[name] = tensor.clone().contiguous()
    # Not save_file, which raises no OSError on a full disk. transformers needs the format in the
    # metadata.
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))


def _search(c: DecodingConfig) -> dict[str, Any]:
    """The settings of a row's beam search. transformers divides by length^alpha, which is
    `length_penalty: length`, and has no other penalty.
    """
    return {
        "num_beams": c.beam,
        "length_penalty": 0.0 if _has_gnmt_penalty(c) else c.alpha,
        "early_stopping": c.early_stopping or "never",
    }


def _has_gnmt_penalty(c: DecodingConfig) -> bool:
    return c.alpha > 0 and c.length_penalty == "gnmt"


def penalty_note(c: DecodingConfig) -> str:
    """A note for a row whose length penalty transformers does not have; empty for other rows."""
    if c.beam == 1 or not _has_gnmt_penalty(c):  # greedy search compares no lengths
        return ""
    return (
        f"alpha={c.alpha:g} with length_penalty=gnmt has no equivalent in transformers: the model "
        "searches with length_penalty=0.0, and its translations can differ from those of the row"
    )


def _write_marian_tokenizer(model: TrainedModel, folder: Path) -> None:
    """Write the files of `MarianTokenizer`, with the same model for source and target."""
    vocabulary = model.vocabulary()
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": model.languages[0],
        "target_lang": model.languages[1],
        "unk_token": vocabulary[UNK],
        "eos_token": vocabulary[EOS],
        "pad_token": vocabulary[PAD],
        "model_max_length": model.config.max_positions,
        # Otherwise text such as "</s>" would be read as the token of that name.
        "split_special_tokens": model.tokenizer.is_escaped,
        "separate_vocabs": False,
        "clean_up_tokenization_spaces": False,
    }
    write_plain_json(folder / "vocab.json", {piece: id for id, piece in enumerate(vocabulary)})
    write_plain_json(folder / "tokenizer_config.json", settings)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(model.tokenizer.model)


def write_tokenizer(model: TrainedModel, folder: Path, mask: str | None = None) -> None:
    """Write the files of the tokenizer. `mask` is the text of the mask token, which takes the id of
    the unknown token.
    """
    if not isinstance(model.tokenizer, ByteTokenizer):
        (folder / TOKENIZER).write_bytes(model.tokenizer.model)
        return
    pad, unk, bos, eos = (model.vocabulary()[mark] for mark in (PAD, UNK, BOS, EOS))
    write_plain_json(folder / "tokenizer.json", _byte_level([pad, mask or unk, bos, eos]))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.config.max_positions,
        "pad_token": pad,
        **({"mask_token": mask} if mask else {"unk_token": unk}),
        "bos_token": bos,
        "eos_token": eos,
        "clean_up_tokenization_spaces": False,
    }
    write_plain_json(folder / "tokenizer_config.json", settings)


def _byte_level(marks: list[str]) -> dict[str, Any]:
    """The content of tokenizer.json for single bytes: byte-level BPE without merges.

    BPE names a byte by a printable character: by its own character if that is printable, otherwise
    by the next unused character from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    vocabulary, free = list(marks), 0x100
    for byte in range(256):
        if byte in printable:
            vocabulary.append(chr(byte))
        else:
            vocabulary.append(chr(free))
            free += 1
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    unset = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": id, "content": mark, **unset, "special": True} for id, mark in enumerate(marks)
        ],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {
            "type": "BPE",
            "vocab": {entry: id for id, entry in enumerate(vocabulary)},
            "merges": [],
        },
    }


def write_plain_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file with non-ASCII text unescaped."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
