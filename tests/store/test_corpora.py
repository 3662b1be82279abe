"""Pointers from data settings to the corpus that was made from them."""

import hashlib
import json
import os
from dataclasses import asdict

import pytest

from ablate.config.lengths import Lengths
from ablate.config.translation_data import TranslationData
from ablate.store.corpora import (
    known_corpus,
    known_lengths,
    lengths_in,
    overlaps_in,
    remember,
    remembered,
)
from ablate.store.records import Overlap
from tests.records import a_manifest

LENGTHS = Lengths(2, 30, 34, 36, 500, 520, 600)
DATA = TranslationData.resolve({"corpus": "multi30k", "vocab_size": 8000})


def prepared(corpora, id="0123456789ab", lengths=LENGTHS):
    a_manifest(lengths=asdict(lengths)).write(corpora / id / "corpus.json")
    return id


def test_a_corpus_that_was_never_prepared_has_no_lengths(tmp_path):
    assert known_lengths(DATA, tmp_path / "corpora") is None
    assert lengths_in(tmp_path / "corpora" / "0123456789ab") is None


def test_lengths_are_those_of_the_corpus_prepared_last_from_the_same_settings(tmp_path):
    remember(DATA, tmp_path, prepared(tmp_path))
    assert known_lengths(DATA, tmp_path) == LENGTHS
    later = Lengths(3, 1, 1, 1, 1, 1, 1)
    remember(DATA, tmp_path, prepared(tmp_path, "ba9876543210", later))
    assert known_lengths(DATA, tmp_path) == later
    assert lengths_in(tmp_path / "0123456789ab") == LENGTHS


def test_the_overlap_is_a_share_of_the_splits_where_it_was_counted(tmp_path):
    overlap = Overlap(by_field={"source": 3, "target": 2}, records=1)
    records = {"train": 9, "dev": 2, "test": 4}
    a_manifest(pairs=records, overlap=overlap).write(tmp_path / "0123456789ab" / "corpus.json")
    a_manifest(pairs=records).write(tmp_path / "ba9876543210" / "corpus.json")
    shares = {"source": 0.75, "target": 0.5, "whole records": 0.25}
    assert overlaps_in(tmp_path / "0123456789ab") == {"test": shares}
    assert overlaps_in(tmp_path / "ba9876543210") == {}
    assert overlaps_in(tmp_path / "absent") == {}


def test_the_folder_of_the_files_is_not_part_of_the_settings(tmp_path):
    remember(DATA, tmp_path, prepared(tmp_path))
    assert known_lengths(DATA.model_copy(update={"folder": "/elsewhere"}), tmp_path) == LENGTHS
    assert known_lengths(DATA.model_copy(update={"vocab_size": 4000}), tmp_path) is None


def test_a_removed_corpus_has_no_lengths(tmp_path):
    remember(DATA, tmp_path, "0123456789ab")
    assert known_lengths(DATA, tmp_path) is None


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_pointer_is_put_aside_for_one(tmp_path, make):
    remember(DATA, tmp_path, prepared(tmp_path))
    (pointer,) = tmp_path.glob("*.json")
    pointer.unlink()
    make(pointer)
    assert known_lengths(DATA, tmp_path) is None
    remember(DATA, tmp_path, "0123456789ab")
    assert known_lengths(DATA, tmp_path) == LENGTHS


def test_a_corpus_is_remembered_for_the_files_and_the_format_that_it_was_made_from(tmp_path):
    id, signature = prepared(tmp_path), [["train.en", 10, 20]]
    remember(DATA, tmp_path, id, signature)
    assert remembered(DATA, tmp_path, signature) == id
    assert remembered(DATA, tmp_path, [["train.en", 11, 20]]) is None
    made = a_manifest().format
    assert [remembered(DATA, tmp_path, signature, format) for format in (made, made + 1)] == [
        id,
        None,
    ]


def test_the_manifest_of_the_corpus_prepared_last_is_named_even_if_it_is_gone(tmp_path):
    assert known_corpus(DATA, tmp_path) is None
    remember(DATA, tmp_path, "0123456789ab")
    assert known_corpus(DATA, tmp_path) == tmp_path / "0123456789ab" / "corpus.json"


def test_settings_introduced_later_do_not_change_the_pointer_unless_they_are_set(tmp_path):
    """The first version hashed all of its settings, at their defaults too."""
    names = ("corpus", "direction", "vocab_size", "max_length", "train", "dev", "test")
    first = {name: value for name, value in DATA.model_dump().items() if name in names}
    hashed = hashlib.sha256(json.dumps(first, sort_keys=True).encode()).hexdigest()[:12]
    remember(DATA, tmp_path, "0123456789ab")
    assert [path.name for path in tmp_path.iterdir()] == [f"{hashed}.json"]
    remember(DATA.model_copy(update={"max_ratio": 2.0}), tmp_path, "0123456789ab")
    assert len(list(tmp_path.iterdir())) == 2
