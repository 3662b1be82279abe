"""The importance of a head is the increase of the dev loss without it."""

import pytest
import torch

from ablate.attention.importance import count_passes, measure_importances
from ablate.attention.weights import attention_layers
from ablate.tasks import TASKS
from tests.model.small import small_model
from tests.training.in_memory import split_of_pairs

CPU, TASK = torch.device("cpu"), TASKS["translation"]
PAIRS = split_of_pairs([([5, 7, 11], [13, 17]), ([5], [19, 23, 29, 7, 4]), ([11, 13, 17, 19], [6])])
VARIANTS = [
    {}, {"architecture": "decoder-only"}, {"n_kv_heads": 1}, {"n_cross_heads": 2}, {"attention": "linear"},
    {"positional_encoding": "relative"}, {"mixer": "lstm"}, {"attention_bias": True}, {"attention_gate": "head"},
]  # fmt: skip


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_importance_equals_zeroing_the_heads_columns_of_the_output_matrix(fields):
    model = small_model(**fields)
    found = measure_importances(TASK, model, PAIRS, CPU, attention_layers(model))
    whole, masked = TASK.nats_per_token(model, PAIRS, CPU), iter(found.heads)
    assert (found.loss, found.records) == (whole, 3)
    d_v = model.config.d_v
    for attention in attention_layers(model):
        weight = attention.module.W_O.weight
        for head in range(attention.module.h):
            kept = weight.detach().clone()
            with torch.no_grad():
                weight[:, head * d_v : (head + 1) * d_v] = 0
                without = TASK.nats_per_token(model, PAIRS, CPU)
                weight.copy_(kept)
            one = next(masked)
            assert (one.kind, one.layer, one.head) == (attention.kind, attention.layer, head + 1)
            assert one.loss == pytest.approx(without, rel=1e-6)
            assert one.importance == one.loss - whole
            assert abs(one.importance) > 1e-6
    assert next(masked, None) is None


def test_a_differential_head_is_the_output_with_its_values():
    """Head 2 of 4 is the first of the second pair, whose two heads are the last two outputs."""
    model = small_model(n_heads=4, attention="differential", d_v=6)
    (layer, *_) = attention_layers(model)
    found = measure_importances(TASK, model, PAIRS, CPU, [layer]).heads[1]
    with torch.no_grad():
        layer.module.W_O.weight[:, 12:18] = 0
    assert found.loss == pytest.approx(TASK.nats_per_token(model, PAIRS, CPU), rel=1e-6)


def measured(model, **chosen):
    return measure_importances(TASK, model, PAIRS, CPU, attention_layers(model, **chosen)).heads


def test_importance_is_reproducible_and_independent_of_the_other_heads_measured():
    model = small_model(dropout=0.5, attention_dropout=0.5).train()
    first = measured(model)
    assert measured(model) == first
    chosen = measured(model, kinds=["cross"], layers=[2])
    assert chosen == tuple(head for head in first if (head.kind, head.layer) == ("cross", 2))


def test_every_pass_is_reported():
    model, told = small_model(n_cross_heads=2), []
    measure_importances(TASK, model, PAIRS, CPU, attention_layers(model), lambda: told.append(None))
    assert len(told) == count_passes(attention_layers(model)) == 1 + 2 * (3 + 3 + 2)


def test_masks_are_removed_after_measuring_and_after_a_failure(monkeypatch):
    model, calls = small_model(), []

    def failing(*given):
        parts = [attention.module.on_heads for attention in attention_layers(model)]
        calls.append([part[0].factors if part else None for part in parts])
        if len(calls) == 5:
            raise RuntimeError
        return 1.0

    monkeypatch.setattr(TASK, "nats_per_token", failing)
    with pytest.raises(RuntimeError):
        measured(model)
    expected = [None, [0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert [None if gates[0] is None else gates[0].tolist() for gates in calls[:4]] == expected
    assert calls[4][1].tolist() == [0, 1, 1]
    assert [gates[1:] == [None] * 5 for gates in calls[:4]] == [True] * 4
    assert all(attention.module.on_heads == () for attention in attention_layers(model))


def test_first_returns_the_beginning_of_a_split():
    some = PAIRS.first(2)
    assert [(some["source"][i].tolist(), some["target"][i].tolist()) for i in range(len(some))] == [
        ([5, 7, 11], [13, 17]),
        ([5], [19, 23, 29, 7, 4]),
    ]
    assert len(PAIRS.first(9)) == 3
    model = small_model()
    alone = split_of_pairs([([5, 7, 11], [13, 17]), ([5], [19, 23, 29, 7, 4])])
    assert TASK.nats_per_token(model, some, CPU) == TASK.nats_per_token(model, alone, CPU)
