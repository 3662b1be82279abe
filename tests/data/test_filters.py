"""Limits of length and ratio, lines that look processed, and test text that occurs in the training
split.
"""

import random
from collections import Counter

import numpy as np
import pytest

from ablate.config.translation_data import TranslationData
from ablate.data import filters
from ablate.data.filters import count_overlap, markup_warnings, repeat_warnings, within_limits
from ablate.data.prepare import prepare
from ablate.data.sequence_writer import SequenceWriter
from ablate.data.sources import Document
from ablate.data.tokenizer import Encoded
from ablate.store.corpora import overlaps_in
from ablate.store.files import write_json
from ablate.store.records import CorpusManifest, Overlap
from tests.data.small import PAIRS, SETTINGS

TRAIN = PAIRS["train"]
SEEN = {side: {pair[side] for pair in TRAIN} for side in (0, 1)}
NEW = [pair for pair in PAIRS["test"] if all(pair[side] not in SEEN[side] for side in (0, 1))]


def test_fields_and_whole_records_of_the_test_split_are_counted(files):
    test = [
        TRAIN[0],
        TRAIN[150],
        TRAIN[0],  # twice in the test split
        (TRAIN[7][0], NEW[0][1]),
        (NEW[1][0], TRAIN[9][1]),
        (TRAIN[3][0], TRAIN[5][1]),  # both sides, of different records
        *NEW[2:6],
    ]
    counted = files.write(test=test).prepare().manifest.overlap
    assert counted == Overlap(by_field={"source": 5, "target": 5}, records=3)
    assert counted.shares(10) == {"source": 0.5, "target": 0.5, "whole records": 0.3}
    (manifest,) = files.corpora.glob("*/corpus.json")
    assert overlaps_in(manifest.parent)["test"] == counted.shares(10)


def test_a_part_of_a_sentence_does_not_count(files):
    test = [(" ".join(s.split()[:-1]), f"{t} {t}") for s, t in TRAIN[:5]]
    test = [(s, t) for s, t in test if s not in SEEN[0] and t not in SEEN[1]]
    assert files.write(test=test).prepare().manifest.overlap == Overlap(
        fields={"source": 0, "target": 0}, records=0
    )


@pytest.mark.parametrize("vocabulary", ["joint", "separate"])
@pytest.mark.parametrize("long", [1, 40, 10**6])
def test_the_counts_are_those_of_comparing_texts(files, monkeypatch, long, vocabulary):
    monkeypatch.setattr(filters, "_LONG", long)
    rng = random.Random(long)
    test = [
        (rng.choice(TRAIN + NEW)[0], rng.choice(TRAIN + NEW)[1]) for _ in range(40)
    ] + rng.sample(TRAIN, 20)
    counted = files.write(test=test).prepare(vocabulary=vocabulary).manifest.overlap
    by_side = {
        name: sum(pair[side] in SEEN[side] for pair in test)
        for side, name in ((0, "source"), (1, "target"))
    }
    assert counted == Overlap(by_field=by_side, records=sum(pair in set(TRAIN) for pair in test))


def test_training_records_that_filters_drop_do_not_count(files):
    dropped = ("the dog " * 60, NEW[0][1])
    corpus = files.write(train=[*TRAIN, dropped], test=[(NEW[1][0], NEW[0][1]), TRAIN[2]]).prepare(
        max_length=100
    )
    assert corpus.manifest.left_out == {"too long": 1}
    assert corpus.manifest.overlap == Overlap(by_field={"source": 1, "target": 1}, records=1)


def test_records_of_the_dev_split_that_occur_in_training_are_counted_too(files):
    """Perplexity, `tune` and `patience` depend on the dev split."""
    dev = [TRAIN[0], *NEW[:3]]
    corpus = files.write(dev=dev, test=NEW[3:]).prepare()
    counted = Overlap(by_field={"source": 1, "target": 1}, records=1)
    assert corpus.manifest.dev_overlap == counted
    assert corpus.manifest.overlap.records == 0
    assert overlaps_in(corpus.folder)["dev"] == counted.shares(4)
    again = files.write(dev=dev, test=NEW[4:]).prepare()
    assert (again.id != corpus.id, again.manifest.dev_overlap) == (True, counted)


def test_a_manifest_without_the_counts_is_read_and_its_corpus_is_used(files):
    corpus = files.write(test=[TRAIN[0]]).prepare()
    path = corpus.folder / "corpus.json"
    content = corpus.manifest.model_dump(mode="json", exclude={"overlap", "fields"})
    write_json(path, content)
    assert CorpusManifest.read(path).overlap is None
    assert "test" not in overlaps_in(corpus.folder)
    again = prepare(TranslationData.resolve(SETTINGS), files.folder, files.corpora)
    assert (again.id, again.manifest.overlap, again.training_hash) == (
        corpus.id,
        None,
        corpus.training_hash,
    )


def test_an_empty_sequence_is_a_text_too(tmp_path):
    for split, lengths in (("train", [2, 0, 1]), ("test", [0, 1, 3])):
        with SequenceWriter(tmp_path, split, "text") as writer:
            writer.add(Encoded(np.arange(sum(lengths), dtype=np.uint32), np.array(lengths)))
    # train: [0, 1], [], [2]; test: [], [0], [1, 2, 3]
    assert count_overlap(tmp_path, ("text",), "test") == Overlap(by_field={"text": 1}, records=1)


def test_a_record_at_the_ratio_is_kept_and_one_beyond_two_limits_counts_once():
    data = TranslationData.resolve({**SETTINGS, "max_length": 80, "max_ratio": 4.0})
    lengths, left_out = np.array([[2, 5, 3, 90, 80], [8, 6, 13, 3, 80]]), Counter()
    assert within_limits(lengths, data, left_out).tolist() == [True, True, False, False, True]
    assert left_out == {"too long": 1, "uneven": 1}


@pytest.mark.parametrize(("escaped", "warnings"), [(0, 0), (1, 0), (2, 1), (20, 1)])
def test_a_tenth_of_escaped_lines_is_a_warning(escaped, warnings):
    lines = ["Tom &amp; Jerry"] * escaped + ["Tom and Jerry"] * (20 - escaped)
    assert len(markup_warnings("train", [Document((line,)) for line in lines], ["en"])) == warnings


@pytest.mark.parametrize("entity", ["&uuml;", "&Eacute;", "&apos;", "&#252;"])
def test_every_entity_of_html_is_escaped_text(entity):
    (warning,) = markup_warnings("dev", [Document((f"f{entity}r alle",))], ["de"])
    assert warning.startswith("dev (de): 100 % of lines look HTML-escaped")
    assert markup_warnings("dev", [Document(("R&D; AT&T",))], ["de"]) == []


@pytest.mark.parametrize(("repeats", "warnings"), [(0, 0), (1, 0), (2, 1), (19, 1)])
def test_a_tenth_of_repeated_training_records_is_a_warning(repeats, warnings):
    numbers = [*range(20 - repeats), *[0] * repeats]
    records = [Document((f"en {n}", "de"), ("a", "b"), line) for line, n in enumerate(numbers)]
    found = repeat_warnings(records)
    assert len(found) == warnings
    if found:
        assert found[0].startswith(f"train: {5 * repeats} % of the records repeat earlier records;")


def test_records_with_one_text_on_both_sides_are_a_warning(files):
    """As with `direction: de-de` and files whose names end in the language."""
    copied = [(text, text) for text, _ in NEW[:4]]
    warnings = files.write(dev=copied, test=[*copied[:1], *NEW[4:6]]).prepare().manifest.warnings
    line = "of the records have the same text in both fields"
    assert warnings == {"dev": [f"dev: 100 % {line}"], "test": [f"test: 33 % {line}"]}
