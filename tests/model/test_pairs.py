"""A sample of the pairs of values of the model's fields; `python -m tests.model.pairs` takes all."""

import pytest

from tests.model.pairs import check, fault_of, resolved, sweep


def test_each_pair_of_values_is_a_model_that_works_or_is_refused_by_a_line():
    faults = []
    for outcome, pair in sweep(40, seed=2):
        fault = fault_of(outcome, pair)
        if fault:
            faults.append((dict(pair), fault))
    assert faults == []


def test_the_check_sees_states_that_padding_or_the_cache_changes(monkeypatch):
    config = resolved({"architecture": "decoder-only", "n_layers": 1, "d_model": 8, "n_heads": 2})
    check(config)
    from ablate.model import decoder_only

    step = decoder_only.DecoderOnly.step
    monkeypatch.setattr(decoder_only.DecoderOnly, "step", lambda *given: step(*given) * (1 + 1e-6))
    with pytest.raises(AssertionError, match="cache at token 0"):
        check(config)
