"""What holds for every task: exact resumption, evaluation without training, what is refused."""

import re

import pytest
import torch

from ablate.errors import StudyError
from ablate.study import read_study, runs_of
from tests.tasks.language import scarce


@pytest.mark.parametrize(
    ("task", "row"), [("language-model", "lstm"), ("masked-lm", "masks"), ("parsing", "base")]
)
def test_resuming_gives_the_same_bytes(trained, task, row):
    assert "identical" in trained(task).answer("verify", "--device", "cpu", "--rows", row)


@pytest.mark.parametrize(
    ("task", "rows", "runs"),
    [("language-model", 6, 4), ("masked-lm", 7, 3), ("parsing", 4, 2), ("synthetic", 4, 3)],
)
def test_rows_of_the_evaluation_train_nothing(trained, task, rows, runs):
    study = trained(task).study
    assert (len(study.rows), len({run.id for run in runs_of(study)})) == (rows, runs)


SCORED = [("language-model", "bpb"), ("masked-lm", "masked_loss")]


@pytest.mark.parametrize(("task", "metric"), SCORED)
def test_a_test_text_that_needs_too_much_memory_is_scored_in_smaller_batches(
    trained, monkeypatch, task, metric
):
    run, row = trained(task).loaded("base")

    def score():
        found = run.task.predict(run.model, run.corpus, row.config, torch.device("cpu"))
        return run.task.measure(metric, found, run.corpus).value

    expected = score()
    output_terms, sizes = scarce(run.task, 300)
    monkeypatch.setattr(run.task, "output_terms", output_terms)
    assert score() == pytest.approx(expected)
    assert sizes[0] > 300 >= sizes[-1]


@pytest.mark.parametrize(("task", "metric"), SCORED)
def test_the_test_text_is_scored_without_dropout(trained, task, metric):
    run, row = trained(task).loaded("base")
    run.model.train()
    run.task.predict(run.model, run.corpus, row.config, torch.device("cpu"))
    assert not run.model.training


@pytest.mark.parametrize("task", ["language-model", "masked-lm"])
def test_predict_averages_as_the_row_does_or_says_that_it_cannot(trained, task):
    study = trained(task)
    mean = study.beside(
        "mean.yaml", study.file.read_text() + "  mean: {set: {average_checkpoints: 2}}\n"
    )
    done = mean.ask("predict", "mean*", "--text", "aa<mask>")
    assert (done.code, done.out) == (4, "")
    assert "has 1 checkpoint, and average_checkpoints=2 needs more" in done.err


@pytest.mark.parametrize("task", ["language-model", "masked-lm"])
def test_what_cannot_be_exported_is_refused(trained, tmp_path, task):
    def refusal(label, library):
        words = (trained(task).row(label)[1].label, "--out", tmp_path / "model", "--to", library)
        done = trained(task).ask("export", *words)
        assert (done.code, done.out) == (2, "")
        return done.err

    assert "it has mixer=lstm, but" in refusal("lstm", "huggingface")
    supported = "only translation is supported by --to ctranslate2"
    assert f"has the task {task}; {supported}" in refusal("base", "ctranslate2")


@pytest.mark.parametrize(
    ("task", "defaults"),
    [
        ("language-model", {"architecture": "decoder-only", "label_smoothing": 0, "context": 256}),
        ("masked-lm", {"architecture": "encoder-only", "label_smoothing": 0, "context": 256}),
        # section 6.3
        ("parsing", {"beam": 21, "alpha": 0.3, "max_extra_length": 300, "early_stopping": False}),
    ],
)
def test_the_defaults_are_those_of_the_task(tmp_path, task, defaults):
    config = read(tmp_path, task, "").base.config
    assert {name: getattr(config, name) for name in defaults} == defaults


def read(folder, task, text):
    """The study of a task with this section, on the corpus that needs no files."""
    corpus = "recall" if task == "synthetic" else "toy"
    data = "" if text.startswith("data:") else f"data: {{corpus: {corpus}}}\n"
    (folder / "s").write_text(f"study: s\ntask: {task}\n{data}{text}\n")
    return read_study(folder / "s")


# Limits of contexts, lengths and batches are in test_base.py.
REFUSED = [
    ("translation", "rows: {A: {each: {context: [16]}}}", ":4:29: context: 16 has no effect with task translation; remove it"),
    ("translation", "base: {eval_context: 16}", "eval_context: 16 has no effect with task translation; remove it"),
    ("translation", "base: {temperature: 16}", "temperature: 16 has no effect with task translation; remove it"),
    ("translation", "base: {mask_rate: 0.4}", "mask_rate: 0.4 has no effect with task translation; remove it"),
    ("translation", "base: {future_tokens: 1}", "no effect with task translation"),
    ("translation", "base: {document_masks: true}", "no effect with task translation"),
    ("language-model", "base: {beam: 4}", "s:4:14: beam: 4 has no effect with task language-model; remove it"),
    ("language-model", "base: {mask_rate: 0.4}", "mask_rate: 0.4 has no effect with task language-model; remove it"),
    ("language-model", "base: {architecture: encoder-decoder}",
     "architecture=encoder-decoder does not work with task language-model"),
    ("language-model", "base: {context: 64, batch_tokens: 255, batch_growth: 4}",
     's:4:54: row "base": batch_growth=4 begins with batches of 63 of 255 tokens'),
    ("language-model", "data: {corpus: toy, minimal_pairs: p.tsv}", "minimal_pairs has no effect: metrics do not name"),
    ("language-model", "metrics: [loss_after_64]\nbase: {context: 32}", '5:17: row "base": context=32 is too'),
    ("language-model", "metrics: [induction_loss]\nbase: {eval_context: 3}", "eval_context=3 is too short for"),
    ("language-model", "metrics: [minimal_pairs]", '4:10: row "base": metric minimal_pairs needs data.minimal'),
    ("language-model", "base: {probes: true}", "probes: true has no effect with metrics, which name what is"),
    ("language-model", "metrics: [loss_after_2]", 'unknown metric "loss_after_2"'),
    ("language-model", "base: {future_loss: 0.5}", "0.5 has no effect: it belongs to a head of future tokens"),
    ("language-model", "base: {future_tokens: 17}", "17 is not allowed: must be less than or equal to 16"),
    ("language-model", "base: {document_masks: true, mixer: lstm, positional_encoding: none}", "mixer=lstm, which carries tokens over"),
    ("language-model", "base: {document_masks: true, attention: linear}", "attention=linear, which carries tokens over"),
    ("language-model", "base: {document_masks: true, attention_convolution: qkv}", "attention_convolution=qkv, which carries"),
    ("language-model", "data: {corpus: toy, documents: separate}\nbase: {document_masks: true}", "no effect with data.documents=separate"),
    ("masked-lm", "base: {beam: 4}", "s:4:14: beam: 4 has no effect with task masked-lm; remove it"),
    ("masked-lm", "base: {temperature: 2.0}", "temperature: 2.0 has no effect with task masked-lm; remove it"),
    ("masked-lm", "base: {eval_stride: 4}", "eval_stride: 4 has no effect with task masked-lm; remove it"),
    ("masked-lm", "base: {decoder_layers: 2}",
     "s:4:24: decoder_layers: 2 has no effect: it belongs to the decoder (architecture), which is not chosen; remove it"),
    ("masked-lm", "base: {n_cross_heads: 2}", "n_cross_heads: 2 has no effect: it belongs to attention over the source"),
    ("masked-lm", "base: {tied_embeddings: decoder}", "tied_embeddings=decoder does not work without a decoder"),
    ("masked-lm", "base: {architecture: decoder-only}",
     "architecture=decoder-only does not work with task masked-lm; use encoder-only"),
    ("masked-lm", "base: {mask_split: 80/10/11}", "must be three percentages that add up to 100"),
    ("masked-lm", "base: {mask_rate: 1.5}", "mask_rate: 1.5 is not allowed"),
    ("masked-lm", "base: {context: 2048}", "context=2048 is longer than max_positions=1024"),
    ("masked-lm", "data: {corpus: toy, minimal_pairs: p.tsv}", "minimal_pairs has no effect: metrics do not name"),
    ("parsing", "base: {context: 16}", "s:4:17: context: 16 has no effect with task parsing; remove it"),
    ("parsing", "metrics: [bleu]", 'unknown metric "bleu"'),
    ("parsing", "data: {corpus: toy, direction: en-de}", 'unknown data field "direction"'),
    ("parsing", "data: {corpus: multi30k}", 'unknown corpus "multi30k"; allowed: toy, wsj, files'),
    ("parsing", "data: {corpus: toy, leaves: kept}", '"kept" is not allowed: must be XX, tags or words'),
    ("synthetic", "data: {corpus: recal}", 'did you mean "recall"'),
    ("synthetic", "data: {corpus: recall, depth: 3}", '"depth" has no effect on corpus recall'),
    ("synthetic", "data: {corpus: recall, vocab_size: 99}", '"vocab_size" has no effect'),
    ("synthetic", "data: {corpus: recall, test: 0}", 'test: "0" is not allowed'),
    ("synthetic", "data: {corpus: recall, folder: x}", '"folder" has no effect'),
    ("synthetic", "data: {corpus: recall, shortest: 9}", "shortest=9 is larger than pairs=4"),
    ("synthetic", "base: {train_fraction: 0.5}", "train_fraction=0.5 has no effect"),
    ("synthetic", "base: {eval_length: 5}", "eval_length has no effect on corpus recall"),
    ("synthetic", "base: {eval_pairs: 17}", "pairs=17 is larger than symbols=16"),
    ("synthetic", "base: {max_positions: 10}", "items have up to 15 tokens"),
    ("synthetic", "base: {batch_tokens: 10}", "does not fit in batch_tokens=10"),
    ("synthetic", "base: {batch_tokens: 32, batch_growth: 4}", "batches of 8 of 32 tokens, too few for an item; use at most 2"),
    ("synthetic", "base: {beam: 4}", "beam"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "text", "fault"), REFUSED)
def test_what_a_task_does_not_have_is_found_when_the_study_is_read(tmp_path, task, text, fault):
    with pytest.raises(StudyError, match=re.escape(fault)) as error:
        read(tmp_path, task, text)
    assert len(error.value.lines) == 1
