"""Filters of training records, the sample for training a vocabulary, and warnings about text."""

import hashlib
import json
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.config.translation_data import TranslationData
from ablate.data import prepare_records
from ablate.data.batches import subset
from ablate.data.filters import case_warnings, exchange_warnings, form_warnings, markup_warnings
from ablate.data.prepare import prepare
from ablate.data.sources import Document
from ablate.data.tokenizer import FIRST_TOKEN, UNK
from ablate.data.vocabulary import random_sample
from ablate.formatting import ellipsis
from tests.data.small import PAIRS, SETTINGS
from tests.data.test_prepare import fault

TRAIN = PAIRS["train"]


# Filters


def test_each_filter_drops_and_counts_its_records(files):
    extra = [
        ("same", "same"), ("", "kana"), TRAIN[3], TRAIN[5], TRAIN[3], ("dog " * 90, "kana"),
        ("the dog", "kana " * 9), ("kana", "dog " * 90),
    ]  # fmt: skip
    settings = {"drop_identical": True, "drop_duplicates": True, "max_ratio": 4.0, "max_length": 80}
    corpus = files.write(train=[*TRAIN, *extra]).prepare(**settings)
    assert corpus.manifest.left_out == {
        "identical sides": 1, "empty": 1, "duplicate": 3, "too long": 2, "uneven": 1,
    }  # fmt: skip
    train = corpus.split("train")
    assert corpus.tokenizer.decode([train["source"][i].tolist() for i in range(len(train))]) == [
        s for s, _ in TRAIN
    ]


def test_without_filters_these_pairs_are_kept(files):
    corpus = files.write(train=[*TRAIN, ("same", "same"), TRAIN[3]]).prepare()
    assert corpus.manifest.left_out == {}
    assert len(corpus.split("train")) == len(TRAIN) + 2


def test_a_pair_is_a_duplicate_only_if_both_sides_are(files):
    other = (TRAIN[3][0], TRAIN[5][1])
    assert files.write(train=[*TRAIN, other]).prepare(drop_duplicates=True).manifest.left_out == {}


# The vocabulary


def test_languages_can_have_separate_vocabularies(files):
    corpus = files.write().prepare(vocabulary="separate", vocab_size=60)
    source, target = corpus.tokenizer_of("source"), corpus.tokenizer
    assert (source.vocab_size, target.vocab_size) == (60, 60)
    assert source.model != target.model
    train = corpus.split("train")
    assert source.decode([train["source"][i].tolist() for i in range(200)]) == [
        pair[0] for pair in TRAIN
    ]
    assert target.decode([train["target"][i].tolist() for i in range(200)]) == [
        pair[1] for pair in TRAIN
    ]


def test_the_sample_of_a_small_corpus_is_the_whole_corpus():
    assert random_sample(range(10), 10) == (list(range(10)), 10)


def test_a_sample_keeps_the_order_and_is_uniform():
    taken = Counter()
    for seed in range(600):
        numbers, count = random_sample(range(50), 10, seed)
        assert count == 50
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 10
        taken.update(numbers)
    # 120 expected of each, with a deviation of sqrt(600 * 0.2 * 0.8) = 9.8
    assert all(80 < taken[number] < 160 for number in range(50))


def test_the_vocabulary_of_a_large_corpus_is_learned_on_a_sample(files):
    said = []
    files.write()
    corpus = prepare(
        TranslationData.resolve({**SETTINGS, "tokenizer_pairs": 50}),
        files.folder,
        files.corpora,
        said.append,
    )
    assert "learning a vocabulary of 80 on a sample of 50 of 200 records" in said
    assert len(corpus.split("train")) == 200


# Shares of the training split


@given(st.integers(1, 500), st.floats(0.001, 1), st.floats(0.001, 1))
def test_a_smaller_subset_is_contained_in_a_larger_one(pairs, one, other):
    small, large = (subset(pairs, fraction) for fraction in sorted((one, other)))
    assert set(small.tolist()) <= set(large.tolist())
    assert len(small) == max(1, round(min(one, other) * pairs))
    assert np.all(np.diff(large) > 0)


def test_a_subset_is_drawn_from_the_whole_split():
    half = subset(10_000, 0.5)
    assert abs(len(half[half < 5000]) - 2500) < 150  # deviation: 25


# Warnings


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (["A man , a dog .", "Two women ."], "Moses-tokenized"),
        (["a well @-@ known man", "it &apos;s"], "Moses-tokenized"),
        (["Tom &amp; Jerry", "&quot;Yes&quot;"], "HTML-escaped"),
        (["ein klei@@ ner Hund", "Gar@@"], "segmented into subwords"),
        (["▁ein ▁klei ner ▁Hund", "a ▁b"], "segmented into subwords"),
        (["klei ##ner Hund", "Gar ##ten"], "segmented into subwords"),
        (["klei \uffedner Hund", "Ġein Ġkleiner"], "segmented into subwords"),
        (["我 喜欢 猫 。", "今天 天气 很 好"], "segmented into words"),
        (["私 は 猫 が 好き", "これ は 本 です"], "segmented into words"),
    ],
)
def test_tokenized_or_escaped_text_is_a_warning(lines, what):
    warnings = markup_warnings("dev", [Document(("A dog.", line)) for line in lines], ("en", "de"))
    assert f"dev (de): 100 % of lines look {what}; scores need plain text" in warnings
    assert not any("(en)" in line for line in warnings)


def test_plain_text_is_no_warning():
    plain = [
        "A man, a dog.", "AT&T", "Who? Me.", "He said: ...", "5 & 6", "Wait ...", "a@@b me@example.org",
        "Issue ## 5 and #6", "我喜欢猫。", "東京 大阪", "Ġgantija", "나는 고양이를 좋아해",
    ]  # fmt: skip
    assert markup_warnings("dev", [Document((line, line)) for line in plain], ("en", "de")) == []


@pytest.mark.parametrize(
    ("train", "dev", "test", "noticed"),
    [
        ("NFC", "NFC", "NFC", []),
        ("NFD", "NFD", "NFD", []),
        ("NFC", "NFC", "NFD", ["test (de): 0 % of lines with accents are in Unicode's form NFC, and 100 % of dev"]),
        ("NFC", "NFD", "NFD", ["train (de): 100 % of lines with accents are in Unicode's form NFC, and 0 % of dev"]),
    ],
)  # fmt: skip
def test_splits_in_other_forms_of_unicode_are_a_warning(files, train, dev, test, noticed):
    def pairs(form, count):
        return [
            ("the dog", unicodedata.normalize(form, text)) for text in ["schön", "plain"] * count
        ]

    corpus = files.write(train=pairs(train, 50), dev=pairs(dev, 2), test=pairs(test, 2))
    lines = corpus.prepare(vocab_size=25).manifest.all_warnings
    assert [
        line.partition(":")[0] + ":" + line.split(":")[1] for line in lines if "form" in line
    ] == noticed


def test_of_text_without_accents_no_form_is_compared():
    plain = [Document(("中文", "a dog"))]
    accents = [Document(("é", "é"))]
    assert form_warnings(("test", "dev"), (plain, accents), ("zh", "de")) == []


# Splits in another case


def cases(train, dev):
    splits = [[Document((text, "我")) for text in texts] for texts in (train, dev)]
    return case_warnings(("train", "dev"), tuple(splits), ("en", "zh"))


def test_a_lower_cased_split_beside_a_cased_one_is_a_warning_for_each_side(files):
    pairs = [(f"The dog {n} sleeps", f"Der Hund {n} ruht") for n in range(20)]
    lowered = [(english.lower(), german.lower()) for english, german in pairs]
    one_side = [(english.lower(), german) for english, german in pairs]
    for train, labels in ((pairs, []), (one_side, ["en"]), (lowered, ["en", "de"])):
        splits = {"train": train, "dev": pairs, "test": pairs}
        manifest = files.write(**splits).prepare(vocab_size=60, direction="en-de").manifest
        found = [line for line in manifest.text_warnings if "capital" in line]
        assert [line.split(":")[0] for line in found] == [f"train ({label})" for label in labels]
        for line in found:
            assert "0 % of lines have capital letters, and 100 % of dev" in line


@pytest.mark.parametrize(
    ("n_lower", "n_lines", "warns"), [(12, 20, True), (11, 20, False), (19, 19, False)]
)
def test_the_shares_of_lines_with_capitals_must_differ_by_six_tenths_of_20_lines(
    n_lower, n_lines, warns
):
    train = ["a dog"] * n_lower + ["A dog"] * (n_lines - n_lower) + ["12", "我"] * 50
    assert bool(cases(train, ["A dog"] * 20)) is warns
    assert bool(cases(["A dog"] * 20, train)) is warns


# Splits with exchanged sides

SENTENCES = [
    ("Two men are standing in the street.", "Zwei Männer stehen auf der Straße."),
    ("A child is playing with the ball.", "Ein Kind spielt mit dem Ball."),
    ("The woman is reading a book there.", "Die Frau liest dort ein Buch."),
    ("People are waiting for the train.", "Leute warten auf den Zug."),
    ("The dog is running over the grass.", "Der Hund läuft über das Gras."),
    ("A man is cooking in the kitchen.", "Ein Mann kocht in der Küche."),
]


@pytest.mark.parametrize("direction", ["en-de", "de-en"])
@pytest.mark.parametrize(
    ("exchanged", "noticed"),
    [
        ([], []),
        (["train"], ["train"]),
        (["test"], ["test"]),
        (["dev"], ["test", "train"]),
        (["train", "dev", "test"], []),  # only the labels are wrong, which no text shows
    ],
)
def test_splits_with_exchanged_languages_are_a_warning(files, direction, exchanged, noticed):
    splits = {"train": SENTENCES[:4], "dev": SENTENCES[2:], "test": SENTENCES[1:5]}
    for split in exchanged:
        splits[split] = [(german, english) for english, german in splits[split]]
    manifest = files.write(**splits).prepare(vocab_size=70, direction=direction).manifest
    found = [line for line in manifest.all_warnings if "exchanged" in line]
    assert sorted(line.split(" ")[0] for line in found) == noticed
    assert sorted(manifest.exchanged) == noticed
    assert ("exchanged" in json.loads(manifest.model_dump_json())) is bool(noticed)
    source, target = direction.split("-")
    for line in found:
        split = line.split(" ")[0]
        assert line.startswith(f"{split} ({source}) looks like dev ({target}), and ")
        sides = (0, 1) if direction == "en-de" else (1, 0)
        for name in (split, "dev"):  # so that a reader sees which split is wrong
            first = splits[name][0]
            assert " -> ".join(f'"{ellipsis(first[side], 40)}"' for side in sides) in line
        assert "use another --results for the mended text" in line


def exchanged_by(train, dev):
    splits = [[Document(pair) for pair in pairs] for pairs in (train, dev)]
    return exchange_warnings(("train", "dev"), tuple(splits), ("a", "b"))


def test_only_two_sides_that_both_resemble_the_other_are_exchanged():
    english, german = zip(*SENTENCES, strict=True)
    assert exchanged_by([("aaaa", "bbbb")], [("bbbb", "aaaa")])
    # One side alone: the other has no text in common with dev, or only one language is used.
    assert not exchanged_by([("aaaa", "bbbb")], [("bbbb", "cccc")])
    assert not exchanged_by([("aaaa", "bbbb")], [("cccc", "aaaa")])
    assert not exchanged_by([("aaaa", "aaaa")], [("aaaa", "aaaa")])
    one_language = list(zip(english[:3], english[3:], strict=True))
    assert not exchanged_by(one_language, [pair[::-1] for pair in one_language[:1]] + one_language)
    mixed = list(zip(german, english, strict=True)) + SENTENCES  # half of the records are right
    assert not exchanged_by(mixed, SENTENCES)


@pytest.mark.parametrize(("n_common", "is_exchanged"), [(0, True), (7, True), (9, False)])
def test_the_cosine_with_the_other_side_must_be_larger_by_a_fifth(n_common, is_exchanged):
    """Texts of one letter each are the single sequence " x ". With 10 different letters on each
    side, the cosine of two sides is a tenth of the number of their common letters: 1 with the
    other side, and `n_common` / 10 with the same.
    """
    first, second = "abcdefghij", "klmnopqrst"
    second = first[:n_common] + second[n_common:]
    pairs = list(zip(first, second, strict=True))
    assert bool(exchanged_by(pairs, [pair[::-1] for pair in pairs])) == is_exchanged


# Tokens that the vocabulary lacks


def test_the_share_of_unknown_tokens_is_logged_and_a_large_one_is_a_warning(files):
    said = []
    train = [*PAIRS["train"], *[("dog", "ж")]]
    # 1 of 10 tokens of the target of test: "щ" after the piece of a space, and 8 known ones
    test = [("the dog", "щ"), ("the dog", "k a k a")]
    files.write(train=train, test=test)
    settings = TranslationData.resolve({**SETTINGS, "vocab_size": 81})
    corpus = prepare(settings, files.folder, files.corpora, said.append)
    target = corpus.split("test")["target"]
    share = np.mean(np.array(target.ids) == UNK)
    assert target.unknown_share() == share == 1 / len(target.ids)
    assert corpus.split("train")["target"].unknown_share() == 0
    zero = "train source 0.0 %, train target 0.0 %, dev source 0.0 %, dev target 0.0 %, test source 0.0 %"
    assert f"unknown tokens: {zero}, test target {100 * share:.1f} %" in said
    assert corpus.manifest.all_warnings == [
        f"test (de): {100 * share:.1f} % of the tokens are unknown: their characters are not in the text "
        "of the vocabulary; data.byte_fallback encodes them as bytes"
    ]


def test_words_that_the_vocabulary_lacks_are_a_warning_however_few(files):
    train = [("the dog", "kana la")] * 5
    dev = [("the dog", "kana la")] * 150 + [("the dog", "kana mi")]
    files.write(train=train, dev=dev, test=dev[:1])
    warnings = files.prepare(tokenizer="word", vocab_size=8).manifest.warnings
    assert warnings["dev"] == ["dev (de): 0.3 % of the words are not in the vocabulary"]


def test_entries_of_a_vocabulary_of_words_that_are_no_words_are_counted(files):
    files.write()
    words = {word for pair in PAIRS["train"] for text in pair for word in text.split()}
    fitting = len(words) + FIRST_TOKEN
    assert files.prepare(tokenizer="word", vocab_size=fitting).manifest.all_warnings == []
    assert files.prepare(tokenizer="word", vocab_size=fitting + 1234).manifest.all_warnings == [
        f"1,234 of data.vocab_size={fitting + 1234:,} entries are no words of the training split: "
        f"no text uses their embeddings, which count as parameters nevertheless; decrease data.vocab_size to {fitting}"
    ]


# Text with what SentencePiece reserves

MARKED = [*PAIRS["train"], *[("the dog <unk>", "kana <s> ▁la")] * 3]


def test_reserved_text_survives_preparation(files):
    pairs = [("dog <unk>", "la ▁<s>")]
    corpus = files.write(train=MARKED, dev=pairs, test=pairs).prepare()
    for split in ("dev", "test"):
        for side, field in enumerate(("source", "target")):
            ids = corpus.split(split)[field][0].tolist()
            assert UNK not in ids
            assert corpus.tokenizer_of(field).decode([ids]) == [pairs[0][side]]


@pytest.mark.parametrize("train", [PAIRS["train"], MARKED])
def test_only_a_corpus_with_reserved_text_has_another_id_than_before(files, train):
    corpus = files.write(train=train).prepare()
    hashes = [hash for origin in corpus.manifest.sources.values() for hash in origin.sha256]
    before = hashlib.sha256(json.dumps([2, 80, 256, hashes]).encode()).hexdigest()[:12]
    assert (corpus.id == before) == (train is not MARKED)
    assert corpus.tokenizer.is_escaped == (train is MARKED)
    assert "character_coverage" not in corpus.manifest.data


def test_a_corpus_that_an_earlier_version_made_of_reserved_text_is_made_again(files, monkeypatch):
    files.write(train=MARKED, test=[("dog", "la <s>")], other=PAIRS["test"])
    with monkeypatch.context() as before:
        before.setattr(prepare_records.RecordPreparation, "has_reserved", False)
        old = files.prepare()
    again = files.prepare()
    assert (old.tokenizer.is_escaped, again.tokenizer.is_escaped) == (False, True)
    assert old.id != again.id
    assert old.training_hash != again.training_hash  # results on the old one are refused
    assert (
        files.prepare(test="other").training_hash == again.training_hash
    )  # nothing of the old one is reused


def test_what_cannot_survive_is_refused_with_its_line(files):
    test = [("the dog", "kana"), ("the dog", "a▁k")]
    assert fault(files.write(test=test)).startswith("test.de:2: has U+2581, which SentencePiece")
    test = [("the  dog", "▁  kana")]  # not the two spaces, which are never kept
    assert fault(files.write(test=test)).startswith("test.de:1: has U+2581, which SentencePiece")
    # Of an escaped vocabulary, these are the stand-ins.
    test = [("the \U0010ff00", "kana")]
    marked = [*MARKED, ("\U0010ff00", "ka")]
    assert fault(files.write(train=marked, test=test)).startswith("test.en:1: has U+10FF00, which")


def test_spaces_are_not_taken_for_a_loss(files):
    pairs = [("the  dog   hears", "kana\u00a0 la")]
    files.write(train=[*PAIRS["train"], *pairs], dev=pairs, test=pairs).prepare(vocab_size=81)


# Limits of length


def test_a_limit_of_training_leaves_longer_test_records_as_they_are(files):
    long = [("dog " * 90, "kana")]
    files.write(train=[*PAIRS["train"], *long], test=long)
    assert "is longer than data.max_length=80" in fault(files, max_length=80)
    corpus = files.prepare(max_length=256, max_train_length=80)
    assert corpus.manifest.left_out == {"too long": 1}
    assert len(corpus.split("train")) == len(PAIRS["train"])
    assert corpus.text("test", "source") == [long[0][0].strip()]
    assert corpus.id != files.prepare(max_length=256).id
    files.write(train=[*PAIRS["train"], *long])
    same = files.prepare(max_length=80).split("train")
    assert np.array_equal(corpus.split("train")["source"].ids, same["source"].ids)


# Coverage of characters


def test_with_coverage_rare_characters_are_bytes(files):
    train = [*PAIRS["train"], ("the dog", "".join(map(chr, range(0x4E00, 0x4E00 + 100))))]
    files.write(train=train)
    assert "is too small" in fault(files, byte_fallback=True, vocab_size=300)
    settings = {"byte_fallback": True, "vocab_size": 300, "character_coverage": 0.98}
    corpus = files.prepare(**settings, max_length=400)
    ids = corpus.split("train")["target"][len(train) - 1].tolist()
    assert corpus.tokenizer.decode([ids]) == [train[-1][1]]
    assert corpus.manifest.data["character_coverage"] == 0.98


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"character_coverage": 0.99}, "leaves out characters; set byte_fallback"),
        ({"tokenizer": "word", "byte_fallback": True}, "byte_fallback encodes characters"),
        ({"max_length": 80, "max_train_length": 80}, "max_train_length=80 has no effect"),
    ],
)
def test_settings_of_characters_that_cannot_go_together_are_refused(settings, why):
    with pytest.raises(ValueError, match=why):
        TranslationData.resolve({**SETTINGS, **settings})
