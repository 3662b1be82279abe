"""Synthetic tasks from a study to a table: answers, scores, sizes of the evaluation, resumption, own
generators.
"""

import json
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from ablate.analysis.curves import curve_of, curves_of
from ablate.analysis.outcome import outcome_of
from ablate.config.resolve import resolve_row
from ablate.config.synthetic_data import GENERATORS, SyntheticData
from ablate.data.items import make_items
from ablate.model import build
from ablate.page.figures import draw_curves, draw_lines
from ablate.page.points import lines_over_test_sizes, panels
from ablate.page.sections import figure_files
from ablate.stats.metrics import ACCURACY, CHANCE_SCORE, ITEMS_RIGHT, PPL
from ablate.store import Results
from ablate.study import read_study, runs_of
from ablate.tasks import Synthetic
from ablate.tasks.synthetic import signature_of
from tests.cli.inside import inside
from tests.tasks.studies import SYNTHETIC

HEAD = "study: s\ntask: synthetic\ndata: {corpus: recall}\n"
CPU = torch.device("cpu")
PUBLISHED = Path(__file__).parents[2] / "results"
SORTING = (Path(__file__).parent / "sorting.py").read_text()


@pytest.fixture(scope="module")
def synthetic(trained):
    """The trained study."""
    return trained("synthetic")


def test_rows_of_the_evaluation_are_signed_with_their_sizes(synthetic):
    table = synthetic.data("table")
    assert table["metrics"] == ["ppl", "accuracy", "items_right"]
    assert sorted(table["signatures"]["accuracy"]) == [
        f"recall|pairs:{pairs}|symbols:8|gap:0|items:60|answers:{60 * pairs}" for pairs in (2, 3)
    ]


def test_the_loss_of_items_that_repeat_is_drawn_beside_that_of_dev(tmp_path):
    with zipfile.ZipFile(PUBLISHED / "grokking/records.zip") as records:
        records.extractall(tmp_path)
    results = Results(tmp_path)
    outcome = outcome_of(runs_of(read_study(PUBLISHED / "grokking/study.yaml")), results)
    row = outcome.planned.by_label["weight_decay=0.5"]
    curve = curve_of(outcome, row, results)
    for run in outcome.by_label[row.label]:
        log = (results.run(run.run.id).path / "metrics.jsonl").read_text().splitlines()
        losses = {line["step"]: line["loss"] for line in map(json.loads, log) if "loss" in line}
        expected = {step: math.exp(loss) for step, loss in losses.items()}
        assert dict(curve.training.by_seed[run.run.seed]) == pytest.approx(expected)
    # It knows what it is trained on long before it knows the rule.
    learned, asked = dict(curve.training.mean), dict(curve.mean)
    assert learned[600] < 1.01 < 5 < asked[600]
    assert asked[3000] < 1.01
    (axes,) = draw_curves(panels([curve])).axes
    dotted = [line.get_data() for line in axes.lines if line.get_linestyle() == ":"]
    assert [list(zip(*line, strict=True)) for line in dotted] == [list(curve.training.mean)]
    assert curve.over("tokens").training.mean[0][0] > curve.training.mean[0][0]


def test_a_run_stores_its_scores_beside_those_by_chance(synthetic):
    table = outcome_of(runs_of(synthetic.study), Results(synthetic.root)).table
    rows = {row.label: row for row in table.rows}
    for metric in (PPL, ACCURACY, ITEMS_RIGHT):
        (level,) = rows["base"].part(metric, CHANCE_SCORE).by_seed.values()
        assert math.isfinite(level)
    # 8 values are answers, in turn: within the noise of 40 items no token is more frequent.
    assert 6.5 < rows["base"].part(PPL, CHANCE_SCORE).mean <= 8.0


def test_items_that_are_drawn_have_no_curve_of_training(synthetic):
    results = Results(synthetic.root)
    outcome = outcome_of(runs_of(synthetic.study), results)
    assert {curve.training for curve in curves_of(outcome, results)} == {None}


def test_a_training_is_one_curve_over_the_sizes_of_its_evaluation(synthetic, tmp_path):
    table = outcome_of(runs_of(synthetic.study), Results(synthetic.root)).table
    lines, size = lines_over_test_sizes(table)
    base, load = (table.rows[place].scores["accuracy"] for place in (0, 3))
    assert size == "pairs"
    assert [(line.label, line.points) for line in lines] == [("base", ((2, base), (3, load)))]
    figure = draw_lines(lines, "x", "y")
    drawn = [line.get_data() for line in figure.axes[0].lines if line.get_gid() == "row:base"]
    values = [*base.by_seed.values(), *load.by_seed.values()]
    assert [(x.tolist(), y.tolist()) for x, y in map(np.asarray, drawn)] == 2 * [([2, 3], values)]
    assert "over-pairs-accuracy.svg" in figure_files(table, [])
    synthetic.answer("report", "--out", tmp_path / "page.html")
    assert "Over the pairs of test items" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("label", ["base", "lstm", "load"])
def test_the_scores_are_those_of_a_plain_loop(synthetic, label):
    """One forward pass for each answer, from the tokens before it."""
    run, row = synthetic.loaded(label)
    data = run.task.data_settings(run.corpus)
    items = make_items(data, "test", size=row.config.eval_pairs)
    nats, right, count, whole = 0.0, 0, 0, 0
    for inputs, targets in zip(*items.draw(np.arange(len(items))), strict=True):
        before = right
        for place in np.flatnonzero(targets):
            with torch.no_grad():
                states = run.model.read(torch.from_numpy(inputs[None, : place + 1]))
                logits = run.model.logits(states)[0, -1].double()
            nats -= float(logits.log_softmax(-1)[targets[place]])
            right += int(logits.argmax() == targets[place])
        count += np.count_nonzero(targets)
        whole += right - before == np.count_nonzero(targets)
    scores = run.result.decodings[row.decoding].scores
    predictions = run.task.predict(run.model, run.corpus, row.config, CPU)
    loss = run.task.measure("answer_loss", predictions, run.corpus).value
    assert loss == pytest.approx(nats / count, rel=1e-4)
    assert scores["accuracy"].value == pytest.approx(100 * right / count, abs=100.1 / count)
    assert scores["items_right"].value == pytest.approx(100 * whole / len(items), abs=1.7)
    for metric, score in scores.items():
        if metric != "ppl":
            each = run.task.measure_items(metric, predictions, run.corpus)
            assert np.mean(each) == pytest.approx(score.value)  # items have as many answers each


def test_an_encoder_reads_up_to_the_first_answer():
    config = resolve_row({
        **Synthetic.defaults, "architecture": "encoder-decoder", "n_layers": 1, "d_model": 16, "d_ff": 16, "n_heads": 2,
    })  # fmt: skip
    data = SyntheticData.resolve({"corpus": "recall", "pairs": 3})
    one, two = (make_items(data, "train", has_source=has) for has in (False, True))
    batch = Synthetic().collate(two.as_split(), [0, 5])
    whole = Synthetic().collate(one.as_split(), [0, 5])
    assert batch.targets.tolist() == whole.targets.tolist()
    for read, source, target in zip(whole.inputs, batch.source, batch.target_in, strict=True):
        assert [*source.tolist()[:-1], *target.tolist()] == read.tolist()
        assert source[-1] == target[0] == read[6]
    model = build(config, data.vocab_size, seed=1)
    assert len(Synthetic().output_terms(model, batch).states) == batch.tokens == 6


def test_a_run_that_was_stopped_trains_on_the_same_items():
    data = SyntheticData.resolve({"corpus": "recall"})
    split, task = make_items(data, "train").as_split(), Synthetic()
    at_7 = task.collate(task.at_step(split, 1, 7), [3, 1, 2])
    again = task.collate(task.at_step(split, 1, 7), [1, 2])
    assert at_7.inputs[1:].tolist() == again.inputs.tolist()
    others = [task.at_step(split, *key) for key in ((1, 8), (2, 7))]
    for other in others:
        assert task.collate(other, [1, 2]).inputs.tolist() != again.inputs.tolist()


def test_a_set_of_stated_size_is_the_same_at_every_step():
    data = SyntheticData.resolve({"corpus": "recall", "train": 50})
    split, task = make_items(data, "train").as_split(), Synthetic()
    assert len(split) == 50
    inputs = [
        task.collate(task.at_step(split, seed, step), range(50)).inputs
        for seed, step in ((1, 2), (3, 4))
    ]
    assert torch.equal(*inputs)


RETURNED = "return text[:, :-1], targets[:, 1:]"


@pytest.mark.parametrize("before", ["", "text.flags.writeable = targets.flags.writeable = False; "])
def test_a_generator_of_ones_own_is_a_function_in_a_file(tmp_path, before):
    """Also with arrays that cannot be written."""
    (tmp_path / "sorting.py").write_text(SORTING.replace(RETURNED, before + RETURNED))
    study = SYNTHETIC.replace("task: synthetic", "task: sorting:Sorting")
    study = study.replace("{corpus: recall, pairs: 2, symbols: 8, ", "{length: 2, ")
    (tmp_path / "own.yaml").write_text(study.replace("eval_pairs: [3]", "eval_length: [4]"))
    done = inside(
        "run", tmp_path / "own.yaml", "--results", tmp_path / "results", "--device", "cpu"
    )
    assert done.code == 0, done.err
    assert "sorting|length:4|symbols:9" in done.out


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("draws.integers(data.symbols, length)", "np.random.randint(9, size=(len(draws), length))", "depends on items that are drawn with it"),
        ("5 + draws", "50 + draws", "inputs must be ids from 0 to 13, and are from 4 to"),
        ("5 + draws", "-5 + draws", "inputs must be ids from 0 to 13, and are from -"),
        ("return text[:, :-1], targets[:, 1:]", "return text", "a tuple of two arrays of numpy, inputs and targets; got ndarray"),
        ("return text[:, :-1], targets[:, 1:]", "pass", "two arrays of numpy, inputs and targets; got NoneType"),
        ("return text[:, :-1], targets[:, 1:]", "return text.tolist(), text", "got list, ndarray"),
        ("return text[:, :-1], targets[:, 1:]", "return text, targets[:, 1:]", "both must be (8, T)"),
        ("> length, text, 0", "> 99, text, 0", "an item has nothing to predict"),
        ('["=", *', '["0", *', "tokens must have different names; got '0' twice"),
        ('["=", *', '["= =", *', "the name of a token must be one word, other than <pad>, <unk>, <s> or </s>; got '= ='"),
        ('["=", *', '["", *', "got ''"),
        ('["=", *', '["<s>", *', "got '<s>'"),
        ('["=", *', "[5, *", "got 5"),
        ("targets[:, 1:]", "(targets - 4 * (targets > 0))[:, 1:]", "or ids from 4"),
    ],
)  # fmt: skip
def test_faults_of_an_own_generator_are_found_before_training(tmp_path, before, after, fault):
    assert before in SORTING
    (tmp_path / "sorting.py").write_text(SORTING.replace(before, after))
    text = HEAD.replace("task: synthetic", "task: sorting:Sorting").replace(
        "{corpus: recall}", "{}"
    )
    (tmp_path / "own.yaml").write_text(text + "rows: {A: {each: {h: [1]}}}\n")
    done = inside(
        "run", tmp_path / "own.yaml", "--results", tmp_path / "results", "--device", "cpu"
    )
    assert done.code == 2  # as for any other class that the study names
    assert fault in done.err


@pytest.mark.parametrize(
    ("before", "after", "line", "error"),
    [
        ("5 + draws", "5 + torch.draws", 12, "NameError: name 'torch' is not defined"),
        ('["=", *map', '["=", *mapped', 25, "NameError: name 'mapped' is not defined"),
        ("5 + draws", "__import__('sys').exit(3) + draws", 12, "SystemExit: 3"),
        ("5 + draws", "np.zeros(7) + draws", 12, "ValueError: operands could not be broadcast"),
    ],
)
def test_an_error_in_an_own_generator_is_one_line_with_its_place(
    tmp_path, before, after, line, error
):
    assert before in SORTING
    (tmp_path / "runs.py").write_text(SORTING.replace(before, after))
    text = HEAD.replace("task: synthetic", "task: runs:Sorting").replace("{corpus: recall}", "{}")
    (tmp_path / "own.yaml").write_text(text + "rows: {A: {each: {h: [1]}}}\n")
    done = inside("plan", tmp_path / "own.yaml", "--results", tmp_path / "results")
    assert done.code == 2
    (shown,) = done.err.splitlines()
    assert f"runs.py:{line}: runs:Sorting: {error}" in shown


def test_the_signature_names_what_the_items_depend_on():
    data = SyntheticData.resolve({"corpus": "recall", "pairs": 6, "shortest": 2, "gap": 5})
    assert signature_of(data) == "recall|pairs:2-6|symbols:16|gap:5"
    assert signature_of(data, 8) == "recall|pairs:8|symbols:16|gap:5"
    assert set(GENERATORS) >= {"recall"}


def test_accuracies_and_perplexity_have_the_level_of_chance_of_their_items(tmp_path):
    """Answers of `modular` are nearly uniform over the symbols; an item has one."""
    task = Synthetic()
    settings = {"corpus": "modular", "symbols": 23, "test": 400, "dev": 400}
    corpus = task.prepare(task.resolve_data(settings), tmp_path, tmp_path)
    row = resolve_row({"architecture": "decoder-only"})
    chance = task.unigram_perplexity(corpus, row)
    assert 22.5 < chance <= 23.0
    lines = [f"nats=1.0 correct={i % 2} answers=1 modular" for i in range(400)]
    for metric in ("accuracy", "items_right"):
        level = task.measure(metric, lines, corpus).parts["by_chance"]
        assert 100 / 23 < level < 14  # three standard deviations of 400 guesses are 3
    assert not task.measure("answer_loss", lines, corpus).parts
