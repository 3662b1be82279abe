"""The `metrics` section."""

import pytest

from ablate.study import runs_of

HEAD = "study: t\ndata: {corpus: toy}\n"


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        ("", ("bleu",)),
        ("metrics: [bleu, chrf, ter]", ("bleu", "chrf", "ter")),
        ("metrics: chrf++", ("chrf++",)),
        ("metrics: [ter]", ("ter",)),
    ],
)
def test_metrics_keep_their_order_and_default_to_bleu(read, text, metrics):
    assert read(HEAD + text).metrics.shown == metrics


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[bleu, crhf]", 'table3.yaml:3:17: unknown metric "crhf"; did you mean "chrf"?'),
        ("[comet]", 'table3.yaml:3:11: unknown metric "comet"; allowed: bleu, chrf, chrf++, ter'),
        ("[bleu, bleu]", 'table3.yaml:3:17: duplicate metric "bleu"'),
        ("[ppl]", "table3.yaml:3:11: ppl is always measured; list only other metrics"),
        ("[]", "table3.yaml:3:10: metrics: [] is not allowed: needs 1 or more entries"),
        ("", "table3.yaml:3:9: metrics: null is not allowed: must be a valid string"),
    ],
)
def test_invalid_metrics_are_reported_at_their_position(faults, text, line):
    assert faults(f"{HEAD}metrics: {text}") == [line]


@pytest.mark.parametrize(
    ("text", "judged"),
    [
        ("", ("bleu",)),
        ("metrics: [ter, bleu]", ("ter",)),
        ("judge: [ppl, bleu]", ("ppl", "bleu")),
        ("judge: ppl", ("ppl",)),
    ],
)
def test_verdicts_are_by_the_first_metric_or_by_those_named(read, text, judged):
    study = read(HEAD + text)
    assert study.metrics.judged == judged
    assert study.metrics.shown == (("ter", "bleu") if "ter" in text else ("bleu",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("judge: [ppl, ter]", 'unknown metric "ter"; allowed: bleu, ppl, ppl_char'),
        ("judge: perplexity", 'unknown metric "perplexity"; did you mean "ppl"?'),
        ("judge: [ppl, ppl]", 'duplicate metric "ppl"'),
        ("judge: []", "judge: [] is not allowed: needs 1 or more entries"),
        ("judge: [ppl, bleu]\nmargin: 0.5", "margin: verdicts are by 2 metrics; write {ppl: 0.5, bleu: 0.5}"),
    ],
)  # fmt: skip
def test_other_metrics_of_verdicts_are_errors(faults, text, message):
    (line,) = faults(HEAD + text)
    assert message in line


def test_metrics_do_not_change_run_ids(read):
    plain, more = read(HEAD), read(HEAD + "metrics: [ter, bleu]")
    assert [run.id for run in runs_of(plain)] == [run.id for run in runs_of(more)]


@pytest.mark.parametrize(
    ("text", "margins"),
    [
        ("", {}),
        ("margin: 0.5\n", {"bleu": 0.5}),
        ("metrics: [chrf, bleu]\nmargin: 1\n", {"chrf": 1.0}),
        ("margin: {bleu: 0.5, ppl: 0.1}\n", {"bleu": 0.5, "ppl": 0.1}),
    ],
)
def test_the_margin_is_of_the_first_metric_or_of_each(read, text, margins):
    assert read(HEAD + text).metrics.margins == margins


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("margin: 0", "margin: 0 is not allowed: must be greater than 0"),
        ("margin: true", "margin: true is not allowed: must be a valid number"),
        (
            "margin: 2%",
            'margin: "2%" is not allowed: must be a difference in the metric\'s own unit, '
            "such as 0.5 in BLEU or 0.02 in bits/byte; for ppl, a margin is a ratio, so 0.02 is 2 %",
        ),
        ("margin: {ter: 1}", 'unknown metric "ter"'),
        ("margin: {ppl: [1]}", "ppl: [1] is not allowed: must be a valid number"),
    ],
)
def test_another_margin_is_an_error_with_its_position(faults, text, message):
    (line,) = faults(HEAD + text)
    assert line.startswith("table3.yaml:3:")
    assert message in line
