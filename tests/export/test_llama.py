"""The exported LlamaForCausalLM gives the same translations as the run; logits are compared in
test_language_models.py and tests/model/test_published.py.
"""

import pytest
import torch

from ablate.data.tokenizer import BOS, EOS, PAD
from tests.export.small import different, ours, until_end

transformers = pytest.importorskip("transformers")


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


@pytest.mark.parametrize("beam", [1, 4])
def test_200_sentences_are_translated_the_same(continuer, exported, beam):
    there, given = load(exported(continuer, "huggingface")), prompts(continuer.ids)
    found = there.generate(**given, num_beams=beam)[:, given["input_ids"].shape[1] :].tolist()
    assert different(until_end(found), ours(continuer.opened, continuer.ids, beam)) == []


def test_the_exported_tokenizer_is_that_of_the_run(continuer, exported):
    assert (
        exported(continuer, "huggingface") / "tokenizer.model"
    ).read_bytes() == continuer.tokenizer.model
