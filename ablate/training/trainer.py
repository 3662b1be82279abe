"""The training loop (section 5 of the paper). It can stop after every step and resume exactly.

The inputs of a step are either computed from seed and step (the batch, the learning rate) or stored
in the checkpoint (weights, optimizer state, the dropout generator, the state of early stopping). A
run that is killed and resumed therefore writes the same bytes as an uninterrupted run.

Several processes, the ranks, may train one run together. Each rank computes the gradients of some
parts of the batch. All ranks make the same optimizer step, and the first rank writes the files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor

from ablate.config import RowConfig
from ablate.custom.loading import load_function
from ablate.data.batches import BatchOrder, micro_batches
from ablate.data.corpus import Corpus, Split
from ablate.errors import Interrupted
from ablate.kernels.device import (
    autocast,
    is_out_of_memory,
    matmul_precision,
    on_gpu,
    precision_on,
    release_cached_memory,
)
from ablate.kernels.ranks import ONLY_RANK, Ranks
from ablate.metrics.perplexity import nats_per_token
from ablate.model import build
from ablate.stats.metrics import LARGEST_SCORE
from ablate.store import RunFolder
from ablate.store.records import TrainingState
from ablate.tasks import Batch, Task
from ablate.training.checkpointing import CheckpointSaver, Snapshot, is_due
from ablate.training.gradient_tree import GradientTree, part_seed, rank_parts
from ablate.training.hooks import RunHooks, StepReport
from ablate.training.metrics_log import MetricsLog
from ablate.training.optimizer import make_optimizer
from ablate.training.progress import Diverged, TrainingOutcome, TrainingProgress
from ablate.training.resume import find_resume_point
from ablate.training.schedule import decay_share, learning_rate, schedule_of
from ablate.training.step_batches import BatchPart, StepBatch, StepBatches

LOG_EVERY = 50  # steps between log lines; divergence is checked at each log line
# A training has exploded, and does not recover, when its cross-entropy per token exceeds this
# multiple of ln V, which is the cross-entropy of a uniform prediction.
EXPLODED = 4.0


class Trainer:
    """Trains one run in its folder."""

    def __init__(
        self,
        config: RowConfig,
        seed: int,
        task: Task,
        corpus: Corpus,
        folder: RunFolder,
        *,
        device: torch.device,
        micro_batch_tokens: int,
        keep_checkpoints: int,
        dev: Split | None = None,
        hooks: RunHooks | None = None,
        parts: int = 1,
        ranks: Ranks = ONLY_RANK,
    ) -> None:
        """Prepare a training at its first step.

        Args:
            config: the row.
            seed: seed of weights, dropout and batches.
            task: task that makes batches and computes the loss.
            corpus: the prepared corpus.
            folder: folder of the run, with checkpoints, the metrics log and the user's classes.
            device: the CPU or a GPU.
            micro_batch_tokens: number of padded tokens that fit in memory at once; gradients of
                larger batches are accumulated.
            keep_checkpoints: number of checkpoints that averaging uses.
            dev: items to evaluate every `eval_every` steps; by default the dev split of the corpus.
            hooks: functions that the training calls.
            parts: number of parts into which each batch is divided; a power of two. Gradients are
                summed over parts in a fixed order, so that the result does not depend on the number
                of ranks. Like the size of the micro-batch, `parts` changes the rounding of sums; it
                also changes the masks of dropout.
            ranks: the processes that train the run together. Their number is a power of two, and at
                most `parts`.
        """
        self.config = config
        self.task = task
        self.device = device
        self.seed = seed
        self.parts = parts
        self.ranks = ranks
        self.precision = precision_on(device, config.precision)
        self.hooks = hooks or RunHooks()
        self.train_items = task.items(corpus, "train", config)
        self.dev_items = task.items(corpus, "dev", config) if dev is None else dev
        self.vocab_size = corpus.tokenizer.vocab_size
        self.order = BatchOrder(self.train_items, config.batch_tokens, seed, config.train_fraction)
        self.model = build(config, self.vocab_size, seed, device, folder.sources)
        self.model.train()  # all modules, even if a user's class has put its own in eval mode
        self.generator = self.model.random  # of dropout masks
        self.model.loss_term = load_function(config.loss_term, folder.sources)
        self.optimizer = make_optimizer(self.model, config, folder.sources)
        self.schedule = schedule_of(config, folder.sources)
        if on_gpu(device):
            # The optimizer state is allocated before the first step, so that this step shows
            # whether the micro-batch fits beside it.
            self.optimizer.allocate()
        self.tree = GradientTree(self.optimizer.parameters, ranks)  # used with several parts
        self.stop_agreed = False  # whether the ranks have voted to stop
        self.checkpoints = folder.checkpoints
        self.metrics = MetricsLog(folder.metrics)
        self.saver = CheckpointSaver(folder, config, self.metrics, keep_checkpoints, self.hooks)
        local_parts = rank_parts(parts, ranks)
        self.batches = StepBatches(
            task, self.train_items, self.order, parts, local_parts, config.batch_stages
        )
        self.micro_batch_tokens = micro_batch_tokens
        self.progress = TrainingProgress()
        self.loss_sum = torch.zeros((), device=device)  # nats since the last log line
        self.loss_tokens = 0  # target tokens since the last log line
        self.last_loss: float | None = None
        self.last_perplexity: float | None = None
        self.total_steps = self._total_steps()

    def fit(self) -> TrainingOutcome:
        """Train from the newest valid checkpoint, or from the first step, until the last step or
        until early stopping.

        Raises:
            Interrupted: a stop was requested; a checkpoint is saved.
            Diverged: the loss is not finite, or has exploded.
            StoreError: a checkpoint cannot be read.
            OSError: the disk refused a checkpoint that the result needs; the run can resume.
        """
        try:
            self.resume()
            return self._fit()
        except Diverged:
            if self.ranks.is_first:
                self.metrics.flush()  # the result states the hash of the log
            raise
        finally:
            self.metrics.close()

    def resume(self) -> None:
        """Restore the newest valid checkpoint, if there is one; cut the metrics log to its step."""
        point = find_resume_point(
            self.checkpoints, self.metrics, self.hooks, self._is_finished, self.ranks
        )
        self.progress = point.progress
        checkpoint = point.checkpoint
        if checkpoint is None:
            return
        self.loss_tokens = checkpoint.info.loss_tokens
        self.model.load_state_dict(load_file(checkpoint.weights))
        tensors = load_file(checkpoint.state)
        self.generator.set_state(tensors.pop("random"))
        self.loss_sum = tensors.pop("losses").to(self.device)
        self.optimizer.load(tensors)
        self.optimizer.swap_averages()  # `_save` has swapped them
        if self.ranks.is_first:
            self.last_loss = self.metrics.last("loss")
            self.last_perplexity = self.metrics.last("dev_perplexity")
            self.hooks.log.info("resumed at step %d", self.progress.step)

    def _fit(self) -> TrainingOutcome:
        while not self._is_finished(self.progress):
            step = self.progress.step + 1
            self._step(step)
            self._log_and_evaluate(step)
            is_finished = self._is_finished(self.progress)
            # After the evaluation, so that the checkpoint includes its score and its log line.
            scheduled = is_due(self.config, step) or is_finished
            saves = scheduled or self.saver.is_due_by_clock
            if saves:
                self._save(scheduled)
            tokens = self.progress.tokens
            self.hooks.on_step(
                StepReport(step, self.total_steps, self.last_loss, self.last_perplexity, tokens)
            )
            if self._stop_requested() and not is_finished:
                if not saves:
                    self._save(scheduled=False)
                raise Interrupted
        if self.ranks.is_first:
            self.saver.flush()
        progress = self.progress
        chosen = progress.chosen_step(self.config.patience)
        return TrainingOutcome(progress.step, chosen, progress.tokens)

    def _is_finished(self, progress: TrainingProgress) -> bool:
        return progress.step == self.total_steps or progress.stops_early(self.config.patience)

    def _total_steps(self) -> int | None:
        """The smaller of the limits in steps and in epochs; None if the row sets neither."""
        limits = []
        if self.config.train_steps:
            limits.append(self.config.train_steps)
        if self.config.epochs:
            limits.append(self.config.epochs * self.order.batches_per_epoch)
        return min(limits, default=None)

    def _step(self, step: int) -> None:
        """Make one optimizer step over the batch, in as many micro-batches as memory requires."""
        if not self.model.training:  # after an evaluation; train() visits every module
            self.model.train()
        n_tokens = self._accumulate(step)
        if self.parts > 1:
            self.loss_sum += self.tree.sum_gradients()
            # A checkpoint stores the generator of masks, so its state must be the same on all
            # ranks. It is seeded as for a part with the index `parts`, which no part has.
            self.generator.manual_seed(part_seed(self.seed, step, self.parts))
        self.optimizer.step(self._rate(step), decay_share(self.config, step, self.total_steps))
        self.loss_tokens += n_tokens
        self.progress.tokens += n_tokens
        self.progress.step = step

    def _accumulate(self, step: int) -> int:
        """Accumulate the gradients of a step's batch, and return its number of target tokens.

        If memory runs out on any rank, all ranks begin the step again with half the micro-batch.
        """
        generator_state = self.generator.get_state()
        loss_sum = self.loss_sum.clone()
        while True:
            step_batch = self.batches.at(step, self.micro_batch_tokens)
            if self._fits_in_memory(step_batch, step):
                return step_batch.n_tokens
            self.generator.set_state(generator_state)
            self.loss_sum = loss_sum.clone()
            self.optimizer.zero_grad()
            self.tree.clear()
            # The graph of the stored balance loss keeps tensors of the failed micro-batch alive.
            self.model.pop_balance_loss()
            release_cached_memory(self.device)
            self.micro_batch_tokens = math.ceil(self.micro_batch_tokens / 2)
            self.hooks.on_out_of_memory(self.micro_batch_tokens)

    def _fits_in_memory(self, step_batch: StepBatch, step: int) -> bool:
        """Try to add the gradients of a batch. Return whether no rank has run out of memory."""
        out_of_memory = False
        try:
            with matmul_precision(self.device, self.precision):
                for part in step_batch.parts:
                    self._add_part(part, step, step_batch.n_tokens)
        except (RuntimeError, MemoryError) as error:
            longest = int(self.train_items.lengths(step_batch.items).max())
            # A single item cannot be split.
            if not is_out_of_memory(error) or self.micro_batch_tokens <= longest:
                raise
            # The caller releases memory, after this handler, whose traceback keeps tensors alive.
            out_of_memory = True
        if self.parts > 1:
            out_of_memory = self._vote(out_of_memory)
        return not out_of_memory

    def _add_part(self, part: BatchPart, step: int, n_tokens: int) -> None:
        """Add the gradients of a part of the batch.

        With several parts, the dropout masks of a part do not depend on the other parts.
        """
        if self.parts == 1:
            for batch in part.micro_batches:
                # Summed on the device: reading the value would wait for the GPU at every step.
                self.loss_sum += self._add_gradients(batch, n_tokens)
            return
        self.generator.manual_seed(part_seed(self.seed, step, part.index))
        loss = torch.zeros_like(self.loss_sum)
        for batch in part.micro_batches:
            loss += self._add_gradients(batch, n_tokens)
        self.tree.add(loss)

    def _vote(self, out_of_memory: bool) -> bool:
        """Exchange three decisions of this step with all ranks.

        A memory fault on any rank is returned. A stop that any rank was asked for is kept in
        `stop_agreed`. Parameters with a gradient on any rank are kept in the gradient tree.
        Divergence needs no vote, because all ranks have the same sums.
        """
        stop = self.ranks.size > 1 and self.hooks.stop_requested()
        votes = self.ranks.vote([out_of_memory, stop, *self.tree.gradient_flags])
        any_out_of_memory, self.stop_agreed, *gradient_flags = votes
        self.tree.gradient_flags = gradient_flags
        return any_out_of_memory

    def _stop_requested(self) -> bool:
        """Whether to stop after this step; several ranks have voted on it within the step."""
        return self.hooks.stop_requested() if self.ranks.size == 1 else self.stop_agreed

    def _add_gradients(self, batch: Batch, n_tokens: int) -> Tensor:
        """Run forward and backward over a micro-batch, and return its summed loss.

        Apart from the loss and the gradients, no tensor outlives the call.
        """
        batch = batch.to(self.device)
        smoothing = self.config.label_smoothing
        with autocast(self.device, self.precision):
            loss, _ = self.task.loss_terms(self.model, batch, smoothing)
        # Divided by the tokens of the whole batch, so that the accumulated gradient is the gradient
        # of the mean loss over the batch.
        (loss / n_tokens).backward()
        self.model.pop_balance_loss()  # dropped, in case the task's loss has not used it
        return loss.detach()

    def _rate(self, step: int) -> float:
        return learning_rate(self.config, step, self.total_steps, self.schedule)

    # Log lines, divergence and evaluation

    def _log_and_evaluate(self, step: int) -> None:
        """Write the log line and evaluate, if they are due after this step."""
        is_last = step == self.total_steps
        evaluates = step % self.config.eval_every == 0 or is_last
        if step % LOG_EVERY == 0 or evaluates:  # first, so that no diverged model is evaluated
            self._log_loss()
        if evaluates:
            self.hooks.on_evaluation()
            self._evaluate()

    def _log_loss(self) -> None:
        """Log the mean loss since the last log line. Raise Diverged if training has diverged."""
        self.last_loss = loss = float(self.loss_sum) / self.loss_tokens
        self.loss_sum.zero_()
        self.loss_tokens = 0
        if not math.isfinite(loss):
            raise Diverged(self.progress.step, "the loss is not a finite number")
        self._check_explosion(loss)
        self._record(loss=loss, lr=self._rate(self.progress.step))

    def _check_explosion(self, loss: float) -> None:
        """Raise Diverged if the cross-entropy has exploded.

        A small training loss rules this out. A large training loss may be due to its other terms;
        the cross-entropy is then computed separately.
        """
        bound = EXPLODED * math.log(self.vocab_size)
        # The loss is the cross-entropy of the next token plus the weighted cross-entropies of later
        # tokens.
        total_weight = 1 + self.config.future_tokens * self.config.future_loss
        if loss <= total_weight * bound:
            return
        quantity = "loss"
        if self._has_other_terms:
            quantity = "cross-entropy"
            loss = self._cross_entropy()
            if loss <= bound:
                return
        raise Diverged(self.progress.step, f"the {quantity} exploded to {loss:.1f} nats a token")

    @property
    def _has_other_terms(self) -> bool:
        """Whether the training loss has terms beside cross-entropy."""
        c = self.config
        has_custom_loss = c.loss_term != "none" or type(self.task).loss_terms is not Task.loss_terms
        return has_custom_loss or c.z_loss > 0 or c.has_balanced_experts

    def _cross_entropy(self) -> float:
        """Cross-entropy of the batch of the last step, without dropout, in nats per token."""
        step = self.progress.step
        items = self.batches.items(step)
        split = self.task.at_step(self.train_items, self.seed, step)

        def batches(limit: int) -> Iterator[Batch]:
            for indices in micro_batches(split, items, limit):
                yield self.task.collate(split, indices)

        return nats_per_token(self.model, batches, self.task.output_terms, self.device)

    def _evaluate(self) -> None:
        """Measure the dev perplexity, and update early stopping."""
        with self.optimizer.averaged():
            value = self.task.perplexity(self.model, self.dev_items, self.device)
        self.last_perplexity = value
        if not value <= LARGEST_SCORE:  # also true of NaN
            limit = math.log(LARGEST_SCORE)
            raise Diverged(
                self.progress.step, f"the dev loss is not below {limit:.0f} nats a token"
            )
        self.progress.add_evaluation(value)
        self._record(dev_perplexity=value)

    def _record(self, **values: float) -> None:
        if self.ranks.is_first:
            self.metrics.append(step=self.progress.step, tokens=self.progress.tokens, **values)

    def _save(self, scheduled: bool) -> None:
        """Save a checkpoint.

        The checkpoint includes the loss since the last log line, so that a resumed run writes the
        same next line. If the row averages weights, the averages and the trained weights swap their
        places in a checkpoint: the file of weights has the averages, which are evaluated, and the
        file of the optimizer state has the trained weights.
        """
        if not self.ranks.is_first:
            return
        with self.optimizer.averaged():
            weights = to_bytes(self.model.state_dict())
            state = {"random": self.generator.get_state(), "losses": self.loss_sum.cpu()}
            tensors = to_bytes({**state, **self.optimizer.state()})
            info = TrainingState(
                **asdict(self.progress),
                loss_tokens=self.loss_tokens,
                metrics_bytes=self.metrics.size,
                metrics_sha256=self.metrics.sha256,
            )
            self.saver.save(Snapshot(weights, tensors, info, scheduled))
