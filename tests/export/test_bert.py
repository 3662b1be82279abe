"""Exported masked language models: the logits and the filled tokens of BERT are ours, and so are
parameter counts.
"""

import pytest
import torch

from ablate.config import cost
from ablate.config.resolve import resolve_row
from ablate.data.tokenizer import MASK, ByteTokenizer
from ablate.decoding.fill import encode_masked, fill_masks
from ablate.errors import listed
from ablate.export.encoders import BERT as TARGET
from ablate.export.target import TrainedModel
from ablate.export.targets import find_target
from tests.tasks.masked import BERT, small

transformers = pytest.importorskip("transformers")

CASES = (
    {},
    {"embedding_scale": "sqrt(d_model)"},
    {"tied_embeddings": "none"},
    {"tied_embeddings": "none", "embedding_scale": "sqrt(d_model)", "output_bias": False},
    {"attention_bias": False, "feed_forward_bias": False, "token_types": 0},
    {"token_types": 2, "n_kv_heads": 1},
    {"positional_encoding": "sinusoidal"},
    {"positional_encoding": "none", "activation": "relu"},
)


def exported(folder, **fields):
    """(our model, the model that the library loads from our files)."""
    config, model = small(**{**BERT, **fields})
    trained = TrainedModel(config, model.state_dict(), ByteTokenizer(), ("text",), "masked")
    TARGET.write(TARGET, trained, folder)
    there, info = transformers.BertForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model, there.eval()


@pytest.mark.parametrize("fields", CASES, ids=str)
def test_logits_are_ours_beside_padding_too(tmp_path, fields):
    model, there = exported(tmp_path, **fields)
    tokens = torch.tensor([[70, 81, MASK, 4, 259, 31, 32, 9], [*range(100, 105), 0, 0, 0]])
    found = there(tokens, attention_mask=tokens != 0).logits
    expected = model.logits(model.read(tokens))
    torch.testing.assert_close(found[tokens != 0], expected[tokens != 0], atol=1e-4, rtol=1e-4)


def test_the_library_fills_the_same_tokens_from_the_same_text(tmp_path):
    model, _ = exported(tmp_path)
    fill = transformers.pipeline("fill-mask", model=str(tmp_path), top_k=3, device="cpu")
    for text in ("the c<mask>t sat", "<mask>b", "a € <mask>"):
        ours = fill_masks(model, ByteTokenizer(), encode_masked(ByteTokenizer(), text), 5).masks[0]
        text_tokens = [one for one in ours if one.id > 3][:3]  # the library may also fill in marks
        found = {one["token"]: one["score"] for one in fill(text, top_k=8)}
        total = 1 - sum(score for id, score in found.items() if id in (0, MASK, 2))
        for one in text_tokens:
            assert found[one.id] / total == pytest.approx(one.probability, rel=1e-2)


def test_the_tokenizer_there_is_ours_with_a_mask(tmp_path):
    exported(tmp_path)
    there = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("The <mask>at\n\n sat.\t€ <mask>", "<mask><mask>", "no mask"):
        assert there.encode(text, add_special_tokens=False) == encode_masked(ByteTokenizer(), text)
    assert there.mask_token_id == MASK


@pytest.mark.parametrize("preset", ["bert-tiny", "bert-base"])
@pytest.mark.parametrize("V", [260, 30_522])
def test_presets_have_as_many_parameters_as_the_library_s_models(preset, V):
    config = resolve_row({"preset": preset})
    with torch.device("meta"):
        there = transformers.BertForMaskedLM(
            transformers.BertConfig(vocab_size=V, **TARGET.settings(config))
        )
    assert cost.parameters(config, V) == there.num_parameters()


def test_the_published_size_of_bert_base():
    assert cost.parameters(resolve_row({"preset": "bert-base"}), 30_522) == 109_514_298
    default = transformers.BertConfig()
    with torch.device("meta"):
        assert transformers.BertForMaskedLM(default).num_parameters() == 109_514_298
    ours = TARGET.settings(resolve_row({"preset": "bert-base"}))
    names = (
        "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
        "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
    )  # fmt: skip
    assert {name: ours[name] for name in names} == {name: getattr(default, name) for name in names}


def test_what_bert_does_not_have_is_refused_with_the_reason():
    def reasons(library="huggingface", **fields):
        config = resolve_row({**BERT, **fields})
        target = find_target("masked-lm", config, library)
        return (
            target
            if target is None
            else (target.name, listed(target.violations(config) or ["nothing"]))
        )

    assert reasons() == ("BertForMaskedLM", "nothing")
    assert (
        "norm_position=pre, but BertForMaskedLM supports only post"
        in reasons(norm_position="pre")[1]
    )
    assert "embedding_norm=false, but" in reasons(embedding_norm=False)[1]
    assert "positional_encoding=rope, but" in reasons(positional_encoding="rope")[1]
    assert "d_k=8 and d_v=4" in reasons(d_k=8, d_v=4)[1]
    assert reasons("ctranslate2") is None
