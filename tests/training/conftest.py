"""Trainings small enough to be repeated: a tiny model on the toy corpus, in a folder of its own."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from ablate.config.resolve import resolve_row
from ablate.config.translation_data import TranslationData
from ablate.data.prepare import prepare
from ablate.kernels.ranks import ONLY_RANK, Ranks
from ablate.store import RunFolder, checkpoints
from ablate.tasks import Translation
from ablate.training import RunHooks, StepReport, Trainer, trainer

TINY = {
    "n_layers": 1, "d_model": 14, "d_ff": 11, "n_heads": 3, "d_k": 5, "d_v": 7, "max_positions": 40, "dropout": 0.3,
    "train_steps": 12, "batch_tokens": 60, "warmup_steps": 5, "eval_every": 5, "checkpoint_every": 4,
}  # fmt: skip
LOG_EVERY = 3


@pytest.fixture(autouse=True)
def log_every_three_steps(monkeypatch):
    """A dozen steps then show several log lines, and stops fall between them."""
    monkeypatch.setattr(trainer, "LOG_EVERY", LOG_EVERY)


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """The toy corpus with a small vocabulary."""
    folder = tmp_path_factory.mktemp("corpora")
    return prepare(TranslationData.resolve({"corpus": "toy", "vocab_size": 350}), folder, folder)


class ScriptedTask(Translation):
    """Translation with a dev perplexity that a test gives, and a loss that a test may make fail."""

    def __init__(self, evaluate: Callable[[Any], float], before_loss: Callable[[], None]) -> None:
        self.evaluate_model, self.before_loss = evaluate, before_loss

    def perplexity(self, model, split, device):
        return self.evaluate_model(model)

    def loss_terms(self, model, batch, label_smoothing):
        self.before_loss()
        return super().loss_terms(model, batch, label_smoothing)


class _ListHandler(logging.Handler):
    """Appends the message of each record to a list."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def logger_to(lines: list[str]) -> logging.Logger:
    """A logger whose messages are appended to a list."""
    logger = logging.Logger("test")
    logger.addHandler(_ListHandler(lines))
    return logger


@dataclass
class Training:
    """A training in a folder, with its reports and log lines.

    evaluate: gives the dev perplexity of a model.
    stop_after: steps after which a stop is requested.
    before_loss: called before the loss of each micro-batch; may raise.
    parts, ranks, dev: as for `Trainer`; so is `task`, which is then not scripted.
    """

    folder: Path
    corpus: object
    settings: dict = field(default_factory=dict)
    seed: int = 1
    micro_batch_tokens: int = 10_000
    keep_checkpoints: int = 2
    evaluate: Callable[[Any], float] = lambda model: 100.0
    stop_after: tuple[int, ...] = ()
    check_lease: Callable[[], None] = lambda: None
    after_step: Callable[[StepReport], None] = lambda report: None
    before_loss: Callable[[], None] = lambda: None
    log_lines: list[str] = field(default_factory=list)
    reports: list[StepReport] = field(default_factory=list)
    smaller: list[int] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)
    trainer: Trainer | None = None
    parts: int = 1
    ranks: Ranks = ONLY_RANK
    dev: object = None
    task: object = None

    def prepare(self) -> Trainer:
        """Make a trainer at its first step."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.trainer = Trainer(
            resolve_row({**TINY, **self.settings}),
            self.seed,
            self.task
            or ScriptedTask(lambda model: self.evaluate(model), lambda: self.before_loss()),
            self.corpus,
            RunFolder(self.folder),
            device=torch.device("cpu"),
            micro_batch_tokens=self.micro_batch_tokens,
            keep_checkpoints=self.keep_checkpoints,
            hooks=RunHooks(
                log=logger_to(self.log_lines),
                check_lease=self.check_lease,
                stop_requested=lambda: (
                    bool(self.reports) and self.reports[-1].step in self.stop_after
                ),
                on_step=self._on_step,
                on_evaluation=lambda: self.evaluations.append(len(self.reports)),
                on_out_of_memory=self.smaller.append,
            ),
            parts=self.parts,
            ranks=self.ranks,
            dev=self.dev,
        )
        return self.trainer

    def _on_step(self, report: StepReport) -> None:
        self.reports.append(report)
        self.after_step(report)

    def fit(self):
        """Train, or resume, to the end."""
        return self.prepare().fit()

    @property
    def checkpoints(self):
        return self.folder / "checkpoints"

    @property
    def metrics(self):
        return self.folder / "metrics.jsonl"

    def outcome(self):
        """All that a later step, averaging or a reader could depend on."""
        newest, _ = checkpoints.newest(self.checkpoints)
        averaged = checkpoints.scheduled(self.checkpoints)[-self.keep_checkpoints :]
        return {
            "metrics": self.metrics.read_bytes(),
            "newest": newest.step,
            "state": newest.state.read_bytes(),
            "info": newest.info,
            **{f"scheduled weights {c.step}": c.weights.read_bytes() for c in averaged},
        }


@pytest.fixture
def training(tmp_path, toy):
    """Make a training on the toy corpus; keywords are fields of `Training`, all others are settings
    of the row.
    """

    def training(name="run", *, corpus=toy, seed=1, **fields):
        direct = {
            key: fields.pop(key) for key in tuple(fields) if key in Training.__dataclass_fields__
        }
        return Training(tmp_path / name, corpus, fields, seed, **direct)

    return training
