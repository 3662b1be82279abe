"""Parsing from a study to a table: scores, trees of new sentences, attention, resume, and what is
refused.
"""

import json
import random
import re
from unittest.mock import Mock

import pytest

from ablate.config import DecodingConfig
from ablate.decoding import tree_constraint
from ablate.errors import StudyError
from ablate.metrics.bracketing import statistics
from ablate.run.inference import load_run
from ablate.store import Results
from ablate.study import Selection, read_study
from ablate.tasks.parsing import Parsing
from tests.cli.inside import inside

STUDY = """\
study: parser
task: parsing
data: {corpus: files, train: train.ptb, dev: dev.ptb, test: test.ptb, vocab_size: 60, max_length: 60}
base:
  N: 1
  d_model: 32
  d_ff: 64
  h: 2
  dropout: 0.0
  batch_tokens: 256
  train_steps: 200
  warmup_steps: 20
  learning_rate: 0.01
  eval_every: 100
  checkpoint_every: 100
  norm_position: pre
  beam: 2
  max_extra_length: 20
rows:
  untrained: {set: {train_steps: 1}}
  limit: {each: {max_extra_length: [0]}}
  search: {set: {train_steps: 1, constrained: true}}
"""
HEAD = "study: s\ntask: parsing\ndata: {corpus: toy}\n"
NOUNS, VERBS = ("dog", "cat", "bird"), ("sees", "hears")


def sentence(draw):
    """`the dog sees a cat .` or `the dog sees .`, as a tree with function tags over several
    lines.
    """
    object = f"\n  (NP (DT a) (NN {draw.choice(NOUNS)}))" if draw.random() < 0.5 else ""
    subject = f"(NP-SBJ (DT the) (NN {draw.choice(NOUNS)}))"
    return f"( (S {subject} (VP (VBZ {draw.choice(VERBS)}){object}) (. .)) )\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The study and its treebank."""
    path = tmp_path_factory.mktemp("parser")
    for seed, (split, count) in enumerate((("train", 120), ("dev", 12), ("test", 20))):
        draw = random.Random(seed)
        (path / f"{split}.ptb").write_text("".join(sentence(draw) for _ in range(count)))
    (path / "parser.yaml").write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def trained(folder):
    """The results root after `ablate run`."""
    done = inside("run", folder / "parser.yaml", "--results", folder / "results", "--device", "cpu")
    assert done.code == 0, done.err
    return folder / "results"


def of_row(folder, results, label):
    study = read_study(folder / "parser.yaml")
    row = next(row for row in study.rows if row.label == label)
    return load_run(Results(results).run(study.runs_of(row)[0].id), Results(results)), row


def table(folder, results, *words):
    done = inside("table", folder / "parser.yaml", "--results", results, *words)
    assert done.code == 0, done.err
    return done.out


def test_the_table_has_f1_exact_and_well_formed_trees(folder, trained):
    content = json.loads(table(folder, trained, "--format", "json"))
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


def test_decoding_limits_train_nothing(folder):
    study = read_study(folder / "parser.yaml")
    assert len({run.id for run in study.runs()}) == 2
    assert study.base.config.alpha == 0.3  # the task's


def test_scores_are_those_of_the_stored_predictions(folder, trained):
    run, row = of_row(folder, trained, "untrained train_steps=1")
    lines = (
        Results(trained).run(run.record.id).predictions(row.decoding).read_text().split("\n")[:-1]
    )
    references = (run.corpus.text("test", name) for name in ("sentence", "tree"))
    each = statistics(lines, *references)
    matched, expected, found = each[:, :3].sum(0).tolist()
    scores = run.result.decodings[row.decoding].scores
    assert scores["f1"].value == pytest.approx(200 * matched / (expected + found))
    assert scores["well_formed"].value == pytest.approx(100 * each[:, 4].mean())


def test_against_paper_prints_table_4(folder, trained):
    text = table(folder, trained, "--against", "paper", "--format", "markdown")
    assert "paper F1" in text.replace("<br>", " ")
    assert "91.3" in text
    assert "Table 4, semi-supervised: Zhu et al. (2013) 91.3, " in text
    assert "Transformer (4 layers) 92.7." in text
    assert "This study's base or corpus is not the paper's" in text


def test_new_sentences_are_printed_as_trees(folder, trained):
    study = (folder / "parser.yaml", "base", "--results", trained, "--beam", 1)
    done = inside("predict", *study, stdin=b"the cat hears a bird .\n\nthe dog sees .\n")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "(TOP (S (NP (XX the) (XX cat)) (VP (XX hears) (NP (XX a) (XX bird))) (XX .)))\n"
        "\n"
        "(TOP (S (NP (XX the) (XX dog)) (VP (XX sees)) (XX .)))\n"
    )


def test_a_prediction_that_is_no_tree_is_an_empty_line_and_a_note(folder, trained):
    study = (folder / "parser.yaml", "untrained train_steps=1", "--results", trained, "--beam", 1)
    done = inside("predict", *study, stdin=b"the cat hears a bird .\n")
    assert (done.code, done.out) == (0, "\n")
    assert done.err == "standard input:1: the prediction is not valid; the line is empty\n"


def test_new_sentences_are_decoded_as_the_row_says(folder, trained):
    """Rows that share an untrained run: constrained, it finds trees; within no extra tokens, base
    finds none.
    """
    words = ("--results", trained)
    new = b"the cat hears a bird .\nthe dog sees .\n"
    label = "search train_steps=1 constrained=true"
    found = inside("predict", folder / "parser.yaml", label, *words, stdin=new)
    assert (found.code, found.err) == (0, "")
    assert [line[:5] for line in found.out.splitlines()] == ["(TOP ", "(TOP "]
    by_id = inside(
        "predict", of_row(folder, trained, label)[0].record.id, *words, "--beam", 2, stdin=new
    )
    assert by_id.out == "\n\n"  # the task's settings do not constrain
    limited = inside(
        "predict", folder / "parser.yaml", "limit max_extra_length=0", *words, stdin=new
    )
    assert (limited.code, limited.out) == (0, "\n\n")
    base = inside("predict", folder / "parser.yaml", *words, stdin=new)
    assert base.out.count("(TOP ") == 2


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


def test_predicted_tags_are_printed(folder, tmp_path):
    words = ("--set", "data.leaves=tags", "--rows", "base", "--results", tmp_path)
    assert inside("run", folder / "parser.yaml", *words, "--device", "cpu").code == 0
    (run,) = (tmp_path / "runs").iterdir()
    done = inside("predict", run.name, "--results", tmp_path, stdin=b"the cat hears .\n")
    assert done.out == "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ hears)) (. .)))\n"
    done = inside("table", folder / "parser.yaml", *words, "--format", "json")
    assert json.loads(done.out)["rows"][0]["f1"]["values"] == [100.0]


def test_attention_and_importance_have_words_and_symbols(folder, trained):
    study = (folder / "parser.yaml", "base", "--results", trained)
    done = inside("attention", *study, "--sentence", "the dog sees .", "--format", "json")
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    assert "".join(shown["source"]).replace("▁", " ") == " the dog sees .</s>"
    assert shown["target"][1:] == [
        f"▁{symbol}" for symbol in ("(S", "(NP", "XX", "XX", ")NP", "(VP", "XX", ")VP", "XX", ")S")
    ]
    done = inside("attention", *study, "--importance", "--pairs", 4, "--format", "json")
    assert len(json.loads(done.out)["heads"]) == 6


def test_compare_and_the_report_show_sentences_and_trees(folder, trained, tmp_path):
    rows = ("base", "untrained train_steps=1")
    done = inside(
        "compare", folder / "parser.yaml", *rows, "--results", trained, "--format", "json"
    )
    assert done.code == 0, done.err
    shown = json.loads(done.out)["sentences"][0]
    assert shown["reference"].startswith("(S (NP DT NN )NP")
    assert shown["sentence"].startswith("the ")
    page = tmp_path / "page.html"
    done = inside("report", folder / "parser.yaml", "--results", trained, "--out", page)
    assert done.code == 0, done.err
    assert "(S (NP DT NN )NP" in page.read_text()
    frame = table(folder, trained, "--format", "csv")
    assert "f1" in frame.splitlines()[0]


def test_the_plan_counts_the_model_exactly(folder, trained):
    done = inside("plan", folder / "parser.yaml", "--results", trained, "--format", "json")
    rows = {row["row"]: row for row in json.loads(done.out)["rows"]}
    run, _ = of_row(folder, trained, "base")
    assert rows["base"]["params"] == sum(p.numel() for p in run.model.parameters())
    assert rows["base"]["flops_per_step"] > 0


def test_resuming_gives_the_same_bytes(folder, trained):
    done = inside(
        "verify", folder / "parser.yaml", "--results", trained, "--device", "cpu", "--rows", "base"
    )
    assert done.code == 0, done.out + done.err
    assert "identical" in done.out


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("base: {context: 16}\n", "s:4:17: context: 16 has no effect with task parsing; remove it"),
        ("metrics: [bleu]\n", 'unknown metric "bleu"'),
        (
            "base: {batch_tokens: 500}\n",
            "a sequence of data.max_length=500 and its end does not fit in batch_tokens=500",
        ),
        ("base: {max_positions: 400}\n", "data.max_length=500 needs 501 positions"),
    ],
)
def test_fields_that_do_not_go_together_are_found_when_the_study_is_read(tmp_path, text, line):
    (tmp_path / "s").write_text(HEAD + text)
    with pytest.raises(StudyError, match=line):
        read_study(tmp_path / "s")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("{corpus: toy, direction: en-de}", 'unknown data field "direction"'),
        ("{corpus: multi30k}", 'corpus "multi30k" is not known: toy, wsj or files'),
        ("{corpus: toy, leaves: kept}", "kept.* is not allowed: must be XX, tags or words"),
    ],
)
def test_data_of_other_tasks_is_refused(tmp_path, data, line):
    (tmp_path / "s").write_text(f"study: s\ntask: parsing\ndata: {data}\n")
    with pytest.raises(StudyError, match=line):
        read_study(tmp_path / "s")


def test_an_unbalanced_file_is_one_line_and_no_traceback(folder, tmp_path):
    (tmp_path / "train.ptb").write_text("(S (NN a))\n(S (NN b)\n")
    for name in ("dev.ptb", "test.ptb"):
        (tmp_path / name).write_text("(S (NN a))\n")
    (tmp_path / "parser.yaml").write_text(STUDY)
    done = inside(
        "run", tmp_path / "parser.yaml", "--results", tmp_path / "results", "--device", "cpu"
    )
    errors = [line for line in done.err.splitlines() if not line.startswith("note: ")]
    assert (done.code, len(errors)) == (2, 1)
    assert done.err.endswith('train.ptb:2: "(S" is never closed\n')


def test_a_search_is_that_of_the_paper_by_default(tmp_path):
    (tmp_path / "s.yaml").write_text(HEAD + "rows: {}\n")
    config = read_study(tmp_path / "s.yaml").base.config
    assert (config.beam, config.alpha, config.max_extra_length) == (21, 0.3, 300)  # section 6.3
    assert not config.early_stopping


def test_the_legend_says_that_perplexity_is_per_symbol():
    ppl, f1 = Parsing.model_metrics[0], Parsing.prediction_metrics[0]
    data = Parsing().resolve_data({"corpus": "toy"})
    assert Parsing().describe(ppl, data, [80]) == (
        f"per symbol of the linearized trees, dev={data.dev}, V=80, plain negative log-likelihood"
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
