"""What a rank needs to train, evaluate and decode a run: its files, its settings and its model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from ablate.config import DecodingConfig, RowConfig
from ablate.data.corpus import Corpus
from ablate.errors import Damaged, StoreError
from ablate.formatting import plural
from ablate.kernels.device import prepare
from ablate.kernels.ranks import current_ranks
from ablate.model import Transformer, build
from ablate.stats.metrics import CHANCE_SCORE, PPL
from ablate.store import RunFolder, checkpoints
from ablate.store.records import Execution, Phase, Result, Score
from ablate.tasks import Task, task_of
from ablate.training import RunHooks, Trainer
from ablate.training.checkpointing import average
from ablate.workers.assignment import Assignment

CPU = torch.device("cpu")


@dataclass(frozen=True)
class RunInputs:
    """Everything that a rank needs to train and decode a run.

    device: device of this process; `config` has its precision.
    """

    folder: RunFolder
    seed: int
    config: RowConfig
    task: Task
    corpus: Corpus
    device: torch.device = CPU

    @staticmethod
    def read(assignment: Assignment) -> RunInputs:
        """Read the inputs of the run of an assignment.

        Raises:
            StoreError: files on disk cannot be used.
        """
        folder = RunFolder(assignment.run.folder)
        record = folder.read_run()
        if record is None:
            raise StoreError(f"{folder.run}: is missing")
        # run.json has the settings that determine the id; the assignment has the settings that may
        # change between launches.
        config = RowConfig(**{**record.config.model_dump(), **assignment.run.settings})
        return RunInputs(
            folder,
            record.seed,
            config,
            task_of(record.task, folder.sources),
            Corpus(assignment.run.corpus, test=assignment.run.split),
        )

    def set_up(self, device: torch.device, execution: Execution) -> RunInputs:
        """Set up torch in this process with the numeric settings of a run, and return the inputs
        for its device and precision.
        """
        prepare(device, execution.deterministic)
        # The run keeps the number with which it began, which determines the order of sums.
        torch.set_num_threads(execution.threads)
        return replace(
            self,
            device=device,
            config=self.config.model_copy(update={"precision": execution.precision}),
        )

    def trainer(self, execution: Execution, keep: int, hooks: RunHooks) -> Trainer:
        """Make the trainer of this rank."""
        return Trainer(
            self.config,
            self.seed,
            self.task,
            self.corpus,
            self.folder,
            device=self.device,
            micro_batch_tokens=execution.current_micro_batch_tokens,
            keep_checkpoints=keep,
            hooks=hooks,
            parts=execution.parts,
            ranks=current_ranks(),
        )

    def evaluate(
        self, decoding: DecodingConfig, result: Result, report_phase: Callable[[Phase], None]
    ) -> Evaluation:
        """Evaluate the trained model with one set of decoding settings, together with all ranks.
        `report_phase` is called with the current phase, when it begins and after each decoded
        batch; it may raise an exception to stop.
        """
        count = decoding.average_checkpoints
        model = load_model(self.folder, self.config, self.corpus, result, count, self.device)
        report_phase("measuring")
        row = self.config.model_copy(update=decoding.model_dump())
        scores = dict(self.task.evaluate(model, self.corpus, row, self.device))
        if PPL.name in scores:
            scores[PPL.name] = self._add_unigram_perplexity(scores[PPL.name], row)
        report_phase("decoding")
        started = time.monotonic()
        predictions = self.task.predict(
            model, self.corpus, row, self.device, lambda: report_phase("decoding")
        )
        generated = self.task.generate(model, self.corpus, row, self.device)
        return Evaluation(scores, predictions, generated, time.monotonic() - started)

    def _add_unigram_perplexity(self, perplexity: Score, row: RowConfig) -> Score:
        """Store the perplexity of a unigram model with the score, as the level of chance."""
        unigram_perplexity = self.task.unigram_perplexity(self.corpus, row)
        if unigram_perplexity is None:
            return perplexity
        parts = {**perplexity.parts, CHANCE_SCORE.name: unigram_perplexity}
        return perplexity.model_copy(update={"parts": parts})


class Evaluation(NamedTuple):
    """Scores and outputs of a trained model.

    scores: scores of the model's likelihood, by metric.
    predictions: predictions for the test split; None if the task makes no predictions.
    generated: texts that the model generated for the report.
    seconds: duration of decoding.
    """

    scores: dict[str, Score]
    predictions: list[str] | None
    generated: tuple[str, ...]
    seconds: float


def load_model(
    folder: RunFolder,
    config: RowConfig,
    corpus: Corpus,
    result: Result,
    count: int,
    device: torch.device,
) -> Transformer:
    """Load a trained model in eval mode, with the average of the last `count` checkpoints up to the
    chosen step.

    Raises:
        StoreError: a checkpoint is damaged, or fewer checkpoints are left than `count`.
    """
    by_step = {c.step: c for c in checkpoints.valid(folder.checkpoints)}
    steps = result.kept_steps[-count:]
    averaged = [by_step[step] for step in steps if step in by_step]
    if not averaged or len(averaged) < len(steps):
        raise StoreError(
            f"{folder.checkpoints}: has lost a checkpoint; remove {folder.path} to train the run "
            "again"
        )
    if len(averaged) < min(count, result.scheduled_checkpoints):
        raise StoreError(
            f"{folder.checkpoints}: has {plural(len(averaged), 'checkpoint')}, and "
            f"average_checkpoints={count} needs more; the earlier checkpoints were removed when "
            "the run finished: train it in another --results to average more"
        )
    # The seed does not matter: all initial weights are overwritten.
    model = build(
        config, corpus.tokenizer.vocab_size, seed=0, device=device, sources=folder.sources
    )
    try:
        weights = list(map(checkpoints.verified_weights, averaged))
    except Damaged as error:
        raise Damaged(f"{error}; remove {folder.path} to train the run again") from None
    model.load_state_dict(average(weights))
    return model.eval()
