"""Corpora with fields other than sentence pairs, from files to batches."""

import json
from typing import ClassVar

import numpy as np
import pytest

from ablate.config.data import DataConfig, PairRules
from ablate.data.batches import BatchOrder, pad_sequences
from ablate.data.prepare import prepare
from ablate.data.tokenizer import EOS
from ablate.errors import DataError
from ablate.report.data_text import description_of
from ablate.store.corpora import lengths_in
from tests.data.small import PAIRS, fault_line

SETTINGS = {"corpus": "files", "train": "train", "dev": "dev", "test": "test", "vocab_size": 80}


def write_text(folder, pairs=PAIRS):
    folder.mkdir(exist_ok=True)
    for split, records in pairs.items():
        (folder / f"{split}.text").write_text("".join(f"{source}\n" for source, _ in records))


class Labelled(DataConfig):
    """Texts with labels: separate vocabularies, and identical pairs are dropped."""

    fields: ClassVar = ("text", "label", "note")

    @property
    def labels(self):
        return ("sentence", "label", "note")

    @property
    def separate_vocabularies(self):
        return ("label",)

    @property
    def pair_rules(self):
        return PairRules(50.0, drop_identical=True)


def test_a_corpus_with_a_single_text_field(tmp_path):
    write_text(tmp_path / "files")
    corpus = prepare(DataConfig(**SETTINGS), tmp_path / "files", tmp_path / "corpora")
    train, texts = corpus.split("train"), [source for source, _ in PAIRS["train"]]
    assert corpus.fields == train.fields == ("text",)
    assert [train["text"][i].tolist() for i in range(len(train))] == corpus.tokenizer.encode(texts)
    assert corpus.text("test", "text") == [source for source, _ in PAIRS["test"]]
    assert description_of(corpus)["sample"][0] == [texts[0]]
    lengths = lengths_in(corpus.folder)
    assert (lengths.pairs, lengths.source_tokens, lengths.products) == (200, 0, 0)
    assert lengths.target_tokens == lengths.longer_tokens == train["text"].lengths.sum()
    batch = BatchOrder(train, 100, seed=1).at(1)
    assert pad_sequences(train["text"], batch, end=EOS).shape == (
        len(batch),
        train.lengths(batch).max(),
    )


def test_the_same_text_with_different_fields_is_another_corpus(tmp_path):
    """The content hash of a TSV does not depend on fields, so the fields must enter the id
    themselves.
    """
    for split, pairs in PAIRS.items():
        (tmp_path / f"{split}.tsv").write_text("".join(f"{source}\n" for source, _ in pairs))

    class Renamed(DataConfig):
        fields: ClassVar = ("sentence",)

    settings = {**SETTINGS, **{split: f"{split}.tsv" for split in PAIRS}}
    one, other = (
        prepare(data(**settings), tmp_path, tmp_path / "corpora") for data in (DataConfig, Renamed)
    )
    assert one.id != other.id
    assert (one.fields, other.fields) == (("text",), ("sentence",))


def test_a_new_test_split_reuses_the_rest_of_the_corpus(tmp_path):
    write_text(tmp_path / "files")
    first = prepare(DataConfig(**SETTINGS), tmp_path / "files", tmp_path / "corpora")
    write_text(tmp_path / "files", {**PAIRS, "test": PAIRS["test"][:5]})
    lines = []
    second = prepare(DataConfig(**SETTINGS), tmp_path / "files", tmp_path / "corpora", lines.append)
    reused = f"reusing the training split, dev split and vocabulary of {first.id}"
    assert lines == [reused]
    assert (second.training_hash, len(second.split("test"))) == (first.training_hash, 5)


def write_rows(folder, **changed):
    for split, pairs in PAIRS.items():
        rows = [{"sentence": source, "label": target, "note": "a note"} for source, target in pairs]
        rows[0] |= changed.get(split, {})
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Labelled(**{**SETTINGS, **{split: f"{split}.jsonl" for split in PAIRS}})


def test_three_fields_with_rules_and_a_separate_vocabulary(tmp_path):
    data = write_rows(tmp_path, train={"sentence": "a", "label": "a"})
    corpus = prepare(data, tmp_path, tmp_path / "corpora")
    assert corpus.fields == ("text", "label", "note")
    assert corpus.manifest.left_out == {"identical sides": 1}
    assert corpus.tokenizer_of("text") is corpus.tokenizer_of("note") is corpus.tokenizer
    label = corpus.tokenizer_of("label")
    assert label.model != corpus.tokenizer.model
    train = corpus.split("train")
    targets = [target for _, target in PAIRS["train"][1:]]
    assert label.decode([train["label"][i].tolist() for i in range(len(train))]) == targets
    assert (
        corpus.manifest.lengths["text_label"]
        == np.prod(train.lengths(range(199))[:2].astype(int), axis=0).sum()
    )
    lengths = lengths_in(corpus.folder)
    assert lengths.target_tokens == train["label"].lengths.sum()


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"dev": {"note": ""}}, "dev.jsonl:1: the note side is empty; dev must be complete"),
        ({"dev": {"label": 3}}, 'dev.jsonl:1: "label" is not text'),
        (
            {"dev": {"note": "a " * 300}},
            "dev.jsonl:1: is longer than data.max_length=256 tokens; increase data.max_length, and "
            "set data.max_train_length=256 to train on the same records",
        ),
    ],
)
def test_an_error_names_the_field(tmp_path, changed, line):
    data = write_rows(tmp_path, **changed)
    assert fault_line(tmp_path, prepare, data, tmp_path, tmp_path / "corpora") == line


def test_a_missing_text_file_is_named_with_its_label_at_the_field_of_each_split(tmp_path):
    data = DataConfig(**{**SETTINGS, "test": "dev"})
    with pytest.raises(DataError) as caught:
        prepare(data, tmp_path, tmp_path / "corpora")
    places = {(fault.fields, str(fault)) for fault in caught.value.faults}
    why = "text(.gz) not found; correct the name or data.folder"
    assert places == {
        (("train",), f"{tmp_path}/train.{why}"),
        (("dev",), f"{tmp_path}/dev.{why}"),
        (("test",), f"{tmp_path}/dev.{why}"),
    }
