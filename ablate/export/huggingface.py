"""Files that all models of Hugging Face's transformers have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from ablate.data.tokenizer import BOS, EOS, PAD

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


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file with non-ASCII text unescaped."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_weights(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write model.safetensors. Without the format in its metadata, transformers refuses the file."""
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
