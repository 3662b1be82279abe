"""Translations compared with the generation of transformers, and perplexity compared with its loss.

The models are trained for a few steps, so that they end their translations, and translate each
source differently. They compute in double precision, so that rounding does not decide between two
hypotheses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from random import Random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel

from ablate.data.corpus import Split, TokenSequences
from ablate.data.tokenizer import BOS, EOS, PAD
from ablate.decoding import Hypothesis, beam_search
from ablate.tasks import TASKS
from tests.parity import marian
from tests.parity.cases import Case, pad
from tests.parity.row import Pairs, Row

STEPS = 100
LONGEST = 9  # tokens of a source
LIMIT = 20  # tokens of a translation
TRANSLATED = 40  # sentences
SETTINGS = {
    "encoder_layers": 1, "decoder_layers": 2, "n_heads": 4, "d_model": 4 * 11, "d_ff": 61,
    "attention_bias": True, "max_positions": LONGEST + LIMIT + 3,
}  # fmt: skip

Sentences = list[list[int]]


@dataclass(frozen=True)
class Taught:
    """A case trained briefly to reverse sentences, and unseen sentences."""

    case: Case
    sources: Sentences

    def translated(self, beam: int, alpha: float = 0.0) -> list[Hypothesis]:
        """Our translations, with the length penalty that transformers has."""
        limits = torch.full((len(self.sources),), LIMIT)
        sources = ended(self.sources)
        return beam_search(self.case.model, sources, limits, beam, alpha, penalty="length")


@cache
@torch.enable_grad()
def taught() -> Taught:
    """The case with SETTINGS after STEPS steps of Adam."""
    draw = Random(1)
    case = Case(SETTINGS, draw)

    def sentences(count: int) -> Sentences:
        return [
            [draw.randrange(4, case.V) for _ in range(draw.randint(1, LONGEST))]
            for _ in range(count)
        ]

    model = case.model.requires_grad_(True)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
    for _ in range(STEPS):
        source, target_in, target_out = marked(sentences(32))
        real = target_out != PAD
        optimizer.zero_grad()
        F.cross_entropy(model.logits(model(source, target_in)[real]), target_out[real]).backward()
        optimizer.step()
    model.requires_grad_(False).double()
    return Taught(case, sentences(TRANSLATED))


def marked(sources: Sentences) -> tuple[Tensor, Tensor, Tensor]:
    """Sources, decoder inputs and expected outputs: the reversed sources with marks."""
    targets = [source[::-1] for source in sources]
    return ended(sources), pad([[BOS, *target] for target in targets]), ended(targets)


def ended(sentences: Sequence[Sequence[int]]) -> Tensor:
    return pad([[*sentence, EOS] for sentence in sentences])


class EndAt(LogitsProcessor):
    """Allows only the end mark once a translation has its maximum length."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if input_ids.shape[1] < self.length:
            return scores
        only = torch.full_like(scores, float("-inf"))
        only[:, EOS] = scores[:, EOS]
        return only


def generated(
    theirs: PreTrainedModel, prompt: Tensor, begun: int, beam: int, alpha: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Generate with transformers: tokens with an end mark, and their log-probability over the
    length penalty.

    Args:
        theirs: the model.
        prompt: sources (B, S).
        begun: number of tokens that its output repeats before the translation.
        beam: K.
        alpha: exponent of the length penalty.
    """
    search = {"num_beams": beam, "length_penalty": alpha, "early_stopping": "never"}
    search = search if beam > 1 else {}
    out = theirs.generate(
        prompt, attention_mask=(prompt != PAD).long(), do_sample=False, max_new_tokens=LIMIT + 1,
        suppress_tokens=[PAD, BOS], logits_processor=LogitsProcessorList([EndAt(begun + LIMIT)]),
        pad_token_id=PAD, eos_token_id=EOS, return_dict_in_generate=True, output_logits=True, **search,
    )  # fmt: skip
    log_probs = theirs.compute_transition_scores(
        out.sequences, out.logits, out.beam_indices if beam > 1 else None, normalize_logits=True
    )
    tokens = out.sequences[:, begun:]
    ends = tokens == EOS
    real = (
        ends.cumsum(1) - ends.long() == 0
    )  # up to the first end mark; the padding after it differs
    return tokens * real, (log_probs * real).sum(1) / real.sum(1) ** alpha


def by_marian(beam: int, alpha: float = 0.0) -> Pairs:
    known = taught()
    theirs = generated(marian.marian(known.case), ended(known.sources), 1, beam, alpha)
    return _side_by_side(known.translated(beam, alpha), *theirs)


def _side_by_side(hypotheses: list[Hypothesis], tokens: Tensor, scores: Tensor) -> Pairs:
    yield _wide(ended([hypothesis.tokens for hypothesis in hypotheses])), _wide(tokens)
    yield torch.tensor([hypothesis.score for hypothesis in hypotheses]), scores


def _wide(tokens: Tensor) -> Tensor:
    return F.pad(tokens, (0, LIMIT + 1 - tokens.shape[1]))


def of_marian() -> Pairs:
    """Our perplexity, and the exponential of Marian's loss."""
    known = taught()
    source, target_in, target_out = marked(known.sources)
    split = Split(
        {
            "source": _sequences(known.sources),
            "target": _sequences([source[::-1] for source in known.sources]),
        }
    )
    labels = target_out.masked_fill(target_out == PAD, -100)
    theirs = marian.marian(known.case)(
        source, source != PAD, decoder_input_ids=target_in, labels=labels
    )
    yield (
        torch.tensor(
            [TASKS["translation"].perplexity(known.case.model, split, torch.device("cpu"))]
        ),
        theirs.loss.exp()[None],
    )


def _sequences(sentences: Sentences) -> TokenSequences:
    return TokenSequences(
        np.concatenate(sentences).astype(np.uint32), np.cumsum([0, *map(len, sentences)])
    )


def _row(beam: int, alpha: float = 0.0) -> Row:
    how = "greedy translations" if beam == 1 else f"translations by a beam of {beam}"
    how += f" and |Y|^{alpha:g}" if alpha else ""
    what = f"{TRANSLATED} {how}: tokens, log-probabilities"
    return Row("transformers MarianMTModel", what, partial(by_marian, beam, alpha))


ROWS = (
    Row("transformers MarianMTModel", "perplexity", of_marian),
    *(_row(beam, alpha) for beam, alpha in ((1, 0.0), (4, 0.0), (4, 1.0), (4, 2.0))),
)
