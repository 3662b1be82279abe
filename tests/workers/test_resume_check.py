"""The check of exact resuming, used by `ablate verify`: None if every byte is equal, else the first
difference.
"""

import pytest
import torch

from ablate.config import resolve_row
from ablate.errors import StudyError
from ablate.own.source import source_hash
from ablate.tasks import Translation
from ablate.training import optimizer as optimizer_module
from ablate.training import trainer
from ablate.workers.resume_check import check_resume
from tests.training.conftest import TINY, toy  # noqa: F401


def checked(corpus, **settings):
    return check_resume(
        resolve_row({**TINY, **settings}), 1, Translation(), corpus,
        steps=4, device=torch.device("cpu"), micro_batch_tokens=10_000, sources={},
    )  # fmt: skip


@pytest.mark.parametrize("steps", [2, 3, 4, 12])
def test_an_exact_resume_has_no_difference(toy, steps):  # noqa: F811
    assert checked(toy, train_steps=steps) is None


def test_a_generator_that_is_not_restored_is_found(toy, monkeypatch):  # noqa: F811
    load = trainer.load_file

    def forgetful(path):
        found = load(path)
        if "random" in found:
            found["random"] = torch.Generator().manual_seed(99).get_state()
        return found

    monkeypatch.setattr(trainer, "load_file", forgetful)
    found = checked(toy)
    assert found is not None
    assert "differ" in found


def test_a_slightly_different_optimizer_moment_is_found(toy, monkeypatch):  # noqa: F811
    load = optimizer_module.Optimizer.load

    def careless(optimizer, state):
        name = next(key for key in state if key.startswith("exp_avg/"))
        load(optimizer, {**state, name: state[name] * (1 + 1e-3)})

    monkeypatch.setattr(optimizer_module.Optimizer, "load", careless)
    found = checked(toy)
    assert found is not None
    assert "differ" in found


RANDOM = b"""\
import torch
class Mine(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(torch.randn(p.shape), alpha=group["lr"])
"""


def test_a_class_that_a_run_refuses_is_refused(toy):  # noqa: F811
    digest = source_hash(RANDOM)
    config = resolve_row({**TINY, "optimizer": f"mine:Mine@{digest}"})
    with pytest.raises(StudyError, match="nothing in them may be random"):
        check_resume(
            config, 1, Translation(), toy, steps=4, device=torch.device("cpu"),
            micro_batch_tokens=10_000, sources={digest: RANDOM},
        )  # fmt: skip
