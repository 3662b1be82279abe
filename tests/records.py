"""Builders of the store's records, with plausible values; any field can be set by keyword.

Tests write files with these, and never by hand, so that a renamed or mistyped field fails at once.
Only tests of damaged or foreign files write JSON themselves.
"""

import hashlib
import time
from pathlib import Path
from typing import TypeVar

from ablate.config.lengths import Lengths
from ablate.config.resolve import resolve_row
from ablate.config.translation_data import TranslationData
from ablate.data.corpus import FORMAT
from ablate.store import checkpoints
from ablate.store.machine import machine
from ablate.store.processes import process_mark
from ablate.store.records import (
    CorpusManifest,
    Decoding,
    Execution,
    Failure,
    Measurement,
    ProcessMark,
    Progress,
    Provenance,
    Record,
    Result,
    RunRecord,
    Score,
    TrainingState,
)

RUN = "0123456789ab"
CORPUS = "0123456789ab"
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
R = TypeVar("R", bound=Record)


def a_run(id: str = RUN, **fields: object) -> RunRecord:
    """run.json of a translation run on the toy corpus."""
    data = TranslationData.resolve({"corpus": "toy", "vocab_size": 200}).model_dump(
        exclude={"folder"}
    )
    return RunRecord(**{"id": id, "seed": 1, "config": resolve_row({}), "data": data, **fields})


def an_execution(**fields: object) -> Execution:
    """execution.json of a run on a CPU."""
    return Execution(
        **{
            "training": "e" * 12,
            "device": "cpu",
            "threads": 1,
            "micro_batch_tokens": 1024,
            "precision": "fp32",
            **fields,
        },
    )


def a_provenance(**fields: object) -> Provenance:
    """provenance.json of a run on all cores of this machine."""
    here = machine()
    return Provenance(**{"machine": here, "device": "cpu", "threads": here.cores, **fields})


def a_progress(mark: ProcessMark | None = None, **fields: object) -> Progress:
    """progress.json of a run in training, by this process unless another one is given."""
    identity = (mark or process_mark()).model_dump()
    return Progress(**{**identity, "phase": "training", "time": time.time(), **fields})


def a_failure(**fields: object) -> Failure:
    """failure.json."""
    return Failure(**{"reason": "RuntimeError: out of luck", "time": time.time(), **fields})


def some_scores(
    ppl: float = 5.0, bleu: float = 25.0, signature: str = SIGNATURE, ppl_char: float | None = None
) -> dict[str, Score]:
    """Scores of a translation run; `ppl_char` follows from `ppl` unless given."""
    return {
        "ppl": Score(value=ppl),
        "ppl_char": Score(value=1.0 + ppl / 100 if ppl_char is None else ppl_char),
        "bleu": Score(value=bleu, signature=signature),
    }


def a_decoding(**fields: object) -> Decoding:
    """The evaluation of a translation run."""
    defaults = {
        "test": "test", "corpus": CORPUS, "beam": 4, "alpha": 0.6, "max_extra_length": 50, "average_checkpoints": 1,
        "averaged": 1, "scores": some_scores(), "predictions": 3, "sha256": "d" * 64, "seconds": 1.5,
    }  # fmt: skip
    return Decoding(**{**defaults, **fields})


def a_result(id: str = RUN, **fields: object) -> Result:
    """result.json of a run of 100 steps that is done, in no decoding."""
    defaults = {
        "corpus": CORPUS, "outcome": "done", "steps": 100, "params": 1, "seconds": 60.0, "micro_batch_tokens": 1024,
        "halvings": 0, "metrics_sha256": "e" * 64,
    }  # fmt: skip
    return Result(**{"id": id, **defaults, **fields})


def a_measurement(
    value: float = 25.0, resamples: tuple[float, ...] = (24.0, 26.0), **fields: object
) -> Measurement:
    """A score with its values on resampled test sets."""
    return Measurement(**{"value": value, "signature": SIGNATURE, "resamples": resamples, **fields})


def a_training_state(step: int, **fields: object) -> TrainingState:
    """The state in the manifest of a checkpoint."""
    defaults = {
        "tokens": 1000 * step, "best_perplexity": 12.75, "best_step": step, "evaluations_since_best": 0,
        "loss_tokens": 0, "metrics_bytes": 0, "metrics_sha256": hashlib.sha256(b"").hexdigest(),
    }  # fmt: skip
    return TrainingState(**{"step": step, **defaults, **fields})


def save_checkpoint(
    folder: Path,
    step: int,
    weights: bytes = b"weights",
    state: bytes = b"state",
    scheduled: bool = True,
) -> None:
    """Save a checkpoint of these bytes."""
    checkpoints.save(folder, weights, state, a_training_state(step), scheduled)


def a_manifest(**fields: object) -> CorpusManifest:
    """The manifest of a corpus with one pair in each split."""
    defaults = {
        "format": FORMAT, "training": "0123456789ab", "data": {}, "pairs": {"train": 1, "dev": 1, "test": 1},
        "left_out": {}, "longest": 10, "lengths": vars(Lengths.assumed()), "files": {},
    }  # fmt: skip
    return CorpusManifest(**{**defaults, **fields})


def change(record: type[R], path: Path, **fields: object) -> None:
    """Rewrite a record with other values of some fields."""
    content = record.read(path)
    assert content is not None
    assert fields.keys() <= record.model_fields.keys(), fields
    type(content)(**{**dict(content), **fields}).write(path, durable=False)
