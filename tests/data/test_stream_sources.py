"""Texts of language models: every format keeps every byte; splits are files or shares; faults are
refused.
"""

import gzip
import json
import shutil
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import ValidationError

from ablate.config.catalogue import TEXTS
from ablate.config.language_data import LanguageData, share_of
from ablate.data import prepare_stream, readers, toy
from ablate.data.io import BLOCK, MAX_LINE_BYTES
from ablate.data.prepare import prepare
from ablate.data.tokenizer import EOS, ByteTokenizer
from ablate.data.vocabulary import train_tokenizer
from ablate.errors import DataError, Interrupted
from tests.data.apart import outcomes_of, start_preparing
from tests.data.hub_server import Hub

TEXT = "  The cat sat.\n\nIt was\ta  fine day — 1€,\r\nsaid Ünal.\n" * 40


@pytest.fixture
def corpus(tmp_path):
    """Return a function that prepares data settings."""

    def made(**settings):
        data = LanguageData.resolve({"corpus": "files", "dev": "dev.txt", **settings})
        return prepare(data, tmp_path, tmp_path / "corpora")

    (tmp_path / "dev.txt").write_text("a dev text\n")
    return made


def test_sentence_pairs_are_prepared_beside_the_text_of_a_language_model(corpus, files, tmp_path):
    (tmp_path / "train.txt").write_text(TEXT)
    text = corpus(train="train.txt")
    pairs = files.write().prepare()
    assert pairs.folder.parent == text.folder.parent
    assert pairs.id != text.id
    assert len(pairs.split("train")["source"]) == 200


def decoded(corpus, split):
    """The documents of a split, as text."""
    sequences = corpus.split(split)["text"]
    return [corpus.tokenizer.decode([sequences[i].tolist()])[0] for i in range(len(sequences))]


def write(folder, name, documents):
    """Write documents to a file in the format of its name."""
    path = folder / name
    if name.endswith(".parquet"):
        parquet.write_table(pa.table({"text": documents, "id": list(range(len(documents)))}), path)
        return
    lines = (
        "".join(json.dumps({"text": text}) + "\n" for text in documents)
        if ".jsonl" in name
        else documents[0]
    )
    content = lines.encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


@pytest.mark.parametrize("order", [1, -1])
def test_documents_that_occur_in_training_are_counted(corpus, tmp_path, order):
    """In either order, because the last document of a split has no end mark."""
    long = "seen and long " * 100
    write(tmp_path, "train.jsonl", ["seen", long, "only here", "in dev"][::order])
    write(tmp_path, "test.jsonl", [long, "new", "seen", "seen"][::order])
    write(tmp_path, "dev.jsonl", ["in dev", "In dev"][::order])
    manifest = corpus(train="train.jsonl", test="test.jsonl", dev="dev.jsonl").manifest
    assert manifest.overlap_shares == {"test": {"text": 0.75}, "dev": {"text": 0.5}}


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe", "unigram"])
@pytest.mark.parametrize(
    "name", ["train.txt", "train.txt.gz", "train.jsonl", "train.jsonl.gz", "train.parquet"]
)
def test_every_byte_is_kept(corpus, tmp_path, name, tokenizer):
    write(tmp_path, name, [TEXT])
    settings = {} if tokenizer == "bytes" else {"vocab_size": 284}
    prepared = corpus(train=name, tokenizer=tokenizer, **settings)
    assert decoded(prepared, "train") == [TEXT]
    ids = np.asarray(prepared.split("train")["text"].ids)
    assert prepared.tokenizer.byte_lengths()[ids].sum() == len(TEXT.encode())
    assert decoded(prepared, "test") == decoded(prepared, "dev") == ["a dev text\n"]


@pytest.mark.parametrize("tokenizer", ["bpe", "unigram"])
@pytest.mark.parametrize("odd", ["▁", "a▁b", "▁▁ x▁", " ▁\n▁ "])
def test_the_mark_of_sentencepiece_for_a_space_is_kept_too(corpus, tmp_path, odd, tokenizer):
    write(tmp_path, "train.txt", [TEXT])
    write(tmp_path, "dev.txt", [odd])
    prepared = corpus(train="train.txt", tokenizer=tokenizer, vocab_size=284)
    assert decoded(prepared, "dev") == [odd]
    ids = np.asarray(prepared.split("dev")["text"].ids)
    assert prepared.tokenizer.byte_lengths()[ids].sum() == len(odd.encode())


@pytest.mark.parametrize("name", ["train.jsonl", "train.jsonl.gz", "train.parquet"])
def test_a_document_may_be_longer_than_any_sentence(corpus, tmp_path, name):
    documents = ["short", "a long one\n" * (MAX_LINE_BYTES // 4), "short again"]
    write(tmp_path, name, documents)
    assert decoded(corpus(train=name), "train") == documents


def test_the_column_of_the_text_may_be_chosen(corpus, tmp_path):
    (tmp_path / "train.jsonl").write_text('{"body": "a"}\n')
    assert decoded(corpus(train="train.jsonl", column="body"), "train") == ["a"]


@pytest.mark.parametrize(("name", "value"), [("column", "body"), ("rows", "pieces")])
def test_settings_of_tables_without_a_table_are_refused(corpus, tmp_path, name, value):
    write(tmp_path, "train.txt", [TEXT])
    with pytest.raises(
        DataError, match=rf"train\.txt: is plain text: data\.{name} has no effect on it; remove it"
    ):
        corpus(train="train.txt", **{name: value})
    (tmp_path / "test.jsonl").write_text('{"text": "a", "body": "b"}\n')
    assert decoded(corpus(train="train.txt", test="test.jsonl", **{name: value}), "test") == [
        "b" if name == "column" else "a"
    ]


def test_rows_are_documents_with_an_end_mark_between_or_pieces_of_one(corpus, tmp_path):
    write(tmp_path, "train.jsonl", ["first\n", "", "second", "third"])
    documents = corpus(train="train.jsonl").split("train")["text"]
    lists = [documents[i].tolist() for i in range(len(documents))]
    assert lists == [[*ByteTokenizer().encode([text])[0], *end] for text, end in
                     (("first\n", [EOS]), ("second", [EOS]), ("third", []))]  # fmt: skip
    assert decoded(corpus(train="train.jsonl", rows="pieces"), "train") == ["first\nsecondthird"]


def test_a_folder_is_its_files_in_order_of_their_names(corpus, tmp_path):
    (tmp_path / "texts").mkdir()
    for name, text in (("b.txt", "two"), ("a.txt", "one"), ("notes.md", "no")):
        (tmp_path / "texts" / name).write_text(text)
    assert decoded(corpus(train="texts"), "train") == ["one", "two"]


def test_shares_are_cut_from_the_end_by_characters_as_nanogpt_cuts(corpus, tmp_path):
    text = "".join(chr(0x100 + i) for i in range(1003))
    (tmp_path / "input.txt").write_text(text)
    prepared = corpus(train="input.txt", dev="10%")
    assert decoded(prepared, "train") == [text[: int(0.9 * 1003)]]
    assert decoded(prepared, "dev") == decoded(prepared, "test") == [text[int(0.9 * 1003) :]]
    three = corpus(train="input.txt", dev="10%", test="5%")
    parts = [decoded(three, split)[0] for split in ("train", "dev", "test")]
    assert "".join(parts) == text
    assert [len(part) for part in parts] == [852, 100, 51]


def test_a_limit_of_bytes_cuts_no_character(corpus, tmp_path):
    (tmp_path / "input.txt").write_text("aé" * 10)  # 3 bytes each
    assert decoded(corpus(train="input.txt", max_bytes=8), "train") == ["aéaéa"]
    assert decoded(corpus(train="input.txt", max_bytes=9), "train") == ["aéaéaé"]


@pytest.mark.parametrize("max_bytes", [None, 1000])
def test_a_file_that_begins_with_an_empty_row_begins_a_document(corpus, tmp_path, max_bytes):
    (tmp_path / "texts").mkdir()
    for name, rows in (("a.jsonl", ["one"]), ("b.jsonl", ["", "two", "three"])):
        write(tmp_path / "texts", name, rows)
    prepared = corpus(train="texts", rows="pieces", max_bytes=max_bytes)
    assert decoded(prepared, "train") == ["one", "twothree"]


def test_a_text_longer_than_a_block_is_the_same_text(corpus, tmp_path):
    text = "".join(
        f"line {i} é\n" for i in range(150_000)
    )  # 2 MB: blocks end within lines and characters
    (tmp_path / "input.txt").write_text(text)
    assert decoded(corpus(train="input.txt"), "train") == [text]


def test_the_id_follows_from_text_and_settings(corpus, tmp_path):
    write(tmp_path, "train.txt", [TEXT])
    write(tmp_path, "same.parquet", [TEXT])
    first = corpus(train="train.txt")
    assert corpus(train="same.parquet").id == first.id
    assert corpus(train="train.txt", documents="separate").id != first.id
    (tmp_path / "train.txt").write_text(TEXT + ".")
    assert corpus(train="train.txt").id != first.id


def test_the_toy_text_is_the_english_side_of_the_toy_corpus(tmp_path):
    prepared = prepare(LanguageData.resolve({"corpus": "toy"}), tmp_path, tmp_path / "corpora")
    sentences = toy.generate()
    for split in ("train", "dev", "test"):
        assert decoded(prepared, split) == [
            "".join(f"{source}.\n" for source, _ in sentences[split])
        ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good\nbad \xff\n", "a.txt:2: is not valid UTF-8; write the file in UTF-8: `iconv"),
        ("a.txt", b"good\n\nbad \0\n", "a.txt:3: contains a NUL byte"),
        ("a.txt", b"", "the train split has no text"),
        ("a.jsonl", b'{"body": "a"}\n', r'has no column "text"; its columns are body; set data\.column$'),
        ("a.jsonl", b'{"text": "short"}\n{"text": "' + b"x" * (4 * BLOCK) + b'"}\n',
         rf"a\.jsonl:2: is longer than {3 * BLOCK} bytes: divide the document"),
    ],
    ids=range(5),
)  # fmt: skip
def test_text_that_cannot_be_used_is_refused_with_its_line(
    corpus, tmp_path, monkeypatch, name, content, message
):
    monkeypatch.setattr(readers, "MAX_DOCUMENT_BYTES", 3 * BLOCK)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        corpus(train=name)


def test_a_stopped_preparation_resumes_at_the_last_commit(corpus, tmp_path, monkeypatch):
    """Also within a document, and after a part without text, whose document begins with the next."""
    documents = [TEXT, "", "", "b" * 50, TEXT, "c"]
    write(tmp_path, "train.jsonl", documents)
    settings = {"train": "train.jsonl", "tokenizer": "bpe", "vocab_size": 290}
    whole = corpus(**settings)
    expected = {path.name: path.read_bytes() for path in whole.folder.iterdir()}
    monkeypatch.setattr(prepare_stream.StreamPreparation, "commit_every", 1)
    encode = prepare_stream._encode
    for stop in range(1, 7):
        calls = []

        def stopped(text, tokenizer, calls=calls, stop=stop):
            calls.append(text)
            if len(calls) == stop:
                raise Interrupted
            return encode(text, tokenizer)

        shutil.rmtree(whole.folder)
        monkeypatch.setattr(prepare_stream, "_encode", stopped)
        with pytest.raises(Interrupted):
            corpus(**settings)
        monkeypatch.setattr(prepare_stream, "_encode", lambda *given: encode(*given))
        monkeypatch.setattr(prepare_stream, "train_tokenizer", None)
        again = corpus(**settings)
        assert {path.name: path.read_bytes() for path in again.folder.iterdir()} == expected
        monkeypatch.setattr(prepare_stream, "train_tokenizer", train_tokenizer)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"corpus": "wikitxt-2"}, 'did you mean "wikitext-2"'),
        ({}, "data needs a corpus: toy, wikitext-2"),
        ({"corpus": "files", "train": "a.txt", "dev": "60%", "test": "40%"}, "leave no text for training"),
        ({"corpus": "files", "train": "10%", "dev": "b"}, 'train "10%" is a share'),
        ({"corpus": "files", "train": "a", "dev": "0%"}, "not a share between"),
        ({"corpus": "toy", "vocab_size": 500}, "vocab_size=500 has no effect with tokenizer=bytes"),
        ({"corpus": "toy", "train": "x"}, '"train" has no effect on the toy corpus'),
        ({"corpus": "hf:x"}, "is not of the form hf:OWNER/NAME"),
    ],
)  # fmt: skip
def test_settings_that_cannot_go_together_are_refused(settings, message):
    with pytest.raises((ValueError, ValidationError), match=message):
        LanguageData.resolve(settings)


def test_shares():
    assert [share_of("5%"), share_of("0.5 %"), share_of("5"), share_of("dev.txt")] == [
        0.05, 0.005, None, None,
    ]  # fmt: skip


def table(*texts):
    """The content of a Parquet file with a column of texts."""
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({"text": list(texts)}), sink)
    return sink.getvalue().to_pybytes()


class TextHub(Hub):
    """The Hub with small made files under the names that the named texts have there."""

    CONTENT: ClassVar = {
        "Salesforce/wikitext": {
            f"{config}/{split}-00000-of-00001.parquet": table(" = Title = \n", "", f" {config} {split} \n")
            for config in ("wikitext-2-raw-v1", "wikitext-103-raw-v1") for split in ("train", "validation", "test")
        },
        "afmck/text8": {
            f"data/{split}-00000-of-00001.parquet": table(f" of {split}") for split in ("train", "validation", "test")
        },
        "LTCB/enwik8": {"enwik8-raw/train/0000.parquet": table("x" * 100), "enwik8/train/0000.parquet": table("y")},
        "HuggingFaceFW/fineweb-edu": {
            **{f"sample/10BT/{i:03}_00000.parquet": table("a" * 600, f"{i}" * 400) for i in range(2)},
            "data/CC-MAIN-2013-20/train-00000-of-00014.parquet": table("other"),
        },
    }  # fmt: skip

    def files(self, repository):
        return self.CONTENT[repository]


def test_named_texts_are_read_from_the_hub(tmp_path):
    hub = TextHub()
    cases = {name: {"corpus": name} for name in TEXTS if name != "toy"}
    cases["fineweb-edu-sample"] |= {"dev": "10%", "test": "10%"}
    process = start_preparing(
        [(settings, "nowhere", tmp_path / "corpora") for settings in cases.values()],
        HF_ENDPOINT=hub.address, HF_HOME=str(tmp_path / "home"), HF_HUB_DISABLE_XET="1",
    )  # fmt: skip
    outcomes = outcomes_of(process)
    hub.close()
    read = {name: outcome["texts"] for name, outcome in zip(cases, outcomes, strict=True)}
    splits = ("train.text", "dev.text", "test.text")
    assert read["wikitext-2"]["dev.text"] == [" = Title = \n wikitext-2-raw-v1 validation \n"]
    assert read["wikitext-103"]["test.text"] == [" = Title = \n wikitext-103-raw-v1 test \n"]
    assert list(read["text8"].values()) == [[" of train"], [" of validation"], [" of test"]]
    assert [len(read["enwik8"][split][0]) for split in splits] == [90, 5, 5]
    fineweb = [read["fineweb-edu-sample"][split] for split in splits]
    assert "".join(map("".join, fineweb)) == "a" * 600 + "0" * 400 + "a" * 600 + "1" * 400
    assert list(map(len, fineweb)) == [3, 1, 1]
