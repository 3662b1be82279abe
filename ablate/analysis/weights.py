"""The attention weights of every head for a sentence and its translation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.analysis.heads import Attention, Kind
from ablate.config import DecodingConfig
from ablate.config.plugins import without_digest
from ablate.data.tokenizer import BOS, EOS
from ablate.decoding import translate_ids
from ablate.errors import UsageError
from ablate.model import Transformer
from ablate.run.inference import LoadedRun, refuse_too_long


@dataclass(frozen=True)
class Weights:
    """The weights of one attention's heads (h, T, S), and what the T queries and the S keys are.

    kind, layer: which attention.
    queries, keys: token pieces.
    marks: the keys that are begin and end marks.
    """

    kind: Kind
    layer: int
    heads: Tensor
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    marks: tuple[int, ...]

    @property
    def over_itself(self) -> bool:
        """Whether queries and keys are one sequence."""
        return self.kind != "cross"


@dataclass(frozen=True)
class View:
    """What the heads of a run see of a pair of sentences.

    source, target: the pieces that the model reads, marks included; the target as it is read, after its begin mark.
    in_a_row: whether they are one sequence, as in a decoder-only model.
    weights: of each attention that shows them.
    hidden: for the others, a line each that says why not.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    in_a_row: bool
    weights: tuple[Weights, ...]
    hidden: tuple[str, ...]


def view(opened: LoadedRun, sentence: str, translation: str | None, among: Sequence[Attention]) -> View:
    """The weights of a run's heads for a sentence.

    Args:
        opened: the run.
        sentence: of the source language.
        translation: what the decoder reads; None for the run's own, with beam search as in the paper.
        among: the attentions to look at.

    Raises:
        UsageError: a text is empty, or none of the attentions shows its weights.
        DataError: a text is longer than the model's positions.
    """
    source, target = _ids(opened, sentence, translation)
    shown = watched(opened.model, source, target, among)
    in_a_row = not opened.config.has_encoder
    of_source, of_target = opened.corpus.tokenizer_of("source").pieces, opened.corpus.tokenizer.pieces
    written = {"encoder": (of_source, of_source), "cross": (of_target, of_source), "decoder": (of_target, of_target)}
    read = {"encoder": source, "cross": target, "decoder": source + target if in_a_row else target}
    seen = {**read, "cross": source}
    weights, hidden = [], []
    for attention, heads in zip(among, shown, strict=True):
        queries, keys = read[attention.kind], seen[attention.kind]
        size = (attention.module.h, len(queries), len(keys))
        if heads is None or heads.shape != (1, *size):
            what = "no weights" if heads is None else f"weights of shape {tuple(heads.shape)}, not {(1, *size)}"
            hidden.append(f"{attention}: attention={without_digest(opened.config.attention)} shows {what}")
            continue
        marks = tuple(i for i, token in enumerate(keys) if token in (BOS, EOS))
        ask, asked = written[attention.kind]
        labels = tuple(ask(queries)), tuple(asked(keys))
        weights.append(Weights(attention.kind, attention.layer, heads[0].float().cpu(), *labels, marks))
    if not weights:
        raise UsageError(*hidden)
    return View(tuple(of_source(source)), tuple(of_target(target)), in_a_row, tuple(weights), tuple(hidden))


@torch.no_grad()
def watched(
    model: Transformer, source: Sequence[int], target: Sequence[int], among: Sequence[Attention]
) -> list[Tensor | None]:
    """The weights (1, h, T, S) that each of these attentions shows in one pass; None where it shows none.

    Args:
        model: evaluating.
        source: token ids with their end mark.
        target: token ids with their begin mark.
        among: the attentions to watch.
    """
    shown: list[list[Tensor]] = [[] for _ in among]
    device = model.output_matrix.device
    try:
        for attention, into in zip(among, shown, strict=True):
            attention.module.watch = into.append
        model(torch.tensor([source], device=device), torch.tensor([target], device=device))
    finally:
        for attention in among:
            attention.module.watch = None
    return [into[-1] if into else None for into in shown]


def _ids(opened: LoadedRun, sentence: str, translation: str | None) -> tuple[list[int], list[int]]:
    """Both sides as the model reads them: the source with its end mark, the target with its begin mark."""
    tokenizer, config = opened.corpus.tokenizer, opened.config
    (source,) = opened.corpus.tokenizer_of("source").encode([sentence.strip()])
    if not source:
        raise UsageError("--sentence: is empty")
    refuse_too_long(config, "--sentence", len(source))
    if translation is None:
        device = opened.model.output_matrix.device
        (target,) = translate_ids(opened.model, [source], DecodingConfig(), device)
    else:
        (target,) = tokenizer.encode([translation.strip()])
        if not target:
            raise UsageError("--translation: is empty")
        refuse_too_long(config, "--translation", len(source), len(target))
    return [*source, EOS], [BOS, *target]
