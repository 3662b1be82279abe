"""The stages of a run: train or resume, average, evaluate, decode, score, publish."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ablate.config import DecodingConfig
from ablate.decoding.translate import Translations
from ablate.errors import Damaged, Interrupted, StoreError
from ablate.kernels.device import visible_device
from ablate.store import checkpoints, none_if_unreadable
from ablate.store.files import quarantine, remove_temporaries, sha256, write_bytes
from ablate.store.lease import LeaseLost
from ablate.store.records import (
    Decoding,
    Execution,
    FileHash,
    Measurement,
    Outcome,
    Phase,
    Result,
    Score,
)
from ablate.store.score_cache import fault_in_predictions, score_source, write_scores
from ablate.training import Diverged, RunHooks, TrainingOutcome
from ablate.training.checkpointing import averaged_steps, count_due
from ablate.workers.assignment import Assignment, RankCommand
from ablate.workers.execution import choose_execution
from ablate.workers.progress import ProgressReporter
from ablate.workers.ranks import rank_group, send_command
from ablate.workers.run_inputs import RunInputs


def execute(assignment: Assignment, hooks: RunHooks) -> Outcome:
    """Execute the run of an assignment, or only its missing decodings. The caller holds its lease.

    Raises:
        Interrupted: a stop was requested; the state is saved.
        StoreError: files on disk cannot be used.
        OSError: the disk refused a file that the result needs.
    """
    inputs = RunInputs.read(assignment)
    # Killed workers have left temporary files. If `ablate table` is writing to scores/ at this
    # moment, it loses its temporary file too, and continues without the cache.
    for directory in inputs.folder.folders:
        remove_temporaries(directory)
    execution = choose_execution(
        inputs.folder, assignment, inputs.config, inputs.corpus.training_hash, hooks.log
    )
    device = visible_device(assignment.devices)
    return _Pipeline(assignment, inputs.set_up(device, execution), execution, hooks).execute()


class _Pipeline:
    """Executes one run in the process that holds its lease."""

    def __init__(
        self, assignment: Assignment, inputs: RunInputs, execution: Execution, hooks: RunHooks
    ) -> None:
        self.assignment = assignment
        self.decodings = assignment.run.decodings
        self.inputs = inputs
        self.folder = inputs.folder
        self.config = inputs.config
        self.task = inputs.task
        self.corpus = inputs.corpus
        self.execution = execution
        self.log = hooks.log
        self.check_lease = hooks.check_lease
        self.stop_requested = hooks.stop_requested
        self.reporter = ProgressReporter(
            self.folder,
            execution.threads,
            inputs.device,
            assignment.device,
            assignment.report_seconds,
        )
        self.hooks = replace(
            hooks,
            on_step=self.reporter.after_step,
            on_evaluation=lambda: self.reporter.enter("evaluating"),
            on_out_of_memory=self._remember_smaller_micro_batch,
        )

    def execute(self) -> Outcome:
        """Execute the run, and write a last progress report."""
        # Both are powers of two, so the smaller divides the larger: every rank computes the same
        # number of parts.
        size = min(len(self.assignment.devices), self.execution.parts)
        try:
            with rank_group(self.assignment, size, self.inputs.device, self.log):
                outcome = self._execute_stages()
        except LeaseLost:
            raise  # without a last report: the new holder of the lease writes the reports now
        except Interrupted:
            self.check_lease()  # a lost lease requests a stop, too: then raise LeaseLost
            self.folder.failure.unlink(missing_ok=True)
            self.reporter.leave()
            raise
        except BaseException:
            with suppress(LeaseLost):  # the error itself is raised, not the lost lease
                self.check_lease()
                self.reporter.leave()
            raise
        self.reporter.leave()
        return outcome

    def _execute_stages(self) -> Outcome:
        self._mark_failure_as_killed()
        earlier = self._read_result()
        result = earlier or self._train()
        decoding_error = None
        if result.outcome == "done":  # a diverged run has no weights to decode with
            result, decoding_error = self._decode_missing(result)
        self.check_lease()
        self.folder.failure.unlink(missing_ok=True)
        if result != earlier:
            self._publish(result, once=earlier is None)
        # After publishing the result: until then, a killed run resumes from the optimizer states.
        checkpoints.prune(self.folder.checkpoints, set(result.kept_steps), finished=True)
        if decoding_error is not None:  # raised last, so that the other decodings are published
            raise decoding_error
        return result.outcome

    def _mark_failure_as_killed(self) -> None:
        """Mark the failure of an earlier attempt as killed. If this attempt dies without recording
        a failure, the run then counts as killed, and is tried again.
        """
        failure = none_if_unreadable(self.folder.read_failure)
        if failure is None:
            self.folder.failure.unlink(missing_ok=True)  # there is none, or it cannot be read
        else:
            with suppress(OSError):  # on a full disk, the attempt continues
                failure.model_copy(update={"killed": True}).write(self.folder.failure)

    def _read_result(self) -> Result | None:
        """Read the result; quarantine a damaged result, so that the run makes it again."""
        try:
            return self.folder.read_result()
        except Damaged as error:
            self.check_lease()
            self.log.warning("%s; the file is quarantined, and the result is made again", error)
            quarantine(self.folder.result)
            return None

    def _publish(self, result: Result, once: bool) -> None:
        """Write the result. With `once`, an existing result means that another process holds the
        lease.
        """
        self.check_lease()
        try:
            result.write(self.folder.result, once=once)
        except FileExistsError:
            raise LeaseLost(str(self.folder.result)) from None
        self.log.info("published: %s after %d steps", result.outcome, result.steps)

    # Training

    def _train(self, retry: bool = True) -> Result:
        """Train to the end, or to divergence."""
        # Keep as many checkpoints as the largest average of all decodings needs.
        counts = [decoding.average_checkpoints for decoding in self.decodings.values()]
        keep = max(counts, default=1)
        send_command(RankCommand(execution=self.execution, keep=keep))
        trainer = self.inputs.trainer(self.execution, keep, self.hooks)
        params = sum(parameter.numel() for parameter in trainer.model.parameters())
        try:
            outcome = trainer.fit()
        except Diverged as error:
            self.log.warning("diverged at step %d: %s", error.step, error.reason)
            return self._result("diverged", params, error.step, reason=error.reason)
        scheduled = checkpoints.scheduled(self.folder.checkpoints, until=outcome.chosen_step)
        to_average = scheduled[-keep:]
        # Only once, because a failing disk would lose checkpoints again and again. After the second
        # loss, decoding reports the missing weights.
        if retry and self._has_lost_checkpoints(to_average, keep, outcome):
            checkpoints.remove_all(self.folder.checkpoints)
            return self._train(retry=False)  # from the first step
        weights = to_average[-1].weights
        return self._result(
            "done",
            params,
            outcome.last_step,
            chosen_step=outcome.chosen_step,
            scheduled_checkpoints=count_due(self.config, outcome.chosen_step),
            tokens=outcome.tokens,
            weights=FileHash(file=weights.name, sha256=sha256(weights)),
            kept_steps=tuple(checkpoint.step for checkpoint in to_average),
        )

    def _has_lost_checkpoints(
        self, to_average: list[checkpoints.Checkpoint], keep: int, outcome: TrainingOutcome
    ) -> bool:
        """Whether weights that averaging needs are damaged or lost; logs the first fault."""
        try:
            for checkpoint in to_average:
                checkpoints.verified_weights(checkpoint)
        except Damaged as error:
            self.log.warning("%s; the run starts over", error)
            return True
        steps = [checkpoint.step for checkpoint in to_average]
        if steps != averaged_steps(self.config, outcome.chosen_step, keep):
            self.log.warning(
                "%s: has lost a checkpoint that averaging needs; the run starts over",
                self.folder.checkpoints,
            )
            return True
        return False

    def _remember_smaller_micro_batch(self, tokens: int) -> None:
        """Record for a resumed run that the trainer has halved the micro-batch to this number of
        tokens.
        """
        self.execution = self.execution.halved()
        self.log.warning(
            "out of memory: the step is repeated in micro-batches of %d tokens", tokens
        )
        with suppress(OSError):
            self.execution.write(self.folder.execution)

    def _result(self, outcome: Outcome, params: int, steps: int, **fields: object) -> Result:
        return Result(
            id=self.folder.id,
            corpus=self.corpus.id,
            outcome=outcome,
            steps=steps,
            params=params,
            seconds=round(self.reporter.seconds, 3),
            micro_batch_tokens=self.execution.current_micro_batch_tokens,
            halvings=self.execution.halvings,
            metrics_sha256=sha256(self.folder.metrics),
            **fields,
        )

    # Decoding

    def _decode_missing(self, result: Result) -> tuple[Result, StoreError | None]:
        """Add the decodings that are missing or whose predictions are damaged.

        Returns:
            The result with all decodings that succeeded, and the error of the last decoding that
            failed, or None.
        """
        decodings = dict(result.decodings)
        decoding_error = None
        for id, config in self.decodings.items():
            if id in decodings:
                damage = fault_in_predictions(self.folder, id, decodings[id])
                if damage is None:
                    continue
                self.log.warning("%s", damage)
            try:
                decodings[id] = self._decode(id, config, result)
            except StoreError as error:
                self.log.warning("%s", error)
                decoding_error = error
        return result.model_copy(update={"decodings": decodings}), decoding_error

    def _decode(self, id: str, config: DecodingConfig, result: Result) -> Decoding:
        """Evaluate with one set of decoding settings, and store the predictions and scores."""
        send_command(RankCommand(execution=self.execution, decoding=config, result=result))
        scores, predictions, generated, seconds = self.inputs.evaluate(
            config, result, self._between_batches
        )
        digest = None
        measurements: dict[str, Measurement] = {}
        if predictions is not None:
            # A line break within a prediction would shift the lines of all later predictions.
            lines = [text.replace("\n", " ").replace("\r", " ") for text in predictions]
            digest = self._write_predictions(id, lines)
            measurements = self._measure(lines)
        for name, measurement in measurements.items():
            scores[name] = Score(**measurement.model_dump(exclude={"resamples"}))
        self._refuse_invalid_scores(scores)  # before they are cached
        if digest is not None:
            with suppress(OSError):  # `ablate table` measures again if this cache is missing
                write_scores(self.folder, id, score_source(digest, self.corpus.id), measurements)
        return Decoding(
            test=self.assignment.run.test,
            corpus=self.corpus.id,
            **config.model_dump(),
            averaged=min(config.average_checkpoints, result.scheduled_checkpoints),
            scores=scores,
            n_predictions=None if predictions is None else len(predictions),
            sha256=digest,
            seconds=round(seconds, 3),
            generated=generated,
            cut=predictions.cut if isinstance(predictions, Translations) else None,
        )

    def _write_predictions(self, id: str, lines: Sequence[str]) -> str:
        """Write the predictions, and return the SHA-256 of their file."""
        content = "".join(f"{line}\n" for line in lines).encode()
        self.check_lease()
        write_bytes(self.folder.predictions(id), content)
        return hashlib.sha256(content).hexdigest()

    def _measure(self, lines: list[str]) -> dict[str, Measurement]:
        """Measure the default metrics of predictions."""
        measurements = {}
        for name in self.task.default_metrics:
            if name in self.task.prediction_metric_names:
                measurements[name] = self.task.measure(name, lines, self.corpus)
        return measurements

    def _refuse_invalid_scores(self, scores: Mapping[str, Score]) -> None:
        """Refuse scores that are not finite, and scores without a logarithm on a log scale."""
        for name, score in scores.items():
            if self.task.metrics[name].is_log and score.value <= 0:
                raise ValueError(
                    f"metric {name} is {score.value}; a metric on a log scale must be above 0"
                )
            if not score.is_storable:
                raise ValueError(f"metric {name} is {score.value}, not a finite number")

    def _between_batches(self, phase: Phase) -> None:
        """Report the phase, and stop if requested: an interrupted decoding starts over in the next
        launch.
        """
        if self.stop_requested():
            raise Interrupted
        self.reporter.enter(phase)
