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
from ablate.data.batches import BatchOrder, micro_batches
from ablate.data.corpus import Corpus, Split
from ablate.errors import Interrupted, StoreError
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
from ablate.own.loading import load_function
from ablate.stats.metrics import LARGEST_SCORE
from ablate.store import RunFolder, checkpoints
from ablate.store.records import TrainingState
from ablate.tasks import Batch, Task
from ablate.training.checkpointing import CheckpointSaver, Snapshot, is_due
from ablate.training.context import (
    Diverged,
    RunContext,
    StepReport,
    TrainingOutcome,
    TrainingProgress,
)
from ablate.training.gradient_tree import GradientTree, part_seed, rank_parts
from ablate.training.metrics_log import MetricsLog
from ablate.training.optimizer import make_optimizer
from ablate.training.schedule import decay_share, learning_rate, schedule_of
from ablate.training.step_batches import BatchPart, StepBatches

LOG_EVERY = 50  # steps between log lines; divergence is checked at each log line
# A loss above this multiple of ln V, the loss per token of a uniform prediction, has exploded:
# training does not recover from it.
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
        context: RunContext | None = None,
        parts: int = 1,
        ranks: Ranks = ONLY_RANK,
    ) -> None:
        """Prepare a training, and resume it from the newest valid checkpoint if there is one.

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
            context: hooks that the training calls.
            parts: number of parts into which each batch is divided; a power of two. Like the size
                of the micro-batch, it changes the last digits of sums and the masks of dropout.
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
        self.context = context or RunContext()
        self.train = task.items(corpus, "train", config)
        self.dev = task.items(corpus, "dev", config) if dev is None else dev
        self.vocab_size = corpus.tokenizer.vocab_size
        self.order = BatchOrder(self.train, config.batch_tokens, seed, config.train_fraction)
        self.model = build(config, self.vocab_size, seed, device, folder.sources)
        self.model.train()  # all modules, even if a user's class has put its own in eval mode
        self.random = self.model.random  # generator of dropout masks
        self.model.loss_term = load_function(config.loss_term, folder.sources)
        self.optimizer = make_optimizer(self.model, config, folder.sources)
        self.schedule = schedule_of(config, folder.sources)
        if on_gpu(device):
            # The optimizer state is allocated before the first step, so that this step shows
            # whether the micro-batch fits beside it.
            self.optimizer.allocate()
        self.tree = GradientTree(self.optimizer.parameters, ranks)  # used with several parts
        self.stop_agreed = False  # whether the ranks have voted to stop
        self.folder = folder.checkpoints
        self.metrics = MetricsLog(folder.metrics)
        self.saver = CheckpointSaver(folder, config, self.metrics, keep_checkpoints, self.context)
        self.batches = StepBatches(
            task, self.train, self.order, parts, rank_parts(parts, ranks), config.batch_stages
        )
        self.micro_batch_tokens = micro_batch_tokens
        self.progress = TrainingProgress()
        self.loss_sum = torch.zeros((), device=device)  # nats since the last log line
        self.loss_tokens = 0  # target tokens since the last log line
        self.last_loss: float | None = None
        self.last_perplexity: float | None = None
        self.steps = self._last_step()
        self._resume()

    def fit(self) -> TrainingOutcome:
        """Train to the end of the budget.

        Raises:
            Interrupted: a stop was requested; a checkpoint is saved.
            Diverged: the loss is not finite, or has exploded.
            OSError: the disk refused a checkpoint that the result needs; the run can resume.
        """
        try:
            return self._fit()
        except Diverged:
            if self.ranks.is_first:
                self.metrics.flush()  # the result states the hash of the log
            raise
        finally:
            self.metrics.close()

    def _fit(self) -> TrainingOutcome:
        while not self._finished():
            self._step(self.progress.step + 1)
            step = self.progress.step
            log_due = step % LOG_EVERY == 0 or step == self.steps
            evaluation_due = step % self.config.eval_every == 0 or step == self.steps
            if log_due or evaluation_due:  # first, so that no diverged model is evaluated
                self._log_loss()
            if evaluation_due:
                self.context.on_evaluation()
                self._evaluate()
            # After the evaluation, so that the checkpoint includes its score and its log line.
            save_due = is_due(self.config, step) or self._finished()
            if save_due or self.saver.is_due_by_clock:
                self._save(scheduled=save_due)
            report = StepReport(
                step, self.steps, self.last_loss, self.last_perplexity, self.progress.tokens
            )
            self.context.on_step(report)
            if self._stop_requested() and not self._finished():
                if not save_due:
                    self._save(scheduled=False)
                raise Interrupted
        if self.ranks.is_first:
            self.saver.flush()
        chosen = self.progress.best_step if self.config.patience else self.progress.step
        return TrainingOutcome(self.progress.step, chosen, self.progress.tokens)

    def _step(self, step: int) -> None:
        """Make one optimizer step over the batch, in as many micro-batches as memory requires."""
        if not self.model.training:  # after an evaluation; train() visits every module
            self.model.train()
        random = self.random.get_state()
        loss_sum = self.loss_sum.clone()
        while (n_tokens := self._accumulate(step)) is None:
            # Out of memory: repeat the step from the same state with smaller micro-batches.
            self.random.set_state(random)
            self.loss_sum = loss_sum.clone()
        if self.parts > 1:
            self.loss_sum += self.tree.sum_gradients()
            # A checkpoint stores the generator of masks, so its state must be the same on all
            # ranks. It is seeded as for a part with the index `parts`, which no part has.
            self.random.manual_seed(part_seed(self.seed, step, self.parts))
        self.optimizer.step(self._rate(step), decay_share(self.config, step, self.steps))
        self.loss_tokens += n_tokens
        self.progress.tokens += n_tokens
        self.progress.step = step

    def _accumulate(self, step: int) -> int | None:
        """Accumulate the gradients of a step's batch, and return its number of target tokens.

        If memory runs out on any rank, halve the micro-batch and return None.
        """
        batch = self.batches.at(step, self.micro_batch_tokens)
        out_of_memory = False
        try:
            with matmul_precision(self.device, self.precision):
                for part in batch.parts:
                    self._add_part(part, step, batch.n_tokens)
        except (RuntimeError, MemoryError) as error:
            longest = int(self.train.lengths(batch.items).max())
            # A single item cannot be split.
            if not is_out_of_memory(error) or self.micro_batch_tokens <= longest:
                raise
            out_of_memory = True
        if self.parts > 1:
            out_of_memory = self._vote(out_of_memory)
        if not out_of_memory:
            return batch.n_tokens
        # Not in the handler, where the traceback keeps tensors of the failed micro-batch alive.
        self.optimizer.clear()
        # The graph of the stored balance loss keeps tensors of the failed micro-batch alive too.
        self.model.pop_balance_loss()
        self.tree.clear()
        release_cached_memory(self.device)
        self.micro_batch_tokens = math.ceil(self.micro_batch_tokens / 2)
        self.context.on_out_of_memory(self.micro_batch_tokens)
        return None

    def _add_part(self, part: BatchPart, step: int, n_tokens: int) -> None:
        """Add the gradients of a part of the batch.

        With several parts, the dropout masks of a part do not depend on the other parts.
        """
        if self.parts == 1:
            for batch in part.micro_batches:
                # Summed on the device: reading the value would wait for the GPU at every step.
                self.loss_sum += self._add_gradients(batch, n_tokens)
            return
        self.random.manual_seed(part_seed(self.seed, step, part.index))
        loss = torch.zeros_like(self.loss_sum)
        for batch in part.micro_batches:
            loss += self._add_gradients(batch, n_tokens)
        self.tree.add(loss)

    def _vote(self, out_of_memory: bool) -> bool:
        """Let the ranks agree on this step, and return whether any rank is out of memory.

        They also agree on whether to stop (`stop_agreed`) and on which parameters have gradients.
        Divergence needs no vote, because all ranks have the same sums.
        """
        stop = self.ranks.size > 1 and self.context.stop_requested()
        votes = self.ranks.vote([out_of_memory, stop, *self.tree.gradient_flags])
        any_out_of_memory, self.stop_agreed, *gradient_flags = votes
        self.tree.gradient_flags = gradient_flags
        return any_out_of_memory

    def _stop_requested(self) -> bool:
        """Whether to stop after this step; several ranks have voted on it within the step."""
        return self.context.stop_requested() if self.ranks.size == 1 else self.stop_agreed

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

    def _log_loss(self) -> None:
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
        split = self.task.at_step(self.train, self.seed, step)

        def batches(limit: int) -> Iterator[Batch]:
            for indices in micro_batches(split, items, limit):
                yield self.task.collate(split, indices)

        return nats_per_token(self.model, batches, self.task.output_terms, self.device)

    def _evaluate(self) -> None:
        """Measure the dev perplexity, and update early stopping."""
        progress = self.progress
        with self.optimizer.averaged():
            value = self.task.perplexity(self.model, self.dev, self.device)
        self.last_perplexity = value
        if not value <= LARGEST_SCORE:  # also true of NaN
            limit = math.log(LARGEST_SCORE)
            raise Diverged(progress.step, f"the dev loss is not below {limit:.0f} nats a token")
        progress.evaluations_since_best += 1
        # Among equal perplexities, the earliest is the best.
        if progress.best_perplexity is None or value < progress.best_perplexity:
            progress.best_perplexity = value
            progress.best_step = progress.step
            progress.evaluations_since_best = 0
        self._record(dev_perplexity=value)

    def _rate(self, step: int) -> float:
        return learning_rate(self.config, step, self.steps, self.schedule)

    def _record(self, **values: float) -> None:
        if self.ranks.is_first:
            self.metrics.append(step=self.progress.step, tokens=self.progress.tokens, **values)

    def _last_step(self) -> int | None:
        """The smaller of the budgets in steps and in epochs; None if the row sets neither."""
        limits = []
        if self.config.train_steps:
            limits.append(self.config.train_steps)
        if self.config.epochs:
            limits.append(self.config.epochs * self.order.batches_per_epoch)
        return min(limits, default=None)

    def _finished(self) -> bool:
        if self.progress.step == self.steps:
            return True
        patience = self.config.patience
        return patience is not None and self.progress.evaluations_since_best >= patience

    def _save(self, scheduled: bool) -> None:
        """Save a checkpoint.

        The checkpoint includes the loss since the last log line, so that a resumed run writes the
        same next line. If the row averages weights, the two are swapped in a checkpoint: the file
        of weights holds the averages, which are evaluated, and the file of the optimizer state
        holds the weights.
        """
        if not self.ranks.is_first:
            return
        with self.optimizer.averaged():
            weights = to_bytes(self.model.state_dict())
            state = {"random": self.random.get_state(), "losses": self.loss_sum.cpu()}
            tensors = to_bytes({**state, **self.optimizer.state()})
            info = TrainingState(
                **asdict(self.progress),
                loss_tokens=self.loss_tokens,
                metrics_bytes=self.metrics.size,
                metrics_sha256=self.metrics.sha256,
            )
            self.saver.save(Snapshot(weights, tensors, info, scheduled))

    def _resume(self) -> None:
        checkpoint = self._find_checkpoint() if self.ranks.is_first else None
        checkpoint = self._broadcast(checkpoint)
        if checkpoint is None:
            return
        self._restore(checkpoint.info)
        self.model.load_state_dict(load_file(checkpoint.weights))
        tensors = load_file(checkpoint.state)
        self.random.set_state(tensors.pop("random"))
        self.loss_sum = tensors.pop("losses").to(self.device)
        self.optimizer.load(tensors)
        self.optimizer.swap_averages()  # a checkpoint has weights and averages swapped
        if self.ranks.is_first:
            self.last_loss = self.metrics.last("loss")
            self.last_perplexity = self.metrics.last("dev_perplexity")
            self.context.log.info("resumed at step %d", self.progress.step)

    def _find_checkpoint(self) -> checkpoints.Checkpoint | None:
        """Find the checkpoint to resume from, and cut the log to its step. Return None if there is
        none.

        If training has already ended and only the result is missing, restore the progress and
        return None.
        """
        # `newest` quarantines damaged checkpoints, which only the holder of the lease may do.
        self.context.check_lease()
        checkpoint, skipped = checkpoints.newest(self.folder)
        for line in skipped:
            self.context.log.warning(line)
        # After the end of training, the optimizer state may have been deleted. `newest` ignores
        # checkpoints without it.
        if checkpoint is None and self._restore_ended_training():
            return None
        if checkpoint is not None and not self._cut_metrics(checkpoint.info):
            self.context.log.warning(
                "%s: has lost lines that it had at step %d; the run starts over",
                self.metrics.path,
                checkpoint.step,
            )
            checkpoints.remove_all(self.folder)
            checkpoint = None
        if checkpoint is None:
            self.metrics.cut()
        return checkpoint

    def _broadcast(
        self, checkpoint: checkpoints.Checkpoint | None
    ) -> checkpoints.Checkpoint | None:
        """Give all ranks the checkpoint and the progress of the first rank."""
        if self.ranks.size == 1:
            return checkpoint
        manifest = None if checkpoint is None else checkpoint.model_dump(mode="json")
        manifest, progress = self.ranks.all_gather_objects((manifest, asdict(self.progress)))[0]
        self.progress = TrainingProgress(**progress)
        if manifest is None:
            return None
        return checkpoints.Checkpoint(folder=self.folder, **manifest)

    def _restore_ended_training(self) -> bool:
        """Restore the progress of training that has ended, if the weights of the last step are
        undamaged. The optimizer state is not needed.

        Returns:
            Whether training had ended. Otherwise, nothing is changed.
        """
        scheduled = checkpoints.scheduled(self.folder)
        if not scheduled:
            return False
        last = scheduled[-1]
        initial_progress = self.progress
        self._restore(last.info)
        try:
            checkpoints.verified_weights(last)
        except StoreError as error:
            self.context.log.warning("%s; the run starts over", error)
        else:
            if self._finished() and self._cut_metrics(last.info):
                self.context.log.info("training had ended at step %d", last.step)
                return True
        self.progress = initial_progress
        self.loss_tokens = 0
        return False

    def _restore(self, state: TrainingState) -> None:
        self.loss_tokens = state.loss_tokens
        values = {name: getattr(state, name) for name in asdict(self.progress)}
        self.progress = TrainingProgress(**values)

    def _cut_metrics(self, state: TrainingState) -> bool:
        return self.metrics.cut(state.metrics_bytes, state.metrics_sha256)
