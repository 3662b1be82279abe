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
    ("metrics", "judge", "allowed"),
    [
        ("[blue]", "acc", "bleu, ppl, ppl_char"),
        ("[chrf, blue]", "acc", "chrf, bleu, ppl, ppl_char"),
        ("[chrf, accuracy]", "acc", "chrf, ppl, ppl_char"),
    ],
)
def test_an_unknown_metric_is_not_allowed_in_judge(faults, metrics, judge, allowed):
    lines = faults(f"{HEAD}metrics: {metrics}\njudge: {judge}\n")
    assert lines[1].endswith(f'unknown metric "acc"; allowed: {allowed}')


def test_a_misspelt_metric_is_one_fault(faults):
    [line] = faults(f"{HEAD}metrics: [chrf, blue]\njudge: bleu\n")
    assert line.endswith('unknown metric "blue"; did you mean "bleu"?')


@pytest.mark.parametrize(
    ("settings", "metric", "remedy"),
    [
        ("judge: [bleu, ppl]", "ppl", "judge by ppl_char, bleu, chrf, chrf++ or ter"),
        (
            "data: {corpus: toy, tokenizer: word, vocab_size: 300}\njudge: ppl_char",
            "ppl_char",
            "by bleu",
        ),
        ("task: masked-lm", "masked_loss", "remove vocab_size from the row, or set it in `sizes`"),
        ("task: language-model\nmetrics: [new_loss, bpb]", "new_loss", "judge by bpb or "),
    ],
)
def test_no_verdict_compares_two_vocabularies_by_a_metric_that_cannot(
    faults, settings, metric, remedy
):
    study = "study: t\n"
    if "data:" not in settings:
        study += "data: {corpus: toy, tokenizer: bpe, vocab_size: 300}\n"
    [line] = faults(f"{study}{settings}\nrows: {{V: {{each: {{vocab_size: [300, 350]}}}}}}\n")
    assert 'row "V vocab_size=350": vocab_size=350 differs from base\'s 300, and ' in line
    assert f"and {metric} cannot compare vocabularies" in line
    assert remedy in line


@pytest.mark.parametrize(
    "settings",
    [
        "rows: {V: {each: {vocab_size: [350]}}}\n",
        "judge: ppl_char\nrows: {V: {each: {vocab_size: [350]}}}\n",
        "judge: ppl\nsizes: {s: {}, m: {vocab_size: 350, N: 2}}\nrows: {A: {each: {h: [1]}}}\n",
    ],
)
def test_other_metrics_and_sizes_may_have_several_vocabularies(read, settings):
    assert read("study: t\ndata: {corpus: toy, vocab_size: 300}\n" + settings)
