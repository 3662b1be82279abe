"""Carry out a run: train or resume, average, measure, translate, score, publish."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import torch

from ablate.config import DecodingConfig, RowConfig
from ablate.data.corpus import Corpus
from ablate.decoding import translate
from ablate.errors import Damaged, Interrupted, StoreError
from ablate.metrics.perplexity import per_character, perplexity
from ablate.metrics.sacrebleu import score
from ablate.model import Transformer, build
from ablate.run.execution import execution_of
from ablate.run.job import Unit
from ablate.run.progress import Progress
from ablate.store import RunFolder, checkpoints
from ablate.store.files import read_json, remove_temporaries, set_aside, sha256, write_bytes, write_json
from ablate.store.layout import RESULT_FORMAT
from ablate.store.lease import LeaseLost
from ablate.training import Diverged, Trained, Trainer
from ablate.training.averaging import average, checkpoints_until, window

Outcome = Literal["done", "diverged"]


def carry_out(
    unit: Unit,
    stop_asked: Callable[[], bool],
    say: Callable[[str], None],
    guard: Callable[[], None] = lambda: None,
) -> Outcome:
    """Do what is missing of a run; the caller holds its lease.

    Args:
        unit: the run, and how.
        stop_asked: asked after every step; when true, the run saves itself and leaves.
        say: takes a line for the run's log.
        guard: called before whatever others could see is written; raises where the lease is lost.

    Raises:
        Interrupted: a stop was asked for; everything is saved.
        StoreError: what is on disk cannot be used.
        OSError: the disk has refused what the result needs.
    """
    folder = RunFolder(Path(unit.folder))
    run = read_json(folder.run)
    if run is None:
        raise StoreError(f"{folder.run}: is missing")
    config = RowConfig(**{**run["config"], **unit.settings})
    work = _Work(folder, unit, config, run["seed"], stop_asked, say, guard)
    return work.do()


class _Work:
    """One run, being carried out."""

    def __init__(
        self,
        folder: RunFolder,
        unit: Unit,
        config: RowConfig,
        seed: int,
        stop_asked: Callable[[], bool],
        say: Callable[[str], None],
        guard: Callable[[], None],
    ) -> None:
        self.folder, self.unit, self.config, self.seed = folder, unit, config, seed
        self.stop_asked, self.say, self.guard = stop_asked, say, guard
        for place in (folder.path, folder.translations("").parent):
            remove_temporaries(place)
        self.corpus = Corpus(Path(unit.corpus))
        self.execution = execution_of(folder, unit, config, self.corpus.training, say)
        self.device = torch.device(unit.device)
        self.progress = Progress(folder, self.execution.threads, self.device)
        torch.set_num_threads(self.execution.threads)

    def do(self) -> Outcome:
        """The whole run, or what is missing of it."""
        try:
            outcome = self._do()
        except LeaseLost:
            raise  # what the run's files say of its progress is another's now
        except BaseException:
            self.progress.leave()
            raise
        self.progress.leave()
        return outcome

    def _do(self) -> Outcome:
        self.folder.failure.unlink(missing_ok=True)
        before = self._whole_result()
        result = self._train() if before is None else {**before, "decodings": {**before.get("decodings", {})}}
        refused = self._decode_missing(result) if result["outcome"] == "done" else None
        if result != before:
            self._publish(result, once=before is None)
        checkpoints.prune(self.folder.checkpoints, set(result["kept_steps"]), finished=True)
        if refused is not None:
            raise refused
        outcome: Outcome = result["outcome"]
        return outcome

    def _whole_result(self) -> dict[str, Any] | None:
        """The result that is there; a damaged one is set aside and made again."""
        try:
            return self.folder.read_result()
        except Damaged as error:
            self.guard()
            self.say(f"{error}; set aside, and made again")
            set_aside(self.folder.result)
            return None

    def _publish(self, result: dict[str, Any], once: bool) -> None:
        """Write the result. The first one takes its place only if no other has: of two processes, one publishes."""
        self.guard()
        try:
            write_json(self.folder.result, result, once=once)
        except FileExistsError:
            raise LeaseLost(str(self.folder.result)) from None
        self.say(f"published: {result['outcome']} after {result['steps']} steps")

    def _decode_missing(self, result: dict[str, Any]) -> StoreError | None:
        """Add the decodings that are missing; one that is not possible is told when the others are safe."""
        refused = None
        for id, settings in self.unit.decodings.items():
            if id not in result["decodings"]:
                try:
                    result["decodings"][id] = self._decode(id, settings, result)
                except StoreError as error:
                    refused = error
        return refused

    def _train(self, again: bool = True) -> dict[str, Any]:
        """Train to the end or to divergence; what the result says of it."""
        keep = max(settings["average_checkpoints"] for settings in self.unit.decodings.values())
        dev = self.corpus.split("dev")
        trainer = Trainer(
            self.config,
            self.seed,
            self.corpus,
            checkpoints_folder=self.folder.checkpoints,
            metrics_file=self.folder.metrics,
            device=self.device,
            micro_batch_tokens=self.execution.fitting_tokens,
            keep_checkpoints=keep,
            evaluate=lambda model: perplexity(model, dev, self.device),
            tell=self.progress.training,
            stop_asked=self.stop_asked,
            say=self.say,
            sources=self.folder.sources,
            guard=self.guard,
            halved=self._halved,
        )
        self.params = sum(parameter.numel() for parameter in trainer.model.parameters())
        try:
            trained = trainer.run()
        except Diverged as end:
            self.say(f"diverged at step {end.step}: {end.reason}")
            return {**self._facts(end.step), "outcome": "diverged", "reason": end.reason, "kept_steps": []}
        kept = checkpoints.scheduled(self.folder.checkpoints, until=trained.chosen)[-keep:]
        if again and self._has_lost_some(kept, keep, trained):
            checkpoints.prune(self.folder.checkpoints, set(), finished=True)
            return self._train(again=False)
        steps = [generation.step for generation in kept]
        return {**self._facts(trained.steps), **self._outcome(trained), "kept_steps": steps, "decodings": {}}

    def _has_lost_some(self, kept: list[checkpoints.Generation], keep: int, trained: Trained) -> bool:
        """Whether weights that averaging needs were damaged since they were saved: then training begins again."""
        try:
            for generation in kept:
                checkpoints.verified_weights(generation)
        except Damaged as error:
            self.say(f"{error}; the run starts over")
            return True
        if [generation.step for generation in kept] != window(self.config, trained.chosen, keep):
            self.say(f"{self.folder.checkpoints}: has lost a checkpoint that averaging needs; the run starts over")
            return True
        return False

    def _halved(self, tokens: int) -> None:
        """Remember that memory did not suffice, so that a resume does not try in vain."""
        self.execution = self.execution.halved()
        self.say(f"out of memory: the step is done again in micro-batches of {tokens} tokens")
        with suppress(OSError):
            self.execution.save(self.folder)

    def _facts(self, steps: int) -> dict[str, Any]:
        return {
            "format": RESULT_FORMAT,
            "id": self.folder.id,
            "corpus": self.corpus.id,
            "steps": steps,
            "params": self.params,
            "seconds": round(self.progress.seconds, 3),
            "micro_batch_tokens": self.execution.fitting_tokens,
            "halvings": self.execution.halvings,
            "metrics": {"sha256": sha256(self.folder.metrics)},
        }

    def _outcome(self, trained: Trained) -> dict[str, Any]:
        weights = checkpoints.scheduled(self.folder.checkpoints, until=trained.chosen)[-1].weights
        return {
            "outcome": "done",
            "chosen_step": trained.chosen,
            "checkpoints_made": checkpoints_until(self.config, trained.chosen),
            "tokens": trained.tokens,
            "weights": {"file": weights.name, "sha256": sha256(weights)},
        }

    def _decode(self, id: str, settings: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
        """Perplexity and BLEU of one way of decoding, and its translations on disk."""
        config = DecodingConfig(**settings)
        model = load_model(self.folder, self.config, self.corpus, result, config.average_checkpoints, self.device)
        dev, test = self.corpus.split("dev"), self.corpus.split("test")
        self._between("measuring")
        value = perplexity(model, dev, self.device)
        self._between("decoding")
        started = time.monotonic()
        sources = [test["source"][i].tolist() for i in range(len(test))]
        texts = translate(model, self.corpus.tokenizer, sources, config, self.device, lambda: self._between("decoding"))
        seconds = time.monotonic() - started
        translated = "".join(f"{_one_line(text)}\n" for text in texts).encode()
        self.guard()
        write_bytes(self.folder.translations(id), translated)
        bleu = score("bleu", texts, self.corpus.text("test", "target"))
        return {
            "test": self.unit.test,
            "corpus": self.corpus.id,
            "beam": config.beam,
            "alpha": config.alpha,
            "max_extra_length": config.max_extra_length,
            "average_checkpoints": config.average_checkpoints,
            "averaged": min(config.average_checkpoints, result["checkpoints_made"]),
            "ppl": value,
            "ppl_char": per_character(value, dev, self.corpus.text("dev", "target")),
            "bleu": bleu.value,
            "signature": bleu.signature,
            "sentences": len(texts),
            "sha256": hashlib.sha256(translated).hexdigest(),
            "seconds": round(seconds, 3),
        }

    def _between(self, phase: str) -> None:
        """A place to stop: nothing of a decoding is lost that a minute would not bring back."""
        if self.stop_asked():
            raise Interrupted
        self.progress.phase(phase)


def load_model(
    folder: RunFolder, config: RowConfig, corpus: Corpus, result: dict[str, Any], count: int, device: torch.device
) -> Transformer:
    """The trained model of a run: the mean of its last `count` checkpoints up to the chosen step.

    Raises:
        StoreError: fewer are kept than asked for, or one is damaged.
    """
    there = {generation.step: generation for generation in checkpoints.generations(folder.checkpoints)}
    wanted = result["kept_steps"][-count:]
    kept = [there[step] for step in wanted if step in there]
    if not kept:
        raise StoreError(
            f"{folder.checkpoints}: holds no whole checkpoint; remove {folder.path} to train the run again"
        )
    if len(kept) < len(wanted):
        raise StoreError(f"{folder.checkpoints}: has lost a checkpoint; remove {folder.path} to train the run again")
    if len(kept) < min(count, result["checkpoints_made"]):
        raise StoreError(
            f"{folder.checkpoints}: keeps {len(kept)} checkpoints, and average_checkpoints={count} asks for more; "
            "they were pruned when the run finished: train it in another --results to average more"
        )
    model = build(config, corpus.tokenizer.vocab_size, seed=0, device=device, sources=folder.sources)
    model.load_state_dict(average([checkpoints.verified_weights(g) for g in kept]))
    return model.eval()


def _one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\r", " ")
