"""Attention layers of a model, and the weights of every head for a sentence and its translation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from ablate.data.tokenizer import BOS, EOS
from ablate.decoding import translate_ids
from ablate.decoding.fill import encode_masked, masked_pieces
from ablate.errors import UsageError, listed
from ablate.formatting import setting_text
from ablate.model import Transformer
from ablate.model.encoder_only import EncoderOnly
from ablate.model.multi_head import MultiHeadAttention
from ablate.tasks import SequenceToSequence
from ablate.workers.inference import LoadedRun, refuse_too_long, too_long

DEFAULT_TOKENS = 24  # number of tokens of the test split, for a language model without a text
MARKS = ("<s>", "</s>")  # pieces of the begin and the end mark


@dataclass(frozen=True)
class LayerWeights:
    """The attention weights of a layer.

    kind: kind of its attention.
    layer: number of the layer, from 1.
    heads: weights of shape (h, T, S).
    queries, keys: T and S token pieces.
    """

    kind: Kind
    layer: int
    heads: Tensor
    queries: tuple[str, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True)
class AttentionWeights:
    """The attention weights of a run for a pair of sentences.

    source: token pieces of the source, with the end mark; empty for language models.
    target: token pieces of the target, with the begin mark.
    layers: weights of each layer that reports weights.
    hidden: a line for each layer without weights, with the reason.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    layers: tuple[LayerWeights, ...]
    hidden: tuple[str, ...]

    @property
    def texts(self) -> dict[str, str]:
        """The texts of source and target, by name, without marks."""
        if not self.source:
            return {"text": _text(self.target)}
        return {"source": _text(self.source), "target": _text(self.target)}


def _text(pieces: Sequence[str]) -> str:
    return "".join(piece for piece in pieces if piece not in MARKS).replace("▁", " ").strip()


def attention_weights(
    run: LoadedRun, sentence: str | None, translation: str | None, layers: Sequence[AttentionLayer]
) -> AttentionWeights:
    """The attention weights of a run for a sentence, or for the text of a language model.

    Args:
        run: the trained model with its tokenizers.
        sentence: the source sentence or the text; None for the first sentence of the test split.
        translation: the text that the decoder reads; None for the prediction of the run.
        layers: the attention layers.

    Raises:
        UsageError: a text is empty, or no layer reports its weights.
        DataError: a text has more tokens than the model has positions.
    """
    task = run.task
    tokenizer = run.corpus.tokenizer
    source: list[int] = []
    source_pieces: tuple[str, ...] = ()
    if isinstance(task, SequenceToSequence):
        text = run.corpus.text("test", task.source)[0] if sentence is None else sentence
        source, target = _token_ids(run, task, text, translation)
        source_pieces = tuple(run.corpus.tokenizer_of(task.source).pieces(source))
    elif translation is not None:
        raise UsageError("--translation: a language model reads one text; give it as --text")
    else:
        target = _text_ids(run, sentence)
    target_pieces = tuple(tokenizer.pieces(target))
    queries_and_keys = {
        "encoder": (source_pieces, source_pieces),
        "cross": (target_pieces, source_pieces),
        "decoder": (target_pieces, target_pieces),
    }
    if not run.config.has_decoder:
        target_pieces = tuple(masked_pieces(tokenizer, target))
        queries_and_keys["encoder"] = (target_pieces, target_pieces)
    elif not run.config.has_encoder:
        sequence = source_pieces + target_pieces
        queries_and_keys["decoder"] = (sequence, sequence)
    recorded = record_weights(run.model, source, target, layers)
    reported = []
    hidden = []
    for attention, heads in zip(layers, recorded, strict=True):
        queries, keys = queries_and_keys[attention.kind]
        shape = (1, attention.module.h, len(queries), len(keys))
        # A custom class may report no weights, or weights of another shape.
        if heads is not None and heads.shape == shape:
            weights = heads[0].float().cpu()
            reported.append(LayerWeights(attention.kind, attention.layer, weights, queries, keys))
            continue
        report = "no weights"
        if heads is not None:
            report = f"weights of shape {tuple(heads.shape)}, not {shape}"
        name = setting_text(run.config.attention)
        hidden.append(f"{attention}: attention={name} reports {report}")
    if not reported:
        raise UsageError(*hidden)
    return AttentionWeights(source_pieces, target_pieces, tuple(reported), tuple(hidden))


@torch.no_grad()
def record_weights(
    model: Transformer,
    source: Sequence[int],
    target: Sequence[int],
    layers: Sequence[AttentionLayer],
) -> list[Tensor | None]:
    """Run the model once, and return the weights (1, h, T, S) of each layer; None for a layer that
    does not report them.

    Args:
        model: the model, in evaluation mode.
        source: token ids with the end mark; empty for language models.
        target: token ids with the begin mark; without it for a masked language model.
        layers: the layers to record.
    """
    recorded: dict[AttentionLayer, Tensor] = {}
    device = model.output_matrix.device
    try:  # fused attention has no weights; with a callback, a layer computes them
        for attention in layers:
            attention.module.on_weights = partial(recorded.__setitem__, attention)
        target_ids = torch.tensor([target], device=device)
        if isinstance(model, EncoderOnly):
            model.read(target_ids)
        else:
            model(torch.tensor([source], dtype=torch.int64, device=device), target_ids)
    finally:
        for attention in layers:
            attention.module.on_weights = None
    return list(map(recorded.get, layers))


def _text_ids(run: LoadedRun, text: str | None) -> list[int]:
    """Token ids of a text, with the begin mark for a decoder; by default the first tokens of the
    test split.
    """
    begin = [BOS] if run.config.has_decoder else []
    max_tokens = run.config.max_positions - len(begin)
    if text is None:
        (field,) = run.corpus.fields
        count = min(DEFAULT_TOKENS, max_tokens)
        return [*begin, *run.corpus.split("test")[field].ids[:count].tolist()]
    if begin:
        (ids,) = run.corpus.tokenizer.encode([text])
    else:
        ids = encode_masked(run.corpus.tokenizer, text)
    if not ids:
        raise UsageError("--text: is empty")
    if len(ids) > max_tokens:
        raise too_long(run.config, "--text", len(ids))
    return begin + ids


def _token_ids(
    run: LoadedRun, task: SequenceToSequence, sentence: str, translation: str | None
) -> tuple[list[int], list[int]]:
    """Token ids of the source with the end mark, and of the target with the begin mark."""
    tokenizer = run.corpus.tokenizer_of(task.target)
    config = run.config
    (source,) = run.corpus.tokenizer_of(task.source).encode([task.as_read(sentence)])
    if not source:
        raise UsageError("--text: is empty")
    refuse_too_long(config, "--text", len(source))
    if translation is None:
        device = run.model.output_matrix.device
        constrain = task.constrain(run.corpus, config)
        (target,) = translate_ids(run.model, [source], config, device, constrain=constrain)
    else:
        (target,) = tokenizer.encode([translation.strip()])
        if not target:
            raise UsageError("--translation: is empty")
        refuse_too_long(config, "--translation", len(source), len(target))
    return [*source, EOS], [BOS, *target]


Kind = Literal["encoder", "decoder", "cross"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Names of the stack of layers in a model, and of the attention in a layer.
ATTRIBUTES: dict[Kind, tuple[str, str]] = {
    "encoder": ("encoder", "mixer"),
    "decoder": ("decoder", "mixer"),
    "cross": ("decoder", "cross_attention"),
}


@dataclass(frozen=True)
class AttentionLayer:
    """An attention sub-layer of a model; `layer` is its number, from 1."""

    kind: Kind
    layer: int
    module: MultiHeadAttention

    def __str__(self) -> str:
        return f"{self.kind} layer {self.layer}"


def attention_layers(
    model: Transformer, kinds: Collection[Kind] = (), layers: Collection[int] = ()
) -> list[AttentionLayer]:
    """The attention layers of a model, ordered by kind and number: only these kinds and numbers, if
    any are given.

    Raises:
        UsageError: the model has no attention, or none of these kinds and numbers.
    """
    if model.config.loops > 1:
        raise UsageError(
            f"loops={model.config.loops} passes each layer several times, with other weights in "
            f"each pass: a layer has no single map"
        )
    available = []
    # A model with a single stack has no cross-attention, and an LSTM layer has no attention.
    for kind, (stack, name) in ATTRIBUTES.items():
        for number, layer in enumerate(getattr(model, stack, ()), 1):
            module = getattr(layer, name, None)
            if isinstance(module, MultiHeadAttention):
                available.append(AttentionLayer(kind, number, module))
    if not available:
        c = model.config
        raise UsageError(
            f"the run has no attention: architecture={c.architecture} with "
            f"mixer={setting_text(c.mixer)}"
        )
    chosen = []
    for attention in available:
        if attention.kind in (kinds or KINDS) and attention.layer in (layers or [attention.layer]):
            chosen.append(attention)
    if not chosen:
        options = [f"--kind {kind}" for kind in kinds] + [f"--layer {layer}" for layer in layers]
        depths = {attention.kind: attention.layer for attention in available}
        existing = listed(f"{kind} layers 1 to {depth}" for kind, depth in depths.items())
        raise UsageError(
            f"{' '.join(options)}: the run has no such attention; it has "
            f"{existing.replace(' or ', ' and ')}"
        )
    return chosen
