"""`ablate data`, and messages of plan and run about missing data."""

import codecs
import io
import json
import os
import sys
from pathlib import Path

import pytest

from ablate.cli.standard_input import input_lines
from tests.cli.inside import inside
from tests.data.small import Files

STUDY = """\
study: own
data: {corpus: files, direction: en-de, train: train, dev: dev, test: test, vocab_size: 80, folder: text}
rows: {V: {each: {vocab_size: [60]}}}
"""

FIELDS = {"source": "en", "target": "de"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(STUDY)
    return tmp_path


@pytest.fixture
def written(here):
    """The study and its text files."""
    Files(here / "text", here / "results/corpora").write()
    return here


def test_named_and_prepared_corpora_are_listed(written):
    before = inside("data", "list")
    assert before.code == 0
    assert all(
        name in before.out
        for name in ("toy", "multi30k", "iwslt2017", "wmt14", "hf:wmt/wmt14@b199e40")
    )
    assert "No corpus is prepared here yet." in before.out
    assert inside("data", "prepare", "own.yaml").code == 0
    listed = json.loads(inside("data", "list", "--format", "json").out)
    assert sorted(corpus["data"]["vocab_size"] for corpus in listed["prepared"]) == [60, 80]


def test_prepare_builds_one_corpus_per_vocabulary_size(written):
    first = inside("data", "prepare", "own.yaml")
    assert first.code == 0
    assert [line.partition(": ")[2] for line in first.out.splitlines()] == [
        "200 records, V=80",
        "200 records, V=60",
    ]
    assert "learning a vocabulary of 80 on 200 records" in first.err
    again = inside("data", "prepare", "own.yaml")
    assert (again.code, again.out, again.err) == (0, first.out, "")


def test_prepare_counts_the_records_that_are_left_out(written):
    words = ["data", "prepare", "own.yaml", "--set", "data.max_train_length=25", "--rows", "base"]
    done = inside(*words)
    assert done.code == 0, done.err
    (content,) = json.loads(inside(*words, "--format", "json").out)["corpora"]
    n = content["records"]["train"]
    assert 0 < n < 200
    assert content["left_out"] == {"too long": 200 - n}
    assert done.out.endswith(f": {n} records, {200 - n} left out (too long), V=80\n")


def test_prepare_verifies_every_byte_and_rebuilds_a_damaged_corpus(written):
    inside("data", "prepare", "own.yaml")
    ids = min((written / "results/corpora").glob("*/train.source.ids"))
    content = ids.read_bytes()
    ids.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    done = inside("data", "prepare", "own.yaml")
    assert done.code == 0
    assert "train.source.ids: is damaged or missing" in done.err
    assert "preparing the corpus again" in done.err
    assert ids.read_bytes() == content


def test_show_describes_a_corpus(written):
    done = inside("data", "show", "own.yaml")
    assert done.code == 0
    for part in (
        "files, en-de",
        "200",
        "dropped from the training split: nothing",
        "80 pieces, bpe, joint",
        "train.en",
    ):
        assert part in done.out
    shown = json.loads(inside("data", "show", "own.yaml", "--format", "json").out)
    assert shown["splits"]["dev"]["pairs"] == 20
    text = Path("text")
    seen = {
        field: set((text / f"train.{end}").read_text().splitlines())
        for field, end in FIELDS.items()
    }
    lines = {
        field: (text / f"test.{end}").read_text().splitlines() for field, end in FIELDS.items()
    }
    counts = {field: sum(line in seen[field] for line in lines[field]) for field in FIELDS}
    assert shown["overlap"]["fields"] == counts
    assert shown["overlap"]["shares"]["source"] == counts["source"] / 20
    assert (
        f"test text that occurs in the training split: source {5 * counts['source']:.1f} %,"
        in done.out
    )
    assert shown["splits"]["train"]["from"]["files"] == ["train.en", "train.de"]
    assert str(written) not in json.dumps(shown)


def test_warnings_about_the_text_and_unknown_tokens_are_printed(written):
    (written / "text/test.de").write_text("kana щ .\n" * 20)
    for verb in ("prepare", "show"):
        done = inside("data", verb, "own.yaml")
        assert (
            "note: test (de): 100 % of lines look Moses-tokenized; scores need plain text"
            in done.out + done.err
        )
        assert "of the tokens are unknown" in done.out + done.err
    assert "unknown tokens: train source 0.0 %, train target 0.0 %, dev source 0.0 %" in done.out
    shown = json.loads(inside("data", "show", "own.yaml", "--format", "json").out)
    unknown = shown["splits"]["test"]["unknown"]
    assert unknown["target"] > 0.2 > unknown["source"] == 0


TSV = """\
study: {study}
data: {{corpus: files, direction: {direction}, train: train.tsv, dev: dev.tsv, test: dev.tsv, vocab_size: 20{more}}}
"""


def write_tsv(here, header=""):
    for split, count in (("train", 50), ("dev", 2)):
        (here / f"{split}.tsv").write_text(header + "a red dog\tein roter Hund\n" * count)
    for direction in ("en-de", "de-en"):
        study = TSV.format(study=direction, direction=direction, more="")
        (here / f"{direction}.yaml").write_text(study)


@pytest.mark.parametrize("verb", ["plan", "data show"])
def test_the_order_of_columns_without_names_is_said_with_an_example(here, verb):
    write_tsv(here)
    done = inside(*verb.split(), "de-en.yaml")
    assert done.code == 0
    assert "train.tsv, dev.tsv: no header; de is column 1, en is column 2" in done.out + done.err
    example = 'First record of dev (dev.tsv:1): de "a red dog", en "ein roter Hund"'
    if verb == "data show":
        example = "  de: a red dog\n  -> en: ein roter Hund"
    assert example in done.out


def test_a_first_line_that_names_one_of_two_columns_is_noted(here):
    """It is read as a record, and would be trained on as one."""
    write_tsv(here, header="English\tde\n")
    warning = 'WARNING: the first line has the name "de" and no "en", so it is read as a record'
    assert warning in inside("plan", "en-de.yaml").out
    assert warning in inside("data", "prepare", "en-de.yaml").err


def test_a_header_orders_the_columns_and_nothing_is_said(here):
    write_tsv(here, header="en\tde\n")
    for direction, example in (
        ("en-de", 'en "a red dog", de "ein roter Hund"'),
        ("de-en", 'de "ein roter Hund", en "a red dog"'),
    ):
        done = inside("plan", f"{direction}.yaml")
        assert f"First record of dev (dev.tsv:2): {example}" in done.out
        assert "column 1" not in done.out
        assert "WARNING" not in inside("data", "prepare", f"{direction}.yaml").err


def test_two_studies_that_read_one_file_in_two_directions_are_a_warning(here):
    write_tsv(here)
    warning = "WARNING: another study reads the same columns as en-de, and this one as de-en"
    assert "WARNING" not in inside("data", "prepare", "en-de.yaml").err
    assert warning in inside("data", "prepare", "de-en.yaml").err
    # Also if both choose columns by numbers, of which one study has the wrong ones.
    chosen = ", source_column: 1, target_column: 2"
    for direction in ("en-de", "de-en"):
        study = TSV.format(study="n", direction=direction, more=chosen)
        (here / f"{direction}.yaml").write_text(study)
    assert "WARNING" not in inside("data", "prepare", "en-de.yaml").err
    assert warning in inside("data", "prepare", "de-en.yaml").err
    right = TSV.format(study="r", direction="de-en", more=", source_column: 2, target_column: 1")
    (here / "right.yaml").write_text(right)
    assert "WARNING" not in inside("data", "prepare", "right.yaml").err


def test_text_files_have_their_languages_in_their_names(here):
    Files(here, here / "results/corpora").write()
    study = "study: own\ndata: {{corpus: files, direction: {}, train: train, dev: dev, test: test, vocab_size: 80}}\n"
    for direction in ("en-de", "de-en"):
        (here / "own.yaml").write_text(study.format(direction))
        assert "WARNING" not in inside("data", "prepare", "own.yaml").err


def test_plan_names_every_missing_split_with_its_folder_and_still_plans(here):
    done = inside("plan", "own.yaml")
    assert done.code == 3
    assert "2 rows, 2 runs" in done.out
    assert done.err == "own.yaml:2:101: folder: text: no such folder\n"
    (here / "text").mkdir()
    assert inside("plan", "own.yaml").err.splitlines() == [
        f"own.yaml:2:{column}: {split}: text/{split}.en(.gz) not found; correct the name or "
        "data.folder"
        for column, split in ((48, "train"), (60, "dev"), (71, "test"))
    ]
    assert json.loads(inside("plan", "own.yaml", "--format", "json").out)["study"] == "own"


@pytest.mark.parametrize("verb", ["plan", "run", "data show", "data prepare"])
def test_a_fault_in_the_text_has_the_position_of_its_field_and_of_the_text(here, verb):
    for name in ("t.tsv", "u.tsv"):
        (here / name).write_text("de\tfr\nein Hund\tun chien\n")
    (here / "t.yaml").write_text(
        "study: t\ndata:\n  {corpus: files, direction: de-en, train: t.tsv, dev: t.tsv, "
        "test: u.tsv, source_column: de, target_column: en, vocab_size: 80}\n"
    )
    done = inside(*verb.split(), "t.yaml")
    assert done.code == 3
    (line,) = done.err.splitlines()
    assert line.startswith('t.yaml:3:110: target_column: t.tsv:1: has no column "en"')


def test_plan_refuses_a_vocabulary_that_the_text_cannot_give(here):
    (here / "toy.yaml").write_text("study: toy\ndata: {corpus: toy, vocab_size: 900}\n")
    done = inside("plan", "toy.yaml")
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert "vocab_size: 900 is too large for the training split: at most 839" in done.refusal


def test_the_origin_of_generated_text_is_a_sentence(here):
    (here / "toy.yaml").write_text("study: toy\ndata: {corpus: toy, vocab_size: 60}\n")
    assert (
        "train: generated by the toy corpus, version 1\n" in inside("data", "show", "toy.yaml").out
    )


def test_several_results_roots_share_one_folder_of_corpora(written, monkeypatch):
    monkeypatch.setenv("ABLATE_CORPORA", str(written / "shared"))
    first = inside("data", "prepare", "own.yaml", "--results", "one")
    again = inside("data", "prepare", "own.yaml", "--results", "two")
    assert first.out == again.out
    assert again.err == ""
    assert not (written / "one").exists()


def test_offline_is_passed_on_to_the_hubs_library(here, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    (here / "toy.yaml").write_text("study: toy\ndata: {corpus: toy}\n")
    inside("data", "prepare", "toy.yaml", "--offline")
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_a_byte_order_mark_on_standard_input_is_no_word(monkeypatch):
    text = codecs.BOM_UTF8 + "ein Hund\r\n\ufeffKatze\n".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert input_lines() == ["ein Hund", "\ufeffKatze"]


@pytest.mark.parametrize("verb", ["show", "prepare"])
def test_references_that_bleu_cannot_judge_are_said_at_preparation(here, verb):
    for split, count in (("train", 50), ("dev", 2)):
        (here / f"{split}.tsv").write_text("a red dog\troter Hund\n" * count)
    (here / "short.yaml").write_text(TSV.format(study="short", direction="en-de", more=""))
    done = inside("data", verb, "short.yaml")
    assert done.code == 0
    assert "100 % of the references of test (de) have fewer than 4 tokens" in done.out + done.err
    (here / "chrf.yaml").write_text(
        TSV.format(study="chrf", direction="en-de", more="") + "metrics: [chrf]\n"
    )
    done = inside("data", verb, "chrf.yaml")
    assert "references" not in done.out + done.err


def test_a_test_split_that_is_the_dev_split_is_noted_under_one_name_as_under_two(written):
    (written / "own.yaml").write_text(STUDY.replace("test: test", "test: dev"))
    note = (
        "note: data.test is data.dev, so scores are better than on new text if anything is chosen"
    )
    assert note in inside("plan", "own.yaml").err
    assert "test is the same text as dev" in inside("data", "prepare", "own.yaml").err
    (written / "own.yaml").write_text(STUDY)
    assert note not in inside("plan", "own.yaml").err
    assert "same text as dev" not in inside("data", "prepare", "own.yaml").err


def test_plan_and_table_repeat_what_preparation_finds_in_the_text(written):
    """Also before preparation, where the text is small."""
    (written / "own.yaml").write_text(STUDY)
    english, german = written / "text/train.en", written / "text/train.de"
    texts = english.read_bytes(), german.read_bytes()
    english.write_bytes(texts[1])
    german.write_bytes(texts[0])
    note = "note: train (en) looks like dev (de)"
    assert note in inside("plan", "own.yaml").err
    assert not Path("results").exists()
    assert note in inside("data", "prepare", "own.yaml").err
    assert note in inside("plan", "own.yaml").err


def test_a_test_split_that_is_the_training_split_is_noted(written):
    study = written / "own.yaml"
    study.write_text(STUDY.replace("test: test", "test: train"))
    note = "note: data.test is data.train, so scores do not show the quality on new text"
    assert note in inside("plan", "own.yaml").err
    leak = "note: 100 % of the test records are also in the training split"
    for verb in ("prepare", "show"):
        done = inside("data", verb, "own.yaml")
        assert leak in done.out + done.err
    study.write_text(STUDY)
    assert note not in inside("plan", "own.yaml").err
    assert "also in the training split" not in inside("data", "prepare", "own.yaml").err
