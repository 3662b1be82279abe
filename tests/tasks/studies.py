"""A small study of each task, and the text that it is trained on."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

LANGUAGE = """\
study: lm
task: language-model
data: {corpus: files, train: text.txt, dev: 5%, test: 5%}
base:
  N: 1
  d_model: 32
  d_ff: 64
  h: 2
  dropout: 0.0
  positional_encoding: rope
  norm: rmsnorm
  activation: swiglu
  norm_position: pre
  max_positions: 128
  context: 16
  batch_tokens: 256
  train_steps: 60
  warmup_steps: 10
  learning_rate: 0.01
  eval_every: 30
  checkpoint_every: 30
  generated_tokens: 20
rows:
  gpt: {set: {positional_encoding: learned, norm: layernorm, activation: gelu, embedding_scale: 1}}
  lstm: {set: {mixer: lstm, positional_encoding: none}}
  context: {each: {context: [8], eval_context: [64], eval_stride: [4]}}
"""

MASKED = """\
study: mlm
task: masked-lm
data: {corpus: files, train: text.txt, dev: 5%, test: 10%}
base:
  N: 1
  d_model: 32
  d_ff: 64
  h: 2
  dropout: 0.0
  positional_encoding: learned
  activation: gelu
  embedding_scale: 1
  embedding_norm: true
  output_transform: true
  output_bias: true
  max_positions: 64
  context: 16
  batch_tokens: 256
  train_steps: 60
  warmup_steps: 10
  learning_rate: 0.01
  eval_every: 30
  checkpoint_every: 30
rows:
  masks: {set: {mask_rate: 0.4, mask_split: 100/0/0, whole_word: true}}
  lstm: {set: {mixer: lstm, positional_encoding: none}}
  evaluation: {each: {eval_context: [32], eval_mask_rate: [0.5], eval_mask_seed: [2], eval_whole_word: [true]}}
"""

PARSING = """\
study: parser
task: parsing
data: {corpus: files, train: train.ptb, dev: dev.ptb, test: test.ptb, vocab_size: 60, max_length: 60}
base:
  N: 1
  d_model: 32
  d_ff: 64
  h: 2
  dropout: 0.0
  batch_tokens: 256
  train_steps: 200
  warmup_steps: 20
  learning_rate: 0.01
  eval_every: 100
  checkpoint_every: 100
  norm_position: pre
  beam: 2
  max_extra_length: 20
rows:
  untrained: {set: {train_steps: 1}}
  limit: {each: {max_extra_length: [0]}}
  search: {set: {train_steps: 1, constrained: true}}
"""

SYNTHETIC = """\
study: syn
task: synthetic
data: {corpus: recall, pairs: 2, symbols: 8, test: 60, dev: 40}
base:
  N: 1
  d_model: 32
  d_ff: 64
  h: 2
  norm_position: pre
  max_positions: 64
  batch_tokens: 128
  train_steps: 30
  warmup_steps: 5
  learning_rate: 0.01
  eval_every: 15
  checkpoint_every: 15
rows:
  lstm: {set: {mixer: lstm, positional_encoding: none}}
  both: {set: {architecture: encoder-decoder}}
  load: {each: {eval_pairs: [3]}}
"""


def write_lines_that_repeat(folder: Path) -> None:
    """Lines whose second half repeats the first."""
    draw = random.Random(1)
    words = ["".join(draw.choice("abcdef") for _ in range(4)) for _ in range(1500)]
    (folder / "text.txt").write_text("".join(f"{word}{word}\n" for word in words))


def write_lines_of_a_letter(folder: Path) -> None:
    """Lines of one letter each, so that a masked letter can be known."""
    draw = random.Random(1)
    lines = (8 * draw.choice("abcdef") for _ in range(1500))
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in lines))


def write_treebank(folder: Path) -> None:
    """Trees of short sentences."""
    for seed, (split, count) in enumerate((("train", 120), ("dev", 12), ("test", 20))):
        draw = random.Random(seed)
        (folder / f"{split}.ptb").write_text("".join(_tree(draw) for _ in range(count)))


def _tree(draw: random.Random) -> str:
    """`the dog sees a cat .` or `the dog sees .`, with function tags and over several lines."""
    nouns, verbs = ("dog", "cat", "bird"), ("sees", "hears")
    object = f"\n  (NP (DT a) (NN {draw.choice(nouns)}))" if draw.random() < 0.5 else ""
    subject = f"(NP-SBJ (DT the) (NN {draw.choice(nouns)}))"
    return f"( (S {subject} (VP (VBZ {draw.choice(verbs)}){object}) (. .)) )\n"


# The study of each task, and what writes its text.
STUDIES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "language-model": (LANGUAGE, write_lines_that_repeat),
    "masked-lm": (MASKED, write_lines_of_a_letter),
    "parsing": (PARSING, write_treebank),
    "synthetic": (SYNTHETIC, lambda folder: None),
}
