"""Finished runs with random weights, in a results root."""

from __future__ import annotations

import torch
from safetensors.torch import save

from ablate.custom.source import source_hash
from ablate.model import build
from ablate.store import Results, checkpoints
from ablate.store.records import Result, RunRecord, TrainingState
from ablate.workers.inference import load_run
from tests.data.small import Files
from tests.model.small import shape

SENTENCE, TRANSLATION = "the red dog sleeps", "la hundo"
SHORT = [("a dog sleeps", "una hundo dorm"), ("the old king writes", "la rego skrib")]
ID = "0123456789ab"


def corpus_in(folder):
    """A results root with a small corpus, prepared."""
    corpus = (
        Files(folder / "text", folder / "results" / "corpora")
        .write(dev=SHORT, test=SHORT)
        .prepare()
    )
    return Results(folder / "results"), corpus


def lay_out(results, corpus, id=ID, seed=1, source=None, **fields):
    """A finished run of this shape; `source`: the text of the plugin module that it uses."""
    folder = results.run(id)
    if source is not None:
        folder.sources.mkdir(parents=True)
        (folder.sources / f"{source_hash(source.encode())}.py").write_text(source)
    config = shape(**{"max_positions": 97, **fields})
    model = build(config, corpus.tokenizer.vocab_size, seed, sources=folder.sources)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "W_Q" in name:
                parameter *= 5  # makes attention far from uniform
    state = TrainingState(
        step=1, tokens=0, best_perplexity=None, best_step=1, evaluations_since_best=0, loss_tokens=0, metrics_bytes=0,
        metrics_sha256="",
    )  # fmt: skip
    checkpoints.save(folder.checkpoints, save(model.state_dict()), b"", state, scheduled=True)
    RunRecord(id=id, seed=seed, config=config, data={}).write(folder.run)
    Result(
        id=id, outcome="done", steps=1, params=1, seconds=1.0, micro_batch_tokens=1024, halvings=0, metrics_sha256="",
        chosen_step=1, checkpoints_made=1, kept_steps=(1,), corpus=corpus.id,
    ).write(folder.result)  # fmt: skip
    return folder


def opened(results, corpus, **fields):
    """A finished run of this shape, loaded."""
    return load_run(lay_out(results, corpus, **fields), results)
