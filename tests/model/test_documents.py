"""Documents in one context, each seen by itself alone: logits of packed documents against those of
each document.
"""

import pytest
import torch

from ablate.config.language_data import END_MARK
from ablate.data.tokenizer import BOS, EOS
from ablate.errors import StudyError
from ablate.model.attention import LinearAttention
from ablate.parts.attention import ATTENTIONS, AttentionVariant
from tests.model.small import ENCODINGS, V, small_model

DOCUMENTS = ([BOS, 9, 5, 9, 7], [EOS, 9, 5], [EOS], [EOS, 5, 9, 8, 4, 6, 9])
PARTS = [
    *({"positional_encoding": name} for name in ENCODINGS),
    {"attention": "local", "attention_window": 2, "positional_encoding": "rope"},
    {"attention": "differential", "n_heads": 4},
    {"attention_sinks": True, "score_cap": 5.0},
    {"smear": True, "bigram_embeddings": 11},
    {"value_embeddings": "gated", "value_residual": True, "exclude_own_value": True},
    {"kv_rank": 6, "positional_encoding": "alibi"},
    {"n_experts": 3, "layer_skips": "unet", "loops": 2},
    {"attention_dropout": 0.1, "positional_encoding": ("rope", "none")},
]


def logits(fields, rows, masks=True):
    model = small_model(architecture="decoder-only", document_masks=masks, **fields).double()
    with torch.no_grad():
        return model.logits(model.read(torch.tensor(rows)))


@pytest.mark.parametrize("fields", PARTS, ids=str)
def test_packed_documents_have_the_logits_of_each_document_alone(fields):
    packed = [token for document in DOCUMENTS for token in document]
    others = [EOS, *packed[1:-3], 0, 0, 0]  # a second context, with padding
    together = logits(fields, [packed, others])[0]
    alone = torch.cat([logits(fields, [document])[0] for document in DOCUMENTS])
    assert torch.allclose(together, alone, rtol=0.0, atol=1e-12)
    without = logits(fields, [packed], masks=False)[0]
    first = len(DOCUMENTS[0])
    assert torch.allclose(without[:first], alone[:first], rtol=0.0, atol=1e-12)
    assert not torch.allclose(without[first:], alone[first:], rtol=0.0, atol=1e-6)


def test_a_single_document_is_read_and_generated_as_without_masks():
    model, plain = (
        small_model(architecture="decoder-only", document_masks=masks) for masks in (True, False)
    )
    tokens = torch.tensor([[BOS, 9, 5, 9, 7]])
    with torch.no_grad():
        states = [each.step(tokens[:, 4:], each.start(tokens[:, :4], 1)) for each in (model, plain)]
        assert torch.equal(model.read(tokens), plain.read(tokens))
    assert torch.equal(*states)
    assert torch.allclose(states[0][:, 0], model.read(tokens)[:, -1], atol=1e-5)


def test_the_mark_is_that_of_every_vocabulary():
    assert END_MARK == EOS < V


class Unmasked(LinearAttention):
    """An own mechanism without masks of queries."""


def test_a_mechanism_without_masks_of_queries_is_refused(monkeypatch):
    monkeypatch.setitem(ATTENTIONS, "full", AttentionVariant(f"{__name__}:Unmasked"))
    with pytest.raises(StudyError, match="cannot tell documents apart"):
        small_model(architecture="decoder-only", document_masks=True)
