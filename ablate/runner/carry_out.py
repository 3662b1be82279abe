"""Carry out a run: train or resume, average, measure, translate, score, publish."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

from ablate.config import DecodingConfig, RowConfig
from ablate.data.corpus import Corpus
from ablate.decoding import translate
from ablate.errors import Interrupted, StoreError
from ablate.model import Transformer, build
from ablate.runner.progress import Progress
from ablate.runner.provenance import provenance
from ablate.runner.unit import Unit
from ablate.scoring.metrics import score
from ablate.scoring.perplexity import perplexity
from ablate.store import RunFolder, checkpoints
from ablate.store.files import read_json, remove_temporaries, sha256, write_bytes, write_json
from ablate.training import Diverged, Trained, Trainer
from ablate.training.averaging import average, checkpoints_until

Outcome = Literal["done", "diverged"]
RESULT_FORMAT = 1


def carry_out(unit: Unit, stop_asked: Callable[[], bool], say: Callable[[str], None]) -> Outcome:
    """Do what is missing of a run; the caller holds its lock.

    Raises:
        Interrupted: a stop was asked for; everything is saved.
        StoreError: what is on disk cannot be used.
    """
    folder = RunFolder(Path(unit.folder))
    run = read_json(folder.run)
    if run is None:
        raise StoreError(f"{folder.run}: is missing")
    config = RowConfig(**{**run["config"], **unit.settings})
    work = _Work(folder, unit, config, run["seed"], stop_asked, say)
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
    ) -> None:
        self.folder, self.unit, self.config, self.seed = folder, unit, config, seed
        self.stop_asked, self.say = stop_asked, say
        remove_temporaries(folder.path)
        self.corpus = Corpus(Path(unit.corpus))
        self.execution = self._execution()
        self.device = torch.device(unit.device)
        self.progress = Progress(folder, self.execution)
        self.started = time.monotonic()
        torch.set_num_threads(self.execution["threads"])

    def do(self) -> Outcome:
        """The whole run, or what is missing of it."""
        try:
            return self._do()
        finally:
            self.progress.leave()

    def _do(self) -> Outcome:
        self.folder.failure.unlink(missing_ok=True)
        result = self.folder.read_result() or self._train()
        refused = self._decode_missing(result) if result["outcome"] == "done" else None
        write_json(self.folder.result, result)
        checkpoints.prune(self.folder.checkpoints, set(result["kept_steps"]), finished=True)
        if refused is not None:
            raise refused
        outcome: Outcome = result["outcome"]
        return outcome

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

    def _execution(self) -> dict[str, Any]:
        """How the run is carried out: as it was begun, since threads and micro-batches change the last digits."""
        begun = read_json(self.folder.execution)
        kind = self.unit.device.partition(":")[0]
        if begun is not None and begun["corpus"] != self.corpus.id:
            raise StoreError(
                f"{self.folder.path}: was begun on corpus {begun['corpus']}, and the files now make corpus "
                f"{self.corpus.id}; bring the old files back, or use another --results"
            )
        if begun is not None and begun["device"] != kind and not self.folder.result.exists():
            raise StoreError(
                f"{self.folder.path}: was begun on {begun['device']}, and its random state is of no use on {kind}; "
                f"use --device {begun['device']}, or another --results"
            )
        if begun is not None and self.config.micro_batch_tokens in (None, begun["micro_batch_tokens"]):
            return begun
        if begun is not None:
            execution = {**begun, "micro_batch_tokens": self.config.micro_batch_tokens}
            write_json(self.folder.execution, execution)
            return execution
        execution = {
            "corpus": self.corpus.id,
            "device": kind,
            "threads": self.unit.threads,
            "micro_batch_tokens": self.config.micro_batch_tokens or self.unit.fitting_tokens,
        }
        write_json(self.folder.execution, execution)
        write_json(self.folder.provenance, provenance(self.unit.device, self.unit.threads))
        return execution

    def _train(self) -> dict[str, Any]:
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
            micro_batch_tokens=self.execution["micro_batch_tokens"],
            keep_checkpoints=keep,
            evaluate=lambda model: perplexity(model, dev, self.device),
            tell=self.progress.training,
            stop_asked=self.stop_asked,
            say=self.say,
            sources=self.folder.sources,
        )
        self.params = sum(parameter.numel() for parameter in trainer.model.parameters())
        try:
            trained = trainer.run()
        except Diverged as end:
            self.say(f"diverged at step {end.step}: {end.reason}")
            return {**self._facts(end.step), "outcome": "diverged", "reason": end.reason, "kept_steps": []}
        kept = [g.step for g in checkpoints.scheduled(self.folder.checkpoints, until=trained.chosen)][-keep:]
        return {**self._facts(trained.steps), **self._outcome(trained), "kept_steps": kept, "decodings": {}}

    def _facts(self, steps: int) -> dict[str, Any]:
        return {
            "format": RESULT_FORMAT,
            "id": self.folder.id,
            "corpus": self.corpus.id,
            "steps": steps,
            "params": self.params,
            "seconds": round(self.progress.seconds, 3),
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
        sources = [test.source[i].tolist() for i in range(len(test))]
        texts = translate(model, self.corpus.tokenizer, sources, config, self.device, lambda: self._between("decoding"))
        seconds = time.monotonic() - started
        write_bytes(self.folder.translations(id), "".join(f"{_one_line(text)}\n" for text in texts).encode())
        bleu = score("bleu", texts, self.corpus.references())
        return {
            "beam": config.beam,
            "alpha": config.alpha,
            "max_extra_length": config.max_extra_length,
            "average_checkpoints": config.average_checkpoints,
            "ppl": value,
            "bleu": bleu.value,
            "signature": bleu.signature,
            "sentences": len(texts),
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
    kept = checkpoints.scheduled(folder.checkpoints, until=result["chosen_step"])[-count:]
    if not kept:
        raise StoreError(
            f"{folder.checkpoints}: holds no whole checkpoint; remove {folder.path} to train the run again"
        )
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
