"""Parsing from a study to a table: scores, trees of new sentences, and attention."""

import re
from dataclasses import replace
from unittest.mock import Mock

import pytest

from ablate.config import DecodingConfig
from ablate.decoding import tree_constraint
from ablate.study import Selection, read_study
from ablate.tasks.parsing import Parsing
from ablate.workers.inference import Predictions
from tests.cli.inside import inside
from tests.tasks.studies import PARSING


@pytest.fixture(scope="module")
def parser(trained):
    """The trained study."""
    return trained("parsing")


def test_the_table_has_f1_exact_and_well_formed_trees(parser):
    content = parser.data("table")
    assert content["metrics"] == ["ppl", "f1", "exact_match", "well_formed"]
    rows = {row["row"]: row for row in content["rows"]}
    base, limit = rows["base"], rows["limit max_extra_length=0"]
    assert (
        base["f1"]["values"]
        == base["exact_match"]["values"]
        == base["well_formed"]["values"]
        == [100.0]
    )
    # Every tree has more symbols than the sentence has words, so none is complete within the limit.
    assert limit["f1"]["values"] == limit["well_formed"]["values"] == [0.0]
    assert rows["untrained train_steps=1"]["f1"]["values"][0] < 50
    assert rows["search train_steps=1 constrained=true"]["well_formed"]["values"] == [100.0]
    (signature,) = content["signatures"]["f1"]
    assert re.fullmatch(
        r"EVALB:COLLINS\|not-well-formed:0\|trees:20\|brackets:\d+\|split:test.ptb", signature
    )
    assert rows["untrained train_steps=1"]["against_base"]["f1"]["n"] == 1


def test_against_paper_prints_table_4(parser):
    text = parser.answer("table", "--against", "paper", "--format", "markdown")
    assert "paper F1" in text.replace("<br>", " ")
    assert "91.3" in text
    assert "Table 4, semi-supervised: Zhu et al. (2013) 91.3, " in text
    assert "Transformer (4 layers) 92.7." in text
    assert "This study's base or corpus is not the paper's" in text


def test_new_sentences_are_printed_as_trees(parser):
    new = b"the cat hears a bird .\n\nthe dog sees .\n"
    done = parser.ask("predict", "base", "--beam", 1, stdin=new)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "(TOP (S (NP (XX the) (XX cat)) (VP (XX hears) (NP (XX a) (XX bird))) (XX .)))\n"
        "\n"
        "(TOP (S (NP (XX the) (XX dog)) (VP (XX sees)) (XX .)))\n"
    )


def test_a_prediction_that_is_no_tree_is_an_empty_line_and_a_note(parser):
    done = parser.ask(
        "predict", "untrained train_steps=1", "--beam", 1, stdin=b"the cat hears a bird .\n"
    )
    assert (done.code, done.out) == (0, "\n")
    assert done.err == "standard input:1: the prediction is not valid; the line is empty\n"


def test_unknown_tokens_of_the_input_are_counted_and_named(parser):
    new = "the cat hears a bird .\nthe œ sees 日本 .\n\nthe œ sees .\n".encode()
    done = parser.ask("predict", "base", "--beam", 1, stdin=new)
    said = '3 tokens are not in the vocabulary: "œ" (line 2), "日本" (line 2)'
    assert done.err.splitlines()[0] == f"standard input: {said}"
    assert len(done.out.splitlines()) == 4
    assert parser.data("predict", "--text", "the œ sees œ .")["unknown_tokens"] == 2
    assert parser.data("predict", "--text", "the cat sees .")["unknown_tokens"] == 0


def test_an_empty_prediction_is_noted_unless_the_line_is_empty(parser, monkeypatch):
    empty = Predictions(["", ""], [[], []])
    monkeypatch.setattr("ablate.workers.inference.translate_text", lambda *args: empty)
    done = parser.ask("predict", "base", stdin=b"the cat hears a bird .\n\n")
    assert (done.code, done.out) == (0, "\n\n")
    assert done.err == "standard input:1: the prediction is empty\n"


def test_new_sentences_are_decoded_as_the_row_says(parser):
    """Rows that share an untrained run: constrained, it finds trees; within no extra tokens, base
    finds none.
    """
    new = b"the cat hears a bird .\nthe dog sees .\n"
    found = parser.answer("predict", "search train_steps=1 constrained=true", stdin=new)
    assert [line[:5] for line in found.splitlines()] == ["(TOP ", "(TOP "]
    id = parser.folder("search").id
    by_id = inside("predict", id, "--results", parser.root, "--beam", 2, stdin=new)
    assert by_id.out == "\n\n"  # the task's settings do not constrain
    assert parser.answer("predict", "limit max_extra_length=0", stdin=new) == "\n\n"
    assert parser.answer("predict", stdin=new).count("(TOP ") == 2


@pytest.mark.parametrize(("leaves", "copies"), [("XX", False), ("tags", False), ("words", True)])
def test_a_constrained_search_copies_words_only_into_trees_that_have_them(
    monkeypatch, leaves, copies
):
    made = []
    monkeypatch.setattr(
        tree_constraint,
        "TreeVocabulary",
        lambda *given: made.append(given) or Mock(constraint="it"),
    )
    corpus = Mock(manifest=Mock(data={"leaves": leaves}), tokenizer="vocabulary")
    assert Parsing().constrain(corpus, DecodingConfig(constrained=True)) == "it"
    assert made == [("vocabulary", copies)]
    assert Parsing().constrain(corpus, DecodingConfig()) is None


def test_predicted_tags_are_printed(parser, tmp_path):
    tags, words = replace(parser, root=tmp_path), ("--set", "data.leaves=tags", "--rows", "base")
    tags.answer("run", *words, "--device", "cpu")
    (run,) = (tmp_path / "runs").iterdir()
    done = inside("predict", run.name, "--results", tmp_path, stdin=b"the cat hears .\n")
    assert done.out == "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ hears)) (. .)))\n"
    assert tags.data("table", *words)["rows"][0]["f1"]["values"] == [100.0]


def test_attention_and_importance_have_words_and_symbols(parser):
    shown = parser.data("attention", "base", "--text", "the dog sees .")
    assert "".join(shown["source"]).replace("▁", " ") == " the dog sees .</s>"
    symbols = ("(S", "(NP", "XX", "XX", ")NP", "(VP", "XX", ")VP", "XX", ")S")
    assert shown["target"][1:] == [f"▁{symbol}" for symbol in symbols]
    assert len(parser.data("attention", "base", "--importance", "--records", 4)["heads"]) == 6


def test_compare_and_the_report_show_sentences_and_trees(parser, tmp_path):
    shown = parser.data("compare", "base", "untrained train_steps=1")["sentences"][0]
    assert shown["reference"].startswith("(S (NP DT NN )NP")
    assert shown["sentence"].startswith("the ")
    parser.answer("report", "--out", tmp_path / "page.html")
    assert "(S (NP DT NN )NP" in (tmp_path / "page.html").read_text()
    assert "f1" in parser.answer("table", "--format", "csv").splitlines()[0]


def test_an_unbalanced_file_is_one_line_and_no_traceback(parser, tmp_path):
    (tmp_path / "train.ptb").write_text("(S (NN a))\n(S (NN b)\n")
    for name in ("dev.ptb", "test.ptb"):
        (tmp_path / name).write_text("(S (NN a))\n")
    (tmp_path / "parser.yaml").write_text(PARSING)
    done = inside(
        "run", tmp_path / "parser.yaml", "--results", tmp_path / "results", "--device", "cpu"
    )
    errors = [line for line in done.err.splitlines() if not line.startswith("note: ")]
    assert (done.code, len(errors)) == (3, 1)
    assert done.err.endswith('train.ptb:2: "(S" is never closed\n')


def test_the_legend_says_that_perplexity_is_per_symbol():
    ppl, f1 = Parsing.model_metrics[0], Parsing.prediction_metrics[0]
    data = Parsing().resolve_data({"corpus": "toy"})
    assert Parsing().describe(ppl, data, [80]) == (
        "per symbol of the linearized trees, vocab_size=80, plain negative log-likelihood"
    )
    assert Parsing().describe(f1, data, [80]) is None


def test_table_4_is_the_paper_s_parser(tmp_path):
    from tests.test_docs import ROOT

    study = read_study(ROOT / "studies/table4.yaml")
    config = study.base.config
    assert (config.n_layers, config.d_model, config.beam, config.alpha) == (4, 1024, 21, 0.3)
    assert (config.max_extra_length, study.data.vocab_size) == (300, 16_000)
    paper = study.task.paper
    assert {name: getattr(config, name) for name in paper.base} == paper.base
    assert (
        read_study(ROOT / "studies/table4.yaml", Selection(("data.folder=x",))).data.folder == "x"
    )
