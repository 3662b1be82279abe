"""Generated items: each against a brute-force solver, and the side of training or test that each is
on.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from ablate.config.synthetic_data import GENERATORS, SyntheticData
from ablate.data.items import make_items, texts_of


def solve_recall(words):
    """What follows each key the second time it is read: the value after the first."""
    value, known, pairs = {}, [], [word for word in words if word != "."]
    for place in range(0, len(pairs), 2):
        key = pairs[place]
        known.append(value.get(key))
        value.setdefault(key, pairs[place + 1] if place + 1 < len(pairs) else None)
    answers = iter(known)
    return [next(answers) if word[0] == "k" else None for word in words]


def after_mark(words, answers):
    """Answers from the mark on; there are as many as places."""
    mark = words.index("=")
    return [None] * mark + answers


def solve_copy(words):
    return after_mark(words, words[: words.index("=")])


def solve_reverse(words):
    return after_mark(words, words[: words.index("=")][::-1])


def solve_selective_copy(words):
    return after_mark(words, [word for word in words[: words.index("=")] if word != "."])


def solve_induction(words):
    assert words[:-1].count(words[-1]) == 1
    return [None] * (len(words) - 1) + [words[words.index(words[-1]) + 1]]


def solve_parity(words):
    return [str("".join(words[: place + 1]).count("1") % 2) for place in range(len(words))]


def solve_permutations(words):
    """The things themselves are moved: thing number i goes to where each permutation sends it."""
    products, places = [], list(range(len(words[0])))
    for word in words:
        places = [int(word[place]) for place in places]
        products.append("".join(map(str, places)))
    return products


def solve_dyck(words):
    opened = []
    for word in words[: words.index("=")]:
        if word[0] == "(":
            opened.append(word)
        else:
            assert opened.pop() == word.replace(")", "(")
    return after_mark(words, [*(word.replace("(", ")") for word in opened[::-1]), "."])


def solve_modular(words, modulus=31):
    return [None] * 3 + [str((int(words[0]) + int(words[2])) % modulus)]


SOLVERS = {
    "recall": solve_recall, "copy": solve_copy, "reverse": solve_reverse, "selective-copy": solve_selective_copy,
    "induction": solve_induction, "parity": solve_parity, "permutations": solve_permutations, "dyck": solve_dyck,
    "modular": solve_modular,
}  # fmt: skip
CASES = [
    ("recall", {}),
    ("recall", {"pairs": 7, "symbols": 7, "gap": 3, "shortest": 2}),
    ("copy", {"shortest": 5}),
    ("reverse", {"length": 4}),
    ("selective-copy", {"length": 5, "gap": 6, "symbols": 30}),
    ("induction", {"length": 9, "shortest": 6, "symbols": 12}),
    ("parity", {"shortest": 14}),
    ("permutations", {"length": 5}),
    ("permutations", {"symbols": 3, "length": 8}),
    ("dyck", {"symbols": 3, "shortest": 13}),
    ("modular", {}),
]


def test_every_generator_has_a_solver():
    assert set(SOLVERS) == set(GENERATORS) == {name for name, _ in CASES}


def answers_and_solution(name, text):
    """The answers that an item has, as `k1:v2`, and those of the solver; None where there is none."""
    words = [word.partition(":")[0] for word in text.split()]
    answers = [word.partition(":")[2] or None for word in text.split()]
    solved = SOLVERS[name](words)
    return answers, solved + [None] * (len(words) - len(solved))  # after the end mark


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(("name", "settings"), CASES)
def test_the_answers_are_those_of_a_brute_force_solver(name, settings, split):
    data = SyntheticData.resolve({"corpus": name, "test": 200, **settings})
    count = 0
    for text in texts_of(make_items(data, split).first(200)):
        answers, solved = answers_and_solution(name, text)
        assert answers == solved, text
        count += len(answers) - answers.count(None)
    assert count >= 200


def test_the_items_on_the_page_have_the_answers_of_the_solver():
    page = (Path(__file__).parents[2] / "docs/synthetic.md").read_text()
    table = page.split("<!-- generators -->")[1].split("<!-- /generators -->")[0]
    shown = re.findall(r"^\| `([a-z-]+)` \| [^|]* \| `([^`]+)`", table, re.MULTILINE)
    assert {name for name, _ in shown} == set(SOLVERS)
    for name, item in shown:
        answers, solved = answers_and_solution(name, item)
        assert answers == solved, item


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_training_never_meets_an_item_of_the_test_split(name, settings):
    data = SyntheticData.resolve({"corpus": name, "test": 500, **settings})
    test = make_items(data, "test")
    seen = {tuple(item) for item in test.draw(np.arange(500)).inputs.tolist()}
    train = make_items(data, "train")
    assert test.overlap() == train.overlap() == 0
    for step in range(5):
        for item in train.at_step(1, step).draw(np.arange(500)).inputs.tolist():
            assert tuple(item) not in seen


@pytest.mark.parametrize("held_out", [0.1, 0.5, 0.7])
@pytest.mark.parametrize(
    ("name", "settings"),
    [("parity", {"length": 6}), ("copy", {"length": 3, "symbols": 2}), ("dyck", {"length": 6})],
)
def test_test_items_that_training_meets_are_counted(name, settings, held_out):
    """Of the smallest sizes, no item or every item is held out."""
    settings = {"corpus": name, "shortest": 1, "held_out": held_out, "test": 300, **settings}
    data = SyntheticData.resolve(settings)
    test, train = make_items(data, "test"), make_items(data, "train")
    seen = set()
    for step in range(5):
        seen.update(map(tuple, train.at_step(1, step).draw(np.arange(500)).inputs.tolist()))
    met = sum(tuple(item) in seen for item in test.draw(np.arange(300)).inputs.tolist())
    assert test.overlap() == met / 300


def test_sizes_run_from_the_smallest_to_the_largest():
    data = SyntheticData.resolve({"corpus": "recall", "pairs": 5, "shortest": 3, "test": 300})
    items = make_items(data, "test")
    assert np.bincount(items.sizes).tolist() == [0, 0, 0, 100, 100, 100]
    assert make_items(data, "test", size=2).sizes.tolist() == [2] * 300
    assert sorted(set(items.lengths.tolist())) == [11, 15, 19]


def test_the_share_that_is_held_out_is_that_of_the_setting():
    """Of items that fall on either side, as a binomial number."""
    for share in (0.1, 0.6):
        data = SyntheticData.resolve({"corpus": "recall", "held_out": share})
        items = make_items(data, "test")
        once = np.arange(4000)
        from ablate.data.draws import Draws
        from ablate.data.items import generate

        wrong = items._is_wrong(generate(data, Draws((9,), once), 4).inputs)
        assert 1 - wrong.mean() == pytest.approx(share, abs=0.03)
