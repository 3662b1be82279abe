"""The check of exact resuming, used by `ablate verify`: None if every byte is equal, else the first
difference.
"""

import pytest
import torch
from safetensors.torch import save

from ablate.config.resolve import resolve_row
from ablate.custom.source import source_hash
from ablate.errors import StudyError
from ablate.store import RunFolder, checkpoints
from ablate.tasks import Translation
from ablate.training import optimizer as optimizer_module
from ablate.training import trainer
from ablate.workers.resume_check import check_resume, first_difference
from tests.records import a_training_state
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


@pytest.fixture
def folders(tmp_path):
    """Two trainings with equal logs and checkpoints."""
    tensors = {name: save({"a": torch.ones(3)}) for name in ("weights", "state")}
    pair = []
    for name in ("uninterrupted", "resumed"):
        folder = RunFolder(tmp_path / name)
        folder.checkpoints.mkdir(parents=True)
        folder.metrics.write_bytes(b'{"step": 4}\n')
        checkpoints.save(folder.checkpoints, **tensors, info=a_training_state(4), scheduled=True)
        pair.append(folder)
    return pair


def test_equal_files_have_no_difference(folders):
    assert first_difference(*folders) is None


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"weights": {"a": torch.tensor([1.0, 1.5, 1.0])}}, "weights differ: a: 1 of 3 elements, by 5.0e-01 at most"),
        ({"weights": {"a": torch.ones(2)}}, "weights differ: a is not in both"),
        ({"weights": {"b": torch.ones(3)}}, "weights differ: a is not in both"),
        ({"state": {"a": torch.zeros(3)}}, "optimizer or random states differ: a: 3 of 3 elements, by 1.0e+00 at most"),
        ({"info": a_training_state(4, tokens=1)}, "the checkpoints differ: "),
    ],
)  # fmt: skip
def test_a_difference_in_one_file_alone_is_found(folders, changed, expected):
    files = {"weights": {"a": torch.ones(3)}, "state": {"a": torch.ones(3)}}
    info = changed.get("info", a_training_state(4))
    tensors = {name: save(changed.get(name, content)) for name, content in files.items()}
    checkpoints.save(folders[1].checkpoints, **tensors, info=info, scheduled=True)
    assert first_difference(*folders).startswith(expected)


def test_a_difference_in_the_log_alone_is_found(folders):
    folders[1].metrics.write_bytes(b'{"step": 5}\n')
    assert first_difference(*folders) == "the metrics logs differ"


def test_no_more_steps_are_made_than_the_run_has(toy, monkeypatch):  # noqa: F811
    configs = []
    monkeypatch.setattr(
        "ablate.workers.resume_check.Trainer",
        lambda config, *words, **options: configs.append(config) or trainer.Trainer(config, *words, **options),
    )  # fmt: skip
    assert checked(toy, train_steps=2) is None
    assert {config.checkpoint_every for config in configs} == {1}
