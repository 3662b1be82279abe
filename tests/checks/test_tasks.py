"""A user's own task is checked on two items: sums over items, no padding, file and line of the
fault.
"""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from ablate.checks.tasks import TaskCheck, two_items
from ablate.custom.faults import ClassFault
from ablate.errors import StudyError
from ablate.launch.preparation import prepare_runs
from ablate.store import Results
from ablate.study import read_study, runs_of
from tests.data.small import split_of
from tests.tasks.test_own_task import STUDY, write_split

CLASS = (Path(__file__).parents[1] / "tasks/classification.py").read_text()
LAST = len(CLASS.splitlines())
LANGUAGE = """\
from ablate.tasks import LanguageModel


class Mine(LanguageModel):
    name = "mine"
"""


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A results root with the corpora of both tasks, which a study with another class finds
    prepared.
    """
    folder = tmp_path_factory.mktemp("tasks")
    for name, seed, count in (("train", 1, 40), ("dev", 2, 10), ("test", 3, 10)):
        write_split(folder / f"{name}.tsv", seed, count)
        lines = (folder / f"{name}.tsv").read_text().splitlines(keepends=True)
        (folder / f"{name}.tsv").write_text(
            f"the big old house by the river is red now\\tred\\n{''.join(lines)}"
        )
    return folder


@pytest.fixture
def checked(tmp_path, corpora, monkeypatch):
    """The error line for a task of this source; None if it is accepted."""
    monkeypatch.setenv("ABLATE_CORPORA", str(corpora / "corpora"))

    def checked(source, text=STUDY, file="classification.py"):
        for split in corpora.glob("*.tsv"):
            shutil.copy2(split, tmp_path)
        (tmp_path / file).write_text(source)
        (tmp_path / "s.yaml").write_text(text.replace("  N: 1", "  N: 2"))
        try:
            study = read_study(tmp_path / "s.yaml")
            prepare_runs(study, runs_of(study), Results(tmp_path / "results"), lambda line: None)
        except StudyError as error:
            [line] = error.lines
            return line
        return None

    return checked


def method(*lines, before=CLASS):
    """The source with another method at its end, and the number of its line."""
    return before + "\n" + "".join(f"    {line}\n" for line in lines)


def test_a_task_whose_loss_is_a_sum_is_accepted(checked):
    assert checked(CLASS) is None


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        ("measure", "return 1 / 0", "ZeroDivisionError: "),
        ("measure", "return 1.0", "measure returns float in accuracy, not a Measurement"),
        ("measure_items", "return 1 / 0", "ZeroDivisionError: "),
        ("measure_items", "return [1.0]", "measure_items returns 1 score for 1"),
        ("measure_items", "pass", "measure_items returns NoneType for 1"),
    ],
)
def test_metrics_are_tried_before_training(checked, name, body, text):
    line = checked(method(f"def {name}(self, metric, predictions, corpus):", f"    {body}"))
    assert line.startswith("classification.py:")
    assert text in line


EQUAL = "float(a == b)"
IN_ORDER = "zip(predictions, labels, strict=True)"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("100 * sums[0] / sums[1]", "100 * sums[0]", "measure gives the references 1000 accuracy, which is a percentage: "
         "return a number from 0 to 100"),
        (IN_ORDER, "zip(predictions[::-1], labels)", "gives the references in reversed order 100 accuracy, and the references of "
         "the test split "),
        (IN_ORDER, "zip(predictions[-1:] + predictions[:-1], labels)", "gives the references shifted by one 100 accuracy, and "),
        ('text("test", "label")', 'text("dev", "label")', "gives the references of dev 100 accuracy, and "),
        (EQUAL, "float(a == a)", "gives empty predictions 100 accuracy, and the references of the test split 100: compare each "
         "prediction with the reference of the same item"),
        (EQUAL, "float(a != b)", "gives empty predictions 100 accuracy, and the references of the test split 0: "),
    ],
)  # fmt: skip
def test_the_references_have_the_best_score(checked, old, new, said):
    assert old in CLASS
    line = checked(CLASS.replace(old, new))
    place, _, message = line.partition(": classification:Classification: ")
    assert message.startswith(said), line
    assert place in ("classification.py:26", "classification.py:34")  # measure, measure_items


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (", chance=50.0", ", chance=0.0"),
        (", chance=50.0", ", is_percentage=False"),
        ("more_is_better=True", "more_is_better=False"),
    ],
)
def test_a_metric_without_chance_may_favor_other_texts(checked, old, new):
    """Such as the share of words that the source does not have, and an error rate."""
    source = CLASS.replace(EQUAL, "float(a != b)").replace(old, new)
    assert checked(source) is None


def test_predictions_of_another_predict_are_not_compared_with_references(checked):
    source = method("def predict(self, *given):", "    return super().predict(*given)").replace(
        EQUAL, "float(a != b)"
    )
    assert checked(source) is None


def test_a_language_model_is_accepted_and_its_mean_is_not(checked):
    study = "study: lm\ntask: mine:Mine\ndata: {corpus: toy}\n" + (
        "base: {N: 2, d_model: 16, d_ff: 32, h: 2, context: 16, train_steps: 2, batch_tokens: 64, "
        "warmup_steps: 1}\n"
    )
    assert checked(LANGUAGE, study, "mine.py") is None
    faulty = method(
        "def n_targets(self, split, items):", "    return 16 * len(items) + 1", before=LANGUAGE
    )
    assert checked(faulty, study, "mine.py").startswith("mine.py:7: mine:Mine: n_targets counts ")


SUPER = "loss, n = super().loss_terms(model, batch, label_smoothing)"
LOSS = "def loss_terms(self, model, batch, label_smoothing):"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((LOSS, f"    {SUPER}", "    return loss / n, n"), "the loss of two items is "),
        ((LOSS, f"    {SUPER}", "    return loss + 1, n"), "the loss of two items is "),
        ((LOSS, f"    {SUPER}", "    return loss * float('nan'), n"), "the loss of two items is nan"),
        ((LOSS, f"    {SUPER}", "    return loss / len(batch.source), n"), "the loss of two items is "),
        ((LOSS, f"    {SUPER}"), "loss_terms returns NoneType, not (loss, number of targets); is a return missing?"),
        ((LOSS, f"    {SUPER}", "    return loss"), "loss_terms returns Tensor, not (loss, number of targets)"),
        ((LOSS, f"    {SUPER}", "    return loss, n + 1"), "n_targets counts "),
        ((LOSS, f"    {SUPER}", "    import random; return loss * random.random(), n"), "gives another loss"),
        ((LOSS, "    return 1 / 0, 1"), "ZeroDivisionError: division by zero"),
        (("def n_targets(self, split, items):", "    return int(split['label'].lengths[items].max()) * len(items) + 1"),
         "n_targets counts "),
        (("def n_targets(self, split, items):", "    return len(items)"), "n_targets counts 2 targets, and collate counts "),
        (("def output_terms(self, model, batch):", "    terms = super().output_terms(model, batch)",
          "    return terms._replace(states=terms.states[:-1], targets=terms.targets[:-1])"), "output_terms has 3 states and 3 "),
    ],
)  # fmt: skip
def test_a_task_with_a_fault_is_refused_with_file_and_line(checked, lines, said):
    found = checked(method(*lines))
    place, _, message = found.partition(": classification:Classification: ")
    assert message.startswith(said), found
    file, line = place.split(":")
    assert file == "classification.py"
    assert LAST < int(line) <= LAST + 1 + len(lines)  # within the method


def test_an_error_that_the_task_raises_for_its_user_is_shown_as_it_is(checked):
    body = ("    from ablate.errors import StudyError", "    raise StudyError('no label')")
    assert checked(method("def collate(self, split, items):", *body)) == "no label"


SPLIT = split_of(
    [[5] * 4, [5], [5] * 9, [5] * 3], [[6] * 3, [6] * 2, [6] * 7, [6]]
)  # with end marks: 9, 5, 18, 6


def test_two_items_are_the_shortest_and_the_longest_of_all_fields_together():
    assert two_items(SPLIT) == [1, 2]
    assert two_items(split_of([[5], [5, 6]], [[6], [6]])) == [0, 1]
    assert two_items(split_of([[5]], [[6]])) == [0, 0]


@pytest.mark.parametrize(
    ("losses", "changed", "said"),
    [
        ((600.0, 400.0, 1000.9), {}, None),  # a thousandth may be lost to padding
        ((600.0, 400.0, 999.1), {}, None),
        ((600.0, 400.0, 1001.1), {}, "the loss of two items is 1001, and 600 + 400 of each item alone"),
        ((600.0, 400.0, 998.9), {}, "the loss of two items is 998.9, and 600 + 400 of each item alone"),
        ((0.1, 0.1, 0.2009), {}, None),
        ((0.1, 0.1, 0.2011), {}, "the loss of two items is 0.2011, and 0.1 + 0.1 of each item alone"),
        ((1.0, 2.0, 3.0), {"states": 1}, "output_terms has 12 states and 11 targets for 11 target tokens"),
        ((1.0, 2.0, 3.0), {"targets": 1}, "output_terms has 11 states and 12 targets for 11 target tokens"),
        ((1.0, 2.0, 3.0), {"padding": 1}, "n_targets counts 12 targets of two items, and 3 + 8 of each item alone"),
        ((1.0, 2.0, 3.0), {"tokens": 1}, "n_targets counts 11 targets, and collate counts 12: padding must not count as a target"),
        ((1.0, 2.0, 3.0), {"counted": 1}, "n_targets counts 11 targets, and loss_terms counts 12: padding must not count as a target"),
    ],
)  # fmt: skip
def test_two_items_together_are_compared_with_each_alone(losses, changed, said):
    extra = {"states": 0, "targets": 0, "padding": 0, "tokens": 0, "counted": 0, **changed}

    def n_targets(split, items):
        return int(split["target"].lengths[items].sum()) + extra["padding"] * (len(items) > 1)

    def collate(split, items):
        pair = len(items) > 1
        return SimpleNamespace(
            items=items.tolist(), tokens=n_targets(split, items) + extra["tokens"] * pair
        )

    def loss_terms(model, batch, label_smoothing):
        assert (model, label_smoothing) == ("model", 0.1)
        loss = losses[{(1,): 0, (2,): 1, (1, 2): 2}[tuple(batch.items)]]
        return loss, batch.tokens + extra["counted"] * (len(batch.items) > 1)

    def output_terms(model, batch):
        return SimpleNamespace(
            states=[0] * (batch.tokens + extra["states"]),
            targets=[0] * (batch.tokens + extra["targets"]),
        )

    task = SimpleNamespace(
        n_targets=n_targets, collate=collate, loss_terms=loss_terms, output_terms=output_terms
    )
    if said is None:
        TaskCheck(task, "model", SPLIT, 0.1).run()
        return
    with pytest.raises(ClassFault) as caught:
        TaskCheck(task, "model", SPLIT, 0.1).run()
    assert caught.value.text.startswith(said)
