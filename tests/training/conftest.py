"""Trainings small enough to be repeated: a tiny model on the toy corpus, in a folder of its own."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from ablate.config import resolve_data, resolve_row
from ablate.data.prepare import prepare
from ablate.store import checkpoints
from ablate.training import Trainer
from ablate.training import loop as training_loop

TINY = {
    "n_layers": 1, "d_model": 14, "d_ff": 11, "n_heads": 3, "d_k": 5, "d_v": 7, "max_positions": 40, "dropout": 0.3,
    "train_steps": 12, "batch_tokens": 60, "warmup_steps": 5, "eval_every": 5, "checkpoint_every": 4,
}  # fmt: skip
LOG_EVERY = 3


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tensors of a few hundred numbers gain nothing from a second core."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def log_every_three_steps(monkeypatch):
    """So that a dozen steps show several log lines, and stops fall between them."""
    monkeypatch.setattr(training_loop, "LOG_EVERY", LOG_EVERY)


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """The toy corpus with a small vocabulary."""
    folder = tmp_path_factory.mktemp("corpora")
    return prepare(resolve_data({"corpus": "toy", "vocab_size": 350}), folder, folder)


@dataclass
class Training:
    """A trainer in a folder, and what it says. `perplexities` are taken one an evaluation, then 100 for ever."""

    folder: Path
    corpus: object
    settings: dict = field(default_factory=dict)
    seed: int = 1
    micro_batch_tokens: int = 10_000
    keep_checkpoints: int = 2
    evaluate: object = None
    stop_after: tuple = ()
    said: list = field(default_factory=list)
    told: list = field(default_factory=list)

    def trainer(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        return Trainer(
            resolve_row({**TINY, **self.settings}),
            self.seed,
            self.corpus,
            checkpoints_folder=self.checkpoints,
            metrics_file=self.metrics,
            device=torch.device("cpu"),
            micro_batch_tokens=self.micro_batch_tokens,
            keep_checkpoints=self.keep_checkpoints,
            evaluate=self.evaluate or (lambda model: 100.0),
            tell=self.told.append,
            stop_asked=lambda: self.told[-1].step in self.stop_after,
            say=self.said.append,
        )

    def run(self):
        return self.trainer().run()

    @property
    def checkpoints(self):
        return self.folder / "checkpoints"

    @property
    def metrics(self):
        return self.folder / "metrics.jsonl"

    def outcome(self):
        """All that a later step, averaging or a reader could ever see: bytes of files by name, and the window."""
        newest, _ = checkpoints.newest(self.checkpoints)
        window = checkpoints.scheduled(self.checkpoints)[-self.keep_checkpoints :]
        return {
            "metrics": self.metrics.read_bytes(),
            "newest": newest.step,
            "state": newest.state.read_bytes(),
            "info": newest.info,
            **{f"scheduled weights {g.step}": g.weights.read_bytes() for g in window},
        }


@pytest.fixture
def training(tmp_path, toy):
    """A new training on the toy corpus; keywords are Training's, and any others are settings of the row."""

    def training(name="run", *, corpus=toy, seed=1, **fields):
        own = {key: fields.pop(key) for key in tuple(fields) if key in Training.__dataclass_fields__}
        return Training(tmp_path / name, corpus, fields, seed, **own)

    return training
