"""The exported MarianMTModel gives the same logits, translations and token ids as the run."""

import copy

import pytest
import torch

from ablate.data.batches import pad
from ablate.data.tokenizer import BOS, EOS, PAD
from ablate.data.vocabulary import train_tokenizer
from ablate.decoding import beam_search
from ablate.export.encoders import MARIAN
from ablate.model.norms import EPS
from tests.export.small import different, greedy_differences, ours, random_model, until_end

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")

LIMIT = 60  # tokens of a translation, without its end mark
SHAPES = (
    {},
    {"encoder_layers": 1, "decoder_layers": 3},
    {"activation": "gelu"},
    {"attention_bias": True},
    {"n_kv_heads": 2},
    {"n_kv_heads": 1, "attention_bias": True},
    {"tied_embeddings": "decoder"},
    {"tied_embeddings": "none"},
    {"tied_embeddings": "none", "output_bias": True, "attention_bias": "inputs"},
    {"activation": "silu", "feed_forward_bias": False},
)


def load(folder):
    """Load the model; every weight must be present, and no other."""
    model, info = transformers.MarianMTModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model


def written(tokenizer, folder, **fields):
    model, source = random_model(tokenizer, **fields)
    MARIAN.write(MARIAN, source, folder)
    return model, load(folder)


def logits_of_both(ours, theirs):
    """Logits at target tokens, for a batch with padding on both sides."""
    source = pad([[7, 9, 30, 12, EOS], [11, 5, EOS], [40, EOS]])
    target = pad([[BOS, 8, 21], [BOS, 35, 6, 9, 14, 70], [BOS]])
    given = {
        "input_ids": source,
        "attention_mask": (source != PAD).long(),
        "decoder_input_ids": target,
    }
    return ours.logits(ours(source, target))[target != PAD], theirs(**given).logits[target != PAD]


@pytest.mark.parametrize("fields", SHAPES, ids=str)
def test_logits_are_ours_with_an_equal_epsilon_in_the_norms(tokenizer, tmp_path, fields):
    model, there = written(tokenizer, tmp_path, **fields)
    for module in there.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = EPS
    expected, found = logits_of_both(model, there)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_marians_larger_epsilon_changes_logits_only_slightly(tokenizer, tmp_path):
    expected, found = logits_of_both(*written(tokenizer, tmp_path))
    assert 0 < (found - expected).abs().max() < 1e-3


def test_200_sentences_are_translated_the_same_greedily(translator, exported):
    found = generate(translator, exported, num_beams=1)
    assert (
        greedy_differences(translator, found, ours(translator.opened, translator.ids, beam=1)) == []
    )


def test_200_sentences_are_translated_the_same_by_beam_search_token_by_token_and_as_text(
    translator, exported
):
    found = generate(translator, exported, num_beams=4)  # alpha is 0 in the folder's settings
    expected = ours(translator.opened, translator.ids, beam=4)
    assert different(found, expected) == []
    text = tokenizer_of(translator, exported).batch_decode(found, skip_special_tokens=True)
    assert text == translator.tokenizer.decode(expected)


class EndAt(transformers.LogitsProcessor):
    """Allow only the end mark once a translation has its largest length."""

    def __call__(self, input_ids, scores):
        if input_ids.shape[1] <= LIMIT:
            return scores
        only = torch.full_like(scores, -torch.inf)
        only[:, EOS] = scores[:, EOS]
        return only


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_beam_search_divides_scores_by_a_power_of_the_length_as_there(translator, exported, alpha):
    """In double precision, so that rounding decides between no two hypotheses."""
    there = load(exported(translator, "huggingface")).double()
    for module in there.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = EPS
    sources = pad([[*ids, EOS] for ids in translator.ids[:40]])
    found = there.generate(
        sources, attention_mask=(sources != PAD).long(), num_beams=4, length_penalty=alpha,
        early_stopping="never", max_new_tokens=LIMIT + 1,
        logits_processor=transformers.LogitsProcessorList([EndAt()]),
    )  # fmt: skip
    model, limits = copy.deepcopy(translator.opened.model).double(), torch.full((40,), LIMIT)
    expected = beam_search(model, sources, limits, beam=4, alpha=alpha, penalty="length")
    both = zip(until_end(found[:, 1:].tolist()), expected, strict=True)
    ended = [(one, other.tokens) for one, other in both if len(one) < LIMIT > len(other.tokens)]
    assert len(ended) > 20  # of the others, the limit decides
    assert [one for one, _ in ended] == [other for _, other in ended]


def generate(trained, exported, **settings):
    folder = exported(trained, "huggingface")
    batch = tokenizer_of(trained, exported)(trained.text, return_tensors="pt", padding=True)
    return until_end(load(folder).generate(**batch, **settings)[:, 1:].tolist())


def tokenizer_of(trained, exported):
    return transformers.MarianTokenizer.from_pretrained(exported(trained, "huggingface"))


def test_the_tokenizer_gives_the_same_ids(translator, exported):
    assert tokenizer_of(translator, exported)(translator.text)["input_ids"] == [
        [*ids, EOS] for ids in translator.ids
    ]


@pytest.mark.parametrize("text", ["the  dog", " the dog ", "the dog ... § ¶¶ dog", "THE DOG", ""])
def test_the_tokenizer_gives_the_same_ids_for_text_unlike_the_corpus(translator, exported, text):
    found = tokenizer_of(translator, exported)(text)["input_ids"]
    assert found == [*translator.tokenizer.encode([text])[0], EOS]


def test_auto_classes_load_the_folder(translator, exported):
    folder = exported(translator, "huggingface")
    assert type(transformers.AutoTokenizer.from_pretrained(folder)) is transformers.MarianTokenizer
    assert (
        type(transformers.AutoModelForSeq2SeqLM.from_pretrained(folder))
        is transformers.MarianMTModel
    )


def test_an_escaped_vocabulary_reads_and_writes_names_of_marks_there_too(tmp_path):
    texts = ["he says <unk> now", "a <s>b</s> \u2581\u2581 <pad>"]
    tokenizer = train_tokenizer(texts * 3, 32, escaped=True)
    written(tokenizer, tmp_path)
    there = transformers.MarianTokenizer.from_pretrained(tmp_path)
    assert there(texts)["input_ids"] == [[*ids, EOS] for ids in tokenizer.encode(texts)]
    found = [there.decode(ids, skip_special_tokens=True) for ids in tokenizer.encode(texts)]
    assert found == [text.replace("\u2581", " ") for text in texts]  # there, U+2581 is a space
