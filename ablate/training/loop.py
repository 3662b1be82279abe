"""The training loop (section 5): one optimizer step after another, each of them a safe place to stop.

Everything that a step depends on is a function of the run (batches of the seed and the step, the
rate of the step) or is in the checkpoint (weights, moments, the dropout generator, what patience
remembers). So a run that is killed and resumed writes the bytes that it would have written anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor

from ablate.config import RowConfig
from ablate.data.batches import BatchOrder, micro_batches
from ablate.data.corpus import Corpus
from ablate.data.seq2seq import Batch, collate
from ablate.errors import Interrupted, StoreError
from ablate.model import Transformer, build
from ablate.store import checkpoints
from ablate.training.loss import smoothed_cross_entropy
from ablate.training.memory import is_out_of_memory, release
from ablate.training.metrics import MetricsLog
from ablate.training.optimizer import Optimizer
from ablate.training.precision import autocast
from ablate.training.progress import Diverged, Position, Report, Trained
from ablate.training.saving import Saver, Snapshot
from ablate.training.schedule import learning_rate

LOG_EVERY = 50  # steps; the loss is looked at, and divergence noticed, this often
# A uniform guess costs ln V a token. A loss of this many times that is not coming back.
EXPLODED = 4.0


class Trainer:
    """Trains one run in its folder."""

    def __init__(
        self,
        config: RowConfig,
        seed: int,
        corpus: Corpus,
        *,
        checkpoints_folder: Path,
        metrics_file: Path,
        device: torch.device,
        micro_batch_tokens: int,
        keep_checkpoints: int,
        evaluate: Callable[[Transformer], float],
        tell: Callable[[Report], None],
        stop_asked: Callable[[], bool],
        say: Callable[[str], None],
        sources: Path | None = None,
        guard: Callable[[], None] = lambda: None,
        halved: Callable[[int], None] = lambda tokens: None,
    ) -> None:
        """Set up a run, from its newest whole checkpoint if there is one.

        Args:
            config: the row.
            seed: of weights, dropout and batches.
            corpus: prepared.
            checkpoints_folder: where generations are.
            metrics_file: where loss and perplexity go.
            device: the CPU or a GPU.
            micro_batch_tokens: what fits at once.
            keep_checkpoints: how many will be averaged.
            evaluate: gives the dev perplexity; draws nothing from the training generator.
            tell: called after every step.
            stop_asked: asked after every step; when true, the run saves itself and raises Interrupted.
            say: takes a line for the log.
            sources: where the sources of the user's own variants are.
            guard: called before each write; raises where the run is no longer this process's.
            halved: told the new micro-batch when memory did not suffice for the one before it.
        """
        self.config, self.device = config, device
        self.train = corpus.split("train")
        self.vocab_size = corpus.tokenizer.vocab_size
        self.order = BatchOrder(self.train, config.batch_tokens, seed, config.train_fraction)
        self.model = build(config, self.vocab_size, seed, device, sources)
        self.optimizer = Optimizer(self.model, config)
        self.checkpoints, self.metrics = checkpoints_folder, MetricsLog(metrics_file)
        self.saver = Saver(
            checkpoints_folder,
            self.metrics,
            keep=keep_checkpoints,
            patience=config.patience is not None,
            guard=guard,
            say=say,
        )
        self.micro_batch_tokens, self.halved = micro_batch_tokens, halved
        self.evaluate, self.tell, self.stop_asked, self.say = evaluate, tell, stop_asked, say
        self.at = Position()
        self.losses = torch.zeros((), device=device)  # since the last log line: sum in nats, and tokens
        self.loss_tokens = 0
        self.last_loss: float | None = None
        self.last_perplexity: float | None = None
        self.steps = self._steps()
        self._resume()

    @property
    def random(self) -> torch.Generator:
        """The generator of dropout masks."""
        return self.model.random

    def run(self) -> Trained:
        """Train to the end of the budget.

        Raises:
            Interrupted: a stop was asked for; the state is saved.
            Diverged: the loss is not a number or has exploded.
            OSError: the disk has refused what the result needs; the run can be resumed.
        """
        while not self._finished():
            self._step(self.at.step + 1)
            step = self.at.step
            due_log = step % LOG_EVERY == 0 or step == self.steps
            due_eval = step % self.config.eval_every == 0 or step == self.steps
            if due_log or due_eval:
                self._log_loss()
            if due_eval:
                self._evaluate()
            due_save = self._checkpoint_due() or self._finished()
            if due_save:
                self._save(scheduled=True)
            elif self.saver.is_due(self.config.checkpoint_minutes):
                self._save(scheduled=False)
            self.tell(Report(step, self.steps, self.last_loss, self.last_perplexity, self.at.tokens))
            if self.stop_asked() and not self._finished():
                if not due_save:  # saved again, it would no longer count as due
                    self._save(scheduled=False)
                raise Interrupted
        self.saver.finish()
        self.metrics.close()
        chosen = self.at.best_step if self.config.patience else self.at.step
        return Trained(self.at.step, chosen, self.at.tokens)

    def _step(self, step: int) -> None:
        """One optimizer step over the whole batch, in as many parts as memory asks for."""
        sentences = self.order.at(step)
        n_tokens = int((self.train["target"].lengths[sentences]).sum())
        self.model.train()
        random, losses = self.random.get_state(), self.losses.clone()
        while not self._accumulate(sentences, n_tokens):
            # The same step from its beginning, with the same masks; only the order of sums is another.
            self.optimizer.clear()
            self.random.set_state(random)
            self.losses = losses.clone()
        self.optimizer.step(self._rate(step))
        self.loss_tokens += n_tokens
        self.at.tokens += n_tokens
        self.at.step = step

    def _accumulate(self, sentences: NDArray[np.int64], n_tokens: int) -> bool:
        """Add up the gradients of a batch; false, and the micro-batch halved, where memory did not suffice."""
        try:
            for part in micro_batches(self.train, sentences, self.micro_batch_tokens):
                loss = self._loss(collate(self.train, part).to(self.device))
                (loss / n_tokens).backward()
                self.losses += loss.detach()
        except (RuntimeError, MemoryError) as error:
            longest = int(self.train.lengths(sentences).max())
            if not is_out_of_memory(error) or self.micro_batch_tokens <= longest:  # one sentence is never split
                raise
        else:
            return True
        release(self.device)
        self.micro_batch_tokens = -(-self.micro_batch_tokens // 2)
        self.halved(self.micro_batch_tokens)
        return False

    def _loss(self, batch: Batch) -> Tensor:
        """Smoothed cross-entropy of a micro-batch, summed over its tokens."""
        with autocast(self.device, self.config.precision):
            states = batch.at_targets(self.model(batch.source, batch.target_in))
            embedding = self.model.output_matrix
            return smoothed_cross_entropy(states, embedding, batch.targets, self.config.label_smoothing)

    def _log_loss(self) -> None:
        loss = float(self.losses) / self.loss_tokens
        self.losses.zero_()
        self.loss_tokens = 0
        self.last_loss = loss
        if not math.isfinite(loss):
            raise Diverged(self.at.step, "the loss is not a finite number")
        if loss > EXPLODED * math.log(self.vocab_size):
            raise Diverged(self.at.step, f"the loss exploded to {loss:.1f} nats a token")
        self._record(loss=loss, lr=self._rate(self.at.step))

    def _evaluate(self) -> None:
        """Dev perplexity, and what patience makes of it."""
        at, value = self.at, self.evaluate(self.model)
        self.last_perplexity = value
        if not math.isfinite(value):
            raise Diverged(at.step, "the dev perplexity is not a finite number")
        if value < at.best_perplexity:
            at.best_perplexity, at.best_step, at.evaluations_since_best = value, at.step, 0
        else:
            at.evaluations_since_best += 1
        self._record(dev_perplexity=value)

    def _rate(self, step: int) -> float:
        return learning_rate(self.config, step, self.steps)

    def _record(self, **values: float) -> None:
        self.metrics.append(step=self.at.step, tokens=self.at.tokens, **values)

    def _steps(self) -> int | None:
        ends = [self.config.train_steps, (self.config.epochs or 0) * self.order.batches_per_epoch]
        return min((end for end in ends if end), default=None)

    def _finished(self) -> bool:
        patience = self.config.patience
        return self.at.step == self.steps or (patience is not None and self.at.evaluations_since_best >= patience)

    def _checkpoint_due(self) -> bool:
        step, c = self.at.step, self.config
        return step % c.checkpoint_every == 0 or (c.patience is not None and step % c.eval_every == 0)

    def _save(self, scheduled: bool) -> None:
        """Write a generation. The partial loss goes with it, so that the next log line is the same."""
        state = {"random": self.random.get_state(), "losses": self.losses.cpu(), **self.optimizer.state()}
        weights = {name: value.detach().cpu() for name, value in self.model.state_dict().items()}
        info = {
            **asdict(self.at),
            "best_perplexity": _finite(self.at.best_perplexity),
            "loss_tokens": self.loss_tokens,
            **self.metrics.mark(),
        }
        self.saver.save(Snapshot(self.at.step, to_bytes(weights), to_bytes(state), info, scheduled))

    def _resume(self) -> None:
        self.saver.guard()
        generation, passed = checkpoints.newest(self.checkpoints)
        for line in passed:
            self.say(line)
        if generation is None and self._had_ended():
            return
        if generation is not None and not self._cut_metrics(generation):
            self.say(f"{self.metrics.path}: has lost lines that step {generation.step} had; the run starts over")
            checkpoints.prune(self.checkpoints, set(), finished=True)
            generation = None
        if generation is None:
            self.metrics.cut()
            return
        self._go_to(generation)
        self.model.load_state_dict(load_file(generation.weights))
        state = load_file(generation.state)
        self.random.set_state(state.pop("random"))
        self.losses = state.pop("losses").to(self.device)
        self.optimizer.load(state)
        self.last_loss, self.last_perplexity = (self.metrics.last(name) for name in ("loss", "dev_perplexity"))
        self.say(f"resumed at step {self.at.step}")

    def _had_ended(self) -> bool:
        """Whether the weights of the last step are still there, though nothing to resume: only the result is lost."""
        before, last = self.at, checkpoints.scheduled(self.checkpoints)[-1:]
        for generation in last:
            self._go_to(generation)
            try:
                checkpoints.verified_weights(generation)
            except StoreError as error:
                self.say(f"{error}; the run starts over")
            else:
                if self._finished() and self._cut_metrics(generation):
                    self.say(f"training had ended at step {generation.step}")
                    return True
        self.at, self.loss_tokens = before, 0
        return False

    def _go_to(self, generation: checkpoints.Generation) -> None:
        info = generation.info
        self.loss_tokens = info["loss_tokens"]
        self.at = Position(**{field.name: info[field.name] for field in fields(Position)})
        if info["best_perplexity"] is None:
            self.at.best_perplexity = math.inf

    def _cut_metrics(self, generation: checkpoints.Generation) -> bool:
        return self.metrics.cut(generation.info["metrics_bytes"], generation.info["metrics_sha256"])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
