"""`ablate verify` rehearses a resume: it is None where every byte is the same, and names what is not."""

import pytest
import torch

from ablate.config import resolve_row
from ablate.run.resume_check import rehearse
from ablate.training import loop
from tests.training.conftest import TINY, toy  # noqa: F401


def rehearsed(corpus, **settings):
    return rehearse(
        resolve_row({**TINY, **settings}), 1, corpus,
        steps=4, device=torch.device("cpu"), micro_batch_tokens=10_000, sources={},
    )  # fmt: skip


@pytest.mark.parametrize("steps", [2, 3, 4, 12])
def test_a_run_that_resumes_exactly_differs_nowhere(toy, steps):  # noqa: F811
    assert rehearsed(toy, train_steps=steps) is None


def test_a_generator_that_is_not_restored_is_found(toy, monkeypatch):  # noqa: F811
    load = loop.load_file

    def forgetful(path):
        found = load(path)
        if "random" in found:
            found["random"] = torch.Generator().manual_seed(99).get_state()
        return found

    monkeypatch.setattr(loop, "load_file", forgetful)
    found = rehearsed(toy)
    assert found is not None
    assert "differ" in found


def test_a_moment_that_is_off_by_a_little_is_found_and_named(toy, monkeypatch):  # noqa: F811
    load = loop.Optimizer.load

    def careless(optimizer, state):
        name = next(key for key in state if key.startswith("exp_avg/"))
        load(optimizer, {**state, name: state[name] * (1 + 1e-3)})

    monkeypatch.setattr(loop.Optimizer, "load", careless)
    found = rehearsed(toy)
    assert found is not None
    assert "differ" in found
