"""The exported LlamaForCausalLM gives the same logits and translations as the run."""

import pytest
import torch

from ablate.data.batches import pad
from ablate.data.tokenizer import BOS, EOS, PAD
from ablate.export.llama import write_llama
from tests.export.small import LLAMA, different, ours, random_model, until_end

transformers = pytest.importorskip("transformers")

SHAPES = (
    {},
    {"n_layers": 3},
    {"attention_bias": True},
    {"n_kv_heads": 2},
    {"n_kv_heads": 1, "attention_bias": True},
    {"tied_embeddings": "none"},
    {"d_k": 10, "d_v": 10},
)


def load(folder):
    """Load the model; every weight must be present, and no other."""
    model, info = transformers.LlamaForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model


def prompts(sentences):
    """Sources followed by EOS and BOS, padded on the left."""
    rows = [[*sentence, EOS, BOS] for sentence in sentences]
    width = max(map(len, rows))
    ids = torch.tensor([[PAD] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("fields", SHAPES, ids=str)
def test_logits_are_ours(tokenizer, tmp_path, fields):
    model, source = random_model(tokenizer, **LLAMA, **fields)
    write_llama(source, tmp_path)
    there = load(tmp_path)
    sources, targets = [[7, 9, 30, 12, EOS], [11, 5, EOS]], [[BOS, 8, 21], [BOS, 35, 6, 9, 14, 70]]
    expected = model.logits(model(pad(sources), pad(targets)))
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        found = there(torch.tensor([source + target])).logits[0, len(source) :]
        torch.testing.assert_close(found, expected[i, : len(target)], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("beam", [1, 4])
def test_200_sentences_are_translated_the_same(continuer, exported, beam):
    there, given = load(exported(continuer, "huggingface")), prompts(continuer.ids)
    found = there.generate(**given, num_beams=beam)[:, given["input_ids"].shape[1] :].tolist()
    assert different(until_end(found), ours(continuer.opened, continuer.ids, beam)) == []


def test_the_exported_tokenizer_is_that_of_the_run(continuer, exported):
    assert (
        exported(continuer, "huggingface") / "tokenizer.model"
    ).read_bytes() == continuer.tokenizer.model
