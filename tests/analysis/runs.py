"""Finished runs with random weights, laid out in a results root as a runner would."""

from __future__ import annotations

import torch
from safetensors.torch import save

from ablate.config.plugins import source_hash
from ablate.model import build
from ablate.run.inference import open_run
from ablate.store import Results, checkpoints
from ablate.store.files import write_json
from ablate.store.layout import RESULT_FORMAT
from tests.data.small import Files
from tests.model.small import shape

SENTENCE, TRANSLATION = "the red dog sleeps", "la hundo"
SHORT = [("a dog sleeps", "una hundo dorm"), ("the old king writes", "la rego skrib")]
ID = "0123456789ab"


def corpus_in(folder):
    """A results root with a small corpus, prepared."""
    corpus = Files(folder / "text", folder / "results" / "corpora").write(dev=SHORT, test=SHORT).prepare()
    return Results(folder / "results"), corpus


def lay_out(results, corpus, id=ID, seed=1, source=None, **fields):
    """A finished run of this shape; `source`: of the user's own module that it uses."""
    folder = results.run(id)
    if source is not None:
        folder.sources.mkdir(parents=True)
        (folder.sources / f"{source_hash(source.encode())}.py").write_text(source)
    config = shape(**{"max_positions": 97, **fields})
    model = build(config, corpus.tokenizer.vocab_size, seed, sources=folder.sources)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "W_Q" in name:
                parameter *= 5  # attention that chooses
    checkpoints.save(folder.checkpoints, 1, save(model.state_dict()), b"", {}, scheduled=True)
    write_json(folder.run, {"config": config.model_dump()})
    done = {
        "format": RESULT_FORMAT, "id": id, "outcome": "done", "chosen_step": 1, "checkpoints_made": 1,
        "kept_steps": [1], "corpus": corpus.id, "decodings": {},
    }  # fmt: skip
    write_json(folder.result, done)
    return folder


def opened(results, corpus, **fields):
    """A finished run of this shape, loaded."""
    return open_run(lay_out(results, corpus, **fields), results)
