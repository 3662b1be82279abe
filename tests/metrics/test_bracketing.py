"""Bracket F1 by hand, and against EVALB's C program (tests/metrics/evalb, public domain) on
perturbed trees.
"""

import random
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ablate.data.trees import linearized
from ablate.metrics.bracketing import f1, statistics, tree_statistics
from ablate.metrics.resampling import measure
from tests.data.random_trees import perturbed, random_tree, without_tags

EVALB = Path(__file__).with_name("evalb")


def row(prediction, sentence, reference):
    return statistics([prediction], [sentence], [reference])[0].tolist()[:5]


GOLD = "(S (NP DT NN )NP (VP VB (ADVP RB )ADVP )VP . )S"
SENTENCE = "the dog runs away ."


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        # matched, of the reference, of the prediction, all, well-formed
        ("(S (NP XX XX )NP (VP XX (ADVP XX )ADVP )VP XX )S", [4, 4, 4, 1, 1]),
        ("(S (NP XX XX )NP (VP XX (PRT XX )PRT )VP XX )S", [4, 4, 4, 1, 1]),  # PRT equals ADVP
        (
            "(S (NP XX XX )NP (VP XX (ADVP XX )ADVP XX )VP )S",
            [4, 4, 4, 1, 1],
        ),  # punctuation has no place
        (
            "(S (NP XX XX )NP (VP XX (ADVP XX )ADVP )VP (X XX )X )S",
            [4, 4, 4, 1, 1],
        ),  # nor does its constituent
        ("(TOP (S (NP XX XX )NP (VP XX (ADVP XX )ADVP )VP XX )S )TOP", [4, 4, 4, 1, 1]),
        ("(ROOT (S (NP XX XX )NP (VP XX (ADVP XX )ADVP )VP XX )S )ROOT", [4, 4, 5, 0, 1]),
        (
            "(S (S (NP XX XX )NP (VP XX (ADVP XX )ADVP )VP XX )S )S",
            [4, 4, 5, 0, 1],
        ),  # counted twice, matched once
        ("(S (NP XX )NP (VP XX XX (ADVP XX )ADVP )VP XX )S", [2, 4, 4, 0, 1]),
        ("(S (NP XX XX )NP (PP XX (ADVP XX )ADVP )PP XX )S", [3, 4, 4, 0, 1]),
        ("XX XX XX XX XX", [0, 4, 0, 0, 1]),
        ("(S (NP XX XX )NP (VP XX (ADVP XX )ADVP )VP )S", [0, 4, 0, 0, 0]),  # a word is missing
        ("(S (NP XX XX )NP (VP XX (ADVP XX )ADVP )VP XX", [0, 4, 0, 0, 0]),
        ("", [0, 4, 0, 0, 0]),
    ],
)
def test_brackets_are_counted_as_by_hand(prediction, expected):
    assert row(prediction, SENTENCE, GOLD) == expected


def test_brackets_of_one_span_match_as_often_as_both_have_them():
    assert row("(NP (NP (NP XX )NP )NP )NP", "a", "(NP (NP NN )NP )NP") == [2, 2, 3, 0, 1]


def test_scores_of_a_test_set_are_those_of_summed_brackets():
    predictions = ["(S (NP XX XX )NP (VP XX (ADVP XX )ADVP )VP XX )S", "(NP XX )VP", "(VP XX )VP"]
    sentences, references = [SENTENCE, "a", "b"], [GOLD, "(NP NN )NP", "(NP NN )NP"]
    trees = predictions, sentences, references, "test.ptb"
    scores = {
        name: measure(*tree_statistics(name, *trees))
        for name in ("f1", "exact_match", "well_formed")
    }
    assert scores["f1"].value == pytest.approx(100 * 2 * 4 / (6 + 5))
    assert scores["exact_match"].value == pytest.approx(100 / 3)
    assert scores["well_formed"].value == pytest.approx(200 / 3)
    assert (
        scores["f1"].signature
        == "EVALB:COLLINS|not-well-formed:0|trees:3|brackets:6|split:test.ptb"
    )
    assert [f1(of_tree) for of_tree in tree_statistics("f1", *trees).values] == [100, 0, 0]
    # Resampled test sets have three sentences each, so they have few values.
    assert set(scores["well_formed"].resamples) <= {round(100 * n / 3, 6) for n in range(4)}
    assert len(set(scores["f1"].resamples)) > 4


def test_a_sentence_of_punctuation_alone_is_matched_without_brackets():
    assert f1(statistics(["(X XX )X"], ["."], ["(S . )S"])[0]) == 100
    assert row("(X XX )X", ".", "(S . )S") == [0, 0, 0, 1, 1]
    assert f1(statistics(["(X XX"], ["."], ["(S . )S"])[0]) == 0  # not a tree


@pytest.fixture(scope="module")
def evalb(tmp_path_factory):
    """EVALB's C program."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("EVALB's C program needs a C compiler")
    program = tmp_path_factory.mktemp("evalb") / "evalb"
    subprocess.run([compiler, "-w", "-std=gnu89", "-o", program, EVALB / "evalb.c"], check=True)
    return program


def by_evalb(program, folder, gold, test):
    """(matched, reference's, prediction's brackets, status) of each tree, and F1 and complete
    matches of all.
    """
    (folder / "gold").write_text("".join(f"{tree}\n" for tree in gold))
    (folder / "test").write_text("".join(f"{tree}\n" for tree in test))
    words = [
        program, "-p", EVALB / "COLLINS.prm", "-e", "1000000", folder / "gold", folder / "test",
    ]  # fmt: skip
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines() if re.match(r" *\d+ +\d+ +\d ", line)]
    summary = {
        name: float(value)
        for name, value in re.findall(r"^(.*?) +=+ +([\d.]+)$", text.split("len<=")[0], re.M)
    }
    return [[int(each[i]) for i in (5, 6, 7, 2)] for each in rows], summary


@pytest.mark.parametrize(("seed", "rate"), [(1, 0.0), (2, 0.05), (3, 0.3), (4, 0.9)])
def test_brackets_are_those_of_evalb_on_perturbed_trees(evalb, tmp_path, seed, rate):
    draw = random.Random(seed)
    gold = [random_tree(draw) for _ in range(1500)]
    test = [perturbed(draw, tree, rate) for tree in gold]
    rows, summary = by_evalb(evalb, tmp_path, gold, test)
    sentences = [" ".join(leaf.word for leaf in tree.leaves()) for tree in gold]
    predictions = [without_tags(linearized(tree)) for tree in test]
    ours = statistics(predictions, sentences, [linearized(tree) for tree in gold])
    skipped = [status == 2 for *_, status in rows]  # punctuation alone
    assert 0 < sum(skipped) < 300
    for mine, (*theirs, _), skip in zip(ours.tolist(), rows, skipped, strict=True):
        assert mine[:3] == ([0, 0, 0] if skip else theirs)
    assert f1(ours.sum(0)) == pytest.approx(summary["Bracketing FMeasure"], abs=0.006)
    complete = 100 * ours[~np.array(skipped), 3].mean()
    assert complete == pytest.approx(summary["Complete match"], abs=0.006)


def test_trees_that_are_not_well_formed_lower_f1_where_evalb_leaves_them_out(evalb, tmp_path):
    draw = random.Random(5)
    gold = [random_tree(draw) for _ in range(400)]
    broken = [i % 2 == 0 for i in range(400)]
    test = [
        "(TOP (XX w0) (XX w0))" if bad else str(tree)
        for tree, bad in zip(gold, broken, strict=True)
    ]
    _, summary = by_evalb(evalb, tmp_path, gold, test)
    assert summary["Bracketing FMeasure"] == 100
    sentences = [" ".join(leaf.word for leaf in tree.leaves()) for tree in gold]
    references = [linearized(tree) for tree in gold]
    predictions = [
        "XX (NP" if bad else without_tags(tree)
        for tree, bad in zip(references, broken, strict=True)
    ]
    ours = statistics(predictions, sentences, references)
    assert ours[:, 4].mean() == 0.5
    assert 60 < f1(ours.sum(0)) < 75  # all of the precision, half of the recall
