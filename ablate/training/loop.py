"""The training loop (section 5): one optimizer step after another, each of them a safe place to stop.

Everything that a step depends on is a function of the run (batches of the seed and the step, the
rate of the step) or is in the checkpoint (weights, moments, the dropout generator, what patience
remembers). So a run that is killed and resumed writes the bytes that it would have written anyway.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor

from ablate.config import RowConfig
from ablate.data.batches import Batch, BatchOrder, micro_batches
from ablate.data.corpus import Corpus
from ablate.errors import Interrupted
from ablate.model import Transformer, build
from ablate.store import checkpoints
from ablate.training.loss import smoothed_cross_entropy
from ablate.training.metrics import MetricsLog
from ablate.training.optimizer import Optimizer
from ablate.training.precision import autocast
from ablate.training.schedule import learning_rate

LOG_EVERY = 50  # steps; the loss is looked at, and divergence noticed, this often
# A uniform guess costs ln V a token. A loss of this many times that is not coming back.
EXPLODED = 4.0


class Diverged(Exception):  # noqa: N818
    """The loss is not a number, or has exploded: a result, not a failure."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(reason)
        self.step = step
        self.reason = reason


@dataclass
class Position:
    """Where training is, and what patience remembers."""

    step: int = 0
    tokens: int = 0  # real target tokens seen
    best_perplexity: float = math.inf
    best_step: int = 0
    evaluations_since_best: int = 0


@dataclass(frozen=True)
class Trained:
    """A finished training. `chosen` is the step whose weights count, `steps` the last one made."""

    steps: int
    chosen: int
    tokens: int


@dataclass(frozen=True)
class Report:
    """What a run says of itself while it trains."""

    step: int
    steps: int | None
    loss: float | None
    perplexity: float | None
    tokens: int


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
        """
        self.config, self.device = config, device
        self.train = corpus.split("train")
        self.vocab_size = corpus.tokenizer.vocab_size
        self.order = BatchOrder(self.train, config.batch_tokens, seed, config.train_fraction)
        self.model = build(config, self.vocab_size, seed, device, sources)
        self.optimizer = Optimizer(self.model, config)
        self.checkpoints, self.metrics = checkpoints_folder, MetricsLog(metrics_file)
        self.micro_batch_tokens, self.keep_checkpoints = micro_batch_tokens, keep_checkpoints
        self.evaluate, self.tell, self.stop_asked, self.say = evaluate, tell, stop_asked, say
        self.at = Position()
        self.losses = torch.zeros((), device=device)  # since the last log line: sum in nats, and tokens
        self.loss_tokens = 0
        self.last_loss: float | None = None
        self.last_perplexity: float | None = None
        self.last_save = time.monotonic()
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
            elif time.monotonic() - self.last_save > 60 * self.config.checkpoint_minutes:
                self._save(scheduled=False)
            self.tell(Report(step, self.steps, self.last_loss, self.last_perplexity, self.at.tokens))
            if self.stop_asked() and not self._finished():
                if not due_save:  # saved again, it would no longer count as due
                    self._save(scheduled=False)
                raise Interrupted
        chosen = self.at.best_step if self.config.patience else self.at.step
        return Trained(self.at.step, chosen, self.at.tokens)

    def _step(self, step: int) -> None:
        """One optimizer step over the whole batch, in as many parts as memory asks for."""
        sentences = self.order.at(step)
        n_tokens = int((self.train.target.lengths[sentences]).sum())
        self.model.train()
        for micro in micro_batches(self.train, sentences, self.micro_batch_tokens):
            loss = self._loss(micro.to(self.device))
            (loss / n_tokens).backward()
            self.losses += loss.detach()
        self.optimizer.step(self._rate(step))
        self.loss_tokens += n_tokens
        self.at.tokens += n_tokens
        self.at.step = step

    def _loss(self, batch: Batch) -> Tensor:
        """Smoothed cross-entropy of a micro-batch, summed over its tokens."""
        with autocast(self.device, self.config.precision):
            states = self.model(batch.source, batch.target_in)
            real = batch.target_out != 0
            embedding = self.model.output_matrix
            return smoothed_cross_entropy(states[real], embedding, batch.target_out[real], self.config.label_smoothing)

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
            "metrics_bytes": self.metrics.size,
        }
        self.metrics.sync()
        checkpoints.save(self.checkpoints, self.at.step, to_bytes(weights), to_bytes(state), info, scheduled)
        checkpoints.prune(self.checkpoints, self._kept())
        self.last_save = time.monotonic()

    def _kept(self) -> set[int]:
        """Steps whose weights averaging may still ask for: the window's, and what patience may go back to."""
        chosen = self.at.best_step if self.config.patience else self.at.step
        window = [g.step for g in checkpoints.scheduled(self.checkpoints, until=chosen)][-self.keep_checkpoints :]
        # A later evaluation may turn out best, and its window begins here.
        later = [g.step for g in checkpoints.scheduled(self.checkpoints) if g.step > chosen][-self.keep_checkpoints :]
        return {*window, *later}

    def _resume(self) -> None:
        generation, damaged = checkpoints.newest(self.checkpoints)
        for line in damaged:
            self.say(line)
        if generation is not None and not self.metrics.cut(generation.info["metrics_bytes"]):
            self.say(f"{self.metrics.path}: has lost lines that step {generation.step} had; the run starts over")
            checkpoints.prune(self.checkpoints, set(), finished=True)
            generation = None
        if generation is None:
            self.metrics.cut(0)
            return
        info = dict(generation.info)
        info.pop("metrics_bytes")
        self.loss_tokens = info.pop("loss_tokens")
        best = info.pop("best_perplexity")
        self.at = Position(best_perplexity=math.inf if best is None else best, **info)
        self.model.load_state_dict(load_file(generation.weights))
        state = load_file(generation.state)
        self.random.set_state(state.pop("random"))
        self.losses = state.pop("losses").to(self.device)
        self.optimizer.load(state)
        self.say(f"resumed at step {self.at.step}")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
